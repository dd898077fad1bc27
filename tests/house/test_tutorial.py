"""docs/tutorial.md: all of it runs, in order and in one folder, and prints what the page shows."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pages import alike, matches, numbers, run
from pages import blocks as blocks_of
from typer.testing import CliRunner

from smisym.cli import app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tutorial.md").read_text()


def blocks() -> list[tuple[str, str, list[str]]]:
    return blocks_of(TEXT)


@pytest.mark.slow
def test_the_page_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for language, code, shown in blocks():
        printed = run(language, code, names, tmp_path)
        assert matches(shown, printed), "\n".join([code, "prints", *printed, "but the page shows", *shown])
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_blocks_of_python_compile_and_commands_exist() -> None:
    """A quick look at the page where the slow test is left out."""
    languages = [language for language, _, _ in blocks()]
    assert languages.count("python") >= 8 and languages.count("sh") >= 8
    for language, code, _ in blocks():
        if language == "python":
            compile(code, "tutorial.md", "exec")
            continue
        for line in re.findall(r"^smisym (.*)$", code, flags=re.MULTILINE):
            name, *rest = shlex.split(re.split(r" 2>| > | \| | \|\| ", line)[0])
            options = [word for word in rest if word.startswith("-")]
            shown = CliRunner().invoke(app, [name, "--help"]).stdout
            assert all(option in shown for option in options), line


def test_the_page_is_linked_and_its_links_lead_somewhere() -> None:
    assert "docs/tutorial.md" in (ROOT / "README.md").read_text()
    assert "(tutorial.md)" in (ROOT / "docs" / "guide.md").read_text()
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT):
        assert (ROOT / "docs" / target).exists(), target


def test_numbers_are_read_with_their_errors() -> None:
    ((value, error),) = numbers("9(8)×10⁻⁵")
    assert math.isclose(value, 9e-5) and error is not None and math.isclose(error, 8e-5)
    assert numbers("0.2362 ± 0.0002") == [(0.2362, 0.0002)]
    ((value, error),) = numbers("−1.571(9)")
    assert value == -1.571 and error is not None and math.isclose(error, 0.009)
    assert numbers("12.3(1.5)") == [(12.3, 1.5)]


def test_the_comparison_can_fail() -> None:
    assert alike(" weak   0.2362(2)  ", " weak  0.2363(2)")
    assert not alike("weak 0.2362(2)", "weak 0.2365(2)")
    assert not alike("weak 0.2362(2)", "weak 0.2362(9)")
    assert not alike("weak 0.2362(2)", "weak 0.2362")
    assert not alike("weak 0.2362 ± 0.0002", "hard 0.2362 ± 0.0002")
    assert matches(["a 1", "...", "b"], ["a 1", "c", "d", "b"])
    assert matches(["a 1", "...", "b"], ["a 1", "b"])
    assert not matches(["a 1", "b"], ["a 1", "c", "b"])
    assert not matches(["a 1", "...", "b"], ["a 1", "b", "c"])
    assert not matches([], ["something"])
