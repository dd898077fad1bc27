"""Level sets that are moved along by two coordinates of the fields before, and by directions in closed form.

    Z = f(a, u) + D(a, u) s,   log of the integral over s of N(Z; omega, V) at each a

with a the coefficients of fixed directions of the fields, which are Gaussian in the cavity.  In units of that Gaussian
the integrand lies in a box of +-8; the box is cut down to where it is not negligible, and the trapezoid rule in it
converges like an exponential of the number of nodes: twice as many square the error.  Of a lattice and one of half as
many nodes a side the difference d is the error of the coarser one; what is stated is d^{3/2}, where d is below one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from smisym.base import patience
from smisym.base.counting import counted
from smisym.charts import LevelSet
from smisym.charts.base import Coordinates
from smisym.integrate.averages import Average
from smisym.link.linking import Observation
from smisym.posterior.base import Cavity, Kind, Whitening
from smisym.posterior.coordinate_loops import compiled_lattice, lattice_source
from smisym.posterior.measured import Gaussians

# Half a side of the box, in deviations; nodes a side of the lattices that cut it down, how often, and the log of what
# is negligible: e^-40 of the largest value.
_SIDE, _LOOK, _CUTS, _GONE = 8.5, 18, 4, 40.0
# Error beside the part of the weight that the first of them has on its edge: more of it may lie outside of the box.
_BEYOND = 10.0
# Nodes a side of the lattice, first and at most.
_FIRST, _MOST = 16, 512


class OnTwoCoordinates(Kind):
    """The level set of a chart whose latent coordinates are two, coefficients of ``LevelSet.spread``."""

    smooth = boxed = True

    def __init__(self, level_set: LevelSet, fields: int, tokens: int) -> None:
        self.level_set, self.order = level_set, tuple(range(fields))
        self.dim, self.along = len(level_set.latents), level_set.directions
        assert level_set.spread is not None
        self.spread = level_set.spread.reshape(self.dim, fields, tokens)

    def read(self, observation: Observation) -> Coordinates:
        return self.level_set.coordinates(observation).checked()

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> TwoCoordinates:
        return TwoCoordinates(self.level_set, self.spread, observed.values, Cavity.of(omega, V, self.order))

    def describe(self) -> tuple[str, str]:
        return (
            f"the posterior lives on the level set: two coordinates of the fields before, and "
            f"{counted(self.along, 'direction')} in closed form",
            "the trapezoid rule on a box that is cut down to it",
        )


class TwoCoordinates(Gaussians):
    """The posteriors of one block of samples; u (S, K)."""

    def __init__(self, level_set: LevelSet, spread: np.ndarray, u: np.ndarray, cavity: Whitening) -> None:
        super().__init__(cavity)
        self.level_set, self.spread, self.u = level_set, spread, u

    def take(self, index: np.ndarray) -> TwoCoordinates:
        return TwoCoordinates(self.level_set, self.spread, self.u[index], self.cavity.take(index))

    def sources(self) -> list[str]:
        lattice = lattice_source(self.level_set, *self.omega.shape[1:])
        return [] if lattice is None else [lattice]

    def integral(self, rtol: float, cov: bool, max_nodes: int | None, averaged: bool = False) -> Average:
        found = [self._one(k, rtol, cov, max_nodes or _MOST**2) for k in range(self.samples)]
        log, mean, spread, error, nodes = zip(*found, strict=True) if found else ([], [], [], [], [])
        size = self.residuals
        errors = np.array(error, dtype=float)
        return Average(
            np.array(log, dtype=float) + 0.5 * size * math.log(2 * math.pi),
            np.array(mean, dtype=float).reshape(-1, size),
            np.array(spread, dtype=float).reshape(-1, size, size) if cov else None,
            errors,
            np.array(nodes, dtype=float),
            errors <= rtol,
        )

    def _one(
        self, k: int, rtol: float, cov: bool, most: int
    ) -> tuple[float, np.ndarray, np.ndarray | None, float, int]:
        """(log of the integral, mean, second moments less those of the mean, error, nodes) of one sample."""
        patience.check()
        given = _Given(self, k)
        low, high, spent, cut = np.full(2, -_SIDE), np.full(2, _SIDE), 0, 0.0
        for turn in range(_CUTS):
            lattice = Lattice(low, high, _LOOK)
            log = given.log_at(lattice)
            spent += _LOOK**2
            if not np.isfinite(log.max()):
                return self._nothing(cov, spent)
            cut = cut if turn else lattice.on_the_edge(log)
            within = log > log.max() - _GONE
            before = np.prod(high - low)
            low, high = lattice.around(within)
            if np.prod(high - low) > 0.7 * before:
                break
        side, last = _FIRST, None
        while True:
            total = given.summed(Lattice(low, high, side), cov)
            spent += side**2
            if not np.linalg.norm(total[1]) < _SIDE:
                # So far from what the cavity expects that fields outside of the box may be as likely.
                return *total, math.inf, spent
            if last is not None:
                change = float(np.linalg.norm(total[1] - last[1]) + abs(total[0] - last[0]))
                error = change * min(1.0, math.sqrt(change)) + _BEYOND * cut
                if error <= rtol or 2 * side > _MOST or 4 * side**2 > most:
                    return *total, error, spent
            side, last = 2 * side, total

    def _nothing(self, cov: bool, spent: int) -> tuple[float, np.ndarray, np.ndarray | None, float, int]:
        """Where no node has any weight: an output that the cavity all but excludes, as where iterations diverge."""
        size = self.residuals
        return -math.inf, np.full(size, np.nan), np.full((size, size), np.nan) if cov else None, math.inf, spent


@dataclass(frozen=True)
class Lattice:
    """side nodes along each side of a box from low to high (2,)."""

    low: np.ndarray
    high: np.ndarray
    side: int

    @property
    def step(self) -> np.ndarray:
        return np.asarray((self.high - self.low) / (self.side - 1))

    @property
    def points(self) -> np.ndarray:
        """(side^2, 2)."""
        axes = [np.linspace(a, b, self.side) for a, b in zip(self.low, self.high, strict=True)]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)

    def on_the_edge(self, log: np.ndarray) -> float:
        """Part of the weight exp(log) (side^2,) that is on the outermost nodes."""
        weight = np.exp(log - log.max()).reshape(self.side, self.side)
        return float(1 - weight[1:-1, 1:-1].sum() / weight.sum())

    def around(self, within: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The box, a step wider on each side, of the nodes (side^2,) that are within; inside this one."""
        there = within.reshape(self.side, self.side)
        ends = [np.flatnonzero(there.any(axis=axis))[[0, -1]] for axis in (1, 0)]
        first, last = np.array(ends, dtype=float).T
        low, step = self.low, self.step
        return np.maximum(low + (first - 1) * step, low), np.minimum(low + (last + 1) * step, self.high)


