"""Results as files: back to the last bit, and no file that is another does any harm."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import fake_solutions
import numpy as np
import pytest
from fake_solutions import same
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy
from typer.testing import CliRunner

import smisym
from smisym.base.errors import InputError
from smisym.base.solution import Result
from smisym.cli import app
from smisym.declare.io import to_json
from smisym.run.beyond_json import types_of, with_types

SMALL: dict[str, Any] = {"samples": 32, "scrambles": 2}


def written(result: Any, folder: Path) -> Path:
    path = folder / "result.json"
    smisym.save_result(path, result)
    return path


# --- round trips -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", fake_solutions.ALL)
def test_every_kind_comes_back_to_the_last_bit(name: str, tmp_path: Path) -> None:
    result = fake_solutions.ALL[name]()
    path = written(result, tmp_path)
    assert same(smisym.load_result(path), result)
    again = path.read_bytes()
    smisym.save_result(path, smisym.load_result(path))
    assert path.read_bytes() == again


def test_what_solvers_return_comes_back(tmp_path: Path) -> None:
    model = smisym.compile(smisym.SMI(("z1*z2",), 2))
    data = smisym.generate(model, 20, 2.0, np.random.default_rng(0))
    results = [
        smisym.curve(model, [0.0, 0.7, 3.0], **SMALL),
        smisym.state_evolution(model, 0.7, **SMALL),
        smisym.state_evolution(smisym.overlap_map(model, **SMALL), 0.9, accuracy=0.2, most_samples=64),
        smisym.weak_recovery(model, **SMALL),
        smisym.gamp(model, data.X, data.y, W=data.W, max_steps=3),
        smisym.free_entropy(model, np.eye(2) / 2, 1.0, **SMALL),
        smisym.prediction_errors(model, np.eye(2) / 2, samples=32, scrambles=2),
    ]
    for result in results:
        assert same(smisym.load_result(written(result, tmp_path)), result)
    found = results[0][1].value
    assert found.names == model.labels and results[3].value.labels == model.labels


def test_a_loaded_curve_is_drawn_and_summed_up_alike(tmp_path: Path) -> None:
    curve = fake_solutions.curve()
    loaded = smisym.load_result(written(curve, tmp_path))
    assert loaded.summary() == curve.summary() and loaded._repr_html_() == curve._repr_html_()
    assert loaded[1].summary() == curve[1].summary() and loaded[3].message == curve[3].message


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    | of_numpy.arrays(
        st.sampled_from([np.float64, np.float32, np.int64, np.bool_]),
        of_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    ),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)  # fmt: skip


@given(tree=TREES)
@example(tree=np.array(np.inf))
@example(tree={"": np.array(-np.inf), "a": [np.array(np.nan), None]})
@settings(deadline=None)
def test_any_tree_of_what_may_be_in_a_result_comes_back(tree: Any) -> None:
    kept = json.loads(to_json(tree))
    assert same(_without_signs_of_nan(with_types(kept, types_of(tree))), _without_signs_of_nan(tree))


def _without_signs_of_nan(value: Any) -> Any:
    """There are many that are not a number; JSON knows one."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.where(np.isnan(value), np.array(np.nan, value.dtype), value)
    if isinstance(value, dict):
        return {key: _without_signs_of_nan(item) for key, item in value.items()}
    return type(value)(map(_without_signs_of_nan, value)) if isinstance(value, list | tuple) else value


def test_the_json_alone_reads_as_other_files_do(tmp_path: Path) -> None:
    document = json.loads(written(fake_solutions.curve(), tmp_path).read_text())
    assert {"schema", "package", "package_version", "versions", "kind", "points", "types"} <= set(document)
    one = document["points"][3]
    assert one["Q"] == [[0.6, 0.0], [0.0, 0.9]] and one["result"] == "statistical_error_large"
    assert one["Q_hat"][0] == [None, 0.0] and document["types"]["/points/3/Q_hat/0/0"] == "+inf"
    assert document["result"] == "statistical_error_large"


