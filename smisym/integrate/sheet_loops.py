"""Loops over sheets in the text of compiled loops over nodes, for integrands of many of them.

Of a few sheets everything is written out, sheet by sheet, and a node keeps its numbers in registers
(:mod:`smisym.integrate.loops`).  The compiler's time grows faster than such a text: 16 sheets took it 75 seconds, and
take 11 like this.  Here each sheet is one pass over the nodes, and sums over sheets are rows of the scratch array.
"""

from __future__ import annotations

import itertools
from typing import Protocol

from smisym.kernels.points import PointProgram

# Sheets from which on.
MANY = 5


def many(point: PointProgram) -> bool:
    """Whether sheets are passed over one by one: no integrand of many has directions beside, in closed form."""
    return point.branches >= MANY and not point.directions


class Rows(Protocol):
    """A text that is being written, and where the rows of its scratch array begin: one number for each node."""

    point: PointProgram
    nodes: int
    r: list[str]
    w: list[str]

    def add(self, depth: int, *lines: str) -> None: ...

    def start(self, name: str) -> int: ...

    def row(self, name: str) -> str: ...


def block(text: Rows, names: list[str]) -> int:
    """Where the rows of these names begin, one after the other."""
    starts = [text.start(name) for name in names]
    if starts != [starts[0] + i * text.nodes for i in range(len(names))]:
        raise ValueError(f"rows {names[0]} to {names[-1]} do not follow each other")
    return starts[0]


def of_sheet(text: Rows, names: list[str]) -> str:
    """The entry of sheet b, where one row may be for all; names: of all sheets, once each."""
    begin = block(text, names)
    return f"s[{begin} + b * {text.nodes} + k]" if len(names) > 1 else f"s[{begin} + k]"


def residual(text: Rows, j: int) -> str:
    """Residual j of sheet b."""
    m = text.point.residuals
    return f"s[{block(text, text.r)} + (b * {m} + {j}) * {text.nodes} + k]"


def write_exponents(text: Rows, depth: int, loop: str) -> None:
    """e of all sheets from ``square``, the sum over coordinates: -inf where it is no number."""
    m, B = text.point.residuals, text.point.branches
    exponents = of_sheet(text, [f"e{b}" for b in range(B)])
    text.add(depth, f"for b in range({B}):", f"    {loop}", f"        away = {text.row('square')}")
    for j in range(m):
        text.add(depth + 2, f"own = {residual(text, j)}", "away += own * own")
    text.add(depth + 2, f"e = {of_sheet(text, text.w)} - 0.5 * away", f"{exponents} = e if e - e == 0.0 else -inf")


def write_sheet_sums(text: Rows, depth: int, loop: str, cov: bool) -> list[tuple[int, int]]:
    """Rows ``mass``, ``m{j}`` and, of products of two residuals, ``q{i}_{j}``: sums over sheets of their weights.

    Returns the pairs of which there are products.
    """
    point = text.point
    m, B = point.residuals, point.branches
    pairs = list(itertools.combinations_with_replacement(range(m), 2)) if cov else []
    sums = ["mass", *(f"m{j}" for j in range(m)), *(f"q{i}_{j}" for i, j in pairs)]
    text.add(depth, loop, *(f"    {text.row(name)} = 0.0" for name in sums))
    text.add(depth, f"for b in range({B}):", f"    {loop}")
    text.add(depth + 2, f"w = weight({of_sheet(text, [f'e{b}' for b in range(B)])} - reference)")
    text.add(depth + 2, f"{text.row('mass')} += w", *(f"r{j} = {residual(text, j)}" for j in range(m)))
    text.add(depth + 2, *(f"{text.row(f'm{j}')} += w * r{j}" for j in range(m)))
    text.add(depth + 2, *(f"{text.row(f'q{i}_{j}')} += w * (r{i} * r{j})" for i, j in pairs))
    return pairs
