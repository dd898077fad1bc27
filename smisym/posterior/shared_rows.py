"""Posteriors of many outputs at one cavity that knows nothing: the same nodes of the first fields for all of them.

Behind a cut, in mixed fields U = h C^T, the rest is a shallower network (:mod:`smisym.link.reduction`).  Where its
level set has no free rows, an output u leaves points U_s(u), one a sheet or a lattice of them, and at omega = 0, where
V does not couple first and later fields,

    p(u) = int dg N(g; 0, V_early) |det C(g)|^{-n} sum_s w_s(u) exp(-tr(G(g) U_s^T V_late^{-1} U_s) / 2),

G = C^{-T} C^{-1}.  What is made of the first fields, C^{-1}, its determinant and G, does not depend on the output: one
set of rows serves all outputs, and all exponents are one matrix product.  A lattice in few dimensions, quasi-random
points in many, it is refined, output by output, until two of them in turn agree.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from smisym.base.counting import counted
from smisym.base.remembered import Remembered
from smisym.charts import LevelSet
from smisym.charts.base import Coordinates
from smisym.integrate.modes import Summed, Values
from smisym.link.linking import Observation
from smisym.link.reduction import Reduction
from smisym.posterior.base import Block, Cavity, Kind, log_whitening
from smisym.posterior.shared_lattices import (
    AGAIN,
    LEVELS,
    SURE,
    Columns,
    Rows,
    alike_sheets,
    along_directions,
    are_sampled,
    features_of,
    how_many,
    latent_nodes,
    lattice_of,
    pivots,
    row_points,
    summed,
)

# Columns of all outputs that are made at once; how far below the largest one columns must lie to be left out, beyond
# what a Gaussian falls at the reach of a lattice.
_AT_ONCE, _BELOW = 16_384, 10.0
# Numbers that the rows of one level may hold.
_MOST = 2**24
# Outputs of one batch from which on rows are worth their making, by the dimensions of the first fields: nine layers
# on two tokens at most, as all signs of their rows are tried.  Points in many dimensions are for averages over outputs,
# of which each may miss something.
WORTH = {1: 16, 2: 16, 3: 64, 4: 64, 5: 1024} | dict.fromkeys(range(6, 17), 4096)
# Coordinates on the level set behind the cut, latent ones and directions, at most.
MOST_COORDINATES = 2
# Fields at which a flip is tried, and how well C must agree.
_TRIALS, _EQUAL = 32, 1e-12


class OnSharedRows(Kind):
    """Noiseless outputs at omega = 0, by a cut behind which a network with a chart is left.

    level_set: of the shallower network, without free rows.  columns: its latent coordinates and directions, over which
    the points of an output are a lattice.
    """

    smooth = True

    def __init__(self, reduction: Reduction, level_set: LevelSet, tokens: int) -> None:
        self.reduction, self.level_set, self.tokens = reduction, level_set, tokens
        self.order = (*reduction.early, *reduction.late)
        self.dim = self.summed = len(reduction.early) * tokens
        self.columns = len(level_set.latents) + level_set.directions
        self._lattices = Remembered[Rows](LEVELS)

    def serves(self, omega: np.ndarray, V: np.ndarray) -> bool:
        """Whether the samples of a batch, omega (S, P, T) and V (1 or S, P, P), share one cavity of that kind."""
        early, late = list(self.reduction.early), list(self.reduction.late)
        enough = len(omega) >= WORTH.get(self.dim, np.inf)
        return bool(enough and not omega.any() and (V == V[0]).all() and not V[0][np.ix_(early, late)].any())

    def read(self, observation: Observation) -> Coordinates:
        return self.level_set.coordinates(observation).checked()

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> Shared:
        return Shared(self, observed.values, Cavity.of(omega, V, self.order))

    def describe(self) -> tuple[str, str]:
        where = f"the posterior lives on the {counted(self.dim, 'dimension')} of the first fields"
        what = "quasi-random points" if are_sampled(self.dim) else "lattices"
        return where, f"{what} of them that all outputs share, refined in turn"

    def rows(self, level: int, factor: np.ndarray) -> Rows | None:
        """The first fields, whitened, of a level counted from 0; None where they are too many.

        factor (E, E): of the covariance of the first fields.
        """
        if level >= LEVELS:
            return None
        flips = self.flips[[not factor[s[:, None] != s].any() for s in self.flips]]
        positive = pivots(flips, self.tokens)
        carried = 1 + sum(np.shape(one)[-1] for one in features_of(flips, self.tokens))
        if how_many(self.dim, level, len(positive)) * carried > _MOST:
            return None

        def make() -> Rows:
            points, volume = row_points(self.dim, level, positive)
            return Rows.of(self.reduction, points, volume, factor, flips)

        return self._lattices.get((level, factor.tobytes()), make)

    @cached_property
    def flips(self) -> np.ndarray:
        """(G, E) signs of the rows of the first fields under which C stays as it is, the identity first."""
        E, T = len(self.reduction.early), self.tokens
        x = np.random.default_rng(0).standard_normal((_TRIALS, E, T))
        C = self.reduction.mixing(x.reshape(_TRIALS, -1))
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=E)))
        moved = [self.reduction.mixing((s[:, None] * x).reshape(_TRIALS, -1)) for s in signs]
        size = _EQUAL * np.abs(C).max()
        return signs[[bool(np.abs(M - C).max() <= size) for M in moved]]


@dataclass(frozen=True)
class Found:
    """Posteriors of S outputs: log of the integral (S,), mean (S, D) and second moments (S, D, D) or None, error (S,)
    of the mean and, where they were asked for, of the second moments relative to their size, and rows met (S,)."""

    log_norm: np.ndarray
    mean: np.ndarray
    second: np.ndarray | None
    error: np.ndarray
    nodes: np.ndarray


class Shared(Block):
    """The posteriors of one block of outputs, over the whitened fields; all is summed when they are prepared."""

    branches, dim, modeless = 1, 0, True

    def __init__(self, shared: OnSharedRows, u: np.ndarray, cavity: Cavity, found: Found | None = None) -> None:
        super().__init__(cavity)
        self.shared, self.u, self.found = shared, u, found
        self.early, self.late = len(shared.reduction.early), len(shared.reduction.late)
        self.residuals = len(shared.order) * shared.tokens
        E = self.early
        self.L_early, self.L_inverse = self.factor[0, :E, :E], np.linalg.inv(self.factor[0, E:, E:])

    def take(self, index: np.ndarray) -> Shared:
        assert self.found is None, "posteriors that were summed are not taken apart"
        return Shared(self.shared, self.u[index], self.cavity.take(index))  # type: ignore[arg-type]

    @property
    def whitened(self) -> np.ndarray:
        return np.arange(self.residuals)

    def log_density(self) -> np.ndarray:
        return log_whitening(self.factor, self.early, self.shared.tokens)

    def prepared(self, rtol: float, cov: bool) -> Shared:
        """Summed over the rows of level after level, until two in turn agree to ``rtol``."""
        S, D = self.samples, self.residuals
        second = np.full((S, D, D), np.nan) if cov else None
        found = Found(np.full(S, -np.inf), np.full((S, D), np.nan), second, np.full(S, np.inf), np.zeros(S))
        left, before, level = np.arange(S), None, 0
        while len(left) and (rows := self.shared.rows(level, self.L_early)) is not None:
            now = self._at(left, level, rows, cov)
            if now is None:
                break
            found.nodes[left] += len(rows.constant)
            error = np.full(len(left), np.inf) if before is None else _apart(before, now)
            if are_sampled(self.shared.dim):
                last = found.error[left]
                error = np.maximum(SURE * error, np.where(np.isfinite(last), AGAIN * last, 0.0))
            found.log_norm[left], found.mean[left], found.error[left] = now.log_norm, now.mean, error
            if found.second is not None and now.second is not None:
                found.second[left] = now.second
            rough = ~(error <= rtol)
            left, before, level = left[rough], _take(now, rough), level + 1
        return Shared(self.shared, self.u, self.cavity, found)  # type: ignore[arg-type]

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        found = self.found
        assert found is not None, "the rows are summed over by prepared()"
        second = None if found.second is None else np.moveaxis(found.second[index], 0, -1)[:, :, None]
        error = found.error[index][None]
        mean = found.mean[index].T[None, :, None]
        summed_up = Summed(second, error, np.zeros_like(error), found.nodes[index][None])
        return Values(mean, found.log_norm[index][None, None], summed=summed_up)

    def doubt(self, seen: object) -> tuple[np.ndarray, np.ndarray]:
        if self.found is None:
            return np.full(self.samples, np.inf), np.ones(self.samples, dtype=bool)
        return self.found.error, np.zeros(self.samples, dtype=bool)

    # ---- columns -------------------------------------------------------------------------------

    def _columns(self, index: np.ndarray, level: int, stretch: float) -> Columns | None:
        """The points of the level set at outputs ``index``, on a lattice of that level where there are coordinates on
        it; None where these would be too many.  stretch: the largest that C makes any vector of length one."""
        level_set, S, T, n = self.shared.level_set, len(index), self.shared.tokens, self.late
        step, reach = lattice_of(level)
        latent, log_measure = latent_nodes(level_set.latents, step, reach)
        sheets = level_set.solve([], latent, [value[:, None] for value in self.u[index].T])
        shape, place = (S, len(log_measure)), [row * T + t for row in level_set.solved_rows for t in range(T)]
        kinds = list[tuple[np.ndarray, np.ndarray]]()
        for b, solved in enumerate(sheets.solved):
            weight = sheets.log_weight[b if len(sheets.log_weight) > 1 else 0] + log_measure
            vectors = [self._whitened(v, place, shape) for v in (sheets.directions[b] if sheets.directions else ())]
            along = along_directions(
                self._whitened(solved, place, shape), np.broadcast_to(weight, shape), vectors, step, stretch * reach
            )
            if along is None:
                return None
            kinds.append(along)
        t, v = np.triu_indices(T)
        flat, weights = (np.stack(one) for one in zip(*kinds, strict=True))
        fields = flat.reshape(*flat.shape[:3], n, T)
        features = np.einsum("bsmpk,bsmpk->bsmk", fields[..., t], fields[..., v])
        alike = alike_sheets(features, weights)
        first = [kind[0] for kind in alike]
        # No row makes more of a column than this; what is far below the largest is left out.
        most = weights[first] - 0.5 * (flat[first] ** 2).sum(axis=3) / stretch**2
        most = np.where(np.isfinite(most), most, -np.inf)
        which, owner, node = np.nonzero(most > most.max(axis=(0, 2), keepdims=True) - 0.5 * reach**2 - _BELOW)
        means, pairs = np.zeros((len(which), n * T)), np.zeros((len(which), n * T, n * T))
        for k, kind in enumerate(alike):
            own = which == k
            for b in kind:
                U = flat[b, owner[own], node[own]]
                means[own] += U / len(kind)
                pairs[own] += U[:, :, None] * U[:, None, :] / len(kind)
        many = np.log([len(kind) for kind in alike])[which]
        chosen = np.array(first)[which], owner, node
        return Columns(owner, features[chosen], weights[chosen] + many, means, pairs)

    def _whitened(self, columns: list[np.ndarray], place: list[int], shape: tuple[int, int]) -> np.ndarray:
        """Solved fields, entry by entry, as whitened mixed fields (S, N, n T)."""
        T, n = self.shared.tokens, self.late
        U = np.empty((*shape, n * T))
        for k, value in zip(place, columns, strict=True):
            U[..., k] = value
        white = np.einsum("pq,smqt->smpt", self.L_inverse, U.reshape(*shape, n, T))
        return np.asarray(white.reshape(*shape, n * T))

    def _at(self, index: np.ndarray, level: int, rows: Rows, cov: bool) -> Found | None:
        """Moments at outputs ``index`` by the lattices of one level, a few outputs at a time."""
        parts, i = list[Found](), 0
        size = _AT_ONCE if not self.shared.columns else 16
        while i < len(index):
            own = index[i : i + size]
            columns = self._columns(own, level, rows.stretch)
            if columns is None:
                return None
            parts.append(self._met(len(own), columns, rows, cov))
            i += size
            # As many outputs as have some ten thousand columns.
            size = max(1, int(_AT_ONCE * len(own) / max(len(columns.owner), len(own))))
        second = np.concatenate([part.second for part in parts if part.second is not None]) if cov else None
        log_norm, mean = (np.concatenate([getattr(part, name) for part in parts]) for name in ("log_norm", "mean"))
        return Found(log_norm, mean, second, np.zeros(len(index)), np.zeros(len(index)))

    def _met(self, S: int, columns: Columns, rows: Rows, cov: bool) -> Found:
        """Moments of S outputs, each column of which meets all rows."""
        owner = columns.owner
        log_total, means = summed(columns.features, rows, rows.second if cov else rows.first)
        log_total = log_total + columns.log_weight
        log_total = np.where(np.isfinite(log_total), log_total, -np.inf)
        top = np.full(S, -np.inf)
        np.maximum.at(top, owner, log_total)
        share = np.exp(log_total - np.where(np.isfinite(top), top, 0.0)[owner])
        total = np.bincount(owner, share, minlength=S)
        with np.errstate(divide="ignore", invalid="ignore"):
            share /= total[owner]
            log_norm = top + np.log(total)
        first, second = self._moments(columns, np.where(share[:, None] > 0, means, 0.0), rows, cov)
        mean = np.zeros((S, first.shape[1]))
        np.add.at(mean, owner, share[:, None] * first)
        if second is None:
            return Found(log_norm, mean, None, np.zeros(S), np.zeros(S))
        both = np.zeros((S, *second.shape[1:]))
        np.add.at(both, owner, share[:, None, None] * second)
        return Found(log_norm, mean, both, np.zeros(S), np.zeros(S))

    def _moments(
        self, columns: Columns, means: np.ndarray, rows: Rows, cov: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Means (N, D), and second moments (N, D, D), of the whitened fields from those of the rows."""
        N, T, d, n = len(means), self.shared.tokens, self.shared.dim, self.late
        one, two = rows.carried
        m = d + T * T
        first = np.zeros((N, m))
        first[:, one] = means[:, 1 : 1 + len(one)]
        own = columns.first.reshape(N, n, T)
        late = np.einsum("ntu,npu->npt", first[:, d:].reshape(N, T, T), own).reshape(N, n * T)
        mean = np.concatenate([first[:, :d], late], axis=1)
        if not cov:
            return mean, None
        pairs = np.zeros((N, m, m))
        pairs[:, two[0], two[1]] = pairs[:, two[1], two[0]] = means[:, 1 + len(one) :]
        second = np.zeros((N, d + n * T, d + n * T))
        second[:, :d, :d] = pairs[:, :d, :d]
        cross = pairs[:, :d, d:].reshape(N, d, T, T)
        second[:, :d, d:] = np.einsum("nitu,npu->nipt", cross, own).reshape(N, d, n * T)
        second[:, d:, :d] = np.swapaxes(second[:, :d, d:], 1, 2)
        inverse = pairs[:, d:, d:].reshape(N, T, T, T, T)
        fields = columns.second.reshape(N, n, T, n, T)
        both = np.einsum("ntuvw,npuqw->nptqv", inverse, fields, optimize=True)
        second[:, d:, d:] = both.reshape(N, n * T, n * T)
        return mean, second


def _take(found: Found, index: np.ndarray) -> Found:
    second = None if found.second is None else found.second[index]
    return Found(found.log_norm[index], found.mean[index], second, found.error[index], found.nodes[index])


def _apart(one: Found, other: Found) -> np.ndarray:
    """The largest of the changes of the integral, relative, the mean, and the second moments, beside their size."""
    with np.errstate(invalid="ignore"):
        norm = np.abs(np.expm1(one.log_norm - other.log_norm))
        mean = np.linalg.norm(other.mean - one.mean, axis=1)
        changes = [norm, mean]
        if one.second is not None and other.second is not None:
            size = 1 + np.linalg.norm(other.second, axis=(1, 2))
            changes.append(np.linalg.norm(other.second - one.second, axis=(1, 2)) / size)
        return np.nan_to_num(np.max(changes, axis=0), nan=np.inf)
