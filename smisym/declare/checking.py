"""Values of a declaration, checked one by one and made plain."""

from __future__ import annotations

import difflib
import itertools
import math
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
import sympy as sp

from smisym.base.counting import counted
from smisym.base.errors import InputError, Words
from smisym.base.symbols import SCORE
from smisym.declare.evaluating import evaluate, varies
from smisym.declare.expression_text import text_of
from smisym.declare.expressions import parse

Table = tuple[tuple[float, ...], ...]


Mask = str | tuple[tuple[bool, ...], ...]


ACTIVATIONS = ("softmax", "linear", "hardmax")


# Variance of the noise below which its inverse overflows on the way, and rounding of outputs is larger anyway.
LEAST_NOISE = 1e-20


# Largest positional score: scores of size one keep ten digits beside it.
MOST_POSITION = 1e6


# Rank over dimension, between which the law of eigenvalues keeps ten digits at any noise.
LEAST_RATIO, MOST_RATIO = 1e-3, 1e3
MOST_ASPECT = 100.0


# Strongest skip connection and readout: beside them, mixing of size one keeps ten digits.
MOST_MIXING = 1e6


# Scores at which an activation is tried, of either sign, and the size up to which it must not even overflow.
_SCORES = np.geomspace(1e-6, 30.0, 200)


_USUAL = 3.0


def whole_number(what: str, value: object, least: int, most: int | None = None) -> int:
    # bool is an Integral in Python; as a count it is a slip.
    allowed = f"an integer >= {least}" + ("" if most is None else f", at most {most}")
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputError(what, value, allowed, f"give {what} as a whole number, unquoted")
    if value < least:
        raise InputError(what, value, allowed, f"give {what} of {least} or more")
    if most is not None and int(value) > most:
        raise InputError(what, value, allowed, f"give {what} of {most} or less: larger ones take hours to compile")
    return int(value)


def real_number(
    what: str,
    value: object,
    allowed: str,
    *,
    lower: float = -math.inf,
    above: float = -math.inf,
    upper: float = math.inf,
) -> float:
    fix = f"give {what} as a number in that range"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(what, value, allowed, fix)
    try:
        number = float(value)
    except OverflowError:
        raise InputError(what, value, allowed, fix) from None
    if not (math.isfinite(number) and number >= lower and number > above and number <= upper):
        raise InputError(what, value, allowed, fix)
    return number + 0.0  # -0.0 becomes 0.0: equal declarations must have one digest


def checked_noise(value: object) -> float:
    allowed = f"0, or a finite number >= {LEAST_NOISE:g}"
    number = real_number("noise", value, allowed, lower=0.0)
    if 0.0 < number < LEAST_NOISE:
        raise InputError("noise", value, allowed, "use noise=0: so little is below the rounding of the outputs")
    return number


def unpacked(value: Any) -> Any:
    """Numpy arrays as nested lists, and what they hold as plain Python."""
    return value.tolist() if hasattr(value, "tolist") else value


