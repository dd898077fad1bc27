"""The link as a straight-line program of named sympy matrix assignments.

A :class:`Program` is a list of assignments ``name = matrix expression`` over matrix symbols.
Two readers use it.  Proofs substitute the assignments into one another (:meth:`Program.expand`).
Numbers come from :mod:`smisym.link.unroll`, which unrolls every assignment into scalar entries and
hands the straight line to ``sympy.lambdify`` as its common subexpressions, so that nothing
is expanded: an inverse stays an elimination, a softmax stays a softmax.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import mpmath
import sympy as sp
from sympy.core.function import Application
from sympy.matrices.expressions.matexpr import MatrixElement, MatrixExpr

from smisym.base import symbols


class Activation(MatrixExpr):
    """A function of a square matrix of scores, with an optional mask (1 where attended, 0 elsewhere).

    Masked entries are zero, and functions of a row run over the others.
    """

    _symbol: ClassVar[str]

    def __new__(cls, argument: MatrixExpr, mask: sp.ImmutableDenseMatrix | None = None) -> Activation:
        return super().__new__(cls, sp.sympify(argument), *([] if mask is None else [mask]))

    @property
    def arg(self) -> MatrixExpr:
        return self.args[0]

    @property
    def mask(self) -> sp.ImmutableDenseMatrix | None:
        return self.args[1] if len(self.args) > 1 else None

    @property
    def shape(self) -> tuple[Any, Any]:
        return self.arg.shape

    def attended(self, row: int) -> list[int]:
        """Columns that a row attends to."""
        return [j for j in range(int(self.shape[1])) if self.mask is None or self.mask[row, j]]

    def _entry(self, i: int, j: int, **kwargs: Any) -> sp.Expr:
        raise TypeError(f"{type(self).__name__} has no closed entry")

    def doit(self, **hints: Any) -> MatrixExpr:
        return self.func(self.arg.doit(**hints), *self.args[1:]) if hints.get("deep", True) else self

    def _latex(self, printer: Any) -> str:
        masked = "" if self.mask is None else r"_{\mathrm{masked}}"
        return rf"\operatorname{{{self._symbol}}}{masked}\left({printer._print(self.arg)}\right)"

    def _sympystr(self, printer: Any) -> str:
        return f"{self._symbol}{'' if self.mask is None else '_masked'}({printer._print(self.arg)})"


class RowSoftmax(Activation):
    """Softmax of every row of a square matrix expression."""

    _symbol = "softmax"

    def _entry(self, i: int, j: int, **kwargs: Any) -> sp.Expr:
        if self.mask is None:
            # Indices may be symbols: sympy sums over them when it multiplies matrices.
            terms = [sp.exp(self.arg[i, k]) for k in range(int(self.shape[1]))]
            return sp.exp(self.arg[i, j]) / sp.Add(*terms)
        terms = [sp.exp(self.arg[i, k]) for k in self.attended(int(i))]
        return sp.exp(self.arg[i, j]) / sp.Add(*terms) if self.mask[i, j] else sp.Integer(0)


class RowHardmax(Activation):
    """One at the largest entry of every row, zero elsewhere; the first of equal entries."""

    _symbol = "hardmax"


class Elementwise(MatrixExpr):
    """An expression in the score ``s`` applied to every entry; args (scores, expression, mask or nothing)."""

    def __new__(
        cls, argument: MatrixExpr, expression: sp.Expr, mask: sp.ImmutableDenseMatrix | None = None
    ) -> Elementwise:
        return super().__new__(cls, sp.sympify(argument), expression, *([] if mask is None else [mask]))

    @property
    def arg(self) -> MatrixExpr:
        return self.args[0]

    @property
    def expression(self) -> sp.Expr:
        return self.args[1]

    @property
    def mask(self) -> sp.ImmutableDenseMatrix | None:
        return self.args[2] if len(self.args) > 2 else None

    @property
    def shape(self) -> tuple[Any, Any]:
        return self.arg.shape

    def _entry(self, i: int, j: int, **kwargs: Any) -> sp.Expr:
        if self.mask is not None and not self.mask[i, j]:
            return sp.Integer(0)
        return self.expression.xreplace({symbols.SCORE: self.arg[i, j]})

    def doit(self, **hints: Any) -> MatrixExpr:
        return self.func(self.arg.doit(**hints), *self.args[1:]) if hints.get("deep", True) else self

    def _latex(self, printer: Any) -> str:
        inner = printer._print(self.expression.xreplace({symbols.SCORE: sp.Symbol("S_{ij}")}))
        masked = "" if self.mask is None else r"\ \mathrm{where\ attended}"
        return rf"\left[{inner}{masked}\right]_{{S = {printer._print(self.arg)}}}"

    def _sympystr(self, printer: Any) -> str:
        masked = "" if self.mask is None else ", masked"
        return f"[{self.expression} at s = {printer._print(self.arg)}{masked}]"


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
        The target that is the output y, or the first of several.
    more_outputs
        Further targets that are observed, as the attention matrices of further heads are.

    Nothing is checked here; ``compile`` raises ValueError where an output is never assigned, and TypeError where a
    value uses a symbol that is neither an input nor an earlier target, or a kind of matrix expression that has no
    numerical code (identities, sums, products, transposes, explicit matrices, :class:`RowSoftmax`, :class:`RowHardmax`
    and :class:`Elementwise` have).
    """

    inputs: tuple[sp.MatrixSymbol, ...]
    assigns: tuple[Assign, ...]
    output: sp.MatrixSymbol
    more_outputs: tuple[sp.MatrixSymbol, ...] = ()

    @property
    def outputs(self) -> tuple[sp.MatrixSymbol, ...]:
        return (self.output, *self.more_outputs)

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
            tuple(swap[o] for o in self.more_outputs),
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
            if assign.target not in program.outputs and assign.target not in known:
                known[assign.target] = _evaluate(assign.value, known)
        return abs(mpmath.det(_evaluate(expression, known)))


