"""Fields from the columns of a mixed head: small linear systems, entry by entry."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixExpr

from smisym.charts.base import Arrays, Sheets
from smisym.charts.catalogue import Columns, Inverse
from smisym.kernels.tracing import call
from smisym.link.core import Core


@dataclass(frozen=True)
class Head:
    """One output matrix: its core, coefficient of the scores, constant scores, and its columns of unknown fields.

    fields: the inputs, query before key (one where tied); mixing: the matrix M of U = M h^T.
    """

    core: Core
    coefficient: float
    constant: np.ndarray
    fields: tuple[sp.MatrixSymbol, ...]
    mixing: MatrixExpr
    inverse: Inverse
    undo: Callable[[np.ndarray], np.ndarray] | None

    @property
    def solved(self) -> tuple[sp.MatrixSymbol, ...]:
        """The inputs that the output is solved for; the keys are free where the catalogue wants them given."""
        return self.fields[:1] if self.inverse.known_columns else self.fields


@dataclass(frozen=True)
class _Option:
    """One branch of one head in terms of the fields themselves."""

    columns: Columns
    log_weight: np.ndarray
    directions: list[Columns]


def unmix(sheets: list, matrices: list[list[Arrays]], tokens: int) -> list[_Option]:
    """Every column (and direction) of every branch multiplied by M^{-1}, with the price in log-weight."""
    found = []
    for sheet in sheets:
        count = len(sheet.columns)
        right = [*sheet.columns, *[column for direction in sheet.directions for column in direction]]
        log_det = np.zeros(())
        for matrix in matrices:
            right, own = solve_columns(matrix, right)
            log_det = log_det + own
        weight = -count * log_det + (0.0 if sheet.log_weight is None else sheet.log_weight)
        rest = right[count:]
        directions = [rest[i * count : (i + 1) * count] for i in range(len(sheet.directions))]
        found.append(_Option(right[:count], weight, directions))
    return found


def size(matrices: list[list[Arrays]], tokens: int) -> np.ndarray:
    """How large M makes a field of order one: the product of the root mean square rows of its factors."""
    total = np.ones(())
    for matrix in matrices:
        total = total * np.sqrt(sum(entry * entry for row in matrix for entry in row) / tokens)
    return total


def solve_columns(matrix: list[Arrays], columns: Columns) -> tuple[Columns, np.ndarray]:
    """(matrix^{-1} columns, log|det matrix|), elementwise over the arrays; elimination with row exchanges."""
    T = len(matrix)
    if T == 2:
        (a, b), (c, d) = matrix
        det = a * d - b * c
        return [[(d * x - b * y) / det, (a * y - c * x) / det] for x, y in columns], np.log(np.abs(det))
    entries = [entry for line in (*matrix, *columns) for entry in line]
    *solved, log_det = call(f"solve_columns_{T}", entries)
    return [solved[k * T : (k + 1) * T] for k in range(len(columns))], log_det


def combine(options: list[list[_Option]], heads: list[Head], order: list[int], tokens: int) -> Sheets:
    """Every choice of one branch a head; columns in the order of the rows of the fields."""
    solved: list[Arrays] = []
    weights: Arrays = []
    directions: list[list[Arrays]] = []
    for choice in itertools.product(*options):
        groups = [g for option, head in zip(choice, heads, strict=True) for g in _groups(option.columns, head)]
        solved.append(_ordered(groups, order))
        weights.append(sum((option.log_weight for option in choice), np.zeros(())))
        moving = []
        zero = np.zeros(())
        for number, option in enumerate(choice):
            for direction in option.directions:
                parts: list[Columns] = []
                for other, head in enumerate(heads):
                    own = direction if other == number else [[zero] * tokens for _ in choice[other].columns]
                    parts += _groups(own, head)
                moving.append(_ordered(parts, order))
        directions.append(moving)
    return Sheets(solved, weights, directions)


def _groups(columns: Columns, head: Head) -> list[Columns]:
    """The columns of each field that a head is solved for."""
    rank = int(head.fields[0].shape[0])
    return [columns[i : i + rank] for i in range(0, len(columns), rank)]


def _ordered(groups: list[Columns], order: list[int]) -> Arrays:
    return [value for i in order for column in groups[i] for value in column]
