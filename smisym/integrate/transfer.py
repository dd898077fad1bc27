"""Integrals along a chain whose links are a few numbers: tables over these, and products of matrices.

A chain of blocks z_1, ..., z_n, each standard normal, acts on its end through states s_k = f_k(s_{k-1}, z_k) of one or
two numbers.  A function of s_k is known by its values at the nodes of Chebyshev grids, which it is a polynomial
through; so the step from s_{k-1} to s_k is a matrix from grid to grid,

    P[i, j] = sum_q w_q phi_j(f(s_i, z_q)),

with z inserted another one, and every moment of all blocks is a product of these from the start to the end.  The last
block needs no table: what follows it is summed at each of its nodes (:class:`End`).  The cost is linear in the number
of blocks.  Nothing here knows what the blocks and the states are.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

# Range of a coordinate, relative, below which it is one number.
_POINT = 1e-13
# Numbers of one array that are held at once: what stays in the cache.
_CACHED = 65536
# Bins in which shares are counted along each coordinate of a state.
_BINS = 64
# Angle between the axes of a lattice and those of its block.
_TURN = 0.36


@cache
def _cosines(n: int) -> np.ndarray:
    """(n, n): from values at the n Chebyshev nodes of the first kind to coefficients."""
    k = np.arange(n)
    out = np.cos(np.pi * k[:, None] * (k + 0.5) / n) * 2 / n
    out[0] *= 0.5
    return np.asarray(out)


@cache
def _lower(n: int) -> np.ndarray:
    """(n, n): from values at the n Chebyshev nodes to those without the highest degrees, a quarter of them."""
    k, at = np.arange(max(n - max(2, n // 4), 1)), np.arange(n) + 0.5
    return np.asarray(np.cos(np.pi * k * at[:, None] / n) @ _cosines(n)[k])


@dataclass(frozen=True)
class Grid:
    """A Chebyshev grid in a box: counts (n_a,) of nodes, low and high (m,).  One node where the box has no width."""

    low: np.ndarray
    high: np.ndarray
    counts: tuple[int, ...]

    @classmethod
    def over(cls, low: np.ndarray, high: np.ndarray, side: int) -> Grid:
        """The grid with ``side`` nodes along each axis of a box (m,), (m,)."""
        wide = high - low > _POINT * np.maximum(np.abs(low), np.abs(high))
        return cls(low, high, tuple(side if w else 1 for w in wide))

    @property
    def size(self) -> int:
        return int(np.prod(self.counts))

    def nodes(self) -> np.ndarray:
        """(m, size): the first axis slowest."""
        axes = []
        for low, high, n in zip(self.low, self.high, self.counts, strict=True):
            axes.append(0.5 * (low + high) + 0.5 * (high - low) * np.cos(np.pi * (np.arange(n) + 0.5) / n))
        return np.stack(np.meshgrid(*axes, indexing="ij")).reshape(len(axes), -1)

    def polynomials(self, points: np.ndarray) -> list[np.ndarray]:
        """Chebyshev polynomials (n_a, ...) of each coordinate at points (m, ...); at the border for those beyond."""
        found = []
        for x, low, high, n in zip(points, self.low, self.high, self.counts, strict=True):
            out = np.empty((n, *x.shape))
            out[0] = 1.0
            if n > 1:
                np.multiply(x - 0.5 * (low + high), 2 / (high - low), out=out[1])
                np.clip(out[1], -1.0, 1.0, out=out[1])
                double = 2.0 * out[1]
            for k in range(2, n):
                np.multiply(double, out[k - 1], out=out[k])
                out[k] -= out[k - 2]
            found.append(out)
        return found

    def lowered(self, values: np.ndarray) -> np.ndarray:
        """Values (size,) at the nodes without the highest degrees of the polynomial through them, a quarter."""
        values = values.reshape(self.counts)
        for a, n in enumerate(self.counts):
            values = np.moveaxis(np.tensordot(_lower(n), values, axes=(1, a)), 0, a)
        return values.reshape(-1)

    def to_polynomials(self, values: np.ndarray) -> np.ndarray:
        """Coefficients (n_1, ...) of Chebyshev polynomials of a function known at the nodes (size,)."""
        values = values.reshape(self.counts)
        for a, n in enumerate(self.counts):
            values = np.moveaxis(np.tensordot(_cosines(n), values, axes=(1, a)), 0, a)
        return values

    def to_nodes(self, sums: np.ndarray) -> np.ndarray:
        """(..., size) of the polynomials through single nodes from sums (..., n_1, ...) of Chebyshev polynomials."""
        before = sums.ndim - len(self.counts)
        for a, n in enumerate(self.counts):
            sums = np.moveaxis(np.tensordot(sums, _cosines(n), axes=(before + a, 0)), -1, before + a)
        return sums.reshape(*sums.shape[:before], self.size)


@dataclass(frozen=True)
class Rule:
    """Nodes z (d, K) and weights (K,) for one block, the density of the standard normal among them (without 2 pi)."""

    nodes: np.ndarray
    weights: np.ndarray
    step: float

    @classmethod
    def lattice(cls, low: np.ndarray, high: np.ndarray, step: float, radius: float) -> Rule:
        """The trapezoid rule in a box (d,) and a ball.

        The lattice is turned: where functions are steep along lines on which coordinates vanish or agree, as those of
        attention are, one along the axes has whole rows of nodes on the same side, and errs by a whole step.
        """
        turned = _turns(len(low))
        centre, half = 0.5 * (low + high), 0.5 * (high - low)
        # The box around the box, along the axes of the lattice.
        middle, reach = turned.T @ centre, np.abs(turned.T) @ half
        reach = np.minimum(middle + reach, radius), np.maximum(middle - reach, -radius)
        axes = [(np.arange(np.floor(a / step), np.ceil(b / step)) + 0.5) * step for b, a in zip(*reach, strict=True)]
        grid = np.stack(np.meshgrid(*axes, indexing="ij")).reshape(len(axes), -1)
        grid = grid[:, (grid * grid).sum(axis=0) <= radius * radius]
        z = turned @ grid
        z = z[:, ((z >= low[:, None]) & (z <= high[:, None])).all(axis=0)]
        return cls(z, np.exp(-0.5 * (z * z).sum(axis=0)) * step ** len(z), step)

    @property
    def dim(self) -> int:
        return len(self.nodes)

    def features(self, pairs: bool) -> np.ndarray:
        """(F, K): weights times 1, z, and the products of two z's where asked for."""
        z = self.nodes
        rows = [np.ones(z.shape[1]), *z]
        if pairs:
            rows += [z[a] * z[b] for a, b in itertools.combinations_with_replacement(range(len(z)), 2)]
        return np.stack(rows) * self.weights


