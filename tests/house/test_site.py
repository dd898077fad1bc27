"""The site: quick looks at its sources, and, when asked for slow tests, the whole build.

Each page is executed, its cells by the build or its blocks by a test; each public name is described; each page is
reached.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import smisym

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MADE = {"_build", "api", "gallery", "derivations"}
PAGES = sorted(
    path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if not MADE & set(path.relative_to(DOCS).parts)
)
# Pages with plain blocks of Python, and the test that runs them.
RUN_BY_A_TEST = {
    "tutorial.md": "test_tutorial.py",
    "declaring.md": "test_docs.py",
    "reference/numeric.md": "test_docs.py",
    "extend/chart.md": "test_docs.py",
    "verification.md": "test_docs.py",
    "results.md": "test_results_page.py",
    "guide/notebook.md": "test_results_page.py",
}


RETURNED = {
    "Atlas": "atlas",
    "Phases": "phases",
    "Branches": "branches",
    "BranchLine": "branches",
    "PhaseDiagram": "phase_diagram",
    "ClosedForm": "closed_form",
    "Curve": "curve",
    "Data": "generate",
    "Dynamics": "dynamics",
    "FixedPoint": "state_evolution",
    "Gamp": "gamp",
    "Model": "compile",
    "OverlapMap": "overlap_map",
    "Solution": "state_evolution",
    "Threshold": "weak_recovery",
    "Thresholds": "weak_recovery",
}
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def checking() -> ModuleType:
    """docs/_ext/checking.py, by which the build checks what it made."""
    spec = importlib.util.spec_from_file_location("checking", DOCS / "_ext" / "checking.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES)
def test_every_example_is_executed(page: str) -> None:
    text = (DOCS / page).read_text()
    if "```{code-cell}" in text:
        assert text.startswith("---\nfile_format: mystnb\n"), "without this front matter cells are only shown"
        for code in re.findall(r"```\{code-cell\} python\n(.*?)```", text, re.DOTALL):
            compile("\n".join(line for line in code.splitlines() if not line.startswith((":", "%"))), page, "exec")
    if re.search(r"^```python\n", text, re.MULTILINE):
        assert page in RUN_BY_A_TEST, "make its blocks cells, or have a test run them"
        assert Path(page).name in (Path(__file__).parent / RUN_BY_A_TEST[page]).read_text()


def test_every_public_name_is_in_the_reference() -> None:
    listed = set(re.findall(r"^   smisym\.(\w+)$", (DOCS / "reference" / "api.md").read_text(), re.MULTILINE))
    assert listed == set(smisym.__all__) - {"__version__"}


def test_every_public_name_has_an_example() -> None:
    sources = [path.read_text() for path in EXAMPLES]
    for page in PAGES:
        sources += re.findall(r"```(?:python|\{code-cell\} python)\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    code = "\n".join(sources)
    lost = {
        name
        for name in smisym.__all__
        if not re.search(rf"\bsmisym\.{name}\b|^from smisym import .*\b{name}\b", code, re.M)
    }
    # Classes whose instances are what a function returns, and errors that nobody should meet.
    assert lost == set(RETURNED) | {"DerivationError", "NoChartError", "__version__"}
    assert all(f".{maker}(" in code for maker in RETURNED.values())


def test_every_result_code_is_explained() -> None:
    text = (DOCS / "reference" / "results.md").read_text()
    lost = [code.value for code in smisym.Result if not code.ok and f"\n**`{code.value}`.** " not in text]
    assert not lost, f"reference/results.md says nothing of {lost}"


def test_every_page_is_reached() -> None:
    found, left = set(), ["index"]
    while left:
        name = left.pop()
        found.add(f"{name}.md")
        text = (DOCS / f"{name}.md").read_text() if (DOCS / f"{name}.md").exists() else ""
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            entries = [line.strip() for line in tree.splitlines() if line.strip() and not line.startswith(":")]
            targets = [re.sub(r"^.*<(.*)>$", r"\1", entry) for entry in entries]
            left += [(Path(name).parent / target).as_posix() for target in targets]
    assert not set(PAGES) - found


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 12
    names = [row["name"] for row in json.loads((DOCS / "architectures.json").read_text())["rows"]]
    for path in EXAMPLES:
        text = path.read_text()
        title, underline = text.splitlines()[1:3]
        assert text.startswith('"""\n') and set(underline) == {"="} and len(underline) >= len(title), path.name
        assert "plt.show()" in text, f"{path.name} has no figure"
        for line in re.findall(r"^# Rows: (.*)$", text, re.MULTILINE):
            assert set(line.split("; ")) <= set(names), path.name


def test_broken_links_are_found(checking: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html#there">x</a><a href="#here">y</a><img src="c.svg">')
    (tmp_path / "b.html").write_text('<a href="https://example.org">elsewhere</a><a href="a.html">back</a>')
    (tmp_path / "c.html").write_text('<script src="https://example.org/c.js"></script>')
    assert list(checking.broken_links(tmp_path)) == [
        "a.html: nothing is at b.html#there",
        "a.html: nothing is at c.svg",
        "c.html: is not read off line: https://example.org/c.js",
    ]


def test_spelling(checking: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("codespell_lib", reason="codespell comes with smisym[docs] and smisym[test]")
    assert checking.misspelt(ROOT) == []
    (tmp_path / "README.md").write_text("This is teh wrong wrod.\n")
    assert len(checking.misspelt(tmp_path, ["README.md"])) == 2


@pytest.mark.slow
def test_the_site_builds() -> None:
    pytest.importorskip("myst_nb", reason="the site needs pip install 'smisym[docs]'")
    done = subprocess.run([sys.executable, "docs/build.py"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert (DOCS / "_build" / "html" / "index.html").exists()
