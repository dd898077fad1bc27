"""Thresholds: trivial directions, weak recovery and its staircase, perfect recovery.

Weak recovery starts where state evolution, linearised at the fixed point that is actually reached, stops
contracting: first at Q = 0 (arXiv 2502.00901, theorem 2.3), later at the overlap that the learned directions have at
that alpha, not at a perfect one.  Perfect recovery: stability of Q = I by counting ranks, and where the branch arrives.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smisym.branch import LAST, refine_crossing, scout, trace, trivial_coordinates
from smisym.edge import check_count, check_model
from smisym.errors import InputError
from smisym.growth import clear_growth, growth_at_zero, growth_of
from smisym.hermite import first_order
from smisym.model import Model
from smisym.over_outputs import by_quadrature, can_be_integrated, first_threshold
from smisym.overlap_map import SCRAMBLES, THRESHOLD_SAMPLES, OverlapMap, affordable
from smisym.solution import Result, Solution, mean_and_error
from smisym.stages import Branch, highest

# Points of one scramble of the map that follows the branch to perfect recovery.
_ARRIVAL_POINTS, _FEWEST_POINTS = 256, 128
# Up to so many rows, or blocks, all spans of them are counted.
_ROWS = 12
# Rate of growth below which a direction is hard: squares of what integration leaves in g_out.
_NO_RATE = 1e-5
# Relative statistical errors below this are none at all.
_TOO_GOOD = 1e-9
# Change under refinement, relative, above which a quadrature over y is compared with sampling.
_ROUGH = 1e-3
KINDS = ("trivial", "weak", "hard", "perfect_stable", "perfect_amp")


@dataclass(frozen=True)
class Threshold:
    """One threshold.

    kind: one of KINDS.  layers: counted from 1.  subspace (dim, P): the directions, one a row.
    alpha: math.inf for a hard direction, 0 for a trivial one.  error: one standard error over the scrambles; of a first
    threshold by quadrature over y what refinement changes, twice on a lattice, plus what the tolerance of the inner
    integrals leaves; of "perfect_amp" at least how closely the branch is followed, math.inf where one scramble alone
    showed it; 0 if exact.  Q (P, P): the overlap just below.  order: of a hard direction, the first order of its
    Hermite expansion that does not vanish (None where none was clear up to order six), given nothing else.  names: of
    the rows that take part.
    """

    kind: str
    layers: tuple[int, ...]
    subspace: np.ndarray
    alpha: float
    error: float
    Q: np.ndarray
    order: int | None = None
    names: tuple[str, ...] = ()


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
) -> Solution:
    """All trivial, weak and hard directions, in the order in which they are met; value: a tuple of Threshold.

    samples, scrambles, seed, rtol, workers: of the overlap map (:class:`~smisym.overlap_map.OverlapMap`) when ``model``
    is a Model; a map keeps its own.  samples None: 65536, less in more than two free dimensions and where posteriors
    are sampled (:func:`~smisym.overlap_map.affordable`).
    stages: how many of them to look for, at least one; what comes later is then not mentioned.  The first one takes two
    or three evaluations of the map, each later one some dozens.  None: all.
    quadrature: whether the first one is integrated over the output itself instead of sampled, which needs a chart with
    at most three coordinates of y, and at most four free dimensions.  None: where that is so and y is cheap to
    integrate over.  Five digits, but thousands of outputs: where single posteriors are slow, sampling is faster.

    Result: SUCCESS, NOISY or INTEGRATION.  Raises InputError for a model that is neither, for ``stages`` below one,
    for ``quadrature=True`` where y cannot be integrated over, and for settings that the map refuses.
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
    omap = model if isinstance(model, OverlapMap) else None
    if omap is None:
        samples = affordable(target, THRESHOLD_SAMPLES) if samples is None else samples
        omap = OverlapMap(target, samples=samples, scrambles=scrambles, seed=seed, rtol=rtol, workers=workers)
    if not omap.model.symmetry.projectors:
        return _weak(omap, _coupled(omap), solved=True)
    coarse = scout(omap, last_stage=False, stages=stages)
    found: list[Threshold] = []
    known = True
    met: list[Any] = [*coarse.stages, *([coarse.beginning] if coarse.beginning else [])]
    # Of the last stage only its beginning is used.
    solved = all(stage.solved for stage in met[:-1])
    for i, stage in enumerate(met):
        previous = coarse.stages[i - 1] if i else None
        if stage.trivial:
            nothing = np.zeros((omap.model.fields,) * 2)
            found += [
                _threshold(omap.model, "trivial", [int(k)], 0.0, 0.0, nothing) for k in np.flatnonzero(stage.active)
            ]
            continue

        def solve(r: int, stage: Any = stage, previous: Any = previous) -> tuple[float, np.ndarray]:
            return _one(omap, r, stage.pivot, previous)

        if previous is None and (by_quadrature(omap.model) if quadrature is None else quadrature):
            first, change = first_threshold(omap.model, _class_of(omap.model, stage))
            if change > _ROUGH * first:
                # The law of y has edges that the lattice does not resolve: sampling may be better.
                sampled = _of_rates(omap.each(solve))
                first, change = min((first, change), (float(sampled[0]), float(sampled[1])), key=lambda pair: pair[1])
            nothing = np.zeros((omap.model.fields,) * 2)
            found.append(_threshold(omap.model, "weak", _learned(stage, previous), first, change, nothing))
            continue
        values: list[tuple[float, np.ndarray]] = omap.each(solve)
        if previous is None:
            known &= _growth_is_known(omap, stage.pivot)
        alpha, error = _of_rates(values) if previous is None else mean_and_error(np.array([v[0] for v in values]))
        if error < _TOO_GOOD * alpha:
            # Scrambles that all see the same few outputs: what is left is the error of the integrals.
            seen = omap.at(0, 0 * np.eye(omap.model.fields))
            error = np.asarray(float(alpha) * math.sqrt(seen.inner_error))
        # Where two thresholds nearly coincide, scrambles may meet the second before the first has begun.
        Q = omap.model.symmetry.matrix(np.maximum(np.mean([v[1] for v in values], axis=0), 0.0))
        found.append(_threshold(omap.model, "weak", _learned(stage, previous), float(alpha), float(error), Q))
    learned = coarse.stages[-1].active if coarse.stages else np.zeros(coarse.coordinates, dtype=bool)
    if coarse.beginning:
        learned = np.ones_like(learned)  # nobody asked for the others
    for pivot in np.flatnonzero(~learned):
        later = _given_the_learned(omap, coarse.stages[-1], int(pivot)) if coarse.stages else None
        if later is not None:
            found.append(later)
            continue
        Q = omap.model.symmetry.matrix(coarse.stages[-1].q[-1]) if coarse.stages else np.zeros((omap.model.fields,) * 2)
        hard = _threshold(omap.model, "hard", [int(pivot)], math.inf, 0.0, Q)
        order = first_order(omap.model, hard.subspace, _beside(omap.model, ~learned, int(pivot)))
        # A first or second order grows at some finite alpha: that none was seen is the fault of the integrals.
        known &= order is None or order > 2
        found.append(replace(hard, order=order))
    return _weak(omap, found, solved=solved, known=known)


