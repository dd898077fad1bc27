"""What posteriors of a shared cavity sum over: rows of first fields, and columns on level sets behind a cut.

:mod:`smisym.posterior.shared_rows` says what is summed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from smisym.base.sobol import Normals
from smisym.charts.base import FLAT, LINE
from smisym.link.reduction import Reduction

# Lattices in turn: step of the first one and what it is multiplied by from one to the next (not one half: no lattice is
# part of the one before, and their errors are others); how far the first one reaches, in standard deviations, and how
# much farther each of the others; how many there are.
_STEP, _FINER, _REACH, _FARTHER, LEVELS = 0.8, 0.8, 4.0, 0.5, 9
# Rows in so many dimensions and more are scrambled Sobol points of the Gaussian itself, other ones at each level and
# twice as many: log2 of how many the first one has.  Weights are smooth and, as mixings are bounded, hardly heavier in
# the tails.  First thresholds, lattices before and points now: four layers on two tokens 0.228(3) in 15 s and
# 0.2284(2) in 3 s, three on three tokens 0.1122(4) in 40 s and 0.1122(2) in 7 s; five layers on two tokens 0.2441(1).
_MANY, _POINTS, _SEED = 5, 10, 20261125
# Error of such a level: the change from one to the next, so many times, and a share of the error of the one before at
# least, as two may agree by chance.  Of 600 posteriors each of four networks errors were then at most what was stated.
SURE, AGAIN = 1.25, 0.5
# How much farther latent coordinates reach; columns of one output at most.
_LATENT, _COLUMNS = 1.0, 60_000
# Outputs and rows of one tile of the product: what stays in the cache.
_OUTPUTS, _ROWS = 64, 1024


def features_of(flips: np.ndarray, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of x (E T,) and C^{-1} (T T,), one after the other, have means that flips (G, E) leave, (A,); which pairs,
    (2, B)."""
    signs = np.repeat(flips, tokens, axis=1)
    signs = np.concatenate([signs, np.ones((len(signs), tokens**2))], axis=1)
    first = np.flatnonzero(signs.mean(axis=0))
    i, j = np.triu_indices(signs.shape[1])
    second = np.flatnonzero((signs[:, i] * signs[:, j]).mean(axis=0))
    return first, np.stack([i[second], j[second]])


def pivots(flips: np.ndarray, tokens: int) -> list[int]:
    """Whitened numbers whose signs tell the flips (G, E) apart: one of them is positive for each generator."""
    left, found = flips, list[int]()
    for row in range(flips.shape[1]):
        if (left[:, row] < 0).any():
            found.append(row * tokens)
            left = left[left[:, row] > 0]
    return found


def are_sampled(dim: int) -> bool:
    """Whether rows in so many dimensions are quasi-random points, not lattices."""
    return dim >= _MANY


def how_many(dim: int, level: int, halved: int) -> float:
    """Rows of a level, about, where so many axes have one side only."""
    if are_sampled(dim):
        return 2.0 ** (_POINTS + level)
    step, reach = lattice_of(level)
    return float(math.pi ** (dim / 2) / math.gamma(dim / 2 + 1) * (reach / step) ** dim / 2**halved)


