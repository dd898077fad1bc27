"""Figures: what is drawn is what was given, failures stand out, nothing covers anything, bytes are reproducible."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import subprocess
import sys
from typing import Any

import fake_results
import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from scipy import stats

import smisym
from smisym import Architecture, Attention
from smisym.base.errors import InputError
from smisym.report import gamp_plots, plots
from smisym.report.plot_parts import PALETTE


def _figure(**options: Any) -> Figure:
    given: dict[str, Any] = {
        "points": fake_results.points(),
        "thresholds": fake_results.thresholds(),
        "gamp_points": gamp_plots.gamp_points(fake_results.gamp_runs()),
        "published": fake_results.published(),
    }
    return plots.curve_figure(**(given | options))


def _curves(axes: Axes, colour: str) -> list[np.ndarray]:
    """Vertices (n, 2) of the solid lines of one colour."""
    found = [line for line in axes.lines if to_hex(line.get_color()) == colour.lower() and line.get_linestyle() == "-"]
    return [np.column_stack(line.get_data()).astype(float) for line in found]


def _bars(axes: Axes, colour: str) -> list[tuple[np.ndarray, str, bool, np.ndarray]]:
    """(positions, marker, hollow, half-lengths) of the points with error bars of one colour."""
    found = []
    for container in axes.containers:
        if isinstance(container, ErrorbarContainer) and to_hex(container.lines[0].get_color()) == colour.lower():
            line = container.lines[0]
            half = np.array([np.diff(segment[:, 1])[0] / 2 for segment in container.lines[2][0].get_segments()])
            hollow = to_hex(line.get_markerfacecolor()) == "#ffffff"
            found.append((np.column_stack(line.get_data()).astype(float), line.get_marker(), hollow, half))
    return found


def _legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


# --- the curve -------------------------------------------------------------------------------------


def test_converged_points_are_joined_and_others_are_not() -> None:
    points = fake_results.points()
    axes = plots.curve_figure(points).axes[0]
    for row in range(2):
        (curve,) = _curves(axes, PALETTE[row])
        assert curve[:, 0] == pytest.approx([point["alpha"] for point in points])
        for point, y in zip(points, curve[:, 1], strict=True):
            assert math.isnan(y) == (point["result"] != "success")
            assert math.isnan(y) or y == pytest.approx(point["Q"][row][row])
        ((where, marker, hollow, half),) = _bars(axes, PALETTE[row])
        failed = [point for point in points if point["result"] != "success"]
        assert (marker, hollow) == ("D", True)
        assert where == pytest.approx(np.array([[point["alpha"], point["Q"][row][row]] for point in failed]))
        assert half == pytest.approx([1.959964 * point["Q_error"][row][row] for point in failed], rel=1e-5)


def test_the_legend_names_failures_exactly_when_there_are_any() -> None:
    points = fake_results.points()
    assert "not a success" in _legend(plots.curve_figure(points))
    for point in points:
        point["result"] = "success"
    assert "not a success" not in _legend(plots.curve_figure(points))
    run = gamp_plots.gamp_points(fake_results.gamp_runs())
    legend = _legend(plots.curve_figure(points, gamp_points=run))
    assert "GAMP, $D = 1000$, not converged" in legend and "not a success" not in legend


def test_a_converged_point_between_failures_is_still_seen() -> None:
    points = fake_results.points()[20:25]
    for point, result in zip(points, ("success", "diverged", "success", "diverged", "success"), strict=True):
        point["result"] = result
    axes = plots.curve_figure(points).axes[0]
    alone = [line for line in axes.lines if line.get_marker() == "_" and to_hex(line.get_color()) == PALETTE[1].lower()]
    assert alone[0].get_xdata() == pytest.approx([points[i]["alpha"] for i in (0, 2, 4)])


def test_bands_are_student_intervals() -> None:
    points = [point | {"degrees_of_freedom": 7} for point in fake_results.points() if point["result"] == "success"]
    axes = plots.curve_figure(points, panels=["overlap"]).axes[0]
    band = axes.collections[0].get_paths()[0].vertices
    point = points[20]
    heights = band[np.isclose(band[:, 0], point["alpha"]), 1]
    half = stats.t.ppf(0.975, 7) * point["Q_error"][0][0]
    assert [heights.min(), heights.max()] == pytest.approx([point["Q"][0][0] - half, point["Q"][0][0] + half])


def test_an_infinite_error_draws_no_band() -> None:
    points = [point | {"Q_error": [[np.inf, 0.0], [0.0, np.inf]]} for point in fake_results.points()]
    figure = plots.curve_figure(points)
    assert "95 % interval" not in _legend(figure)
    assert plots.svg_text(figure).startswith("<svg")


def test_a_curve_that_began_before_its_threshold_does_not_fall() -> None:
    """Some scrambles are unstable below the mean threshold: the mean overlap is above zero there, and stays so."""
    points = [
        {"alpha": alpha, "Q": [[q]], "Q_error": [[0.03]], "result": "success"}
        for alpha, q in ((0.6, 0.0), (0.7, 0.05), (0.8, 0.2))
    ]
    threshold = {"kind": "weak", "layers": [1], "alpha": 0.72, "error": 0.01, "Q": [[0.0]]}
    for some in (points, points[::2]):
        lines = [list(line.get_xdata()) for line in plots.curve_figure(some, thresholds=[threshold]).axes[0].lines]
        (drawn,) = [x for x in lines if 0.6 in x]
        assert len(drawn) == 3


def test_solutions_are_drawn_as_they_are() -> None:
    """What ``curve`` and ``weak_recovery`` return, without files in between."""
    model = smisym.compile(Architecture(2, (Attention(),)))
    solutions = smisym.curve(model, [0.2, 0.3], samples=2048)
    thresholds = smisym.weak_recovery(model, samples=2048)
    assert all(solution.result.ok for solution in solutions)
    figure = plots.curve_figure(solutions, thresholds, labels=model.labels)
    (line,) = [line for line in figure.axes[0].lines if len(line.get_xdata()) >= 2 and line.get_linestyle() == "-"][:1]
    assert np.asarray(line.get_ydata(), dtype=float)[-1] == pytest.approx(solutions[-1].value.Q[0, 0])


def test_the_curve_passes_through_the_states_just_below_weak_thresholds() -> None:
    points = [point | {"result": "success"} for point in fake_results.points()]
    thresholds = fake_results.thresholds()
    axes = plots.curve_figure(points, thresholds).axes[0]
    (first,), (second,) = (_curves(axes, PALETTE[row])[:1] for row in range(2))
    for threshold in thresholds[:2]:
        for row, curve in enumerate((first, second)):
            (y,) = curve[np.isclose(curve[:, 0], threshold["alpha"]), 1]
            assert y == pytest.approx(threshold["Q"][row][row])
    assert len(first) == len(points) + 2


def test_no_kink_is_put_beside_a_failure() -> None:
    axes = plots.curve_figure(fake_results.points(), fake_results.thresholds()).axes[0]
    curve = _curves(axes, PALETTE[0])[0]
    # The point at 0.7333, right of the second threshold, did not converge.
    assert not np.isclose(curve[:, 0], 0.7194).any()
    assert np.isclose(curve[:, 0], 0.185478).any()


def test_thresholds_are_lines_through_every_panel_with_their_numbers() -> None:
    thresholds = [*fake_results.thresholds(), {"kind": "hard", "layers": [1], "alpha": None, "error": None, "Q": None}]
    figure = _figure(thresholds=thresholds)
    expected = [threshold["alpha"] for threshold in thresholds if threshold["alpha"] is not None]
    for axes in figure.axes:
        lines = [line for line in axes.lines if np.ndim(line.get_xdata()) and len(set(line.get_xdata())) == 1]
        vertical = [line.get_xdata()[0] for line in lines if list(line.get_ydata()) == [0, 1]]
        assert vertical == pytest.approx(expected)
    labels = [text.get_text() for text in figure.axes[0].texts]
    assert sum("0.185478(4)" in label for label in labels) == 1
    assert sum(r"\mathrm{AMP}" in label and "1.020(10)" in label for label in labels) == 1
    assert len(labels) == len(expected)


def _boxes(figure: Figure, artists: list[Any]) -> list[Any]:
    renderer = figure.canvas.get_renderer()
    return [artist.get_window_extent(renderer) for artist in artists]


@pytest.mark.parametrize("width", [7.0, 3.4])
@pytest.mark.parametrize("alphas", [(0.18, 0.72, 1.0, 1.02), (0.5, 0.51, 0.52, 0.53), (0.01, 1.57, 1.59), (0.3, 0.45)])
def test_threshold_labels_do_not_meet_and_no_stem_crosses_them(width: float, alphas: tuple[float, ...]) -> None:
    kinds = ("weak", "weak", "perfect_stable", "perfect_amp")
    thresholds = [
        {"kind": kind, "layers": [1 + n % 2], "alpha": alpha, "error": 1e-4, "Q": None}
        for n, (kind, alpha) in enumerate(zip(kinds, alphas, strict=False))
    ]
    figure = _figure(thresholds=thresholds, width=width, panels=["overlap"])
    axes = figure.axes[0]
    texts = list(axes.texts)
    boxes = [text.get_tightbbox(figure.canvas.get_renderer()) for text in texts]
    words = [matplotlib.text.Text.get_window_extent(text, figure.canvas.get_renderer()) for text in texts]
    for one, other in itertools.combinations(words, 2):
        assert not one.overlaps(other)
    top = axes.get_window_extent().y1
    for text, box in zip(texts, words, strict=True):
        assert box.y0 >= top
        # The stem rises from the axes at its own alpha to the foot of its own label.
        x = axes.transData.transform((text.xy[0], 0))[0]
        for other in words:
            if other is not box and other.y0 < box.y0:
                assert not other.x0 + 0.5 < x < other.x1 - 0.5
    assert all(0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 for box in boxes)


@pytest.mark.parametrize("width", [7.0, 3.4])
def test_the_legend_covers_nothing_and_everything_fits(width: float) -> None:
    figure = _figure(width=width, title="Two layers")
    renderer = figure.canvas.get_renderer()
    legend = figure.legends[0].get_window_extent(renderer)
    for axes in figure.axes:
        assert not legend.overlaps(axes.get_tightbbox(renderer))
    inside = figure.axes[1].get_legend().get_window_extent(renderer)
    for line in (line for line in figure.axes[1].lines if line.get_linestyle() != "None"):
        path = line.get_transform().transform_path(line.get_path())
        if len(set(line.get_xdata())) > 1:
            assert not path.intersects_bbox(inside, filled=False)
    extent = figure.get_tightbbox(renderer)
    assert extent.x0 >= 0 and extent.y0 >= 0
    assert extent.x1 <= figure.get_figwidth() and extent.y1 <= figure.get_figheight()
    assert figure.get_figwidth() == width


def test_gamp_and_published_points_are_drawn_apart() -> None:
    runs = gamp_plots.gamp_points(fake_results.gamp_runs())
    axes = _figure(gamp_points=runs, points=fake_results.points()[:10]).axes[0]
    drawn = {hollow: where for where, marker, hollow, _ in _bars(axes, PALETTE[1]) if marker == "s"}
    expected = {
        ok: np.array([[r["alpha"], r["Q"][1][1]] for r in runs if (r["result"] == "success") == ok]) for ok in (0, 1)
    }
    assert drawn[False] == pytest.approx(expected[1])
    assert drawn[True] == pytest.approx(expected[0])
    amp = fake_results.published()["amp"]
    grey = [(where, half) for where, marker, hollow, half in _bars(axes, "#8c8c8c") if marker == "s" and hollow]
    assert grey[0][0] == pytest.approx(np.array([[r["alpha"], r["Q"][1]] for r in amp]))
    assert grey[0][1] == pytest.approx([r["Q_error"][1] for r in amp])


def test_panels_without_data_are_left_out() -> None:
    bare = [{key: point[key] for key in ("alpha", "Q", "Q_error", "result")} for point in fake_results.points()]
    assert len(plots.curve_figure(bare).axes) == 1
    assert len(plots.curve_figure(fake_results.points()).axes) == 3
    assert len(plots.curve_figure(fake_results.points(), panels=["overlap", "free_entropy"]).axes) == 2
    infinite = [point | {"free_entropy": None, "unbounded": "+inf"} for point in fake_results.points()]
    assert len(plots.curve_figure(infinite).axes) == 2


def test_a_free_entropy_that_is_not_finite_is_said_not_drawn() -> None:
    axes = plots.curve_figure(fake_results.points()).axes[2]
    curve = _curves(axes, "#222222")[0]
    unbounded = np.array([point.get("unbounded") == "+inf" for point in fake_results.points()])
    assert np.isnan(curve[unbounded, 1]).all() and np.isfinite(curve[~unbounded, 1]).sum() == (~unbounded).sum() - 2
    assert [text.get_text() for text in axes.texts] == [r"$+\infty$"]


def test_missing_values_do_not_stop_a_figure() -> None:
    points = fake_results.points()
    points[5] |= {"Q": None, "Q_error": None, "bayes_error": None, "result": "diverged"}
    assert plots.svg_text(plots.curve_figure(points, published={"amp": fake_results.published()["amp"]}))
    assert plots.svg_text(plots.curve_figure(points[:1]))


def test_bad_requests_are_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        plots.curve_figure([])
    with pytest.raises(InputError, match="panels"):
        plots.curve_figure(fake_results.points(), panels=["overlap", "entropy"])
    with pytest.raises(InputError, match="labels"):
        plots.curve_figure(fake_results.points(), labels=["one"])
    with pytest.raises(InputError, match="GAMP runs"):
        gamp_plots.gamp_figure([])


# --- GAMP ------------------------------------------------------------------------------------------


def test_gamp_points_average_runs_of_one_kind() -> None:
    runs = fake_results.gamp_runs()
    made = gamp_plots.gamp_points(runs)
    assert [(point["alpha"], point["runs"], point["result"]) for point in made] == [
        (0.5, 4, "success"),
        (0.9, 1, "max_steps"),
        (0.9, 3, "success"),
        (1.3, 4, "success"),
    ]
    last = np.array([run["iterations"][-1]["overlap"] for run in runs[:4]])
    assert made[0]["Q"] == pytest.approx(last.mean(axis=0))
    assert made[0]["Q_error"] == pytest.approx(last.std(axis=0, ddof=1) / 2)
    assert made[0]["degrees_of_freedom"] == 3
    assert np.isinf(made[1]["Q_error"]).all()


def _tiny_run(seed: int, values: list[float], result: str) -> dict[str, Any]:
    steps = [{"step": step, "overlap": [[value]], "Q": [[value]]} for step, value in enumerate(values)]
    return {"alpha": 1.0, "dim": 100, "seed": seed, "iterations": steps, "result": result}


def test_runs_that_converged_early_stay_and_runs_that_stopped_do_not() -> None:
    runs = [
        _tiny_run(0, [0.0, 0.4, 0.8, 0.9], "success"),
        _tiny_run(1, [0.0, 0.7], "success"),
        _tiny_run(2, [0.0, 0.1], "max_steps"),
    ]
    figure = gamp_plots.gamp_figure(runs)
    points = {hollow: (where, half) for where, _, hollow, half in _bars(figure.axes[0], PALETTE[0])}
    where, half = points[False]
    assert where == pytest.approx(np.array([[0, 0.0], [1, 0.4], [2, 0.75], [3, 0.8]]))
    assert half[2] == pytest.approx(stats.t.ppf(0.975, 1) * 0.05)
    assert points[True][0] == pytest.approx(np.array([[1, 0.1]]))
    assert "stopped, not converged" in _legend(figure)


def test_the_gamp_figure_has_a_panel_for_each_alpha_with_theory() -> None:
    figure = gamp_plots.gamp_figure(fake_results.gamp_runs(), fake_results.trajectories())
    assert [axes.get_title() for axes in figure.axes] == [rf"$\alpha = {alpha}$" for alpha in ("0.5", "0.9", "1.3")]
    for axes, theory in zip(figure.axes, fake_results.trajectories(), strict=True):
        for row in range(2):
            (curve,) = _curves(axes, PALETTE[row])
            assert curve == pytest.approx(np.array([[s["step"], s["Q"][row][row]] for s in theory["iterations"]]))
    assert "state evolution" in _legend(figure)
    alone = gamp_plots.gamp_figure(fake_results.gamp_runs())
    assert "state evolution" not in _legend(alone)
    for one, line in ((figure, "-"), (alone, "None")):
        shown = dict(zip(_legend(one), one.legends[0].get_lines(), strict=True))
        assert [shown[f"layer {row}"].get_linestyle() for row in (1, 2)] == [line] * 2


@pytest.mark.parametrize("width", [7.0, 3.4])
def test_panels_fill_rows_and_every_column_ends_in_numbers(width: float) -> None:
    runs = [_tiny_run(0, [0.1, 0.5], "success") | {"alpha": alpha} for alpha in (0.2, 0.4, 0.6, 0.8)]
    figure = gamp_plots.gamp_figure(runs, width=width)
    assert len(figure.axes) == 4
    renderer = figure.canvas.get_renderer()
    bottoms = {
        round(axes.get_position().x0, 6): axes for axes in sorted(figure.axes, key=lambda a: -a.get_position().y0)
    }
    assert len(bottoms) == (3 if width == 7.0 else 1)
    for axes in bottoms.values():
        assert axes.xaxis.get_tick_params()["labelbottom"]
    for one, other in itertools.combinations(figure.axes, 2):
        assert not one.get_tightbbox(renderer).overlaps(other.get_tightbbox(renderer))


def test_runs_without_a_truth_show_the_overlap_with_itself() -> None:
    runs = [_tiny_run(0, [0.1, 0.5], "success")]
    for step in runs[0]["iterations"]:
        step["overlap"] = None
    axes = gamp_plots.gamp_figure(runs).axes[0]
    assert axes.get_ylabel() == "overlap with itself"
    assert _bars(axes, PALETTE[0])[0][0] == pytest.approx(np.array([[0, 0.1], [1, 0.5]]))


# --- files and global state ------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
def test_the_same_figure_gives_the_same_bytes(suffix: str, tmp_path) -> None:
    figure = _figure()
    first = plots.save(figure, tmp_path / f"one{suffix}").read_bytes()
    again = plots.save(figure, tmp_path / f"two{suffix}").read_bytes()
    other = plots.save(_figure(), tmp_path / f"three{suffix}").read_bytes()
    assert first == again == other
    assert b"Date" not in first and b"dc:date" not in first
    assert len(list(tmp_path.iterdir())) == 3


def test_another_process_and_the_users_settings_change_nothing() -> None:
    code = (
        "import sys, hashlib, fake_results, matplotlib\n"
        "from smisym.report import plots\n"
        "matplotlib.rcParams['font.size'] = 30\n"
        "matplotlib.rcParams['axes.grid'] = True\n"
        "figure = plots.curve_figure(fake_results.points(), fake_results.thresholds())\n"
        "print(hashlib.sha256(plots.svg_text(figure).encode()).hexdigest())\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert matplotlib.rcParams['font.size'] == 30\n"
    )
    here = os.path.dirname(fake_results.__file__)
    paths = os.pathsep.join([here, os.path.dirname(here)])
    digests = {
        subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    here_too = plots.svg_text(plots.curve_figure(fake_results.points(), fake_results.thresholds()))
    assert digests == {hashlib.sha256(here_too.encode()).hexdigest() + "\n"}


def test_saving_refuses_other_formats_and_missing_folders(tmp_path) -> None:
    figure = plots.curve_figure(fake_results.points()[:3])
    with pytest.raises(InputError, match=r"\.svg, \.pdf, \.png"):
        plots.save(figure, tmp_path / "figure.gif")
    with pytest.raises(InputError, match="folder that exists"):
        plots.save(figure, tmp_path / "missing" / "figure.svg")
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_any_size_can_be_set_in_a_label() -> None:
    thresholds = [
        {"kind": "weak", "layers": [1], "alpha": 3.2e-7, "error": 4e-9, "Q": None},
        {"kind": "spinodal", "layers": [], "alpha": 0.5, "error": math.inf, "Q": None},
    ]
    figure = plots.curve_figure(fake_results.points(), thresholds)
    labels = "".join(text.get_text() for text in figure.axes[0].texts)
    assert r"3.20(4)\times 10^{-7}" in labels and r"0.5(\infty)" in labels


def test_runs_that_diverged_leave_room_for_theory() -> None:
    """They are drawn at the border, and the legend says beyond what; the axis ends there."""
    points = [{"alpha": a, "Q": [[a]], "Q_error": [[0.01]], "result": "success"} for a in (0.2, 0.4, 0.6)]
    run = {"alpha": 0.4, "dim": 200, "runs": 1, "Q_error": [[np.inf]]}
    runs = [{**run, "Q": [[0.45]], "result": "success"}, {**run, "Q": [[7.0]], "result": "diverged"}]
    figure = plots.curve_figure(points, gamp_points=runs, panels=("overlap",))
    axes = figure.axes[0]
    drawn = [float(y) for line in axes.get_lines() for y in np.atleast_1d(line.get_ydata())]
    assert axes.get_ylim()[1] < 1.4 and max(drawn) == pytest.approx(1.3)
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert any("beyond 1.3" in one for one in said)
    without = plots.curve_figure(points, gamp_points=runs[:1], panels=("overlap",))
    assert not any("beyond" in text.get_text() for text in without.legends[0].get_texts())
