"""Outputs that see some of the fields through linear forms, whose coefficients are functions of the other fields.

    y_k = outer_k(e_k(A, h)),   A = M(h) g

as of a network whose layers are written out as expressions.  Outer functions that have inverses are taken off, outputs
that say the same are found, and what repeats is named: sympy is asked for A alone, in equations of a few symbols; then
g = M^{-1} A.  The weight is 1 / |det M det de/dA|.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from smisym.base.counting import counted
from smisym.base.derivation import Formula
from smisym.base.derivation import Step as Recorded
from smisym.charts.base import Arrays, Coordinates, LevelSet, Refusal, Sheets, faults
from smisym.charts.eliminating import Way, ways
from smisym.charts.explicit import Fields, explicit_entries
from smisym.charts.numpy_code import lambdified
from smisym.charts.peeling import Peeled, Shown, peel
from smisym.charts.programs import Counts, programmed
from smisym.charts.reading import EntryReading
from smisym.charts.unmixing import solve_columns
from smisym.kernels.tracing import trace
from smisym.link.linking import LinkFunction, Observation

# Random fields at which coefficients are compared, and how exactly they must agree.
_TRIALS, _EQUAL = 32, 1e-9
# Linear forms at most, equations at most, and seconds that sympy may take for the small ones.
_FORMS, _EQUATIONS, _SECONDS = 24, 3, 20.0
SOURCE = "linear forms are read off the expressions; solved by sympy; checked at random fields when compiled"


def expressions_in_linear_forms(link: LinkFunction) -> LevelSet | Refusal:
    """The chart of such a link."""
    seen = explicit_entries(link)
    if isinstance(seen, Refusal):
        return seen
    fields, expressions, _ = seen
    if len(link.program.assigns) > 1:
        return Refusal("the output is no list of expressions")
    if any(e.has(sp.sign, sp.Abs, sp.Max, sp.Min) for e in expressions):
        return Refusal("signs and absolute values cut the fields")
    values = _Values(fields)
    shown = _distinct([peel(e) for e in expressions], values)
    if not 1 < len(shown) <= _EQUATIONS:
        return Refusal(
            f"{len(shown)} outputs are no functions of another one by itself; this rule solves 2 to {_EQUATIONS}"
        )
    reason = (
        f"no rows that together have {len(shown)} fields enter through linear forms with coefficients of the others"
    )
    begun = time.monotonic()
    for rows in _choices(link, len(shown)):
        found = _in_forms(rows, link, shown, fields, values)
        if isinstance(found, Refusal):
            reason = found.reason
            continue
        solved = _solve(found)
        if solved:
            return _assemble(link, found, solved, shown, fields)
        reason = f"sympy solved none of {', '.join(map(str, found.equations))}"
        if time.monotonic() - begun > _SECONDS:
            break
    return Refusal(reason)


# -------------------------------------------------------------------------------------------- outputs that say the same


class _Values:
    """Expressions at random fields."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.Z = np.random.default_rng(11).standard_normal((len(fields), _TRIALS))

    def __call__(self, expressions: list[sp.Expr]) -> np.ndarray:
        """(n, trials)."""
        code = lambdified(self.fields, expressions)
        with np.errstate(all="ignore"):
            return np.array([np.broadcast_to(v, (_TRIALS,)) for v in code(*self.Z)], dtype=float)


def _distinct(peeled: list[Peeled], values: _Values) -> list[Shown]:
    """Inner expressions without those that are affine functions of others."""
    table = values([p.inner for p in peeled])
    kept: list[list[Any]] = []
    for number, (own, row) in enumerate(zip(peeled, table, strict=True)):
        for _, known, outputs in kept:
            basis = np.stack([known, np.ones_like(known)], axis=1)
            (scale, shift), *_ = np.linalg.lstsq(basis, row, rcond=None)
            if np.abs(basis @ [scale, shift] - row).max() <= _EQUAL * (1 + np.abs(row).max()):
                outputs.append((number, own, float(scale), float(shift)))
                break
        else:
            kept.append([own.inner, row, [(number, own, 1.0, 0.0)]])
    return [Shown(inner, tuple(outputs)) for inner, _, outputs in kept]


# --------------------------------------------------------------------------------------------------------- linear forms


@dataclass(frozen=True)
class _Found:
    """rows: of the fields that are solved for, with their symbols.  forms: names of the linear forms A, and their
    coefficients (K, K), functions of the other fields.  equations: e_k(A, constants).  constants: what they stand
    for."""

    rows: tuple[int, ...]
    symbols: Fields
    forms: Fields
    matrix: list[list[sp.Expr]]
    equations: list[sp.Expr]
    constants: dict[sp.Symbol, sp.Expr]


