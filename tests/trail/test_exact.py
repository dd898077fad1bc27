"""Numbers of overlaps as documents write them."""

from __future__ import annotations

import math

import pytest
import sympy as sp

from smisym.trail.notation import exact


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (-3 / 7, "-3/7"),
        (1 / math.sqrt(3), "sqrt(3)/3"),
        (math.cos(math.pi / 8) ** 2, "sqrt(2)/4 + 1/2"),
        (math.cos(math.pi / 8) * math.sin(math.pi / 8), "sqrt(2)/4"),
        (math.cos(3 * math.pi / 5), "1/4 - sqrt(5)/4"),
    ],
)
def test_numbers_that_are_known_are_written_so(value: float, written: str) -> None:
    assert exact(value) == sp.parse_expr(written)


def test_a_number_of_nobody_stays_what_it_is() -> None:
    """cos(pi/7) solves a cubic equation, e none; both are written in fifteen digits."""
    for value in (math.cos(math.pi / 7), math.e, 2.4142135623730951 * math.pi):
        assert isinstance(exact(value), sp.Float)
        assert abs(float(exact(value)) - value) < 1e-14 * value
