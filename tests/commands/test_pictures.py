"""``smisym curve -o`` and ``smisym gamp --plot``: pictures in every format, bad names before anything is computed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import smisym
from smisym import Architecture, Attention
from smisym.cli import app

CURVE = ["--alpha", "0.1,0.3", "--samples", "1024", "--workers", "1"]
MAGIC = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


@pytest.fixture
def network(tmp_path: Path) -> str:
    path = tmp_path / "one_layer.toml"
    smisym.save(Architecture(2, (Attention(),)), path)
    return str(path)


def document(*arguments: object) -> dict[str, object]:
    found = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert found.exit_code == 0, found.output
    read: dict[str, object] = json.loads(found.stdout)
    return read


@pytest.mark.parametrize("ending", list(MAGIC))
def test_a_curve_is_drawn_in_every_format(network: str, tmp_path: Path, ending: str) -> None:
    picture = tmp_path / f"curve.{ending}"
    found = document("curve", network, *CURVE, "-o", picture)
    assert found["output"] == str(picture)
    assert picture.read_bytes().startswith(MAGIC[ending])


def test_the_picture_is_that_of_the_points_that_are_printed(network: str, tmp_path: Path) -> None:
    picture, again = tmp_path / "curve.svg", tmp_path / "again.svg"
    points = document("curve", network, *CURVE, "-o", picture)["points"]
    assert isinstance(points, list)
    model = smisym.compile(smisym.load(network))
    smisym.save_figure(smisym.curve_figure(points, labels=model.labels, unit=model.prior.unit), again)
    assert picture.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("output", ["x.npz", "x", "", "absent/x.svg"])
def test_a_bad_name_is_refused_before_anything_is_computed(network: str, tmp_path: Path, output: str) -> None:
    state = tmp_path / "state"
    name = str(tmp_path / output) if output else ""
    done = CliRunner().invoke(app, ["curve", network, *CURVE, "--state", str(state), "-o", name])
    assert done.exit_code == 2 and "To fix" in done.stderr, done.output
    assert not list(state.glob("*/entry_*"))


def test_a_name_that_cannot_be_drawn_is_called_by_its_option(network: str) -> None:
    found = CliRunner().invoke(app, ["gamp", network, "--alpha", "1", "--dim", "50", "--plot", "x.jpg"])
    assert found.exit_code == 2
    assert found.stderr.startswith("smisym: --plot: given 'x.jpg'")


@pytest.mark.parametrize("truth", [True, False])
def test_the_steps_of_gamp_are_drawn(network: str, tmp_path: Path, truth: bool) -> None:
    """With the truth, and without, where the overlap is that of the estimate with itself."""
    data = smisym.generate(smisym.compile(smisym.load(network)), 60, 1.5, np.random.default_rng(0))
    known = {"W": data.W} if truth else {}
    np.savez(tmp_path / "d.npz", **{"X": data.X, "y": data.y.y, **known})
    picture = tmp_path / "steps.svg"
    found = document("gamp", network, "--data", tmp_path / "d.npz", "--plot", picture)
    assert found["plot"] == str(picture) and "output" not in found
    assert picture.read_bytes().startswith(MAGIC["svg"])
