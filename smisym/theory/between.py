"""What lies between two overlaps on the way to a fixed point: the residual along a step, from both its ends."""

from __future__ import annotations

import numpy as np

from smisym.prior import remaining
from smisym.theory.linearised import Local

# On the way up a step is at most so long, or 1.5 plain ones, but where all that is left is so little.
SHORT, CLOSE_TO_ALL = 0.25, 1e-2


# Share of the way to a fixed point after which a residual of either sign is its own.
_BEFORE = 0.9


# Factor by which one step may correct a slope: the residuals of a short one are noise of the inner integrals.
_TRUSTED = 3.0


def cubic(old: Local, here: Local, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The residual along a step (k,), from its values and slopes at both ends: shares of the step, and values there."""
    norm = float(np.linalg.norm(taken))
    along = taken / norm
    f = float(old.residual @ along), float(here.residual @ along)
    slopes = [norm * (float(along @ x.scaled @ along) - 1) for x in (old, here)]
    s = np.linspace(0, 1, 41)[1:-1]
    h00, h10 = 2 * s**3 - 3 * s**2 + 1, s**3 - 2 * s**2 + s
    h01, h11 = -2 * s**3 + 3 * s**2, s**3 - s**2
    return s, h00 * f[0] + h10 * slopes[0] + h01 * f[1] + h11 * slopes[1]


def passed_over(below: Local, found: Local) -> bool:
    """Whether there seems to be another fixed point between an overlap and a fixed point above it."""
    inverse = np.linalg.inv(below.root)
    values, vectors = np.linalg.eigh(inverse @ remaining(found.Q) @ inverse)
    step = np.einsum("kij,ij->k", below.units, -(vectors * np.log(values)) @ vectors.T)
    norm = float(np.linalg.norm(step))
    if norm < SHORT or float(below.residual @ step) >= norm**2:  # a plain step passes none
        return False
    s, along = cubic(below, found, step)
    return bool(along[s < _BEFORE].min() < 0)


def bounded(seen: np.ndarray, expected: np.ndarray, along: np.ndarray) -> np.ndarray:
    """What was seen along a step, its slope at most ``_TRUSTED`` times what was expected, and at least that part."""
    slope, before = float(seen @ along), float(expected @ along)
    if min(slope, before) <= 0:
        return seen
    within = min(max(slope, before / _TRUSTED), before * _TRUSTED)
    return np.asarray(seen + (within - slope) / float(along @ along) * along)
