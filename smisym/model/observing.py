"""Outputs that a caller hands over as an array, checked."""

from __future__ import annotations

import numpy as np

from smisym.base.edge import real_array
from smisym.base.errors import InputError
from smisym.link.linking import LinkFunction, Observation


def observation_from_array(y: np.ndarray, link: LinkFunction, noise: float = 0.0) -> Observation:
    """An Observation from float outputs (S, ...), checked to be outputs of the right kind."""
    y = real_array("y", y, "real numbers", "give one output of the link function per sample")
    shape = link.output_shape
    if y.ndim != 1 + len(shape) or y.shape[1:] != shape or not len(y):
        allowed = f"(S, {', '.join(map(str, shape))}), at least one sample"
        raise InputError("shape of y", y.shape, allowed, "stack samples along axis 0")
    if not np.isfinite(y).all():
        raise InputError("y", "an array with NaN or infinity", "finite numbers", "remove the bad samples")
    if noise or not link.output_is_softmax:
        return Observation(y, None, exact=False)
    T = shape[-1]
    inner = link.core_values(y)
    off = np.abs(inner.sum(axis=-1) - 1).reshape(len(y), -1).max(axis=1)
    rounding = 64 * T * np.finfo(float).eps
    if (off > rounding).any():
        sample = int(off.argmax())
        raise InputError(
            f"y of sample {sample}",
            f"rows that sum to {inner[sample].sum(axis=-1).tolist()}",
            "an attention matrix: every row sums to 1 to double precision",
            "normalise the rows in float64 before passing y",
        )
    attended = link.attended
    if (inner[:, attended] <= 0).any():
        sample = int(np.flatnonzero((inner[:, attended] <= 0).any(axis=1))[0])
        raise InputError(
            f"y of sample {sample}",
            f"smallest entry {inner[sample][attended].min():.3g}",
            "positive entries, as a softmax gives",
            "zeros are underflow: pass the Observation of model.observe(Z), which keeps the log-ratios",
        )
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(attended, inner, 0.0))
    first = np.where(np.einsum("...ii->...i", attended), np.arange(T), attended.argmax(axis=-1))
    base = np.take_along_axis(logs, np.broadcast_to(first, logs.shape[:-1])[..., None], axis=-1)
    # One unit of y may be many of what is left of it where a skip connection was added.
    moved = np.abs(link.core_values(y * (1 + np.finfo(float).eps)) - inner) / np.finfo(float).eps
    units = np.where(attended, moved / np.where(attended, inner, 1.0), 0.0).reshape(len(y), -1).max(axis=1)
    return Observation(y, logs - base, exact=False, units=np.maximum(units, 1.0))
