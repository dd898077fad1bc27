"""Branches of fixed points, and phase diagrams, on axes of matplotlib."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from smisym.base.cards import Boundary, Branched, Diagram, Traced
from smisym.report.numbers import format_with_error
from smisym.report.plot_parts import (
    GREY,
    INK,
    PALETTE,
    UNCONVERGED,
    draw_points,
    is_number,
    layer_handle,
    marker_handle,
    row_colour,
    row_marker,
    threshold_records,
)

# Of lines: what may not be rested at, and transitions that are no threshold of learning.
_UNSTABLE: dict[str, Any] = {"linestyle": (0, (3, 1.6)), "linewidth": 0.9}
_STYLES: dict[str, Any] = {
    "spinodal": {"linestyle": (0, (1, 1.3))},
    "information": {"linestyle": (0, (6, 1.5))},
    "perfect_stable": {"linestyle": (0, (5, 1.3, 1, 1.3))},
}
_SIGNS = {"spinodal": "fold", "information": "the optimum changes"}
# Entries of a legend, and factor between the largest and the smallest alpha from which on their axis is logarithmic.
_LEGEND, _WIDE = 12, 50.0


def draw_branched(picture: Branched, axes: Axes) -> None:
    """Overlaps against alpha along every branch, with bands of two standard errors of alpha: solid where small changes
    shrink back, dashed where they grow."""
    for branch in picture.branches:
        half = 2 * np.where(np.isfinite(branch.errors), branch.errors, 0.0)
        for row in range(len(picture.names)):
            low, high = branch.alphas - half, branch.alphas + half
            colour = row_colour(row)
            axes.fill_betweenx(branch.overlaps[:, row], low, high, color=colour, alpha=0.22, linewidth=0, zorder=2)
            for part, stable in _parts(branch):
                look = {"linewidth": 1.4} if stable else _UNSTABLE
                axes.plot(branch.alphas[part], branch.overlaps[part, row], color=colour, zorder=3, **look)
    found = [one for one in threshold_records(picture.thresholds) if is_number(one["alpha"])]
    for one in found:
        axes.axvline(float(one["alpha"]), color=INK, linewidth=0.8, zorder=1, **_STYLES.get(one["kind"], {}))
    axes.set_xlabel(r"samples per dimension $\alpha = N/D$")
    axes.set_ylabel("overlap")
    axes.set_ylim(-0.03, 1.04)
    handles: list[Any] = [layer_handle(row, name, marker=False) for row, name in enumerate(picture.names[:_LEGEND])]
    if any(not branch.stable.all() for branch in picture.branches):
        handles.append(Line2D([], [], color=GREY, label="unstable", **_UNSTABLE))
    handles += [_sign(one) for one in found]
    axes.legend(handles=handles, loc="best", fontsize="small", frameon=False)


def _sign(threshold: Mapping[str, Any]) -> Line2D:
    number = format_with_error(threshold["alpha"], threshold["error"])
    what = _SIGNS.get(threshold["kind"], threshold["kind"])
    return Line2D([], [], color=INK, linewidth=0.8, label=f"{what}, {number}", **_STYLES.get(threshold["kind"], {}))


def _parts(branch: Traced) -> list[tuple[slice, bool]]:
    """Runs of points that are all stable or all not; each begins where the one before ends."""
    stable = np.asarray(branch.stable, dtype=bool)
    if not len(stable):
        return []
    cuts = [0, *(np.flatnonzero(np.diff(stable)) + 1).tolist(), len(stable)]
    return [(slice(max(a - 1, 0), b), bool(stable[a])) for a, b in itertools.pairwise(cuts)]


def draw_diagram(picture: Diagram, axes: Axes) -> None:
    """alpha of every boundary over the parameter, with bands of two standard errors; what is no success is hollow."""
    shades = _colours(picture.boundaries)
    several = len(picture.names) > 1
    for number, one in enumerate(picture.boundaries):
        look = {"linewidth": 1.2, **_STYLES.get(one.kind, {})}
        colour, marker = shades[number], row_marker(number)
        joined = np.where(one.ok, one.alphas, np.nan)
        axes.plot(one.values, joined, color=colour, zorder=3, **look)
        half = 2 * np.where(np.isfinite(one.errors), one.errors, 0.0)
        axes.fill_between(one.values, joined - half, joined + half, color=colour, alpha=0.22, linewidth=0, zorder=2)
        if len(one.values) < 41 and not several:
            some = one.ok
            draw_points(axes, one.values[some], one.alphas[some], half[some], colour, marker, hollow=False, size=2.6)
        bad = ~one.ok
        if bad.any():
            draw_points(axes, one.values[bad], one.alphas[bad], half[bad], colour, UNCONVERGED, hollow=True)
    first = {one.label: number for number, one in reversed(list(enumerate(picture.boundaries)))}
    handles: list[Any] = [
        Line2D(
            [],
            [],
            color=shades[number],
            label=one.label,
            marker="" if several else row_marker(number),
            markersize=2.6,
            **_STYLES.get(one.kind, {}),
        )
        for number, one in enumerate(picture.boundaries)
        if first[one.label] == number
    ]
    if len(handles) > _LEGEND:
        rest = len(handles) - _LEGEND
        handles = [*handles[:_LEGEND], Line2D([], [], linestyle="none", label=f"and {rest} more")]
    if not all(one.ok.all() for one in picture.boundaries):
        handles.append(marker_handle("no success", INK, hollow=True, marker=UNCONVERGED))
    axes.set_xscale(picture.scale)
    axes.set_xlabel(picture.names[0] if picture.names else "value")
    axes.set_ylabel(r"$\alpha = N/D$")
    _scale_alpha(picture.boundaries, axes)
    if handles:
        axes.legend(handles=handles, loc="best", fontsize="small", frameon=False)


def _scale_alpha(boundaries: Sequence[Boundary], axes: Axes) -> None:
    every = np.concatenate([one.alphas for one in boundaries] or [np.ones(1)])
    positive = every[every > 0]
    if len(positive) == len(every) and positive.max() > _WIDE * positive.min():
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, None)


def _colours(boundaries: Sequence[Boundary]) -> list[str]:
    """One for each of a kind and rows; boundaries that differ in the second parameter share it."""
    known: dict[str, str] = {}
    for one in boundaries:
        known.setdefault(one.label, PALETTE[len(known) % len(PALETTE)])
    return [known[one.label] for one in boundaries]
