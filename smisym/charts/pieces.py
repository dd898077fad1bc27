"""A link that jumps as pieces on which it is smooth: there every sign in it is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import sympy as sp
from sympy.core.function import AppliedUndef

from smisym.charts.explicit import Fields, explicit_expressions, sign_arguments, split_signs
from smisym.charts.numpy_code import lambdified
from smisym.link.linking import LinkFunction
from smisym.link.program import jumps
from smisym.link.unroll import Unroller

# Links with more pieces than these, or longer when they are written out, are left in one.
_PIECES, _LONGEST = 16, 1000


@dataclass(frozen=True)
class Piece:
    """signs: of each condition's value on this piece.  values: fields -> values of the conditions, then outputs."""

    signs: tuple[int, ...]
    values: Callable[..., Any]


def pieces_of(link: LinkFunction) -> tuple[Piece, ...] | None:
    """The pieces of a link that jumps; None where it does not, or there are too many, or no expressions for it."""
    found = _split(link)
    if found is None or len(found[1]) < 2:
        return None
    fields, pieces = found
    return tuple(Piece(tuple(known.values()), lambdified(fields, [*known, *here])) for known, here in pieces)


def _split(link: LinkFunction) -> tuple[Fields, list[tuple[dict[sp.Expr, int], list[sp.Expr]]]] | None:
    """Fields, and of each piece the conditions with their signs, and the outputs there."""
    if not jumps(link.program):
        return None
    seen = explicit_expressions(link) or _written_out(link)
    if seen is None:
        return None
    fields, expressions = seen
    found: list[tuple[dict[sp.Expr, int], list[sp.Expr]]] = []
    waiting: list[tuple[dict[sp.Expr, int], list[sp.Expr]]] = [({}, [split_signs(e) for e in expressions])]
    while waiting:
        known, here = waiting.pop()
        unknown = sorted(set().union(*map(sign_arguments, here)), key=str)
        if not unknown:
            found.append((known, here))
        for sign in (1, -1) if unknown else ():
            swap = {sp.sign(unknown[0]): sp.Integer(sign)}
            waiting.append(({**known, unknown[0]: sign}, [split_signs(e.xreplace(swap).doit()) for e in here]))
        if len(found) + len(waiting) > _PIECES:
            return None
    return fields, found


class Cells(NamedTuple):
    """Cells on which an output is constant: where some affine forms of the fields are positive.

    values (n, M): of the output on each of n cells.  forms (n, k, P, T), constants (n, k): positive on it; forms that
    are zero say nothing.
    """

    values: np.ndarray
    forms: np.ndarray
    constants: np.ndarray


def cells_of(link: LinkFunction, most: int) -> Cells | None:
    """The cells of an output that the signs of affine forms decide, at most ``most`` of them on each cell, and none of
    them the others' combination; None for any other output."""
    found = _split(link)
    if found is None:
        return None
    fields, pieces = found
    width = max(len(known) for known, _ in pieces)
    if not 0 < width <= most:
        return None
    values, rows = [], np.zeros((len(pieces), width, len(fields) + 1))
    for cell, (known, here) in enumerate(pieces):
        if not all(value.is_number for value in here):
            return None
        values.append([float(value) for value in here])
        for k, (condition, sign) in enumerate(known.items()):
            form = _affine(condition, fields)
            if form is None:
                return None
            rows[cell, k] = sign * form
        if np.linalg.matrix_rank(rows[cell, : len(known), :-1]) < len(known):
            return None
    return Cells(np.array(values), rows[..., :-1].reshape(len(pieces), width, link.fields, link.tokens), rows[..., -1])


def _affine(expression: sp.Expr, fields: Fields) -> np.ndarray | None:
    """Coefficients of the fields, then the constant; None where it is no affine form."""
    if not expression.is_polynomial(*fields):
        return None
    polynomial = sp.Poly(expression, *fields)
    if polynomial.total_degree() != 1:
        return None
    one = [tuple(int(i == j) for j in range(len(fields))) for i in range(len(fields))]
    places = [*one, (0,) * len(fields)]
    return np.array([float(polynomial.coeff_monomial(place)) for place in places])


def _written_out(link: LinkFunction) -> tuple[Fields, list[sp.Expr]] | None:
    """(fields, entries of the outputs in terms of them) of a small network without softmax, or None."""
    unroll = Unroller()
    fields = tuple(symbol for group in link.program.inputs for symbol in unroll.bind(group))
    for assign in link.program.assigns:
        unroll.assign(assign.target, assign.value)
    entries = [entry for output in link.program.outputs for entry in unroll.entries(output)]
    for symbol, value in reversed(unroll.lines):
        entries = [_substituted(entry, symbol, value) for entry in entries]
        if sum(entry.count_ops() for entry in entries) > _LONGEST:
            return None
    known = all(entry.free_symbols <= set(fields) and not entry.atoms(AppliedUndef) for entry in entries)
    return (fields, entries) if known else None


def _substituted(entry: sp.Expr, symbol: sp.Symbol, value: sp.Expr) -> sp.Expr:
    """A line put into an expression; the larger of two, by its sign."""
    if value.func.__name__ == "row_hardmax_2":
        sign = sp.sign(sp.Add(value.args[0], -value.args[1]))
        base = sp.IndexedBase(symbol)
        return entry.xreplace({base[0]: (1 + sign) / 2, base[1]: (1 - sign) / 2})
    return entry.xreplace({symbol: value})
