"""Sums over the nodes of cells of a lattice, and what nodes tell of each cell: by numpy in chunks that fit the cache,
or in compiled loops (:mod:`smisym.integrate.loops`), to the same numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from smisym.base import patience
from smisym.integrate.accuracy import RESOLVED
from smisym.integrate.cells import Cells, Sums, add_runs, blurred, inner_sums, parity_signs
from smisym.integrate.loops import compiled, number_of_sums
from smisym.integrate.modes import CHUNK, Integrand, Values

# The same over a whole cell, beyond which the bounds of the cell are widened.
BLURRED = 10.0
# Largest change of a log-weight over a cell that is resolved, where the residuals are already summed over.
_STEEP = 20.0
# Logs below the highest node of a cell at which others count for how a log-weight bends.
_NEAR_TOP = 6.0
# Cells of one call of compiled loops, after which Ctrl-C and the clock are heard.
_CELLS = 2**18


class CellSums:
    """Sums over cells with n nodes a side; ``cov``: whether second moments are asked for.

    offsets (d, nodes): of the nodes from the centre of a cell, in steps.  signs (A, nodes): of the A = 2^d - 1
    sublattices of half the density.
    """

    def __init__(self, integrand: Integrand, n: int, cov: bool) -> None:
        self.integrand, self.n, self.cov = integrand, n, cov
        d = integrand.dim
        places = np.array(list(itertools.product(range(n), repeat=d)))
        self.nodes = len(places)
        self.offsets = np.ascontiguousarray((places + 0.5 - n / 2).T)
        self.signs = parity_signs(places)
        self.aliased = np.concatenate([self.signs[:, None], self.signs[:, None] * self.offsets[None]], axis=1).reshape(
            -1, self.nodes
        )
        o = self.offsets
        pairs = [o[i] * o[j] for i in range(len(o)) for j in range(i, len(o))]
        self.features = np.stack([np.ones(self.nodes), *o, *pairs])  # (F, nodes): 1, offsets, products of two
        self._numbers, self._run = np.empty((0, 0)), None
        found = integrand.points() if integrand.residuals else None
        if found is not None:
            self._numbers = np.ascontiguousarray(found[1])
            self._run = compiled(found[0], self.nodes, cov)

    def of(self, cells: Cells, step: np.ndarray, least: np.ndarray) -> Sums:
        """Sums of all cells, step (C,); least (S,): log f below which a cell counts for nothing."""
        if self._run is not None:
            return self._in_loops(cells, step, least, self._run)
        per_chunk = max(1, CHUNK // self.nodes)
        parts = [
            self._chunk(cells.owner[i : i + per_chunk], cells.corner[i : i + per_chunk], step[i : i + per_chunk], least)
            for i in range(0, len(cells.owner), per_chunk)
        ]
        second = np.concatenate([p.second for p in parts if p.second is not None]) if self.cov else None
        names = ("bound", "change", "peak", "cut", "owner", "top", "first", "alias", "inner", "coarse")
        joined = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
        return Sums(**joined, second=second)

    def _in_loops(self, cells: Cells, step: np.ndarray, least: np.ndarray, run: Callable[..., None]) -> Sums:
        d, D, B = self.integrand.dim, self.integrand.dim + self.integrand.residuals, self.integrand.branches
        C, K = len(cells.owner), self.nodes
        starts = np.r_[np.flatnonzero(np.r_[True, np.diff(cells.owner) != 0]), C]
        who = cells.owner[starts[:-1]]
        bound, change, peak, cut = np.empty(C), np.empty(C), np.empty((C, B)), np.empty(C, dtype=bool)
        top, totals = np.empty(len(who)), np.empty((len(who), number_of_sums(d, D - d, self.cov), K))
        own_step, corner = step[starts[:-1]], np.ascontiguousarray(cells.corner)
        limits = 0.5 * self.n, RESOLVED, BLURRED, float(self.n - 1)
        for first, last in _shares(starts, _CELLS):
            patience.check()
            some, block = slice(first, last), totals[first:last].reshape(last - first, -1)
            run(starts[first : last + 1], corner, who[some], own_step[some], self._numbers, self.offsets,
                least, *limits, bound, change, peak, cut, top[some], block)  # fmt: skip
        sums = totals.sum(axis=2)
        alias = np.swapaxes(totals[:, 1 : 2 + D] @ self.signs.T, 1, 2)
        second = None
        if self.cov:
            second = np.empty((len(who), D, D))
            upper = np.triu_indices(D)
            second[:, upper[0], upper[1]] = second[:, upper[1], upper[0]] = sums[:, 2 + D :]
        inner = np.zeros((len(who), 0, 2 + D))
        return Sums(bound, change, peak, cut, who, top, sums[:, 1 : 2 + D], alias, inner, sums[:, 0], second)

    def _chunk(self, owner: np.ndarray, corner: np.ndarray, h: np.ndarray, least: np.ndarray) -> Sums:
        patience.check()
        centre = ((corner + 0.5) * (self.n * h)[:, None]).T  # (d, C)
        x = centre[:, None, :] + self.offsets[:, :, None] * h
        values = self.integrand.evaluate(owner, x)
        logf = values.log_density(x)
        own = logf.max(axis=1)  # (branches, C)
        top = own.max(axis=0)
        cut = (~np.isfinite(logf.min(axis=1)) & (own > least[owner])).any(axis=0)
        corners = self._at_corners(owner, centre, h) if self.integrand.saturating else None
        bound, change = self._bounds(centre, h, values, corners)
        known = change if corners is None else np.maximum(change, self._curved(values.log_weight, logf))
        heavy = np.flatnonzero(top > least[owner])
        if len(heavy) > 0.8 * len(top):
            # Few are left out: their weights are zero, which is cheaper than to move all others.
            logf[..., ~(top > least[owner])] = -np.inf
            heavy = np.arange(len(top))
        else:
            centre, h, logf = centre[:, heavy], h[heavy], logf[..., heavy]
            values = _of_columns(values, heavy)
        runs = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
        peak = np.maximum.reduceat(top, runs)
        # Each cell relative to its own peak first: the arithmetic stays clear of slow denormal numbers.
        w = logf
        w -= np.where(np.isfinite(top[heavy]), top[heavy], 0.0)
        np.exp(w, out=w)
        reference = np.repeat(np.where(np.isfinite(peak), peak, 0.0), np.diff(np.r_[runs, len(owner)]))
        scale = np.exp(np.where(np.isfinite(top[heavy]), top[heavy], -np.inf) - reference[heavy])
        sums = self._sum(centre, h, values, w)
        coarse = blurred(known[heavy], len(self.offsets)) * sums[0][:, 0]
        first, alias, inner, coarse, *second = [
            add_runs(a, scale, owner[heavy], owner[runs]) for a in (*sums[:3], coarse, sums[3]) if a is not None
        ]
        return Sums(
            bound, change, own.T, cut, owner[runs], peak, first, alias, inner, coarse, second[0] if second else None
        )

    def _at_corners(self, owner: np.ndarray, centre: np.ndarray, h: np.ndarray) -> Values:
        """The integrand at the corners of cells (2^d), which the nodes are half a step away from."""
        ends = np.array(list(itertools.product((-1.0, 1.0), repeat=self.integrand.dim))).T
        return self.integrand.evaluate(owner, centre[:, None, :] + 0.5 * self.n * ends[:, :, None] * h)

    def _bounds(
        self, centre: np.ndarray, h: np.ndarray, values: Values, corners: Values | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Upper bound of log f in each cell, from the range of each residual over the nodes, and the corners where they
        are given, and the largest change of one between neighbouring nodes, in standard deviations."""
        r, log_weight = values.squared, values.log_weight
        if not r.shape[1]:
            near = np.maximum(np.abs(centre) - 0.5 * self.n * h, 0.0)
            top = log_weight.max(axis=(0, 1))
            # Of a parabola over four nodes a side, what may rise between them is a quarter of the range at most.
            range_ = np.nan_to_num(top - log_weight.min(axis=(0, 1)), nan=0.0, posinf=_STEEP)
            change = np.where(range_ <= _STEEP, 0.0, np.inf)
            return top + 1.0 + 0.25 * range_ - 0.5 * (near**2).sum(axis=0), change
        low, high = r.min(axis=2), r.max(axis=2)
        weight = log_weight.max(axis=1)
        if corners is not None:
            low = np.minimum(low, corners.squared.min(axis=2))
            high = np.maximum(high, corners.squared.max(axis=2))
            weight = self._rising(log_weight, corners.log_weight)
        spread = high - low
        widest = spread.max(axis=(0, 1))
        change = np.maximum(self._steepest(r), widest / (self.n - 1))
        # Nodes that are far apart in standard deviations say little about what lies between them.
        margin = (
            0.5 / (self.n - 1) + np.where(change <= RESOLVED, 0.05, np.where(widest < BLURRED, 0.25, 1.5))
        ) * spread
        gap = np.maximum(np.maximum(low - margin, -high - margin), 0.0)
        near = np.maximum(np.abs(centre) - 0.5 * self.n * h, 0.0)
        # Branch by branch, as some may have no weight at all.
        top = (weight - 0.5 * (gap**2).sum(axis=1)).max(axis=0)
        return top + 1.0 - 0.5 * (near**2).sum(axis=0), change

    def _steepest(self, r: np.ndarray) -> np.ndarray:
        """(C,) the largest change of a residual (branches, m, n, C) from one node to the next along an axis.

        Of one that goes to and fro within a cell its range tells nothing.
        """
        d = len(self.offsets)
        grid = r.reshape(*r.shape[:2], *[self.n] * d, r.shape[3])
        every = tuple(range(2 + d))
        return np.max([np.abs(np.diff(grid, axis=2 + i)).max(axis=every) for i in range(d)], axis=0)

    def _curved(self, log_weight: np.ndarray, logf: np.ndarray) -> np.ndarray:
        """(C,) the step in standard deviations of a log-weight (branches or 1, n, C), by how much it bends from node to
        node where there is mass: a square of what changes by so much bends by its square."""
        d, C = len(self.offsets), logf.shape[2]
        weight, f = (np.broadcast_to(w, logf.shape).reshape(-1, *[self.n] * d, C) for w in (log_weight, logf))
        heavy, worst = f > f.max(axis=tuple(range(1 + d)), keepdims=True) - _NEAR_TOP, np.zeros(C)
        for axis in range(1, 1 + d):
            with np.errstate(invalid="ignore"):  # branches without weight
                bend = np.diff(weight, n=2, axis=axis)
            middle = np.take(heavy, np.arange(1, self.n - 1), axis=axis)
            worst = np.maximum(
                worst, np.max(-bend, axis=tuple(range(1 + d)), where=middle & np.isfinite(bend), initial=0.0)
            )
        return np.sqrt(worst)

    @staticmethod
    def _rising(nodes: np.ndarray, corners: np.ndarray) -> np.ndarray:
        """The largest log-weight (branches, C) that a cell may have, from its nodes and corners (branches, n, C): of a
        parabola through them what may rise between is a quarter of its range."""
        both = np.concatenate([np.broadcast_to(w, (*w.shape[:2], nodes.shape[2])) for w in (nodes, corners)], axis=1)
        high, low = both.max(axis=1), np.where(np.isfinite(both), both, np.inf).min(axis=1)
        return high + 0.25 * np.where(np.isfinite(high), high - np.minimum(low, high), 0.0)

    def _sum(
        self, centre: np.ndarray, h: np.ndarray, values: Values, w: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Sums of 1 and zeta, over each sublattice, over what the integrand itself misses, and of zeta zeta^T."""
        d, m = self.integrand.dim, self.integrand.residuals
        r, along, C = values.residuals, values.along, len(h)
        mass = w.sum(axis=0)
        sums = (self.features @ mass).T  # (C, F)
        aliased = (self.aliased @ mass).reshape(len(self.signs), 1 + d, C)
        first, alias = np.empty((C, 1 + d + m)), np.empty((C, len(self.signs), 1 + d + m))
        first[:, 0] = sums[:, 0]
        first[:, 1 : 1 + d] = centre.T * sums[:, :1] + h[:, None] * sums[:, 1 : 1 + d]
        alias[:, :, 0] = aliased[:, 0].T
        alias[:, :, 1 : 1 + d] = np.moveaxis(centre * aliased[:, :1] + h * aliased[:, 1:], 2, 0)
        weighted = []
        for j in range(m):
            wr = w[0] * r[0, j]
            for b in range(1, len(w)):
                wr += w[b] * r[b, j]
            weighted.append(wr)
            first[:, 1 + d + j] = wr.sum(axis=0)
            alias[:, :, 1 + d + j] = (self.signs @ wr).T
        inner = inner_sums(centre[:, None, :] + self.offsets[:, :, None] * h, r[0], values.summed, mass)
        second = self._second(centre, h, values, w, sums, weighted) if self.cov else None
        if second is not None and along is not None:
            # Unit variance along each direction that was integrated in closed form.
            second[:, d:, d:] += np.einsum("bnc,bijnc,biknc->cjk", w, along, along, optimize=True)
        return first, alias, inner, second

    def _second(
        self,
        centre: np.ndarray,
        h: np.ndarray,
        values: Values,
        w: np.ndarray,
        sums: np.ndarray,
        weighted: list[np.ndarray],
    ) -> np.ndarray:
        """Sums of zeta zeta^T over each cell."""
        r, pairs_known = values.residuals, None if values.summed is None else values.summed.second
        d, m = self.integrand.dim, self.integrand.residuals
        out = np.empty((len(h), d + m, d + m))
        mass, offset = sums[:, 0], sums[:, 1 : 1 + d] * h[:, None]
        pairs = sums[:, 1 + d :] * (h**2)[:, None]
        for k, (i, j) in enumerate(itertools.combinations_with_replacement(range(d), 2)):
            value = centre[i] * centre[j] * mass + centre[i] * offset[:, j] + centre[j] * offset[:, i] + pairs[:, k]
            out[:, i, j] = out[:, j, i] = value
        for j in range(m):
            moments = (self.features[: 1 + d] @ weighted[j]).T
            cross = centre.T * moments[:, :1] + h[:, None] * moments[:, 1:]
            out[:, :d, d + j] = out[:, d + j, :d] = cross
            for k in range(j, m):
                product = r[0, j] * r[0, k] if pairs_known is None else pairs_known[j, k]
                value = (w[0] * product).sum(axis=0)
                for b in range(1, len(w)):
                    value += (w[b] * r[b, j] * r[b, k]).sum(axis=0)
                out[:, d + j, d + k] = out[:, d + k, d + j] = value
        return out


def _of_columns(values: Values, columns: np.ndarray) -> Values:
    """The same for some of the cells."""
    along = None if values.along is None else values.along[..., columns]
    summed = None if values.summed is None else values.summed.take(columns)
    return Values(values.residuals[..., columns], values.log_weight[..., columns], along, None, summed)


def _shares(starts: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Runs that begin at ``starts``, a few at a time: about ``most`` items, one run at least."""
    first, runs = 0, len(starts) - 1
    while first < runs:
        last = int(np.searchsorted(starts, starts[first] + most, side="right")) - 1
        last = min(max(last, first + 1), runs)
        yield first, last
        first = last