def _of_rates(values: list[tuple[float, np.ndarray]]) -> tuple[float, float]:
    """(alpha, error) from the alphas of all scrambles: 1 / the mean rate, which a few samples bias less than they do
    the mean of 1 / rate."""
    rate, error = mean_and_error(1.0 / np.array([alpha for alpha, _ in values]))
    return float(1 / rate), float(error / rate**2)


def _growth_is_known(omap: OverlapMap, pivot: int) -> bool:
    """Whether the rate of a block at Q = 0 is, on average over the scrambles, clear of the errors of the integrals."""
    estimates = omap.evaluate(np.zeros((omap.model.fields,) * 2))
    return float(np.mean([clear_growth(omap, e)[1][pivot] for e in estimates])) > 0.5


def _weak(omap: OverlapMap, found: list[Threshold], *, solved: bool, known: bool = True) -> Solution:
    """The thresholds with their code: posteriors that are missing or badly known come before noise."""
    if omap.incomplete or not known:
        return _solution(omap, found, Result.INTEGRATION)
    return _solution(omap, found, Result.SUCCESS if solved else Result.NOISY)


def _given_the_learned(omap: OverlapMap, last: Any, pivot: int) -> Threshold | None:
    """The threshold of a block that stays stable until the learned ones are known perfectly, or None where it is hard.

    From there on nothing but alpha changes: the block's rate is that at perfect overlaps of the others.
    """
    model = omap.model
    q = np.where(last.active, 1 - LAST, 0.0)
    estimates = omap.evaluate(model.symmetry.matrix(q))
    rates = np.array([growth_of(omap, e, last.active)[pivot] for e in estimates])
    if rates.mean() <= _NO_RATE or last.end < last.t[-1]:
        return None
    alpha, error = mean_and_error(1 / rates)
    return _threshold(model, "weak", [pivot], float(alpha), float(error), model.symmetry.matrix(q))


