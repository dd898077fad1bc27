"""Tables that the build makes of data and code: architectures, result codes, cost by free dimensions."""

from __future__ import annotations

import functools
import html
import json
import os
import re
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cores
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import smisym
from smisym.declare import shipped
from smisym.declare.listed import read_rows
from smisym.report import atlas_pages

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs" / "architectures.json"
# What an architecture's row links to, in the folder of the site.
DERIVED = "derived"
BESIDE = ROOT / "docs" / "second_way.json"


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DATA.read_text())["rows"]
    return found


def declared() -> dict[str, Any]:
    """Name of a row to its declaration."""
    return {row.name: row.declared for row in read_rows(shipped.ATLAS)}


def shown_in() -> dict[str, str]:
    """Name of a row to the gallery page about it: scripts of docs/examples/ name theirs in a line "# Rows: a; b"."""
    found = {}
    for path in sorted((ROOT / "docs" / "examples").glob("*.py")):
        for line in re.findall(r"^# Rows: (.*)$", path.read_text(), re.MULTILINE):
            found |= dict.fromkeys(line.split("; "), f"gallery/{path.stem}.html")
    unknown = set(found) - {row["name"] for row in rows()}
    if unknown:
        raise ValueError(f"docs/examples: no row of docs/architectures.json is called {sorted(unknown)}")
    return found


class Architectures(SphinxDirective):
    """The table of docs/architectures.md, to be sorted and filtered in the browser (docs/_static/tables.js)."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(DATA))
        second, shown = atlas_pages.read_beside(BESIDE), shown_in()
        names = (*atlas_pages.COLUMNS, "second way", "more")
        head = "".join(f'<th scope="col">{name}</th>' for name in names)
        body = "\n".join(self.row(row, second.get(row["digest"], ""), shown.get(row["name"])) for row in rows())
        table = f'<table class="made sortable" data-filter="architectures"><thead><tr>{head}</tr></thead>\n<tbody>\n'
        return [nodes.raw("", f'<div class="wide">{table}{body}\n</tbody></table></div>', format="html")]

    @staticmethod
    def row(row: dict[str, Any], second: str, gallery: str | None) -> str:
        links = [f'<a href="{DERIVED}/{row["digest"]}.html">derivation</a>']
        links += [f'<a href="{gallery}">figure</a>'] if gallery else []
        cells: list[tuple[str, float | str]] = [
            (html.escape(tell(row)), atlas_pages.sorting(row, name)) for name, tell in atlas_pages.COLUMNS.items()
        ]
        cells += [(html.escape(second), second or "~"), (", ".join(links), links[-1])]
        text = "".join(f'<td data-value="{html.escape(str(key))}">{shown}</td>' for shown, key in cells)
        return f"<tr>{text}</tr>"


class ResultCodes(SphinxDirective):
    """Every result code with its messages, from smisym.base.solution.Result."""

    def run(self) -> list[nodes.Node]:
        lines = ["| code | in Python | message |", "|---|---|---|"]
        for code in smisym.Result:
            asked = code.told(accuracy=True)
            text = code.message if asked == code.message else f"{code.message}. With `accuracy=`: {asked}"
            lines.append(f"| `{code.value}` | `Result.{code.name}` | {text} |")
        return self.parse_text_to_nodes("\n".join(lines))


def spent(seconds: float) -> str:
    return "under 0.1 s" if seconds < 0.1 else f"{seconds:.3g} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class Costs(SphinxDirective):
    """Seconds of a first threshold by free dimensions, from docs/architectures.json."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(DATA))
        groups: dict[int, list[dict[str, Any]]] = {}
        for row in rows():
            first = row["parts"]["first"]
            if first["result"] == "success" and row["free"] is not None:
                groups.setdefault(row["free"], []).append({"name": row["name"], "seconds": first["seconds"]})
        lines = ["| free dimensions | rows | fastest | median | slowest |", "|---|---|---|---|---|"]
        for free, group in sorted(groups.items()):
            group.sort(key=lambda row: row["seconds"])
            middle = statistics.median(row["seconds"] for row in group)
            fast, slow = (
                f"{spent(row['seconds'])} ({row['name']})".replace("|", "\\|") for row in (group[0], group[-1])
            )
            lines.append(f"| {free} | {len(group)} | {fast} | {spent(middle)} | {slow} |")
        return self.parse_text_to_nodes("\n".join(lines))


