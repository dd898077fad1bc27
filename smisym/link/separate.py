"""Networks that are several side by side: outputs that share no fields, as attention matrices of heads in one layer.

Where nothing is known their posteriors are independent, and each can be looked at alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import sympy as sp

from smisym.link.linking import LinkFunction
from smisym.link.program import Program


@dataclass(frozen=True)
class Separate:
    """One of them: its rows of Z, in their order, and its program, whose inputs these are."""

    rows: tuple[int, ...]
    program: Program


def networks_of(link: LinkFunction) -> tuple[Separate, ...]:
    """The networks that a link consists of, by the data flow of its program; itself alone where it is one."""
    program = link.program
    seen: dict[sp.MatrixSymbol, frozenset[sp.MatrixSymbol]] = {symbol: frozenset([symbol]) for symbol in program.inputs}
    for assign in program.assigns:
        used = [seen[symbol] for symbol in assign.value.atoms(sp.MatrixSymbol) if symbol in seen]
        seen[assign.target] = frozenset[sp.MatrixSymbol]().union(*used)
    groups: list[tuple[set[sp.MatrixSymbol], list[sp.MatrixSymbol]]] = []
    for output in program.outputs:
        inputs, outputs = set(seen[output]), [output]
        for other in [group for group in groups if group[0] & inputs]:
            groups.remove(other)
            inputs, outputs = inputs | other[0], other[1] + outputs
        groups.append((inputs, outputs))
    found = []
    for inputs, outputs in groups:
        own = tuple(symbol for symbol in program.inputs if symbol in inputs)
        rows = tuple(r for r, i in enumerate(link.row_inputs) if program.inputs[i] in inputs)
        found.append(Separate(rows, _part(program, own, outputs)))
    return tuple(found)


def _part(program: Program, inputs: tuple[sp.MatrixSymbol, ...], outputs: list[sp.MatrixSymbol]) -> Program:
    """What of a program its inputs and outputs need."""
    needed = set(outputs)
    for assign in reversed(program.assigns):
        if assign.target in needed:
            needed |= _symbols(assign.value.atoms(sp.MatrixSymbol))
    assigns = tuple(assign for assign in program.assigns if assign.target in needed)
    return Program(inputs, assigns, outputs[0], tuple(outputs[1:]))


def _symbols(found: Iterable[sp.Basic]) -> set[sp.MatrixSymbol]:
    return set(found)
