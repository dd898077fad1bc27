"""Dynamics of learning as a whole: what follows what, what is kept, how it is shown, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import smisym
from smisym import Architecture, Attention
from smisym.cli import app
from smisym.training.trajectories import Dynamics, Trajectory

DECLARED = Architecture(2, (Attention(),))
MODEL = smisym.compile(DECLARED)
QUICK: dict[str, Any] = {"steps": 3, "epochs": 2, "samples": 256, "seeds": 2}


@pytest.fixture(scope="module")
def solution() -> smisym.Solution:
    return smisym.dynamics(MODEL, 1.0, 30, **QUICK)


def same(one: Dynamics, other: Dynamics) -> bool:
    """To the last bit."""
    pairs = zip(one.trajectories, other.trajectories, strict=True)
    arrays = all(
        np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True)
        for a, b in pairs
        for name in ("cosines", "noise", "loss")
    )
    return arrays and (one.names, one.layers) == (other.names, other.layers)


def test_gamp_follows_state_evolution_within_the_errors() -> None:
    """From squared cosine 0.2 at alpha = 1, where both go to perfect recovery; the mean of six data sets."""
    followed = smisym.dynamics(MODEL, 1.0, 300, known=0.2, seeds=6, steps=6, optimizers=(), samples=1024).value
    theory, gamp = (followed.mean(method)[:, 0] for method in ("state evolution", "gamp"))
    error = np.hypot(followed.error("gamp"), followed.error("state evolution"))[:, 0]
    assert theory[0] == gamp[0] and theory[-1] > theory[0] + 0.4
    # 1 / sqrt(D) is what overlaps of finite data are off by beside their scatter.
    assert (np.abs(gamp - theory) < 3 * error + 1 / np.sqrt(300)).all(), (gamp, theory, error)


def test_all_methods_begin_at_one_place(solution: smisym.Solution) -> None:
    starts = [one.cosines[:, 0] for one in solution.value.trajectories]
    assert [one.method for one in solution.value.trajectories] == ["state evolution", "gamp", "sgd", "adam"]
    for start in starts[1:]:
        np.testing.assert_allclose(start, starts[0], atol=1e-12)
    assert solution.value["sgd"].steps.tolist() == [0, 1, 2] and solution.value["gamp"].cosines.shape == (2, 4, 1)
    assert solution.result is smisym.Result.SUCCESS


def test_the_same_seed_gives_the_same_bits_and_another_does_not(solution: smisym.Solution) -> None:
    assert same(solution.value, smisym.dynamics(MODEL, 1.0, 30, workers=1, **QUICK).value)
    assert not same(solution.value, smisym.dynamics(MODEL, 1.0, 30, seed=1, **QUICK).value)


def test_it_is_saved_and_loaded(solution: smisym.Solution, tmp_path: Path) -> None:
    smisym.save_result(tmp_path / "dynamics.json", solution, architecture=DECLARED)
    loaded = smisym.load_result(tmp_path / "dynamics.json")
    assert same(loaded.value, solution.value) and loaded.settings == solution.settings
    document = json.loads((tmp_path / "dynamics.json").read_text())
    document["trajectories"][0]["noise"] = [[0.0]]
    (tmp_path / "dynamics.json").write_text(json.dumps(document))
    with pytest.raises(smisym.InputError):
        smisym.load_result(tmp_path / "dynamics.json")


def test_what_is_kept_is_not_computed_again(tmp_path: Path, solution: smisym.Solution) -> None:
    """Three seeds after two: only the third is new; what was stored comes back to the bit."""
    heard: list[dict[str, Any]] = []
    smisym.dynamics(MODEL, 1.0, 30, store=tmp_path, **QUICK)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("entry_dynamics*")}
    more = smisym.dynamics(MODEL, 1.0, 30, store=tmp_path, progress=heard.append, **(QUICK | {"seeds": 3}))
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("entry_dynamics*")}
    assert len(before) == 8 and len(after) == 12 and after.items() >= before.items()
    assert len([one for one in heard if "cosines" in one]) == 12
    np.testing.assert_array_equal(more.value["adam"].cosines[:2], solution.value["adam"].cosines)


def test_it_shows_itself(solution: smisym.Solution) -> None:
    pandas = pytest.importorskip("pandas")
    table = solution.to_dataframe()
    assert isinstance(table, pandas.DataFrame) and len(table) == 4 * 4 * 1
    sgd = table[table["method"] == "sgd"]
    np.testing.assert_array_equal(sgd["cosine"].to_numpy(), [*solution.value.mean("sgd")[:, 0], np.nan])
    assert solution.to_xarray()["cosine_of_seed"].sizes == {"method": 4, "step": 4, "seed": 2, "layer": 1}
    page = solution._repr_html_()
    assert "adam, 2 epochs" in page and "<svg" in page
    axes = Figure().subplots()
    assert solution.plot(axes) is axes and axes.get_ylabel() == "cosine with the truth"
    panels = smisym.dynamics_figure(solution).axes
    assert [panel.get_xlabel() for panel in panels] == ["iteration", "epoch"]
    with pytest.raises(smisym.InputError):
        smisym.dynamics_figure(smisym.Solution(1.0, smisym.Result.SUCCESS))


def test_layers_and_when_they_are_learned() -> None:
    """Two rows of a first layer and one of a second, three seeds; the mean crosses one half once and for all."""
    rows = np.array([[0.0, 0.2, 0.1], [0.6, 0.6, 0.2], [0.2, 0.2, 0.9], [0.9, 0.9, 0.95]])
    cosines = np.stack([rows - 0.03, rows, rows + 0.03])
    one = Trajectory(
        "gamp", "iteration", cosines, np.zeros((4, 3)), np.full((3, 4), np.nan), ("success",) * 3, ("",) * 3
    )
    found = Dynamics((one,), ("a", "b", "c"), (1, 1, 2))
    assert found.layer_names == ("layer 1", "c")
    np.testing.assert_allclose(found.mean("gamp"), [[0.1, 0.1], [0.6, 0.2], [0.2, 0.9], [0.9, 0.95]])
    np.testing.assert_allclose(found.error("gamp"), 0.03 / np.sqrt(3))
    assert found.learned("gamp") == (3, 2) and found.learned("gamp", above=0.93) == (None, 3)
    with pytest.raises(smisym.InputError):
        found["sgd"]


def test_a_run_that_diverges_is_told() -> None:
    followed = smisym.dynamics(MODEL, 1.0, 20, optimizers="sgd", rate=50.0, seeds=1, steps=1, epochs=20, samples=256)
    assert followed.result is smisym.Result.DIVERGED
    sgd = followed.value["sgd"]
    assert sgd.results == ("diverged",) and "blew up" in sgd.reasons[0] and np.isnan(sgd.cosines[0, -1]).all()


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"optimizers": ("momentum",)}, "momentum"), ({"rate": 0.0}, "rate"), ({"rate": {"sdg": 0.1}}, "sdg"),
        ({"batch": 0}, "batch"), ({"known": 1.0}, "known"), ({"seeds": 0}, "seeds"), ({"epochs": 0}, "epochs"),
        ({"decay": -1.0}, "decay"), ({"damping": 1.0}, "damping"), ({"alpha": -1.0}, "alpha"), ({"dim": 1}, "dim"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused(bad: dict[str, Any], word: str) -> None:
    with pytest.raises(smisym.InputError) as caught:
        smisym.dynamics(MODEL, **({"alpha": 1.0, "dim": 20} | QUICK | bad))
    assert word in str(caught.value)


# ------------------------------------------------------------------------------------------------------ the command


def test_the_command_prints_draws_and_resumes(tmp_path: Path, solution: smisym.Solution) -> None:
    file, picture = tmp_path / "one.toml", tmp_path / "one.svg"
    smisym.save(DECLARED, file)
    options = "--alpha 1 --dim 30 --steps 3 --epochs 2 --samples 256 --seeds 2".split()
    command = ["dynamics", str(file), *options, "--state", str(tmp_path / "kept"), "-o", str(picture)]
    table = CliRunner().invoke(app, command)
    assert table.exit_code == 0, table.output
    assert "state evolution: layer 1" in table.stdout and "sgd, above 0.5: layer 1" in table.stdout
    assert picture.read_text().count("<svg") == 1
    printed = CliRunner().invoke(app, [*command, "--json"])
    (tmp_path / "one.json").write_text(printed.stdout)
    assert same(smisym.load_result(tmp_path / "one.json").value, solution.value)
    alone = CliRunner().invoke(app, [*command[:-4], "--optimizer", "none", "--json"])
    assert [one["method"] for one in json.loads(alone.stdout)["trajectories"]] == ["state evolution", "gamp"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--optimizer", "none", "-o", "x.txt"], "--output"), (["--rate", "sgd=fast"], "--rate"),
        (["--optimizer", "rmsprop"], "--optimizer"),
    ],
)  # fmt: skip
def test_what_the_command_cannot_do(tmp_path: Path, options: list[str], word: str) -> None:
    smisym.save(DECLARED, tmp_path / "one.toml")
    command = ["dynamics", str(tmp_path / "one.toml"), "--alpha", "1", "--dim", "20", *options]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 2 and word in ended.output


def test_a_link_that_jumps_needs_no_gradient_without_optimizers(tmp_path: Path) -> None:
    smisym.save(Architecture(2, (Attention(activation="hardmax"),), noise=0.0), tmp_path / "hard.toml")
    command = ["dynamics", str(tmp_path / "hard.toml"), "--alpha", "1", "--dim", "20"]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 2 and "jumps" in ended.output and "(none)" in ended.output
