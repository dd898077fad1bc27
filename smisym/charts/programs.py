"""The sheets of a chart as a straight-line program, and the numpy function that it is compiled to.

A rule writes the function from (free, latent, u) to sheets in plain arithmetic of arrays; here it is run once on traced
scalars, so that any backend can compile what it does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from smisym.charts.base import Arrays, Sheets
from smisym.kernels.straight_line import StraightLine
from smisym.kernels.tracing import Untraceable, trace

Solve = Callable[[Arrays, Arrays, Arrays], Sheets]


@dataclass(frozen=True)
class Counts:
    """How many numbers a chart takes (free: entries, row by row; latents; coordinates of y) and gives.

    solved: entries of one sheet.
    """

    free: int
    latents: int
    coordinates: int
    branches: int
    solved: int
    directions: int = 0

    @property
    def arguments(self) -> tuple[str, ...]:
        """Their names in a program: z free entries of the fields, x latent coordinates, u coordinates of y."""
        given = (("z", self.free), ("x", self.latents), ("u", self.coordinates))
        return tuple(f"{letter}{k + 1}" for letter, count in given for k in range(count))


def sheets_program(solve: Solve, counts: Counts) -> StraightLine:
    """The program of ``solve``; outputs are the entries solved sheet by sheet, log-weights, directions sheet by sheet.

    One log-weight where all sheets have the same. Raises :class:`smisym.kernels.tracing.Untraceable` where ``solve`` is
    more than arithmetic.
    """
    first, second = counts.free, counts.free + counts.latents
    weights = 0

    def flat(*given: np.ndarray) -> Arrays:
        nonlocal weights
        found = solve(list(given[:first]), list(given[first:second]), list(given[second:]))
        weights = len(found.log_weight)
        along = [value for sheet in found.directions for vector in sheet for value in vector]
        return [*(value for sheet in found.solved for value in sheet), *found.log_weight, *along]

    program = trace(flat, counts.arguments)
    start = counts.branches * counts.solved
    own = program.outputs[start : start + weights]
    if len({repr(o) for o in own}) == 1:
        own = own[:1]
    outputs = (*program.outputs[:start], *own, *program.outputs[start + weights :])
    return StraightLine(program.arguments, program.lines, outputs)


def compile_sheets(program: StraightLine, counts: Counts) -> Solve:
    """The numpy form of a program of sheets.

    Where a sheet has no point its numbers are not finite, or infinite weights say so: nothing to warn of.
    """
    run = program.compile()

    def quiet(*values: np.ndarray) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return run(*values)

    solve = sheets_function(quiet, len(program.outputs), counts)
    solve.program = program  # type: ignore[attr-defined]
    return solve


def sheets_function(run: Callable[..., list], outputs: int, counts: Counts) -> Solve:
    """Sheets from what carries a program of so many outputs out, on arrays or on traced scalars."""
    solved, along = counts.branches * counts.solved, counts.directions * counts.solved
    weights = outputs - solved - counts.branches * along

    def solve(free: Arrays, latent: Arrays, u: Arrays) -> Sheets:
        if (len(free), len(latent), len(u)) != (counts.free, counts.latents, counts.coordinates):
            raise ValueError(f"{len(free)}, {len(latent)} and {len(u)} arrays for a chart of {counts}")
        values = run(*free, *latent, *u)
        rest = _cut(values[solved + weights :], counts.solved)
        directions = _cut(rest, counts.directions) if rest else [[] for _ in range(counts.branches)]
        return Sheets(_cut(values[:solved], counts.solved), values[solved : solved + weights], directions)

    return solve


def _cut(values: list, size: int) -> list[list]:
    """In pieces of one size."""
    return [values[k : k + size] for k in range(0, len(values), size)] if size else []


def programmed(solve: Solve, counts: Counts) -> tuple[StraightLine | None, Solve]:
    """The program of ``solve`` and its numpy form; None and ``solve`` itself where it is more than arithmetic."""
    try:
        program = sheets_program(solve, counts)
    except Untraceable:

        def quiet(free: Arrays, latent: Arrays, u: Arrays) -> Sheets:
            with np.errstate(all="ignore"):
                return solve(free, latent, u)

        return None, quiet
    return program, compile_sheets(program, counts)
