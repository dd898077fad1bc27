"""Numbers of things, in words."""

from __future__ import annotations


def counted(number: int, one: str, several: str = "") -> str:
    """ "1 sheet", "2 sheets"; several: the plural, where it is not the singular and an s."""
    return f"{number} {one if number == 1 else several or one + 's'}"
