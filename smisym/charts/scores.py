"""Undoing an activation that acts on every score by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp

from smisym.base.symbols import SCORE
from smisym.charts.base import Refusal
from smisym.kernels.straight_line import StraightLine
from smisym.kernels.tracing import trace

# Doublings of the bracket that scores are sought in, and halvings down to rounding.
_DOUBLINGS, _BISECTIONS = 40, 100
# Powers, and multiples of the score in exponents, up to which sympy is asked for an inverse.
_DEGREE = 4
_GRID = np.linspace(-30.0, 30.0, 2001)


def inverse_activation(expression: sp.Expr) -> Callable[[np.ndarray], np.ndarray] | Refusal:
    """The inverse of a strictly monotone expression in the score, closed or by bisection; or why there is none."""
    if expression == SCORE:
        return lambda y: y
    forward: Any = sp.lambdify(SCORE, expression, ["scipy", "numpy"])
    with np.errstate(all="ignore"):
        slope = np.diff(np.broadcast_to(forward(_GRID), _GRID.shape))
    moving = slope[np.isfinite(slope) & (np.abs(_GRID[:-1]) < 5)]
    if not ((moving > 0).all() or (moving < 0).all()):
        return Refusal(f"the activation {expression} is not strictly monotone, so that its scores are not seen")
    closed = _solved(expression, forward)
    return closed or (lambda y: _bisected(forward, np.asarray(y, dtype=float), bool((moving > 0).all())))


def forward_program(expression: sp.Expr) -> StraightLine:
    """The activation as a program of one score, s."""
    forward: Any = sp.lambdify(SCORE, expression, ["scipy", "numpy"])
    return trace(lambda s: [forward(s)], ["s"])


def _solved(expression: sp.Expr, forward: Any) -> Callable[[np.ndarray], np.ndarray] | None:
    """The inverse in closed form, where sympy finds it and it takes scores back to themselves."""
    value = sp.Symbol("y", real=True)
    if _is_dear(expression):
        return None
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
            return _polished(forward, backward)
    return None


def _is_dear(expression: sp.Expr) -> bool:
    """Whether sympy would take minutes: exp(100 s) = y is to it a polynomial of degree 100 in exp(s).

    Bisection needs no closed form.
    """
    powers = [e.exp for e in expression.atoms(sp.Pow, sp.exp) if e.has(SCORE)]
    dear = any(abs(p) > _DEGREE for power in powers for p in sp.sympify(power).as_coefficients_dict().values())
    hyperbolic = expression.atoms(sp.sinh, sp.cosh, sp.tanh, sp.coth)
    inner = [f.args[0].as_coefficients_dict().values() for f in hyperbolic]
    return dear or any(abs(p) > _DEGREE for values in inner for p in values)


def _polished(forward: Any, backward: Any) -> Callable[[np.ndarray], np.ndarray]:
    """The closed inverse with the digits that it cancels given back: log((1 + y)/(1 - y)) has none where y is small."""

    def undo(y: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            s = np.asarray(backward(y), dtype=float)
            for _ in range(2):
                step = 1e-5 * np.maximum(np.abs(s), np.abs(y))
                slope = (forward(s + step) - forward(s - step)) / (2 * step)
                new = s - (forward(s) - y) / slope
                closer = np.abs(forward(new) - y) < np.abs(forward(s) - y)
                s = np.where(closer, new, s)
        return s

    return undo


def _bisected(forward: Any, y: np.ndarray, rising: bool) -> np.ndarray:
    """Scores at which a strictly monotone function has the values y, to rounding; NaN outside its range."""
    direction = 1.0 if rising else -1.0
    low, high = np.full(y.shape, -1.0), np.full(y.shape, 1.0)
    with np.errstate(all="ignore"):
        for _ in range(_DOUBLINGS):
            low = np.where(direction * (forward(low) - y) > 0, 2 * low, low)
            high = np.where(direction * (forward(high) - y) < 0, 2 * high, high)
        inside = (direction * (forward(low) - y) <= 0) & (direction * (forward(high) - y) >= 0)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            below = direction * (forward(middle) - y) < 0
            low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(inside, 0.5 * (low + high), np.nan)
