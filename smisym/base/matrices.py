"""Small dense linear algebra that several rooms share."""

from __future__ import annotations

import numpy as np


def square_root(M: np.ndarray) -> np.ndarray:
    """The symmetric root (P, P) of a positive semi-definite matrix; what rounding makes negative is zero."""
    values, vectors = np.linalg.eigh(M)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def units(basis: np.ndarray) -> np.ndarray:
    """A basis of matrices (k, P, P) scaled to Frobenius norm one."""
    return np.asarray(basis / np.sqrt(np.einsum("kij,kij->k", basis, basis))[:, None, None])


def solve_small(normal: np.ndarray, right: np.ndarray) -> np.ndarray:
    """normal^{-1} right of symmetric (N, K, K) and (N, K), by Gauss elimination; not finite where singular."""
    A, b = normal.copy(), right.copy()
    K = A.shape[1]
    with np.errstate(all="ignore"):
        for i in range(K):
            for j in range(i + 1, K):
                factor = A[:, j, i] / A[:, i, i]
                A[:, j, i:] -= factor[:, None] * A[:, i, i:]
                b[:, j] -= factor * b[:, i]
        for i in reversed(range(K)):
            b[:, i] = (b[:, i] - np.einsum("nj,nj->n", A[:, i, i + 1 :], b[:, i + 1 :])) / A[:, i, i]
    return b


def solve_or_stay(normal: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """normal^{-1} gradient; zero where rounding leaves no solution."""
    if normal.shape[1] == 1:
        with np.errstate(divide="ignore", invalid="ignore"):
            step = gradient / normal[:, 0]
        return np.where(np.isfinite(step), step, 0.0)
    try:
        return np.asarray(np.linalg.solve(normal, gradient[..., None])[..., 0])
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(normal)
        along = np.einsum("nij,ni->nj", vectors, gradient)
        with np.errstate(divide="ignore"):
            inverse = np.where(values > 1e-15, 1 / values, 0.0)
        return np.einsum("nij,nj->ni", vectors, inverse * along)
