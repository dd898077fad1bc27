"""One matrix whose law no rotation of its rows or columns changes: what its kinds share.

What data tell of such a matrix is the matrix in Gaussian noise of variance Delta = 1 / Q_hat, in units of the prior.
The posterior mean keeps the singular vectors of what is seen, and an error F(Delta) is left (arXiv 2408.03733,
2410.18858).
"""

from __future__ import annotations

import abc
import functools
import math
from typing import Protocol, final

import numpy as np

from smisym.prior.base import Law, Prior, Response
from smisym.prior.gaussian import GaussianRows

# Below this noise, F = Delta times the share of numbers that are free: what comes after is smaller by a power of it.
LEAST_NOISE = 1e-13
# Overlap below which free entropy and what is told are those of Gaussian weights, to first order; Newton steps.
_LITTLE, _STEPS, _SETTLED = 1e-9, 60, 1e-14
ONE_ROW = GaussianRows(1)
# Numbers of a block of samples that are held at a time.
_BLOCK = 2**22


class Denoised(Protocol):
    """Of the law of a matrix in noise: F, 1 - F with its own digits, and dF/dDelta."""

    @property
    def left(self) -> float: ...

    @property
    def known(self) -> float: ...

    @property
    def slope(self) -> float: ...


class PerSquare(Prior):
    """Key-query matrices of extensive rank: samples are counted by the square of the dimension of the tokens."""

    @property
    def matrix_entries(self) -> str:
        return "d^2"

    @final
    def samples(self, alpha: float, dim: int) -> float:
        return alpha * dim**2

    @property
    @final
    def unit(self) -> str:
        return "N/D^2"

    @final
    def alpha(self, samples: int, dim: int) -> float:
        return samples / dim**2


class OneMatrix(Prior):
    """One row of weights, the entries of a matrix."""

    @property
    @final
    def rows(self) -> int:
        return 1

    @property
    @final
    def row_slices(self) -> tuple[int, ...]:
        return (0,)

    @property
    @final
    def coupled(self) -> bool:
        return True

    @property
    @final
    def precision(self) -> None:
        return None


class Symmetric(Prior):
    """Tied key-query matrices: their scores are the T (T + 1) / 2 fields of a row, and a sample counts twice."""

    @property
    def reads(self) -> str:
        return "all pairs of tokens"

    @property
    def matrix_entries(self) -> str:
        return "d (d + 1) / 2"

    @property
    @final
    def multiplicity(self) -> int:
        return 2

    @final
    def tokens(self, columns: int) -> int:
        return (math.isqrt(8 * columns + 1) - 1) // 2

    @final
    def fitting(self, dim: int) -> int:
        return dim


