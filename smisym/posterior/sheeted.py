"""The level set behind a cut, sheet by sheet, at points of its coordinates, of many samples or of one."""

from __future__ import annotations

import numpy as np

from smisym.base.remembered import Remembered
from smisym.charts import LevelSet
from smisym.kernels.expanding import NotWrittenOut, expanded
from smisym.kernels.numba_code import compiled_program
from smisym.kernels.straight_line import StraightLine

# Nodes a side of the lattice in a box, by its dimension.
SIDE = {1: 48, 2: 20}


class Sheeted:
    """The level set of the shallower network at its coordinates: all late fields, sheet by sheet.

    u (S, K): outputs.  whitening (S, n, n): L^{-1} of the late rows given the early ones.
    """

    def __init__(self, level_set: LevelSet, tokens: int, u: np.ndarray, whitening: np.ndarray) -> None:
        self.level_set, self.tokens, self.u, self.whitening = level_set, tokens, u, whitening
        self.dim = len(level_set.free_rows) * tokens
        rows = len(level_set.free_rows) + len(level_set.solved_rows)
        place = [row * tokens + t for row in (*level_set.free_rows, *level_set.solved_rows) for t in range(tokens)]
        self.place, self.entries = np.array(place), rows * tokens
        self.program = _expanded(level_set)

    def at(self, index: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mixed late fields (S, n, B N) and log-weights (S, B N) at nodes (S, c, N), one sheet after the other."""
        S, c, N = nodes.shape
        u = [value[:, None] for value in self.u[index].T]
        sheets = self.level_set.solve([nodes[:, k] for k in range(c)], [], u)
        B = len(sheets.solved)
        fields, weight = np.empty((S, self.entries, B, N)), np.empty((S, B, N))
        for b, solved in enumerate(sheets.solved):
            for k, value in enumerate([*np.moveaxis(nodes, 1, 0), *solved]):
                fields[:, self.place[k], b] = value
            weight[:, b] = sheets.log_weight[b if len(sheets.log_weight) > 1 else 0]
        return _without_what_is_not(fields.reshape(S, self.entries, B * N), weight.reshape(S, B * N))

    def of_one(self, sample: int, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same for one sample, (n, B N) and (B N,) at nodes (c, N)."""
        found = None if self.program is None else compiled_program(self.program, self.dim)
        if found is None or self.program is None:
            fields, weight = self.at(np.array([sample]), nodes[None])
            return fields[0], weight[0]
        B, solved, N = self.level_set.branches, self.entries - self.dim, nodes.shape[1]
        out = np.empty((len(self.program.outputs), N))
        found(np.ascontiguousarray(nodes), np.ascontiguousarray(self.u[sample]), out)
        fields = np.empty((self.entries, B, N))
        fields[self.place[: self.dim]] = nodes[:, None]
        fields[self.place[self.dim :]] = out[: B * solved].reshape(B, solved, N).transpose(1, 0, 2)
        weight = np.broadcast_to(out[B * solved :], (B, N)).reshape(1, -1).copy()
        fields, weight = _without_what_is_not(fields.reshape(1, self.entries, -1), weight)
        return fields[0], weight[0]

    def reach(self, index: np.ndarray, fields: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far the whitened mixed fields move within half a step of each node of a lattice, and the largest
        log-weight there; (S, B N) each, from what :meth:`at` gives at the nodes of a box."""
        S, c, side = len(index), self.dim, SIDE[self.dim]
        whitened = np.einsum(
            "spq,sqn->spn", self.whitening[index], fields.reshape(S, -1, self.tokens * fields.shape[2])
        )
        lattice = whitened.reshape(S, self.entries, -1, *(side,) * c)
        most = weight.reshape(S, -1, *(side,) * c)
        moved = np.zeros_like(most)
        for a in range(c):
            size = np.sqrt((np.diff(lattice, axis=3 + a) ** 2).sum(axis=1))
            ahead, behind = _sides(most.ndim, 2 + a)
            larger = np.zeros_like(most)
            larger[behind] = size
            larger[ahead] = np.maximum(larger[ahead], size)
            moved += 0.5 * larger
            wider = most.copy()
            wider[ahead] = np.maximum(wider[ahead], most[behind])
            wider[behind] = np.maximum(wider[behind], most[ahead])
            most = wider
        return moved.reshape(S, -1), most.reshape(S, -1)


def _expanded(level_set: LevelSet) -> StraightLine | None:
    """The program of a chart as arithmetic alone; None where it has none."""
    if level_set.program is None:
        return None
    try:
        return _EXPANDED.get(id(level_set), lambda: (level_set, expanded(level_set.program)))[1]  # type: ignore[arg-type]
    except NotWrittenOut:
        return None


# With the charts that they are of: an id alone may be taken again by another chart.
_EXPANDED: Remembered[tuple[LevelSet, StraightLine]] = Remembered(64)


def _without_what_is_not(fields: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points that a sheet does not have have weight zero; fields (S, n, N), log-weights (S, N)."""
    weight[~np.isfinite(weight) | ~np.isfinite(fields).all(axis=1)] = -np.inf
    fields[~np.isfinite(fields)] = 0.0
    return fields, weight


def _sides(ndim: int, axis: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """All but the first and all but the last along an axis."""
    ahead, behind = [slice(None)] * ndim, [slice(None)] * ndim
    ahead[axis], behind[axis] = slice(1, None), slice(None, -1)
    return tuple(ahead), tuple(behind)
