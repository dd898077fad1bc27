"""Files: round trips, every fault of a file as an InputError, and a store that survives kill -9."""

from __future__ import annotations

import enum
import json
import math
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import architectures

from smisym.base import files
from smisym.base.errors import InputError
from smisym.declare import io, shipped
from smisym.declare.architecture import Architecture, Attention
from smisym.declare.smi import SMI

TWO_LAYERS = Architecture(tokens=2, layers=(Attention(), Attention()))
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


# --- declarations


@same_folder
@given(architectures)
def test_toml_round_trip(tmp_path: Path, architecture: Architecture) -> None:
    path = tmp_path / "network.toml"
    io.save(architecture, path)
    assert io.load(path) == architecture
    assert [p.name for p in tmp_path.iterdir()] == ["network.toml"]


def test_defaults_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "short.toml"
    path.write_text("tokens = 2\n[[layers]]\n[[layers]]\nskip = 2\n")
    assert io.load(path) == Architecture(2, (Attention(), Attention(skip=2.0)))
    assert io.load(str(path)) == io.load(path)


def test_shipped_example_is_two_default_layers() -> None:
    assert io.load(shipped.TWO_LAYERS) == TWO_LAYERS


def test_published_data_are_whole() -> None:
    published = shipped.published_two_layers()
    assert len(published["curve"]) == 48
    assert len(published["amp"]) == 15
    assert all(-1e-3 <= value <= 1.1 for row in published["curve"] + published["amp"] for value in row["Q"])


