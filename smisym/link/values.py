"""Values of the matrices of a program, name by name, at given fields."""

from __future__ import annotations

import numpy as np

from smisym.link.linking import LinkFunction
from smisym.link.unroll import Unroller


def matrix_values(link: LinkFunction, Z: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """(name, values (S, rows, columns)) of every matrix assigned on the way to the outputs; Z (S, P, T)."""
    program, unroll = link.program, Unroller()
    arguments = [entry for symbol in program.inputs for entry in unroll.bind(symbol)]
    tables = []
    for assign in program.assigns:
        if assign.target not in program.outputs:
            unroll.assign(assign.target, assign.value)
            tables.append((assign.target.name, unroll.entries(assign.target)))
    if not tables:
        return []
    values = iter(unroll.compile(arguments, [e for _, table in tables for e in table])(*Z.reshape(len(Z), -1).T))
    return [
        (name, np.stack([np.broadcast_to(next(values), len(Z)) for _ in table], axis=1).reshape(len(Z), *table.shape))
        for name, table in tables
    ]
