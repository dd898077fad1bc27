"""Where one posterior of rows against columns lies, and how narrow it is: shapes of both from a few scouts.

Scouts are drawn from Gaussians with a wide part, first those of the cavity.  All pairs of them are weighted; where few
of these hold the mass, weights are tempered and the next scouts are drawn from what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from smisym.base.sobol import Normals
from smisym.integrate.shapes import Region, Shape
from smisym.posterior.pairing import Paired, Points, Rows

# Scouts of rows and of points of the level set; rounds of them; how many of each must hold the mass, by the inverse sum
# of squared weights, for a round to count and to be the last.
_ROWS, _POINTS, _ROUNDS = 64, 512, 8
_COUNTS, _ENOUGH = (8.0, 12.0), (12.0, 30.0)
# Share of scouts from what was seen, by how much that is widened, and the width of the cavity's Gaussian.
_SEEN, _WIDER, _WIDE = 0.8, (1.3, 1.5), 1.2
# Steps of scores, in standard deviations, and the smallest power of the weights.
_STEP, _COLDEST = 1e-4, 1e-3
_GOLDEN = (5**0.5 - 1) / 2


class Unseen(ArithmeticError):
    """No scout met any mass."""


@dataclass(frozen=True)
class Mixture:
    """Gaussians of shares (J,), means (J, d) and factors (J, d, d) of their covariances."""

    shares: np.ndarray
    means: np.ndarray
    factors: np.ndarray

    @classmethod
    def of(cls, *parts: tuple[float, np.ndarray, np.ndarray]) -> Mixture:
        """Of (share, mean, covariance) each."""
        shares, means, covariances = zip(*parts, strict=True)
        return cls(np.array(shares), np.array(means), np.linalg.cholesky(np.array(covariances)))

    def at(self, z: np.ndarray) -> np.ndarray:
        """Points (n, d) from standard normal ones, dealt out among the parts."""
        part = np.searchsorted(np.cumsum(self.shares)[:-1], np.arange(len(z)) * _GOLDEN % 1)
        return np.asarray(self.means[part] + np.einsum("nij,nj->ni", self.factors[part], z))

    def region(self) -> Region:
        """Of the first part."""
        covariance = self.factors[0] @ self.factors[0].T
        return Region(self.means[0], _WIDE**2 * np.linalg.inv(covariance))

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """(n,), without factors of 2 pi."""
        inverse = np.linalg.inv(self.factors)
        z = np.einsum("jik,jnk->jni", inverse, x - self.means[:, None])
        log_det = np.log(np.einsum("jii->ji", inverse)).sum(axis=1)
        return np.asarray(
            np.logaddexp.reduce((np.log(self.shares) + log_det)[:, None] - 0.5 * (z**2).sum(axis=2), axis=0)
        )


@dataclass(frozen=True)
class _Weighed:
    """Scouts and the share of each pair of the mass, tempered, (R, N); of rows (R,), of columns (N,)."""

    rows: Rows
    where: np.ndarray
    points: Points
    pairs: np.ndarray
    power: float

    @property
    def by_row(self) -> np.ndarray:
        return np.asarray(self.pairs.sum(axis=1))

    @property
    def by_column(self) -> np.ndarray:
        return np.asarray(self.pairs.sum(axis=0))

    def counts(self) -> np.ndarray:
        """How many rows and how many columns hold the mass, (2,)."""
        return np.array([1 / (self.by_row**2).sum(), 1 / (self.by_column**2).sum()])

    def enough(self) -> bool:
        return self.power == 1 and bool((self.counts() >= _ENOUGH).all())


def find_shapes(paired: Paired) -> tuple[Shape, Shape]:
    """Of the rows and of the columns of one posterior; :class:`Unseen` where no scout meets any mass."""
    cavity = _of_cavity(paired)
    mixtures, seen = cavity, None
    for turn in range(_ROUNDS):
        seen = _weigh(paired, mixtures, turn)
        if seen.enough():
            break
        first, second = _moments(seen.by_row, seen.rows.x), _moments(seen.by_column, seen.where[seen.points.owner])
        mixtures = (
            _also(first[0], _WIDER[0] * first[1], cavity[0]),
            _also(second[0], _WIDER[1] * second[1], cavity[1]),
        )
    if seen is None:
        raise Unseen
    rows, columns = _scores(paired, seen)
    return (
        Shape.of(*_moments(seen.by_row, seen.rows.x), rows, cavity[0].region()),
        Shape.of(*_moments(seen.by_column, seen.where[seen.points.owner]), columns, cavity[1].region()),
    )


def _also(mean: np.ndarray, covariance: np.ndarray, wide: Mixture) -> Mixture:
    """A Gaussian beside a wide one."""
    means, factors = np.array([mean, wide.means[0]]), np.array([np.linalg.cholesky(covariance), wide.factors[0]])
    return Mixture(np.array([_SEEN, 1 - _SEEN]), means, factors)


def _of_cavity(paired: Paired) -> tuple[Mixture, Mixture]:
    """Of the cavity's rows, and of its free mixed fields at some of them."""
    d, c = paired.dim, paired.summed
    rows = Mixture.of((1.0, np.zeros(d), _WIDE**2 * np.eye(d)))
    mixed = paired.rows(_normals(d, 0, _ROWS)).mixed
    free = list(paired.chain.level_set.free_rows)
    C = np.linalg.inv(mixed.inverse)
    usable = np.isfinite(C).all(axis=(1, 2))
    C, mean = C[usable], mixed.mean[usable][:, free]
    centre = np.einsum("rtu,rpu->rpt", C, mean).reshape(len(C), c)
    L = paired.chained.L[0][free]
    # Each of the free rows is widened by the fields of all tokens: U = C h.
    spread = np.einsum("rtu,pk,qk,rvu->ptqv", C, L, L, C).reshape(c, c) / len(C)
    between = np.cov(centre.T, bias=True)
    return rows, Mixture.of((1.0, centre.mean(axis=0), between + _WIDE**2 * spread.reshape(c, c)))


