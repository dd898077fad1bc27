"""Numpy code of programs, by entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import sympy as sp

from smisym.link.core import Core, core_of
from smisym.link.program import Assign, Program
from smisym.link.unroll import Unroller


def compile_program(program: Program, cores: tuple[Core, ...] | None = None) -> Callable[..., list[np.ndarray]]:
    """Numpy code of the program: entries of the fields in, log-ratios (or output entries) out."""
    if cores is None:
        found = [core_of(program, output) for output in program.outputs]
        cores = tuple(core for core in found if core is not None) if None not in found else None
    ratios = {}
    if cores is not None and all(core.softmax for core in cores):
        ratios = {output: core.expression for output, core in zip(program.outputs, cores, strict=True)}

    def shown(unroll: Unroller, assign: Assign) -> Iterable[sp.Expr]:
        softmax = ratios.get(assign.target)
        return unroll.entries(assign.value) if softmax is None else unroll.log_ratios(softmax)

    return compile_entries(program, shown)


def compile_entries(
    program: Program, shown: Callable[[Unroller, Assign], Iterable[sp.Expr]]
) -> Callable[..., list[np.ndarray]]:
    """Numpy code of the entries that are shown where outputs are assigned, from entries of the fields."""
    unroll = Unroller()
    arguments = [entry for symbol in program.inputs for entry in unroll.bind(symbol)]
    entries: dict[sp.MatrixSymbol, list[sp.Expr]] = {}
    for assign in program.assigns:
        if assign.target in program.outputs:
            entries[assign.target] = list(shown(unroll, assign))
        else:
            unroll.assign(assign.target, assign.value)
    if set(entries) != set(program.outputs):
        raise ValueError("the program never assigns its output")
    return unroll.compile(arguments, [e for output in program.outputs for e in entries[output]])
