"""Posteriors of deep networks on two tokens, layer by layer, by values at the nodes of meshes, in compiled loops.

What :mod:`smisym.kernels.chains` has as polynomials on boxes, for layers of one row each whose mixings leave the sign
of delta as it is: here a table is a mesh in a box of any direction, and what stands between its nodes follows from six
times six of them.  An evaluation costs the same however many nodes a mesh has, and creases stay where they are.  The
text is written for the mixings of a network, from their programs; the rest of it stands in ``meshed/``, and what both
ways share in ``chained/``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from smisym.base.backends import NUMBA, backend
from smisym.kernels.chains import CHUNK, ROWS, WIDTH, _aligned, _without_docstring, mixed_source
from smisym.kernels.numba_code import HEADER, NotCompiled, load
from smisym.kernels.straight_line import StraightLine

# Numbers behind a table, which vectors read and do not use.
PADDING = 16
# Least logarithms of 1 + x and 1 + y of nodes: below zero functions go on, up to where delta is singular; and least of
# what these numbers become behind a mixing, times the factor of delta.
LEAST, SMALL = -0.3, 0.02
# Messages and shares that count for nothing.
NOTHING = 1e-9
# Error of a stencil of six nodes, over sixth differences, at most: 2.5^2 1.5^2 0.5^2 / 6!.
SIXTH = 0.0049
# What Gauss's rule misses of a piece: of what the highest degrees of the angle hold, this times the power 5/4 and all
# of it at most, as the share falls off steeply at creases (measured: at most 0.6 of that, with c = 3 and V of a tenth
# and a hundredth; a twentieth in the median); of those along rays the square (at most a twentieth of it).
ACROSS = 4.0
# Nodes in the angle that a piece a tenth as wide needs less; that nodes of a mesh need less, in the angle and along
# rays, times the square of their distance from its middle; and least of both.
NARROWER, FARTHER, SHORTER, FEWEST, SHORTEST = 3.3, 2.0, 1.5, 3, 6


class Mesh(NamedTuple):
    """S posteriors of K layers of one row on two tokens, B points behind them, n late rows, and the level of each.

    kinds, shares, scales (K,), creases (K, C), lines (K,): as in :class:`smisym.kernels.chains.Given`.
    omega (S, K, 2), factor (S, K): mean and deviation of the rows.  points (S, B, n, 2), weight (S, B), late (S, n, 2),
    whitening (S, n, n): as there.
    rules (S, K, 2): nodes in each piece between creases, in the angle and along rays.  legendre (N, 4, N).
    radius (S,): of the discs that rays end at, whitened.  least (S,): of messages around which boxes are drawn.
    sides (S, K - 1, 2): nodes of the meshes.  boxes (S, K - 1, 6): middle of each, and a matrix (2, 2) from the square
    [-1, 1]^2 to log(1 + x), log(1 + y).
    """

    kinds: np.ndarray
    shares: np.ndarray
    scales: np.ndarray
    creases: np.ndarray
    lines: np.ndarray
    omega: np.ndarray
    factor: np.ndarray
    points: np.ndarray
    weight: np.ndarray
    late: np.ndarray
    whitening: np.ndarray
    rules: np.ndarray
    legendre: np.ndarray
    radius: np.ndarray
    least: np.ndarray
    sides: np.ndarray
    boxes: np.ndarray


class Seen(NamedTuple):
    """What a level says of S posteriors; log_norm is NaN where it says nothing.

    log_norm (S,).  mean (S, D), second (S, D, D) or (0, D, D): of whitened early fields and whitened late ones.
    missed (S, K, 2): what the nodes of each layer miss, across angles and along rays.  tables (S, K - 1, 2): root mean
    square of what stencils miss along both axes of a mesh.  far (S, K - 1): share beyond each mesh.  border (S, K):
    share at the end of rays.  nodes (S,): evaluations.  boxes (S, K - 1, 6): around where there is mass.
    """

    log_norm: np.ndarray
    mean: np.ndarray
    second: np.ndarray
    missed: np.ndarray
    tables: np.ndarray
    far: np.ndarray
    border: np.ndarray
    nodes: np.ndarray
    boxes: np.ndarray


class Scratch(NamedTuple):
    """Scratch arrays of compiled loops, for one posterior after the other."""

    state: np.ndarray
    own: np.ndarray
    into: np.ndarray
    angles: np.ndarray
    pieces: np.ndarray
    around: np.ndarray
    rays: np.ndarray
    fan: np.ndarray
    ends: np.ndarray
    by_ray: np.ndarray
    h: np.ndarray
    features: np.ndarray
    value: np.ndarray
    ratio: np.ndarray
    mixed: np.ndarray
    out: np.ndarray
    late: np.ndarray
    q: np.ndarray
    e: np.ndarray
    r: np.ndarray
    w: np.ndarray
    g: np.ndarray
    cells: np.ndarray
    share: np.ndarray
    s: np.ndarray
    t: np.ndarray
    tables: np.ndarray
    messages: np.ndarray
    means: np.ndarray
    behind: np.ndarray
    logs: np.ndarray
    starts: np.ndarray
    states: np.ndarray
    rooms: np.ndarray
    counts: np.ndarray
    cov: bool


def scratch(mesh: Mesh, cov: bool) -> Scratch:
    """For posteriors of this size."""
    S, K = mesh.rules.shape[:2]
    B, n = mesh.points.shape[1:3]
    states = np.ones((S, K), dtype=np.int64)
    states[:, 1:] = mesh.sides.prod(axis=2)
    rooms = (mesh.lines + 1) * mesh.rules.prod(axis=2) + 3 * WIDTH
    room, most = int(rooms.max()), int(states.max())
    points = int((states * rooms).sum(axis=1).max()) + CHUNK
    lines, late = mesh.creases.shape[1] + 1, 2 * n + (n * (2 * n + 1) if cov else 0)
    rays, kept = lines * int(mesh.rules[..., 0].max()) + 16, late + (4 * n if cov else 0)
    shapes = {
        "state": (4,), "own": (2,), "into": (max(K - 1, 1), 6), "angles": (lines,), "pieces": (lines + 1, 2),
        "around": (2,), "rays": (7, rays), "by_ray": (3, rays), "h": (2, room), "features": (7, room),
        **dict.fromkeys(("value", "ratio", "mixed", "out"), (room,)),
        "late": (late, room), "q": (ROWS * CHUNK,), "e": (B * CHUNK,), "r": (B * 2 * n * CHUNK,), "w": (6 * CHUNK,),
        "g": (CHUNK,), "cells": (CHUNK,), **dict.fromkeys(("share", "s", "t"), (points,)),
        "tables": (max(K - 1, 1), most + PADDING), "messages": (K, 1 + (2 * K if cov else 0), most + PADDING),
        "means": (K, most, 9), "behind": (most, kept), "logs": (1,),
    }  # fmt: skip
    found = {name: _aligned(shape) for name, shape in shapes.items()}
    # Vectors read beyond the last node, and what is there must be a number.
    found["tables"][:] = 0.0
    whole = {name: np.zeros(K, dtype=np.int64) for name in ("starts", "states", "rooms")}
    return Scratch(
        **found,
        **whole,
        counts=np.zeros((K, most), dtype=np.int64),
        fan=np.zeros(3, dtype=np.int64),
        ends=np.zeros(lines, dtype=np.int64),
        cov=cov,
    )


def shapes_of_types() -> tuple[Mesh, Scratch, Seen]:
    """Of the types that compiled loops are written for."""
    one, whole = {n: np.ones((1,) * n) for n in range(1, 5)}, {n: np.ones((1,) * n, dtype=np.int64) for n in (1, 3)}
    mesh = Mesh(
        whole[1], one[1], one[1], one[2], whole[1], one[3], one[2], one[4], one[2], one[3], one[3], whole[3], one[3],
        one[1], one[1], whole[3], one[3],
    )  # fmt: skip
    seen = Seen(one[1], one[2], one[3], one[3], one[3], one[2], one[2], one[1], one[3])
    return mesh, scratch(mesh, False), seen


Meshes = Callable[[Mesh, Seen, bool], None]


def compiled_meshes(programs: Sequence[StraightLine]) -> Meshes | None:
    """``run(mesh, seen, cov)`` for networks of these mixings; None for numpy, or where a program calls what compiled
    code does not have."""
    if backend().loops != NUMBA:
        return None
    try:
        mixed = _loaded(mixed_source(programs)).mixed
    except NotCompiled:
        return None
    meshes = _loaded(meshes_source()).meshes

    def run(mesh: Mesh, seen: Seen, cov: bool) -> None:
        meshes(mixed, mesh, scratch(mesh, cov), seen)

    return run


_loaded = cache(load)


def meshes_source() -> str:
    """The text of a module with ``meshes``, the same for all networks."""
    here = Path(__file__).parent
    parts = [_without_docstring(here / folder / f"{name}.py") for folder, name in _PARTS]
    return "\n\n".join([HEADER, _CONSTANTS, *parts])


_PARTS = (
    *(("chained", name) for name in ("grids", "pairs", "endings", "rays")),
    *(("meshed", name) for name in ("places", "fans", "backward", "forward")),
)
_CONSTANTS = f"""from smisym.kernels.meshes import shapes_of_types
from smisym.kernels.stencils import between, shared_out

