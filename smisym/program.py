"""The link as a straight-line program of named sympy matrix assignments.

A :class:`Program` is a list of assignments ``name = matrix expression`` over matrix symbols.
Two readers use it.  Proofs substitute the assignments into one another (:meth:`Program.expand`).
Numbers come from :func:`lambdify_program`, which unrolls every assignment into scalar entries and
hands the straight line to ``sympy.lambdify`` as its common subexpressions, so that nothing
is expanded: an inverse stays an elimination, a softmax stays a softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixExpr

from smisym import symbols


class RowSoftmax(MatrixExpr):
    """Softmax of every row of a square matrix expression."""

    def __new__(cls, argument: MatrixExpr) -> RowSoftmax:
        return super().__new__(cls, sp.sympify(argument))

    @property
    def arg(self) -> MatrixExpr:
        return self.args[0]

    @property
    def shape(self) -> tuple[Any, Any]:
        return self.arg.shape

    def _entry(self, i: int, j: int, **kwargs: Any) -> sp.Expr:
        # Indices may be symbols: sympy sums over them when it multiplies matrices.
        terms = [sp.exp(self.arg[i, k]) for k in range(int(self.shape[1]))]
        return sp.exp(self.arg[i, j]) / sp.Add(*terms)

    def doit(self, **hints: Any) -> MatrixExpr:
        return RowSoftmax(self.arg.doit(**hints)) if hints.get("deep", True) else self

    def _latex(self, printer: Any) -> str:
        return rf"\operatorname{{softmax}}\left({printer._print(self.arg)}\right)"

    def _sympystr(self, printer: Any) -> str:
        return f"softmax({printer._print(self.arg)})"


@dataclass(frozen=True)
class Assign:
    """``target = value``."""

    target: sp.MatrixSymbol
    value: MatrixExpr


@dataclass(frozen=True)
class Program:
    """Fields in, output out.

    inputs
        The fields, one (rank, tokens) matrix symbol per group of rows of Z, in the order of the rows.
    assigns
        The straight line; each value uses inputs and earlier targets only.
    output
        The target that is the output y.
    """

    inputs: tuple[sp.MatrixSymbol, ...]
    assigns: tuple[Assign, ...]
    output: sp.MatrixSymbol

    @property
    def tokens(self) -> int:
        return int(self.inputs[0].shape[1])

    @property
    def definitions(self) -> dict[sp.MatrixSymbol, MatrixExpr]:
        return {a.target: a.value for a in self.assigns}

    def expand(self, expression: MatrixExpr, keep: Iterable[sp.MatrixSymbol] = ()) -> MatrixExpr:
        """Substitute all definitions into ``expression``, except those of the symbols in ``keep``."""
        kept = set(keep)
        for assign in reversed(self.assigns):
            if assign.target not in kept and expression.has(assign.target):
                expression = expression.xreplace({assign.target: assign.value})
        return expression.doit()

    def depends_on(self, expression: MatrixExpr, inputs: Iterable[sp.MatrixSymbol]) -> bool:
        """Whether ``expression`` involves any of the given inputs once expanded."""
        targets = set(inputs)
        reach: dict[sp.MatrixSymbol, bool] = {s: s in targets for s in self.inputs}
        for assign in self.assigns:
            reach[assign.target] = any(reach.get(s, False) for s in assign.value.atoms(sp.MatrixSymbol))
        return any(reach.get(s, False) for s in expression.atoms(sp.MatrixSymbol))

    def rename(self, names: Mapping[str, str]) -> Program:
        """The same program with other names; names that are not listed stay."""
        swap = {
            s: sp.MatrixSymbol(names.get(s.name, s.name), *s.shape)
            for s in (*self.inputs, *(a.target for a in self.assigns))
        }
        return Program(
            tuple(swap[s] for s in self.inputs),
            tuple(Assign(swap[a.target], a.value.xreplace(swap)) for a in self.assigns),
            swap[self.output],
        )

    def __str__(self) -> str:
        return "\n".join(f"{a.target.name} = {a.value}" for a in self.assigns)


def generic_determinant(program: Program, expression: MatrixExpr, *, digits: int = 400) -> mpmath.mpf:
    """|det| of a square matrix expression of the program at fixed generic fields, to many digits.

    Tells a matrix that is singular for all fields (zero to rounding at ``digits`` digits) from one that is small.
    """
    with mpmath.workdps(digits):
        known: dict[MatrixExpr, mpmath.matrix] = {}
        # Vectors count as generic too: behind an invertible matrix a generic field is a generic vector, and taking
        # layers one at a time keeps products of small determinants from looking like zero.
        vectors = [a.target for a in program.assigns if int(a.target.shape[1]) == 1]
        for number, symbol in enumerate([*program.inputs, *vectors]):
            rows, columns = map(int, symbol.shape)
            known[symbol] = mpmath.matrix(rows, columns)
            for i in range(rows):
                for j in range(columns):
                    # Multiples of an irrational number modulo one: all distinct, and no scores that saturate a softmax.
                    known[symbol][i, j] = (mpmath.sqrt(2) * (1 + 31 * number + 17 * i + j)) % 1 - mpmath.mpf(1) / 3
        for assign in program.assigns:
            if assign.target != program.output and assign.target not in known:
                known[assign.target] = _evaluate(assign.value, known)
        return abs(mpmath.det(_evaluate(expression, known)))


def _evaluate(expression: MatrixExpr, known: dict[MatrixExpr, mpmath.matrix]) -> mpmath.matrix:
    if expression in known:
        return known[expression]
    match expression:
        case sp.Identity():
            return mpmath.eye(int(expression.shape[0]))
        case sp.Transpose():
            return _evaluate(expression.arg, known).T
        case sp.MatAdd():
            first, *rest = (_evaluate(term, known) for term in expression.args)
            return sum(rest, first)
        case sp.MatMul():
            coefficient, factors = expression.as_coeff_matrices()
            product = _evaluate(factors[0], known)
            for factor in factors[1:]:
                product = product * _evaluate(factor, known)
            return mpmath.mpf(coefficient) * product
        case RowSoftmax():
            scores = _evaluate(expression.arg, known)
            weights = scores.apply(mpmath.exp)
            for i in range(weights.rows):
                total = mpmath.fsum(weights[i, j] for j in range(weights.cols))
                for j in range(weights.cols):
                    weights[i, j] /= total
            return weights
    raise TypeError(
        f"no exact evaluation of a matrix expression of type {type(expression).__name__}: "
        "add a case to smisym.program._evaluate"
    )


def gram_factor(expression: MatrixExpr) -> tuple[sp.Expr, MatrixExpr] | None:
    """(coefficient, U) when ``expression`` is ``coefficient * U * U^T``, else None."""
    coefficient, matrix = expression.as_coeff_mmul()
    factors = matrix.args if isinstance(matrix, sp.MatMul) else (matrix,)
    if len(factors) % 2:
        return None
    half = len(factors) // 2
    left = sp.MatMul(*factors[:half]).doit()
    if sp.MatMul(*factors[half:]).doit() != sp.Transpose(left).doit():
        return None
    return coefficient, left


class Unroller:
    """Unrolls matrix expressions into scalar straight-line code, entry by entry.

    ``lines`` collects (scalar symbol, scalar expression) in order.  Calls such as ``row_softmax_3``
    refer to the numeric kernels of :func:`kernels`.
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
        raise TypeError(
            f"no scalar code for a matrix expression of type {type(expression).__name__}: "
            "add a case to smisym.program.Unroller.entries"
        )

    def _product(self, expression: sp.MatMul) -> sp.ImmutableDenseMatrix:
        coefficient, factors = expression.as_coeff_matrices()
        result = self.entries(factors[-1])
        for factor in reversed(factors[:-1]):
            # Name the entries of a partial product: what is used T times is computed once.
            result = self.entries(factor) * result.applyfunc(self.name)
        return coefficient * result

    def log_ratios(self, argument: MatrixExpr) -> sp.ImmutableDenseMatrix:
        """Entries ``s_ij - s_ii`` of a square matrix of scores, in the form that loses least digits.

        For a Gram matrix, coefficient * sum_r U_ir (U_jr - U_ir): nearly equal scores keep their digits.
        """
        size = int(argument.shape[0])
        gram = gram_factor(argument)
        if gram is None:
            scores = self.entries(argument)
            return sp.ImmutableDenseMatrix(size, size, lambda i, j: scores[i, j] - scores[i, i])
        coefficient, factor = gram
        u = self.entries(factor)
        rank = u.shape[1]

        def ratio(i: int, j: int) -> sp.Expr:
            terms = [sp.Mul(u[i, r], sp.Add(u[j, r], -u[i, r]), evaluate=False) for r in range(rank)]
            return sp.Integer(0) if i == j else coefficient * sp.Add(*terms)

        return sp.ImmutableDenseMatrix(size, size, ratio)

    def _softmax(self, expression: RowSoftmax) -> sp.ImmutableDenseMatrix:
        ratios = self.log_ratios(expression.arg)
        size = ratios.shape[0]
        if size == 2:
            # One exponential a row; the diagonal follows because rows sum to one.
            off = [self.name(1 / (1 + sp.exp(-ratios[i, 1 - i]))) for i in range(2)]
            return sp.ImmutableDenseMatrix([[1 - off[0], off[0]], [off[1], 1 - off[1]]])
        rows = []
        for i in range(size):
            call = sp.Function(f"row_softmax_{size}")(*[self.name(ratios[i, j]) for j in range(size)])
            rows.append(self._unpack(call, size))
        return sp.ImmutableDenseMatrix(rows)

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
        """A numpy function of the arguments (arrays that broadcast) that returns the outputs."""
        lines = list(self.lines)
        return sp.lambdify(
            list(arguments), list(outputs), modules=[kernels(), "numpy"], cse=lambda exprs: (lines, list(exprs))
        )


