"""Lengths of vectors whose product with another one is known, as latent coordinates."""

from __future__ import annotations

import numpy as np

from smisym.charts.base import Arrays


def length(x: np.ndarray, seen: Arrays, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Length of queries or keys at a latent coordinate, and the log of its derivative; ``seen``: their products.

    sqrt(|seen|) e^s with sinh s proportional to x, so that queries and keys, sqrt(|seen|) e^{+-s}, grow no faster
    than x on either side.
    """
    root = np.sqrt(np.sqrt(sum(value**2 for value in seen)))
    step = 0.5 * reach / root
    stretched = step * x
    # e^s without cancellation where x is negative.
    above = np.abs(stretched) + np.sqrt(1 + stretched**2)
    found = root * np.where(stretched >= 0, above, 1 / above)
    return found, np.log(found) + np.log(step) - 0.5 * np.log1p(stretched**2)
