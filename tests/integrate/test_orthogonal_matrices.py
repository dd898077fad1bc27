"""What moments of orthogonal matrices of two, three and four rows have in common, by whichever integrals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from smisym.integrate.rotations import Turned, turned
from smisym.integrate.rotations_of_four import turned_four
from smisym.integrate.rotations_of_two import turned_two

Moments = Callable[[np.ndarray, float], Turned]
# By the rows: how moments are found, to what slopes agree with differences, and what rounding of the log adds to that.
WAYS: dict[int, tuple[Moments, float, float]] = {
    2: (turned_two, 1e-11, 4e-15),
    3: (turned, 1e-10, 1e-15),
    4: (turned_four, 1e-10, 4e-15),
}
# The largest takes trapezoid rules where smaller ones take Gauss's.
CASES = [(rows, size) for rows in WAYS for size in (0.0, 1e-9, 0.1, 1.0, 5.0, 30.0)] + [(2, 1e4), (4, 300.0)]


def matrices(n: int, rows: int, size: float) -> np.ndarray:
    return size * np.random.default_rng(3).standard_normal((n, rows, rows))


@pytest.mark.parametrize(("rows", "size"), CASES)
def test_rows_are_orthonormal_to_rounding(rows: int, size: float) -> None:
    found = WAYS[rows][0](matrices(20, rows, size), 1e-9)
    assert np.abs(np.einsum("naibi->nab", found.second) - np.eye(rows)).max() < 1e-14
    assert np.abs(np.einsum("naiaj->nij", found.second) - np.eye(rows)).max() < 1e-14


@pytest.mark.parametrize(("rows", "size"), CASES)
def test_moments_are_slopes_of_the_log_of_the_integral(rows: int, size: float) -> None:
    moments, allowed, rounding = WAYS[rows]
    A, step = matrices(6, rows, size), 1e-4 * np.random.default_rng(5).standard_normal((6, rows, rows))
    here, ahead, behind = (moments(B, 1e-12) for B in (A, A + step, A - step))
    change = ahead.log_norm - behind.log_norm
    assert np.abs(change - 2 * np.einsum("nai,nai->n", here.mean, step)).max() < allowed + rounding * size
    covariance = here.second - np.einsum("nai,nbj->naibj", here.mean, here.mean)
    moved = np.einsum("naibj,nbj->nai", covariance, 2 * step)
    assert np.abs(ahead.mean - behind.mean - moved).max() < allowed
