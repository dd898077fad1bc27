"""What may be wrong with a fixed point that the spread of its scrambles does not show: looked at where an accuracy is
asked for.

Inner integrals err alike in all scrambles; and where nothing was learned of a direction by any of them they agree on
zero, though just above its threshold something is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from smisym.base.solution import mean_and_error
from smisym.integrate.accuracy import SAMPLING
from smisym.prior import remaining
from smisym.theory.growth import class_rate, growth_rates
from smisym.theory.kick import KICK
from smisym.theory.linearised import Equation, Local, placed, positive
from smisym.theory.maps import OverlapMap
from smisym.theory.point import Point

# Points of one scramble at which the inner integrals are refined, fewer where these are dear but at least so many, and
# by how much; sampled ones cost the square of it.
_POINTS, _LEAST, _FINER, _FINER_SAMPLED = 512, 64, 0.1, 0.5
# Standard errors by which growth must be below one for a direction to be idle beyond doubt.
_CLEAR = 2.0


def finer(omap: OverlapMap) -> float:
    """The tolerance of the inner integrals that a refinement takes."""
    times = _FINER_SAMPLED if omap.model.channel.plan.method == SAMPLING else _FINER
    return times * (omap.rtol if omap.fine is None else omap.fine)


def _few(omap: OverlapMap) -> tuple[OverlapMap, OverlapMap]:
    """Maps of few points, with the finest tolerance that a map has and a finer one."""
    points = max(_POINTS // omap.model.channel.plan.dearer, _LEAST)
    few = omap.sibling(min(omap.samples, points * omap.scrambles), rtol=omap.rtol if omap.fine is None else omap.fine)
    return few, few.sibling(few.samples, rtol=finer(omap))


def of_integrals(omap: OverlapMap, point: Point) -> np.ndarray:
    """(P, P): what a finer tolerance of the inner integrals changes in a fixed point, by Newton's step.

    On points of one scramble, the same with both tolerances.  Nothing where all is perfect.
    """
    found = _refined(omap, point)
    return np.zeros_like(point.Q) if found is None else np.abs(found[2])


def of_growth(omap: OverlapMap, point: Point, rate: Callable[[np.ndarray], float]) -> float:
    """The same of a rate of growth at the fixed point, relative; rate: of a derivative of the map (k, k)."""
    found = _refined(omap, point)
    if found is None:
        return 0.0
    here, finer_map, step = found
    there = Equation(finer_map, 0).at(placed(point.Q + step, point.known), point.alpha, point.known)
    before = rate(here.jacobian)
    return abs(rate(there.jacobian) - before) / before if before > 0 else 0.0


def of_first(omap: OverlapMap, members: Sequence[int]) -> float:
    """The same of the rate at which a class of coordinates grows at Q = 0, relative."""
    maps = _few(omap)
    nothing = np.zeros((omap.model.fields,) * 2)
    before, after = (class_rate(growth_rates(m, m.at(0, nothing)), members) for m in maps)
    return abs(after - before) / before if before > 0 else 0.0


def _refined(omap: OverlapMap, point: Point) -> tuple[Local, OverlapMap, np.ndarray] | None:
    """On few points: the equation at a fixed point, the map with finer integrals, and Newton's step (P, P) there."""
    if point.perfect or point.at is None:
        return None
    few, more = _few(omap)
    Q = placed(point.Q, point.known)
    here, there = (Equation(m, 0, point.side_information).at(Q, point.alpha, point.known) for m in (few, more))
    on, step = here.active, np.zeros(len(here.active))
    slopes = np.eye(int(on.sum())) - here.scaled[np.ix_(on, on)]
    # Where so few points do not contract they tell nothing.
    if on.any() and np.linalg.eigvals(slopes).real.min() > 0:
        step[on] = np.linalg.solve(slopes, (there.residual - here.residual)[on])
    return here, more, here.in_overlap(step)


def of_idle(omap: OverlapMap, points: Sequence[Point], Q: np.ndarray) -> np.ndarray:
    """(P, P): one standard error of what may be learned of directions of which no scramble learned anything.

    Overlaps along what grows most, q, follow growth(q) = 1, and growth falls from its value at q = 0, known to within
    the spread of the scrambles, with a slope that a kick tells.  At growth one half of two standard errors of it, over
    that slope; nothing where growth is two standard errors below one.
    """
    nothing = np.zeros_like(Q)
    known, alpha, lam = points[0].known, points[0].alpha, points[0].side_information
    if points[0].perfect:
        return nothing
    if _surely_none(points, Q):
        return nothing
    Q = placed(Q, known)
    found = omap.each(lambda r: Equation(omap, r, lam).at(Q, alpha, known))
    idle = ~np.any([here.active for here in found], axis=0)
    if not idle.any():
        return nothing
    rates = np.array([here.jacobian[np.ix_(idle, idle)] for here in found])
    growth, error, vector = _fastest(rates)
    excess = growth + _CLEAR * error - 1
    if excess <= 0:
        return nothing
    along = positive(np.einsum("k,kij->ij", vector, found[0].units[idle]))
    kicked = omap.each(lambda r: Equation(omap, r, lam).at(Q + KICK * along, alpha, known))
    unit = np.einsum("kij,ij->k", found[0].units, along)
    grown = np.mean([here.residual @ unit for here in kicked]) / (KICK * float(unit @ unit))
    slope = (growth - 1 - grown) / KICK
    # Where growth does not fall as more is learned, nothing bounds it: there it jumps.
    most = min(excess / (2 * slope), 1.0) if slope > 0 else 1.0
    return most * np.abs(along)


def _surely_none(points: Sequence[Point], Q: np.ndarray) -> bool:
    """Whether nothing idle grows at Q (P, P), as is told where the points were evaluated, at one overlap nearby.

    A rate changes by no larger a factor than what is left.
    """
    found = [point.at for point in points if point.at is not None]
    if len(found) < len(points):
        return False
    idle = ~np.any([here.active for here in found], axis=0)
    if not idle.any():
        return True
    if any(not np.array_equal(here.Q, found[0].Q) for here in found):
        return False
    off = np.abs(np.log(np.linalg.eigvals(np.linalg.solve(remaining(found[0].Q), remaining(Q))).real)).max()
    growth, error = _fastest(np.array([here.jacobian[np.ix_(idle, idle)] for here in found]))[:2]
    return bool((growth + _CLEAR * error) * math.exp(off) <= 1)


def _fastest(rates: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Growth, its standard error and its vector (k,) along what grows most of rates (R, k, k)."""
    vector = np.linalg.eigh(rates.mean(axis=0))[1][:, -1]
    growth, error = (float(x) for x in mean_and_error(np.einsum("i,rij,j->r", vector, rates, vector)))
    return growth, error, vector
