"""Posteriors of deep networks on two tokens, layer by layer, in compiled loops: all of a level, sample by sample.

What passes from layer to layer are two numbers of a matrix whose rows sum to a constant s,

    C = s [[1 - q, q], [p, 1 - p]],   x = p / delta,  y = q / delta,  delta = 1 - p - q = 1 / (1 + x + y):

entries of the inverse of C, in which the exponent of what stands behind the last layer is quadratic.  The log of the
integral over all later layers is a function of (x, y), known as a polynomial in their logarithms, sign(x) log(1 + |x|),
on a grid for each sign of delta.  The
text is written for the mixings of a network, from their programs; the rest of it stands in ``chained/``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from smisym.base.backends import NUMBA, backend
from smisym.kernels.numba_code import HEADER, NotCompiled, load, scalar_function
from smisym.kernels.straight_line import StraightLine

# Angle between the axes of a lattice and those of its fields: where functions are steep along lines on which fields
# vanish or agree, as those of attention are, a lattice along the axes has whole rows of nodes on the same side.
TURN = 0.36
# By how many steps a lattice is shifted from line to line of the row before, for the same reason.
SHEAR = (0.3819660112501051, 0.2360679774997897)
# Points whose numbers stay in the cache; loops over them are as long as a multiple of WIDTH, so that none is left to be
# done one by one; states that are summed at once, the last of them more than once where they are no multiple of it.
CHUNK, WIDTH, TOGETHER = 128, 16, 8
# What sums over all nodes miss, from what those over half of them do: FACTOR half^POWER, at most that half (as a
# square root where it is compiled).
FACTOR, POWER = 1.25, 1.5
# Of a layer of one row, at many states: share of half that is the sum over all of them, in which they cancel; true
# errors of three and four layers, c = 0.3, 1 and 3, against it: benchmarks/README.md.
TOGETHER_SHARE = 0.7
# Beyond this, in half widths of its box, a point is outside of it; bins in which shares are counted along one axis; by
# which share of its width a box is drawn wider where there is mass at its end.
EDGE, BINS, REACH = 1.0 + 1e-9, 64, 0.5


# Below this, sums of weights are made anew, relative to the largest of them: above it those that no float holds count
# for nothing.
FAINT = 1e-250


class Given(NamedTuple):
    """S posteriors of K layers of two tokens, B points behind them, n late rows, and the level of each.

    kinds (K,): which mixing each layer has.  starts (K + 1,): of the rows of each.  shares (K,): 1 over what rows of
    its mixing sum to.  scales (K,): what rows of C sum to before it.  flips (K, G, rows): signs of rows that its mixing
    does not see, the first of them all one; signs (K,): how many.  apart (K, rows): rows of which its mixing sees the
    difference of both tokens alone.  creases (K, C): angles in the plane of its mixed
    fields along which its mixing is steep; lines (K,): how many.
    omega (S, E, 2), factor and inverse (S, E, E): mean and Cholesky factor of the early rows.
    points (S, B, n, 2), weight (S, B): late fields mixed, and log-weights.  late (S, n, 2), whitening (S, n, n): their
    mean and the inverse of their factor.
    rules (S, K, 2): nodes in each piece between creases, in the angle and along rays; zeros for a lattice.  legendre
    (N, 4, N): nodes, weights and the two highest polynomials, orthonormal, of Gauss's rule of so many nodes.
    sides (S, K - 1 or 1): nodes along each axis of the table before each layer but the first.  steps (S, K), radius
    (S,): of the lattices, whitened.  floor (S,): least |delta| that a grid reaches to.  least, negligible (S,): share
    beyond the ends that are found for states, and of the largest node that counts for nothing.
    depth (S,): below the largest log of a table, what peaks are drawn around.
    boxes (S, 2, 2 E): ends of whitened fields.  spans (S, K - 1 or 1, 2, 2, 2): ends of states, by sign and coordinate.
    cosines (N, N, N): from values at n nodes to coefficients, in the n-th.
    """

    kinds: np.ndarray
    starts: np.ndarray
    shares: np.ndarray
    scales: np.ndarray
    flips: np.ndarray
    signs: np.ndarray
    apart: np.ndarray
    creases: np.ndarray
    lines: np.ndarray
    omega: np.ndarray
    factor: np.ndarray
    inverse: np.ndarray
    points: np.ndarray
    weight: np.ndarray
    late: np.ndarray
    whitening: np.ndarray
    rules: np.ndarray
    legendre: np.ndarray
    sides: np.ndarray
    steps: np.ndarray
    radius: np.ndarray
    floor: np.ndarray
    least: np.ndarray
    negligible: np.ndarray
    depth: np.ndarray
    boxes: np.ndarray
    spans: np.ndarray
    cosines: np.ndarray


class Found(NamedTuple):
    """What a level says of S posteriors; log_norm is NaN where it says nothing.

    log_norm (S,).  mean (S, D), second (S, D, D) or (0, D, D): of whitened early fields and whitened late ones.
    missed (S, K): what the nodes of each layer miss of the integral.  tables (S, K - 1 or 1): root mean square of what
    the highest degrees of each table say.  far (S, K - 1 or 1): share beyond the box of each table.  border (S, K):
    share within a step of the radius.  outside (S,): share of what the boxes below leave out, by its distance.  nodes
    (S,): evaluations.  boxes, spans: as given, for the next level; peaks, as spans: around the largest values of each
    table; written where it is looked for them.
    """

    log_norm: np.ndarray
    mean: np.ndarray
    second: np.ndarray
    missed: np.ndarray
    tables: np.ndarray
    far: np.ndarray
    border: np.ndarray
    outside: np.ndarray
    nodes: np.ndarray
    boxes: np.ndarray
    spans: np.ndarray
    peaks: np.ndarray


class Work(NamedTuple):
    """Scratch arrays of compiled loops, for one posterior after the other."""

    h: np.ndarray
    features: np.ndarray
    counts: np.ndarray
    dims: np.ndarray
    offsets: np.ndarray
    box: np.ndarray
    wide: np.ndarray
    c: np.ndarray
    x: np.ndarray
    y: np.ndarray
    q: np.ndarray
    shown: np.ndarray
    totals: np.ndarray
    tops: np.ndarray
    states: np.ndarray
    logs: np.ndarray
    message: np.ndarray
    means: np.ndarray
    behind: np.ndarray
    lost: np.ndarray
    off: np.ndarray
    far: np.ndarray
    px: np.ndarray
    py: np.ndarray
    row: np.ndarray
    fine: np.ndarray
    rest: np.ndarray
    w: np.ndarray
    found: np.ndarray
    high: np.ndarray
    r: np.ndarray
    e: np.ndarray
    sums: np.ndarray
    late: np.ndarray
    state: np.ndarray
    half: np.ndarray
    slopes: np.ndarray
    sums_of: np.ndarray
    halves: np.ndarray
    net: np.ndarray
    high_of: np.ndarray
    rough: np.ndarray
    steps: np.ndarray
    later: np.ndarray
    total: np.ndarray
    bins: np.ndarray
    z: np.ndarray
    rooms: np.ndarray
    angles: np.ndarray
    pieces: np.ndarray
    around: np.ndarray
    ends: np.ndarray
    rays: np.ndarray
    cov: bool


def workspace(given: Given, room: int, cov: bool) -> Work:
    """Scratch for posteriors of this size, ``room`` nodes of one layer at most."""
    (layers, (B, n)), d = (given.steps.shape[1], given.points.shape[1:3]), 2 * int(np.diff(given.starts).max())
    side = max(int(given.sides.max()), 2) if layers > 1 else 2
    rows = 2 + d + (4 if d == 2 else 2**d - 1) + (d * (d + 1) // 2 if cov else 0)
    most, kinds = 2 * side * side if layers > 1 else 1, 1 + d if cov else 1
    late, D = 2 * n + (n * (2 * n + 1) + 2 * n * d if cov else 0), 2 * (int(given.starts[-1]) + n)
    many, lines = layers if cov else 0, given.creases.shape[1] + 1
    shapes = {
        "h": (layers, d, room), "features": (layers, rows, room), "box": (layers, 2, 2, 2),
        "c": (layers, 2, side, side),
        "means": (layers, most, rows), "behind": (most, late), "px": (side, CHUNK), "py": (side, CHUNK),
        "q": (ROWS * CHUNK,), "r": (B * 2 * n * CHUNK,), "e": (B * CHUNK,), "tops": (2, TOGETHER),
        "shown": ((1 + 2 * n + (n * (2 * n + 1) if cov else 0)) * CHUNK,), "totals": (rows + late, TOGETHER),
        "sums": (rows,), "late": (late,), "state": (4,),
        "half": (side, side), "slopes": (4, side), "sums_of": (kinds + 4, 2, side, side), "halves": (4, most),
        "net": (2, side, side), "high_of": (side, side), "rough": (layers,),
        "steps": (many, kinds, most, most), "later": (many, most, D), "total": (room,), "bins": (2, 2, BINS), "z": (d,),
        "angles": (lines,), "pieces": (lines + 1, 2), "around": (2,),
        "rays": (7, lines * max(int(given.rules[..., 0].max(initial=0)), 1)),
        **dict.fromkeys(("x", "y", "logs", "message", "lost", "off", "far"), (layers, most)),
        **dict.fromkeys(("row", "fine", "rest", "w", "found", "high"), (CHUNK,)),
    }  # fmt: skip
    whole = {
        "counts": layers, "dims": layers, "offsets": layers + 1, "states": layers, "rooms": layers,
    }  # fmt: skip
    return Work(
        **{name: _aligned(shape) for name, shape in shapes.items()},
        **{name: np.zeros(size, dtype=np.int64) for name, size in whole.items()},
        wide=np.zeros((layers, 2), dtype=np.int64),
        ends=np.zeros((2, 2), dtype=np.int64),
        cov=cov,
    )


def _aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Room for numbers that begins with a line of the cache, so that no vector lies in two of them."""
    size = int(np.prod(shape))
    whole = np.empty(size + 8)
    start = -whole.ctypes.data % 64 // 8
    return whole[start : start + size].reshape(shape)


