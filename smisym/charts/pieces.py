"""A link that jumps as pieces on which it is smooth: there every sign in it is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
    if len(found) < 2:
        return None
    return tuple(Piece(tuple(known.values()), lambdified(fields, [*known, *here])) for known, here in found)


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
