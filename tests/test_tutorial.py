"""docs/tutorial.md is run, block by block, in one folder; what it shows is what comes out."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from pathlib import Path

import matplotlib
import pytest
from typer.testing import CliRunner

from smisym.cli import app

PAGE = Path(__file__).parent.parent / "docs" / "tutorial.md"
NUMBER = re.compile(r"-?\d+\.\d+")


def blocks() -> list[tuple[str, str]]:
    return re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


def test_the_tutorial_says_what_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed = ""
    for kind, text in blocks():
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(text, "tutorial.md", "exec"), names)
            printed = out.getvalue()
        elif kind == "text":
            assert_same(text, printed)
        elif kind == "toml":
            Path("head.toml").write_text(text)
        elif kind == "sh":
            for line in text.splitlines():
                run(line)
    assert os.path.getsize("head.png") > 5000
    assert "<math" in Path("head.html").read_text()


def run(line: str) -> None:
    program, *arguments = shlex.split(line)
    assert program == "smisym"
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, (line, done.output)


def assert_same(shown: str, printed: str) -> None:
    """The same words; numbers with a point agree to two units of the last digit shown, as errors go."""
    assert NUMBER.sub("#", shown).split() == NUMBER.sub("#", printed).split(), printed
    for a, b in zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True):
        assert abs(float(a) - float(b)) <= 2.01 * 10.0 ** -len(a.split(".")[1]), (a, b)
