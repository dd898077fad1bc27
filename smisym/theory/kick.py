"""Vanishing side information: where it goes from a fixed point that is unstable in what is not learned yet.

It is a small start along the unstable direction.  Where that shrinks to nothing again, the map of this scramble rests
at the fixed point, whatever the estimate of its derivative says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smisym.link.symmetry import Symmetry
from smisym.theory.linearised import UNSTABLE, Local, idle, positive

# First overlap along an unstable direction.
KICK = 0.02
# Share of a kick below which it has died out.
_GONE = 0.02


@dataclass
class Left:
    """A fixed point that a kick left: where it was settled, the step still to make there, and the kick.

    start, kick (P, P): what was kept of its overlap, and what was added.  which (k,): the coordinates that were kicked.
    """

    here: Local
    step: np.ndarray
    start: np.ndarray
    kick: np.ndarray
    which: np.ndarray

    def came_back(self, here: Local, symmetry: Symmetry) -> bool:
        """Whether what was kicked has shrunk to nothing again."""
        new = here.active & self.which
        return bool(new.any() and np.abs(symmetry.coordinates(here.Q)[new]).max() < _GONE * KICK)

    def again(self, before: Left) -> bool:
        """Whether the same kick would be made once more: the iteration came back, but for traces."""
        return bool(np.abs(self.start - before.start).max() < _GONE * KICK and (self.which == before.which).all())


def leaves(here: Local, step: np.ndarray, symmetry: Symmetry) -> Left | None:
    """Where vanishing side information goes from a fixed point, None where it stays.

    Less than a kick counts as not learned: its residual is below any tolerance, whether or not it grows.
    """
    for start in (here.Q, without_traces(here.Q, symmetry)):
        which = ~here.active if start is here.Q else idle(symmetry.basis, start)
        growth, direction = here.growth(which)
        if growth > 1 + UNSTABLE:
            kick = KICK * positive(np.einsum("k,kij->ij", direction, here.units))
            return Left(here, step, start, kick, which)
    return None


def without_traces(Q: np.ndarray, symmetry: Symmetry) -> np.ndarray:
    """An overlap (P, P) without the directions of which less is learned than a kick gives."""
    values, vectors = np.linalg.eigh(Q)
    if not ((values > 0) & (values < KICK)).any():
        return Q
    return symmetry.project((vectors * np.where(values < KICK, 0.0, values)) @ vectors.T)
