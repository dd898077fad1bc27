"""Figures of GAMP's runs, and their points for the figures of curves."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from scipy import stats

from smisym.base.errors import InputError
from smisym.report.plot_parts import (
    INK,
    UNCONVERGED,
    Record,
    column,
    converged,
    diagonal,
    diagonals,
    draw_points,
    freeze,
    layer_handle,
    marker_handle,
    paper_style,
    row_colour,
    row_labels,
    row_marker,
)

# Runs of GAMP at one alpha and dimension from which on their mean is drawn, with its interval.
FEW_RUNS = 4


def gamp_figure(
    runs: Sequence[Record],
    state_evolution: Sequence[Record] | None = None,
    *,
    labels: Sequence[str] | None = None,
    title: str | None = None,
    width: float = 7.0,
) -> Figure:
    """Overlap against iteration, one panel for each alpha: theory as lines, means of runs as points.

    runs
        Records with "alpha", "dim", "seed", "iterations" (records with "step" and "overlap" (P, P), or "Q" where the
        truth is unknown) and "result".  Error bars are 95 % intervals over runs of one alpha and dimension; a run that
        converged keeps its last value, one that did not is drawn hollow where it stopped and counts no further.
    state_evolution
        Records with "alpha" and "iterations" (records with "step" and "Q").

    Raises InputError without any run.
    """
    if not runs:
        raise InputError("GAMP runs", "none", "at least one run", "run `smisym gamp` first")
    alphas = sorted({float(run["alpha"]) for run in runs})
    theory = {float(record["alpha"]): record["iterations"] for record in state_evolution or ()}
    labels = row_labels(labels, len(_run_diagonal(runs[0]["iterations"][0])))
    with paper_style(width):
        columns = min(len(alphas), 3 if width > 5 else 1)
        rows = math.ceil(len(alphas) / columns)
        figure = Figure(figsize=(width, 0.75 + rows * min(2.1, 1.6 * width / columns)), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for number, (axes, alpha) in enumerate(itertools.zip_longest(grid.flat, alphas)):
            if alpha is None:
                axes.remove()
                continue
            axes.xaxis.set_tick_params(labelbottom=number + columns >= len(alphas))
            _draw_runs(axes, [run for run in runs if float(run["alpha"]) == alpha], theory.get(alpha, ()))
            axes.set_title(rf"$\alpha = {alpha:.6g}$", fontsize="medium")
        known = all("overlap" in step and step["overlap"] is not None for run in runs for step in run["iterations"][:1])
        for axes in figure.axes:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axes in grid[:, 0]:
            axes.set_ylabel("overlap with the truth" if known else "overlap with itself")
        figure.supxlabel("iteration", fontsize="medium")
        freeze(figure, figure.axes, _gamp_legend(runs, labels, bool(theory)), (), title)
    return figure


def gamp_points(runs: Sequence[Record]) -> list[dict[str, Any]]:
    """The last overlaps of GAMP runs, averaged over the runs of one alpha, dimension and outcome where they are many.

    Returns records with "alpha", "dim", "runs", "Q" (P, P), "Q_error" (standard error of the mean; infinite for a
    single run), "degrees_of_freedom" and "result": runs that did not converge are averaged apart.  Fewer than
    FEW_RUNS runs are not averaged.
    """
    groups: dict[tuple[float, int, str, int], list[np.ndarray]] = {}
    alike = Counter((float(run["alpha"]), int(run["dim"])) for run in runs)
    for number, run in enumerate(runs):
        if run["iterations"]:
            last = run["iterations"][-1]
            overlap = last["overlap"] if last.get("overlap") is not None else last["Q"]
            # A mean over two or three runs says less than the runs: they are shown one by one.
            alone = number if alike[float(run["alpha"]), int(run["dim"])] < FEW_RUNS else -1
            key = (float(run["alpha"]), int(run["dim"]), str(run["result"]), alone)
            groups.setdefault(key, []).append(np.asarray(overlap, dtype=float))
    made = []
    for (alpha, dim, result, _), overlaps in sorted(groups.items()):
        stack = np.array(overlaps)
        count = len(stack)
        error = stack.std(axis=0, ddof=1) / math.sqrt(count) if count > 1 else np.full(stack.shape[1:], np.inf)
        made.append(
            {
                "alpha": alpha,
                "dim": dim,
                "runs": count,
                "Q": stack.mean(axis=0),
                "Q_error": error,
                "degrees_of_freedom": count - 1,
                "result": result,
            }
        )
    return made


def _draw_runs(axes: Axes, runs: Sequence[Record], theory: Sequence[Record]) -> None:
    rows = len(_run_diagonal(runs[0]["iterations"][0]))
    if theory:
        steps, lines = column(theory, "step"), diagonals(theory, "Q", rows)
        for row in range(rows):
            axes.plot(steps, lines[:, row], color=row_colour(row), zorder=2)
    for order, dim in enumerate(sorted({run["dim"] for run in runs})):
        steps, values, running = _aligned([run for run in runs if run["dim"] == dim], rows)
        counts = running.sum(axis=0)
        mean = np.nanmean(np.where(running[..., None], values, np.nan), axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = np.sqrt(np.nansum(np.where(running[..., None], (values - mean) ** 2, 0.0), axis=0))
            error = spread / np.sqrt(counts * (counts - 1.0))[:, None]
        half = error * np.array([stats.t.ppf(0.975, n - 1) if n > 1 else np.nan for n in counts])[:, None]
        for row in range(rows):
            look: dict[str, Any] = {"hollow": False, "size": _run_size(order)}
            draw_points(axes, steps, mean[:, row], half[:, row], row_colour(row), row_marker(row), **look)
    for run in (run for run in runs if run["result"] != "success"):
        last = run["iterations"][-1]
        for row, value in enumerate(_run_diagonal(last)):
            x, y = np.array([last["step"]], dtype=float), np.array([value])
            draw_points(axes, x, y, np.zeros(1), row_colour(row), UNCONVERGED, hollow=True, size=4.6)
    axes.set_ylim(-0.04, max(1.06, axes.get_ylim()[1]))


def _run_size(order: int) -> float:
    """Marker size of the runs of one dimension: the larger D, the larger the marker."""
    return 2.2 + 0.9 * order


def _run_diagonal(step: Record) -> np.ndarray:
    overlap = step.get("overlap")
    return diagonal(step["Q"] if overlap is None else overlap, 0)


def _aligned(runs: Sequence[Record], rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps (n,), overlaps (runs, n, P) and whether a run counts at a step (runs, n).

    A run that converged stays where it is: dropping it would leave the mean to the slow ones.
    """
    steps = np.array(sorted({float(step["step"]) for run in runs for step in run["iterations"]}))
    values = np.full((len(runs), len(steps), rows), np.nan)
    for index, run in enumerate(runs):
        known = {float(step["step"]): _run_diagonal(step) for step in run["iterations"]}
        for place, step in enumerate(steps):
            if step in known:
                values[index, place] = known[step]
            elif place and run["result"] == "success" and step > max(known):
                values[index, place] = values[index, place - 1]
    running = np.isfinite(values).all(axis=2)
    kept = running.any(axis=0)
    return steps[kept], values[:, kept], running[:, kept]


def _gamp_legend(runs: Sequence[Record], labels: Sequence[str], theory: bool) -> list[Any]:
    handles: list[Any] = [layer_handle(row, label, marker=True, line=theory) for row, label in enumerate(labels)]
    if theory:
        handles.append(Line2D([], [], color=INK, label="state evolution"))
    for order, dim in enumerate(sorted({run["dim"] for run in runs})):
        handles.append(marker_handle(f"GAMP, $D = {dim}$", INK, hollow=False, size=_run_size(order)))
    if not converged(runs).all():
        handles.append(marker_handle("stopped, not converged", INK, hollow=True, marker=UNCONVERGED))
    return handles
