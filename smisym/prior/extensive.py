"""Key-query matrices of extensive rank: S = W W^T / sqrt(r d), W (d, r) standard normal, r / d = rho as d grows.

A symmetric matrix is one row of weights, of d (d + 1) / 2 numbers: its entries in an orthonormal basis, the entries
above the diagonal times sqrt(2), and all times sqrt((d + 1) / 2), so that the mean square of what varies is one.  On T
tokens it makes T (T + 1) / 2 fields,

    z_ab = x_a S x_b^T / sqrt(d) for a < b,   z_aa = (x_a S x_a^T - tr S) / sqrt(2 d),

which are independent Gaussians of variance Q0 = tr S^2 / d = 1 + rho, as the sensing matrices have independent entries
of variance one in that basis.  The mean of S, sqrt(rho) times the identity, is known from the start: of the variance of
the fields rho is known, from the tokens alone.  What is to be learned is S less its mean.  Its overlap Q is 0 where
nothing is known and 1 where all is, so that V = 1 - Q is the error ||S_hat - S||^2 / d, and all that is said of
Gaussian rows holds of it, but for the prior's answers:

    V' = F(1 / Q_hat),  F the error of denoising a Wishart matrix (:mod:`smisym.prior.spectrum`),

1 / (1 + Q_hat) as rho grows.  A sample counts twice: N = alpha d^2 of them for d^2 / 2 numbers.  Where little is left F
is Q_hat^{-1} times 1 - (1 - rho)^2 for rho < 1: of d^2 / 2 numbers so many, d r - r^2 / 2, are free.
(arXiv 2506.01582; in its notation q = rho + Q, and q_hat is Q_hat.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy import linalg

from smisym.base.derivation import Formula, Step
from smisym.base.errors import InputError
from smisym.prior.base import Law
from smisym.prior.matrices import LEAST_NOISE, MatrixPrior, PerSquare, Symmetric, blocks
from smisym.prior.spectrum import NoisyWishart


@final
@dataclass(frozen=True)
class ExtensiveRank(Symmetric, PerSquare, MatrixPrior):
    """One tied key-query matrix of rank ``rank_ratio`` times the dimension of the tokens, a number > 0."""

    rank_ratio: float

    def describe(self) -> str:
        return f"S = W W^T / sqrt(r d), W (d, r) standard normal, r / d = {self.rank_ratio:g}"

    @property
    def finite_size(self) -> str:
        return "the mean of the weights is known, and what a run of finite size is off by is not of order 1/D"

    def respects(self, change: np.ndarray) -> bool:
        return bool(np.abs(change - 1).max() <= 1e-12)

    def steps(self) -> tuple[Step, ...]:
        return _steps(self.rank_ratio)

    # ---- D to infinity

    def law(self, Q: np.ndarray) -> Law:
        """omega given Z: of variance rho + Q where Z has 1 + rho, and 1 - Q is left."""
        known = float(Q[0, 0])
        if not -1e-12 <= known < 1:
            raise InputError("overlap Q", Q.tolist(), "0 <= Q < I", "at Q = I nothing is left to learn")
        known, whole = max(known, 0.0), 1 + self.rank_ratio
        told, left = self.rank_ratio + known, np.full((1, 1), 1 - known)
        noise = np.full((1, 1), math.sqrt(told * (1 - known) / whole))
        root = np.sqrt(left)
        return Law(np.full((1, 1), math.sqrt(whole)), np.full((1, 1), told / whole), noise, left, root, root)

    def roots(self, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        known = np.clip(Q, 0.0, 1.0)
        return np.sqrt(self.rank_ratio + known), np.sqrt(1 - known)

    @property
    def free_share(self) -> float:
        return 1 - max(1 - self.rank_ratio, 0.0) ** 2

    def spectrum(self, noise: float) -> NoisyWishart:
        return NoisyWishart(self.rank_ratio, noise)

    def potential(self, noise: float) -> float:
        return 0.25 / noise - 0.5 * self.spectrum(noise).logarithm + 0.25 * math.log(noise) - 0.125

    # ---- D as it is

    def row_dimension(self, dim: int) -> int:
        return dim * (dim + 1) // 2

    def draw(self, dim: int, rng: np.random.Generator, *, normalised: bool = False) -> np.ndarray:
        rank = max(round(self.rank_ratio * dim), 1)
        W = rng.standard_normal((dim, rank))
        drawn = self.row(W @ W.T / math.sqrt(rank * dim))
        if not normalised:
            return drawn
        mean = self._mean(drawn.shape[1])
        varying = drawn - mean
        return np.asarray(mean + varying * (math.sqrt(drawn.shape[1]) / np.linalg.norm(varying)))

    def start(self, dim: int, strength: float, rng: np.random.Generator) -> np.ndarray:
        drawn = self.draw(dim, rng)
        mean = self._mean(drawn.shape[1])
        return np.asarray(mean + strength * (drawn - mean))

    def in_units(self, W: np.ndarray) -> np.ndarray:
        return W - self._mean(W.shape[1])

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
        values, vectors = linalg.eigh(seen - math.sqrt(self.rank_ratio) * np.eye(dim))
        shrunk = self.spectrum(max(noise, LEAST_NOISE)).shrunk(values) + math.sqrt(self.rank_ratio)
        return self.row((vectors * shrunk) @ vectors.T), np.full((1, 1), self.left_of(noise)[0])

    # ---- rows and matrices

    def row(self, S: np.ndarray) -> np.ndarray:
        """The row of weights (1, own) of a symmetric matrix (d, d)."""
        first, second = np.triu_indices(len(S))
        scale = math.sqrt((len(S) + 1) / 2)
        return np.asarray(scale * np.where(first == second, 1.0, math.sqrt(2)) * S[first, second])[None]

    def matrix(self, W: np.ndarray) -> np.ndarray:
        """The symmetric matrix (d, d) of a row of weights (1, own)."""
        dim = self.tokens(W.shape[1])
        first, second = np.triu_indices(dim)
        S = np.zeros((dim, dim))
        S[first, second] = W[0] / (math.sqrt((dim + 1) / 2) * np.where(first == second, 1.0, math.sqrt(2)))
        S[second, first] = S[first, second]
        return S

    def _mean(self, own: int) -> np.ndarray:
        return self.row(math.sqrt(self.rank_ratio) * np.eye(self.tokens(own)))


def _steps(rho: float) -> tuple[Step, ...]:
    """From matrices to state evolution, in words and formulas."""
    fields = Step(
        "prior",
        "The matrix, and what is known of it",
        f"The weights are one symmetric matrix of rank ratio $\\rho = {rho:g}$, whose mean is known. The fields are "
        "linear in it, with sensing matrices that have independent entries of variance one in an orthonormal basis of "
        "symmetric matrices: as $d$ grows they are independent Gaussians, and the mean alone, seen by the tokens, "
        "makes up $\\rho$ of their variance. What is learned is what varies; a sample counts twice, for there are "
        "$d^2/2$ numbers.",
        (
            Formula("S", r"W W^{\top} / \sqrt{r d}, \qquad r / d \to \rho", "W (d, r) standard normal"),
            Formula("z_{ab}", r"x_a S x_b^{\top} / \sqrt{d}, \quad a < b", "the fields, of variance 1 + rho"),
            Formula("z_{aa}", r"(x_a S x_a^{\top} - \operatorname{tr} S) / \sqrt{2 d}"),
            Formula(
                "Q", r"\tfrac{1}{d} \operatorname{tr}\, (S - \sqrt{\rho} I)(\hat S - \sqrt{\rho} I)", "from 0 to 1"
            ),
            Formula(r"\mathrm{Var}\,\omega", r"\rho + Q, \qquad V = 1 - Q = \|\hat S - S\|^2 / d"),
            Formula(r"\hat Q", r"2 \alpha\, \mathbb{E} \sum_{a \le b} g_{ab}^2, \qquad \alpha = N / d^2"),
        ),
        source="arXiv 2506.01582; in its notation q = rho + Q",
    )
    denoiser = Step(
        "prior",
        "The error of denoising it",
        "What the data tell of the matrix is the matrix in symmetric Gaussian noise of variance $\\Delta = 1/\\hat Q$. "
        "The posterior mean keeps eigenvectors and shrinks eigenvalues $z$ to $m$. On the support everything is "
        "rational in $m$, and the error is an integral of positive numbers.",
        (
            Formula(
                "z", r"\Delta g + 1/g + g / (1 - g / \sqrt{\rho})", "the Stieltjes transform g, less the mean of S"
            ),
            Formula("m", r"z + \sqrt{\rho} - 2 \Delta \operatorname{Re} g", "an eigenvalue after denoising"),
            Formula(r"|g|^2", r"\sqrt{\rho} / n, \qquad n = m + \Delta \sqrt{\rho}"),
            Formula(r"V", r"F(\Delta) = \int \mu_\Delta(dz)\, \Delta\, m / n", "state evolution: what is left"),
            Formula(r"F(\Delta)", r"\Delta - \tfrac{4 \pi^2}{3} \Delta^2 \int \mu_\Delta^3", "as it was published"),
            Formula(
                r"\alpha_{\mathrm{perfect}}",
                r"\frac{1 - (1 - \rho)_+^2}{2 K}",
                "K measurements a sample, without noise",
            ),
        ),
        source="arXiv 2408.03733; integrated by a uniformisation derived here (smisym/prior/spectrum.py)",
    )
    return fields, denoiser
