"""Thresholds: trivial directions, weak recovery and its staircase, perfect recovery.

Weak recovery starts where state evolution, linearised at the fixed point that is actually reached, stops
contracting: first at Q = 0 (arXiv 2502.00901, theorem 2.3), later at the overlap that the learned directions have at
that alpha, not at a perfect one.  Perfect recovery: stability of Q = I by counting ranks, and where the branch arrives.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smisym.branch import LAST, refine_crossing, scout, trace, trivial_coordinates
from smisym.charts import LevelSet
from smisym.errors import InputError
from smisym.growth import clear_growth, growth_at_zero, growth_of
from smisym.hermite import first_order
from smisym.model import Model
from smisym.overlap_map import SCRAMBLES, THRESHOLD_SAMPLES, OverlapMap, affordable
from smisym.solution import Result, Solution, mean_and_error
from smisym.stages import Branch, highest

# Points of one scramble of the map that follows the branch to perfect recovery.
_ARRIVAL_POINTS, _FEWEST_POINTS = 256, 128
# Lattice over the coordinates of y: points a side, raised until the first threshold moves less than the tolerance;
# share of the mass below which a point of it is left out; tolerance of the inner integrals by free dimensions.
_SIDES = {2: (24, 36, 54, 80, 120), 3: (16, 24, 36)}
# One coordinate of y: panels, Gauss nodes of each, halvings, and the share of the whole that a panel may miss.
_PANELS, _NODES, _HALVINGS, _PANEL_TOL = 32, 8, 16, 1e-7
_SIDE_TOL = 3e-5
_NEGLIGIBLE = 1e-12
# The lattice reaches so far that its outer half carries less than this share of the rate, up to a largest reach.
_TAIL, _FARTHEST = 1e-6, 100.0
# Rate of growth below which a direction is hard: squares of what integration leaves in g_out.
_NO_RATE = 1e-5
# Relative statistical errors below this are none at all.
_TOO_GOOD = 1e-9
# Change under refinement, relative, above which a quadrature over y is compared with sampling.
_ROUGH = 1e-3
_INNER = {0: 1e-12, 1: 1e-7, 2: 1e-6}
KINDS = ("trivial", "weak", "hard", "perfect_stable", "perfect_amp")


@dataclass(frozen=True)
class Threshold:
    """One threshold.

    kind: one of KINDS.  layers: counted from 1.  subspace (dim, P): the directions, one a row.
    alpha: math.inf for a hard direction, 0 for a trivial one.  error: one standard error over the scrambles, 0 if
    exact.  Q (P, P): the overlap just below.  order: of a hard direction, the first order of its Hermite expansion that
    does not vanish (None where none was clear up to order six), given nothing else.  names: of the rows that take part.
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

    samples: of the overlap map when ``model`` is a Model; None: 65536, less in more than two free dimensions.
    stages: how many of them to look for, at least one; what comes later is then not mentioned.  The first one takes two
    or three evaluations of the map, each later one some dozens.  None: all.
    quadrature: whether the first one is integrated over the output itself instead of sampled, which needs a chart with
    at most three coordinates of y, and at most four free dimensions.  None: where that is so and y is cheap to
    integrate over.  Five digits, but thousands of outputs: where single posteriors are slow, sampling is faster.
    """
    if stages is not None and stages < 1:
        raise InputError("stages", stages, "a whole number >= 1, or None for all", "use stages=1 for the first one")
    if quadrature and not _can_be_integrated(model.model if isinstance(model, OverlapMap) else model):
        raise InputError(
            "quadrature",
            True,
            "a chart with at most three coordinates of y that give it a density, and at most four free dimensions",
            "leave quadrature out: the threshold is then sampled",
        )
    omap = model if isinstance(model, OverlapMap) else None
    if omap is None:
        if not isinstance(model, Model):
            raise InputError(
                "model", type(model).__name__, "a Model or an OverlapMap", "use smisym.compile(architecture)"
            )
        samples = affordable(model, THRESHOLD_SAMPLES) if samples is None else samples
        omap = OverlapMap(model, samples=samples, scrambles=scrambles, seed=seed, rtol=rtol, workers=workers)
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

        if previous is None and (_by_quadrature(omap.model) if quadrature is None else quadrature):
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
        rows = tuple(int(r) for r in np.flatnonzero(np.abs(hard.subspace).max(axis=0) > 1e-9))
        order = first_order(omap.model, rows)
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


def _by_quadrature(model: Model) -> bool:
    """Whether the first threshold is better integrated over y than sampled."""
    # With latent coordinates an output costs milliseconds, and a lattice has thousands: sampling is as good.
    chart = model.level_set
    return _can_be_integrated(model) and chart is not None and (chart.dimension == 1 or not chart.latents)


def _can_be_integrated(model: Model) -> bool:
    """Whether y has coordinates few enough to be integrated over."""
    chart = model.level_set
    return (
        chart is not None
        and chart.density
        and (chart.dimension == 1 or chart.dimension in _SIDES)
        and model.channel.free_dimensions <= 4
    )


def _chart(model: Model) -> LevelSet:
    if model.level_set is None:
        raise TypeError("no chart: there are no coordinates of y to integrate over")
    return model.level_set


def first_threshold(model: Model, blocks: tuple[int, ...]) -> tuple[float, float]:
    """(alpha, error) of the first threshold of a class of blocks that grow together, by quadrature over y itself.

    For outputs with at most three coordinates u: at Q = 0 the law of u is Zout(u), and the trapezoid rule over u,
    on axes stretched by a sinh because the law may have a narrow ridge and wide tails, converges fast.  The error is
    twice the last change under refinement.  No random numbers enter the value.
    """
    rtol = _INNER.get(model.channel.free_dimensions, 1e-2)
    if _chart(model).dimension == 1:
        return _on_a_line(model, blocks, rtol)
    reach, values = 1.8, list[float]()
    for side in _SIDES[_chart(model).dimension]:
        value, tail = _first_at(model, blocks, side, reach, rtol)
        while tail > _TAIL and reach < _FARTHEST:
            reach *= 2
            value, tail = _first_at(model, blocks, side, reach, rtol)
        values.append(value)
        if len(values) > 1 and abs(values[-1] - values[-2]) < max(_SIDE_TOL, 0.05 * rtol) * values[-1]:
            break
    # Ridges make the last digits converge slowly, hence the 2; the tails and the inner integrals leave about 1e-6.
    return values[-1], max(2 * abs(values[-1] - values[-2]), 1e-6 * values[-1])


def _on_a_line(model: Model, blocks: tuple[int, ...], rtol: float) -> tuple[float, float]:
    """The first threshold where y is one number: panels, halved where they are not accurate.

    The density of y may jump or diverge anywhere (at zero for products, at the edges of what signs allow).
    """
    sample = _chart(model).coordinates(model.observe(_random_fields(model))).values[:, 0]
    narrow, wide = np.quantile(np.abs(sample), 1e-3), 3 * np.abs(sample).max()
    edges = np.linspace(-1, 1, _PANELS + 1) * np.arcsinh(wide / narrow)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)

    def panels(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """(n, 1 + c c) integrals of the density and of the rates over each panel."""
        half = 0.5 * (right - left)
        s = (0.5 * (left + right))[:, None] + half[:, None] * nodes
        log_density, rate = _rates(model, blocks, (narrow * np.sinh(s)).reshape(-1, 1), rtol)
        density = np.exp(log_density).reshape(s.shape) * narrow * np.cosh(s) * weights * half[:, None]
        return np.einsum("ns,nsk->nk", density, np.c_[np.ones(s.size), rate.reshape(s.size, -1)].reshape(*s.shape, -1))

    left, right = edges[:-1], edges[1:]
    whole = panels(left, right)
    total, error = np.zeros(whole.shape[1]), np.zeros(whole.shape[1])
    for _ in range(_HALVINGS):
        middle = 0.5 * (left + right)
        first, second = panels(left, middle), panels(middle, right)
        change = np.abs(first + second - whole)
        size = total + (first + second).sum(axis=0)
        scale = np.maximum(np.abs(size), 1e-3 * np.abs(size[1:]).max())
        rough = (change > _PANEL_TOL * scale).any(axis=1)
        total += (first + second)[~rough].sum(axis=0)
        error += change[~rough].sum(axis=0)
        left, right = np.r_[left[rough], middle[rough]], np.r_[middle[rough], right[rough]]
        whole = np.concatenate([first[rough], second[rough]])
        if not rough.any():
            break
    # Panels that are rough to the end sit on jumps and poles: what they hold is their error.
    total += whole.sum(axis=0)
    error += np.abs(whole).sum(axis=0)
    value = total[0] / np.linalg.eigvalsh(total[1:].reshape(len(blocks), -1))[-1]
    relative = error[0] / total[0] + error[1:].max() / np.abs(total[1:]).max()
    return float(value), float(value * max(relative, 1e-6, 0.1 * rtol))


def _random_fields(model: Model) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((2048, model.fields, model.tokens))


def _rates(model: Model, blocks: tuple[int, ...], u: np.ndarray, rtol: float) -> tuple[np.ndarray, np.ndarray]:
    """(log density of u (n,), rates (n, c, c) at which that output lets small overlaps of the blocks grow)."""
    channel = model.channel
    still, eye = np.zeros((len(u), model.fields, model.tokens)), np.eye(model.fields)
    # A look at the density first: most of a lattice carries no mass, and no field has some of these outputs.
    seen = channel.moments_at(u, still, eye, rtol=0.1).log_partition
    log_density = np.where(np.isfinite(seen), seen, -np.inf)
    rate = np.zeros((len(u), len(blocks), len(blocks)))
    kept = log_density > np.log(_NEGLIGIBLE) + log_density.max()
    moments = channel.moments_at(u[kept], still[kept], eye, cov=True, rtol=rtol)
    log_density[kept] = moments.log_partition
    dg = np.asarray(moments.dg)
    rate[kept] = _block_rates(model, blocks, dg)
    return log_density, rate


def _block_rates(model: Model, blocks: tuple[int, ...], dg: np.ndarray) -> np.ndarray:
    """(n, c, c) rates between unit matrices of the blocks from dg (n, P, T, P, T)."""
    basis = model.symmetry.basis[list(blocks)]
    unit = basis / np.sqrt(np.einsum("kij,kij->k", basis, basis))[:, None, None]
    fed = np.einsum("nptas,kab,nqtbs->nkpq", dg, unit, dg, optimize=True)
    return np.asarray(model.slices * np.einsum("jpq,nkpq->njk", unit, fed))


def _first_at(model: Model, blocks: tuple[int, ...], side: int, reach: float, rtol: float) -> tuple[float, float]:
    """The first threshold on one lattice, and the share of the rate that its outer half (in u) carries."""
    channel = model.channel
    u, measure, outer = _outputs(model, side, reach)
    still, eye = np.zeros((len(u), model.fields, model.tokens)), np.eye(model.fields)
    # A look at the density first: most of the lattice carries no mass.
    seen = channel.moments_at(u, still, eye, rtol=0.1).log_partition + measure
    # No field has some of these outputs.
    seen = np.where(np.isfinite(seen), seen, -np.inf)
    kept = seen > seen.max() + np.log(_NEGLIGIBLE)
    moments = channel.moments_at(u[kept], still[kept], eye, cov=True, rtol=rtol)
    log_weight = moments.log_partition + measure[kept]
    weight = np.exp(log_weight - log_weight.max())
    rates = weight[:, None, None] * _block_rates(model, blocks, np.asarray(moments.dg))
    whole, far = rates.sum(axis=0), rates[outer[kept]].sum(axis=0)
    return float(weight.sum() / np.linalg.eigvalsh(whole)[-1]), float(np.trace(far) / np.trace(whole))


def _outputs(model: Model, side: int, reach: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lattice over the space of u: points (n, K), the log of their measure (n,) and which lie far out (n,).

    ``side`` (even) points an axis, to ``reach`` times the largest of some thousand random outputs.  Where the chart is
    even, half of the lattice stands for the whole.
    """
    K, P, T = _chart(model).dimension, model.fields, model.tokens
    fields = np.random.default_rng(0).standard_normal((2048, P, T))
    # Tokens are exchangeable: with every exchange in the sample, its principal axes lie exactly along narrow ridges.
    exchanged = np.concatenate([fields[:, :, list(order)] for order in itertools.permutations(range(T))])
    sample = _chart(model).coordinates(model.observe(exchanged)).values
    principal = np.linalg.eigh(sample.T @ sample)[1]
    along = np.abs(sample @ principal)
    narrow, wide = np.quantile(along, 0.25, axis=0), reach * along.max(axis=0)
    step = 2 * np.arcsinh(wide / narrow) / side
    axis = np.arange(side) + 0.5 - side / 2
    grid = np.stack(np.meshgrid(*[axis] * K, indexing="ij"), axis=-1).reshape(-1, K)
    grid = (grid[grid[:, 0] > 0] if _even(model) else grid) * step
    u = narrow * np.sinh(grid)
    return u @ principal.T, np.log(np.cosh(grid)).sum(axis=1), (np.abs(u) > 0.5 * wide).any(axis=1)


