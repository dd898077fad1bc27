"""Hostile architecture files: an answer or a clear error, in bounded time, and nothing executed."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from hostile import HUGE, PROGRAMS, case, judged, long_files, watch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smisym.base import files
from smisym.base.errors import InputError
from smisym.declare import io
from smisym.declare.architecture import Architecture, Attention
from smisym.declare.smi import MAX_CHARACTERS, SMI

LONG = dict(long_files())


@pytest.fixture(scope="module", autouse=True)
def watched() -> None:
    watch()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where programs in files would leave their traces."""
    monkeypatch.chdir(tmp_path)


@settings(
    max_examples=120, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(st.randoms(use_true_random=False))
def test_any_file_is_read_or_refused_clearly(tmp_path: Path, rng: random.Random) -> None:
    verdict = judged(case(rng), tmp_path / "case.toml")
    assert verdict.good, verdict


@pytest.mark.parametrize("name", LONG)
def test_long_files_end_soon(tmp_path: Path, name: str) -> None:
    verdict = judged(LONG[name], tmp_path / "case.toml")
    assert verdict.good, verdict


@pytest.mark.parametrize("start", ['activation = "', 'scale = "', "smi"])
def test_programs_in_expressions_are_refused_unread(tmp_path: Path, start: str) -> None:
    for number, program in enumerate((*PROGRAMS, *HUGE[:3])):
        text = program.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        whole = f'tokens = 2\n[[layers]]\n{start}{text}"\n'
        if start == "smi":
            whole = f'kind = "smi"\nfields = ["s"]\nexpressions = "{text}"\n'
        verdict = judged(whole.encode(), tmp_path / f"{number}.toml")
        assert verdict.kind == "refused", (program, verdict)


def test_the_judge_sees_what_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened to be written, run from a text: a reader that did so would be found."""
    path = tmp_path / "case.toml"
    Path("executed").write_text("")
    assert judged(b"", path).kind == "executed"
    Path("executed").unlink()
    read = os.open

    def evaluating(name: str, flags: int, *more: int) -> int:
        exec("1 + 1")
        return read(name, flags, *more)

    monkeypatch.setattr(os, "open", evaluating)
    assert judged(b"tokens = 2\n[[layers]]\n", path).kind == "executed"


def test_letters_that_look_alike_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "case.toml"
    for key, words in (
        ("t\u043ekens", "CYRILLIC SMALL LETTER O"),
        ('"t\u043ekens"', r"'t\\u043ekens'.*write \"tokens\""),
    ):
        path.write_text(f"{key} = 2\n[[layers]]\n")
        with pytest.raises(InputError, match=words):
            io.load(path)


def test_an_integer_too_long_is_told(tmp_path: Path) -> None:
    path = tmp_path / "case.toml"
    for digits, words in (
        ("0x" + "f" * 9000, "an integer too large to write out"),
        ("9" * 5000, "thousands of digits"),
    ):
        path.write_text(f"tokens = {digits}\n[[layers]]\n")
        with pytest.raises(InputError, match=words):
            io.load(path)


def test_a_pipe_is_read_and_a_silent_one_is_not_waited_for(tmp_path: Path) -> None:
    path, content = tmp_path / "pipe.toml", b"tokens = 2\n[[layers]]\n"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(content,))
    writer.start()
    assert files.read_bytes(path, "it", 100) == content
    writer.join()
    with pytest.raises(InputError, match=r"nothing came for 3 seconds.*write it to a file first"):
        io.load(path)
    with pytest.raises(InputError, match=r"a pipe or a device.*write it to a file first"):
        io.read_data(path)


def test_nothing_is_saved_that_cannot_be_loaded(tmp_path: Path) -> None:
    table = tuple((0.123456789,) * 256 for _ in range(256))
    with pytest.raises(InputError, match="bytes of text; allowed: at most"):
        io.save(Architecture(256, (Attention(position=table),)), tmp_path / "case.toml")
    assert list(tmp_path.iterdir()) == []


def test_outputs_are_bounded_together() -> None:
    text = " + ".join(["a"] * 1900)
    with pytest.raises(InputError, match=f"at most {MAX_CHARACTERS} in all expressions"):
        SMI([text] * 5, ["a"])
    with pytest.raises(InputError, match="more than 1024 of them"):
        SMI(["a"] * 1025, ["a"])


def test_an_entry_that_is_a_folder_is_to_be_removed(tmp_path: Path) -> None:
    store = io.Store(tmp_path, {"seed": 0})
    store.put("entry", {"x": 1.0})
    (path,) = store.folder.glob("entry_*")
    for place in (path, store.folder / "key.json"):
        place.unlink()
        place.mkdir()
        with pytest.raises(InputError, match=f"stored result {place}.*delete it"):
            io.Store(tmp_path, {"seed": 0}).get("entry")
        place.rmdir()
    assert io.Store(tmp_path, {"seed": 0}).get("entry") is None
