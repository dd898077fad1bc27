"""A fixed point of the mean of all scrambles' maps, from one evaluation near it.

Newton's step of the mean map tells where its fixed point is, and those of each scramble, with its own derivative, where
its own would be, to first order: their spread is the statistical error.  What the step may miss is the deterministic
one: its square and that of the noise, over how steeply the equation falls.  So a map of many samples is
evaluated once, where its scrambles one by one take three or four; what leads there is a fixed point of a map with
fewer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from smisym.base.solution import Result, Solution, mean_and_error
from smisym.theory.collecting import FixedPoint, conjugate, left_behind, unseen_change
from smisym.theory.linearised import ROUNDED, Equation, Local
from smisym.theory.maps import OverlapMap
from smisym.theory.point import Point
from smisym.theory.sentinel import agreement, judged, outlying, sound

# Newton's step, and standard errors, in units of what is left to learn, beyond which lines are no longer straight.
_FAR, _UNSURE = 0.3, 0.1
# Overlap below which what lines miss is told from the law of small ones as well.
_LITTLE = 0.2
# What the root of that law leaves of a step s to an overlap q: 2 s^3 / q^2 where the step is long, 8 s^2 where the
# overlap is not so small (of |z|, from alpha = 0.52 to 0.7 and steps of 10 to 40 %: from 0.2 of it to all of it).
_LONG, _BEYOND = 2.0, 8.0
# Part of an overlap that Newton's step must leave for the root of that law to be told from it.
_BENDABLE = 0.6
# Part of the statistical error that what the step misses may be, and evaluations of one map that this may take.
_BENT, _MOST = 0.3, 3
# Factor by which the maps have fewer points that lead to one of many.
_FEWER = 8


# Many parameters: a start, and when to be content.
def fixed_point_near(
    omap: OverlapMap, Q: np.ndarray, alpha: float, known: int, tol: float, enough: float = 0.0, most: int = _MOST
) -> tuple[list[Point], Solution] | None:
    """(the scrambles' points, the solution) at alpha, from the fixed point Q (P, P) of a map of ``known`` samples.

    None where that is not confirmed: where the step is long, where something idle may grow, and where something is
    learned perfectly.  tol: what fixed points are solved to elsewhere, as results tell it.  enough: the error of
    overlaps that is small enough, all in all.  most: evaluations of the map; the error holds what is missed then.
    """
    found = None
    levels = [omap.samples]
    while levels[0] // _FEWER > known and levels[0] // _FEWER >= 2 * omap.scrambles:
        levels.insert(0, levels[0] // _FEWER)
    for samples in levels:
        here = omap if samples == omap.samples else omap.sibling(samples)
        for _ in range(most if here is omap else 1):
            found = _stepped(here, Q, alpha)
            if found is None:
                break  # a map that is too rough to tell leaves it to the next
            Q = found.Q
            if found.missed <= _BENT * found.error or found.whole <= enough or found.size <= _BENT * found.error:
                break  # or what is missed is that of noise, which stays
    return None if found is None else found.solution(tol)


class _Stepped:
    """What one evaluation (of all scrambles at one overlap) makes of the fixed point.

    steps (R, k): to each scramble's own.  Q (P, P): the fixed point of the mean.  error, missed: the largest standard
    error, and what the step may miss, in units of what is left to learn.
    """

    def __init__(
        self, omap: OverlapMap, alpha: float, found: Sequence[Local], on: np.ndarray, slopes: np.ndarray
    ) -> None:
        self.omap, self.alpha, self.found, self.on, self.slopes = omap, alpha, found, on, slopes
        self.steps = np.zeros((len(found), len(on)))
        residual = np.array([here.residual[on] for here in found])
        step = np.linalg.solve(slopes, residual.mean(axis=0))
        # Around the step of the mean map, so that what noise of the derivative makes of it is in the spread.
        left = residual - step + np.array([here.scaled[np.ix_(on, on)] @ step for here in found])
        self.steps[:, on] = step + np.linalg.solve(slopes, left.T).T
        mean, spread = (np.asarray(x) for x in mean_and_error(self.steps))
        self.size, self.error = float(np.abs(mean).max()), float(spread.max())
        self.overlaps = np.array([found[0].moved(step) for step in self.steps])
        self.Q = omap.model.symmetry.project(found[0].moved(mean))
        bent, more = self._bent()
        self.missed = self._curved(np.hypot(np.abs(mean), spread)[on], bent[on]) + more

    def _curved(self, sizes: np.ndarray, bent: np.ndarray) -> float:
        """What lines miss of the equation, as its derivative takes it back: much where that is small, near thresholds.

        sizes (a,): of the steps and their noise.  bent (a,): the overlap of coordinates in which the square of a step
        is accounted for, but for that of what is learned; infinite for all others.
        """
        others = float(sizes[~np.isfinite(bent)].max(initial=0.0))
        own = np.where(
            np.isfinite(bent), np.minimum(_BEYOND * bent, 1.0) * sizes**2 + 2 * others * sizes, sizes.max() ** 2
        )
        back = np.abs(np.linalg.inv(self.slopes))
        # In units of what is left no equation is steeper than one.
        return max(float((back @ np.maximum(own, others**2)).max()), float(own.max()))

    def _bent(self) -> tuple[np.ndarray, float]:
        """Makes the step better where little is learned of some rows: (overlaps (k,), there, what is still missed).

        The equation is q (a - c q) there, which is no line: Newton's step from q to q' leaves (q' - q)^2 / q' whatever
        a and c, and its root is q (2 - q / q').  What that leaves is one order higher; noise is as bent.
        """
        symmetry, missed = self.omap.model.symmetry, 0.0
        bent = np.full(len(symmetry.basis), math.inf)
        for part, D in enumerate(symmetry.directions):
            before, after = (_most(D, Q) for Q in (self.found[0].Q, self.Q))
            if not 0 < after < _LITTLE:
                continue
            each = np.array([_most(D, Q) for Q in self.overlaps])
            left = (after - before) ** 2 / after
            if len(D) == 1 and min(after, each.min()) > _BENDABLE * before:
                bent[symmetry.parts == part] = max(before, after)
                self.Q = _scaled(self.Q, D, before, after)
                self.overlaps = np.array([_scaled(Q, D, before, q) for Q, q in zip(self.overlaps, each, strict=True)])
                left = _LONG * abs(after - before) ** 3 / after**2
            spread = np.asarray(mean_and_error(self.overlaps)[1])
            missed = max(missed, left + float(np.abs(D @ spread @ D.T).max()) ** 2 / after)
        return bent, missed

    @property
    def left(self) -> np.ndarray:
        """(P, P): what the step may miss, of the overlap."""
        return np.abs(self.found[0].in_overlap(np.where(self.on, self.missed, 0.0)))

    @property
    def whole(self) -> float:
        """The largest error of any overlap, statistical and deterministic together."""
        return float((np.asarray(mean_and_error(self.overlaps)[1]) + self.left).max())

    @property
    def good(self) -> bool:
        inside = all(np.linalg.eigvalsh(Q)[0] >= -ROUNDED for Q in [self.Q, *self.overlaps])
        return inside and self.size <= _FAR and self.error <= _UNSURE

    def solution(self, tol: float) -> tuple[list[Point], Solution]:
        omap, found, first = self.omap, self.found, self.found[0]
        estimates = [here.estimate for here in found]
        code = Result.SUCCESS if all(estimate.accurate for estimate in estimates) else Result.INTEGRATION
        left = self.left
        error = np.asarray(mean_and_error(self.overlaps)[1])
        nishimori = agreement(omap, estimates)
        coordinates = omap.model.symmetry.coordinates(self.overlaps)
        strays = outlying(coordinates, floor=10 * tol) or not all(sound(omap, estimate) for estimate in estimates)
        result = judged(code, nishimori, left_is_small=True, strays=strays)
        checks = {"residual": left, "nishimori": nishimori.record()}
        if result is Result.SUCCESS:
            rare = unseen_change(omap, first, self.slopes, self.on)
            checks |= {"bias": np.zeros_like(left), "rare": rare}
            error = np.hypot(error, rare)
        nothing = np.zeros_like(left)
        points = [
            Point(Q, nothing, here, left, code, [], self.alpha) for Q, here in zip(self.overlaps, found, strict=True)
        ]
        # To first order: the derivative of E log Zout is E / 2.
        potential = [
            e.log_partition + 0.5 * float(np.sum(e.E * (Q - first.Q)))
            for e, Q in zip(estimates, self.overlaps, strict=True)
        ]
        value = FixedPoint(
            self.alpha, self.Q, error, conjugate(points), coordinates, "symmetry-broken", 0.0,
            np.ones(len(points), dtype=bool), np.array(potential), omap.model.labels,
        )  # fmt: skip
        return points, Solution(
            value,
            result,
            statistical_error=error,
            deterministic_error=left,
            degrees_of_freedom=len(points) - 1,
            settings={**omap.settings(), "start": value.start, "side_information": 0.0, "tol": tol},
            checks=checks,
        )


def _most(D: np.ndarray, Q: np.ndarray) -> float:
    """The largest overlap in the rows D (d, P)."""
    return float(np.linalg.eigvalsh(D @ Q @ D.T)[-1])


def _scaled(Q: np.ndarray, D: np.ndarray, before: float, after: float) -> np.ndarray:
    """Q (P, P) at the root of the law, where Newton's step led from ``before`` to ``after`` in one row D (1, P)."""
    factor = before / after * (2 - before / after)
    scale = np.eye(len(Q)) + (math.sqrt(factor) - 1) * (D.T @ D)
    return np.asarray(scale @ Q @ scale)


def _stepped(omap: OverlapMap, Q: np.ndarray, alpha: float) -> _Stepped | None:
    found: list[Local] = omap.each(lambda r: Equation(omap, r).at(Q, alpha))
    on = np.any([here.active for here in found], axis=0)
    if not on.any() or any(here.vanishing for here in found) or left_behind(found, ~on, doubtful=True):
        return None
    slopes = np.eye(int(on.sum())) - np.mean([here.scaled for here in found], axis=0)[np.ix_(on, on)]
    if np.linalg.eigvals(slopes).real.min() <= 0:
        return None
    stepped = _Stepped(omap, alpha, found, on, slopes)
    return stepped if stepped.good else None
