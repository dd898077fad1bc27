"""Last layers whose scores are the fields themselves, mixed as the tokens are: S = B h B^T, h symmetric.

The mixing B of the layers before depends on their fields alone, which are free.  At given B the output makes linear
measurements of S, as where nothing is mixed (:mod:`smisym.charts.measurements`), and h = B^{-1} S B^{-T}: of symmetric
matrices that is a linear map of determinant det B^{-(T + 1)}.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import numpy as np
import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixExpr

from smisym.base.counting import counted
from smisym.base.derivation import Formula, Step
from smisym.charts.base import LINE, Arrays, LevelSet, Refusal, Sheets, Unfolding
from smisym.charts.matching import closure, square_factors
from smisym.charts.measurements import SOURCE, along, measurements_reading, read_measurements
from smisym.charts.programs import Counts, programmed
from smisym.charts.unmixing import solve_columns
from smisym.link.core import core_of
from smisym.link.linking import LinkFunction
from smisym.link.program import Elementwise, Program, RowSoftmax, generic_determinant, reference, split_constant
from smisym.link.unroll import Unroller

# Singular values of what is seen, beside the largest, that are zero.
_ZERO = 1e-10
# Random fields at which is seen what mixing depends on, step of differences, and singular values that are their error.
_TRIALS, _STEP, _FLAT = 8, 1e-5, 1e-7


def mixed_measurements(link: LinkFunction) -> LevelSet | Refusal:
    """The chart of such a link."""
    program, T = link.program, link.output_shape[-1]
    found = _match(program)
    if isinstance(found, Refusal):
        return found
    field, mixing, M, coefficient, constant, softmax = found
    places = _places(M, field)
    if places is None:
        return Refusal("the scores are not the entries of one symmetric matrix of fields")
    factors = square_factors(mixing, program.definitions)
    if any(generic_determinant(program, factor) < mpmath.mpf(10) ** -300 for factor in factors):
        return Refusal("the mixing before the last layer is singular: it cannot be inverted")
    A, b = _seen(link, places, coefficient, constant, softmax)
    U, sizes, Vt = np.linalg.svd(A)
    rank = int((sizes > _ZERO * sizes[0]).sum())
    read = (U[:, :rank] / sizes[:rank]).T
    own = program.inputs.index(field)
    solved = tuple(r for r, i in enumerate(link.row_inputs) if i == own)
    free = tuple(r for r, i in enumerate(link.row_inputs) if i != own)
    numeric = _compile(program, factors, field)
    shown, idle = _mixing_directions(numeric, len(free) * link.tokens)
    N = Vt[rank:]
    solve = _Mixed(T, link, free, solved, places, numeric, shown, idle, Vt[:rank], N).solve
    counts = Counts(0, len(shown), rank, 1, link.fields * link.tokens, len(idle) + len(N))
    straight, compiled = programmed(solve, counts)
    return LevelSet(
        rule="linear measurements of mixed fields",
        free_rows=(),
        solved_rows=tuple(range(link.fields)),
        latents=(LINE,) * len(shown),
        spread=_spread(shown, link, free),
        branches=1,
        dimension=rank,
        coordinates=read_measurements(link, A, b, read),
        solve=compiled,
        steps=_steps(rank, len(places), T, len(idle)),
        directions=len(idle) + len(N),
        density=True,
        complete=True,
        unfolding=Unfolding(rank, np.ones((1, rank))),
        program=straight,
        reading=(measurements_reading(link, b, read),),
    )


@dataclass(frozen=True)
class _Mixed:
    """What a chart of mixed scores is made of.

    places: see :func:`_places`.  numeric: factors of the mixing at free fields.  shown, idle: directions of the free
    fields that it depends on, and the others.  R, N: what is measured of the scores, and the rest.
    """

    tokens: int
    link: LinkFunction
    free: tuple[int, ...]
    solved: tuple[int, ...]
    places: list[tuple[int, int, float]]
    numeric: Callable[[Arrays], list[list[Arrays]]]
    shown: np.ndarray
    idle: np.ndarray
    R: np.ndarray
    N: np.ndarray

    def solve(self, _: Arrays, latent: Arrays, u: Arrays) -> Sheets:
        nothing = np.zeros(())

        def combined(rows: np.ndarray, numbers: Arrays) -> Arrays:
            return [sum((float(x) * n for x, n in zip(row, numbers, strict=True)), nothing) for row in rows.T]

        given = combined(self.shown, latent)
        matrices = self.numeric(given)
        fields, log_det = self._unmixed(matrices, combined(self.R, u))
        along = [self._unmixed(matrices, [nothing + float(x) for x in row])[0] for row in self.N]
        within = [[nothing + float(x) for x in row] + [nothing] * len(fields) for row in self.idle]
        moving = [*within, *([nothing] * len(given) + own for own in along)]
        directions = [self._placed(vector) for vector in moving]
        weight = -(self.tokens + 1) * log_det
        return Sheets([self._placed([*given, *fields])], [weight], [directions] if directions else [])

    def _unmixed(self, matrices: list[list[Arrays]], w: Arrays) -> tuple[Arrays, np.ndarray]:
        """(B^{-1} S B^{-T} as a row, log |det B|) of scores S that are such a row."""
        T = self.tokens
        S: list[Arrays] = [[np.zeros(())] * T for _ in range(T)]
        for value, (i, j, weight) in zip(w, self.places, strict=True):
            S[i][j] = S[j][i] = value * weight
        for _ in range(2):  # B^{-1} S, then its transpose likewise: S is symmetric
            columns, log_det = [[S[i][j] for i in range(T)] for j in range(T)], np.zeros(())
            for matrix in matrices:
                columns, own = solve_columns(matrix, columns)
                log_det = log_det + own
            S = columns
        return [S[i][j] / weight for i, j, weight in self.places], log_det

    def _placed(self, entries: Arrays) -> Arrays:
        """Entries of free rows, then of solved ones, in the order of the rows."""
        T = self.link.tokens
        cut = {row: entries[k * T : (k + 1) * T] for k, row in enumerate((*self.free, *self.solved))}
        return [entry for row in range(self.link.fields) for entry in cut[row]]


_Matched = tuple[sp.MatrixSymbol, MatrixExpr, sp.ImmutableDenseMatrix, float, np.ndarray, bool]


def _match(program: Program) -> _Matched | Refusal:
    """(the field, B, the matrix of its entries, factor and constant of the scores, whether a softmax is seen)."""
    if len(program.outputs) > 1:
        return Refusal("there are several outputs")
    core = core_of(program, program.outputs[0])
    expression = program.outputs[0] if core is None else core.expression
    if isinstance(expression, Elementwise):
        return Refusal("an activation of its own acts on the scores")
    softmax = isinstance(expression, RowSoftmax)
    if core is not None and not softmax and (core.coefficient != 1 or core.constant.any()):
        return Refusal("the output is not the scores themselves")
    constant, rest = split_constant(expression.arg if softmax else expression)
    coefficient, factors = _factors(rest, program.definitions)
    middle = [k for k, factor in enumerate(factors) if isinstance(factor, sp.MatrixBase)]
    if len(middle) != 1 or not coefficient.is_number or len(factors) == 1:
        return Refusal("the scores are not B h B^T")
    left, M, right = factors[: middle[0]], factors[middle[0]], factors[middle[0] + 1 :]
    mixing = sp.MatMul(*left).doit()
    if mixing.T.doit() != sp.MatMul(*right).doit():
        return Refusal("the scores are mixed by different matrices from both sides")
    fields = [symbol for symbol in program.inputs if M.has(symbol)]
    if len(fields) != 1 or program.depends_on(mixing, fields):
        return Refusal("the mixing before the last layer depends on the fields of the last layer")
    T = int(M.shape[0])
    shift = np.zeros((T, T)) if constant is None else np.array(constant.tolist(), dtype=float)
    return fields[0], mixing, sp.ImmutableDenseMatrix(M), float(coefficient), shift, softmax


def _factors(
    expression: MatrixExpr, definitions: dict[sp.MatrixSymbol, MatrixExpr]
) -> tuple[sp.Expr, list[MatrixExpr]]:
    """A product with its number, names followed until it is one."""
    coefficient = sp.Integer(1)
    while True:
        own, matrix = expression.as_coeff_mmul() if isinstance(expression, MatrixExpr) else (sp.Integer(1), expression)
        coefficient, matrix = coefficient * own, matrix
        inner = matrix.args[0] if isinstance(matrix, sp.MatMul) and len(matrix.args) == 1 else matrix
        if inner not in definitions:
            return coefficient, list(matrix.args) if isinstance(matrix, sp.MatMul) else [inner]
        expression = definitions[inner]


def _places(M: sp.ImmutableDenseMatrix, field: sp.MatrixSymbol) -> list[tuple[int, int, float]] | None:
    """(i, j, weight) of each entry of the field in its row: M_ij = M_ji = weight * entry; None where M has another
    form or map these to a matrix that is not of the norm of the row."""
    T, found = int(M.shape[0]), {}
    if int(field.shape[0]) != 1 or int(field.shape[1]) != T * (T + 1) // 2 or M != M.T:
        return None
    for i in range(T):
        for j in range(i, T):
            weight, rest = M[i, j].as_coeff_Mul()
            more = [factor for factor in sp.Mul.make_args(rest) if not factor.is_number]
            number = weight * sp.Mul(*[factor for factor in sp.Mul.make_args(rest) if factor.is_number])
            if len(more) != 1 or not isinstance(more[0], sp.matrices.expressions.matexpr.MatrixElement):
                return None
            if more[0].parent != field or abs(float(number) - (np.sqrt(2) if i == j else 1)) > 1e-15:
                return None
            found[int(more[0].j)] = (i, j, float(number))
    return [found[k] for k in range(len(found))] if len(found) == T * (T + 1) // 2 else None


def _seen(
    link: LinkFunction, places: list[tuple[int, int, float]], coefficient: float, constant: np.ndarray, softmax: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(A (T T, n), b (T T,)): what is seen of scores of weights w (n,) is b + A w."""
    T = len(constant)
    shown = link.attended.reshape(T, T)
    base = [reference(list(np.flatnonzero(row)), i) for i, row in enumerate(shown)]

    def told(S: np.ndarray) -> np.ndarray:
        ratios = S - S[range(T), base][:, None] if softmax else S
        return np.asarray(np.where(shown, ratios, 0.0).ravel())

    columns = []
    for i, j, weight in places:
        S = np.zeros((T, T))
        S[i, j] = S[j, i] = weight * coefficient
        columns.append(told(S))
    return np.array(columns).T, told(constant)


