"""Numbers for people: a value with its error in parentheses.

``0.7194(6)`` means 0.7194 +- 0.0006.  The error is rounded to one digit, or to two when its first digit is 1
(otherwise rounding alone could change it by half), and the value is cut at the same place.
Files hold full numbers; only pages, tables and figures come here.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_EVEN, Decimal

MISSING = "–"
MINUS = "−"
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_LEVEL = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def format_with_error(value: float | None, error: float | None = None, *, digits: int = 6) -> str:
    """``value`` with the last digits' standard error in parentheses, as text for people.

    value
        Any float; None and NaN give a dash, infinities the infinity sign.
    error
        One standard error, >= 0.  0 means exact: the value is printed in full.  None or NaN means that none is
        known: ``digits`` significant digits and no parentheses.  Infinite (one scramble only): ``0.7194(∞)``.
    digits
        Significant digits kept where no finite error says how many are known.

    Very small and very large numbers come as ``1.23(4)×10⁻⁹``.  Raises ValueError for a negative error.
    """
    if error is not None and error < 0:
        raise ValueError(f"an error is a standard deviation and cannot be negative, but it is {error}")
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else MINUS + "∞"
    if error is None or math.isnan(error):
        return _plain(value, digits)
    if math.isinf(error):
        return _plain(value, min(digits, 4), suffix="(∞)")
    if error == 0:
        return _plain(value, 15)
    return _pair(Decimal(repr(float(value))), Decimal(repr(float(error))))


def number_latex(text: str) -> str:
    """A number as :func:`format_with_error` writes it, in LaTeX: ``3.2(4)×10⁻⁷`` gives ``3.2(4)\\times 10^{-7}``."""
    text = text.replace("∞", r"\infty").replace(MINUS, "-")
    return re.sub(r"×10(.+)$", lambda match: rf"\times 10^{{{match[1].translate(_LEVEL)}}}", text)


def _pair(value: Decimal, error: Decimal) -> str:
    error, place = _round_error(error)
    value = _at(value, place)
    top = max(_exponent(value), _exponent(error))
    # Outside this window plain digits would be mostly zeros, or would claim digits that the error denies.
    if top < -4 or top > 6 or (place > 0 and top > 4):
        return _pair_body(value.scaleb(-top), error.scaleb(-top), place - top) + _power(top)
    return _pair_body(value, error, place)


def _pair_body(value: Decimal, error: Decimal, place: int) -> str:
    """``value(error)`` with both already rounded at 10**place; the error in units of the last printed digit."""
    if place >= 0:
        return _signed(f"{int(value)}({int(error)})")
    units = error.scaleb(-place)
    # An error of one or more keeps its own decimal point, 12.3(1.5), so that it cannot be misread.
    inside = f"{error:.{-place}f}" if error >= 1 else str(int(units))
    return _signed(f"{value:.{-place}f}({inside})")


def _round_error(error: Decimal) -> tuple[Decimal, int]:
    """The error on one digit, or two when the first is 1; and the power of ten of its last digit."""
    two = _at(error, error.adjusted() - 1)
    # 1.96 becomes 2.0, which needs no second digit; 0.096 becomes 0.10, which does.
    one = _at(error, error.adjusted())
    place = two.adjusted() if _first_digit(two) > 1 and _first_digit(one) > 1 else max(two, one).adjusted() - 1
    return _at(error, place), place


def _at(number: Decimal, place: int) -> Decimal:
    return number.quantize(Decimal(1).scaleb(place), rounding=ROUND_HALF_EVEN)


def _first_digit(number: Decimal) -> int:
    return number.as_tuple().digits[0]


def _plain(value: float, digits: int, suffix: str = "") -> str:
    number = Decimal(f"{value:.{digits - 1}e}").normalize()
    top = _exponent(number)
    if number and (top < -4 or top > max(digits, 6)):
        return _signed(f"{number.scaleb(-top):f}{suffix}") + _power(top)
    return _signed(f"{number:f}{suffix}") if number else f"0{suffix}"


def _exponent(number: Decimal) -> int:
    return number.adjusted() if number else -(10**6)


def _power(exponent: int) -> str:
    return f"×10{str(exponent).translate(_RAISED)}"


def _signed(text: str) -> str:
    body = text.lstrip("-")
    # Minus zero is zero: -0.0(2) would look like a result.
    negative = text.startswith("-") and any(c in "123456789" for c in body.split("(")[0])
    return MINUS + body if negative else body