def test_the_declaration_is_written_down_too(tmp_path: Path) -> None:
    declared = smisym.Architecture(2, (smisym.Attention(),))
    smisym.save_result(tmp_path / "a.json", fake_solutions.number(), architecture=declared)
    assert json.loads((tmp_path / "a.json").read_text())["architecture"] == declared.canonical()
    assert smisym.load_result(tmp_path / "a.json").value == -math.inf


# --- what the command line prints ------------------------------------------------------------------


@pytest.fixture
def network(tmp_path: Path) -> str:
    smisym.save(smisym.SMI(("z1*z2",), 2), tmp_path / "network.toml")
    return str(tmp_path / "network.toml")


def printed(arguments: list[str], path: Path) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code in (0, 3), done.stderr
    path.write_text(done.stdout)
    return json.loads(done.stdout)


def test_a_curve_that_was_printed_is_read(network: str, tmp_path: Path) -> None:
    path = tmp_path / "curve.json"
    document = printed(["curve", network, "--alpha", "0.5,3", "--samples", "32", "--scrambles", "2"], path)
    curve = smisym.load_result(path)
    assert isinstance(curve, smisym.Curve) and curve.alphas.tolist() == [0.5, 3.0]
    for solution, point in zip(curve, document["points"], strict=True):
        assert solution.value.Q.tolist() == point["Q"] and solution.result.value == point["result"]
        assert solution.settings["samples"] == 32 and solution.settings["seed"] == 0
        assert np.isnan(solution.value.Q_hat).all()
    assert curve.names == smisym.compile(smisym.load(network)).labels
    assert curve.beside[0]["bayes_error"] == document["points"][0]["bayes_error"]
    assert "bayes_error" in curve.grid().variables
    # What was read is written and read like any other.
    assert same(smisym.load_result(written(curve, tmp_path)), curve)


def test_thresholds_that_were_printed_are_read(network: str, tmp_path: Path) -> None:
    path = tmp_path / "thresholds.json"
    document = printed(["thresholds", network, "--samples", "32", "--scrambles", "2", "--stages", "1"], path)
    solution = smisym.load_result(path)
    assert [t.kind for t in solution.value] == [t["kind"] for t in document["thresholds"]]
    assert [t.names for t in solution.value] == [tuple(t["names"]) for t in document["thresholds"]]
    document["thresholds"][0] |= {"alpha": None, "kind": "hard"}
    path.write_text(json.dumps(document))
    assert smisym.load_result(path).value[0].alpha == math.inf
    assert same(smisym.load_result(written(solution, tmp_path)), solution)


def test_gamp_that_was_printed_is_read(network: str, tmp_path: Path) -> None:
    path = tmp_path / "gamp.json"
    document = printed(["gamp", network, "--alpha", "2", "--dim", "20", "--iterations", "2"], path)
    solution = smisym.load_result(path)
    assert solution.value.reason == document["reason"] and solution.value.steps == 2
    assert solution.value.W_hat.shape == (2, 20) and np.isnan(solution.value.W_hat).all()
    assert solution.history[-1]["Q"].tolist() == document["iterations"][-1]["Q"]
    assert solution.picture().overlaps.shape == (3, 2)


def test_a_diagram_and_dynamics_that_were_printed_are_read(tmp_path: Path) -> None:
    """As their commands print them; ``null`` is what was infinite or not known."""
    path, head = tmp_path / "printed.json", {"package": "smisym", "schema": 1, "seed": 3}
    diagram, dynamics = fake_solutions.diagram((0.0, 1.0)), fake_solutions.dynamics()
    path.write_text(json.dumps({**head, **diagram.document()}))
    assert smisym.load_result(path) == diagram
    trajectories = [{**vars(one), "noise": np.full_like(one.noise, np.inf)} for one in dynamics.value.trajectories]
    shown = {"trajectories": trajectories, "names": fake_solutions.NAMES, "layers": [1, 2], "result": "diverged"}
    path.write_text(to_json({**head, **shown, "settings": {"seeds": 2}}))
    found = smisym.load_result(path)
    assert found.result is Result.DIVERGED and found.settings == {"seeds": 2, "seed": 3}
    for one, other in zip(found.value.trajectories, dynamics.value.trajectories, strict=True):
        np.testing.assert_array_equal(one.cosines, other.cosines)
        np.testing.assert_array_equal(one.loss, other.loss)
        assert np.isinf(one.noise).all()
    assert found.value.layer_names == dynamics.value.layer_names