def examples() -> tuple[Given, Work, Found]:
    """Of the types that compiled loops are written for."""
    one, whole = {n: np.ones((1,) * n) for n in range(1, 6)}, {n: np.ones((1,) * n, dtype=np.int64) for n in (1, 2, 3)}
    given = Given._make((
        whole[1], np.array([0, 1]), one[1], one[1], one[3], whole[1], whole[2], one[2], whole[1], one[3], one[3],
        one[3], one[4], one[2], one[3], one[3], whole[3], one[3], whole[2], one[2], *[one[1]] * 5, one[3], one[5],
        one[3],
    ))  # fmt: skip
    found = Found(one[1], one[2], one[3], one[2], one[2], one[2], one[2], one[1], one[1], one[3], one[5], one[5])
    return given, workspace(given, 1, False), found


# Rows of CHUNK numbers each of scratch for pairs of states and nodes: mixed fields, entries of the mixing, of the
# inverse of C and of C, the inverse of its determinant, that of the mixing's, the weight that both make, the largest
# exponent of the state; two more.
FIELD, MIX, BACK, STATE, OWN, DET, SIZE, TOP, MORE, ROWS = 0, 4, 8, 12, 16, 17, 18, 19, 20, 22

Levels = Callable[[Given, Found, int, bool, bool], None]


