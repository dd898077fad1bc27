"""The command line: contracts of its JSON, bad input, exit codes, and runs that are killed and resumed."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from smisym.base.errors import InputError
from smisym.cli import app
from smisym.declare import io
from smisym.declare.architecture import Architecture, Attention
from smisym.export import export_code
from smisym.finite.samples import generate
from smisym.integrate import accuracy
from smisym.model.compiled import compile
from smisym.run import records, unasked
from smisym.trail.claims import SECONDS

ONE_LAYER = Architecture(2, (Attention(),))
QUICK = ["--samples", "4096"]
COMMANDS = (
    "thresholds",
    "curve",
    "phases",
    "phase-diagram",
    "atlas",
    "gamp",
    "derive",
    "cite",
    "analyze",
    "demo",
    "check",
    "certify",
    "info",
)


@pytest.fixture
def network(tmp_path: Path) -> str:
    path = tmp_path / "one_layer.toml"
    io.save(ONE_LAYER, path)
    return str(path)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def document(*arguments: object, code: int = 0) -> dict[str, Any]:
    """The one JSON document on stdout; NaN and Infinity are not JSON."""
    result = run(*arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout, parse_constant=lambda name: pytest.fail(name))


def check_header(found: dict[str, Any], architecture: Architecture, seed: int = 0) -> None:
    assert found["schema"] == io.SCHEMA
    assert found["architecture"] == architecture.canonical()
    assert found["seed"] == seed
    assert {"package_version", "settings", "versions"} <= set(found)


# --- grids of alpha


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 200))
def test_grids_include_both_ends(a: float, b: float, count: int) -> None:
    start, stop = sorted((a, b))
    grid = records.alpha_grid(f"{start!r}:{stop!r}:{count}")
    assert grid[0] == start
    assert len(grid) <= count
    assert list(grid) == sorted(set(grid))
    if count > 1:
        assert grid[-1] == stop
    if stop - start > 1e-3:
        assert len(grid) == count
        assert np.allclose(np.diff(grid, 2), 0, atol=1e-9 * stop)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_comma_lists_round_trip(values: list[float]) -> None:
    assert records.alpha_grid(",".join(map(repr, values))) == tuple(sorted(set(values)))


def test_grid_of_the_demo() -> None:
    grid = records.alpha_grid("0:1.6:49")
    assert len(grid) == 49
    assert np.allclose(grid, np.arange(49) / 30, atol=1e-15)


BAD_GRIDS = (
    "", "x", "0:1", "0:1:0", "0:1:-3", "0:1:2.5", "0:1:2:3", "1:0:5", "-1", "-0.1:1:5", "nan", "0:nan:3", "inf",
    "0:inf:3", "1e300", "0:2e6:3", "0.1,", ",", "0.1,,0.2", "0.1;0.2", "0:1:1000000000", "0,1:2:3", "1e400",
)  # fmt: skip


@pytest.mark.parametrize("text", BAD_GRIDS)
def test_bad_grids_are_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        records.alpha_grid(text)
    assert caught.value.given == text
    assert "START:STOP:COUNT" in str(caught.value)


# --- an accuracy that is asked for


def test_a_curve_as_accurate_as_asked(network: str, tmp_path: Path) -> None:
    asked = ("curve", network, "--alpha", "0.1,0.25", "--accuracy", "0.005", "--state", tmp_path / "kept")
    found = document(*asked)
    assert found["settings"]["accuracy"] == 0.005 and found["settings"]["most_samples"] > 0
    nothing, some = found["points"]
    assert nothing["samples"] == found["settings"]["samples"] < some["samples"]
    whole = [np.max(np.add(p["Q_error"], p["Q_deterministic_error"])) for p in (nothing, some)]
    assert max(whole) <= 0.005 and found["result"] == "success"
    assert document(*asked) == found


def test_a_threshold_as_accurate_as_asked(tmp_path: Path) -> None:
    """An untied head: of a tied one the control variates leave no error."""
    network = tmp_path / "untied.toml"
    network.write_text("tokens = 2\n[[layers]]\ntied = false\n")
    asked = ("thresholds", network, "--stages", "1", "--no-quadrature", "--accuracy", "0.0005")
    found = document(*asked)
    (weak,) = found["thresholds"]
    assert weak["error"] <= 0.0005 and abs(weak["alpha"] - (5**0.5 - 2)) <= 4 * weak["error"]
    assert weak["samples"] > found["settings"]["samples"]
    missed = run(*asked, "--most-samples", "4096")
    assert missed.exit_code == 3
    assert "larger than the accuracy asked for: raise --most-samples, or ask for less by --accuracy" in missed.stderr


# --- help and bad input


def test_help_names_every_command_and_option() -> None:
    shown = run("--help")
    assert shown.exit_code == 0
    for command in COMMANDS:
        assert command in shown.stdout
        options = run(command, "--help")
        assert options.exit_code == 0
        every = {
            "info": ("--json",),
            "check": ("--json", "--seed", "--only", "--thorough", "--quick"),
            "cite": (),
            "certify": ("--json", "--seed", "--state"),
        }
        for option in every.get(command, ("--json", "--seed", "--state")):
            assert option in options.stdout


def test_info_says_which_backend_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMISYM_BACKEND", "numpy")
    found = json.loads(run("info", "--json").stdout)
    assert found["backend"].startswith("numpy ") and found["compiled_loops"] is None
    assert f"backend: {found['backend']}: SMISYM_BACKEND asks for it" in run("info").stdout
    monkeypatch.setenv("SMISYM_BACKEND", "fortran")
    refused_name = run("info")
    assert refused_name.exit_code == 2 and "'fortran'; allowed: numpy, numba or jax" in refused_name.stderr


def test_the_compiled_loops_can_be_printed(tmp_path: Path, network: str) -> None:
    """They are Python, with the program of the network in them; other languages are refused."""
    shown = run("derive", network, "--code", "numba")
    assert shown.exit_code == 0
    names = {node.name for node in ast.walk(ast.parse(shown.stdout)) if isinstance(node, ast.FunctionDef)}
    assert {"point", "points"} <= names
    written = run("derive", network, "--code", "numba", "-o", tmp_path / "loops.py").stdout
    assert written == f"written: {tmp_path / 'loops.py'}\n"
    assert (tmp_path / "loops.py").read_text() == shown.stdout.rstrip("\n") + "\n"
    wrong = refused("derive", network, "--code", "numba", "-o", tmp_path / "loops.html")
    assert "a file that ends in .py, with --code numba" in wrong and "leave --code out for a document" in wrong
    assert not (tmp_path / "loops.html").exists()
    assert "given 'c'; allowed: python, latex, numba" in run("derive", network, "--code", "c").stderr


def test_the_denoiser_and_its_formulas_can_be_written(tmp_path: Path, network: str) -> None:
    """As the same calls in Python write them; a name that does not fit is refused before anything is compiled."""
    model = compile(io.load(network))
    assert run("derive", network, "--code", "python", "-o", tmp_path / "denoiser.py").exit_code == 0
    assert (tmp_path / "denoiser.py").read_text() == export_code(model)
    assert run("derive", network, "--code", "latex").stdout == export_code(model, "latex")
    wrong = refused("derive", network, "--code", "latex", "-o", tmp_path / "formulas.py")
    assert "a file that ends in .tex, with --code latex" in wrong and not (tmp_path / "formulas.py").exists()


def test_help_tells_the_defaults() -> None:
    shown = " ".join(run("thresholds", "--help").stdout.split())
    assert f"by default {SECONDS:g}, and none" in " ".join(run("derive", "--help").stdout.split())
    assert f"By default {accuracy.SAMPLES}, for thresholds {accuracy.THRESHOLD_SAMPLES};" in shown
    assert f"the error bars; by default {accuracy.SCRAMBLES}." in shown
    tolerances = [accuracy.plan(free, smooth).averaged for free in range(6) for smooth in (True, False)]
    low, high = (f"{x:.0e}".replace("e-0", "e-") for x in (min(tolerances), max(tolerances)))
    assert f"by default {low} to {high}" in shown


def refused(*arguments: object) -> str:
    """The message of a command that must refuse its input: exit code 2, nothing on stdout, no traceback."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def test_bad_networks_are_refused_by_every_command(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("tokens = 2\n[[layers]]\nskp = 1.0\n")
    rest = {
        "thresholds": [],
        "curve": ["--alpha", "0.1"],
        "phases": [],
        "phase-diagram": ["--vary", "skip=0,1"],
        "gamp": ["--alpha", "1", "--dim", "10"],
        "derive": ["-o", tmp_path / "x.html"],
        "cite": [],
        "analyze": ["-o", tmp_path / "x"],
    }
    for command, options in rest.items():
        for extra in ([], ["--json"]) if command != "cite" else ([],):
            message = refused(command, bad, *options, *extra)
            assert "skp" in message and 'write "skip"' in message and "bad.toml" in message
        assert "No such file" in refused(command, tmp_path / "absent.toml", *options)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("text", ["x", "0:1:0", "-1", "nan", "2:1:3", "1e300"])
