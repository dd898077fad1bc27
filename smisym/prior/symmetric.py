"""One symmetric matrix of extensive rank, whose law no rotation changes: its fields, its rows and its denoiser.

Its kinds differ in the law of its eigenvalues alone.  What is to be learned is what varies, of variance one; the mean
of its eigenvalues is known, as a multiple of the identity.
"""

from __future__ import annotations

import abc
import math
from typing import Protocol, final

import numpy as np
from scipy import linalg

from smisym.base.errors import InputError
from smisym.prior.base import Law
from smisym.prior.matrices import LEAST_NOISE, Denoised, MatrixPrior, PerSquare, Symmetric, blocks


class Shrunk(Denoised, Protocol):
    """Of the eigenvalues of a symmetric matrix in noise, also: what each is after denoising, and their energy."""

    @property
    def logarithm(self) -> float: ...

    def shrunk(self, z: np.ndarray) -> np.ndarray: ...


class SymmetricMatrix(Symmetric, PerSquare, MatrixPrior):
    """A symmetric matrix with a law of eigenvalues; a kind says which."""

    @property
    @abc.abstractmethod
    def mean(self) -> float:
        """Of the eigenvalues: the part of the matrix that is known from the start."""

    @abc.abstractmethod
    def spectrum(self, noise: float) -> Shrunk: ...

    @abc.abstractmethod
    def drawn(self, dim: int, rng: np.random.Generator) -> np.ndarray:
        """A matrix (dim, dim) of this law."""

    @property
    def finite_size(self) -> str:
        return "the mean of the weights is known, and what a run of finite size is off by is not of order 1/D"

    @final
    def respects(self, change: np.ndarray) -> bool:
        return bool(np.abs(change - 1).max() <= 1e-12)

    # ---- D to infinity

    @final
    def law(self, Q: np.ndarray) -> Law:
        """omega given Z: of variance mean^2 + Q where Z has mean^2 + 1, and 1 - Q is left."""
        known = float(Q[0, 0])
        if not -1e-12 <= known < 1:
            raise InputError("overlap Q", Q.tolist(), "0 <= Q < I", "at Q = I nothing is left to learn")
        known, whole = max(known, 0.0), 1 + self.mean**2
        told, left = self.mean**2 + known, np.full((1, 1), 1 - known)
        noise = np.full((1, 1), math.sqrt(told * (1 - known) / whole))
        root = np.sqrt(left)
        return Law(np.full((1, 1), math.sqrt(whole)), np.full((1, 1), told / whole), noise, left, root, root)

    @final
    def roots(self, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        known = np.clip(Q, 0.0, 1.0)
        return np.sqrt(self.mean**2 + known), np.sqrt(1 - known)

    @final
    def potential(self, noise: float) -> float:
        return 0.25 / noise - 0.5 * self.spectrum(noise).logarithm + 0.25 * math.log(noise) - 0.125

    # ---- D as it is

    @final
    def row_dimension(self, dim: int) -> int:
        return dim * (dim + 1) // 2

    @final
    def draw(self, dim: int, rng: np.random.Generator, *, normalised: bool = False) -> np.ndarray:
        drawn = self.row(self.drawn(dim, rng))
        if not normalised:
            return drawn
        mean = self._mean(drawn.shape[1])
        varying = drawn - mean
        return np.asarray(mean + varying * (math.sqrt(drawn.shape[1]) / np.linalg.norm(varying)))

    @final
    def start(self, dim: int, strength: float, rng: np.random.Generator) -> np.ndarray:
        drawn = self.draw(dim, rng)
        mean = self._mean(drawn.shape[1])
        return np.asarray(mean + strength * (drawn - mean))

    @final
    def in_units(self, W: np.ndarray) -> np.ndarray:
        return W - self._mean(W.shape[1])

    @final
    def project(self, W: np.ndarray, X: np.ndarray, tokens: int) -> np.ndarray:
        """x_a S x_b^T / sqrt(d), a <= b, block by block of samples: no array of N d^2 numbers."""
        S, dim = self.matrix(W), X.shape[1]
        first, second = np.triu_indices(tokens)
        fields = np.empty((len(X) // tokens, 1, len(first)))
        for part, own in blocks(X, tokens):
            scores = (own @ S).reshape(-1, tokens, dim) @ own.reshape(-1, tokens, dim).swapaxes(1, 2)
            fields[part, 0] = scores[:, first, second]
        fields[..., first == second] = (fields[..., first == second] - np.trace(S)) / math.sqrt(2)
        return np.asarray(fields / math.sqrt(dim))

    @final
    def back_project(self, g: np.ndarray, X: np.ndarray) -> np.ndarray:
        """sum_mu sum_ab g_ab x_a^T x_b, as a row."""
        tokens = self.tokens(g.shape[2])
        first, second = np.triu_indices(tokens)
        same = first == second
        total = np.zeros((X.shape[1],) * 2)
        for part, own in blocks(X, tokens):
            weights = np.zeros((len(g[part]), tokens, tokens))
            weights[:, first, second] = np.where(same, g[part, 0] / math.sqrt(2), g[part, 0] / 2)
            weights[:, second, first] = weights[:, first, second]
            total += own.T @ (weights @ own.reshape(-1, tokens, X.shape[1])).reshape(own.shape)
        total -= np.eye(len(total)) * (g[..., same].sum() / math.sqrt(2))
        # The basis of rows is that of matrices of Frobenius norm one.
        return np.asarray(self.row(total) / math.sqrt((len(total) + 1) / 2 * self.row_dimension(len(total))))

    @final
    def denoise(self, A: np.ndarray, b: np.ndarray, side_information: float) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues of what the data tell of S, b / A, shrunk; their vectors stay."""
        told = float(A[0, 0]) + side_information
        if not told >= 0:
            raise linalg.LinAlgError("what is told is negative")
        if told == 0:
            return self._mean(b.shape[1]), np.ones((1, 1))
        seen = self.matrix(b / told)
        dim = len(seen)
        noise = dim / (dim + 1) / told
        values, vectors = linalg.eigh(seen - self.mean * np.eye(dim))
        shrunk = self.spectrum(max(noise, LEAST_NOISE)).shrunk(values) + self.mean
        return self.row((vectors * shrunk) @ vectors.T), np.full((1, 1), self.left_of(noise)[0])

    # ---- rows and matrices

    @final
    def row(self, S: np.ndarray) -> np.ndarray:
        """The row of weights (1, own) of a symmetric matrix (d, d)."""
        first, second = np.triu_indices(len(S))
        scale = math.sqrt((len(S) + 1) / 2)
        return np.asarray(scale * np.where(first == second, 1.0, math.sqrt(2)) * S[first, second])[None]

    @final
    def matrix(self, W: np.ndarray) -> np.ndarray:
        """The symmetric matrix (d, d) of a row of weights (1, own)."""
        dim = self.tokens(W.shape[1])
        first, second = np.triu_indices(dim)
        S = np.zeros((dim, dim))
        S[first, second] = W[0] / (math.sqrt((dim + 1) / 2) * np.where(first == second, 1.0, math.sqrt(2)))
        S[second, first] = S[first, second]
        return S

    @final
    def _mean(self, own: int) -> np.ndarray:
        return self.row(self.mean * np.eye(self.tokens(own)))
