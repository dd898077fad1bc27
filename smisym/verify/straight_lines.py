"""A straight-line program carried out line by line with thirty digits: no numpy, and none of what compiles it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import mpmath as mp

DIGITS = 30
NAN, INF = mp.mpf("nan"), mp.mpf("inf")


def carry_out(program: Any, values: Sequence[float]) -> list[Any]:
    """The outputs of a program at numbers for its arguments."""
    with mp.workdps(DIGITS):
        known: dict[str, Any] = dict(zip(program.arguments, map(mp.mpf, values), strict=True))
        for line in program.lines:
            found = _operation(line.operation)(*[_value(known, o) for o in line.operands])
            for target, value in zip(line.targets, found if len(line.targets) > 1 else [found], strict=True):
                if target in known:
                    raise ValueError(f"{target} is named twice")
                known[target] = value
        return [_value(known, o) for o in program.outputs]


def _value(known: dict[str, Any], operand: Any) -> Any:
    if isinstance(operand, str):
        return known[operand]
    return operand if isinstance(operand, bool) else mp.mpf(operand)


def _operation(name: str) -> Callable[..., Any]:
    if name in SCALARS:
        return SCALARS[name]
    words = name.split("_")
    family, sizes = "_".join(w for w in words if not w.isdigit()), [int(w) for w in words if w.isdigit()]
    return lambda *entries: KERNELS[family](*sizes, entries)


def _divide(a: Any, b: Any) -> Any:
    if b == 0:
        return NAN if a == 0 or mp.isnan(a) else mp.sign(a) * INF
    return a / b


def _inside(function: Callable[[Any], Any], low: float, high: float = mp.inf) -> Callable[[Any], Any]:
    """A function that has real values on an interval alone."""
    return lambda x: function(x) if low <= x <= high else NAN


SCALARS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": _divide,
    "negative": operator.neg,
    "power": lambda a, b: a**b if a >= 0 or b == mp.floor(b) else NAN,
    "absolute": abs,
    "sign": mp.sign,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "bitwise_and": lambda a, b: a and b,
    "bitwise_or": lambda a, b: a or b,
    "invert": operator.not_,
    "where": lambda c, a, b: a if c else b,
    "isfinite": mp.isfinite,
    "expm1": lambda x: mp.expm1(x) if not mp.isinf(x) else (INF if x > 0 else mp.mpf(-1)),
    "minimum": lambda a, b: NAN if mp.isnan(a) or mp.isnan(b) else min(a, b),
    "maximum": lambda a, b: NAN if mp.isnan(a) or mp.isnan(b) else max(a, b),
    "sqrt": _inside(mp.sqrt, 0),
    "exp": mp.exp,
    "log": _inside(mp.log, 0),
    "log1p": _inside(lambda x: mp.log(1 + x), -1),
    "log_ndtr": lambda x: mp.log(mp.ncdf(x)),
    "logaddexp": lambda a, b: max(a, b) + mp.log(1 + mp.exp(-abs(a - b))),
    "tanh": mp.tanh,
    "cosh": mp.cosh,
    "sin": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
    "arctan": mp.atan,
    "arctanh": _inside(mp.atanh, -1, 1),
    "sinh": mp.sinh,
    "arcsinh": mp.asinh,
    "hypot": mp.hypot,
}


def _matrix(rows: int, columns: int, entries: Sequence[Any]) -> Any:
    return mp.matrix([list(entries[i * columns : (i + 1) * columns]) for i in range(rows)])


def _log_det(matrix: Any) -> Any:
    return mp.log(abs(mp.det(matrix)))


def _softmax(_: int, entries: Sequence[Any]) -> list[Any]:
    exponents = [mp.exp(e) for e in entries]
    return [e / sum(exponents) for e in exponents]


def _solve_columns(size: int, entries: Sequence[Any]) -> list[Any]:
    matrix, rest = _matrix(size, size, entries), entries[size * size :]
    columns = [mp.lu_solve(matrix, mp.matrix(rest[k : k + size])) for k in range(0, len(rest), size)]
    return [*(value for column in columns for value in column), _log_det(matrix)]


def _inverse(size: int, entries: Sequence[Any]) -> list[Any]:
    matrix = _matrix(size, size, entries)
    return [*mp.inverse(matrix), _log_det(matrix)]


def _least_norm(n: int, r: int, entries: Sequence[Any]) -> list[Any]:
    """By the normal equations; vectors of the null space by the reflections of Householder, as LAPACK has them."""
    K, rest = _matrix(n, r, entries), entries[n * r :]
    gram = K * K.T
    solved = [K.T * mp.lu_solve(gram, mp.matrix(rest[k : k + n])) for k in range(0, len(rest), n)]
    Q = mp.qr(K.T, mode="full")[0]
    null = [Q[c, n + i] for i in range(r - n) for c in range(r)]
    return [*(value for column in solved for value in column), *null, _log_det(gram) / 2]


KERNELS: dict[str, Callable[..., list[Any]]] = {
    "row_softmax": _softmax,
    "solve_logdet": _solve_columns,
    "solve_columns": _solve_columns,
    "inverse_logdet": _inverse,
    "least_norm": _least_norm,
}
