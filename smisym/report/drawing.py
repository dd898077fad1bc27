"""Pictures -> axes of matplotlib: what ``.plot()`` draws, and the small figures of notebooks."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from smisym.base.cards import Blocks, Branched, Courses, Diagram, Marks, Picture, Points, Stages, Steps
from smisym.base.errors import InputError
from smisym.report.course_plots import draw_courses
from smisym.report.numbers import format_with_error
from smisym.report.phase_plots import draw_branched, draw_diagram
from smisym.report.plot_parts import (
    INK,
    PALETTE,
    UNCONVERGED,
    converged,
    draw_points,
    is_number,
    layer_handle,
    marker_handle,
    paper_style,
    row_colour,
    row_marker,
    threshold_colour,
    threshold_label,
    threshold_records,
)
from smisym.report.plots import draw_overlaps, draw_thresholds, svg_text

# Inches of the figures that are made here.
_SIZES: dict[type, tuple[float, float]] = {Marks: (5.2, 1.25)}
_SIZE = (5.2, 3.1)
# Of a notebook, where letters are larger than in a column of a paper.
_WIDTH = 5.2
# Rows up to which every block has its number written in.
_WRITTEN = 6
_LEGEND = 12
# From white to the first colour of rows; what is negative goes to the second.
_SHADES = LinearSegmentedColormap.from_list("smisym", [PALETTE[1], "#ffffff", PALETTE[0]])


def draw(picture: Picture, ax: Any = None) -> Axes:
    """Draw on the given Axes, or on a new one of pyplot's, which a notebook shows by itself; returns the Axes.

    Raises InputError for what is no Axes.
    """
    if ax is not None and not isinstance(ax, Axes):
        raise InputError("ax", ax, "a matplotlib Axes", "pass the second value of matplotlib.pyplot.subplots()")
    if ax is not None:
        _draw(picture, ax)
        return ax
    from matplotlib import pyplot

    with paper_style(_WIDTH):
        axes: Axes = pyplot.subplots(figsize=_size(picture), layout="constrained")[1]
        _draw(picture, axes)
    return axes


def small_svg(picture: Picture) -> str:
    """The picture as one ``<svg>`` element; the same picture gives the same bytes."""
    with paper_style(_WIDTH):
        figure = Figure(figsize=_size(picture), layout="constrained")
        FigureCanvasAgg(figure)
        _draw(picture, figure.subplots())
    return svg_text(figure)


def _size(picture: Picture) -> tuple[float, float]:
    if isinstance(picture, Blocks):
        side = min(0.9 + 0.5 * len(picture.names), 4.2)
        return side + 0.9, side
    return _SIZES.get(type(picture), _SIZE)


def _draw(picture: Picture, axes: Axes) -> None:
    if isinstance(picture, Blocks):
        _draw_blocks(picture, axes)
    elif isinstance(picture, Points):
        _draw_points(picture, axes)
    elif isinstance(picture, Steps):
        _draw_steps(picture, axes)
    elif isinstance(picture, Stages):
        _draw_stages(picture, axes)
    elif isinstance(picture, Branched):
        draw_branched(picture, axes)
    elif isinstance(picture, Diagram):
        draw_diagram(picture, axes)
    elif isinstance(picture, Courses):
        draw_courses(picture, axes)
    else:
        _draw_marks(picture, axes)


def _draw_blocks(picture: Blocks, axes: Axes) -> None:
    """Blue is one, white nothing, orange minus one."""
    values = np.asarray(picture.values, dtype=float)
    # Not imshow, whose pixels would be an image within the drawing.
    axes.pcolormesh(values, cmap=_SHADES, vmin=-1, vmax=1, edgecolors="#dddddd", linewidth=0.8)
    axes.set_aspect("equal")
    axes.invert_yaxis()
    places, names = np.arange(len(values)) + 0.5, list(picture.names)
    slanted: dict[str, Any] = {"rotation": 30, "ha": "right"} if len(names) > 2 else {}
    axes.set_xticks(places, names, **slanted)
    axes.set_yticks(places, names)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if len(values) <= _WRITTEN:
        for i, j in np.ndindex(values.shape):
            colour = "white" if abs(values[i, j]) > 0.6 else INK
            text = format_with_error(round(float(values[i, j]), 3))
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=colour)


def _draw_points(picture: Points, axes: Axes) -> None:
    found = threshold_records(picture.thresholds)
    points = sorted(picture.points, key=lambda point: float(point["alpha"]))
    draw_overlaps(axes, points, found, picture.names)
    draw_thresholds(axes, found)
    axes.set_xlabel(r"samples per dimension $\alpha = N/D$")
    _legend(axes, picture.names, marker=False, failed=not converged(points).all())


def _draw_steps(picture: Steps, axes: Axes) -> None:
    for row in range(len(picture.names)):
        y = picture.overlaps[:, row]
        look: dict[str, Any] = {"marker": row_marker(row), "markersize": 2.6, "linewidth": 1.0}
        axes.plot(picture.steps, y, color=row_colour(row), zorder=3, **look)
        if not picture.ended:
            last = picture.steps[-1:], y[-1:], np.zeros(1)
            draw_points(axes, *last, row_colour(row), UNCONVERGED, hollow=True, size=4.6)
    axes.set_xlabel("iteration")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(picture.what)
    axes.set_ylim(min(-0.04, axes.get_ylim()[0]), max(1.06, axes.get_ylim()[1]))
    _legend(axes, picture.names, marker=True, failed=not picture.ended)


def _draw_stages(picture: Stages, axes: Axes) -> None:
    """A line for each kind and set of rows, in the order in which they come first."""
    kinds: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for place, one in enumerate(picture.thresholds):
        kinds.setdefault((one["kind"], tuple(one.get("names") or ())), []).append(place)
    for number, ((kind, names), places) in enumerate(kinds.items()):
        places = sorted(places, key=lambda place: float(picture.values[place]))
        x, found = picture.values[places], [picture.thresholds[place] for place in places]
        y = np.array([one["alpha"] for one in found], dtype=float)
        error = np.array([np.nan if one["error"] is None else one["error"] for one in found], dtype=float)
        colour = row_colour(number)
        axes.plot(x, y, color=colour, linewidth=1.0, zorder=3)
        for good in (True, False):
            some = picture.ok[places] == good
            draw_points(axes, x[some], y[some], 1.96 * error[some], colour, row_marker(number), hollow=not good)
        what = ", ".join(names[:2]) + (", ..." if len(names) > 2 else "") if kind in ("trivial", "weak") else ""
        axes.plot([], [], color=colour, marker=row_marker(number), markersize=3.8, label=what or _KINDS.get(kind, kind))
    axes.set_xlabel("value")
    axes.set_ylabel(r"threshold $\alpha$")
    axes.set_ylim(0, None)
    axes.legend(loc="best", fontsize="small", frameon=False)


_KINDS = {"perfect_stable": "perfect recovery is stable", "perfect_amp": "perfect recovery is reached"}


def _draw_marks(picture: Marks, axes: Axes) -> None:
    found = [t for t in threshold_records(picture.thresholds) if is_number(t["alpha"])]
    if not found:
        raise InputError(
            "thresholds", "none at a finite alpha", "at least one that is finite", "print them: print(solution.value)"
        )
    largest = max(float(t["alpha"]) for t in found)
    for level, threshold in enumerate(sorted(found, key=lambda t: float(t["alpha"]))):
        colour, alpha = threshold_colour(threshold), float(threshold["alpha"])
        axes.axvline(alpha, color=colour, linewidth=1.2)
        if is_number(threshold.get("error")):
            error = 2 * float(threshold["error"])
            axes.axvspan(alpha - error, alpha + error, color=colour, alpha=0.2, linewidth=0)
        axes.annotate(
            f"${threshold_label(threshold)}$", (alpha, 0.86 - 0.3 * (level % 3)), (3, 0), color=colour,
            xycoords=axes.get_xaxis_transform(), textcoords="offset points", ha="left", va="center",
        )  # fmt: skip
    axes.set_xlim(0, 1.5 * largest or 1.0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(r"samples per dimension $\alpha = N/D$")


def _legend(axes: Axes, names: tuple[str, ...], *, marker: bool, failed: bool) -> None:
    handles: list[Any] = [layer_handle(row, name, marker=marker) for row, name in enumerate(names[:_LEGEND])]
    if failed:
        handles.append(marker_handle("no success", INK, hollow=True, marker=UNCONVERGED))
    axes.legend(handles=handles, loc="best", fontsize="small", frameon=False)
