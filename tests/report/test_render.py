"""Documents: derivations in three formats, files, the report."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import fake_results
import pytest
import sympy as sp

from smisym.base.derivation import Derivation, Formula, Origin, Step
from smisym.base.errors import InputError
from smisym.base.references import REFERENCES, cited, named
from smisym.base.solution import Result
from smisym.declare import shipped
from smisym.report import (
    bibliography,
    derivation_document,
    derivation_page,
    derivation_text,
    format_with_error,
    gamp_plots,
    plots,
    report_page,
    write_derivation,
)
from smisym.report.outlining import outline
from smisym.report.wording import of_result

WRITERS = {".html": derivation_page, ".md": derivation_text, ".tex": derivation_document}


# --- derivations -----------------------------------------------------------------------------------


class _Page(HTMLParser):
    """Checks that elements nest; collects ids, links and references to other places."""

    VOID = frozenset("meta br hr img input link".split())

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.outside: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "xlink:href"):
                (self.links if (value or "").startswith("#") else self.outside).append(value or "")
            if name == "src":
                self.outside.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag


def _check_page(text: str) -> _Page:
    page = _Page(text)
    assert len(set(page.ids)) == len(page.ids)
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert page.outside == [] and page.handlers == []
    assert page.tags.isdisjoint({"script", "iframe", "link", "img", "object"})
    assert "url(http" not in text and "@import" not in text
    return page


def test_the_page_is_whole_and_holds_every_step() -> None:
    derivation = fake_results.derivation()
    text = derivation_page(derivation)
    page = _check_page(text)
    assert {"math", "nav", "h1", "h2", "h3"} <= page.tags
    count = sum(len(step.formulas) for step in derivation)
    assert sum(identifier.startswith("eq") for identifier in page.ids) == count
    # In one piece, or in several where it is long.
    assert text.count('display="block"') + text.count('<span class="parts">') == count
    assert 'class="tex"' not in text
    for title in ("Architecture", "Link function", "Symmetry", "Level set", "Channel", "Model"):
        assert re.search(rf"<h2><span class=\"no\">\d</span>{title}</h2>", text)
    for step in derivation:
        assert step.title in text
    assert text.count("<h4>Verified</h4>") == 2
    assert "substituted, simplified to" in text and "Source: arXiv 2502.00901, appendix E" in text
    assert "<code>U_1 = h_1.T</code>" in text
    assert "prefers-color-scheme: dark" in text and "@media print" in text and "max-width: 46em" in text


def test_sections_follow_the_trail_and_equations_are_numbered_through() -> None:
    trail = Derivation("t")
    for stage in ("link", "link", "chart", "link", "my_stage"):
        trail.add(Step(stage, "x", formulas=(Formula(None, "a"), Formula("b", sp.Symbol("c")))))
    sections = outline(trail)
    assert [section.title for section in sections] == [
        "Link function", "Level set", "Parts of the link function", "My stage",
    ]  # fmt: skip
    assert [step.number for section in sections for step in section.steps] == ["1.1", "1.2", "2.1", "3.1", "4.1"]
    equations = [equation for section in sections for step in section.steps for equation in step.equations]
    assert [equation.number for equation in equations] == list(range(1, 11))
    assert [equation.latex for equation in equations[:2]] == ["a", "b = c"]


def test_markdown_holds_every_step_with_fenced_formulas() -> None:
    derivation = fake_results.derivation()
    text = derivation_text(derivation)
    count = sum(len(step.formulas) for step in derivation)
    assert re.findall(r"\\tag\{(\d+)\}", text) == [str(number) for number in range(1, count + 1)]
    assert text.count("```math") == count
    assert "$`X_l = B_l X`$" in text
    assert r"\operatorname" not in text
    assert "- ✓ $`y(-u) = y(u)`$ — substituted" in text
    for step in derivation:
        assert step.title in text


def test_markdown_shows_plain_text_as_it_stands() -> None:
    trail = Derivation("a_b *c*")
    trail.add(Step("link", "x", "# not a heading\n\n- no item\n\n3. no list\n\n<b>no</b> `code` $5 | ~ \\ [x](y)"))
    text = derivation_text(trail)
    assert "# a\\_b \\*c\\*" in text
    assert "\n\\# not a heading\n" in text and "\n\\- no item\n" in text and "\n3&#8203;. no list\n" in text
    assert "&lt;b&gt;no&lt;/b&gt; \\`code\\` &#36;5 \\| \\~ \\\\ \\[x\\](y)" in text


def test_latex_holds_every_step_and_balances() -> None:
    derivation = fake_results.derivation()
    text = derivation_document(derivation)
    begins, ends = re.findall(r"\\begin\{(\w+)\}", text), re.findall(r"\\end\{(\w+)\}", text)
    # The preamble opens and closes one list in the definition of an environment.
    assert sorted(begins) == sorted(ends)
    assert text.count(r"\begin{equation}") == sum(len(step.formulas) for step in derivation)
    assert r"\item[$\checkmark$] $y(-u) = y(u)$ --- substituted" in text
    for step in derivation:
        assert step.title in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("make", [fake_results.derivation, fake_results.hostile_derivation])
def test_latex_compiles(make, tmp_path) -> None:
    derivation = make()
    derivation.add(Step("prior", "Γ, α ≤ β", "Ω → ∞, naïve “quotes”, ∑ x², ☃ and $α ≤ ∞$", (Formula("ω", "α ± β"),)))
    write_derivation(derivation, tmp_path / "trail.tex")
    command = ["pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "trail.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]


def test_hostile_text_stays_text() -> None:
    derivation = fake_results.hostile_derivation()
    page = _check_page(derivation_page(derivation))
    assert page.tags.isdisjoint({"script", "img"})
    latex = derivation_document(derivation)
    assert r"\input" not in latex.replace(r"\textbackslash{}input", "")
    assert r"\href" not in latex.replace(r"\textbackslash{}href", "")
    body = derivation_text(derivation)
    outside = re.sub(r"(`+).*?\1", "", body, flags=re.DOTALL)
    assert "<script" not in outside and "<img" not in outside


def test_a_document_says_how_it_is_made_again_and_what_it_rests_on() -> None:
    trail = fake_results.derivation()
    trail.origin = Origin("tokens = 2", "smisym derive network.toml", 7, 1e-4, (("smisym", "9.9"), ("numpy", "2.0")))
    for write in (derivation_text, derivation_page, derivation_document):
        text = write(trail).replace("\\_", "_")
        for words in ("Reproduce", "tokens = 2", "smisym derive network.toml", "numpy 2.0", "arXiv:2502.00901"):
            assert words in text, (write, words)
        assert "2405.15480" not in text, "a paper that no step names"
    _check_page(derivation_page(trail))


def test_every_paper_has_an_entry_of_bibtex_that_is_whole() -> None:
    assert len({one.key for one in REFERENCES}) == len(REFERENCES)
    for one in REFERENCES:
        assert one.bibtex.isascii() and one.bibtex.count("{") == one.bibtex.count("}")
        assert one.bibtex.startswith(f"@{one.kind}{{{one.key},\n") and (one.arxiv or one.doi)
        assert named([f"{cited(one, 'eq. 3')}; derived here"]) == (one,)
    found = bibliography(fake_results.derivation())
    assert found.count("\n@") + 1 == 2 and "troiani2025sequence" in found


def test_an_empty_derivation_is_still_a_document() -> None:
    _check_page(derivation_page(Derivation()))
    assert derivation_text(Derivation()) == "# Derivation\n"
    assert r"\end{document}" in derivation_document(Derivation())


def test_the_same_derivation_gives_the_same_bytes_in_every_process() -> None:
    code = (
        "import hashlib, fake_results\n"
        "from smisym.report import derivation_document, derivation_page, derivation_text, report_page\n"
        "d = fake_results.derivation()\n"
        "text = derivation_page(d) + derivation_text(d) + derivation_document(d)\n"
        "text += report_page(fake_results.results())\n"
        "print(hashlib.sha256(text.encode()).hexdigest())\n"
    )
    here = os.path.dirname(fake_results.__file__)
    paths = os.pathsep.join([here, os.path.dirname(here), os.environ.get("PYTHONPATH", "")])
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


# --- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", WRITERS)
def test_the_writer_follows_the_suffix(suffix, tmp_path) -> None:
    derivation = fake_results.derivation()
    path = write_derivation(derivation, tmp_path / f"trail{suffix.upper()}")
    assert path.read_text(encoding="utf-8") == WRITERS[suffix](derivation)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_notes_on_the_shipped_data_are_read_as_sentences() -> None:
    results = fake_results.results() | {"published": shipped.published_two_layers()}
    page = report_page(results)
    assert len(results["published"]["notes"]) == 2
    for note in results["published"]["notes"]:
        assert f"<li>{note}</li>" in page


def test_other_suffixes_and_other_folders_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match=r"\.html, \.md, \.tex"):
        write_derivation(fake_results.derivation(), tmp_path / "trail.pdf")
    for path in (tmp_path / "missing" / "trail.md", tmp_path / "null\0.md"):
        with pytest.raises(InputError, match="folder that exists"):
            write_derivation(fake_results.derivation(), path)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch) -> None:
    path = tmp_path / "trail.md"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InputError, match="No space left"):
        write_derivation(fake_results.derivation(), path)
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


# --- the report ------------------------------------------------------------------------------------


def _text(page: str) -> str:
    """What a reader sees, without markup."""
    page = re.sub(r"<style>.*?</style>|<annotation.*?</annotation>", "", page, flags=re.DOTALL)
    page = re.sub(r"</(dt|dd|td|th|li|p|h\d)>", " ", page)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page)).replace("\u00a0", " ")


def test_the_report_says_what_was_found_with_errors() -> None:
    text = _text(report_page(fake_results.results()))
    assert "Layer 2 is learned first, from α = 0.185478(4) on." in text
    assert "Layer 1 follows from α = 0.7194(6) on, where layer 2 has overlap 0.9735." in text
    assert "Perfect recovery is locally stable from α = 1 on, by counting." in text
    assert "AMP reaches perfect recovery from α = 1.020(10) on." in text
    assert "2 of the 49 points of the curve are no success" in text
    assert "11 of 12 GAMP runs on generated data converged." in text


def test_every_failure_comes_with_its_remedy() -> None:
    results = fake_results.results()
    results["points"][3]["result"] = "a_code_of_tomorrow"
    page = report_page(results)
    text = _text(page)
    assert (
        f"state evolution at α = 0.733333: max_steps, {of_result(Result.MAX_STEPS, {'samples': '--samples'})}" in text
    )
    assert "statistical_error_large, " in text and "raise --samples: a smoother map" in text
    assert "GAMP at α = 0.9, D = 1000, seed 3: max_steps, " in text and "raise --iterations, or add --damping" in text
    assert "a_code_of_tomorrow, a result code that this version does not know" in text
    # Three points in each of the two tables of the curve, and one run.
    assert page.count('<tr class="failed">') == 2 * 3 + 1


def test_a_report_without_failures_has_no_notice() -> None:
    results = fake_results.results()
    for record in (*results["points"], *results["gamp"]):
        record["result"] = "success"
    page = report_page(results)
    assert 'id="failures"' not in page and 'class="failed"' not in page
    assert "All 49 points of the curve converged." in _text(page)


def test_the_report_holds_everything_and_is_self_contained() -> None:
    results = fake_results.results()
    figure = plots.curve_figure(results["points"], results["thresholds"], published=results["published"])
    results["figure_svg"] = plots.svg_text(figure)
    results["gamp_figure_svg"] = plots.svg_text(gamp_plots.gamp_figure(results["gamp"], fake_results.trajectories()))
    results["warnings"] = ["a <b>warning</b>"]
    page = report_page(results)
    checked = _check_page(page)
    assert {"svg", "math", "details", "table"} <= checked.tags
    text = _text(page)
    assert "layers=(Attention(), Attention())" in text
    assert "settings · samples 4096" in text and "versions · numpy 2.4.6" in text and "seed 0" in text
    assert "a &lt;b&gt;warning&lt;/b&gt;" in text and "repository &lt;none&gt;" in text
    assert "it stays below perfect recovery" in text
    assert "<td>0.4876, 0.9901</td><td>0.5316, 0.9906</td>" in page
    assert text.count("+∞") >= 18
    assert "The fields that give this output" in text


def test_numbers_of_the_curve_are_printed_with_their_errors() -> None:
    results = fake_results.results()
    point = results["points"][30]
    text = _text(report_page(results))
    for value, error in (
        (point["Q"][0][0], point["Q_error"][0][0]),
        (point["Q"][1][1], point["Q_error"][1][1]),
        (point["bayes_error"], point["bayes_error_stderr"]),
        (point["free_entropy"], point["free_entropy_stderr"]),
    ):
        assert format_with_error(value, error) in text
    assert "Q12" not in text
    for other in results["points"]:
        other["Q"][0][1] = other["Q"][1][0] = 0.125
    assert "Q12" in _text(report_page(results))


@pytest.mark.parametrize(
    ("threshold", "sentence"),
    [
        ({"kind": "trivial", "layers": [1], "alpha": 0.0}, "Layer 1 is learned at any α > 0."),
        ({"kind": "hard", "layers": [1, 3], "alpha": None}, "Layers 1 and 3 are hard"),
        ({"kind": "weak", "layers": [1], "alpha": None}, "Layer 1 is hard: no first-order method"),
        ({"kind": "perfect_amp", "layers": [1], "alpha": None}, "AMP reaches perfect recovery at no finite α."),
        ({"kind": "spinodal", "layers": [], "alpha": 1.5, "error": 0.02}, "Spinodal threshold: α = 1.50(2)."),
        (
            {"kind": "weak", "layers": [1, 2], "alpha": 0.5, "error": None, "subspace": [[0.6, 0.8]]},
            "The subspace (0.600, 0.800) of layers 1 and 2 is learned first, from α = 0.5 on.",
        ),
        (
            {"kind": "weak", "layers": [1], "names": ["z1"], "alpha": 0.5, "error": None, "subspace": [[1.0]]},
            "The field z1 is learned first, from α = 0.5 on.",
        ),
        (
            {"kind": "trivial", "layers": [1, 2], "names": ["z1", "z2"], "alpha": 0.0, "subspace": [[0.6, 0.6]]},
            "The direction z1 + z2 is learned at any α > 0.",
        ),
        (
            {"kind": "hard", "layers": [1, 2], "names": ["u", "v"], "alpha": None, "subspace": [[1, 0], [0, 1]]},
            "The fields u and v are hard",
        ),
    ],
)
def test_thresholds_in_words(threshold: dict, sentence: str) -> None:
    results = fake_results.results()
    results["thresholds"] = [threshold]
    assert sentence in _text(report_page(results)).replace("&gt;", ">")


def test_reports_of_expressions_call_fields_by_their_names() -> None:
    results = fake_results.results() | {"labels": ["u", "v"]}
    whole = {"layers": [1, 2], "names": ["u", "v"], "alpha": 0.5, "error": 0.01, "Q": None}
    results["thresholds"] = [
        whole | {"kind": "trivial", "subspace": [[0.6, -0.6]]},
        whole | {"kind": "perfect_amp", "subspace": [[1, 0], [0, 1]]},
    ]
    text = _text(report_page(results))
    assert "Overlap of every field" in text and "every layer" not in text
    assert "u - v" in text and "u, v" in text


def test_a_report_of_almost_nothing_is_still_a_page() -> None:
    results = fake_results.results() | {"thresholds": [], "points": [], "gamp": [], "published": None}
    results["derivation"] = Derivation()
    text = _text(report_page(results))
    _check_page(report_page(results))
    assert "None was computed." in text and "No point was computed." in text and "No step was recorded." in text


@pytest.mark.parametrize(
    "figure",
    [
        "<svg><script>alert(1)</script></svg>",
        '<svg onload="alert(1)"></svg>',
        '<svg><a href="https://example.org">x</a></svg>',
        "<svg><foreignObject/></svg>",
        "<div></div>",
        "<svg><g></svg>",
    ],
)
def test_only_drawings_are_embedded(figure: str) -> None:
    with pytest.raises(ValueError, match="figure"):
        report_page(fake_results.results() | {"figure_svg": figure})
