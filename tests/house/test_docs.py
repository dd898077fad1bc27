"""Pages that promise what they print: their Python runs, in order, and gives the lines below it; their TOML is read."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pages
import pytest

import smisym

DOCS = Path(__file__).parents[2] / "docs"
# Blocks of a page are one program; what a block prints stands at its end, in comments.
PROMISING = ("declaring.md", "reference/numeric.md", "extend/chart.md")
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)


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
@pytest.mark.parametrize("page", PROMISING)
def test_the_examples_print_what_they_say(page: str, request: pytest.FixtureRequest) -> None:
    from smisym.charts import RULES, unregister_chart

    before = list(RULES)
    request.addfinalizer(lambda: [unregister_chart(name) for name, _ in list(RULES) if name not in dict(before)])
    names: dict[str, Any] = {}
    for code in blocks(page, "python"):
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(code, page, "exec"), names)
        said, printed = promised(code), out.getvalue().splitlines()
        assert len(said) == len(printed), (code, printed)
        for a, b in zip(said, printed, strict=True):
            assert alike(a, b), (a, b)


@pytest.mark.slow
def test_the_page_on_verification_prints_what_it_shows(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    followed = (DOCS / "verification.md").read_text().partition("## One fault, followed")[2]
    for language, code, shown in pages.blocks(followed):
        printed = pages.run(language, code, names, tmp_path)
        assert pages.matches(shown, printed), "\n".join([code, "prints", *printed, "but the page shows", *shown])


@pytest.mark.parametrize("page", PROMISING)
def test_pages_promise_something(page: str) -> None:
    """A quick look where the slow test is left out."""
    codes = blocks(page, "python")
    assert codes and any(promised(code) for code in codes)
    for code in codes:
        compile(code, page, "exec")


def test_the_toml_is_read(tmp_path: Path) -> None:
    assert len(blocks("declaring.md", "toml")) >= 4
    for number, text in enumerate(blocks("declaring.md", "toml")):
        (tmp_path / f"{number}.toml").write_text(text)
        declared = smisym.load(tmp_path / f"{number}.toml")
        assert isinstance(declared, smisym.Architecture | smisym.SMI)


def test_the_comparison_can_fail() -> None:
    assert alike("weak 0.2362 2e-04", "weak 0.2363 2e-04")
    assert not alike("weak 0.2362", "weak 0.2862")
    assert not alike("weak 0.2362", "hard 0.2362")
