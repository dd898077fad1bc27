"""Oracle of first thresholds where an output leaves finitely many fields: all of them, by Levenberg and Marquardt.

Nothing here imports the package under test.  Every truth gets the same number of random starts; solutions are told
apart, completed by the maps that leave the output unchanged, and weighted by the Gaussian density over |det df/dZ|.
What half of the starts would have given tells whether there were enough.
"""

from __future__ import annotations

import numpy as np

from oracles.manifold import Constraint, jacobian
from oracles.walking import Seen, Walked, walked_rate

_STEPS, _SOLVED, _APART = 60, 1e-9, 1e-5


def finite_rate(seen: Seen, *, samples: int, starts: int, seed: int = 0) -> Walked:
    """Largest rate, without noise; its ``drift`` is how much larger half of the starts make it."""
    forward, shape, rows = seen.forward, seen.shape, seen.rows
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((samples, *shape))
    half, whole = (np.zeros((samples, truth[0].size, truth[0].size)) for _ in range(2))
    for s in range(samples):
        tried = rng.standard_normal((starts, *shape)) * rng.uniform(0.3, 2.0, (starts, 1, 1))
        found, at = solutions(forward, truth[s], tried)
        for table, roots in ((half, found[at < starts // 2]), (whole, found)):
            table[s] = _second_moment(forward, distinct(np.concatenate([truth[s : s + 1], roots]), rows), rows)
    few, many = (walked_rate(truth, *[np.stack([table, table])] * 2, rows) for table in (half, whole))
    return Walked(many.rate, many.error, few.rate - many.rate, float(np.hypot(few.error, many.error)))


def solutions(forward: Constraint, truth: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(points (m, P, T) with f = f(truth), the numbers of the starts (n, P, T) that they were reached from)."""
    y = forward(truth[None])
    Z, damping = start.copy(), np.full(len(start), 1e-2)
    value, slope = jacobian(forward, Z)
    value = value - y
    for _ in range(_STEPS):
        normal = np.einsum("nki,nkj->nij", slope, slope)
        scale = np.einsum("nii->n", normal) / normal.shape[1]
        normal += (damping * scale + 1e-300)[:, None, None] * np.eye(normal.shape[1])
        step = np.linalg.solve(normal, np.einsum("nki,nk->ni", slope, value)[:, :, None])
        there = Z - step.reshape(Z.shape)
        new, new_slope = jacobian(forward, there)
        new = new - y
        better = (new**2).sum(axis=1) < (value**2).sum(axis=1)
        Z[better], value[better], slope[better] = there[better], new[better], new_slope[better]
        damping = np.maximum(np.where(better, damping / 5, damping * 4), 1e-10)
    solved = np.flatnonzero(abs(value).max(axis=1) < _SOLVED)
    return Z[solved], solved


def distinct(points: np.ndarray, group: np.ndarray) -> np.ndarray:
    """One of each set of points that maps of the group lead to."""
    kept = [points[0]]
    for point in points[1:]:
        images = group @ point
        if min(abs(images - other).max(axis=(1, 2)).min() for other in kept) > _APART:
            kept.append(point)
    return np.array(kept)


def _second_moment(forward: Constraint, points: np.ndarray, group: np.ndarray) -> np.ndarray:
    slope = jacobian(forward, points)[1]
    singular = np.linalg.svd(slope, compute_uv=False)[:, : points[0].size]
    log = -0.5 * (points**2).sum(axis=(1, 2)) - np.log(singular).sum(axis=1)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    images = (group[:, None] @ points).reshape(len(group), len(points), -1)
    return np.asarray(np.einsum("n,gni,gnj->ij", weight, images, images) / len(group))
