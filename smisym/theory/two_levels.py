"""Estimates by rough posteriors at all points and fine ones at a few of them.

What tolerance posteriors are integrated to changes their averages by little, and alike from point to point: of three
layers on two tokens, at Q = (0.17, 0, 0.987), the rate of what is not learned yet is 5e-3 too high at 3e-2, known to
8e-4 from 1024 points, where the rate itself is known to 2.4e-2; posteriors at 3e-3 cost five times as much.  So many
points take the rough tolerance, few of them the fine one as well, and the difference is added: a mean of two levels
(Giles, Operations Research 56, 607).
"""

from __future__ import annotations

import numpy as np

from smisym.link.symmetry import Symmetry
from smisym.theory.estimate import Estimate

# Of how many points one is integrated to both tolerances, and the least number of them.
_FEWER, _LEAST = 32, 32
# What the difference is added to: means over points.
_MEANS = ("three", "raw", "gap", "beside")
# Negative eigenvalue of E, beside its largest, that is rounding.
_ROUNDING = 1e-10


def few_of(points: int) -> int:
    """Points of one scramble that are integrated to both tolerances, of so many."""
    return min(max(points // _FEWER, _LEAST), points)


def of_two_levels(symmetry: Symmetry, rough: Estimate, before: Estimate, after: Estimate) -> Estimate:
    """rough: at all points; before, after: at a few of them, to the same tolerance and to a finer one.

    Rough posteriors are a little off Nishimori's identities, and what stands on them as controls is off with them: the
    difference takes as much of the controls' differences as the mean over all points took of the controls.
    """
    change = {name: getattr(after, name) - getattr(before, name) for name in _MEANS}
    gaps = symmetry.matrix((rough.gains * change["gap"]).sum(axis=0))
    means = {name: getattr(rough, name) + change[name] for name in _MEANS}
    means["white"] = rough.white + change["three"][0] - gaps
    means["slope"] = means["raw"] if not len(rough.shares) else rough.slope + change["raw"]
    means["slope"] = means["slope"] - np.einsum("k,kpaqb->paqb", change["gap"][0][: len(rough.shares)], rough.shares)
    values = np.linalg.eigvalsh(means["white"])
    if values[0] < -_ROUNDING * values[-1]:
        means["white"] = means["three"][0].copy()
    for array in means.values():
        array.flags.writeable = False
    return Estimate(
        rough.Q,
        **means,
        shares=rough.shares,
        gains=rough.gains,
        log_partition=rough.log_partition + after.log_partition - before.log_partition,
        # As of independent draws: of three layers, at four overlaps, what scrambles scatter by, noise of the few points
        # included, was at most 1.1 times that, and half of it as a rule.
        gap_error=rough.gap_error,
        # What may still be wrong is what the fine ones say of themselves.
        unclear=after.unclear,
        inner_error=after.inner_error,
        accurate=rough.accurate and after.accurate,
    )
