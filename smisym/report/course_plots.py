"""Figures of what is learned step by step: theory as lines, GAMP as points on them, descent beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from smisym.base.cards import Course, Courses
from smisym.base.errors import InputError
from smisym.base.solution import Solution
from smisym.report.plot_parts import (
    INK,
    draw_points,
    freeze,
    layer_handle,
    marker_handle,
    paper_style,
    row_colour,
    row_marker,
)

# How methods are told apart: points for what is simulated beside its own theory, lines for all others.
_POINTS = "gamp"
_LINES: dict[str, Any] = {"state evolution": "-", "sgd": (0, (5, 1.4)), "adam": (0, (1, 1.1))}
_SAID = {"gamp": "GAMP", "sgd": "SGD", "adam": "Adam"}
_TWO_ERRORS = 2.0
# Steps of one axis from which on it is drawn logarithmically: descent takes tens of epochs for what GAMP does in one.
_LONG = 60


def dynamics_figure(solution: Solution, *, title: str | None = None, width: float = 7.0) -> Figure:
    """Cosines of the layers with the truth: state evolution and GAMP on the left, SGD and Adam on the right.

    solution: of :func:`smisym.dynamics`.  Bands and bars are two standard errors over the seeds.  Methods that were not
    run have no panel.  Raises InputError for any other solution.
    """
    picture = solution.picture() if isinstance(solution, Solution) else None
    if not isinstance(picture, Courses):
        raise InputError("solution", type(solution).__name__, "a Solution of smisym.dynamics", "pass what it returned")
    units = list(dict.fromkeys(course.unit for course in picture.courses))
    with paper_style(width):
        figure = Figure(figsize=(width if len(units) > 1 else 0.6 * width, 2.9), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(units), sharey=True, squeeze=False)[0]
        for axes, unit in zip(panels, units, strict=True):
            some = tuple(course for course in picture.courses if course.unit == unit)
            _draw(Courses(some, picture.names), axes)
            axes.set_xlabel(unit)
        panels[0].set_ylabel("cosine with the truth")
        handles = [layer_handle(row, name, marker=False) for row, name in enumerate(picture.names)]
        freeze(figure, list(panels), [*handles, *map(_handle, picture.courses)], (), title)
    return figure


def draw_courses(picture: Courses, axes: Axes) -> None:
    """All of them on one axis of steps, with a legend."""
    _draw(picture, axes)
    axes.set_xlabel(" or ".join(dict.fromkeys(course.unit for course in picture.courses)))
    axes.set_ylabel("cosine with the truth")
    handles = [layer_handle(row, name, marker=False) for row, name in enumerate(picture.names)]
    axes.legend(handles=[*handles, *map(_handle, picture.courses)], loc="best", fontsize="small", frameon=False)


def _draw(picture: Courses, axes: Axes) -> None:
    longest = max((course.steps[-1] for course in picture.courses), default=1)
    if longest > _LONG:
        axes.set_xscale("symlog", linthresh=1.0, linscale=0.4)
        axes.set_xlim(0, longest)
    for course in picture.courses:
        for row in range(len(picture.names)):
            _draw_course(course, row, axes)
    axes.set_ylim(-0.04, 1.06)


def _draw_course(course: Course, row: int, axes: Axes) -> None:
    mean, colour = course.mean[:, row], row_colour(row)
    half = _TWO_ERRORS * np.where(np.isfinite(course.error[:, row]), course.error[:, row], 0.0)
    if course.name == _POINTS:
        draw_points(axes, course.steps, mean, half, colour, row_marker(row), hollow=True, size=3.2)
        return
    axes.plot(course.steps, mean, color=colour, linestyle=_LINES.get(course.name, "-"), zorder=3)
    axes.fill_between(course.steps, mean - half, mean + half, color=colour, alpha=0.2, linewidth=0, zorder=2)


def _handle(course: Course) -> Line2D:
    name = _SAID.get(course.name, course.name)
    if course.name == _POINTS:
        return marker_handle(name, INK, hollow=True)
    return Line2D([], [], color=INK, linestyle=_LINES.get(course.name, "-"), label=name)
