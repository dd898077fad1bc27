"""Where a map with more samples begins: at what one with fewer has found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smisym.prior import remaining
from smisym.theory.fixed_point import solve
from smisym.theory.kick import KICK
from smisym.theory.maps import OverlapMap
from smisym.theory.point import Point

# What scrambles have left to learn, as logarithms, within which they agree; else the factor of it by which a start on a
# map of more samples stays below where the lowest rested.  The most of a direction that is taken over.
_CLOSE, _BELOW, _MOST_KNOWN = 0.25, 1.03, 0.99
# How far apart projectors on what is known may be that are the same.
_SAME = 1e-6


def closer(omap: OverlapMap, before: Sequence[Point], tol: float) -> list[Point]:
    """The points of a map with more samples at the same alpha, from those of one with fewer.

    Begun at their mean where all agree, which each has reached from nothing.  Else below the lowest of them, from where
    vanishing side information goes on to the lowest fixed point above: none between is passed unseen
    (:mod:`smisym.theory.between`).
    """
    lowest = min(before, key=lambda point: float(np.trace(point.Q)))
    start = None
    if all(point.at is not None for point in before):
        start = _taken_over(omap, np.mean([point.Q for point in before], axis=0))
        if not _agree(before, start):
            start = _taken_over(omap, lowest.Q, _BELOW)
    points: list[Point] = omap.each(lambda r: solve(omap, r, lowest.alpha, Q=start, tol=tol))
    return points


def _agree(points: Sequence[Point], Q: np.ndarray) -> bool:
    """Whether all know the same directions perfectly and have left about as much of the others as Q (P, P) does."""
    V, known = remaining(Q), [point.known for point in points]
    if not alike(known) or known[0].any() or not all(point.result.ok for point in points):
        return False
    ratios = [np.linalg.eigvals(np.linalg.solve(V, remaining(point.Q))).real for point in points]
    return bool(np.abs(np.log(ratios)).max() < _CLOSE)


def _taken_over(omap: OverlapMap, Q: np.ndarray, more_left: float = 1.0) -> np.ndarray:
    values, vectors = np.linalg.eigh(Q)
    # Less than a kick counts as nothing: what is unstable there is kicked again.
    values = np.where(values < KICK, 0.0, np.clip(1 - more_left * (1 - values), 0.5 * values, _MOST_KNOWN))
    return omap.model.symmetry.project((vectors * values) @ vectors.T)


def alike(known: Sequence[np.ndarray]) -> bool:
    """Whether all scrambles know the same directions perfectly; projectors (P, P)."""
    return bool(np.ptp(known, axis=0).max() <= _SAME)
