"""Names for what programs compute: entries of the matrices of the network, found by their values at random fields.

Programs know no names, as they are traced from arithmetic.  A number of one that is an entry of the declaration's own
matrix, at all of some random fields, is called so.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping

import numpy as np

from smisym.kernels.straight_line import StraightLine, operation
from smisym.link.linking import LinkFunction
from smisym.link.values import matrix_values

_SAME = 1e-9
_TAKEN = {"np", "x", "u", "free", "seen", "math"}


def field_names(link: LinkFunction) -> list[str]:
    """Names of the entries of the fields, row by row: h1_2 is the field of layer 1 on token 2."""
    found = []
    ranks: dict[int, int] = {}
    for row in link.rows:
        symbol = link.program.inputs[row.input]
        ranks[row.input] = ranks.get(row.input, 0) + 1
        base = symbol.name.replace("_", "")
        base = f"{base}_" if keyword.iskeyword(base) or base in _TAKEN or not base.isidentifier() else base
        base = base if int(symbol.shape[0]) == 1 else f"{base}_{ranks[row.input]}"
        found += [base if link.tokens == 1 else f"{base}_{t + 1}" for t in range(link.tokens)]
    return found


def named_values(link: LinkFunction, Z: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Entries of the network's matrices at fields (S, P, T), with names, and log |det| of the square ones."""
    for name, table in matrix_values(link, Z):
        rows, columns = table.shape[1:]
        plain = name.replace("_", "")
        for i in range(rows):
            for j in range(columns):
                yield (f"{plain}_{i + 1}" if columns == 1 else f"{plain}_{i + 1}{j + 1}"), table[:, i, j]
        if rows == columns > 1:
            with np.errstate(all="ignore"):
                yield f"det_{plain}", np.linalg.det(table)
                yield f"log_det_{plain}", np.linalg.slogdet(table)[1]


def names_in(program: StraightLine, at: Mapping[str, np.ndarray], known: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Targets of a program that are among known values, at arguments ``at`` (S,): target to name, each name once."""
    values = {name: at[name] for name in program.arguments}
    found: dict[str, str] = {}
    left = dict(known)
    for line in program.lines:
        operands = [values[o] if isinstance(o, str) else o for o in line.operands]
        with np.errstate(all="ignore"):
            result = operation(line.operation)(*operands)
        results = [result] if len(line.targets) == 1 else list(result)
        for target, own in zip(line.targets, results, strict=True):
            values[target] = own
            if np.ndim(own) == 0 or np.asarray(own).dtype == bool:
                continue
            for name, value in left.items():
                if (np.abs(own - value) <= _SAME * (1e-3 + np.abs(value))).all() and np.ptp(value) > 0:
                    found[target] = name
                    # Names of the same number, as of a matrix that is another one, are not asked for again.
                    left = {n: v for n, v in left.items() if (np.abs(v - value) > _SAME * (1e-3 + np.abs(v))).any()}
                    break
    return found
