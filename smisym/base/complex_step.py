"""Derivatives by complex steps: exact to rounding, of any function whose arithmetic takes complex numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

STEP = 1e-30
# So few points are as dear as many: all columns in one call.
_TOGETHER = 8192

Function = Callable[[np.ndarray], np.ndarray]
"""(N, n) entries of the fields, real or complex -> (N, M), analytic where it is smooth."""


def jacobian(function: Function, Z: np.ndarray, unknown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """f (N, M) and df/dZ[unknown] (N, M, K) at entries Z (N, n), exact to rounding; infinite beyond any float."""
    if 0 < len(unknown) * len(Z) <= _TOGETHER:
        moved = np.repeat(Z[None].astype(complex), len(unknown), axis=0)
        moved[np.arange(len(unknown)), :, unknown] += 1j * STEP
        every = function(moved.reshape(-1, Z.shape[1])).reshape(len(unknown), len(Z), -1)
        return every[-1].real, _slopes(np.moveaxis(every.imag, 0, 2))
    columns = []
    value = np.empty(0)
    for k in unknown:
        shifted = Z.astype(complex)
        shifted[:, k] += 1j * STEP
        out = function(shifted)
        value = out.real
        columns.append(_slopes(out.imag))
    return value, np.stack(columns, axis=2)


def _slopes(moved: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return moved / STEP