LAYER = "[[layers]]\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("token = 2\n" + LAYER, ["token", 'write "tokens" if that was meant', "tokens, layers, output, noise"]),
        ("tokens = 2\n[[layer]]\n", ['write "layers" if that was meant']),
        ("tokens = 2\n[[layers]]\nskp = 1.0\n", ["layer 1", 'write "skip" if that was meant', "rank, skip"]),
        ("tokens = 2\n[[layers]]\n[[layers]]\nxyzzy = 1\n", ["layer 2", "xyzzy", "remove it"]),
        (LAYER, ['"tokens"']),
        ("tokens = 2\n", ['"layers"', "[[layers]]"]),
        ("tokens = 2\nlayers = []\n", ["layers", "at least one"]),
        ("tokens = 2\n[layers]\nskip = 1.0\n", ["[[layers]]"]),
        ("tokens = 2\nlayers = [1, 2]\n", ["[[layers]]"]),
        ("tokens = 2.0\n" + LAYER, ["tokens", "2.0", "integer >= 2"]),
        ("tokens = 1\n" + LAYER, ["tokens", "integer >= 2"]),
        ("tokens = true\n" + LAYER, ["tokens", "integer >= 2"]),
        ('tokens = "2"\n' + LAYER, ["tokens", "'2'"]),
        ("tokens = 2024-01-01\n" + LAYER, ["tokens", "integer >= 2"]),
        ("tokens = 2\nnoise = nan\n" + LAYER, ["noise", "nan", "finite"]),
        ("tokens = 2\n[[layers]]\nrank = 0\n", ["rank in layer 1", "integer >= 1"]),
        ("tokens = 2\n[[layers]]\n[[layers]]\nbeta = inf\n", ["beta in layer 2", "finite"]),
        ("tokens = 2\n[[layers]]\nskip = nan\n", ["skip in layer 1", "nan", ">= 0"]),
        ("tokens = 2\n[[layers]]\nactivation = 'softmx'\n", ["activation", "softmx", "softmax"]),
        ("tokens = 2\n[[layers]]\ntied = 1\n", ["tied", "true or false"]),
        ("tokens = = 2\n", ["TOML", "line 1"]),
        ("tokens = 2\ntokens = 3\n" + LAYER, ["TOML"]),
        ("tokens = " + "9" * 5000 + "\n" + LAYER, ["TOML"]),
        ("a = " + "[" * 20000, ["TOML"]),
        ("", ['"tokens"']),
    ],
)
def test_bad_declarations_name_file_and_fix(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        io.load(path)
    message = str(caught.value)
    assert "bad.toml" in message and "To fix:" in message and "allowed:" in message
    for word in words:
        assert word in message


COMMITTEE = SMI(["relu(z1) - relu(z2)", "z1*z2/(1 + z1**2)"], 2, noise=0.25)
SEQUENCE = SMI("tanh(q[1]*k[2]) + 0.1*q[2]", ["q", "k"], tokens=2)


@pytest.mark.parametrize("smi", [COMMITTEE, SEQUENCE])
def test_smi_round_trip(tmp_path: Path, smi: SMI) -> None:
    path = tmp_path / "model.toml"
    io.save(smi, path)
    assert path.read_text().startswith('kind = "smi"\n')
    assert io.load(path) == smi


def test_smi_file_in_short(tmp_path: Path) -> None:
    path = tmp_path / "short.toml"
    path.write_text('kind = "smi"\nfields = 2\nexpressions = "z1 * z2"\n')
    assert io.load(path) == SMI(("z1*z2",), ("z1", "z2"))
    path.write_text('kind = "smi"\nfields = ["a"]\nexpressions = ["a[1]*a[2]", "a[1]"]\ntokens = 2\nnoise = 1\n')
    assert io.load(path) == SMI(("a[1]*a[2]", "a[1]"), ("a",), tokens=2, noise=1.0)


def test_attention_may_be_said(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_text('kind = "attention"\ntokens = 2\n[[layers]]\n[[layers]]\n')
    assert io.load(path) == TWO_LAYERS


def test_tables_pass_through_and_none_is_left_out(tmp_path: Path) -> None:
    mask = [[True, False], [True, True]]
    network = Architecture(2, (Attention(heads=2, readout=[0.5, 0.25], mask=mask), Attention()))  # type: ignore[arg-type]
    path = tmp_path / "network.toml"
    io.save(network, path)
    assert io.load(path) == network
    written = tomllib.loads(path.read_text())
    assert "mask" in written["layers"][0] and "mask" not in written["layers"][1]


SMI_HEAD = 'kind = "smi"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('kind = "sim"\n', ["kind in", "'sim'", '"attention" or "smi"', "leave kind out"]),
        ("kind = []\n", ["kind in", '"attention" or "smi"']),
        ('fields = 1\nexpressions = "z1"\n', ["key in", "'fields'", 'add kind = "smi"']),
        ('expressions = "z1"\n', ["'expressions'", 'add kind = "smi"']),
        (SMI_HEAD + 'fields = ["a"]\nexpressions = {a = 1}\n', ["expressions in", "{'a': 1}", "a sequence of texts"]),
        (SMI_HEAD + 'fields = {a = 1}\nexpressions = "a"\n', ["fields in", "{'a': 1}", "a sequence of names"]),
        (SMI_HEAD + 'fields = 2\nexpressions = "z1"\n', ["fields in", "'z2'", "leave it out"]),
        ("tokens = 2\nnoise = 1e-40\n[[layers]]\n", ["noise in", ">= 1e-20", "use noise=0"]),
        ('tokens = 2\n[[layers]]\nactivation = "log(s)"\n', ["activation in layer 1 in", "complex-valued", "by abs"]),
        (SMI_HEAD, ['the key "fields"', "write, for example"]),
        (SMI_HEAD + "fields = 1\n", ['the key "expressions"']),
        (SMI_HEAD + 'field = 1\nexpressions = "z1"\n', ['write "fields" if that was meant']),
        (SMI_HEAD + 'fields = 1\nexpressions = ["z1", "z2"]\n', ["expression 2 in", "'z2'", 'write "z1"']),
        (SMI_HEAD + 'fields = 1\nexpressions = "log(z1)"\n', ["expression 1 in", "complex-valued", "z1 = "]),
        (SMI_HEAD + "fields = 1\nexpressions = 3\n", ["expressions in", "a text"]),
        (SMI_HEAD + 'fields = 0\nexpressions = "z1"\n', ["fields in", "integer >= 1"]),
        (SMI_HEAD + 'fields = 1\nexpressions = "z1"\nnoise = -1\n', ["noise in", ">= 1e-20"]),
        (
            SMI_HEAD + 'fields = 1\nexpressions = "__import__(1)"\n',
            ["expression 1 in", "__import__(1)", "calls of exp"],
        ),
    ],
)
def test_bad_smi_files_name_file_and_fix(tmp_path: Path, text: str, words: list[str]) -> None:
    test_bad_declarations_name_file_and_fix(tmp_path, text, words)


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"tokens = 2 # \xe9\n")
    (tmp_path / "huge.toml").write_bytes(b"#" * (io.MAX_DECLARATION_BYTES + 1))
    for path, word in [
        (tmp_path / "absent.toml", "No such file"),
        (tmp_path, "directory"),
        (tmp_path / "latin.toml", "UTF-8"),
        (tmp_path / "huge.toml", "bytes"),
        (tmp_path / "latin.toml" / "below", "Not a directory"),
        ("null\0byte", "null"),
    ]:
        with pytest.raises(InputError, match=word):
            io.load(path)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "bom.toml"
    path.write_bytes(b"\xef\xbb\xbftokens = 2\n[[layers]]\n")
    assert io.load(path).tokens == 2