def output_in_digits(program: Program, Z: Any, digits: int) -> list[mpmath.matrix]:
    """The outputs at the fields Z (P, T), matrix expression by matrix expression, with so many digits."""
    with mpmath.workdps(digits):
        known: dict[MatrixExpr, mpmath.matrix] = {}
        rows = iter([float(x) for x in row] for row in Z)
        for symbol in program.inputs:
            known[symbol] = mpmath.matrix([next(rows) for _ in range(int(symbol.shape[0]))])
        for assign in program.assigns:
            known[assign.target] = _evaluate(assign.value, known)
        return [known[output] for output in program.outputs]


def _explicit(expression: sp.MatrixBase, known: dict[MatrixExpr, mpmath.matrix]) -> mpmath.matrix:
    """A matrix that is written out, of numbers or of functions of entries of what is known."""
    found = mpmath.matrix(expression.rows, expression.cols)
    elements = sorted(expression.atoms(sp.matrices.expressions.matexpr.MatrixElement), key=str)
    values = [known[e.parent][int(e.i), int(e.j)] for e in elements]
    names = [sp.Symbol(f"x{k}", real=True) for k in range(len(elements))]
    for i in range(expression.rows):
        for j in range(expression.cols):
            entry = expression[i, j].xreplace(dict(zip(elements, names, strict=True)))
            found[i, j] = sp.lambdify(names, entry, "mpmath")(*values)
    return found


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
        case sp.MatrixBase():
            return _explicit(expression, known)
        case RowSoftmax() | RowHardmax():
            return _evaluate_rows(expression, _evaluate(expression.arg, known))
        case Elementwise():
            scores = _evaluate(expression.arg, known)
            function = sp.lambdify(symbols.SCORE, expression.expression, "mpmath")
            for i in range(scores.rows):
                for j in range(scores.cols):
                    seen = expression.mask is None or expression.mask[i, j]
                    scores[i, j] = function(scores[i, j]) if seen else mpmath.mpf(0)
            return scores
    raise TypeError(
        f"no exact evaluation of a matrix expression of type {type(expression).__name__}: "
        "add a case to smisym.link.program._evaluate"
    )


