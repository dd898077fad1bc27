"""No test reaches behind what is public: none changes a module of smisym, none uses a name with an underscore of it.

What a test needs to plant is handed in: a map, a model, a channel, a chart, a clock of the machine.  And what is
independent stays so: oracles do not import what they are held against.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("*.py"))
# What belongs to the machine may be changed: its clock, its files, its streams.
MACHINE = {"os", "sys", "time"}
# Why a test reaches behind what is public all the same.
EXCEPTIONS = {
    ("theory/test_no_wrong_success.py", "smisym.theory.rung.roots"): (
        "no model is known whose threshold is not bracketed in the end; what is said then must hold all the same, and "
        "a parameter for it would serve nothing else"
    ),
    ("theory/test_no_wrong_success.py", "smisym.theory.rung.guessed"): "the same, where it is not told at one point",
    ("theory/test_no_wrong_success.py", "smisym.theory.fixed_point._Solve"): (
        "whether what is left still shrinks is asked of the solve itself, step by step"
    ),
}
# Oracles that read declarations, or stand for a model with a prior; tests of oracles may import anything.
READERS = {"oracles/declared.py", "oracles/solvable.py"}


def imported(tree: ast.AST) -> dict[str, str]:
    """Local names of what a file imports, to their dotted ones."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {
                a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


def dotted(node: ast.AST, names: dict[str, str]) -> str:
    """The dotted name of a part of what was imported, or nothing."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute):
        whole = dotted(node.value, names)
        return f"{whole}.{node.attr}" if whole else ""
    return ""


def ours(name: str) -> bool:
    return name.split(".")[0] == "smisym"


def private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def behind(text: str) -> Iterator[str]:
    """What a test uses or changes that is not public."""
    tree = ast.parse(text)
    names = imported(tree)
    yield from (name for name in names.values() if ours(name) and private(name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = dotted(node, names)
            if ours(name) and (private(name) or isinstance(node.ctx, ast.Store | ast.Del)):
                yield name
        elif isinstance(node, ast.ClassDef):
            bases = [name for name in (dotted(base, names) for base in node.bases) if ours(name)]
            methods = [part.name for part in node.body if isinstance(part, ast.FunctionDef) and private(part.name)]
            yield from (f"{base}.{method}" for base in bases for method in methods)
        elif isinstance(node, ast.Call) and _changes(node.func) and node.args:
            target, *rest = node.args
            attribute = rest[0].value if rest and isinstance(rest[0], ast.Constant) else "?"
            name = target.value if isinstance(target, ast.Constant) else dotted(target, names)
            if name not in MACHINE:
                yield str(name if isinstance(target, ast.Constant) else f"{name or '?'}.{attribute}")


def _changes(function: ast.AST) -> bool:
    """setattr, monkeypatch.setattr and their like."""
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("setattr", "delattr", "patch", "object") and not (
        name == "object"
        and not (isinstance(function, ast.Attribute) and getattr(function.value, "attr", "") == "patch")
    )


@pytest.mark.parametrize("name", FILES)
def test_no_test_reaches_behind_what_is_public(name: str) -> None:
    excused = {what for where, what in EXCEPTIONS if where == name}
    assert set(behind((TESTS / name).read_text())) == excused


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("oracles/") and "test_" not in name])
def test_oracles_do_not_import_what_they_are_held_against(name: str) -> None:
    found = {other for other in imported(ast.parse((TESTS / name).read_text())).values() if ours(other)}
    assert not found or name in READERS
    assert not {other for other in found if other.split(".")[1:2] not in ([], ["Architecture"], ["prior"], ["base"])}


REACHES = {
    "from smisym.theory.stages import _roots": "smisym.theory.stages._roots",
    "from smisym.run import progress\nprogress._QUIET": "smisym.run.progress._QUIET",
    "from smisym.run import cost\ncost.estimate = 3": "smisym.run.cost.estimate",
    "from smisym.run import cost\nmonkeypatch.setattr(cost, 'estimate', 3)": "smisym.run.cost.estimate",
    "monkeypatch.setattr('smisym.run.cost.estimate', 3)": "smisym.run.cost.estimate",
    "import smisym\nclass A(smisym.OverlapMap):\n def _estimate(self): ...": "smisym.OverlapMap._estimate",
    "for module in (): monkeypatch.setattr(module, 'x', 3)": "?.x",
}


@pytest.mark.parametrize("text", REACHES)
def test_what_reaches_behind_is_found(text: str) -> None:
    assert REACHES[text] in set(behind(text))
    assert not set(behind("import os, smisym\nmonkeypatch.setattr(os, 'fsync', 3)\nsmisym.compile(3)"))
