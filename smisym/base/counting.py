"""Numbers of things, in words."""

from __future__ import annotations

import re


def counted(number: int, one: str, several: str = "") -> str:
    """ "1 sheet", "2 sheets"; several: the plural, where it is not the singular and an s."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def of_units(number: int, several: str) -> str:
    """ "1 cavity", "1 pair of maps", "2 fields, 8 maps"; several: the plural of the unit and what follows it, or ""."""
    found = re.match(r"([\w ]+?)(ies|s)\b(.*)", several)
    if found is None:
        return f"{number} {several}" if several else ""
    stem, plural, rest = found.groups()
    return f"{number} {stem}{plural if number != 1 else 'y' if plural == 'ies' else ''}{rest}"
