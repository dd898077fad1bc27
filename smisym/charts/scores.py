"""Undoing an activation that acts on every score by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp

from smisym.charts.base import Refusal
from smisym.symbols import SCORE

_GRID = np.linspace(-30.0, 30.0, 2001)


def inverse_activation(expression: sp.Expr) -> Callable[[np.ndarray], np.ndarray] | Refusal:
    """The inverse of a strictly monotone expression in the score, by sympy's solver; or why there is none."""
    if expression == SCORE:
        return lambda y: y
    forward: Any = sp.lambdify(SCORE, expression, ["scipy", "numpy"])
    with np.errstate(all="ignore"):
        slope = np.diff(np.broadcast_to(forward(_GRID), _GRID.shape))
    moving = slope[np.isfinite(slope) & (np.abs(_GRID[:-1]) < 5)]
    if not ((moving > 0).all() or (moving < 0).all()):
        return Refusal(f"the activation {expression} is not strictly monotone, so that its scores are not seen")
    value = sp.Symbol("y", real=True)
    try:
        solutions = sp.solve(expression - value, SCORE)
    except NotImplementedError:
        solutions = []
    for solution in solutions:
        if solution.free_symbols != {value}:
            continue
        backward: Any = sp.lambdify(value, solution, ["scipy", "numpy"])
        inside = _GRID[np.abs(_GRID) < 3]
        with np.errstate(all="ignore"):
            again = np.broadcast_to(backward(forward(inside)), inside.shape)
        if np.allclose(again, inside, rtol=1e-6, atol=1e-6):
            return lambda y: np.asarray(backward(y), dtype=float)
    return Refusal(f"no inverse of the activation {expression} was found in closed form")
