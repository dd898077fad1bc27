"""Killed, in one folder with another, or with damage in it: the same bits in the end, or what to remove is told."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from killing import COMMANDS, DAMAGES, NETWORK, begin, damage, ended
from typer.testing import CliRunner

from smisym.cli import app

QUICK = ["curve", "net.toml", "--alpha", "0.1,0.3", "--samples", "512", "--workers", "1", "--json", "--state", "state"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.toml").write_text(NETWORK)
    return tmp_path


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_state_gives_the_same_bits_or_says_what_to_remove(here: Path, kind: str) -> None:
    whole = CliRunner().invoke(app, QUICK)
    assert whole.exit_code in (0, 3), whole.stderr
    for seed in range(4):
        spoiled = damage(random.Random(seed), here, kind)
        (path,) = here.glob(f"state/*/{spoiled}")
        again = CliRunner().invoke(app, QUICK)
        # Once all points are known nothing else is read: another entry may stay spoiled.
        if again.exit_code == 2:
            assert kind == "folder" and f"{Path('state') / path.parent.name / path.name}" in again.stderr
            assert "remove it" in again.stderr
        if path.is_dir():
            path.rmdir()
            again = CliRunner().invoke(app, QUICK)
        assert (again.exit_code, again.stdout) == (whole.exit_code, whole.stdout)


def test_two_processes_on_one_state_of_which_one_is_killed(tmp_path: Path) -> None:
    command = COMMANDS["curve"]
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
