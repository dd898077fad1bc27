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
from smisym.base.solution import Result, Solution, worst
from smisym.base.threshold import Threshold, Thresholds
from smisym.integrate.accuracy import SAMPLING, THRESHOLD_SAMPLES
from smisym.model.compiled import Model
from smisym.theory.aim import INNER, Aim, Tries, aimed
from smisym.theory.arrival import perfect_from
from smisym.theory.effort import affordable
from smisym.theory.growth import class_rate, clear_growth
from smisym.theory.hermite import first_order
from smisym.theory.maps import OverlapMap
from smisym.theory.over_outputs import can_be_integrated
from smisym.theory.put_back import Met, checked
from smisym.theory.stage import Stage, measured_first
from smisym.theory.stages import staircase
from smisym.theory.told import needed
from smisym.theory.unsampled import is_better, without_samples
from smisym.theory.unshown import finer, of_first

# Samples of the map on which perfect recovery is looked for; few of them are used.
_SAMPLES = 4096
# Up to so many rows, or blocks, all spans of them are counted.
_ROWS = 12
# More stages than any network has, and than a slice may count.
_ALL_STAGES = 10**6
# Relative statistical errors below this are none at all.
_TOO_GOOD = 1e-9
# Part of what bounds errors of posteriors in rates of growth that is one standard error: see ``_of_squares``.
_PART = 0.5


# Many parameters: settings, all by keyword.
def weak_recovery(
    model: Model | OverlapMap,
    *,
    samples: int | None = None,
    scrambles: int | None = None,
    seed: int = 0,
    rtol: float | None = None,
    workers: int | None = None,
    stages: int | None = None,
    quadrature: bool | None = None,
    accuracy: float | None = None,
    most_samples: int | None = None,
) -> Solution:
    """All trivial, weak and hard directions, in the order in which they are met; value: Thresholds, a tuple.

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
    ``checks``: each weak threshold put back into its equations, and Nishimori there
    (:func:`smisym.theory.put_back.checked`).
    Raises InputError for a model that is neither, for ``stages`` below one, for ``quadrature=True`` where y cannot be
    integrated over, for an accuracy that is no positive number or has ``samples`` beside it, and for settings that the
    map refuses.
    Source: arXiv 2502.00901, theorem 2.3.
    """
    if stages is not None:
        stages = check_count("stages", stages, 1, "use stages=1 for the first one, or leave it out for all")
        stages = min(stages, _ALL_STAGES)
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
        "samples": (samples, None), "scrambles": (scrambles, None), "seed": (seed, 0), "rtol": (rtol, None),
        "workers": (workers, None),
    }  # fmt: skip
    other = {name: value for name, (value, default) in given.items() if value != default}
    check_settings(other, tuple(given), given_map=isinstance(model, OverlapMap))
    if accuracy is None and not isinstance(model, OverlapMap):
        other.setdefault("samples", affordable(target, THRESHOLD_SAMPLES))
    omap, aim = aimed(model, accuracy, most_samples, **other)
    with omap.used() as used:
        found, codes, known, met = _met_in_turn(omap, stages, quadrature, aim)
    checks, wrong = checked(omap, met)
    codes += wrong
    if aim is not None and any(t.error > aim.accuracy for t in found):
        codes.append(Result.MISSED)
    lacking = any(not np.isfinite(estimate.inner_error) for estimate in used)
    solution = weak_solution(omap, found, codes, known=known and not lacking)
    asked = {} if aim is None else aim.settings()
    return replace(solution, settings=solution.settings | asked, checks=checks)


