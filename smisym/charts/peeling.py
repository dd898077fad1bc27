"""Outer functions of an output that have inverses: what an expression shows besides them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import sympy as sp

Step = Callable[[np.ndarray], np.ndarray]

# Outputs that say the same must agree to so many times what rounding of them explains.
_AGREE = 1e3
_EPS = float(np.finfo(float).eps)

# Inverses of functions that take every value once.
_INVERSES: dict[type[sp.Expr], Step] = {
    sp.exp: np.log,
    sp.log: np.exp,
    sp.tanh: np.arctanh,
    sp.atan: np.tan,
    sp.sinh: np.arcsinh,
    sp.asinh: np.sinh,
}


@dataclass(frozen=True)
class Peeled:
    """An output y = outer(inner): the inner expression, and the steps from y to its value."""

    inner: sp.Expr
    steps: tuple[Step, ...] = field(default=())

    def values(self, y: np.ndarray) -> np.ndarray:
        """The inner expression's value at outputs y (S,); not finite outside of the range of the outer functions."""
        with np.errstate(all="ignore"):
            for step in self.steps:
                y = step(y)
        return y


@dataclass(frozen=True)
class Shown:
    """An expression that is seen in several outputs: each y shows scale * inner + shift, by the steps of its own."""

    inner: sp.Expr
    outputs: tuple[tuple[int, Peeled, float, float], ...]

    def values(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(value, its rounding error, largest gap between outputs) from y (S, M), of the output that tells it best."""
        found, errors = [], []
        for number, peeled, scale, shift in self.outputs:
            at = (y[:, number], y[:, number] * (1 + 4 * _EPS))
            value, moved = ((peeled.values(column) - shift) / scale for column in at)
            with np.errstate(all="ignore"):
                errors.append(np.nan_to_num(np.abs(moved - value), nan=np.inf, posinf=np.inf))
            found.append(value)
        table, error = np.array(found), np.array(errors)
        best = error.argmin(axis=0)
        take = np.arange(y.shape[0])
        with np.errstate(all="ignore"):
            gap = np.nan_to_num(np.abs(table - table[best, take]) - _AGREE * error, nan=0.0, posinf=np.inf)
        # At the end of the range of an outer function a value is infinite; beyond it there is none.
        gap = np.where(np.isnan(table), np.inf, np.where(np.isfinite(error), gap, 0.0))
        return table[best, take], error[best, take], gap.max(axis=0)

    def told(self, y: Sequence[np.ndarray]) -> np.ndarray:
        """The value alone, by arithmetic of scalars, from entries of the output."""
        value, smallest = np.zeros(()), np.asarray(np.inf)
        for number, peeled, scale, shift in self.outputs:
            own, moved = ((peeled.values(y[number] * by) - shift) / scale for by in (1.0, 1 + 4 * _EPS))
            error = np.where(np.isnan(moved - own), np.inf, np.abs(moved - own))
            value, smallest = np.where(error <= smallest, own, value), np.minimum(error, smallest)
        return value


def peel(expression: sp.Expr) -> Peeled:
    """Take off sums and products with constants, odd powers, reciprocals and functions with inverses, one by one."""
    steps: list[Step] = []
    while True:
        found = _peel_one(_as_reciprocal(expression))
        if found is None:
            return Peeled(expression, tuple(steps))
        expression, step = found
        steps.append(step)


def _peel_one(e: sp.Expr) -> tuple[sp.Expr, Step] | None:
    if isinstance(e, sp.Add | sp.Mul):
        constant, rest = e.as_independent(*e.free_symbols, as_Add=isinstance(e, sp.Add))
        if constant == e.identity or not rest.free_symbols:
            return None
        c = float(constant)
        return (rest, lambda y: y - c) if isinstance(e, sp.Add) else (rest, lambda y: y / c)
    if isinstance(e, sp.Pow) and e.exp == -1:
        return e.base, lambda y: 1 / y
    if isinstance(e, sp.Pow) and e.exp.is_Integer and e.exp > 0 and e.exp % 2:
        power = 1 / float(e.exp)
        return e.base, lambda y: np.sign(y) * np.abs(y) ** power
    if type(e) in _INVERSES:
        return e.args[0], _INVERSES[type(e)]
    return None


def _as_reciprocal(e: sp.Expr) -> sp.Expr:
    """exp(a) / (exp(a) + exp(b) + ...) as 1 / (1 + exp(b - a) + ...): one exponential is left where there are two."""
    if not isinstance(e, sp.Mul):
        return e
    above = [f for f in e.args if isinstance(f, sp.exp)]
    below = [f for f in e.args if isinstance(f, sp.Pow) and f.exp == -1 and isinstance(f.base, sp.Add)]
    if len(above) != 1 or len(below) != 1 or len(e.args) != 2:
        return e
    terms = [term / above[0] for term in below[0].base.args]
    return 1 / sp.Add(*terms)
