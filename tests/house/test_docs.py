"""What docs/declaring.md prints: its Python runs, in order, and gives the lines below it; its TOML is read."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import smisym

TEXT = (Path(__file__).parents[2] / "docs" / "declaring.md").read_text()
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def promised(code: str) -> list[str]:
    """The lines that a block says it prints."""
    return [line[2:] for line in code.splitlines() if line.startswith("# ")]


def alike(said: str, printed: str) -> bool:
    """The same words, and numbers within a few units of what other machines and versions change."""
    words = [NUMBER.sub("#", text) for text in (said, printed)]
    numbers = [[float(n) for n in NUMBER.findall(text)] for text in (said, printed)]
    if words[0] != words[1] or len(numbers[0]) != len(numbers[1]):
        return False
    return all(abs(a - b) <= 0.02 * abs(a) + 1e-2 for a, b in zip(*numbers, strict=True))


@pytest.mark.slow
def test_the_examples_print_what_they_say(request: pytest.FixtureRequest) -> None:
    from smisym.charts import RULES, unregister_chart

    before = list(RULES)
    request.addfinalizer(lambda: [unregister_chart(name) for name, _ in list(RULES) if name not in dict(before)])
    names: dict[str, Any] = {}
    for code in blocks("python"):
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(code, "declaring.md", "exec"), names)
        said, printed = promised(code), out.getvalue().splitlines()
        assert len(said) == len(printed), (code, printed)
        for a, b in zip(said, printed, strict=True):
            assert alike(a, b), (a, b)


def test_the_toml_is_read(tmp_path: Path) -> None:
    assert len(blocks("toml")) >= 4
    for number, text in enumerate(blocks("toml")):
        (tmp_path / f"{number}.toml").write_text(text)
        declared = smisym.load(tmp_path / f"{number}.toml")
        assert isinstance(declared, smisym.Architecture | smisym.SMI)


def test_the_comparison_can_fail() -> None:
    assert alike("weak 0.2362 2e-04", "weak 0.2363 2e-04")
    assert not alike("weak 0.2362", "weak 0.2862")
    assert not alike("weak 0.2362", "hard 0.2362")
