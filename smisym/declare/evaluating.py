"""Numbers of an expression at arrays, with what rounding does to them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import sympy as sp
from scipy import special

_JITTER, _REPEATS = 1e-13, 3  # of one operation; how often it is drawn


NUMERIC: Mapping[type[sp.Expr], Callable[..., np.ndarray]] = MappingProxyType(
    {
        sp.exp: np.exp,
        sp.log: np.log,
        sp.sin: np.sin,
        sp.cos: np.cos,
        sp.tan: np.tan,
        sp.sinh: np.sinh,
        sp.cosh: np.cosh,
        sp.tanh: np.tanh,
        sp.asinh: np.arcsinh,
        sp.atan: np.arctan,
        sp.erf: special.erf,
        sp.Abs: np.abs,
        sp.sign: np.sign,
        sp.Max: lambda *values: functools.reduce(np.maximum, values),
        sp.Min: lambda *values: functools.reduce(np.minimum, values),
        sp.Add: lambda *values: functools.reduce(np.add, values),
        sp.Mul: lambda *values: functools.reduce(np.multiply, values),
        sp.Pow: np.power,
    }
)


def evaluate(
    expr: sp.Expr, values: Mapping[sp.Symbol, np.ndarray], jitter: np.random.Generator | None = None
) -> np.ndarray:
    """An expression that :func:`parse` made, at real values that broadcast together.

    NaN where any part of it is complex or undefined, also where the whole would be real: abs(sqrt(-1)) is NaN.
    With ``jitter`` every operation is wrong by a random share of its result, far above what rounding leaves.
    """
    if expr in values:
        return values[expr]
    if expr.is_Rational or expr in (sp.pi, sp.E):
        return np.asarray(float(expr))
    arguments = [evaluate(argument, values, jitter) for argument in expr.args]
    with np.errstate(all="ignore"):
        result = np.asarray(NUMERIC[expr.func](*arguments))
        return result if jitter is None else result * (1 + _JITTER * jitter.standard_normal(result.shape))


def varies(expr: sp.Expr, values: Mapping[sp.Symbol, np.ndarray]) -> bool:
    """Whether an expression has clearly different values at these points (N,), by more than rounding can do."""
    result = evaluate(expr, values)
    rng = np.random.default_rng(0)
    with np.errstate(invalid="ignore"):
        noise = np.max([np.abs(evaluate(expr, values, rng) - result) for _ in range(_REPEATS)], axis=0)
    known = np.flatnonzero(np.isfinite(result) & np.isfinite(noise)) if result.shape else np.array([], dtype=int)
    first = known[:1]
    return bool((np.abs(result[known] - result[first]) > noise[known] + noise[first]).any()) if known.size else False
