"""Estimates by rough posteriors at all points and fine ones at a few of them.

What tolerance posteriors are integrated to changes their averages by little, and alike from point to point: with three
layers on two tokens, at Q = (0.17, 0, 0.987), the rate of what is not learned yet is 5e-3 too high at 3e-2, known to 8e-4
from 1024 points, where the rate itself is known to 2.4e-2; posteriors at 3e-3 cost five times as much.  So many points
take the rough tolerance, few of them the fine one as well, and the difference is added: a mean of two levels (Giles,
Operations Research 56, 607).
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from smisym.model.compiled import Model
from smisym.theory.estimate import Estimate
from smisym.theory.estimating import Estimator

# Of how many points one is integrated to both tolerances, and the least number of them.
_FEWER, _LEAST = 16, 32
# What the difference is added to: means over points, and the derivative made of them.
_MEANS = ("white", "three", "slope", "log_partition", "gap", "beside")
# Negative eigenvalue of E, beside its largest, that is rounding.
_ROUNDING = 1e-10


class TwoLevels:
    """Estimates at ``points`` Sobol points a scramble, posteriors to rtol, and what is added by fine ones."""

    def __init__(self, model: Model, points: int, seed: int, rtol: float, fine: float) -> None:
        self.fine = fine
        few = min(max(points // _FEWER, _LEAST), points)
        self.rough = Estimator(model, points, seed, rtol)
        # The first points of the same sequence.
        self.before, self.after = (Estimator(model, few, seed, tolerance) for tolerance in (rtol, fine))

    def fresh(self) -> TwoLevels:
        """The same without what it remembers."""
        rough = self.rough
        return TwoLevels(rough.model, rough.points, rough.seed, rough.rtol, self.fine)

    def __call__(self, scramble: int, Q: np.ndarray) -> Estimate:
        """The estimates of one scramble at Q (P, P)."""
        rough, before, after = (level(scramble, Q) for level in (self.rough, self.before, self.after))
        added = {name: getattr(rough, name) + (getattr(after, name) - getattr(before, name)) for name in _MEANS}
        values = np.linalg.eigvalsh(added["white"])
        if values[0] < -_ROUNDING * values[-1]:
            added["white"] = added["three"][0]
        both = replace(
            rough,
            **added,
            # What may still be wrong is what the fine ones say of themselves.
            unclear=after.unclear,
            inner_error=after.inner_error,
            accurate=rough.accurate and after.accurate,
        )
        for field in fields(both):
            if isinstance(value := getattr(both, field.name), np.ndarray):
                value.flags.writeable = False
        return both


def estimator(model: Model, points: int, seed: int, rtol: float, fine: float | None) -> Estimator | TwoLevels:
    """Of one level, or of two where a finer tolerance is given."""
    return Estimator(model, points, seed, rtol) if fine is None else TwoLevels(model, points, seed, rtol, fine)
