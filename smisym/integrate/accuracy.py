"""The accuracy plan: how a posterior is integrated, how well, and how many of them are affordable.

The only table of accuracy in the house.  A row is looked up by the number of free dimensions and whether the integrand
is smooth; each purpose (one posterior asked for by name, a batch of moments, the overlap map, a threshold integrated
over outputs, the check of a chart) has its column.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

# Methods: a finite sum over sheets; an adaptive lattice, which falls back on sampling over its budget; sampling alone;
# tables from layer to layer.
SUM, LATTICE, SAMPLING, TABLES = "sum", "lattice", "sampling", "tables"


@dataclass(frozen=True)
class Lattice:
    """The adaptive lattice in some dimension: all measured by benchmarks/moments.py, in numbers of evaluations.

    cell: nodes a side of one cell.  steps: of the first level, for a tight and a loose tolerance.  root: cells a side
    of the first level at most.  budget: evaluations that one posterior may cost unless told otherwise.
    """

    cell: int
    steps: tuple[float, float]
    root: int
    budget: int

    def no_coarser_than(self, step: float) -> Lattice:
        """The same with first steps no longer than this one, as far out."""
        tight, loose = (min(own, step) for own in self.steps)
        return replace(self, steps=(tight, loose), root=math.ceil(self.root * self.steps[0] / tight))


@dataclass(frozen=True)
class Box:
    """One lattice of an accelerator.

    side: nodes a side of the whole box.  cell: of one cell, by which what may hold mass is told apart.
    """

    side: int
    cell: int


@dataclass(frozen=True)
class Ball:
    """Lattices in a ball.

    first: step of the first one.  largest: radius of a ball in steps.
    """

    first: float
    largest: float


@dataclass(frozen=True)
class Misled:
    """Models of which the nodes of a lattice may agree on what is not there, in some dimension.

    on_lines, by_lattices: posteriors of its own outputs that are looked at, on lines and by lattices.  finest: the
    shortest step of lattices that those in use are set against.  Of a model that is found to mislead, begin: the
    shortest first step of a lattice; other: from its step to that of the next one, which it must agree with.
    """

    on_lines: int
    by_lattices: int
    finest: float
    begin: float
    other: float


@dataclass(frozen=True)
class Row:
    """How posteriors of one kind are integrated.

    method: SUM, LATTICE, SAMPLING or TABLES.  block: samples integrated together, enough to amortise the interpreter,
    few enough for the cache and for the cells of all of them (10^5 each in four dimensions) to fit in memory. Errors
    aimed at for a mean, in the norm of V^{-1}: moments (of a batch), single (a denoiser asked for by name, worth more
    nodes than the average of many), averaged (in the overlap map; of TABLES the mean of all errors of a block, of which
    those of dear posteriors may be larger), over_outputs (in an integral over y). dearer: how
    many times fewer samples are affordable.  checked: posteriors that the check of a chart takes. measured: where these
    numbers come from.  most: evaluations of a lattice before sampling is tried, where fewer than its budget.
    lattice: its cells and steps, where others than those of its dimension.  rough: where an accuracy is asked for, the
    tolerance over it that averages begin with, and over the usual one at most.  steep: whether posteriors get so dear
    as the tolerance falls that these are refined no further than an answer takes.
    """

    method: str
    block: int
    moments: float
    single: float
    averaged: float
    over_outputs: float
    dearer: int
    checked: int
    measured: str
    most: int | None = None
    lattice: Lattice | None = None
    rough: tuple[float, float] = (2.0, 2.0)
    steep: bool = False


_MOMENTS = "benchmarks/moments.py: what a lattice reaches before its cost doubles for a digit"
_SMOOTH = (
    Row(SUM, 1024, 1e-12, 1e-12, 1e-3, 1e-12, 1, 2048, "exact; the tolerance of the map has no effect"),
    Row(LATTICE, 1024, 1e-8, 1e-8, 1e-3, 1e-7, 1, 1024, _MOMENTS),
    Row(
        LATTICE,
        4096,
        1e-6,
        1e-10,
        1e-2,
        1e-6,
        1,
        512,
        f"{_MOMENTS}; two layers on two tokens: 1e-2 leaves 1e-4 in E, 1e-1 5e-4 at three quarters of the cost",
        rough=(50.0, 10.0),
    ),
    Row(LATTICE, 256, 1e-5, 1e-7, 3e-2, 1e-2, 4, 256, f"{_MOMENTS}; posteriors cost 10 to 30 times as much"),
    Row(LATTICE, 32, 1e-3, 1e-3, 3e-2, 1e-2, 8, 64, f"{_MOMENTS}; posteriors cost up to 300 times as much"),
    Row(SAMPLING, 1024, 1e-2, 1e-2, 3e-2, 1e-2, 8, 32, "benchmarks/moments.py: a tenth of a second a posterior"),
)
# Where sheets have edges, or outputs are discrete, a lattice converges slowly.
_ROUGH = tuple(
    replace(row, moments=1e-2, single=1e-2, averaged=3e-2)
    if row.method == SUM
    else replace(row, method=SAMPLING, moments=1e-2, single=1e-2, averaged=3e-2, dearer=8, checked=32)
    for row in _SMOOTH
)
# Kinks and jumps where there is mass, as of expressions under noise: a lattice converges like a power of its step, and
# its error is honest, which that of sampling is not where a few fields in one sheet's tail belong to another.
_KINKS = "tests/posterior/test_pieces.py: kinks cost 1 ms a posterior on two fields, jumps 30 ms"
_BROKEN = tuple(
    row
    if row.method != LATTICE
    else replace(row, moments=1e-3, single=1e-4, averaged=1e-3, checked=64, measured=_KINKS)
    if row is _SMOOTH[1]
    else replace(
        row,
        moments=3e-2,
        single=1e-2,
        averaged=3e-2,
        dearer=max(row.dearer, 4),
        checked=64,
        measured=_KINKS,
        most=10**6,
    )
    for row in _SMOOTH
)
# Several directions in closed form, as of untied heads of rank two: residuals are many and change fast, and smaller
# cells have tighter bounds.  Of 24 posteriors at an overlap of one half a million evaluations leave half above 1e-2.
_ALONG = replace(
    _SMOOTH[3],
    dearer=8,
    checked=32,
    lattice=Lattice(2, (0.6, 0.65), 16, 3 * 10**6),
    most=3 * 10**6,
    measured="benchmarks/families.py: untied, rank 2, T = 3",
)
# By the dimensions of the first fields alone: each node of the lattice meets all columns of its sample, so that small
# cells, fewer nodes where there is nothing, cost less than they save.
_CHAIN = "benchmarks/moments.py: three layers on two tokens"
_CHAINED = tuple(
    Row(method, 256, 1e-3, 1e-4, 2e-2, 1e-2, 4, 256, _CHAIN, most, lattice)
    for method, most, lattice in (
        (SUM, None, None),
        (LATTICE, 2000, Lattice(4, (0.4, 0.5), 64, 2000)),
        (LATTICE, 10**4, Lattice(2, (0.5, 0.6), 24, 10**4)),
    )
)
# Rows in more dimensions: lattices in the shape of rows and of columns.
_CROSSED = Row(LATTICE, 64, 1e-2, 1e-2, 3e-2, 1e-2, 16, 16, "benchmarks/moments.py: three layers on three tokens")
# A network that is all tables: its dimensions count by their number alone.
_TABLED = Row(
    TABLES, 256, 1e-2, 1e-3, 5e-3, 1e-2, 4, 64, "benchmarks/moments.py; at 2e-2 the sentinel saw it on four layers",
    rough=(6.0, 20.0), steep=True,
)  # fmt: skip
# Finitely many fields, from hundreds of starts each: 40 to 60 ms on three and four tokens.
SEARCHED = replace(
    _SMOOTH[0], dearer=8, checked=64, measured="docs/architectures.md: sequence output, two layers, T = 3"
)
# On a box that is cut down sample by sample, in numpy: 3 to 15 ms at 0.1, which is off by 1e-3 on average.
BOXED = replace(
    _SMOOTH[2],
    block=256,
    moments=1e-3,
    single=1e-4,
    averaged=0.1,
    over_outputs=1e-2,
    dearer=8,
    checked=64,
    measured="two layers of extensive rank on two tokens, at five overlaps, against 1e-5",
)
# Frames in closed form: at any tolerance they are known to 1e-9.
FRAMED = replace(_SMOOTH[3], block=1024, averaged=1e-3, dearer=1, measured="benchmarks/moments.py: tied, rank 3, T = 5")
# By the dimensions of rows that all samples share: what their lattices reach in seconds for a thousand outputs.
_ROWS = "benchmarks/solvers.py first"
_SHARED = tuple(
    Row(SUM, 4096, moments, single, averaged, over_outputs, 1, 256, _ROWS)
    for moments, single, averaged, over_outputs in (
        (1e-8, 1e-10, 1e-2, 1e-9),
        (1e-8, 1e-10, 1e-2, 1e-9),
        (1e-8, 1e-10, 1e-2, 1e-9),
        (1e-6, 1e-7, 1e-2, 1e-7),
        (1e-3, 1e-4, 1e-2, 1e-5),
        (1e-2, 1e-2, 3e-2, 1e-3),
    )
)
LATTICES = {
    1: Lattice(8, (0.4, 0.5), 64, 10**5),
    2: Lattice(4, (0.4, 0.6), 12, 8 * 10**6),
    3: Lattice(4, (0.5, 0.65), 8, 10**6),
    4: Lattice(2, (0.6, 0.7), 12, 10**6),
}
# One after the other, each closer around the mass, before the adaptive lattice takes over.  Measured on a processor, by
# the share of posteriors of the overlap map that boxes resolve (benchmarks/boxes.py); speed on an accelerator was not.
BOXES = {
    1: (Box(64, 8), Box(256, 8)),
    2: (Box(32, 4), Box(64, 4), Box(128, 4)),
    3: (Box(16, 4), Box(32, 4), Box(64, 4)),
    4: (Box(12, 2),),
}
# Before the adaptive lattice: measured by benchmarks/moments.py.  None in one dimension, where the phase of the one
# sublattice may hide what it misses: of 1024 posteriors of an untied head one missed twice what was stated.
BALLS = {
    2: Ball(1.0, 40.0),
    3: Ball(1.0, 24.0),
}
# In one dimension steps as short as was found, beyond as few posteriors take; no step of a pair shares a part of the
# other's period.  Measured with outputs that oscillate by tests/model/test_resolving.py.
MISLED = {
    1: Misled(64, 512, finest=0.0, begin=0.0, other=0.8),
    2: Misled(32, 128, finest=0.1, begin=0.16, other=0.6),
    3: Misled(16, 16, finest=0.25, begin=0.3, other=0.75),
    4: Misled(8, 8, finest=0.35, begin=0.4, other=0.85),
}
# Of their lattices: tolerances that are looked at and evaluations of a posterior; how many of a posterior may be set
# against one another until two agree.
MISLED_AT, MISLED_BUDGET, UNTIL_TWO_AGREE = (1e-2, 1e-3), 2 * 10**5, 4
# Points a direction and shell, beyond a ball, that tell of mass there where coordinates are not whitened fields: of
# models in general, and of those that mislead.
ALONG, BEYOND = 6, 128
# Largest change of a residual from one node to the next, in standard deviations, in a resolved cell; and up to which
# nothing at all is missed.
RESOLVED, STILL = 2.5, 0.5
# Sublattices, of one and two dimensions, all of which may miss nothing by chance.
FEW = 3
# Tolerance from which on the first step of a lattice is the loose one.
LOOSE = 3e-3
# Evaluations that one sampled posterior may cost unless told otherwise.
SAMPLED_BUDGET = 2**17
# Most points of a lattice over an output of two or three coordinates, which is made finer until a threshold rests:
# where posteriors are integrated one by one, and where they share their rows.
OUTPUTS = {2: 8000, 3: 24000}
SHARED_OUTPUTS = {2: 8000, 3: 40000}
# Gauss-Hermite nodes a side by the number of fields of one term of a sum, and quasi-random points beyond.  For a
# softmax of two tokens these leave 2e-4 in the second derivatives, relative to the largest.
TERMS = {1: 40, 2: 20, 3: 12}
TERMS_BEYOND = 2**11
# Error aimed at by GAMP where the moments of a batch are finer: averaged over samples it reaches the estimate far below
# its fluctuations.
GAMP = 1e-3
# Samples of one evaluation of the overlap map, and of one threshold, where posteriors cost little; scrambles of both;
# points of one scramble of a map that only finds the way.
SAMPLES, THRESHOLD_SAMPLES, SCRAMBLES, SCOUT_POINTS = 8192, 65536, 8, 1024


def plan(free: int, smooth: bool, broken: bool = False, summed: int = 0, tabled: bool = False, along: int = 0) -> Row:
    """The row of posteriors with so many free dimensions, of which integrands sum over some, or all, by themselves;
    ``tabled``: layer by layer; ``along``: directions beside that are integrated in closed form."""
    if tabled:
        return _TABLED
    if summed and summed == free:
        return _SHARED[min(free, len(_SHARED) - 1)]
    if summed:
        return _CHAINED[free - summed] if free - summed < len(_CHAINED) else _CROSSED
    if smooth and free == 3 and along > 2:
        return _ALONG
    rows = _ROUGH if not smooth else _BROKEN if broken else _SMOOTH
    return rows[min(free, len(rows) - 1)]
