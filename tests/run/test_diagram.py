"""Phase diagrams: the same bits on any executor, resumed or not; boundaries over one and two parameters."""

from __future__ import annotations

import pickle
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention, InputError
from smisym.base.errors import DerivationError, NoChartError
from smisym.report.phase_pages import save_picture, save_table
from smisym.run import terminal

ONE = Architecture(2, (Attention(),))
QUICK: dict[str, Any] = {"follow": False, "stages": 1, "samples": 1024, "refine": 0}


class Broken(Executor):
    """Loses its workers at once."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(BrokenExecutor("killed"))
        return future


class Counting(Executor):
    """Runs at once, and counts."""

    def __init__(self) -> None:
        self.count = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.count += 1
        future: Future[Any] = Future()
        future.set_result(pickle.loads(pickle.dumps(fn(*args, **kwargs))))
        return future


def test_one_layer_learns_from_a_sixth_on_at_any_temperature() -> None:
    found = smisym.phase_diagram(ONE, {"beta": [0.5, 1, 2]}, workers=1, **QUICK)
    ((_, (track,)),) = found.boundaries
    assert [t["alpha"] for t in track.found] == pytest.approx([1 / 6] * 3, rel=1e-5)
    assert found.changes == ()
    assert found.result is smisym.Result.SUCCESS
    assert [record["at"] for record in found] == [{"beta": b} for b in (0.5, 1.0, 2.0)]


def test_the_executor_changes_no_bit(tmp_path: Path) -> None:
    vary = {"beta": [0.5, 1.0, 2.0]}
    alone = smisym.phase_diagram(ONE, vary, workers=1, **QUICK)
    with ThreadPoolExecutor(2) as threads:
        assert smisym.phase_diagram(ONE, vary, executor=threads, **QUICK) == alone
    assert smisym.phase_diagram(ONE, vary, workers=2, **QUICK) == alone
    counting = Counting()
    assert smisym.phase_diagram(ONE, vary, executor=counting, store=tmp_path, **QUICK) == alone
    assert counting.count == 3
    # What is kept is not made again, also by a larger diagram, and by one in this process.
    larger = smisym.phase_diagram(ONE, {"beta": [0.5, 1.0, 1.5, 2.0]}, executor=counting, store=tmp_path, **QUICK)
    assert counting.count == 4
    assert [r for r in larger if r["at"]["beta"] != 1.5] == list(alone)
    assert smisym.phase_diagram(ONE, vary, store=tmp_path, workers=1, **QUICK) == alone


def test_other_settings_are_not_taken_for_the_same(tmp_path: Path) -> None:
    counting = Counting()
    for seed in (0, 1):
        smisym.phase_diagram(ONE, {"beta": [1.0]}, executor=counting, store=tmp_path, **QUICK, seed=seed)
    assert counting.count == 2


def test_an_executor_without_workers_is_told_and_what_was_finished_stays(tmp_path: Path) -> None:
    done = smisym.phase_diagram(ONE, {"beta": [1.0]}, store=tmp_path, workers=1, **QUICK)
    with pytest.raises(InputError, match=r"executor.*lost its workers.*same store"):
        smisym.phase_diagram(ONE, {"beta": [1.0, 2.0]}, executor=Broken(), store=tmp_path, **QUICK)
    assert smisym.phase_diagram(ONE, {"beta": [1.0]}, executor=Broken(), store=tmp_path, **QUICK) == done


def test_the_gap_in_which_a_boundary_ends_is_halved() -> None:
    # A product of two signs is learned from pi^2/4 on, one of three is hard.
    def make(b: float) -> SMI:
        return SMI("sign(z1 * z2)", 2) if b < 0.7 else SMI("sign(z1 * z2 * z3)", 3)

    found = smisym.phase_diagram(make, {"b": [0.0, 1.0]}, workers=1, **QUICK | {"refine": 3})
    assert [r["at"]["b"] for r in found] == [0.0, 0.5, 0.625, 0.75, 1.0]
    (change,) = found.changes
    assert (change.what, change.between) == ("ends", (0.625, 0.75))
    assert "weak, z1, z2 ends between 0.625 and 0.75" in found._repr_html_()


def test_over_two_parameters_it_is_said_where_in_both_a_boundary_ends(capsys: pytest.CaptureFixture[str]) -> None:
    def make(b: float, power: float) -> SMI:
        return SMI("sign(z1 * z2)", 2) if b < 0.7 else SMI("sign(z1 * z2 * z3)", 3)

    found = smisym.phase_diagram(make, {"b": [0.0, 1.0], "power": [1, 2]}, workers=1, **QUICK)
    assert [change.second for change in found.changes] == [("power", 1.0), ("power", 2.0)]
    assert "weak, z1, z2 ends between 0 and 1, at power = 2." in found._repr_html_()
    assert [change["power"] for change in found.document()["changes"]] == [1.0, 2.0]
    terminal.print_diagram(found.document())
    assert "weak, z1, z2 ends between b = 0 and 1, at power = 1" in capsys.readouterr().out


def test_branches_are_followed_where_nothing_else_is_said() -> None:
    found = smisym.phase_diagram(ONE, {"beta": [1.0]}, samples=1024, workers=1)
    assert found.unseen is not None
    assert 0 < found.unseen < 0.2
    (record,) = found
    assert [branch["ends"] for branch in record["branches"]] == ["perfect"]
    assert {t["kind"] for t in record["thresholds"]} == {"weak", "perfect_stable", "perfect_amp"}


def test_over_two_parameters_each_value_of_the_second_has_its_boundaries(tmp_path: Path) -> None:
    found = smisym.phase_diagram(
        lambda noise, power: SMI(f"abs(z1)**{int(power)}", 1, noise=noise),
        {"noise": [0.1, 0.2], "power": [1, 2]}, workers=1, **QUICK,
    )  # fmt: skip
    assert [second for second, _ in found.boundaries] == [1.0, 2.0]
    assert len(found) == 4
    axes = found.plot()
    assert [line.get_label() for line in axes.get_legend().get_lines()] == [
        "weak, z1, power = 1",
        "weak, z1, power = 2",
    ]
    save_table(found, tmp_path / "table.csv")
    lines = (tmp_path / "table.csv").read_text().splitlines()
    assert lines[0] == "noise,power,boundary,kind,rows,alpha,alpha_error,result"
    assert len(lines) == 5
    for name in ("a.svg", "a.png", "a.pdf"):
        save_picture(found.picture(), tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000


def test_it_shows_itself_and_is_saved(tmp_path: Path) -> None:
    found = smisym.phase_diagram(ONE, {"skip": [0.0, 1.0]}, workers=1, **QUICK)
    assert "<svg" in found._repr_html_()
    assert "PhaseDiagram: skip at 2 values; success" in repr(found)
    frame = found.to_dataframe()
    assert list(frame["kind"]) == ["weak", "weak"]
    np.testing.assert_allclose(frame["alpha"], 1 / 6, rtol=1e-5)
    smisym.save_result(tmp_path / "diagram.json", found, architecture=ONE)
    assert smisym.load_result(tmp_path / "diagram.json") == found
    smisym.save_figure(found.plot(), tmp_path / "diagram.png")
    with pytest.raises(InputError, match="figure"):
        smisym.save_figure(found, tmp_path / "diagram.png")  # type: ignore[arg-type]
    document = found.document()
    assert document["boundaries"][0]["values"] == [0.0, 1.0]
    assert document["changes"] == []


@pytest.mark.parametrize(
    ("network", "vary", "more", "message"),
    [
        (ONE, {}, {}, "vary"),
        (ONE, {"skip": []}, {}, "vary"),
        (ONE, {"skip": [1.0, np.nan]}, {}, "vary"),
        (ONE, {"a": [1], "b": [1], "c": [1]}, {}, "vary"),
        (ONE, {"depth": [1]}, {}, "parameter to vary"),
        ("one", {"skip": [1]}, {}, "network"),
        (lambda skip: 3, {"skip": [1]}, {}, "network"),
        (ONE, {"skip": [1]}, {"executor": 3}, "executor"),
        (ONE, {"skip": [1]}, {"refine": -1}, "refine"),
        (ONE, {"skip": [1]}, {"sample": 3}, "sample"),
        (ONE, {"skip": [-1.0]}, {}, "skip"),
    ],
)
def test_bad_input_is_refused(network: Any, vary: Any, more: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        smisym.phase_diagram(network, vary, **more)


def test_errors_come_back_from_other_processes_as_they_are() -> None:
    errors = [
        InputError("a", object, "b", "c"),
        NoChartError([("rule", "reason")]),
        DerivationError("step", "claim", "found"),
    ]
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
    with pytest.raises(InputError, match="skip"):
        smisym.phase_diagram(ONE, {"skip": [1.0, 2e6]}, workers=2, **QUICK)
