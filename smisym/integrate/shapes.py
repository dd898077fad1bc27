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


@dataclass(frozen=True)
class Nodes:
    """Nodes of a lattice: points (n, d), whole-numbered places (n, d), the log of the volume of each, and the step."""

    points: np.ndarray
    places: np.ndarray
    log_volume: float
    step: float

    def __len__(self) -> int:
        return len(self.points)

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

    def within(self, reach: np.ndarray, step: float) -> Nodes:
        """All nodes within all regions, to the radii ``reach``."""
        low, high = [], []
        for region, far in zip(self.regions, reach, strict=True):
            inside = np.linalg.inv(self.basis.T @ region.metric @ self.basis)
            middle, side = np.linalg.solve(self.basis, region.centre - self.centre), far * np.sqrt(np.diag(inside))
            low.append(np.ceil((middle - side) / step))
            high.append(np.floor((middle + side) / step))
        first, last = np.max(low, axis=0).astype(int), np.min(high, axis=0).astype(int)
        nodes = self._nodes(_grid(first, last + 1), step)
        radii = np.stack([region.radius(nodes.points) for region in self.regions])
        return _take(nodes, np.all(radii <= np.asarray(reach)[:, None], axis=0))

    def near(self, coarse: Nodes, kept: np.ndarray, step: float) -> Nodes:
        """All nodes of a smaller step whose nearest one of a coarser lattice is kept (n,)."""
        places = coarse.places[kept]
        low, high = places.min(axis=0), places.max(axis=0) + 1
        there = np.zeros(high - low, dtype=bool)
        there[tuple((places - low).T)] = True
        ratio = coarse.step / step
        first, last = np.floor((low - 0.5) * ratio).astype(int), np.ceil((high - 0.5) * ratio).astype(int)
        grid = _grid(first, last + 1)
        nearest = np.rint(grid / ratio).astype(int) - low
        inside = ((nearest >= 0) & (nearest < high - low)).all(axis=1)
        inside[inside] = there[tuple(nearest[inside].T)]
        return self._nodes(grid[inside], step)

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


def _grid(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """(n, d) all places from ``low`` on, before ``high``."""
    axes = [np.arange(a, b) for a, b in zip(low, high, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij")).reshape(len(axes), -1).T


def _take(nodes: Nodes, which: np.ndarray) -> Nodes:
    return Nodes(nodes.points[which], nodes.places[which], nodes.log_volume, nodes.step)


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
