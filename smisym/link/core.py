"""Outputs that are a known affine map of one attention matrix: y = constant + coefficient * sigma(...)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixExpr

from smisym.link.program import Activation, Elementwise, Program, RowSoftmax, product_factor


@dataclass(frozen=True)
class Core:
    """``output = constant + coefficient * expression``: an activation, or the scores k U V^T themselves."""

    expression: MatrixExpr
    coefficient: float
    constant: np.ndarray

    @property
    def softmax(self) -> bool:
        return isinstance(self.expression, RowSoftmax)

    def undo(self, y: np.ndarray) -> np.ndarray:
        """The core's value at outputs y (..., T, T)."""
        return np.asarray((y - self.constant) / self.coefficient)

    def apply(self, value: np.ndarray) -> np.ndarray:
        """The output at the core's value."""
        return np.asarray(self.constant + self.coefficient * value)


def core_of(program: Program, output: sp.MatrixSymbol) -> Core | None:
    """The core of an output, or None where it has another form (a product of mixing matrices, a sum over heads)."""
    definitions = program.definitions
    shape = tuple(map(int, output.shape))
    if shape[0] != shape[1]:
        return None
    value: MatrixExpr = output
    constant, coefficient = np.zeros(shape), 1.0
    while True:
        if value in definitions:
            value = definitions[value]
        elif _is_core(value):
            return Core(value, coefficient, constant)
        elif isinstance(value, sp.MatAdd):
            known = [term for term in value.args if _known(term) is not None]
            rest = [term for term in value.args if _known(term) is None]
            if len(rest) != 1:
                return None
            for term in known:
                constant = constant + coefficient * np.asarray(_known(term))
            value = rest[0]
        else:
            factor, matrix = _scaled(value)
            if factor == 1 or not factor.is_number:
                return None
            coefficient, value = coefficient * float(factor), matrix


def _is_core(value: MatrixExpr) -> bool:
    return isinstance(value, (Activation, Elementwise)) or product_factor(value) is not None


def _known(term: MatrixExpr) -> np.ndarray | None:
    """A constant term of a sum as numbers."""
    if isinstance(term, sp.MatrixBase):
        return None if term.free_symbols else np.array(term.tolist(), dtype=float)
    factor, matrix = _scaled(term)
    if isinstance(matrix, sp.Identity) and factor.is_number:
        return float(factor) * np.eye(int(matrix.shape[0]))
    return None


def _scaled(term: MatrixExpr) -> tuple[sp.Expr, MatrixExpr]:
    """(number, matrix) of a multiple of one matrix."""
    factor, matrix = term.as_coeff_mmul()
    return factor, matrix.args[0] if isinstance(matrix, sp.MatMul) and len(matrix.args) == 1 else matrix
