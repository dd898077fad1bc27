"""The image of a noiseless link near one of its points: K coordinates of it, and fields that give the point back.

An output that has K independent coordinates shows a surface g(Z) in R^M (its log-ratios, or the output itself).  Near a
point g(Z_0) the surface is a graph over its tangent space, of orthonormal basis U (M, K): v = U^T (g(Z) - g(Z_0)) are
coordinates of the image.  The point at v is found by Newton's method in the fields, from Z_0; its Jacobian is a complex
step, exact to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smisym.errors import InputError
from smisym.link import LinkFunction
from smisym.numeric import Surface
from smisym.roots import jacobian

# Largest misfit of a point of the image, relative to its size, and from which misfit on one more step reaches it.
_MET, _LAST = 1e-10, 1e-6
_ITERATIONS = 25
# Where the gradient of the misfit is this small beside the misfit itself, the image ends.
_STATIONARY = 1e-2
FOUND, OUTSIDE, LOST = 0, 1, 2


@dataclass(frozen=True)
class Spot:
    """Points of the image about which others are sought, one a sample.

    Z (S, n): fields that give them.  value (S, M): g there.  frame (S, M, K): U.  slope (S, K, n): U^T dg/dZ.
    back (S, n, K): the fields that move v by one, of least norm.
    """

    Z: np.ndarray
    value: np.ndarray
    frame: np.ndarray
    slope: np.ndarray
    back: np.ndarray


class Image:
    """The image of one link."""

    def __init__(self, link: LinkFunction) -> None:
        self.link, self.surface = link, Surface(link)
        self.everything = np.arange(self.surface.entries)
        self.rank = self.surface.rank() if self.surface.seen_outputs.size else 0

    def jet(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """g (N, M) and dg/dZ (N, M, n) at Z (N, n)."""
        return jacobian(self.surface, Z, self.everything)

    def spot(self, Z: np.ndarray) -> Spot:
        """The tangent frame at the points of fields Z (S, n); NaN where there is none."""
        value, J = self.jet(Z)
        good = np.isfinite(J).all(axis=(1, 2))
        left, size, _ = np.linalg.svd(np.where(good[:, None, None], J, 0.0), full_matrices=False)
        frame = left[:, :, : self.rank]
        slope = np.swapaxes(frame, 1, 2) @ J
        good &= size[:, self.rank - 1] > 1e-12 * size[:, 0]
        back = np.full((len(Z), Z.shape[1], self.rank), np.nan)
        back[good] = _least_norm(slope[good])
        return Spot(Z, value, frame, slope, back)

    def lift(self, spot: Spot, owner: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fields (N, n) of the points at v (N, K) about the spots ``owner`` (N,), and what became of each search.

        FOUND, OUTSIDE (the misfit is stationary: no point of the image near the last one is nearer) or LOST.
        """
        frame = spot.frame[owner]
        target = np.einsum("nmk,nm->nk", frame, spot.value[owner]) + v
        Z = spot.Z[owner] + np.einsum("nik,nk->ni", spot.back[owner], v)
        scale = 1 + np.abs(target).max(axis=1)
        status = np.full(len(Z), LOST)
        live, damping = np.arange(len(Z)), np.zeros(len(Z))
        r, G = self._miss(Z, frame, target)
        stuck = np.zeros(len(Z), dtype=int)
        for _ in range(_ITERATIONS):
            trial = Z[live] + _step(G, r, damping[live])
            new_r, new_G = self._miss(trial, frame[live], target[live])
            with np.errstate(over="ignore", invalid="ignore"):
                last = np.abs(r).max(axis=1) <= _LAST * scale[live]
                better = (new_r**2).sum(axis=1) < (r**2).sum(axis=1)
            Z[live[better]] = trial[better]
            r, G = np.where(better[:, None], new_r, r), np.where(better[:, None, None], new_G, G)
            damping[live] = np.where(better, 0.1 * damping[live], np.maximum(8 * damping[live], 1e-3))
            stuck[live] = np.where(better, 0, stuck[live] + 1)
            met = np.abs(r).max(axis=1) <= _MET * scale[live]
            status[live[met]] = FOUND
            end = ~met & (_flatness(G, r) < _STATIONARY)
            status[live[end]] = OUTSIDE
            keep = ~(met & last) & ~end & (stuck[live] < 8) & np.isfinite(r).all(axis=1)
            live, r, G = live[keep], r[keep], G[keep]
            if not live.size:
                break
        return Z, status

    def _miss(self, Z: np.ndarray, frame: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What v misses of the target at Z, (N, K), and the slope of v there (N, K, n)."""
        with np.errstate(all="ignore"):
            value, J = self.jet(Z)
            miss = target - np.einsum("nmk,nm->nk", frame, value)
            return miss, np.swapaxes(frame, 1, 2) @ J


def image_of(link: LinkFunction) -> Image | str:
    """The image, or why it has no coordinates."""
    try:
        image = Image(link)
    except InputError as error:
        return f"the output has no fixed number of independent coordinates ({error.given})"
    return image if image.rank else "the noiseless output is discrete"


def _least_norm(G: np.ndarray) -> np.ndarray:
    """G^T (G G^T)^{-1} of (N, K, n)."""
    turned = np.swapaxes(G, 1, 2)
    return np.asarray(turned @ np.linalg.inv(G @ turned))


def _step(G: np.ndarray, r: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """G^T (G G^T + damping)^{-1} r, damping in units of the mean eigenvalue; zero where there is none."""
    with np.errstate(all="ignore"):
        normal = G @ np.swapaxes(G, 1, 2)
        size = np.einsum("nkk->n", normal) / G.shape[1]
        normal = normal / size[:, None, None] + damping[:, None, None] * np.eye(G.shape[1])
        good = np.isfinite(normal).all(axis=(1, 2)) & np.isfinite(r).all(axis=1)
        normal[~good] = np.eye(G.shape[1])
        along = solve_small(normal, np.where(good[:, None], r, 0.0)) / np.where(good, size, 1.0)[:, None]
        return np.where(good[:, None], np.einsum("nki,nk->ni", G, along), 0.0)


def _flatness(G: np.ndarray, r: np.ndarray) -> np.ndarray:
    """|G^T r| / (|G| |r|), (N,)."""
    with np.errstate(all="ignore"):
        along = np.sqrt((np.einsum("nki,nk->ni", G, r) ** 2).sum(axis=1))
        return np.asarray(along / np.sqrt((G**2).sum(axis=(1, 2)) * (r**2).sum(axis=1)))


def solve_small(normal: np.ndarray, right: np.ndarray) -> np.ndarray:
    """normal^{-1} right of symmetric (N, K, K) and (N, K), by Gauss elimination; not finite where singular."""
    A, b = normal.copy(), right.copy()
    K = A.shape[1]
    with np.errstate(all="ignore"):
        for i in range(K):
            for j in range(i + 1, K):
                factor = A[:, j, i] / A[:, i, i]
                A[:, j, i:] -= factor[:, None] * A[:, i, i:]
                b[:, j] -= factor * b[:, i]
        for i in reversed(range(K)):
            b[:, i] = (b[:, i] - np.einsum("nj,nj->n", A[:, i, i + 1 :], b[:, i + 1 :])) / A[:, i, i]
    return b
