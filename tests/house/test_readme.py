"""What README.md says: its Python runs, its TOML is read, its commands and files exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
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


@pytest.mark.parametrize("page", ["README.md", "docs/reference/commands.md"])
def test_common_options_are_those_of_each_command(page: str) -> None:
    """The table of both pages says which command takes which option, and names every command."""
    text = (ROOT / page).read_text()
    (heading,) = re.findall(r"^\| command \| (`--seed`.*) \|$", text, flags=re.MULTILINE)
    options = [cell.strip().strip("`") for cell in heading.split("|")]
    below = text[text.index(heading) :].partition("\n\n")[0]
    said = {
        name: [option for option, cell in zip(options, cells.split("|"), strict=True) if cell.strip() != "–"]
        for name, cells in re.findall(r"^\| `([\w-]+)` \| (.*) \|$", below, flags=re.MULTILINE)
    }
    group: Any = get_command(app)
    taken = {
        name: {text for parameter in command.params for text in parameter.opts}
        for name, command in group.commands.items()
    }
    assert said == {name: [one for one in options if one in names] for name, names in taken.items()}


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