def _even(model: Model) -> bool:
    """Whether u and -u have one level set: every branch of one is a branch of the other, with the same weight."""
    chart, rng = _chart(model), np.random.default_rng(0)
    free = list(rng.standard_normal((len(chart.free_rows) * model.tokens, 16)))
    u = rng.standard_normal((chart.dimension, 16))
    latent = list(rng.standard_normal((len(chart.latents), 16)))
    there, back = chart.solve(free, latent, list(u)), chart.solve(free, latent, list(-u))
    points: np.ndarray = np.array(there.solved)
    images: np.ndarray = np.array(back.solved)
    if not np.array_equal(np.array(there.log_weight), np.array(back.log_weight)):
        return False
    return all(any(np.array_equal(point, image) for image in images) for point in points)


def perfect_recovery(model: Model | OverlapMap, *, samples: int = 4096, workers: int | None = None) -> Solution:
    """Perfect recovery: its local stability by counting, and where AMP arrives at it; a tuple of two Threshold.

    perfect_stable: the largest dim S / K_S over spans S of rows, K_S the mean rank of df/dZ there (then
    V -> E(V)^{-1}/alpha contracts).
    perfect_amp: the largest alpha along the branch that vanishing side information follows.
    """
    omap = model if isinstance(model, OverlapMap) else OverlapMap(model, samples=samples, workers=workers)
    target = omap.model
    every = tuple(range(target.fields))
    rows, alpha = counting(target)
    eye = np.eye(target.fields)
    layers = tuple(sorted({target.row_layers[r] for r in rows}))
    stable = Threshold("perfect_stable", layers, eye[list(rows)], alpha, 0.0, eye)
    if math.isinf(alpha):
        # Some rows are never pinned down by finitely many outputs: discrete ones leave cells.
        never = Threshold("perfect_amp", tuple(sorted(set(target.row_layers))), eye, math.inf, 0.0, 0 * eye)
        return _solution(omap, [stable, never], Result.SUCCESS)
    small = omap.sibling(max(affordable(target, _ARRIVAL_POINTS), _FEWEST_POINTS) * omap.scrambles)
    coarse = scout(small)
    if not coarse.stages or not coarse.stages[-1].active.all():
        arrival = Threshold("perfect_amp", tuple(sorted(set(target.row_layers))), eye, math.inf, 0.0, 0 * eye)
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
    arrival = Threshold(
        "perfect_amp", tuple(sorted({target.row_layers[r] for r in every})), eye, float(value), resolved, Q
    )
    solved = len(branches) == len(traced) and all(s.solved for b in branches for s in b.stages)
    return _solution(omap, [stable, arrival], Result.SUCCESS if solved else Result.NOISY)


def counting(model: Model) -> tuple[tuple[int, ...], float]:
    """(rows, alpha): the span of rows with the largest dim / rank of df/dZ, and that ratio."""
    rng = np.random.default_rng(0)
    best: tuple[tuple[int, ...], float] = ((), 0.0)
    for size in range(1, model.fields + 1):
        for rows in itertools.combinations(range(model.fields), size):
            rank = model.jacobian_rank(rows, rng) * model.slices
            ratio = size / rank if rank > 0 else math.inf
            if ratio >= best[1]:
                best = (rows, ratio)
    return best


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
    values, vectors = np.linalg.eigh(model.symmetry.basis[blocks].sum(axis=0))
    return _along(model, kind, vectors.T[np.abs(values) > 1e-9], alpha, error, Q)


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
