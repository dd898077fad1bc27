"""Results for people at a terminal: tables on stdout, progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from smisym.render import format_with_error

Record = Mapping[str, Any]

WIDE = 200  # columns where stdout is not a terminal: a file has no width to fit


def print_thresholds(document: Record) -> None:
    """One line for each threshold, in the order in which they are met."""
    thresholds = document["thresholds"]
    # Layers alone do not name the fields where one has several rows.
    several = any(len(t["names"]) > len(t["layers"]) or len(t["subspace"][0]) > 1 for t in thresholds)
    shared = several and len({row["layers"][0] for row in thresholds}) < max(len(t["subspace"][0]) for t in thresholds)
    lines = [
        [
            threshold["kind"],
            ", ".join(threshold["names"] if shared and threshold["names"] else map(str, threshold["layers"])),
            _alpha(threshold),
            _diagonal(threshold["Q"]),
        ]
        for threshold in thresholds
    ]
    _print(["threshold", "fields" if shared else "layers", "alpha", "overlaps just below"], lines)


def _alpha(threshold: Record) -> str:
    if threshold["alpha"] is not None:
        return format_with_error(threshold["alpha"], threshold["error"])
    return "∞" if threshold["order"] is None else f"∞ (order {threshold['order']})"


def print_curve(document: Record) -> None:
    """One line for each alpha."""
    points = document["points"]
    size = len(points[0]["Q"])
    head = ["alpha", *(f"Q_{i + 1}{i + 1}" for i in range(size))]
    head += ["Bayes error", "plug-in error", "free entropy", "result"]
    lines = []
    for point in points:
        overlaps = [format_with_error(point["Q"][i][i], point["Q_error"][i][i]) for i in range(size)]
        others = [_number(point, key) for key in ("bayes_error", "plug_in_error", "free_entropy")]
        lines.append([f"{point['alpha']:.6g}", *overlaps, *others, point["result"]])
    _print(head, lines)


def print_gamp(document: Record) -> None:
    """One line for each iteration."""
    known = document["iterations"][0]["overlap"] is not None
    key = "overlap" if known else "Q"
    lines = [[str(step["step"]), _diagonal(step[key])] for step in document["iterations"]]
    _print(["iteration", "overlap with the truth" if known else "overlap with itself"], lines)
    Console().print(f"{document['result']}: {document['reason']}", markup=False, highlight=False)


def print_files(document: Record) -> None:
    """The names of the files that were written."""
    for name in document["files"]:
        Console(soft_wrap=True).print(f"{document['folder']}/{name}", markup=False, highlight=False)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[Record], None]]:
    """A bar on stderr that every call of the callback moves on; nothing where stderr is not a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=total)
        yield lambda record: bar.advance(task)


def _print(head: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    table = Table(*head, box=box.SIMPLE_HEAD, show_edge=False)
    for line in lines:
        table.add_row(*line)
    Console(width=None if sys.stdout.isatty() else WIDE, markup=False, highlight=False).print(table)


def _diagonal(matrix: Sequence[Sequence[float]] | None) -> str:
    return "–" if matrix is None else ", ".join(format_with_error(row[i], digits=4) for i, row in enumerate(matrix))


def _number(point: Record, key: str) -> str:
    if point.get("unbounded") == "+inf" and key == "free_entropy":
        return "+∞"
    return format_with_error(point[key], point[f"{key}_stderr"])
