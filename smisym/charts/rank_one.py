"""Attention matrix of a tied layer of rank one, noiseless: y = sigma(k u u^T), u = M h^T.

Here h is one row of the fields and M a matrix that does not depend on it.  The output reveals
exactly +-u; given the other fields, h = +-M^{-1} u.  (arXiv 2502.00901, appendix E, rewritten for
tokens as rows; proofs by substitution below, run each time a chart is found.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import numpy as np
import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixExpr

from smisym.base.derivation import Formula, Step
from smisym.base.errors import InputError
from smisym.charts.base import Arrays, Coordinates, LevelSet, Refusal, Sheets, Unfolding
from smisym.charts.matching import closure, linear_in_one_field, resolve, square_factors
from smisym.charts.programs import Counts, Solve, programmed
from smisym.charts.rank_one_vector import from_gram, from_log_ratios
from smisym.charts.reading import HeadReading, vector_of_gram, vector_of_ratios
from smisym.link.linking import LinkFunction, Observation
from smisym.link.program import Program, RowSoftmax, generic_determinant, gram_factor
from smisym.link.unroll import Unroller

SOURCE = "arXiv 2502.00901, appendix E; rederived and verified by substitution"


@dataclass(frozen=True)
class _Match:
    """The structure found: y = softmax(k u u^T) or k u u^T with u = mixing * h^T."""

    softmax: bool
    coefficient: sp.Expr
    field: sp.MatrixSymbol
    mixing: MatrixExpr
    vector: MatrixExpr


def tied_rank_one(link: LinkFunction) -> LevelSet | Refusal:
    """The chart of a program whose output is sigma(k u u^T) with u linear in one field."""
    program = link.program
    found = _match(program)
    if isinstance(found, Refusal):
        return found
    index = program.inputs.index(found.field)
    solved = tuple(r for r, i in enumerate(link.row_inputs) if i == index)
    free = tuple(r for r, i in enumerate(link.row_inputs) if i != index)
    tokens = program.tokens
    counts = Counts(len(free) * tokens, 0, tokens, 2, tokens)
    straight, solve = programmed(_inverse(program, found), counts)
    factors = square_factors(found.mixing, program.definitions)
    if any(generic_determinant(program, factor) < mpmath.mpf(10) ** -300 for factor in factors):
        return Refusal(
            f"the mixing matrix {found.mixing} is singular: it cannot be inverted (a skip of 0 is one cause)"
        )
    checks = _verify(found, tokens)
    checks.append(("det M is not zero for all fields", "evaluated factor by factor at one generic point, 400 digits"))
    return LevelSet(
        rule="tied rank-one attention matrix",
        free_rows=free,
        solved_rows=solved,
        branches=2,
        dimension=tokens,
        coordinates=_coordinates(float(found.coefficient), found.softmax),
        solve=solve,
        steps=_steps(found, tokens, checks),
        density=True,
        program=straight,
        reading=(_reading(found, tokens),),
        # u is linear in the field that it is solved for: the weight 1/|det M| is that of the fields, and u runs over
        # all of R^T, so that u on one branch is -u on the other.
        unfolding=Unfolding(tokens, np.array([np.ones(tokens), -np.ones(tokens)])),
    )


def _match(program: Program) -> _Match | Refusal:
    definitions = program.definitions
    if program.more_outputs:
        return Refusal("there is more than one output matrix")
    value = definitions[program.output]
    softmax = isinstance(value, RowSoftmax)
    if softmax and value.mask is not None:
        return Refusal("the output is masked")
    scores = resolve(value.arg if softmax else value, definitions, gram_factor)
    gram = gram_factor(scores)
    if gram is None:
        return Refusal(
            "the output is no row softmax of $k\\, u u^{\\top}$, with $u$ the mixed fields, and no multiple of it"
        )
    coefficient, vector = gram
    if int(vector.shape[1]) != 1:
        return Refusal(f"the scores have rank {vector.shape[1]}, not one")
    if not (coefficient.is_number and coefficient.is_positive):
        return Refusal(f"the coefficient {coefficient} of the scores is not a positive number")
    linear = linear_in_one_field(program, vector)
    if isinstance(linear, Refusal):
        return linear
    if isinstance(linear[1], sp.MatrixBase):
        return Refusal("the mixing is a matrix of numbers, for which this rule has no exact proof")
    return _Match(softmax, coefficient, linear[0], linear[1], vector)


def _inverse(program: Program, found: _Match) -> Solve:
    """Numpy code for M(free)^{-1} u and -log|det M|, factor by factor; no inverse is ever formed."""
    unroll = Unroller()
    arguments = [s for symbol in program.inputs if symbol != found.field for s in unroll.bind(symbol)]
    tokens = program.tokens
    target = sp.MatrixSymbol("u", tokens, 1)
    u = unroll.bind(target)
    needed = closure(found.mixing, program.definitions)
    factors = square_factors(found.mixing, program.definitions)
    # A product that is only solved against is never formed: its factors are solved one after the other.
    formed = {s for f in factors for s in closure(f, program.definitions)}
    for assign in program.assigns:
        if assign.target in needed and assign.target in formed:
            unroll.assign(assign.target, assign.value)
    x = unroll.entries(target)
    logdet: sp.Expr = sp.Integer(0)
    for factor in factors:
        x, one = unroll.solve(factor, x)
        logdet += one
    numeric = unroll.compile([*arguments, *u], [*x, -logdet])

    def solve(free: Arrays, latent: Arrays, u: Arrays) -> Sheets:
        *solved, log_weight = numeric(*free, *u)
        return Sheets([solved, [-value for value in solved]], [log_weight])

    return solve


def _reading(found: _Match, tokens: int) -> HeadReading:
    zero, scale = np.zeros((tokens, tokens)), float(found.coefficient)
    reader = vector_of_ratios if found.softmax else vector_of_gram
    return HeadReading(None, found.softmax, zero, 1.0, None, zero, scale, reader, 1)


def _coordinates(coefficient: float, softmax: bool) -> Callable[[Observation], Coordinates]:
    def coordinates(observation: Observation) -> Coordinates:
        eps = np.finfo(float).eps
        if not softmax:
            gram = observation.y / coefficient
            return from_gram(gram, 8 * eps * np.abs(gram).max(axis=(1, 2)))
        ratios = observation.log_ratios
        if ratios is None:
            raise InputError(
                "output", "no log-ratios", "an Observation with log-ratios", "give y as an array, or model.observe(Z)"
            )
        rounding = 8 * eps * (np.abs(ratios).max(axis=(1, 2)) + observation.lost)
        return from_log_ratios(ratios / coefficient, rounding / coefficient)

    return coordinates


def _verify(found: _Match, tokens: int) -> list[tuple[str, str]]:
    """Prove the chart for this program and this number of tokens; raises if a step fails."""
    checks = []
    u = sp.MatrixSymbol("u", tokens, 1)
    field_column = sp.MatMul(sp.Inverse(found.mixing), u) if not isinstance(found.mixing, sp.Identity) else u
    back = sp.MatMul(found.mixing, field_column).doit()
    _prove(back == u, "M (M^{-1} u) = u")
    checks.append(
        (
            "$M (M^{-1} u) = u$ with $M$ the matrix that multiplies the last field",
            "matrix algebra on the program's own M",
        )
    )
    scores, flipped = found.coefficient * u * u.T, found.coefficient * (-u) * (-u).T
    _prove(flipped.doit() == scores.doit(), "y(u) = y(-u)")
    checks.append(("$y(u) = y(-u)$: two sheets", "substituted"))
    x = sp.symbols(f"u1:{tokens + 1}", real=True)
    if found.softmax:
        checks += _verify_log_ratios(x)
    else:
        _prove(all(sp.expand(x[0] * x[0] * (x[k] * x[k]) - (x[0] * x[k]) ** 2) == 0 for k in range(tokens)), "Gram")
        checks.append(
            ("$(u_1 u_k)^2 = (u_1^2)(u_k^2)$: the Gram matrix gives every entry up to one sign", "expanded to 0")
        )
    m = sp.Matrix(tokens, tokens, lambda i, j: sp.Symbol(f"m{i}_{j}"))
    h = sp.Matrix(sp.symbols(f"h1:{tokens + 1}", real=True))
    _prove((m * h).jacobian(h) == m, "du/dh = M")
    checks.append(
        (
            r"$u = M h$ has $\partial u/\partial h = M$, so $|\det \partial h/\partial u| = 1/|\det M|$",
            "Jacobian taken symbolically, M with free entries",
        )
    )
    return checks


def _verify_log_ratios(x: tuple[sp.Symbol, ...]) -> list[tuple[str, str]]:
    """Every product u_i u_j follows from D_ij = u_i (u_j - u_i): polynomial identities, expanded to zero."""
    for i, j in itertools.permutations(range(len(x)), 2):
        d_ij, d_ji = x[i] * (x[j] - x[i]), x[j] * (x[i] - x[j])
        gap = -(d_ij + d_ji)
        _prove(sp.expand(gap - (x[i] - x[j]) ** 2) == 0, "gap")
        _prove(sp.expand(d_ij**2 - x[i] ** 2 * gap) == 0, "square")
        _prove(sp.expand(-d_ij * d_ji - x[i] * x[j] * gap) == 0, "product")
        _prove(sp.expand(x[i] ** 2 + d_ij - x[i] * x[j]) == 0, "others")
    how = f"expanded to 0 for all pairs of {len(x)} tokens"
    return [
        (r"$-(\Lambda_{ij} + \Lambda_{ji}) = (u_i - u_j)^2$", how),
        (r"$\Lambda_{ij}^2 = u_i^2 (u_i - u_j)^2$ and $-\Lambda_{ij} \Lambda_{ji} = u_i u_j (u_i - u_j)^2$", how),
        (r"$u_i u_k = u_i^2 + \Lambda_{ik}$: $y$ determines all $u_i u_j$, that is $u$ up to one sign", how),
    ]


def _prove(holds: bool, statement: str) -> None:
    if not holds:
        raise ArithmeticError(f"the chart failed its proof at: {statement}")


def _over(k: sp.Expr) -> str:
    return "" if k == 1 else rf"\frac{{1}}{{{sp.latex(k)}}}"


def _times(k: sp.Expr) -> str:
    return "" if k == 1 else sp.latex(k) + r"\,"


def _steps(found: _Match, tokens: int, checks: list[tuple[str, str]]) -> tuple[Step, ...]:
    u = sp.MatrixSymbol("u", tokens, 1)
    k = found.coefficient
    h = found.field
    name, mixing = sp.latex(h), "" if isinstance(found.mixing, sp.Identity) else sp.latex(found.mixing)
    seen = rf"u = {mixing} {name}^{{\top}}"
    if found.softmax:
        formulas = [
            Formula(r"\Lambda_{ij}", rf"{_over(k)}\log\frac{{y_{{ij}}}}{{y_{{ii}}}} = u_i (u_j - u_i)"),
            Formula(r"|u_i - u_j|", r"\sqrt{-(\Lambda_{ij} + \Lambda_{ji})}"),
            Formula("u_i", r"-\Lambda_{ij} / (u_i - u_j), \qquad u_k = u_i + \Lambda_{ik}/u_i"),
        ]
        text = (
            f"The output is a row softmax of ${_times(k)}u u^{{\\top}}$, with ${seen}$, so it shows the score "
            "differences $\\Lambda_{ij}$ and no more. They "
            "determine $u$ up to one sign. Feasible exactly when $\\Lambda_{ij} + \\Lambda_{ji} \\le 0$; for two "
            "tokens this reads $y_{12} + y_{21} \\le 1$."
        )
    else:
        formulas = [Formula(r"u_i u_j", rf"{_over(k)}y_{{ij}}")]
        text = (
            f"The output is the Gram matrix ${_times(k)}u u^{{\\top}}$ itself, with ${seen}$: it determines $u$ up "
            "to one sign."
        )
    inverse = sp.MatMul(sp.Inverse(found.mixing), u) if not isinstance(found.mixing, sp.Identity) else u
    formulas += [
        Formula(sp.Transpose(h), rf"\pm {sp.latex(inverse)}", "two sheets; every other field is free"),
        Formula(
            rf"\left|\det \frac{{\partial {name}}}{{\partial u}}\right|",
            "1"
            if isinstance(found.mixing, sp.Identity)
            else rf"\frac{{1}}{{\left|\det {sp.latex(found.mixing)}\right|}}",
            "the weight $w$ of each sheet, for densities in $u$",
        ),
    ]
    return (Step("chart", "The fields that give this output", text, tuple(formulas), tuple(checks), SOURCE),)