def _choices(link: LinkFunction, count: int) -> Iterator[tuple[int, ...]]:
    """Rows of Z that have so many entries together, the last ones first; some must be left."""
    size, left = divmod(count, link.tokens)
    if not left:
        yield from itertools.islice(itertools.combinations(reversed(range(link.fields)), size), 64)


def _in_forms(
    rows: tuple[int, ...], link: LinkFunction, shown: list[Shown], fields: Fields, values: _Values
) -> _Found | Refusal:
    T = link.tokens
    symbols = tuple(fields[row * T + t] for row in rows for t in range(T))
    if len(symbols) == len(fields):
        return Refusal("no field would be left")
    found = list(dict.fromkeys(f for item in shown for f in _linear_parts(item.inner, frozenset(symbols))))
    if len(found) > _FORMS:
        return Refusal(f"there are more than {_FORMS} linear forms")
    if not any(len(form.free_symbols & set(symbols)) > 1 for form in found):
        return Refusal("no linear form joins two fields, so that they are better solved for one by one")
    coefficients = [[sp.diff(form, s) for s in symbols] for form in found]
    if not any(c.free_symbols for c in itertools.chain(*coefficients)):
        return Refusal("linear forms have numbers as coefficients")
    table = values([c for row in coefficients for c in row]).T.reshape(_TRIALS, len(found), len(symbols))
    basis = _basis(table)
    if basis is None:
        return Refusal("the linear forms are fewer than the fields in them")
    names = tuple(sp.Symbol(f"A{k + 1}", real=True) for k in range(len(basis)))
    swap: dict[sp.Expr, sp.Expr] = {}
    for form, row in zip(found, np.moveaxis(table, 1, 0), strict=True):
        weights = _combination(table[:, basis], row)
        if weights is None:
            return Refusal("linear forms that are no fixed combinations of as many as there are fields")
        swap[form] = sp.Add(*[w * name for w, name in zip(weights, names, strict=True)])
    constants: dict[sp.Expr, sp.Symbol] = {}
    equations = [_named(item.inner, swap, frozenset(symbols), constants) for item in shown]
    if any(e.free_symbols & set(symbols) for e in equations):
        return Refusal("fields enter outside of linear forms")
    return _Found(
        rows, symbols, names, [coefficients[b] for b in basis], equations, {s: e for e, s in constants.items()}
    )


def _degree(e: sp.Expr, symbols: frozenset[sp.Symbol]) -> int | None:
    """0 where an expression is free of the symbols, 1 where it is linear and homogeneous in them, else None."""
    if not e.free_symbols & symbols:
        return 0
    if e.is_Symbol:
        return 1
    parts = [_degree(part, symbols) for part in e.args]
    if isinstance(e, sp.Add):
        return 1 if all(p == 1 for p in parts) else None
    if isinstance(e, sp.Mul):
        return 1 if sorted(p if p is not None else 2 for p in parts) == [0] * (len(parts) - 1) + [1] else None
    return None


def _linear_parts(e: sp.Expr, symbols: frozenset[sp.Symbol]) -> Iterator[sp.Expr]:
    """The largest linear forms in an expression."""
    degree = _degree(e, symbols)
    if degree == 1:
        yield e
    elif degree is None:
        for part in e.args:
            yield from _linear_parts(part, symbols)


def _basis(table: np.ndarray) -> list[int] | None:
    """The first forms that are independent at random fields; table (trials, forms, K)."""
    chosen = list[int]()
    for k in range(table.shape[1]):
        sizes = np.linalg.svd(table[:, [*chosen, k]], compute_uv=False)
        if np.median(sizes[:, -1] / np.maximum(sizes[:, 0], 1e-300)) > 1e-6:
            chosen.append(k)
        if len(chosen) == table.shape[2]:
            return chosen
    return None


def _combination(basis: np.ndarray, row: np.ndarray) -> list[sp.Rational] | None:
    """The fixed numbers w with row = w basis at all trials; None where they vary."""
    good = np.linalg.cond(basis) < 1e6
    if not good.any():
        return None
    weights = np.linalg.solve(np.swapaxes(basis[good], 1, 2), row[good][..., None])[..., 0]
    mean = np.median(weights, axis=0)
    if np.abs(weights - mean).max() > 1e-7 * (1 + np.abs(mean).max()):
        return None
    found = [sp.Rational(str(round(float(w), 10))).limit_denominator(1000) for w in mean]
    return found if max(abs(float(f) - w) for f, w in zip(found, mean, strict=True)) < 1e-8 else None


