"""Intervals of a Solution: Student's t from its statistical error alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import smisym
from smisym import InputError, Result, Solution


def test_intervals_hold_the_mean_of_a_normal_law_as_often_as_they_say() -> None:
    rng, mean, many = np.random.default_rng(0), 1.5, 4000
    draws = rng.normal(mean, 2.0, (many, 8))
    of = Solution(draws.mean(axis=1), Result.SUCCESS, draws.std(axis=1, ddof=1) / np.sqrt(8), degrees_of_freedom=7)
    for confidence in (0.5, 0.95):
        low, high = of.interval(confidence)
        share = np.mean((low <= mean) & (mean <= high))
        assert abs(share - confidence) < 4 * np.sqrt(confidence * (1 - confidence) / many)
    low, high = of.interval()
    np.testing.assert_allclose((high - low) / 2, stats.t.ppf(0.975, 7) * of.statistical_error)


def test_the_interval_of_a_fixed_point_is_that_of_its_overlap() -> None:
    found = smisym.state_evolution(smisym.compile(smisym.SMI("z1", 1, noise=0.5)), 1.0, samples=256, scrambles=4)
    low, high = found.interval()
    assert (low <= found.value.Q).all() and (found.value.Q <= high).all()


def test_what_has_no_error_is_its_own_interval_and_what_has_several_none() -> None:
    assert Solution(2.0, Result.SUCCESS).interval() == (2.0, 2.0)
    with pytest.raises(InputError, match="errors of its parts"):
        Solution((1.0, 2.0), Result.SUCCESS, 0.1).interval()
    for wrong in (0.0, 1.0, 95.0, float("nan"), "all"):
        with pytest.raises(InputError, match="confidence"):
            Solution(2.0, Result.SUCCESS, 0.1, degrees_of_freedom=7).interval(wrong)  # type: ignore[arg-type]
