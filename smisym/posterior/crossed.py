"""A network of which three numbers and more lie on either side of a cut: one lattice of rows meets one of columns.

Behind a cut the first fields g enter bilinearly with the mixed fields U behind it (:mod:`smisym.posterior.chain`),

    p(y) = int dg N(g) |det C(g)|^{-n} sum_columns w(U) N(U C(g)^{-T}; mu(g), V_late|early).

With three dimensions on each side, as three layers on three tokens have, an adaptive lattice of rows, each of which
meets all columns, has too many of both.  Here both are lattices in the shape of what they integrate
(:mod:`smisym.posterior.shaping`), which some hundred nodes resolve: what counts is their sum, not that of each row.
The first pair of lattices is wide and shows where there is mass; finer ones keep near it, and the mean of one pair is
held against the next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smisym.base import patience
from smisym.charts.base import Coordinates
from smisym.integrate.averages import Average
from smisym.integrate.modes import Values
from smisym.integrate.shapes import Nodes, Shape, gaps, kept
from smisym.link.linking import Observation
from smisym.posterior.base import Block, Cavity, Kind, log_whitening
from smisym.posterior.chain import Chained, OnChain
from smisym.posterior.columns import falling
from smisym.posterior.pairing import Paired, Points, Rows, Summed
from smisym.posterior.shaping import Unseen, find_shapes

# Steps of the rows and of the columns, in widths of the shape, level by level.  On three layers and three tokens the
# second pair leaves 1e-3 / 6e-3 (50 / 99 %) at skip 1, Q = (0.3, 0.3, 0.9), 5e-3 / 1.1e-2 at skip 3.
_ROWS = (1.2, 0.95, 0.8, 0.67, 0.56, 0.47, 0.4, 0.33)
_COLUMNS = (1.1, 0.85, 0.72, 0.6, 0.5, 0.42, 0.35, 0.3)
_STEPS = (_ROWS, _COLUMNS)
# How far the first lattices reach in the cavity at first, in standard deviations; by how much farther they reach where
# too much lies beyond, and how often; how wide the two shells are that tell, and what the ratio of their masses is
# taken for at most.
_REACH, _FARTHER, _TIMES, _SHELL, _SLOWEST = 4.6, 1.15, 5, 0.5, 0.8
# How far they reach in standard deviations of what was seen: as far as nodes are few, rows and columns, by dimension,
# but at least and at most.  Scouts may have missed a mode of a hundredth of the mass, seven deviations away.
_NEAREST, _FARTHEST = 5.5, 12.0
_FEW = {3: (1500, 5000), 4: (4000, 20000)}
# Where more than so many times as many nodes stand, none is looked at: the reach falls by a factor first.  Nodes of
# one side at most: where one side has a million, it would meet a hundred of the other.
_MANY, _NEARER = 16, 0.85
_LONGEST = 2**20
# Share of the tolerance that either side may lose, of mass that is left out, and beyond the reach; how far that lies
# from the mean, in standard deviations.
_LEFT_OUT, _BEYOND, _DISTANCE = 0.02, 0.03, 4.0
# A side whose own estimate is less than this share of the other's stays as it is.
_FINE = 0.2
# Error of a pair of lattices, at most, over what it changed or its halves miss: where the skip is 3 one of 32 was off
# by 1.06 times that.
_SAFE = 1.25
# Pairs of one level at most, and how many of them a node of a budget stands for.
_MOST, _PER_NODE = 2**27, 2**12


class OnCrossed(Kind):
    """A noiseless output, by a cut behind which a network with a chart is left; see :class:`OnChain`."""

    smooth = True

    def __init__(self, chain: OnChain) -> None:
        self.chain, self.reduction, self.level_set = chain, chain.reduction, chain.level_set
        self.dim, self.summed = chain.dim, chain.summed

    def read(self, observation: Observation) -> Coordinates:
        return self.chain.read(observation)

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> Crossed:
        cavity = Cavity.of(omega, V, self.chain.order)
        return Crossed(Chained(self.chain, observed.values, cavity), cavity)

    def describe(self) -> tuple[str, str]:
        return self.chain.describe()[
            0
        ], "a lattice of either, in its shape, all nodes of which meet in a matrix product"


class Crossed(Block):
    """The posteriors of one block of samples, over the whitened fields."""

    branches, modeless = 1, True

    def __init__(self, chained: Chained, cavity: Cavity) -> None:
        super().__init__(cavity)
        self.chained = chained
        self.dim, self.residuals = chained.dim, chained.residuals

    def take(self, index: np.ndarray) -> Crossed:
        return Crossed(self.chained.take(index), self.cavity.take(index))  # type: ignore[arg-type]

    @property
    def whitened(self) -> np.ndarray:
        return np.arange(self.dim + self.residuals)

    def log_density(self) -> np.ndarray:
        return log_whitening(self.factor, self.chained.early, self.chained.chain.tokens)

    def sources(self) -> list[str]:
        return self.chained.sources()

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        raise TypeError("rows and columns are summed by integral()")

    def integral(self, rtol: float, cov: bool, max_nodes: int | None, averaged: bool = False) -> Average:
        S, D = self.samples, self.dim + self.residuals
        second = np.full((S, D, D), np.nan) if cov else None
        found = Average(np.full(S, -np.inf), np.full((S, D), np.nan), second, *_unknown(S))
        most = _MOST if max_nodes is None else max_nodes * _PER_NODE
        for k in range(S):
            patience.check()
            one = solve(Paired(self.chained.take(np.array([k]))), rtol, cov, most)
            if one is None:
                continue
            found.log_norm[k], found.mean[k], found.error[k], found.nodes[k] = (
                one.log_norm,
                one.mean,
                one.error,
                one.nodes,
            )
            found.converged[k] = one.error <= rtol
            if found.cov is not None and one.second is not None:
                found.cov[k] = one.second - np.outer(one.mean, one.mean)
        return found


def _unknown(samples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Errors, nodes and convergence of samples of which nothing is known."""
    return np.full(samples, np.inf), np.zeros(samples), np.zeros(samples, dtype=bool)


