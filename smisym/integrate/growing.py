"""Cells beyond the ball that a lattice begins with, for as long as there is mass at its border.

How far mass reaches is told by a few points (:func:`smisym.integrate.modes.radius_of_mass`): where the coordinates are
those of an output and not whitened fields, as around a level set, it may reach farther.  What lies there no finer
lattice would find, and the sublattices would agree without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from smisym.integrate.cells import Cells, Sums

# How often cells are added around those at the border, at most.
_ROUNDS = 200
# Of Sums what there is of each cell; all else is of runs of cells.
_OF_CELLS = "bound", "change", "peak", "cut"


# Many parameters: the cells, what is known of their posteriors, and how others are summed.
def grown(
    cells: Cells,
    sums: Sums,
    radius: np.ndarray,
    width: np.ndarray,
    floor: np.ndarray,
    depth: float,
    room: float,
    evaluate: Callable[[Cells], Sums],
) -> tuple[Cells, Sums, np.ndarray]:
    """Cells and sums with those beyond the ball that hold mass, and which posteriors (S,) are cut all the same.

    radius, width (S,): of the ball and of one cell.  floor (S,): log f under which there is no mass; depth: how far
    under a maximum that is met beyond.  room: cells that each may have.
    """
    rim = _far(cells, width) > radius[cells.owner]
    edge = Cells(cells.owner[rim], cells.corner[rim])
    hot = sums.peak[rim].max(axis=1) > floor[edge.owner]
    cut = np.zeros(len(radius), dtype=bool)
    if not hot.any():
        return cells, sums, cut
    parts, totals, known = [cells], [sums], _Known(cells)
    count, floor = np.bincount(cells.owner, minlength=len(radius)), floor.copy()
    for _ in range(_ROUNDS):
        new = known.without(_around(Cells(edge.owner[hot], edge.corner[hot]), radius, width))
        more = np.bincount(new.owner, minlength=len(radius))
        cut |= count + more > room
        new = Cells(new.owner[~cut[new.owner]], new.corner[~cut[new.owner]])
        if not new.owner.size:
            break
        count += more
        known.add(new)
        found = evaluate(new)
        parts.append(new)
        totals.append(found)
        np.maximum.at(floor, found.owner, found.top - depth)
        edge, hot = new, found.peak.max(axis=1) > floor[new.owner]
    else:
        cut[edge.owner[hot]] = True
    return *_joined(parts, totals), cut


def _far(cells: Cells, width: np.ndarray) -> np.ndarray:
    """(C,) distance of the farthest corner of each cell."""
    return np.asarray(np.linalg.norm(np.abs(cells.corner + 0.5) + 0.5, axis=1) * width[cells.owner])


def _around(cells: Cells, radius: np.ndarray, width: np.ndarray) -> Cells:
    """Neighbours of cells that lie beyond the ball, some more than once."""
    moves = np.array(list(itertools.product((-1, 0, 1), repeat=cells.corner.shape[1])))
    owner, corner = np.repeat(cells.owner, len(moves)), (cells.corner[:, None] + moves).reshape(-1, moves.shape[1])
    near = np.where(corner < 0, corner + 1, corner)
    beyond = np.linalg.norm(near, axis=1) * width[owner] >= radius[owner]
    return Cells(owner[beyond], corner[beyond])


class _Known:
    """Cells that were met, as sorted runs of one number each: whatever is added meets few and short ones."""

    def __init__(self, first: Cells) -> None:
        self.reach = int(np.abs(first.corner).max(initial=0)) + _ROUNDS + 1
        self.runs: list[np.ndarray] = []

    def _numbers(self, cells: Cells) -> np.ndarray:
        numbers = cells.owner.astype(np.int64)
        for column in cells.corner.T:
            numbers = numbers * (2 * self.reach + 1) + (column + self.reach)
        return numbers

    def without(self, cells: Cells) -> Cells:
        """Those of these cells that were not met, each once, by owner."""
        numbers, first = np.unique(self._numbers(cells), return_index=True)
        new = np.ones(len(numbers), dtype=bool)
        for run in self.runs:
            place = np.minimum(np.searchsorted(run, numbers), len(run) - 1)
            new &= run[place] != numbers
        return Cells(cells.owner[first[new]], cells.corner[first[new]])

    def add(self, cells: Cells) -> None:
        own = np.sort(self._numbers(cells))
        while self.runs and len(self.runs[-1]) < 2 * len(own):
            own = np.sort(np.concatenate([self.runs.pop(), own]), kind="stable")
        if len(own):
            self.runs.append(own)


def _joined(parts: list[Cells], totals: list[Sums]) -> tuple[Cells, Sums]:
    """All cells, and all sums, by owner."""
    owner, corner = (np.concatenate([getattr(one, name) for one in parts]) for name in ("owner", "corner"))
    order, runs = (np.argsort(who, kind="stable") for who in (owner, np.concatenate([one.owner for one in totals])))
    joined: dict[str, Any] = {}
    for field in fields(Sums):
        values = [getattr(one, field.name) for one in totals]
        order_of = order if field.name in _OF_CELLS else runs
        joined[field.name] = None if values[0] is None else np.concatenate(values)[order_of]
    return Cells(owner[order], corner[order]), Sums(**joined)
