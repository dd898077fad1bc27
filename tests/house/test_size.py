"""The house stays readable: no long module, no long function, few parameters, or a comment that says why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "smisym"
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
LINES, LONG, MANY = 400, 60, 7


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def parameters(function: ast.FunctionDef) -> int:
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


@pytest.mark.parametrize("name", MODULES)
def test_modules_and_functions_are_short(name: str) -> None:
    text = (PACKAGE / name).read_text()
    lines = text.splitlines()
    assert len(lines) <= LINES
    for function in functions(ast.parse(text)):
        first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
        said = lines[first - 2].strip()
        size = (function.end_lineno or 0) - function.lineno + 1 - len((ast.get_docstring(function) or "").splitlines())
        if size > LONG:
            assert said.startswith("# Long: "), f"{function.name} has {size} lines beside its docstring"
        if parameters(function) > MANY:
            assert said.startswith("# Many parameters: "), f"{function.name} has {parameters(function)} parameters"


def assigned(statement: ast.stmt) -> list[str]:
    """Names that a statement of a module gives a value, a function or a class."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        # Overloads have one name by right.
        return [] if any("overload" in ast.unparse(d) for d in statement.decorator_list) else [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]


@pytest.mark.parametrize("name", MODULES)
def test_no_name_is_given_twice(name: str) -> None:
    """A constant that another one of its name overrides is a number that nobody chose."""
    names = [given for statement in ast.parse((PACKAGE / name).read_text()).body for given in assigned(statement)]
    assert len(names) == len(set(names)), sorted({given for given in names if names.count(given) > 1})
