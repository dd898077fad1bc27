"""Polynomials through six nodes in a row: what each of them counts for between the third and the fourth, or beside."""

from __future__ import annotations

import numpy as np

# Nodes of a stencil along each axis.
ORDER = 6


def powers() -> np.ndarray:
    """(6, 6): coefficients of the powers of t, rows, in the polynomial that is one at a node, columns -2 to 3, and zero
    at all others."""
    return np.linalg.inv(np.vander(np.arange(ORDER) - 2.0, increasing=True))
