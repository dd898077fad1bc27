"""Fixed points of the mean map from one evaluation near it: what the step misses, and what it says of that."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import smisym
from smisym import SMI
from smisym.base.solution import mean_and_error
from smisym.theory.at_once import fixed_point_near
from smisym.theory.fixed_point import solve
from smisym.theory.maps import OverlapMap


@cache
def retrieval() -> OverlapMap:
    return smisym.overlap_map(smisym.compile(SMI("abs(z1)", 1)), samples=2**13, scrambles=8, seed=3)


@cache
def by_scramble(omap: OverlapMap, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """(mean, its standard error) of the scrambles' fixed points, each solved for."""
    found = mean_and_error(np.array([solve(omap, r, alpha, tol=1e-5).Q for r in range(omap.scrambles)]))
    return np.asarray(found[0]), np.asarray(found[1])


@pytest.mark.parametrize("alpha", [0.52, 0.6, 0.7])
@pytest.mark.parametrize("off", [0.75, 0.9, 1.15, 1.4])
def test_one_step_to_a_small_overlap(alpha: float, off: float) -> None:
    """From as far off as a rough map may be: within what is stated, and closer by than Newton's step, which is off by
    its square over the overlap."""
    omap = retrieval()
    exact, spread = by_scramble(omap, alpha)
    assert exact[0, 0] < 0.25
    found = fixed_point_near(omap, off * exact, alpha, omap.samples, 1e-6, most=1)
    assert found is not None
    _, told = found
    missed = abs(told.value.Q - exact)[0, 0]
    # The scrambles' own fixed points have a mean that is not that of the mean map, by their variance over the overlap.
    noise = spread[0, 0] ** 2 / exact[0, 0] + 0.05 * spread[0, 0]
    assert missed <= told.deterministic_error[0, 0] + noise
    if alpha <= 0.6:
        assert missed < 0.5 * (off - 1) ** 2 * exact[0, 0] / min(off, 1) + noise
    if abs(off - 1) < 0.2:
        assert told.statistical_error[0, 0] > 0.6 * spread[0, 0]


def test_more_evaluations_leave_less() -> None:
    omap = retrieval()
    exact, _ = by_scramble(omap, 0.6)
    once, often = (fixed_point_near(omap, 1.4 * exact, 0.6, omap.samples, 1e-6, most=most) for most in (1, 3))
    assert once is not None and often is not None
    assert often[1].deterministic_error.max() < 0.5 * once[1].deterministic_error.max()
