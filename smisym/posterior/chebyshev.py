"""The coordinates and polynomials of tables of logarithms, and where they end."""

from __future__ import annotations

import numpy as np

from smisym.kernels.chains import BINS, REACH


def polynomials(unit: np.ndarray, n: int) -> np.ndarray:
    """Chebyshev polynomials (n, ...)."""
    out = np.empty((n, *unit.shape))
    out[0], out[1] = 1.0, unit
    for i in range(2, n):
        out[i] = 2 * unit * out[i - 1] - out[i - 2]
    return out


def logged(x: np.ndarray) -> np.ndarray:
    """The coordinate of a table: of one sign with x, and its logarithm far out."""
    return np.sign(x) * np.log1p(np.abs(x))


def unlogged(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.expm1(np.abs(x))


def in_units(x: np.ndarray, ends: np.ndarray) -> np.ndarray:
    width = 0.5 * (ends[1] - ends[0])
    return (x - 0.5 * (ends[0] + ends[1])) * (1 / width if width > 0 else 0.0)


def beyond(c: np.ndarray, unit_x: np.ndarray, unit_y: np.ndarray) -> np.ndarray:
    """What points outside of a box have: the value at the border, from there on along the slope where that falls."""
    n = len(c)
    clipped = [np.clip(np.nan_to_num(unit, nan=1.0), -1, 1) for unit in (unit_x, unit_y)]
    values = [polynomials(unit, n) for unit in clipped]
    slopes = []
    for unit, value in zip(clipped, values, strict=True):
        own = np.zeros_like(value)
        own[1] = 1.0
        for i in range(2, n):
            own[i] = 2 * value[i - 1] + 2 * unit * own[i - 1] - own[i - 2]
        slopes.append(own)

    def at(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray((np.tensordot(c.T, first, axes=1) * second).sum(axis=0))

    found = at(*values)
    for unit, along in ((unit_x, at(slopes[0], values[1])), (unit_y, at(values[0], slopes[1]))):
        found = found + np.where(unit > 1, np.minimum(along, 0) * (unit - 1), 0.0)
        found = found - np.where(unit < -1, np.maximum(along, 0) * (-1 - unit), 0.0)
    return found


def cropped(v: np.ndarray, shares: np.ndarray, box: np.ndarray, least: float) -> tuple[float, float]:
    """Ends beyond which there is less than ``least``; a share of the box beyond it where there is more at its end."""
    width, wide = (box[1] - box[0]) / BINS, box[1] - box[0]
    place = np.where(v > box[0], (v - box[0]) / width, 0.0) if width > 0 else np.zeros(len(v))
    held = np.abs(np.bincount(np.minimum(place, BINS - 1).astype(int), weights=shares, minlength=BINS))
    low, high = np.flatnonzero(np.cumsum(held) > least), np.flatnonzero(np.cumsum(held[::-1]) > least)
    first = box[0] + width * (low[0] - 1) if len(low) and low[0] > 1 else box[0] - REACH * wide
    last = box[0] + width * (BINS + 1 - high[0]) if len(high) and high[0] > 1 else box[1] + REACH * wide
    return first, last
