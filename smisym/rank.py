"""Derivatives of a link by complex steps, and their rank: how many independent coordinates an output has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Function = Callable[[np.ndarray], np.ndarray]
"""(N, n) entries of the fields, real or complex -> (N, M), analytic where it is smooth."""

STEP = 1e-30
# Singular values below this share of the largest one count as zero.
_ZERO = 1e-9
# Nearer to zero by these factors an activation that has saturated is itself again.
_NEARER = (1.0, 0.5, 0.25, 0.125)


def jacobian(function: Function, Z: np.ndarray, unknown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """f (N, M) and df/dZ[unknown] (N, M, K) at entries Z (N, n), exact to rounding."""
    columns = []
    value = np.empty(0)
    for k in unknown:
        shifted = Z.astype(complex)
        shifted[:, k] += 1j * STEP
        out = function(shifted)
        value = out.real
        columns.append(out.imag / STEP)
    return value, np.stack(columns, axis=2)


def ranks(function: Function, Z: np.ndarray, unknown: np.ndarray, *, analytic: bool) -> np.ndarray:
    """Rank (N,) of df/dZ[unknown] at each of the entries Z (N, n), -1 where the derivative overflows.

    An analytic function has one rank at almost all fields.  Where activations saturate rounding hides some of it, so
    that nearer fields are asked as well, and the largest rank holds for all.
    """
    if not analytic:
        return _ranks(jacobian(function, Z, unknown)[1])
    largest = max(int(_ranks(jacobian(function, near * Z, unknown)[1]).max()) for near in _NEARER)
    return np.full(len(Z), largest)


def _ranks(J: np.ndarray) -> np.ndarray:
    finite = np.isfinite(J).all(axis=(1, 2))
    values = np.linalg.svd(np.where(finite[:, None, None], J, 0.0), compute_uv=False)
    found = (values > _ZERO * np.maximum(values[:, :1], 1e-300)).sum(axis=1)
    return np.where(finite, found, -1)
