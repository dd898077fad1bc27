"""A threshold: where the learning of some directions begins, or is complete."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from smisym.base.cards import Branched, Card, Cell, Grid, Listing, Marks, Number, Shown, Variable, listed, row_names
from smisym.base.directions import is_part, spanned
from smisym.base.outcome import ABOUT, UNITS, Outcome, Solved, attributes, ending, notice, provenance
from smisym.base.solution import short

# Kinds of thresholds, in the order in which a table shows them.
KINDS = ("trivial", "weak", "hard", "spinodal", "information", "perfect_stable", "perfect_amp")


_WORDS = {
    "trivial": "learned from the first sample on",
    "weak": "weak recovery",
    "hard": "hard",
    "spinodal": "fold of a branch",
    "information": "information-theoretic transition",
    "perfect_stable": "perfect recovery locally stable",
    "perfect_amp": "perfect recovery reached",
}


@dataclass(frozen=True)
class Threshold(Shown):
    """One threshold.

    kind: one of KINDS.  layers: counted from 1.  subspace (dim, P): the directions, one a row.
    alpha: math.inf for a hard direction, 0 for a trivial one.  error: one standard error over the scrambles; of a first
    threshold by quadrature over y what refinement changes, twice on a lattice, plus what the tolerance of the inner
    integrals leaves; of "perfect_amp" at least how closely the branch is followed, math.inf where one scramble alone
    showed it; 0 if exact.  Q (P, P): the overlap just below.  order: of a hard direction, the first order of its
    Hermite expansion that does not vanish (None where none was clear up to order six), given nothing else.  names: of
    the rows that take part.  samples: of one evaluation of the map that it was measured on, None where it was not
    sampled.
    """

    kind: str
    layers: tuple[int, ...]
    subspace: np.ndarray
    alpha: float
    error: float
    Q: np.ndarray
    order: int | None = None
    names: tuple[str, ...] = ()
    samples: int | None = None

    def __repr__(self) -> str:
        alpha = short(self.alpha) if not self.error else f"{short(self.alpha)} +- {short(self.error)}"
        return f"Threshold({self.kind}, {spanned(self.subspace, self.names)}: alpha = {alpha})"

    def card(self) -> Card:
        """What a notebook shows."""
        facts: list[tuple[str, Cell]] = [("rows", self._rows), ("$\\alpha$", self._alpha)]
        facts += [] if self.order is None else [("first order that does not vanish", str(self.order))]
        known = np.diag(self.Q)
        facts.append(("overlaps just below", tuple(Number(float(q)) for q in known[:8])))
        facts += [] if self.samples is None else [("samples", str(self.samples))]
        return Card(f"Threshold: {self._words}", facts=tuple(facts))

    @property
    def _words(self) -> str:
        return _WORDS.get(self.kind, self.kind)

    @property
    def _rows(self) -> str:
        """A few names; of a part of what they span which."""
        part = is_part(self.subspace, self.names)
        return (spanned(self.subspace, self.names) if part else listed(self.names)) or "–"

    @property
    def _alpha(self) -> Number:
        return Number(self.alpha, self.error)

    def line(self) -> tuple[Cell, ...]:
        """As a line of a table for people."""
        known = tuple(Number(float(q)) for q in np.diag(self.Q)[:8])
        return self._words, self._rows, self._alpha, known


class Thresholds(tuple[Threshold, ...], Shown, Outcome):
    """Thresholds in the order in which they are met: a tuple that shows itself.  labels: of all rows of Z."""

    labels: tuple[str, ...]

    def __new__(cls, found: Iterable[Threshold] = (), labels: Iterable[str] = ()) -> Self:
        made = super().__new__(cls, found)
        made.labels = tuple(labels)
        return made

    def card(self) -> Card:
        """What a notebook shows."""
        rows = tuple(threshold.line() for threshold in self)
        listing = Listing(("threshold", "rows", "$\\alpha$", "overlaps just below"), rows)
        picture = Marks(tuple(vars(threshold) for threshold in self)) if any(map(_is_finite, self)) else None
        notes = () if self else ("None was found.",)
        return Card("Thresholds", listing=listing if self else None, picture=picture, notes=notes)

    def card_of(self, solution: Solved) -> Card:
        return replace(self.card(), notice=notice(solution), facts=ending(solution))

    def picture_of(self, solution: Solved) -> Marks | Branched:
        return Marks(tuple(vars(threshold) for threshold in self))

    def grid_of(self, solution: Solved) -> Grid:
        rows = len(self[0].Q) if self else len(self.labels)
        names = row_names(self.labels, rows)
        one = ("threshold",)
        variables = {
            "kind": Variable(one, _texts([t.kind for t in self]), "kind of threshold"),
            "rows": Variable(one, _texts([", ".join(t.names) for t in self]), "rows of Z that take part"),
            "layers": Variable(one, _texts([", ".join(map(str, t.layers)) for t in self]), "their layers, from 1"),
            "alpha": Variable(one, np.array([t.alpha for t in self], float), ABOUT["alpha"], UNITS["alpha"]),
            "alpha_error": Variable(one, np.array([t.error for t in self], float), "one standard error", "N / D"),
            "order": Variable(one, _counts([t.order for t in self]), "first order that does not vanish; -1: not known"),
            "samples": Variable(one, _counts([t.samples for t in self]), "of the map; -1: not sampled"),
        }
        every = provenance(solution)
        for name in ("result", "seed"):
            variables[name] = Variable(one, np.array([every[name]] * len(self)), ABOUT[name])
        both = (*one, "row", "row_")
        below = np.array([t.Q for t in self], float).reshape(len(self), rows, rows)
        spans = np.array([t.subspace.T @ t.subspace for t in self], float).reshape(len(self), rows, rows)
        variables["overlap_below"] = Variable(both, below, "overlap just below the threshold")
        variables["subspace"] = Variable(both, spans, "projector on the directions")
        coordinates: dict[str, Any] = {"threshold": np.arange(len(self)), "row": names, "row_": names}
        return Grid(coordinates, variables, one, attributes(solution))


def _is_finite(threshold: Threshold) -> bool:
    return math.isfinite(threshold.alpha)


def _texts(words: list[str]) -> np.ndarray:
    return np.array(words, dtype=np.str_)


def _counts(numbers: list[int | None]) -> np.ndarray:
    return np.array([-1 if number is None else number for number in numbers], dtype=int)