def _weigh(paired: Paired, mixtures: tuple[Mixture, ...], turn: int) -> _Weighed:
    """Scouts of one round, with weights to the largest power of one half's powers at which enough of them count."""
    rows, columns = mixtures
    x = rows.at(_normals(paired.dim, 2 * turn, _ROWS))
    U = columns.at(_normals(paired.summed, 2 * turn + 1, _POINTS))
    first = paired.rows(x, -rows.log_density(x))
    points = paired.columns(U, -columns.log_density(U))
    exponent = first.coefficients @ points.features
    exponent += first.rest[:, None]
    exponent += points.log_weight
    top = exponent.max()
    if not np.isfinite(top):
        raise Unseen
    exponent -= top
    power = 1.0
    while True:
        weight = np.exp(power * exponent)
        seen = _Weighed(first, U, points, weight / weight.sum(), power)
        if (seen.counts() >= _COUNTS).all() or power < _COLDEST:
            return seen
        power /= 2


def _scores(paired: Paired, seen: _Weighed) -> tuple[np.ndarray, np.ndarray]:
    """Mean squares of the scores: of the density of rows (d, d), and of that of points given rows (c, c)."""
    features, log_weight, U, x = seen.points.features, seen.points.log_weight, seen.where, seen.rows.x
    alive = np.isfinite(log_weight)
    along = np.zeros((paired.summed, *seen.pairs.shape))
    for a in range(paired.summed):
        step = np.zeros(paired.summed)
        step[a] = _STEP * U[:, a].std()
        after, before = paired.columns(U + step), paired.columns(U - step)
        change = seen.rows.coefficients @ ((after.features - before.features) / (2 * step[a]))
        with np.errstate(invalid="ignore"):
            change += (after.log_weight - before.log_weight) / (2 * step[a])
        along[a] = np.where(alive & np.isfinite(change), change, 0.0)
    columns = np.einsum("rn,irn,jrn->ij", seen.pairs, along, along, optimize=True)
    mass = seen.by_row
    share = seen.pairs / np.where(mass > 0, mass, 1.0)[:, None]
    expected = share @ features.T
    across = np.zeros((paired.dim, len(x)))
    for a in range(paired.dim):
        step = np.zeros(paired.dim)
        step[a] = _STEP
        rows, less = paired.rows(x + step), paired.rows(x - step)
        change = ((rows.coefficients - less.coefficients) * expected).sum(axis=1) + rows.rest - less.rest
        across[a] = change / (2 * _STEP)
    across = np.where(np.isfinite(across), across, 0.0)
    return np.einsum("r,ir,jr->ij", mass, across, across), columns


def _moments(weight: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d,) and covariance (d, d) of points (n, d)."""
    mean = weight @ x
    away = x - mean
    return mean, np.einsum("n,ni,nj->ij", weight, away, away)


@cache
def _normals(dim: int, seed: int, count: int) -> np.ndarray:
    return Normals(dim, seed).draw(count)
