"""What ``.plot()`` draws, on axes that are given and on new ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import fake_solutions
import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy import stats

import smisym
from smisym.base.errors import InputError
from smisym.report.plot_parts import PALETTE


@pytest.fixture
def axes() -> Axes:
    figure = Figure()
    FigureCanvasAgg(figure)
    return figure.subplots()


@pytest.fixture
def new_axes() -> Iterator[None]:
    """Figures of pyplot are closed again; the backend needs no screen."""
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def line(axes: Axes, row: int) -> np.ndarray:
    """(n, 2): the longest curve in the colour of a row."""
    lines = [one for one in axes.lines if to_hex(one.get_color()).lower() == PALETTE[row].lower()]
    return np.array(max(lines, key=lambda one: len(one.get_xdata())).get_xydata(), dtype=float)


def test_a_curve_is_drawn_with_its_bands_and_gaps(axes: Axes) -> None:
    curve = fake_solutions.curve()
    assert curve.plot(axes) is axes
    drawn = line(axes, 1)
    good = np.array([solution.result.ok for solution in curve])
    assert drawn[:, 0] == pytest.approx(curve.alphas)
    assert drawn[good, 1] == pytest.approx([s.value.Q[1, 1] for s in curve if s.result.ok])
    assert np.isnan(drawn[~good, 1]).all()
    bands = np.concatenate([path.vertices for band in axes.collections for path in band.get_paths()])
    half = stats.t.ppf(0.975, 3) * curve[2].value.Q_error[1, 1]
    assert np.abs(bands - [0.4, 0.8 + half]).sum(axis=1).min() < 1e-12
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [*fake_solutions.NAMES, "no success"]
    assert r"\alpha" in axes.get_xlabel() and "overlap" in axes.get_ylabel()


def test_thresholds_are_lines_of_a_curve(axes: Axes) -> None:
    found = fake_solutions.thresholds()
    fake_solutions.curve().plot(axes, thresholds=found)
    upright = [x[0] for x in (np.atleast_1d(one.get_xdata()) for one in axes.lines) if len(x) == 2 and x[0] == x[1]]
    assert upright == [found.value[0].alpha]  # the other one is infinite
    axes.clear()
    fake_solutions.curve()[:2].plot(axes, thresholds=found.value[:1])
    for wrong in (3, [0.5], "weak"):
        with pytest.raises(InputError, match="or its Thresholds"):
            fake_solutions.curve().plot(axes, thresholds=wrong)  # type: ignore[arg-type]


def test_a_fixed_point_is_blocks(axes: Axes) -> None:
    assert fake_solutions.point(0.5).plot(axes) is axes
    (mesh,) = axes.collections
    assert np.asarray(mesh.get_array()).ravel().tolist() == [0.25, 0.0, 0.0, 0.75]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(fake_solutions.NAMES)
    assert {text.get_text() for text in axes.texts} == {"0.25", "0", "0.75"}


def test_gamp_is_drawn_step_by_step(axes: Axes) -> None:
    fake_solutions.gamp().plot(axes)
    assert line(axes, 1) == pytest.approx(np.array([[n, 0.3 * n] for n in range(4)]))
    assert axes.get_ylabel() == "overlap with the truth"
    assert axes.get_legend().get_texts()[-1].get_text() == "no success"
    axes.clear()
    fake_solutions.gamp(known=False).plot(axes)
    assert axes.get_ylabel() == "overlap with itself"


def test_thresholds_are_marks(axes: Axes) -> None:
    fake_solutions.thresholds().plot(axes)
    assert [text.get_text() for text in axes.texts] == [r"$\alpha_{2} = 0.1854779(18)$"]


@pytest.mark.parametrize("make", [fake_solutions.curve, fake_solutions.thresholds, fake_solutions.gamp])
def test_new_axes_are_made_and_returned(make: Any, new_axes: None) -> None:
    before = dict(matplotlib.rcParams)
    drawn = make().plot()
    assert isinstance(drawn, Axes) and len(drawn.get_children()) > 5
    drawn.figure.canvas.draw()
    assert dict(matplotlib.rcParams) == before


def test_axes_that_are_given_need_no_pyplot() -> None:
    code = (
        "import sys, fake_solutions\n"
        "from matplotlib.figure import Figure\n"
        "fake_solutions.curve().plot(Figure().subplots())\n"
        "fake_solutions.curve()._repr_html_()\n"
        "print('matplotlib.pyplot' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment())
    assert done.stdout.strip() == "False"


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_what_cannot_be_drawn_is_refused(axes: Axes) -> None:
    with pytest.raises(InputError, match="plain numbers"):
        fake_solutions.number().plot(axes)
    with pytest.raises(InputError, match="matplotlib Axes"):
        fake_solutions.curve().plot(3)
    with pytest.raises(InputError, match="no points"):
        smisym.Curve().plot(axes)
    found = fake_solutions.thresholds()
    hard = smisym.Solution(smisym.Thresholds(found.value[1:]), found.result)
    with pytest.raises(InputError, match="finite"):
        hard.plot(axes)
    assert "hard" in hard._repr_html_()
