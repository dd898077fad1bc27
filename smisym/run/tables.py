"""Tables and lines on stdout, no wider than the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

NARROW = 80  # columns where stdout is not a terminal


def say(text: str) -> None:
    """A line for people, broken at the width of the terminal."""
    Console(width=_width()).print(text, markup=False, highlight=False)


def print_table(head: Sequence[str], lines: Sequence[Sequence[str]], folded: Sequence[str] = ()) -> None:
    """A table no wider than the terminal, or than 80 columns; cells of ``folded`` columns break between their items."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for k, name in enumerate(head):
        words = [word for line in lines for word in line[k].split()] if name in folded else [line[k] for line in lines]
        table.add_column(name, no_wrap=name not in folded, min_width=max(map(len, [name, *words])))
    for line in lines:
        table.add_row(*line)
    Console(width=_width(), markup=False, highlight=False).print(table)


def print_wide(groups: Sequence[Sequence[str]], columns: Mapping[str, Sequence[str]], first: str) -> None:
    """Columns in one table where they fit, else each group in its own, again split where that is too wide.

    columns: cells by name.  first: the column that every table begins with.
    """
    every = [name for group in groups for name in group]
    shown = 0
    for group in [every] if _fits([first, *every], columns) else groups:
        rest = list(group)
        while rest:
            count = next((n for n in range(len(rest), 1, -1) if _fits([first, *rest[:n]], columns)), 1)
            names, rest = [first, *rest[:count]], rest[count:]
            if shown:
                Console().print()
            shown += 1
            print_table(names, list(zip(*(columns[name] for name in names), strict=True)))


def _fits(names: Sequence[str], columns: Mapping[str, Sequence[str]]) -> bool:
    # A blank before and behind every cell, and one between.
    return sum(max(map(len, [name, *columns[name]])) + 3 for name in names) - 1 <= _width()


def _width() -> int:
    """Columns of the terminal; of what is no terminal 80, which fits whatever it is read in."""
    return Console().width if sys.stdout.isatty() else NARROW
