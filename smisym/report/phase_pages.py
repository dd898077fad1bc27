"""Phase diagrams and branches as files: figures, and a table of every transition."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from smisym.base.cards import Grid, Picture, Tabled
from smisym.base.files import write_text
from smisym.report.drawing import draw
from smisym.report.plot_parts import paper_style
from smisym.report.plots import save

_SIZE = (5.6, 3.6)


def _figure(picture: Picture) -> Figure:
    with paper_style(_SIZE[0]):
        figure = Figure(figsize=_SIZE, layout="constrained")
        FigureCanvasAgg(figure)
        draw(picture, figure.subplots())
        figure.draw_without_rendering()
    return figure


def save_picture(picture: Picture, path: Path) -> None:
    """Branches, or the boundaries of a phase diagram, as a figure of its own."""
    save(_figure(picture), path)


def save_table(found: Tabled, path: Path) -> None:
    """One line for each transition at each value, as CSV."""
    grid: Grid = found.grid()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(grid.variables)
    columns = [variable.values.tolist() for variable in grid.variables.values()]
    writer.writerows(zip(*columns, strict=True))
    write_text(path, text.getvalue())


def written(found: Any, picture: Path | None, table: Path | None) -> dict[str, list[str]]:
    """{"output": names} of what is written of a phase diagram; {} where nothing is."""
    if picture is not None:
        save_picture(found.picture(), picture)
    if table is not None:
        save_table(found, table)
    names = [str(path) for path in (picture, table) if path is not None]
    return {"output": names} if names else {}
