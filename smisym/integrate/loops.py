"""Sums over the cells of a lattice, and values at points, in compiled loops: what :mod:`smisym.integrate.quadrature`
does with arrays, one cell after the other, without a temporary array.

The text of the loops is written for one integrand, its cell and whether second moments are asked for, so that all sizes
are numbers to the compiler and the loop over the nodes of a cell becomes vector instructions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from smisym.base.backends import NUMBA, backend
from smisym.base.remembered import Remembered
from smisym.integrate import sheet_loops
from smisym.integrate.accuracy import FEW, STILL
from smisym.integrate.sheet_loops import many
from smisym.kernels.numba_code import HEADER, NotCompiled, impatient, load, scalar_function
from smisym.kernels.points import PointProgram

_COMPILED: Remembered[Any] = Remembered(256)


def compiled(point: PointProgram, nodes: int, cov: bool) -> Callable[..., None] | None:
    """The loops over cells of so many nodes; None where the backend is numpy, or has not all that the program calls."""
    return from_program("cells", point, lambda: cells_source(point, nodes, cov), nodes, cov)


def compiled_points(point: PointProgram) -> Callable[..., None] | None:
    """The loop over points; None as for :func:`compiled`."""
    return from_program("points", point, lambda: points_source(point))


def from_program(name: str, point: PointProgram, source: Callable[[], str], *how: Any) -> Callable[..., None] | None:
    """The function of this name of a module that is written for one program; None as for :func:`compiled`.

    how: what else the text depends on.
    """
    if backend().loops != NUMBA:
        return None

    def make() -> tuple[PointProgram, Any]:
        try:
            return point, getattr(load(source()), name)
        except NotCompiled:
            return point, None

    return _COMPILED.get((name, id(point), impatient(), *how), make)[1]


# ---------------------------------------------------------------------------------------------------------- the text


def program_text(point: PointProgram) -> str:
    """The head of a module, and the program as an inlined function."""
    return f"{HEADER}\n\n{scalar_function(point.program, 'point')}\n"


def names_of(point: PointProgram) -> tuple[list[str], list[str], list[str]]:
    """Arguments, residuals and log-weights, directions, by names."""
    B, m = point.branches, point.residuals
    r = [f"r{b}_{j}" for b in range(B) for j in range(m)]
    w = [f"lw{b}" for b in range(point.weights)]
    v = [f"v{b}_{i}_{j}" for b in range(B) for i in range(point.directions) for j in range(m)]
    return r, w, v


def points_source(point: PointProgram) -> str:
    """``points(index, x, numbers, r, log_weight, along)``: index (C,), x (d, n, C), numbers (S, k); written:
    r (B m, n, C), log_weight (w, n, C), along (B count m, n, C)."""
    d, k = point.dim, point.parameters
    r, w, v = names_of(point)
    arguments = [*(f"x[{i}, i, c]" for i in range(d)), *(f"p{q}" for q in range(k))]
    lines = [
        "@numba.njit('void(int64[::1], float64[:,:,::1], float64[:,::1], float64[:,:,::1], float64[:,:,::1], "
        "float64[:,:,::1])',",
        "            nogil=True, cache=True, error_model='numpy', fastmath={'contract'})",
        "def points(index, x, numbers, r, log_weight, along):",
        "    for i in range(x.shape[1]):",
        "        for c in range(index.shape[0]):",
        "            s = index[c]",
        *(f"            p{q} = numbers[s, {q}]" for q in range(k)),
        f"            {', '.join([*r, *w, *v])}, = point({', '.join(arguments)})",
        *(f"            r[{a}, i, c] = {name}" for a, name in enumerate(r)),
        *(f"            log_weight[{a}, i, c] = {name}" for a, name in enumerate(w)),
        *(f"            along[{a}, i, c] = {name}" for a, name in enumerate(v)),
    ]
    return f"{program_text(point)}\n\n" + "\n".join(lines) + "\n"


class _Text:
    """The text of loops over cells while it is written, and the rows of their scratch array by name: each row holds one
    number for each node of a cell."""

    def __init__(self, point: PointProgram, nodes: int, cov: bool) -> None:
        self.point, self.nodes, self.cov = point, nodes, cov
        self.lines: list[str] = []
        self._starts: dict[str, int] = {}
        self.loop = f"for k in range({nodes}):"
        self.r, self.w, self.v = names_of(point)
        # The log-weight of each sheet, which may be one for all.
        self.own = [f"lw{b if point.weights > 1 else 0}" for b in range(point.branches)]

    def add(self, depth: int, *lines: str) -> None:
        self.lines.extend("    " * depth + line for line in lines)

    def row(self, name: str) -> str:
        return f"s[{self.start(name)} + k]"

    def start(self, name: str) -> int:
        return self._starts.setdefault(name, len(self._starts) * self.nodes)

    def extreme(self, which: str, name: str) -> str:
        return f"{which}(s, {self.start(name)}, {self.nodes})"

    def steepest(self, start: str) -> list[str]:
        """The largest change between neighbours of a row that starts there, one text for each axis."""
        d = self.point.dim
        side = round(self.nodes ** (1 / d))
        return [f"steepest(s, {start}, {self.nodes}, {side}, {side**i})" for i in range(d)]

    def whole(self) -> str:
        return "\n".join(self.lines).replace("{size}", str(len(self._starts) * self.nodes)) + "\n"


def cells_source(point: PointProgram, nodes: int, cov: bool) -> str:
    """The text of ``cells``, as :class:`smisym.integrate.sums.CellSums` calls it."""
    text = _Text(point, nodes, cov)
    sums = sums_of(point.dim, point.branches, point.residuals, point.directions, cov, many(point))
    B, m = point.branches, point.residuals
    text.add(
        0,
        "@numba.njit('void(int64[::1], int64[:,::1], int64[::1], float64[::1], float64[:,::1], float64[:,::1], '",
        "            'float64[::1], float64, float64, float64, float64, float64[::1], float64[::1], '",
        "            'float64[:,::1], boolean[::1], float64[::1], float64[:,::1])',",
        "            nogil=True, cache=True, error_model='numpy', fastmath={'contract'})",
        "def cells(starts, corner, owner, step, numbers, offsets, least, half, fine, blurred, gaps, bound, change,",
        "          peak, cut, top, totals):",
        "    s = np.zeros({size})",
        f"    low, high, ends = np.empty({max(B * m, 1)}), np.empty({max(B * m, 1)}), np.empty({B})",
        "    for run in range(starts.shape[0] - 1):",
        "        sample, reference = owner[run], -inf",
        "        h, floor = step[run], least[owner[run]]",
        *(f"        p{q} = numbers[sample, {q}]" for q in range(point.parameters)),
        f"        {text.loop}",
        *(f"            {text.row(f'sum{a}')} = 0.0" for a in range(len(sums))),
        "        for c in range(starts[run], starts[run + 1]):",
    )
    _write_values(text)
    _write_bounds(text)
    _write_sums(text, sums)
    text.add(2, "top[run] = reference", f"for a in range({len(sums)}):", f"    for k in range({nodes}):")
    text.add(4, f"totals[run, a * {nodes} + k] = s[{text.start('sum0')} + a * {nodes} + k]")
    return f"{program_text(point)}\n\n{text.whole()}"


def _write_values(text: _Text) -> None:
    """The integrand at all nodes of a cell, into the scratch array."""
    point = text.point
    d, B, m, add, row = point.dim, point.branches, point.residuals, text.add, text.row
    add(3, *(f"c{i} = (corner[c, {i}] * 2.0 + 1.0) * half * h" for i in range(d)))
    add(3, text.loop)
    add(4, *(f"x{i} = c{i} + offsets[{i}, k] * h" for i in range(d)))
    arguments = [*(f"x{i}" for i in range(d)), *(f"p{q}" for q in range(point.parameters))]
    add(4, f"{', '.join([*text.r, *text.w, *text.v])}, = point({', '.join(arguments)})")
    add(4, *(f"{row(f'x{i}')} = x{i}" for i in range(d)))
    add(4, *(f"{row(name)} = {name} if {name} - {name} == 0.0 else 0.0" for name in [*text.r, *text.v]))
    add(4, *(f"{row(name)} = {name} if {name} == {name} else -inf" for name in text.w))
    if many(point):
        add(4, f"{row('square')} = {' + '.join(f'x{i} * x{i}' for i in range(d))}")
        sheet_loops.write_exponents(text, 3, text.loop)
        return
    square = " + ".join(f"x{i} * x{i}" for i in range(d))
    for b in range(B):
        own_square = "".join(f" + r{b}_{j} * r{b}_{j}" for j in range(m))
        add(4, f"e{b} = {text.own[b]} - 0.5 * ({square}{own_square})")
        add(4, f"{row(f'e{b}')} = e{b} if e{b} - e{b} == 0.0 else -inf")


def _write_bounds(text: _Text) -> None:
    """What a cell holds at most: residuals between their smallest and largest values, a little beyond."""
    point, add = text.point, text.add
    m = point.residuals
    add(3, "most, widest, steep, there = -inf, 0.0, 0.0, False")
    if many(point):
        _write_many_bounds(text)
        return
    for b in range(point.branches):
        add(3, f"ends[{b}] = {text.extreme('largest', f'e{b}')}", f"peak[c, {b}] = ends[{b}]")
        add(3, f"most = ends[{b}] if ends[{b}] > most else most")
        add(3, f"there = there or (ends[{b}] > floor and {text.extreme('smallest', f'e{b}')} == -inf)")
        for j in range(m):
            at, name = b * m + j, f"r{b}_{j}"
            add(3, f"low[{at}], high[{at}] = {text.extreme('smallest', name)}, {text.extreme('largest', name)}")
            add(3, f"widest = high[{at}] - low[{at}] if high[{at}] - low[{at}] > widest else widest")
            add(3, *(f"steep = larger(steep, {one})" for one in text.steepest(str(text.start(name)))))
    _write_nearest(text)
    for b in range(point.branches):
        add(3, "away = 0.0")
        for j in range(m):
            at = b * m + j
            add(3, f"room = wide * (high[{at}] - low[{at}])")
            add(3, f"gap = low[{at}] - room if low[{at}] - room > -high[{at}] - room else -high[{at}] - room")
            add(3, "away += gap * gap if gap > 0.0 else 0.0")
        add(3, f"held = {text.extreme('largest', text.own[b])} - 0.5 * away", "limit = held if held > limit else limit")
    add(3, "bound[c] = limit + 1.0 - 0.5 * near")


def _write_nearest(text: _Text) -> None:
    """By how much ranges are widened, and how near a cell comes to the centre."""
    add = text.add
    add(3, "steep = larger(steep, widest / gaps)", "cut[c], change[c] = there, steep", "rough = 0.0")
    missed = f"2.0 * exp({-2 * math.pi**2!r} / (steep * steep))" if 2**text.point.dim - 1 <= FEW else "0.0"
    add(3, f"if steep > {STILL!r}:", f"    rough = {missed} if steep <= fine else 1.0")
    add(3, "wide = 0.5 / gaps + (0.05 if steep <= fine else 0.25 if widest < blurred else 1.5)", "near = 0.0")
    for i in range(text.point.dim):
        add(3, f"gap = abs(c{i}) - half * h", "near += gap * gap if gap > 0.0 else 0.0")
    add(3, "limit = -inf")


def _write_many_bounds(text: _Text) -> None:
    """The same, sheet by sheet."""
    point, add, n = text.point, text.add, text.nodes
    m, B, e = point.residuals, point.branches, sheet_loops.block(text, [f"e{b}" for b in range(point.branches)])
    weights = f"{sheet_loops.block(text, text.w)}{f' + b * {n}' if len(text.w) > 1 else ''}"
    add(3, f"for b in range({B}):")
    add(4, f"ends[b] = largest(s, {e} + b * {n}, {n})", "peak[c, b] = ends[b]", "most = max(most, ends[b])")
    add(4, f"there = there or (ends[b] > floor and smallest(s, {e} + b * {n}, {n}) == -inf)")
    add(4, f"for a in range(b * {m}, (b + 1) * {m}):")
    for end in ("low", "high"):
        which = "smallest" if end == "low" else "largest"
        add(5, f"{end}[a] = {which}(s, {sheet_loops.block(text, text.r)} + a * {n}, {n})")
    add(5, "widest = max(widest, high[a] - low[a])")
    row = f"{sheet_loops.block(text, text.r)} + a * {n}"
    add(5, *(f"steep = larger(steep, {one})" for one in text.steepest(row)))
    _write_nearest(text)
    add(3, f"for b in range({B}):", "    away = 0.0", f"    for a in range(b * {m}, (b + 1) * {m}):")
    add(5, "room = wide * (high[a] - low[a])", "gap = max(low[a] - room, -high[a] - room)")
    add(5, "away += gap * gap if gap > 0.0 else 0.0")
    add(4, f"limit = max(limit, largest(s, {weights}, {n}) - 0.5 * away)")
    add(3, "bound[c] = limit + 1.0 - 0.5 * near")


def _write_sums(text: _Text, sums: list[str]) -> None:
    """Sums over all cells of a sample, node by node, relative to the largest value met so far."""
    point, add, row = text.point, text.add, text.row
    B = range(point.branches)
    add(3, "if not most > floor:", "    continue")
    add(3, "if most > reference:", "    scale = exp(reference - most)", "    reference = most", f"    {text.loop}")
    add(5, *(f"{row(f'sum{a}')} *= scale" for a in range(len(sums))))
    if many(point):
        pairs = sheet_loops.write_sheet_sums(text, 3, text.loop, text.cov)
        names = ["mass", *(f"m{j}" for j in range(point.residuals)), *(f"q{i}_{j}" for i, j in pairs)]
        add(3, text.loop, *(f"    {name} = {row(name)}" for name in names))
        add(4, *(f"x{i} = {row(f'x{i}')}" for i in range(point.dim)))
        add(4, *(f"{row(f'sum{a}')} += {expression}" for a, expression in enumerate(sums)))
        return
    add(3, text.loop)
    add(4, *(f"w{b} = weight({row(f'e{b}')} - reference)" for b in B))
    add(4, f"mass = {' + '.join(f'w{b}' for b in B)}")
    add(4, *(f"x{i} = {row(f'x{i}')}" for i in range(point.dim)))
    add(4, *(f"{name} = {row(name)}" for name in [*text.r, *text.v]))
    for j in range(point.residuals):
        add(4, f"m{j} = {' + '.join(f'w{b} * r{b}_{j}' for b in B)}")
    add(4, *(f"{row(f'sum{a}')} += {expression}" for a, expression in enumerate(sums)))


def sums_of(d: int, B: int, m: int, directions: int, cov: bool, summed: bool) -> list[str]:
    """What is summed over nodes, one text each: 1 over rough cells, 1, zeta, and products of two of zeta, the upper
    triangle row by row.  summed: whether products of residuals are, over sheets, by names q{i}_{j}."""
    first = ["rough * mass", "mass", *(f"mass * x{i}" for i in range(d)), *(f"m{j}" for j in range(m))]
    if not cov:
        return first
    second = []
    for a, b in itertools.combinations_with_replacement(range(d + m), 2):
        if b < d:
            second.append(f"mass * x{a} * x{b}")
        elif a < d:
            second.append(f"x{a} * m{b - d}")
        elif summed:
            second.append(f"q{a - d}_{b - d}")
        else:
            second.append(" + ".join(_product(sheet, a - d, b - d, directions) for sheet in range(B)))
    return [*first, *second]


def _product(sheet: int, i: int, j: int, directions: int) -> str:
    """r_i r_j on a sheet, with unit variance along each direction that was integrated in closed form."""
    along = "".join(f" + v{sheet}_{c}_{i} * v{sheet}_{c}_{j}" for c in range(directions))
    return f"w{sheet} * (r{sheet}_{i} * r{sheet}_{j}{along})"


def number_of_sums(dim: int, residuals: int, cov: bool) -> int:
    D = dim + residuals
    return 2 + D + (D * (D + 1) // 2 if cov else 0)


def loop_values(
    point: PointProgram, run: Callable[..., None], index: np.ndarray, x: np.ndarray, numbers: np.ndarray
) -> Any:
    """Residuals (B, m, n, C), log-weights (w, n, C) and directions (B, count, m, n, C) or None at x (d, n, C)."""
    B, m, shape = point.branches, point.residuals, x.shape[1:]
    r, log_weight = np.empty((B * m, *shape)), np.empty((point.weights, *shape))
    along = np.empty((B * point.directions * m, *shape))
    # A broadcast of one column is contiguous as it is, and no array that compiled loops take.
    run(np.ascontiguousarray(index), np.require(x, requirements=["C", "W"]), numbers, r, log_weight, along)
    directions = along.reshape(B, point.directions, m, *shape) if point.directions else None
    return r.reshape(B, m, *shape), log_weight, directions
