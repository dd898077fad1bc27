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


def solve_each(matrices: np.ndarray, right: np.ndarray) -> np.ndarray:
    """matrices^{-1} right of (N, K, K) and (N, K), each by itself; NaN where singular or not finite."""
    if matrices.shape[1] == 1:
        with np.errstate(all="ignore"):
            found = right / matrices[:, 0]
        return np.where(np.isfinite(found), found, np.nan)
    try:
        return np.asarray(np.linalg.solve(matrices, right[..., None])[..., 0])
    except np.linalg.LinAlgError:
        with np.errstate(all="ignore"):
            bad = np.linalg.slogdet(matrices)[0] == 0
        found = np.linalg.solve(np.where(bad[:, None, None], np.eye(matrices.shape[1]), matrices), right[..., None])
        return np.where(bad[:, None], np.nan, found[..., 0])
