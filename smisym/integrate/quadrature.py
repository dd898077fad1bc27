"""Integration of posteriors with a Gaussian part: adaptive lattices, with their own error estimates.

What an integrand is: :mod:`smisym.integrate.modes`.  Nothing here knows where x, r or the branches come from.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from smisym.base import patience
from smisym.integrate.accuracy import LATTICES, LOOSE, Lattice
from smisym.integrate.averages import Average
from smisym.integrate.boxes import on_boxes
from smisym.integrate.cells import (
    BLURRED,
    DISTANCE,
    FAR,
    RESOLVED,
    Cells,
    Sums,
    add_runs,
    edge_error,
    inner_error,
    inner_sums,
    keep_freed_memory,
    means_and_gaps,
    neighbours,
    parity_signs,
    radius_of_mass,
    sublattice_error,
)
from smisym.integrate.loops import compiled, number_of_sums
from smisym.integrate.modes import CHUNK, Integrand, Values, find_modes, probe, starts

# --------------------------------------------------------------------------------------------------
# Adaptive lattice
# --------------------------------------------------------------------------------------------------

# Cells of one call of compiled loops, after which Ctrl-C and the clock are heard.
_CELLS = 2**18
# Largest change of a log-weight over a cell that is resolved, where the residuals are already summed over.
_STEEP = 20.0


def lattice(
    integrand: Integrand,
    *,
    rtol: float = 1e-6,
    cov: bool = False,
    max_nodes: int | None = None,
    shape: Lattice | None = None,
) -> Average:
    """Trapezoid rule on a lattice restricted to where the mass is, refined until it converges.

    The trapezoid rule converges faster than any power of the step for smooth integrands that vanish
    at the border.  Cells that a bound on the residuals shows to hold no mass are dropped; the
    rest are halved.  The error is estimated on each level from the sublattices of half the density.
    Every posterior stops on its own.  Where there is an accelerator, boxes of a fixed number of nodes come first
    (:mod:`smisym.integrate.boxes`), and what is told here holds for the posteriors that these do not resolve.
    """
    depth = -np.log(rtol) + 6.0
    shape = shape or LATTICES[integrand.dim]
    most = max_nodes or shape.budget
    found = on_boxes(integrand, rtol, cov, depth, most)
    rest = np.arange(integrand.samples) if found is None else np.flatnonzero(~found.converged)
    if found is not None and not rest.size:
        return found
    state = _LatticeState(integrand, rtol, cov, depth, most, shape)
    if found is None:
        return _adaptive(state, rest)
    if max_nodes is not None:
        # What the boxes cost is spent.
        state.nodes[rest], found.nodes[rest] = found.nodes[rest], 0.0
    found.replace(rest, _adaptive(state, rest).take(rest), rtol)
    return found


def _adaptive(state: _LatticeState, active: np.ndarray) -> Average:
    """The averages of some of a batch; those of the others are not known."""
    keep_freed_memory()
    cells = state.root_cells(active)
    # Where no field that was tried has any weight, nothing is left to integrate.
    state.log_norm[~np.isfinite(state.best)] = -np.inf
    active = active[np.isfinite(state.best[active])]
    while active.size:
        sums = state.evaluate(cells)
        keep, done = state.digest(active, cells, sums)
        active = active[~done]
        if not active.size:
            break
        cells = state.refine(cells, keep, active)
    return Average(state.log_norm, state.mean, state.cov, state.error, state.nodes, state.converged)


class _LatticeState:
    """Running results of :func:`lattice` for a batch."""

    def __init__(
        self, integrand: Integrand, rtol: float, cov: bool, depth: float, max_nodes: int, shape: Lattice
    ) -> None:
        S, d, D = integrand.samples, integrand.dim, integrand.dim + integrand.residuals
        self.integrand, self.rtol, self.depth, self.max_nodes = integrand, rtol, depth, max_nodes
        self.n, self.root = shape.cell, shape.root
        self.first_step = shape.steps[int(rtol >= LOOSE)]
        offsets = np.array(list(itertools.product(range(self.n), repeat=d)))
        self.offsets = np.ascontiguousarray((offsets + 0.5 - self.n / 2).T)  # (d, nodes), from the centre, in steps
        self.signs = parity_signs(offsets)  # (A, nodes)
        self.aliased = np.concatenate([self.signs[:, None], self.signs[:, None] * self.offsets[None]], axis=1).reshape(
            -1, len(offsets)
        )
        self.features = self._features()
        self.level = np.zeros(S, dtype=int)
        self.best = np.full(S, -np.inf)
        self.log_norm = np.full(S, np.nan)
        self.mean = np.full((S, D), np.nan)
        self.cov = np.full((S, D, D), np.nan) if cov else None
        self.error = np.full(S, np.inf)
        self.nodes = np.zeros(S)
        self.converged = np.zeros(S, dtype=bool)
        self.compiled, self.numbers = self._compiled()
        # What the sublattices of the level before missed.
        self.missed = np.full(S, np.inf)
        # Known maxima of narrow posteriors: the cells that hold them are never dropped.
        self.narrow = np.zeros(S, dtype=bool)
        self.modes = np.full((S, starts(d) * integrand.branches, d), np.nan)

    def _compiled(self) -> tuple[Callable[..., None] | None, np.ndarray]:
        """Compiled loops over cells, and the numbers of each sample that these take; None where there are none."""
        found = self.integrand.points() if self.integrand.residuals else None
        if found is None:
            return None, np.empty((0, 0))
        run = compiled(found[0], self.offsets.shape[1], self.cov is not None)
        return run, np.ascontiguousarray(found[1])

    def _features(self) -> np.ndarray:
        """(F, nodes): 1, offsets, products of offsets."""
        o = self.offsets
        pairs = [o[i] * o[j] for i in range(len(o)) for j in range(i, len(o))]
        return np.stack([np.ones(o.shape[1]), *o, *pairs])

    def step(self, owner: np.ndarray) -> np.ndarray:
        return self.first_step * 0.5 ** self.level[owner]

    # ---- where to look -------------------------------------------------------------------------

    def root_cells(self, active: np.ndarray) -> Cells:
        """Cells that cover the ball outside of which the density is negligible."""
        d = self.integrand.dim
        best, weight = probe(self.integrand, active)
        radius = radius_of_mass(best, weight, self.depth)
        far = radius > FAR * np.sqrt(2 * self.depth)
        if far.any() and not self.integrand.modeless:
            modes = find_modes(self.integrand, active[far])
            best[far] = np.maximum(best[far], modes.value.max(axis=1))
            radius = radius_of_mass(best, weight, self.depth)
            self.modes[active[far]] = np.where((modes.value > best[far, None] - self.depth)[..., None], modes.x, np.nan)
            self.narrow[active[far]] = True
        self.best[active] = best
        radius = self.integrand.widening * radius
        active, radius = active[np.isfinite(best)], radius[np.isfinite(best)]
        if not active.size:
            return Cells(np.empty(0, dtype=int), np.empty((0, d), dtype=int))
        width = self.n * self.first_step
        half = np.maximum(np.ceil(radius / width), 1)
        coarser = np.maximum(np.ceil(np.log2(half / (self.root / 2))), 0).astype(int)
        self.level[active] = -coarser
        half = np.ceil(radius / (width * 2.0**coarser)).astype(int)
        owners, corners = [], []
        for h in np.unique(half):
            template = np.array(list(itertools.product(range(-h, h), repeat=d)))
            near = np.where(template < 0, template + 1, template)
            distance = np.sqrt((near.astype(float) ** 2).sum(axis=1))
            mine = np.flatnonzero(half == h)
            inside = distance[None, :] * (width * 2.0 ** coarser[mine])[:, None] < radius[mine][:, None]
            who, which = np.nonzero(inside)
            owners.append(active[mine[who]])
            corners.append(template[which])
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        return Cells(owner[order], np.concatenate(corners)[order])

    def refine(self, cells: Cells, keep: np.ndarray, active: np.ndarray) -> Cells:
        going = np.zeros(self.integrand.samples, dtype=bool)
        going[active] = True
        keep = keep & going[cells.owner]
        self.level[active] += 1
        children = np.array(list(itertools.product((0, 1), repeat=self.integrand.dim)))
        owner = np.repeat(cells.owner[keep], len(children))
        corner = (2 * cells.corner[keep][:, None, :] + children[None]).reshape(-1, self.integrand.dim)
        return Cells(owner, corner)

    # ---- sums ----------------------------------------------------------------------------------

    def evaluate(self, cells: Cells) -> Sums:
        """Sums of all cells, in compiled loops, or in chunks that fit the cache."""
        if self.compiled is not None:
            return self._in_loops(cells, self.compiled)
        per_chunk = max(1, CHUNK // self.offsets.shape[1])
        parts = [
            self._chunk(cells.owner[i : i + per_chunk], cells.corner[i : i + per_chunk])
            for i in range(0, len(cells.owner), per_chunk)
        ]
        second = np.concatenate([p.second for p in parts if p.second is not None]) if self.cov is not None else None
        names = ("bound", "resolved", "peak", "cut", "owner", "top", "first", "alias", "inner")
        joined = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
        return Sums(**joined, second=second)

    def _in_loops(self, cells: Cells, run: Callable[..., None]) -> Sums:
        d, D, B = self.integrand.dim, self.integrand.dim + self.integrand.residuals, self.integrand.branches
        C, K = len(cells.owner), self.offsets.shape[1]
        starts = np.r_[np.flatnonzero(np.r_[True, np.diff(cells.owner) != 0]), C]
        who = cells.owner[starts[:-1]]
        quantities = number_of_sums(d, D - d, self.cov is not None)
        bound, peak = np.empty(C), np.empty((C, B))
        resolved, cut = np.empty(C, dtype=bool), np.empty(C, dtype=bool)
        top, totals = np.empty(len(who)), np.empty((len(who), quantities, K))
        least, step, half = self.best[who] - self.depth - 3.0, self.step(who), 0.5 * self.n
        limits = half, RESOLVED * (self.n - 1), BLURRED, 0.5 / (self.n - 1), half
        corner = np.ascontiguousarray(cells.corner)
        for first, last in _shares(starts, _CELLS):
            patience.check()
            own, block = slice(first, last), totals[first:last].reshape(last - first, -1)
            run(starts[first : last + 1], corner, who[own], step[own], self.numbers, self.offsets, least[own], *limits,
                bound, resolved, peak, cut, top[own], block)  # fmt: skip
        sums = totals.sum(axis=2)
        alias = np.swapaxes(totals[:, : 1 + D] @ self.signs.T, 1, 2)
        second = None
        if self.cov is not None:
            second = np.empty((len(who), D, D))
            upper = np.triu_indices(D)
            second[:, upper[0], upper[1]] = second[:, upper[1], upper[0]] = sums[:, 1 + D :]
        inner = np.zeros((len(who), 0, 2 + D))
        return Sums(bound, resolved, peak, cut, who, top, sums[:, : 1 + D], alias, inner, second)

    def _chunk(self, owner: np.ndarray, corner: np.ndarray) -> Sums:
        patience.check()
        h = self.step(owner)
        centre = ((corner + 0.5) * (self.n * h)[:, None]).T  # (d, C)
        x = centre[:, None, :] + self.offsets[:, :, None] * h
        values = self.integrand.evaluate(owner, x)
        logf = values.log_density(x)
        own = logf.max(axis=1)  # (branches, C)
        top = own.max(axis=0)
        cut = (~np.isfinite(logf.min(axis=1)) & (own > self.best[owner] - self.depth - 3.0)).any(axis=0)
        bound, resolved = self._bounds(centre, h, values)
        heavy = np.flatnonzero(top > self.best[owner] - self.depth - 3.0)
        if len(heavy) > 0.8 * len(top):
            # Few are left out: their weights are zero, which is cheaper than to move all others.
            logf[..., ~(top > self.best[owner] - self.depth - 3.0)] = -np.inf
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
        first, alias, inner, *second = [add_runs(a, scale, owner[heavy], owner[runs]) for a in sums if a is not None]
        return Sums(bound, resolved, own.T, cut, owner[runs], peak, first, alias, inner, second[0] if second else None)

    def _bounds(self, centre: np.ndarray, h: np.ndarray, values: Values) -> tuple[np.ndarray, np.ndarray]:
        """Upper bound of log f in each cell, from the range of each residual over the nodes."""
        r, log_weight = values.squared, values.log_weight
        if not r.shape[1]:
            near = np.maximum(np.abs(centre) - 0.5 * self.n * h, 0.0)
            top = log_weight.max(axis=(0, 1))
            # Of a parabola over four nodes a side, what may rise between them is a quarter of the range at most.
            change = np.nan_to_num(top - log_weight.min(axis=(0, 1)), nan=0.0, posinf=_STEEP)
            return top + 1.0 + 0.25 * change - 0.5 * (near**2).sum(axis=0), change <= _STEEP
        low, high = r.min(axis=2), r.max(axis=2)
        spread = high - low
        resolved = spread.max(axis=(0, 1)) <= RESOLVED * (self.n - 1)
        # Nodes that are far apart in standard deviations say little about what lies between them.
        margin = (
            0.5 / (self.n - 1) + np.where(resolved, 0.05, np.where(spread.max(axis=(0, 1)) < BLURRED, 0.25, 1.5))
        ) * spread
        gap = np.maximum(np.maximum(low - margin, -high - margin), 0.0)
        near = np.maximum(np.abs(centre) - 0.5 * self.n * h, 0.0)
        # Branch by branch, as some may have no weight at all.
        top = (log_weight.max(axis=1) - 0.5 * (gap**2).sum(axis=1)).max(axis=0)
        return top + 1.0 - 0.5 * (near**2).sum(axis=0), resolved

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
        second = self._second(centre, h, values, w, sums, weighted) if self.cov is not None else None
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

    def _holds_mode(self, owner: np.ndarray, corner: np.ndarray) -> np.ndarray:
        """Whether a known maximum lies in a cell or within half a cell of it."""
        width = self.n * self.step(owner)
        place = self.modes[owner] / width[:, None, None] - corner[:, None, :]
        with np.errstate(invalid="ignore"):
            return ((place >= -0.5) & (place <= 1.5)).all(axis=2).any(axis=1)

    # ---- decide --------------------------------------------------------------------------------

    def _edges(self, cells: Cells, keep: np.ndarray, sums: Sums) -> np.ndarray:
        """Which posteriors (S,) have kinks, or sheets that end where there is mass; marks cells to keep on both sides.

        Between the last node that is on a sheet and the next one, which may lie in the next cell, there may be fields.
        """
        edged = np.full(self.integrand.samples, self.integrand.broken)
        edged[cells.owner[keep & sums.cut]] = True
        there = np.isfinite(sums.peak)
        if not there.all():
            heavy = there & (sums.peak > (self.best[cells.owner] - self.depth - 3.0)[:, None])
            dead = np.flatnonzero(~there.all(axis=1))
            for i, j in neighbours(cells, dead):
                ends = (~there[i] & heavy[j]).any(axis=1)
                keep[i[ends]] = True
                edged[cells.owner[i[ends]]] = True
        return edged

    def _error(self, who: np.ndarray, gap: np.ndarray, edged: np.ndarray) -> np.ndarray:
        """Error of each posterior from what its sublattices miss, gap (len(who), A)."""
        rough, self.missed[who] = edge_error(gap, self.missed[who], 0.5)
        return np.where(edged[who], rough, sublattice_error(gap, self.integrand.dim))

    def digest(self, active: np.ndarray, cells: Cells, sums: Sums) -> tuple[np.ndarray, np.ndarray]:
        """Add up the cells of each posterior; returns cells worth refining and which of ``active`` are done."""
        S, d = self.integrand.samples, self.integrand.dim
        starts = np.flatnonzero(np.r_[True, cells.owner[1:] != cells.owner[:-1]])
        who = cells.owner[starts]
        runs = np.flatnonzero(np.r_[True, sums.owner[1:] != sums.owner[:-1]])
        top = np.maximum.reduceat(sums.top, runs)
        self.best[who] = np.maximum(self.best[who], top)
        count = np.diff(np.r_[starts, len(cells.owner)])
        self.nodes[who] += count * self.offsets.shape[1] * self.integrand.branches
        reference = np.zeros(S)
        reference[who] = np.where(np.isfinite(top), top, 0.0)
        scale = np.exp(np.where(np.isfinite(sums.top), sums.top, -np.inf) - reference[sums.owner])
        first = np.add.reduceat(sums.first * scale[:, None], runs)
        alias = np.add.reduceat(sums.alias * scale[:, None, None], runs)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean, gap = means_and_gaps(first, alias)
        inner = np.add.reduceat(sums.inner * scale[:, None, None], runs)
        keep = sums.bound > self.best[cells.owner] - self.depth
        error = self._error(who, gap, self._edges(cells, keep, sums)) + 10 * np.exp(-self.depth)
        own = inner_error(inner, first[:, 0], mean)
        error = np.where(np.isfinite(error), error, np.inf)
        self.mean[who] = mean
        with np.errstate(divide="ignore"):
            self.log_norm[who] = reference[who] + np.log(first[:, 0]) + d * np.log(self.step(who))
        if self.cov is not None and sums.second is not None:
            second = np.add.reduceat(sums.second * scale[:, None, None], runs)
            with np.errstate(divide="ignore", invalid="ignore"):
                second /= first[:, 0, None, None]
            self.cov[who] = second - mean[:, :, None] * mean[:, None, :]
        watched = np.flatnonzero(self.narrow[cells.owner] & ~keep)
        keep[watched] = self._holds_mode(cells.owner[watched], cells.corner[watched])
        blurred = np.flatnonzero(keep & ~sums.resolved)
        owner = cells.owner[blurred]
        # What unresolved cells may hold at most, relative to what was found.
        held = np.zeros(S)
        np.add.at(held, owner, np.exp(np.minimum(sums.bound[blurred] - reference[owner], 50.0)) * self.offsets.shape[1])
        with np.errstate(divide="ignore", invalid="ignore"):
            missed = np.nan_to_num(held[who] / first[:, 0], nan=1.0, posinf=1.0)
        kept = np.bincount(cells.owner[keep], minlength=S)[who]
        error = error + np.minimum(DISTANCE * missed, 1.0)
        # What the integrand itself misses, no finer lattice finds.
        finest = error <= 0.1 * own
        error = error + own
        self.error[who] = error
        self.converged[who] = error <= self.rtol
        cost = self.nodes[who] + kept * self.offsets.shape[1] * self.integrand.branches * 2**d
        stop = self.converged[who] | (cost > self.max_nodes) | (kept == 0) | finest
        finished = np.zeros(S, dtype=bool)
        finished[who] = stop
        return keep, finished[active]


def _shares(starts: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Runs that begin at ``starts``, a few at a time: about ``most`` items, one run at least."""
    first, runs = 0, len(starts) - 1
    while first < runs:
        last = int(np.searchsorted(starts, starts[first] + most, side="right")) - 1
        last = min(max(last, first + 1), runs)
        yield first, last
        first = last


def _of_columns(values: Values, columns: np.ndarray) -> Values:
    """The same for some of the cells."""
    along = None if values.along is None else values.along[..., columns]
    summed = None if values.summed is None else values.summed.take(columns)
    return Values(values.residuals[..., columns], values.log_weight[..., columns], along, None, summed)
