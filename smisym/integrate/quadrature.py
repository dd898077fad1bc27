"""Integration of posteriors with a Gaussian part: adaptive lattices, with their own error estimates.

What an integrand is: :mod:`smisym.integrate.modes`.  Nothing here knows where x, r or the branches come from.
"""

from __future__ import annotations

import itertools

import numpy as np

from smisym.integrate.accuracy import ALONG, BEYOND, LATTICES, LOOSE, Lattice
from smisym.integrate.averages import SURE, Average
from smisym.integrate.balls import on_balls
from smisym.integrate.boxes import on_boxes
from smisym.integrate.cells import (
    FAR,
    Cells,
    Sums,
    edge_error,
    inner_error,
    keep_freed_memory,
    means_and_gaps,
    measured,
    neighbours,
    random_error,
    sublattice_error,
)
from smisym.integrate.growing import grown
from smisym.integrate.left_out import BLIND, FAINT, LeftOut
from smisym.integrate.modes import Integrand, probe, radius_of_mass
from smisym.integrate.seeking import Modes, find_modes
from smisym.integrate.sums import CellSums

# Of what the sublattices of one level miss, what is left on the next one of an integrand that jumps.
_JUMPED = 0.35
# How many times as many nodes as there are it must take to resolve a maximum for nothing to be spent on it: nodes that
# meet a ridge by chance tell something, where enough of them do.
_HOPELESS = 10

# --------------------------------------------------------------------------------------------------
# Adaptive lattice
# --------------------------------------------------------------------------------------------------


def lattice(
    integrand: Integrand,
    *,
    rtol: float = 1e-6,
    cov: bool = False,
    max_nodes: int | None = None,
    shape: Lattice | None = None,
    longest: float = np.inf,
) -> Average:
    """Trapezoid rule on a lattice restricted to where the mass is, refined until it converges.

    The trapezoid rule converges faster than any power of the step for smooth integrands that vanish
    at the border.  Cells that a bound on the residuals shows to hold no mass are dropped; the
    rest are halved.  The error is estimated on each level from the sublattices of half the density.
    Every posterior stops on its own.  Unless a shape is asked for, lattices in balls come first
    (:mod:`smisym.integrate.balls`), or, where there is an accelerator, boxes of a fixed number of nodes
    (:mod:`smisym.integrate.boxes`); what is told here holds for the posteriors that these do not resolve.
    longest: the first step at most (:mod:`smisym.integrate.resolution`); no balls or boxes where it is finite.
    """
    depth = -np.log(rtol) + 6.0
    coarse = not 0 < longest < np.inf
    whole, shape = shape is None and coarse, shape or LATTICES[integrand.dim]
    most = max_nodes or shape.budget
    if not coarse:
        shape = shape.no_coarser_than(longest)
    boxes = None if integrand.ended or not coarse else on_boxes(integrand, rtol, cov, depth, most)
    balls = on_balls(integrand, rtol, cov, most) if boxes is None and whole else None
    first = boxes or balls
    rest = np.arange(integrand.samples) if first is None else np.flatnonzero(~first.converged)
    if first is not None and not rest.size:
        return first
    state = _LatticeState(integrand, rtol, cov, depth, most, shape)
    state.looked_at = ALONG if coarse else BEYOND
    if first is None:
        return _adaptive(state, rest)
    if max_nodes is not None:
        # What boxes or balls cost is spent.
        state.nodes[rest], first.nodes[rest] = first.nodes[rest], 0.0
    found = _adaptive(state, rest)
    if boxes is None:
        # What balls have not resolved is no estimate.
        first.put(rest, found, rest)
        first.nodes[rest] += found.nodes[rest]
    else:
        first.replace(rest, found.take(rest), rtol)
    return first


def _adaptive(state: _LatticeState, active: np.ndarray) -> Average:
    """The averages of some of a batch; those of the others are not known."""
    keep_freed_memory()
    cells = state.root_cells(active)
    # Where no field that was tried has any weight, nothing is left to integrate.
    state.log_norm[~np.isfinite(state.best) & ~state.hopeless] = -np.inf
    active = active[np.isfinite(state.best[active])]
    first = True
    while active.size:
        # Only what is there from the beginning grows: of finer cells those without mass are gone.
        cells, sums = state.grown(cells) if first else (cells, state.evaluate(cells))
        keep, done = state.digest(active, cells, sums)
        first = False
        active = active[~done]
        if not active.size:
            break
        cells = state.refine(cells, keep, active)
    return Average(state.log_norm, state.mean, state.cov, state.error, state.nodes, state.converged, sure=state.sure)


