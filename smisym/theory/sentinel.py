"""What a result is held against before it is called a success.

Nishimori: if what the channel integrates is the posterior of the model that made the outputs, three estimators of E
have one mean, E[g g^T] = -E[dg] = E[g g*^T].  A sheet that is missing, a wrong Jacobian or an error bar that is too
small break this; no formula and no integrator of one of them enters another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from smisym.base.solution import Result
from smisym.theory.estimate import Estimate
from smisym.theory.maps import OverlapMap

# Chance of a false alarm in one evaluation of a map, by either test.
CHANCE = 1e-7
# Difference, in units of what is left to learn, below which it is nobody's concern: the tolerance of the inner
# integrals may bias it so much.  The terms that cancel in E[dg] are of order one.
SMALL = 3e-3
# Multiple of the errors that posteriors state of their means, in whitened units, that their covariances may have.
COVARIANCES = 3.0


@dataclass(frozen=True)
class Agreement:
    """How well the three estimators of E agree, over all scrambles of one evaluation.

    z: the largest difference in standard errors, of draws taken for independent (which Sobol points beat).
    t, degrees_of_freedom: the largest difference in standard errors over the scrambles.
    relative: that difference beside E.  p: chance of as much, the smaller of both tests' after Bonferroni.
    holds: whether that is not below chance, or too small to matter.
    """

    z: float
    t: float
    degrees_of_freedom: int
    relative: float
    p: float
    holds: bool

    def record(self) -> dict[str, Any]:
        """As plain types, for files."""
        return {"z": self.z, "t": self.t, "degrees_of_freedom": self.degrees_of_freedom, "relative": self.relative,
                "p": self.p, "holds": self.holds}  # fmt: skip


# Share of E that rounding of 1 - Q may change where Q is nearly I.
_SAME = 1e-2
# Multiple of the differences, and of their errors, that the best combination may take of them.
_ROOM = 2.0
# E in units of what is left below which nothing is learned, and there is nothing to compare with.
_NOTHING = 1e-9
NOTHING = Agreement(0.0, 0.0, 0, 0.0, 1.0, True)


def agreement(omap: OverlapMap, estimates: Sequence[Estimate], integrals: float | None = None) -> Agreement:
    """The agreement of the estimates of several scrambles, each at (about) one overlap.

    integrals: what the inner integrals may make of the differences, where that was looked at; None for what the errors
    that they state bound, the mean of the largest that each may be wrong by.
    """
    estimates = [e for e in estimates if np.isfinite(e.gap).all() and np.isfinite(e.inner_error)]
    if len(estimates) < 2:
        return NOTHING
    symmetry = omap.model.symmetry
    # In units of what is left to learn, in which E is of order one.
    gaps, errors = np.array([e.gap for e in estimates]), np.array([e.gap_error for e in estimates])
    whole = float(np.mean([np.abs(symmetry.coordinates(e.three[0])).sum() for e in estimates]))
    R, comparisons = len(estimates), gaps[0].size
    stated = float(np.mean([e.inner_error for e in estimates])) * COVARIANCES
    allowed = min(stated, math.inf if integrals is None else integrals) + SMALL * max(whole, 1.0)
    mean = np.abs(gaps.mean(axis=0))
    excess = np.maximum(mean - allowed, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = excess * R / np.sqrt((errors**2).sum(axis=0))
        t = excess * np.sqrt(R) / gaps.std(axis=0, ddof=1)
    z, t = (np.where(excess > 0, x, 0.0) for x in (z, t))
    by_z, by_t = 2 * special.ndtr(-z.max()), 2 * special.stdtr(R - 1, -t.max())
    p = float(min(1.0, 2 * comparisons * min(by_z, by_t)))
    return Agreement(
        float(z.max()), float(t.max()), R - 1, float(mean.max() / whole) if whole > _NOTHING else 0.0, p, p >= CHANCE
    )


def sound(omap: OverlapMap, estimate: Estimate) -> bool:
    """Whether E is made of its three estimators: no farther from the first than a few of their differences.

    What is read from a file, or was changed after it was made, must hold together.
    """
    coordinates = omap.model.symmetry.coordinates
    off = np.abs(coordinates(estimate.white) - coordinates(estimate.three[0]))
    room = (np.abs(estimate.gap) + 2 * estimate.gap_error).sum(axis=0)
    return bool((off <= _ROOM * room + _SAME * np.abs(coordinates(estimate.three[0]))).all())


def outlying(values: np.ndarray, floor: float = 0.0) -> bool:
    """Whether one of several scrambles' values (R, n) lies where the others, taken for normal, never would.

    Each is held against the spread of the others; differences below ``floor`` are no concern.  Zeros and ones are
    exact, and left alone: whether something is learned at all, or perfectly, is where scrambles may well differ.
    """
    values = np.asarray(values, dtype=float).reshape(len(values), -1)
    values = values[:, ((values != 0) & (np.abs(values - 1) > 1e-9)).all(axis=0)]
    if not values.size:
        return False
    R = len(values)
    if R < 4:
        return False
    for r in range(R):
        others = np.delete(values, r, axis=0)
        gap = np.abs(values[r] - others.mean(axis=0))
        spread = others.std(axis=0, ddof=1) * np.sqrt(1 + 1 / (R - 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(gap > floor, (gap - floor) / spread, 0.0)
        if 2 * special.stdtr(R - 2, -np.nanmax(t, initial=0.0)) * R * values.shape[1] < CHANCE:
            return True
    return False


def judged(code: Result, found: Agreement, *, left_is_small: bool, strays: bool = False) -> Result:
    """The code of a fixed point with what it was held against."""
    if not found.holds:
        return Result.NISHIMORI
    if code is Result.SUCCESS and not left_is_small:
        return Result.RESIDUAL
    if code is Result.SUCCESS and strays:
        return Result.INCONSISTENT
    return code
