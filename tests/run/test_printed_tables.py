"""What commands print of results that are made up: every number, what is open, and where files are."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_results
import fake_solutions
import numpy as np
import pytest

import smisym
from smisym.run import terminal
from smisym.training.trajectories import Trajectory


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    return "\n".join(" ".join(line.split()) for line in lines)


@pytest.fixture
def phases(tmp_path: Path) -> dict[str, Any]:
    smisym.save_result(tmp_path / "phases.json", fake_solutions.phases())
    return json.loads((tmp_path / "phases.json").read_text()) | {"unseen": 0.0123, "most": 2.0}


def test_transitions_come_with_the_branches_that_they_are_on(
    phases: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.print_phases(phases | {"output": "phases.svg"})
    text = printed(capsys)
    assert "spinodal layer 1, layer 2 0.4000(10) 0.4, 0.2" in text
    assert "information layer 1, layer 2 0.5000(10) 0.4, 0.2" in text
    assert "informed nothing 0.4 to 0.9 1 3 of 4" in text and "weak lost – 0 0 of 0" in text
    assert "a fold less deep than 1.2 % in alpha" in text and text.endswith("written: phases.svg")


def test_unstable_points_between_stable_ones_are_told_where_no_fold_was_seen(
    phases: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    branch = next(b for b in phases["branches"] if len(b["alphas"]) == 4)
    told = "2 points, from alpha = "
    for growth, turns, said in (
        ([0.5, 1.2, 1.1, 0.8], [], True), ([0.5, 1.2, 1.1, 0.8], [1], False), ([0.5, 0.9, 1.1, 1.2], [], False)
    ):  # fmt: skip
        terminal.print_phases(phases | {"thresholds": [], "branches": [branch | {"growth": growth, "turns": turns}]})
        assert (told in printed(capsys)) == said


def test_where_no_transition_was_seen_it_says_up_to_where_and_how_well_was_looked(
    phases: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.print_phases(phases | {"thresholds": [], "unseen": None})
    text = printed(capsys)
    assert "no fold was seen, and no two stable states at once, up to alpha = 2" in text
    assert "a branch has too few points for a fold to be seen" in text and "transition" not in text


def test_a_diagram_has_a_column_for_each_boundary_and_says_where_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    document = fake_solutions.diagram().document()
    terminal.print_diagram(document | {"output": ["diagram.svg", "diagram.csv"]})
    text = printed(capsys)
    assert "noise weak, layer 1 fold of a branch fold of a branch" in text
    assert "0.2 0.300(10) 0.700(10) 1.700(10)" in text and "0.4 0.500(10) – –" in text
    assert "0.8 statistical_error_large" in text
    assert text.count("fold of a branch ends between noise = 0.2 and 0.4") == 2
    assert "a fold less deep than 5 %" in text
    assert text.endswith("written: diagram.svg\nwritten: diagram.csv")
    for record in document["records"]:
        del record["unseen"]
    terminal.print_diagram(document)
    assert "a fold less deep" not in printed(capsys)


def test_a_diagram_over_two_parameters_has_a_line_for_each_pair(capsys: pytest.CaptureFixture[str]) -> None:
    found = fake_solutions.diagram((0.0, 1.0))
    terminal.print_diagram(found.document())
    text = printed(capsys)
    assert "noise, skip weak, layer 1" in text
    for skip in (0, 1):
        for noise in (0.1, 0.2, 0.4, 0.8):
            assert f"{noise}, {skip} {(noise + 0.1) * (1 + skip):.3f}(10)" in text


def test_the_table_of_a_diagram_numbers_its_boundaries() -> None:
    frame = fake_solutions.diagram((0.0, 1.0)).to_dataframe()
    assert len(frame) == 2 * (4 * 2 + 2 * 2)  # a weak and a hard one everywhere, two folds at two values
    assert set(frame["boundary"]) == {-1, 0, 1, 2, 3, 4, 5}
    assert np.isinf(frame["alpha"][frame["boundary"] == -1]).all()
    assert set(frame["kind"][frame["boundary"] == -1]) == {"hard"}
    for _, one in frame[frame["boundary"] >= 0].groupby("boundary"):
        assert one["alpha"].is_monotonic_increasing and len(one) == (4 if set(one["kind"]) == {"weak"} else 2)
        assert one["skip"].nunique() == one["kind"].nunique() == 1


def test_a_diagram_without_a_finite_threshold_is_not_drawn() -> None:
    records = [dict(record) for record in fake_solutions.diagram()]
    for record in records:
        record["thresholds"] = [one for one in record["thresholds"] if one["kind"] == "hard"]
    empty = type(fake_solutions.diagram())(records, ("noise",))
    with pytest.raises(smisym.InputError, match=r"finite thresholds at some value.*print its records"):
        empty.plot()
    assert "<svg" not in empty._repr_html_() and empty.changes == ()


def test_dynamics_say_when_each_layer_is_learned_and_which_run_diverged(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_dynamics(fake_solutions.dynamics().value)
    text = printed(capsys)
    assert "iteration state evolution: layer 1 state evolution: layer 2" in text and "epoch sgd: layer 1" in text
    assert "state evolution, above 0.5: layer 1 never, layer 2 from iteration 2 on" in text
    assert "sgd, seed 2: at epoch 2: the weights blew up" in text
    assert "sgd, seed 1" not in text


def test_of_many_epochs_fewer_and_fewer_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    steps = 1001
    slow = Trajectory(
        "sgd", "epoch", np.linspace(0, 1, steps)[None, :, None], np.zeros((steps, 1)), np.zeros((1, steps)),
        ("success",), ("",),
    )  # fmt: skip
    terminal.print_dynamics(smisym.Dynamics((slow,), ("layer 1",), (1,)))
    lines = printed(capsys).splitlines()
    shown = [int(line.split()[0]) for line in lines if line and line.split()[0].isdigit()]
    assert len(shown) <= terminal.ROWS and shown[:3] == [0, 1, 2] and shown[-1] == steps - 1
    gaps = np.diff(shown)
    assert (np.diff(gaps) >= 0).mean() > 0.8 and gaps[-1] > 100
    assert "sgd, above 0.5: layer 1 from epoch 501 on" in "\n".join(lines)


def checked(verdict: str, **more: Any) -> dict[str, Any]:
    plain = {"property": verdict.replace(" ", "_"), "tried": 3, "of": "samples", "worst": 0.5, "p": None, "said": ""}
    return {**plain, "verdict": verdict, "sentence": f"It {verdict}.", "counterexample": "", "cut_short": None, **more}


def test_a_check_lists_what_fails_with_its_counterexample_and_what_was_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        checked("holds"),
        checked("holds", property="on_the_bound", worst=0.999),
        checked("holds", property="by_chance", worst=1.5, p=0.25),
        checked("fails", worst=None, said="At the first sample.", counterexample="smisym.compile(...)[0]"),
        checked("left out", said="it has no chart"),
        checked("holds", property="short", said="of no interest", cut_short="as many as 2 seconds allow"),
    ]
    terminal.print_check({"properties": rows, "false_alarm": 1e-4, "seed": 7})
    text = printed(capsys)
    assert "holds 3 samples 0.5 holds" in text and "by_chance 3 samples t 1.5, p 0.25 holds" in text
    assert "fails 3 samples ∞ fails" in text and "left_out 3 samples – left out" in text
    assert "on_the_bound at 1: on its bound, not beyond it" in text
    assert "left_out is left out: it has no chart" in text
    assert "short: as many as 2 seconds allow" in text and "of no interest" not in text
    assert "fails with a chance of at most 0.0001 in all (seed 7)." in " ".join(text.split())
    assert text.endswith("fails: It fails.\nAt the first sample.\n\nsmisym.compile(...)[0]")


def test_a_check_of_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_check({"properties": [checked("left out", said="no")], "false_alarm": 0.0, "seed": 0})
    assert printed(capsys).endswith("Nothing was tried.")
    terminal.print_check({"properties": [checked("holds")], "false_alarm": 0.0, "seed": 0})
    assert "standard errors" not in printed(capsys)
    terminal.print_check({"properties": [checked("holds", p=0.5)], "false_alarm": 0.1, "seed": 0})
    assert "as a part of what is allowed" not in printed(capsys)


def test_what_fails_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []
    told = terminal.saying_checked(seen.append)
    for verdict in ("holds", "fails"):
        told(SimpleNamespace(record=lambda verdict=verdict: checked(verdict)))
    assert [record["verdict"] for record in seen] == ["holds", "fails"]
    assert capsys.readouterr().err == "smisym: fails fails\n"


def test_the_first_thresholds_are_said_before_the_long_part(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []
    told = terminal.saying_found(seen.append)
    first = fake_solutions.diagram()[0]["thresholds"][0]
    told({"thresholds": [first, {**first, "kind": "hard", "alpha": None, "order": 4}]})
    told({"thresholds": []})
    assert len(seen) == 2
    said = "weak layer 1 at 0.200(10); hard layer 1 at ∞ (order 4); next, where Q = I is reached"
    assert capsys.readouterr().err == f"smisym: {said}\n"
    terminal.saying_found(seen.append)({"thresholds": []})
    assert "no threshold; next" in capsys.readouterr().err


def test_a_certificate_of_a_file_that_is_no_success_says_that_too(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"what": "Q_11 at 0.5", "stated": 0.25, "error": 0.01, "other": 0.5, "other_error": 0.01, "z": 17.7}
    rows = [
        row | {"stands": False, "said": "far from it"},
        row | {"stated": float("inf"), "other": float("nan"), "z": 0.0, "stands": True, "said": ""},
    ]
    for result, told in (("max_steps", True), ("success", False)):
        terminal.print_certificate({"rows": rows, "seed": 5, "result": result})
        text = printed(capsys)
        assert "Q_11 at 0.5 0.250(10) 0.500(10) 18 does not" in text and "Q_11 at 0.5 ∞ – 0 stands" in text
        assert "with seed 5" in text and "Q_11 at 0.5: far from it" in text
        assert ("the file itself is no success: max_steps" in text) == told


def test_names_of_files_are_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a" * 100 + ".npz", "[b].json"]
    terminal.print_files({"folder": "out", "files": names})
    assert capsys.readouterr().out.splitlines() == [f"written: out/{name}" for name in names]


def test_parts_of_what_fields_span_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """The sum of three fields and their differences are not the same thing, learned twice."""
    one = {"layers": [1, 2, 3], "names": ["z1", "z2", "z3"], "alpha": 1.0, "error": 0.0, "order": None, "Q": None}
    rows = [
        one | {"kind": "trivial", "subspace": [[0.577, 0.5775, 0.577]]},
        one | {"kind": "weak", "subspace": [[-0.53, 0.8, -0.27], [0.62, 0.15, -0.77]]},
        one | {"kind": "perfect_amp", "subspace": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]},
    ]
    terminal.print_thresholds({"thresholds": rows})
    text = printed(capsys)
    assert "trivial z1 + z2 + z3 1" in text
    assert "weak 2 directions of z1, z2, z3 1" in text and "perfect_amp z1, z2, z3 1" in text


def test_heads_of_one_layer_are_named_together(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"layer 1 head {number}" for number in (1, 2)]
    one = {"kind": "weak", "layers": [1], "alpha": 1.0, "error": 0.0, "order": None, "Q": None}
    rows = [one | {"names": names, "subspace": [[1, 0], [0, 1]]}, one | {"names": names[:1], "subspace": [[1, 0]]}]
    terminal.print_thresholds({"thresholds": rows})
    assert "layer 1 heads 1, 2" in printed(capsys)


def test_pictures_of_curves_and_runs_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_curve({"points": fake_results.points(), "output": "curve.svg"})
    assert printed(capsys).endswith("written: curve.svg")
    terminal.print_dynamics(smisym.Dynamics((), ("layer 1",), (1,)), {"output": "dynamics.svg"})
    assert printed(capsys).endswith("written: dynamics.svg")