def _met_in_turn(
    omap: OverlapMap, stages: int | None, quadrature: bool | None, aim: Aim | None
) -> tuple[list[Threshold], list[Result], bool, list[Met]]:
    """Thresholds, codes of the stages, whether what grows is known clear of the errors of the integrals, and the stages
    with their weak thresholds."""
    target = omap.model
    met: list[Stage] = list(itertools.islice(staircase(omap, aim), stages))
    found, each = list[Threshold](), list[Met]()
    codes = [code for stage in met for code in stage.results]
    known = True
    nothing = np.zeros((omap.model.fields,) * 2)
    for number, stage in enumerate(met):
        if stage.trivial:
            found += [_along(target, "trivial", group, 0.0, 0.0, nothing) for group in stage.directions]
            each.append((stage, found[-1]))
            continue
        alpha, error, samples = stage.alpha, stage.error, stage.samples or None
        if number == 0:
            known = stage.told or _growth_is_known(omap, stage.pivot)
            integrated = not stage.told and (is_better(target, stage) if quadrature is None else quadrature)
            if integrated:
                alpha, error = without_samples(target, stage)
            elif stage.told:
                pass  # Its error holds that of the integrals.
            elif error < _TOO_GOOD * alpha:
                # Scrambles that all see the same few outputs: what is left is the error of the integrals.
                error = alpha * math.sqrt(omap.at(0, nothing).inner_error)
            elif aim is None and target.channel.plan.method == SAMPLING:
                error = math.hypot(error, _of_squares(omap, stage))
            samples = None if integrated and (alpha, error) != (stage.alpha, stage.error) else stage.samples or None
            if aim is not None and not (integrated and error <= aim.accuracy):
                sampled = _sampled(omap, stage, aim, codes)
                if not integrated or sampled[1] < error:
                    alpha, error, samples = sampled
        one = _along(target, "weak", _together(target, stage), alpha, error, stage.Q)
        found.append(replace(one, samples=samples))
        each.append((stage, found[-1]))
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
            # A first or second order grows at some finite alpha: that none was seen is the fault of the integrals, but
            # for weights that are deaf to what grows.
            known &= order is None or order > (1 if needed(target).any() else 2)
            found.append(replace(hard, order=order))
    return found, codes, known, each


def _sampled(omap: OverlapMap, stage: Stage, aim: Aim, codes: list[Result]) -> tuple[float, float, int]:
    """(alpha, error, samples) of the first threshold, at as many as the accuracy takes; adds the codes of the last."""
    tries, larger = Tries(aim), omap
    alpha, error, results = stage.alpha, float(tries.stated(omap.samples, stage.error)), list[Result]()
    whole = math.hypot(error, alpha * of_first(larger, stage, aim.accuracy))
    while not tries.reached(whole):
        samples = tries.more(whole)
        if samples is None:
            break
        inner = whole**2 - error**2
        more = larger.sibling(
            samples, fine=finer(larger, aim.accuracy) if inner > (INNER * aim.accuracy) ** 2 else None
        )
        omap.what = f"first threshold, {samples} samples"
        try:
            alpha, spread, results = measured_first(more, stage)
        except OutOfTime:
            break
        error, larger = float(tries.stated(samples, spread)), more
        whole = math.hypot(error, alpha * of_first(larger, stage, aim.accuracy))
    codes += results
    return alpha, whole, larger.samples


def _of_squares(omap: OverlapMap, stage: Stage) -> float:
    """What errors of posteriors that are sampled change in a first threshold that is sampled, about.

    Rates are squares of derivatives, to which each adds the square of its error, and no number of points takes that
    away: of sign(|z2| - |z3|) on three tokens and sign(z1^2 - z2^2) about 0.7 and 0.4 of
    what bounds it.
    """
    unclear = np.mean([estimate.unclear for estimate in omap.evaluate(np.zeros((omap.model.fields,) * 2))], axis=0)
    return _PART * stage.alpha**2 * class_rate(unclear, stage.members)


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


