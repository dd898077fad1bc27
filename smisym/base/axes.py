"""Orthonormal bases that do not depend on the machine.

An eigenvector has two signs, and which one linear algebra returns differs from processor to processor.  Where a basis
is more than a way to a matrix (points are laid out along it), its signs are fixed here.
"""

from __future__ import annotations

import numpy as np


def signed(vectors: np.ndarray) -> np.ndarray:
    """Signs (..., k), +-1, that make columns of (..., n, k) comparable: their products with one fixed vector positive.

    The vector is generic, so that columns such as (1, -1) are told apart by more than rounding.
    """
    n = vectors.shape[-2]
    weight = np.cos(1.0 + np.sqrt(2.0) * np.arange(n)) + 2.0 / (1.0 + np.arange(n))
    return np.where(np.einsum("n,...nk->...k", weight, vectors) < 0, -1.0, 1.0)


def canonical(vectors: np.ndarray) -> np.ndarray:
    """The same columns (..., n, k) with their signs fixed by :func:`signed`."""
    return np.asarray(vectors * signed(vectors)[..., None, :])
