"""Where the fixed points of all alphas are, as a map of few points has its branch.

From there one evaluation of a map of many points tells them (:mod:`smisym.theory.at_once`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from smisym.prior import remaining
from smisym.theory.branch import followed
from smisym.theory.crossing import between
from smisym.theory.growth import class_rate
from smisym.theory.maps import OverlapMap
from smisym.theory.rung import rough_map
from smisym.theory.stage import BEGUN, Stage
from smisym.theory.stages import staircase

# What is left of everything where the branch is followed no further, and its points at most.
_LEFT, _MOST = 1e-2, 60


class Guesses:
    """Overlaps by alpha along the branch of a map of few points.

    stages: lists of (alpha, overlap (P, P)), from where one threshold is met to where the next one is."""

    def __init__(self, stages: Sequence[Sequence[tuple[float, np.ndarray]]], samples: int) -> None:
        self.stages, self.samples = stages, samples

    @classmethod
    def of(cls, omap: OverlapMap, last: float = math.inf) -> Guesses:
        """Those up to the alpha ``last``: no threshold is looked for beyond."""
        look, met = rough_map(omap), list[Stage]()
        for stage in staircase(omap, roughly=True):
            if stage.alpha >= last:
                break
            met.append(stage)
            if _rests_until(look, stage, last):
                break
        ends = [stage.alpha for stage in met[1:]] + [last]
        return cls([_passed(look, stage, end) for stage, end in zip(met, ends, strict=True)], look.samples)

    def at(self, alpha: float) -> np.ndarray | None:
        """About the fixed point at alpha; None where the branch does not tell."""
        for points in reversed(self.stages):
            if points and points[0][0] < alpha:
                for low, high in itertools.pairwise(points):
                    if low[0] < alpha <= high[0]:
                        return between(low, high, alpha)
                return None
        return None


def _rests_until(look: OverlapMap, stage: Stage, last: float) -> bool:
    """Whether a stage's branch rises to the alpha ``last`` before anything idle grows there.

    The search for the next stage goes along the same points: they are evaluated once.
    """
    if stage.trivial or math.isinf(last):
        return False
    symmetry, before = look.model.symmetry, stage.alpha
    idle = np.flatnonzero(~stage.active[symmetry.parts])
    way = followed(look, stage.beginning(symmetry, BEGUN), stage.alpha, stage.upwards(symmetry))
    for number, point in enumerate(itertools.islice(way, _MOST)):
        if (number and point.alpha < before) or (len(idle) and class_rate(point.rates(idle), range(len(idle))) >= 1):
            return False
        if point.alpha >= last:
            return True
        before = point.alpha
    return False


def _passed(look: OverlapMap, stage: Stage, end: float) -> list[tuple[float, np.ndarray]]:
    """From a stage's beginning to where the next one begins (alpha), or next to nothing is left."""
    points = [(stage.alpha, stage.Q)]
    if stage.trivial:
        return points
    symmetry = look.model.symmetry
    way = followed(look, stage.beginning(symmetry, BEGUN), stage.alpha, stage.upwards(symmetry))
    for point in itertools.islice(way, _MOST):
        points.append((point.alpha, point.Q))
        learned = symmetry.span(stage.active)
        most = np.linalg.eigvalsh(learned @ remaining(point.Q) @ learned)[-1]
        if point.alpha >= end or most < _LEFT:
            break
    return points
