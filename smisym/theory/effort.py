"""How many samples a model's posteriors allow where nobody says, and which numbers there can be: the accuracy plan,
asked for a model; and which overlaps maps have."""

from __future__ import annotations

from typing import Any

import numpy as np

from smisym.base.edge import check_count, check_memory
from smisym.base.errors import InputError
from smisym.integrate.accuracy import SCOUT_POINTS, SCRAMBLES
from smisym.model.compiled import Model

# Samples and scrambles where each sample tells all of E: the other estimators of it are still held against that.
ALIKE, ALIKE_SCRAMBLES = 16, 2
# Change of an overlap by symmetries that is rounding.
_CHANGED = 1e-9
# What fixed points are solved to then, beside what is left to learn: nothing else is between them and the exact ones.
EXACT = 1e-11


def affordable(model: Model, samples: int) -> int:
    """``samples``, or as many as cost about the same patience where posteriors cost more."""
    if model.channel.posterior.alike:
        return min(samples, ALIKE)
    return samples // model.channel.plan.dearer


def usual_scrambles(model: Model) -> int:
    """Scrambles where nobody says: as few as can be where all of them tell the same."""
    return ALIKE_SCRAMBLES if model.channel.posterior.alike else SCRAMBLES


def scout_points(model: Model) -> int:
    """Points of one scramble of a map that only finds the way."""
    return SCOUT_POINTS // min(model.channel.plan.dearer, 4)


def check_points(samples: Any, scrambles: Any, model: Model) -> tuple[int, int]:
    """(samples, scrambles), or InputError unless each of at least two scrambles has a power of two of them.

    And unless the points of all, with the posterior covariances of one, fit in the memory of the machine.
    """
    samples, scrambles = check_count("samples", samples, 1), check_count("scrambles", scrambles, 2)
    points, left = divmod(samples, scrambles)
    if left or points < 2 or points & (points - 1):
        below = max(2, 1 << max(points, 1).bit_length() - 1)
        raise InputError(
            "samples, scrambles",
            (samples, scrambles),
            "samples / scrambles a power of two, at least two",
            f"use samples={below * scrambles} or samples={2 * below * scrambles} with scrambles={scrambles}",
        )
    size = model.fields * model.tokens
    needed = 8 * (2 * size * samples + size**2 * points)
    check_memory("samples", f"{samples} of {size} fields", needed, "lower it, for example to samples=65536", whole=True)
    return samples, scrambles


def check_invariant(model: Model, Q: np.ndarray) -> None:
    """InputError where the symmetries of the model change an overlap (..., P, P): maps have those alone that they leave
    as they are, as every fixed point is that state evolution reaches."""
    off = float(np.abs(model.symmetry.project(Q) - Q).max())
    if off > _CHANGED:
        raise InputError(
            "Q",
            f"an overlap that the symmetries of the model change by {off:.2g}",
            "one that they leave as it is",
            "pass model.symmetry.project(Q), where entries that they rule out are zero and equal ones the same",
        )
