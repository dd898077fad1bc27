"""Nodes that one layer of a chain of tables is summed over, by numpy: a lattice that is the same at all states, or rays
between the creases of its mixing, which are others at every state.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from smisym.kernels.chains import SHEAR, TURN, Given


@dataclass
class Nodes:
    """Of one layer: fields h (2 n, M, K), features (F, M, K), M one where all states have the same nodes; and then, for
    a lattice, whitened numbers of every image (G, 2 n, K) and the mass of each (G, K), zero where it is not summed."""

    h: np.ndarray
    features: np.ndarray
    z: np.ndarray | None = None
    mass: np.ndarray | None = None

    @property
    def dim(self) -> int:
        return len(self.h)

    def sums(self, w: np.ndarray) -> np.ndarray:
        """(M, F): of features, weighted by w (M, K)."""
        if self.features.shape[1] == 1:
            return np.asarray(w @ self.features[:, 0].T)
        return np.einsum("mk,fmk->mf", w, self.features)


def indicators(d: int) -> int:
    """How many features say what a rule misses."""
    return 4 if d == 2 else 2**d - 1


def nodes_of(given: Given, s: int, k: int, cov: bool) -> Nodes:
    """The nodes of one layer of one sample."""
    first, last = given.starts[k], given.starts[k + 1]
    n, step, radius = last - first, given.steps[s, k], given.radius[s]
    inverse, factor = given.inverse[s, first:last, first:last], given.factor[s, first:last, first:last]
    apart = given.apart[k, :n] > 0
    centre = inverse @ given.omega[s, first:last]
    centre[apart] -= centre[apart].mean(axis=1, keepdims=True)
    centre = centre.ravel()
    low, high = (given.boxes[s, a, 2 * first : 2 * last] for a in range(2))
    flips = np.repeat(given.flips[k, : given.signs[k], :n], 2, axis=1)
    angles = np.where(apart, -np.pi / 4, TURN)
    turn = np.zeros((2 * n, 2 * n))
    for p, (c, s_) in enumerate(zip(np.cos(angles), np.sin(angles), strict=True)):
        turn[2 * p : 2 * p + 2, 2 * p : 2 * p + 2] = [[c, -s_], [s_, c]]
    middle, reach = turn.T @ (0.5 * (low + high)), np.abs(turn.T) @ (0.5 * (high - low))
    around = turn.T @ centre
    start = np.ceil((around + np.maximum(middle - reach, -radius)) / step)
    stop = np.floor((around + np.minimum(middle + reach, radius)) / step)
    start[1::2][apart], stop[1::2][apart] = 0, 0
    moved = np.flatnonzero(apart[1:]) + 1
    start[2 * moved], stop[2 * moved] = start[2 * moved] - 1, stop[2 * moved] + 1
    axes = [np.arange(a, b + 1) for a, b in zip(start, stop, strict=True)]
    place = np.stack(np.meshgrid(*axes, indexing="ij")).reshape(2 * n, -1)
    shift = np.zeros(place.shape)
    for p in moved.tolist():
        shift[2 * p] = SHEAR[0] * place[2 * p - 2] + SHEAR[1] * place[2 * p - 1]
    whole = np.floor(shift + 0.5)
    x = turn @ ((place + shift - whole) * step)
    z = flips[:, :, None] * x - centre[:, None]
    square = (z * z).sum(axis=1)
    held = ((z >= low[:, None]) & (z <= high[:, None])).all(axis=1) & (square <= radius * radius)
    # One of all that signs make of a node, among those that are summed over.
    images = flips[:, :, None] * place
    gap = np.sign(images - place)
    ahead = np.take_along_axis(gap, (gap != 0).argmax(axis=1)[:, None], axis=1)[:, 0]
    kept = held[0] & ~((ahead > 0) & held).any(axis=0)
    z, held, square, ahead, place, x = (
        z[..., kept], held[:, kept], square[:, kept], ahead[:, kept], (place + whole.astype(int))[:, kept], x[:, kept],
    )  # fmt: skip
    mass = np.where(held, np.exp(-0.5 * square), 0.0) * step ** (2 * n) / (ahead == 0).sum(axis=0)
    # The integral over the sum of both tokens of rows that are apart.
    mass *= (np.sqrt(2 * np.pi) / step) ** apart.sum()
    total = mass.sum(axis=0)
    still = sum(2 << 2 * p for p in np.flatnonzero(apart))
    told = [
        np.where(place[[a for a in range(2 * n) if bits >> a & 1]].sum(axis=0) % 2 == 0, total, -total)
        * (bits & still == 0)
        for bits in range(1, 4**n)
    ]
    told += [np.zeros_like(total)] * (indicators(2 * n) - len(told))
    rows = [total, *np.einsum("gk,gak->ak", mass, z), np.where(square > (radius - step) ** 2, mass, 0.0).sum(axis=0)]
    if cov:
        pairs = itertools.combinations_with_replacement(range(2 * n), 2)
        more = np.kron(np.diag(apart), np.full((2, 2), 0.5))
        told += [(mass * (z[:, a] * z[:, b] + more[a, b])).sum(axis=0) for a, b in pairs]
    h = np.einsum("pq,qtk->ptk", factor, x.reshape(n, 2, -1)).reshape(2 * n, -1)
    return Nodes(h[:, None], np.stack([*rows, *told])[:, None], z, mass)


def sectors_of(given: Given, s: int, k: int, C: np.ndarray, cov: bool) -> Nodes:
    """The nodes of one layer of one row between its creases, at states C (4, M)."""
    row = given.starts[k]
    around = given.omega[s, row] * given.inverse[s, row, row]
    across, along = given.rules[s, k]
    (tx, wx), (tr, wr) = given.legendre[across, :2, :across], given.legendre[along, :2, :along]
    highest = given.legendre[across, 2:, :across], given.legendre[along, 2:, :along]
    radius, found = given.radius[s], []
    for c in C.T:
        rows = []
        for low, high in pieces_of(given, s, k, c, around):
            angle = 0.5 * (low + high) + 0.5 * (high - low) * tx
            e = np.stack([np.cos(angle), np.sin(angle)])
            middle, aside = e.T @ around, e[0] * around[1] - e[1] * around[0]
            half = np.sqrt(np.maximum(radius**2 - aside**2, 0.0))
            inner, outer = np.maximum(np.abs(middle) - half, 0.0), np.abs(middle) + half
            rho = 0.5 * (inner + outer)[:, None] + 0.5 * (outer - inner)[:, None] * tr
            weight = (0.25 * (high - low) * (outer - inner) * wx)[:, None] * rho * wr
            one = np.ones_like(rho)
            rows.append(np.stack([
                e[0][:, None] * rho, e[1][:, None] * rho, weight,
                *(own[:, None] * one for own in highest[0]), *(own * one for own in highest[1]),
            ]).reshape(7, -1))  # fmt: skip
        found.append(np.concatenate(rows, axis=1))
    most = max(one.shape[1] for one in found)
    # Nodes of no weight, where others are, so that all states have as many.
    padded = [np.concatenate([one, one[:, -1:].repeat(most - one.shape[1], axis=1)], axis=1) for one in found]
    for one, own in zip(padded, found, strict=True):
        one[2, own.shape[1] :] = 0.0
    x, y, weight, *told = np.stack(padded, axis=1)
    z = np.stack([[sign * x - around[0], sign * y - around[1]] for sign in (1, -1)])
    square = (z * z).sum(axis=1)
    mass = np.where(square <= radius**2 * (1 + 1e-12), np.exp(-0.5 * square), 0.0) * weight
    total = mass.sum(axis=0)
    border = np.where(square > (radius - 0.5) ** 2, mass, 0.0).sum(axis=0)
    features = [total, *(mass[:, None] * z).sum(axis=0), border, *(own * total for own in told)]
    if cov:
        features += [(mass * z[:, a] * z[:, b]).sum(axis=0) for a, b in ((0, 0), (0, 1), (1, 1))]
    return Nodes(np.stack([x, y]) * given.factor[s, row, row], np.stack(features))


def pieces_of(given: Given, s: int, k: int, c: np.ndarray, around: np.ndarray) -> list[tuple[float, float]]:
    """Angles between neighbouring creases of a layer at one state, within those at which a disc is seen."""
    u = np.stack([np.cos(given.creases[k, : given.lines[k]]), np.sin(given.creases[k, : given.lines[k]])])
    det = c[0] * c[3] - c[1] * c[2]
    angles = np.sort(np.arctan2((c[0] * u[1] - c[2] * u[0]) / det, (c[3] * u[0] - c[1] * u[1]) / det) % np.pi)
    distance, radius = float(np.hypot(*around)), given.radius[s]
    low, high = (float(angles[0]), float(angles[0] + np.pi)) if len(angles) else (0.0, np.pi)
    if distance > radius:
        middle, half = np.arctan2(around[1], around[0]) % np.pi, np.arcsin(radius / distance)
        low, high = float(middle - half), float(middle + half)
    cuts = [low]
    for angle in (angles[:, None] + np.array([-np.pi, 0.0, np.pi])).T.ravel():
        if cuts[-1] + 1e-12 < angle < high - 1e-12:
            cuts.append(float(angle))
    return list(itertools.pairwise([*cuts, high]))
