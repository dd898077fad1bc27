"""``smisym phases`` and ``smisym phase-diagram``: documents, pictures, tables, bad input."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import smisym
from smisym import Architecture, Attention
from smisym.cli import app

QUICK = ["--no-follow", "--stages", "1", "--samples", "1024", "--workers", "1"]


@pytest.fixture
def network(tmp_path: Path) -> str:
    path = tmp_path / "one_layer.toml"
    smisym.save(Architecture(2, (Attention(),)), path)
    return str(path)


def run(*arguments: object, code: int = 0) -> Result:
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert found.exit_code == code, found.output
    assert "Traceback" not in found.output
    return found


def test_phases_of_one_layer(network: str, tmp_path: Path) -> None:
    picture = tmp_path / "branches.svg"
    found: dict[str, Any] = json.loads(run("phases", network, "--samples", 2048, "-o", picture, "--json").stdout)
    assert (found["command"], found["result"], found["thresholds"]) == ("phases", "success", [])
    (branch,) = found["branches"]
    assert (branch["begins"], branch["ends"]) == ("weak", "perfect")
    assert len(branch["alphas"]) == len(branch["overlaps"]) == len(branch["growth"])
    assert found["output"] == str(picture)
    assert picture.read_text().count("<svg") == 1
    shown = run("phases", network, "--samples", 2048).stdout
    assert "no fold was seen" in shown
    assert "would not be told from chance" in shown


def test_a_diagram_as_a_document_a_picture_and_a_table(network: str, tmp_path: Path) -> None:
    picture, table = tmp_path / "diagram.png", tmp_path / "diagram.csv"
    vary = ["--vary", "beta=0.5:2:3:log"]
    result = run("phase-diagram", network, *vary, *QUICK, "-o", picture, "--csv", table, "--json")
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["command"] == "phase-diagram"
    assert found["settings"]["vary"] == {"beta": [0.5, 1.0, 2.0]}
    assert [record["at"]["beta"] for record in found["records"]] == [0.5, 1.0, 2.0]
    (boundary,) = found["boundaries"]
    assert boundary["alphas"] == pytest.approx([1 / 6] * 3, rel=1e-5)
    assert (boundary["label"], boundary["kind"], boundary["ok"]) == ("weak, layer 1", "weak", [True] * 3)
    assert found["output"] == [str(picture), str(table)]
    assert picture.stat().st_size > 1000
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [float(row["beta"]) for row in rows] == [0.5, 1.0, 2.0]
    assert all(math.isclose(float(row["alpha"]), 1 / 6, rel_tol=1e-5) for row in rows)


def test_a_diagram_for_people_has_a_column_a_boundary(network: str) -> None:
    shown = run("phase-diagram", network, "--vary", "beta=1,2", *QUICK).stdout.splitlines()
    assert shown[0].split() == ["beta", "weak,", "layer", "1", "result"]
    value, alpha, code = shown[2].split()
    assert (value, alpha[:6], code) == ("1", "0.1666", "success")
    assert len(shown) == 4


def test_a_diagram_resumes_and_a_larger_one_too(network: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = json.loads(run("phase-diagram", network, "--vary", "beta=1,2", *QUICK, "--state", state, "--json").stdout)
    kept = {path: path.stat().st_mtime_ns for path in state.rglob("entry_*.json")}
    assert kept
    more = json.loads(run("phase-diagram", network, "--vary", "beta=1,2,3", *QUICK, "--state", state, "--json").stdout)
    assert more["records"][:2] == first["records"]
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--vary", "depth=1,2"], "parameter to vary"),
        (["--vary", "skip=1:2"], "skip=0:4:17"),
        (["--vary", "skip=1", "--vary", "skip=2"], "each once"),
        (["--vary", "skip=1", "-o", "x.txt"], ".svg, .png, .pdf"),
        (["--vary", "skip=1", "--csv", "x.txt"], ".csv"),
        (["--vary", "skip=1", "-o", "/nowhere/x.svg"], "make the folder"),
        (["--vary", "skip=-1"], "skip"),
        ([], "--vary"),
    ],
)
def test_bad_options(network: str, options: list[str], words: str) -> None:
    found = run("phase-diagram", network, *options, code=2)
    assert words in found.stderr


def test_phases_refuse_a_bad_bound(network: str) -> None:
    for most in ("-1", "0", "nan", "1e300"):
        for command in (("phases", network), ("phase-diagram", network, "--vary", "skip=0,1")):
            told = run(*command, "--most", most, code=2).stderr
            assert f"--most: given {float(most)}; allowed: a positive number up to 1e+06" in told
