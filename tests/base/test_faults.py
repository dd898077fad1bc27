"""What goes wrong at the user's edge ends in an InputError that says how to mend it: data, files, sizes, arrays."""

from __future__ import annotations

import errno
import io as streams
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention, InputError
from smisym.base import edge, files
from smisym.declare import io
from smisym.finite.samples import check_standard

MODEL = smisym.compile(Architecture(2, (Attention(),)))
DATA = smisym.generate(MODEL, 20, 4.0, np.random.default_rng(0))

# --- tokens that are not standardised

NOT_STANDARD: dict[str, tuple[Any, str]] = {
    "zeros": (lambda X: 0 * X, "zeros alone"),
    "ten times too large": (lambda X: 10 * X, "variance 1?[09]"),
    "ten times too small": (lambda X: X / 10, "variance 0[.]0"),
    "shifted": (lambda X: X + 1, "mean [01]"),
    "beyond the range": (lambda X: 1e200 * X, "mean"),
    "constant tokens": (lambda X: np.broadcast_to(X[:, :, :1], X.shape), "a constant token"),
    "one constant token": (lambda X: np.where(np.arange(len(X))[:, None, None] == 3, 0.5, X), "sample 3"),
    "a constant coordinate": (lambda X: X * (np.arange(X.shape[2]) != 7), "coordinate 7"),
}


