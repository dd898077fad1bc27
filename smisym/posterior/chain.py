"""A deep network as a chain: first fields against the level set of the network behind them, by matrix products.

Behind a cut, in mixed fields U = h C^T, the rest is a shallower network (:mod:`smisym.link.reduction`), whose level set
the first fields g do not move:

    p(y) = int dg N(g) |det C(g)|^{-n} sum_columns w(U) N(U C(g)^{-T}; mu(g), V_late|early),

n late rows, columns a lattice on that level set.  The exponent is bilinear in what g gives (C^{-T} C^{-1} and the
means) and in what a column gives (U^T V^{-1} U and U): all pairs are one matrix product, and no function of one network
is evaluated twice.  The integral over g is left to the integrators, which see means over the columns as residuals.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from smisym.base import patience
from smisym.base.counting import counted
from smisym.charts import LevelSet
from smisym.charts.base import Coordinates
from smisym.integrate.modes import Summed, Values
from smisym.kernels.named import kernel
from smisym.kernels.numba_code import program_source
from smisym.kernels.pairs import (
    compiled_features,
    compiled_pairs,
    features_source,
    look_source,
    pairs_source,
    scouts_source,
)
from smisym.link.linking import Observation
from smisym.link.reduction import Reduction
from smisym.posterior.base import Block, Cavity, Kind, log_whitening
from smisym.posterior.columns import Box, Columns, Rows, falling, find_columns, scouts, sublattices
from smisym.posterior.sheeted import Sheeted

# Share of the error that may lie in columns that no scout misses.
_SPARED = 0.05
# Pairs of one matrix product: what stays in the cache.
_PAIRS = 65536
# Error of the mass in one direction over that asked for: there are several, and moments miss more.
_SHARE = 1 / 200
# How far, in standard deviations, late fields lie from their means given the first ones.
_REACH = 5.0


class OnChain(Kind):
    """A noiseless output, by a cut behind which a network with a chart is left.

    level_set: of the shallower network, with neither latent coordinates nor directions.
    """

    smooth = True

    def __init__(self, reduction: Reduction, level_set: LevelSet, tokens: int) -> None:
        self.reduction, self.level_set, self.tokens = reduction, level_set, tokens
        self.order = (*reduction.early, *reduction.late)
        self.summed = len(level_set.free_rows) * tokens
        self.dim = len(reduction.early) * tokens + self.summed

    def read(self, observation: Observation) -> Coordinates:
        return self.level_set.coordinates(observation).checked()

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> Chained:
        return Chained(self, observed.values, Cavity.of(omega, V, self.order))

    def describe(self) -> tuple[str, str]:
        late = f"{counted(self.summed, 'dimension')} of the level set of the network behind them, in mixed fields"
        where = f"the posterior lives on {counted(self.dim - self.summed, 'dimension')} of the first fields and {late}"
        return where, "an adaptive lattice over the first, each node of which meets all columns in one matrix product"


@dataclass(frozen=True)
class Mixed:
    """First fields at N points: C^{-1} (N, T, T), the means of the late fields (N, n, T), and what columns see of both:
    coefficients (N, F) of what the exponent is linear in, and the rest of it, (N,) each."""

    inverse: np.ndarray
    mean: np.ndarray
    coefficients: np.ndarray
    square: np.ndarray
    weight: np.ndarray

    @property
    def constant(self) -> np.ndarray:
        return self.square + self.weight


class Averaged(NamedTuple):
    """Means over columns at N points: log of the sum (N,), whitened late fields (m, N) and their products (m, m, N) or
    None; what the sum misses of 1 and of these, and the share of the weight at its border, (N,) each."""

    log_weight: np.ndarray
    mean: np.ndarray
    second: np.ndarray | None
    missed: np.ndarray
    lost: np.ndarray


class Chained(Block):
    """The posterior of one block of samples: x are the whitened first fields, r means of the whitened late ones."""

    branches, modeless = 1, True

    def __init__(
        self,
        chain: OnChain,
        u: np.ndarray,
        cavity: Cavity,
        blocks: list[_Block | None] | None = None,
        *,
        cov: bool = False,
    ) -> None:
        super().__init__(cavity)
        self.chain, self.u, self.blocks, self.cov = chain, u, blocks, cov
        self.early, self.late = len(chain.reduction.early), len(chain.reduction.late)
        self.dim, self.residuals = self.early * chain.tokens, self.late * chain.tokens
        E = self.early
        self.omega_early = self.omega[:, chain.reduction.early]
        self.omega_late = self.omega[:, chain.reduction.late]
        self.L_early, self.L_cross, self.L = self.factor[:, :E, :E], self.factor[:, E:, :E], self.factor[:, E:, E:]
        self.L_inverse = np.linalg.inv(self.L)
        self._linked = np.any(self.L != 0.0, axis=0)
        self.precision = np.swapaxes(self.L_inverse, 1, 2) @ self.L_inverse
        self._crossed, self._coupled = np.any(self.L_cross != 0.0, axis=0), np.any(self.precision != 0.0, axis=0)
        self.pairs = np.array([(t, v) for t in range(chain.tokens) for v in range(t, chain.tokens)]).T

    def take(self, index: np.ndarray) -> Chained:
        blocks = None if self.blocks is None else [self.blocks[k] for k in np.arange(self.samples)[index]]
        return Chained(self.chain, self.u[index], self.cavity.take(index), blocks, cov=self.cov)  # type: ignore[arg-type]

    @property
    def whitened(self) -> np.ndarray:
        return np.arange(self.dim + self.residuals)

    def log_density(self) -> np.ndarray:
        return log_whitening(self.factor, self.early, self.chain.tokens)

    def sources(self) -> list[str]:
        features = len(self.pairs.T) + self.residuals
        program = self.sheeted().program
        own = [] if program is None else [program_source(program, self.chain.summed)]
        gram = features_source(self.late, self.chain.tokens)
        pairs = pairs_source(features, self.residuals, True)
        return [pairs, scouts_source(features), look_source(features), gram, *own]

    # ---- columns -------------------------------------------------------------------------------

    def prepared(self, rtol: float, cov: bool) -> Chained:
        """With the columns that this error asks for."""
        x, mixed = self.scouted()
        log_weight = np.broadcast_to(-0.5 * (x**2).sum(axis=1), (self.samples, len(x)))
        return self.with_columns(mixed, log_weight, rtol, cov)

    def with_columns(self, mixed: Mixed, log_weight: np.ndarray, rtol: float, cov: bool) -> Chained:
        """With the columns that first fields of weights (S, R) ask for, all of one sample after the other."""
        S, R = log_weight.shape
        rows = Rows(
            np.ascontiguousarray(mixed.coefficients.reshape(S, R, -1)),
            mixed.square.reshape(S, R),
            mixed.weight.reshape(S, R) + log_weight,
            np.linalg.norm(mixed.inverse, 2, axis=(1, 2)).reshape(S, R),
        )
        depth, error = 4.0 - np.log(rtol), _SHARE * rtol
        columns = find_columns(self.sheeted(), rows, self.region(mixed), self.features, depth, error)
        blocks = [None if one is None else self._chosen(one, rtol) for one in columns]
        return self.summing(blocks, cov=cov)

    def _chosen(self, columns: Columns, rtol: float) -> _Block | None:
        """Columns of one sample without those that hold nothing for any scout."""
        if not len(columns.log_weight):
            return None
        mass = np.exp(columns.height - columns.height.max())
        least = _SPARED * rtol * mass.mean()
        kept = np.flatnonzero(mass > least)
        return self.ready(columns, kept, mass[kept] < 10 * least)

    def ready(self, columns: Columns, kept: np.ndarray, border: np.ndarray) -> _Block:
        """Some of the columns made ready; ``border``: which of these stand for what is left out."""
        features = np.ascontiguousarray(columns.features[:, kept])
        return _Block(features, columns.log_weight[kept], border.astype(float), np.searchsorted(kept, columns.starts))

    def summing(self, blocks: list[_Block | None], *, cov: bool = False) -> Chained:
        """The same posteriors with these columns."""
        return Chained(self.chain, self.u, self.cavity, blocks, cov=cov)  # type: ignore[arg-type]

    def sheeted(self) -> Sheeted:
        return Sheeted(self.chain.level_set, self.chain.tokens, self.u, self.L_inverse)

    def scouted(self) -> tuple[np.ndarray, Mixed]:
        """The scouts (R, d), and what is mixed by them, all of one sample after the other."""
        x = scouts(self.dim)
        return x, self._mixed(np.repeat(np.arange(self.samples), len(x)), np.tile(x, (self.samples, 1)))

    def region(self, mixed: Mixed) -> Box:
        """Where the free late fields may be, in mixed form, for any of some first fields of every sample."""
        S, T = self.samples, self.chain.tokens
        C = np.linalg.inv(mixed.inverse).reshape(S, -1, 1, T, T)
        free = list(self.chain.level_set.free_rows)
        mean = mixed.mean.reshape(S, -1, self.late, T)[:, :, free]
        deviation = np.sqrt(np.einsum("spq,spq->sp", self.L, self.L))[:, None, free, None]
        centre = np.einsum("sktuv,sktv->sktu", np.broadcast_to(C, (*mean.shape, T)), mean)
        reach = _REACH * deviation * np.sqrt((C**2).sum(axis=-1))
        low, high = (centre - reach).min(axis=1), (centre + reach).max(axis=1)
        return Box(low.reshape(S, -1), high.reshape(S, -1))

    def features(self, index: np.ndarray, fields: np.ndarray) -> np.ndarray:
        """U^T V^{-1} U, entries on and above the diagonal, and U: (S, F, N) from (S, n T, N)."""
        S, m, N = fields.shape
        T = self.chain.tokens
        run = compiled_features(self.late, T)
        if run is not None:
            out = np.empty((S, len(self.pairs.T) + m, N))
            for k, sample in enumerate(index):
                run(np.ascontiguousarray(fields[k]), np.ascontiguousarray(self.precision[sample]), out[k])
            return out
        U = fields.reshape(S, self.late, T, N)
        weighted = np.einsum("spq,sqtn->sptn", self.precision[index], U)
        square = [(U[:, :, t] * weighted[:, :, v]).sum(axis=1) for t, v in self.pairs.T]
        return np.concatenate([np.stack(square, axis=1), fields], axis=1)

    # ---- rows ----------------------------------------------------------------------------------

    def _mixed(self, index: np.ndarray, x: np.ndarray) -> Mixed:
        """First fields at whitened points x (N, d) of samples ``index`` (N,)."""
        T, E, n = self.chain.tokens, self.early, self.late
        z = x.T.reshape(E, T, -1)
        first, mean = np.empty((E, T, len(x))), np.empty((n, T, len(x)))
        for p in range(E):
            first[p] = self.omega_early[index, p].T + sum(self.L_early[index, p, q] * z[q] for q in range(p + 1))
        for p in range(n):
            mean[p] = self.omega_late[index, p].T
            for q in range(E):
                if self._crossed[p, q]:
                    mean[p] += self.L_cross[index, p, q] * z[q]
        return self.behind(index, self.chain.reduction.mixing(first.reshape(E * T, -1).T), mean)

    def behind(self, index: np.ndarray, C: np.ndarray, mean: np.ndarray | None = None) -> Mixed:
        """What columns see of matrices C (N, T, T) and of means (n, T, N) of the late fields, by default those of a
        cavity that does not couple them with the first ones."""
        T, n = self.chain.tokens, self.late
        if mean is None:
            mean = np.moveaxis(self.omega_late[index], 0, -1)
        weighted = np.zeros_like(mean)
        for p in range(n):
            for q in range(n):
                if self._coupled[p, q]:
                    weighted[p] += self.precision[index, p, q] * mean[q]
        inverse, log_det = _inverses(C)
        own = np.moveaxis(inverse, 0, -1)
        coefficients = np.empty((len(self.pairs.T) + n * T, len(C)))
        for k, (t, v) in enumerate(self.pairs.T):
            coefficients[k] = (-0.5 if t == v else -1.0) * (own[:, t] * own[:, v]).sum(axis=0)
        for p in range(n):
            for v in range(T):
                coefficients[len(self.pairs.T) + p * T + v] = (weighted[p] * own[:, v]).sum(axis=0)
        square, weight = -0.5 * (mean * weighted).sum(axis=(0, 1)), -n * log_det
        bad = ~(np.isfinite(coefficients).all(axis=0) & np.isfinite(square) & np.isfinite(weight))
        coefficients[:, bad], square[bad], weight[bad], inverse[bad] = 0.0, 0.0, -np.inf, 0.0
        return Mixed(inverse, np.moveaxis(mean, -1, 0), coefficients.T, square, weight)

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        d, n, C = x.shape
        owner = np.tile(index, n)
        found = self.averaged(owner, self._mixed(owner, x.reshape(d, -1).T))

        def points(a: np.ndarray) -> np.ndarray:
            return a.reshape(*a.shape[:-1], n, C)

        second = None if found.second is None else points(found.second)
        summed = Summed(second, points(found.missed), points(found.lost))
        return Values(points(found.mean)[None], points(found.log_weight)[None], summed=summed)

    def averaged(self, owner: np.ndarray, mixed: Mixed) -> Averaged:
        """Means over the columns of samples ``owner`` (N,) for each of N first fields."""
        log_weight, sums, pairs = self._summed(owner, mixed)
        aliased = (sublattices(self.chain.summed) @ sums.reshape(len(sums), -1)).reshape(-1, *sums.shape[1:])[:, :-1]
        total = sums.sum(axis=0)
        first = total[1:-1]
        inverse, mean = np.moveaxis(mixed.inverse, 0, -1), np.moveaxis(mixed.mean, 0, -1)
        r = self._whiten(owner, inverse, mean, first[None], np.ones((1, 1)))[0]
        half = self._whiten(owner, inverse, mean, aliased[:, 1:], aliased[:, 0]) - aliased[:, :1] * r
        missed = falling(np.abs(aliased[:, 0]) + np.sqrt((half**2).sum(axis=1))).sum(axis=0)
        second = None
        if pairs is not None:
            U = first.T
            spread = self._spread(owner, mixed, pairs - U[:, :, None] * U[:, None, :])
            second = np.moveaxis(spread, 0, -1) + r[:, None] * r[None, :]
        return Averaged(log_weight, r, second, missed, total[-1])

    def _whiten(
        self, owner: np.ndarray, inverse: np.ndarray, mean: np.ndarray, U: np.ndarray, share: np.ndarray
    ) -> np.ndarray:
        """L^{-1} (U C^{-T} - share mu) of sums U (A, n T, N) with their shares (A, N) or (1, 1); points last."""
        T, n = self.chain.tokens, self.late
        U = U.reshape(len(U), n, T, -1)
        out = np.empty_like(U)
        for p in range(n):
            for t in range(T):
                field = sum(U[:, p, v] * inverse[t, v] for v in range(T)) - share * mean[p, t]
                # Forward substitution: L is lower triangular, mostly diagonal.
                for q in range(p):
                    if self._linked[p, q]:
                        field = field - self.L[owner, p, q] * out[:, q, t]
                out[:, p, t] = field / self.L[owner, p, p]
        return out.reshape(len(U), n * T, -1)

    def _spread(self, owner: np.ndarray, mixed: Mixed, spread: np.ndarray) -> np.ndarray:
        """Covariances (N, n T, n T) of whitened late fields from those of mixed ones."""
        N, n, T = len(spread), self.late, self.chain.tokens
        change = np.einsum("apq,atu->aptqu", self.L_inverse[owner], mixed.inverse).reshape(N, n * T, n * T)
        return np.asarray(change @ spread @ np.swapaxes(change, 1, 2))

    def _summed(self, owner: np.ndarray, rows: Mixed) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Log of the sum over the columns (N,); sums of 1, U and the border over each set of columns relative to that
        (sets, 2 + m, N); and those of U U^T over all, (N, m, m), where asked for."""
        assert self.blocks is not None, "columns are found by prepared()"
        m = self.residuals
        out = np.zeros((2**self.chain.summed, 2 + m, len(owner)))
        pairs = np.zeros((len(owner), m, m)) if self.cov else None
        log_weight = np.full(len(owner), -np.inf)
        order = np.argsort(owner, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(owner[order]) != 0])
        constant = rows.constant
        for where in np.split(order, starts[1:]):
            block = self.blocks[owner[where[0]]]
            if block is None:
                continue
            top, found, products = block.sums(rows.coefficients[where], m, self.cov)
            total = found[:, 0].sum(axis=0)
            log_weight[where] = top + np.log(total) + constant[where]
            out[..., where] = found / total
            if pairs is not None:
                pairs[where] = products / total[:, None, None]
        return log_weight, out, pairs


