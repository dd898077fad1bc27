"""Sums over a lattice in two coordinates of fields before, and directions in closed form, in compiled loops: what
:class:`smisym.posterior.two_coordinates._Given` does with arrays, one row of the lattice after the other.

The text is written for one chart: all sizes are numbers to the compiler, and loops over a row become vector
instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from smisym.base.backends import NUMBA, backend
from smisym.base.remembered import Remembered
from smisym.charts import LevelSet
from smisym.kernels.expanding import NotWrittenOut, expanded
from smisym.kernels.numba_code import HEADER, NotCompiled, impatient, load, scalar_function

# With the charts that they are of: an id alone may be taken again by another chart.
_COMPILED: Remembered[tuple[LevelSet, Any]] = Remembered(64)
_LOST = 700.0  # log of what a row may weigh less than the largest so far before it is left out


def compiled_lattice(level_set: LevelSet, fields: int, tokens: int) -> Callable[..., None] | None:
    """``lattice(low, step, side, centre, scale, constant, inverse, omega, u, wanted, log, found, second)``; None where
    the backend is numpy, or has not all that the chart calls.

    low, step, centre (2,), scale (2, 2): coordinates are centre + scale x, x = low + step (i, j), i and j < side.
    inverse (P, P), omega (P, T): what whitens fields.  u (K,): the output.  wanted: 0 logs alone, 1 means, 2 products.
    Written: log (side, side) of the integrand; found (2 + P T,): the largest of them, then sums of weights relative to
    it, and of the weighted means; second (P T, P T): sums of their products, on and above the diagonal.
    """
    if backend().loops != NUMBA:
        return None

    def make() -> tuple[LevelSet, Any]:
        source = lattice_source(level_set, fields, tokens)
        try:
            return level_set, None if source is None else load(source).lattice
        except NotCompiled:
            return level_set, None

    found: Callable[..., None] | None = _COMPILED.get((id(level_set), impatient()), make)[1]
    return found


def lattice_source(level_set: LevelSet, fields: int, tokens: int) -> str | None:
    """The text of a module with ``lattice``; None where compiled code has not all that the chart calls."""
    if level_set.program is None:
        return None
    try:
        program = scalar_function(expanded(level_set.program), "point")
    except (NotCompiled, NotWrittenOut):
        return None
    return f"{HEADER}\n\n{program}\n\n\n" + "\n".join(_lattice(level_set, fields, tokens)) + "\n"


def _lattice(level_set: LevelSet, fields: int, tokens: int) -> list[str]:
    m, K, own = level_set.directions, level_set.dimension, range(fields * tokens)
    products = [(a, b) for a in own for b in own if a <= b]
    kept = [*(f"left{a}" for a in own), *(f"e{i}_{a}" for i in range(m) for a in own)]
    arguments = ["a0", "a1", *(f"u{k}" for k in range(K))]
    names = [*(f"z{a}" for a in own), "lw", *(f"v{i}_{a}" for i in range(m) for a in own)]
    row = {name: f"s[{k + 1} * side + k]" for k, name in enumerate(kept)}
    return [
        "@numba.njit('void(float64[::1], float64[::1], int64, float64[::1], float64[:,::1], float64, float64[:,::1], '",
        "            'float64[:,::1], float64[::1], int64, float64[:,::1], float64[::1], float64[:,::1])',",
        "            nogil=True, cache=True, error_model='numpy', fastmath={'contract', 'reassoc', 'nsz'})",
        "def lattice(low, step, side, centre, scale, constant, inverse, omega, u, wanted, log_at, found, second):",
        *(f"    u{k} = u[{k}]" for k in range(K)),
        *(f"    o{p * tokens + t} = omega[{p}, {t}]" for p in range(fields) for t in range(tokens)),
        *(f"    i{p}_{q} = inverse[{p}, {q}]" for p in range(fields) for q in range(fields)),
        f"    s = np.empty({1 + len(kept)} * side)",
        "    found[:] = 0.0",
        "    second[:] = 0.0",
        "    top = -inf",
        "    for i in range(side):",
        "        b0 = centre[0] + scale[0, 0] * (low[0] + step[0] * i)",
        "        b1 = centre[1] + scale[1, 0] * (low[0] + step[0] * i)",
        "        for k in range(side):",
        "            x = low[1] + step[1] * k",
        "            a0 = b0 + scale[0, 1] * x",
        "            a1 = b1 + scale[1, 1] * x",
        f"            {', '.join(names)}, = point({', '.join(arguments)})",
        *_node(fields, tokens, m),
        "            here = isfinite(value)",
        "            s[k] = value if here else -inf",
        *(f"            {row[name]} = {name} if here else 0.0" for name in kept),
        "        for k in range(side):",
        "            log_at[i, k] = s[k]",
        "        if wanted == 0:",
        "            continue",
        "        highest = largest(s, 0, side)",
        f"        if highest == -inf or highest < top - {_LOST}:",
        "            continue",
        "        if highest > top:",
        "            factor = exp(top - highest)",
        "            found *= factor",
        "            second *= factor",
        "            top = highest",
        "        a = 0.0",
        "        for k in range(side):",
        "            w = weight(s[k] - top)",
        "            s[k] = w",
        "            a += w",
        "        found[1] += a",
        *_summed((f"found[{2 + a}]", row[f"left{a}"]) for a in own),
        "        if wanted < 2:",
        "            continue",
        *_summed((f"second[{a}, {b}]", _product(row, m, a, b)) for a, b in products),
        "    found[0] = top",
    ]


def _node(fields: int, tokens: int, m: int) -> list[str]:
    """One node: whitened fields, less their part along the directions, these made orthonormal, and the log."""
    own = range(fields * tokens)

    def whitened(name: str, k: int) -> str:
        p, t = divmod(k, tokens)
        return " + ".join(f"i{p}_{q} * {name}{q * tokens + t}" for q in range(fields))

    lines = [f"d{a} = z{a} - o{a}" for a in own]
    lines += [f"left{a} = {whitened('d', a)}" for a in own]
    lines.append("value = lw + constant")
    for i in range(m):
        lines += [f"e{i}_{a} = {whitened(f'v{i}_', a)}" for a in own]
        for j in range(i):
            lines.append(f"c = {' + '.join(f'e{i}_{a} * e{j}_{a}' for a in own)}")
            lines += [f"e{i}_{a} -= c * e{j}_{a}" for a in own]
        lines.append(f"square = {' + '.join(f'e{i}_{a} * e{i}_{a}' for a in own)}")
        lines += ["value -= 0.5 * log(square)", "c = 1.0 / math.sqrt(square)"]
        lines += [f"e{i}_{a} *= c" for a in own]
        lines.append(f"c = {' + '.join(f'e{i}_{a} * left{a}' for a in own)}")
        lines += [f"left{a} -= c * e{i}_{a}" for a in own]
    lines.append(f"value -= 0.5 * ({' + '.join(f'left{a} * left{a}' for a in own)})")
    return ["            " + line for line in lines]


def _product(row: dict[str, str], m: int, a: int, b: int) -> str:
    parts = [f"{row[f'left{a}']} * {row[f'left{b}']}", *(f"{row[f'e{i}_{a}']} * {row[f'e{i}_{b}']}" for i in range(m))]
    return f"({' + '.join(parts)})"


def _summed(what: Iterable[tuple[str, str]]) -> list[str]:
    """Sums over a row, each with the weights of its nodes."""
    lines = []
    for name, term in what:
        lines += ["a = 0.0", "for k in range(side):", f"    a += s[k] * {term}", f"{name} += a"]
    return ["        " + line for line in lines]