def _learned(stage: Any, previous: Any) -> list[int]:
    """What a stage adds: the block that becomes unstable, then those that are learned with it at once."""
    new = stage.active if previous is None else stage.active & ~previous.active
    return [stage.pivot, *[int(k) for k in np.flatnonzero(new) if k != stage.pivot]]


def _class_of(model: Model, stage: Any) -> tuple[int, ...]:
    """Blocks that a first stage learns, the pivot first."""
    return (stage.pivot, *[int(k) for k in np.flatnonzero(stage.active) if k != stage.pivot])


def perfect_recovery(model: Model | OverlapMap, *, samples: int = 4096, workers: int | None = None) -> Solution:
    """Perfect recovery: its local stability by counting, and where AMP arrives at it; a tuple of two Threshold.

    perfect_stable: the largest dim S / K_S, K_S the mean rank of df/dZ on S (then V -> E(V)^{-1}/alpha contracts), over
    spans S of rows, of blocks that symmetries leave, and what the output never sees; infinite under noise and where
    outputs are discrete; exact, but for links of several pieces, where K_S is a mean over 4096 fields.
    perfect_amp: the largest alpha along the branch that vanishing side information follows; infinite where that branch
    does not reach Q = I.
    samples, workers: of the overlap map when ``model`` is a Model; a map keeps its own samples, scrambles and seed.
    The branch is followed with at most 256 points a scramble, whatever ``samples``.

    Result: SUCCESS, or NOISY where not every scramble showed the whole branch.  Raises InputError for samples that the
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
    small = omap.sibling(max(affordable(target, _ARRIVAL_POINTS), _FEWEST_POINTS) * omap.scrambles)
    coarse = scout(small)
    if not coarse.stages or not coarse.stages[-1].active.all():
        arrival = _along(target, "perfect_amp", eye, math.inf, 0.0, 0 * eye)
        return _solution(omap, [stable, arrival], Result.SUCCESS)
    traced: list[Branch] = small.each(lambda r: trace(small, r, coarse))
    branches = [b for b in traced if len(b.stages) == len(coarse.stages)]
    if len(branches) < 2:
        # Too few points for these scrambles to show every stage; what the scouting saw, without an error bar.
        branches = [coarse]
    top, alphas = highest([b.stages[-1] for b in branches])
    value, error = mean_and_error(alphas) if len(branches) > 1 else (float(alphas[0]), math.inf)
    # The branch is followed to within LAST of Q = I, and alpha to within as much of its limit there.
    resolved = max(float(error), LAST * float(value))
    Q = target.symmetry.matrix(np.mean([b.stages[-1].overlaps_at(top) for b in branches], axis=0))
    arrival = _along(target, "perfect_amp", eye, float(value), resolved, Q)
    solved = len(branches) == len(traced) and all(s.solved for b in branches for s in b.stages)
    return _solution(omap, [stable, arrival], Result.SUCCESS if solved else Result.NOISY)


def _directions(model: Model, *blocks: int) -> np.ndarray:
    """(d, P), orthonormal: what the blocks are made of."""
    values, vectors = np.linalg.eigh(model.symmetry.basis[list(blocks)].sum(axis=0))
    return np.asarray(vectors.T[np.abs(values) > 1e-9])


def _beside(model: Model, hard: np.ndarray, pivot: int) -> np.ndarray:
    """(e, P): the other directions that are hard."""
    others = [_directions(model, int(k)) for k in np.flatnonzero(hard) if k != pivot]
    return np.concatenate(others) if others else np.empty((0, model.fields))


def counting(model: Model) -> tuple[np.ndarray, float, float]:
    """(directions (d, P), alpha, its standard error) of the subspace S with the largest dim S / K_S.

    Over spans of rows, of the blocks that symmetries leave, and the directions that the output never sees.
    """
    if model.link.noise:
        return np.eye(model.fields), math.inf, 0.0
    ranks = model.jacobian_ranks(np.random.default_rng(0))
    unseen = ranks.unseen()
    if len(unseen):
        return unseen, math.inf, 0.0
    best: tuple[np.ndarray, float, float] = (np.eye(model.fields), 0.0, 0.0)
    for span in _spans(model):
        rank, error = (model.slices * x for x in ranks(span))
        ratio = len(span) / rank if rank > 0 else math.inf
        if ratio >= best[1]:
            best = (span, ratio, len(span) * error / rank**2 if rank > 0 else 0.0)
    return best


def _spans(model: Model) -> Iterator[np.ndarray]:
    """Subspaces (d, P): spans of rows and of blocks; with many rows, those of few and of all but few."""
    P, eye = model.fields, np.eye(model.fields)
    sizes = [size for size in range(1, P + 1) if P <= _ROWS or size <= 2 or size >= P - 1]
    yield from (eye[list(rows)] for size in sizes for rows in itertools.combinations(range(P), size))
    if model.symmetry.projectors and len(model.symmetry.basis) <= _ROWS:
        blocks = [_directions(model, k) for k in range(len(model.symmetry.basis))]
        for size in range(1, len(blocks)):
            for chosen in itertools.combinations(blocks, size):
                yield np.concatenate(chosen)


def _coupled(omap: OverlapMap) -> list[Threshold]:
    """The first threshold where overlaps are coupled: 1 / the largest eigenvalue of dE at Q = 0, and its eigenvector.

    Trivial directions instead, where there are any: they come first.
    """
    symmetry, P = omap.model.symmetry, omap.model.fields
    nothing = np.zeros((P, P))
    shown = trivial_coordinates(omap)
    estimates = omap.evaluate(nothing)
    if shown.any():
        mean = np.mean([symmetry.project(e.three[0]) for e in estimates], axis=0)
        values, vectors = np.linalg.eigh(mean)
        subspace = vectors.T[values > 1e-3 * values[-1]]
        return [_along(omap.model, "trivial", subspace, 0.0, 0.0, nothing)]
    rates, direction = [], np.zeros((P, P))
    for estimate in estimates:
        columns = [symmetry.coordinates(estimate.derivative(B)) for B in symmetry.basis]
        values, vectors = np.linalg.eig(np.array(columns).T)
        top = int(values.real.argmax())
        rates.append(float(values[top].real))
        matrix = symmetry.matrix(vectors[:, top].real)
        direction += matrix if np.trace(matrix) > 0 else -matrix
    alpha, error = _of_rates([(1 / rate, nothing) for rate in rates])
    values, vectors = np.linalg.eigh(direction / len(estimates))
    subspace = vectors.T[values > 1e-2 * values[-1]]
    return [_along(omap.model, "weak", subspace, float(alpha), float(error), nothing)]


def _one(omap: OverlapMap, scramble: int, pivot: int, previous: Any) -> tuple[float, np.ndarray]:
    """(alpha, q) of one scramble where ``pivot`` becomes unstable on ``previous`` (None: at Q = 0)."""
    k = len(omap.model.symmetry.basis)
    if previous is None:
        return 1.0 / growth_at_zero(omap, scramble, pivot), np.zeros(k)
    estimate = omap.at(scramble, omap.model.symmetry.matrix(previous.overlaps_at(previous.end)))
    q, alpha = refine_crossing(omap, estimate, previous, pivot, previous.end)
    return alpha, q


def _threshold(model: Model, kind: str, blocks: list[int], alpha: float, error: float, Q: np.ndarray) -> Threshold:
    return _along(model, kind, _directions(model, *blocks), alpha, error, Q)


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