@dataclass(frozen=True)
class Found:
    """One posterior at some pair of lattices: log of the integral, mean (D,), second moments (D, D) or None; the error
    of the mean, what the sublattices of rows and of columns say of it, and rows met."""

    log_norm: float
    mean: np.ndarray
    second: np.ndarray | None
    error: float
    own: np.ndarray
    nodes: int


@dataclass(frozen=True)
class _Wide:
    """The first pair of lattices, which of their nodes are kept, and what the others lose of the mass."""

    rows: Nodes
    columns: Nodes
    kept_rows: np.ndarray
    kept_columns: np.ndarray
    lost: float


def solve(paired: Paired, rtol: float, cov: bool, most: int) -> Found | None:
    """One posterior, by levels of at most so many pairs; None where nothing was found of it."""
    try:
        shapes = find_shapes(paired)
        wide, found = _first(paired, shapes, rtol, cov, most)
    except (Unseen, np.linalg.LinAlgError):
        return None
    levels = [0, 0]
    while not found.error <= rtol:
        coarse = found.own < _FINE * found.own.max()
        finer = [k if good else k + 1 for k, good in zip(levels, coarse, strict=True)]
        if finer[0] >= len(_ROWS) or finer[1] >= len(_COLUMNS):
            break
        rows = shapes[0].near(wide.rows, wide.kept_rows, _ROWS[finer[0]], _LONGEST)
        columns = shapes[1].near(wide.columns, wide.kept_columns, _COLUMNS[finer[1]], _LONGEST)
        if rows is None or columns is None:
            break
        if len(rows) * len(columns) * paired.chain.level_set.branches > most:
            break
        levels = finer
        now = _meet(paired, rows, columns, cov)
        moved = max(float(np.linalg.norm(now.mean - found.mean)), abs(now.log_norm - found.log_norm))
        # Where halves of the nodes say that it converges slowly, what is left is the rest of a geometric series.
        ratio = min(float(now.own.sum() / found.own.sum()), _SLOWEST)
        moved *= max(1.0, ratio / (1 - ratio))
        aliased = _SAFE * min(float(now.own.sum()), moved + float(now.own[coarse].sum()))
        nodes = found.nodes + len(rows)
        found = Found(now.log_norm, now.mean, now.second, aliased + wide.lost, now.own, nodes)
    return found if np.isfinite(found.mean).all() else None


