"""Posteriors integrated through an additive statistic: given the cavity, a sum of many terms is taken for Gaussian.

Of a sum c = sum_k s_k(h_k) (:mod:`smisym.link.statistic`) and the other fields h_R, with all fields Gaussian of mean
omega and covariance V, the mean and the covariance are kept and everything beyond is dropped: the central limit
theorem. With J_k and D_k the first and second derivatives of the mean of s_k by omega_k, Hermite coefficients (Stein),

    Cov(c) = sum_k Var(s_k) + sum_{k != l} (J_k V_kl J_l^T + 1/2 D_k (V_kl x V_kl) D_l^T + ...),
    Cov(c, h_R) = sum_k J_k V_kR        (exact).

Rows of a committee are coupled with strength O(1/L), so that the first term adds up to O(1) relative to the variances
and the second to O(1/L); what is left out is O(1/L^2).  (Couplings of order one between many rows are outside the
central limit: their error does not decay.)  The result is positive semidefinite for every V: it is what a
linear and a quadratic function of the fields, plus independent noise, have.

The log-partition is then a function of m = (mean of c, omega_R) alone, at a covariance that is held fixed:

    g = (dm/domega)^T gamma,      dg = (dm/domega)^T H (dm/domega) + sum_i (d^2 m_i/domega^2) gamma_i,

gamma and H its first two derivatives by m.  What the derivatives of Cov(c) would add is of the order of the third
cumulant, which is dropped: relative errors of averages over outputs are O(1/L).  Over outputs drawn from the
approximate channel itself, E[g | omega] = 0 and E[g g^T] = -E[dg] hold exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from smisym.base.axes import canonical
from smisym.base.sobol import Normals
from smisym.charts import LevelSet
from smisym.charts.base import Arrays, Coordinates
from smisym.integrate.accuracy import TERMS, TERMS_BEYOND
from smisym.link.linking import LinkFunction, Observation
from smisym.link.program import is_smooth, jumps
from smisym.link.statistic import Statistic, Summands, summand_values
from smisym.posterior.all_fields import OnFields, lives_on_all_fields
from smisym.posterior.base import FieldMoments, Kind, Whitening, cholesky, entries_of, log_whitening
from smisym.posterior.level_set import Whitened, lives_on_level_set

# Numbers held at once in the largest array.
_MEMORY = 4_000_000
# Directions of the statistic that vary by less, relative to the largest, do not vary.
_RANK = 1e-13


@dataclass
class _Cumulants:
    """Of the n varying numbers of the statistic given a batch of cavities.

    mean (S, n), cov (S, n, n); slope (S, n, P, T): d mean / d omega, zero for rows that are no summand's;
    curvature: for each kind of G summands, d^2 mean / d omega_k^2 (S, G, n, r, T, r, T).
    """

    mean: np.ndarray
    cov: np.ndarray
    slope: np.ndarray
    curvature: list[np.ndarray]


@cache
def _rule(rows: int, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """(z (M, rows, tokens), weights (M,)) for a standard normal; first and second moments exact."""
    d = rows * tokens
    if d in TERMS:
        x, w = hermegauss(TERMS[d])
        z = np.stack(np.meshgrid(*[x] * d, indexing="ij"), axis=-1).reshape(-1, d)
        weights = np.prod(np.stack(np.meshgrid(*[w / w.sum()] * d, indexing="ij"), axis=-1).reshape(-1, d), axis=1)
        seen = weights > 1e-16
        return z[seen].reshape(-1, rows, tokens), weights[seen] / weights[seen].sum()
    half = Normals(d, 0).draw(TERMS_BEYOND // 2)
    z = np.concatenate([half, -half])
    z = z @ np.linalg.inv(np.linalg.cholesky(z.T @ z / len(z))).T
    return z.reshape(-1, rows, tokens), np.full(len(z), 1 / len(z))


def _cumulants(statistic: Statistic, omega: np.ndarray, V: np.ndarray) -> _Cumulants:
    """Mean, covariance and derivatives of the statistic; omega (S, P, T), V (1, P, P) or (S, P, P)."""
    S, P, T = omega.shape
    n = statistic.dimension
    mean = np.broadcast_to(statistic.basis.T @ statistic.constant, (S, n)).copy()
    found = _Cumulants(mean, np.zeros((S, n, n)), np.zeros((S, n, P, T)), [])
    for kind in statistic.kinds:
        G, r = kind.rows.shape
        curvature = np.empty((S, G, n, r, T, r, T))
        step = max(1, _MEMORY // (G * len(_rule(r, T)[1]) * max(n, r * T)))
        for i in range(0, S, step):
            part = slice(i, min(i + step, S))
            _add_kind(found, curvature, kind, statistic.basis, part, omega, V if len(V) == 1 else V[part])
        found.curvature.append(curvature)
    _add_coupling(found, statistic, V)
    return found


def _add_kind(
    found: _Cumulants,
    curvature: np.ndarray,
    kind: Summands,
    basis: np.ndarray,
    part: slice,
    omega: np.ndarray,
    V: np.ndarray,
) -> None:
    """What summands of one kind add, for some of the samples: Hermite coefficients by quadrature."""
    G, r = kind.rows.shape
    T = omega.shape[2]
    z, weights = _rule(r, T)
    factor = cholesky(V[:, kind.rows[:, :, None], kind.rows[:, None, :]])
    h = omega[part][:, kind.rows][..., None] + np.einsum("sgab,mbt->sgatm", factor, z)
    S, M = len(h), len(z)
    with np.errstate(over="ignore", under="ignore"):
        entries = kind.entries(*np.moveaxis(h.reshape(S, G, r * T, M), 2, 0))
    values = np.zeros((S, G, basis.shape[1], M))
    for e, entry in enumerate(entries):
        for i in np.flatnonzero(basis[e]):
            values[:, :, i] += basis[e, i] * np.asarray(entry)
    values *= kind.factors[:, None, None]
    mean = values @ weights
    values -= mean[..., None]
    flat = z.reshape(M, -1)
    second = (flat[:, :, None] * flat[:, None, :]).reshape(M, -1)
    features = weights[:, None] * np.concatenate([flat, second - np.eye(r * T).ravel()], axis=1)
    c = values @ features
    inverse = np.linalg.inv(factor)
    slope = np.einsum("sgba,sgibt->sigat", inverse, c[..., : r * T].reshape(S, G, -1, r, T))
    c2 = c[..., r * T :].reshape(S, G, -1, r, T, r, T)
    curvature[part] = np.einsum("sgba,sgdc,sgibtdu->sgiatcu", inverse, inverse, c2, optimize=True)
    found.mean[part] += mean.sum(axis=1)
    found.cov[part] += np.einsum("sgim,sgjm->sij", values * weights, values)
    for a in range(r):
        found.slope[part, :, kind.rows[:, a]] += slope[:, :, :, a]


def _add_coupling(found: _Cumulants, statistic: Statistic, V: np.ndarray) -> None:
    """What the covariance of the statistic owes to couplings between summands, to second order in them."""
    coupling = V.copy()
    for kind in statistic.kinds:
        for rows in kind.rows:
            coupling[:, rows[:, None], rows] = 0.0
    rows = list(statistic.rows)
    coupling = coupling[:, rows][:, :, rows]
    if not coupling.any():
        return
    slope = found.slope[:, :, rows]
    found.cov += np.einsum("sipt,spjt->sij", slope, np.einsum("spq,sjqt->spjt", coupling, slope))
    place = np.full(max(rows) + 1, -1)
    place[rows] = np.arange(len(rows))
    for one, D in zip(statistic.kinds, found.curvature, strict=True):
        for other, E in zip(statistic.kinds, found.curvature, strict=True):
            X = coupling[:, place[one.rows][:, :, None, None], place[other.rows][None, None]]  # (S, G, r, H, q)
            if not X.any():
                continue
            step = max(1, _MEMORY // (X[0].size ** 2 // X.shape[1] // X.shape[3] + 1))
            for i in range(0, len(D), step):
                part = slice(i, i + step)
                x = X if len(X) == 1 else X[part]
                x = np.broadcast_to(x, (len(D[part]), *x.shape[1:]))
                fed = np.einsum("sgahb,sgchd,shjbtdu->sgjatcu", x, x, E[part], optimize=True)
                found.cov[part] += 0.5 * np.einsum("sgiatcu,sgjatcu->sij", D[part], fed, optimize=True)


def skewness(statistic: Statistic) -> float:
    """Largest third cumulant of the statistic along its principal axes, in units of its spread, at omega = 0, V = I.

    What the central limit drops first; of order 1/sqrt(summands).
    """
    covariance, parts = np.zeros((statistic.dimension,) * 2), []
    for kind in statistic.kinds:
        z, weights = _rule(kind.rows.shape[1], statistic.program.tokens)
        values = summand_values(kind, z) @ statistic.basis
        values = values - weights @ values
        covariance += (kind.factors**2).sum() * (values.T * weights) @ values
        parts.append((values, weights, (kind.factors**3).sum()))
    sizes, axes = np.linalg.eigh(covariance)
    third = sum(cubes * (weights @ (values @ axes) ** 3) for values, weights, cubes in parts)
    return float(np.abs(third / sizes**1.5).max())


class CavityOfSum:
    """The statistic and the other fields, whitened together: xi = m + Lambda zeta, xi = (c, h_R), h_R row by row."""

    def __init__(self, posterior: ThroughStatistic, omega: np.ndarray, V: np.ndarray, arrays: list[np.ndarray]) -> None:
        self.posterior, self.omega, self.V = posterior, omega, V
        self._arrays = arrays
        self.centre, self.factor, self.inverse, self.slope, *self.curvature = arrays
        self.dimension = self.centre.shape[1]

    @classmethod
    def of(cls, posterior: ThroughStatistic, omega: np.ndarray, V: np.ndarray) -> CavityOfSum:
        cholesky(V)
        statistic, rest = posterior.statistic, list(posterior.rest)
        found = _cumulants(statistic, omega, V)
        values, vectors = np.linalg.eigh(found.cov)
        vectors = canonical(vectors)
        varies = values > _RANK * values[:, -1:]
        size = np.sqrt(np.where(varies, values, 0.0))
        root = vectors * size[:, None, :]
        # In directions in which the statistic does not vary it tells nothing: zero in the inverse, by its rank.
        back = np.swapaxes(vectors, 1, 2) * np.where(varies, 1 / np.where(varies, size, 1.0), 0.0)[:, :, None]
        (S, _, T), n, R = omega.shape, statistic.dimension, len(rest)
        across = np.broadcast_to(V[:, :, rest], (S, V.shape[1], R))
        shared = np.einsum("siqt,sqp->sipt", found.slope, across)
        link = np.swapaxes(back @ shared.reshape(S, n, R * T), 1, 2)  # (S, R T, n)
        alone = np.einsum("spq,tu->sptqu", V[:, rest][:, :, rest], np.eye(T)).reshape(len(V), R * T, R * T)
        own = cholesky(alone - link @ np.swapaxes(link, 1, 2) if link.any() else alone)
        whole, inverse = np.zeros((2, S, n + R * T, n + R * T))
        whole[:, :n, :n], whole[:, n:, :n], whole[:, n:, n:] = root, link, own
        own_inverse = np.linalg.inv(own)
        inverse[:, :n, :n], inverse[:, n:, n:] = back, own_inverse
        inverse[:, n:, :n] = -own_inverse @ link @ back
        mean = np.concatenate([found.mean, omega[:, rest].reshape(S, R * T)], axis=1)
        return cls(posterior, omega, V, [mean, whole, inverse, found.slope, *found.curvature])

    def take(self, index: slice | np.ndarray) -> CavityOfSum:
        V = self.V if len(self.V) == 1 else self.V[index]
        return CavityOfSum(self.posterior, self.omega[index], V, [array[index] for array in self._arrays])

    def fields(self, mean: np.ndarray, cov: np.ndarray | None) -> FieldMoments:
        """Moments of all P rows by the chain rule from those of (c, h_R)."""
        S, P, T = self.omega.shape
        n, rest = self.posterior.statistic.dimension, list(self.posterior.rest)
        gamma = np.einsum("sji,sj->si", self.inverse, mean)
        g = np.einsum("siqt,si->sqt", self.slope, gamma[:, :n])
        g[:, rest] += gamma[:, n:].reshape(S, len(rest), T)
        inside = self.omega + self.V @ g
        if cov is None:
            return FieldMoments(inside, g, None, None)
        H = np.swapaxes(self.inverse, 1, 2) @ (cov - np.eye(cov.shape[1])) @ self.inverse
        slopes = np.zeros((S, self.dimension, P, T))
        slopes[:, :n] = self.slope
        for k, row in enumerate(rest):
            for t in range(T):
                slopes[:, n + k * T + t, row, t] = 1.0
        D = slopes.reshape(S, self.dimension, P * T)
        dg = (np.swapaxes(D, 1, 2) @ H @ D).reshape(S, P, T, P, T)
        for kind, curvature in zip(self.posterior.statistic.kinds, self.curvature, strict=True):
            own = np.einsum("sgiatcu,si->gsactu", curvature, gamma[:, :n], optimize=True)
            for k, rows in enumerate(kind.rows):
                for a, p in enumerate(rows):
                    for c, q in enumerate(rows):
                        dg[:, p, :, q] += own[k, :, a, c]
        V = np.broadcast_to(self.V, (S, P, P))
        moved = np.einsum("spa,satbu,sbq->sptqu", V, dg, V, optimize=True)
        prior = np.einsum("spq,tu->sptqu", V, np.eye(T))
        return FieldMoments(inside, g, prior + moved, dg)


class ThroughStatistic(Kind):
    """The posterior on the statistic and the other fields: on a level set of the program in these, or all of them."""

    def __init__(self, link: LinkFunction, level_set: LevelSet | None, noise: float) -> None:
        statistic = link.statistic
        assert statistic is not None, "the program has no additive statistic"
        self.statistic, self.level_set, self.tokens = statistic, level_set, link.tokens
        self.link, self.noise = link.through_statistic, noise
        self.dropped = skewness(statistic)
        self.smooth = level_set is not None or (noise > 0 and not jumps(self.link.program))
        self.broken = level_set is None and noise > 0 and not is_smooth(self.link.program)
        matrix_rows = int(statistic.target.shape[0])
        free = range(self.link.fields) if level_set is None else level_set.free_rows
        solved = () if level_set is None else level_set.solved_rows
        if tuple(free[:matrix_rows]) != tuple(range(matrix_rows)):
            raise TypeError("the chart solves for the statistic itself")
        self.rest = tuple(statistic.rest[k - matrix_rows] for k in (*free[matrix_rows:], *solved))
        self.white = statistic.dimension + (len(free) - matrix_rows) * self.tokens
        self.dim = self.white + (0 if level_set is None else len(level_set.latents))

    def read(self, observation: Observation) -> Coordinates:
        if self.level_set is not None:
            return self.level_set.coordinates(observation).checked()
        return entries_of(observation)

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> Whitened | OnFields:
        cavity = CavityOfSum.of(self, omega, V)
        if self.level_set is not None:
            return _OnSheets(self, self.level_set, observed.values, cavity)
        return _OnSum(self, observed.values, cavity)

    def describe(self) -> tuple[str, str]:
        if self.level_set is not None:
            return lives_on_level_set(self.dim, self.level_set)
        return lives_on_all_fields(self.dim, self.noise)


def _entries(statistic: Statistic, x: np.ndarray, mean: np.ndarray, root: np.ndarray, white: int) -> Arrays:
    """Entries of the statistic's matrix, then the free fields, at whitened x (d, n, C)."""
    linked = np.any(root != 0.0, axis=0)
    numbers = []
    for i in range(white):
        value = mean[:, i]
        for j in np.flatnonzero(linked[i, :white]):
            value = value + x[j] * root[:, i, j]
        numbers.append(np.broadcast_to(value, x.shape[1:]))
    n = statistic.dimension
    matrix = []
    for origin, weights in zip(statistic.origin, statistic.basis, strict=True):
        entry = np.full(x.shape[1:], origin)
        for weight, number in zip(weights, numbers, strict=False):
            if weight:
                entry += weight * number
        matrix.append(entry)
    return [*matrix, *numbers[n:]]