class _LatticeState:
    """Running results of :func:`lattice` for a batch."""

    def __init__(
        self, integrand: Integrand, rtol: float, cov: bool, depth: float, max_nodes: int, shape: Lattice
    ) -> None:
        S, d, D = integrand.samples, integrand.dim, integrand.dim + integrand.residuals
        self.integrand, self.rtol, self.depth, self.max_nodes = integrand, rtol, depth, max_nodes
        self.n, self.root = shape.cell, shape.root
        self.first_step = shape.steps[int(rtol >= LOOSE)]
        self.cells = CellSums(integrand, self.n, cov)
        nodes = self.n**d
        self.level = np.zeros(S, dtype=int)
        self.best = np.full(S, -np.inf)
        self.log_norm = np.full(S, np.nan)
        self.mean = np.full((S, D), np.nan)
        self.cov = np.full((S, D, D), np.nan) if cov else None
        self.error = np.full(S, np.inf)
        self.nodes = np.zeros(S)
        self.converged = np.zeros(S, dtype=bool)
        self.sure = np.ones(S)
        self.left_out = LeftOut(S, d, nodes, depth)
        # Points of a direction at which it is told between two radii whether there is mass.
        self.looked_at = ALONG
        # Whose error is what all nodes change of what half of them tell, without a law of how it goes on.
        self.measured = measured(integrand, rtol)
        # What the sublattices of the level before missed.
        self.missed = np.full(S, np.inf)
        # Known maxima of narrow posteriors: the cells that hold them are never dropped.
        self.narrow = np.zeros(S, dtype=bool)
        self.modes = np.full((S, 0, d), np.nan)
        # The level from which on steps are no longer than these are wide.
        self.least_level = np.full(S, -1000)
        # Posteriors that no lattice of so many nodes resolves.
        self.hopeless = np.zeros(S, dtype=bool)
        # Of the ball that is covered, and whether there is mass beyond it that is not covered either.
        self.radius, self.cut_off = np.full(S, np.inf), np.zeros(S, dtype=bool)

    def step(self, owner: np.ndarray) -> np.ndarray:
        return self.first_step * 0.5 ** self.level[owner]

    # ---- where to look -------------------------------------------------------------------------

    def root_cells(self, active: np.ndarray) -> Cells:
        """Cells that cover the ball outside of which the density is negligible."""
        d = self.integrand.dim
        best, weight = probe(self.integrand, active)
        radius = radius_of_mass(self.integrand, active, best, weight, self.depth, self.looked_at)
        far = (radius > self.integrand.widening * FAR * np.sqrt(2 * self.depth)) | self.integrand.ended
        if far.any() and not self.integrand.modeless:
            modes = find_modes(self.integrand, active[far])
            best[far] = np.maximum(best[far], modes.value.max(axis=1))
            radius = radius_of_mass(self.integrand, active, best, weight, self.depth, self.looked_at)
            self.modes = np.full((self.integrand.samples, *modes.x.shape[1:]), np.nan)
            self.modes[active[far]] = np.where((modes.value > best[far, None] - self.depth)[..., None], modes.x, np.nan)
            self.narrow[active[far]] = True
            if self.integrand.ended:
                self.least_level[active[far]] = self._resolving(modes)
            # What cannot be resolved is no estimate, however much is spent on it.
            self.hopeless[active[far][self._nodes_of(modes) > _HOPELESS * self.max_nodes]] = True
            there = ~self.hopeless[active]
            active, best, radius = active[there], best[there], radius[there]
        self.best[active] = best
        self.left_out.begin(active, best)
        self.radius[active] = radius
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

    def _masses(self, modes: Modes) -> tuple[np.ndarray, np.ndarray]:
        """Precisions (S, K, d, d) of the maxima, and logs (S, K) of what they hold as Gaussians, -inf if unknown."""
        precision = np.eye(self.integrand.dim) + np.swapaxes(modes.jacobian, 2, 3) @ modes.jacobian
        with np.errstate(invalid="ignore", over="ignore"):
            mass = modes.value - 0.5 * np.linalg.slogdet(np.where(np.isfinite(precision), precision, 0.0))[1]
        return precision, np.where(np.isfinite(mass), mass, -np.inf)

    def _nodes_of(self, modes: Modes) -> np.ndarray:
        """(S,) how many nodes it takes, about, to cover what holds most with steps as long as it is wide."""
        precision, mass = self._masses(modes)
        precision = precision[np.arange(len(mass)), mass.argmax(axis=1)]
        known = np.isfinite(precision).all(axis=(1, 2))
        values = np.linalg.eigvalsh(np.where(known[:, None, None], precision, np.eye(self.integrand.dim)))
        widths = np.sqrt(2 * self.depth) * np.sqrt(values[:, -1:] / values)
        return np.asarray(np.where(known, (1 + 2 * widths / self.first_step).prod(axis=1), 0.0))

    def _resolving(self, modes: Modes) -> np.ndarray:
        """The level (S,) whose steps are no longer than the maxima that count are wide along any axis."""
        precision, mass = self._masses(modes)
        with np.errstate(invalid="ignore", over="ignore"):
            counts = mass > mass.max(axis=1, keepdims=True) + min(np.log(self.rtol), -2.0) - 2.0
            steepest = np.where(counts, np.einsum("skii->ski", precision).max(axis=2), 1.0).max(axis=1)
        return np.ceil(np.log2(self.first_step * np.sqrt(np.clip(steepest, 1.0, 1e12)))).astype(int)

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
        """Sums of all cells."""
        return self.cells.of(cells, self.step(cells.owner), self.left_out.least)

    def grown(self, cells: Cells) -> tuple[Cells, Sums]:
        """The cells of the first lattice, those beyond them that hold mass, and their sums."""
        sums, width = self.evaluate(cells), self.n * self.step(np.arange(self.integrand.samples))
        np.maximum.at(self.best, sums.owner, sums.top)
        room = self.max_nodes / (self.cells.nodes * self.integrand.branches)
        total = np.full(len(width), -np.inf)
        with np.errstate(divide="ignore"):
            np.logaddexp.at(total, sums.owner, sums.top + np.log(sums.first[:, 0]))
        depth = self.depth + np.log(self.cells.nodes) + FAINT
        floor = np.minimum(self.best - self.depth, total - depth)
        covered = np.bincount(cells.owner, minlength=len(width))
        cells, sums, cut = grown(cells, sums, self.radius, width, floor, depth, room, self.evaluate)
        # No border where there is no mass.
        self.radius[(np.bincount(cells.owner, minlength=len(width)) > covered) & ~cut] = np.inf
        # Where tails go on and on the border tells what they hold, of integrands that are known to have them.
        self.cut_off = cut & (not self.integrand.bordered)
        return cells, sums

    def _holds_mode(self, owner: np.ndarray, corner: np.ndarray) -> np.ndarray:
        """Whether a known maximum lies in a cell or within half a cell of it."""
        width = self.n * self.step(owner)
        place = self.modes[owner] / width[:, None, None] - corner[:, None, :]
        with np.errstate(invalid="ignore"):
            return ((place >= -0.5) & (place <= 1.5)).all(axis=2).any(axis=1)

    def _border(self, cells: Cells, highest: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Owners, highest nodes and widths of the cells at the border of the ball, where mass may go on."""
        width = self.n * self.step(cells.owner)
        far = (np.abs(cells.corner + 0.5) + 0.5) * width[:, None]
        there = np.flatnonzero((far**2).sum(axis=1) > self.radius[cells.owner] ** 2)
        there = there if self.integrand.bordered else there[:0]
        return cells.owner[there], highest[there], width[there]

    # ---- decide --------------------------------------------------------------------------------

    def _edges(self, cells: Cells, keep: np.ndarray, sums: Sums) -> np.ndarray:
        """Which posteriors (S,) have kinks, or sheets that end where there is mass; marks cells to keep on both sides.

        Between the last node that is on a sheet and the next one, which may lie in the next cell, there may be fields.
        """
        edged = np.full(self.integrand.samples, self.integrand.broken or self.integrand.ended)
        edged[cells.owner[keep & sums.cut]] = True
        there = np.isfinite(sums.peak)
        if not there.all():
            heavy = there & (sums.peak > self.left_out.least[cells.owner][:, None])
            dead = np.flatnonzero(~there.all(axis=1))
            for i, j in neighbours(cells, dead):
                ends = (~there[i] & heavy[j]).any(axis=1)
                keep[i[ends]] = True
                edged[cells.owner[i[ends]]] = True
        return edged

    def _error(self, who: np.ndarray, gap: np.ndarray, edged: np.ndarray) -> np.ndarray:
        """Error of each posterior from what its sublattices miss, gap (len(who), A)."""
        # What chance has a part in is no bound.
        self.sure[who] = np.where(edged[who], SURE, 1.0)
        before, measured = self.missed[who], self.measured[who]
        rough, missed = edge_error(gap, before, 0.5)
        self.missed[who] = missed
        smooth = np.where(measured, missed, sublattice_error(gap, self.integrand.dim))
        # What falls no faster than the step has jumped: where cells were left out, or where a step of the output, or a
        # ridge that holds little, is narrower than the lattice's.
        return np.where(edged[who] | (missed > _JUMPED * before), rough, smooth)

    def digest(self, active: np.ndarray, cells: Cells, sums: Sums) -> tuple[np.ndarray, np.ndarray]:
        """Add up the cells of each posterior; returns cells worth refining and which of ``active`` are done."""
        S, d = self.integrand.samples, self.integrand.dim
        who, count = np.unique(cells.owner, return_counts=True)
        self.nodes[who] += count * self.cells.nodes * self.integrand.branches
        gap, own, share = self._add_up(sums)
        total = self.log_norm - d * np.log(self.first_step * 0.5**self.level)
        highest = sums.peak.max(axis=1)
        keep = sums.bound > self.best[cells.owner] - self.depth
        keep |= self.left_out.matters(total[cells.owner], highest)
        before = self.missed[who]
        error = self._error(who, gap, self._edges(cells, keep, sums)) + 10 * np.exp(-self.depth)
        error = np.where(np.isfinite(error), error, np.inf)
        watched = np.flatnonzero(self.narrow[cells.owner] & ~keep)
        keep[watched] = self._holds_mode(cells.owner[watched], cells.corner[watched])
        blind = keep & (sums.change > BLIND)
        error += random_error(gap, share, before) + self.left_out.unseen(
            who, total, cells.owner[blind], sums.bound[blind]
        )
        error += self.left_out.drop(who, total, cells.owner[~keep], highest[~keep])
        self.left_out.go_on(who, total, self.best[who])
        # What the integrand itself misses, no finer lattice finds, nor what lies beyond its border.
        own = own + self.left_out.beyond(who, total, *self._border(cells, highest))
        finest = error <= 0.1 * own
        # Where steps pass by what is known to be there.
        error = np.where(self.level[who] >= self.least_level[who], error + own, np.inf)
        error = np.where(self.cut_off[who], np.inf, error)
        self.error[who] = error
        self.converged[who] = error <= self.rtol
        kept = np.bincount(cells.owner[keep], minlength=S)[who]
        cost = self.nodes[who] + kept * self.cells.nodes * self.integrand.branches * 2**d
        stop = self.converged[who] | (cost > self.max_nodes) | (kept == 0) | finest | self.cut_off[who]
        finished = np.zeros(S, dtype=bool)
        finished[who] = stop
        return keep, finished[active]

    def _add_up(self, sums: Sums) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Moments of each posterior from the sums of its runs; returns (O, A) what sublattices miss, (O,) what the
        integrand itself does, and (O,) the share of the sum that lies in cells that are not resolved."""
        runs = np.flatnonzero(np.r_[True, sums.owner[1:] != sums.owner[:-1]])
        who, top = sums.owner[runs], np.maximum.reduceat(sums.top, runs)
        self.best[who] = np.maximum(self.best[who], top)
        reference = np.zeros(self.integrand.samples)
        reference[who] = np.where(np.isfinite(top), top, 0.0)
        scale = np.exp(np.where(np.isfinite(sums.top), sums.top, -np.inf) - reference[sums.owner])
        first = np.add.reduceat(sums.first * scale[:, None], runs)
        alias = np.add.reduceat(sums.alias * scale[:, None, None], runs)
        inner = np.add.reduceat(sums.inner * scale[:, None, None], runs)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean, gap = means_and_gaps(first, alias)
            share = np.add.reduceat(sums.coarse * scale, runs) / first[:, 0]
            self.mean[who] = mean
            self.log_norm[who] = reference[who] + np.log(first[:, 0]) + self.integrand.dim * np.log(self.step(who))
            if self.cov is not None and sums.second is not None:
                second = np.add.reduceat(sums.second * scale[:, None, None], runs) / first[:, 0, None, None]
                self.cov[who] = second - mean[:, :, None] * mean[:, None, :]
        return gap, inner_error(inner, first[:, 0], mean), share
