"""What later fields see of earlier ones: where a program can be cut, and what passes through the cut.

A deep network reads its first layers through few numbers only: the product of mixings so far, whose rows sum to a
constant.  Whoever integrates over the fields of a program cut so need not integrate over all of them at once.  Cuts are
found from the data flow alone: no name of an architecture is known here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixExpr

from smisym.base import symbols
from smisym.base.complex_step import jacobian
from smisym.base.errors import InputError
from smisym.link.program import Activation, Assign, Elementwise, Program, RowHardmax, RowSoftmax
from smisym.link.unroll import Unroller

# Random fields at which ranks are taken, and at which a cut program is held against the whole one.
FIELDS, SEED = 16, 20260301
# Singular values below this share of the largest one count as zero.
_ZERO = 1e-9

Inputs = frozenset[sp.MatrixSymbol]


@dataclass(frozen=True)
class Carried:
    """A matrix that passes through a cut.

    symbol: its name.  value: what it is, in symbols of the earlier part.  row_sum: what all its rows sum to, None where
    that is no constant.  nonnegative: whether no entry is below zero.
    """

    symbol: sp.MatrixSymbol
    value: MatrixExpr
    row_sum: sp.Expr | None
    nonnegative: bool

    @property
    def bounded(self) -> bool:
        """Whether it lies in a compact set: each row is a multiple of a probability vector."""
        return self.row_sum is not None and self.nonnegative


@dataclass(frozen=True, repr=False)
class Interface:
    """A cut: the inputs before it, and all that the rest of the program reads of them.

    earlier, later
        Inputs before and behind the cut.
    carried
        The matrices that pass through.
    dimension
        Of how many numbers they are made: the rank of their derivative in the earlier fields, at generic ones.
    numbers
        How many numbers the earlier fields are.
    before, behind
        The program in two: earlier inputs -> carried matrices (its outputs); these and the later inputs -> outputs.
    """

    earlier: tuple[sp.MatrixSymbol, ...]
    later: tuple[sp.MatrixSymbol, ...]
    carried: tuple[Carried, ...]
    dimension: int
    numbers: int
    before: Program
    behind: Program

    def __repr__(self) -> str:
        """What passes, from where to where, in one line; :attr:`before` and :attr:`behind` print as programs."""
        names = (", ".join(str(symbol) for symbol in those) for those in (self.earlier, self.later))
        carried, bound = ", ".join(str(one.symbol) for one in self.carried), ", bounded" if self.bounded else ""
        earlier, later = names
        return (
            f"<Interface: {carried} between {earlier} and {later}; {self.dimension} of {self.numbers} numbers{bound}>"
        )

    @property
    def bounded(self) -> bool:
        return all(one.bounded for one in self.carried)


def find_interfaces(program: Program, order: Sequence[int] | None = None) -> tuple[Interface, ...]:
    """The cuts of a program between its inputs, in an order of these (numbers from 0; as declared by default).

    A cut at which as many numbers pass as there are earlier fields is left out, unless they lie in a compact set; so is
    one behind which fields are read as they are.  Raises InputError for an order that is no permutation.
    """
    cuts = find_cuts(program, order)
    return tuple(one for one in cuts if one.dimension < one.numbers or one.bounded)


def find_cuts(program: Program, order: Sequence[int] | None = None) -> tuple[Interface, ...]:
    """The same, with cuts at which as many numbers pass as there are earlier fields."""
    count = len(program.inputs)
    order = tuple(range(count)) if order is None else tuple(order)
    if sorted(order) != list(range(count)):
        raise InputError("order", order, f"every number from 0 to {count - 1} once", "leave it out")
    cuts = [_Cut(program, [program.inputs[k] for k in order[:n]]) for n in range(1, count)]
    cuts = [cut for cut in cuts if cut.made]
    ranks = _ranks(program, cuts)
    return tuple(cut.interface(dimension) for cut, dimension in zip(cuts, ranks, strict=True))


class _Cut:
    """A program as two, one of which has all that only some of the inputs enter."""

    def __init__(self, program: Program, earlier: Sequence[sp.MatrixSymbol]) -> None:
        self.program, self.earlier = program, frozenset(earlier)
        self.reach: dict[sp.MatrixSymbol, Inputs] = {symbol: frozenset({symbol}) for symbol in program.inputs}
        self.names: dict[MatrixExpr, sp.MatrixSymbol] = {}
        self.made = True
        kept: list[Assign] = []
        self.first: list[Assign] = []
        for assign in program.assigns:
            self.reach[assign.target] = self._inputs(assign.value)
            if not self.reach[assign.target]:
                # A constant is known on both sides.
                self.first.append(assign)
                kept.append(assign)
            elif self._early(self.reach[assign.target]):
                self.first.append(assign)
                # An output of earlier inputs alone is read by whoever reads outputs.
                self.made &= assign.target not in program.outputs
            else:
                kept.append(Assign(assign.target, self._rewritten(assign.value)))
        self.rest = kept
        # Fields that are read as they are, or merely turned, are no summary of themselves.
        self.made &= bool(self.names) and not any(_is_plain(value, program) for value in self.names)

    def interface(self, dimension: int) -> Interface:
        known: dict[MatrixExpr, tuple[sp.Expr | None, bool]] = {}
        for assign in self.first:
            known[assign.target] = _rows(assign.value, known)
        carried = tuple(Carried(symbol, value, *_rows(value, known)) for value, symbol in self.names.items())
        earlier = tuple(symbol for symbol in self.program.inputs if symbol in self.earlier)
        later = tuple(symbol for symbol in self.program.inputs if symbol not in self.earlier)
        new = [Assign(one.symbol, one.value) for one in carried if one.symbol != one.value]
        through = [one.symbol for one in carried]
        before = Program(earlier, (*self.first, *new), through[0], tuple(through[1:]))
        behind = Program((*through, *later), tuple(self.rest), self.program.output, self.program.more_outputs)
        numbers = sum(map(_size, earlier))
        return Interface(earlier, later, carried, dimension, numbers, before, behind)

    def _inputs(self, expression: MatrixExpr) -> Inputs:
        return Inputs().union(*[self.reach[s] for s in expression.atoms(sp.MatrixSymbol) if s in self.reach])

    def _early(self, inputs: Inputs) -> bool:
        return inputs <= self.earlier

    def _rewritten(self, expression: MatrixExpr) -> MatrixExpr:
        """The same, with all that earlier inputs alone enter as names of what is carried."""
        inputs = self._inputs(expression)
        if not inputs & self.earlier:
            return expression
        if self._early(inputs):
            return self._carried(expression)
        match expression:
            case sp.MatrixSymbol():
                return expression
            case sp.MatAdd():
                early = [a for a in expression.args if self._inputs(a) and self._early(self._inputs(a))]
                others = [self._rewritten(a) for a in expression.args if a not in early]
                return (
                    sp.MatAdd(self._carried(sp.MatAdd(*early).doit(deep=False)), *others)
                    if early
                    else sp.MatAdd(*others)
                )
            case sp.MatMul():
                return self._product(expression)
            case sp.Transpose() | Activation() | Elementwise():
                return expression.func(self._rewritten(expression.args[0]), *expression.args[1:])
        # Entries one by one, or an expression of a kind of its own.
        self.made = False
        return expression

    def _product(self, expression: sp.MatMul) -> MatrixExpr:
        """Neighbouring factors that are early are carried as their product."""
        coefficient, factors = expression.as_coeff_matrices()
        parts: list[MatrixExpr] = []
        run: list[MatrixExpr] = []
        for factor in [*factors, None]:
            if factor is not None and self._inputs(factor) and self._early(self._inputs(factor)):
                run.append(factor)
                continue
            if run:
                parts.append(self._carried(sp.MatMul(*run).doit(deep=False)))
                run = []
            if factor is not None:
                parts.append(self._rewritten(factor))
        return sp.MatMul(coefficient, *parts).doit(deep=False)

    def _carried(self, value: MatrixExpr) -> sp.MatrixSymbol:
        if value not in self.names:
            taken = {symbol.name for symbol in (*self.reach, *self.names.values(), *self.program.definitions)}
            number = next(k for k in itertools.count(1) if f"C_{k}" not in taken)
            name = value if isinstance(value, sp.MatrixSymbol) else None
            self.names[value] = name or sp.MatrixSymbol(f"C_{number}", *value.shape)
        return self.names[value]


def _is_plain(expression: MatrixExpr, program: Program) -> bool:
    """Whether an expression is an input, at most transposed, by whatever names."""
    while True:
        if isinstance(expression, sp.Transpose):
            expression = expression.arg
        elif expression in program.definitions:
            expression = program.definitions[expression]
        else:
            return expression in program.inputs


def _rows(expression: MatrixExpr, known: dict[MatrixExpr, tuple[sp.Expr | None, bool]]) -> tuple[sp.Expr | None, bool]:
    """(what all rows sum to, or None; whether no entry is negative)."""
    if expression in known:
        return known[expression]
    match expression:
        case RowSoftmax() | RowHardmax() | sp.Identity():
            return sp.Integer(1), True
        case sp.Transpose():
            return None, _rows(expression.arg, known)[1]
        case sp.MatAdd():
            parts = [_rows(term, known) for term in expression.args]
            sums = [total for total, _ in parts if total is not None]
            return sp.Add(*sums) if len(sums) == len(parts) else None, all(sign for _, sign in parts)
        case sp.MatMul():
            coefficient, factors = expression.as_coeff_matrices()
            parts = [_rows(factor, known) for factor in factors]
            sums = [total for total, _ in parts if total is not None]
            positive = bool(coefficient.is_nonnegative) and all(sign for _, sign in parts)
            return coefficient * sp.Mul(*sums) if len(sums) == len(parts) else None, positive
        case sp.MatrixBase():
            totals = {sp.Add(*expression.row(i)) for i in range(expression.rows)}
            return (totals.pop() if len(totals) == 1 else None), all(e.is_nonnegative is True for e in expression)
        case Elementwise():
            masked = expression.expression.subs(symbols.SCORE, sp.Dummy(real=True))
            return None, masked.is_nonnegative is True
    return None, False


def _ranks(program: Program, cuts: Sequence[_Cut]) -> list[int]:
    """Of how many numbers what passes through each cut is made."""
    evaluate, places = _all_carried(program, cuts)
    sizes = list(map(_size, program.inputs))
    Z = np.random.default_rng(SEED).standard_normal((FIELDS, sum(sizes)))
    starts = np.cumsum([0, *sizes])
    found = []
    for cut, (start, stop) in zip(cuts, places, strict=True):
        columns = [
            k
            for i, symbol in enumerate(program.inputs)
            if symbol in cut.earlier
            for k in range(starts[i], starts[i + 1])
        ]
        J = jacobian(lambda z, a=start, b=stop: evaluate(z)[:, a:b], Z, np.array(columns))[1]  # type: ignore[misc]
        J = J[np.isfinite(J).all(axis=(1, 2))]
        if not len(J):
            # Too steep for a float wherever we look: nothing says that it is fewer.
            found.append(len(columns))
            continue
        values = np.linalg.svd(J, compute_uv=False)
        found.append(int((values > _ZERO * np.maximum(values[:, :1], 1e-300)).sum(axis=1).max()))
    return found


def _all_carried(
    program: Program, cuts: Sequence[_Cut]
) -> tuple[Callable[[np.ndarray], np.ndarray], list[tuple[int, int]]]:
    """(entries of the fields (N, n) -> entries of all that is carried (N, M), where those of each cut are)."""
    unroll = Unroller()
    arguments = [entry for symbol in program.inputs for entry in unroll.bind(symbol)]
    early = {assign.target for cut in cuts for assign in cut.first}
    for assign in program.assigns:
        if assign.target in early:
            unroll.assign(assign.target, assign.value)
    entries: list[sp.Expr] = []
    places = []
    for cut in cuts:
        start = len(entries)
        entries += [entry for value in cut.names for entry in unroll.entries(value)]
        places.append((start, len(entries)))
    return _stacked(unroll.compile(arguments, entries)), places


def _stacked(numeric: Callable[..., list[np.ndarray]]) -> Callable[[np.ndarray], np.ndarray]:
    def evaluate(Z: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            values = numeric(*np.moveaxis(Z, 1, 0))
        return np.stack([np.broadcast_to(value, len(Z)) for value in values], axis=1)

    return evaluate


def entries_of(program: Program) -> Callable[[np.ndarray], np.ndarray]:
    """Entries of the inputs (N, n), matrix by matrix, to the entries of all outputs (N, M)."""
    return _stacked(scalar_code(program))


def scalar_code(program: Program) -> Callable[..., list[np.ndarray]]:
    """The same, of one array for each entry; it can be traced (:func:`smisym.kernels.tracing.trace`)."""
    unroll = Unroller()
    arguments = [entry for symbol in program.inputs for entry in unroll.bind(symbol)]
    for assign in program.assigns:
        unroll.assign(assign.target, assign.value)
    # An input may pass as it is.
    return unroll.compile(arguments, [e for output in program.outputs for e in unroll.entries(output)])


def _size(symbol: sp.MatrixSymbol) -> int:
    return int(symbol.shape[0]) * int(symbol.shape[1])
