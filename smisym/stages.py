"""Stages of the branch that vanishing side information follows, as they are once solved: read off by interpolation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.interpolate import BarycentricInterpolator, PchipInterpolator
from scipy.optimize import brentq

# Points at which a curve is searched for its first crossing.
_SCAN = 2001


@dataclass
class Stage:
    """One stage of one scramble; n nodes, k invariant coordinates.

    pivot: the coordinate that is prescribed, s = 1 - (1 - t)^2 with 0 <= t < 1.  active (k,): coordinates that are
    learned on the stage.  t (n,), alpha (n,), q (n, k), growth (n, k): alpha times the eigenvalue of dE along each idle
    coordinate's unstable direction (0 for active ones), potential (n,): E log Zout.
    end: t at which the next direction becomes unstable, or the last t.  solved: every node met its equations.
    chebyshev: whether the nodes are Chebyshev points (polynomials) or not (monotone cubics).
    trivial: whether the stage begins at alpha = 0, in proportion to the overlap; its first node is then close to 0.
    """

    pivot: int
    active: np.ndarray
    t: np.ndarray
    alpha: np.ndarray
    q: np.ndarray
    growth: np.ndarray
    potential: np.ndarray
    solved: bool
    end: float = 1.0
    chebyshev: bool = True
    trivial: bool = False

    def __post_init__(self) -> None:
        # Without a fixed rng the interpolator permutes its nodes at random, and the last bits change from run to run.
        smooth = (lambda t, y: BarycentricInterpolator(t, y, rng=0)) if self.chebyshev else PchipInterpolator
        ratio = smooth(self.t, np.log(self.alpha) - (np.log(learned(self.t)) if self.trivial else 0.0))
        self._alpha = (lambda t: ratio(t) + np.log(learned(t))) if self.trivial else ratio
        left = np.maximum(1 - self.q, 1e-300) / (1 - self.q[:, self.pivot, None])
        self._left = smooth(self.t, np.log(left))
        self._growth = smooth(self.t, np.log(np.maximum(self.growth, 1e-300)))
        # E log Zout diverges like a multiple of log(1 - t): take the multiple that the last two points show.
        log = np.log1p(-self.t)
        self._slope = (self.potential[-1] - self.potential[-2]) / (log[-1] - log[-2])
        self._rest = smooth(self.t, self.potential - self._slope * log)

    def alpha_at(self, t: float) -> float:
        return float(np.exp(self._alpha(t)))

    def overlaps_at(self, t: float) -> np.ndarray:
        """q (k,) at t; what is left to learn is interpolated on a log scale, so that no overlap passes one."""
        q = np.zeros(len(self.active))
        rest = (1 - t) ** 2
        q[self.active] = 1 - rest * np.exp(self._left(t)[self.active])
        q[self.pivot] = 1 - rest
        return q

    def growth_at(self, t: float) -> np.ndarray:
        return np.exp(np.asarray(self._growth(t)))

    def potential_at(self, t: float) -> float:
        return float(self._rest(t)) + self._slope * float(np.log1p(-t))

    def find(self, alpha: float) -> float | None:
        """Smallest t with alpha(t) >= alpha, or None: where state evolution comes to rest on its way up."""
        return first_crossing(lambda t: self._alpha(t) - np.log(max(alpha, 1e-300)), self.end)

    def interpolation_error(self) -> float:
        """Size of the last two Chebyshev coefficients of log alpha(t)."""
        x = 2 * (self.t - self.t[0]) / (self.t[-1] - self.t[0]) - 1
        values = np.log(self.alpha) - (np.log(learned(self.t)) if self.trivial else 0.0)
        coefficients = np.polynomial.chebyshev.chebfit(x, values, len(self.t) - 1)
        return float(np.abs(coefficients[-2:]).max())


def learned(t: Any) -> Any:
    """The pivot's overlap s = 1 - (1 - t)^2."""
    return np.maximum(t * (2 - t), 1e-300)


def first_crossing(curve: Callable[[Any], Any], end: float) -> float | None:
    """Smallest t in [0, end] with curve(t) >= 0."""
    grid = np.linspace(0.0, end, _SCAN)
    above = np.flatnonzero(np.asarray(curve(grid)) >= 0)
    if not above.size:
        return None
    first = int(above[0])
    if first == 0:
        return 0.0
    return float(brentq(lambda t: float(curve(t)), grid[first - 1], grid[first], xtol=1e-14))


def highest(stages: Sequence[Stage]) -> tuple[float, np.ndarray]:
    """(t, alphas (R,)) where alpha averaged over the scrambles is largest: above it nothing stops state evolution.

    The largest of the mean: the mean of the largest would count the noise of every scramble.
    """
    grid = np.linspace(0.0, min(stage.end for stage in stages), _SCAN)
    alphas = np.exp([stage._alpha(grid) for stage in stages])
    top = int(alphas.mean(axis=0).argmax())
    return float(grid[top]), alphas[:, top]


@dataclass(frozen=True)
class Beginning:
    """What is known of a stage before any of it is solved: see :class:`Stage`."""

    pivot: int
    active: np.ndarray
    trivial: bool
    solved: bool = True


@dataclass
class Branch:
    """The stages of one scramble, in the order in which they are met; ``thresholds[i]`` is where stage i starts.

    beginning: the stage after these, where it was asked for but none of it solved.
    """

    coordinates: int
    thresholds: list[float]
    stages: list[Stage]
    beginning: Beginning | None = None

    def locate(self, alpha: float) -> tuple[Stage, float] | str | None:
        """The stage and t at which state evolution rests at ``alpha``; None below all, "perfect" above all."""
        for i in reversed(range(len(self.stages))):
            if alpha < self.thresholds[i]:
                continue
            t = self.stages[i].find(alpha)
            if t is not None:
                return self.stages[i], t
            if i + 1 < len(self.stages):
                return self.stages[i + 1], 0.0
            return "perfect" if self.stages[i].active.all() else (self.stages[i], self.stages[i].end)
        return None

    def overlaps(self, alpha: float) -> np.ndarray:
        """q (k,) at alpha."""
        found = self.locate(alpha)
        if found is None:
            return np.zeros(self.coordinates)
        if isinstance(found, str):
            return np.ones(self.coordinates)
        return found[0].overlaps_at(found[1])