ACROSS, LEAST, SMALL, NOTHING, SIXTH, PADDING = {ACROSS}, {LEAST}, {SMALL}, {NOTHING}, {SIXTH}, {PADDING}
NARROWER, FARTHER, SHORTER, FEWEST, SHORTEST = {NARROWER}, {FARTHER}, {SHORTER}, {FEWEST}, {SHORTEST}
CHUNK, WIDTH, TOGETHER = {CHUNK}, {WIDTH}, 8
# Places without a sign: none of them is counted from the end, which loops would ask.
FIELD, MIX, BACK, STATE, OWN, DET, SIZE, TOP, MORE = (
    np.uint64(row * {CHUNK}) for row in (0, 4, 8, 12, 16, 17, 18, 19, 20)
)
ROW, ROW2, ROW3, ROW4, ROW5 = (np.uint64(row * {CHUNK}) for row in (1, 2, 3, 4, 5))
FIELDS, MASSES, ALL = np.arange(3)
inner = dict(WITHIN, nogil=True)
options = dict(inner, fastmath={{"contract"}})
# Functions that make arrays.
owning = dict(options, _nrt=True)
reordered = dict(inner, fastmath={{"contract", "reassoc", "nsz"}})
within = dict(inner, fastmath={{"contract"}}, forceinline=True)
t = numba.types
mixing = t.FunctionType(t.void(t.int64, t.int64, t.float64[::1]))
given_type, work_type, found_type = (numba.typeof(one) for one in shapes_of_types())
"""