def one_of(what: str, value: object, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise InputError(what, value, " or ".join(f'"{name}"' for name in allowed), "choose one of these names")
    return str(value)


def checked_flag(what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError(what, value, "true or false", f"give {what} as a boolean, without quotes")
    return value


def checked_activation(value: object) -> str:
    if not isinstance(value, str):
        names = " or ".join(f'"{name}"' for name in ACTIVATIONS)
        raise InputError(
            "activation", value, f"{names}, or an expression in s", "give a name, or for example 'tanh(s)'"
        )
    if value in ACTIVATIONS:
        return str(value)
    near = difflib.get_close_matches(value, ACTIVATIONS, n=1)
    if near:
        names = ", ".join(f'"{name}"' for name in ACTIVATIONS)
        raise InputError("activation", value, f"{names}, or an expression in s", f'write "{near[0]}" if that was meant')
    expression = parse(value, {"s": SCORE}, what="activation")
    if SCORE not in expression.free_symbols:
        raise InputError(
            "activation", value, "an expression that depends on the score s", "use s in it, as in 'tanh(s)'"
        )
    _try_out(value, expression)
    return text_of(expression)


def _try_out(text: str, expression: sp.Expr) -> None:
    """Refuse an activation that is complex-valued, undefined or constant at scores of moderate size.

    What overflows at large scores, as exp(s**2) does, is real all the same.
    """
    scores = np.concatenate([-_SCORES[::-1], _SCORES])
    values = {SCORE: scores}
    result = evaluate(expression, values)
    bad = ~np.isfinite(result)
    if bad.any():
        parts = [evaluate(part, values) for part in sp.preorder_traversal(expression)]
        overflow = np.any([np.broadcast_to(np.isinf(part), scores.shape) for part in parts], axis=0)
        bad &= ~overflow | (np.abs(scores) <= _USUAL)
    if bad.any():
        nearest = scores[bad][np.abs(scores[bad]).argmin()]
        raise InputError(
            "activation",
            f"{text} (complex-valued or undefined activation)",
            f"real and finite at every score; this one is not at s = {nearest:.4g}",
            "keep the arguments of log, sqrt and fractional powers positive, for example by abs",
        )
    if not varies(expression, {SCORE: np.concatenate([scores, 100 * scores])}):
        raise InputError(
            "activation", text, "an expression that depends on the score s", "use s in it, as in 'tanh(s)'"
        )


def checked_readout(value: object, heads: int) -> float | tuple[float, ...]:
    value = unpacked(value)
    several = f", or {heads} of them, one a head" if heads > 1 else ""
    allowed = f"a number other than 0, of size {MOST_MIXING:g} at most{several}"
    if isinstance(value, str) or not isinstance(value, Iterable):
        number = real_number("readout", value, allowed, lower=-MOST_MIXING, upper=MOST_MIXING)
        if number == 0.0:
            fix = "leave out a head that does nothing" if heads > 1 else "give another number, or leave it out for 1"
            raise InputError("readout", value, allowed, fix)
        return number
    items = tuple(itertools.islice(value, heads + 1))
    numbers_given = tuple(
        real_number("readout", item, allowed, lower=-MOST_MIXING, upper=MOST_MIXING) for item in items
    )
    if len(items) > heads:
        raise InputError(
            "readout", Words(f"more than {counted(heads, 'number')}"), allowed, "give one number a head, none of them 0"
        )
    if len(numbers_given) != heads or 0.0 in numbers_given:
        raise InputError("readout", numbers_given, allowed, "give one number a head, none of them 0")
    return numbers_given[0] if len(set(numbers_given)) == 1 else numbers_given


def checked_scale(value: object, rank: int) -> float:
    allowed = "a finite number > 0, or an expression in rank"
    if isinstance(value, str):
        value = float(parse(value, {"rank": sp.Integer(rank)}, what="scale"))
    return real_number("scale", value, allowed, above=0.0)


def checked_rank_ratio(value: object) -> float | None:
    if value is None:
        return None
    allowed = f"0 for its limit, or a number, {LEAST_RATIO:g} to {MOST_RATIO:g}"
    ratio = real_number("rank_ratio", value, allowed, lower=0.0, upper=MOST_RATIO)
    return real_number("rank_ratio", value, allowed, lower=LEAST_RATIO) if ratio else 0.0


def checked_shape(rank_ratio: object, aspect: object, fields: int) -> tuple[float | None, float | None]:
    """Rank ratio and aspect of the matrix that one field is linear in, or None twice where there is none."""
    if rank_ratio is None:
        if aspect is not None:
            raise InputError("aspect", aspect, "rank_ratio beside it", "give the rank of the matrix, or leave both out")
        return None, None
    if fields != 1:
        raise InputError(
            "fields with rank_ratio",
            fields,
            "one field: of several the posterior of their matrices is joint, and not known",
            "declare one field, or leave rank_ratio out",
        )
    ratio = real_number(
        "rank_ratio", rank_ratio, f"a number, {LEAST_RATIO:g} to {MOST_RATIO:g}", lower=LEAST_RATIO, upper=MOST_RATIO
    )
    least = 1 / MOST_ASPECT
    allowed = f"a number, {least:g} to {MOST_ASPECT:g}"
    given = 1.0 if aspect is None else aspect
    return ratio, real_number("aspect", given, allowed, lower=least, upper=MOST_ASPECT)


def checked_mask(value: object) -> Mask | None:
    if value is None or (isinstance(value, str) and value == "causal"):
        return value
    allowed = '"causal", or T rows of T booleans, T the number of tokens'
    if isinstance(value, str):
        raise InputError("mask", value, allowed, 'write "causal", or rows as nested lists')
    rows = checked_table("mask", value, allowed)
    for row in rows:
        for item in row:
            checked_flag("mask", item)
    return tuple(tuple(bool(item) for item in row) for row in rows)


def checked_position(value: object) -> Table | None:
    if value is None:
        return None
    rows = checked_table("position", value, "T rows of T finite numbers")
    table = tuple(tuple(real_number("position", item, "finite numbers") for item in row) for row in rows)
    for item in itertools.chain(*table):
        if abs(item) > MOST_POSITION:
            raise InputError(
                "position",
                item,
                f"numbers between -{MOST_POSITION:g} and {MOST_POSITION:g}, so that scores keep their digits",
                "rescale it; what a token should not attend to is said by mask",
            )
    return table


def checked_table(what: str, value: object, allowed: str) -> list[list[Any]]:
    """Rows of a square table; numpy arrays and nested lists are read alike."""
    value = unpacked(value)
    value = [unpacked(row) for row in value] if isinstance(value, (list, tuple)) else value
    square = isinstance(value, (list, tuple)) and all(
        isinstance(r, (list, tuple)) and len(r) == len(value) for r in value
    )
    if isinstance(value, (list, tuple)) and value and all(isinstance(r, (list, tuple)) for r in value) and not square:
        given = Words(f"{counted(len(value), 'row')} of {', '.join(map(str, dict.fromkeys(map(len, value))))} entries")
        raise InputError(what, given, allowed, "write as many rows as each has entries: for two tokens two rows of two")
    if not square or not isinstance(value, (list, tuple)) or not value:
        raise InputError(what, value, allowed, "write it as nested lists, one a row")
    return [list(row) for row in value]
