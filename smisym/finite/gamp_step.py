"""One step of GAMP, state to state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from smisym.base.errors import InputError
from smisym.base.iterating import Diverged
from smisym.base.solution import Result
from smisym.finite.samples import SampleModel
from smisym.prior import Prior

BLOW_UP = 100.0  # mean square of the entries of W_hat; that of W is 1


OVERCONFIDENT = 100.0  # ratio of squared errors to what C_hat allows, beyond any fluctuation


@dataclass(frozen=True)
class State:
    """W_hat (P, D), C_hat (P, P), g (N, P, T), in the prior's law; then what was seen in the step that made it.

    surprise, hidden_error: see :func:`_surprise`.  channel_error, channel: the channel's error and result.
    """

    W_hat: np.ndarray
    C_hat: np.ndarray
    g: np.ndarray
    prior: Prior
    surprise: float | None = None
    hidden_error: float = 0.0
    channel_error: float | None = None
    channel: Result = Result.SUCCESS

    @property
    def Q(self) -> np.ndarray:
        return overlap(self.prior, self.W_hat)


def overlap(prior: Prior, W_hat: np.ndarray) -> np.ndarray:
    """W_hat with itself, in units of the prior; 0 between rows on different parts of the embedding."""
    known = prior.in_units(W_hat)
    return np.asarray(prior.together() * (known @ known.T / known.shape[1]))


@dataclass(frozen=True)
class Step:
    """One GAMP step, state to state."""

    model: SampleModel
    X: np.ndarray  # (N T, D): every product with the data is one matrix product
    y: Any
    damping: float
    lam: float
    S: np.ndarray | None
    rtol: float
    A: str

    def __call__(self, state: State) -> State:
        V, D, prior = state.C_hat, state.W_hat.shape[1], self.model.prior
        omega = prior.project(state.W_hat, self.X, prior.tokens(self.model.tokens)) - V @ state.g
        moments = self.model.channel.moments(self.y, omega, V, cov=self.A == "hessian", rtol=self.rtol)
        g = moments.g
        if not np.isfinite(g).all():
            self._refuse_impossible(g.shape)
            raise Diverged("the channel's means are not finite")
        # What couples slices vanishes as D grows, and rows on different slices have nothing to exchange.
        same = prior.together()
        outer = same * _outer(g, D)
        A = outer if self.A == "outer" else same * _hessian(moments.dg, D)
        b = prior.back_project(g, self.X) + A @ state.W_hat
        if self.S is not None:
            b += math.sqrt(self.lam) * self.S
        W_hat, C_hat = _denoised(prior, A, b, self.lam)
        keep = self.damping
        new = State(
            (1 - keep) * W_hat + keep * state.W_hat,
            (1 - keep) * C_hat + keep * state.C_hat,
            (1 - keep) * g + keep * state.g,
            prior,
            *_surprise(outer, V, C_hat, g.shape[0] * g.shape[2] / D),
            float(np.sqrt(np.sum(np.square(moments.error)) / (len(A) * D))),
            moments.result,
        )
        if not np.isfinite(new.W_hat).all():
            raise Diverged("the estimate is not finite")
        if np.trace(new.Q) > BLOW_UP * len(A):
            raise Diverged(f"the estimate blew up: its mean square exceeds {BLOW_UP:g}, that of the weights is 1")
        return new

    def _refuse_impossible(self, shape: tuple[int, ...]) -> None:
        """InputError if of outputs of some samples no fields are found, wherever these may be."""
        V = self.model.prior.nothing_known()
        anywhere = self.model.channel.moments(self.y, np.zeros(shape), V, rtol=self.rtol)
        # A channel of one's own may tell nothing of it.
        impossible = np.flatnonzero(np.asarray(getattr(anywhere, "log_partition", np.nan)) == -np.inf)
        if not impossible.size:
            return
        first = int(impossible[0])
        more = f" (and {len(impossible) - 1} more)" if len(impossible) > 1 else ""
        value = np.asarray(getattr(self.y, "y", self.y))[first]
        raise InputError(
            f"y of sample {first}{more}",
            value.item() if value.size == 1 else value.tolist(),
            "outputs that the model has: no fields were found that give this one",
            "check labels and units of y, or declare the noise that the data have",
        )


def _surprise(outer: np.ndarray, V: np.ndarray, C_hat: np.ndarray, tokens_per_dim: float) -> tuple[float, float]:
    """How far the fields are from where V has them: (largest squared ratio, error that the next C_hat hides).

    ``E = V outer V / (alpha T)`` is the mean of (m - omega)(m - omega)^T per token, which V bounds from above whenever
    V is the covariance of omega's error.  The second number is the root mean square error, by E, in the directions, if
    any, in which E exceeds the next C_hat beyond doubt.
    """
    now, after = (np.tril(_cholesky(matrix)[0]) for matrix in (V, C_hat))
    largest = np.linalg.eigvalsh(now.T @ outer @ now / tokens_per_dim)[-1]
    E = V @ outer @ V / tokens_per_dim
    half = linalg.solve_triangular(after, E, lower=True)
    ratios, directions = np.linalg.eigh(linalg.solve_triangular(after, half.T, lower=True))
    errors = np.sqrt(np.maximum(ratios, 0.0)) * np.linalg.norm(after @ directions, axis=0)
    return float(largest), float(np.max(errors, where=ratios > OVERCONFIDENT, initial=0.0))


def _outer(g: np.ndarray, D: int) -> np.ndarray:
    rows = g.transpose(1, 0, 2).reshape(g.shape[1], -1)
    return rows @ rows.T / D


def _hessian(dg: np.ndarray, D: int) -> np.ndarray:
    """Minus the derivative of g token by token, summed over tokens and samples, over D; dg (N, P, T, P, T).

    Positive semidefinite in the limit; the heavy tails of few samples can make it negative in some direction, and the
    nearest matrix that is not takes its place.
    """
    total = np.einsum("nptqt->pq", dg)
    if not np.isfinite(total).all():
        raise Diverged("the channel's derivative is not finite")
    values, vectors = np.linalg.eigh(-(total + total.T) / (2 * D))
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


def _denoised(prior: Prior, A: np.ndarray, b: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """The prior's posterior of W from what the data tell."""
    if not np.isfinite(A).all():
        raise Diverged("the covariance is not finite")
    try:
        return prior.denoise(A, b, lam)
    except linalg.LinAlgError:
        raise Diverged("the covariance is not positive definite") from None


def _cholesky(matrix: np.ndarray) -> tuple[np.ndarray, bool]:
    if not np.isfinite(matrix).all():
        raise Diverged("the covariance is not finite")
    try:
        return linalg.cho_factor(matrix, lower=True)
    except linalg.LinAlgError:
        raise Diverged("the covariance is not positive definite") from None
