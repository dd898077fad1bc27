"""How many samples a model's posteriors allow where nobody says: the accuracy plan, asked for a model."""

from __future__ import annotations

from smisym.integrate.accuracy import SCOUT_POINTS
from smisym.model.compiled import Model


def affordable(model: Model, samples: int) -> int:
    """``samples``, or as many as cost about the same patience where posteriors cost more."""
    return samples // model.channel.plan.dearer


def scout_points(model: Model) -> int:
    """Points of one scramble of a map that only finds the way."""
    return SCOUT_POINTS // min(model.channel.plan.dearer, 4)