def row_points(dim: int, level: int, positive: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """(points (N, dim), log of the volume of each (N,)) of a level, on the positive side along some axes."""
    if are_sampled(dim):
        points = Normals(dim, np.random.SeedSequence([_SEED, dim, level])).draw(2 ** (_POINTS + level))
        points[:, positive] = np.abs(points[:, positive])
        volume = 0.5 * (points**2).sum(axis=1) + 0.5 * dim * math.log(2 * math.pi)
        return points, volume - math.log(len(points)) - len(positive) * math.log(2)
    step, reach = lattice_of(level)
    points = ball(dim, step, reach, positive)
    return points, np.full(len(points), dim * np.log(step))


def ball(dim: int, step: float, reach: float, positive: list[int]) -> np.ndarray:
    """(N, dim): points half a step off the axes within ``reach`` of zero, on the positive side along some axes."""
    half = np.arange(0.5 * step, reach + step, step)
    line = np.r_[-half[::-1], half]
    points, square = np.empty((1, 0)), np.zeros(1)
    for a in range(dim):
        axis = half if a in positive else line
        square = (square[:, None] + axis**2).ravel()
        points = np.concatenate([np.repeat(points, len(axis), axis=0), np.tile(axis, len(points))[:, None]], axis=1)
        points, square = points[square <= reach**2], square[square <= reach**2]
    return points


@dataclass(frozen=True)
class Rows:
    """Points of first fields made ready, N rows.

    coefficients (N, F): of U^T V^{-1} U, entries on and above the diagonal, in the exponent.  constant (N,): the rest.
    first, second (N, M): what is averaged for means alone, and what for covariances as well: 1, what is not odd of x
    and C^{-1}; and products of two of them.  carried: which of them these are, (A,) and (2, B).
    stretch: the largest singular value of C.
    """

    coefficients: np.ndarray
    constant: np.ndarray
    first: np.ndarray
    second: np.ndarray
    carried: tuple[np.ndarray, np.ndarray]
    stretch: float

    @classmethod
    def of(cls, reduction: Reduction, x: np.ndarray, volume: np.ndarray, factor: np.ndarray, flips: np.ndarray) -> Rows:
        """At whitened first fields x (N, d), each of a log-volume (N,)."""
        late = len(reduction.late)
        T = x.shape[1] // len(reduction.early)
        fields = np.einsum("pq,nqt->npt", factor, x.reshape(len(x), -1, T)).reshape(len(x), -1)
        C = reduction.mixing(fields)
        inverse, log_det = _inverses(C)
        G = np.swapaxes(inverse, 1, 2) @ inverse
        t, v = np.triu_indices(T)
        coefficients = G[:, t, v] * np.where(t == v, -0.5, -1.0)
        constant = -0.5 * (x**2).sum(axis=1) - late * log_det + volume + np.log(len(flips))
        seen = np.isfinite(coefficients).all(axis=1) & np.isfinite(constant)
        features = np.concatenate([x, inverse.reshape(len(x), -1)], axis=1)
        first, second = features_of(flips, T)
        kept = features[seen]
        one = np.concatenate([np.ones((len(kept), 1)), kept[:, first]], axis=1)
        two = kept[:, second[0]] * kept[:, second[1]]
        # Of C itself: where it is nearly singular rounding leaves nothing of the least eigenvalue of G.
        stretch = float(np.linalg.norm(C[seen], 2, axis=(1, 2)).max()) if seen.any() else 1.0
        return cls(
            coefficients[seen], constant[seen], one, np.concatenate([one, two], axis=1), (first, second), stretch
        )


def _inverses(C: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inverses of matrices (N, T, T), NaN where there is none, and log |det|."""
    sign, log_det = np.linalg.slogdet(C)
    seen = np.isfinite(log_det) & (sign != 0)
    inverse = np.full_like(C, np.nan)
    inverse[seen] = np.linalg.inv(C[seen])
    return inverse, log_det


def summed(features: np.ndarray, rows: Rows, carried: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log of the sum over the rows (S,), and means of what is carried (N, M), (S, M); features (S, F) of outputs.

    Tile by tile, each relative to the largest exponent so far.
    """
    S, N = len(features), len(rows.constant)
    log_total, means = np.full(S, -np.inf), np.zeros((S, carried.shape[1]))
    for i in range(0, S, _OUTPUTS):
        own = features[i : i + _OUTPUTS]
        top, sums = np.full(len(own), -np.inf), np.zeros((len(own), carried.shape[1]))
        for k in range(0, N, _ROWS):
            exponent = own @ rows.coefficients[k : k + _ROWS].T
            exponent += rows.constant[k : k + _ROWS]
            above = np.maximum(top, exponent.max(axis=1))
            exponent -= above[:, None]
            np.exp(exponent, out=exponent)
            sums *= np.exp(top - above)[:, None]
            sums += exponent @ carried[k : k + _ROWS]
            top = above
        with np.errstate(divide="ignore", invalid="ignore"):
            log_total[i : i + _OUTPUTS] = top + np.log(sums[:, 0])
            means[i : i + _OUTPUTS] = sums / sums[:, :1]
    return log_total, means


@dataclass(frozen=True)
class Columns:
    """Points of level sets, N in all: whose they are (N,), what the exponent is linear in (N, F), log-weights (N,), and
    whitened mixed fields (N, n T) and their products (N, n T, n T), means over sheets that have the same exponent."""

    owner: np.ndarray
    features: np.ndarray
    log_weight: np.ndarray
    first: np.ndarray
    second: np.ndarray


def lattice_of(level: int) -> tuple[float, float]:
    """Step and reach, in standard deviations, of a level."""
    return _STEP * _FINER**level, _REACH + level * _FARTHER


def _line(step: float, reach: float) -> np.ndarray:
    half = np.arange(0.5 * step, reach + step, step)
    return np.r_[-half[::-1], half]


def latent_nodes(kinds: tuple[str, ...], step: float, reach: float) -> tuple[list[np.ndarray], np.ndarray]:
    """A lattice over latent coordinates, one array (1, N) each, and the log of its measure (N,)."""
    line = _line(step, reach + _LATENT)
    x = [g.reshape(1, -1) for g in np.meshgrid(*[line] * len(kinds), indexing="ij")]
    log_measure = np.full(len(line) ** len(kinds), len(kinds) * np.log(step))
    latent = []
    for kind, value in zip(kinds, x, strict=True):
        latent.append(np.sinh(value) if kind == LINE else value if kind == FLAT else np.exp(value))
        log_measure += 0.0 if kind == FLAT else np.log(np.cosh(value[0])) if kind == LINE else value[0]
    return latent, log_measure


def along_directions(
    white: np.ndarray, weight: np.ndarray, vectors: list[np.ndarray], step: float, reach: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Points (S, N, m) with their log-weights (S, N) on a lattice along some vectors (S, N, m), orthonormalised; None
    where these would be too many."""
    line, axes = _line(step, reach), list[np.ndarray]()
    if weight.shape[1] * len(line) ** len(vectors) > _COLUMNS:
        return None
    for vector in vectors:
        own = vector.copy()
        for other in axes:
            own -= other * (other * own).sum(axis=2, keepdims=True)
        norm = np.linalg.norm(own, axis=2)
        own /= norm[..., None]
        axes.append(own)
        white = white - own * (own * white).sum(axis=2, keepdims=True)
        weight = weight - np.log(norm)
    for k, own in enumerate(axes):
        own = np.repeat(own, len(line) ** k, axis=1)
        white = (white[:, :, None] + line[:, None] * own[:, :, None]).reshape(len(white), -1, white.shape[2])
        weight = np.repeat(weight + np.log(step), len(line), axis=1)
    return white, weight


def alike_sheets(features: np.ndarray, weight: np.ndarray) -> list[list[int]]:
    """Sheets that have the same exponent at all outputs."""
    kinds: list[list[int]] = []
    for b in range(len(weight)):
        for kind in kinds:
            a = kind[0]
            if np.array_equal(features[a], features[b]) and np.array_equal(weight[a], weight[b]):
                kind.append(b)
                break
        else:
            kinds.append([b])
    return kinds
