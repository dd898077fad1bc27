"""Models whose channel has a closed form, as GAMP reads them (fields, tokens, symmetry, link, channel).

* :class:`Ridge`: y = M Z + noise.  The channel is Gaussian, and the fixed point of GAMP *is* ridge regression, exactly,
  at any size: every term of the iteration (Onsager, A, side information, damping) must be right for this to hold.
* :class:`Signs`: each row of Z is seen up to its sign.  Its state evolution at P = 1 is one scalar integral.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from smisym.base.solution import Result
from smisym.prior import GaussianRows, Prior


@dataclass
class Moments:
    g: np.ndarray
    dg: np.ndarray | None
    error: np.ndarray
    result: Result


def _moments(mean: np.ndarray, cov: np.ndarray | None, omega: np.ndarray, V: np.ndarray, result: Result) -> Moments:
    """g and d g / d omega from posterior mean (S, P, T) and covariance (S, P, T, P, T)."""
    inverse = np.linalg.inv(V)
    dg = None
    if cov is not None:
        prior = np.einsum("pq,tu->ptqu", inverse, np.eye(omega.shape[2]))
        dg = np.einsum("ap,sptqu,qb->satbu", inverse, cov, inverse) - prior
    return Moments(inverse @ (mean - omega), dg, np.zeros(len(omega)), result)


def sign_symmetry(signs: np.ndarray) -> Any:
    """The symmetry of a link that is unchanged under these flips of rows, (G, P), and nothing else."""
    return SimpleNamespace(signs=signs, elements=signs[:, :, None] * np.eye(signs.shape[1]), rotations=())


@dataclass
class Ridge:
    """y = M Z + sqrt(noise) N(0, 1), with M (K, P)."""

    M: np.ndarray
    tokens: int
    noise: float
    symmetry: Any = None

    def __post_init__(self) -> None:
        self.fields = self.M.shape[1]
        self.channel = self
        self.symmetry = sign_symmetry(np.ones((1, self.fields)))
        self.prior: Prior = GaussianRows(self.fields)

    def link(self, Z: np.ndarray) -> np.ndarray:
        return self.M @ Z

    def sample(self, Z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self.link(Z) + math.sqrt(self.noise) * rng.standard_normal((len(Z), len(self.M), self.tokens))

    def moments(self, y: Any, omega: np.ndarray, V: np.ndarray, *, cov: bool = False, rtol: float = 1e-6) -> Moments:
        gain = V @ self.M.T @ np.linalg.inv(self.M @ V @ self.M.T + self.noise * np.eye(len(self.M)))
        spread = np.einsum("pq,tu->ptqu", V - gain @ self.M @ V, np.eye(self.tokens))
        mean = omega + gain @ (y - self.M @ omega)
        return _moments(mean, np.broadcast_to(spread, (len(y), *spread.shape)), omega, V, Result.SUCCESS)

    def default_rtol(self) -> float:
        return 1e-12

    def ridge(self, X: np.ndarray, y: np.ndarray, lam: float = 0.0, S: np.ndarray | None = None) -> np.ndarray:
        """Mode of the posterior of W, by solving its normal equations."""
        P, D = self.fields, X.shape[2]
        tokens = X.reshape(-1, D)
        outputs = y.transpose(0, 2, 1).reshape(-1, len(self.M))
        gram = np.kron(self.M.T @ self.M, tokens.T @ tokens / D) / self.noise
        right = (outputs @ self.M).T @ tokens / math.sqrt(D) / self.noise
        if S is not None:
            right = right + math.sqrt(lam) * S
        return np.linalg.solve(gram + (1 + lam) * np.eye(P * D), right.ravel()).reshape(P, D)


@dataclass
class Signs:
    """y = (z_p z_p^T)_p: each row of R^T Z is seen up to its sign.  R, orthogonal, is a change of basis of the rows."""

    fields: int
    tokens: int
    R: np.ndarray | None = None
    result: Result = Result.SUCCESS
    calls: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.channel = self
        self.R = np.eye(self.fields) if self.R is None else self.R
        self.signs = np.array(list(itertools.product((1.0, -1.0), repeat=self.fields)))
        self.symmetry = sign_symmetry(self.signs)
        self.prior: Prior = GaussianRows(self.fields)

    def link(self, Z: np.ndarray) -> np.ndarray:
        rows = self.R.T @ Z
        return rows[..., :, None] * rows[..., None, :]

    def sample(self, Z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self.link(Z)

    def moments(self, y: Any, omega: np.ndarray, V: np.ndarray, *, cov: bool = False, rtol: float = 1e-6) -> Moments:
        self.calls.append(V)
        largest = np.argmax(np.einsum("spii->spi", y), axis=2)[..., None, None]
        column = np.take_along_axis(y, largest, axis=3)[..., 0]
        rows = column / np.sqrt(np.take_along_axis(column, largest[..., 0], axis=2))
        points = self.R @ (self.signs[:, None, :, None] * rows)  # (G, S, P, T)
        away = points - omega
        exponent = -0.5 * np.einsum("gspt,pq,gsqt->gs", away, np.linalg.inv(V), away)
        weights = np.exp(exponent - exponent.max(axis=0))
        weights /= weights.sum(axis=0)
        mean = np.einsum("gs,gspt->spt", weights, points)
        spread = np.einsum("gs,gspt,gsqu->sptqu", weights, points - mean, points - mean) if cov else None
        return _moments(mean, spread, omega, V, self.result)

    def default_rtol(self) -> float:
        return 1e-12


def signs_map(q: float, tokens: int, normals: tuple[np.ndarray, np.ndarray]) -> float:
    """E[g^2] of one row seen up to its sign, at overlap q, summed over tokens."""
    xi, u = normals
    omega = math.sqrt(q) * xi
    Z = omega + math.sqrt(1 - q) * u
    g = (np.tanh(np.sum(omega * Z, axis=1, keepdims=True) / (1 - q)) * Z - omega) / (1 - q)
    return float(np.mean(np.sum(g**2, axis=1)))


def signs_trajectory(alpha: float, tokens: int, q: float, steps: int) -> np.ndarray:
    """Overlaps of state evolution, the start first, by plain Monte Carlo (relative error about 0.5 per cent)."""
    rng = np.random.default_rng(1)
    normals = (rng.standard_normal((200_000, tokens)), rng.standard_normal((200_000, tokens)))
    values = [q]
    for _ in range(steps):
        conjugate = alpha * signs_map(values[-1], tokens, normals)
        values.append(conjugate / (1 + conjugate))
    return np.array(values)


def posterior_start(W: np.ndarray, q: float, rng: np.random.Generator) -> np.ndarray:
    """A W_hat with overlap q with the truth and with itself, as a posterior mean has."""
    return q * W + math.sqrt(q * (1 - q)) * rng.standard_normal(W.shape)
