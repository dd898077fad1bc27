"""Numbers of things, in words."""

from __future__ import annotations

import pytest

from smisym.base.counting import of_units


@pytest.mark.parametrize(
    ("number", "several", "words"),
    [
        (1, "cavities", "1 cavity"),
        (2, "cavities", "2 cavities"),
        (1, "fixed points", "1 fixed point"),
        (1, "pairs of maps", "1 pair of maps"),
        (1, "fields, 8 maps", "1 field, 8 maps"),
        (3, "fields, 8 maps", "3 fields, 8 maps"),
        (0, "", ""),
    ],
)
def test_one_of_a_unit_and_several(number: int, several: str, words: str) -> None:
    assert of_units(number, several) == words