def test_bad_alphas(network: str, tmp_path: Path, text: str) -> None:
    message = refused("curve", network, f"--alpha={text}")
    assert "START:STOP:COUNT" in message and "numbers from 0 to 1e+06" in message
    assert "START:STOP:COUNT" in refused("analyze", network, "-o", tmp_path / "out", f"--alpha={text}")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--alpha", "0.1", "--samples", "1000"], "power of two"),
        (["--alpha", "0.1", "--samples", "0"], "samples"),
        (["--alpha", "0.1", "--scrambles", "1"], "scrambles"),
        (["--alpha", "0.1", "--scrambles", "0"], "scrambles"),
        (["--alpha", "0.1", "--start", "warm"], "symmetry-broken"),
        (["--alpha", "0.1", "--accuracy", "0"], "--accuracy: given 0.0; allowed: a positive number"),
        (["--alpha", "0.1", "--accuracy", "nan"], "for example --accuracy 0.002"),
        (["--alpha", "0.1", "--accuracy", "0.01", "--samples", "4096"], "one of the two"),
        (["--alpha", "0.1", "--most-samples", "4096"], "add --accuracy"),
        (["--alpha", "0.1", "--accuracy", "0.01", "--most-samples", "8"], "the samples of the first try"),
        (["--alpha", "0.1", "--seed", "-1"], "seed"),
        (["--alpha", "0.1", "--seed", "x"], "seed"),
        (["--alpha", "0.1", "--workers", "0"], "workers"),
        ([], "--alpha"),
        (["--alpha", "0.1", "--unknown"], "--unknown"),
    ],
)
def test_bad_options_of_curve(network: str, options: list[str], word: str) -> None:
    assert word in refused("curve", network, *options)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ([], "--alpha"),
        (["--alpha", "1"], "--dim"),
        (["--dim", "10"], "--alpha"),
        (["--alpha", "1", "--dim", "1"], "D"),
        (["--alpha", "0", "--dim", "10"], "alpha"),
        (["--alpha", "nan", "--dim", "10"], "alpha"),
        (["--alpha", "1e-9", "--dim", "10"], "alpha"),
        (["--alpha", "1", "--dim", "10", "--damping", "1"], "damping"),
        (["--alpha", "1", "--dim", "10", "--iterations", "0"], "iterations"),
        (["--data", "absent.npz"], "No such file"),
        (["--data", "absent.npz", "--dim", "10"], "--data alone"),
    ],
)
def test_bad_options_of_gamp(network: str, options: list[str], word: str) -> None:
    assert word in refused("gamp", network, *options)