def _compile(
    program: Program, factors: list[MatrixExpr], field: sp.MatrixSymbol
) -> Callable[[Arrays], list[list[Arrays]]]:
    """From the free fields to the factors of the mixing, entry by entry."""
    unroll = Unroller()
    arguments = [s for symbol in program.inputs if symbol != field for s in unroll.bind(symbol)]
    formed = {s for factor in factors for s in closure(factor, program.definitions)}
    for assign in program.assigns:
        if assign.target in formed:
            unroll.assign(assign.target, assign.value)
    numeric = unroll.compile(arguments, [entry for factor in factors for entry in unroll.entries(factor)])
    T = int(factors[0].shape[0])

    def evaluate(free: Arrays) -> list[list[Arrays]]:
        values = iter(numeric(*free))
        return [[[next(values) for _ in range(T)] for _ in range(T)] for _ in factors]

    return evaluate


def _mixing_directions(numeric: Callable[[Arrays], list[list[Arrays]]], count: int) -> tuple[np.ndarray, np.ndarray]:
    """(k, count), (count - k, count), orthonormal: directions of the free fields that mixing depends on, and others.

    A softmax does not see a shift of all scores of a row.
    """
    rng, rows = np.random.default_rng(0), []
    for point in rng.standard_normal((_TRIALS, count)):
        ends = [
            np.array([e for M in numeric(list((point + s * _STEP * np.eye(count)).T)) for row in M for e in row])
            for s in (1.0, -1.0)
        ]
        rows.append((ends[0] - ends[1]) / (2 * _STEP))
    _, sizes, Vt = np.linalg.svd(np.concatenate(rows))
    rank = int((sizes > _FLAT * sizes[0]).sum())
    return Vt[:rank], Vt[rank:]