@pytest.mark.parametrize(("spoil", "words"), NOT_STANDARD.values(), ids=NOT_STANDARD.keys())
def test_tokens_that_are_not_standardised_are_refused(spoil: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        smisym.gamp(MODEL, spoil(DATA.X), DATA.y)
    assert caught.value.what == "X"
    assert any(word in caught.value.fix for word in ("standardise", "drop", "check what was read"))


@pytest.mark.parametrize("shape", [(1, 2, 2), (2, 2, 2), (2, 2, 500), (500, 2, 2), (40, 3, 30)])
def test_chance_alone_refuses_no_tokens(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    for _ in range(2000 if np.prod(shape) < 100 else 50):
        check_standard(rng.standard_normal(shape))


def test_standardised_tokens_of_other_laws_pass() -> None:
    rng = np.random.default_rng(2)
    for X in (rng.exponential(size=(50, 2, 30)), rng.integers(0, 256, (50, 2, 30)).astype(float)):
        with pytest.raises(InputError, match="standardise"):
            check_standard(X)
        check_standard((X - X.mean()) / X.std())
        check_standard((X - X.mean(axis=(0, 1))) / X.std(axis=(0, 1)))


# --- arrays of the wrong kind

Z = np.zeros((1, 1, 2))
KINDS: dict[str, tuple[str, Any]] = {
    "V as text": ("V", lambda: MODEL.channel.moments(DATA.y.y[:1], Z, "foo")),
    "complex V": ("V", lambda: MODEL.channel.moments(DATA.y.y[:1], Z, np.eye(1) + 0j)),
    "V of nothing": ("V", lambda: MODEL.channel.moments(DATA.y.y[:1], Z, None)),
    "ragged V": ("V", lambda: MODEL.channel.moments(DATA.y.y[:1], Z, [[1.0], [1.0, 2.0]])),
    "complex omega": ("fields Z", lambda: MODEL.channel.moments(DATA.y.y[:1], Z + 1j, np.eye(1))),
    "complex fields": ("fields Z", lambda: MODEL.observe(Z + 1j)),
    "fields as text": ("fields Z", lambda: MODEL.observe("foo")),
    "complex y": ("y", lambda: MODEL.channel.moments(DATA.y.y[:1] + 0j, Z, np.eye(1))),
    "ragged X": ("X", lambda: smisym.gamp(MODEL, [[1.0], [1.0, 2.0]], DATA.y)),
    "complex W": ("W", lambda: smisym.gamp(MODEL, DATA.X, DATA.y, W=DATA.W + 1j)),
    "initial as text": ("initial", lambda: smisym.gamp(MODEL, DATA.X, DATA.y, initial="foo")),
    "complex initial": ("initial", lambda: smisym.gamp(MODEL, DATA.X, DATA.y, initial=1j)),
    "lam as text": ("side_information", lambda: smisym.gamp(MODEL, DATA.X, DATA.y, side_information=("a", DATA.W))),
    "negative damping": ("damping", lambda: smisym.gamp(MODEL, DATA.X, DATA.y, damping=-0.1)),
}


@pytest.mark.parametrize(("what", "bad"), KINDS.values(), ids=KINDS.keys())
def test_arrays_of_the_wrong_kind(what: str, bad: Any) -> None:
    with pytest.raises(InputError, match="To fix") as caught:
        bad()
    assert caught.value.what == what


def test_the_default_of_A_is_named() -> None:
    with pytest.raises(InputError, match="leave it out for 'hessian'"):
        smisym.gamp(MODEL, DATA.X, DATA.y, A="inner")  # type: ignore[arg-type]


# --- keywords


def test_misspelt_and_useless_settings() -> None:
    allowed = ("samples", "scrambles", "seed")
    edge.check_settings({"samples": 3}, allowed)
    edge.check_settings({}, allowed, given_map=True)
    with pytest.raises(InputError, match=r"keyword: given 'sample'; .* write samples"):
        edge.check_settings({"sample": 3}, allowed)
    with pytest.raises(InputError, match=r"'foo'; allowed: samples, scrambles, seed. To fix: leave it out"):
        edge.check_settings({"foo": 3}, allowed)
    with pytest.raises(InputError, match="a map has its own"):
        edge.check_settings({"samples": 3}, allowed, given_map=True)


# --- sizes


@pytest.mark.parametrize(("dim", "alpha"), [(10**9, 1.0), (10, 1e9), (10**4, 1e9), (10**30, 1e-30), (2, 1e300)])
def test_data_larger_than_memory_are_refused_before_they_are_drawn(dim: int, alpha: float) -> None:
    with pytest.raises(InputError, match=r"GiB of memory; allowed: .* GiB, free now\. To fix: (at this|lower)"):
        smisym.generate(MODEL, dim, alpha, np.random.default_rng(0))


def free_memory(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The system says that so many bytes are free."""
    said, system = {"SC_AVPHYS_PAGES": count, "SC_PAGE_SIZE": 1}, os.sysconf
    monkeypatch.setattr(os, "sysconf", lambda name: said.get(name) or system(name))


def test_the_dimension_that_is_said_to_fit_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    free_memory(monkeypatch, 1 << 22)
    with pytest.raises(InputError, match=r"D = (\d+) fits") as caught:
        smisym.generate(MODEL, 5000, 1.0, np.random.default_rng(0))
    fits = int("".join(filter(str.isdigit, caught.value.fix)))
    smisym.generate(MODEL, fits, 1.0, np.random.default_rng(0))
    with pytest.raises(InputError):
        smisym.generate(MODEL, fits + 1, 1.0, np.random.default_rng(0))


def declare(path: Path, shape: tuple[int, ...], content: bytes = b"") -> None:
    """An .npz whose X claims a shape."""
    head = streams.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": shape})
    y = streams.BytesIO()
    np.save(y, np.zeros(2))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", head.getvalue() + content)
        archive.writestr("y.npy", y.getvalue())


def test_arrays_that_claim_more_than_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for shape in ((10**10,), (10**5, 2, 50_000), (10**18, 10**18, 10**18), (3, 2, 4)):
        declare(tmp_path / "d.npz", shape)
        with pytest.raises(InputError, match="but not the numbers of it"):
            io.read_data(tmp_path / "d.npz")
    declare(tmp_path / "d.npz", (1000, 2, 500), bytes(8_000_000))
    assert io.read_data(tmp_path / "d.npz").X.shape == (1000, 2, 500)
    free_memory(monkeypatch, 4_000_000)
    with pytest.raises(InputError, match=r"1000 samples.*keep at most 499 samples"):
        io.read_data(tmp_path / "d.npz")


# --- files


@pytest.mark.parametrize("name", [None, 3, 0, True, b"x", "", ["a"]])
def test_what_names_no_file(name: Any) -> None:
    for use in (smisym.load, lambda n: smisym.save(Architecture(2, (Attention(),)), n), io.read_data):
        with pytest.raises(InputError, match="give its name"):
            use(name)
    with pytest.raises(InputError, match="folder to keep results in"):
        io.Store(name, {})


def test_folders_are_not_files(tmp_path: Path) -> None:
    for use in (smisym.load, lambda n: smisym.save(Architecture(2, (Attention(),)), n), io.read_data):
        with pytest.raises(InputError, match="this is a folder"):
            use(tmp_path)


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "free some space"), (errno.EACCES, "permission"), (errno.ENOENT, "make the folder")],
)
def test_the_remedy_fits_what_the_system_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(InputError, match=words) as caught:
        files.write_text(tmp_path / "x", "text")
    assert os.strerror(number) in str(caught.value)
    assert not list(tmp_path.iterdir())


SYNTAX = {
    "activation = softmax": "put text in quotes",
    "tied = True": "true and false, in small letters",
    "scale = None": "leave the key out",
    "skip = .5": "both sides of the decimal point",
    "skip = 1.": "both sides of the decimal point",
    "skip: 1.0": "equals sign",
    "skip =": "give the value",
    "position = (1, 2)": "square brackets",
    "[layers": "two brackets",
    "skip = 1.0\nskip = 2.0": "remove one of the two lines",
    "skip = 1.0 2.0": "write name = value",
    'activation = "softmax': "line 3",
    "position = [1, 2": "a bracket or a quote is open",
}


@pytest.mark.parametrize(("line", "words"), SYNTAX.items(), ids=SYNTAX.keys())
def test_syntax_errors_name_the_line_and_what_to_do(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "n.toml").write_text(f"tokens = 2\n[[layers]]\n{line}\n")
    with pytest.raises(InputError, match=r"n\.toml") as caught:
        smisym.load(tmp_path / "n.toml")
    assert words in str(caught.value)
    assert "begin with" not in str(caught.value)
    if "open" not in words:
        assert "column" in str(caught.value) and line.splitlines()[-1].strip("\n") in str(caught.value)


# --- entries of a store that somebody else made


@pytest.mark.parametrize(
    "value", [3, "text", None, [1], {"a": "text"}, {"b": 1.0}, {"a": [[[[1]]]]}], ids=lambda value: json.dumps(value)
)
def test_forged_entries_are_absent(tmp_path: Path, value: Any) -> None:
    store = io.Store(tmp_path, {})
    store.put("x", {"a": 1.0})
    (entry,) = store.folder.glob("entry_*")
    right = entry.read_text()
    # With the right checksum: nothing but its shape tells it from ours.
    store.put("x", value)
    assert entry.read_text() != right
    assert store.get("x", lambda found: found["a"] < 2) is None


def test_nested_and_huge_entries(tmp_path: Path) -> None:
    store = io.Store(tmp_path, {})
    store.put("x", {"a": 1.0})
    (entry,) = store.folder.glob("entry_*")
    whole = entry.read_text()
    entry.write_text("[" * 200_000)
    assert store.get("x") is None
    entry.write_text('{"name": "x", "checksum": "", "value": ' + '{"a":' * 100_000)
    assert store.get("x") is None
    entry.write_text(whole)
    assert store.get("x") == {"a": 1.0}
    os.truncate(entry, io.MAX_ENTRY_BYTES + 1)
    with pytest.raises(InputError, match="delete it"):
        store.get("x")