def test_save_refuses(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        io.save(TWO_LAYERS, tmp_path / "absent" / "x.toml")
    with pytest.raises(InputError, match="directory"):
        io.save(TWO_LAYERS, tmp_path)
    with pytest.raises(InputError, match="an Architecture"):
        io.save({"tokens": 2}, tmp_path / "x.toml")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


# --- writing


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept.txt"
    files.write_text(path, "old")
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(InputError, match="No space left"):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["kept.txt"]


def test_new_files_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write_text(tmp_path / "x", "")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


class Colour(enum.Enum):
    RED = "red"


def test_json_of_everything_results_are_made_of(tmp_path: Path) -> None:
    value = {
        "array": np.array([[0.1, np.inf], [np.nan, -np.inf]]),
        "scalars": (np.float64(0.1), np.float32(0.5), np.int64(3), np.bool_(True), np.longdouble(0.25)),
        "none": None,
        "code": Colour.RED,
        "path": Path("a/b"),
        3: TWO_LAYERS,
        4: COMMITTEE,
    }
    io.write_json(tmp_path / "x.json", value)
    read = json.loads((tmp_path / "x.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert read == {
        "array": [[0.1, None], [None, None]],
        "scalars": [0.1, 0.5, 3, True, 0.25],
        "none": None,
        "code": "red",
        "path": "a/b",
        "3": TWO_LAYERS.canonical(),
        "4": COMMITTEE.canonical(),
    }
    with pytest.raises(TypeError, match="complex"):
        io.to_json({"z": 1j})


@given(st.lists(st.floats()))
def test_json_floats_round_trip(values: list[float]) -> None:
    expected = [x if math.isfinite(x) else None for x in values]
    assert json.loads(io.to_json(np.array(values))) == expected
    assert json.loads(io.to_json(values)) == expected


def test_header_says_what_reproduces_a_result() -> None:
    header = io.header(TWO_LAYERS, 7, {"alphas": np.array([0.1, 0.2]), "rtol": 1e-6})
    assert json.loads(io.to_json(header)) == header
    assert header["schema"] == io.SCHEMA
    assert header["package_version"] == io.package_version()
    assert header["architecture"] == TWO_LAYERS.canonical()
    assert header["architecture_digest"] == TWO_LAYERS.digest
    assert header["seed"] == 7
    assert header["settings"] == {"alphas": [0.1, 0.2], "rtol": 1e-6}
    assert header["versions"]["numpy"] == np.__version__
    assert set(header["versions"]) == {"python", "numpy", "scipy", "sympy", "backend"}


def test_header_of_an_smi() -> None:
    header = io.header(SEQUENCE, 7, {})
    assert json.loads(io.to_json(header)) == header
    assert header["architecture"] == SEQUENCE.canonical()
    assert header["architecture_digest"] == SEQUENCE.digest


# --- data


def data(samples: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"X": rng.standard_normal((samples, 2, 3)), "y": rng.random((samples, 2, 2))}


def test_data_round_trip(tmp_path: Path) -> None:
    arrays = data()
    np.savez_compressed(tmp_path / "d.npz", **arrays, other=np.zeros(3))
    for path in (tmp_path / "d.npz", str(tmp_path / "d.npz")):
        read = io.read_data(path)
        assert np.array_equal(read.X, arrays["X"]) and np.array_equal(read.y, arrays["y"])
        assert read.W is None and read.others == ("other",)
    np.savez(tmp_path / "w.npz", **arrays, W=np.ones((1, 3)))
    assert np.array_equal(io.read_data(tmp_path / "w.npz").W, np.ones((1, 3)))


@pytest.mark.parametrize("names", [("X",), ("y",), ("x", "Y"), ()])
def test_missing_arrays(tmp_path: Path, names: tuple[str, ...]) -> None:
    np.savez(tmp_path / "bad.npz", **{name: np.ones(3) for name in names})
    with pytest.raises(InputError, match=r"bad\.npz.*arrays X .* and y"):
        io.read_data(tmp_path / "bad.npz")


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", X=np.array([None, print]), y=np.zeros(2))
    with pytest.raises(InputError, match="arrays of numbers"):
        io.read_data(tmp_path / "bad.npz")


def test_unreadable_data(tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", **data(samples=500))
    whole = (tmp_path / "good.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "flipped.npz").write_bytes(whole[:5000] + bytes(200) + whole[5200:])
    (tmp_path / "text.npz").write_text("X, y\n1, 2\n")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.save(tmp_path / "single.npy", data()["X"])
    for name in ("absent.npz", "half.npz", "flipped.npz", "text.npz", "empty.npz", "single.npy", ""):
        with pytest.raises(InputError, match="To fix"):
            io.read_data(tmp_path / name)


# --- the store


@same_folder
@given(name=st.text(), value=st.dictionaries(st.text(), json_values, max_size=4))
def test_store_round_trip(tmp_path: Path, name: str, value: dict[str, object]) -> None:
    store = io.Store(tmp_path, {"command": "test"})
    kept = store.put(name, value)
    again = io.Store(tmp_path, {"command": "test"})
    # The same bits, not only equal values: -0.0 and 1 against 1.0.
    assert json.dumps(again.get(name)) == json.dumps(kept) == json.dumps(value)


def test_store_tells_names_and_keys_apart(tmp_path: Path) -> None:
    names = ["", "a", "A", "a/b", "a_b", "..", "alpha=0.1", "alpha=0.10", "x" * 400, "x" * 401, "é", "\ud800"]
    store = io.Store(tmp_path, {"seed": 0})
    for number, name in enumerate(names):
        store.put(name, {"number": number})
    assert [store.get(name) for name in names] == [{"number": number} for number in range(len(names))]
    assert store.get("absent") is None
    assert io.Store(tmp_path, {"seed": 1}).get("a") is None
    assert io.Store(tmp_path, {"seed": 0}).get("a") == {"number": 1}
    assert json.loads((store.folder / "key.json").read_text()) == {"seed": 0}


def test_store_returns_what_it_will_read_back(tmp_path: Path) -> None:
    kept = io.Store(tmp_path, {}).put("a", {"Q": np.eye(2), "alpha": np.inf, "pair": (1, 2)})
    assert kept == io.Store(tmp_path, {}).get("a") == {"Q": [[1.0, 0.0], [0.0, 1.0]], "alpha": None, "pair": [1, 2]}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"name": "a"}', b"\xff\xfe", None])
def test_damaged_entries_are_computed_again(tmp_path: Path, content: bytes | None) -> None:
    store = io.Store(tmp_path, {})
    store.put("a", {"value": 1.25})
    (entry,) = store.folder.glob("entry_*")
    entry.write_bytes(entry.read_bytes().replace(b"1.25", b"1.75") if content is None else content)
    assert store.get("a") is None
    store.put("a", {"value": 1.25})
    assert store.get("a") == {"value": 1.25}


def test_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="folder to keep results in"):
        io.Store(tmp_path / "file", {})
    with pytest.raises(InputError, match="folder to keep results in"):
        io.Store("null\0byte", {})
    store = io.Store(tmp_path / "gone", {})
    (store.folder / "key.json").unlink()
    store.folder.rmdir()
    with pytest.raises(InputError, match="file to write"):
        store.put("a", {})


WRITER = """
import sys
from smisym.declare.io import Store
store = Store(sys.argv[1], {"command": "kill"})
print("ready", flush=True)
round = 0
while True:
    round += 1
    store.put("same name", {"round": round, "payload": [round] * 2000})
"""


@pytest.mark.parametrize("delay", [0.0, 0.013, 0.05, 0.1, 0.17])
def test_kill_at_any_time_never_leaves_a_torn_entry(tmp_path: Path, delay: float) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        store = io.Store(tmp_path, {"command": "kill"})
        wait_until(lambda: store.get("same name") is not None)
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    entry = store.get("same name")
    assert entry is not None
    assert entry["payload"] == [entry["round"]] * 2000


def wait_until(condition: object, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.002)
