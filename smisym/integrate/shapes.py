"""Lattices in the shape of a density: as wide as it is, as fine as it is narrow, and turned.

How narrow a density is says the mean square of its score, J = E[s s^T], which of many maxima sees each one's width,
where the covariance sees the distance between them; of a Gaussian it is the inverse of the covariance.  The trapezoid
rule on the nodes converges as the spectrum falls.  Where a density changes fast across planes, as behind a softmax that
has saturated, a lattice with planes of nodes along them meets all of one or none: its axes are turned in a generic way.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache

import numpy as np

# Of the turn of the axes.  Three layers on three tokens, skip 3, error at 99 %: 0.047 without, 0.011 to 0.018 with.
_TURN = 1
# By how much more of its radius a region is searched than counts, for rounding.
_BORDER = 1e-9


@dataclass(frozen=True)
class Nodes:
    """Nodes of a lattice: points (n, d), whole-numbered places (n, d), the log of the volume of each, and the step."""

    points: np.ndarray
    places: np.ndarray
    log_volume: float
    step: float

    def __len__(self) -> int:
        return len(self.points)

    def take(self, which: np.ndarray) -> Nodes:
        return Nodes(self.points[which], self.places[which], self.log_volume, self.step)

    @property
    def parity(self) -> np.ndarray:
        """(n,) which of the 2^d sublattices of double step."""
        d = self.places.shape[1]
        return np.asarray((self.places % 2) @ (2 ** np.arange(d)))


@dataclass(frozen=True)
class Region:
    """An ellipsoid in d dimensions: centre (d,), and metric (d, d) in which it is a ball."""

    centre: np.ndarray
    metric: np.ndarray

    def radius(self, points: np.ndarray) -> np.ndarray:
        """(n,)."""
        x = points - self.centre
        return np.asarray(np.sqrt(np.einsum("ni,ij,nj->n", x, self.metric, x)))


@dataclass(frozen=True)
class Shape:
    """Of a density in d dimensions: centre (d,) and basis (d, d), whose columns are the steps of a lattice of step one;
    regions around it, which it ends within: its own covariance, and that of a Gaussian factor of it."""

    centre: np.ndarray
    basis: np.ndarray
    regions: tuple[Region, ...]

    @classmethod
    def of(cls, centre: np.ndarray, covariance: np.ndarray, information: np.ndarray, *factor: Region) -> Shape:
        """From its mean, its covariance and its mean squared score, each as well as it is known.

        Their mean stands for the width: neither alone is safe where few points tell.
        """
        metric = np.linalg.inv(covariance)
        narrow = np.linalg.cholesky(np.linalg.inv(0.5 * (information + metric)))
        return cls(centre, narrow @ turn(len(centre)), (Region(centre, metric), *factor))

    def within(self, reach: np.ndarray, step: float, most: int) -> Nodes | None:
        """All nodes within all regions, to the radii ``reach``; None where there are more than so many.

        Their places are found coordinate by coordinate, each where the ones before it leave room: a box around a long
        thin region has a thousand times as many nodes as the region.
        """
        rooms = [_Room.of(self, region, far, step) for region, far in zip(self.regions, reach, strict=True)]
        places = np.zeros((1, 0), dtype=int)
        for _ in self.centre:
            ends = [room.ends(places) for room in rooms]
            first = np.ceil(np.max([low for low, _ in ends], axis=0))
            counts = np.maximum(np.floor(np.min([high for _, high in ends], axis=0)) - first + 1, 0)
            if not counts.sum() <= most:
                return None
            places = _extended(places, first.astype(int), counts.astype(int))
        nodes = self._nodes(places, step)
        radii = np.stack([region.radius(nodes.points) for region in self.regions])
        return nodes.take(np.all(radii <= np.asarray(reach)[:, None], axis=0))

    def near(self, coarse: Nodes, kept: np.ndarray, step: float, most: int) -> Nodes | None:
        """All nodes of a smaller step whose nearest one of a coarser lattice is kept (n,); None where there are more
        than so many."""
        around, ratio = coarse.places[kept], coarse.step / step
        places, owner = np.zeros((len(around), 0), dtype=int), np.arange(len(around))
        for place in around.T:
            low, high = np.floor((place.min() - 0.5) * ratio), np.ceil((place.max() + 0.5) * ratio)
            fine = np.arange(int(low), int(high) + 1)
            first, end = (np.searchsorted(np.rint(fine / ratio), place, side) for side in ("left", "right"))
            counts = (end - first)[owner]
            if counts.sum() > most:
                return None
            places = _extended(places, fine[0] + first[owner], counts)
            owner = np.repeat(owner, counts)
        return self._nodes(places[np.lexsort(places.T[::-1])], step)

    def _nodes(self, places: np.ndarray, step: float) -> Nodes:
        d = len(self.centre)
        volume = d * np.log(step) + np.linalg.slogdet(self.basis)[1]
        return Nodes(self.centre + step * places @ self.basis.T, places, float(volume), step)


def kept(mass: np.ndarray, share: float) -> np.ndarray:
    """(n,) which nodes hold all but a share of the mass (n,), as few of them as do."""
    order = np.argsort(mass)
    below = np.cumsum(mass[order])
    out = np.zeros(len(mass), dtype=bool)
    out[order[below > share * below[-1]]] = True
    return out


@cache
def turn(dim: int) -> np.ndarray:
    """An orthogonal matrix (dim, dim) of which no entry, sum or difference of entries of a row is special."""
    return np.asarray(np.linalg.qr(np.random.default_rng(_TURN).standard_normal((dim, dim)))[0])


@dataclass(frozen=True)
class _Room:
    """What a region leaves of the last coordinate of places, given those before it: around ``centre`` (d,), in places,
    |factor^T x| <= reach, where the rows of factor^T (d, d), lower triangular, see the coordinates up to their own."""

    centre: np.ndarray
    factor: np.ndarray
    reach: float

    @classmethod
    def of(cls, shape: Shape, region: Region, reach: float, step: float) -> _Room:
        basis = step * shape.basis
        metric = basis.T @ region.metric @ basis
        # Of the coordinates in reverse: M = U U^T with U upper triangular.
        factor = np.linalg.cholesky(metric[::-1, ::-1])[::-1, ::-1]
        return cls(np.linalg.solve(basis, region.centre - shape.centre), factor, float(reach) * (1 + _BORDER))

    def ends(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest value (n,), not whole, of coordinate k, given the first k of them (n, k)."""
        k = places.shape[1]
        x, seen = places - self.centre[:k], self.factor[: k + 1, : k + 1]
        used = ((x @ seen[:k, :k]) ** 2).sum(axis=1)
        middle = self.centre[k] - x @ seen[:k, k] / seen[k, k]
        half = np.sqrt(np.maximum(self.reach**2 - used, 0.0)) / seen[k, k]
        return middle - half, middle + half


def _extended(places: np.ndarray, first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Places (n, k) with one coordinate more: ``counts`` values from ``first`` on, of each."""
    ends = np.cumsum(counts)
    last = np.arange(int(counts.sum())) - np.repeat(ends - counts - first, counts)
    return np.column_stack([np.repeat(places, counts, axis=0), last])


def gaps(sets: np.ndarray) -> np.ndarray:
    """(A,) what each of the A = 2^d - 1 sublattices of half the density misses of the mass and of means, from sums
    (2^d, 1 + D) of 1 and of D numbers over the nodes of each parity."""
    count = len(sets)
    bits = np.array(list(itertools.product((0, 1), repeat=count.bit_length() - 1)))[:, ::-1]
    signs = 1.0 - 2.0 * (bits[1:] @ bits.T % 2)
    alias, total = signs @ sets, sets.sum(axis=0)
    mean = total[1:] / total[0]
    apart = np.linalg.norm(alias[:, 1:] - alias[:, :1] * mean, axis=1)
    return np.asarray((apart + np.abs(alias[:, 0])) / total[0])
