"""``smisym certify``: right files stand, and one wrong number in a file does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import smisym
from smisym import SMI, Architecture, Attention
from smisym.cli import app

ONE = Architecture(2, (Attention(),))
Change = Callable[[dict[str, Any]], object]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def result_file(folder: Path, command: str, declared: Architecture | SMI, *options: object) -> Path:
    smisym.save(declared, folder / "network.toml")
    found = run(command, folder / "network.toml", *options, "--json")
    assert found.exit_code == 0, found.output
    (folder / "result.json").write_text(found.stdout)
    return folder / "result.json"


def changed(path: Path, change: Change) -> Path:
    document = json.loads(path.read_text())
    change(document)
    wrong = path.with_name("wrong.json")
    wrong.write_text(json.dumps(document))
    return wrong


def test_thresholds_stand_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    path = result_file(tmp_path, "thresholds", ONE, "--samples", 2048)
    keep = ["--state", tmp_path / "state"]
    found = run("certify", path, "--json")
    assert found.exit_code == 0, found.output
    # What is kept on the way is what it would be without, and no reason for anything that is wrong to stand.
    assert run("certify", path, "--json", *keep).stdout == found.stdout
    kept = sorted(path.relative_to(tmp_path) for path in tmp_path.glob("state/certify/*/*"))
    assert run("certify", path, "--json", *keep).stdout == found.stdout
    assert kept == sorted(path.relative_to(tmp_path) for path in tmp_path.glob("state/certify/*/*"))
    document = json.loads(found.stdout)
    assert document["stands"]
    first = document["rows"][0]
    assert first["what"] == "1: weak layer 1"
    assert "closed form 1/6" in first["said"]
    assert "state evolution has 0 at" in first["said"]

    def moved(key: str, by: float) -> Change:
        return lambda document: document["thresholds"][0].update({key: document["thresholds"][0][key] + by})

    wrong: list[tuple[Change, str]] = [
        (moved("alpha", 0.001), "1 of 3 numbers"),
        (lambda document: document["thresholds"].pop(0), "found with this seed alone"),
        (lambda document: document["thresholds"][0].update({"kind": "trivial"}), "not found with"),
        (lambda document: document["thresholds"][1].update({"alpha": 0.51}), "1 of 3 numbers"),
        (lambda document: document["thresholds"][0].update({"Q": [[0.9]]}), "other overlaps"),
        (lambda document: document["thresholds"][0].update({"error": 1e-9}), "another error"),
    ]
    for change, words in wrong:
        refused = run("certify", changed(path, change), *keep)
        assert refused.exit_code == 3, refused.output
        assert words in " ".join(refused.output.split())


def test_few_points_that_learn_a_little_just_below_are_no_alarm(tmp_path: Path) -> None:
    """With 128 points a scramble one in ten has something at 0.98 of the threshold, and one in two nothing at 1.02."""
    path = result_file(tmp_path, "thresholds", ONE, "--samples", 1024, "--stages", 1)
    keep = ["--json", "--state", tmp_path / "state"]
    for seed in (1, 2):
        found = json.loads(run("certify", path, "--seed", seed, *keep).stdout)
        assert found["stands"], found["rows"][0]["said"]
    # But state evolution that has something, or nothing, on the wrong side is seen.
    for factor in (0.7, 1.3):
        wrong = changed(path, lambda document, by=factor: moved(document["thresholds"][0], by))  # type: ignore[misc]
        said = json.loads(run("certify", wrong, *keep).stdout)["rows"][0]["said"]
        (evolved,) = [words for words in said.split("; ") if words.startswith("state evolution has")]
        assert evolved.endswith("not so"), said


def moved(threshold: dict[str, Any], by: float) -> None:
    threshold["alpha"] *= by


def test_an_error_that_is_stated_too_small_is_seen(tmp_path: Path) -> None:
    path = result_file(tmp_path, "curve", SMI("abs(z1) + z1 / 4", 1), "--alpha", "0.5,0.8", "--samples", 512)
    keep = ["--state", tmp_path / "state"]
    found = run("certify", path, *keep)
    own = json.loads(path.read_text())["result"]
    assert found.exit_code == 0
    # A file that is no success may stand: so it says of itself.
    assert (f"no success: {own}" in " ".join(found.stdout.split())) == (own != "success")
    rough = changed(path, lambda document: document.update(result="statistical_error_large"))
    assert "no success: statistical_error_large" in " ".join(run("certify", rough, *keep).stdout.split())

    def sure(document: dict[str, Any]) -> None:
        for point in document["points"]:
            point["Q_error"][0][0] /= 100
            point["Q"][0][0] += 0.02

    assert run("certify", changed(path, sure), *keep).exit_code == 3
    # Anything else that is not what the file's own seed gives does not stand.
    changes: list[Change] = [
        lambda point: point["Q_error"][0].__setitem__(0, 50.0),
        lambda point: point["Q_error"][0].__setitem__(0, point["Q_error"][0][0] / 10),
        lambda point: point.update({"bayes_error": point["bayes_error"] + 0.01}),
        lambda point: point.update({"plug_in_error": 3 * point["plug_in_error"]}),
        lambda point: point.update({"free_entropy": point["free_entropy"] + 1}),
        lambda point: point.update({"mmse": [0.1]}),
    ]
    for change in changes:
        assert run("certify", changed(path, lambda document, c=change: c(document["points"][1])), *keep).exit_code == 3  # type: ignore[misc]
    assert run("certify", changed(path, lambda document: document["points"].pop(0)), *keep).exit_code == 3


def test_phases_and_diagrams_stand(tmp_path: Path) -> None:
    path = result_file(tmp_path, "phases", ONE, "--samples", 2048)
    assert run("certify", path).exit_code == 0
    vary = ["--vary", "beta=1,2", "--no-follow", "--stages", 1, "--samples", 1024, "--workers", 1]
    path = result_file(tmp_path, "phase-diagram", ONE, *vary)
    again = ["--workers", 1, "--state", tmp_path / "state"]
    found = run("certify", path, *again)
    assert found.exit_code == 0, found.output
    assert "beta = 2, 1: weak layer 1" in " ".join(found.output.split())
    wrong = changed(path, lambda document: document["records"][1]["thresholds"][0].update({"alpha": 0.17}))
    assert run("certify", wrong, *again).exit_code == 3


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"package": "smisym", "schema": 1}', '{"package": "smisym", "schema": 1, "command": "gamp"}',
     '{"package": "smisym", "schema": 1, "command": "curve"}',
     '{"package": "smisym", "schema": 1, "command": "curve", "seed": 0, "settings": {}, "architecture": {"x": 1}}',
     '{"package": "smisym", "schema": 1, "command": "curve", "seed": 0, "settings": {}, "architecture": []}'],
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    found = run("certify", path)
    assert found.exit_code == 2, found.output
    assert "To fix" in found.stderr
    assert "Traceback" not in found.output
    assert run("certify", tmp_path / "absent.json").exit_code == 2