def _named(
    e: sp.Expr, swap: dict[sp.Expr, sp.Expr], symbols: frozenset[sp.Symbol], constants: dict[sp.Expr, sp.Symbol]
) -> sp.Expr:
    """The expression with linear forms written in their names, and what is free of them named as a whole."""
    if e in swap:
        return swap[e]
    if not e.free_symbols:
        return e
    if not e.free_symbols & symbols:
        return constants.setdefault(e, sp.Symbol(f"c{len(constants) + 1}", real=True))
    if not e.args:
        return e
    return e.func(*[_named(part, swap, symbols, constants) for part in e.args])


# ------------------------------------------------------------------------------------------------ solving, assembling


def _outputs(count: int) -> Fields:
    return tuple(sp.Symbol(f"u{k + 1}", real=True) for k in range(count))


def _solve(found: _Found) -> Way:
    """All A for given values of the equations, with the determinants of their Jacobians; nothing where none."""
    pairs = [(sp.expand(e), u) for e, u in zip(found.equations, _outputs(len(found.equations)), strict=True)]
    solutions = ways(pairs, found.forms, {}, known={})
    return solutions[0] if solutions else []


@dataclass(frozen=True)
class _Sheets:
    """Solutions in coordinates of the output: u themselves, or the linear forms of the first solution.

    arguments: constants and coordinates.  forms, weights: of each sheet, A and minus the log of the Jacobian of the
    coordinates by A.  coordinates: from u to the coordinates; None where they are u.
    """

    arguments: list[sp.Symbol]
    forms: list[list[sp.Expr]]
    weights: list[sp.Expr]
    coordinates: list[sp.Expr] | None


def _sheets(found: _Found, way: Way) -> _Sheets:
    """Sheets in the linear forms of the first solution, in which densities are smooth, or in u where that is not sure.

    The Jacobian of u by A, infinite or zero where forms coincide, then cancels.
    """
    names, outputs = list(found.constants), list(_outputs(len(found.forms)))
    plain = [[solved[name] for name in found.forms] for solved, _ in way]
    usual = _Sheets([*names, *outputs], plain, [-sp.log(sp.Abs(jacobian)) for _, jacobian in way], None)
    if names:
        return usual
    inside = {u: sp.factor(e) for u, e in zip(outputs, found.equations, strict=True)}
    slope = sp.Matrix([[sp.diff(e, name) for name in found.forms] for e in found.equations]).det()
    forms = [[sp.simplify(value.subs(inside)) for value in sheet] for sheet in plain]
    ratios = [sp.simplify(sp.Abs(sp.factor(slope)) / sp.Abs(jacobian.subs(inside))) for _, jacobian in way]
    within = _Sheets(list(found.forms), forms, [sp.log(ratio) for ratio in ratios], plain[0])
    return within if _holds(within) else usual


def _holds(sheets: _Sheets) -> bool:
    """Whether one of the sheets gives back the forms that it is asked at, also where two of them nearly coincide."""
    rng = np.random.default_rng(12)
    A = rng.standard_normal((len(sheets.arguments), 2 * _TRIALS))
    A[-1, _TRIALS:] = A[0, _TRIALS:] * (1 + 1e-6 * A[-1, _TRIALS:])
    code = lambdified(sheets.arguments, [e for sheet in sheets.forms for e in sheet], cse=False)
    with np.errstate(all="ignore"):
        values = np.array([np.broadcast_to(v, A.shape[1:]) for v in code(*A)], dtype=complex)
    again = values.reshape(len(sheets.forms), *A.shape)
    return bool((np.abs(again - A).max(axis=1).min(axis=0) <= 1e-12 * (1 + np.abs(A).max(axis=0))).all())


