"""Functions of one float in compiled loops: thirty digits, the ends of the range of floats, and what is no number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from numba import njit

from smisym.kernels import scalars


@njit
def one_by_one(function: Any, x: np.ndarray, out: np.ndarray) -> None:
    for k in range(len(x)):
        out[k] = function(x[k])


def applied(function: Any, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    one_by_one(function, x, out)
    return out


RNG = np.random.default_rng(0)
WIDE = np.exp(RNG.uniform(-700, 700, 400))
# name: points, the function in many digits, its largest error in units of the last place
EXACT: dict[str, tuple[np.ndarray, Callable[[Any], Any], float]] = {
    "exp": (np.r_[RNG.uniform(-708, 709, 400), RNG.standard_normal(400)], mp.exp, 1.01),
    "log": (np.r_[WIDE, 1 + 1e-3 * RNG.standard_normal(400), 5e-324, 1e-310], mp.log, 1.01),
    "log1p": (np.r_[WIDE, -np.exp(RNG.uniform(-40, 0, 400))], mp.log1p, 3.0),
    "weight": (RNG.uniform(-699, 0, 400), mp.exp, 3.0),
}


@pytest.mark.parametrize("name", EXACT)
def test_against_thirty_digits(name: str) -> None:
    x, exact, ulps = EXACT[name]
    found = applied(getattr(scalars, name), x)
    with mp.workdps(30):
        error = [float(abs(mp.mpf(a) - exact(mp.mpf(b)))) for a, b in zip(found, x, strict=True)]
    assert (np.array(error) <= ulps * np.spacing(np.abs(found))).all()


@pytest.mark.parametrize("name", ["exp", "log", "log1p", "sign"])
def test_ends_of_the_range_are_those_of_numpy(name: str) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, -1.0, 800.0, -800.0, 1e308, 5e-324])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(applied(getattr(scalars, name), x), getattr(np, name)(x), rtol=1e-15)


def test_a_weight_that_adds_nothing_is_zero() -> None:
    np.testing.assert_array_equal(applied(scalars.weight, np.array([-701.0, -np.inf, np.nan, 0.0])), [0.0, 0.0, 0.0, 1])


@pytest.mark.parametrize("name", ["maximum", "minimum", "logaddexp"])
def test_functions_of_two(name: str) -> None:
    function = getattr(scalars, name)

    @njit
    def pairwise(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        for k in range(len(a)):
            out[k] = function(a[k], b[k])

    special = [0.0, 1.0, -3.0, 700.0, -np.inf, np.inf, np.nan]
    a, b = (grid.ravel() for grid in np.meshgrid([*special, *RNG.standard_normal(9)], special))
    out = np.empty_like(a)
    pairwise(a, b, out)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(out, getattr(np, name)(a, b), rtol=2e-15)


def test_the_largest_and_the_smallest() -> None:
    @njit
    def both(x: np.ndarray, start: int, count: int) -> tuple[float, float]:
        return scalars.largest(x, start, count), scalars.smallest(x, start, count)

    for count in (1, 2, 7, 16, 61):
        x = RNG.standard_normal(80)
        x[5] = -np.inf
        assert both(x, 3, count) == (x[3 : 3 + count].max(), x[3 : 3 + count].min())