def _first(paired: Paired, shapes: tuple[Shape, Shape], rtol: float, cov: bool, most: int) -> tuple[_Wide, Found]:
    """The first pair of lattices, as wide as its border asks for."""
    reach = np.array([[_FARTHEST, _REACH]] * 2)
    for turn in range(_TIMES):
        few = _FEW[paired.dim][0] * 2**turn, _FEW[paired.summed][1] * 2**turn
        first = [_few(one, far, steps[0], n) for one, far, steps, n in zip(shapes, reach, _STEPS, few, strict=True)]
        (rows, reach[0, 0]), (columns, reach[1, 0]) = first
        if len(rows) * len(columns) * paired.chain.level_set.branches > most:
            raise Unseen
        placed, points = _placed(paired, rows, columns)
        one, summed = _moments(paired, placed, points, rows, columns, cov)
        mass = [summed.by_row()[0] / summed.by_row()[0].sum(), paired.column_mass(placed, points)]
        beyond = np.array(
            [
                [
                    _beyond(own, region.radius(nodes.points), far)
                    for region, far in zip(shape.regions, ends, strict=True)
                ]
                for own, shape, nodes, ends in zip(mass, shapes, (rows, columns), reach, strict=True)
            ]
        )
        wider = beyond > _BEYOND * rtol
        if turn == _TIMES - 1 or not wider.any():
            break
        reach = np.where(wider, _FARTHER * reach, reach)
    out = _LEFT_OUT * rtol
    chosen = [kept(own, out) for own in mass]
    left = sum(own[~some].sum() for own, some in zip(mass, chosen, strict=True))
    lost = _DISTANCE * float(left + beyond.sum())
    error = float(one.own.sum()) + _DISTANCE * float(beyond.sum())
    return _Wide(rows, columns, chosen[0], chosen[1], lost), Found(
        one.log_norm, one.mean, one.second, error, one.own, len(rows)
    )


def _few(shape: Shape, reach: np.ndarray, step: float, most: int) -> tuple[Nodes, float]:
    """The nodes of a wide lattice, and how far it reaches in standard deviations of what was seen."""
    far, nodes = float(reach[0]), None
    while nodes is None:
        last = far <= _NEAREST
        nodes = shape.within(np.r_[far, reach[1:]], step, _LONGEST if last else _MANY * most)
        if nodes is None and last:
            raise Unseen
        if nodes is None:
            far = max(_NEAREST, _NEARER * far)
    if len(nodes) <= most or far <= _NEAREST:
        return nodes, far
    radius = shape.regions[0].radius(nodes.points)
    nearer = max(_NEAREST, float(np.partition(radius, most)[most]))
    return nodes.take(radius <= nearer), nearer


def _beyond(mass: np.ndarray, radius: np.ndarray, reach: float) -> float:
    """What lies beyond a lattice, from what its two outermost shells hold: the masses of shells fall geometrically, or
    faster."""
    inner, outer = (mass[(radius > reach - k * _SHELL) & (radius <= reach - (k - 1) * _SHELL)].sum() for k in (2, 1))
    ratio = min(outer / inner, _SLOWEST) if inner > 0 else _SLOWEST
    return float(outer * ratio / (1 - ratio))


def _placed(paired: Paired, rows: Nodes, columns: Nodes) -> tuple[Rows, Points]:
    return paired.rows(rows.points, rows.log_volume), paired.columns(columns.points, columns.log_volume)


def _meet(paired: Paired, rows: Nodes, columns: Nodes, cov: bool) -> Found:
    return _moments(paired, *_placed(paired, rows, columns), rows, columns, cov)[0]


def _moments(
    paired: Paired, placed: Rows, points: Points, rows: Nodes, columns: Nodes, cov: bool
) -> tuple[Found, Summed]:
    """Moments by a pair of lattices, without an error, and the sums that they are made of."""
    summed = paired.summed_up(placed, points, columns.parity, cov)
    by_row = summed.by_row()
    total = by_row.sum(axis=1)
    sets = np.stack([by_row[:, rows.parity == p].sum(axis=1) for p in range(2**paired.dim)])
    own = np.array([falling(gaps(one)).sum() for one in (sets, summed.sums.sum(axis=2))])
    second = None if summed.products is None else summed.products / total[0]
    log_norm = float(np.log(total[0]) + summed.top)
    return Found(log_norm, total[1:] / total[0], second, np.inf, own, len(rows)), summed
