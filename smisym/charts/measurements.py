"""Outputs that are linear measurements of the fields: log-ratios of a softmax, or entries, that are affine in them.

    y = b + A z

with numbers A, b, as of one layer whose scores are the fields themselves.  The rows of A span K directions; along the
others the fields are free, with a flat measure, which the channel integrates in closed form.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixExpr

from smisym.base.counting import counted
from smisym.base.derivation import Formula, Step
from smisym.charts.base import Arrays, Coordinates, LevelSet, Refusal, Sheets, Unfolding, faults
from smisym.charts.programs import Counts, programmed
from smisym.charts.reading import EntryReading
from smisym.kernels.tracing import trace
from smisym.link.linking import LinkFunction, Observation
from smisym.link.program import Activation, Elementwise, Program, RowSoftmax
from smisym.link.unroll import Unroller

# Singular values of A, beside the largest, that are zero; how far an output may be from the image, beside rounding.
_ZERO, _OFF = 1e-10, 1e3
SOURCE = "linear algebra of the program's own scores; derived here"


def linear_measurements(link: LinkFunction) -> LevelSet | Refusal:
    """The chart of such a link."""
    if link.fields > 1 and len(link.program.assigns) == 1:
        return Refusal("fields of several rows in a list of expressions are solved for by themselves")
    found = _affine(link)
    if isinstance(found, Refusal):
        return found
    A, b = found
    U, sizes, Vt = np.linalg.svd(A)
    rank = int((sizes > _ZERO * sizes[0]).sum())
    total = link.fields * link.tokens
    # u = R z with R of orthonormal rows: the measure of u and of what is free beside is that of the fields.
    R, N = Vt[:rank], Vt[rank:]
    read = (U[:, :rank] / sizes[:rank]).T
    counts = Counts(0, 0, rank, 1, total, len(N))

    def solve(free: Arrays, latent: Arrays, u: Arrays) -> Sheets:
        nothing = np.zeros(())
        solved = [sum((float(R[k, i]) * u[k] for k in range(rank)), nothing) for i in range(total)]
        along = [[nothing + float(x) for x in row] for row in N]
        return Sheets([solved], [nothing], [along] if along else [])

    program, numeric = programmed(solve, counts)
    return LevelSet(
        rule="linear measurements of the fields",
        free_rows=(),
        solved_rows=tuple(range(link.fields)),
        branches=1,
        dimension=rank,
        coordinates=read_measurements(link, A, b, read),
        solve=numeric,
        steps=_steps(link.output_is_softmax, rank, total),
        directions=len(N),
        linear=True,
        density=True,
        complete=True,
        unfolding=Unfolding(rank, np.ones((1, rank))),
        program=program,
        reading=(measurements_reading(link, b, read),),
    )


def _affine(link: LinkFunction) -> tuple[np.ndarray, np.ndarray] | Refusal:
    """(A (M, P T), b (M,)): what is seen is b + A z."""
    program = link.program
    if any(isinstance(part, Elementwise) for assign in program.assigns for part in sp.preorder_traversal(assign.value)):
        return Refusal("an activation of its own acts on the scores")
    if not link.output_is_softmax and any(assign.value.atoms(Activation) for assign in program.assigns):
        return Refusal("the output is not affine in the fields")
    softmaxes = [core.expression for core in link.cores or ()] if link.output_is_softmax else []
    if any(_inside(program, expression.arg) for expression in softmaxes):
        return Refusal("scores are functions of softmaxes")
    return _coefficients(*_entries(program, softmaxes))


def affine_scores(program: Program, scores: MatrixExpr) -> tuple[np.ndarray, np.ndarray] | Refusal:
    """(A (n, n, P T), b (n, n)): scores (n, n) that are b + A z."""
    if _inside(program, scores) or program.expand(scores).atoms(Elementwise):
        return Refusal("scores are functions of activations")
    symbols, entries = _entries(program, [], scores)
    found = _coefficients(symbols, entries)
    if isinstance(found, Refusal):
        return found
    size = int(scores.shape[0])
    return found[0].reshape(size, size, -1), found[1].reshape(size, size)


def _coefficients(symbols: list[sp.Symbol], entries: list[sp.Expr]) -> tuple[np.ndarray, np.ndarray] | Refusal:
    rows, constants = [], []
    for entry in entries:
        slopes = [sp.diff(entry, symbol) for symbol in symbols]
        if any(slope.free_symbols for slope in slopes):
            return Refusal("what is seen is not affine in the fields")
        rows.append([float(slope) for slope in slopes])
        constants.append(float(entry.subs(dict.fromkeys(symbols, 0))))
    A = np.array(rows)
    if not A.any():
        return Refusal("what is seen is constant")
    return A, np.array(constants)


def _inside(program: Program, scores: MatrixExpr) -> bool:
    return bool(program.expand(scores).atoms(Activation))


def _entries(
    program: Program, softmaxes: list[RowSoftmax], scores: MatrixExpr | None = None
) -> tuple[list[sp.Symbol], list[sp.Expr]]:
    """The fields and what is seen, entry by entry: log-ratios of softmaxes, or scores, else outputs."""
    unroll = Unroller()
    symbols = [s for symbol in program.inputs for s in unroll.bind(symbol)]
    values = {}
    for assign in program.assigns:
        if (softmaxes or scores is not None) and _inside(program, assign.value):
            continue
        unroll.assign(assign.target, assign.value)
        values[assign.target] = unroll.entries(assign.target)
    if scores is not None:
        seen = list(unroll.entries(scores))
    elif softmaxes:
        seen = [e for expression in softmaxes for e in unroll.log_ratios(expression)]
    else:
        seen = [e for output in program.outputs for e in values[output]]
    lines = dict(unroll.lines)

    def written(entry: sp.Expr) -> sp.Expr:
        while entry.free_symbols & lines.keys():
            entry = sp.sympify(entry).xreplace(lines)
        return sp.expand(entry)

    return symbols, [written(sp.sympify(e)) for e in seen]


def read_measurements(
    link: LinkFunction, A: np.ndarray, b: np.ndarray, read: np.ndarray
) -> Callable[[Observation], Coordinates]:
    """Of outputs that show b + A w, the measurements ``read`` of it; A has their rows as its row space."""
    softmax, shown = link.output_is_softmax, link.attended.ravel()
    back = np.linalg.pinv(read)

    def coordinates(observation: Observation) -> Coordinates:
        values = np.asarray(observation.log_ratios) if softmax else observation.y
        seen = np.where(shown, values.reshape(len(values), -1), 0.0) - b
        size = np.abs(seen).max(axis=1) + np.abs(b).max() + (observation.lost if softmax else 0.0)
        u, rounding = seen @ read.T, 8 * np.finfo(float).eps * size
        off = np.abs(seen - u @ back.T).max(axis=1)
        bad = ~(off <= _OFF * rounding)
        what = "log-ratios" if softmax else "entries"
        outside = faults(
            bad,
            lambda k: f"an output whose {what} miss the linear equations between them by {off[k]:.3g}",
            "an output of this network",
            "check the order of rows and columns, or declare noise > 0",
        )
        relative = rounding / np.maximum(np.abs(u).max(axis=1), np.finfo(float).tiny)
        return Coordinates(np.where(bad[:, None], 0.0, u), np.where(bad, 0.0, relative), outside)

    return coordinates


def measurements_reading(link: LinkFunction, b: np.ndarray, read: np.ndarray) -> EntryReading:
    """The same as a program; entries that are masked, of which log-ratios are -inf, have no part in it."""
    shown = np.flatnonzero(link.attended.ravel())

    def measured(*seen: np.ndarray) -> Arrays:
        return [sum((float(row[k]) * (seen[k] - float(b[k])) for k in shown if row[k]), np.zeros(())) for row in read]

    arguments = [f"y{k + 1}" for k in range(read.shape[1])]
    return EntryReading(trace(measured, arguments), ratios=link.output_is_softmax)


def along(free: int) -> str:
    """A sentence on so many directions that no measurement sees; none where there are none."""
    if not free:
        return ""
    of = "direction" if free == 1 else f"{free} directions"
    return f" Along the other {of} the fields are free, and integrated in closed form."


def _steps(softmax: bool, rank: int, total: int) -> tuple[Step, ...]:
    what = "The output shows differences of scores" if softmax else "The output shows scores"
    text = (
        f"{what}, which are linear in the fields: {counted(rank, 'linear measurement')} of "
        f"{counted(total, 'field')}, without noise." + along(total - rank)
    )
    formulas = (
        Formula("u", r"R z, \qquad R R^{\top} = I", "the measurements, in an orthonormal basis"),
        Formula(
            "z",
            r"R^{\top} u + N^{\top} c, \qquad R N^{\top} = 0,\ N N^{\top} = I" if rank < total else r"R^{\top} u",
            "$c$ is free, with a flat measure" if rank < total else "",
        ),
        Formula("w", "1", "weight: the change of coordinates is a rotation"),
    )
    checks = (
        ("the rank of what is seen", f"singular values of its {rank} x {total} part; zero are those below 1e-10"),
    )
    return (Step("chart", "The fields that give this output", text, formulas, checks, SOURCE),)
