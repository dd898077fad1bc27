"""The house: which room may import which, and no cycle."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "smisym"
# Modules that are in no room: they may import everything.
ABOVE = {"", "cli", "__main__"}
# Where sympy may be imported: it stops at the model; the trail writes formulas of it, and proves what is algebra.
SYMBOLIC = {
    "declare", "link", "charts", "report", "base.symbols", "base.derivation", "model.integration",
    "theory.closed_forms", "trail.notation", "trail.proofs",
}  # fmt: skip


def rooms() -> dict[str, set[str]]:
    """Room to the rooms that it may import directly, from the table in docs/contributing.md."""
    table = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", (ROOT / "docs/contributing.md").read_text(), re.MULTILINE)
    return {room: set(re.findall(r"`(\w+)`", allowed)) for room, allowed in table}


def reachable(room: str) -> set[str]:
    """The rooms that a room may import, itself among them."""
    found, left = {room, "base"}, [room]
    while left:
        for other in ROOMS[left.pop()] - found:
            found.add(other)
            left.append(other)
    return found


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imported(path: Path) -> frozenset[str]:
    """Modules of ours (dotted, without the package) and others that a module imports, wherever in the file."""
    names = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


ROOMS = rooms()
MODULES = modules()
IN_ROOMS = sorted(set(MODULES) - ABOVE)


def ours(name: str) -> set[str]:
    """Modules of ours that a module imports."""
    return {module[len("smisym.") :] for module in imported(MODULES[name]) if module.startswith("smisym.")} & set(
        MODULES
    )


def test_every_module_is_in_a_room() -> None:
    assert {name.split(".")[0] for name in IN_ROOMS} == set(ROOMS)


def test_every_room_has_its_tests() -> None:
    tested = {path.parent.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert not set(ROOMS) - tested


@pytest.mark.parametrize("name", IN_ROOMS)
def test_a_room_imports_from_the_rooms_it_may(name: str) -> None:
    assert {module.split(".")[0] for module in ours(name)} <= reachable(name.split(".")[0])
    assert "smisym" not in imported(MODULES[name]) or name == "declare.io", "public names are for users"


def test_no_cycle() -> None:
    packages = {name.rpartition(".")[0] for name in MODULES}
    graph = {name: ours(name) - {name} - (packages - {"charts", "report"}) for name in IN_ROOMS}
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("name", [n for n in IN_ROOMS if not {n, n.split(".")[0]} & SYMBOLIC])
def test_solvers_do_not_know_sympy(name: str) -> None:
    assert not {module for module in imported(MODULES[name]) if module.split(".")[0] == "sympy"}


@pytest.mark.parametrize("name", IN_ROOMS)
def test_no_public_function_shadows_its_module(name: str) -> None:
    functions = {node.name for node in parsed(MODULES[name]).body if isinstance(node, ast.FunctionDef)}
    assert name.rpartition(".")[2] not in functions


def test_no_test_imports_another() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        assert not [module for module in imported(path) if module.rpartition(".")[2].startswith("test_")], path


def test_what_is_slow_to_import_waits_until_it_is_used() -> None:
    """Half a second: what a first posterior does not need."""
    slow = (
        "scipy.stats",
        "scipy.optimize",
        "scipy.integrate",
        "matplotlib",
        "numba",
        "jax",
        "loky",
        "pandas",
        "xarray",
    )
    code = f"import sys, smisym; smisym.compile; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
