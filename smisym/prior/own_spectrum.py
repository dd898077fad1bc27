"""A symmetric key-query matrix with eigenvalues of one's own: S = O diag(x) O^T, O a rotation drawn at random.

All is as for a Wishart matrix (:mod:`smisym.prior.extensive`), but for the law of what noise leaves of it, which is the
free convolution of these eigenvalues with a semicircle (:mod:`smisym.prior.atoms`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np

from smisym.base.counting import counted
from smisym.base.derivation import Formula, Step
from smisym.base.errors import InputError
from smisym.prior.atoms import NoisyAtoms
from smisym.prior.symmetric import SymmetricMatrix

# Different eigenvalues at most: what is done for each noise is so many numbers times some hundreds of nodes.
MOST = 1000
# Variance of eigenvalues that rounding leaves of one.
_ROUNDING = 1e-9


@final
@dataclass(frozen=True)
class OwnSpectrum(SymmetricMatrix):
    """One symmetric matrix with these eigenvalues; for ``smisym.compile(declared, prior=...)``.

    eigenvalues: (K,) numbers, at least two of them different, of variance one in their shares; their mean may be any.
    shares: (K,) numbers > 0, of which each eigenvalue has its part of all d; None: equal ones.  For a law with a
    density take some dozens of quantiles or nodes of a quadrature; noise that is far weaker than their distances sees
    that they are not a density.

    The declaration is one with one field a pair of tokens, as ``rank_ratio`` makes it: compile(
    Architecture(2, (Attention(rank_ratio=1),)), prior=OwnSpectrum([-1, 1])).  The rank ratio that is declared then
    means nothing.  Any other declaration (no rank_ratio, several layers, untied, an SMI) is refused by compile.
    Raises InputError for eigenvalues or shares that are not so.
    Source: arXiv 2408.03733 for the denoiser; the law by Biane's curve, see :mod:`smisym.prior.atoms`.
    """

    eigenvalues: Sequence[float]
    shares: Sequence[float] | None = field(default=None)

    def __post_init__(self) -> None:
        x = _numbers("eigenvalues", self.eigenvalues)
        w = _numbers("shares", np.ones(len(x)) if self.shares is None else self.shares)
        if len(w) != len(x) or not (w > 0).all():
            raise InputError(
                "shares",
                self.shares,
                f"{counted(len(x), 'number')} > 0",
                "give each its share; leave out those of none",
            )
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(np.ptp(x) ** 2):
                raise InputError(
                    "eigenvalues", "numbers whose squares overflow", "numbers of variance one", "scale them"
                )
        x, place = np.unique(x, return_inverse=True)
        w = np.bincount(place.reshape(-1), weights=w)
        w = w / w.sum()
        spread = math.sqrt(float(w @ (x - w @ x) ** 2))
        if not 2 <= len(x) <= MOST:
            allowed = f"from 2 to {MOST} different numbers"
            raise InputError(
                "eigenvalues", f"{counted(len(x), 'different number')}", allowed, "take quantiles of their law"
            )
        if abs(spread - 1) > _ROUNDING:
            fix = f"divide by {spread:.12g}, and multiply beta of the layer by that"
            raise InputError("eigenvalues", f"numbers of variance {spread**2:.6g}", "numbers of variance one", fix)
        # Tuples, so that equal priors are equal and hash alike.
        object.__setattr__(self, "eigenvalues", tuple(x.tolist()))
        object.__setattr__(self, "shares", tuple(w.tolist()))

    @cached_property
    def _law(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues less their mean (K,), and their shares (K,)."""
        x, w = np.array(self.eigenvalues), np.array(self.shares)
        x = x - w @ x
        return x / math.sqrt(w @ x**2), w

    def describe(self) -> str:
        low, high = self.eigenvalues[0], self.eigenvalues[-1]
        number = counted(len(self.eigenvalues), "eigenvalue")
        return f"S = O diag(x) O^T, O a random rotation, {number} x from {low:g} to {high:g}"

    def steps(self) -> tuple[Step, ...]:
        return _steps(self.mean)

    @property
    def mean(self) -> float:
        return float(np.dot(self.eigenvalues, self.shares or ()))

    @property
    def free_share(self) -> float:
        w = self._law[1]
        # One less the sum of their squares, with its digits where one of them is nearly all.
        return 2 * float(w[1:] @ np.cumsum(w)[:-1])

    def spectrum(self, noise: float) -> NoisyAtoms:
        return NoisyAtoms(*self._law, noise)

    def drawn(self, dim: int, rng: np.random.Generator) -> np.ndarray:
        """Each eigenvalue as often as its share says, to the nearest quantile."""
        x, w = self._law
        values = x[np.searchsorted(np.cumsum(w)[:-1], (np.arange(dim) + 0.5) / dim)]
        Q, R = np.linalg.qr(rng.standard_normal((dim, dim)))
        Q *= np.sign(np.diag(R))
        return np.asarray((Q * (values + self.mean)) @ Q.T)


def _numbers(what: str, given: Any) -> np.ndarray:
    try:
        found = np.asarray(given)
        # Text and truth values would pass for numbers.
        found = found.astype(float) if found.dtype.kind in "iuf" else np.empty((0, 0))
    except (TypeError, ValueError):
        found = np.empty((0, 0))
    if found.ndim != 1 or not len(found) or not np.isfinite(found).all():
        raise InputError(what, given, "a list of finite numbers", "give them as a list or as an array (K,)")
    return found


def _steps(mean: float) -> tuple[Step, ...]:
    return (
        Step(
            "prior",
            "The matrix, and what noise leaves of it",
            "The weights are one symmetric matrix with given eigenvalues $x_k$ in shares $w_k$, turned at random; "
            f"their mean {mean:.6g} is known, what is learned is what varies. What the data tell of it is the matrix "
            "in symmetric Gaussian noise of variance $\\Delta = 1/\\hat Q$, whose eigenvalues $z$ have the free "
            "convolution of that law with a semicircle. It is written along a curve $u + i v(u)$ over all real $u$; "
            "an eigenvalue that is seen says how likely each $x_k$ is behind it.",
            (
                Formula("S", r"O\, \mathrm{diag}(x)\, O^{\top}"),
                Formula("z_{ab}", r"x_a S x_b^{\top} / \sqrt{d}, \quad a < b"),
                Formula("z_{aa}", r"(x_a S x_a^{\top} - \operatorname{tr} S) / \sqrt{2 d}"),
                Formula(r"\hat Q", r"2 \alpha\, \mathbb{E} \sum_{a \le b} g_{ab}^2, \qquad \alpha = N / d^2"),
                Formula(r"\sum_k \pi_k", r"1, \qquad \pi_k = \frac{\Delta w_k}{(u - x_k)^2 + v^2}", "where v > 0"),
                Formula("z", r"u + \sum_k \pi_k (u - x_k), \qquad \mu_\Delta = v / (\pi \Delta)"),
                Formula("V", r"F(\Delta) = \int \mu_\Delta(dz) \sum_k \pi_k \Bigl(x_k - \sum_l \pi_l x_l\Bigr)^2"),
            ),
            source="arXiv 2408.03733; P. Biane, Indiana Univ. Math. J. 46, 705 (1997)",
        ),
    )
