"""Nodes that one layer of a chain of tables is summed over, by numpy: a lattice that is the same at all states, or rays
between the creases of its mixing, which are others at every state.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from smisym.kernels.chains import SHEAR, TURN, Given
from smisym.kernels.meshes import Mesh


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

    def sums(self, w: np.ndarray, rows: int | None = None) -> np.ndarray:
        """(M, F): of the first rows of features, or all, weighted by w (M, K)."""
        features = self.features[:rows]
        if features.shape[1] == 1:
            return np.asarray(w @ features[:, 0].T)
        return np.einsum("mk,fmk->mf", w, features)


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
    if n == 1:
        return of_one_row(given, s, k, centre, low, high, cov)
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


# Many parameters: what is known of the row.
def of_one_row(given: Given, s: int, k: int, centre: np.ndarray, low: np.ndarray, high: np.ndarray, cov: bool) -> Nodes:
    """The same for a layer of one row, of which a node and its opposite are all that signs make."""
    step, radius, c, d = given.steps[s, k], given.radius[s], np.cos(TURN), np.sin(TURN)
    m0, m1 = 0.5 * (low + high)
    r0, r1 = 0.5 * (high - low)
    axes = []
    for at, middle, reach in (
        (c * centre[0] + d * centre[1], c * m0 + d * m1, c * r0 + d * r1),
        (c * centre[1] - d * centre[0], c * m1 - d * m0, c * r1 + d * r0),
    ):
        first, last = max(middle - reach, -radius), min(middle + reach, radius)
        axes.append(np.arange(np.ceil((at + first) / step), np.floor((at + last) / step) + 1))
    p0, p1 = np.repeat(axes[0], len(axes[1])), np.tile(axes[1], len(axes[0]))
    y0, y1 = p0 * step, p1 * step
    x = np.stack([c * y0 - d * y1, d * y0 + c * y1])
    whole = len(low) == 2 and -low[0] >= radius and -low[1] >= radius and high[0] >= radius and high[1] >= radius
    images = []
    for sign in (1.0, -1.0)[: given.signs[k]]:
        z = sign * x - centre[:, None]
        square = z[0] * z[0] + z[1] * z[1]
        held = square <= radius * radius
        if not whole:
            held &= (z[0] >= low[0]) & (z[0] <= high[0]) & (z[1] >= low[1]) & (z[1] <= high[1])
        images.append((z, square, held))
    kept = images[0][2]
    if len(images) > 1:
        # The opposite of a place comes after it where its first number that is not zero is negative.
        kept = kept & ~(images[1][2] & ((p0 < 0) | ((p0 == 0) & (p1 < 0))))
    kept = np.flatnonzero(kept)
    p0, p1, x = p0[kept], p1[kept], x[:, kept]
    z = np.stack([one[0][:, kept] for one in images])
    square = np.stack([one[1][kept] for one in images])
    # Zero is its own opposite.
    volume = np.where((p0 == 0) & (p1 == 0), step * step / len(images), step * step)
    mass = np.where([one[2][kept] for one in images], np.exp(-0.5 * square) * volume, 0.0)
    rows = np.zeros((8 + 3 * cov, len(kept)))
    rows[0] = total = mass.sum(axis=0)
    rows[1:3] = (mass[:, None] * z).sum(axis=0)
    rows[3] = np.where(square > (radius - step) ** 2, mass, 0.0).sum(axis=0)
    odd0, odd1 = 1 - 2 * (p0 % 2), 1 - 2 * (p1 % 2)
    rows[4], rows[5], rows[6] = odd0 * total, odd1 * total, odd0 * odd1 * total
    if cov:
        for row, (a, b) in enumerate(((0, 0), (0, 1), (1, 1)), start=8):
            rows[row] = (mass * z[:, a] * z[:, b]).sum(axis=0)
    first = given.starts[k]
    return Nodes((x * given.factor[s, first, first])[:, None], rows[:, None], z, mass)


def sectors_of(given: Given, s: int, k: int, C: np.ndarray, cov: bool) -> Nodes:
    """The nodes of one layer of one row between its creases, at states C (4, M)."""
    row = given.starts[k]
    around = given.omega[s, row] * given.inverse[s, row, row]
    across, along = given.rules[s, k]
    (tx, wx), (tr, wr) = given.legendre[across, :2, :across], given.legendre[along, :2, :along]
    highest = given.legendre[across, 2:, :across], given.legendre[along, 2:, :along]
    radius, cuts = given.radius[s], cuts_of(given, s, k, C, around)
    middle, wide = 0.5 * (cuts[:, 1:] + cuts[:, :-1]), 0.5 * (cuts[:, 1:] - cuts[:, :-1])
    # Rays (M, R), and then nodes (M, R, along); a piece without width has no weight.
    angle = (middle[..., None] + wide[..., None] * tx).reshape(len(cuts), -1)
    e0, e1 = np.cos(angle), np.sin(angle)
    inward, aside = e0 * around[0] + e1 * around[1], e0 * around[1] - e1 * around[0]
    half = np.sqrt(np.maximum(radius**2 - aside**2, 0.0))
    inner, outer = np.maximum(np.abs(inward) - half, 0.0), np.abs(inward) + half
    rho = 0.5 * (inner + outer)[..., None] + 0.5 * (outer - inner)[..., None] * tr
    weight = (0.5 * (wide[..., None] * wx).reshape(angle.shape) * (outer - inner))[..., None] * rho * wr
    x, y = e0[..., None] * rho, e1[..., None] * rho
    rows = np.empty((8 + 3 * cov, *rho.shape))
    rows[:4] = 0.0
    for sign in (1.0, -1.0):
        z0, z1 = sign * x - around[0], sign * y - around[1]
        square = z0 * z0 + z1 * z1
        mass = np.where(square <= radius**2 * (1 + 1e-12), np.exp(-0.5 * square), 0.0) * weight
        rows[0] += mass
        rows[1] += mass * z0
        rows[2] += mass * z1
        rows[3] += np.where(square > (radius - 0.5) ** 2, mass, 0.0)
        if cov:
            for at, product in enumerate((z0 * z0, z0 * z1, z1 * z1), start=8):
                rows[at] = mass * product + (rows[at] if sign < 0 else 0.0)
    pieces = wide.shape[1]
    for at, own in enumerate(highest[0], start=4):
        rows[at] = np.tile(own, pieces)[:, None] * rows[0]
    for at, own in enumerate(highest[1], start=6):
        rows[at] = own * rows[0]
    h = np.stack([x, y]) * given.factor[s, row, row]
    return Nodes(h.reshape(2, len(cuts), -1), rows.reshape(len(rows), len(cuts), -1))


def cuts_of(given: Given | Mesh, s: int, k: int, C: np.ndarray, around: np.ndarray) -> np.ndarray:
    """(M, pieces + 1): angles of the creases of a layer at states C (4, M), between the two ends of those at which a
    disc is seen; the last of them once more where a state has fewer pieces than others."""
    u = np.stack([np.cos(given.creases[k, : given.lines[k]]), np.sin(given.creases[k, : given.lines[k]])])[:, None]
    c = C[:, :, None]
    det = c[0] * c[3] - c[1] * c[2]
    angles = np.sort(np.arctan2((c[0] * u[1] - c[2] * u[0]) / det, (c[3] * u[0] - c[1] * u[1]) / det) % np.pi, axis=1)
    distance, radius, some = float(np.hypot(*around)), given.radius[s], angles.shape[1] > 0
    low = angles[:, :1] if some else np.zeros((C.shape[1], 1))
    high = low + np.pi
    if distance > radius:
        middle, half = np.arctan2(around[1], around[0]) % np.pi, np.arcsin(radius / distance)
        low, high = np.full_like(low, middle - half), np.full_like(high, middle + half)
    inner = (angles[:, None] + np.pi * np.arange(-1, 2)[:, None]).reshape(len(low), -1)
    # Creases that fall together are one; what is left out comes last, at the upper end.
    before = np.concatenate([low, inner[:, :-1]], axis=1)
    inner = np.where((inner > np.maximum(low, before) + 1e-12) & (inner < high - 1e-12), inner, high)
    inner = np.sort(inner, axis=1)
    most = int((inner < high).sum(axis=1).max(initial=0))
    return np.concatenate([low, inner[:, :most], high], axis=1)


def pieces_of(given: Given, s: int, k: int, c: np.ndarray, around: np.ndarray) -> list[tuple[float, float]]:
    """Ends of the pieces at one state c (4,)."""
    return list(itertools.pairwise(map(float, cuts_of(given, s, k, c[:, None], around)[0])))