def perfect_recovery(
    model: Model | OverlapMap,
    *,
    samples: int | None = None,
    workers: int | None = None,
    accuracy: float | None = None,
    most_samples: int | None = None,
) -> Solution:
    """Perfect recovery: its local stability by counting, and where AMP arrives at it; a tuple of two Threshold.

    perfect_stable: the largest dim S / K_S, K_S the mean rank of df/dZ on S (then V -> E(V)^{-1}/alpha contracts), over
    subspaces S: spans of rows, of blocks that symmetries leave, what the output never sees, and those in general
    position into which V -> E(V)^{-1} falls apart (1000 steps: one whose alpha is within a few per cent of the others'
    can be missed).  Infinite under noise and where outputs are discrete.  Exact, but for links of several pieces, where
    K_S is a mean over 4096 fields.
    perfect_amp: where state evolution reaches Q = I, never below perfect_stable: the largest alpha along its branch,
    followed on a map of few points (four scrambles of at most 128), four times as many where these lose it, with more
    of them where that may lie above perfect_stable; infinite where it does not reach Q = I.  Where the branch cannot be
    followed, by solving on both sides, to half a per cent (two scrambles of 512 points, four of 1024 where it is
    reached later).
    samples, workers: of the overlap map when ``model`` is a Model; a map keeps its own samples, scrambles and seed.
    accuracy, most_samples: the largest error of perfect_amp, in the unit of alpha, in place of half a per cent, and how
    many samples of one evaluation it may take.  The error then also holds what finer inner integrals of deep networks
    change.

    Result: SUCCESS, MISSED where the error is larger than the accuracy, NOISY where Q = I was not reached at any alpha
    that was tried, INCONSISTENT where state evolution rests at Q = I though counting says that it is not stable,
    NISHIMORI.  ``checks``: "nishimori" and, where a branch was followed, "residual" at its highest point, the largest
    entry of what is left of its equation.
    Raises InputError for samples that the map refuses, for an accuracy that is no positive number or has
    ``samples`` beside it, and where derivatives of the output overflow at all random fields.
    """
    given = {"samples": samples, "workers": workers}
    other = {name: value for name, value in given.items() if value is not None}
    if not isinstance(model, OverlapMap) and accuracy is None:
        other.setdefault("samples", _SAMPLES)
    omap, aim = aimed(model, accuracy, most_samples, **other)
    target = omap.model
    span, alpha, uncertain = counting(target)
    eye = np.eye(target.fields)
    stable = _along(target, "perfect_stable", span, alpha, uncertain, eye)
    if math.isinf(alpha):
        # Something is never pinned down by finitely many outputs: discrete ones leave cells, noise blurs.
        never = _along(target, "perfect_amp", eye, math.inf, 0.0, 0 * eye)
        return _solution(omap, [stable, never], Result.SUCCESS)
    found = perfect_from(omap, alpha, uncertain, aim)
    reached = replace(_along(target, "perfect_amp", eye, found.alpha, found.error, found.Q), samples=found.samples)
    missed = aim is not None and found.error > aim.accuracy
    solution = _solution(omap, [stable, reached], Result.MISSED if missed and found.result.ok else found.result)
    solution = replace(solution, checks=found.checks)
    return solution if aim is None else replace(solution, settings=solution.settings | aim.settings())


def _beside(model: Model, hard: np.ndarray, pivot: int) -> np.ndarray:
    """(e, P): the other directions that are hard."""
    others = [model.symmetry.directions[k] for k in np.flatnonzero(hard) if k != pivot]
    return np.concatenate(others) if others else np.empty((0, model.fields))


def counting(model: Model) -> tuple[np.ndarray, float, float]:
    """(directions (d, P), alpha, its standard error) of the subspace S with the largest dim S / K_S, dim S as the prior
    counts it (:meth:`smisym.prior.Prior.dimension`).

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
        own = model.prior.dimension(span)
        ratio = own / rank if rank > 0 else math.inf
        if ratio >= best[1]:
            best = (span, ratio, own * error / rank**2 if rank > 0 else 0.0)
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
        Thresholds(found, omap.model.labels),
        result,
        statistical_error=tuple(t.error for t in found),
        degrees_of_freedom=omap.scrambles - 1,
        settings=omap.settings(),
    )
