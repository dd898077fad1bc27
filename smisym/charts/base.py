"""What a chart is, and what a rule that finds one returns.

A level set {Z : f(Z) = y} is described by free fields (rows of Z that are simply free), latent coordinates that are no
fields (angles, scales), branches, and the remaining rows solved as functions of these and of a few coordinates of y.
Where the solved rows are affine in some further coordinates with a flat measure, these are left to the channel, which
integrates them in closed form: the chart hands over their directions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from smisym.base.counting import counted
from smisym.base.derivation import Step
from smisym.base.errors import InputError
from smisym.charts.reading import Reading
from smisym.kernels.straight_line import StraightLine
from smisym.link.linking import LinkFunction, Observation

# Kinds of latent coordinates, which run over the real line in the integrator's variable x: any real number with a flat
# measure (sinh x), any positive number with a flat measure (exp x), and x itself with the measure dx, for charts
# that bring a weight of their own, of which little is beyond |x| = 5: how far it counts is looked for.
LINE, SCALE, FLAT = "line", "scale", "flat"
Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Fault:
    """Samples whose y is no output of the model: which (S,), and what is wrong with the first of them."""

    which: np.ndarray
    error: InputError


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of y on its image.

    values
        (S, n).
    relative_error
        (S,) how far rounding of y may have moved them, relative to their size.
    faults
        What lies outside of the image; its values mean nothing.
    """

    values: np.ndarray
    relative_error: np.ndarray
    faults: tuple[Fault, ...] = ()

    @property
    def read(self) -> np.ndarray:
        """(S,) whether y was read: false outside of the image."""
        outside = np.zeros(len(self.values), dtype=bool)
        for fault in self.faults:
            outside |= fault.which
        return ~outside

    def checked(self) -> Coordinates:
        """The same, or the InputError of the first fault."""
        for fault in self.faults:
            raise fault.error
        return self

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: slice | np.ndarray) -> Coordinates:
        """The same for some of the samples."""
        faults = tuple(Fault(fault.which[index], fault.error) for fault in self.faults if fault.which[index].any())
        return Coordinates(self.values[index], self.relative_error[index], faults)


@dataclass(frozen=True)
class Sheets:
    """The level set at given free fields and latent coordinates, branch by branch.

    solved
        For each branch, len(solved_rows) * T arrays, row by row.
    log_weight
        For each branch, or once for all, the log of ``|det d(solved, directions)/d(u, flat coordinates)|``: the
        measure on the level set against which the Gaussian of the fields is integrated; factors that depend on y alone
        may be left out.
    directions
        For each branch, the vectors (like ``solved``) along which the fields may move freely, with a flat measure on
        their coefficients; none in most charts.
    """

    solved: list[Arrays]
    log_weight: Arrays
    directions: list[list[Arrays]] = field(default_factory=list)


@dataclass(frozen=True)
class Unfolding:
    """How the level sets of all outputs together fill the space of the fields: what noise on the output needs.

    K independent numbers v in R^K take the place of the coordinates u of one output.  As v runs over R^K, and the free
    fields, the latent coordinates, the directions and the branches over all they may be, every Z is met equally often.

    size
        K.
    flips
        Patterns (n, K) of signs, the first all ones: a Z that is met at v is met at v * flip for each of them, and
        nowhere else.
    embed
        From v, K arrays, to the coordinates u that ``solve`` takes; None where they are the same.
    log_weight
        From v to what the log-weight of the chart lacks to be that of the fields themselves,
        log |det dZ/d(free, latents, directions, v)|: the factors that depend on y alone.  None where it lacks nothing.
    """

    size: int
    flips: np.ndarray
    embed: Callable[[Arrays], Arrays] | None = None
    log_weight: Callable[[Arrays], np.ndarray] | None = None


@dataclass(frozen=True)
class Frame:
    """All fields in terms of a frame: Z^T = C F + 1 d^T, C (T, vectors) the coordinates u of the output, row by row.

    rank
        Rows of Z.
    vectors
        How many orthonormal rows F has, of ``rank`` entries, with Haar's measure.
    shifts
        Dimensions of d, which is any vector orthogonal to F, with a flat measure.
    sheets
        On how many sheets the frames are; log_mass is that of the latent coordinates of one.
    """

    rank: int
    vectors: int
    shifts: int
    sheets: int
    log_mass: float


