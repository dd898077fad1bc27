"""What may be wrong with a fixed point that the spread of its scrambles does not show.

Inner integrals err alike in all scrambles, which is looked at where an accuracy is asked for; and where little or
nothing was learned of a direction they agree on zero, or on a few that are not, though just above its threshold all
would.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import special

from smisym.base.solution import mean_and_error
from smisym.integrate.accuracy import SAMPLING
from smisym.theory.growth import class_rate, coupled_classes, growth_rates
from smisym.theory.kick import KICK
from smisym.theory.linearised import Equation, Local, placed, positive
from smisym.theory.maps import OverlapMap
from smisym.theory.point import Point
from smisym.theory.sentinel import COVARIANCES
from smisym.theory.stage import Stage
from smisym.theory.told import shares

# Points of one scramble at which the inner integrals are refined, fewer where these are dear but at least so many, and
# by how much; sampled ones cost the square of it.
_POINTS, _LEAST, _FINER, _FINER_SAMPLED = 512, 64, 0.1, 0.5
# Where refinements get dear: tolerance beside the accuracy asked, and the least that is a refinement.
_OF_ACCURACY, _LESS = 0.5, 1 / 3
# Power of tolerances with which what they leave falls, at least.  Three layers at Q = (0.17, 0, 0.987): from 3e-2 to
# 1e-2 the rate of what is not learned falls by 2.7e-3, to 3e-3 by 1.9e-3, from there to 1e-4 by 2e-4; four layers at
# (0.25, 0, 0, 0.988) from 0.1 to 3e-2 by 1.6e-2, to 1e-2 by 5.5e-3, to 3e-3 by 1.5e-3.
_FALLS = 0.75
# Multiple of what a finer tolerance changes in the differences of Nishimori's estimators that they may be off by.
_GAPS = 2.0
# Standard errors by which growth must be below one for a direction to be idle beyond doubt: with seven degrees of
# freedom it is not, five times in ten thousand.
_BEYOND_DOUBT = 5.0
# Standard deviations over the scrambles that an overlap must be above nothing for all to have learned of it.
_CLEAR = 2.0


def finer(omap: OverlapMap, accuracy: float) -> float:
    """The tolerance of the inner integrals that a refinement takes where an answer is to be so accurate."""
    plan = omap.model.channel.plan
    before = omap.rtol if omap.fine is None else omap.fine
    if plan.steep:
        return min(max(_FINER * before, _OF_ACCURACY * accuracy), _LESS * before)
    return before * (_FINER_SAMPLED if plan.method == SAMPLING else _FINER)


def _left(rtol: float, fine: float) -> float:
    """Of what a finer tolerance changes, how much a still finer one may change."""
    left = (fine / rtol) ** _FALLS
    return left / (1 - left)


@dataclass(frozen=True)
class _Compared:
    """Two maps of the same points with one tolerance and a finer one, one of few points with the former, and what
    multiple of the change between the two a map may be off by."""

    rough: OverlapMap
    fine: OverlapMap
    few: OverlapMap
    times: float


def _compared(omap: OverlapMap, accuracy: float) -> _Compared:
    """Of few points; of a map that has a finer tolerance itself its own two, and what is left then."""
    if omap.fine is not None:
        few, _ = omap.levels(omap.fine)
        return _Compared(omap.sibling(omap.samples, rtol=omap.rtol), omap, few, _left(omap.rtol, omap.fine))
    fine = finer(omap, accuracy)
    points = max(_POINTS // omap.model.channel.plan.dearer, _LEAST)
    few = omap.sibling(min(omap.samples, points * omap.scrambles), rtol=omap.rtol)
    return _Compared(few, few.sibling(few.samples, rtol=fine), few, 1 + _left(omap.rtol, fine))


def of_integrals(omap: OverlapMap, point: Point, accuracy: float) -> np.ndarray:
    """(P, P): what a finer tolerance of the inner integrals changes in a fixed point, by Newton's step.

    What it changes in the equation is told on points of one scramble, the same with both tolerances; what that makes of
    the fixed point by slopes of all.  At alpha = 1.4 the map of three layers hardly contracts, and log of what is left
    moves by 0.18 from a tolerance of 0.1 on: single scrambles of 128 points tell 0.10 to 0.30 of it so, and by slopes
    of their own 0.04 to 5, or nothing (two of eight).
    Of a map that has a finer tolerance, what is left of what that changes.  Nothing where all is perfect.
    """
    found = _refined(omap, point, accuracy)
    return np.zeros_like(point.Q) if found is None else found.times * np.abs(found.here[0].in_overlap(found.step))


def of_gaps(omap: OverlapMap, point: Point, accuracy: float) -> float | None:
    """What the inner integrals may make of the differences of Nishimori's estimators at a fixed point; None where
    finer ones do not tell.

    What a finer tolerance changes in them, on points of one scramble, and what the errors stated then bound.  These
    fall with the tolerance, and of rough posteriors they are far above what these are wrong by: of two layers at
    Q = (0.3, 0.988) and 0.1 they bound 0.4, where the differences change by 3e-4.
    """
    found = None if omap.fine is not None else _refined(omap, point, accuracy)
    if found is None:
        return None
    before, after = (np.mean([of.estimate.gap for of in some], axis=0) for some in (found.here, found.there))
    bound = COVARIANCES * float(np.mean([there.estimate.inner_error for there in found.there]))
    return bound + _GAPS * found.times * float(np.abs(after - before).max())


def of_growth(omap: OverlapMap, point: Point, accuracy: float, rate: Callable[[np.ndarray], float]) -> float:
    """The same of a rate of growth at the fixed point, relative; rate: of a derivative of the map (k, k)."""
    found = _refined(omap, point, accuracy)
    if found is None or not (before := rate(_jacobian(found.here))) > 0:
        return 0.0
    moved = rate(found.at(found.here[0].moved(found.step)).jacobian) - rate(found.at(found.here[0].Q).jacobian)
    return found.times * abs(rate(_jacobian(found.there)) - before + moved) / before


def _jacobian(found: Sequence[Local]) -> np.ndarray:
    return np.asarray(np.mean([here.jacobian for here in found], axis=0))


def of_first(omap: OverlapMap, stage: Stage, accuracy: float) -> float:
    """The same of what makes a first stage at Q = 0, the rate at which a class of coordinates grows or what is told of
    a part, relative."""
    maps = _compared(omap, accuracy)

    def of_map(m: OverlapMap) -> float:
        estimate = m.at(0, np.zeros_like(stage.Q))
        if stage.told:
            return float(shares(m.model, [estimate], stage.pivot)[0])
        return class_rate(growth_rates(m, estimate), stage.members)

    before, after = of_map(maps.rough), of_map(maps.fine)
    return maps.times * abs(after - before) / before if before > 0 else 0.0


@dataclass(frozen=True)
class _Refined:
    """The equation where a fixed point was told, by scramble, with one tolerance and a finer one, Newton's step (k,)
    from one to the other, and the multiple of it that a map may be off by.  at: one scramble's with the former and few
    points, anywhere."""

    here: list[Local]
    there: list[Local]
    step: np.ndarray
    times: float
    at: Callable[[np.ndarray], Local]


def _refined(omap: OverlapMap, point: Point, accuracy: float) -> _Refined | None:
    if point.perfect or point.at is None:
        return None
    maps = _compared(omap, accuracy)

    def at(m: OverlapMap, r: int, Q: np.ndarray) -> Local:
        return Equation(m, r, point.side_information).at(placed(Q, point.known), point.alpha, point.known)

    # Where the map itself was evaluated: both its levels are known there, of all scrambles.
    scrambles = range(1 if omap.fine is None else omap.scrambles)
    here, there = ([at(m, r, point.at.Q) for r in scrambles] for m in (maps.rough, maps.fine))
    # How fast the map contracts, by all points: where that is slow few of them are off by more than it is, either way.
    every = here if omap.fine is not None else omap.each(lambda r: at(omap, r, point.at.Q))
    on, step = np.any([one.active for one in every], axis=0), np.zeros(len(here[0].active))
    slopes = np.eye(int(on.sum())) - np.mean([one.scaled for one in every], axis=0)[np.ix_(on, on)]
    if on.any() and np.linalg.eigvals(slopes).real.min() > 0:
        changes = np.mean([b.residual - a.residual for a, b in zip(here, there, strict=True)], axis=0)
        step[on] = np.linalg.solve(slopes, changes[on])
    return _Refined(here, there, step, maps.times, partial(at, maps.few, 0))


def of_idle(omap: OverlapMap, points: Sequence[Point], Q: np.ndarray) -> np.ndarray:
    """(P, P): one standard error of what is learned of directions of which some scrambles may have learned nothing.

    Q (P, P): the mean of the points.  An overlap along what grows, q, follows growth(q) = 1, and none is negative: of
    scrambles that stand around a threshold some have nothing, others their part of the noise, and the spread of the
    overlaps tells neither how far that mean is off nor how sure it is.  Growth does: at q = 0 it is a mean that nothing
    cuts off, with its standard error, and it falls with a slope that a kick tells.  So q is excess over slope, and its
    error that of growth over slope, of which counts what lies above zero; what the mean is off comes on top.
    One where growth may be above one and does not fall as more is learned: there it jumps.
    """
    error = np.zeros_like(Q)
    known, alpha, lam = points[0].known, points[0].alpha, points[0].side_information
    doubtful = _doubtful(omap, points)
    if points[0].perfect or not doubtful.any():
        return error
    symmetry = omap.model.symmetry
    others = np.eye(len(Q)) - symmetry.span(doubtful)
    below = placed(others @ Q @ others, known)
    found = omap.each(lambda r: Equation(omap, r, lam).at(below, alpha, known))
    idle = np.flatnonzero(~np.any([here.active for here in found], axis=0))
    rates = np.array([here.jacobian[np.ix_(idle, idle)] for here in found])
    for members in coupled_classes(rates.mean(axis=0), symmetry.parts[idle]):
        growth, spread, vector = _fastest(rates[np.ix_(range(len(rates)), members, members)])
        along = positive(np.einsum("k,kij->ij", vector, found[0].units[idle[members]]))
        size = float(np.sum(along * along))
        told = float(np.sum((Q - below) * along)) / size
        if growth + _BEYOND_DOUBT * spread <= 1:
            most = told
        else:
            most = _from_growth(omap, points[0], below, along, (growth, spread, told))
        error += np.abs(most * along)
    return error


# Many parameters: a place, a direction, and what is known of it.
def _from_growth(
    omap: OverlapMap, point: Point, below: np.ndarray, along: np.ndarray, of: tuple[float, float, float]
) -> float:
    """One standard error of an overlap ``along`` (P, P) that is nothing at ``below``; of: growth there, its standard
    error, and the overlap that is told."""
    growth, spread, told = of
    kicked = omap.each(
        lambda r: Equation(omap, r, point.side_information).at(below + KICK * along, point.alpha, point.known)
    )
    unit = np.einsum("kij,ij->k", kicked[0].units, along)
    grown = np.mean([here.residual @ unit for here in kicked]) / (KICK * float(unit @ unit))
    slope = (growth - 1 - grown) / KICK
    if slope <= 0:
        return 1.0
    excess, unsure = (growth - 1) / slope, spread / slope
    own = unsure * _above(-excess / unsure, omap.scrambles - 1) if excess < 0 else unsure
    return min(math.hypot(own, told - max(excess, 0.0)), 1.0)


def _above(a: float, freedom: int) -> float:
    """Root mean square of how far Student's t exceeds a, no more than 1; of fewer than three degrees of freedom, which
    have none, that of three."""
    n = max(freedom, 3)
    # t^2 n / (n + t^2) turns a density of n degrees of freedom into one of n - 2.
    square = n * ((n - 1) / (n - 2) * special.stdtr(n - 2, -a * math.sqrt((n - 2) / n)) - special.stdtr(n, -a))
    density = math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2) - (n + 1) / 2 * math.log1p(a * a / n))
    first = density / math.sqrt(n * math.pi) * (n + a * a) / (n - 1)
    return min(math.sqrt(max(square - 2 * a * first + a * a * special.stdtr(n, -a), 0.0)), 1.0)


def _doubtful(omap: OverlapMap, points: Sequence[Point]) -> np.ndarray:
    """(parts,): of which of them some scrambles may have learned nothing, by where they all are."""
    directions = omap.model.symmetry.directions
    most = np.array([[np.linalg.eigvalsh(D @ point.Q @ D.T)[-1] for D in directions] for point in points])
    return np.asarray(most.mean(axis=0) <= _CLEAR * most.std(axis=0, ddof=1))


def _fastest(rates: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Growth, its standard error and its vector (k,) along what grows most of rates (R, k, k)."""
    vector = np.linalg.eigh(rates.mean(axis=0))[1][:, -1]
    growth, error = (float(x) for x in mean_and_error(np.einsum("i,rij,j->r", vector, rates, vector)))
    return growth, error, vector