# --- files that are none ---------------------------------------------------------------------------


def refused(path: Path, *words: str) -> None:
    with pytest.raises(InputError) as told:
        smisym.load_result(path)
    assert str(path) in str(told.value) and "To fix" in str(told.value)
    assert all(word in str(told.value) for word in words), str(told.value)


HOSTILE = {
    "empty": b"", "no JSON": b"{", "a list": b"[]", "a number": b"3", "not UTF-8": b"\xff\xfe{",
    "a pickle": b"\x80\x04K\x03.",
    "nested": b"[" * 100_000, "another's": b'{"kind": "curve"}', "NaN": b'{"package": "smisym", "schema": NaN}',
    "digits": b'{"package": "smisym", "schema": ' + b"9" * 10_000 + b"}",
    "a newer schema": b'{"package": "smisym", "schema": 2, "package_version": "9.9"}',
    "no kind": b'{"package": "smisym", "schema": 1}',
    "another kind": b'{"package": "smisym", "schema": 1, "kind": "os.system"}',
    "a kind that is a list": b'{"package": "smisym", "schema": 1, "kind": []}',
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_other_files_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(HOSTILE[name])
    refused(path, *({"a newer schema": ("9.9", "schema 1")}.get(name, ())))


def test_files_that_are_not_there_or_are_folders_are_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none.json", "check the name")
    refused(tmp_path, "folder")
    with pytest.raises(InputError, match="name of a file"):
        smisym.load_result("")


DAMAGE = {
    "/points/0/Q": [[1.0]], "/points/0/Q_error": "no", "/points/1/overlaps": None, "/points/0/result": "fine",
    "/points/0/alpha": "0.2", "/points/0/names": ["layer 1"], "/points/0/settings": [], "/points/0/history": {},
    "/points/0/degrees_of_freedom": True, "/points": {}, "/types": [], "/points/0/start": 3,
}  # fmt: skip


@pytest.mark.parametrize("place", DAMAGE)
def test_damaged_files_are_refused(place: str, tmp_path: Path) -> None:
    path = written(fake_solutions.curve(), tmp_path)
    document = json.loads(path.read_text())
    _put(document, place, DAMAGE[place])
    path.write_text(json.dumps(document))
    refused(path)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("/points/0/Q", "float64 (4,)"), ("/points/0/Q", "object (2, 2)"), ("/points/0/Q", "float64 (9, 999999999)"),
        ("/points/0/Q", "int64 (2, 2)"), ("/points/0/Q/0/0", "+inf"), ("/nowhere", "tuple"),
        ("/points/0/alpha", "tuple"),
        ("/points/0/settings", "float64 (0,)"),
    ],
)  # fmt: skip
def test_types_that_do_not_fit_are_refused(place: str, told: str, tmp_path: Path) -> None:
    path = written(fake_solutions.curve(), tmp_path)
    document = json.loads(path.read_text())
    document["types"][place] = told
    path.write_text(json.dumps(document))
    refused(path)


