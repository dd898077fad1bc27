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

from smisym.base.derivation import Formula, Step
from smisym.prior.spectrum import NoisyWishart
from smisym.prior.symmetric import SymmetricMatrix


@final
@dataclass(frozen=True)
class ExtensiveRank(SymmetricMatrix):
    """One tied key-query matrix of rank ``rank_ratio`` times the dimension of the tokens, a number > 0."""

    rank_ratio: float

    def describe(self) -> str:
        return f"S = W W^T / sqrt(r d), W (d, r) standard normal, r / d = {self.rank_ratio:g}"

    def steps(self) -> tuple[Step, ...]:
        return _steps(self.rank_ratio)

    @property
    def mean(self) -> float:
        return math.sqrt(self.rank_ratio)

    @property
    def free_share(self) -> float:
        return 1 - max(1 - self.rank_ratio, 0.0) ** 2

    def spectrum(self, noise: float) -> NoisyWishart:
        return NoisyWishart(self.rank_ratio, noise)

    def drawn(self, dim: int, rng: np.random.Generator) -> np.ndarray:
        rank = max(round(self.rank_ratio * dim), 1)
        W = rng.standard_normal((dim, rank))
        return np.asarray(W @ W.T / math.sqrt(rank * dim))


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
