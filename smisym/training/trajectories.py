"""What is learned step by step, as values: cosines with the truth, layer by layer, of several methods and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smisym.base.cards import Card, Cell, Course, Courses, Grid, Listing, Number, Shown, Variable
from smisym.base.counting import counted
from smisym.base.errors import InputError
from smisym.base.outcome import Outcome, Solved, attributes, ending, notice
from smisym.base.solution import Result, mean_and_error

EVOLUTION, GAMP = "state evolution", "gamp"


@dataclass(frozen=True)
class Trajectory:
    """One method.

    method
        "state evolution", "gamp", "sgd" or "adam".
    unit
        What its steps are: "iteration" or "epoch".
    cosines
        (seeds, n, P), from the start on: of each row of the estimate with that of the truth, after the symmetry that
        fits best, 1 where it is recovered; sqrt(Q_pp) of state evolution.  NaN from where a run diverged.
    noise
        (n, P), one standard error of the mean over seeds from the integrals of state evolution; 0 for all others.
    loss
        (seeds, n), the mean square loss of the batches of an epoch, of descent; NaN at the start and for all others.
    results, reasons
        How each run ended, and why; a run of GAMP that converged stands still from there on.
    """

    method: str
    unit: str
    cosines: np.ndarray
    noise: np.ndarray
    loss: np.ndarray
    results: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def steps(self) -> np.ndarray:
        """(n,): 0, 1, 2, ..."""
        return np.arange(self.cosines.shape[1])

    @property
    def result(self) -> Result:
        """DIVERGED where a run did."""
        diverged = Result.DIVERGED.value in self.results
        return Result.DIVERGED if diverged else Result.SUCCESS


@dataclass(frozen=True)
class Dynamics(Shown, Outcome):
    """How layers are learned, by each method in turn: ``trajectories``; ``dynamics["gamp"]`` is one of them.

    names
        Of the rows of W.
    layers
        Of each row, counted from 1.
    """

    trajectories: tuple[Trajectory, ...]
    names: tuple[str, ...]
    layers: tuple[int, ...]

    def __repr__(self) -> str:
        """Methods, and what they know at the end."""
        ends = []
        for one in self.trajectories:
            known = ", ".join(f"{value:.3g}" for value in self.mean(one.method)[-1])
            ends.append(f"{one.method} {known} after {len(one.steps) - 1} {one.unit}s")
        seeds = len(self.trajectories[0].cosines) if self.trajectories else 0
        return f"<Dynamics, {counted(seeds, 'seed')}: {'; '.join(ends)}>"

    def __getitem__(self, method: str) -> Trajectory:
        for one in self.trajectories:
            if one.method == method:
                return one
        allowed = ", ".join(one.method for one in self.trajectories)
        raise InputError("method", method, allowed, "ask for one that was followed")

    @property
    def layer_names(self) -> tuple[str, ...]:
        """One a layer: the name of its row, or its number where it has several."""
        numbers = sorted(set(self.layers))
        alone = [self.layers.count(number) == 1 for number in numbers]
        return tuple(
            self.names[self.layers.index(number)] if one else f"layer {number}"
            for number, one in zip(numbers, alone, strict=True)
        )

    def of_layers(self, of_rows: np.ndarray) -> np.ndarray:
        """(..., L), the mean over the rows of each layer, of (..., P)."""
        layers = np.array(self.layers)
        return np.stack([of_rows[..., layers == number].mean(axis=-1) for number in sorted(set(self.layers))], axis=-1)

    def mean(self, method: str) -> np.ndarray:
        """(n, L): cosines of the layers, the mean over the seeds; NaN from where one of them diverged."""
        return np.asarray(self.of_layers(self[method].cosines).mean(axis=0))

    def error(self, method: str) -> np.ndarray:
        """(n, L): one standard error of :meth:`mean`, over the seeds and of integrals; of one seed only the latter
        is known, and where there is none the error is infinite."""
        one = self[method]
        integrals = self.of_layers(one.noise)
        if len(one.cosines) == 1:
            return np.where(integrals > 0, integrals, np.inf)
        return np.hypot(mean_and_error(self.of_layers(one.cosines))[1], integrals)

    def learned(self, method: str, above: float = 0.5) -> tuple[int | None, ...]:
        """For each layer the first step from which on its mean cosine stays above a level; None where it does not."""
        below = ~(self.mean(method) > above)
        firsts = [int(np.flatnonzero(column)[-1]) + 1 if column.any() else 0 for column in below.T]
        return tuple(first if first < len(below) else None for first in firsts)

    # ---- how it is shown

    def card(self) -> Card:
        """What a notebook shows, as plain data."""
        head = ("method", *(f"{name}, at the end" for name in self.layer_names), "learned in the order")
        rows: list[tuple[Cell, ...]] = []
        failed = []
        for one in self.trajectories:
            mean, error = self.mean(one.method)[-1], self.error(one.method)[-1]
            numbers = tuple(Number(float(m), float(e)) for m, e in zip(mean, error, strict=True))
            rows.append((f"{one.method}, {len(one.steps) - 1} {one.unit}s", *numbers, self._order(one.method)))
            failed.append(not one.result.ok)
        facts: tuple[tuple[str, Cell], ...] = (("seeds", str(len(self.trajectories[0].cosines))),)
        notes = ("Cosines with the truth, modulo the symmetries; 1 where a layer is recovered.",)
        return Card("Dynamics", facts=facts, listing=Listing(head, tuple(rows), tuple(failed)), notes=notes)

    def _order(self, method: str) -> str:
        first = self.learned(method)
        order = sorted((step, name) for step, name in zip(first, self.layer_names, strict=True) if step is not None)
        return ", ".join(f"{name} ({step})" for step, name in order) or "none"

    def card_of(self, solution: Solved) -> Card:
        own = self.card()
        told = (*own.facts, *ending(solution))
        return replace(own, notice=notice(solution), facts=told, picture=self.picture_of(solution))

    def picture_of(self, solution: Solved) -> Courses:
        courses = [
            Course(one.method, one.unit, one.steps, self.mean(one.method), self.error(one.method), one.result.ok)
            for one in self.trajectories
        ]
        return Courses(tuple(courses), self.layer_names)

    def grid_of(self, solution: Solved) -> Grid:
        """One line for each method, step and layer; methods of fewer steps end in NaN."""
        longest = max(len(one.steps) for one in self.trajectories)
        seeds = len(self.trajectories[0].cosines)
        dims = ("method", "step", "layer")
        methods = [one.method for one in self.trajectories]
        each = [self.of_layers(one.cosines).swapaxes(0, 1) for one in self.trajectories]
        variables = {
            "cosine": Variable(dims, _padded([self.mean(m) for m in methods], longest), "mean over the seeds", "1"),
            "cosine_error": Variable(
                dims, _padded([self.error(m) for m in methods], longest), "one standard error of the mean", "1"
            ),
            "cosine_of_seed": Variable(
                ("method", "step", "seed", "layer"), _padded(each, longest), "of each run, with the truth", "1"
            ),
            "loss": Variable(
                ("method", "step", "seed"), _padded([one.loss.T for one in self.trajectories], longest),
                "mean square loss of the batches of an epoch",
            ),
            "unit": Variable(("method",), np.array([one.unit for one in self.trajectories]), "what a step is"),
            "result": Variable((), np.asarray(solution.result.value), "how the runs ended"),
        }  # fmt: skip
        coordinates: dict[str, Any] = {"method": methods, "step": np.arange(longest), "seed": np.arange(seeds),
                       "layer": self.layer_names}  # fmt: skip
        return Grid(coordinates, variables, dims, attributes(solution))


def _padded(arrays: Sequence[np.ndarray], longest: int) -> np.ndarray:
    """(methods, longest, ...): NaN where a method has no such step."""
    found = np.full((len(arrays), longest, *arrays[0].shape[1:]), np.nan)
    for out, array in zip(found, arrays, strict=True):
        out[: len(array)] = array
    return found