@pytest.mark.parametrize(
    ("kind", "changed", "words"),
    [
        ("fixed point", {"/Q": np.zeros((2, 3))}, "Q is no square matrix"),
        ("fixed point", {"/Q_error": np.zeros((1, 1))}, "Q_error of another shape than Q"),
        ("thresholds", {"/thresholds/0/subspace": np.zeros((1, 3))}, "subspace of another number of rows"),
        ("thresholds", {"/thresholds/0/Q": [[1.0]]}, "Q is no array"),
        ("thresholds", {"/labels": [1]}, "names that are no texts"),
        ("gamp", {"/W_hat": np.zeros((3, 5))}, "W_hat of another number of rows"),
        ("dynamics", {"/trajectories/0/noise": np.zeros((3, 2))}, "of another shape than cosines"),
        ("dynamics", {"/trajectories/1/loss": np.zeros((1, 4))}, "of another shape than cosines"),
        ("dynamics", {"/layers": [1], "/names": []}, "cosines of another number of rows than layers"),
        ("branches", {"/branches/0/alphas": np.zeros(3)}, "arrays do not fit together"),
        ("phases", {"/branches/0/overlaps": np.zeros((4, 2, 3))}, "arrays do not fit together"),
        ("phases", {"/branches/0/turns": [0.5]}, "turns is no whole number"),
        ("diagram", {"/names": []}, "without one or two names"),
        ("diagram", {"/records": {}}, "without one or two names"),
        ("diagram", {"/records/1/at/noise": "0.1"}, "at is no number"),
        ("diagram", {"/records/1/result": "fine"}, "'fine' is not a valid Result"),
    ],
)
def test_parts_that_do_not_fit_one_another_are_named(
    kind: str, changed: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = written(fake_solutions.ALL[kind](), tmp_path)
    document = json.loads(path.read_text())
    for place, value in changed.items():
        document["types"].pop(place, None)
        if isinstance(value, np.ndarray):
            document["types"][place] = f"{value.dtype} {value.shape}"
        _put(document, place, value.tolist() if isinstance(value, np.ndarray) else value)
    path.write_text(json.dumps(document))
    refused(path, words)


def _put(document: Any, place: str, value: Any) -> None:
    *way, last = place.split("/")[1:]
    for step in way:
        document = document[int(step) if isinstance(document, list) else step]
    document[int(last) if isinstance(document, list) else last] = value


def _places(value: Any, place: str = "") -> list[str]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place] * bool(place) + [p for key, item in items for p in _places(item, f"{place}/{key}")]


JUNK = st.sampled_from([None, True, -1, 1e308, 10**30, "", "nan", [], {}, [[]], [None], {"a": []}, [[1, 2], [3]]])


KINDS = ["curve", "thresholds", "gamp", "number", "phases", "dynamics", "diagram"]


@given(kind=st.sampled_from(KINDS), choice=st.integers(0, 10**6), junk=JUNK)
@settings(deadline=None, max_examples=150)
def test_no_junk_in_a_file_ends_in_anything_but_an_input_error(
    kind: str, choice: int, junk: Any, tmp_path_factory
) -> None:
    path = tmp_path_factory.getbasetemp() / "junk.json"
    smisym.save_result(path, fake_solutions.ALL[kind]())
    document = json.loads(path.read_text())
    places = [place for place in _places(document) if "~" not in place and not place.startswith("/types/")]
    _put(document, places[choice % len(places)], copy.deepcopy(junk))
    path.write_text(json.dumps(document))
    try:
        loaded = smisym.load_result(path)
    except InputError as error:
        assert str(path) in str(error)
    else:
        assert repr(loaded)


# --- what cannot be saved --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result", [3.0, None, "text", [fake_solutions.number()], {"a": 1}, fake_solutions.point(0.5).value]
)
def test_what_is_no_result_is_not_saved(result: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="result to save"):
        smisym.save_result(tmp_path / "x.json", result)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("thing", [object(), 1j, {1: 2}, np.array([1j]), np.array(["a"]), Result.SUCCESS])
def test_what_has_no_exact_form_is_not_saved(thing: Any, tmp_path: Path) -> None:
    solution = smisym.Solution(1.0, Result.SUCCESS, settings={"thing": thing})
    with pytest.raises(InputError, match="/settings"):
        smisym.save_result(tmp_path / "x.json", solution)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="make the folder"):
        smisym.save_result(tmp_path / "none" / "x.json", fake_solutions.number())
    with pytest.raises(InputError, match="architecture"):
        smisym.save_result(tmp_path / "x.json", fake_solutions.number(), architecture="two layers")  # type: ignore[arg-type]
