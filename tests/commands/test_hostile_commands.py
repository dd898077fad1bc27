"""Hostile command lines: a clear error, exit code 2, no traceback, soon; the others are run by benchmarks/fuzz.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hostile import limited
from hostile_commands import BIG, complaint, files, refused
from typer.testing import CliRunner

from smisym.cli import app

# What each of these once did: hang, a traceback, or a number that was not the one asked for.
ONCE = [
    ["thresholds", "net.toml", "--samples=64", "--scrambles=2", "--rtol=nan"],
    ["curve", "net.toml", "--alpha=0.1", f"--samples={2**60}"],
    ["thresholds", "net.toml", f"--samples={2**200}"],
    ["thresholds", "net.toml", "--accuracy=1e-300"],
    ["gamp", "net.toml", "--alpha=1", "--dim=1" + "0" * 400],
    ["gamp", "net.toml", "--alpha=1", "--dim=10", "-o", "x" * 300 + ".npz"],
    ["gamp", "net.toml", "--data", "pipe.npz"],
    ["analyze", "net.toml", "-o", "out", f"--runs={BIG}"],
    ["demo", "-o", "file"],
]
# Each seventh of the others, but for pipes, which are waited for.
SOME = [line for line in refused() if "pipe.toml" not in line][::7]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faulty")
    files(folder)
    return folder


@pytest.fixture
def here(faulty: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(faulty)
    monkeypatch.setenv("SMISYM_CACHE", str(faulty / "cache"))
    return faulty


def wrong(arguments: list[str]) -> str:
    given = [os.fsdecode(text.encode("utf-8", "surrogatepass")) for text in arguments]
    with limited(5.0):
        ended = CliRunner().invoke(app, given)
    crashed = ended.exception is not None and not isinstance(ended.exception, SystemExit)
    return repr(ended.exception) if crashed else complaint(ended.exit_code, ended.stdout, ended.stderr)


@pytest.mark.parametrize("arguments", ONCE, ids=lambda line: " ".join(line)[:60])
def test_what_once_went_wrong(here: Path, arguments: list[str]) -> None:
    assert wrong(arguments) == ""


@pytest.mark.parametrize("part", range(4))
def test_hostile_command_lines_are_refused(here: Path, part: int) -> None:
    told = {" ".join(line)[:200]: wrong(line) for line in SOME[part::4]}
    assert {line: why for line, why in told.items() if why} == {}
    assert not (here / "out").exists(), "something was computed"


def test_memory_that_the_system_does_not_give_is_told(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*names: object) -> int:
        raise MemoryError

    monkeypatch.setattr(os, "sysconf", none)
    assert wrong(["gamp", "net.toml", "--alpha", "1", "--dim", "10"]) == ""


def test_more_stages_than_can_be_counted_are_all(here: Path) -> None:
    command = ["thresholds", "net.toml", "--samples", "64", "--scrambles", "2", "--json", f"--stages={BIG}"]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 0 and '"weak"' in ended.stdout
