"""What counts as a change of an output: sizes in units of how much it varies; no answer depends on its units."""

from __future__ import annotations

import numpy as np

# Columns that vary by less than this, relative to their values, hold rounding; of a value itself this share may be it.
_ROUNDED, _ROUNDING = 1e-14, 1e-6


def units(values: np.ndarray) -> np.ndarray:
    """(n,), > 0: the typical distance of outputs (N, n) at N fields from their median, or the largest value where an
    output is constant; a power of two, so that rounding does not move it."""
    return np.asarray(np.exp2(np.round(np.log2(_measured(values)[1]))))


def sizes(values: np.ndarray) -> np.ndarray:
    """(N, n), > 0: what a difference from outputs (N, n) at N fields is to be compared with.

    Every column is measured from its median, in its unit; a row that is large in some column is so in all.  Where the
    median is large beside the unit, a part of it is added, for what rounding leaves.
    """
    away, unit = _measured(values)
    seen = np.nan_to_num(away / unit, nan=0.0).max(axis=1, keepdims=True)
    value = np.abs(np.where(np.isfinite(values), values, 0.0))
    return np.asarray(unit * (1 + seen) + _ROUNDING * value)


def _measured(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances (N, n) from the median, NaN where a value is not finite, and units (n,)."""
    finite = np.where(np.isfinite(values), values, np.nan)
    finite[:, ~np.isfinite(finite).any(axis=0)] = 0.0
    away = np.abs(finite - np.nanmedian(finite, axis=0))
    typical = np.nanmedian(away, axis=0)
    typical = np.where(typical > 0, typical, np.nanmean(away, axis=0))
    largest = np.nanmax(np.abs(finite), axis=0, initial=0.0)
    # A column of zeros has the unit of the others.
    largest = np.where(largest > 0, largest, largest.max(initial=0.0) or 1.0)
    return away, np.where(typical > _ROUNDED * largest, typical, largest)
