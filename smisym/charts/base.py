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

from smisym.derivation import Step
from smisym.link import LinkFunction, Observation

# Kinds of latent coordinates, which run over the real line in the integrator's variable x: any real number with a flat
# measure (sinh x), any positive number with a flat measure (exp x), and x itself with the measure dx, for charts
# that bring a weight of their own which is negligible beyond |x| = 5.
LINE, SCALE, FLAT = "line", "scale", "flat"
Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of y on its image.

    values
        (S, n).
    relative_error
        (S,) how far rounding of y may have moved them, relative to their size.
    """

    values: np.ndarray
    relative_error: np.ndarray


@dataclass(frozen=True)
class Sheets:
    """The level set at given free fields and latent coordinates, branch by branch.

    solved
        For each branch, len(solved_rows) * T arrays, row by row.
    log_weight
        For each branch, or once for all, the log of |det d(solved, directions)/d(u, flat coordinates)|: the measure on
        the level set against which the Gaussian of the fields is integrated; factors that depend on y alone may be
        left out.
    directions
        For each branch, the vectors (like ``solved``) along which the fields may move freely, with a flat measure on
        their coefficients; none in most charts.
    """

    solved: list[Arrays]
    log_weight: Arrays
    directions: list[list[Arrays]] = field(default_factory=list)


@dataclass(frozen=True)
class LevelSet:
    """A chart: everything about "which fields give this y".

    free_rows, solved_rows
        Rows of Z that are free coordinates, and rows that are functions of them; a partition of the rows.
    branches
        How many sheets there are.
    dimension
        K, number of independent coordinates of y.
    coordinates
        Observation -> :class:`Coordinates`; checks that y lies in the image (InputError otherwise).
    solve
        (free, latent, u) -> :class:`Sheets`: ``free`` len(free_rows) * T arrays row by row, ``latent`` one array each,
        ``u`` the coordinates of y, all broadcasting.
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
    shared
        Whether several sheets hold the same points, with weights that add up to the one of the level set.
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
    shared: bool = False


@dataclass(frozen=True)
class Refusal:
    """Why a rule does not apply, in one sentence."""

    reason: str


Rule = Callable[[LinkFunction], LevelSet | Refusal]
