"""Moments of orthogonal matrices of two rows against sums over angles, and slopes."""

from __future__ import annotations

import numpy as np
import pytest

from smisym.integrate.rotations_of_two import turned_two

SIZES = (0.0, 1e-9, 0.1, 1.0, 5.0, 30.0)
COUNT = 600


def matrices(n: int, size: float) -> np.ndarray:
    return size * np.random.default_rng(3).standard_normal((n, 2, 2))


@pytest.mark.parametrize("size", SIZES)
def test_sums_over_angles_say_the_same(size: float) -> None:
    """The trapezoid rule of a period, which is exact but for rounding."""
    angle = 2 * np.pi * np.arange(COUNT) / COUNT
    turn = np.moveaxis(np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]), -1, 0)
    both = np.concatenate([turn, turn * [1.0, -1.0]])
    for A in matrices(5, size):
        found = turned_two(A[None], 0.0)
        exponent = np.einsum("ai,nai->n", A, both)
        weight = np.exp(exponent - exponent.max())
        assert found.log_norm[0] == pytest.approx(np.log(weight.sum() / COUNT) + exponent.max(), abs=1e-13 * (1 + size))
        weight /= weight.sum()
        assert np.abs(np.einsum("n,nai->ai", weight, both) - found.mean[0]).max() < 1e-13
        second = np.einsum("n,nai,nbj->aibj", weight, both, both, optimize=True)
        assert np.abs(second - found.second[0]).max() < 1e-13


def test_what_is_nearly_known_keeps_its_digits() -> None:
    """At s = 1e6 the angle varies by 1 / (s_1 + s_2), to first order in it."""
    found = turned_two(np.diag([3e6, 2e6])[None], 0.0)
    assert found.second[0, 0, 1, 0, 1] * 5e6 == pytest.approx(1, abs=1e-6)
    assert found.second[0, 0, 1, 1, 0] * 5e6 == pytest.approx(-1, abs=1e-6)
