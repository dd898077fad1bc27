"""Commands on linear regression, y = z + noise, whose numbers are known, and on the size of one field."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from typer.testing import CliRunner, Result

import smisym
from smisym import SMI
from smisym.cli import app

FEW = ["--samples", "64", "--scrambles", "2", "--workers", "1"]
NOISE = 0.5


@pytest.fixture
def line(tmp_path: Path) -> str:
    smisym.save(SMI("z1", 1, noise=NOISE), tmp_path / "line.toml")
    return str(tmp_path / "line.toml")


@pytest.fixture
def size(tmp_path: Path) -> str:
    smisym.save(SMI("abs(z1)", 1), tmp_path / "size.toml")
    return str(tmp_path / "size.toml")


def run(*arguments: object, code: int = 0) -> Result:
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert found.exit_code == code, found.output
    return found


def document(path: Path, *arguments: object, code: int = 0) -> dict[str, Any]:
    """What a command prints, which is kept at the path as well."""
    path.write_text(run(*arguments, "--json", code=code).stdout)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def left(alpha: float, told: float = 0.0) -> float:
    """V of linear regression: V (1 + alpha / (V + noise) + told) = 1."""
    return float(brentq(lambda V: V * (1 + alpha / (V + NOISE) + told) - 1, 0, 1))


def test_a_curve_is_the_closed_form_and_stands_until_a_point_is_changed(line: str, tmp_path: Path) -> None:
    path = tmp_path / "curve.json"
    curve = document(path, "curve", line, "--alpha", "0.5,1", *FEW)
    for point in curve["points"]:
        assert abs(point["Q"][0][0] - 1 + left(point["alpha"])) < 5 * point["Q_error"][0][0] + 1e-3
    text = run("certify", path).stdout
    assert "alpha = 0.5, z1" in text and "alpha = 1, free_entropy" in text and "does not" not in text
    curve["points"][0]["Q"][0][0] += 0.2
    curve["points"][1]["mmse"] = [0.3]
    path.write_text(json.dumps(curve))
    found = json.loads(run("certify", path, "--json", code=3).stdout)
    assert not found["stands"]
    wrong = [row["what"] for row in found["rows"] if not row["stands"]]
    assert "alpha = 0.5, z1" in wrong and any("alpha = 1" in what for what in wrong)
    del curve["points"][0]
    path.write_text(json.dumps(curve))
    assert "points at 1 alphas where 2 were asked for" in run("certify", path, code=3).stdout


def test_a_diagram_stands_until_a_threshold_is_changed(size: str, tmp_path: Path) -> None:
    path = tmp_path / "diagram.json"
    vary = ["--vary", "noise=0.1,0.2", "--no-follow"]
    diagram = document(path, "phase-diagram", size, *vary, *FEW)
    found = json.loads(run("certify", path, "--json").stdout)
    assert [row["what"] for row in found["rows"]][:2] == [
        "noise = 0.1, 1: weak z1", "noise = 0.1, 2: perfect_stable z1"
    ]  # fmt: skip
    diagram["records"][1]["thresholds"][0]["alpha"] = 5.0
    path.write_text(json.dumps(diagram))
    assert "1 of 6 numbers does not stand" in run("certify", path, code=3).stderr


def test_branches_are_drawn_and_what_one_seed_alone_has_does_not_stand(size: str, tmp_path: Path) -> None:
    """Of 64 points: what two seeds see differs, and the file says that it is no success."""
    path, picture = tmp_path / "phases.json", tmp_path / "phases.svg"
    phases = document(path, "phases", size, "--most", "1.5", *FEW, "-o", picture, code=3)
    assert phases["output"] == str(picture) and picture.read_text().count("<svg") == 1
    shown = run("certify", path, code=3)
    assert "found with another seed alone" in shown.stdout and "the file itself is no success" in shown.stdout
    assert "no fold was seen" in run("phases", size, "--most", "1.5", *FEW, code=3).stdout


def test_dynamics_tend_to_the_fixed_point_with_what_a_start_in_finite_dimension_tells(
    line: str, tmp_path: Path
) -> None:
    picture = tmp_path / "course.svg"
    how = ["--alpha", 1, "--dim", 20, "--seeds", 1, "--steps", 6, "--samples", 64, "--optimizer", "none"]
    found = document(tmp_path / "dynamics.json", "dynamics", line, *how, "-o", picture)
    evolution, gamp = found["trajectories"]
    assert [one["method"] for one in (evolution, gamp)] == ["state evolution", "gamp"]
    ends = np.array(evolution["cosines"])[:, -1, 0]
    np.testing.assert_allclose(ends, math.sqrt(1 - left(1.0, told=1 / 20)), atol=1e-3)
    assert picture.read_text().count("<svg") == 1 and found["output"] == str(picture)


def test_everything_about_one_network_is_files_that_agree(line: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    gamp = ["--dim", 30, "--runs", 1, "--iterations", 4]
    listed = run("analyze", line, "--alpha", "0.5,1", *gamp, *FEW, "-o", folder).stdout.split()
    assert {Path(name).name for name in listed} >= {"report.html", "curve.csv", "gamp.json", "curve.svg"}
    with open(folder / "curve.csv", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    points = json.loads((folder / "curve.json").read_text())["points"]
    assert [float(row["alpha"]) for row in rows] == [0.5, 1.0]
    for row, point in zip(rows, points, strict=True):
        assert float(row["Q_11"]) == point["Q"][0][0] and float(row["Q_11_error"]) == point["Q_error"][0][0]
        assert float(row["bayes_error"]) == point["bayes_error"] and row["result"] == "success"
    page = (folder / "report.html").read_text()
    assert "<title>What can be learned<" in page and "All 2 points of the curve converged." in page


def test_properties_are_listed_with_what_they_say(line: str) -> None:
    text = run("check", line, "--only", "?").stdout
    assert "property" in text and "nishimori" in text and "many-layers" in text
