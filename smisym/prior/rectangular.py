"""Rectangular matrices of extensive rank: S = U V / sqrt(r), U (d, r) and V (r, L) standard normal, r / d = rho as d
grows, L / d = beta.

A matrix is one row of weights, its d L entries row by row, of variance one.  A token is a matrix X (d, L) with
independent standard normal entries, read likewise: D = d L, and a field is

    z = sum_ij X_ij S_ij / sqrt(d L),

standard normal given S, as of any weights.  So alpha = N / D = N / (d L), and the mean of S is zero; bilinear sequence
regression shows z in noise.  What is told of S is S in noise of variance 1 / Q_hat on every entry,

    V' = F(1 / Q_hat),  F the error of denoising (:mod:`smisym.prior.singular_values`),

1 / (1 + Q_hat) as rho grows.  Where little is left F is 1 / Q_hat times rho (1 + beta - rho) / beta for rho below one
and beta: of d L numbers so many, r (d + L) - r^2, are free.  (arXiv 2410.18858.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy import linalg

from smisym.base.derivation import Formula, Step
from smisym.base.edge import check_number
from smisym.base.errors import InputError
from smisym.prior.matrices import LEAST_NOISE, ONE_ROW, Centred
from smisym.prior.singular_values import NoisyProduct

# Where the integrals were tried: tests/prior/test_singular_values.py.
LEAST_RATIO, MOST_RATIO, MOST_ASPECT = 1e-3, 1e3, 100.0


@final
@dataclass(frozen=True)
class RectangularRank(Centred):
    """One matrix (d, L) of rank ``rank_ratio`` times d, aspect = L / d; for ``smisym.compile(declared, prior=...)``.

    rank_ratio: a number from 0.001 to 1000.  aspect: a number from 0.01 to 100.  Raises InputError.
    """

    rank_ratio: float
    aspect: float = 1.0

    def __post_init__(self) -> None:
        for name, low, high in (("rank_ratio", LEAST_RATIO, MOST_RATIO), ("aspect", 1 / MOST_ASPECT, MOST_ASPECT)):
            allowed = f"a number, {low:g} to {high:g}"
            given = check_number(name, getattr(self, name), allowed, "give one of these", least=low, most=high)
            object.__setattr__(self, name, given)

    def tokens(self, columns: int) -> int:
        return columns

    def samples(self, alpha: float, dim: int) -> float:
        return alpha * dim

    @property
    def unit(self) -> str:
        return "N/D"

    def alpha(self, samples: int, dim: int) -> float:
        return samples / dim

    def describe(self) -> str:
        return (
            "S = U V / sqrt(r), U (d, r) and V (r, L) standard normal, "
            f"r / d = {self.rank_ratio:g}, L / d = {self.aspect:g}, D = d L"
        )

    def steps(self) -> tuple[Step, ...]:
        return _steps(self.rank_ratio, self.aspect)

    # ---- D to infinity

    @property
    def free_share(self) -> float:
        part, beta = self._tall
        return part * (1 + beta - part) / beta if part < 1 else 1.0

    def spectrum(self, noise: float) -> NoisyProduct:
        return NoisyProduct(*self._tall, noise)

    def potential(self, noise: float) -> float:
        return 0.5 / noise - self.spectrum(noise).told

    @property
    def _tall(self) -> tuple[float, float]:
        """(rank ratio, aspect) of S, or of its transpose where that has fewer rows."""
        if self.aspect >= 1:
            return self.rank_ratio, self.aspect
        return self.rank_ratio / self.aspect, 1 / self.aspect

    # ---- D as it is

    def fitting(self, dim: int) -> int:
        return math.prod(self._sides(dim))

    def row_dimension(self, dim: int) -> int:
        rows, columns = self._sides(dim)
        if rows * columns != dim:
            fix = f"use D = {rows * columns} = {rows} x {columns}, or another aspect"
            raise InputError("D", dim, f"d L with L = {self.aspect:g} d, the entries of a matrix", fix)
        return dim

    def draw(self, dim: int, rng: np.random.Generator, *, normalised: bool = False) -> np.ndarray:
        self.row_dimension(dim)
        rows, columns = self._sides(dim)
        rank = max(round(self.rank_ratio * rows), 1)
        U, V = rng.standard_normal((rows, rank)), rng.standard_normal((rank, columns))
        drawn = (U @ V / math.sqrt(rank)).reshape(1, -1)
        return np.asarray(drawn * (math.sqrt(dim) / np.linalg.norm(drawn)) if normalised else drawn)

    def project(self, W: np.ndarray, X: np.ndarray, tokens: int) -> np.ndarray:
        return ONE_ROW.project(W, X, tokens)

    def back_project(self, g: np.ndarray, X: np.ndarray) -> np.ndarray:
        return ONE_ROW.back_project(g, X)

    def denoise(self, A: np.ndarray, b: np.ndarray, side_information: float) -> tuple[np.ndarray, np.ndarray]:
        """Singular values of what the data tell of S, b / A, shrunk; their vectors stay."""
        told = float(A[0, 0]) + side_information
        if not told >= 0:
            raise linalg.LinAlgError("what is told is negative")
        if told == 0:
            return np.zeros_like(b), np.ones((1, 1))
        seen, noise = self.matrix(b / told), 1 / told
        left, values, right = linalg.svd(seen, full_matrices=False)
        factors = self.spectrum(max(noise, LEAST_NOISE)).shrunk(values**2 / min(seen.shape))
        return ((left * (values * factors)) @ right).reshape(1, -1), np.full((1, 1), self.left_of(noise)[0])

    def matrix(self, W: np.ndarray) -> np.ndarray:
        """The matrix (d, L) of a row of weights (1, D)."""
        self.row_dimension(W.shape[1])
        return W.reshape(self._sides(W.shape[1]))

    def _sides(self, dim: int) -> tuple[int, int]:
        """(d, L) with L = aspect d, rounded, whose product is nearest to D."""
        about = math.isqrt(max(int(dim / self.aspect), 1))
        sides = [(d, max(math.floor(self.aspect * d + 0.5), 1)) for d in range(max(about - 1, 1), about + 3)]
        return min(sides, key=lambda pair: abs(pair[0] * pair[1] - dim))


def _steps(rho: float, beta: float) -> tuple[Step, ...]:
    """From matrices to state evolution, in words and formulas."""
    fields = Step(
        "prior",
        "The matrix, read as a row",
        f"The weights are the entries of one matrix of rank ratio $\\rho = {rho:g}$ and aspect $\\beta = {beta:g}$, "
        "row by row. They are not independent, but a token sees them through independent entries: as $d$ grows fields "
        "are Gaussian, those of standard normal weights. What is told of the weights is each of them in Gaussian noise "
        "of one variance; what the prior makes of that is all in which it differs.",
        (
            Formula("S", r"U V / \sqrt{r}, \qquad r / d \to \rho, \quad L / d \to \beta", "U (d, r), V (r, L) normal"),
            Formula("z", r"\tfrac{1}{\sqrt{d L}} \sum_{ij} X_{ij} S_{ij}", "a field: a token is a matrix X (d, L)"),
            Formula("Q", r"\tfrac{1}{d L} \operatorname{tr} S \hat S^{\top}, \qquad V = 1 - Q", "from 0 to 1"),
            Formula(r"\hat Q", r"\alpha\, \mathbb{E} \sum_t g_t^2, \qquad \alpha = N / (d L) = N / D"),
        ),
        source="arXiv 2410.18858",
    )
    denoiser = Step(
        "prior",
        "The error of denoising it",
        "What the data tell is $Y = S$ in noise of variance $R = 1/\\hat Q$. The posterior mean keeps singular vectors "
        "and shrinks singular values. Of $x$, a squared singular value of $Y$ over $d$ (for $\\beta < 1$ that of the "
        "transpose), everything is a function of $y$, which is complex on the support; there $x$ is real, and one real "
        "number $\\kappa$ is left, over which the error is an integral of positive numbers.",
        (
            Formula("n", r"x g(x) - 1 = R y + \rho y / (\rho - y)", "the Stieltjes transform g of the law of x"),
            Formula("x", r"(1 + n)(\beta + n) / y"),
            Formula(r"\kappa", r"\rho^2 / |\rho - y|^2", "a singular value is multiplied with kappa / (kappa + R)"),
            Formula(
                "V",
                r"F(R) = \tfrac{1}{\beta} \int \mu_R(dx)\, x R \kappa / (\kappa + R)^2",
                "state evolution: what is left",
            ),
            Formula(
                "F(R)",
                r"R - \tfrac{R^2}{\beta} \Big[(\beta - 1)^2 \int \tfrac{\mu_R(dx)}{x} + "
                r"\tfrac{4 \pi^2}{3} \int x\, \mu_R(x)^2 \mu_R(dx)\Big]",
                "as it was published, in x",
            ),
            Formula(
                r"\alpha_{\mathrm{perfect}}",
                r"\rho (1 + \beta - \rho) / (\beta K)",
                "K measurements a sample, without noise; 1 / K unless rho < min(1, beta)",
            ),
        ),
        source="arXiv 2410.18858; arXiv math/0512080; integrated by a uniformisation derived here "
        "(smisym/prior/singular_values.py)",
    )
    return fields, denoiser