def _assemble(link: LinkFunction, found: _Found, way: Way, shown: list[Shown], fields: Fields) -> LevelSet:
    T, K = link.tokens, len(found.forms)
    free_rows = tuple(row for row in range(link.fields) if row not in found.rows)
    free_symbols = [fields[row * T + t] for row in free_rows for t in range(T)]
    sheets = _sheets(found, way)
    coefficients = lambdified(free_symbols, [*(c for row in found.matrix for c in row), *found.constants.values()])
    codes = [
        lambdified(sheets.arguments, [*forms, weight])
        for forms, weight in zip(sheets.forms, sheets.weights, strict=True)
    ]

    def solve(free: Arrays, latent: Arrays, u: Arrays) -> Sheets:
        values = coefficients(*free)
        matrix = [values[K * k : K * k + K] for k in range(K)]
        solved, weights = [], []
        for code in codes:
            *forms, weight = code(*values[K * K :], *u)
            (own,), log_det = solve_columns(matrix, [forms])
            total = weight - log_det
            there = np.isfinite(total)
            for value in own:
                there = there & np.isfinite(value)
            solved.append([np.where(there, value, 0.0) for value in own])
            weights.append(np.where(there, total, -np.inf))
        return Sheets(solved, weights)

    straight, compiled = programmed(solve, Counts(len(free_symbols), 0, K, len(codes), len(found.symbols)))
    return LevelSet(
        rule="expressions in linear forms of some fields",
        free_rows=free_rows,
        solved_rows=found.rows,
        branches=len(codes),
        dimension=K,
        coordinates=_reader(shown, sheets, K),
        solve=compiled,
        steps=_steps(link, found, way, shown),
        density=True,
        program=straight,
        reading=(_reading(shown, sheets, K, link.output_shape[0]),),
    )


def _reading(shown: list[Shown], sheets: _Sheets, K: int, outputs: int) -> EntryReading:
    """What :func:`_reader` reads, as a program."""
    into = None if sheets.coordinates is None else lambdified(_outputs(K), sheets.coordinates)

    def read(*y: np.ndarray) -> Arrays:
        u = [item.told(y) for item in shown]
        return u if into is None else list(into(*u))

    return EntryReading(trace(read, [f"y{k + 1}" for k in range(outputs)]), ratios=False)


def _reader(shown: list[Shown], sheets: _Sheets, K: int) -> Callable[[Observation], Coordinates]:
    """What reads the coordinates off an output."""
    into = None
    if sheets.coordinates is not None:
        into = lambdified(_outputs(K), sheets.coordinates)

    def there(u: np.ndarray) -> np.ndarray:
        return u if into is None else np.stack([np.broadcast_to(v, len(u)) for v in into(*u.T)], axis=1)

    def coordinates(observation: Observation) -> Coordinates:
        y = observation.y.reshape(len(observation), -1)
        u, error, gap = (np.stack(column, axis=1) for column in zip(*(item.values(y) for item in shown), strict=True))
        with np.errstate(all="ignore"):
            values = there(u)
            moved = sum(np.abs(there(u + error * step) - values) for step in np.eye(K))
            relative = (moved / np.maximum(np.abs(values), 1e-300)).max(axis=1)
        outside = faults(
            ~np.isfinite(values).all(axis=1),
            lambda sample: f"{y[sample].tolist()}, beyond or at the end of the range of these expressions",
            "outputs of these expressions",
            "check that y comes from this model; where it is rounded to the end of its range, declare noise",
        )
        outside += faults(
            (gap > _EQUAL * (1 + np.abs(u))).any(axis=1),
            lambda sample: f"{y[sample].tolist()}, which contradict one another",
            "outputs of these expressions",
            "check that y comes from this model; with noise, declare the noise",
        )
        return Coordinates(values, np.nan_to_num(relative, nan=np.inf, posinf=np.inf), outside)

    return coordinates


def _steps(link: LinkFunction, found: _Found, way: Way, shown: list[Shown]) -> tuple[Recorded, ...]:
    rows = ", ".join(link.labels[row] for row in found.rows)
    same = sum(len(item.outputs) for item in shown) - len(shown)
    text = (
        f"The outputs see {rows} through {len(found.forms)} linear forms alone, whose coefficients are functions of "
        "the other fields: $A = M(h)\\, g$. "
        + (f"{counted(same, 'output')} {'says' if same == 1 else 'say'} no more than the others. " if same else "")
        + "Outer functions that take every value once are taken off, so that $u_k$ are the values inside them; the "
        f"equations are solved for $A$, with {counted(len(way), 'solution')}, and $g = M^{{-1}} A$."
    )
    names = _outputs(len(found.equations))
    formulas = [Formula(u, e) for u, e in zip(names, found.equations, strict=True)]
    formulas += [Formula(name, way[0][0][name], "on the first sheet") for name in found.forms]
    formulas.append(Formula("w", r"1 / |\det M\, \det \partial u / \partial A|", "the weight of each sheet"))
    return (Recorded("chart", "Linear forms of some fields", text, tuple(formulas), source=SOURCE),)