@dataclass(frozen=True, repr=False)
class LevelSet:
    """A chart: everything about "which fields give this y".

    rule
        The name of the rule that found it, in words, as derivations and ``repr`` of a Model show it.
    free_rows, solved_rows
        Rows of Z that are free coordinates, and rows that are functions of them; a partition of the rows.
    branches
        How many sheets there are.
    dimension
        K, number of independent coordinates of y.
    coordinates
        Observation -> :class:`Coordinates`, with a fault for every y that does not lie in the image.
    solve
        (free, latent, u) -> :class:`Sheets`: ``free`` len(free_rows) * T arrays row by row, ``latent`` one array each,
        ``u`` the coordinates of y, all broadcasting.  The numpy form of ``program`` where there is one.
    program
        The same as a straight-line program, which any backend can compile (:mod:`smisym.charts.programs`); None for a
        chart that is numpy code alone, as of a rule of one's own.  It is forgotten where ``solve`` is not the function
        that was made of it (``solve.program``): another ``solve`` would else be asked for in part, by numpy alone.
    latents
        Kind of each latent coordinate: LINE, SCALE or FLAT.
    directions
        How many directions each sheet has.
    density
        Whether ``u`` are K independent coordinates of y in which the log-partition is a density: then averages over y
        can be integrals over u.
    smooth
        Whether weights are smooth functions of the coordinates, so that a lattice converges fast; else they are
        sampled.
    kinked
        Whether weights vanish along a surface that the coordinates cross, with a kink: a lattice then converges like a
        power of its step.
    ended
        Whether sheets may end where fields are: what lies between the last node on a sheet and its end no bound tells,
        so that maxima are looked for.
    shared
        Whether several sheets hold the same points, with weights that add up to the one of the level set.
    complete
        Whether ``u`` are K independent coordinates of y and ``log_weight`` leaves nothing out: it is that of the fields
        against du.  ``density`` says that and more.
    unfolding
        How the charts of all outputs fill the fields, for integrals around the level set under noise; None where the
        rule does not say, and coordinates of the image are found numerically (:mod:`smisym.posterior.around_image`).
        For these ``log_weight`` must be that of the whole level set where latent coordinates are small, on each sheet
        by itself, unless it is ``complete``.
    pieces
        Whether sheets differ in how many of their coordinates count (an output that is constant on some pieces): the
        co-area formula, which is of one dimension, is then not asked for.
    bordered
        Whether fields may be likely far out in the latent coordinates, where no bound on the weight says how far:
        errors then hold what the border of a lattice has.
    linear
        Whether all fields are linear in ``u`` and in the coefficients of the directions, without a weight.
    spread
        Directions (len(latents), fields * tokens), orthonormal, that the latent coordinates are coefficients of, where
        they are such, whatever y is.
    frame
        That all fields are given by a frame, and by which; None where they are not.
    registered
        Whether a rule of one's own found it (:func:`smisym.register_chart`); ``compile`` says so.
    reading
        What ``coordinates`` does, as data from which code that stands by itself is written; None where a rule does not
        say.
    steps
        The derivation, with what was verified.
    """

    rule: str
    free_rows: tuple[int, ...]
    solved_rows: tuple[int, ...]
    branches: int
    dimension: int
    coordinates: Callable[[Observation], Coordinates]
    solve: Callable[[Arrays, Arrays, Arrays], Sheets]
    steps: tuple[Step, ...]
    latents: tuple[str, ...] = ()
    directions: int = 0
    density: bool = False
    smooth: bool = True
    kinked: bool = False
    ended: bool = False
    shared: bool = False
    complete: bool = False
    unfolding: Unfolding | None = None
    pieces: bool = False
    bordered: bool = False
    linear: bool = False
    spread: np.ndarray | None = None
    frame: Frame | None = None
    registered: bool = False
    program: StraightLine | None = None
    reading: Reading | None = None

    def __post_init__(self) -> None:
        if getattr(self.solve, "program", None) is not self.program:
            object.__setattr__(self, "program", None)

    def __repr__(self) -> str:
        over = [counted(len(self.free_rows), "free row")] if self.free_rows else []
        over += [counted(len(self.latents), "latent coordinate")] if self.latents else []
        over += [counted(self.directions, "direction")] if self.directions else []
        seen = counted(self.dimension, "number")
        where = f", over {' and '.join(over)}" if over else ""
        return f"<LevelSet: {self.rule}; {counted(self.branches, 'sheet')}{where}; {seen} of the output>"


@dataclass(frozen=True)
class Refusal:
    """Why a rule does not apply, in one sentence."""

    reason: str


def faults(bad: np.ndarray, given: Callable[[int], str], allowed: str, fix: str) -> tuple[Fault, ...]:
    """A fault of the samples that are bad (S,), said of the first one; none where none is."""
    if not bad.any():
        return ()
    sample = int(np.flatnonzero(bad)[0])
    return (Fault(bad, InputError(f"y of sample {sample}", given(sample), allowed, fix)),)


Rule = Callable[[LinkFunction], LevelSet | Refusal]
