"""The branch of fixed points along its own length, in the overlap: no fixed point is solved for at any given alpha.

On a branch with one overlap q every q is a fixed point, at alpha(q) = q / ((1 - q) E(q)).  With several, Newton's
method in overlap and alpha together goes from one point to the next, a step along the tangent at a time, and one
evaluation of the map tells how far off that was.  So growth of what is idle, and the alpha at which the branch ends,
are followed to wherever they lead at one or two evaluations a step, also where alpha falls along the branch.
(Keller's pseudo-arclength continuation; here lengths are those of log V.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from smisym.base.solution import mean_and_error
from smisym.theory.linearised import ROUNDED, Equation, Local
from smisym.theory.maps import OverlapMap

# Length of a step; correction after which a point is evaluated anew, times that this is done, the largest that the last
# may then be (where derivatives are noise they do not get smaller), and the largest at all.
_LENGTH, _OFF, _AGAIN, _LEFT, _LOST = 0.5, 0.15, 3, 0.4, 1.0
# The most that log alpha is taken to change along one step.
_RISE = 0.3
# Steps of Newton's method in alpha alone, which take no evaluation, and where they end.
_IN_ALPHA, _SETTLED = 30, 1e-10


@dataclass(frozen=True)
class Passed:
    """A point of the branch.

    Q (P, P), alpha: there.  each: by how much log alpha of each scramble is off its mean.  found: the evaluation, of
    all scrambles at one overlap, that tells it, step (k,): from there.  tangent (k + 1,): in these coordinates and log
    alpha, of length one in the former.
    """

    Q: np.ndarray
    alpha: float
    each: np.ndarray
    found: list[Local]
    step: np.ndarray
    tangent: np.ndarray

    @property
    def error(self) -> float:
        """Standard error of log alpha, over the scrambles."""
        return float(mean_and_error(self.each)[1])

    def beyond(self, other: Passed) -> tuple[float, float]:
        """By how much log alpha is larger than at another point, and its standard error: what the scrambles have in
        common at both does not count."""
        return math.log(self.alpha / other.alpha), float(mean_and_error(self.each - other.each)[1])

    def ahead(self, length: float) -> np.ndarray:
        """The overlap so far along the tangent."""
        return self.found[0].moved(self.step + length * self.tangent[:-1])

    def rates(self, idle: np.ndarray) -> np.ndarray:
        """(c, c): growth of idle coordinates there, without what may be errors of the integrals."""
        on = np.ix_(idle, idle)
        each = [here.jacobian[on] - here.alpha * here.estimate.unclear[on] for here in self.found]
        return np.asarray(np.mean(each, axis=0) * self.alpha / self.found[0].alpha)


def followed(
    omap: OverlapMap, Q: np.ndarray, alpha: float, along: np.ndarray, length: float = _LENGTH
) -> Iterator[Passed]:
    """Points of the branch of the mean map, from near its beginning (Q (P, P), alpha) on, that way: along (k,).

    It ends where the branch is lost; whoever asks for points ends it before.
    """
    tangent = along / float(np.linalg.norm(along))
    point = _corrected(omap, Q, alpha, tangent) or _across_its_own(omap, Q, alpha, tangent)
    while point is not None:
        yield point
        # Where little is learned yet the slope of alpha is mostly noise.
        rise = float(np.clip(length * point.tangent[-1], -_RISE, _RISE))
        Q, alpha, tangent = point.ahead(length), point.alpha * math.exp(rise), point.tangent[:-1]
        if not np.isfinite(Q).all() or np.linalg.eigvalsh(Q)[0] < -ROUNDED:
            return
        point = _corrected(omap, Q, alpha, tangent)


def _across_its_own(omap: OverlapMap, Q: np.ndarray, alpha: float, along: np.ndarray) -> Passed | None:
    """The point of the branch near Q in the plane across the branch there, as the map has it at Q.

    Where what was learned before hardly holds its place, as three layers' first when their second begins to be
    learned, the plane across what is new alone meets the branch far away, or nowhere.
    """
    found = omap.each(lambda r: Equation(omap, r).at(Q, alpha))
    onward = _tangent(found, along)
    return None if onward is None else _corrected(omap, Q, alpha, onward[:-1])


def once_more(omap: OverlapMap, point: Passed) -> Passed | None:
    """The same point, as another map has it."""
    return _corrected(omap, point.Q, point.alpha, point.tangent[:-1])


def at_length(omap: OverlapMap, point: Passed, length: float) -> Passed | None:
    """The point of the branch so far along its tangent."""
    return _corrected(omap, point.ahead(length), point.alpha, point.tangent[:-1])


def _corrected(omap: OverlapMap, Q: np.ndarray, alpha: float, tangent: np.ndarray) -> Passed | None:
    """The point of the branch in the plane through Q across the tangent (k,)."""
    size = 0.0
    for _ in range(_AGAIN):
        solved = _in_plane(omap, Q, alpha, tangent)
        if solved is None:
            return None
        found, steps, alpha, each = solved
        size = float(np.abs(steps).max())
        if size > _LOST:
            return None
        Q = inside(found[0], steps)
        if size <= _OFF:
            break
    if size > _LEFT:
        return None
    onward = _tangent(found, tangent)
    return None if onward is None else Passed(Q, alpha, each, found, steps, onward)


def inside(here: Local, step: np.ndarray) -> np.ndarray:
    """The overlap after a step (k,), or after as much of it as leaves one."""
    while True:
        Q = here.moved(step)
        if np.linalg.eigvalsh(Q)[0] >= -ROUNDED or not np.abs(step).max() > _SETTLED:
            return Q
        step = 0.5 * step


def _in_plane(
    omap: OverlapMap, Q: np.ndarray, alpha: float, tangent: np.ndarray
) -> tuple[list[Local], np.ndarray, float, np.ndarray] | None:
    """(evaluation at Q, step (k,) in the plane, alpha, the log of each scramble's beside it), solved for alpha to the
    end."""
    found = omap.each(lambda r: Equation(omap, r).at(Q, alpha))
    for _ in range(_IN_ALPHA):
        on = np.any([here.active for here in found], axis=0)
        system = np.zeros((int(on.sum()) + 1,) * 2)
        slopes, onward = _slopes(found, on)
        system[:-1, :-1], system[:-1, -1], system[-1, :-1] = slopes, -onward, tangent[on]
        residuals = np.array([np.append(here.residual[on], 0.0) for here in found])
        try:
            roots = np.linalg.solve(system, residuals.T).T
        except np.linalg.LinAlgError:
            return None
        step = np.asarray(np.mean(roots, axis=0))
        if not np.isfinite(step).all() or abs(step[-1]) > _LOST * 5:
            return None
        if abs(step[-1]) < _SETTLED:
            whole = np.zeros(len(on))
            whole[on] = step[:-1]
            return found, whole, alpha, roots[:, -1] - step[-1]
        alpha *= float(np.exp(np.clip(step[-1], -_LOST, _LOST)))
        # The map is remembered there: what threads would take is more than what is left to do.
        found = [Equation(omap, r).at(Q, alpha) for r in range(omap.scrambles)]
    return None


def newton_step(omap: OverlapMap, Q: np.ndarray, alpha: float) -> tuple[list[Local], np.ndarray]:
    """All scrambles at Q, and Newton's step (k,) for the mean map at this alpha; NaN where it has none."""
    found = omap.each(lambda r: Equation(omap, r).at(Q, alpha))
    on = np.any([here.active for here in found], axis=0)
    step = np.zeros(len(on))
    residual = np.mean([here.residual for here in found], axis=0)[on]
    try:
        step[on] = np.linalg.solve(_slopes(found, on)[0], residual)
    except np.linalg.LinAlgError:
        step[on] = math.nan
    return found, step


def _slopes(found: Sequence[Local], on: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Minus the derivative of the mean residual (a, a), and its derivative in log alpha (a,)."""
    scaled = np.mean([here.scaled for here in found], axis=0)[np.ix_(on, on)]
    onward = np.mean([here.alpha * here.onward for here in found], axis=0)[on]
    return np.eye(len(onward)) - scaled, onward


def _tangent(found: Sequence[Local], before: np.ndarray) -> np.ndarray | None:
    """(k + 1,): the way on, in the sense of the tangent (k,) before."""
    on = np.any([here.active for here in found], axis=0)
    slopes, onward = _slopes(found, on)
    way = np.linalg.svd(np.column_stack([slopes, -onward]))[2][-1]
    size = float(np.linalg.norm(way[:-1]))
    if size < 1e-6:
        return None
    way = way / size * (1.0 if way[:-1] @ before[on] >= 0 else -1.0)
    tangent = np.zeros(len(on) + 1)
    tangent[:-1][on], tangent[-1] = way[:-1], way[-1]
    return tangent