class _OnSum(OnFields):
    """All of the statistic and the other fields: x are these, whitened."""

    def __init__(self, posterior: ThroughStatistic, u: np.ndarray, cavity: Whitening) -> None:
        super().__init__(posterior.link, posterior.noise, u, cavity, posterior.broken)
        self.posterior, self.dim = posterior, posterior.dim

    def take(self, index: np.ndarray) -> _OnSum:
        return _OnSum(self.posterior, self.u[index], self.cavity.take(index))

    def _fields(self, index: np.ndarray, x: np.ndarray) -> Arrays:
        return _entries(self.posterior.statistic, x, self.omega[index], self.factor[index], self.posterior.white)


class _OnSheets(Whitened):
    """The level set in the statistic and the other fields; ``omega`` and ``factor`` are those of xi."""

    def __init__(self, posterior: ThroughStatistic, level_set: LevelSet, u: np.ndarray, cavity: Whitening) -> None:
        self.posterior = posterior
        super().__init__(level_set, posterior.tokens, u, cavity)

    def _white(self) -> int:
        return self.posterior.white

    def take(self, index: np.ndarray) -> _OnSheets:
        return _OnSheets(self.posterior, self.level_set, self.u[index], self.cavity.take(index))

    def log_density(self) -> np.ndarray:
        return log_whitening(self.factor, self.n_white, 1)

    def _free(self, x: Any, omega: Any, L: Any) -> Arrays:
        return _entries(self.posterior.statistic, x, omega, L, self.n_white)

    def _shift(self, x: Any, omega: Any, L: Any) -> Arrays:
        shifts = []
        for i in range(self.n_white, omega.shape[1]):
            scale = 1.0 / L[:, i, i]
            shift = omega[:, i] * scale
            for j in np.flatnonzero(self._linked[i, : self.n_white]):
                shift = shift + x[j] * (L[:, i, j] * scale)
            shifts.append(shift)
        return shifts

    def _whiten(self, solved: Arrays, shift: Arrays | None, L: Any) -> Arrays:
        w = self.n_white
        out: Arrays = []
        for i in range(w, L.shape[1]):
            target = solved[i - w] * (1.0 / L[:, i, i])
            if shift is not None:
                target = target - shift[i - w]
            for j in np.flatnonzero(self._linked[i, w:i]):
                target = target - out[j] * (L[:, i, w + j] / L[:, i, i])
            out.append(target)
        return out
