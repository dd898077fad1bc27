"""Where GAMP stopped: the estimate, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smisym.base.cards import Card, Cell, Grid, Listing, Number, Shown, Steps, Variable, row_names
from smisym.base.errors import InputError
from smisym.base.outcome import Outcome, Solved, attributes, ending, notice
from smisym.base.solution import short


@dataclass(frozen=True)
class Gamp(Shown, Outcome):
    """Where GAMP stopped.

    W_hat
        (P, D), the estimate: the posterior mean of W, in the gauge (signs, exchanges, rotations) in which it was found;
        (P, D/H) where heads split the embedding.
    C_hat
        (P, P), the posterior covariance of one column of W.
    Q
        (P, P), ``W_hat W_hat^T / D``, 0 between rows on different slices of the embedding.
    overlap
        (P, P), ``W_hat W^T / D`` after the map of rows of W_hat, among those that the output cannot see, that makes
        its trace largest (:func:`smisym.finite.alignment.align`); None without W.
    steps
        How many steps were made.
    reason
        Why it stopped, in words.
    names
        Of the rows of W.
    """

    W_hat: np.ndarray
    C_hat: np.ndarray
    Q: np.ndarray
    overlap: np.ndarray | None
    steps: int
    reason: str
    names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The overlaps, and why it stopped; the arrays are attributes."""
        name, matrix = ("Q", self.Q) if self.overlap is None else ("overlap", self.overlap)
        rows, dim = self.W_hat.shape
        return f"<Gamp: W_hat ({rows}, {dim}), {name} {short(np.diag(matrix))} after {self.steps} steps; {self.reason}>"

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each row of W."""
        return row_names(self.names, len(self.Q))

    def card(self) -> Card:
        """What a notebook shows, as plain data."""
        matrix = self.Q if self.overlap is None else self.overlap
        what = "with itself" if self.overlap is None else "with the truth"
        facts: tuple[tuple[str, Cell], ...] = (("steps", str(self.steps)), ("stopped", self.reason))
        variance = np.diag(self.C_hat)
        rows = tuple(
            (name, Number(float(q)), Number(float(v)))
            for name, q, v in zip(self.labels, np.diag(matrix), variance, strict=True)
        )
        listing = Listing(("row", f"overlap {what}", "posterior variance"), rows)
        note = f"The estimate is W_hat, an array {self.W_hat.shape}."
        return Card("GAMP", facts=facts, listing=listing, notes=(note,))

    def card_of(self, solution: Solved) -> Card:
        own = self.card()
        picture = self.picture_of(solution) if solution.history else None
        return replace(own, notice=notice(solution), facts=(*own.facts, *ending(solution)), picture=picture)

    def picture_of(self, solution: Solved) -> Steps:
        records = solution.history
        if not records:
            raise InputError("solution", "no history", "one with the record of every step", "run smisym.gamp")
        known = all(record["overlap"] is not None for record in records)
        matrices = [record["overlap" if known else "Q"] for record in records]
        overlaps = np.array([np.diag(matrix) for matrix in matrices], dtype=float)
        steps = np.array([record["step"] for record in records], dtype=float)
        what = "overlap with the truth" if known else "overlap with itself"
        return Steps(steps, overlaps, self.labels, what, solution.result.ok)

    def grid_of(self, solution: Solved) -> Grid:
        records, rows = solution.history, len(self.Q)
        one, both = ("step",), ("step", "row", "row_")
        variables = {
            name: Variable(both, stacked(records, name, (rows, rows)), about, "1") for name, about in _MATRICES.items()
        }
        variables["cosine"] = Variable(("step", "row"), stacked(records, "cosines", (rows,)), "with the truth", "1")
        for name, about in _OF_STEPS.items():
            variables[name] = Variable(one, stacked(records, name, ()), about, "1")
        channel = np.array([record["channel"] for record in records], dtype=np.str_)
        variables["channel"] = Variable(one, channel, "how the posteriors of the step ended")
        variables["result"] = Variable((), np.asarray(solution.result.value), "how the run ended")
        coordinates = {"step": [record["step"] for record in records], "row": self.labels, "row_": self.labels}
        return Grid(coordinates, variables, both, attributes(solution))


_MATRICES = {
    "overlap": "overlap of the estimate with the truth, after the symmetry that makes it largest",
    "Q": "overlap of the estimate with itself",
    "C_hat": "posterior covariance of one column of W",
}
_OF_STEPS = {
    "change": "relative change of the estimate in this step",
    "surprise": "largest ratio of the observed to the expected spread of the fields",
    "channel_error": "error of the channel as it reaches the estimate, in posterior standard deviations",
}


def stacked(records: Sequence[Mapping[str, Any]], name: str, shape: tuple[int, ...]) -> np.ndarray:
    """(n, *shape): what the records hold under one name; NaN where that is nothing."""
    nothing = np.full(shape, np.nan)
    found = [nothing if record.get(name) is None else record[name] for record in records]
    return np.array(found, dtype=float).reshape(len(records), *shape)
