"""Intervals of a Solution: Student's t from its statistical error alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import smisym
from smisym import InputError, Result, Solution
from smisym.base.errors import NotConverged
from smisym.base.solution import mean_and_error, short


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


def test_a_summary_tells_what_there_is_and_no_more() -> None:
    plain = Solution(2.0, Result.SUCCESS)
    assert plain.summary() == "value   2\nresult  success: converged"
    assert plain.raise_if_failed() is plain
    full = Solution(
        np.eye(2), Result.MAX_STEPS, 0.1, np.full(2, 0.01), 7, ({"step": 0},), {}, {"again": np.full(2, 0.01)}
    )
    lines = full.summary().splitlines()
    assert lines[0] == "value   [[1, 0], [0, 1]]"
    assert lines[1] == "error   0.1 (one standard error, 7 degrees of freedom)"
    assert lines[2].startswith("        [0.01, 0.01] (left of the equation")
    assert lines[3].startswith("result  max_steps: ") and lines[4:] == [
        "history 1 records"
    ]  # the check is told already
    with pytest.raises(NotConverged, match="largest number"):
        full.raise_if_failed()


def test_values_are_told_in_one_short_line() -> None:
    many = np.linspace(0, 1, 100)
    said = {
        "array (100,), from 0 to 1": many, "[1, 2, 3, 4, 5, 6, 7, 8, ...]": range_of(9), "{a: None, b: success}":
        {"a": None, "b": Result.SUCCESS}, "True": True, "a text": "a text", "range(0, 3)": range(3),
    }  # fmt: skip
    assert {short(value): None for value in said.values()}.keys() == said.keys()
    assert len(short("a" * 1000)) == 200 and short("a" * 1000).endswith("...")


def range_of(count: int) -> list[int]:
    return list(range(1, count + 1))


def test_one_scramble_says_nothing_of_its_error() -> None:
    mean, error = mean_and_error(np.array([[1.0, 2.0]]))
    assert mean.tolist() == [1.0, 2.0] and np.isinf(error).all()
    mean, error = mean_and_error(np.array([1.0, 3.0]))
    assert (mean, error) == (2.0, 1.0)
