"""Numbers of things, in words."""

from __future__ import annotations


def counted(number: int, one: str, several: str = "") -> str:
    """ "1 sheet", "2 sheets"; several: the plural, where it is not the singular and an s."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def of_units(number: int, several: str) -> str:
    """ "1 cavity", "2 cavities"; several: the plural of the unit, "" where there is none."""
    one = several.removesuffix("ies") + "y" if several.endswith("ies") else several.removesuffix("s")
    return counted(number, one.replace("pairs of", "pair of"), several) if several else ""
