"""Several matrices of extensive rank, one row of weights each, as of layers on top of each other.

Seen through noise of independent matrices, of which Q_hat says how much of each, posteriors are those of single
matrices, and all answers are those of :mod:`smisym.prior.extensive`, row by row.  Where Q_hat has entries between rows
the matrices are seen in mixtures: then their posterior is joint, a problem of two matrices and more that has no known
solution.  So this law answers for overlaps without such entries alone (:attr:`Prior.coupled`).

That the overlap matrix is diagonal is no assumption, then: it starts so, and stays so where E(Q) is diagonal at
diagonal Q.  It is where a change of sign of one row only relabels the output, as of the last layer where scores are
seen: g of that row changes its sign with it, so that the mean of its products with g of other rows is zero.  Small
overlaps between rows shrink or grow by themselves: eigenvectors of two such posteriors have nothing to do with each
other, so that their response is V_1 V_2, as if both were Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from smisym.base.derivation import Formula, Step
from smisym.base.errors import InputError
from smisym.base.matrices import square_root
from smisym.prior.base import Law, Response, remaining
from smisym.prior.extensive import ExtensiveRank
from smisym.prior.matrices import PerSquare, Symmetric


@final
@dataclass(frozen=True)
class ExtensiveRows(Symmetric, PerSquare):
    """One tied key-query matrix a row; rank_ratios (P,): of each the rank over the dimension of the tokens."""

    rank_ratios: tuple[float, ...]

    @cached_property
    def each(self) -> tuple[ExtensiveRank, ...]:
        """The law of each row."""
        return tuple(map(ExtensiveRank, self.rank_ratios))

    @property
    def rows(self) -> int:
        return len(self.rank_ratios)

    @property
    def row_slices(self) -> tuple[int, ...]:
        return (0,) * self.rows

    @property
    def coupled(self) -> bool:
        return False

    def describe(self) -> str:
        told = ", ".join(f"{ratio:g}" for ratio in self.rank_ratios)
        return f"S_l = W_l W_l^T / sqrt(r_l d), W_l (d, r_l) standard normal, r_l / d = {told}"

    @property
    def finite_size(self) -> str:
        return self.each[0].finite_size

    @property
    def precision(self) -> None:
        return None

    def respects(self, change: np.ndarray) -> bool:
        """Exchanges of rows of one law."""
        ratios = np.array(self.rank_ratios)
        exchange = bool(np.abs(change - (change > 0.5)).max() <= 1e-12)
        return exchange and bool(np.abs(change @ ratios - ratios).max() <= 1e-12 * ratios.max())

    def steps(self) -> tuple[Step, ...]:
        text = (
            "The matrices of different layers are independent, and so is what the data tell of them: the output "
            "changes no more than its names where all scores of the last layer change their sign, so that "
            "$\\mathbb{E} \\sum g^{(l)} g^{(k)} = 0$ between two layers at any overlaps that are zero between them. "
            "What the data tell is then each matrix in noise of its own, and each has the answers of one matrix alone."
        )
        return (
            *self.each[0].steps(),
            Step(
                "prior",
                "Several matrices",
                text,
                (
                    Formula(r"\hat Q", r"\mathrm{diag}(\hat Q_1, \dots, \hat Q_L)"),
                    Formula("V_l", r"F_{\rho_l}(1 / \hat Q_l)", "each by its own rank ratio"),
                    Formula(
                        r"\rho", ", ".join(f"{ratio:g}" for ratio in self.rank_ratios), "layer by layer"
                    ),
                ),
                source="derived here",
            ),
        )  # fmt: skip

    # ---- D to infinity

    def law(self, Q: np.ndarray) -> Law:
        """Of Z the covariance I + R, of omega and of both together R + Q, R = diag(rho), and I - Q is left."""
        values = np.linalg.eigvalsh(Q)
        if values[0] < -1e-12 or values[-1] >= 1:
            raise InputError("overlap Q", Q.tolist(), "0 <= Q < I", "at Q = I nothing is left to learn")
        ratios = np.array(self.rank_ratios)
        whole, told, V = 1 + ratios, np.diag(ratios) + (Q + Q.T) / 2, remaining((Q + Q.T) / 2)
        gain = told / whole
        # told - told W^{-1} told = told W^{-1} V, as W = told + V
        spread = gain @ V
        root = square_root(V)
        return Law(np.diag(np.sqrt(whole)), gain, square_root((spread + spread.T) / 2), V, root, root)

    def roots(self, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        Q = (Q + Q.T) / 2
        return square_root(np.diag(self.rank_ratios) + Q), square_root(remaining(Q))

    def response(self, V: np.ndarray, told: np.ndarray, side_information: float) -> Response:
        one = [
            law.response(V[k : k + 1, k : k + 1], told[k : k + 1, k : k + 1], side_information)
            for k, law in enumerate(self.each)
        ]
        half, still, rest = (
            np.diag([float(getattr(r, name)[0, 0]) for r in one]) for name in ("half", "still", "rest")
        )
        return Response(np.eye(self.rows), np.array([float(r.values[0]) for r in one]), half, still, rest)

    def overlap(self, Q_hat: np.ndarray) -> np.ndarray:
        return np.diag(
            [float(law.overlap(np.full((1, 1), own))[0, 0]) for law, own in zip(self.each, np.diag(Q_hat), strict=True)]
        )

    def conjugate(self, Q: np.ndarray) -> np.ndarray:
        return np.diag(
            [float(law.conjugate(np.full((1, 1), own))[0, 0]) for law, own in zip(self.each, np.diag(Q), strict=True)]
        )

    def entropy(self, Q: np.ndarray) -> float:
        return sum(law.entropy(Q[k : k + 1, k : k + 1]) for k, law in enumerate(self.each))

    def dimension(self, span: np.ndarray) -> float:
        own = np.array([law.dimension(np.ones((1, 1))) for law in self.each])
        return float(((span**2) @ own).sum())

    # ---- D as it is

    def row_dimension(self, dim: int) -> int:
        return self.each[0].row_dimension(dim)

    def draw(self, dim: int, rng: np.random.Generator, *, normalised: bool = False) -> np.ndarray:
        return np.concatenate([law.draw(dim, rng, normalised=normalised) for law in self.each])

    def start(self, dim: int, strength: float, rng: np.random.Generator) -> np.ndarray:
        return np.concatenate([law.start(dim, strength, rng) for law in self.each])

    def in_units(self, W: np.ndarray) -> np.ndarray:
        return np.concatenate([law.in_units(W[k : k + 1]) for k, law in enumerate(self.each)])

    def project(self, W: np.ndarray, X: np.ndarray, tokens: int) -> np.ndarray:
        fields = [law.project(W[k : k + 1], X, tokens) for k, law in enumerate(self.each)]
        return np.concatenate(fields, axis=1)

    def back_project(self, g: np.ndarray, X: np.ndarray) -> np.ndarray:
        return np.concatenate([law.back_project(g[:, k : k + 1], X) for k, law in enumerate(self.each)])

    def denoise(self, A: np.ndarray, b: np.ndarray, side_information: float) -> tuple[np.ndarray, np.ndarray]:
        """Row by row: what finite data tell between rows is noise, of order 1/D beside A."""
        found = [
            law.denoise(A[k : k + 1, k : k + 1], b[k : k + 1], side_information) for k, law in enumerate(self.each)
        ]
        return np.concatenate([mean for mean, _ in found]), np.diag([float(left[0, 0]) for _, left in found])
