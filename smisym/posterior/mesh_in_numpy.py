"""Posteriors of deep networks on two tokens by meshes, at one level each, by numpy: what :mod:`smisym.kernels.meshes`
has as compiled loops, to the same numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from smisym.base import patience
from smisym.kernels.meshes import ACROSS, LEAST, NOTHING, SIXTH, SMALL, Mesh, Seen
from smisym.kernels.stencil_weights import ORDER, powers
from smisym.posterior.level_chain import Mixing
from smisym.posterior.mesh_nodes import Fan, fans


def meshes_in_numpy(mixings: Sequence[Mixing], mesh: Mesh, seen: Seen, *, cov: bool) -> None:
    """All posteriors of a block at their levels; written as :class:`smisym.kernels.meshes.Seen` says."""
    with np.errstate(all="ignore"):
        for s in range(len(mesh.rules)):
            patience.check()
            seen.log_norm[s], seen.nodes[s] = np.nan, 0.0
            _Posterior(mixings, mesh, seen, s, cov).run()


class _Posterior:
    """One posterior of a block; lists have an entry for each layer."""

    def __init__(self, mixings: Sequence[Mixing], mesh: Mesh, seen: Seen, s: int, cov: bool) -> None:
        self.mixings, self.mesh, self.seen, self.s, self.cov = mixings, mesh, seen, s, cov
        self.layers = K = mesh.rules.shape[1]
        empty: list[Any] = [None] * K
        self.nodes: list[Fan] = list(empty)
        self.tables, self.shares, self.places = list(empty), list(empty), list(empty)
        self.means, self.lost, self.beyond, self.second = list(empty), list(empty), list(empty), list(empty)
        self.messages: list[np.ndarray] = list(empty)

    def run(self) -> None:
        for k in range(self.layers - 1, -1, -1):
            if not self._swept(k):
                return
        self.messages[0] = np.eye(1 + 2 * self.layers * self.cov, 1)
        for k in range(self.layers - 1):
            self._pass(k)
        self._tell()
        if self.cov:
            self._tell_products()
        self.seen.log_norm[self.s] = self.tables[0][0]

    # ---- backward --------------------------------------------------------------------------------------

    def _states(self, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """x and y (M,) of the states before a layer, and how far they are from the middle of their mesh, squared."""
        if k == 0:
            return np.zeros(1), np.zeros(1), np.zeros(1)
        box = self.mesh.boxes[self.s, k - 1]
        u, v = _square(self.mesh.sides[self.s, k - 1])
        log = (box[0] + box[2] * u + box[3] * v, box[1] + box[4] * u + box[5] * v)
        return np.expm1(np.maximum(log[0], LEAST)), np.expm1(np.maximum(log[1], LEAST)), u * u + v * v

    def _swept(self, k: int) -> bool:
        """One layer at all its states; False where a value is not finite."""
        mesh, s = self.mesh, self.s
        x, y, far = self._states(k)
        delta = 1 / (1 + x + y)
        C = mesh.scales[k] * np.stack([1 - y * delta, y * delta, x * delta, 1 - x * delta])
        nodes = self.nodes[k] = fans(mesh, s, k, C, far, self.cov)
        self.seen.nodes[s] += nodes.count.sum()
        U = [C[2 * t][:, None] * nodes.h[0] + C[2 * t + 1][:, None] * nodes.h[1] for t in range(2)]
        A = [np.broadcast_to(entry, U[0].shape) for entry in self.mixings[mesh.kinds[k]](*U)]
        there = nodes.features[0] > 0
        if k + 1 < self.layers:
            p, r = A[2] * mesh.shares[k], A[1] * mesh.shares[k]
            factor = 1 - p - r
            if not factor[there].min() > 0:
                return False
            log = tuple(np.log(np.maximum(1 - e + v[:, None], SMALL) / factor) for e, v in ((r, x), (p, y)))
            self.places[k] = _placed(log, mesh.boxes[s, k], mesh.sides[s, k])
            value, out = read(self.tables[k + 1], self.places[k], mesh.sides[s, k])
        else:
            value, late = self._behind(C, A)
            out = np.zeros(value.shape)
        value = np.where(there, value, -np.inf)
        top = value.max(axis=1)
        share = np.exp(value - top[:, None]) * nodes.features[0]
        mass = share.sum(axis=1)
        if not (np.isfinite(top).all() and (mass > 0).all()):
            return False
        share = share / mass[:, None]
        ratio = np.where(share > 0, share / nodes.features[0], 0.0)
        self.tables[k], self.shares[k] = top + np.log(mass), share
        self.beyond[k] = (share * out).sum(axis=1)
        sums = np.einsum("fmk,mk->fm", nodes.features, ratio)
        self.means[k] = sums[1:4]
        angle, ray = (np.abs(told) for told in nodes.told(share))
        across = np.minimum(ACROSS * angle**1.25, angle).sum(axis=(0, 2))
        self.lost[k] = np.stack([across, np.minimum(ray**2, ray).sum(axis=0)])
        if self.cov:
            self.second[k] = sums[4:]
        if k == self.layers - 1:
            self._late(late, share, ratio)
        return True

    def _behind(self, C: np.ndarray, A: list[np.ndarray]) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Logs of what stands behind the last layer (M, K); shares of points (B, M, K), late fields (B, 2 n, M, K)."""
        mesh, s = self.mesh, self.s
        points, omega, whitening = mesh.points[s], mesh.late[s], mesh.whitening[s]
        B, n = points.shape[:2]
        c = C[:, :, None]
        D = [A[2 * t] * c[u] + A[2 * t + 1] * c[2 + u] for t, u in itertools.product(range(2), range(2))]
        det = (A[0] * A[3] - A[1] * A[2]) * (c[0] * c[3] - c[1] * c[2])
        late = np.empty((B, n, 2, *det.shape))
        for b, p in itertools.product(range(B), range(n)):
            u, v = points[b, p]
            late[b, p, 0], late[b, p, 1] = (D[3] * u - D[1] * v) / det, (D[0] * v - D[2] * u) / det
        late = np.einsum("pq,bqtmk->bptmk", whitening, late - omega[:, :, None, None]).reshape(B, 2 * n, *det.shape)
        exponent = mesh.weight[s][:, None, None] - 0.5 * (late**2).sum(axis=1)
        exponent = np.where(np.isnan(exponent), -np.inf, exponent)
        top = exponent.max(axis=0)
        w = np.exp(exponent - np.where(np.isfinite(top), top, 0.0))
        w = np.where(w > np.exp(-700.0), w, 0.0)
        value = top + np.log(w.sum(axis=0) * np.abs(det) ** -n)
        share = w / w.sum(axis=0)
        return value, (share, np.where((w > 0)[:, None], late, 0.0))

    def _late(self, late: tuple[np.ndarray, np.ndarray], share: np.ndarray, ratio: np.ndarray) -> None:
        """Means of the late fields at the states of the last layer, and products of two and with its own numbers."""
        own, fields = late
        own = np.where(share > 0, own, 0.0)
        self.behind = np.einsum("bmk,bimk,mk->im", own, fields, share)
        if self.cov:
            z = self.nodes[-1].features[1:3]
            self.behind_second = np.einsum("bmk,bimk,bjmk,mk->ijm", own, fields, fields, share, optimize=True)
            self.behind_cross = np.einsum("amk,bmk,bimk,mk->aim", z, own, fields, ratio, optimize=True)

    # ---- forward ---------------------------------------------------------------------------------------

    def _pass(self, k: int) -> None:
        """Messages of the next mesh: of mass, and of products with whitened numbers of layers so far."""
        n, share, message = self.mesh.sides[self.s, k], self.shares[k], self.messages[k]
        kept = np.flatnonzero(np.abs(message[0]) > NOTHING)
        held = np.where(np.abs(share * message[0][:, None]) > NOTHING, share, 0.0)[kept]
        cells, first, second = _stencils(tuple(place[kept] for place in self.places[k]), n)
        into = np.zeros((len(message), n[0] * n[1]))
        features, mass = self.nodes[k].features[1:3][:, kept], self.nodes[k].features[0][kept]
        for f in range(1 + (2 * (k + 1) if self.cov else 0)):
            own = message[f if f <= 2 * k else 0][kept][:, None] * held
            if f > 2 * k:
                own = np.where(held > 0, own * features[f - 2 * k - 1] / mass, 0.0)
            for i, j in itertools.product(range(ORDER), range(ORDER)):
                place = (cells + i * n[1] + j).ravel()
                into[f] += np.bincount(place, (own * first[i] * second[j]).ravel(), n[0] * n[1])
        self.messages[k + 1] = into

    def _tell(self) -> None:
        seen, s, K, sides = self.seen, self.s, self.layers, self.mesh.sides[self.s]
        for k in range(K):
            own, size = self.messages[k][0], np.abs(self.messages[k][0])
            seen.mean[s, 2 * k : 2 * k + 2], seen.border[s, k] = self.means[k][:2] @ own, self.means[k][2] @ own
            seen.missed[s, k] = self.lost[k] @ size
            if k + 1 < K:
                seen.far[s, k] = self.beyond[k] @ size
                message, box = self.messages[k + 1][0], self.mesh.boxes[s, k]
                seen.tables[s, k] = _roughness(self.tables[k + 1].reshape(sides[k]), message.reshape(sides[k]))
                seen.boxes[s, k] = _drawn(box, sides[k], message, self.mesh.least[s])
        seen.mean[s, 2 * K :] = self.behind @ self.messages[-1][0]

    def _tell_products(self) -> None:
        out, K = self.seen.second[self.s], self.layers
        for k in range(K):
            message, at = self.messages[k], slice(2 * k, 2 * k + 2)
            own = self.second[k] @ message[0]
            out[at, at] = [[own[0], own[1]], [own[1], own[2]]]
            out[: 2 * k, at] = message[1 : 1 + 2 * k] @ self.means[k][:2].T
        message = self.messages[-1]
        out[: 2 * K - 2, 2 * K :] = message[1 : 2 * K - 1] @ self.behind.T
        out[2 * K - 2 : 2 * K, 2 * K :] = self.behind_cross @ message[0]
        out[2 * K :, 2 * K :] = self.behind_second @ message[0]
        out[:] = np.triu(out) + np.triu(out, 1).T


