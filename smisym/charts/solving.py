"""Links given as expressions: a chart found by solving.

Signs and absolute values of fields cut the fields into orthants.  On each the link is smooth: outputs that are
constants there select it or not, and the others are solved for as many fields, with every solution a branch and the
Jacobian symbolic.  Fields that are left are coordinates: on a half-line where their sign is fixed, on a logarithmic
scale where a solution has a pole at zero.

Where the level set turns parallel to a field the solution for that field has a fold, where its weight is infinite.
Other fields are solved for as well then, and the sheets share the level set in proportion to powers of their
Jacobians, which leaves every weight bounded.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy as sp

from smisym.charts.atoms import only_there, preferred
from smisym.charts.base import FLAT, Arrays, Coordinates, LevelSet, Refusal, Sheets
from smisym.charts.eliminating import Known, determinant, pole, solved_by, ways
from smisym.charts.explicit import Fields, Read, explicit_entries, sign_arguments, split_signs
from smisym.charts.implied import Implied, independent
from smisym.charts.numpy_code import lambdified
from smisym.charts.programs import Counts, programmed
from smisym.charts.solved_sheets import SolvedSheet, told
from smisym.link.linking import LinkFunction, Observation
from smisym.link.scale import units

# At most so many orthants, solutions in all, and fields that are coordinates.
_PIECES, _SHEETS, _COORDINATES = 256, 256, 12
# Largest field in units of the integrator's variable; the same on a half-line.
_REACH, _STRETCH = 1.3, 2.0
_TRIALS = 32
# How far a solution may miss an output that it was solved from, in units of that output, and of outputs at random
# fields: what is small must have its sign.  Random points at which it is seen whether any does: inverse functions such
# as tan have more arguments than the function that they invert has values.
_MISS, _FLOOR, _PROBES = 1e-4, 1e-9, 4096
# The same for outputs that others imply, at fields that are nearer to zero by this factor.
_MISSED, _NEARER = 1e-3, 0.7
# Outputs, and points on each sheet, at which it is seen whether sheets end; of weights that vanish _PROBES points.
_OUTPUTS, _POINTS = 64, 256


def solved_expressions(link: LinkFunction) -> LevelSet | Refusal:
    """The chart of a link given by explicit expressions, by solving them on every orthant."""
    seen = explicit_entries(link)
    if isinstance(seen, Refusal):
        return seen
    fields, expressions, read = seen
    every = [split_signs(e) for e in expressions]
    for e in every:
        for argument in sign_arguments(e):
            if argument not in fields:
                return Refusal(f"the sign of {argument} cuts the fields along a surface that is no coordinate plane")
    kept = independent(every, fields)
    smooth, outputs = [every[k] for k in kept], tuple(sp.Symbol(f"{read.letter}{k + 1}", real=True) for k in kept)
    signed = {a for e in smooth for a in sign_arguments(e)}
    known: Known = {}
    sheets = _solve_everywhere(smooth, fields, outputs, signed, known)
    if isinstance(sheets, Refusal):
        return sheets
    poles = {p for sheet in sheets for p in sheet.poles}
    if not poles <= signed:
        sheets = _solve_everywhere(smooth, fields, outputs, signed | poles, known)
        if isinstance(sheets, Refusal):
            return sheets
    implied = Implied(every, kept, fields)
    chart = _assemble(link, read, implied, fields, outputs, sheets)
    if implied.numbers and _singled_out(link, chart):
        return Refusal(f"{implied}, but single out some of the solutions")
    missing = _uncovered(link, read.only(kept), fields, outputs, sheets)
    return Refusal(missing) if missing else chart


def _solve_everywhere(
    smooth: list[sp.Expr], fields: Fields, outputs: Fields, signed: set[sp.Symbol], known: Known
) -> list[SolvedSheet] | Refusal:
    order = [f for f in fields if f in signed]
    if 2 ** len(order) > _PIECES:
        return Refusal(f"the signs of {len(order)} fields cut them into more than {_PIECES} orthants")
    sheets: list[SolvedSheet] = []
    for choice in itertools.product((1, -1), repeat=len(order)):
        signs = dict(zip(order, choice, strict=True))
        fixed = {sp.sign(f): sp.Integer(s) for f, s in signs.items()}
        here = [_simplified(e.subs(fixed).doit()) for e in smooth]
        found = _solve_piece(here, fields, outputs, signs, known)
        if isinstance(found, Refusal):
            return found
        sheets += found
        if len(sheets) > _SHEETS:
            return Refusal(f"there are more than {_SHEETS} solutions")
    return sheets


def _simplified(expression: sp.Expr) -> sp.Expr:
    """The same in fewer terms; not of functions of functions, exp(tanh(z)) or so, of which sympy seeks for minutes."""
    functions = expression.atoms(sp.Function) - expression.atoms(sp.sign, sp.Abs)
    nested = any(inner.atoms(sp.Function) for f in functions for inner in f.args)
    return expression if nested else sp.simplify(expression)


def _solve_piece(
    here: list[sp.Expr], fields: Fields, outputs: Fields, signs: dict[sp.Symbol, int], known: Known
) -> Any:
    if any(e.atoms(sp.sign, sp.Abs) for e in here):
        return Refusal("signs remain that are not signs of fields")
    constants = {k: e for k, e in enumerate(here) if not e.free_symbols & set(fields)}
    equations = [(e, outputs[k]) for k, e in enumerate(here) if k not in constants]
    found = ways(equations, fields, signs, known)
    if not found:
        return Refusal(f"sympy solved none of {', '.join(str(e) for e, _ in equations)} for a field")
    by = [solved_by(way) for way in found] if len(found) > 1 else []
    several = {solved: determinant(equations, solved) for solved in by}
    sheets = []
    for solved, jacobian in itertools.chain(*found):
        free = tuple(f for f in fields if f not in solved)
        if len(free) > _COORDINATES:
            return Refusal(f"{len(free)} fields would be left as coordinates")
        # Where the weight vanishes it has a kink: a border of half-lines as well.
        poles = frozenset(f for f in free if any(pole(e, f) for e in [*solved.values(), 1 / jacobian, jacobian]))
        shown = {k: e for k, e in enumerate(here) if k not in constants}
        sheets.append(SolvedSheet(signs, free, solved, constants, jacobian, several, poles, shown))
    return sheets


# Many parameters: a link as it was read, and what was found of it.
def _assemble(
    link: LinkFunction, read: Read, implied: Implied, fields: Fields, outputs: Fields, sheets: list[SolvedSheet]
) -> LevelSet:
    Z = np.random.default_rng(0).standard_normal((_PROBES, link.fields, link.tokens))
    own = read.only(implied.kept)
    sizes = units(own(link.observe(Z)))
    codes = [_compile(sheet, fields, outputs, sizes) for sheet in sheets]
    count = max(len(sheet.free) for sheet in sheets)
    continuous = max(len(sheet.solved) for sheet in sheets)
    discrete = any(sheet.constants for sheet in sheets)

    def coordinates(observation: Observation) -> Coordinates:
        values = own(observation)
        none = [np.zeros(len(values))] * count
        with np.errstate(all="ignore"):  # sheets that hold no fields there
            outside = implied.faults(lambda: [code(none, list(values.T)) for code in codes], read(observation).T)
        return Coordinates(values, own.rounding(observation, values), outside)

    def solve(free: Arrays, latent: Arrays, u: Arrays) -> Sheets:
        found = [code(latent, u) for code in codes]
        weights = [weight for _, weight in found]
        if discrete:
            weights = preferred([sheet.atoms for sheet in sheets], sizes, u, weights)
        return Sheets([solved for solved, _ in found], weights)

    counts = Counts(0, count, len(outputs), len(sheets), len(fields))
    straight, compiled = programmed(solve, counts)
    return LevelSet(
        rule="expressions solved on every orthant",
        free_rows=(),
        solved_rows=tuple(range(link.fields)),
        branches=len(sheets),
        dimension=continuous,
        coordinates=coordinates,
        solve=compiled,
        steps=(told(link, sheets, read, implied, _TRIALS),),
        latents=(FLAT,) * count,
        density=not discrete,
        ended=_ends(codes, own(link.observe(Z)), count),
        kinked=any(_has_kinks(sheet, fields, outputs) for sheet in sheets),
        shared=any(sheet.ways for sheet in sheets),
        pieces=len({len(sheet.solved) for sheet in sheets}) > 1,
        program=straight,
        reading=(own.reading(),),
    )


# From coordinates and outputs to every field, and the log-weight.
Code = Callable[[Arrays, Arrays], tuple[Arrays, np.ndarray]]


def _compile(sheet: SolvedSheet, fields: Fields, outputs: Fields, sizes: np.ndarray) -> Code:
    """Numpy code of one sheet: every field, and the log-weight."""
    arguments = [*sheet.free, *outputs]
    values = [sheet.solved.get(f, f) for f in fields]
    numeric = lambdified(arguments, [*values, sheet.log_weight])
    fixed = [(i, sheet.signs[f]) for i, f in enumerate(fields) if f in sheet.signs and f in sheet.solved]
    misses = _misses(sheet, fields, sizes)
    guarded = _has_strangers(sheet, fields, outputs, numeric, misses)

    def evaluate(latent: Arrays, u: Arrays) -> tuple[Arrays, np.ndarray]:
        total = np.zeros(())
        free = []
        for f, x in zip(sheet.free, latent, strict=False):
            value, measure = _coordinate(x, sheet.signs.get(f), f in sheet.poles)
            free.append(value)
            total = total + measure
        for x in latent[len(sheet.free) :]:
            # A coordinate that this sheet does not need: a normalised weight of its own.
            total = total - 0.5 * x * x - 0.5 * np.log(2 * np.pi)
        *solved, weight = numeric(*free, *u)
        total = total + weight
        for i, sign in fixed:
            total = np.where(np.sign(solved[i]) == sign, total, -np.inf)
        if guarded:
            total = np.where(misses(solved, u), -np.inf, total)
        total = only_there(sheet.atoms, sizes, u, total)
        # No field here: zeros that carry no weight, so that whoever bounds the integrand meets numbers.
        there = np.isfinite(total)
        for value in solved:
            there = there & np.isfinite(value)
        return [np.where(there, value, 0.0) for value in solved], np.where(there, total, -np.inf)

    return evaluate


Misses = Callable[[Arrays, Arrays], np.ndarray]


def _misses(sheet: SolvedSheet, fields: Fields, sizes: np.ndarray) -> Misses:
    """Where fields do not give the outputs that they were solved from."""
    back = lambdified(fields, list(sheet.shown.values()))

    def misses(values: Arrays, u: Arrays) -> np.ndarray:
        shown = zip(sheet.shown, back(*values), strict=True)
        gaps = [np.abs(own - u[k]) > _FLOOR * sizes[k] + _MISS * np.abs(u[k]) for k, own in shown]
        return functools.reduce(np.bitwise_or, gaps, np.zeros((), dtype=bool))

    return misses


def _in_orthant(sheet: SolvedSheet, fields: Fields, rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random fields (P T, ...) whose signs are those of the sheet."""
    z = rng.standard_normal((len(fields), *shape))
    sign = np.array([sheet.signs.get(f, 0) for f in fields]).reshape(-1, *[1] * len(shape))
    return np.where(sign == 0, z, sign * np.abs(z))


