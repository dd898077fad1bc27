"""Equations solved for some of the fields, one after the other; folds of the solutions, and ways to hold them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import sympy as sp

from smisym.charts.numpy_code import OddRoot, lambdified

# At most so many choices of fields to solve for together.  Random fields, the share of them nearest to a fold, how
# small determinants are there beside the median, and how freely outputs vary along it (singular values, relative).
_WAYS, _PROBES, _NEAREST, _NEAR_FOLD, _VARIES = 4, 65536, 1 / 256, 0.1, 0.05
# Operations from which on a quotient is a long one, and a matrix a large one.
_LONG, _LARGE = 25, 60

# Random values at which solutions are looked for, standard deviations of theirs, how near they are found again, and the
# relative slope below which an output hardly tells of a field.
_TRIED, _FAR, _SAME, _FLAT = 1024, 1.5, 1e-6, 1e-7

Fields = tuple[sp.Symbol, ...]


Way = list[tuple[dict[sp.Symbol, sp.Expr], sp.Expr]]
"""All solutions for some of the fields, and the determinants of their Jacobians."""

Known = dict[tuple[tuple[sp.Expr, sp.Symbol], ...], Iterator[Way]]
"""Ways that were found, by the equations: orthants that differ in signs which these do not have share them."""


def ways(
    equations: list[tuple[sp.Expr, sp.Symbol]], fields: Fields, signs: dict[sp.Symbol, int], known: Known
) -> list[Way]:
    """The simplest way to solve the equations without folds; where all have some, those that together have none."""
    found: dict[frozenset[sp.Symbol], Way] = {}
    key = tuple(equations)
    known[key], every = itertools.tee(known.get(key, _eliminations(equations, fields)))
    for way in every:
        if not way:
            continue
        solved = solved_by(way)
        if len(equations) in (0, len(fields)) or not _folds(equations, solved, fields, signs):
            return [way]
        if all(frozenset(other) == solved for other, _ in way):
            found.setdefault(solved, way)
    return list(found.values())[:_WAYS]


def solved_by(way: Way) -> frozenset[sp.Symbol]:
    return frozenset(way[0][0])


def determinant(equations: list[tuple[sp.Expr, sp.Symbol]], solved: frozenset[sp.Symbol]) -> sp.Expr:
    """Of the Jacobian by some fields, in terms of all."""
    by = sorted(solved, key=str)
    rows = [[sp.diff(e, f) for f in by] for e, _ in equations]
    return sp.Matrix(rows).det() if sum(sp.count_ops(e) for row in rows for e in row) < _LARGE else _expanded(rows)


def _expanded(rows: list[list[sp.Expr]]) -> sp.Expr:
    """A determinant by minors of the last rows, each made once: sympy cancels fractions on the way, for minutes."""
    minors: dict[frozenset[int], sp.Expr] = {frozenset(): sp.Integer(1)}
    for row in reversed(rows):
        found: dict[frozenset[int], list[sp.Expr]] = {}
        for columns, minor in minors.items():
            for k, entry in enumerate(row):
                if k not in columns and entry != 0 and minor != 0:
                    sign = (-1) ** sum(other < k for other in columns)
                    found.setdefault(columns | {k}, []).append(sign * entry * minor)
        minors = {columns: sp.Add(*terms) for columns, terms in found.items()}
    return minors.get(frozenset(range(len(rows))), sp.Integer(0))


def _folds(
    equations: list[tuple[sp.Expr, sp.Symbol]],
    solved: frozenset[sp.Symbol],
    fields: Fields,
    signs: dict[sp.Symbol, int],
) -> bool:
    """Whether level sets turn parallel to the solved fields: the determinant by them vanishes at many outputs.

    Outputs vary freely along the surface where it vanishes then.  Where they do not (that of z1 z2 by z2 vanishes at
    y = 0 alone) no other level set is concerned.
    """
    own = determinant(equations, solved)
    slopes = [sp.diff(e, f) for e, _ in equations for f in fields]
    code = lambdified(fields, [own, *(sp.diff(own, f) for f in fields), *slopes])
    Z = np.random.default_rng(2).standard_normal((len(fields), _PROBES))
    Z = np.array([z if f not in signs else signs[f] * np.abs(z) for f, z in zip(fields, Z, strict=True)])
    with np.errstate(all="ignore"):
        values = np.array([np.broadcast_to(v, Z.shape[1:]) for v in code(*Z)], dtype=float)
    values = values[:, np.isfinite(values).all(axis=0)]
    size, normal = np.abs(values[0]), values[1 : 1 + len(fields)].T
    J = np.moveaxis(values[1 + len(fields) :].reshape(len(equations), len(fields), -1), 2, 0)
    spread = np.linalg.svd(J, compute_uv=False)
    with np.errstate(all="ignore"):
        share = np.nan_to_num(size / spread.prod(axis=1), nan=np.inf)
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    nearest = np.argsort(share)[: int(_NEAREST * len(share))]
    if not len(nearest):  # derivatives that overflow tell nothing
        return False
    # Both: it may be small beside the other minors where these are large, and small with them where all vanish.
    if any(np.median(x[nearest]) > _NEAR_FOLD * np.median(x) for x in (share, size)):
        return False
    along = J[nearest] - np.einsum("nki,ni,nj->nkj", J[nearest], normal[nearest], normal[nearest])
    least = np.linalg.svd(np.nan_to_num(along), compute_uv=False)[:, len(equations) - 1]
    return bool(np.median(least / spread[nearest, 0]) > _VARIES)


def pole(expression: sp.Expr, field: sp.Symbol) -> bool:
    """Whether the expression, or what a root in it is taken of, is divided by the field."""
    below = sp.denom(sp.together(expression))
    divided = field in below.free_symbols and below.subs(field, 0) == 0
    return bool(divided) or any(pole(root.args[0], field) for root in expression.atoms(OddRoot))


def _eliminations(
    equations: list[tuple[sp.Expr, sp.Symbol]], fields: Fields
) -> Iterator[list[tuple[dict[sp.Symbol, sp.Expr], sp.Expr]]]:
    """Ways to solve all equations one after the other: lists of (solved fields, determinant of the Jacobian)."""
    if not equations:
        yield [({}, sp.Integer(1))]
        return
    options = []
    for number, (e, y) in enumerate(equations):
        for field in fields:
            if field in e.free_symbols:
                solutions = _solve_one(e, y, field)
                if solutions:
                    # Few branches first, then no division by fields, then the simplest solution.
                    divided = sum(pole(s, f) for s in solutions for f in fields)
                    cost = (len(solutions), divided, sum(map(sp.count_ops, solutions)), number)
                    options.append((cost, number, field, solutions))
    options.sort(key=lambda o: o[0])
    for _, number, field, solutions in options[:6]:
        e, _ = equations[number]
        rest = [pair for k, pair in enumerate(equations) if k != number]
        total: list[tuple[dict[sp.Symbol, sp.Expr], sp.Expr]] = []
        for solution in solutions:
            inner = next(_eliminations([(r.subs(field, solution), z) for r, z in rest], fields), None)
            if inner is None:
                break
            slope = sp.diff(e, field)
            for solved, rest_of_it in inner:
                own = sp.simplify(solution.subs(solved))
                everything = {**solved, field: own}
                total.append((everything, sp.simplify(slope.subs(everything)) * rest_of_it))
        else:
            yield total


def _solve_one(expression: sp.Expr, output: sp.Symbol, field: sp.Symbol) -> list[sp.Expr]:
    """All solutions for one field, or nothing where sympy finds none that is explicit, or not all of them."""
    solutions = _solutions(expression, output, field)
    return solutions if not solutions or _are_all(expression, output, field, solutions) else []


def _are_all(expression: sp.Expr, output: sp.Symbol, field: sp.Symbol, solutions: list[sp.Expr]) -> bool:
    """Whether values of the field, drawn at random with all others, are one of the solutions for what they give.

    Sympy has inverse functions that are a part of the inverse: of sin(z) = y what lies between -pi/2 and 3 pi/2.
    """
    others = sorted(
        (expression.free_symbols | set().union(*(s.free_symbols for s in solutions))) - {field, output}, key=str
    )
    z, *rest = np.random.default_rng(3).standard_normal((1 + len(others), _TRIED)) * _FAR
    with np.errstate(all="ignore"):
        y, slope = (
            np.broadcast_to(v, (_TRIED,))
            for v in lambdified([field, *others], [expression, sp.diff(expression, field)])(z, *rest)
        )
        again = lambdified([output, *others], solutions)(y, *rest)
        near = [np.abs(np.broadcast_to(one, (_TRIED,)) - z) <= _SAME * (1 + np.abs(z)) for one in again]
        # Where the output hardly tells of the field, rounding moves solutions.
        told = np.isfinite(y) & np.isfinite(slope) & (np.abs(slope) > _FLAT * (np.abs(y) + 1e-300))
    return bool((np.any(near, axis=0) | ~told).all())


def _solutions(expression: sp.Expr, output: sp.Symbol, field: sp.Symbol) -> list[sp.Expr]:
    """Those that sympy finds."""
    if expression.is_polynomial(field) and sp.degree(expression, field) > 2:
        if _mixed_powers(expression, field):
            return []
        power = sp.Poly(expression, field)
        degree = power.degree()
        if degree % 2:
            # The real root: sympy's is the principal one, complex where the argument is negative.
            return [OddRoot(sp.together((output - power.coeff_monomial(1)) / power.LC()), degree)]
    generators = _generators(expression, field)
    below = _functions_below(expression, field)
    if len(generators) > 1 or any(_nested(g, field) for g in generators | below):
        # z + tanh(z) = y, tanh(z sqrt(1 - |z|)) = y and the like: sympy has no inverse, and takes minutes to say so.
        return []
    if _has_general_roots(expression - output, field):
        return []
    if len(generators) == 0 and len(below) == 1:
        generators = below
    try:
        solutions = _through_inverse(expression, output, field, *generators)
        if solutions is None:
            solutions = _of_a_long_quotient(expression - output, field)
        if solutions is None:
            solutions = sp.solve(expression - output, field)
    except (NotImplementedError, ValueError, TypeError, RecursionError):
        # Of logarithms within logarithms sympy goes on substituting until Python ends it.
        return []
    return [s for s in solutions if not s.has(sp.I, sp.Piecewise, sp.RootOf) and field not in s.free_symbols]


# Functions that take every value once, and their inverses.
_INVERSES = {sp.exp: sp.log, sp.tanh: sp.atanh, sp.sinh: sp.asinh, sp.asinh: sp.sinh}


def _through_inverse(
    expression: sp.Expr, output: sp.Symbol, field: sp.Symbol, generator: sp.Expr | None = None
) -> list[sp.Expr] | None:
    """Solutions of what depends on a field through one such function; None where it does not.

    To sympy exp(100 z) = y is a polynomial of degree 100 in exp(z), with as many roots, of which one is real, and
    tanh(7 z / 10) = y one of degree 14 in exp(z / 10), which takes it minutes.
    """
    if generator is None or type(generator) not in _INVERSES:
        return None
    inner = generator.args[0]
    value = sp.Dummy("value", positive=True) if isinstance(generator, sp.exp) else sp.Dummy("value", real=True)
    outer = expression.xreplace({generator: value})
    if outer.has(field):
        return None
    inverse, slope = _INVERSES[type(generator)], sp.diff(inner, field)
    values = [inverse(v) for v in sp.solve(outer - output, value)]
    if not slope.has(field):
        return [(v - inner.subs(field, 0)) / slope for v in values]
    # The inner equation has an output of its own, for which the value is put in afterwards.
    own = sp.Dummy("inner", real=True)
    return [s.subs(own, v) for v in values for s in _solve_one(inner, own, field)]


def _nested(generator: sp.Expr, field: sp.Symbol) -> bool:
    """Whether a function is of something that is no quotient of polynomials in the field, and no power of that."""
    if not isinstance(generator, sp.Function):
        return False
    inner = generator.args[0]
    odd = {e for e in inner.atoms(sp.Function, sp.Pow) if e.has(field) and not _is_whole_power(e)}
    return len(odd) > 0 or _mixed_powers(inner, field)


def _mixed_powers(expression: sp.Expr, field: sp.Symbol) -> bool:
    """Whether it is a polynomial of degree three or more that is no pure power: its roots look complex."""
    if not expression.is_polynomial(field) or sp.degree(expression, field) < 3:
        return False
    power = sp.Poly(expression, field)
    return any(m not in (0, power.degree()) for (m,) in power.monoms())


def _has_general_roots(equation: sp.Expr, field: sp.Symbol) -> bool:
    """Whether a quotient of polynomials vanishes at general roots of degree three or more: sympy takes minutes to write
    them, and they look complex.  Quadratics of a square are none."""
    above, below = sp.fraction(sp.together(equation))
    if not above.is_polynomial(field) or not below.has(field) or sp.degree(above, field) < 3:
        return False
    powers = {m for (m,) in sp.Poly(above, field).monoms()} - {0}
    return len(powers) > 1 and powers != {2, 4}


def _of_a_long_quotient(equation: sp.Expr, field: sp.Symbol) -> list[sp.Expr] | None:
    """Roots of a quotient of polynomials, linear or quadratic above; None of another, or of a short one, which sympy
    writes more nicely: of a long one it takes minutes to."""
    above, below = sp.fraction(sp.together(equation))
    if sp.count_ops(equation) < _LONG or not below.has(field) or not above.is_polynomial(field):
        return None
    if not below.is_polynomial(field) or sp.degree(above, field) > 2:
        return None
    *squared, b, c = sp.Poly(above, field).all_coeffs()
    if not squared:
        return [-c / b]
    (a,) = squared
    root = sp.sqrt(sp.expand(b**2 - 4 * a * c))
    return [(-b + root) / (2 * a), (-b - root) / (2 * a)]


def _functions_below(expression: sp.Expr, field: sp.Symbol) -> set[sp.Expr]:
    """The functions in the denominator, which multiplied by the output stand beside those of the numerator."""
    return {f for f in sp.fraction(sp.together(expression))[1].atoms(sp.Function) if f.has(field)}


def _is_whole_power(e: sp.Expr) -> bool:
    return isinstance(e, sp.Pow) and bool(e.exp.is_Integer)


def _generators(expression: sp.Expr, field: sp.Symbol) -> set[sp.Expr]:
    """What the numerator of an expression is a polynomial in, of those that depend on the field."""
    numerator = sp.fraction(sp.together(expression))[0]
    inner = {
        e
        for e in numerator.atoms(sp.Function, sp.Pow)
        if e.has(field) and not (isinstance(e, sp.Pow) and e.exp.is_Integer and e.exp.is_positive)
    }
    outer = {e for e in inner if not any(e != other and other.has(e) for other in inner)}
    rest = numerator.xreplace({e: sp.Dummy() for e in outer})
    return outer | ({field} if rest.has(field) else set())
