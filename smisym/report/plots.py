"""Figures for a paper: the learning curve with its thresholds, and GAMP against state evolution.

Every function takes plain dictionaries (the records of the result files) and returns a
``matplotlib.figure.Figure``; nothing touches the global state of pyplot, nor is anything shown.  A point that is
no success is drawn hollow and is never joined to its neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from smisym.base.errors import InputError
from smisym.base.files import write_bytes
from smisym.base.solution import Solution
from smisym.base.threshold import Threshold
from smisym.report.plot_parts import (
    BEYOND,
    GREY,
    INK,
    PUBLISHED,
    UNCONVERGED,
    Record,
    column,
    converged,
    diagonal,
    diagonals,
    draw_line,
    draw_points,
    freeze,
    is_number,
    layer_handle,
    marker_handle,
    paper_style,
    point_record,
    quantiles,
    render,
    row_colour,
    row_labels,
    row_marker,
    threshold_colour,
    threshold_records,
)

_DOTTED: dict[str, Any] = {"linewidth": 0.7, "linestyle": (0, (1, 1.6))}
_PANELS = ("overlap", "errors", "free_entropy")
# Overlap of a run beyond which it is drawn at the border: one that diverges would leave theory no room.
_HIGHEST = 1.3
_HEIGHTS = {"overlap": 3.0, "errors": 1.35, "free_entropy": 1.35}
_FORMATS: dict[str, dict[str, Any]] = {
    ".svg": {"format": "svg", "metadata": {"Date": None, "Creator": None}},
    ".pdf": {"format": "pdf", "metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
    ".png": {"format": "png", "metadata": {"Software": None}, "dpi": 300},
}


# Many parameters: what a figure can show, all by keyword.
def curve_figure(
    points: Sequence[Record | Solution],
    thresholds: Sequence[Record | Threshold] | Solution = (),
    *,
    labels: Sequence[str] | None = None,
    gamp_points: Sequence[Record] | None = None,
    published: Mapping[str, Any] | None = None,
    title: str | None = None,
    width: float = 7.0,
    panels: Sequence[str] = _PANELS,
    unit: str = "N/D",
) -> Figure:
    """Overlaps, prediction errors and free entropy against alpha, one above the other.

    points
        Records with "alpha", "Q" (P, P) or its diagonal, "Q_error" (one standard error, same shape), "result"; and,
        where known, "bayes_error", "plug_in_error", "free_entropy", each with "..._stderr", and "degrees_of_freedom".
        Bands are 95 % intervals (Student t, or normal without degrees of freedom).  Solutions of :func:`smisym.curve`
        are taken as they are.
    thresholds
        Records with "kind", "layers", "alpha" (None is infinite), "error", and "Q" just below: the curve of two
        converged neighbours passes through it, so that kinks sit where they are.  Or a Solution of
        :func:`smisym.weak_recovery`, or its Thresholds.
    labels
        Names of the P rows; "layer 1", "layer 2", ... by default.
    gamp_points
        Records like ``points``, as :func:`gamp_points` makes them from runs.
    published
        {"curve": records with "alpha", "Q" and perhaps "plug_in_error", "amp": the same with "Q_error" (their spread),
        "label": their name}, each optional.
    width
        In inches: 7.0 across two columns, 3.4 in one.
    panels
        Which of "overlap", "errors", "free_entropy"; a panel without finite data is left out.
    unit
        What alpha is: ``model.prior.unit``.

    Raises InputError for no points, an unknown panel, or labels that do not fit.
    """
    records = sorted(map(point_record, points), key=lambda point: point["alpha"])
    found = threshold_records(thresholds)
    labels = _check(records, labels, panels)
    shown = [panel for panel in _PANELS if panel in panels and (panel == "overlap" or _has_data(records, panel))]
    with paper_style(width):
        figure, axes = _stack(shown, width)
        by_name = dict(zip(shown, axes, strict=True))
        if "overlap" in by_name:
            draw_overlaps(by_name["overlap"], records, found, labels, gamp_points or (), published or {})
        if "errors" in by_name:
            _draw_errors(by_name["errors"], records, published or {})
        if "free_entropy" in by_name:
            _draw_free_entropy(by_name["free_entropy"], records)
        _finish_curve(figure, axes, records, found, gamp_points or (), published or {})
        axes[-1].set_xlabel(rf"samples per dimension $\alpha = {unit}$")
        handles = _curve_legend(records, labels, gamp_points or (), published or {})
        freeze(figure, axes, handles, found, title)
    return figure


def save(figure: Figure | Axes, path: str | os.PathLike[str]) -> Path:
    """Write the figure as SVG, PDF or PNG (300 dpi), by suffix; the same figure gives the same bytes (no dates).

    figure: of matplotlib; its Axes will do, as ``plot`` returns them.
    Raises InputError for another suffix, for what is no figure, or where the file cannot be written.
    """
    path = Path(path)
    given: object = getattr(figure, "figure", figure)
    if not isinstance(given, Figure):
        raise InputError("figure", figure, "a matplotlib Figure or Axes", "pass what plot() returned")
    figure = given
    options = _FORMATS.get(path.suffix.lower())
    if options is None:
        raise InputError("name of the figure", str(path), f"a name that ends in {', '.join(_FORMATS)}", "rename it")
    write_bytes(path, render(figure, options))
    return path


def svg_text(figure: Figure) -> str:
    """The figure as one ``<svg>`` element, to be put into a page."""
    text = render(figure, _FORMATS[".svg"]).decode()
    return text[text.index("<svg") :]


def _check(points: Sequence[Record], labels: Sequence[str] | None, panels: Sequence[str]) -> list[str]:
    if not points:
        raise InputError("points of the curve", "none", "at least one", "ask for one alpha or more")
    if unknown := [panel for panel in panels if panel not in _PANELS]:
        raise InputError("panels", unknown, f"some of {', '.join(_PANELS)}", "leave the others out")
    return row_labels(labels, max(len(diagonal(point.get("Q"), 0)) for point in points))


def _has_data(points: Sequence[Record], panel: str) -> bool:
    keys = {"errors": ("bayes_error", "plug_in_error"), "free_entropy": ("free_entropy",)}[panel]
    return any(np.isfinite(column(points, key)).any() for key in keys)


def draw_overlaps(
    axes: Axes,
    points: Sequence[Record],
    thresholds: Sequence[Record],
    labels: Sequence[str],
    gamp: Sequence[Record] = (),
    published: Mapping[str, Any] | None = None,
) -> None:
    """The panel of overlaps of :func:`curve_figure`, from records in increasing order of alpha."""
    rows = len(labels)
    _draw_published(axes, published or {}, rows)
    drawn = _with_kinks(points, thresholds)
    x, overlaps, ok = column(drawn, "alpha"), diagonals(drawn, "Q", rows), converged(drawn)
    half = diagonals(drawn, "Q_error", rows) * quantiles(drawn)[:, None]
    for row in range(rows):
        draw_line(axes, x, overlaps[:, row], half[:, row], ok, row_colour(row))
    for outcome in (True, False):
        some = [record for record, ok_one in zip(gamp, converged(gamp), strict=True) if ok_one == outcome]
        bars = diagonals(some, "Q_error", rows) * quantiles(some)[:, None]
        for row in range(rows if some else 0):
            y = diagonals(some, "Q", rows)[:, row]
            x_some, hollow, far = column(some, "alpha"), not outcome, y > _HIGHEST
            for marker, here in ((row_marker(row), ~far), (BEYOND, far)):
                at = np.minimum(y, _HIGHEST)[here]
                draw_points(axes, x_some[here], at, bars[here, row], row_colour(row), marker, hollow=hollow)
    by_layer = all(label.startswith("layer") for label in labels)
    axes.set_ylabel(r"overlap $Q_{\ell\ell}$" if by_layer else "overlap $Q_{pp}$")
    axes.set_ylim(-0.03, max(1.04, min(axes.get_ylim()[1], _HIGHEST + 0.06)))
    axes.set_yticks(np.linspace(0, 1, 6))


def draw_thresholds(axes: Axes, thresholds: Sequence[Record]) -> None:
    """Dotted lines at the finite ones."""
    for threshold in (t for t in thresholds if is_number(t["alpha"])):
        axes.axvline(threshold["alpha"], color=threshold_colour(threshold), zorder=1, **_DOTTED)


def _with_kinks(points: Sequence[Record], thresholds: Sequence[Record]) -> list[Record]:
    """The curve with the state just below each weak threshold put in between two converged neighbours.

    But where some scrambles have begun before: the mean then leaves zero ahead of the mean threshold, without a kink.
    """
    drawn = list(points)
    for threshold in thresholds:
        if threshold["kind"] != "weak" or threshold.get("Q") is None or not is_number(threshold["alpha"]):
            continue
        place = int(np.searchsorted(column(drawn, "alpha"), threshold["alpha"]))
        if 0 < place < len(drawn) and converged(drawn[place - 1 : place + 1]).all():
            Q = np.asarray(threshold["Q"], dtype=float)
            if (diagonals([drawn[place - 1]], "Q", len(Q))[0] > 0)[np.diag(Q) == 0].any():
                continue
            drawn.insert(place, {"alpha": threshold["alpha"], "Q": Q, "Q_error": np.zeros_like(Q)})
    return drawn


def _draw_published(axes: Axes, published: Mapping[str, Any], rows: int) -> None:
    curve, amp = published.get("curve") or (), published.get("amp") or ()
    for row in range(rows):
        if curve:
            y = diagonals(curve, "Q", rows)[:, row]
            axes.plot(column(curve, "alpha"), y, zorder=1.5, **PUBLISHED)
        if amp:
            y, spread = diagonals(amp, "Q", rows)[:, row], diagonals(amp, "Q_error", rows)[:, row]
            draw_points(axes, column(amp, "alpha"), y, spread, GREY, row_marker(row), hollow=True)


def _draw_errors(axes: Axes, points: Sequence[Record], published: Mapping[str, Any]) -> None:
    x, ok = column(points, "alpha"), converged(points)
    tops = [0.0]
    for key, label, style in (("bayes_error", "Bayes", "-"), ("plug_in_error", "plug-in", (0, (5, 1.3, 1, 1.3)))):
        y = column(points, key)
        if np.isfinite(y).any():
            half = column(points, f"{key}_stderr") * quantiles(points)
            draw_line(axes, x, y, half, ok, INK, linestyle=style, label=label, linewidth=1.0)
            tops.append(float(np.nanmax(y)))
    curve = published.get("curve") or ()
    other = column(curve, "plug_in_error")
    if np.isfinite(other).any():
        axes.plot(
            column(curve, "alpha"), other, zorder=1.5, **PUBLISHED,
            label=f"{published.get('label', 'published')} (plug-in)",
        )  # fmt: skip
        tops.append(float(np.nanmax(other)))
    axes.set_ylim(0, max(tops) * 1.32 or 1.0)
    axes.legend(loc="upper right", ncols=3)
    axes.set_ylabel("prediction error")


def _draw_free_entropy(axes: Axes, points: Sequence[Record]) -> None:
    x, y = column(points, "alpha"), column(points, "free_entropy")
    half = column(points, "free_entropy_stderr") * quantiles(points)
    draw_line(axes, x, y, half, converged(points), INK, linewidth=1.0)
    unbounded = np.array([point.get("unbounded") == "+inf" for point in points])
    if unbounded.any():
        # No curve can be drawn to infinity: arrows at the upper edge say where it went.
        edge = axes.get_xaxis_transform()
        arrows = x[unbounded][:: -(-int(unbounded.sum()) // 10)]
        axes.plot(arrows, np.full(len(arrows), 0.9), "^", markersize=2.6, color=GREY, transform=edge)
        axes.text(float(x[unbounded].mean()), 0.8, r"$+\infty$", transform=edge, ha="center", va="top", color=GREY)
    axes.set_ylabel(r"free entropy $\Phi$")


def _curve_legend(
    points: Sequence[Record], labels: Sequence[str], gamp: Sequence[Record], published: Mapping[str, Any]
) -> list[Any]:
    markers = bool(gamp or published.get("amp"))
    handles: list[Any] = [layer_handle(row, label, marker=markers) for row, label in enumerate(labels)]
    if np.isfinite(diagonals(points, "Q_error", len(labels))).any():
        handles.append(Patch(facecolor=INK, alpha=0.22, linewidth=0, label="95 % interval"))
    if gamp:
        dims = {record.get("dim") for record in gamp}
        size = f", $D = {dims.pop()}$" if len(dims) == 1 and None not in dims else ""
        told = converged(gamp)
        if told.any():
            handles.append(marker_handle("GAMP" + size, INK, hollow=False))
        if not told.all():
            handles.append(marker_handle(f"GAMP{size}, not converged", INK, hollow=True))
        if (far := diagonals(gamp, "Q", len(labels)) > _HIGHEST).any():
            hollow = not told[far.any(axis=1)].any()
            handles.append(marker_handle(f"GAMP{size}, beyond {_HIGHEST:g}", INK, hollow=hollow, marker=BEYOND))
    name = published.get("label", "published")
    if published.get("curve"):
        handles.append(Line2D([], [], label=f"{name} curve", **PUBLISHED))
    if published.get("amp"):
        handles.append(marker_handle(f"{name} AMP (± s.d.)", GREY, hollow=True))
    if not converged(points).all():
        handles.append(marker_handle("not a success", INK, hollow=True, marker=UNCONVERGED))
    return handles


def _finish_curve(
    figure: Figure,
    axes: Sequence[Axes],
    points: Sequence[Record],
    thresholds: Sequence[Record],
    gamp: Sequence[Record],
    published: Mapping[str, Any],
) -> None:
    """Common limits, threshold lines through every panel."""
    everything = [*points, *gamp, *(published.get("amp") or ())]
    x = np.concatenate([column(everything, "alpha"), [t["alpha"] for t in thresholds if is_number(t["alpha"])]])
    low, high = float(x.min()), float(x.max())
    margin = 0.012 * (high - low) or 0.05
    for one in axes:
        one.set_xlim(low - margin, high + margin)
        draw_thresholds(one, thresholds)
    figure.align_ylabels(list(axes))


def _stack(shown: Sequence[str], width: float) -> tuple[Figure, list[Axes]]:
    scale = 1.0 if width > 5 else 0.8
    ratios = [_HEIGHTS[panel] * scale for panel in shown]
    figure = Figure(figsize=(width, sum(ratios) + 0.95), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(shown), 1, sharex=True, squeeze=False, height_ratios=ratios)
    return figure, list(grid[:, 0])