def _has_strangers(sheet: SolvedSheet, fields: Fields, outputs: Fields, numeric: Any, misses: Misses) -> bool:
    """Whether some solutions are none: at outputs of random fields and random coordinates."""
    rng = np.random.default_rng(1)
    forward = lambdified(fields, list(sheet.shown.values()))
    sign = np.array([[sheet.signs.get(f, 0)] for f in fields])
    truth, other = (_in_orthant(sheet, fields, rng, _PROBES) for _ in range(2))
    u = [np.zeros(_PROBES)] * len(outputs)
    with np.errstate(all="ignore"):
        for k, value in zip(sheet.shown, forward(*truth), strict=True):
            u[k] = np.broadcast_to(value, (_PROBES,))
        *solved, weight = numeric(*[z for f, z in zip(fields, other, strict=True) if f in sheet.free], *u)
        there = np.isfinite(np.broadcast_to(weight, (_PROBES,)))
        for i, f in enumerate(fields):
            there &= np.isfinite(solved[i]) & ((sign[i] == 0) | (np.sign(solved[i]) == sign[i]) | (f in sheet.free))
        return bool((misses(solved, u) & there).any())


def _ends(codes: Sequence[Code], values: np.ndarray, count: int) -> bool:
    """Whether sheets have no fields at some coordinates, and some at others, at outputs (n, K) of random fields."""
    if not count:
        return False
    x = np.random.default_rng(6).standard_normal((count, _POINTS, 1))
    u = list(values[:_OUTPUTS].T)
    with np.errstate(all="ignore"):
        there = [np.isfinite(np.broadcast_to(code(list(x), u)[1], (_POINTS, len(u[0])))) for code in codes]
    return any((on.any(axis=0) & ~on.all(axis=0)).any() for on in there)


