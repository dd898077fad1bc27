"""Nodes that one layer is summed over at the states of a mesh, by numpy: rays between the creases of its mixing, fewer
where they count for less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smisym.kernels.meshes import FARTHER, FEWEST, NARROWER, SHORTER, SHORTEST, Mesh
from smisym.posterior.level_nodes import cuts_of


@dataclass(frozen=True)
class Fan:
    """Of M states, K = R times J nodes each, ray by ray; those that a state does not have are without mass.

    h (2, M, K): fields.  features (4 or 7, M, K): mass, with both whitened numbers, at the border; with products of
    two.  across (2, M, pieces, R), along (2, M, J): highest polynomials of the angle,
    piece by piece, and along rays.  count (M,): nodes.
    """

    h: np.ndarray
    features: np.ndarray
    across: np.ndarray
    along: np.ndarray
    count: np.ndarray

    def told(self, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of shares (M, K) with the highest polynomials: of the angle, (2, M, pieces), and along rays, (2, M)."""
        M, pieces = self.across.shape[1:3]
        held = share.reshape(M, pieces, -1, self.along.shape[2])
        return np.einsum("ampr,mprj->amp", self.across, held), np.einsum("amj,mprj->am", self.along, held)


def fans(mesh: Mesh, s: int, k: int, C: np.ndarray, far: np.ndarray, cov: bool) -> Fan:
    """Of one layer at states C (4, M), whose squared distances from the middle of their mesh are far (M,)."""
    around, radius, legendre = mesh.omega[s, k] / mesh.factor[s, k], mesh.radius[s], mesh.legendre
    most, long = mesh.rules[s, k]
    cuts = cuts_of(mesh, s, k, C, around)
    width = cuts[:, 1:] - cuts[:, :-1]
    turn = np.pi / (cuts[:, -1:] - cuts[:, :1])
    with np.errstate(divide="ignore"):
        fewer = most + NARROWER * np.minimum(np.log10(width * turn), 0.0) - FARTHER * far[:, None]
    fewer = np.where(width * turn > 1e-12, fewer, 0.0)
    fewer = np.maximum(np.floor(fewer + 0.5), min(FEWEST, most)).astype(np.int64)
    along = np.maximum(np.floor(long - SHORTER * far + 0.5), min(SHORTEST, long)).astype(np.int64)
    rule, ray = legendre[fewer][..., :most], legendre[along][..., :long]  # (M, pieces, 4, most), (M, 4, long)
    # A piece without width is none: the last end may be there more than once.
    there = (width > 0)[..., None]
    middle, wide = 0.5 * (cuts[:, 1:] + cuts[:, :-1]), 0.5 * width
    angle = (middle[..., None] + wide[..., None] * rule[:, :, 0]).reshape(len(cuts), -1)
    e0, e1 = np.cos(angle), np.sin(angle)
    inward, aside = e0 * around[0] + e1 * around[1], e0 * around[1] - e1 * around[0]
    half = np.sqrt(np.maximum(radius**2 - aside**2, 0.0))
    inner, outer = np.maximum(np.abs(inward) - half, 0.0), np.abs(inward) + half
    rho = 0.5 * (inner + outer)[..., None] + 0.5 * (outer - inner)[..., None] * ray[:, None, 0]
    weight = np.where(there, wide[..., None] * rule[:, :, 1], 0.0).reshape(angle.shape) * 0.5 * (outer - inner)
    weight = weight[..., None] * rho * ray[:, None, 1]
    x, y = (e[..., None] * rho for e in (e0, e1))
    features = np.zeros((4 + 3 * cov, *rho.shape))
    for sign in (1.0, -1.0):
        z0, z1 = sign * x - around[0], sign * y - around[1]
        square = z0 * z0 + z1 * z1
        mass = np.where(square <= radius**2 * (1 + 1e-12), np.exp(-0.5 * square), 0.0) * weight
        rows = [mass, mass * z0, mass * z1, np.where(square > (radius - 0.5) ** 2, mass, 0.0)]
        features += np.stack(rows + [mass * z0 * z0, mass * z0 * z1, mass * z1 * z1] * cov)
    h = np.stack([x, y]) * mesh.factor[s, k]
    M = len(cuts)
    across = np.moveaxis(np.where(there[:, :, None], rule[:, :, 2:], 0.0), 2, 0)
    count = np.where(there[..., 0], fewer, 0).sum(axis=1) * along
    return Fan(
        h.reshape(2, M, -1), features.reshape(len(features), M, -1), across, np.moveaxis(ray[:, 2:], 1, 0), count
    )