class MatrixPrior(OneMatrix):
    """A matrix of extensive rank.  A kind says what noise leaves of it."""

    @property
    @abc.abstractmethod
    def free_share(self) -> float:
        """Of the numbers of a matrix of this shape, what one of this rank has free."""

    @abc.abstractmethod
    def spectrum(self, noise: float) -> Denoised:
        """What there is to say of the matrix in noise of this variance, LEAST_NOISE at least."""

    @abc.abstractmethod
    def potential(self, noise: float) -> float:
        """Psi at Q_hat = 1 / noise, for each number: its derivative in Q_hat is (1 - F) / 2 over the multiplicity."""

    @property
    def finite_size(self) -> str:
        return "the weights are one matrix, and what a run of finite size is off by is not of order 1/D"

    @final
    def left_of(self, noise: float) -> tuple[float, float, float]:
        """(F, 1 - F, dF/dDelta) at noise of variance Delta > 0."""
        return _left_of(self, noise)

    @final
    def noise_of(self, left: float, known: float) -> float:
        """Delta at which F is ``left``; ``known``: 1 - left, which has its own digits.  Infinite where nothing is
        known."""
        return _noise_of(self, left, known)

    @final
    def response(self, V: np.ndarray, told: np.ndarray, side_information: float) -> Response:
        left, heard = float(V[0, 0]), float(told[0, 0] + side_information * V[0, 0])
        # What is told is never negative but for noise, which is taken as of Gaussian weights.
        F, _, slope = self.left_of(left / heard) if heard > 0 else (1 - heard / left, 0.0, 1.0)
        noise = left / heard if heard > 0 else 1.0
        half = math.sqrt(slope / (F * left)) * noise
        at_rest = self.noise_of(left, 1 - left)
        still, rest = 1.0, 0.0
        if math.isfinite(at_rest):
            still, rest = math.sqrt(math.sqrt(self.left_of(at_rest)[2]) * at_rest / left), left / at_rest
        one = np.ones((1, 1))
        return Response(one, np.array([left / F]), half * one, still * one, rest * one)

    @final
    def overlap(self, Q_hat: np.ndarray) -> np.ndarray:
        told = float(Q_hat[0, 0])
        # Little is known of little, as of Gaussian weights; less than nothing is noise of the data.
        return np.full((1, 1), self.left_of(1 / told)[1] if told > 0 else told)

    @final
    def conjugate(self, Q: np.ndarray) -> np.ndarray:
        known = float(Q[0, 0])
        return np.full((1, 1), 1 / self.noise_of(1 - known, known))

    @final
    def entropy(self, Q: np.ndarray) -> float:
        known = float(Q[0, 0])
        if known <= _LITTLE:
            return -(known**2) / (4 * self.multiplicity)
        noise = self.noise_of(1 - known, known)
        return self.potential(noise) - known / (2 * self.multiplicity * noise)

    @final
    def dimension(self, span: np.ndarray) -> float:
        return len(span) * self.free_share


class Centred(MatrixPrior):
    """A matrix of mean zero: fields have the law of those of one row of standard normal weights."""

    @property
    @final
    def multiplicity(self) -> int:
        return 1

    @final
    def respects(self, change: np.ndarray) -> bool:
        return bool(np.abs(np.abs(change) - 1).max() <= 1e-12)

    @final
    def law(self, Q: np.ndarray) -> Law:
        return ONE_ROW.law(Q)

    @final
    def roots(self, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return ONE_ROW.roots(Q)

    @final
    def start(self, dim: int, strength: float, rng: np.random.Generator) -> np.ndarray:
        return strength * self.draw(dim, rng)

    @final
    def in_units(self, W: np.ndarray) -> np.ndarray:
        return W


def blocks(X: np.ndarray, tokens: int) -> list[tuple[slice, np.ndarray]]:
    """(which samples, their tokens) of tokens X (N tokens, d), so many at a time: nothing of N d^2 numbers is held."""
    size = max(_BLOCK // (tokens * X.shape[1]), 1)
    return [(slice(k, k + size), X[k * tokens : (k + size) * tokens]) for k in range(0, len(X) // tokens, size)]


@functools.lru_cache(maxsize=4096)
def _left_of(prior: MatrixPrior, noise: float) -> tuple[float, float, float]:
    if noise < LEAST_NOISE:
        slope = prior.free_share
        return slope * noise, 1 - slope * noise, slope
    if noise > 1 / _LITTLE:
        return 1 - 1 / noise, 1 / noise, (1 / noise) ** 2
    spectrum = prior.spectrum(noise)
    return spectrum.left, spectrum.known, spectrum.slope


@functools.lru_cache(maxsize=4096)
def _noise_of(prior: MatrixPrior, left: float, known: float) -> float:
    if known <= _LITTLE:
        return 1 / known if known > 0 else math.inf
    if left < prior.free_share * LEAST_NOISE:
        return left / prior.free_share
    # log F / (1 - F) is log Delta for Gaussian weights, and close to straight for any.
    at, target = math.log(left / known), math.log(left) - math.log(known)
    for _ in range(_STEPS):
        F, rest, slope = prior.left_of(math.exp(at))
        step = (target - math.log(F) + math.log(rest)) / (slope * math.exp(at) * (1 / F + 1 / rest))
        at += float(np.clip(step, -3.0, 3.0))
        if abs(step) < _SETTLED * max(1.0, abs(at)):
            break
    return math.exp(at)
