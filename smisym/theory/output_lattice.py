"""A lattice over the numbers v that tell an output, and which of its points stand for others.

Where exchanges of tokens move an output as a signed exchange of its coordinates does, the law and how fast overlaps
grow are the same at a point and at its image: one point of each orbit is integrated.  The lattice is that of the odd
integers in all coordinates, which such exchanges leave as it is, stretched within the spaces that they leave:

    v = sum_i a_i sinh(|x_i|) x_i / |x_i|,     x_i the part in the i-th space of x = step (n + 1/2), n integers,

because the law may have a narrow ridge along one of them and wide tails.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# Outputs at which exchanges are tried, and how well what is shown must agree, relative to its size.
_TRIED, _EQUAL = 64, 1e-7
# Second moments that differ by less than this, relative, are those of one space.
_SAME = 1e-9
# Beside the typical size in a space: where the stretching sets in.
_NARROW = 0.5
_EPS = float(np.finfo(float).tiny)

Shown = Callable[[np.ndarray, tuple[int, ...]], np.ndarray]
"""(n, K) numbers that tell an output, and an order of its tokens, to what the output then shows, (n, k)."""


@dataclass(frozen=True)
class OutputLattice:
    """spaces: orthonormal bases (K, k) that add up to all of R^K.  narrow, wide: scales in each.

    group (G, K, K): signed exchanges of the coordinates under which nothing changes, the identity first."""

    spaces: tuple[np.ndarray, ...]
    narrow: np.ndarray
    wide: np.ndarray
    group: np.ndarray

    @classmethod
    def of(cls, sample: np.ndarray, group: np.ndarray) -> OutputLattice:
        """From points (n, K) as the law of outputs has them, and the group of signed exchanges."""
        moments = np.mean([g.T @ sample.T @ sample @ g for g in group], axis=0)
        values, vectors = np.linalg.eigh(moments)
        apart = np.flatnonzero(np.diff(values) > _SAME * values[-1]) + 1
        spaces = tuple(np.split(vectors, apart, axis=1))
        size = np.stack([np.linalg.norm(sample @ space, axis=1) for space in spaces])
        return cls(spaces, _NARROW * np.median(size, axis=1), size.max(axis=1), group)

    def nodes(self, step: float, reach: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Points v (n, K), one of each orbit, the log of their measure (n,), and which lie far out (n,).

        To ``reach`` times the widest that random outputs were, in each space; far out: in the outer half of one.
        """
        K = len(self.spaces[0])
        most = np.arcsinh(reach * self.wide / self.narrow)
        side = int(np.ceil(np.sqrt((most**2).sum()) / step)) + 1
        odd = _inside(np.arange(-2 * side + 1, 2 * side, 2), K, self.spaces, 2 * most / step)
        odd, many = orbits(odd, self.group)
        v, log_measure = np.zeros(odd.shape), np.log(many) + K * np.log(step)
        far = np.zeros(len(odd), dtype=bool)
        for space, narrow, wide in zip(self.spaces, self.narrow, self.wide, strict=True):
            part = 0.5 * step * odd @ space
            length = np.maximum(np.linalg.norm(part, axis=1), _EPS)
            stretch = narrow * np.sinh(length) / length
            v += (stretch[:, None] * part) @ space.T
            log_measure += (space.shape[1] - 1) * np.log(stretch) + np.log(narrow * np.cosh(length))
            far |= narrow * np.sinh(length) > 0.5 * reach * wide
        return v, log_measure, far


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


def exchanges(shown: Shown, size: int, tokens: int) -> np.ndarray:
    """Signed exchanges (G, K, K) of K numbers v that move outputs as exchanges of tokens do, the identity first.

    Held against outputs themselves: ``shown`` at g v must be what it is at v with tokens exchanged.
    """
    v = np.random.default_rng(0).standard_normal((_TRIED, size))
    images = [shown(v, order) for order in itertools.permutations(range(tokens))]
    units = _EQUAL * np.abs(images[0]).max(axis=1)
    found = []
    for order in itertools.permutations(range(size)):
        for signs in itertools.product((1.0, -1.0), repeat=size):
            g = np.eye(size)[list(order)] * np.array(signs)
            moved = shown(v @ g.T, tuple(range(tokens)))
            if any(bool((np.abs(moved - image).max(axis=1) <= units).all()) for image in images):
                found.append(g)
    if not found:
        raise ArithmeticError("outputs at the same coordinates differ")
    return np.stack(sorted(found, key=lambda g: -np.trace(g)))
