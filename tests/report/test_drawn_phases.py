"""Pictures of branches, of phase diagrams and of what is learned step by step, made up: what is drawn of them."""

from __future__ import annotations

from typing import Any

import fake_solutions
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import smisym
from smisym import InputError
from smisym.base.cards import Blocks, Boundary, Branched, Course, Courses, Diagram, Traced
from smisym.report.drawing import draw
from smisym.report.plot_parts import PALETTE
from smisym.training.trajectories import Trajectory


@pytest.fixture
def axes() -> Axes:
    figure = Figure()
    FigureCanvasAgg(figure)
    return figure.subplots()


def legend(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def points(axes: Axes, hollow: bool) -> list[tuple[float, float]]:
    """Where points with bars are, hollow ones or full ones."""
    lines = [one for one in axes.lines if one.get_linestyle() == "None" and one.get_marker() not in ("", "None")]
    some = [one for one in lines if (to_hex(one.get_markerfacecolor()) == "#ffffff") == hollow]
    return sorted((float(x), float(y)) for one in some for x, y in one.get_xydata())


def test_branches_are_dashed_where_they_are_unstable_and_have_no_gaps(axes: Axes) -> None:
    alphas = np.array([0.4, 0.3, 0.2, 0.3, 0.4])
    overlaps = np.column_stack([np.linspace(0.9, 0.1, 5), np.linspace(0.8, 0.0, 5)])
    fold = Traced(alphas, 0.01 * alphas, overlaps, np.array([True, True, True, False, False]))
    at_rest = Traced(np.array([0.0, 1.0]), np.zeros(2), np.zeros((2, 2)), np.array([True, True]))
    nothing = Traced(np.empty(0), np.empty(0), np.empty((0, 2)), np.empty(0, dtype=bool))
    kinds = {"kind": "spinodal", "alpha": 0.2, "error": 0.01}, {"kind": "perfect_amp", "alpha": None, "error": None}
    draw(Branched((fold, at_rest, nothing), ("first", "second"), kinds), axes)
    for row in range(2):
        mine = [one for one in axes.lines if to_hex(one.get_color()).lower() == PALETTE[row].lower()]
        solid, dashed = ([one.get_xydata() for one in mine if one.is_dashed() == dashed] for dashed in (False, True))
        assert [len(part) for part in solid] == [3, 2] and len(dashed) == 1
        # The dashed part begins at the fold, where the solid one ends.
        assert dashed[0].tolist() == np.column_stack([alphas, overlaps[:, row]])[2:].tolist()
    assert legend(axes) == ["first", "second", "unstable", "fold, 0.200(10)"]  # none at infinity
    axes.clear()
    draw(Branched((at_rest,), ("first", "second")), axes)
    assert legend(axes) == ["first", "second"]


def boundary(label: str, alphas: Any, ok: Any = True, kind: str = "weak") -> Boundary:
    alphas = np.array(alphas, dtype=float)
    good = np.broadcast_to(ok, alphas.shape)
    return Boundary(label, kind, np.arange(1.0, len(alphas) + 1), alphas, np.full(alphas.shape, 0.01), good)


def test_boundaries_are_lines_and_what_is_no_success_is_a_hollow_point_beside_them(axes: Axes) -> None:
    found = (boundary("z1", [1, 2, 3], [True, False, True]), boundary("fold", [2, 3, 4], kind="spinodal"))
    draw(Diagram(found, ("noise",), "log"), axes)
    assert points(axes, hollow=True) == [(2.0, 2.0)]
    assert points(axes, hollow=False) == [(1.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 3.0), (3.0, 4.0)]
    first = next(one for one in axes.lines if len(one.get_xdata()) == 3)
    np.testing.assert_array_equal(first.get_ydata(), [1, np.nan, 3])
    assert legend(axes) == ["z1", "fold", "no success"]
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_xlabel()) == ("log", "linear", "noise")
    assert axes.get_ylim()[0] == 0


