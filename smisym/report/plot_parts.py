"""What the figures share: records read into arrays, the drawing of one curve, labels, layout, style."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator
from scipy import stats

from smisym.base.errors import InputError
from smisym.base.solution import Solution
from smisym.base.threshold import Threshold
from smisym.report.numbers import format_with_error, number_latex

Record = Mapping[str, Any]

# Okabe and Ito: told apart under every common colour blindness; markers tell the same story in grey.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7")
MARKERS = ("o", "s", "^", "v", "P", "X")
INK, GREY = "#222222", "#8c8c8c"
UNCONVERGED = "D"
# A point of a curve without neighbours, a piece of a line: no run of GAMP looks like it.  Beyond the border.
ALONE, BEYOND = "_", "^"
PUBLISHED: dict[str, Any] = {"color": GREY, "linestyle": (0, (4, 2)), "linewidth": 0.9}
_STEM = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0)}
_THRESHOLD_NAMES = {
    "perfect_stable": r"\mathrm{stable}",
    "perfect_amp": r"\mathrm{AMP}",
    "spinodal": r"\mathrm{sp}",
    "information": r"\mathrm{IT}",
}


def point_record(point: Record | Solution) -> Record:
    """A point of a curve as a record: of a file, or of a Solution whose value is a fixed point."""
    if not isinstance(point, Solution):
        return point
    found = point.value
    return {"alpha": found.alpha, "Q": found.Q, "Q_error": found.Q_error, "result": point.result.value,
            "degrees_of_freedom": point.degrees_of_freedom}  # fmt: skip


def threshold_records(thresholds: Sequence[Record | Threshold] | Solution) -> list[Record]:
    """Thresholds as records, in which one that is infinite is None."""
    found = thresholds.value if isinstance(thresholds, Solution) else thresholds
    records = [t if isinstance(t, Mapping) else vars(t) for t in found]
    return [t if is_number(t["alpha"]) else {**t, "alpha": None} for t in records]


def row_labels(labels: Sequence[str] | None, rows: int) -> list[str]:
    """One name for each row of Q: the given ones, or "layer 1", "layer 2", ...; InputError where they do not fit."""
    if labels is None:
        return [f"layer {row + 1}" for row in range(rows)]
    if len(labels) != rows:
        raise InputError("labels", list(labels), f"one for each of the {rows} rows of Q", "pass model.labels")
    return list(labels)


def diagonal(matrix: Any, rows: int) -> np.ndarray:
    """(P,) diagonal of a (P, P) matrix, or the (P,) array itself; NaN where there is none."""
    if matrix is None:
        return np.full(rows, np.nan)
    array = np.array(matrix, dtype=float)
    return np.diagonal(array).copy() if array.ndim == 2 else array


def column(records: Sequence[Record], key: str) -> np.ndarray:
    """(n,) the numbers under one key; NaN where there is none."""
    values = [record.get(key) for record in records]
    return np.array([np.nan if value is None else float(value) for value in values])


def diagonals(records: Sequence[Record], key: str, rows: int) -> np.ndarray:
    """(n, P) the diagonals under one key."""
    return np.array([diagonal(record.get(key), rows) for record in records]).reshape(len(records), rows)


def quantiles(records: Sequence[Record]) -> np.ndarray:
    """(n,) what a standard error is multiplied by for a 95 % interval."""
    freedoms = [record.get("degrees_of_freedom") for record in records]
    return np.array([1.959964 if not nu else float(stats.t.ppf(0.975, nu)) for nu in freedoms])


def converged(records: Sequence[Record]) -> np.ndarray:
    """(n,) whether each record says that it converged; a record that says nothing (published data) counts as such."""
    return np.array([record.get("result", "success") == "success" for record in records], dtype=bool)


def is_number(value: Any) -> bool:
    """Whether a value is there and finite."""
    return value is not None and math.isfinite(value)


def row_colour(row: int) -> str:
    """The colour of a row of Q, the same in every figure."""
    return PALETTE[row % len(PALETTE)]


def row_marker(row: int) -> str:
    """The marker of a row of Q, the same in every figure."""
    return MARKERS[row % len(MARKERS)]


def draw_line(
    axes: Axes, x: np.ndarray, y: np.ndarray, half: np.ndarray, ok: np.ndarray, colour: str, **style: Any
) -> None:
    """A curve with its band through converged points; others hollow, with their bar, on their own."""
    joined = np.where(ok, y, np.nan)
    axes.plot(x, joined, color=colour, zorder=3, **style)
    axes.fill_between(x, joined - half, joined + half, color=colour, alpha=0.22, linewidth=0, zorder=2)
    good = np.isfinite(joined)
    alone = good & ~np.r_[False, good[:-1]] & ~np.r_[good[1:], False]
    if alone.any():  # no band without a neighbour
        draw_points(axes, x[alone], y[alone], half[alone], colour, ALONE, hollow=False, size=6.0)
    if (~ok).any():
        draw_points(axes, x[~ok], y[~ok], half[~ok], colour, UNCONVERGED, hollow=True)


# Many parameters: how points look.
def draw_points(
    axes: Axes,
    x: np.ndarray,
    y: np.ndarray,
    half: np.ndarray,
    colour: str,
    marker: str,
    *,
    hollow: bool,
    size: float = 3.8,
) -> None:
    """Points with error bars of half-length ``half``, if finite; hollow: no success, or not ours."""
    bars = np.where(np.isfinite(half), half, 0.0)
    axes.errorbar(
        x, y, yerr=bars, linestyle="none", marker=marker, markersize=size, color=colour, zorder=4,
        markerfacecolor="white" if hollow else colour, markeredgewidth=0.8, elinewidth=0.8, capsize=0,
    )  # fmt: skip


def layer_handle(row: int, label: str, *, marker: bool, line: bool = True) -> Line2D:
    """Legend entry of a row of Q, with the marker and the line where such are drawn."""
    handle = Line2D([], [], color=row_colour(row), markersize=3.8, label=label)
    handle.set_marker(row_marker(row) if marker else "")
    handle.set_linestyle("-" if line else "none")
    return handle


def marker_handle(label: str, colour: str, *, hollow: bool, marker: str = "o", size: float = 3.8) -> Line2D:
    """Legend entry of points."""
    face = "white" if hollow else colour
    return Line2D(
        [], [], linestyle="none", marker=marker, markersize=size, color=colour, markerfacecolor=face,
        markeredgewidth=0.8, label=label,
    )  # fmt: skip


def threshold_colour(threshold: Record) -> str:
    """Of the layer, where a threshold belongs to one."""
    layers: Sequence[int] = threshold.get("layers") or ()
    return row_colour(layers[0] - 1) if threshold["kind"] in ("weak", "trivial", "hard") and len(layers) == 1 else INK


def threshold_label(threshold: Record) -> str:
    """``alpha_{1} = 0.185478(4)``, in LaTeX."""
    layers = ",".join(str(layer) for layer in threshold.get("layers") or ())
    index = _THRESHOLD_NAMES.get(threshold["kind"], layers)
    number = number_latex(format_with_error(threshold["alpha"], threshold.get("error")))
    return rf"\alpha_{{{index}}} = {number}"


def freeze(
    figure: Figure,
    axes: Sequence[Axes],
    handles: list[Any],
    thresholds: Sequence[Record],
    title: str | None,
) -> None:
    """Lay out legend, title and threshold labels once, so that every format gets the same picture."""
    if title:
        figure.suptitle(title, fontsize="medium")
    for columns in range(min(len(handles), 5), 0, -1):
        legend = figure.legend(handles=handles, loc="outside upper center", ncols=columns)
        figure.draw_without_rendering()
        if legend.get_window_extent().width < 0.98 * figure.bbox.width or columns == 1:
            break
        legend.remove()
    if thresholds:
        _place_threshold_labels(axes[0], [t for t in thresholds if is_number(t["alpha"])])
    # Twice, because the labels are aligned by where the pass before had put them.
    figure.draw_without_rendering()
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axis in (axis for one in axes for axis in (one.xaxis, one.yaxis)):
        # Matplotlib chooses ticks again at each drawing, by the settings of that moment.
        axis.set_major_locator(FixedLocator(list(axis.get_majorticklocs())))


def _place_threshold_labels(axes: Axes, thresholds: Sequence[Record]) -> None:
    """Labels above the axes, each over its line; where lines are close, as a staircase that no line crosses.

    From right to left: a label without any other line under it is centred; the others begin at their line, above
    all labels that begin under them.
    """
    renderer = axes.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    scale = 72 / axes.figure.dpi
    lines = {id(t): axes.transData.transform((t["alpha"], 0))[0] * scale for t in thresholds}
    placed: list[tuple[float, float, int]] = []
    for threshold in sorted(thresholds, key=lambda t: float(t["alpha"]), reverse=True):
        at, colour = lines[id(threshold)], threshold_colour(threshold)
        label = axes.annotate(
            f"${threshold_label(threshold)}$", (threshold["alpha"], 1), (0, 0), xycoords=axes.get_xaxis_transform(),
            textcoords="offset points", ha="left", va="bottom", color=colour, annotation_clip=False,
            arrowprops=_STEM | {"color": colour},
        )  # fmt: skip
        size = label.get_window_extent(renderer)
        width, height = size.width * scale, size.height * scale
        others = [x for key, x in lines.items() if key != id(threshold)] + [start for start, _, _ in placed]
        alone = not any(at - width / 2 - 4 < x < at + width / 2 + 4 for x in others)
        start = at - width / 2 if alone else at
        row = max((r + 1 for left, right, r in placed if left < start + width + 4 and right > start), default=0)
        placed.append((start, start + width, row))
        label.set_position((start - at, 2.5 + row * (height + 1.5)))
        if not alone:
            # A hair to the right of its own line, which then reads as its stem.
            label.set_text(rf"$\;{threshold_label(threshold)}$")
        else:
            assert label.arrow_patch is not None, "every label has its stem"
            label.arrow_patch.set_visible(False)


@contextmanager
def paper_style(width: float) -> Iterator[None]:
    """Matplotlib's defaults, not the user's, and on top of them the look of a paper."""
    size = 8.5 if width > 5 else 7.5
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        look: Any = _LOOK | {"font.size": size, "legend.fontsize": size - 0.5}
        matplotlib.rcParams.update(look)
        yield


_LOOK: dict[str, Any] = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelsize": "medium",
    "lines.linewidth": 1.4,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.labelsize": "medium",
    "ytick.labelsize": "medium",
    "legend.facecolor": "white",
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
    "legend.fancybox": False,
    "legend.borderpad": 0.2,
    "legend.handlelength": 1.7,
    "legend.columnspacing": 1.4,
    "legend.borderaxespad": 0.2,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
    "figure.constrained_layout.hspace": 0.0,
    "svg.hashsalt": "smisym",
    "pdf.fonttype": 42,
}


def render(figure: Figure, options: Mapping[str, Any]) -> bytes:
    """The bytes of the figure in the format that ``options`` name."""
    buffer = io.BytesIO()
    with paper_style(float(figure.get_figwidth())):
        figure.savefig(buffer, **options)
    return buffer.getvalue()
