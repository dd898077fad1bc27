"""Key-query matrices of small width: of rank r with 1 << r << d, as d grows.  alpha is N / (r d).

It is what :mod:`smisym.prior.extensive` becomes as rho = r / d goes to zero, with alpha / rho in place of alpha.  Those
eigenvalues of S = W W^T / sqrt(r d) that are not zero are sqrt(d / r) then, and its mean is nothing beside what varies:
fields have variance one.  Spikes of one size in noise are found where they stand out of it (arXiv math/0403022), where
t = 1 / Q_hat is below one; an eigenvector has then overlap 1 - t with what was planted, and so

    V' = F(t) = 1 - max(1 - t, 0)^2,   Q_hat = 2 alpha E.

Nothing is learned until Q_hat is one, however much outputs show: :meth:`smisym.prior.base.Prior.least_told`.  Near the
end V' = 2 t: of d r numbers, twice as many as r d / 2.  Its term of the free entropy is that of r rows of Gaussian
weights, (u + log(1 - u)) / 2 with u = Q^{1/2}: S is known as well as its vectors, twice.

No finite d has a width of zero.  Data have r = d^{1/2}, rounded, and GAMP denoises as of that width.
(arXiv 2506.01582, corollary 4.2; in its notation Q_hat is 1 / t.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from smisym.base.derivation import Formula, Step
from smisym.base.errors import InputError
from smisym.prior.base import Law, Response, remaining
from smisym.prior.extensive import ExtensiveRank
from smisym.prior.matrices import OneMatrix, Symmetric


@final
@dataclass(frozen=True)
class SmallWidth(Symmetric, OneMatrix):
    """One tied key-query matrix whose rank grows, and more slowly than the dimension of the tokens."""

    def samples(self, alpha: float, dim: int) -> float:
        return alpha * rank_at(dim) * dim

    @property
    def unit(self) -> str:
        return "N/(rD)"

    def alpha(self, samples: int, dim: int) -> float:
        return samples / (rank_at(dim) * dim)

    def describe(self) -> str:
        return "S = W W^T / sqrt(r d), W (d, r) standard normal, r / d going to zero"

    @property
    def finite_size(self) -> str:
        return "data have a width of their own, of order D^{-1/2}"

    def respects(self, change: np.ndarray) -> bool:
        return bool(np.abs(change - 1).max() <= 1e-12)

    def steps(self) -> tuple[Step, ...]:
        return _steps()

    # ---- D to infinity

    def law(self, Q: np.ndarray) -> Law:
        known = float(Q[0, 0])
        if not -1e-12 <= known < 1:
            raise InputError("overlap Q", Q.tolist(), "0 <= Q < I", "at Q = I nothing is left to learn")
        known, one = max(known, 0.0), np.ones((1, 1))
        left, root = (1 - known) * one, math.sqrt(1 - known) * one
        return Law(one, known * one, math.sqrt(known * (1 - known)) * one, left, root, root)

    def roots(self, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        known = np.clip(Q, 0.0, 1.0)
        return np.sqrt(known), np.sqrt(remaining(known))

    def response(self, V: np.ndarray, told: np.ndarray, side_information: float) -> Response:
        left, heard = float(V[0, 0]), float(told[0, 0] + side_information * V[0, 0])
        t = min(left / heard, 1.0) if heard > 0 else 1.0
        F, slope = t * (2 - t), 2 * (1 - t)
        root = math.sqrt(max(1 - left, 0.0))
        one = np.ones((1, 1))
        # At rest t is left / (1 + root), and F has the slope 2 root there.
        still = math.sqrt(math.sqrt(2 * root) / (1 + root))
        return Response(
            one, np.array([left / F]), math.sqrt(slope / (F * left)) * t * one, still * one, (1 + root) * one
        )

    def overlap(self, Q_hat: np.ndarray) -> np.ndarray:
        told = float(Q_hat[0, 0])
        return np.full((1, 1), (1 - 1 / told) ** 2 if told > 1 else 0.0)

    def conjugate(self, Q: np.ndarray) -> np.ndarray:
        return 1 / (1 - np.sqrt(Q))

    def entropy(self, Q: np.ndarray) -> float:
        known = math.sqrt(max(float(Q[0, 0]), 0.0))
        return 0.5 * (known + math.log1p(-known))

    def dimension(self, span: np.ndarray) -> float:
        return 2.0 * len(span)

    # ---- D as it is: of a small width

    def row_dimension(self, dim: int) -> int:
        return at_width(dim).row_dimension(dim)

    def draw(self, dim: int, rng: np.random.Generator, *, normalised: bool = False) -> np.ndarray:
        return at_width(dim).draw(dim, rng, normalised=normalised)

    def start(self, dim: int, strength: float, rng: np.random.Generator) -> np.ndarray:
        return at_width(dim).start(dim, strength, rng)

    def in_units(self, W: np.ndarray) -> np.ndarray:
        return self._at(W).in_units(W)

    def project(self, W: np.ndarray, X: np.ndarray, tokens: int) -> np.ndarray:
        return at_width(X.shape[1]).project(W, X, tokens)

    def back_project(self, g: np.ndarray, X: np.ndarray) -> np.ndarray:
        return at_width(X.shape[1]).back_project(g, X)

    def denoise(self, A: np.ndarray, b: np.ndarray, side_information: float) -> tuple[np.ndarray, np.ndarray]:
        return self._at(b).denoise(A, b, side_information)

    def _at(self, W: np.ndarray) -> ExtensiveRank:
        return at_width(self.tokens(W.shape[1]))


def rank_at(dim: int) -> int:
    """The rank of data in tokens of dimension d."""
    return max(round(math.sqrt(dim)), 1)


def at_width(dim: int) -> ExtensiveRank:
    """The law of such data."""
    return ExtensiveRank(rank_at(dim) / dim)


def _steps() -> tuple[Step, ...]:
    fields = Step(
        "prior",
        "The matrix, and what is known of it",
        "The weights are one symmetric matrix whose rank $r$ grows, and more slowly than the dimension $d$. Its "
        "eigenvalues are zero, and $r$ times $\\sqrt{d / r}$; its mean is nothing beside these. The fields are linear "
        "in it, with sensing matrices that have independent entries of variance one in an orthonormal basis of "
        "symmetric matrices: they are independent standard Gaussians, of which nothing is known at first.",
        (
            Formula("S", r"W W^{\top} / \sqrt{r d}, \qquad 1 \ll r \ll d", "W (d, r) standard normal"),
            Formula("z_{ab}", r"x_a S x_b^{\top} / \sqrt{d}, \quad a < b", "the fields, of variance one"),
            Formula("z_{aa}", r"(x_a S x_a^{\top} - \operatorname{tr} S) / \sqrt{2 d}"),
            Formula("Q", r"\tfrac{1}{d} \operatorname{tr} S \hat S", "from 0 to 1; V = 1 - Q"),
            Formula(r"\hat Q", r"2 \alpha\, \mathbb{E} \sum_{a \le b} g_{ab}^2, \qquad \alpha = N / (r d)"),
        ),
        source="arXiv 2506.01582, corollary 4.2",
    )
    denoiser = Step(
        "prior",
        "Spikes in noise",
        "What the data tell of the matrix is the matrix in symmetric Gaussian noise, whose spectrum ends at "
        "$2 / \\sqrt{\\rho \\hat Q}$ with $\\rho = r / d$. Eigenvalues $1 / \\sqrt{\\rho}$ leave it where "
        "$\\hat Q > 1$, and an eigenvector has the square of its overlap with what was planted from the equation of "
        "an outlier. Below that nothing is learned, however much the outputs show.",
        (
            Formula("t", r"1 / \hat Q"),
            Formula("|v^{\\top} v^*|^2", r"\max(1 - t, 0)", "for each of the eigenvectors"),
            Formula("Q", r"\max(1 - t, 0)^2", "state evolution: both vectors of each term are known that well"),
            Formula("S(Q)", r"\tfrac12 \left[ \sqrt{Q} + \log(1 - \sqrt{Q}) \right]", "its free-entropy term"),
            Formula(r"\alpha_{\mathrm{weak}}", r"\frac{1}{2 E(0)}", "where t is one; E without the factor 2"),
            Formula(r"\alpha_{\mathrm{perfect}}", r"\frac{1}{K}", "K measurements a sample, without noise"),
        ),
        source="arXiv math/0403022, arXiv 0910.2120; arXiv 2506.01582, corollary 4.2",
    )
    return fields, denoiser