def test_boundaries_of_two_parameters_share_colour_and_entry_of_the_legend(axes: Axes) -> None:
    found = [boundary("z1", [1, 2]), boundary("z2", [3, 200]), boundary("z1", [2, 3])]
    draw(Diagram(tuple(found), ("noise", "skip")), axes)
    lines = [one for one in axes.lines if len(one.get_xdata()) == 2]
    assert [to_hex(one.get_color()).lower() for one in lines] == [PALETTE[k].lower() for k in (0, 1, 0)]
    assert legend(axes) == ["z1", "z2"] and axes.get_yscale() == "log"
    assert points(axes, hollow=False) == []


def test_a_legend_of_many_boundaries_says_how_many_more_there_are(axes: Axes) -> None:
    draw(Diagram(tuple(boundary(f"row {n}", [n + 1]) for n in range(15)), ("noise",)), axes)
    assert legend(axes) == [*(f"row {n}" for n in range(12)), "and 3 more"]


def test_a_diagram_without_boundaries_has_no_legend(axes: Axes) -> None:
    draw(Diagram((), ()), axes)
    assert axes.get_legend() is None and axes.get_xlabel() == "value"


def test_numbers_are_written_into_as_many_blocks_as_can_be_read(axes: Axes) -> None:
    for rows, written in ((6, 36), (7, 0)):
        axes.clear()
        draw(Blocks(np.eye(rows), np.zeros((rows, rows)), tuple(f"row {n}" for n in range(rows))), axes)
        assert len(axes.texts) == written
        assert np.asarray(axes.collections[0].get_array()).ravel().tolist() == np.eye(rows).ravel().tolist()


def test_gamp_is_points_with_two_errors_on_the_line_of_its_theory(axes: Axes) -> None:
    steps = np.arange(3.0)
    mean, error = np.array([[0.0], [0.4], [0.6]]), np.array([[0.0], [0.02], [np.inf]])
    both = [Course(name, "iteration", steps, mean, error, True) for name in ("state evolution", "gamp")]
    draw(Courses(tuple(both), ("layer 1",)), axes)
    assert points(axes, hollow=True) == [(0.0, 0.0), (1.0, 0.4), (2.0, 0.6)]
    (bars,) = axes.containers
    lengths = [np.ptp(segment[:, 1]) for segment in bars.lines[2][0].get_segments()]
    assert lengths == pytest.approx([0, 4 * 0.02, 0])  # none where it is infinite
    assert legend(axes) == ["layer 1", "state evolution", "GAMP"]
    assert axes.get_xlabel() == "iteration" and axes.get_xscale() == "linear"


def test_descent_of_many_epochs_has_a_panel_of_its_own_on_a_logarithmic_axis() -> None:
    made = fake_solutions.dynamics()
    slow = Trajectory(
        "sgd", "epoch", np.linspace(0.1, 0.9, 101)[None, :, None], np.zeros((101, 1)), np.zeros((1, 101)),
        ("success",), ("",),
    )  # fmt: skip
    theory = Trajectory(
        "state evolution", "iteration", np.full((1, 4, 1), 0.5), np.zeros((4, 1)), np.full((1, 4), np.nan),
        ("success",), ("",),
    )  # fmt: skip
    solution = smisym.Solution(smisym.Dynamics((theory, slow), ("layer 1",), (1,)), made.result, settings=made.settings)
    figure = smisym.dynamics_figure(solution, title="one layer")
    assert [axes.get_xlabel() for axes in figure.axes] == ["iteration", "epoch"]
    assert [axes.get_xscale() for axes in figure.axes] == ["linear", "symlog"]
    assert figure.get_suptitle() == "one layer"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["layer 1", "state evolution", "SGD"]
    assert len(smisym.dynamics_figure(made).axes) == 2


@pytest.mark.parametrize("wrong", [fake_solutions.thresholds(), fake_solutions.dynamics().value, None])
def test_a_figure_of_dynamics_is_of_a_solution_of_dynamics(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"solution: given .*a Solution of smisym.dynamics.*pass what it returned"):
        smisym.dynamics_figure(wrong)
