"""Roots of many functions of one variable, each between two points where its sign differs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def bracketed(
    function: Callable[[np.ndarray, np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray, which: np.ndarray
) -> np.ndarray:
    """x (n,) with function(x, which) = 0, or where it jumps through zero, to rounding; NaN where signs do not differ.

    function
        Of some of the points and the numbers ``which`` of the problems that they belong to.
    """
    from scipy.optimize import elementwise  # slow to import

    with np.errstate(all="ignore"):
        found = elementwise.find_root(lambda x, own: function(x, own.astype(int)), (low, high), args=(which,))
    return np.asarray(found.x, dtype=float)
