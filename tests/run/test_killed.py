"""Killed, in one folder with another, or with damage in it: the same bits in the end, or what to remove is told."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest
from killing import DAMAGES, NETWORK, begin, damage, ended
from typer.testing import CliRunner, Result

from smisym.cli import app

QUICK = ["curve", "net.toml", "--alpha", "0.1,0.3", "--samples", "64", "--scrambles", "2", "--workers", "1"]


def run() -> Result:
    return CliRunner().invoke(app, [*QUICK, "--json", "--state", "state"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A folder in which a command has ended, and what it printed."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "net.toml").write_text(NETWORK)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder, run()


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_state_gives_the_same_bits_or_says_what_to_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: tuple[Path, Result], kind: str
) -> None:
    folder, right = whole
    assert right.exit_code in (0, 3), right.stderr
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    # A point is made again from evaluations, of which one is spoiled as well.
    for pattern in ("entry_alpha=0.3*", "entry_E*"):
        path = damage(random.Random(pattern), tmp_path, kind, pattern)
        assert path is not None
    again = run()
    if kind == "folder":
        assert again.exit_code == 2 and "stored result state" in again.stderr and "delete it" in again.stderr
        for path in tmp_path.glob("state/*/*"):
            if path.is_dir():
                path.rmdir()
        again = run()
    assert (again.exit_code, again.stdout) == (right.exit_code, right.stdout)


@pytest.mark.slow
def test_two_processes_on_one_state_of_which_one_is_killed(tmp_path: Path) -> None:
    command = ["curve", "net.toml", "--alpha", "0.1:0.5:3", "--samples", "512"]
    first, second = begin(command, tmp_path / "first"), begin(command, tmp_path / "second", "../first/state")
    while len(list(tmp_path.glob("first/state/*/entry_*"))) < 10:
        time.sleep(0.02)
        assert first.poll() is None
    first.kill()
    first.communicate()
    survivor = ended(second, tmp_path / "second")
    assert survivor.code in (0, 3), survivor.err
    assert ended(begin(command, tmp_path / "first"), tmp_path / "first").same(survivor)
    assert ended(begin(command, tmp_path / "third"), tmp_path / "third").same(survivor)
