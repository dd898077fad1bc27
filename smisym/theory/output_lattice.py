"""A lattice over the coordinates of an output, and which of its points stand for others.

Where exchanges of tokens move the coordinates u of an output by a signed exchange of these, the law of u and how fast
overlaps grow are the same at u and at its image: one point of each orbit is integrated.  The lattice is that of the
odd integers in all coordinates, which such exchanges leave as it is, stretched within the spaces that they leave:

    u = sum_i a_i sinh(|v_i|) v_i / |v_i|,     v_i the part in the i-th space of v = step (n + 1/2), n integers,

because the law may have a narrow ridge along one of them and wide tails.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# Fields at which exchanges are tried, and how well coordinates must agree, relative to their size.
_TRIED, _EQUAL = 64, 1e-9
# Second moments that differ by less than this, relative, are those of one space.
_SAME = 1e-9
# Beside the typical size in a space: where the stretching sets in.
_NARROW = 0.5
_EPS = float(np.finfo(float).tiny)

Coordinates = Callable[[np.ndarray], np.ndarray]
"""Fields (n, P, T) to the coordinates (n, K) of their outputs."""


@dataclass(frozen=True)
class OutputLattice:
    """spaces: orthonormal bases (K, k) that add up to all of R^K.  narrow, wide: scales in each.

    group (G, K, K): signed exchanges of the coordinates under which nothing changes, the identity first."""

    spaces: tuple[np.ndarray, ...]
    narrow: np.ndarray
    wide: np.ndarray
    group: np.ndarray

    @classmethod
    def of(cls, coordinates: Coordinates, fields: np.ndarray, *, even: bool) -> OutputLattice:
        """From random fields (n, P, T); even: whether u and -u are one."""
        sample = coordinates(fields)
        sample = sample[np.isfinite(sample).all(axis=1)]
        group = _exchanges(coordinates, fields[:_TRIED], even=even)
        moments = np.mean([g.T @ sample.T @ sample @ g for g in group], axis=0)
        values, vectors = np.linalg.eigh(moments)
        apart = np.flatnonzero(np.diff(values) > _SAME * values[-1]) + 1
        spaces = tuple(np.split(vectors, apart, axis=1))
        size = np.stack([np.linalg.norm(sample @ space, axis=1) for space in spaces])
        return cls(spaces, _NARROW * np.median(size, axis=1), size.max(axis=1), group)

    def nodes(self, step: float, reach: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Points u (n, K), one of each orbit, the log of their measure (n,), and which lie far out (n,).

        To ``reach`` times the widest that random outputs were, in each space; far out: in the outer half of one.
        """
        K = len(self.spaces[0])
        most = np.arcsinh(reach * self.wide / self.narrow)
        side = int(np.ceil(np.sqrt((most**2).sum()) / step)) + 1
        odd = _inside(np.arange(-2 * side + 1, 2 * side, 2), K, self.spaces, 2 * most / step)
        odd, many = orbits(odd, self.group)
        u, log_measure = np.zeros(odd.shape), np.log(many) + K * np.log(step)
        far = np.zeros(len(odd), dtype=bool)
        for space, narrow, wide in zip(self.spaces, self.narrow, self.wide, strict=True):
            part = 0.5 * step * odd @ space
            length = np.maximum(np.linalg.norm(part, axis=1), _EPS)
            stretch = narrow * np.sinh(length) / length
            u += (stretch[:, None] * part) @ space.T
            log_measure += (space.shape[1] - 1) * np.log(stretch) + np.log(narrow * np.cosh(length))
            far |= narrow * np.sinh(length) > 0.5 * reach * wide
        return u, log_measure, far


def _inside(line: np.ndarray, K: int, spaces: tuple[np.ndarray, ...], most: np.ndarray) -> np.ndarray:
    """Points (n, K) with coordinates on a line whose part in each space is no longer than ``most`` of it."""
    grid = np.stack(np.meshgrid(*[line] * K, indexing="ij"), axis=-1).reshape(-1, K)
    inside = np.ones(len(grid), dtype=bool)
    for space, length in zip(spaces, most, strict=True):
        inside &= ((grid @ space) ** 2).sum(axis=1) <= length**2
    return grid[inside]


def orbits(points: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One of each orbit of integer points (n, K), which the group (G, K, K) leaves as a set, and how many are in it."""
    base = 2 * int(np.abs(points).max(initial=0)) + 1
    digits = base ** np.arange(points.shape[1])
    codes = np.stack([(points @ np.rint(g).astype(int).T) @ digits for g in group])
    own, many = np.unique(codes.max(axis=0), return_counts=True)
    first = np.flatnonzero(codes.max(axis=0) == codes[0])
    order = np.argsort(codes[0][first])
    if not np.array_equal(codes[0][first][order], own):
        raise ArithmeticError("the points are not a union of orbits")
    return points[first][order], many


def _exchanges(coordinates: Coordinates, fields: np.ndarray, *, even: bool) -> np.ndarray:
    """Signed exchanges (G, K, K) by which exchanges of tokens move the coordinates, the identity first; with ``even``
    coordinates are known up to a sign, and each of them comes with its negative."""
    there = coordinates(fields)
    K, T = there.shape[1], fields.shape[2]
    size = _EQUAL * np.abs(there).max()
    images = [coordinates(fields[:, :, list(order)]) for order in itertools.permutations(range(T))]
    found = []
    for order in itertools.permutations(range(K)):
        for signs in itertools.product((1.0, -1.0), repeat=K):
            g = np.eye(K)[list(order)] * np.array(signs)
            moved = there @ g.T
            if any(_same(moved, image, size, even=even) for image in images):
                found.append(g)
    return np.stack(sorted(found, key=lambda g: -np.trace(g)))


def _same(one: np.ndarray, other: np.ndarray, size: float, *, even: bool) -> bool:
    off = np.abs(one - other).max(axis=1)
    if even:
        off = np.minimum(off, np.abs(one + other).max(axis=1))
    return bool((off <= size).all())
