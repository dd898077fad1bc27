"""Thresholds: trivial directions, weak recovery and its staircase, perfect recovery.

Weak recovery starts where state evolution, linearised at the fixed point that is actually reached, stops
contracting: first at Q = 0 (arXiv 2502.00901, theorem 2.3), later at the overlap that the learned directions have at
that alpha, not at a perfect one.  Perfect recovery: stability of Q = I by counting ranks, and where the branch arrives.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from smisym.base.edge import check_count, check_model, check_settings
from smisym.base.errors import InputError, OutOfTime
from smisym.base.solution import Result, Solution, mean_and_error, worst
from smisym.base.threshold import Threshold
from smisym.integrate.accuracy import SCRAMBLES, THRESHOLD_SAMPLES
from smisym.model.compiled import Model
from smisym.theory.aim import INNER, Aim, Tries, aimed
from smisym.theory.effort import affordable
from smisym.theory.fixed_point import solve
from smisym.theory.growth import clear_growth
from smisym.theory.hermite import first_order
from smisym.theory.limits import NO_RATE, idle_directions, largest_rate
from smisym.theory.maps import OverlapMap
from smisym.theory.over_outputs import by_quadrature, can_be_integrated, first_threshold
from smisym.theory.point import Point
from smisym.theory.sentinel import agreement
from smisym.theory.stage import Stage, sampled_first
from smisym.theory.stages import staircase
from smisym.theory.unshown import finer, of_first

# Points of one scramble, and scrambles, of the map that looks whether Q = I is reached where it becomes stable; points
# of one scramble of the one that looks where it is reached if not there.
_LOOK_POINTS, _LOOK_SCRAMBLES = 512, 2
_ARRIVAL_POINTS, _ARRIVAL_SCRAMBLES = 1024, 4
# How far above and below, relative, that is looked at: what the answer is known to.
_ABOVE, _BELOW = 5e-3, 3e-2
# Multiples of the alpha where Q = I becomes stable at which it may be reached, and how closely that is bracketed.
_MULTIPLES, _CLOSE = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0), 1.004
# Up to so many rows, or blocks, all spans of them are counted.
_ROWS = 12
# Relative statistical errors below this are none at all.
_TOO_GOOD = 1e-9
# Change under refinement, relative, above which a quadrature over y is compared with sampling.
_ROUGH = 1e-3


# Many parameters: settings, all by keyword.
def weak_recovery(
    model: Model | OverlapMap,
    *,
    samples: int | None = None,
    scrambles: int = SCRAMBLES,
    seed: int = 0,
    rtol: float | None = None,
    workers: int | None = None,
    stages: int | None = None,
    quadrature: bool | None = None,
    accuracy: float | None = None,
    most_samples: int | None = None,
) -> Solution:
    """All trivial, weak and hard directions, in the order in which they are met; value: a tuple of Threshold.

    Where overlaps are coupled (``model.symmetry.projectors`` is False) and only some directions of a part that
    symmetries leave are learned, what is learned later is not looked for: PARTIAL.

    samples, scrambles, seed, rtol, workers: of the overlap map (:class:`~smisym.OverlapMap`) when ``model``
    is a Model; a map keeps its own.  samples None: 65536, less in more than two free dimensions and where posteriors
    are sampled (:func:`~smisym.theory.effort.affordable`).
    stages: how many of them to look for, at least one; what comes later is then not mentioned.  The first one takes two
    or three evaluations of the map, each later one some dozens.  None: all.
    quadrature: whether the first one is integrated over the output itself instead of sampled, which needs a chart with
    at most three coordinates of y, and at most four free dimensions.  None: where that is so and y is cheap to
    integrate over.  Five digits, but thousands of outputs: where single posteriors are slow, sampling is faster.
    accuracy, most_samples: the largest error of any threshold, in the unit of alpha, in place of samples: each is
    measured on a map of as many samples as it takes, at most so many (None: 2^22, fewer where posteriors are large).
    The error then also holds what inner integrals change when they are refined.  A map's own samples are those of the
    first try.

    Result: SUCCESS, MISSED where a threshold's error is larger than the accuracy, NOISY, INTEGRATION or PARTIAL.
    Raises InputError for a model that is neither, for ``stages`` below one, for ``quadrature=True`` where y cannot be
    integrated over, for an accuracy that is no positive number or has ``samples`` beside it, and for settings that the
    map refuses.
    Source: arXiv 2502.00901, theorem 2.3.
    """
    if stages is not None:
        check_count("stages", stages, 1, "use stages=1 for the first one, or leave it out for all")
    target = model.model if isinstance(model, OverlapMap) else model
    check_model(target, "an OverlapMap")
    if quadrature and not can_be_integrated(target):
        raise InputError(
            "quadrature",
            True,
            "a chart with at most three coordinates of y that give it a density, and at most four free dimensions",
            "leave quadrature out: the threshold is then sampled",
        )
    given = {
        "samples": (samples, None), "scrambles": (scrambles, SCRAMBLES), "seed": (seed, 0), "rtol": (rtol, None),
        "workers": (workers, None),
    }  # fmt: skip
    other = {name: value for name, (value, default) in given.items() if value != default}
    check_settings(other, tuple(given), given_map=isinstance(model, OverlapMap))
    if accuracy is None and not isinstance(model, OverlapMap):
        other.setdefault("samples", affordable(target, THRESHOLD_SAMPLES))
    omap, aim = aimed(model, accuracy, most_samples, **other)
    with omap.used() as used:
        found, codes, known = _met_in_turn(omap, stages, quadrature, aim)
    if aim is not None and any(t.error > aim.at(t.alpha).accuracy for t in found if math.isfinite(t.alpha)):
        codes.append(Result.MISSED)
    lacking = any(not np.isfinite(estimate.inner_error) for estimate in used)
    solution = weak_solution(omap, found, codes, known=known and not lacking)
    return solution if aim is None else replace(solution, settings=solution.settings | aim.settings())


def _met_in_turn(
    omap: OverlapMap, stages: int | None, quadrature: bool | None, aim: Aim | None
) -> tuple[list[Threshold], list[Result], bool]:
    """Thresholds, codes of the stages, and whether what grows is known clear of the errors of the integrals."""
    target = omap.model
    met: list[Stage] = list(itertools.islice(staircase(omap, aim), stages))
    found: list[Threshold] = []
    codes = [code for stage in met for code in stage.results]
    known = True
    nothing = np.zeros((omap.model.fields,) * 2)
    for number, stage in enumerate(met):
        if stage.trivial:
            found += [_along(target, "trivial", group, 0.0, 0.0, nothing) for group in stage.directions]
            continue
        alpha, error, samples = stage.alpha, stage.error, stage.samples or None
        if number == 0:
            known = _growth_is_known(omap, stage.pivot)
            integrated = by_quadrature(target) if quadrature is None else quadrature
            if integrated:
                alpha, error = _integrated(target, stage)
            elif error < _TOO_GOOD * alpha:
                # Scrambles that all see the same few outputs: what is left is the error of the integrals.
                error = alpha * math.sqrt(omap.at(0, nothing).inner_error)
            samples = None if integrated and (alpha, error) != (stage.alpha, stage.error) else stage.samples
            if aim is not None and not (integrated and error <= aim.at(alpha).accuracy):
                sampled = _sampled(omap, stage, aim.at(alpha), codes)
                if not integrated or sampled[1] < error:
                    alpha, error, samples = sampled
        one = _along(target, "weak", _together(target, stage), alpha, error, stage.Q)
        found.append(replace(one, samples=samples))
    after = met[-1].after if met and (stages is None or len(met) < stages) else Result.SUCCESS
    known &= after is not Result.INTEGRATION
    if after is Result.PARTIAL:
        codes.append(after)
    elif stages is None or len(met) < stages:
        learned = met[-1].active if met else np.zeros(len(target.symmetry.directions), dtype=bool)
        for pivot in np.flatnonzero(~learned):
            hard = _along(
                target, "hard", target.symmetry.directions[pivot], math.inf, 0.0, target.symmetry.span(learned)
            )
            order = first_order(target, hard.subspace, _beside(target, ~learned, int(pivot)))
            # A first or second order grows at some finite alpha: that none was seen is the fault of the integrals.
            known &= order is None or order > 2
            found.append(replace(hard, order=order))
    return found, codes, known


def _sampled(omap: OverlapMap, stage: Stage, aim: Aim, codes: list[Result]) -> tuple[float, float, int]:
    """(alpha, error, samples) of the first threshold, at as many as the accuracy takes; adds the codes of the last."""
    tries, larger = Tries(aim), omap
    alpha, error, results = stage.alpha, float(tries.stated(omap.samples, stage.error)), list[Result]()
    whole = math.hypot(error, alpha * of_first(larger, stage.members))
    while not tries.reached(whole):
        samples = tries.more(whole)
        if samples is None:
            break
        inner = whole**2 - error**2
        more = larger.sibling(samples, rtol=finer(larger) if inner > (INNER * aim.accuracy) ** 2 else larger.rtol)
        omap.what = f"first threshold, {samples} samples"
        try:
            alpha, spread, _, results = sampled_first(more, stage.members)
        except OutOfTime:
            break
        error, larger = float(tries.stated(samples, spread)), more
        whole = math.hypot(error, alpha * of_first(larger, stage.members))
    codes += results
    return alpha, whole, larger.samples


def _integrated(model: Model, stage: Stage) -> tuple[float, float]:
    """The first threshold by quadrature over the output, or as it was sampled where that is better."""
    alpha, change = first_threshold(model, stage.new)
    if not change <= _ROUGH * alpha:
        # The law of y has edges that the lattice does not resolve: sampling may be better.
        both = (alpha, change), (stage.alpha, stage.error)
        return min((pair for pair in both if np.isfinite(pair).all()), key=lambda pair: pair[1], default=both[1])
    return alpha, change


def _together(model: Model, stage: Stage) -> np.ndarray:
    """(d, P), orthonormal: all that begins at a stage; rows of Z in their order where no overlaps are coupled."""
    if model.symmetry.projectors:
        values, vectors = np.linalg.eigh(model.symmetry.span(stage.new))
        return np.ascontiguousarray(vectors.T[values > 0.5])
    return np.concatenate(stage.directions)


def _growth_is_known(omap: OverlapMap, pivot: int) -> bool:
    """Whether the rate of a part at Q = 0 is, on average over the scrambles, clear of the errors of the integrals."""
    estimates = omap.evaluate(np.zeros((omap.model.fields,) * 2))
    return float(np.mean([clear_growth(omap, e)[1][pivot] for e in estimates])) > 0.5


def weak_solution(omap: OverlapMap, found: list[Threshold], codes: Sequence[Result], *, known: bool = True) -> Solution:
    """The thresholds with their code: posteriors that are missing or badly known come before noise."""
    integrals = [] if known else [Result.INTEGRATION]
    integrals += [Result.INTEGRATION] if any(math.isnan(t.alpha) or math.isnan(t.error) for t in found) else []
    # That some posteriors missed their tolerance is in the errors; that a direction's growth is unknown is not.
    grave = [code for code in codes if code is not Result.INTEGRATION]
    return _solution(omap, found, worst([*grave, *integrals]))


def perfect_recovery(model: Model | OverlapMap, *, samples: int = 4096, workers: int | None = None) -> Solution:
    """Perfect recovery: its local stability by counting, and where AMP arrives at it; a tuple of two Threshold.

    perfect_stable: the largest dim S / K_S, K_S the mean rank of df/dZ on S (then V -> E(V)^{-1}/alpha contracts), over
    subspaces S: spans of rows, of blocks that symmetries leave, what the output never sees, and those in general
    position into which V -> E(V)^{-1} falls apart (1000 steps: one whose alpha is within a few per cent of the others'
    can be missed).  Infinite under noise and where outputs are discrete.  Exact, but for links of several pieces, where
    K_S is a mean over 4096 fields.
    perfect_amp: where state evolution reaches Q = I, never below perfect_stable: there, to half a per cent, where it
    rests below Q = I just below and reaches it just above; else where every scramble's branch ends, bracketed to half a
    per cent; infinite where it does not reach Q = I.
    samples, workers: of the overlap map when ``model`` is a Model; a map keeps its own samples, scrambles and seed.
    A few scrambles decide (two of 512 points, four of 1024 where a branch has to be followed), whatever ``samples``.

    Result: SUCCESS, NOISY where Q = I was not reached at any alpha that was tried, INCONSISTENT where state evolution
    rests at Q = I though counting says that it is not stable, NISHIMORI.  Raises InputError for samples that the
    map refuses, and where derivatives of the output overflow at all random fields.
    """
    omap = model if isinstance(model, OverlapMap) else OverlapMap(model, samples=samples, workers=workers)
    target = omap.model
    span, alpha, uncertain = counting(target)
    eye = np.eye(target.fields)
    stable = _along(target, "perfect_stable", span, alpha, uncertain, eye)
    if math.isinf(alpha):
        # Something is never pinned down by finitely many outputs: discrete ones leave cells, noise blurs.
        never = _along(target, "perfect_amp", eye, math.inf, 0.0, 0 * eye)
        return _solution(omap, [stable, never], Result.SUCCESS)
    reached, code = _arrival(omap, alpha, uncertain)
    return _solution(omap, [stable, reached], code)


def _arrival(omap: OverlapMap, stable: float, uncertain: float) -> tuple[Threshold, Result]:
    """Where state evolution reaches Q = I, never below the alpha where that becomes stable, and how that went."""
    eye = np.eye(omap.model.fields)
    omap.what = "where Q = I is reached"
    look = omap.sibling(_LOOK_POINTS * _LOOK_SCRAMBLES, _LOOK_SCRAMBLES)
    below = _all_at(look, (stable - 3 * uncertain) * (1 - _BELOW))
    above = _all_at(look, (stable + 3 * uncertain) * (1 + _ABOVE), below)
    if any(point.perfect for point in below):
        # It cannot rest where it is not stable: the ranks that were counted, or the channel, are wrong.
        return _along(omap.model, "perfect_amp", eye, stable, math.inf, eye), Result.INCONSISTENT
    if all(point.perfect for point in above):
        return _along(omap.model, "perfect_amp", eye, stable, max(uncertain, _ABOVE * stable), eye), _met(look, above)
    return _later_arrival(omap, stable)


def _later_arrival(omap: OverlapMap, stable: float) -> tuple[Threshold, Result]:
    """Where a branch that rests below Q = I ends: bracketed scramble by scramble, with two numbers of points.

    The end of a branch is the largest alpha along it: noise on top of it puts it too high, by as much as the variance
    of its slope, one over the number of points.  Two numbers of points tell how much, and what both leave.
    """
    few, _, _ = _end_of_branch(omap, stable, _ARRIVAL_POINTS // 4)
    found, code, at_once = _end_of_branch(omap, stable, _ARRIVAL_POINTS)
    if math.isinf(found.alpha) or math.isinf(few.alpha):
        return found, code
    bias = (few.alpha - found.alpha) / 3
    alpha = max(stable, found.alpha - bias)
    # Where some scrambles have no branch at all, those that have one, by their noise, tell nothing of its end.
    error = math.hypot(found.error, few.error / 3, bias, alpha - stable if at_once else 0.0)
    return replace(found, alpha=alpha, error=error), code


def _end_of_branch(omap: OverlapMap, stable: float, points: int) -> tuple[Threshold, Result, bool]:
    """The largest alpha along it, a code, and whether some scramble is perfect as soon as that is stable."""
    model, eye = omap.model, np.eye(omap.model.fields)
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
        never = _along(model, "perfect_amp", eye, math.inf, 0.0, 0 * eye)
        return never, Result.SUCCESS if hard else Result.NOISY, at_once

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
    return _along(model, "perfect_amp", eye, value, error, Q), _met(small, [point for _, point in ends]), at_once


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


def _met(omap: OverlapMap, points: Sequence[Point]) -> Result:
    """How the solves ended, and whether the estimators of Nishimori agreed."""
    found = agreement(omap, [point.at.estimate for point in points if point.at is not None])
    codes = [point.result for point in points if point.result not in (Result.SUCCESS, Result.INTEGRATION)]
    return worst([*codes, Result.SUCCESS if found.holds else Result.NISHIMORI])


def _beside(model: Model, hard: np.ndarray, pivot: int) -> np.ndarray:
    """(e, P): the other directions that are hard."""
    others = [model.symmetry.directions[k] for k in np.flatnonzero(hard) if k != pivot]
    return np.concatenate(others) if others else np.empty((0, model.fields))


def counting(model: Model) -> tuple[np.ndarray, float, float]:
    """(directions (d, P), alpha, its standard error) of the subspace S with the largest dim S / K_S.

    Over spans of rows, of the blocks that symmetries leave, the flag in which what is left near Q = I falls apart
    (:meth:`smisym.link.rank.JacobianRanks.flag`), and the directions that the output never sees.
    """
    if model.noise:
        return np.eye(model.fields), math.inf, 0.0
    ranks = model.jacobian_ranks(np.random.default_rng(0))
    unseen = ranks.unseen()
    if len(unseen):
        return unseen, math.inf, 0.0
    best: tuple[np.ndarray, float, float] = (np.eye(model.fields), 0.0, 0.0)
    for span in itertools.chain(ranks.flag(), _spans(model)):
        rank, error = (model.prior.multiplicity * x for x in ranks(span))
        ratio = len(span) / rank if rank > 0 else math.inf
        if ratio >= best[1]:
            best = (span, ratio, len(span) * error / rank**2 if rank > 0 else 0.0)
    return best


def _spans(model: Model) -> Iterator[np.ndarray]:
    """Subspaces (d, P): spans of rows and of blocks; with many rows, those of few and of all but few."""
    P, eye = model.fields, np.eye(model.fields)
    sizes = [size for size in range(1, P + 1) if P <= _ROWS or size <= 2 or size >= P - 1]
    yield from (eye[list(rows)] for size in sizes for rows in itertools.combinations(range(P), size))
    blocks = model.symmetry.directions
    if len(blocks) <= _ROWS:
        for size in range(1, len(blocks)):
            for chosen in itertools.combinations(blocks, size):
                yield np.concatenate(chosen)


def _along(model: Model, kind: str, subspace: np.ndarray, alpha: float, error: float, Q: np.ndarray) -> Threshold:
    subspace = subspace * np.where(subspace.sum(axis=1) < 0, -1.0, 1.0)[:, None]
    rows = np.flatnonzero(np.abs(subspace).max(axis=0) > 1e-9)
    layers = tuple(sorted({model.row_layers[r] for r in rows}))
    return Threshold(kind, layers, subspace, alpha, error, Q, names=tuple(model.labels[r] for r in rows))


def _solution(omap: OverlapMap, found: list[Threshold], result: Result) -> Solution:
    return Solution(
        tuple(found),
        result,
        statistical_error=tuple(t.error for t in found),
        degrees_of_freedom=omap.scrambles - 1,
        settings=omap.settings(),
    )
