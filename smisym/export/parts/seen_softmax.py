"""What is read off outputs of a network that shows row softmaxes."""

from __future__ import annotations

import numpy as np

from smisym.export.parts.given import ATTENDED, COEFFICIENT, CONSTANT, REFERENCE_COLUMN, TOKENS, Array


def seen_in(y: Array, log_ratios: bool) -> Array:
    """Log-ratios log y_ij - log y_ii of the attention matrices in outputs y, zero where masked."""
    if not log_ratios:
        inner = (y - CONSTANT) / COEFFICIENT
        if (np.abs(inner.sum(axis=-1) - 1) > 1e-13 * TOKENS).any() or (inner[:, ATTENDED] <= 0).any():
            raise ValueError(
                "y: rows of a softmax are positive and sum to one: normalise in float64, or give log_ratios"
            )
        with np.errstate(divide="ignore"):
            y = np.log(np.where(ATTENDED, inner, 0.0))
        y = y - np.take_along_axis(y, np.broadcast_to(REFERENCE_COLUMN, y.shape[:-1])[..., None], axis=-1)
    return np.where(ATTENDED, y, 0.0)