@dataclass(frozen=True)
class _Block:
    """Columns of one sample made ready: what the exponent is linear in (F, N), U last, log-weights (N,), whether each
    is at the border (N,), and where the sets of columns begin."""

    features: np.ndarray
    log_weight: np.ndarray
    border: np.ndarray
    starts: np.ndarray

    def sums(self, coefficients: np.ndarray, m: int, cov: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Largest exponents (n,); sums of weights relative to these, of U (m numbers) and of the border, (sets, 2 + m,
        n); and of U U^T over all, (n, m, m), where asked for."""
        n, sets = len(coefficients), len(self.starts) - 1
        top, found = np.empty(n), np.empty((sets, 2 + m, n))
        products = np.empty((n, m, m)) if cov else np.empty((0, 0, 0))
        run = compiled_pairs(len(self.features), m, cov)
        if run is not None:
            coefficients = np.ascontiguousarray(coefficients)
            run(coefficients, self.features, self.log_weight, self.border, self.starts, top, found, products)
            return top, found, products
        U = self.features[-m:].T
        summed = np.concatenate([np.ones((len(U), 1)), U, self.border[:, None]], axis=1)
        both = (U[:, :, None] * U[:, None, :]).reshape(len(U), -1) if cov else None
        step = max(1, _PAIRS // max(len(U), 1))
        room = np.empty((min(step, n), len(U)))
        for i in range(0, n, step):
            patience.check()
            part = slice(i, min(i + step, n))
            top[part], w = self._weights(coefficients[part], room[: part.stop - i])
            for g, (a, b) in enumerate(itertools.pairwise(self.starts)):
                found[g, :, part] = (w[:, a:b] @ summed[a:b]).T
            if both is not None:
                products[part] = (w @ both).reshape(-1, m, m)
        return top, found, products

    def _weights(self, coefficients: np.ndarray, room: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Largest exponents (n,), and weights relative to them, in ``room`` (n, N)."""
        np.matmul(coefficients, self.features, out=room)
        room += self.log_weight
        top = room.max(axis=1)
        room -= top[:, None]
        return top, np.exp(room, out=room)


def _inverses(C: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inverses of matrices (N, T, T), and log |det|."""
    T = C.shape[-1]
    if T == 2:
        det = C[:, 0, 0] * C[:, 1, 1] - C[:, 0, 1] * C[:, 1, 0]
        adjoint = np.stack([C[:, 1, 1], -C[:, 0, 1], -C[:, 1, 0], C[:, 0, 0]], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return (adjoint / det[:, None]).reshape(-1, 2, 2), np.log(np.abs(det))
    *entries, log_det = kernel(f"inverse_logdet_{T}")(*C.reshape(-1, T * T).T)
    return np.stack(entries, axis=1).reshape(-1, T, T), log_det
