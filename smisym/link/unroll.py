"""Programs into straight-line numpy: matrix assignments unrolled into scalars for ``sympy.lambdify``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixElement, MatrixExpr

from smisym.base import symbols
from smisym.kernels.tracing import traceable_kernels
from smisym.link.program import (
    Activation,
    Elementwise,
    RowHardmax,
    RowSoftmax,
    product_factor,
    reference,
    split_constant,
)


class Unroller:
    """Unrolls matrix expressions into scalar straight-line code, entry by entry.

    ``lines`` collects (scalar symbol, scalar expression) in order.  Calls such as ``row_softmax_3``
    refer to the kernels of :mod:`smisym.kernels.named`.
    """

    def __init__(self) -> None:
        self.lines: list[tuple[sp.Symbol, sp.Expr]] = []
        self._entries: dict[MatrixExpr, sp.ImmutableDenseMatrix] = {}
        self._count = 0

    def bind(self, symbol: sp.MatrixSymbol) -> list[sp.Symbol]:
        """Make a matrix symbol an argument; returns its entries row by row."""
        rows, columns = map(int, symbol.shape)
        scalars = [[symbols.entry(symbol, i, j) for j in range(columns)] for i in range(rows)]
        self._entries[symbol] = sp.ImmutableDenseMatrix(scalars)
        return [s for row in scalars for s in row]

    def assign(self, target: sp.MatrixSymbol, value: MatrixExpr) -> None:
        matrix = self.entries(value)
        self._entries[target] = matrix.applyfunc(lambda x: x)
        rows, columns = map(int, target.shape)
        named = [[self.name(matrix[i, j], f"{target.name}__{i}_{j}") for j in range(columns)] for i in range(rows)]
        self._entries[target] = sp.ImmutableDenseMatrix(named)

    def name(self, value: sp.Expr, name: str | None = None) -> sp.Expr:
        """Give a scalar expression a name in the straight line; atoms need none."""
        if value.is_Atom:
            return value
        if name is None:
            name = f"_t{self._count}"
            self._count += 1
        symbol = sp.Symbol(name, real=True)
        self.lines.append((symbol, value))
        return symbol

    def entries(self, expression: MatrixExpr) -> sp.ImmutableDenseMatrix:
        """Scalar entries of a matrix expression, over names already in the straight line."""
        known = self._entries.get(expression)
        if known is not None:
            return known
        match expression:
            case sp.Identity():
                return sp.ImmutableDenseMatrix(sp.eye(int(expression.shape[0])))
            case sp.Transpose():
                return self.entries(expression.arg).T
            case sp.MatAdd():
                total = self.entries(expression.args[0])
                for term in expression.args[1:]:
                    total = total + self.entries(term)
                return total
            case sp.MatMul():
                return self._product(expression)
            case RowSoftmax():
                return self._softmax(expression)
            case RowHardmax():
                return self._hardmax(expression)
            case Elementwise():
                return self._elementwise(expression)
            case sp.MatrixBase():
                return self._explicit(expression)
        raise TypeError(
            f"no scalar code for a matrix expression of type {type(expression).__name__}: "
            "add a case to smisym.link.unroll.Unroller.entries"
        )

    def _product(self, expression: sp.MatMul) -> sp.ImmutableDenseMatrix:
        coefficient, factors = expression.as_coeff_matrices()
        result = self.entries(factors[-1])
        for factor in reversed(factors[:-1]):
            # Name the entries of a partial product: what is used T times is computed once.
            result = self.entries(factor) * result.applyfunc(self.name)
        return coefficient * result

    def _explicit(self, matrix: sp.ImmutableDenseMatrix) -> sp.ImmutableDenseMatrix:
        """Entries given one by one, in terms of entries of bound symbols."""
        swap = {
            element: self._entries[element.parent][int(element.i), int(element.j)]
            for element in matrix.atoms(MatrixElement)
        }
        return sp.ImmutableDenseMatrix(matrix.xreplace(swap))

    def log_ratios(self, softmax: RowSoftmax) -> sp.ImmutableDenseMatrix:
        """Entries ``s_ij - s_ik`` of the scores under a softmax, k the row's reference; zero where masked.

        For a Gram matrix, coefficient * sum_r U_ir (U_jr - U_kr): nearly equal scores keep their digits.
        """
        size = int(softmax.shape[0])
        constant, argument = split_constant(softmax.arg)
        found = product_factor(argument)

        def ratio(i: int, j: int) -> sp.Expr:
            k = reference(softmax.attended(i), i)
            if j == k or j not in softmax.attended(i):
                return sp.Integer(0)
            shift = sp.Integer(0) if constant is None else constant[i, j] - constant[i, k]
            if found is None:
                scores = self.entries(argument)
                return scores[i, j] - scores[i, k] + shift
            coefficient, left, right = found
            q, key = self.entries(left), self.entries(right)
            terms = [sp.Mul(q[i, r], sp.Add(key[j, r], -key[k, r]), evaluate=False) for r in range(q.shape[1])]
            return coefficient * sp.Add(*terms) + shift

        return sp.ImmutableDenseMatrix(size, size, ratio)

    def _softmax(self, expression: RowSoftmax) -> sp.ImmutableDenseMatrix:
        ratios = self.log_ratios(expression)
        size = ratios.shape[0]
        if size == 2 and expression.mask is None:
            # One exponential a row; the diagonal follows because rows sum to one.
            off = [self.name(sp.Function("logistic")(ratios[i, 1 - i])) for i in range(2)]
            return sp.ImmutableDenseMatrix([[1 - off[0], off[0]], [off[1], 1 - off[1]]])
        return self._rows("row_softmax", expression, ratios)

    def _hardmax(self, expression: RowHardmax) -> sp.ImmutableDenseMatrix:
        return self._rows("row_hardmax", expression, self.entries(expression.arg))

    def _rows(self, kernel: str, expression: Activation, scores: sp.ImmutableDenseMatrix) -> sp.ImmutableDenseMatrix:
        """A kernel on the attended entries of every row; zero elsewhere."""
        size = scores.shape[0]
        rows = []
        for i in range(size):
            columns = expression.attended(i)
            row = [sp.Integer(0)] * size
            if len(columns) == 1:
                row[columns[0]] = sp.Integer(1)
            else:
                call = sp.Function(f"{kernel}_{len(columns)}")(*[self.name(scores[i, j]) for j in columns])
                for j, value in zip(columns, self._unpack(call, len(columns)), strict=True):
                    row[j] = value
            rows.append(row)
        return sp.ImmutableDenseMatrix(rows)

    def _elementwise(self, expression: Elementwise) -> sp.ImmutableDenseMatrix:
        scores, mask = self.entries(expression.arg), expression.mask
        size = scores.shape[0]

        def entry(i: int, j: int) -> sp.Expr:
            if mask is not None and not mask[i, j]:
                return sp.Integer(0)
            return expression.expression.xreplace({symbols.SCORE: self.name(scores[i, j])})

        return sp.ImmutableDenseMatrix(size, size, entry)

    def _unpack(self, call: sp.Expr, count: int) -> list[sp.Symbol]:
        stacked = sp.Symbol(f"_v{self._count}")
        base = sp.IndexedBase(stacked)
        self._count += 1
        self.lines.append((stacked, call))
        return [self.name(base[k]) for k in range(count)]

    def solve(self, matrix: MatrixExpr, rhs: sp.ImmutableDenseMatrix) -> tuple[sp.ImmutableDenseMatrix, sp.Expr]:
        """(x, log|det matrix|) with ``matrix x = rhs`` for one right-hand side column."""
        a = self.entries(matrix)
        size = a.shape[0]
        if size == 2:
            det = self.name(a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0])
            inverse = self.name(1 / det)
            x = [
                self.name((a[1, 1] * rhs[0] - a[0, 1] * rhs[1]) * inverse),
                self.name((a[0, 0] * rhs[1] - a[1, 0] * rhs[0]) * inverse),
            ]
            return sp.ImmutableDenseMatrix(x), sp.log(sp.Abs(det))
        call = sp.Function(f"solve_logdet_{size}")(*[self.name(e) for e in a], *rhs)
        *x, logdet = self._unpack(call, size + 1)
        return sp.ImmutableDenseMatrix(x), logdet

    def compile(self, arguments: Sequence[sp.Symbol], outputs: Sequence[sp.Expr]) -> Callable[..., list[np.ndarray]]:
        """A numpy function of the arguments (arrays that broadcast) that returns the outputs.

        It can be traced (:func:`smisym.kernels.tracing.trace`).
        """
        lines = list(self.lines)
        return sp.lambdify(
            list(arguments),
            list(outputs),
            modules=[traceable_kernels(), "scipy", "numpy"],
            cse=lambda exprs: (lines, list(exprs)),
        )
