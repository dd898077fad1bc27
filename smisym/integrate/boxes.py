"""Posteriors on boxes of a fixed number of nodes, in one program for an accelerator: no branch, no list of cells.

The trapezoid rule of :mod:`smisym.integrate.quadrature` on the whole box around a posterior, with the same bounds on
what its cells hold and the same errors, from the sublattices of half the density.  Where these are above the tolerance
a finer box closes in on the cells that hold mass.  What misses it even so is left to the adaptive lattice.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from smisym.base import patience
from smisym.base.accelerators import jax, on_processor, wide
from smisym.base.backends import JAX, backend
from smisym.base.remembered import Remembered
from smisym.integrate.accuracy import BOXES, RESOLVED, Box
from smisym.integrate.averages import SURE, Average
from smisym.integrate.cells import (
    FAR,
    blurred,
    edge_error,
    means_and_gaps,
    measured,
    parity_signs,
    random_error,
    sublattice_error,
)
from smisym.integrate.left_out import BLIND, DISTANCE, FAINT
from smisym.integrate.modes import Integrand, probe, radius_of_mass
from smisym.integrate.sums import BLURRED
from smisym.kernels.jax_code import NotOnDevice, jax_function
from smisym.kernels.points import PointProgram

# Points of one call: on a processor those whose numbers fit its cache, elsewhere enough to fill it.
_POINTS = {True: 2**16, False: 2**24}
# Samples of one call at most; on a processor no block of the accuracy plan has more.
_SAMPLES = {True: 1024, False: 4096}

_PROGRAMS: Remembered[Any] = Remembered(64)


def at_once() -> int:
    """Samples that an accelerator, where JAX finds one, takes in one call; 1 for a processor."""
    return 1 if backend().name != JAX or on_processor() else _SAMPLES[False]


class Told(NamedTuple):
    """What is told of N samples: of sums over their boxes, relative to exp(top), and where their mass is."""

    top: np.ndarray  # (N,) largest exponent
    first: np.ndarray  # (N, 1 + D, 2, ..., 2) sums of 1, zeta over the nodes of each parity, axis by axis
    second: np.ndarray  # (N, D (D + 1) / 2) sums of products of zeta, row by row; empty where not asked for
    edged: np.ndarray  # (N,) whether sheets end where there is mass
    coarse: np.ndarray  # (N,) sum of 1 over cells that are not resolved
    unseen: np.ndarray  # (N,) what cells hold at most whose nodes may pass by a ridge
    outside: np.ndarray  # (N,) what cells outside of the next box hold by their highest nodes
    low: np.ndarray  # (N, d) corners of the box around the cells that may hold mass
    high: np.ndarray


def on_boxes(integrand: Integrand, rtol: float, cov: bool, depth: float, max_nodes: float) -> Average | None:
    """Averages of a batch, converged or not; None where the backend is not JAX, or has not all that is called."""
    if backend().name != JAX or integrand.dim not in BOXES or not integrand.residuals:
        return None
    found = integrand.points()
    if found is None:
        return None
    state = BoxState(integrand, rtol, cov, depth)
    active = state.begin()
    for box in BOXES[integrand.dim]:
        run = box_program(found[0], box, cov)
        if run is None:
            return None
        cost = box.side**integrand.dim * integrand.branches
        active = active[state.nodes[active] + cost <= max_nodes]
        if not active.size:
            break
        told = run(found[1][active], state.low[active], state.high[active], state.best[active], depth)
        state.nodes[active] += cost
        active = active[state.digest(active, box, told)]
    return state.average()


class BoxState:
    """Running results for a batch, of boxes that are made in turn."""

    def __init__(self, integrand: Integrand, rtol: float, cov: bool, depth: float) -> None:
        S, d, D = integrand.samples, integrand.dim, integrand.dim + integrand.residuals
        self.integrand, self.rtol, self.depth = integrand, rtol, depth
        self.signs = parity_signs(np.array(list(itertools.product((0, 1), repeat=d))))
        self.best, self.missed = np.full(S, -np.inf), np.full(S, np.inf)
        self.low, self.high, self.step = np.zeros((S, d)), np.zeros((S, d)), np.ones((S, d))
        self.log_norm, self.mean = np.full(S, np.nan), np.full((S, D), np.nan)
        self.cov = np.full((S, D, D), np.nan) if cov else None
        self.error, self.nodes, self.sure = np.full(S, np.inf), np.zeros(S), np.ones(S)
        # Log of what is left out of the box, and of those before.
        self.outside = np.full(S, -np.inf)

    def begin(self) -> np.ndarray:
        """The samples of which a box of this many nodes may hold the mass: not those too narrow for the probe."""
        S = self.integrand.samples
        self.best, weight = probe(self.integrand, np.arange(S))
        around = radius_of_mass(self.integrand, np.arange(S), self.best, weight, self.depth)
        active = np.flatnonzero(
            np.isfinite(self.best) & (around <= FAR * np.sqrt(2 * self.depth)) & ~measured(self.integrand, self.rtol)
        )
        self.high[active] = around[active, None]
        self.low = -self.high
        return active

    def digest(self, who: np.ndarray, box: Box, told: Told) -> np.ndarray:
        """Take over what was told of these samples; returns which of them (len(who),) another box may help."""
        d, D = self.integrand.dim, self.mean.shape[1]
        step = (self.high[who] - self.low[who]) / box.side
        parities = told.first.reshape(len(who), 1 + D, 2**d)
        first, volume = parities.sum(axis=2), np.log(step).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean, gap = means_and_gaps(first, np.swapaxes(parities @ self.signs.T, 1, 2))
            log_norm = told.top + np.log(first[:, 0]) + volume
            coarse, unseen = told.coarse / first[:, 0], told.unseen / first[:, 0]
            lost = np.exp(self.outside[who] - log_norm)
            self.outside[who] = np.logaddexp(self.outside[who], told.top + np.log(told.outside) + volume)
        before, finer = self.missed[who], (step / self.step[who]).max(axis=1)
        rough, self.missed[who] = edge_error(gap, before, finer)
        self.step[who] = step
        edged = told.edged | self.integrand.broken
        error = np.where(edged, rough, sublattice_error(gap, d)) + 10 * np.exp(-self.depth)
        error += random_error(gap, coarse, before, 1 / finer) + np.minimum(DISTANCE * unseen, 1.0) + DISTANCE * lost
        error = np.where(np.isfinite(error), error, np.inf)
        better = error < self.error[who]
        mine = who[better]
        self.error[mine], self.mean[mine], self.log_norm[mine] = error[better], mean[better], log_norm[better]
        self.sure[mine] = np.where(edged, SURE, 1.0)[better]
        if self.cov is not None:
            rows, columns = np.triu_indices(D)
            second = told.second[better] / first[better, :1]
            second -= mean[better][:, rows] * mean[better][:, columns]
            self.cov[mine[:, None], rows, columns] = self.cov[mine[:, None], columns, rows] = second
        self.best[who] = np.maximum(self.best[who], told.top)
        self.low[who], self.high[who] = told.low, told.high
        return np.asarray((self.error[who] > self.rtol) & (told.high > told.low).all(axis=1))

    def average(self) -> Average:
        return Average(
            self.log_norm, self.mean, self.cov, self.error, self.nodes, self.error <= self.rtol, sure=self.sure
        )


# ----------------------------------------------------------------------------------------------------- on the device


def box_program(point: PointProgram, box: Box, cov: bool) -> Callable[..., Told] | None:
    """``run(numbers, low, high, best, depth)`` of any number of samples; None where JAX has not all that it calls."""

    def make() -> tuple[PointProgram, Callable[..., Told] | None]:
        try:
            return point, _in_batches(jax().jit(box_function(point, box, cov)), point.dim, box)
        except NotOnDevice:
            return point, None

    return _PROGRAMS.get((id(point), box, cov), make)[1]


def _in_batches(run: Callable[..., Any], dim: int, box: Box) -> Callable[..., Told]:
    """The same in batches of one size, so that it is compiled once."""

    def batches(numbers: np.ndarray, low: np.ndarray, high: np.ndarray, best: np.ndarray, depth: float) -> Told:
        here = on_processor()
        size = int(np.clip(_POINTS[here] // box.side**dim, 1, _SAMPLES[here]))
        parts = []
        with wide():
            for start in range(0, len(numbers), size):
                patience.check()
                # The last batch is filled up with its first sample.
                which = np.arange(start, start + size)
                which[which >= len(numbers)] = start
                parts.append(run(numbers[which], low[which], high[which], best[which], depth))
            joined = [np.concatenate([np.asarray(part[k]) for part in parts]) for k in range(len(Told._fields))]
        return Told(*(values[: len(numbers)] for values in joined))

    return batches


def box_function(point: PointProgram, box: Box, cov: bool) -> Callable[..., Told]:
    """What :class:`Told` says of N samples, as a function that JAX compiles: of numbers (N, k), corners low and high
    (N, d) of boxes, best (N,) largest exponents known, and depth, a number."""
    function = jax_function(point.program)
    d, B, m, nodes = point.dim, point.branches, point.residuals, (box.side,) * point.dim
    axes = tuple(range(1, 1 + d))

    def told(numbers: Any, low: Any, high: Any, best: Any, depth: Any) -> Told:
        np_ = jax().numpy
        N = len(numbers)
        step = (high - low) / box.side
        places = [low[:, i, None] + (np_.arange(box.side) + 0.5) * step[:, i, None] for i in range(d)]
        x = [_on_axis(place, i, d) for i, place in enumerate(places)]
        values = function(*x, *(_each(numbers[:, q], d) for q in range(point.parameters)))
        values = np_.stack([np_.broadcast_to(value, (N, *nodes)) for value in values], axis=1)
        r, log_weight, along = np_.split(values, [B * m, B * m + point.weights], axis=1)
        r, along = r.reshape(N, B, m, *nodes), along.reshape(N, B, point.directions, m, *nodes)
        square = (r * r).sum(axis=2) + sum(value * value for value in x)[:, None]
        exponent = log_weight - 0.5 * square
        exponent = np_.where(np_.isfinite(exponent), exponent, -np_.inf)
        r, along = np_.where(np_.isfinite(r), r, 0.0), np_.where(np_.isfinite(along), along, 0.0)
        top = exponent.max(axis=(1, *(1 + a for a in axes)))
        reference = _each(np_.where(np_.isfinite(top), top, 0.0), d)
        w = np_.exp(exponent - reference[:, None])
        first, second = _sums(x, r, along, w, cov)
        best = _each(np_.maximum(best, top), d)
        # What every node of a cell that holds all of the sum would have: broad maxima beside narrow ones count by it.
        even = _each(np_.log(w.sum(axis=(1, *(1 + a for a in axes))) / box.cell**d), d) + reference
        least = np_.minimum(best, even) - depth - FAINT
        cells = _cells(box, low, step, r, np_.where(np_.isnan(log_weight), -np_.inf, log_weight), exponent, least)
        keep = (cells.bound > best - depth) | (cells.highest > even - depth - FAINT) | cells.ends
        edged = ((keep & cells.cut) | cells.ends).any(axis=axes)
        mass = _by_cells(w.sum(axis=1), box, d).sum(axis=_inside(d))
        coarse = (blurred(cells.change, d, np_) * mass).sum(axis=axes)
        share = np_.exp(np_.minimum(cells.bound - reference, 50.0)) * box.cell**d
        unseen = np_.where(keep & (cells.change > BLIND), share, 0.0).sum(axis=axes)
        inner, outer, within = _around(keep)
        held = np_.exp(cells.highest - reference) * box.cell**d
        outside = np_.where(within, 0.0, held).sum(axis=axes)
        width = box.cell * step
        corners = low + inner * width, low + outer * width
        return Told(top, first, second, edged, coarse, unseen, outside, *corners)

    return told


def _each(values: Any, d: int) -> Any:
    """(N,) as (N, 1, ..., 1), to broadcast with d axes."""
    return values.reshape(len(values), *[1] * d)


def _on_axis(values: Any, axis: int, d: int) -> Any:
    """(N, n) as (N, 1, ..., n, ..., 1), along one of d axes."""
    return values.reshape(len(values), *(values.shape[1] if a == axis else 1 for a in range(d)))


def _sums(x: Any, r: Any, along: Any, w: Any, cov: bool) -> tuple[Any, Any]:
    """Sums of 1 and zeta by parity, and of products of zeta; x: d arrays, r (N, B, m, ...), along (N, B, k, m, ...), w
    (N, B, ...)."""
    np_ = jax().numpy
    d, (N, _, m, *nodes) = len(x), r.shape
    own = np_.stack([np_.broadcast_to(value, (N, *nodes)) for value in x], axis=1)
    mass = w.sum(axis=1)[:, None]
    weighted = np_.concatenate([mass, mass * own, (w[:, :, None] * r).sum(axis=1)], axis=1)
    halves = [n for side in nodes for n in (side // 2, 2)]
    first = weighted.reshape(N, -1, *halves).sum(axis=tuple(range(2, 2 + 2 * d, 2)))
    if not cov:
        return first, np_.zeros((N, 0))
    second = []
    for a, b in itertools.combinations_with_replacement(range(d + m), 2):
        if a < d:
            product = own[:, a] * weighted[:, 1 + b]
        else:
            # Unit variance along each direction that was integrated in closed form.
            products = r[:, :, a - d] * r[:, :, b - d] + (along[:, :, :, a - d] * along[:, :, :, b - d]).sum(axis=2)
            product = (w * products).sum(axis=1)
        second.append(product.sum(axis=tuple(range(1, 1 + d))))
    return first, np_.stack(second, axis=1)


class _Cells(NamedTuple):
    """Of each cell (N, C, ..., C), as the adaptive lattice has them.

    bound: of log f, from above.  change: the largest of a residual between neighbouring nodes.  highest: log f.  cut,
    ends: whether a sheet that matters ends in it, or beside it.
    """

    bound: Any
    change: Any
    highest: Any
    cut: Any
    ends: Any


def _cells(box: Box, low: Any, step: Any, r: Any, log_weight: Any, exponent: Any, least: Any) -> _Cells:
    np_ = jax().numpy
    d, C = low.shape[1], box.side // box.cell
    inside = _inside(d)

    def cells(values: Any) -> Any:
        return _by_cells(values, box, d)

    lows, highs = cells(r).min(axis=inside), cells(r).max(axis=inside)
    widest = (highs - lows).max(axis=(1, 2))
    steps = [abs(np_.diff(cells(r), axis=a)).max(axis=inside).max(axis=(1, 2)) for a in inside]
    change = functools.reduce(np_.maximum, steps, widest / (box.cell - 1))
    margin = 0.5 / (box.cell - 1) + np_.where(change <= RESOLVED, 0.05, np_.where(widest < BLURRED, 0.25, 1.5))
    room = margin[:, None, None] * (highs - lows)
    gap = np_.maximum(np_.maximum(lows - room, -highs - room), 0.0)
    held = cells(log_weight).max(axis=inside) - 0.5 * (gap**2).sum(axis=2)
    width = box.cell * step
    centres = low[:, :, None] + (np_.arange(C) + 0.5) * width[:, :, None]
    near = np_.maximum(abs(centres) - 0.5 * width[:, :, None], 0.0) ** 2
    bound = held.max(axis=1) + 1.0 - 0.5 * sum(_on_axis(near[:, i], i, d) for i in range(d))
    peak, lowest = cells(exponent).max(axis=inside), cells(exponent).min(axis=inside)
    heavy = peak > least[:, None]
    cut = (heavy & (lowest == -np_.inf)).any(axis=1)
    ends = (_beside(heavy, d) & (peak == -np_.inf)).any(axis=1)
    return _Cells(bound, change, peak.max(axis=1), cut, ends)


def _by_cells(values: Any, box: Box, d: int) -> Any:
    """(..., n, ..., n) over nodes as (..., C, n / C, ..., C, n / C)."""
    return values.reshape(*values.shape[:-d], *[box.side // box.cell, box.cell] * d)


def _inside(d: int) -> tuple[int, ...]:
    """The axes of :func:`_by_cells` that are those of nodes in a cell."""
    return tuple(range(-2 * d + 1, 0, 2))


def _beside(marked: Any, d: int) -> Any:
    """Whether a cell, or one that touches it, is marked; the last d axes are those of cells."""
    np_ = jax().numpy
    for axis in range(-d, 0):
        rows = np_.moveaxis(marked, axis, 0)
        none = np_.zeros_like(rows[:1])
        rows = rows | np_.concatenate([none, rows[:-1]]) | np_.concatenate([rows[1:], none])
        marked = np_.moveaxis(rows, 0, axis)
    return marked


def _around(keep: Any) -> tuple[Any, Any, Any]:
    """The first cell that is kept along each axis (N, d), and the one behind the last, equal where none is; and which
    cells lie between."""
    np_ = jax().numpy
    first, last, within = [], [], True
    d = keep.ndim - 1
    for axis in range(d):
        rows = keep.any(axis=tuple(1 + a for a in range(d) if a != axis))
        some, count = rows.any(axis=1), rows.shape[1]
        first.append(np_.where(some, np_.argmax(rows, axis=1), 0))
        last.append(np_.where(some, count - np_.argmax(rows[:, ::-1], axis=1), 0))
        places = np_.arange(count)
        between = (places >= first[-1][:, None]) & (places < last[-1][:, None])
        within = within & _on_axis(between, axis, d)
    return np_.stack(first, axis=1), np_.stack(last, axis=1), within