@cache
def _turns(dim: int) -> np.ndarray:
    """(dim, dim): a rotation, by the same angle in as many planes as couple all axes."""
    out, c, s = np.eye(dim), np.cos(_TURN), np.sin(_TURN)
    for apart in (1, 2):
        for a in range(dim - apart):
            if apart == 1 and a % 2:
                continue
            plane = np.eye(dim)
            plane[a, a] = plane[a + apart, a + apart] = c
            plane[a, a + apart], plane[a + apart, a] = -s, s
            out = out @ plane
    return out


@dataclass(frozen=True)
class Transfer:
    """One step of the chain: P (F, M, M') for 1, z and maybe pairs.

    grids: those that the next state may lie in, whose nodes are M' one after the other.  points: the next state from
    each of M states, at each of the rule's nodes, (m, M, K).  place (M, K): which grid it lies in, -1 for none of them,
    where nothing is carried on.
    """

    grids: tuple[Grid, ...]
    rule: Rule
    matrices: np.ndarray
    points: np.ndarray
    place: np.ndarray

    @classmethod
    def of(cls, grids: tuple[Grid, ...], rule: Rule, points: np.ndarray, place: np.ndarray, pairs: bool) -> Transfer:
        features = rule.features(pairs)
        found = [grid.to_nodes(_carried(grid, points, place == g, features)) for g, grid in enumerate(grids)]
        return cls(grids, rule, found[0] if len(found) == 1 else np.concatenate(found, axis=2), points, place)

    def shares(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """(M, K): share of each state and node, without normalisation, given messages (M,) and (M',)."""
        found = np.zeros(self.place.shape)
        starts = np.cumsum([0, *(grid.size for grid in self.grids)])
        for g, grid in enumerate(self.grids):
            values = grid.to_polynomials(after[starts[g] : starts[g + 1]])
            for some in _blocks(len(before), self.rule.nodes.shape[1] * max(grid.counts)):
                own = grid.polynomials(self.points[:, some])
                at = np.tensordot(values, own[-1], axes=1)
                if len(own) == 2:
                    at = (at * own[0]).sum(axis=0)
                found[some] += np.where(self.place[some] == g, at, 0.0)
        return found * before[:, None] * self.rule.weights

    def spread(self, shares: np.ndarray, least: float) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each grid bounds (m,), (m,) beyond each of which lies a share below ``least``; infinite where the grid
        ends before there is that little."""
        found = []
        for g, grid in enumerate(self.grids):
            mine = self.place == g
            low, high = np.full(len(grid.low), -np.inf), np.full(len(grid.low), np.inf)
            for a, n in enumerate(grid.counts):
                width = (grid.high[a] - grid.low[a]) / _BINS
                if n == 1 or not width > 0:
                    continue
                at = ((self.points[a][mine] - grid.low[a]) / width).astype(int)
                held = np.bincount(np.clip(at, 0, _BINS - 1), weights=shares[mine], minlength=_BINS)
                kept = (np.cumsum(held) > least) & (np.cumsum(held[::-1])[::-1] > least)
                if kept.any():
                    (inside,) = np.nonzero(kept)
                    first, last = int(inside[0]) - 1, int(inside[-1]) + 2
                    low[a] = grid.low[a] + width * first if first > 0 else -np.inf
                    high[a] = grid.low[a] + width * last if last < _BINS else np.inf
            found.append((low, high))
        return found

    def lowest(self, shares: np.ndarray) -> float:
        """Share of what lies in the lowest bin of the first coordinate of each grid."""
        held = 0.0
        for g, grid in enumerate(self.grids):
            near = self.points[0] < grid.low[0] + (grid.high[0] - grid.low[0]) / _BINS
            held += float(shares[near & (self.place == g)].sum())
        return held

    def lowered(self, after: np.ndarray) -> np.ndarray:
        """A message (M',) without the highest degrees, a quarter: tables miss less than that changes."""
        parts = np.split(after, np.cumsum([grid.size for grid in self.grids])[:-1])
        return np.concatenate([grid.lowered(part) for grid, part in zip(self.grids, parts, strict=True)])


def _carried(grid: Grid, points: np.ndarray, mine: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Sums (F, M, n_1, ...) over the nodes of features (F, K) times Chebyshev polynomials at points (m, M, K)."""
    M, K = mine.shape
    sums, everywhere = np.empty((len(features), M, *grid.counts)), bool(mine.all())
    for some in _blocks(M, K * max(grid.counts)):
        own = grid.polynomials(points[:, some])
        if not everywhere:
            own[0] *= mine[some]
        first = own[0].transpose(1, 0, 2)  # (M, n, K)
        if len(own) == 1:
            sums[:, some] = np.moveaxis(first @ features.T, -1, 0)
            continue
        # All features side by side: one product of matrices for each state.
        second = features[:, None, None, :] * own[1]  # (F, n, M, K)
        F, n, few, _ = second.shape
        product = np.matmul(first, second.reshape(F * n, few, K).transpose(1, 2, 0))
        sums[:, some] = product.reshape(few, -1, F, n).transpose(2, 0, 1, 3)
    return sums


def _blocks(states: int, each: int) -> list[slice]:
    """States a few at a time, so that what is computed of them stays in the cache."""
    few = max(1, _CACHED // each)
    return [slice(i, min(i + few, states)) for i in range(0, states, few)]


@dataclass(frozen=True)
class End:
    """What stands at the end, given each of M states: weights (M,), relative to exp(top); means (m, M) of its numbers
    r, and (m, m, M) of r r^T, or None."""

    weights: np.ndarray
    first: np.ndarray
    second: np.ndarray | None
    top: float = 0.0

    @classmethod
    def summed(cls, rule: Rule, log_weight: np.ndarray, first: np.ndarray, second: np.ndarray | None) -> End:
        """Of a last block and of numbers r that follow it: log-weights (M, K) at its nodes, means (m, M, K) of r there
        and of r r^T; its z come before r."""
        top = float(log_weight.max())
        M, K = log_weight.shape
        w = np.exp(log_weight - top) * rule.weights if np.isfinite(top) else np.zeros((M, K))
        total = w.sum(axis=1)
        # Where a state has no weight, its means count for nothing.
        share = w / np.where(total > 0, total, 1.0)[:, None]
        z, d = rule.nodes, rule.dim
        mean = np.concatenate([z @ share.T, np.stack([(share * r).sum(axis=1) for r in first])])
        if second is None:
            return cls(total, mean, None, top)
        m = len(first)
        pairs = np.empty((d + m, d + m, M))
        pairs[:d, :d] = (z[:, None] * z[None]) @ share.T
        for a in range(m):
            weighted = share * first[a]
            pairs[:d, d + a] = pairs[d + a, :d] = z @ weighted.T
            for b in range(a + 1):
                pairs[d + a, d + b] = pairs[d + b, d + a] = (share * second[a, b]).sum(axis=1)
        return cls(total, mean, pairs, top)

    @classmethod
    def joined(cls, parts: Sequence[End]) -> End:
        """The ends of some states and of others."""
        top = max(part.top for part in parts)
        weights = [part.weights * np.exp(part.top - top) for part in parts if np.isfinite(top)]
        if not weights:
            weights = [part.weights for part in parts]
        seconds = [part.second for part in parts if part.second is not None]
        second = np.concatenate(seconds, axis=2) if seconds else None
        return cls(np.concatenate(weights), np.concatenate([part.first for part in parts], axis=1), second, top)


@dataclass(frozen=True)
class Passed:
    """Sums along a chain: the total, the mean (D,) of all blocks and of r, their second moments (D, D) or None;
    messages from both sides, before each step and after the last."""

    total: float
    mean: np.ndarray
    second: np.ndarray | None
    forward: list[np.ndarray]
    backward: list[np.ndarray]


def passed(steps: Sequence[Transfer], end: End) -> Passed:
    """Forward and backward along the chain."""
    backward = _backward(steps, end.weights, lowered=False)
    forward = [np.ones(1)]
    for step in steps:
        forward.append(forward[-1] @ step.matrices[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = _mean(steps, end, forward, backward)
        second = None if end.second is None else _second(steps, end, forward, backward) / backward[0][0]
    return Passed(float(backward[0][0]), mean, second, forward, backward)


def missed_by_tables(steps: Sequence[Transfer], end: End, whole: Passed) -> float:
    """What the highest degrees of all tables, a quarter of them, add to the mean, and to the log of the total.

    Two of them told too little where functions have a corner near the grid (four layers, c = 0.3, one sample in 32).
    """
    backward = _backward(steps, end.weights, lowered=True)
    if not backward[0][0] > 0:
        return float("inf")
    # The messages forward are sums over nodes: what is carried on to a table without its highest degrees.
    forward = [np.ones(1)]
    numbers = [end.weights * r for r in end.first]
    for step in steps:
        forward.append(forward[-1] @ step.matrices[0])
    means = [
        forward[k] @ step.matrices[1 : 1 + step.rule.dim] @ step.lowered(backward[k + 1])
        for k, step in enumerate(steps)
    ]
    own = [_backward(steps, number, lowered=True)[0][0] for number in numbers]
    mean = np.concatenate([*means, np.array(own)]) / backward[0][0]
    return max(float(np.linalg.norm(mean - whole.mean)), abs(float(np.log(backward[0][0] / whole.total))))


def _backward(steps: Sequence[Transfer], weights: np.ndarray, *, lowered: bool) -> list[np.ndarray]:
    """Messages from the end, before each step and after the last."""
    found = [weights]
    for step in reversed(steps):
        found.append(step.matrices[0] @ (step.lowered(found[-1]) if lowered else found[-1]))
    return found[::-1]


def _mean(steps: Sequence[Transfer], end: End, forward: list[np.ndarray], backward: list[np.ndarray]) -> np.ndarray:
    means = [forward[k] @ step.matrices[1 : 1 + step.rule.dim] @ backward[k + 1] for k, step in enumerate(steps)]
    return np.asarray(np.concatenate([*means, end.first @ (forward[-1] * end.weights)]) / backward[0][0])


def _second(steps: Sequence[Transfer], end: End, forward: list[np.ndarray], backward: list[np.ndarray]) -> np.ndarray:
    """Sums of products of two numbers, of one block or of two."""
    dims = [step.rule.dim for step in steps]
    starts = np.cumsum([0, *dims])
    D = int(starts[-1]) + len(end.first)
    out = np.empty((D, D))
    for k, step in enumerate(steps):
        i, d = int(starts[k]), dims[k]
        own = forward[k] @ step.matrices[1 + d :] @ backward[k + 1]
        for value, (a, b) in zip(own, itertools.combinations_with_replacement(range(d), 2), strict=True):
            out[i + a, i + b] = out[i + b, i + a] = value
        # What this block puts in, carried on to later ones.
        carried = forward[k] @ step.matrices[1 : 1 + d]
        for later in range(k + 1, len(steps)):
            j, e = int(starts[later]), dims[later]
            cross = (carried @ (steps[later].matrices[1 : 1 + e] @ backward[later + 1]).T).reshape(d, e)
            out[i : i + d, j : j + e], out[j : j + e, i : i + d] = cross, cross.T
            carried = carried @ steps[later].matrices[0]
        cross = (carried * end.weights) @ end.first.T
        out[i : i + d, starts[-1] :], out[starts[-1] :, i : i + d] = cross, cross.T
    if end.second is not None:
        out[starts[-1] :, starts[-1] :] = end.second @ (forward[-1] * end.weights)
    return out
