"""What README.md says: its Python runs, its TOML is read, its commands and files exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import smisym
from smisym.cli import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python")
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "weak (2,)" in printed
    assert "weak (1,)" in printed


def test_toml_is_read(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    (tmp_path / "network.toml").write_text(text)
    assert smisym.load(tmp_path / "network.toml") == smisym.Architecture(2, (smisym.Attention(), smisym.Attention()))


def test_commands_and_their_options_exist() -> None:
    commands = [shlex.split(line) for line in re.findall(r"^\| `smisym ([^`]*)`", README, flags=re.MULTILINE)]
    known = {"thresholds", "curve", "phases", "phase-diagram", "gamp", "derive", "cite", "analyze", "demo", "check"}
    known |= {"certify", "info", "dynamics", "atlas"}
    assert {words[0] for words in commands} == known
    for name, *rest in commands:
        shown = CliRunner().invoke(app, [name, "--help"]).stdout
        for option in (word for word in rest if word.startswith("-")):
            assert option in shown


def test_files_exist() -> None:
    table = README[README.index("## Read on") : README.index("## Citing")]
    cells = re.findall(r"^\| (.*?) \|", table, flags=re.MULTILINE)
    assert sum("`" in cell for cell in cells) >= 8
    for cell in cells:
        folder = ""
        for name in re.findall(r"`([^`]+)`", cell):
            # Later names of a cell are in the folder of its first.
            folder = folder or str(Path(name).parent)
            assert (ROOT / name).exists() or (ROOT / folder / name).exists(), name
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).exists(), path
