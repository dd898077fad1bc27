"""Gaussian weights: independent entries, on the whole embedding or on slices of it.

With Q_hat = alpha E + lam I, all in units of the prior, the overlap is Q = Q_hat (I + Q_hat)^{-1}: what is left to
learn is V = (I + Q_hat)^{-1}.  Its term of the free entropy is tr Q / 2 + log det(I - Q) / 2.  (arXiv 2502.00901, eq.
14.)
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import linalg

from smisym.base.derivation import Step
from smisym.base.errors import InputError
from smisym.base.matrices import square_root
from smisym.prior.base import Law, Prior, Response, remaining


class GaussianPrior(Prior):
    """Independent Gaussian entries of W.  A kind says how wide they are, and which part of the embedding a row sees."""

    @property
    @abc.abstractmethod
    def deviations(self) -> np.ndarray:
        """(P,): the standard deviation of the entries of each row."""

    @property
    @final
    def rows(self) -> int:
        return len(self.row_slices)

    @property
    @final
    def coupled(self) -> bool:
        return True

    @property
    @final
    def multiplicity(self) -> int:
        return 1 + max(self.row_slices)

    @final
    def tokens(self, columns: int) -> int:
        return columns

    @final
    def samples(self, alpha: float, dim: int) -> float:
        return alpha * dim

    @property
    @final
    def unit(self) -> str:
        return "N/D"

    @final
    def alpha(self, samples: int, dim: int) -> float:
        return samples / dim

    @property
    @final
    def finite_size(self) -> str:
        return ""

    @property
    @final
    def precision(self) -> np.ndarray:
        return np.diag(1.0 / self.deviations**2)

    @final
    def respects(self, change: np.ndarray) -> bool:
        covariance = np.diag(self.deviations**2)
        moved = change @ covariance @ change.T
        return bool(np.abs(moved - covariance).max() <= 1e-12 * np.abs(covariance).max())

    @final
    def steps(self) -> tuple[Step, ...]:
        return ()

    # ---- D to infinity

    @final
    def law(self, Q: np.ndarray) -> Law:
        """omega given Z: mean Q Z, covariance Q V; the same joint law as omega = Q^{1/2} xi, Z = omega + V^{1/2} u."""
        values, vectors = np.linalg.eigh(Q)
        if values[0] < -1e-12 or values[-1] >= 1:
            raise InputError("overlap Q", Q.tolist(), "0 <= Q < I", "at Q = I nothing is left to learn")
        values = np.maximum(values, 0.0)
        both = (vectors * np.sqrt(values * (1 - values))) @ vectors.T
        V = remaining(Q)
        s = self.deviations
        # With unit deviations every factor below is one, to the bit.
        root = square_root(V)
        gain, noise = s[:, None] * Q / s, s[:, None] * both
        return Law(np.diag(s), gain, noise, s[:, None] * V * s, root * s, s[:, None] * root)

    @final
    def roots(self, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = np.linalg.eigh((Q + Q.T) / 2)
        values, s = np.clip(values, 0.0, 1.0), self.deviations[:, None]
        return s * ((vectors * np.sqrt(values)) @ vectors.T), s * ((vectors * np.sqrt(1 - values)) @ vectors.T)

    @final
    def response(self, V: np.ndarray, told: np.ndarray, side_information: float) -> Response:
        squares = self.deviations**2
        if np.ptp(squares) == 0:
            prior = V * (1 + side_information * squares[0])
        else:
            root = square_root(V)
            prior = V + side_information * (root * squares) @ root
        values, vectors = np.linalg.eigh(prior + told)
        eye = np.eye(len(V))
        return Response(vectors, values, (vectors / np.sqrt(values)) @ vectors.T, eye, eye - V)

    @final
    def overlap(self, Q_hat: np.ndarray) -> np.ndarray:
        return np.asarray(Q_hat @ np.linalg.inv(np.eye(len(Q_hat)) + Q_hat))

    @final
    def conjugate(self, Q: np.ndarray) -> np.ndarray:
        return np.asarray(np.linalg.inv(remaining(Q)) - np.eye(len(Q)))

    @final
    def entropy(self, Q: np.ndarray) -> float:
        whole = 0.5 * float(np.trace(Q)) + 0.5 * float(np.linalg.slogdet(remaining(Q))[1])
        return whole / self.multiplicity

    @final
    def dimension(self, span: np.ndarray) -> float:
        return float(len(span))

    # ---- D as it is

    @final
    def fitting(self, dim: int) -> int:
        return max(dim // self.multiplicity, 1) * self.multiplicity

    @final
    def row_dimension(self, dim: int) -> int:
        own, left = divmod(dim, self.multiplicity)
        if left or own < 1:
            raise InputError(
                "D",
                dim,
                f"a multiple of {self.multiplicity}, the number of heads that split the embedding",
                f"use D = {self.fitting(dim)}, or shared heads",
            )
        return own

    @final
    def draw(self, dim: int, rng: np.random.Generator, *, normalised: bool = False) -> np.ndarray:
        own = self.row_dimension(dim)
        W = rng.standard_normal((self.rows, own))
        if normalised:
            W *= math.sqrt(own) / np.linalg.norm(W, axis=1, keepdims=True)
        return self.deviations[:, None] * W

    @final
    def start(self, dim: int, strength: float, rng: np.random.Generator) -> np.ndarray:
        return strength * self.draw(dim, rng)

    @final
    def in_units(self, W: np.ndarray) -> np.ndarray:
        return W / self.deviations[:, None]

    @final
    def project(self, W: np.ndarray, X: np.ndarray, tokens: int) -> np.ndarray:
        """W X_mu^T / sqrt(D), D the entries of a row; each row sees its own part of X."""
        fields = np.empty((len(W), len(X)))
        for rows, part in self._parts(W.shape[1], X):
            fields[rows] = (W[rows] @ part.T) / math.sqrt(W.shape[1])
        return fields.reshape(len(W), -1, tokens).transpose(1, 0, 2)

    @final
    def back_project(self, g: np.ndarray, X: np.ndarray) -> np.ndarray:
        """sum_mu g_mu X_mu / sqrt(D); each row of g on its own part of X."""
        flat = g.transpose(1, 0, 2).reshape(g.shape[1], -1)
        own = X.shape[1] // self.multiplicity
        out = np.empty((len(flat), own))
        for rows, part in self._parts(own, X):
            out[rows] = (flat[rows] @ part) / math.sqrt(own)
        return out

    def _parts(self, own: int, X: np.ndarray) -> list[tuple[Any, np.ndarray]]:
        """(rows, the columns of X that they see) for every part of the embedding."""
        if not any(self.row_slices):
            return [(slice(0, self.rows), X)]
        which = np.array(self.row_slices)
        return [(which == s, X[:, s * own : (s + 1) * own]) for s in range(self.multiplicity)]

    @final
    def denoise(self, A: np.ndarray, b: np.ndarray, side_information: float) -> tuple[np.ndarray, np.ndarray]:
        precision = A + self.precision + side_information * np.eye(len(A))
        factor = linalg.cho_factor(precision, lower=True)
        inverse = linalg.cho_solve(factor, np.eye(len(A)))
        C_hat = (inverse + inverse.T) / 2  # symmetric to the last bit
        return C_hat @ b, C_hat


@final
@dataclass(frozen=True)
class GaussianRows(GaussianPrior):
    """Rows of W with standard normal entries on the whole embedding: what an architecture has by default."""

    count: int

    @property
    def row_slices(self) -> tuple[int, ...]:
        return (0,) * self.count

    @property
    def deviations(self) -> np.ndarray:
        return np.ones(self.count)

    def describe(self) -> str:
        return "independent standard normal entries"


@final
@dataclass(frozen=True)
class SlicedRows(GaussianPrior):
    """Rows with standard normal entries, each on its slice of the embedding, as of heads that split it.

    slices (P,): the slice of each row.  A slice has as many times more samples per dimension as there are slices.
    """

    slices: tuple[int, ...]

    @property
    def row_slices(self) -> tuple[int, ...]:
        return self.slices

    @property
    def deviations(self) -> np.ndarray:
        return np.ones(len(self.slices))

    def describe(self) -> str:
        return f"independent standard normal entries, rows on {self.multiplicity} slices of the embedding"
