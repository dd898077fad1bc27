"""What lies outside of docs/ and is part of the site: documents of derivations/, and links to files of the checkout.

Sources stay as they read on their own: a link to ../benchmarks/README.md is one to the page that holds it.
"""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

ROOT = Path(__file__).parents[2]
# Files and folders that are pages of the site, by the path from the root.
PAGES = {
    "benchmarks/README.md": "reference/benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
    "derivations": "derivations/index.md",
}
LINK = re.compile(r"\]\(((?:\.\./)+|docs/)([\w./-]+?)(#[\w.-]*)?\)")
REPOSITORY_ONLY = re.compile(r"\[([^\]]+)\]\((?:\.\./)+[\w./-]+\)")


def on_the_site(app: Sphinx, docname: str, source: list[str]) -> None:
    """Links out of docs/ lead to pages of the site where there is one."""
    source[0] = relinked(source[0], docname)


def relinked(text: str, docname: str) -> str:
    up = "../" * docname.count("/")

    def target(match: re.Match[str]) -> str:
        path = match[2]
        if match[1] != "docs/":
            folder = (ROOT / "docs" / docname).parent
            absolute = (folder / (match[1] + path)).resolve()
            if not absolute.is_relative_to(ROOT) or absolute.is_relative_to(ROOT / "docs"):
                return match[0]
            path = absolute.relative_to(ROOT).as_posix()
            page = f"derivations/{Path(path).name}" if path.startswith("derivations/") else PAGES.get(path)
        else:
            page = path  # a document of the root that names docs/PAGE.md
        return f"]({up}{page}{match[3] or ''})" if page else match[0]

    return LINK.sub(target, text)


def derivation_pages(app: Sphinx) -> None:
    """docs/derivations/: the documents of derivations/ as pages, anchors made their own."""
    folder = Path(app.srcdir) / "derivations"
    folder.mkdir(exist_ok=True)
    made = {"index.md": INDEX}
    for path in sorted((ROOT / "derivations").glob("*.md")):
        made[path.name] = as_page(path.read_text(), path.stem)
        # Documents have one title in common.
        made["index.md"] += f"{path.stem.replace('_', ' ').capitalize()} <{path.stem}>\n"
    made["index.md"] += "```\n"
    for old in set(folder.glob("*.md")) - {folder / name for name in made}:
        old.unlink()
    for name, text in made.items():
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)


INDEX = """# Derivations

What smisym derived, as it writes it down: the same steps that its code is made of. Each document lies in
`derivations/` beside the script that makes it, and a test fails where one is stale. `smisym derive FILE -o OUT.html`
writes one for a network of your own; the [table of architectures](../architectures.md) links to one for every row.

```{toctree}
:maxdepth: 1

"""


def as_page(text: str, name: str) -> str:
    """GitHub's mathematics and anchors as MyST has them."""
    text = re.sub(r"\$`([^`]*)`\$", r"$\1$", text)
    text = re.sub(r'^(#+) <a id="([\w.]+)"></a>', rf"({name}-\2)=\n\1 ", text, flags=re.MULTILINE)
    text = re.sub(r'<a id="([\w.]+)"></a>', "", text)
    return re.sub(r"\]\(#(s[\d.]+)\)", rf"](#{name}-\1)", text)


def inside(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement) -> nodes.Node | None:
    """Docstrings name what is inside of the house: as text where it exists; a stale name stays a warning."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py":
        return None
    if importable(target) or any(hasattr(module, target.split(".")[0]) for module in modules()):
        return content
    return None


@functools.cache
def modules() -> tuple[Any, ...]:
    """All modules of the package, but those that need an extra which is not installed."""
    names = [path.relative_to(ROOT).with_suffix("").as_posix() for path in (ROOT / "smisym").rglob("*.py")]
    # Parts of generated modules, and what runs as it is imported, are none of them.
    left_out = re.compile(r"__main__|/chained/|/meshed/|jax_code")
    found = []
    for name in names:
        if left_out.search(name):
            continue
        try:
            found.append(importlib.import_module(name.removesuffix("/__init__").replace("/", ".")))
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] == "smisym":
                raise
    return tuple(found)


def importable(name: str) -> bool:
    """Whether a dotted name of smisym is a module, or something in one."""
    if name.split(".")[0] != "smisym":
        return False
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        where, _, last = name.rpartition(".")
        owner: Any = None
        for module in modules():
            if module.__name__ == where:
                owner = module
            elif where.startswith(f"{module.__name__}."):
                owner = getattr(module, where.rpartition(".")[2], owner)
        return hasattr(owner, last)
    return True


def sources_lead_back(app: Sphinx, exception: Exception | None) -> None:
    """Pages of source link to where a name is described; the builder takes all names of a module for public ones."""
    if exception or app.builder.name != "html":
        return
    back = re.compile(r'(class="viewcode-back" href="[^"#]*api/)([\w.]+)(\.html#)smisym\.([\w.]+)"')
    for path in (Path(app.outdir) / "_modules").rglob("*.html"):
        text = path.read_text()
        mended = back.sub(
            lambda m: (
                m[0] if f"smisym.{m[4]}".startswith(m[2]) else f'{m[1]}{m[2]}{m[3]}{m[2].rpartition(".")[0]}.{m[4]}"'
            ),
            text,
        )
        if mended != text:
            path.write_text(mended)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", derivation_pages, priority=100)
    app.connect("source-read", on_the_site)
    app.connect("missing-reference", inside)
    app.connect("build-finished", sources_lead_back)
    app.connect("include-read", lambda app, path, parent, source: on_the_site(app, parent, source))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