def compiled_levels(programs: Sequence[StraightLine]) -> Levels | None:
    """``run(given, found, room, look, cov)`` for networks of these mixings, each a program from the entries of mixed
    fields, row by row, to four entries of A; ``room`` nodes of one layer at most.

    ``look``: whether the next level's boxes and spans are written; ``cov``: whether second moments are.  None for
    numpy, or where a program calls what compiled code does not have.
    """
    if backend().loops != NUMBA:
        return None
    try:
        mixed = _loaded(mixed_source(programs)).mixed
    except NotCompiled:
        return None
    chains = _loaded(levels_source()).chains

    def run(given: Given, found: Found, room: int, look: bool, cov: bool) -> None:
        chains(mixed, given, workspace(given, room, cov), found, look)

    return run


_loaded = cache(load)


def mixed_source(programs: Sequence[StraightLine]) -> str:
    """The text of a module with ``mixed``: entries of a mixing at mixed fields, rows of one array."""
    lines = [
        f"@numba.njit({_MIXED!r}, nogil=True, cache=True, error_model='numpy', fastmath={{'contract'}})",
        "def mixed(kind, count, q):",
    ]
    found = ", ".join(f"q[np.uint64({(MIX + row) * CHUNK}) + k]" for row in range(4))
    for kind, program in enumerate(programs):
        fields = [f"q[np.uint64({(FIELD + row) * CHUNK}) + k]" for row in range(len(program.arguments))]
        lines += [
            f"    if kind == {kind}:",
            "        for k in range(np.uint64(count)):",
            f"            {found} = point{kind}({', '.join(fields)})",
        ]
    points = [scalar_function(program, f"point{kind}") for kind, program in enumerate(programs)]
    return "\n\n\n".join([HEADER, *points, "\n".join(lines)]) + "\n"


_MIXED = "void(int64, int64, float64[::1])"


def levels_source() -> str:
    """The text of a module with ``chains``, the same for all networks."""
    parts = [_without_docstring(Path(__file__).with_name("chained") / f"{name}.py") for name in _PARTS]
    return "\n\n".join([HEADER, _CONSTANTS, *parts])


_PARTS = ("nodes", "grids", "pairs", "endings", "rays", "backward", "lasts", "looks", "forward")
_CONSTANTS = f"""from smisym.kernels.chains import examples

FIRST, OTHER = {SHEAR}
TURN, FACTOR, EDGE, BINS, REACH = {TURN}, {FACTOR}, {EDGE!r}, {BINS}, {REACH}
CHUNK, WIDTH, TOGETHER, FAINT, TOGETHER_SHARE = {CHUNK}, {WIDTH}, {TOGETHER}, {FAINT}, {TOGETHER_SHARE}
# Places without a sign: none of them is counted from the end, which loops would ask.
FIELD, MIX, BACK, STATE, OWN, DET, SIZE, TOP, MORE = (
    np.uint64(row * {CHUNK}) for row in ({FIELD}, {MIX}, {BACK}, {STATE}, {OWN}, {DET}, {SIZE}, {TOP}, {MORE})
)
ROW, ROW2, ROW3 = (np.uint64(row * {CHUNK}) for row in (1, 2, 3))
# Numbers of one type: functions are compiled for constants apart.
FIELDS, MASSES, ALL = np.arange(3)
inner = dict(WITHIN, nogil=True)
options = dict(inner, fastmath={{"contract"}})
# Functions that make arrays.
owning = dict(options, _nrt=True)
reordered = dict(inner, fastmath={{"contract", "reassoc", "nsz"}})
t = numba.types
mixing = t.FunctionType(t.void(t.int64, t.int64, t.float64[::1]))
given_type, work_type, found_type = (numba.typeof(one) for one in examples())
"""


def _without_docstring(path: Path) -> str:
    return path.read_text(encoding="utf-8").split('"""\n', 1)[1].strip() + "\n"
