"""What a Solution is of: values that know how they are shown beside how the solve ended, and plain numbers."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from smisym.base.cards import Card, Cell, Grid, Listing, Number, Picture, Variable
from smisym.base.errors import InputError

# Of settings, what a card names; the rest is in ``settings``.
_TOLD = ("alpha", "dim", "samples", "scrambles", "seed", "accuracy", "damping")
_MOST_ENTRIES = 64


class Code(Protocol):
    """:class:`smisym.base.solution.Result`."""

    @property
    def ok(self) -> bool: ...

    @property
    def value(self) -> str: ...


class Solved(Protocol):
    """What is read here of a :class:`smisym.base.solution.Solution`."""

    @property
    def value(self) -> Any: ...

    @property
    def result(self) -> Code: ...

    @property
    def message(self) -> str: ...

    @property
    def statistical_error(self) -> Any: ...

    @property
    def deterministic_error(self) -> Any: ...

    @property
    def degrees_of_freedom(self) -> int | None: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    @property
    def history(self) -> Sequence[Mapping[str, Any]]: ...


class Outcome(abc.ABC):
    """A value that knows how the solution that it is of is shown."""

    @abc.abstractmethod
    def card_of(self, solution: Solved) -> Card:
        """What a notebook shows."""

    @abc.abstractmethod
    def grid_of(self, solution: Solved) -> Grid:
        """The value, its errors and how it was found, as arrays along named dimensions."""

    @abc.abstractmethod
    def picture_of(self, solution: Solved) -> Picture:
        """What a figure shows."""


class Numbers(Outcome):
    """A number, or an array of numbers, or what else a solution may be of."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def card_of(self, solution: Solved) -> Card:
        array = _numbers(self.value)
        facts: list[tuple[str, Cell]] = []
        listing = None
        if array is None:
            facts.append(("value", " ".join(repr(self.value).split())[:200]))
        elif array.ndim == 0:
            facts.append(("value", Number(float(array), _single(solution.statistical_error))))
        else:
            listing = _entries(array, _like(solution.statistical_error, array))
        return Card("Solution", notice(solution), (*facts, *ending(solution)), listing=listing)

    def grid_of(self, solution: Solved) -> Grid:
        array = _numbers(self.value)
        if array is None:
            allowed = "a solution of numbers, of a fixed point, of thresholds or of GAMP"
            raise InputError("solution", type(self.value).__name__, allowed, "make the table from solution.value")
        dims = tuple(f"dim_{axis}" for axis in range(array.ndim))
        variables = {
            "value": Variable(dims, array, "value"),
            "value_error": Variable(dims, _like(solution.statistical_error, array), "one standard error"),
            "deterministic_error": Variable(dims, _like(solution.deterministic_error, array), "left of the equation"),
        }
        shared = {} if "alpha" not in solution.settings else {"alpha": solution.settings["alpha"]}
        for name, of in {**shared, **provenance(solution)}.items():
            variables[name] = Variable((), np.asarray(of), ABOUT.get(name, name), UNITS.get(name, ""))
        coordinates = {dim: np.arange(size) for dim, size in zip(dims, array.shape, strict=True)}
        return Grid(coordinates, variables, dims, attributes(solution))

    def picture_of(self, solution: Solved) -> Picture:
        raise InputError(
            "solution", type(self.value).__name__, "a solution of a fixed point, of thresholds or of GAMP",
            "draw solution.value yourself: it is plain numbers",
        )  # fmt: skip


# --- what the tables of all results have in common -------------------------------------------------

ABOUT = {
    "alpha": "samples per dimension",
    "samples": "integration points of one evaluation of the overlap map",
    "seed": "seed of the random numbers",
    "result": "how the solve ended",
    "degrees_of_freedom": "of the Student t that the statistical error follows",
    "start": "where the iteration began",
}
UNITS = {"alpha": "N / D"}


def provenance(solution: Solved) -> dict[str, Any]:
    """What every line of a table says of where it is from: result, samples, seed; -1 where there is none."""
    number = {name: solution.settings.get(name) for name in ("samples", "seed")}
    return {"result": solution.result.value} | {
        name: value if isinstance(value, int) else -1 for name, value in number.items()
    }


def attributes(solution: Solved) -> dict[str, Any]:
    """Settings that a file of labelled arrays can hold: numbers and text."""
    return {
        name: value
        for name, value in solution.settings.items()
        if isinstance(value, int | float | str) and not isinstance(value, bool)
    }


def notice(solution: Solved) -> str:
    """What is wrong with it, and what helps; nothing of a success."""
    return "" if solution.result.ok else f"{solution.result.value}: {solution.message}"


def ending(solution: Solved) -> tuple[tuple[str, Cell], ...]:
    """How the solve ended, and the settings that one asks for first."""
    told: list[tuple[str, Cell]] = [("result", f"{solution.result.value}: {solution.message}")] * solution.result.ok
    settings = ((name, solution.settings[name]) for name in _TOLD if name in solution.settings)
    told += [
        (r"$\alpha$" if name == "alpha" else name, f"{value:g}" if isinstance(value, float) else str(value))
        for name, value in settings
    ]
    return tuple(told)


def _numbers(value: Any) -> np.ndarray | None:
    try:
        array = np.asarray(value)
    except ValueError:
        return None
    return array if array.dtype.kind in "fiub" else None


def _single(error: Any) -> float | None:
    return None if error is None else float(error)


def _like(error: Any, array: np.ndarray) -> np.ndarray:
    """An error in the shape of the value; NaN where none is known."""
    return np.full(array.shape, np.nan) if error is None else np.broadcast_to(np.asarray(error, float), array.shape)


def _entries(array: np.ndarray, errors: np.ndarray) -> Listing:
    places = list(np.ndindex(array.shape))[:_MOST_ENTRIES]
    rows = tuple((", ".join(map(str, place)), Number(float(array[place]), float(errors[place]))) for place in places)
    return Listing(("entry", "value"), rows)
