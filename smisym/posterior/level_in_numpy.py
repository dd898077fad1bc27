"""Posteriors of deep networks on two tokens at one level each, by numpy: what :mod:`smisym.kernels.chains` has as
compiled loops, to the same numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from smisym.base import patience
from smisym.kernels.chains import EDGE, FACTOR, POWER, REACH, TOGETHER_SHARE, Found, Given
from smisym.posterior.chebyshev import beyond, cropped, in_units, logged, polynomials, unlogged
from smisym.posterior.level_nodes import indicators, nodes_of, sectors_of

Mixing = Callable[..., list[np.ndarray]]
"""Entries of the mixed fields of a layer, arrays, to those of its mixing, row by row."""


def levels_in_numpy(mixings: Sequence[Mixing], given: Given, found: Found, *, look: bool, cov: bool) -> None:
    """All posteriors of a block at their levels; written as :class:`smisym.kernels.chains.Found` says."""
    with np.errstate(all="ignore"):
        for s in range(len(given.steps)):
            patience.check()
            found.log_norm[s], found.outside[s], found.nodes[s] = np.nan, 0.0, 0.0
            _One(mixings, given, found, s, cov).run(look)


@dataclass
class _Step:
    """One layer at all states: where it leads, x and y (M, K), the logs of what follows (M, K), and what the sums over
    nodes say: log of the integral (M,), means of features (M, F), what the nodes miss (M,), what the highest degrees of
    the next table say and what lies beyond it, (M,) each."""

    x: np.ndarray
    y: np.ndarray
    value: np.ndarray
    log: np.ndarray
    means: np.ndarray
    lost: np.ndarray
    off: np.ndarray
    far: np.ndarray
    message: np.ndarray


@dataclass
class _Table:
    """Grids of one table: which signs have one, the box (2, 2) of each, coefficients (n, n) of each."""

    signs: list[int]
    boxes: list[np.ndarray]
    coefficients: list[np.ndarray]
    x: np.ndarray
    y: np.ndarray


def _missed_by_one_row(step: _Step) -> float:
    """What the nodes of a layer of one row miss: sums over half of them, partly of all states together, in which what
    states miss cancels, and partly of each at its size."""
    held = step.message[:, None] * step.means[:, 4 : 4 + indicators(2)]
    half = TOGETHER_SHARE * np.abs(held.sum(axis=0)) + (1 - TOGETHER_SHARE) * np.abs(held).sum(axis=0)
    return float(np.minimum(FACTOR * half**POWER, half).sum())


def _unsmooth(means: np.ndarray, net: np.ndarray, T: np.ndarray) -> float:
    """What the highest degrees say of means of fields (M, d) at the nodes of a table, squared: means pass through its
    polynomials as its logarithm does, and may vary more quickly.  net (G, n, n): averages of products of polynomials;
    T (n, n): from values to coefficients."""
    held = net[:, None] * (T @ np.moveaxis(means.reshape(len(net), *T.shape, -1), -1, 1) @ T.T)
    off = np.abs(held[:, :, -2:].sum(axis=3)).sum(axis=2) + np.abs(held[..., -2:].sum(axis=2)).sum(axis=2)
    return float((off**2).sum())


class _One:
    """One posterior of a block."""

    def __init__(self, mixings: Sequence[Mixing], given: Given, found: Found, s: int, cov: bool) -> None:
        self.mixings, self.given, self.found, self.s, self.cov = mixings, given, found, s, cov
        self.layers = given.steps.shape[1]
        self.tables: list[_Table] = []
        self.steps: list[_Step] = []
        self.carried: list[np.ndarray] = []
        self.rough: list[float] = []

    def run(self, look: bool) -> None:
        given, s = self.given, self.s
        self.look = look
        self.nodes = []
        x = y = np.zeros(1)
        places: list[tuple[np.ndarray, np.ndarray]] = []
        for k in range(self.layers):
            C = self._matrices(k, x, y)
            across, along = given.rules[s, k]
            self.nodes.append(sectors_of(given, s, k, C, self.cov) if across else nodes_of(given, s, k, self.cov))
            room = (given.lines[k] + 1) * across * along if across else self.nodes[k].h.shape[2]
            if room == 0:
                return
            self.found.nodes[s] += len(x) * room
            self.tables.append(_Table([], [], [], x, y))
            if k == self.layers - 1:
                break
            A = self._mixed(k, C)
            first, other = A[2] * given.shares[k], A[1] * given.shares[k]
            delta = 1 / (1 - first - other)
            places.append(
                (logged((unlogged(x)[:, None] + first) * delta), logged((unlogged(y)[:, None] + other) * delta))
            )
            signs, boxes = self._boxes(k, *places[-1])
            if not signs:
                return
            grids = [self._grid(box, int(given.sides[s, k])) for box in boxes]
            self.tables[k].signs, self.tables[k].boxes = signs, boxes
            x, y = (np.concatenate([grid[a] for grid in grids]) for a in range(2))
        self.steps = [self._last()]
        for k in range(self.layers - 2, -1, -1):
            if not np.isfinite(self.steps[0].log).all():
                return
            self.steps.insert(0, self._tabled(k, *places[k]))
        if not np.isfinite(self.steps[0].log[0]):
            return
        self.steps[0].message = np.ones(1)
        for k in range(self.layers - 1):
            self._carry(k)
        self._tell()
        if self.cov:
            self._tell_products()
        if look:
            for k in range(self.layers):
                self._look(k)

    # ---- where states are ------------------------------------------------------------------------------

    def _matrices(self, k: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """(4, M): C of states, row by row."""
        first, other = unlogged(x), unlogged(y)
        delta = 1 / (1 + first + other)
        p, q = first * delta, other * delta
        return np.asarray(self.given.scales[k] * np.stack([1 - q, q, p, 1 - p]))

    def _mixed(self, k: int, C: np.ndarray) -> np.ndarray:
        """(4, M, K): mixings of one layer at all states and nodes."""
        h = self.nodes[k].h
        pairs = itertools.product(range(len(h) // 2), range(2))
        U = [C[2 * t][:, None] * h[2 * p] + C[2 * t + 1][:, None] * h[2 * p + 1] for p, t in pairs]
        entries = self.mixings[self.given.kinds[k]](*U)
        return np.stack([np.broadcast_to(entry, U[0].shape) for entry in entries])

    def _boxes(self, k: int, x: np.ndarray, y: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
        total, span = 0.5 + x + y, self.given.spans[self.s, k]
        signs, boxes, farthest = [], [], logged(1 / self.given.floor[self.s])
        for g in range(2):
            mine = (np.maximum(np.abs(x), np.abs(y)) <= farthest) & ((total > 0) == (g == 0))
            mine &= (x >= span[g, 0, 0]) & (x <= span[g, 0, 1]) & (y >= span[g, 1, 0]) & (y <= span[g, 1, 1])
            if mine.any():
                signs.append(g)
                boxes.append(np.array([[v[mine].min(), v[mine].max()] for v in (x, y)]))
        return signs, boxes

    @staticmethod
    def _grid(box: np.ndarray, n: int) -> np.ndarray:
        unit = np.cos(np.pi * (np.arange(n) + 0.5) / n)
        axes = [0.5 * (ends[0] + ends[1]) + 0.5 * (ends[1] - ends[0]) * unit for ends in box]
        return np.stack(np.meshgrid(*axes, indexing="ij")).reshape(2, -1)

    # ---- sums over nodes -------------------------------------------------------------------------------

    def _summed(self, k: int, log: np.ndarray) -> tuple[np.ndarray, ...]:
        """From logs (M, K) at nodes: log of the integral, means of features, what nodes miss; and shares of nodes."""
        log = np.where(np.isfinite(log), log, -np.inf)
        top = log.max(axis=1)
        w = np.exp(log - np.where(np.isfinite(top), top, 0.0)[:, None])
        sums = self.nodes[k].sums(w)
        return *self._concluded(k, top, sums), w * self.nodes[k].features[0] / sums[:, :1]

    def _concluded(self, k: int, top: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log of the integral, means of features, what nodes miss, from sums (M, F) relative to exp(top)."""
        d, total = self.nodes[k].dim, sums[:, 0]
        means = sums / total[:, None]
        half = np.abs(means[:, 2 + d : 2 + d + indicators(d)])
        lost = np.where(total > 0, np.minimum(FACTOR * half**POWER, half).sum(axis=1), np.inf)
        return np.where(total > 0, top + np.log(total), -np.inf), means, lost

    def _last(self) -> _Step:
        k = self.layers - 1
        x, y, features = self.tables[k].x, self.tables[k].y, self.nodes[k].features
        C = self._matrices(k, x, y)
        late, exponents, size = self._ends(C, self._mixed(k, C))
        top = exponents.max(axis=(0, 2))
        exponents -= np.where(np.isfinite(top), top, 0.0)[:, None]
        own = np.exp(exponents, out=exponents)
        own *= size
        own = np.where(own > 0, own, 0.0)
        w = own.sum(axis=0)
        log, means, lost = self._concluded(k, top, self.nodes[k].sums(w))
        if not np.isfinite(late).all():
            # Where there is no weight, fields may be infinite.
            late = np.where((own > 0)[:, None], late, 0.0)
        total = self.nodes[k].sums(w, 1)[:, 0]
        seen = (own[:, None] * late).sum(axis=0)  # (2 n, M, K)
        self.behind = np.stack([self.nodes[k].sums(one, 1)[:, 0] for one in seen], axis=1) / total[:, None]
        if self.cov:
            mass, own = np.broadcast_to(features[0], w.shape), own / total[:, None]
            self.behind_second = np.einsum("mk,bmk,bimk,bjmk->mij", mass, own, late, late, optimize=True)
            z = np.broadcast_to(features[1 : 1 + self.nodes[k].dim], (self.nodes[k].dim, *w.shape))
            self.behind_cross = np.einsum("bmk,amk,bimk->mai", own, z, late, optimize=True)
        zero = np.zeros(len(x))
        value = top[:, None] + np.log(w) if self.look else w
        return _Step(x, y, value, log, means, lost, zero, zero, zero)

    def _ends(self, C: np.ndarray, A: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Whitened late fields (B, 2 n, M, K), exponents of their weights (B, M, K), and the determinant (M, K) that
        multiplies all of these."""
        given, s = self.given, self.s
        points, omega, whitening = given.points[s], given.late[s], given.whitening[s]
        B, n = points.shape[:2]
        own = (1 / (C[0] * C[3] - C[1] * C[2]))[:, None]
        det = 1 / (A[0] * A[3] - A[1] * A[2])
        c0, c1, c2, c3 = (entry[:, None] * own for entry in C)
        A = A * det
        # (A C)^{-1}, row by row.
        entries = c3 * A[3] + c1 * A[2], -c3 * A[1] - c1 * A[0], -c2 * A[3] - c0 * A[2], c2 * A[1] + c0 * A[0]
        r = np.empty((B, n, 2, *det.shape))
        for b, p, t in itertools.product(range(B), range(n), range(2)):
            u, out = points[b, p], r[b, p, t]
            np.multiply(entries[2 * t], u[0], out=out)
            out += entries[2 * t + 1] * u[1]
            out -= omega[p, t]
        r = r * whitening[0, 0] if n == 1 else np.einsum("pq,bqtmk->bptmk", whitening, r)
        r = r.reshape(B, 2 * n, *det.shape)
        exponents = r[:, 0] * r[:, 0]
        for i in range(1, 2 * n):
            exponents += r[:, i] * r[:, i]
        exponents = given.weight[s][:, None, None] - 0.5 * exponents
        if np.isnan(exponents.sum()):
            exponents = np.where(exponents == exponents, exponents, -np.inf)
        return r, exponents, np.abs(det * own) ** n

    def _tabled(self, k: int, x: np.ndarray, y: np.ndarray) -> _Step:
        table, n = self.tables[k], int(self.given.sides[self.s, k])
        value, rest, start = np.full(x.shape, -np.inf), np.zeros(x.shape), 0
        total = 0.5 + x + y
        for g, box in zip(table.signs, table.boxes, strict=True):
            T = self.given.cosines[n][:n, :n]
            c = T @ self.steps[0].log[start : start + n * n].reshape(n, n) @ T.T
            table.coefficients.append(c)
            start += n * n
            mine = (total > 0) == (g == 0)
            unit = in_units(x, box[0]), in_units(y, box[1])
            within = (np.abs(unit[0]) <= EDGE) & (np.abs(unit[1]) <= EDGE)
            first, second = polynomials(unit[0], n), polynomials(unit[1], n)
            high = c.copy()
            high[: n - 2, : n - 2] = 0
            found = (np.tensordot(c.T, first, axes=1) * second).sum(axis=0)
            told = (np.tensordot(high.T, first, axes=1) * second).sum(axis=0)
            outside = mine & ~within
            if outside.any():
                found[outside] = beyond(c, unit[0][outside], unit[1][outside])
            value, rest = np.where(mine, found, value), np.where(mine, np.where(within, told, np.inf), rest)
        log, means, lost, shares = self._summed(k, value)
        inner = np.isfinite(rest)
        off = (shares * np.where(inner, rest, 0.0) ** 2).sum(axis=1)
        far = np.where(inner, 0.0, shares).sum(axis=1)
        return _Step(x, y, value, log, means, lost, off, far, np.zeros(len(log)))

    # ---- forward ---------------------------------------------------------------------------------------

    def _carry(self, k: int) -> None:
        """Messages of the next table; with covariances, the steps between both as matrices (1 + d, M, M')."""
        step, table, n = self.steps[k], self.tables[k], int(self.given.sides[self.s, k])
        features = self.nodes[k].features
        d = self.nodes[k].dim
        share = np.where(np.isfinite(step.value), np.exp(step.value - step.log[:, None]), 0.0)
        T, parts, nets = self.given.cosines[n][:n, :n], [], []
        kinds = 1 + d if self.cov else 1
        # Of a first layer of one row, with what tells the halves of its nodes apart.
        apart = features[2 + d : 2 + d + indicators(d)] if k == 0 and d == 2 else features[:0]
        rows = np.concatenate([features[:kinds], apart])
        for g, box in zip(table.signs, table.boxes, strict=True):
            mine = np.where((0.5 + step.x + step.y > 0) == (g == 0), share, 0.0)
            unit = [
                np.clip(np.nan_to_num(in_units(v, e), nan=1.0), -1, 1)
                for v, e in zip((step.x, step.y), box, strict=True)
            ]
            first, second = polynomials(unit[0], n), polynomials(unit[1], n)
            if not self.cov:
                mine = mine * step.message[:, None]
            sums = np.stack([np.einsum("imk,mk,jmk->mij", first, mine * row, second, optimize=True) for row in rows])
            parts.append((T.T @ sums @ T).reshape(len(rows), len(share), n * n))
            nets.append(np.tensordot(step.message, sums[0], axes=1) if self.cov else sums[0].sum(axis=0))
        whole = np.concatenate(parts, axis=2)
        later = self.steps[k + 1].means[:, 1 : 1 + self.nodes[k + 1].dim]
        if k + 2 == self.layers:
            later = np.concatenate([later, self.behind], axis=1)
        self.rough.append(_unsmooth(later, np.array(nets), T))
        if k == 0:
            self.halves, whole = whole[kinds:, 0], whole[:kinds]
        if self.cov:
            self.carried.append(whole)
            self.steps[k + 1].message = step.message @ whole[0]
        else:
            self.steps[k + 1].message = whole[0].sum(axis=0)

    def _tell(self) -> None:
        found, s, at = self.found, self.s, 0
        found.log_norm[s] = self.steps[0].log[0]
        for k, step in enumerate(self.steps):
            d, size = self.nodes[k].dim, np.abs(step.message)
            found.mean[s, at : at + d] = step.message @ step.means[:, 1 : 1 + d]
            found.missed[s, k] = size @ step.lost if d > 2 else _missed_by_one_row(step)
            found.border[s, k] = step.message @ step.means[:, 1 + d]
            if k < self.layers - 1:
                found.tables[s, k] = np.sqrt(size @ step.off + self.rough[k])
                found.far[s, k] = size @ step.far
            at += d
        found.mean[s, at:] = self.steps[-1].message @ self.behind
        if self.layers > 1 and self.nodes[0].dim == 2:
            d = self.nodes[1].dim
            found.missed[s, 0] += self._moved_by_half(self.steps[1].means[:, 1 : 1 + d], found.mean[s, 2 : 2 + d])
            if self.layers == 2:
                found.missed[s, 0] += self._moved_by_half(self.behind, found.mean[s, at:])

    def _moved_by_half(self, means: np.ndarray, mean: np.ndarray) -> float:
        """What the nodes of a first layer miss of means of later fields (M, d), from what half of them do."""
        square = ((self.halves @ (means - mean)) ** 2).sum(axis=1)
        return float(np.minimum(FACTOR * square, np.sqrt(square)).sum())

    def _tell_products(self) -> None:
        """Second moments: of one block by its numbers, of two by what the first carries on to the mean of the other."""
        out, at = self.found.second[self.s], self.found.mean.shape[1] - self.behind.shape[1]
        out[:] = 0.0
        later = self.behind
        for k in range(self.layers - 1, -1, -1):
            step, d, start = self.steps[k], self.nodes[k].dim, 2 * int(self.given.starts[k])
            own = (step.message @ step.means)[2 + d + indicators(d) :]
            for value, (a, b) in zip(own, itertools.combinations_with_replacement(range(d), 2), strict=True):
                out[start + a, start + b] = out[start + b, start + a] = value
            if k == self.layers - 1:
                out[at:, at:] = np.tensordot(step.message, self.behind_second, axes=1)
                cross = np.tensordot(step.message, self.behind_cross, axes=1)
            else:
                cross = np.einsum("m,amj,ji->ai", step.message, self.carried[k][1:], later)
                later = self.carried[k][0] @ later
            out[start : start + d, start + d :] = cross
            out[start + d :, start : start + d] = cross.T
            later = np.concatenate([step.means[:, 1 : 1 + d], later], axis=1)

    # ---- what the next level is restricted to ----------------------------------------------------------

    def _look(self, k: int) -> None:
        step, given, found, s = self.steps[k], self.given, self.found, self.s
        nodes = self.nodes[k]
        share = np.where(np.isfinite(step.value), np.exp(step.value - step.log[:, None]), 0.0)
        share = share * step.message[:, None] * nodes.features[0]
        if k < self.layers - 1:
            self._peaks(k)
            x, y = step.x, step.y
            for g, box in zip(self.tables[k].signs, self.tables[k].boxes, strict=True):
                mine = ((0.5 + x + y > 0) == (g == 0)) & (share != 0)
                for a, v in enumerate((x, y)):
                    found.spans[s, k, g, a] = cropped(v[mine], share[mine], box[a], given.least[s])
        # Nodes that are others at every state have no box.
        if nodes.z is None or nodes.mass is None:
            return
        total, h = share.sum(axis=0), given.steps[s, k]
        part = total * nodes.mass / nodes.features[0, 0]
        z = np.moveaxis(nodes.z, 1, 0).reshape(nodes.dim, -1)
        kept = (part > given.negligible[s] * np.abs(total).max()).ravel()
        ends = slice(2 * int(given.starts[k]), 2 * int(given.starts[k + 1]))
        low, high = z[:, kept].min(axis=1) - h, z[:, kept].max(axis=1) + h
        found.boxes[s, 0, ends], found.boxes[s, 1, ends] = low, high
        gone = ((z < low[:, None]) | (z > high[:, None])).any(axis=0)
        found.outside[s] += (part.ravel()[gone] * np.sqrt((z[:, gone] ** 2).sum(axis=0))).sum()

    def _peaks(self, k: int) -> None:
        """Ends of the states of the next table between whose nodes its log comes within a depth of the largest."""
        n, logs = int(self.given.sides[self.s, k]), self.steps[k + 1].log
        near = (logs >= logs.max() - self.given.depth[self.s]).reshape(-1, n, n)
        for mine, g, box in zip(near, self.tables[k].signs, self.tables[k].boxes, strict=True):
            for a, (low, high) in enumerate(box):
                ends = [low - REACH * (high - low), high + REACH * (high - low)]
                own = np.flatnonzero(mine.any(axis=1 - a))
                # Nodes fall from the upper end on; one node beyond those that are kept.
                if len(own) and own[-1] < n - 1:
                    ends[0] = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(np.pi * (own[-1] + 1.5) / n)
                if len(own) and own[0] > 0:
                    ends[1] = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(np.pi * (own[0] - 0.5) / n)
                self.found.peaks[self.s, k, g, a] = ends