class UsedOn(SphinxDirective):
    """Pages whose examples use a public name, beside the gallery, which has thumbnails of its own."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0].rpartition(".")[2]
        pages = [page for page, code in examples().items() if uses(code, name)]
        if not pages:
            return []
        links = ", ".join(f":doc:`/{page}`" for page in pages)
        return self.parse_text_to_nodes(f"*Used on* {links}.")


@functools.cache
def examples() -> dict[str, str]:
    """The Python of every page that has some."""
    docs, found = ROOT / "docs", {}
    made = {"_build", "api", "gallery", "derivations"}
    for path in sorted(docs.rglob("*.md")):
        if not made & set(path.relative_to(docs).parts):
            blocks = re.findall(r"```(?:python|\{code-cell\} python)\n(.*?)```", path.read_text(), re.DOTALL)
            found[path.relative_to(docs).with_suffix("").as_posix()] = "\n".join(blocks)
    return {page: code for page, code in found.items() if code}


# What holds instances of a class, so that its examples are those of the class.
MAKES = {
    "Atlas": "atlas",
    "Data": "generate",
    "Dynamics": "dynamics",
    "FixedPoint": "state_evolution",
    "Gamp": "gamp",
    "Model": "compile",
    "Observation": "observe",
    "OverlapMap": "overlap_map",
    "Solution": "state_evolution",
    "Threshold": "weak_recovery",
}


def uses(code: str, name: str) -> bool:
    """Whether code uses a public name, or what makes its instances."""
    made = MAKES.get(name, name)
    return bool(re.search(rf"\bsmisym\.{made}\b|^from smisym import .*\b{made}\b|\.{made}\(", code, re.MULTILINE))


class CommandHelp(SphinxDirective):
    """The help of every command, as the command line prints it."""

    def run(self) -> list[nodes.Node]:
        from typer.main import get_command
        from typer.testing import CliRunner

        from smisym.cli import app

        text, runner = [], CliRunner(env={"TERM": "dumb", "NO_COLOR": "1"})
        names = get_command(app).list_commands(None)
        for name in names:
            shown = runner.invoke(app, [name, "--help"]).output.strip()
            text.append(f"### smisym {name}\n\n```text\n{shown}\n```\n")
        return self.parse_text_to_nodes("\n".join(text), allow_section_headings=True)


def interactive(app: Sphinx, docname: str, source: list[str]) -> None:
    """On the site the table of architectures.md is the one to sort and filter."""
    if docname == "architectures":
        table = re.compile(r"^\| architecture \|.*?(?=\n\n)", re.MULTILINE | re.DOTALL)
        source[0], count = table.subn("```{architectures}\n```", source[0])
        assert count == 1, "docs/architectures.md has no table that begins with | architecture |"


def dealt(app: Sphinx, env: object, names: list[str]) -> None:
    """Pages with cells, which are what takes time, spread evenly over all pages: each process reads a run of these."""
    pages = {name: Path(app.srcdir, f"{name}.md") for name in names}
    costly = [name for name, path in pages.items() if path.is_file() and "{code-cell}" in path.read_text()]
    others = [name for name in names if name not in costly]
    placed = {round(i * len(names) / len(costly)): name for i, name in enumerate(costly)}
    rest = iter(others)
    names[:] = [placed[i] if i in placed else next(rest) for i in range(len(names))]


def derive(name: str, folder: str) -> str:
    """Write the derivation of one row of docs/architectures.md."""
    one = declared()[name]
    smisym.write_derivation(smisym.compile(one).derivation, Path(folder) / f"{one.digest}.html")
    return name


def derivations(app: Sphinx, exception: Exception | None) -> None:
    """The derivation of every row, once the pages are there; those that are newer than the package stay."""
    if exception or app.builder.name != "html" or os.environ.get("SMISYM_DOCS_EXECUTE") == "off":
        return
    folder = Path(app.outdir) / DERIVED
    folder.mkdir(exist_ok=True)
    newest = max(path.stat().st_mtime for path in (ROOT / "smisym").rglob("*.py"))
    kept = {path.stem for path in folder.glob("*.html") if path.stat().st_mtime > newest}
    left = [row["name"] for row in rows() if row["digest"] not in kept and row["fields"] is not None]
    sys.stdout.flush()
    cores.use_all()
    with ProcessPoolExecutor(max_workers=len(cores.ALL), mp_context=get_context("spawn")) as pool:
        for name in pool.map(derive, left, [str(folder)] * len(left)):
            print("derived:", name, flush=True)
    unmade = {row["digest"] for row in rows() if row["fields"] is not None} - {
        path.stem for path in folder.glob("*.html")
    }
    assert not unmade, f"rows of docs/architectures.json without a derivation: {sorted(unmade)}"


def setup(app: Sphinx) -> dict[str, bool]:
    made: dict[str, type[Directive]] = {
        "architectures": Architectures,
        "result-codes": ResultCodes,
        "costs": Costs,
        "command-help": CommandHelp,
        "used-on": UsedOn,
    }
    for name, directive in made.items():
        app.add_directive(name, directive)
    app.connect("source-read", interactive)
    app.connect("source-read", lambda *_: cores.use_own())
    app.connect("env-before-read-docs", dealt)
    app.connect("build-finished", derivations)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
