"""Documents of twelve families as other programs read them: Chromium, pdflatex in one column and in two, Markdown.

Chromium and LaTeX absent are skips; with ``SMISYM_NEEDS="chromium latex"``, which .ci/run sets, failures.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from browsing import Browser, browsing
from markdown_it import MarkdownIt
from markdown_it.token import Token
from programs import program

from smisym import SMI, Architecture, Attention, derive
from smisym.base.derivation import Derivation
from smisym.report import write_derivation
from smisym.report.mathml_text import mathml
from smisym.report.outlining import is_plain_math, outline, references

A = Attention

# One of each family; those of one or two seconds with their checks, for what these print.
CHECKED = {"absolute value", "heads that split the embedding", "tokens seen", "large depth"}
DECLARED: dict[str, Architecture | SMI] = {
    "one layer": Architecture(3, (A(),)),
    "two layers": Architecture(2, (A(), A())),
    "three layers": Architecture(3, (A(),) * 3),
    "untied": Architecture(2, (A(tied=False),)),
    "rank two": Architecture(3, (A(rank=2),)),
    "extensive rank": Architecture(2, (A(rank_ratio=0.5),)),
    "causal mask": Architecture(2, (A(mask="causal"),)),
    "heads that split the embedding": Architecture(2, (A(heads=2),), head_layout="split"),
    "two heads, then hardmax": Architecture(2, (A(heads=2), A(activation="hardmax"))),
    "tokens seen": Architecture(3, (A(),), output="sequence"),
    "noise": Architecture(2, (A(position=((0.0, 0.4), (-0.3, 0.2))),), noise=0.05),
    "large depth": Architecture(2, (*[A(readout=0.1)] * 5, A()), limit="ode"),
    "absolute value": SMI("abs(z1)", fields=1),
}
NAMES = sorted(DECLARED)
# Points by which a line may stick out; how loose a line or page may be stands in the document, for its author's eyes.
STICKS_OUT = 0.5


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Derivation, Path]]:
    """Derivation, and the path without its suffix, of each."""
    made = {}
    for name, declared in DECLARED.items():
        path = tmp_path_factory.mktemp("documents") / name.replace(" ", "_").replace(",", "")
        made[name] = derive(declared, checks=name in CHECKED), path
        for suffix in (".html", ".tex", ".md"):
            write_derivation(made[name][0], path.with_suffix(suffix))
    return made


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(program("chromium"), tmp_path_factory.mktemp("profile")) as opened:
        yield opened


# ----------------------------------------------------------------------------------------------------------- Chromium


def test_the_browser_sees_what_is_wrong(browser: Browser, tmp_path: Path) -> None:
    """A command, two characters that no font has, a page too wide, an error of a script."""
    page = tmp_path / "wrong.html"
    wide = '<p style="width: 900px">\\frac{a} \u0379</p><math><mi>\u0378</mi></math>'
    page.write_text(f"<meta charset=utf-8><body>{wide}<script>console.error('no')</script>")
    seen = browser.look(page, 400)
    assert seen.latex and seen.missing == ["\u0379", "\u0378"] and seen.wider > 0 and len(seen.said) == 1


@pytest.mark.parametrize("name", NAMES)
def test_chromium_shows_every_formula(name: str, documents: dict, browser: Browser) -> None:
    """No LaTeX is left, every character has a glyph, nothing is wider than a telephone, the console is silent."""
    derivation, path = documents[name]
    count = sum(len(step.formulas) for step in derivation)
    for width in (400, 1200):
        seen = browser.look(path.with_suffix(".html"), width)
        assert (seen.latex, seen.missing, seen.said, seen.unset) == ([], [], [], 0)
        assert seen.formulas >= count and seen.characters > 100 and seen.wider <= 0


# -------------------------------------------------------------------------------------------------------------- LaTeX


def complaints(log: str) -> list[str]:
    """Lines of a log that an author would have to look at."""
    found = re.findall(r"^(?:!|.*Warning|Underfull|Overfull).*$", log, flags=re.MULTILINE)
    return [
        line
        for line in found
        if not ((by := re.search(r"\(([\d.]+)pt too wide\)", line)) and float(by[1]) < STICKS_OUT)
    ]


def compiled(latex: str, path: Path) -> str:
    """The log of the run after which nothing changes any more."""
    for _ in range(4):
        command = [latex, "-interaction=nonstopmode", "-halt-on-error", path.name]
        subprocess.run(command, cwd=path.parent, capture_output=True, timeout=120, check=False)
        log = path.with_suffix(".log").read_text(errors="replace")
        if not re.search("Rerun|No file", log):
            break
    return log


# What is too wide for one column is for two: in one by default those documents that have their checks, which
# are longest.
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in CHECKED else pytest.mark.slow) for n in NAMES])
def test_latex_compiles_without_a_warning(name: str, documents: dict) -> None:
    log = compiled(program("latex"), documents[name][1].with_suffix(".tex"))
    assert complaints(log) == [] and "Output written" in log


@pytest.mark.parametrize("name", NAMES)
def test_latex_compiles_in_two_columns(name: str, documents: dict) -> None:
    latex, path = program("latex"), documents[name][1].with_suffix(".tex")
    text = path.read_text()
    narrow = text.replace("[11pt]{article}", "[twocolumn]{article}").replace("margin=28mm", "margin=18mm")
    assert narrow != text
    columns = path.with_name(path.stem + "_columns.tex")
    columns.write_text(narrow)
    log = compiled(latex, columns)
    assert complaints(log) == [] and "Output written" in log


def test_complaints_are_found() -> None:
    log = "Overfull \\hbox (3.2pt too wide) in\nLaTeX Warning: x\nOverfull \\hbox (0.1pt too wide) in\n! Missing"
    assert complaints(log) == ["Overfull \\hbox (3.2pt too wide) in", "LaTeX Warning: x", "! Missing"]


# ----------------------------------------------------------------------------------------------------------- Markdown


def read(text: str) -> list[Token]:
    """Tokens, those inside of paragraphs after their paragraph."""
    found = []
    for token in MarkdownIt("commonmark").parse(text):
        found += [token, *(token.children or [])]
    return found


def formulas(tokens: list[Token]) -> Iterator[str]:
    r"""LaTeX between ``$`` and backticks, and of blocks of mathematics less their ``\tag``."""
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if token.type == "fence" and token.info == "math":
            yield re.sub(r"\s*\\tag\{\d+\}\s*$", "", token.content)
        if token.type == "code_inline" and before and before.content.endswith("$"):
            assert after is not None and after.content.startswith("$"), token.content
            yield token.content


@pytest.mark.parametrize("name", NAMES)
def test_markdown_is_read_as_it_was_meant(name: str, documents: dict) -> None:
    """Every formula is one and can be set, anchors are the only HTML, links lead somewhere, no mark is left over."""
    derivation, path = documents[name]
    tokens = read(path.with_suffix(".md").read_text())
    found = list(formulas(tokens))
    blocks = [token for token in tokens if token.type == "fence" and token.info == "math"]
    shown = [e.latex for section in outline(derivation) for step in section.steps for e in step.equations]
    assert len(blocks) == len(shown) == sum(map(is_plain_math, shown))
    assert len(found) > len(blocks)
    for latex in found:
        mathml(latex)
    raw = [token.content for token in tokens if token.type.startswith("html")]
    anchors = {match[1] for one in raw if (match := re.fullmatch(r'<a id="([\w.]+)">', one))}
    assert len(anchors) == len(raw) / 2 and set(raw) - {"</a>"} == {f'<a id="{name}">' for name in anchors}
    links = {str(token.attrs["href"]).removeprefix("#") for token in tokens if token.type == "link_open"}
    assert links == anchors and len(links) == sum(1 + len(section.steps) for section in outline(derivation))
    # Dollars of formulas touch their code; others are escaped and would stand alone.
    text = [token.content for token in tokens if token.type == "text"]
    assert all(unescape(one).strip("$").count("$") == 0 for one in text)
    assert all(not re.search(r"\\[A-Za-z]|[_^]\{", one) for one in text)
    # Contents and references: one list each, in which nested items are those of their sections.
    assert sum(one.type == "ordered_list_open" for one in tokens) == 1 + bool(references(derivation))
