"""What a program knows of some of its fields only through a sum: the additive statistic and its summands.

A committee of layers that act on the original tokens, or many heads of one layer, enter the output through one matrix
S = constant + sum_k s_k, where every summand s_k is a function of fields of its own.  The rest of the program is then a
function of S and of the other fields alone, and a posterior can be integrated over S however many summands there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixExpr

from smisym.base.axes import canonical
from smisym.link.program import Assign, Program
from smisym.link.unroll import Unroller

# Summands fluctuate in no direction in which they differ by less than this, relative to their size, at generic fields.
_SAME = 1e-9


@dataclass(frozen=True)
class Summands:
    """Summands that are one function, up to a factor, of fields of their own.

    rows
        (G, r): the rows of Z that each of the G summands reads.
    factors
        (G,): what the function is multiplied by.
    expression
        The function, in inputs named ``x_1, x_2, ...``.
    entries
        r T arrays, row by row, that broadcast -> the E entries of the function, row by row of the matrix S.
    """

    rows: np.ndarray
    factors: np.ndarray
    expression: MatrixExpr
    entries: Callable[..., list[np.ndarray]]


@dataclass(frozen=True)
class Statistic:
    """An additive statistic S, (T', T), with E = T' T entries.

    target
        Its name in the program.
    kinds
        The summands, alike ones together.
    constant
        (E,): what is added to the summands.
    rest
        Rows of Z that the program reads beside S, in order.
    program
        The link as a function of S (its first input) and of the rest.
    origin, basis
        (E,), (E, n): S = origin + basis c, where the n numbers c = basis^T S are what varies (for two tokens and
        a softmax, whose rows sum to one, n = 2).
    """

    target: sp.MatrixSymbol
    kinds: tuple[Summands, ...]
    constant: np.ndarray
    rest: tuple[int, ...]
    program: Program
    origin: np.ndarray
    basis: np.ndarray

    @property
    def summands(self) -> int:
        return sum(len(kind.rows) for kind in self.kinds)

    @property
    def dimension(self) -> int:
        """n, how many numbers of S vary."""
        return int(self.basis.shape[1])

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of Z that are known through S only."""
        return tuple(sorted(int(r) for kind in self.kinds for r in kind.rows.ravel()))

    def __call__(self, Z: np.ndarray) -> np.ndarray:
        """S (S, T', T) at fields Z (S, P, T)."""
        total = np.broadcast_to(self.constant, (len(Z), len(self.constant))).copy()
        for kind in self.kinds:
            total += np.einsum("g,sge->se", kind.factors, summand_values(kind, Z[:, kind.rows]))
        return total.reshape(len(Z), *map(int, self.target.shape))


def summand_values(kind: Summands, fields: np.ndarray) -> np.ndarray:
    """(..., E) the function of a kind, without its factors, at fields (..., r, T)."""
    arguments = np.moveaxis(fields.reshape(*fields.shape[:-2], -1), -1, 0)
    with np.errstate(over="ignore", under="ignore"):
        found = kind.entries(*arguments)
    return np.stack([np.broadcast_to(value, fields.shape[:-2]) for value in found], axis=-1)


@dataclass
class _Sum:
    """A target of the program as a constant and groups of terms that share no input."""

    target: sp.MatrixSymbol
    constants: list[MatrixExpr]
    groups: list[tuple[frozenset[sp.MatrixSymbol], list[MatrixExpr]]]
    program: Program


def find_statistic(program: Program, row_inputs: tuple[int, ...]) -> Statistic | None:
    """The additive statistic with the most summands, at least two, or None; ``row_inputs``: the input of each row."""
    reach = _reach(program)
    found = [s for a in program.assigns if (s := _sum_at(program, a.target, reach)) is not None]
    if not found:
        return None
    best = max(found, key=lambda s: len(s.groups))  # the first of equals: the sum itself before what is made of it
    rows = {symbol: [r for r, i in enumerate(row_inputs) if i == k] for k, symbol in enumerate(program.inputs)}
    kinds = _kinds(program, best, rows)
    constant = np.zeros(int(np.prod(best.target.shape)))
    for term in best.constants:
        constant = constant + np.array(program.expand(term).as_explicit().tolist(), dtype=float).ravel()
    rest = tuple(sorted(r for symbol in best.program.inputs[1:] for r in rows[symbol]))
    return Statistic(best.target, kinds, constant, rest, best.program, *_directions(kinds, constant, program.tokens))


def _reach(program: Program) -> dict[sp.MatrixSymbol, frozenset[sp.MatrixSymbol]]:
    """The inputs that every symbol of a program depends on."""
    reach = {symbol: frozenset({symbol}) for symbol in program.inputs}
    for assign in program.assigns:
        reach[assign.target] = _inputs(assign.value, reach)
    return reach


def _inputs(
    expression: MatrixExpr, reach: dict[sp.MatrixSymbol, frozenset[sp.MatrixSymbol]]
) -> frozenset[sp.MatrixSymbol]:
    return frozenset[sp.MatrixSymbol]().union(*[reach[s] for s in expression.atoms(sp.MatrixSymbol) if s in reach])


def _sum_at(
    program: Program, target: sp.MatrixSymbol, reach: dict[sp.MatrixSymbol, frozenset[sp.MatrixSymbol]]
) -> _Sum | None:
    """A target as a sum, or None where it is none, is observed, or does not hold all there is of its inputs."""
    if target in program.outputs or int(target.shape[1]) != program.tokens:
        return None
    constants: list[MatrixExpr] = []
    groups: list[tuple[frozenset[sp.MatrixSymbol], list[MatrixExpr]]] = []
    for term in _terms(target, program.definitions):
        inputs, terms = _inputs(term, reach), [term]
        if not inputs:
            constants.append(term)
            continue
        for other in [g for g in groups if g[0] & inputs]:
            groups.remove(other)
            inputs, terms = inputs | other[0], [*other[1], *terms]
        groups.append((inputs, terms))
    rest = _cut(program, target)
    if len(groups) < 2 or any(inputs & set(rest.inputs) for inputs, _ in groups):
        return None
    return _Sum(target, constants, groups, rest)


def _terms(expression: MatrixExpr, definitions: dict[sp.MatrixSymbol, MatrixExpr]) -> list[MatrixExpr]:
    """Terms of a sum, through names and numeric factors."""
    if expression in definitions:
        return _terms(definitions[expression], definitions)
    if isinstance(expression, sp.MatAdd):
        return [term for part in expression.args for term in _terms(part, definitions)]
    factor, matrix = expression.as_coeff_mmul()
    if factor != 1 and factor.is_number:
        return [(factor * term).doit(deep=False) for term in _terms(matrix.doit(deep=False), definitions)]
    return [expression]


def _cut(program: Program, target: sp.MatrixSymbol) -> Program:
    """What is left of a program when a target is given: it becomes the first input."""
    definitions = program.definitions
    needed, stack = set[sp.MatrixSymbol](), list(program.outputs)
    while stack:
        symbol = stack.pop()
        if symbol not in needed:
            needed.add(symbol)
            if symbol != target and symbol in definitions:
                stack += definitions[symbol].atoms(sp.MatrixSymbol)
    inputs = (target, *[symbol for symbol in program.inputs if symbol in needed])
    assigns = tuple(Assign(a.target, a.value) for a in program.assigns if a.target in needed and a.target != target)
    return Program(inputs, assigns, program.output, program.more_outputs)


def _kinds(program: Program, found: _Sum, rows: dict[sp.MatrixSymbol, list[int]]) -> tuple[Summands, ...]:
    """Summands with equal expressions, up to names and a factor, made one kind."""
    alike: dict[MatrixExpr, list[tuple[list[int], float, tuple[sp.MatrixSymbol, ...]]]] = {}
    for group, terms in found.groups:
        inputs = [symbol for symbol in program.inputs if symbol in group]
        names = tuple(sp.MatrixSymbol(f"x_{k}", *symbol.shape) for k, symbol in enumerate(inputs, start=1))
        swap = dict(zip(inputs, names, strict=True))
        expanded = [program.expand(term).xreplace(swap) for term in terms]
        factor, expression = expanded[0].as_coeff_mmul() if len(expanded) == 1 else (1, sp.MatAdd(*expanded))
        own = [row for symbol in inputs for row in rows[symbol]]
        alike.setdefault(expression.doit(), []).append((own, float(factor), names))
    made = []
    for expression, members in alike.items():
        unroll = Unroller()
        arguments = [scalar for name in members[0][2] for scalar in unroll.bind(name)]
        entries = unroll.compile(arguments, list(unroll.entries(expression)))
        own_rows, factors = np.array([m[0] for m in members]), np.array([m[1] for m in members])
        made.append(Summands(own_rows, factors, expression, entries))
    return tuple(made)


def _directions(kinds: tuple[Summands, ...], constant: np.ndarray, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """(origin, basis): where the sum lives, from the summands at generic fields."""
    E = len(constant)
    rng = np.random.default_rng(0)
    origin, varied = constant.copy(), []
    for kind in kinds:
        values = summand_values(kind, rng.standard_normal((4 * E + 16, kind.rows.shape[1], tokens)))
        varied.append(values[1:] - values[0])
        origin = origin + kind.factors.sum() * values[0]
    _, size, vectors = np.linalg.svd(np.concatenate(varied), full_matrices=False)
    basis = canonical(vectors[size > _SAME * size[0]].T)
    return origin - basis @ (basis.T @ origin), basis