def kernels() -> dict[str, Callable[..., np.ndarray]]:
    """The numeric kernels that unrolled code calls, by name, for every size it may need."""
    table: dict[str, Callable[..., np.ndarray]] = {}
    for size in range(2, MAX_TOKENS + 1):
        table[f"row_softmax_{size}"] = _row_softmax
        table[f"solve_logdet_{size}"] = _solve_logdet
    return table


# Unrolled code grows as T^3 a layer; beyond this size a declaration is refused with that reason.
MAX_TOKENS = 16


def _row_softmax(*scores: Any) -> np.ndarray:
    """(T, ...) softmax of T arrays, shifted by their maximum."""
    rows = np.array(np.broadcast_arrays(*scores))
    rows = np.exp(rows - rows.real.max(axis=0))
    rows /= rows.sum(axis=0)
    return rows


def _solve_logdet(*entries: Any) -> np.ndarray:
    """Gaussian elimination with partial pivoting, vectorised over the trailing axes.

    ``entries``: the T*T entries of A row by row, then the T entries of the right-hand side.
    Returns (T+1, ...): the solution, then log|det A|.
    """
    size = round((float(np.sqrt(4 * len(entries) + 1)) - 1) / 2)
    rows = np.array(np.broadcast_arrays(*entries), dtype=float)
    matrix = np.concatenate(
        [rows[: size * size].reshape(size, size, *rows.shape[1:]), rows[size * size :][:, None]], axis=1
    )
    logdet = np.zeros(rows.shape[1:])
    for k in range(size):
        _pivot(matrix, k)
        logdet += np.log(np.abs(matrix[k, k]))
        for i in range(k + 1, size):
            factor = matrix[i, k] / matrix[k, k]
            matrix[i, k + 1 :] -= factor * matrix[k, k + 1 :]
    out = np.empty((size + 1, *rows.shape[1:]))
    for k in reversed(range(size)):
        total = matrix[k, size].copy()
        for j in range(k + 1, size):
            total -= matrix[k, j] * out[j]
        out[k] = total / matrix[k, k]
    out[size] = logdet
    return out


def _pivot(matrix: np.ndarray, k: int) -> None:
    """Swap row k with the row below it of largest entry in column k, elementwise over the batch."""
    for i in range(k + 1, matrix.shape[0]):
        swap = np.abs(matrix[i, k]) > np.abs(matrix[k, k])
        if swap.any():
            upper = np.where(swap, matrix[i, k:], matrix[k, k:])
            matrix[i, k:] = np.where(swap, matrix[k, k:], matrix[i, k:])
            matrix[k, k:] = upper
