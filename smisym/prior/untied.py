"""Key-query matrices of extensive rank that are not tied: S = Q K^T / sqrt(r d), Q and K (d, r) standard normal.

On tokens x_a the scores of one with another are

    z_ab = x_a S x_b^T / sqrt(d),   a != b,

independent Gaussians of variance tr S S^T / d = 1, T (T - 1) fields of one row of weights, the d^2 entries of S times
sqrt(d).  Data tell of the entries through sum_ab g_ab x_a x_b^T: of those of the symmetric part of S in proportion to
E sum_{a<b} (g_ab + g_ba)^2 + 2 E sum_a g_aa^2, of those of the antisymmetric part to E sum_{a<b} (g_ab - g_ba)^2.  The
two are one where no score of a token with itself is seen and g_ab, g_ba have no correlation, as for outputs of which
each row depends on its own row of scores, with nothing on the diagonal: g_ab and g_ba are independent of mean zero.
Then what is told is S in noise of one variance, and the denoiser that of a square :mod:`smisym.prior.rectangular`
matrix.  It leaves an error with singular vectors of which those on the left know nothing of those on the right, so that
z_ab and z_ba stay uncorrelated, and all of it holds step by step.

Where tokens attend to themselves the symmetric part is told more, T / (T - 1) times as much by linear scores: no
rotation of rows alone then leaves the law of what is seen as it is, and the error of denoising is not known.
(arXiv 2506.01582 has the model; this is derived here.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from smisym.base.derivation import Formula, Step
from smisym.prior.matrices import Centred, PerSquare, blocks
from smisym.prior.rectangular import RectangularRank
from smisym.prior.singular_values import NoisyProduct


@final
@dataclass(frozen=True)
class UntiedRank(PerSquare, Centred):
    """One key-query matrix that is not tied, of rank ``rank_ratio`` times the dimension of the tokens, none of which
    attends to itself."""

    rank_ratio: float

    @property
    def _entries(self) -> RectangularRank:
        """The law of the entries of S, times sqrt(d)."""
        return RectangularRank(self.rank_ratio)

    @property
    def reads(self) -> str:
        return "all ordered pairs of two tokens"

    def tokens(self, columns: int) -> int:
        return (1 + math.isqrt(1 + 4 * columns)) // 2

    def describe(self) -> str:
        return f"S = Q K^T / sqrt(r d), Q and K (d, r) standard normal, r / d = {self.rank_ratio:g}"

    def steps(self) -> tuple[Step, ...]:
        return (_step(self.rank_ratio), self._entries.steps()[1])

    # ---- D to infinity

    @property
    def free_share(self) -> float:
        return self._entries.free_share

    def spectrum(self, noise: float) -> NoisyProduct:
        return self._entries.spectrum(noise)

    def potential(self, noise: float) -> float:
        return self._entries.potential(noise)

    # ---- D as it is

    def fitting(self, dim: int) -> int:
        return dim

    def row_dimension(self, dim: int) -> int:
        return dim**2

    def draw(self, dim: int, rng: np.random.Generator, *, normalised: bool = False) -> np.ndarray:
        return self._entries.draw(dim**2, rng, normalised=normalised)

    def project(self, W: np.ndarray, X: np.ndarray, tokens: int) -> np.ndarray:
        """x_a S x_b^T / sqrt(d), a != b, row by row of scores; block by block of samples."""
        scores, others, dim = self._entries.matrix(W), _others(tokens), X.shape[1]
        fields = np.empty((len(X) // tokens, 1, tokens * (tokens - 1)))
        for part, own in blocks(X, tokens):
            seen = (own @ scores).reshape(-1, tokens, dim) @ own.reshape(-1, tokens, dim).swapaxes(1, 2)
            fields[part, 0] = seen[:, others]
        return fields / dim

    def back_project(self, g: np.ndarray, X: np.ndarray) -> np.ndarray:
        """sum_mu sum_ab g_ab x_a^T x_b / d, as a row."""
        tokens, dim = self.tokens(g.shape[2]), X.shape[1]
        total = np.zeros((dim, dim))
        for part, own in blocks(X, tokens):
            weights = np.zeros((len(g[part]), tokens, tokens))
            weights[:, _others(tokens)] = g[part, 0]
            total += own.T @ (weights @ own.reshape(-1, tokens, dim)).reshape(own.shape)
        return total.reshape(1, -1) / dim

    def denoise(self, A: np.ndarray, b: np.ndarray, side_information: float) -> tuple[np.ndarray, np.ndarray]:
        return self._entries.denoise(A, b, side_information)

    def matrix(self, W: np.ndarray) -> np.ndarray:
        """S (d, d) of a row of weights (1, d^2)."""
        return self._entries.matrix(W) / W.shape[1] ** 0.25


def _others(tokens: int) -> np.ndarray:
    """(T, T): the pairs of different tokens."""
    return ~np.eye(tokens, dtype=bool)


def _step(rho: float) -> Step:
    return Step(
        "prior",
        "Both parts of the matrix are told alike",
        f"The weights are one matrix of rank ratio $\\rho = {rho:g}$, keys and queries apart. A score of a token with "
        "itself would see its symmetric part alone; none is seen here. Rows of scores make rows of the output, so that "
        "$g_{ab}$ and $g_{ba}$ are independent given $\\omega$, each of mean zero. So what the data tell is every "
        "entry in Gaussian noise of one variance, and left and right singular vectors know nothing of one another.",
        (
            Formula("S", r"Q K^{\top} / \sqrt{r d}, \qquad r / d \to \rho", "Q, K (d, r) standard normal"),
            Formula("z_{ab}", r"x_a S x_b^{\top} / \sqrt{d}, \quad a \ne b", "the fields, of variance one"),
            Formula(
                r"\hat Q_{\pm}",
                r"\alpha\, \mathbb{E} \Big[\sum_{a<b} (g_{ab} \pm g_{ba})^2 + (1 \pm 1) \sum_a g_{aa}^2\Big]",
                "what is told of the symmetric and of the antisymmetric part; here they are one",
            ),
            Formula("Q", r"\tfrac{1}{d} \operatorname{tr} S \hat S^{\top}, \qquad V = 1 - Q", "from 0 to 1"),
            Formula(r"\hat Q", r"\alpha\, \mathbb{E} \sum_{a \ne b} g_{ab}^2, \qquad \alpha = N / d^2"),
        ),
        source="arXiv 2506.01582, of which the symmetric case is published; derived here",
    )
