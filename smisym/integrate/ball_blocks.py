"""Blocks of nodes in the order of their distance, and which integrands have lattices in balls."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Protocol

import numpy as np

from smisym.integrate.accuracy import BALLS
from smisym.integrate.ball_text import LANES
from smisym.integrate.sheet_loops import MANY


class Plain(Protocol):
    """What balls ask of an integrand before it is evaluated."""

    dim: int
    residuals: int
    widening: float
    modeless: bool
    broken: bool
    ended: bool
    branches: int


def serves(integrand: Plain) -> bool:
    """Whether balls are a way to integrate it: none where sheets end, which their maxima must be known of.

    Of charts of many sheets, some end in all that were looked at, though not where there is mass: nothing was resolved.
    """
    plain = integrand.residuals and not integrand.broken and not integrand.modeless and integrand.widening == 1.0
    return bool(plain and integrand.dim in BALLS and not integrand.ended and integrand.branches < MANY)


@dataclass(frozen=True)
class Blocks:
    """Blocks of K = 2^d nodes in the order of the distances (N,) of their centres from the origin, in steps.

    features (K, F, N): 1, places of the nodes, products of two of them.
    """

    distance: np.ndarray
    features: np.ndarray

    @property
    def dim(self) -> int:
        return len(self.features).bit_length() - 1

    @property
    def places(self) -> np.ndarray:
        """(K, d, N)"""
        return self.features[:, 1 : 1 + self.dim]

    def within(self, radius: np.ndarray) -> np.ndarray:
        """How many blocks hold all nodes within a radius in steps: whole lanes."""
        count = np.searchsorted(self.distance, radius + 0.5 * np.sqrt(self.dim), side="right")
        return np.asarray(-(-count // LANES) * LANES)

    @cached_property
    def tiles(self) -> np.ndarray:
        """Places (N / LANES, d, K LANES), as compiled loops read them."""
        K, d, N = self.places.shape
        tiles = self.places.reshape(K, d, N // LANES, LANES)
        return np.ascontiguousarray(np.moveaxis(tiles, 0, 2).swapaxes(0, 1).reshape(N // LANES, d, K * LANES))


@cache
def blocks(dim: int) -> Blocks:
    """All blocks of the largest ball, and some more to fill the lanes."""
    most = BALLS[dim].largest + 0.5 * np.sqrt(dim)
    side = np.arange(-int(most / 2) - 2 * LANES, int(most / 2) + 2 * LANES)
    corner = np.stack(np.meshgrid(*[side] * dim, indexing="ij")).reshape(dim, -1)
    distance = np.sqrt(((2.0 * corner + 1.0) ** 2).sum(axis=0))
    order = np.argsort(distance, kind="stable")[: (np.count_nonzero(distance <= most) // LANES + 2) * LANES]
    inside = np.array(list(itertools.product((0, 1), repeat=dim)))
    places = 2.0 * corner[:, order] + inside[:, :, None] + 0.5
    pairs = [places[:, i] * places[:, j] for i in range(dim) for j in range(i, dim)]
    features = np.concatenate([np.ones_like(places[:, :1]), places, np.stack(pairs, axis=1)], axis=1)
    return Blocks(distance[order], features)
