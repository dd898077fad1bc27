"""Weak thresholds put back: their fixed points and growth hold on another map, and planted faults do not."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

import smisym
from smisym import SMI, Architecture, Attention, Result
from smisym.theory.put_back import checked
from smisym.theory.stages import staircase

TWO_LAYERS = Architecture(2, (Attention(), Attention()))


def test_what_thresholds_were_held_against_is_told() -> None:
    """The first one, by quadrature, against samples; the second one's fixed point and growth, on fewer points."""
    solution = smisym.weak_recovery(smisym.compile(TWO_LAYERS), samples=4096)
    assert solution.result.ok
    checks = solution.checks
    assert checks["nishimori"]["holds"] and checks["nishimori"]["degrees_of_freedom"] == 7
    for threshold, growth, error in zip(solution.value, checks["growth"], checks["growth_error"], strict=True):
        assert abs(growth) < 5 * math.hypot(error, threshold.error / threshold.alpha)
        assert 0 < error < 0.05
    assert checks["residual"][0] == 0
    assert 0 < checks["residual"][1] < 5 * checks["residual_error"][1] + 1e-4
    said = solution.summary()
    assert "nishimori" in said and "growth" in said and "residual" in said


def test_a_threshold_that_is_off_is_inconsistent() -> None:
    """Alpha, or the overlap there, of another place: growth is not one."""
    omap = smisym.overlap_map(smisym.compile(TWO_LAYERS), samples=1024)
    stages = list(itertools.islice(staircase(omap), 2))
    right = smisym.weak_recovery(omap, quadrature=False).value
    _, codes = checked(omap, list(zip(stages, right, strict=True)))
    assert codes == []
    for number, planted in ((0, {"alpha": 0.3}), (1, {"alpha": 1.5}), (1, {"Q": np.diag([0.0, 0.2])})):
        wrong = [dataclasses.replace(one, **(planted if k == number else {})) for k, one in enumerate(right)]
        checks, codes = checked(omap, list(zip(stages, wrong, strict=True)))
        assert codes == [Result.INCONSISTENT], planted
        assert abs(checks["growth"][number]) > 0.3


def test_what_is_trivial_has_nothing_to_put_back() -> None:
    solution = smisym.weak_recovery(smisym.compile(SMI("z1", 1)), samples=256)
    assert [threshold.kind for threshold in solution.value] == ["trivial"]
    assert solution.checks == {}
    both = smisym.weak_recovery(smisym.compile(SMI(("z1", "z2**2"), 2)), samples=2048)
    assert len(both.checks["growth"]) == len(both.value) - 1 == 1


def test_what_an_arrival_was_held_against_is_told() -> None:
    """Nishimori, and the equation at the highest point of the branch, which is solved to what its noise may leave."""
    solution = smisym.perfect_recovery(smisym.compile(TWO_LAYERS), accuracy=1e-2)
    arrival = solution.value[1]
    assert solution.result.ok and 0 <= arrival.alpha - 1 <= 4 * arrival.error <= 4e-2
    assert solution.checks["nishimori"]["holds"] and 0 < solution.checks["residual"] < 2e-2
    hard = smisym.perfect_recovery(smisym.compile(Architecture(2, (Attention(activation="hardmax"),))))
    assert hard.checks == {} and math.isinf(hard.value[0].alpha)  # by counting alone
