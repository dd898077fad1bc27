"""State evolution as one equation in overlap and alpha, with its derivatives, in the terms in which it is solved: what
is left to learn, V.

V moves by congruences, V -> V^{1/2} exp(-S) V^{1/2}.  No step leaves 0 < V, S is of order one however small V is, and
the derivative of the map, J = V^{1/2} alpha dE[V^{1/2} . V^{1/2}] V^{1/2}, is symmetric.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smisym.base.matrices import units
from smisym.prior import remaining
from smisym.theory.estimate import Estimate
from smisym.theory.maps import OverlapMap

# What is left of a direction that counts as perfect: far below all else, so that the others see the limit, and far
# above the rounding of 1 - Q.
KNOWN = 1e-12
# What is left of a direction when it counts as perfect; it is then set to ``KNOWN``.
NEARLY = 1e-6
# Residual above which an idle direction is being learned by itself.
_SHOWN = 1e-7
# Eigenvalue of Q that is rounding, and how exactly a direction is within the span of such ones.
_ZERO, _SAME_SPAN = 1e-13, 1e-6
# Negative eigenvalue of Q after a step that is rounding.
ROUNDED = 1e-14
# Negative eigenvalues of Q that are rounding.
_ROUNDING = 1e-7
# Growth above one that rounding does not explain.
UNSTABLE = 1e-9


@dataclass
class Local:
    """State evolution linearised at one overlap, in unit matrices U_i along the basis of invariant ones.

    residual (k,): R.  onward (k,): its derivative in alpha.  jacobian (k, k): J, symmetric; of the directions that are
    not perfect yet.  scaled (k, k): the derivative of R away from a fixed point, up to the -1 on its diagonal.
    active (k,): whether something is learned or is about to be.
    known (P, P): projector on the directions that are perfect.  image (P, P): what the map makes of V.
    rest (P, P): what the data must tell, V^{1/2} alpha E V^{1/2}, so that V stays as it is.
    """

    estimate: Estimate
    alpha: float
    root: np.ndarray
    residual: np.ndarray
    onward: np.ndarray
    matrix: np.ndarray
    jacobian: np.ndarray
    scaled: np.ndarray
    active: np.ndarray
    known: np.ndarray
    units: np.ndarray
    image: np.ndarray
    rest: np.ndarray

    @property
    def Q(self) -> np.ndarray:
        return self.estimate.Q

    def growth(self, which: np.ndarray) -> tuple[float, np.ndarray]:
        """Largest eigenvalue of J among some coordinates, and its eigenvector (k,); 0 where there are none."""
        direction = np.zeros(len(which))
        if not which.any():
            return 0.0, direction
        values, vectors = np.linalg.eigh(self.jacobian[np.ix_(which, which)])
        direction[which] = vectors[:, -1]
        return float(values[-1]), direction

    @property
    def stable(self) -> bool:
        return self.growth(np.ones(len(self.active), dtype=bool))[0] <= 1 + UNSTABLE

    @property
    def remainder(self) -> np.ndarray:
        """What is left of the directions that are being learned, and are not perfect: a part (P, P) of V."""
        values, vectors = np.linalg.eigh(remaining(self.Q))
        left = np.where((values > 2 * KNOWN) & (values < 1 - _ROUNDING), values, 0.0)
        return np.asarray((vectors * left) @ vectors.T)

    @property
    def vanishing(self) -> bool:
        """Whether next to nothing is left of some direction that does not count as perfect yet."""
        # Of V itself: the remainder has eigenvalues that are zero but for rounding, of either sign.
        values = np.linalg.eigvalsh(remaining(self.Q))
        return bool(((values > 2 * KNOWN) & (values < NEARLY)).any())

    @property
    def most_left(self) -> float:
        """The most that is left of any direction that is being learned; 1 where none is."""
        return float(np.linalg.eigvalsh(self.remainder)[-1]) or 1.0

    def tangent(self) -> np.ndarray:
        """dQ/dalpha (P, P) along the fixed points through this one; 0 in directions of which nothing is learned.

        Raises LinAlgError at a fold, where the path goes on in alpha no further.
        """
        on, step = self.active, np.zeros(len(self.active))
        step[on] = np.linalg.solve(np.eye(int(on.sum())) - self.scaled[np.ix_(on, on)], self.onward[on])
        return self.in_overlap(step)

    def moved(self, step: np.ndarray) -> np.ndarray:
        """The overlap after a step (k,), 0 <= Q < I."""
        values, vectors = np.linalg.eigh(np.einsum("k,kij->ij", step, self.units))
        V = self.root @ ((vectors * np.exp(-values)) @ vectors.T) @ self.root
        return _rounded(remaining(V))

    def in_overlap(self, step: np.ndarray) -> np.ndarray:
        """The change of Q (P, P) that a small step (k,) makes."""
        return np.asarray(self.root @ np.einsum("k,kij->ij", step, self.units) @ self.root)


@dataclass(frozen=True)
class Equation:
    """State evolution of scramble r as one equation R(Q, alpha) = 0, from which any path of fixed points goes on."""

    omap: OverlapMap
    r: int
    side_information: float = 0.0

    def at(self, Q: np.ndarray, alpha: float, known: np.ndarray | None = None) -> Local:
        """The residual and its derivatives at an overlap (P, P), by one evaluation of the map.

        known (P, P): projector on what is perfect, and neither moves nor feeds others; None for nothing.
        """
        prior, symmetry = self.omap.model.prior, self.omap.model.symmetry
        estimate = self.omap.at(self.r, Q)
        root, V = estimate.root, remaining(estimate.Q)
        white = symmetry.project(estimate.white)
        response = prior.response(V, alpha * white, self.side_information)
        w, X = response.values, response.vectors
        known = np.zeros_like(V) if known is None else known
        free = np.eye(len(V)) - known
        unit = units(symmetry.basis)
        inward = free @ unit @ free
        fed = alpha * np.einsum("paqb,jab->jpq", estimate.slope, inward, optimize=True)
        jacobian = _at_rest(inward, fed, response.still, alpha * estimate.slope)
        jacobian = 0.5 * (jacobian + jacobian.T)
        half = free @ response.half
        scaled = np.einsum("ipq,jpq->ij", half @ unit @ half.T, fed)
        onward = np.einsum("kij,ij->k", unit, half @ white @ half.T)
        R = free @ ((X * np.log(w)) @ X.T) @ free
        residual = np.einsum("kij,ij->k", unit, R)
        # What the output shows of itself is learned from nothing; rounding and integrals leave less than this.
        active = ~idle(symmetry.basis, estimate.Q) | (np.abs(residual) > _SHOWN)
        image = root @ ((X / w) @ X.T) @ root
        return Local(
            estimate, alpha, root, residual, onward, R, jacobian, scaled, active, known, unit, image, response.rest
        )


def _at_rest(inward: np.ndarray, fed: np.ndarray, still: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """(k, k): the derivative of the map as if V were a fixed point, where the prior answers by ``still`` (P, P).

    fed (k, P, P): what the slope makes of ``inward`` (k, P, P).
    """
    if np.array_equal(still, np.eye(len(still))):
        return np.asarray(np.einsum("ipq,jpq->ij", inward, fed))
    within = still @ inward @ still.T
    return np.asarray(np.einsum("ipq,paqb,jab->ij", within, slope, within, optimize=True))


def idle(basis: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """Which basis matrices (k,) live where nothing is learned yet."""
    values, vectors = np.linalg.eigh(Q)
    silent = vectors[:, values <= _ZERO]
    nothing = silent @ silent.T
    return np.asarray(np.abs(nothing @ basis @ nothing - basis).max(axis=(1, 2)) < _SAME_SPAN)


def _rounded(Q: np.ndarray) -> np.ndarray:
    """Q without the negative eigenvalues that rounding leaves in directions that are not learned."""
    values, vectors = np.linalg.eigh(Q)
    if not -_ROUNDING < values[0] < 0:
        return Q
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def placed(Q: np.ndarray, known: np.ndarray, left: float = KNOWN) -> np.ndarray:
    """Q with all but ``left`` of the known directions, and no part between them and the others."""
    if not known.any():
        return Q
    others = np.eye(len(Q)) - known
    return np.asarray(others @ Q @ others + known * (1.0 - left))


def positive(M: np.ndarray) -> np.ndarray:
    """The sign and scale of an eigenvector that make it positive semi-definite with largest eigenvalue one."""
    values = np.linalg.eigvalsh(M)
    if abs(values[0]) > abs(values[-1]):
        M, values = -M, -values[::-1]
    lowest = min(float(values[0]), 0.0)
    return np.asarray((M - lowest * np.eye(len(M)) * (np.abs(M).sum(axis=1) > 0)) / (values[-1] - lowest))
