"""Solutions that sympy found as numpy functions: what they may call, and constants in a form that numpy can take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy as sp

# Integers beyond this are objects to numpy, of which it takes no logarithm.
_INT = 2**63 - 1


class OddRoot(sp.Function):
    """The real root of an odd degree; args (number, degree)."""

    is_real = True

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        root = rf"\sqrt[{self.args[1]}]{{{printer._print(self.args[0])}}}"
        return root if exp is None else rf"\left({root}\right)^{{{exp}}}"


_MODULES: list[Any] = [
    {"OddRoot": lambda x, degree: np.sign(x) * np.abs(x) ** (1.0 / degree)},
    "scipy",
    "numpy",
]


def lambdified(arguments: Sequence[sp.Symbol], values: Sequence[sp.Expr], *, cse: bool = True) -> Callable[..., Any]:
    """A function of arrays that returns the values, one array or number each."""
    return sp.lambdify(list(arguments), [_with_floats(value) for value in values], modules=_MODULES, cse=cse)


def _with_floats(value: sp.Expr) -> sp.Expr:
    """The same with integers and fractions of more digits than an int64 holds as floats; all others as they are."""
    value = sp.sympify(value)
    large = [n for n in value.atoms(sp.Rational) if max(abs(n.p), n.q) > _INT]
    return value.xreplace({n: sp.Float(n, 17) for n in large})
