"""What an object has to show, as plain data: cards, pictures and grids.  Nothing here draws anything.

A card is what a notebook shows of an object, a picture what a figure shows, a grid what tables and labelled arrays are
made of.  Text is prose, in which ``$...$`` holds inline LaTeX.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from smisym.base.derivation import Formula
from smisym.base.presenting import made


class Number(NamedTuple):
    """A number with its standard error, where it has one; None or NaN for a number that is not there."""

    value: float | None
    error: float | None = None


Cell = str | Number | tuple[Number, ...]


@dataclass(frozen=True)
class Listing:
    """A table for people: names of columns, rows of cells, and which rows are no success."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    failed: tuple[bool, ...] = ()


# --- pictures --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Blocks:
    """A matrix (P, P) as blocks of colour, with the names of its rows."""

    values: np.ndarray
    errors: np.ndarray
    names: tuple[str, ...]


@dataclass(frozen=True)
class Points:
    """Overlaps against alpha: records of points, of thresholds, and the names of rows."""

    points: tuple[Mapping[str, Any], ...]
    names: tuple[str, ...]
    thresholds: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Steps:
    """Overlaps (n, P) against the steps (n,) of an algorithm."""

    steps: np.ndarray
    overlaps: np.ndarray
    names: tuple[str, ...]
    what: str
    ended: bool


@dataclass(frozen=True)
class Marks:
    """Thresholds on the axis of alpha."""

    thresholds: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Stages:
    """Thresholds (n) against values (n,) of a parameter; ok (n,): whether they are a success."""

    values: np.ndarray
    ok: np.ndarray
    thresholds: tuple[Mapping[str, Any], ...]


class Traced(NamedTuple):
    """One branch: alphas (n,) with one standard error, overlaps (n, P), and whether each point is stable (n,)."""

    alphas: np.ndarray
    errors: np.ndarray
    overlaps: np.ndarray
    stable: np.ndarray


@dataclass(frozen=True)
class Branched:
    """Branches of fixed points against alpha, folds included, with the names of rows and records of thresholds."""

    branches: tuple[Traced, ...]
    names: tuple[str, ...]
    thresholds: tuple[Mapping[str, Any], ...] = ()


class Boundary(NamedTuple):
    """One boundary of a phase diagram: what it is, records of thresholds by value, and where it is no success.

    label: for the legend.  kind: of its thresholds.  values, alphas, errors (n,), ok (n,).
    """

    label: str
    kind: str
    values: np.ndarray
    alphas: np.ndarray
    errors: np.ndarray
    ok: np.ndarray


@dataclass(frozen=True)
class Diagram:
    """Boundaries over the values of one parameter, one for each value of a second; names of the parameters."""

    boundaries: tuple[Boundary, ...]
    names: tuple[str, ...]
    scale: str = "linear"


@dataclass(frozen=True)
class Course:
    """What one algorithm learns of each layer: mean and standard error (n, L) at steps (n,), counted in ``unit``."""

    name: str
    unit: str
    steps: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    ended: bool


@dataclass(frozen=True)
class Courses:
    """Several algorithms beside each other, and the names of the layers."""

    courses: tuple[Course, ...]
    names: tuple[str, ...]


Picture = Blocks | Points | Steps | Marks | Stages | Branched | Diagram | Courses


# --- cards -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Card:
    """What a notebook shows of one object.

    notice: what is wrong with it, and what helps.  facts: names and what they are.  listing: shown folded where it
    is long.
    """

    title: str
    notice: str = ""
    facts: tuple[tuple[str, Cell], ...] = ()
    formulas: tuple[Formula, ...] = ()
    listing: Listing | None = None
    picture: Picture | None = None
    notes: tuple[str, ...] = ()


class Shown(abc.ABC):
    """Shows itself in a notebook."""

    @abc.abstractmethod
    def card(self) -> Card:
        """What there is to show, as plain data."""

    def _repr_html_(self) -> str:
        """For notebooks: self-contained HTML, formulas as MathML, without script."""
        return str(made("card", self.card()))


# --- grids -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variable:
    """An array along named dimensions, with what it is and its unit."""

    dims: tuple[str, ...]
    values: np.ndarray
    about: str
    unit: str = ""


@dataclass(frozen=True)
class Grid:
    """A result as arrays along named dimensions.

    coordinates: values along every dimension.  lines: the dimensions that the lines of a table run over; variables
    along others are in labelled arrays alone.
    """

    coordinates: Mapping[str, Sequence[Any] | np.ndarray]
    variables: Mapping[str, Variable]
    lines: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Tabled(abc.ABC):
    """Is a table, too."""

    @abc.abstractmethod
    def grid(self) -> Grid:
        """Everything as arrays along named dimensions, as plain data."""

    def to_dataframe(self) -> Any:
        """A pandas DataFrame, one observation a line (``pip install 'smisym[tables]'``); InputError without pandas."""
        return made("dataframe", self.grid())

    def to_xarray(self) -> Any:
        """An xarray Dataset with named dimensions, units and what is needed to reproduce it among its attributes.

        ``pip install 'smisym[tables]'``; InputError without xarray.
        """
        return made("dataset", self.grid())


class Drawn(abc.ABC):
    """Can be drawn."""

    @abc.abstractmethod
    def picture(self) -> Picture:
        """What a figure of it shows, as plain data; InputError where there is nothing to draw."""

    def plot(self, ax: Any = None) -> Any:
        """Draw it on a matplotlib Axes, or on a new one, and return that; InputError where nothing can be drawn."""
        return made("plot", self.picture(), ax)


# --- what they share -------------------------------------------------------------------------------


def row_names(names: Sequence[str], rows: int) -> tuple[str, ...]:
    """The names of rows, or "row 1", "row 2", ... where they have none."""
    return tuple(names) if len(names) == rows else tuple(f"row {number}" for number in range(1, rows + 1))


def listed(words: Sequence[str], most: int = 6) -> str:
    """A few words in a row, and how many there are where that are more."""
    shown = ", ".join(words[:most])
    return shown if len(words) <= most else f"{shown}, ... ({len(words)} in all)"