def _has_kinks(sheet: SolvedSheet, fields: Fields, outputs: Fields) -> bool:
    """Whether the weight vanishes within the sheet: where the Jacobian is infinite, and changes its sign."""
    below = sp.denom(sp.together(sheet.jacobian))
    free = [f for f in sheet.free if f in below.free_symbols]
    if not free:
        return False
    rng = np.random.default_rng(5)
    truth, other = _in_orthant(sheet, fields, rng, _OUTPUTS), _in_orthant(sheet, fields, rng, _PROBES, 1)
    with np.errstate(all="ignore"):
        shown = dict(zip(sheet.shown, lambdified(fields, list(sheet.shown.values()))(*truth), strict=True))
        u = [np.broadcast_to(shown.get(k, 0.0), (_OUTPUTS,)) for k in range(len(outputs))]
        here = [other[k] for k, f in enumerate(fields) if f in free]
        values = lambdified([*free, *outputs], [below])(*here, *u)[0] * np.ones((_PROBES, _OUTPUTS))
    return bool(((values > 0).any(axis=0) & (values < 0).any(axis=0)).any())


def _coordinate(x: np.ndarray, sign: int | None, pole: bool) -> tuple[np.ndarray, np.ndarray]:
    """A field as a function of the integrator's variable, and the log of its measure."""
    if sign is None:
        return _REACH * x, np.log(_REACH)
    # Linear where the field is large, so that nothing grows faster than the fields themselves; towards zero on a
    # logarithmic scale where there is a pole, else so fast that nothing is cut off.
    tail = np.zeros_like(x) if pole else np.exp(-x)
    stretched = _STRETCH * x - tail
    value = np.logaddexp(0.0, stretched)
    return sign * value, stretched - value + np.log(_STRETCH + tail)