class _Given:
    """The integrand of one sample, at coordinates in units of their deviations."""

    def __init__(self, block: TwoCoordinates, k: int) -> None:
        self.solve, self.u = block.level_set.solve, list(block.u[k])
        self.read, self.directions = np.ascontiguousarray(block.u[k]), block.level_set.directions
        factor, omega = block.factor[k], np.ascontiguousarray(block.omega[k])
        self.inverse, self.omega = np.linalg.inv(factor), omega
        through = np.einsum("kpt,pq->kqt", block.spread, factor).reshape(2, -1)
        self.centre = np.einsum("kpt,pt->k", block.spread, omega)
        self.scale = np.linalg.cholesky(through @ through.T)
        # Of da = scale dx, and of the whitened fields beside dZ.
        self.constant = float(np.log(np.diag(self.scale)).sum()) + omega.shape[1] * float(
            np.linalg.slogdet(self.inverse)[1]
        )
        self.loops = compiled_lattice(block.level_set, *omega.shape)

    def _at(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """log of the integrand (n,), mean of zeta (n, F), directions (n, F, m) and their squares' inverse."""
        a = self.centre + x @ self.scale.T
        sheets = self.solve([], list(a.T), self.u)
        P, T = self.omega.shape

        def whitened(entries: list[np.ndarray], centre: np.ndarray | float) -> np.ndarray:
            table = np.stack([np.broadcast_to(e, len(x)) for e in entries], axis=1).reshape(-1, P, T)
            return (self.inverse @ (table - centre)).reshape(len(x), -1)

        r = whitened(sheets.solved[0], self.omega)
        log = np.broadcast_to(sheets.log_weight[0], len(x)) + self.constant
        if not sheets.directions:
            return log - 0.5 * (r**2).sum(axis=1), r, np.zeros((len(x), r.shape[1], 0)), np.zeros((len(x), 0, 0))
        G = np.stack([whitened(vector, 0.0) for vector in sheets.directions[0]], axis=2)
        square = np.swapaxes(G, 1, 2) @ G
        inverse = _inverse(square)
        along = inverse @ (np.swapaxes(G, 1, 2) @ r[..., None])
        left = r - (G @ along)[..., 0]
        m = G.shape[2]
        log = log - 0.5 * (left**2).sum(axis=1) - 0.5 * _log_det(square) + 0.5 * m * math.log(2 * math.pi)
        return log, left, G, inverse

    def _in_loops(self, lattice: Lattice, wanted: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(logs, what is found, products) of compiled loops (:func:`compiled_lattice`)."""
        assert self.loops is not None
        side, size = lattice.side, self.omega.size
        log, found, second = np.empty((side, side)), np.empty(2 + size), np.empty((size, size))
        constant = self.constant + 0.5 * (self.directions - size) * math.log(2 * math.pi)
        where = (lattice.low, lattice.step, side, self.centre, self.scale, constant)
        self.loops(*where, self.inverse, self.omega, self.read, wanted, log, found, second)
        return log, found, second

    def log_at(self, lattice: Lattice) -> np.ndarray:
        """log of the integrand (side^2,)."""
        if self.loops is not None:
            return self._in_loops(lattice, 0)[0].ravel()
        with np.errstate(all="ignore"):
            log = self._at(lattice.points)[0] - 0.5 * self.omega.size * math.log(2 * math.pi)
        return np.where(np.isfinite(log), log, -np.inf)

    def summed(self, lattice: Lattice, cov: bool) -> tuple[float, np.ndarray, np.ndarray | None]:
        """(log of the integral, mean, second moments less those of the mean)."""
        volume = float(np.log(lattice.step).sum())
        if self.loops is not None:
            _, found, products = self._in_loops(lattice, 2 if cov else 1)
            whole, second = found[2:] / found[1], None
            if cov:
                second = (products + np.triu(products, 1).T) / found[1] - np.outer(whole, whole)
            return float(found[0] + math.log(found[1])) + volume, whole, second
        with np.errstate(all="ignore"):
            log, mean, G, inverse = self._at(lattice.points)
        log = np.where(np.isfinite(log), log - 0.5 * self.omega.size * math.log(2 * math.pi), -np.inf)
        top = log.max()
        weight = np.exp(log - top)
        there = weight > 0
        weight, mean, G, inverse = weight[there], mean[there], G[there], inverse[there]
        total = weight.sum()
        whole, second = weight @ mean / total, None
        if cov:
            off = mean - whole
            own = (G * weight[:, None, None]) @ inverse
            second = (off.T * weight) @ off / total + np.einsum("nim,njm->ij", own, G, optimize=True) / total
        return float(top + math.log(total)) + volume, whole, second


def _inverse(square: np.ndarray) -> np.ndarray:
    """Of symmetric matrices (n, m, m), small ones in closed form."""
    m = square.shape[1]
    if m == 1:
        return 1 / square
    if m == 2:
        turned = np.empty_like(square)
        turned[:, 0, 0], turned[:, 1, 1] = square[:, 1, 1], square[:, 0, 0]
        turned[:, 0, 1] = turned[:, 1, 0] = -square[:, 0, 1]
        return turned / (square[:, 0, 0] * square[:, 1, 1] - square[:, 0, 1] ** 2)[:, None, None]
    return np.linalg.inv(square)


def _log_det(square: np.ndarray) -> np.ndarray:
    m = square.shape[1]
    if m == 1:
        return np.log(square[:, 0, 0])
    if m == 2:
        return np.log(square[:, 0, 0] * square[:, 1, 1] - square[:, 0, 1] ** 2)
    return np.asarray(np.linalg.slogdet(square)[1])