def _spread(shown: np.ndarray, link: LinkFunction, free: tuple[int, ...]) -> np.ndarray:
    """Directions of the free fields (k, count) as directions of all fields (k, P T)."""
    T = link.tokens
    out = np.zeros((len(shown), link.fields, T))
    out[:, list(free)] = shown.reshape(len(shown), len(free), T)
    return out.reshape(len(shown), -1)


def _steps(rank: int, total: int, T: int, idle: int) -> tuple[Step, ...]:
    text = (
        "Given the fields of the layers before, the mixing $B$ is known, and the output makes linear measurements of "
        f"$S = B h B^{{\\top}}$: {rank} of {total} numbers, without noise."
        + along(total - rank)
        + (
            f" Of the fields before, {counted(idle, 'direction')} {'does' if idle == 1 else 'do'} not change $B$; "
            "there too they are integrated in closed form."
            if idle
            else ""
        )
    )
    formulas = (
        Formula(
            "S",
            r"R^{\top} u + N^{\top} c" if rank < total else r"R^{\top} u",
            "$u$: what is measured, in an orthonormal basis" + ("; $c$ is free" if rank < total else ""),
        ),
        Formula("h", r"B^{-1} S B^{-\top}"),
        Formula(
            "w",
            rf"|\det B|^{{-{T + 1}}}",
            "weight: one over the determinant of $h \\to S$, on symmetric matrices",
        ),
    )
    checks = (
        ("the rank of what is seen", f"singular values of its {rank} x {total} part; zero are those below 1e-10"),
    )
    return (Step("chart", "The fields that give this output", text, formulas, checks, SOURCE),)