def _evaluate_rows(expression: Activation, scores: mpmath.matrix) -> mpmath.matrix:
    """Softmax or hardmax of every row, to the working precision."""
    out = mpmath.matrix(scores.rows, scores.cols)
    for i in range(scores.rows):
        columns = expression.attended(i)
        if isinstance(expression, RowHardmax):
            row = [scores[i, j] for j in columns]
            out[i, columns[row.index(max(row))]] = mpmath.mpf(1)
            continue
        total = mpmath.fsum(mpmath.exp(scores[i, j]) for j in columns)
        for j in columns:
            out[i, j] = mpmath.exp(scores[i, j]) / total
    return out


# Functions that are analytic on the whole real line, or off poles.
_ANALYTIC = (sp.exp, sp.sin, sp.cos, sp.tan, sp.sinh, sp.cosh, sp.tanh, sp.asinh, sp.atan, sp.erf)


def is_analytic(program: Program) -> bool:
    """Whether the output is made of analytic functions alone, so that what holds near some fields holds at almost all.

    No hardmax, absolute values, signs or maxima, and no roots or logarithms, whose branches may behave differently.
    """
    for assign in program.assigns:
        for part in sp.preorder_traversal(assign.value):
            if isinstance(part, RowHardmax) or (isinstance(part, Application) and not isinstance(part, _ANALYTIC)):
                return False
            if isinstance(part, sp.Pow) and part.exp.is_integer is not True and not part.base.is_number:
                return False
    return True


def is_smooth(program: Program) -> bool:
    """Whether the output has no kinks and no jumps: analytic functions, roots and logarithms of what is positive."""
    for assign in program.assigns:
        for part in sp.preorder_traversal(assign.value):
            if isinstance(part, RowHardmax):
                return False
            root = isinstance(part, sp.Pow) and part.exp.is_integer is not True
            rough = isinstance(part, Application) and not isinstance(part, _ANALYTIC)
            if (root and not _positive(part.base)) or (rough and not (part.func is sp.log and _positive(part.args[0]))):
                return False
    return True


def jumps(program: Program) -> bool:
    """Whether the output may jump: hardmax, signs, and whatever is not known to be continuous."""
    continuous = (*_ANALYTIC, sp.Abs, sp.Max, sp.Min, sp.log)
    parts = [part for assign in program.assigns for part in sp.preorder_traversal(assign.value)]
    return any(
        isinstance(part, RowHardmax) or (isinstance(part, Application) and not isinstance(part, continuous))
        for part in parts
    )


def _positive(expression: sp.Expr) -> bool:
    """Whether an expression in real entries is known to be positive."""
    entries = {entry: sp.Dummy(real=True) for entry in expression.atoms(MatrixElement)}
    return expression.xreplace(entries).is_positive is True


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


def product_factor(expression: MatrixExpr) -> tuple[sp.Expr, MatrixExpr, MatrixExpr] | None:
    """(coefficient, U, V) when ``expression`` is ``coefficient * U * V^T``, two factors or a Gram matrix; else None."""
    gram = gram_factor(expression)
    if gram is not None:
        return gram[0], gram[1], gram[1]
    coefficient, matrix = expression.as_coeff_mmul()
    if isinstance(matrix, sp.MatMul) and len(matrix.args) == 2 and isinstance(matrix.args[1], sp.Transpose):
        return coefficient, matrix.args[0], matrix.args[1].arg
    return None


def split_constant(expression: MatrixExpr) -> tuple[sp.ImmutableDenseMatrix | None, MatrixExpr]:
    """(constant matrix or None, the rest) of a sum."""
    if not isinstance(expression, sp.MatAdd):
        return None, expression
    constants = [term for term in expression.args if isinstance(term, sp.MatrixBase)]
    rest = [term for term in expression.args if not isinstance(term, sp.MatrixBase)]
    if not constants:
        return None, expression
    return sum(constants[1:], constants[0]), (rest[0] if len(rest) == 1 else sp.MatAdd(*rest))


def reference(attended: list[int], row: int) -> int:
    """The column that log-ratios of a row refer to: its own token where it is attended, else the first that is."""
    return row if row in attended else attended[0]
