"""Fixed points of all scrambles at one alpha, what is idle there, and where two such looks have it begin to grow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smisym.theory.growth import class_rate
from smisym.theory.maps import OverlapMap
from smisym.theory.point import Point


@dataclass
class Look:
    """Fixed points of all scrambles at one alpha, with only the stage's blocks learned, and what is idle there.

    rates (R, c, c): alpha times the derivative of E among idle blocks.
    """

    omap: OverlapMap
    alpha: float
    points: list[Point]
    rates: np.ndarray

    def growth(self, members: Sequence[int]) -> np.ndarray:
        """(R,) of one class."""
        return np.array([class_rate(rates, members) for rates in self.rates])

    def mean(self, members: Sequence[int]) -> float:
        return max(float(self.growth(members).mean()), 1e-300)


def root_of_means(low: Look, high: Look, members: list[int]) -> float:
    """The alpha at which the mean growth of a class is one, by a line through both looks in logarithms."""
    f0, f1 = math.log(low.mean(members)), math.log(high.mean(members))
    return math.exp(math.log(low.alpha) - f0 / (f1 - f0) * math.log(high.alpha / low.alpha))


def roots(low: Look, high: Look, members: list[int]) -> np.ndarray:
    """(R,) alphas at which a class has growth one, by a line through both looks in logarithms, scramble by scramble."""
    x0, x1 = math.log(low.alpha), math.log(high.alpha)
    f0, f1 = (np.log(np.maximum(look.growth(members), 1e-300)) for look in (low, high))
    slope = (f1 - f0) / (x1 - x0)
    # A scramble whose rates happen not to rise is read off with the slope of all.
    mean = (math.log(high.mean(members)) - math.log(low.mean(members))) / (x1 - x0)
    slope = np.where(slope > 0.2 * mean, slope, mean)
    if mean <= 0:
        return np.full(len(f0), high.alpha)
    return np.exp(0.5 * (x0 + x1) - 0.5 * (f0 + f1) / slope)
