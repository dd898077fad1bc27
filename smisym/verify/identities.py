"""Identities of single posteriors and of their averages, as numbers that vanish: nothing is judged here."""

from __future__ import annotations

from typing import Any

import numpy as np

from smisym.link.linking import Observation

# Multiple of the errors that posteriors state of their means (in whitened units, at the level of 99 %) that is allowed,
# of covariances, and rounding.
MEANS, COVARIANCES, ROUNDING = 10.0, 40.0, 1e-8
# Clenshaw-Curtis on [0, 1] with nine nodes, of which five are those of the coarser rule; nodes, spent at most.
NODES = (1 - np.cos(np.pi * np.arange(9) / 8)) / 2
MOST = 200_000


def clenshaw_curtis(intervals: int) -> np.ndarray:
    """Weights (intervals + 1,) on [0, 1] at the nodes (1 - cos(pi k / intervals)) / 2, an even number of intervals."""
    k = np.arange(intervals + 1)
    even = np.arange(0, intervals + 1, 2)
    factor = np.where((even == 0) | (even == intervals), 0.5, 1.0) / (1 - even**2)
    weights = 2 / intervals * np.cos(np.outer(k, even) * np.pi / intervals) @ factor
    weights[[0, -1]] /= 2
    return np.asarray(weights)


# Many parameters: a sample, a segment, and how well.
def along(
    channel: Any, y: Observation, omega: np.ndarray, step: np.ndarray, V: np.ndarray, what: str, rtol: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(difference between the ends, integral of the derivative, what may be wrong) of log Zout or of g, from omega to
    omega + step (P, T); g in units of V^{-1/2}.  y: one output.  what: "log_partition" or "g".  The error is infinite
    where a posterior cannot be integrated."""
    cavities_ = omega + NODES[:, None, None] * step
    root = np.linalg.cholesky(V)
    with np.errstate(all="ignore"):
        m = channel.moments(
            y[np.zeros(len(NODES), dtype=int)], cavities_, V, cov=what == "g", rtol=rtol, max_nodes=MOST
        )
        if what == "g":
            values, slopes = root.T @ m.g, root.T @ np.einsum("nptqu,qu->npt", m.dg, step)
        else:
            values, slopes = m.log_partition, np.einsum("npt,pt->n", m.g, step)
        fine, coarse = (np.tensordot(clenshaw_curtis(k), slopes[:: 8 // k], axes=1) for k in (8, 4))
    if not np.isfinite(m.log_partition).all():
        return np.zeros(1), np.zeros(1), np.full(1, np.inf)
    size = 1 + float(np.linalg.norm(np.linalg.solve(root, step)))
    stated = (COVARIANCES if what == "g" else MEANS) * float(m.bound.max()) * size
    rounding = 1e-9 * (1 + float(np.abs(values).max()) + float(np.abs(slopes).max()))
    return values[-1] - values[0], fine, np.abs(fine - coarse) + stated + rounding


def truth_gaps(
    channel: Any, roots: tuple[np.ndarray, np.ndarray], V: np.ndarray, count: int, seed: int
) -> tuple[np.ndarray, float]:
    """Numbers (count, 3 P^2) whose means vanish if true fields are samples of the posterior, and the mean error of the
    means that the integrals state.

    roots: (A, B) of :meth:`smisym.prior.Prior.roots`.  With f, t the mean and the truth, less omega and in units of
    V^{1/2}: f (t - f)^T, omega (t - f)^T, and (t - f)(t - f)^T less the covariance, summed over tokens.
    """
    rng = np.random.default_rng(seed)
    (A, B), T = roots, channel.tokens
    omega = A @ rng.standard_normal((count, len(A), T))
    Z = omega + B @ rng.standard_normal((count, len(A), T))
    good = np.isfinite(channel.link.raw(Z)).reshape(count, -1).all(axis=1)
    omega, Z = omega[good], Z[good]
    rtol = max(1e-5, channel.default_rtol())
    m = channel.moments(channel.sample(Z, rng), omega, V, cov=True, rtol=rtol, max_nodes=200_000)
    inverse = np.linalg.inv(np.linalg.cholesky(V))
    f, t = inverse @ (m.mean - omega), inverse @ (Z - omega)
    inside = np.einsum("ap,sptqt,bq->sab", inverse, m.cov, inverse)
    gaps = [
        np.einsum("spt,sqt->spq", f, t - f),
        np.einsum("spt,sqt->spq", omega, t - f),
        np.einsum("spt,sqt->spq", t - f, t - f) - inside,
    ]
    return np.concatenate([g.reshape(len(Z), -1) for g in gaps], axis=1), float(m.error.mean())