def test_bad_data(network: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((6, 2, 4)), np.full((6, 2, 2), 0.5)
    beyond = np.full((6, 2, 2), [[0.4, 0.6], [0.6, 0.4]])
    spoiled = X.copy()
    spoiled[3, 1, 1] = np.nan
    cases = {
        "unequal": ({"X": X, "y": y[:5]}, ""),
        "tokens": ({"X": rng.standard_normal((6, 3, 4)), "y": y}, "X"),
        "shape": ({"X": X[0], "y": y}, "X"),
        "outputs": ({"X": X, "y": y[:, 0]}, "y"),
        "nan": ({"X": spoiled, "y": y}, "nan"),
        "complex": ({"X": X + 1j, "y": y}, "real"),
        "rows": ({"X": X, "y": 0.9 * y}, "y"),
        "image": ({"X": X, "y": beyond}, "y"),
        "missing": ({"X": X}, "arrays X"),
    }
    for name, (arrays, word) in cases.items():
        path = tmp_path / f"{name}.npz"
        np.savez(path, **arrays)
        message = refused("gamp", network, "--data", path)
        assert word in message and "To fix" in message, name


def test_folders_that_cannot_be_written(network: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    inside = tmp_path / "file" / "x"
    assert "folder to keep results in" in refused("curve", network, "--alpha", "0.1", "--state", inside)
    assert "folder to keep results in" in refused("thresholds", network, "--state", inside)
    assert "folder for the files" in refused("analyze", network, "-o", inside)
    assert "To fix" in refused("derive", network, "-o", tmp_path / "absent" / "x.html")
    assert "option -o, the document to write: given none" in refused("derive", network)
    assert ".html" in refused("derive", network, "-o", tmp_path / "x.pdf")


def test_networks_without_a_closed_chart_say_why_in_their_derivation() -> None:
    # What the first part of the document is made of, without the threshold that the command goes on to compute.
    for declared in (
        Architecture(3, (Attention(heads=2),), combine="sum"),
        Architecture(3, (Attention(), Attention()), output="sequence"),
    ):
        steps = compile(declared).derivation
        assert any("found numerically from many starts" in step.text for step in steps)
        assert any(step.title == "Rules that did not apply" for step in steps)


# --- contracts


def test_thresholds(network: str) -> None:
    found = document("thresholds", network, "--seed", "3", *QUICK)
    check_header(found, ONE_LAYER, seed=3)
    weak = found["thresholds"][0]
    assert set(weak) == {"kind", "layers", "subspace", "alpha", "error", "Q", "order", "names", "samples"}
    assert weak["kind"] == "weak"
    assert weak["layers"] == [1]
    assert np.abs(weak["subspace"]).tolist() == [[1.0]]
    assert abs(weak["alpha"] - 1 / 6) < 1e-4
    assert weak["error"] < 1e-4
    assert weak["Q"] == [[0.0]]
    alphas = [math.inf if t["alpha"] is None else t["alpha"] for t in found["thresholds"]]
    assert alphas == sorted(alphas)
    table = run("thresholds", network, *QUICK)
    assert table.exit_code == 0
    assert "weak" in table.stdout and "0.16666" in table.stdout


def test_curve(network: str) -> None:
    found = document("curve", network, "--alpha", "0.3,0.1,2", *QUICK)
    check_header(found, ONE_LAYER)
    points = found["points"]
    assert [point["alpha"] for point in points] == [0.1, 0.3, 2.0]
    for point in points:
        assert {"alpha", "Q", "Q_error", "result", "bayes_error", "plug_in_error", "free_entropy"} <= set(point)
        assert np.shape(point["Q"]) == np.shape(point["Q_error"]) == (1, 1)
    below, above, perfect = points
    assert below["Q"] == [[0.0]]
    assert 0.1 < above["Q"][0][0] < 0.9
    assert perfect["Q"] == [[1.0]]
    assert perfect["free_entropy"] is None and perfect["unbounded"] == "+inf"
    assert "unbounded" not in above and math.isfinite(above["free_entropy"])
    assert perfect["bayes_error"] == 0.0
    table = run("curve", network, "--alpha", "0.1,2", *QUICK)
    assert "Q_11" in table.stdout and "+∞" in table.stdout and "success" in table.stdout


def test_gamp(network: str) -> None:
    found = document("gamp", network, "--alpha", "1.5", "--dim", "60", "--seed", "1")
    check_header(found, ONE_LAYER, seed=1)
    assert found["result"] == "success"
    for number, step in enumerate(found["iterations"]):
        assert step["step"] == number
        assert np.shape(step["overlap"]) == np.shape(step["Q"]) == (1, 1)
    assert found["iterations"][-1]["overlap"][0][0] > 0.9
    assert document("gamp", network, "--alpha", "1.5", "--dim", "60", "--seed", "1") == found
    assert document("gamp", network, "--alpha", "1.5", "--dim", "60", "--seed", "2") != found


def test_gamp_that_did_not_converge_is_printed_with_code_3(network: str) -> None:
    options = ["gamp", network, "--alpha", "0.5", "--dim", "50", "--iterations", "1"]
    found = document(*options, code=3)
    assert found["result"] == "max_steps"
    assert len(found["iterations"]) == 2
    result = run(*options)
    assert result.exit_code == 3
    assert "max_steps" in result.stdout
    assert "raise --iterations" in result.stderr and "max_steps" not in result.stderr


def test_gamp_on_data(network: str, tmp_path: Path) -> None:
    model = compile(ONE_LAYER)
    data = generate(model, 60, 1.5, np.random.default_rng(0))
    np.savez(tmp_path / "d.npz", X=data.X, y=data.y.y)
    found = document("gamp", network, "--data", tmp_path / "d.npz")
    assert all(step["overlap"] is None for step in found["iterations"])
    assert found["dim"] == 60 and found["alpha"] == 1.5
    assert found["iterations"][-1]["Q"][0][0] == pytest.approx(np.mean(data.W**2), rel=1e-3)
    assert "overlap with itself" in run("gamp", network, "--data", tmp_path / "d.npz").stdout


def test_gamp_keeps_the_estimate(network: str, tmp_path: Path) -> None:
    options = ["gamp", network, "--alpha", "1.5", "--dim", "60"]
    without = run(*options)
    assert "the estimate W_hat is not among what is printed" in without.stderr and "-o OUT.npz" in without.stderr
    found = document(*options, "-o", tmp_path / "out.npz")
    assert "W_hat" not in found and found["output"] == str(tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as kept:
        header = json.loads(str(kept["header"]))
        arrays = {name: kept[name] for name in kept.files if name != "header"}
    check_header(header, ONE_LAYER)
    assert header["command"] == "gamp" and header["result"] == "success"
    assert arrays["W_hat"].shape == arrays["W"].shape == (1, 60)
    assert np.allclose(arrays["Q"], arrays["W_hat"] @ arrays["W_hat"].T / 60)
    steps = len(found["iterations"])
    assert arrays["history_overlap"].shape == arrays["history_Q"].shape == (steps, 1, 1)
    assert arrays["history_step"].tolist() == list(range(steps))
    assert np.isnan(arrays["history_change"][0]) and (arrays["history_change"][1:] > 0).all()
    assert abs(arrays["W_hat"] @ arrays["W"].T / 60) == pytest.approx(found["iterations"][-1]["overlap"][0][0])


def test_gamp_on_data_with_the_truth_and_more(network: str, tmp_path: Path) -> None:
    data = generate(compile(ONE_LAYER), 60, 1.5, np.random.default_rng(0))
    np.savez(tmp_path / "d.npz", X=data.X, y=data.y.y, W=data.W, labels=np.zeros(3))
    done = run("gamp", network, "--data", tmp_path / "d.npz", "-o", tmp_path / "out.npz", "--json")
    assert done.exit_code == 0
    assert "labels are not used" in done.stderr
    found = json.loads(done.stdout)
    assert found["iterations"][-1]["overlap"][0][0] == pytest.approx(np.mean(data.W**2), rel=1e-3)
    np.savez(tmp_path / "d.npz", X=data.X, y=data.y.y, W=data.W[:, :7])
    assert "W: given" in refused("gamp", network, "--data", tmp_path / "d.npz")
    for change in (0 * data.X, 10 * data.X, data.X + 2):
        np.savez(tmp_path / "d.npz", X=change, y=data.y.y)
        assert "mean 0 and variance 1" in refused("gamp", network, "--data", tmp_path / "d.npz")


def test_gamp_refuses_outputs_before_it_runs(network: str, tmp_path: Path) -> None:
    """Whatever is computed is kept in the state."""
    command = ("gamp", network, "--alpha", "1", "--dim", "20", "--state", tmp_path / "state", "-o")
    for output in (tmp_path / "x.csv", tmp_path, tmp_path / "absent" / "x.npz", ""):
        assert "To fix" in refused(*command, output)
        assert not list((tmp_path / "state").glob("*/entry_*"))
    assert "write --plot picture.svg" in refused(*command, tmp_path / "x.npz", "--plot", tmp_path / "x.npz")
    assert not list((tmp_path / "state").glob("*/entry_*"))
    run(*command, tmp_path / "x.npz")
    assert list((tmp_path / "state").glob("*/entry_*"))


def test_gamp_stops_where_digits_say_nothing_and_says_what_blocks_it(network: str) -> None:
    options = ["gamp", network, "--alpha", "0.3", "--dim", "60", "--seed", "1"]
    loose, tight = document(*options), run(*options, "--tol", "1e-12", "--iterations", "12", "--json")
    assert loose["settings"]["tol"] == pytest.approx(1e-3)
    assert len(loose["iterations"]) < 101
    assert tight.exit_code == 3
    assert "one step still changes the estimate" in json.loads(tight.stdout)["reason"]
    assert "--tol" in tight.stderr and "--damping" in tight.stderr and "--iterations" in tight.stderr
    assert document(*options, "--damping", "0.3")["settings"]["damping"] == 0.3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--alpha", "1", "--dim", "1000000000"], "--dim [0-9]+ fits"),
        (["--alpha", "1e9", "--dim", "1000"], "--alpha and --dim: given"),
        (["--alpha", "1", "--dim", "20", "--damping=-0.5"], "--damping: given -0.5"),
        (["--alpha", "1", "--dim", "20", "--tol", "2"], "--tol: given 2.0"),
        (["--alpha", "1", "--dim", "20", "--state", ""], "--state: given ''"),
        (["--data", ""], "data file: given ''"),
    ],
)
def test_bad_values_are_refused_in_the_words_of_the_command(network: str, options: list[str], words: str) -> None:
    assert re.search(words, refused("gamp", network, *options))


def test_stages_and_quadrature(network: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    command = ["thresholds", network, "--stages", "1", "--state", state, *QUICK]
    exact, sampled = document(*command), document(*command, "--no-quadrature")
    assert [t["kind"] for t in exact["thresholds"]] == [t["kind"] for t in sampled["thresholds"]] == ["weak"]
    assert exact["thresholds"][0]["alpha"] != sampled["thresholds"][0]["alpha"]
    assert exact["settings"]["stages"] == 1 and sampled["settings"]["quadrature"] is False
    assert len(list(state.iterdir())) == 2, "other settings are another task"
    message = refused("thresholds", network, "--stages", "0")
    assert "--stages" in message


def forge(entry: Path, value: Any) -> None:
    """Another value in a stored entry, with the right checksum."""
    store = io.Store(entry.parents[1], json.loads((entry.parent / "key.json").read_text()))
    assert store.folder == entry.parent
    store.put(json.loads(entry.read_text())["name"], value)
    assert json.loads(entry.read_text())["value"] == value


FORGED = (
    {"iterations": [], "result": "success", "reason": ""},
    {"iterations": [{"step": 0, "Q": [["a"]], "overlap": None}], "result": "success", "reason": ""},
    {"iterations": 3, "result": {}, "reason": None},
    {"result": "no such code"},
)


@pytest.mark.parametrize("value", FORGED)
def test_forged_results_are_computed_again(network: str, tmp_path: Path, value: Any) -> None:
    command = ["gamp", network, "--alpha", "1.5", "--dim", "60", "--state", tmp_path / "state"]
    right = document(*command)
    (entry,) = (tmp_path / "state").glob("*/entry_*")
    forge(entry, value)
    assert document(*command) == right


@pytest.mark.parametrize("key", ["Q", "alpha", "result"])
def test_forged_points_and_thresholds_are_computed_again(network: str, tmp_path: Path, key: str) -> None:
    for command in (["curve", network, "--alpha", "0.05"], ["thresholds", network, "--stages", "1"]):
        command = [*command, "--state", tmp_path / command[0], *QUICK]
        right = document(*command)
        for entry in (tmp_path / command[0]).glob("*/entry_[aw]*"):
            whole = json.loads(entry.read_text())
            place = whole["value"] if key in whole["value"] else whole["value"]["thresholds"][0]
            place[key] = [["x"], 1]
            forge(entry, whole["value"])
        assert document(*command) == right


def test_derive(network: str, tmp_path: Path) -> None:
    for suffix, word in ((".html", "<html"), (".md", "#"), (".tex", r"\documentclass")):
        path = tmp_path / f"derivation{suffix}"
        found = document("derive", network, "-o", path)
        assert found["files"] == [path.name]
        assert word in path.read_text()
        assert "Free entropy" in path.read_text()
    untried = tmp_path / "untried.md"
    document("derive", network, "--no-checks", "-o", untried)
    assert "Not run" in untried.read_text() and "--no-checks" in untried.read_text()


def test_cite(network: str) -> None:
    found = run("cite", network)
    assert found.exit_code == 0 and found.stdout.startswith("@misc{smisym,")
    assert found.stdout.count("\n@") >= 10 and "2502.00901" in found.stdout


def test_analyze(network: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--alpha", "0:0.6:4", "--dim", "40", "--runs", "2", "--iterations", "300", "--samples", "1024"]
    done = run("analyze", network, "-o", out, *options, "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    check_header(found, ONE_LAYER)
    assert sorted(found["files"]) == sorted(path.name for path in out.iterdir())
    for name in ("thresholds.json", "curve.json", "gamp.json"):
        check_header(json.loads((out / name).read_text()), ONE_LAYER)
    for name in ("curve.csv", "gamp.csv"):
        lines = (out / name).read_text().splitlines()
        check_header(json.loads(lines[0].removeprefix("# ")), ONE_LAYER)
        assert lines[1].startswith("alpha,")
    pandas = pytest.importorskip("pandas")
    curve = pandas.read_csv(out / "curve.csv", comment="#")
    points = json.loads((out / "curve.json").read_text())["points"]
    assert curve["Q_11"].tolist() == [point["Q"][0][0] for point in points]
    gamp = pandas.read_csv(out / "gamp.csv", comment="#")
    assert sorted(set(gamp["alpha"])) == [point["alpha"] for point in points[1:]]
    assert gamp["seed"].nunique() == 6
    report = (out / "report.html").read_text()
    assert "<svg" in report and "Architecture(" in report
    for remote in ('src="http', "<script", "@import", '<link rel="stylesheet"'):
        assert remote not in report


# --- interrupted and resumed

# So many points that both halves of an interrupted curve take a second or two.
ALPHAS, COUNT = "0.1:0.5:5", 5


def start(network: str, state: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "smisym", "curve", network, "--alpha", ALPHAS, "--json", *QUICK]
    return subprocess.Popen(
        [*command, "--workers", "1", "--state", str(state), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def entries(state: Path, pattern: str = "entry_*.json") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in state.glob(f"*/{pattern}")}


def wait_for(state: Path, pattern: str, count: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while len(list(state.glob(f"*/{pattern}"))) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    folder = tmp_path_factory.mktemp("whole")
    io.save(ONE_LAYER, folder / "n.toml")
    process = start(str(folder / "n.toml"), folder / "state")
    out, err = process.communicate(timeout=300)
    assert process.returncode in (0, 3), err
    return process.returncode, out


# Killed while the map is evaluated, and while points are finished.
@pytest.mark.parametrize(("pattern", "count"), [("entry_E*.json", 20), ("entry_alpha*.json", 2)])
@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130), (signal.SIGTERM, 130)]
)
def test_an_interrupted_curve_resumes_to_the_same_bits(
    network: str,
    tmp_path: Path,
    uninterrupted: tuple[int, str],
    how: signal.Signals,
    code: int,
    pattern: str,
    count: int,
) -> None:
    state = tmp_path / "state"
    first = start(network, state)
    wait_for(state, pattern, count, first)
    first.send_signal(how)
    out, err = first.communicate(timeout=60)
    assert first.returncode == code
    assert out == ""
    if how is not signal.SIGKILL:
        assert "resumes" in err and str(state) in err and "Traceback" not in err
    before = entries(state)
    assert len(before) >= count
    second = start(network, state)
    out, err = second.communicate(timeout=300)
    assert (second.returncode, out) == uninterrupted, err
    after = entries(state)
    assert before.items() <= after.items()
    assert len(entries(state, "entry_alpha*.json")) == COUNT


def test_what_an_interrupted_command_had_finished_is_kept_unasked(
    network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uninterrupted: tuple[int, str]
) -> None:
    """Until the same command has ended, and no other one reads it; where the folder cannot be made nothing is said."""
    monkeypatch.setenv("SMISYM_CACHE", str(tmp_path / "cache"))
    kept = tmp_path / "cache" / "interrupted"
    command = ["curve", network, "--alpha", ALPHAS, "--json", *QUICK, "--workers", "1"]
    first = subprocess.Popen(
        [sys.executable, "-m", "smisym", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(kept, "entry_E*.json", 20, first)
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=60)
    assert (first.returncode, out) == (130, ""), err
    assert f"the same command resumes, for {unasked.DAYS} days, from what is kept in {kept}" in err
    assert json.loads(run("info", "--json").stdout)["interrupted_commands"] == {"folder": str(kept), "count": 1}
    (folder,) = kept.iterdir()
    before = len(list(folder.iterdir()))
    document("curve", network, "--alpha", "0.3", *QUICK)
    assert len(list(folder.iterdir())) == before > 20
    made = time.time()
    again = run(*command)
    assert (again.exit_code, again.stdout) == uninterrupted, again.stderr
    assert list(kept.iterdir()) == [], time.time() - made
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SMISYM_CACHE", str(tmp_path / "file"))
    assert run("thresholds", network, "--stages", "1", *QUICK).stderr == ""


def test_what_is_kept_unasked_is_old_one_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMISYM_CACHE", str(tmp_path))
    old, new = (unasked.keep({"command": name}) for name in ("old", "new"))
    assert old is not None and new is not None
    for store in (old, new):
        store.put("entry", {"x": 1.0})
    assert unasked.count() == 2
    long_ago = time.time() - 8 * 86400
    os.utime(old.folder, (long_ago, long_ago))
    last = unasked.keep({"command": "last"})
    assert last is not None and unasked.count() == 1 and new.get("entry") == {"x": 1.0}
    # What cannot be written is not kept, and the command goes on.
    shutil.rmtree(new.folder)
    assert new.put("other", {"x": 2.0}) == {"x": 2.0} and new.get("other") is None
    unasked.forget()
    assert not last.folder.exists()


@pytest.mark.parametrize("between", [0.0, 0.1, 0.4])
def test_a_signal_that_comes_twice_ends_a_command_once(tmp_path: Path, between: float) -> None:
    """``timeout`` sends it to a process and to its group, in which other processes are."""
    path = tmp_path / "two_layers.toml"
    io.save(Architecture(2, (Attention(), Attention())), path)
    command = [sys.executable, "-m", "smisym", "thresholds", str(path), "--workers", "2"]
    process = subprocess.Popen(
        [*command, "--state", str(tmp_path / "state")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    wait_for(tmp_path / "state", "entry_E*.json", 40, process)
    process.send_signal(signal.SIGTERM)
    time.sleep(between)
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err and err.count("interrupted") == 1 and "loky" not in err


def test_an_interrupt_that_is_lost_is_raised_again() -> None:
    """Inside of what cannot raise, a destructor here, Python drops an exception."""
    code = """
import sys, time
from smisym.run import interrupting
interrupting.listen()
class Deaf:
    def __del__(self):
        print("began", flush=True)
        time.sleep(1.0)
        time.sleep(30.0)
sys.unraisablehook = lambda raised: print("lost", flush=True)
try:
    Deaf()
    time.sleep(30.0)
except KeyboardInterrupt:
    print("caught")
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "began\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert out == "lost\ncaught\n" and process.returncode == 0


# In a command, and in what is beside all commands: as the last of stdout is written.
STRUCK = """
import io, signal, sys
from smisym import cli
from smisym.commands.application import command

class Loading(io.StringIO):
    def flush(self):
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

@command
def load() -> None:
    Loading().flush()

if sys.argv[1] == "--version":
    sys.stdout = Loading()
cli.main()
"""


@pytest.mark.parametrize("argument", ["load", "--version"])
def test_an_interrupt_that_became_another_exception_is_one(argument: str) -> None:
    """As pybind11 does with what strikes while it loads a module."""
    found = subprocess.run([sys.executable, "-c", STRUCK, argument], capture_output=True, text=True, timeout=60)
    assert found.returncode == 130, found.stderr
    assert "Traceback" not in found.stderr and (argument == "--version" or "interrupted" in found.stderr)


def test_state_is_not_shared_between_seeds(network: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    one = document("curve", network, "--alpha", "0.3", "--state", state, *QUICK)
    two = document("curve", network, "--alpha", "0.3", "--state", state, "--seed", "1", *QUICK)
    assert one["points"][0]["Q"] != two["points"][0]["Q"]
    assert document("curve", network, "--alpha", "0.3", "--state", state, *QUICK) == one
    assert len(list(state.iterdir())) == 2
    assert json.loads((next(state.iterdir()) / "key.json").read_text())["command"] == "curve"


def test_finished_results_are_read_not_computed(network: str, tmp_path: Path) -> None:
    """A number that no computation gives, put into each stored entry, is what is shown the next time."""
    commands = (
        ["thresholds", network, *QUICK],
        ["curve", network, "--alpha", "0.1,0.3", *QUICK],
        ["gamp", network, "--alpha", "1", "--dim", "30"],
    )
    found = [run(*command, "--json", "--state", tmp_path / "state") for command in commands]
    # Beside evaluations of the map: two thresholds, two points, one run.
    kept = {entry: entry.read_text() for entry in sorted((tmp_path / "state").glob("*/entry_[!E]*"))}
    assert len(kept) == 5
    for number, (entry, text) in enumerate(kept.items()):
        value = json.loads(text)["value"]
        if "thresholds" in value:
            value["thresholds"][0]["alpha"] = 1000.5 + number
        else:
            (value["iterations"][-1] if "iterations" in value else value)["Q"][0][0] = 1000.5 + number
        forge(entry, value)
    shown = "".join(run(*command, "--json", "--state", tmp_path / "state").stdout for command in commands)
    assert all(f" {1000.5 + number}" in shown for number in range(5)), "computed again"
    for entry, text in kept.items():
        entry.write_text(text)
    for command, first in zip(commands, found, strict=True):
        again = run(*command, "--json", "--state", tmp_path / "state")
        assert (again.exit_code, again.stdout) == (first.exit_code, first.stdout)
