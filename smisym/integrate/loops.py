"""Sums over the cells of a lattice, and values at points, in compiled loops: what :mod:`smisym.integrate.quadrature`
does with arrays, one cell after the other, without a temporary array.

The text of the loops is written for one integrand, its cell and whether second moments are asked for, so that all sizes
are numbers to the compiler and the loop over the nodes of a cell becomes vector instructions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from smisym.base.remembered import Remembered
from smisym.kernels.backend import NUMBA, backend
from smisym.kernels.numba_code import HEADER, NotCompiled, load, scalar_function
from smisym.kernels.points import PointProgram

_COMPILED: Remembered[Any] = Remembered(256)


def compiled(point: PointProgram, nodes: int, cov: bool) -> Callable[..., None] | None:
    """The loops over cells of so many nodes; None where the backend is numpy, or has not all that the program calls."""
    return _function(("cells", id(point), nodes, cov), point, lambda: cells_source(point, nodes, cov), "cells")


def compiled_points(point: PointProgram) -> Callable[..., None] | None:
    """The loop over points; None as for :func:`compiled`."""
    return _function(("points", id(point)), point, lambda: points_source(point), "points")


def _function(key: Any, point: PointProgram, source: Callable[[], str], name: str) -> Callable[..., None] | None:
    if backend().loops != NUMBA:
        return None

    def make() -> tuple[PointProgram, Any]:
        try:
            return point, getattr(load(source()), name)
        except NotCompiled:
            return point, None

    return _COMPILED.get(key, make)[1]


# ---------------------------------------------------------------------------------------------------------- the text


def _program(point: PointProgram) -> str:
    return f"{HEADER}\n\n{scalar_function(point.program, 'point')}\n"


def _names(point: PointProgram) -> tuple[list[str], list[str], list[str]]:
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
    r, w, v = _names(point)
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
    return f"{_program(point)}\n\n" + "\n".join(lines) + "\n"


class _Rows:
    """Rows of the scratch array, by name: each holds one number for each node of a cell."""

    def __init__(self, nodes: int) -> None:
        self.nodes, self.starts = nodes, dict[str, int]()

    def __call__(self, name: str) -> str:
        return f"s[{self.start(name)} + k]"

    def start(self, name: str) -> int:
        return self.starts.setdefault(name, len(self.starts) * self.nodes)

    @property
    def size(self) -> int:
        return len(self.starts) * self.nodes


def cells_source(point: PointProgram, nodes: int, cov: bool) -> str:
    """The text of ``cells``; its arguments are those of :func:`add_cells`."""
    d, B, m, k = point.dim, point.branches, point.residuals, point.parameters
    r, w, v = _names(point)
    row = _Rows(nodes)
    sums = _sums(d, B, m, point.directions, cov)
    own = [f"lw{b if point.weights > 1 else 0}" for b in range(B)]
    loop = f"for k in range({nodes}):"
    out: list[str] = []

    def add(depth: int, *lines: str) -> None:
        out.extend("    " * depth + line for line in lines)

    add(
        0,
        "@numba.njit('void(int64[::1], int64[:,::1], int64[::1], float64[::1], float64[:,::1], float64[:,::1], '",
        "            'float64[::1], float64, float64, float64, float64, float64, float64[::1], boolean[::1], '",
        "            'float64[:,::1], boolean[::1], float64[::1], float64[:,::1])',",
        "            nogil=True, cache=True, error_model='numpy', fastmath={'contract'})",
        "def cells(starts, corner, owner, step, numbers, offsets, least, half, limit, blurred, edge, margin,",
        "          bound, resolved, peak, cut, top, totals):",
        "    s = np.zeros({size})",
        f"    low, high, ends = np.empty({max(B * m, 1)}), np.empty({max(B * m, 1)}), np.empty({B})",
    )
    add(1, "for run in range(starts.shape[0] - 1):")
    add(2, "sample, reference = owner[run], -inf", "h, floor = step[run], least[run]")
    add(2, *(f"p{q} = numbers[sample, {q}]" for q in range(k)))
    add(2, loop, *(f"    {row(f'sum{a}')} = 0.0" for a in range(len(sums))))
    add(2, "for c in range(starts[run], starts[run + 1]):")
    add(3, *(f"c{i} = (corner[c, {i}] * 2.0 + 1.0) * half * h" for i in range(d)))
    add(3, loop)
    add(4, *(f"x{i} = c{i} + offsets[{i}, k] * h" for i in range(d)))
    arguments = [*(f"x{i}" for i in range(d)), *(f"p{q}" for q in range(k))]
    add(4, f"{', '.join([*r, *w, *v])}, = point({', '.join(arguments)})")
    add(4, *(f"{row(f'x{i}')} = x{i}" for i in range(d)))
    add(4, *(f"{row(name)} = {name} if {name} - {name} == 0.0 else 0.0" for name in [*r, *v]))
    add(4, *(f"{row(name)} = {name} if {name} == {name} else -inf" for name in w))
    square = " + ".join(f"x{i} * x{i}" for i in range(d)) or "0.0"
    for b in range(B):
        own_square = "".join(f" + r{b}_{j} * r{b}_{j}" for j in range(m))
        add(4, f"e{b} = {own[b]} - 0.5 * ({square}{own_square})")
        add(4, f"{row(f'e{b}')} = e{b} if e{b} - e{b} == 0.0 else -inf")
    # What the cell holds at most: residuals between their smallest and largest values, a little beyond.
    add(3, "most, widest, there = -inf, 0.0, False")
    for b in range(B):
        add(3, f"ends[{b}] = largest(s, {row.start(f'e{b}')}, {nodes})", f"peak[c, {b}] = ends[{b}]")
        add(3, f"most = ends[{b}] if ends[{b}] > most else most")
        add(3, f"there = there or (ends[{b}] > floor and smallest(s, {row.start(f'e{b}')}, {nodes}) == -inf)")
        for j in range(m):
            at, start = b * m + j, row.start(f"r{b}_{j}")
            add(3, f"low[{at}], high[{at}] = smallest(s, {start}, {nodes}), largest(s, {start}, {nodes})")
            add(3, f"widest = high[{at}] - low[{at}] if high[{at}] - low[{at}] > widest else widest")
    add(3, "cut[c], resolved[c] = there, widest <= limit")
    add(3, "wide = edge + (0.05 if widest <= limit else 0.25 if widest < blurred else 1.5)")
    add(3, "near = 0.0")
    for i in range(d):
        add(3, f"gap = abs(c{i}) - margin * h", "near += gap * gap if gap > 0.0 else 0.0")
    add(3, "limit_of = -inf")
    for b in range(B):
        add(3, "away = 0.0")
        for j in range(m):
            at = b * m + j
            add(3, f"room = wide * (high[{at}] - low[{at}])")
            add(3, f"gap = low[{at}] - room if low[{at}] - room > -high[{at}] - room else -high[{at}] - room")
            add(3, "away += gap * gap if gap > 0.0 else 0.0")
        add(3, f"held = largest(s, {row.start(own[b])}, {nodes}) - 0.5 * away")
        add(3, "limit_of = held if held > limit_of else limit_of")
    add(3, "bound[c] = limit_of + 1.0 - 0.5 * near")
    add(3, "if not most > floor:", "    continue")
    # Sums are kept relative to the largest value met so far.
    add(3, "if most > reference:", "    scale = exp(reference - most)", "    reference = most", f"    {loop}")
    add(5, *(f"{row(f'sum{a}')} *= scale" for a in range(len(sums))))
    add(3, loop)
    for b in range(B):
        add(4, f"w{b} = weight({row(f'e{b}')} - reference)")
    add(4, f"mass = {' + '.join(f'w{b}' for b in range(B))}")
    add(4, *(f"x{i} = {row(f'x{i}')}" for i in range(d)))
    add(4, *(f"{name} = {row(name)}" for name in [*r, *v]))
    for j in range(m):
        add(4, f"m{j} = {' + '.join(f'w{b} * r{b}_{j}' for b in range(B))}")
    add(4, *(f"{row(f'sum{a}')} += {text}" for a, text in enumerate(sums)))
    add(2, "top[run] = reference")
    add(2, f"for a in range({len(sums)}):", f"    for k in range({nodes}):")
    add(4, f"totals[run, a * {nodes} + k] = s[{row.start('sum0')} + a * {nodes} + k]")
    text = "\n".join(out).replace("{size}", str(row.size)) + "\n"
    return f"{_program(point)}\n\n{text}"


def _sums(d: int, B: int, m: int, directions: int, cov: bool) -> list[str]:
    """What is summed over nodes, one text each: 1, zeta, and products of two of zeta, upper triangle row by row."""
    first = ["mass", *(f"mass * x{i}" for i in range(d)), *(f"m{j}" for j in range(m))]
    if not cov:
        return first
    second = []
    for a, b in itertools.combinations_with_replacement(range(d + m), 2):
        if b < d:
            second.append(f"mass * x{a} * x{b}")
        elif a < d:
            second.append(f"x{a} * m{b - d}")
        else:
            second.append(" + ".join(_product(sheet, a - d, b - d, directions) for sheet in range(B)))
    return [*first, *second]


def _product(sheet: int, i: int, j: int, directions: int) -> str:
    """r_i r_j on a sheet, with unit variance along each direction that was integrated in closed form."""
    along = "".join(f" + v{sheet}_{c}_{i} * v{sheet}_{c}_{j}" for c in range(directions))
    return f"w{sheet} * (r{sheet}_{i} * r{sheet}_{j}{along})"


def number_of_sums(dim: int, residuals: int, cov: bool) -> int:
    D = dim + residuals
    return 1 + D + (D * (D + 1) // 2 if cov else 0)


def loop_values(
    point: PointProgram, run: Callable[..., None], index: np.ndarray, x: np.ndarray, numbers: np.ndarray
) -> Any:
    """Residuals (B, m, n, C), log-weights (w, n, C) and directions (B, count, m, n, C) or None at x (d, n, C)."""
    B, m, shape = point.branches, point.residuals, x.shape[1:]
    r, log_weight = np.empty((B * m, *shape)), np.empty((point.weights, *shape))
    along = np.empty((B * point.directions * m, *shape))
    run(np.ascontiguousarray(index), np.ascontiguousarray(x), numbers, r, log_weight, along)
    directions = along.reshape(B, point.directions, m, *shape) if point.directions else None
    return r.reshape(B, m, *shape), log_weight, directions
