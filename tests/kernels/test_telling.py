"""Whoever waits for a compiler is told of how many lines, before it begins and once."""

from __future__ import annotations

from smisym.kernels.numba_code import load, telling


def test_lines_are_told_before_a_module_is_made_and_never_again() -> None:
    told: list[int] = []
    source = "# Of this test alone.\n\nVALUE = 3\n"
    with telling(told.append):
        made = load(source)
        again = load(source)
    assert made.VALUE == 3 and again is made
    # Without loops there is no machine code, by which a process that comes after would know it.
    assert told == [3]


def test_nothing_is_told_outside() -> None:
    told: list[int] = []
    with telling(told.append):
        pass
    load("# Of the other test.\nVALUE = 4\n")
    assert told == []
