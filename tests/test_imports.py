"""The house: which module may import which, and no cycle."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "smisym"

# Every module in the order in which data walks through them: each may import only what stands above it.
ORDER = [
    "errors", "patience", "processes", "axes", "edge", "derivation", "symbols", "expressions", "expression_text",
    "architecture", "smi", "program",
    "core", "unroll", "statistic", "files", "io", "solution", "large_depth", "network", "link", "rank", "commutant",
    "reflection", "symmetry",
    "symmetry_check",
    "charts.base",
    "charts.coverage",
    "charts.checking", "charts.matching", "charts.rank_one", "charts.catalogue", "charts.scores", "charts.attention",
    "charts.mixing", "charts.eliminating", "charts.solving", "charts", "modes", "quadrature", "importance", "measure",
    "placing", "around",
    "roots", "numeric", "image", "around_image", "central_limit", "channel", "calibration", "integration", "model",
    "effort", "hermite", "estimate", "overlap_map", "sentinel", "linearised", "turning", "kick", "fixed_point",
    "state_evolution", "growth", "curve", "over_outputs", "stage", "staircase", "stability", "free_entropy",
    "prediction", "samples", "alignment", "gamp", "records",
    "progress", "cost", "sweeping", "render.numbers", "render.outline",
    "render.mathml", "render.markdown", "render.latex", "render.html", "render.files", "render.report", "render",
    "plot_parts", "plots", "shipped", "terminal", "wording", "analysis", "cli", "__main__", "",
]  # fmt: skip
# Where sympy may be imported: it stops at the model.
SYMBOLIC = {
    "symbols", "expressions", "expression_text", "architecture", "smi", "derivation", "program", "core", "unroll",
    "statistic", "large_depth", "network", "link", "symmetry", "charts.base", "charts.matching", "charts.rank_one",
    "charts.scores", "charts.attention", "charts.mixing", "charts.eliminating", "charts.solving", "charts",
    "integration", "model",
    "render.mathml", "render.outline", "render.markdown", "render.latex", "render.html",
}  # fmt: skip


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path) -> set[str]:
    """Modules of ours (dotted, without the package) and others that a module imports, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_every_module_has_its_place() -> None:
    assert sorted(modules()) == sorted(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_imports_point_upwards(name: str) -> None:
    above = {f"smisym.{other}" for other in ORDER[: ORDER.index(name)]} | {"smisym"}
    known = {f"smisym.{other}" for other in ORDER}
    ours = {module for module in imported(modules()[name]) if module in known}
    assert ours <= above


@pytest.mark.parametrize("name", [n for n in ORDER if n not in SYMBOLIC])
def test_solvers_do_not_know_sympy(name: str) -> None:
    assert not {module for module in imported(modules()[name]) if module.split(".")[0] == "sympy"}
