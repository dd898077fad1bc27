"""Reading the structure of a program: what rules have in common."""

from __future__ import annotations

from collections.abc import Callable

import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixExpr

from smisym.charts.base import Refusal
from smisym.link.program import Program


def resolve(
    expression: MatrixExpr, definitions: dict[sp.MatrixSymbol, MatrixExpr], accept: Callable[[MatrixExpr], object]
) -> MatrixExpr:
    """Follow plain names until ``accept`` recognises the expression or there is nothing to follow."""
    while accept(expression) is None and expression in definitions:
        expression = definitions[expression]
    return expression


def linear_in_one_field(program: Program, vector: MatrixExpr) -> tuple[sp.MatrixSymbol, MatrixExpr] | Refusal:
    """(h, M) with ``vector = M h^T``, h an input on which M does not depend."""
    definitions = program.definitions
    while vector in definitions:
        vector = definitions[vector]
    factors = vector.args if isinstance(vector, sp.MatMul) else (vector,)
    last = factors[-1]
    if not (isinstance(last, sp.Transpose) and last.arg in program.inputs):
        return Refusal("the vector u is not a matrix times one of the fields")
    field = last.arg
    mixing = sp.MatMul(*factors[:-1]).doit() if len(factors) > 1 else sp.Identity(program.tokens)
    if program.depends_on(mixing, [field]):
        return Refusal(f"the matrix that multiplies {field.name} depends on {field.name} itself")
    return field, mixing


def closure(expression: MatrixExpr, definitions: dict[sp.MatrixSymbol, MatrixExpr]) -> set[sp.MatrixSymbol]:
    """All assigned symbols that ``expression`` uses, directly or not, itself included."""
    found: set[sp.MatrixSymbol] = set()
    stack = [s for s in expression.atoms(sp.MatrixSymbol) if s in definitions]
    while stack:
        symbol = stack.pop()
        if symbol not in found:
            found.add(symbol)
            stack += [s for s in definitions[symbol].atoms(sp.MatrixSymbol) if s in definitions]
    return found


def square_factors(mixing: MatrixExpr, definitions: dict[sp.MatrixSymbol, MatrixExpr]) -> list[MatrixExpr]:
    """Square factors of the mixing matrix, from the left, following names that are products."""
    if isinstance(mixing, sp.Identity):
        return []
    if isinstance(mixing, sp.MatMul) and _square(mixing):
        return [f for arg in mixing.args for f in square_factors(arg, definitions)]
    inner = definitions.get(mixing)
    square = isinstance(inner, sp.MatMul) and _square(inner)
    if square or (inner is not None and inner in definitions):
        return square_factors(inner, definitions)
    return [mixing]


def _square(product: sp.MatMul) -> bool:
    """Whether all factors are matrices of one shape; a number among them makes it one factor."""
    return all(getattr(arg, "shape", None) == product.shape for arg in product.args)
