"""What a chart is, and what a rule that finds one returns.

A level set {Z : f(Z) = y} is described by free fields (rows of Z that are simply free), branches,
and the remaining rows solved as functions of the free ones and of a few coordinates of y.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from smisym.derivation import Step
from smisym.link import LinkFunction, Observation


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of y on its image.

    values
        (S, K).
    relative_error
        (S,) how far rounding of y may have moved them, relative to their size.
    """

    values: np.ndarray
    relative_error: np.ndarray


@dataclass(frozen=True)
class LevelSet:
    """A chart: everything about "which fields give this y".

    free_rows, solved_rows
        Rows of Z that are free coordinates, and rows that are functions of them; a partition of the rows.
    branches
        (n_branches, len(solved_rows)) signs: branch b is the solved fields times row b.
    dimension
        K, number of coordinates of y.
    coordinates
        Observation -> :class:`Coordinates`; checks that y lies in the image (InputError otherwise).
    solve
        (free, u) -> (solved, log_weight): ``free`` a list of len(free_rows) * T arrays row by row, ``u`` a list of K
        arrays, all broadcasting; ``solved`` a list of len(solved_rows) * T arrays; ``log_weight`` is the log of
        |det d(solved)/du| at fixed free fields.  The log-partition is the log density of u (both branches summed).
    steps
        The derivation, with what was verified.
    """

    rule: str
    free_rows: tuple[int, ...]
    solved_rows: tuple[int, ...]
    branches: np.ndarray
    dimension: int
    coordinates: Callable[[Observation], Coordinates]
    solve: Callable[[list[np.ndarray], list[np.ndarray]], tuple[list[np.ndarray], np.ndarray]]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Refusal:
    """Why a rule does not apply, in one sentence."""

    reason: str


Rule = Callable[[LinkFunction], LevelSet | Refusal]
