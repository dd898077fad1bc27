"""Canonical arithmetic text of sympy expressions, as :func:`smisym.declare.expressions.parse` reads it."""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp

from smisym.base.errors import InputError
from smisym.declare.expressions import ALLOWED, MAX_DEPTH, NAMES, is_huge, is_name


def text_of(expr: sp.Expr, names: Mapping[str, str] | None = None) -> str:
    """Canonical text of an expression; :func:`~smisym.declare.expressions.parse` reads it back to an equal expression.

    Equal holds for what sympy builds by itself from rationals, symbols and
    :data:`~smisym.declare.expressions.FUNCTIONS`. Floats are written as their shortest decimals, which are read as
    rationals; what sympy left apart, such as the products of ``factor`` or ``2**(3/4)*sqrt(2)``, is read as it
    multiplies it.

    names
        Texts that stand for symbols, by the names of the symbols; a symbol not in it is written by its name.

    Raises :class:`~smisym.base.errors.InputError` for a part which has no such text.
    """
    try:
        return _text(sp.sympify(expr, strict=True), names or {})[0]
    except sp.SympifyError:
        raise InputError("expression", expr, "a sympy expression", "build it from sympy symbols") from None
    except RecursionError:
        raise InputError("expression", "too many levels of nesting", f"at most {MAX_DEPTH}", "simplify it") from None


_SUM, _PRODUCT, _POWER, _ATOM = range(4)  # how tightly a text binds


def _text(expr: sp.Expr, names: Mapping[str, str]) -> tuple[str, int]:
    """Text of an expression and how tightly it binds."""
    if expr.is_Float or expr.is_Rational:
        return _number_text(expr)
    if expr.is_Symbol and expr.is_commutative and (expr.name in names or is_name(expr.name)):
        return names.get(expr.name, expr.name), _ATOM
    if expr == sp.pi:
        return "pi", _ATOM
    if expr == sp.E:
        return "exp(1)", _ATOM
    if expr.is_Add:
        return _sum_text(expr, names), _SUM
    if expr.is_Mul and expr.is_commutative:
        return _product_text(expr, names), _PRODUCT
    if expr.is_Pow:
        return _power_text(expr, names)
    if expr.func in NAMES:
        arguments = sorted(expr.args, key=sp.default_sort_key)
        return f"{NAMES[expr.func]}({', '.join(_text(argument, names)[0] for argument in arguments)})", _ATOM
    raise InputError("expression", expr, f"{ALLOWED}; symbols by their names", "rewrite this part with those")


def _number_text(number: sp.Number) -> tuple[str, int]:
    if number.is_Rational and is_huge(number):  # Python refuses to write out huge integers
        raise InputError("expression", "a huge number", "numbers of at most 300 digits", "rescale the variables")
    text = repr(float(number)) if number.is_Float else str(number)
    return text, _ATOM if number >= 0 and "/" not in text else _PRODUCT


def _sum_text(expr: sp.Add, names: Mapping[str, str]) -> str:
    text = ""
    for term in sorted(expr.args, key=lambda term: (term.is_Number, sp.default_sort_key(term))):
        negative = term.as_coeff_Mul()[0].is_negative
        written = _within(-term if negative else term, names, _PRODUCT)
        text += (" - " if negative else " + ") + written
    # The first sign: nothing for plus, no blank after minus.
    return text.removeprefix(" + ") if text.startswith(" + ") else "-" + text.removeprefix(" - ")


def _product_text(expr: sp.Mul, names: Mapping[str, str]) -> str:
    coefficient, rest = expr.as_coeff_Mul()
    sign = "-" if coefficient.is_negative else ""
    number = _number_text(abs(coefficient))[0].partition("/")
    numerator, denominator = [[text] if text not in ("", "1") else [] for text in number[::2]]
    for factor in sorted(sp.Mul.make_args(rest), key=sp.default_sort_key):
        below = factor.is_Pow and factor.exp.is_Rational and factor.exp.is_negative
        written = _within(sp.Pow(factor.base, -factor.exp) if below else factor, names, _POWER)
        (denominator if below else numerator).append(written)
    above = sign + ("*".join(numerator) or "1")
    if not denominator:
        return above
    return f"{above}/{denominator[0]}" if len(denominator) == 1 else f"{above}/({'*'.join(denominator)})"


def _power_text(expr: sp.Pow, names: Mapping[str, str]) -> tuple[str, int]:
    base, exponent = expr.base, expr.exp
    if exponent == sp.S.Half:
        return f"sqrt({_text(base, names)[0]})", _ATOM
    if exponent.is_Rational and exponent.is_negative:
        return f"1/{_within(sp.Pow(base, -exponent), names, _POWER)}", _PRODUCT
    return f"{_within(base, names, _ATOM)}**{_within(exponent, names, _ATOM)}", _POWER


def _within(expr: sp.Expr, names: Mapping[str, str], least: int) -> str:
    """Text of a part, in parentheses where it binds less tightly than its place asks for."""
    text, binding = _text(expr, names)
    return text if binding >= least else f"({text})"
