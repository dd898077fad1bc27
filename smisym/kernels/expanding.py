"""Programs without kernels: every call of one is written out as arithmetic of scalars, without branches, so that a
backend has nothing to compile but one operation a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from smisym.kernels.straight_line import StraightLine, operation
from smisym.kernels.tracing import trace

# Systems of more unknowns than this are left to LAPACK: written out they are thousands of lines.
LARGEST = 6


class NotWrittenOut(ValueError):
    """A program calls a kernel that is not written out; the text is its name."""


def expanded(program: StraightLine) -> StraightLine:
    """The same program without kernels; raises :class:`NotWrittenOut`."""
    return trace(lambda *values: carried_out(program, values), program.arguments)


def carried_out(program: StraightLine, values: Sequence[Any]) -> list[Any]:
    """The outputs of a program at values of its arguments, arrays or traced scalars, kernels written out."""
    known: dict[str, Any] = dict(zip(program.arguments, values, strict=True))
    for line in program.lines:
        operands = [known[o] if isinstance(o, str) else o for o in line.operands]
        written = _written_out(line.operation)
        if written is not None:
            found = written(operands)
        elif re.search(r"_\d+$", line.operation):
            raise NotWrittenOut(line.operation)
        else:
            found = [operation(line.operation)(*operands)]
        known.update(zip(line.targets, found, strict=True))
    return [known[o] if isinstance(o, str) else o for o in program.outputs]


def _written_out(name: str) -> Callable[[list[Any]], list[Any]] | None:
    found = re.fullmatch(r"([a-z_]+?)_(\d+)", name)
    if found is None:
        return None
    size = int(found[2])
    match found[1]:
        case "row_softmax":
            return _softmax
        case "row_hardmax":
            return _hardmax
        case "solve_logdet" | "solve_columns" if size <= LARGEST:
            return lambda entries: _solved(size, entries)
        case "inverse_logdet" if size <= LARGEST:
            return lambda entries: _inverse(size, entries)
    return None


def _softmax(scores: list[Any]) -> list[Any]:
    top = scores[0]
    for score in scores[1:]:
        top = np.maximum(top, score)
    raised = [np.exp(score - top) for score in scores]
    total = raised[0]
    for value in raised[1:]:
        total = total + value
    return [value / total for value in raised]


def _hardmax(scores: list[Any]) -> list[Any]:
    """One at the largest, the first of equals."""
    out = []
    for i, score in enumerate(scores):
        ahead = [np.greater(score, other) for other in scores[:i]]
        ahead += [np.greater_equal(score, other) for other in scores[i + 1 :]]
        first = ahead[0]
        for condition in ahead[1:]:
            first = first & condition
        out.append(np.where(first, 1.0, 0.0))
    return out


def _solved(size: int, entries: list[Any]) -> list[Any]:
    """Solutions, column by column, and log |det A| (NaN where A is singular), by elimination with partial pivoting."""
    count = len(entries) // size - size
    right = entries[size * size :]
    rows = [[*entries[i * size : (i + 1) * size], *(right[k * size + i] for k in range(count))] for i in range(size)]
    for k in range(size):
        for i in range(k + 1, size):
            swap = np.greater(np.abs(rows[i][k]), np.abs(rows[k][k]))
            upper, lower = rows[k][k:], rows[i][k:]
            rows[k][k:] = [np.where(swap, b, a) for a, b in zip(upper, lower, strict=True)]
            rows[i][k:] = [np.where(swap, a, b) for a, b in zip(upper, lower, strict=True)]
        for i in range(k + 1, size):
            factor = rows[i][k] / rows[k][k]
            rows[i][k + 1 :] = [b - factor * a for a, b in zip(rows[k][k + 1 :], rows[i][k + 1 :], strict=True)]
    log_det = np.log(np.abs(rows[0][0]))
    for k in range(1, size):
        log_det = log_det + np.log(np.abs(rows[k][k]))
    columns = [_substituted(rows, size, size + c) for c in range(count)]
    return [*(value for column in columns for value in column), np.where(np.isfinite(log_det), log_det, np.nan)]


def _substituted(rows: list[list[Any]], size: int, column: int) -> list[Any]:
    out: list[Any] = [None] * size
    for k in reversed(range(size)):
        total = rows[k][column]
        for j in range(k + 1, size):
            total = total - rows[k][j] * out[j]
        out[k] = total / rows[k][k]
    return out


def _inverse(size: int, entries: list[Any]) -> list[Any]:
    """A^{-1} row by row, then log |det A|."""
    unit = [1.0 if i == k else 0.0 for k in range(size) for i in range(size)]
    *columns, log_det = _solved(size, [*entries, *unit])
    return [*(columns[k * size + i] for i in range(size) for k in range(size)), log_det]