def _square(n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of a mesh in the square [-1, 1]^2, the first coordinate slowest."""
    u, v = (2.0 * np.arange(m) / (m - 1) - 1.0 for m in n)
    return np.repeat(u, n[1]), np.tile(v, n[0])


def _placed(log: tuple[np.ndarray, ...], box: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places in a mesh, in steps from its first node, of coordinates log(1 + x), log(1 + y)."""
    det = box[2] * box[5] - box[3] * box[4]
    a, b = log[0] - box[0], log[1] - box[1]
    half = 0.5 * (n - 1)
    return (box[5] * a - box[3] * b) * half[0] / det + half[0], (box[2] * b - box[4] * a) * half[1] / det + half[1]


def _stencils(place: tuple[np.ndarray, ...], n: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First node of each stencil, weights of its rows (6, ...) and of its columns (6, ...)."""
    inside = [np.clip(own, 0.0, m - 1.0) for own, m in zip(place, n, strict=True)]
    first = [np.clip(np.floor(own) - 2.0, 0.0, m - 6.0) for own, m in zip(inside, n, strict=True)]
    weights = []
    for own, start in zip(inside, first, strict=True):
        t = own - start - 2.0
        weights.append(np.einsum("pi,p...->i...", powers(), np.stack([t**p for p in range(ORDER)])))
    return (first[0] * n[1] + first[1]).astype(np.int64), weights[0], weights[1]


def read(table: np.ndarray, place: tuple[np.ndarray, np.ndarray], n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values at places of a mesh, and which of them are beyond its border: there along its slope, where that falls."""
    cells, first, second = _stencils(place, n)
    value = np.zeros(cells.shape)
    for i, j in itertools.product(range(ORDER), range(ORDER)):
        value += first[i] * second[j] * table[cells + i * n[1] + j]
    out = np.zeros(cells.shape, dtype=bool)
    inside = [np.clip(own, 0.0, m - 1.0) for own, m in zip(place, n, strict=True)]
    near = [(own + 0.5).astype(np.int64) for own in inside]
    grid = table.reshape(n)
    for axis in range(2):
        low, high = place[axis] < 0.0, place[axis] > n[axis] - 1.0
        inner = list(near)
        inner[axis] = np.where(low, 1, n[axis] - 2)
        slope = np.minimum(grid[near[0], near[1]] - grid[inner[0], inner[1]], 0.0)
        value = value + np.where(low | high, slope * np.abs(place[axis] - inside[axis]), 0.0)
        out |= low | high
    return value, out


def _roughness(table: np.ndarray, message: np.ndarray) -> list[float]:
    """Root mean square, weighted by messages, of what stencils miss along both axes."""
    size, found = np.abs(message), []
    for axis in range(2):
        differences = np.diff(table, 6, axis=axis)
        width = [(3, 3) if a == axis else (0, 0) for a in range(2)]
        differences = np.pad(differences, width, mode="edge")
        found.append(float(SIXTH * np.sqrt((size * differences**2).sum() / size.sum())))
    return found


def _drawn(box: np.ndarray, n: np.ndarray, message: np.ndarray, least: float) -> np.ndarray:
    """A box along the principal axes of where messages are, around all nodes that hold more than ``least``."""
    u, v = _square(n)
    a, b = box[2] * u + box[3] * v, box[4] * u + box[5] * v
    own, total = np.maximum(message, 0.0), np.maximum(message, 0.0).sum()
    x, y = own @ a / total, own @ b / total
    xx, xy, yy = own @ (a * a) / total - x * x, own @ (a * b) / total - x * y, own @ (b * b) / total - y * y
    angle = 0.5 * np.arctan2(2 * xy, xx - yy)
    c, d = np.cos(angle), np.sin(angle)
    kept = message > least * total
    turned = np.stack([c * (a - x) + d * (b - y), c * (b - y) - d * (a - x)])[:, kept]
    more = np.array([
        abs(c * box[2] + d * box[4]) / (n[0] - 1) + abs(c * box[3] + d * box[5]) / (n[1] - 1),
        abs(c * box[4] - d * box[2]) / (n[0] - 1) + abs(c * box[5] - d * box[3]) / (n[1] - 1),
    ])  # fmt: skip
    low, high = np.minimum(turned.min(axis=1), 0.0) - more, np.maximum(turned.max(axis=1), 0.0) + more
    m, r = 0.5 * (low + high), 0.5 * (high - low)
    return np.array([
        box[0] + x + c * m[0] - d * m[1], box[1] + y + d * m[0] + c * m[1], c * r[0], -d * r[1], d * r[0], c * r[1],
    ])  # fmt: skip
