"""Branches of fixed points as results: lines against alpha that show themselves, and the transitions found on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from smisym.base.cards import Branched, Card, Cell, Grid, Listing, Number, Shown, Traced, Variable, row_names
from smisym.base.counting import counted
from smisym.base.outcome import ABOUT, UNITS, Outcome, Solved, attributes, ending, notice, provenance
from smisym.base.threshold import Threshold, Thresholds
from smisym.theory.all_branches import Branch, resting_points

_HEAD = ("begins", "ends", "points", "$\\alpha$", "folds", "stable")


@dataclass(frozen=True)
class BranchLine:
    """Fixed points along one branch, in the order in which they are met.

    begins: "weak" where directions begin to be learned, "informed" where it is followed down from an informed start.
    ends: "perfect", "alpha" (the largest that was asked for), "nothing" (all overlaps vanish), "vanishing" (next to
    nothing is left of one direction, much more of another: what is learned on begins a branch of its own) or "lost".
    alphas, errors (n,): with one standard error.  overlaps (n, P, P).  growth (n,): by how much the fastest small
    change grows, per iteration: a point is stable where that is below one.  turns: points where alpha turns back.
    """

    begins: str
    ends: str
    alphas: np.ndarray
    errors: np.ndarray
    overlaps: np.ndarray
    growth: np.ndarray
    turns: tuple[int, ...] = ()

    @classmethod
    def of(cls, branch: Branch) -> BranchLine:
        alphas, rows = branch.alphas, len(branch.points[0].Q) if branch.points else 0
        errors = alphas * np.array([point.error for point in branch.points])
        overlaps = branch.overlaps.reshape(len(alphas), rows, rows)
        return cls(branch.begins, branch.ends, alphas, errors, overlaps, branch.growth, branch.turns)

    def __repr__(self) -> str:
        where = f", alpha {self.alphas.min():.4g} to {self.alphas.max():.4g}" if len(self.alphas) else ""
        return f"<BranchLine: {self.begins}, {len(self.alphas)} points{where}, {counted(len(self.turns), 'fold')}>"

    @property
    def stable(self) -> np.ndarray:
        """(n,): whether small changes shrink back."""
        return self.growth < 1

    def traced(self) -> Traced:
        """As a figure takes it."""
        known = np.diagonal(self.overlaps, axis1=1, axis2=2)
        return Traced(self.alphas, self.errors, known, resting_points(self.growth, self.turns))

    def line(self) -> tuple[Cell, ...]:
        """As a line of a table for people."""
        ends = [int(self.alphas.argmin()), int(self.alphas.argmax())] if len(self.alphas) else []
        span = tuple(Number(float(self.alphas[n]), float(self.errors[n])) for n in ends)
        stable = f"{int(self.stable.sum())} of {len(self.alphas)}"
        return self.begins, self.ends, str(len(self.alphas)), span or "–", str(len(self.turns)), stable


class Branches(tuple[BranchLine, ...], Shown, Outcome):
    """Every branch that was found: a tuple of BranchLine that shows itself.  labels: of the rows of Z."""

    labels: tuple[str, ...]

    def __new__(cls, found: Iterable[BranchLine] = (), labels: Iterable[str] = ()) -> Self:
        made = super().__new__(cls, found)
        made.labels = tuple(labels)
        return made

    def card(self) -> Card:
        """What a notebook shows, as plain data."""
        rows = tuple(branch.line() for branch in self)
        picture = self.picture() if any(len(branch.alphas) for branch in self) else None
        notes = ("Solid: small changes shrink back, so that an algorithm may rest there; dashed: they grow.",)
        return Card("Branches of fixed points", listing=Listing(_HEAD, rows) if rows else None, picture=picture,
                    notes=notes if rows else ("None was found.",))  # fmt: skip

    def card_of(self, solution: Solved) -> Card:
        return replace(self.card(), notice=notice(solution), facts=ending(solution))

    def picture(self, thresholds: Iterable[Threshold | Mapping[str, Any]] = ()) -> Branched:
        """What ``plot`` draws: overlaps against alpha, folds included."""
        found = tuple(vars(one) if isinstance(one, Threshold) else one for one in thresholds)
        return Branched(tuple(branch.traced() for branch in self), self._names, found)

    def picture_of(self, solution: Solved) -> Branched:
        return self.picture()

    def grid_of(self, solution: Solved) -> Grid:
        rows = len(self._names)
        both = ("point", "row", "row_")
        columns: dict[str, Variable] = {}
        number = np.concatenate(
            [np.full(len(b.alphas), n, dtype=int) for n, b in enumerate(self)] or [np.zeros(0, int)]
        )
        columns["branch"] = Variable(("point",), number, "number of the branch, from 0")
        about = {
            "alpha": ("alphas", ABOUT["alpha"], UNITS["alpha"]),
            "alpha_error": ("errors", "one standard error", UNITS["alpha"]),
            "growth": ("growth", "growth of the fastest small change, per iteration", "1"),
            "stable": ("stable", "whether small changes shrink back", ""),
        }
        for name, (key, *what) in about.items():
            columns[name] = Variable(("point",), _joined(getattr(b, key) for b in self), *what)
        overlaps = [b.overlaps.reshape(-1, rows, rows) for b in self] or [np.zeros((0, rows, rows))]
        columns["overlap"] = Variable(both, np.concatenate(overlaps), "overlap of rows with the truth", "1")
        for name in ("result", "seed"):
            columns[name] = Variable((), np.asarray(provenance(solution)[name]), ABOUT[name])
        coordinates: dict[str, Any] = {"point": np.arange(len(number)), "row": self._names, "row_": self._names}
        return Grid(coordinates, columns, both, attributes(solution))

    @property
    def _names(self) -> tuple[str, ...]:
        rows = max((b.overlaps.shape[-1] for b in self), default=len(self.labels))
        return row_names(self.labels, rows)


class Phases(Thresholds):
    """Transitions by alpha, with the branches on which they were found: Thresholds whose figure shows both."""

    branches: Branches

    def __new__(
        cls, found: Iterable[Threshold] = (), labels: Iterable[str] = (), branches: Iterable[BranchLine] = ()
    ) -> Self:
        names = tuple(labels)
        made = super().__new__(cls, found, names)
        made.branches = Branches(branches, names)
        return made

    def card(self) -> Card:
        own = super().card()
        notes = () if self else ("No two stable states were seen at once, and no branch of fixed points that folds.",)
        return replace(own, title="Phases", picture=self.branches.picture(self) if self.branches else None, notes=notes)

    def picture_of(self, solution: Solved) -> Branched:
        return self.branches.picture(self)


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    arrays = list(parts)
    return np.concatenate(arrays) if arrays else np.zeros(0)
