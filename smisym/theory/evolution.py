"""Fixed points of state evolution, Q = Q_hat (I + Q_hat)^{-1} with Q_hat = alpha E(Q) + side information.

Every scramble of the overlap map is a smooth deterministic map and is solved on its own
(:mod:`smisym.theory.fixed_point`); the spread of the solutions is the statistical error.  What is reported was put back
into the equation: the step that Newton's method would still make there is the deterministic error, in the unit of Q.
(arXiv 2502.00901, eq. 14.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from smisym.base.edge import check_alpha, check_count, check_number
from smisym.base.errors import InputError, OutOfTime
from smisym.base.solution import Result, Solution, worst
from smisym.model.compiled import Model
from smisym.theory.aim import SETTLED, Aim, aimed, search, tolerance
from smisym.theory.at_once import fixed_point_near
from smisym.theory.collecting import FixedPoint, collect, perfect_part
from smisym.theory.effort import EXACT
from smisym.theory.fixed_point import solve
from smisym.theory.maps import OverlapMap
from smisym.theory.onward import Onward
from smisym.theory.point import Point
from smisym.theory.sentinel import agreement
from smisym.theory.taking_over import closer
from smisym.theory.unshown import finer, of_gaps, of_integrals

STARTS = ("symmetry-broken", "uninformed", "informed")
# What an informed start leaves to learn.
INFORMED = 1e-3


# Many parameters: settings, all by keyword.
def state_evolution(
    model: Model | OverlapMap,
    alpha: float,
    *,
    start: str = "symmetry-broken",
    side_information: float = 0.0,
    warm: FixedPoint | None = None,
    tol: float = 1e-4,
    max_steps: int = 400,
    callback: Callable[[dict[str, Any]], object] | None = None,
    accuracy: float | None = None,
    most_samples: int | None = None,
    **settings: Any,
) -> Solution:
    """The fixed point that state evolution reaches at ``alpha``; ``Solution.value`` is a :class:`FixedPoint`.

    start
        "symmetry-broken": the limit of vanishing side information (kicked along every unstable direction in turn);
        "uninformed": exactly Q = 0, where an even model stays; "informed": near Q = I.
    side_information
        Strength lam >= 0 of an extra observation sqrt(lam) W + noise.
    warm
        A solution at a smaller alpha to continue from (symmetry-broken only); results agree within ``tol``.
    tol
        On the largest change of an overlap, relative to what is left to learn in it; with an accuracy at most a tenth
        of that, and at most 1e-11 where nothing is sampled that makes an error (linear measurements).
    accuracy, most_samples
        The largest error of any entry of Q, statistical and deterministic together, in the unit of Q, and how many
        samples of one evaluation it may take (None: 2^22, fewer where posteriors are large): solved again on maps of
        the same seed with more samples until the error that is stated is so small (:mod:`smisym.theory.aim`).  The
        error then also holds what inner integrals change when they are refined (``checks["integrals"]``, in the
        deterministic one).  ``checks["tries"]``: samples and errors on the way.  A map's own samples are those of the
        first try.
    settings
        Of the overlap map when ``model`` is a Model: samples, scrambles, seed, rtol, workers.

    The error of a success holds what directions may have of which some scrambles learned nothing (``checks["idle"]``).
    Result: SUCCESS, MISSED where the accuracy was not reached, MAX_STEPS, DIVERGED or INTEGRATION; RESIDUAL where the
    overlap does not solve its equation to within the larger of its statistical error and the smaller of ``tol`` and
    2e-4; NISHIMORI where the estimators of E disagree; INCONSISTENT where one scramble is no draw from what the others
    show; NOISY where some scrambles know a direction perfectly and others are on another branch, and where the mean of
    all maps has its fixed point farther from the mean of their fixed points than the statistical error
    (``checks["bias"]``: near a fold every scramble rests too early), and where something clearly grows at that mean of
    which no scramble learned anything.
    Raises InputError for bad arguments.
    """
    _check(alpha, start, side_information, tol, max_steps)
    omap, aim = aimed(model, accuracy, most_samples, **settings)
    _check_warm(warm, omap)
    tol = tol if aim is None else min(tol, tolerance(aim))
    tol = min(tol, EXACT) if omap.model.channel.posterior.alike else tol

    def task(r: int) -> Point:
        return _solve(omap, r, float(alpha), float(side_information), start, warm, tol, max_steps)

    omap.what = f"state evolution at alpha = {alpha:g}"
    points: list[Point] = omap.each(task)
    if callback is not None:
        for r, point in enumerate(points):
            for record in point.history:
                callback({"scramble": r, **record})
    found = collect(omap, points, start, tol, 0.0 if aim is None else aim.accuracy)
    if aim is None:
        return found

    if start == "symmetry-broken" and not side_information:
        return refined_at_once(omap, aim, points, found)

    def again(larger: OverlapMap, smaller: OverlapMap, before: Sequence[Point]) -> tuple[list[Point], Solution]:
        once_more: list[Point] = larger.each(
            lambda r: _solve(larger, r, float(alpha), float(side_information), start, None, tol, max_steps)
        )
        return once_more, collect(larger, once_more, start, tol, aim.accuracy)

    return refined(omap, aim, points, found, again)


def refined_at_once(
    omap: OverlapMap, aim: Aim, points: list[Point], found: Solution, onward: Onward | None = None
) -> Solution:
    """The same from nothing on: a map with more samples is evaluated once near the fixed point of one with fewer, and
    solved scramble by scramble where that does not tell.

    onward: what a point before tells of this one, and what this one is to tell.
    """

    def again(larger: OverlapMap, smaller: OverlapMap, before: Sequence[Point]) -> tuple[list[Point], Solution]:
        tol, enough = found.settings["tol"], SETTLED * aim.accuracy
        told = None
        if not any(point.known.any() for point in before):
            Q = np.mean([point.Q for point in before], axis=0)
            closer_by = onward.moved(Q, before[0].alpha) if onward is not None and before is points else None
            if onward is not None and closer_by is not None:
                known = onward.first(larger.samples)
                told = fixed_point_near(larger, closer_by, before[0].alpha, known, tol, enough)
            told = told or fixed_point_near(larger, Q, before[0].alpha, smaller.samples, tol, enough)
        if told is not None:
            return told
        solved = closer(larger, before, tol)
        return solved, collect(larger, solved, found.settings["start"], tol, aim.accuracy)

    if onward is None:
        return refined(omap, aim, points, found, again)
    wanted = onward.samples(aim, omap.samples) if onward.at(points, omap.samples) else None
    whole = refined(omap, aim, points, found, again, wanted)
    onward.learn(points, whole)
    return whole


# Many parameters: a solve, how to solve again, and where to go on.
def refined(
    omap: OverlapMap,
    aim: Aim,
    points: list[Point],
    found: Solution,
    again: Callable[[OverlapMap, OverlapMap, Sequence[Point]], tuple[list[Point], Solution]],
    wanted: int | None = None,
) -> Solution:
    """The solution of a map of as many samples as the accuracy takes, by way of others with fewer.

    points, found: of the first map.  again: those of a map with more samples, from one with fewer and its points.
    wanted: samples of the second map; None for as many as the error of the first one tells.
    """
    what = omap.what
    at: list[tuple[OverlapMap, list[Point]]] = [(omap, points)]

    def more(samples: int, finer_integrals: bool) -> Solution:
        smaller, before = at[-1]
        larger = smaller.sibling(samples, fine=finer(smaller, aim.accuracy) if finer_integrals else None)
        omap.what = f"{what}, {samples} samples"
        points, found = again(larger, smaller, before)
        at.append((larger, points))
        return _doubted(larger, points, found, aim.accuracy)

    try:
        first = _doubted(omap, points, found, aim.accuracy)
    except OutOfTime:
        # Without knowing what its spread does not show: no such error is small.
        return replace(found, result=worst([found.result, Result.MISSED]), settings=found.settings | aim.settings())
    return search(aim, first, more, wanted)


def _doubted(omap: OverlapMap, points: Sequence[Point], found: Solution, accuracy: float) -> Solution:
    """The solution with errors that hold what the spread of the scrambles does not show."""
    if any(point.at is None or not np.isfinite(point.left).all() for point in points):
        return found
    integrals = of_integrals(omap, points[0], accuracy)
    estimates = [point.at.estimate for point in points if point.at is not None]
    nishimori = agreement(omap, estimates, of_gaps(omap, points[0], accuracy))
    return replace(
        found,
        result=found.result if nishimori.holds else Result.NISHIMORI,
        deterministic_error=found.deterministic_error + integrals,
        checks=found.checks | {"integrals": integrals, "nishimori": nishimori.record()},
    )


# Many parameters: those of state_evolution, checked.
def _solve(
    omap: OverlapMap, r: int, alpha: float, lam: float, start: str, warm: FixedPoint | None, tol: float, max_steps: int
) -> Point:
    Q = known = None
    if warm is not None and start == "symmetry-broken":
        Q = omap.model.symmetry.matrix(warm.overlaps[r])
        known = perfect_part(Q)
    elif start == "informed":
        Q = (1 - INFORMED) * np.eye(omap.model.fields)
    kicked = start != "uninformed"
    return solve(omap, r, alpha, lam=lam, Q=Q, known=known, kicked=kicked, tol=tol, max_steps=max_steps)


def _check(alpha: float, start: str, side_information: float, tol: float, max_steps: int) -> None:
    check_alpha(alpha)
    if not isinstance(start, str) or start not in STARTS:
        raise InputError("start", start, f"one of {', '.join(STARTS)}", "leave it out for symmetry-broken")
    check_number("side_information", side_information, "a finite number >= 0", "leave it out for none", least=0.0)
    if not check_number("tol", tol, "a positive number", "leave it out for the default") > 0:
        raise InputError("tol", tol, "a positive number", "leave it out for the default")
    check_count("max_steps", max_steps, 1)


def _check_warm(warm: FixedPoint | None, omap: OverlapMap) -> None:
    """InputError unless this is a fixed point of the same model with as many scrambles."""
    if warm is None:
        return
    shape = (omap.scrambles, len(omap.model.symmetry.basis))
    if not isinstance(warm, FixedPoint) or np.shape(warm.overlaps) != shape:
        given = f"overlaps of shape {np.shape(warm.overlaps)}" if isinstance(warm, FixedPoint) else warm
        raise InputError(
            "warm",
            given,
            f"a FixedPoint of the same model with overlaps of shape {shape}, scrambles by invariant directions",
            "pass the value of a Solution, solution.value, of the same model and scrambles",
        )
