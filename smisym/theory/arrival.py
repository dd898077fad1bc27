"""Where state evolution arrives at Q = I, never below the alpha where that becomes stable.

The branch of fixed points is followed from the last threshold to where next to nothing is left to learn
(:mod:`smisym.theory.branch`): state evolution gets there from the largest alpha along it on.  Where that is the alpha
where Q = I becomes stable, or so close that the noise of the map cannot tell, the points that may lie above are
evaluated with more samples, until what they leave open is as little as was asked.

Where the branch is lost, or something never begins to be learned, state evolution itself is solved for at one alpha
after the other instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from smisym.base.solution import Result, mean_and_error, worst
from smisym.prior import remaining
from smisym.theory.aim import Aim
from smisym.theory.branch import Passed, at_length, followed, once_more
from smisym.theory.fixed_point import solve
from smisym.theory.limits import NO_RATE, idle_directions, largest_rate
from smisym.theory.maps import OverlapMap
from smisym.theory.point import Point
from smisym.theory.rung import CLEARER, rough_map
from smisym.theory.sentinel import agreement
from smisym.theory.stage import BEGUN, Stage
from smisym.theory.stages import staircase
from smisym.theory.unshown import finer

# What is left of everything where a branch has arrived, the length of its steps, and where less is asked than usually,
# their number at most, and how far from the alpha that counting tells it may be there.
_LEFT, _LENGTH, _LONGER, _MOST, _OFF = 1e-3, 0.5, 0.8, 80, 0.02
# How well the arrival is known unless something else is asked, relative; factor between samples, and the most of them.
_CLOSELY, _MORE, _MOST_SAMPLES = 5e-3, 4, 2**16
# Share of alpha that is in the error, or half of what was asked: what steps along the branch may have passed over.
_BETWEEN = 5e-4
# Points of one scramble, and scrambles, of the map that looks whether Q = I is reached where it becomes stable; points
# of one scramble of the one that looks where it is reached if not there.
_LOOK_POINTS, _LOOK_SCRAMBLES = 512, 2
_ARRIVAL_POINTS, _ARRIVAL_SCRAMBLES = 1024, 4
# Part of what finer integrals change that may be left or chance: of three layers at (0.994, 0.992, 0.9999) alpha is
# 5e-3 higher at 3e-3 than at 3e-2, 4e-3 by a fourth of the points.
_LEAVES = 0.33
# How far above and below, relative, that is looked at: what the answer is known to.
_ABOVE, _BELOW = 5e-3, 3e-2
# Multiples of the alpha where Q = I becomes stable at which it may be reached, and how closely that is bracketed.
_MULTIPLES, _CLOSE = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0), 1.004


@dataclass(frozen=True)
class Arrival:
    """alpha, error: where Q = I is reached.  Q (P, P): the overlap just below, I where that is all of it.

    samples: of the largest map that told; None where it was not followed.  checks: "nishimori", the agreement of the
    estimators where that was told, as a record; of a branch that was followed "residual", what is left of the fixed
    point's equation at its highest point, the largest entry in the unit of the overlap.
    """

    alpha: float
    error: float
    Q: np.ndarray
    result: Result
    samples: int | None = None
    checks: dict[str, Any] = field(default_factory=dict)


def perfect_from(omap: OverlapMap, stable: float, uncertain: float, aim: Aim | None) -> Arrival:
    """Where state evolution reaches Q = I; stable, uncertain: where that becomes stable, with its error."""
    last = _last_stage(omap)
    omap.what = "where Q = I is reached"
    found = None if last is None else _along_the_branch(omap, last, stable, uncertain, aim)
    return _at_one_alpha_after_the_other(omap, stable, uncertain) if found is None else found


# ---- along the branch ---------------------------------------------------------------------------


def _along_the_branch(
    omap: OverlapMap, begun: Stage, stable: float, uncertain: float, aim: Aim | None
) -> Arrival | None:
    target = _CLOSELY * stable if aim is None else aim.accuracy
    length = _LONGER if target > _CLOSELY * stable else _LENGTH
    # The noise of few points may hide the way.
    look = rough_map(omap)
    points = _to_the_end(look, begun, length)
    if points is None:
        look = look.sibling(CLEARER * look.samples)
        points = _to_the_end(look, begun, length)
    if points is None or not _leads_to(points, stable):
        return None
    most = max(_MOST_SAMPLES if aim is None else aim.most_samples, look.samples)
    least = max(uncertain, min(_BETWEEN * (length / _LENGTH) ** 2 * stable, 0.5 * target))
    maps, integrals = [look] * len(points), _Integrals(omap, aim)
    while True:
        highest = _highest(points)
        samples = _MORE * maps[highest].samples
        # More samples tell no more of the integrals.
        last = samples > most or max(least, integrals.left * stable) > target
        if last or math.hypot(_known_to(points[highest], stable), integrals.left * stable) <= target:
            around = points[max(highest - 1, 0) : highest + 2]
            found = _arrived(maps[highest], around, length, points[highest], stable, least, integrals)
            error = math.hypot(found.error, integrals.left * found.alpha)
            if (last or error <= target) and integrals.told:
                return replace(found, error=error)
            if last or error <= target:
                integrals.tell(maps[highest], points[highest])
                points = [moved for point in points if (moved := integrals.moved(point))]
                continue
        larger = omap.sibling(samples, look.scrambles)
        better = integrals.moved(once_more(larger, points[highest]))
        if better is None:
            return None
        points[highest], maps[highest] = better, larger


class _Integrals:
    """What finer inner integrals change in log alpha, told at one point of the branch and taken to be the same at those
    beside it; nothing where posteriors are too fine for that.

    shift: that.  left: what a still finer tolerance may change, and what few points leave to chance.
    """

    def __init__(self, omap: OverlapMap, aim: Aim | None) -> None:
        steep = omap.model.channel.plan.steep
        self.fine = finer(omap, aim.accuracy) if aim is not None and steep else None
        self.told = self.fine is None
        self.shift = self.left = 0.0

    def tell(self, omap: OverlapMap, point: Passed) -> None:
        better = once_more(omap.sibling(omap.samples, fine=self.fine), point)
        self.shift = 0.0 if better is None else math.log(better.alpha / point.alpha)
        self.left = math.inf if better is None else _LEAVES * abs(self.shift)
        self.told = True

    def moved(self, point: Passed | None) -> Passed | None:
        """The point with that change, None for none."""
        return None if point is None else replace(point, alpha=point.alpha * math.exp(self.shift))


def _last_stage(omap: OverlapMap) -> Stage | None:
    """The stage from which on all of it is learned; None where some of it never is, or its beginning is not met."""
    stages = list(staircase(omap, roughly=True))
    if not stages or not stages[-1].active.all() or stages[-1].after is not Result.SUCCESS or stages[-1].trivial:
        return None
    return stages[-1]


def _to_the_end(look: OverlapMap, begun: Stage, length: float) -> list[Passed] | None:
    """Points of the branch from its last threshold on; None where it is lost."""
    symmetry, points = look.model.symmetry, list[Passed]()
    for point in followed(look, begun.beginning(symmetry, BEGUN), begun.alpha, begun.upwards(symmetry), length):
        points.append(point)
        if np.linalg.eigvalsh(remaining(point.Q))[-1] < _LEFT:
            return points
        if len(points) > _MOST or any(here.vanishing for here in point.found):
            return None
    return None


def _leads_to(points: Sequence[Passed], stable: float) -> bool:
    """Whether the branch ends where Q = I is stable: its last alpha is that, or lies above on its way down to it."""
    off, error = points[-1].alpha / stable - 1, _OFF + 3 * points[-1].error
    return abs(off) <= error or (off > 0 and _highest(points) < len(points) - 1)


def _highest(points: Sequence[Passed]) -> int:
    return int(np.argmax([point.alpha * math.exp(point.error) for point in points]))


def _known_to(point: Passed, stable: float) -> float:
    """How far the arrival may be off if it is told by this point, the highest."""
    if point.alpha * math.exp(-point.error) > stable:
        return point.alpha * point.error
    return max(point.alpha * math.exp(point.error) - stable, 0.0)


# Many parameters: points of a branch, and what is known beside them.
def _arrived(
    omap: OverlapMap,
    around: Sequence[Passed],
    length: float,
    top: Passed,
    stable: float,
    least: float,
    integrals: _Integrals,
) -> Arrival:
    """What the highest point of the branch and those beside it, so far apart, tell; least: the least error stated.
    integrals: what they have been moved by."""
    agreed = agreement(omap, [here.estimate for here in top.found])
    result = Result.SUCCESS if agreed.holds else Result.NISHIMORI
    error = max(_known_to(top, stable), least)
    left = float(np.abs(top.found[0].in_overlap(top.step)).max())
    checks = {"nishimori": agreed.record(), "residual": left}
    if top.alpha * math.exp(-top.error) <= stable:
        # Nothing lies clearly above: it is reached as soon as it is stable.
        return Arrival(stable, error, np.eye(len(top.Q)), result, omap.samples, checks)
    alpha, Q, off = _peak(omap, around, length, top, integrals)
    return Arrival(max(alpha, stable), math.hypot(error, off), Q, result, omap.samples, checks)


def _peak(
    omap: OverlapMap, around: Sequence[Passed], length: float, top: Passed, integrals: _Integrals
) -> tuple[float, np.ndarray, float]:
    """(alpha, overlap (P, P), how far alpha may be off but for noise) where it is largest, on a map.

    By a parabola through a point and those beside it, which is then held against the branch itself.
    """
    beside = [integrals.moved(once_more(omap, point)) for point in around if point is not top]
    if len(beside) < 2 or any(point is None for point in beside):
        return top.alpha, top.Q, 0.0
    below, beyond = (point.alpha - top.alpha for point in beside if point is not None)
    if below + beyond >= 0:
        return top.alpha, top.Q, max(below, beyond, 0.0)
    there = 0.5 * (below - beyond) / (below + beyond)
    peak = top.alpha - 0.125 * (below - beyond) ** 2 / (below + beyond)
    found = integrals.moved(at_length(omap, top, float(np.clip(there, -1, 1)) * length))
    if found is None:
        return peak, top.Q, peak - top.alpha
    return found.alpha, found.Q, abs(peak - found.alpha)


# ---- at one alpha after the other ---------------------------------------------------------------


def _at_one_alpha_after_the_other(omap: OverlapMap, stable: float, uncertain: float) -> Arrival:
    eye = np.eye(omap.model.fields)
    look = omap.sibling(_LOOK_POINTS * _LOOK_SCRAMBLES, _LOOK_SCRAMBLES)
    below = _all_at(look, (stable - 3 * uncertain) * (1 - _BELOW))
    above = _all_at(look, (stable + 3 * uncertain) * (1 + _ABOVE), below)
    if any(point.perfect for point in below):
        # It cannot rest where it is not stable: the ranks that were counted, or the channel, are wrong.
        return Arrival(stable, math.inf, eye, Result.INCONSISTENT)
    if all(point.perfect for point in above):
        return Arrival(stable, max(uncertain, _ABOVE * stable), eye, *_met(look, above))
    return _later_arrival(omap, stable)


def _later_arrival(omap: OverlapMap, stable: float) -> Arrival:
    """Where a branch that rests below Q = I ends: bracketed scramble by scramble, with two numbers of points.

    The end of a branch is the largest alpha along it: noise on top of it puts it too high, by as much as the variance
    of its slope, one over the number of points.  Two numbers of points tell how much, and what both leave.
    """
    few, _ = _end_of_branch(omap, stable, _ARRIVAL_POINTS // 4)
    found, at_once = _end_of_branch(omap, stable, _ARRIVAL_POINTS)
    if math.isinf(found.alpha) or math.isinf(few.alpha):
        return found
    bias = (few.alpha - found.alpha) / 3
    alpha = max(stable, found.alpha - bias)
    # Where some scrambles have no branch at all, those that have one, by their noise, tell nothing of its end.
    error = math.hypot(found.error, few.error / 3, bias, alpha - stable if at_once else 0.0)
    return replace(found, alpha=alpha, error=error)


def _end_of_branch(omap: OverlapMap, stable: float, points: int) -> tuple[Arrival, bool]:
    """The largest alpha along it, and whether some scramble is perfect as soon as that is stable."""
    model = omap.model
    small = omap.sibling(points * _ARRIVAL_SCRAMBLES, _ARRIVAL_SCRAMBLES)
    low = _all_at(small, stable * (1 + _ABOVE))
    at_once = any(point.perfect for point in low)
    high: list[Point] = low
    for multiple in _MULTIPLES:
        high = _all_at(small, stable * multiple, high)
        if all(point.perfect for point in high):
            break
        low = [b if not b.perfect else a for a, b in zip(low, high, strict=True)]
    else:
        seen = np.any([p.at.active for p in high if p.at is not None], axis=0)
        learned = np.array([bool(seen[model.symmetry.parts == k].any()) for k in range(len(model.symmetry.directions))])
        hard = not learned.all() and _no_growth(small, learned)
        code = Result.SUCCESS if hard else Result.NOISY
        return Arrival(math.inf, 0.0, np.zeros((model.fields,) * 2), code), at_once

    def narrow(r: int) -> tuple[float, Point]:
        below, top = low[r], high[r].alpha
        while top > _CLOSE * below.alpha:
            middle = math.sqrt(top * below.alpha)
            point = _from(small, r, middle, below)
            below, top = (below, middle) if point.perfect else (point, top)
        return math.sqrt(top * below.alpha), below

    ends: list[tuple[float, Point]] = small.each(narrow)
    value, spread = (float(x) for x in mean_and_error(np.array([alpha for alpha, _ in ends])))
    # A bracket is a uniform law: its standard error is its width / sqrt(12).
    error = math.hypot(spread, (_CLOSE - 1) * value / math.sqrt(12))
    Q = np.mean([point.Q for _, point in ends], axis=0)
    return Arrival(value, error, Q, *_met(small, [point for _, point in ends])), at_once


def _no_growth(omap: OverlapMap, active: np.ndarray) -> bool:
    """Whether nothing idle grows even where the active blocks are known perfectly."""
    idle = np.flatnonzero(~active[omap.model.symmetry.parts])
    rates, unclear = (x.mean(axis=0) for x in idle_directions(omap, active, idle))
    return largest_rate(rates - unclear, omap.model.symmetry.parts[idle]) <= NO_RATE


def _all_at(omap: OverlapMap, alpha: float, before: Sequence[Point] | None = None) -> list[Point]:
    """State evolution of every scramble at alpha, from fixed points at a smaller one or from nothing."""
    points: list[Point] = omap.each(lambda r: _from(omap, r, alpha, None if before is None else before[r]))
    return points


def _from(omap: OverlapMap, r: int, alpha: float, before: Point | None) -> Point:
    if before is None or before.at is None:
        return solve(omap, r, alpha)
    if before.perfect:
        return replace(before, alpha=alpha)
    return solve(omap, r, alpha, Q=before.at.Q, known=before.known)


def _met(omap: OverlapMap, points: Sequence[Point]) -> tuple[Result, int, dict[str, Any]]:
    """How the solves ended, and whether the estimators of Nishimori agreed; samples; checks."""
    found = agreement(omap, [point.at.estimate for point in points if point.at is not None])
    codes = [point.result for point in points if point.result not in (Result.SUCCESS, Result.INTEGRATION)]
    result = worst([*codes, Result.SUCCESS if found.holds else Result.NISHIMORI])
    return result, omap.samples, {"nishimori": found.record()}