def _uncovered(link: LinkFunction, read: Read, fields: Fields, outputs: Fields, sheets: list[SolvedSheet]) -> str:
    """Why the sheets are not the whole level set, or nothing: random fields must be found again on one of them."""
    Z = np.random.default_rng(0).standard_normal((_TRIALS, link.fields, link.tokens))
    y = read(link.observe(Z))
    flat = Z.reshape(_TRIALS, -1)
    hit = np.zeros(_TRIALS, dtype=bool)
    for sheet in sheets:
        numeric = lambdified([*sheet.free, *outputs], [sheet.solved.get(f, f) for f in fields], cse=False)
        here = [flat[:, i] for i, f in enumerate(fields) if f in sheet.free]
        with np.errstate(all="ignore"):
            again = np.stack([np.broadcast_to(v, (_TRIALS,)) for v in numeric(*here, *y.T)], axis=1)
        inside = np.ones(_TRIALS, dtype=bool)
        for f, sign in sheet.signs.items():
            inside &= np.sign(flat[:, fields.index(f)]) == sign
        close = (np.abs(again - flat) <= 1e-6 * (1 + np.abs(flat))).all(axis=1)
        hit |= inside & close
    if not hit.all():
        lost = flat[np.flatnonzero(~hit)[0]].round(3).tolist()
        return f"the solutions that sympy gave do not contain the fields {lost}"
    return ""


def _singled_out(link: LinkFunction, chart: LevelSet) -> bool:
    """Whether some solutions, at random outputs and coordinates, contradict the outputs that were left out."""
    rng = np.random.default_rng(4)
    Z = _NEARER * rng.standard_normal((_PROBES, link.fields, link.tokens))
    u = chart.coordinates(link.observe(Z)).values
    with np.errstate(all="ignore"):
        sheets = chart.solve([], list(rng.standard_normal((len(chart.latents), _PROBES))), list(u.T))
        for solved, weight in zip(sheets.solved, sheets.log_weight, strict=True):
            there = np.isfinite(np.broadcast_to(weight, (_PROBES,)))
            if not there.any():
                continue
            again = np.stack([np.broadcast_to(v, (_PROBES,)) for v in solved], axis=1)[there].reshape(-1, *Z.shape[1:])
            wanted = link.raw(Z[there])
            if not (np.abs(link.raw(again) - wanted) <= _MISSED * (1 + np.abs(wanted))).all():
                return True
    return False
