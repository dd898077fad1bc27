"""Does a test fail when what it tests is gone?  Every test once, with all functions of its room refusing to run.

    python benchmarks/deleted.py [pytest's arguments]      all tests, or those asked for; lists the ones that passed

The room of ``tests/theory`` is ``smisym/theory``; what stands in no room's folder loses the whole package.  Functions
go while the test itself runs, not its fixtures: what these made stays.  Programs that a test begins have lost them too.
What passes without its room is run once more without the whole package, its fixtures as well: its subject may be in
another room, or what a fixture made.  The package on disk is never touched: functions are given their refusal as they
are read.  It is there before pytest is (PYTEST_DONT_REWRITE).
"""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "smisym"
ROOMS = {folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()}
# Where programs that tests begin read what is gone; the parent keeps it in builtins.
GONE, TESTS, WHOLE = "SMISYM_DELETED", "SMISYM_TESTS_IN", "SMISYM_WHOLE_TEST"
ALL = "*"
# Whose subject is no function of the package, by how their names begin, and what it is.
KNOWN = {
    "tests/house/": "files: sources, pages, tables",
    "tests/oracles/": "oracles, held against one another",
    "tests/run/test_run.py": "run.py, which stands beside the package",
    "tests/base/test_processes.py::test_none_are_begun_where_they_are_not_worth_it":
        "processes, which the tests' own settings call and which stay therefore",
    "tests/charts/test_families.py::test_every_kind_of_family_is_in_the_table": "the table of cases",
    "tests/charts/test_families.py::test_the_table_covers_all_pairs": "the table of cases",
    "tests/charts/test_families.py::test_the_oracle_in_fields_is_the_network": "two oracles, of every row of the table",
    "tests/declare/test_expressions.py::test_nothing_can_be_added_to_the_whitelist": "a mapping that is read alone",
    "tests/finite/test_gamp_families.py::test_every_family_has_a_member": "the table of cases",
    "tests/kernels/test_jax.py::test_the_boxes_of_the_plan_are_made_of_whole_cells": "a table of numbers",
    "tests/prior/test_untied.py::test_linear_scores_with_a_diagonal_tell_more_of_the_symmetric_part":
        "draws that show why a declaration is refused",
    "tests/theory/test_aim.py::test_spreads_at_their_word_are_too_small": "draws that show what a rule is for",
    "tests/theory/test_closed_forms.py::test_a_formula_without_a_number_beside_it_had_no_time": "a table that is kept",
    "tests/theory/test_closed_forms.py::test_lengths_of_queries_given_the_product_are_bessel_functions": "an oracle",
    "tests/theory/test_committees.py::test_two_signs_specialise_smoothly":
        "a quadrature that others hold the map against",
    "tests/theory/test_multi_index.py::test_both_ways_of_the_table_agree": "a table that is kept",
    "tests/theory/test_multi_index.py::test_untied_linear_on_one_token_is_the_product": "an oracle",
    "tests/theory/test_physics.py::test_every_first_layer_is_a_layer": "the table of cases",
    "tests/theory/test_three_signs.py::test_three_signs_specialise_by_a_jump":
        "a quadrature that others hold the free entropy against",
    "tests/theory/test_thresholds_two_ways.py::test_all_solutions_of_one_layer":
        "the second ways themselves",
    "tests/theory/test_thresholds_two_ways.py::test_bins_know_conditional_moments":
        "the second ways themselves",
    "tests/theory/test_thresholds_two_ways.py::test_every_case_has_two_ways":
        "the second ways themselves",
    "tests/theory/test_thresholds_two_ways.py::test_singular_values_of_scores_know_what_fields_are":
        "the second ways themselves",
    "tests/theory/test_thresholds_two_ways.py::test_walks_know_closed_forms":
        "the second ways themselves",
    "tests/trail/test_documents.py::test_complaints_are_found": "the programs that look at documents",
    "tests/trail/test_documents.py::test_the_browser_sees_what_is_wrong": "the programs that look at documents",
    "tests/verify/test_check.py::test_the_page_says_what_each_property_is": "a page, and the table of properties",
    "tests/verify/test_planted_faults.py::test_every_property_has_a_fault_that_it_catches": "the table of faults",
}  # fmt: skip
# What the tests' own settings call, before any of them runs.
KEPT = ("base", "processes")


class Deleted(BaseException):
    """No test can mean to have this raised."""


def install() -> None:
    """From here on, functions of the package are read with their refusal."""
    builtins.__smisym_gone__ = (os.environ.get(GONE, ""), Deleted)  # type: ignore[attr-defined]
    loader: Any = importlib.machinery.SourceFileLoader
    read, compiled = loader.source_to_code, loader.get_code

    def source_to_code(self: Any, data: Any, path: Any, **options: Any) -> Any:
        if not _ours(path):
            return read(self, data, path, **options)
        return compile(refusing(data, str(path)), str(path), "exec", dont_inherit=True, optimize=-1)

    def get_code(self: Any, name: str) -> Any:
        # What is kept as bytecode would not be read.
        path = self.get_filename(name)
        return self.source_to_code(self.get_data(path), path) if _ours(path) else compiled(self, name)

    loader.source_to_code, loader.get_code = source_to_code, get_code


def _ours(path: Any) -> bool:
    return Path(os.fsdecode(path)).resolve().is_relative_to(PACKAGE)


def refusing(data: Any, path: str) -> ast.Module:
    """The module, each function of which asks first whether it is gone."""
    room, *inside = Path(path).resolve().relative_to(PACKAGE).with_suffix("").parts
    if (room, *inside) == KEPT:
        return ast.parse(data, path)
    gone = f"__smisym_gone__[0] in ({room!r}, {ALL!r})"
    tree = ast.parse(data, path)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            check = ast.parse(f"if {gone}: raise __smisym_gone__[1]({node.name!r})").body[0]
            first = int(ast.get_docstring(node, clean=False) is not None)
            node.body.insert(first, ast.copy_location(check, node))
            for inner in ast.walk(check):
                ast.copy_location(inner, node)
    return ast.fix_missing_locations(tree)


# ----------------------------------------------------------------------------------------------------- as a plugin


def subject(path: Path) -> str:
    """The room of a test by its folder."""
    inside = path.resolve().relative_to(ROOT / "tests").parts[0]
    return inside if inside in ROOMS else ALL


class Plugin:
    def pytest_runtest_setup(self) -> Iterator[None]:
        return (yield from _without(ALL if os.environ[WHOLE] else ""))

    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        return (yield from _without(ALL if os.environ[WHOLE] else subject(item.path)))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        passed = sorted({report.nodeid for report in terminalreporter.stats.get("passed", ())})
        Path(os.environ[TESTS], "passed.txt").write_text("".join(f"{case}\n" for case in passed))


def _without(room: str) -> Iterator[None]:
    builtins.__smisym_gone__ = (room, Deleted)  # type: ignore[attr-defined]
    os.environ[GONE] = room
    try:
        return (yield)
    finally:
        builtins.__smisym_gone__ = ("", Deleted)  # type: ignore[attr-defined]
        os.environ[GONE] = ""


def pytest_configure(config: Any) -> None:
    import pytest

    for name in ("pytest_runtest_setup", "pytest_runtest_call"):
        setattr(Plugin, name, pytest.hookimpl(wrapper=True)(getattr(Plugin, name)))
    config.pluginmanager.register(Plugin(), "deleted-functions")


# ------------------------------------------------------------------------------------------------------ as a program


def main(asked: list[str]) -> int:
    passed = tried(asked or ["--turn", "all"], whole=False)
    print(f"{told(passed)} passed without their room; without the whole package:")
    left = tried(sorted({case.split("[")[0] for case in passed}), whole=True) if passed else []
    print(f"{told(left)} passed without the package:")
    reasons = {test: next((why for path, why in KNOWN.items() if test.startswith(path)), "") for test in counted(left)}
    for why, tests in Counter(filter(None, reasons.values())).items():
        print(f"{tests:4} {why}")
    new = [test for test, why in reasons.items() if not why]
    for test in new:
        print(f"{test}: not known why")
    return 1 if new else 0


def tried(arguments: list[str], *, whole: bool) -> list[str]:
    """The cases that passed."""
    with tempfile.TemporaryDirectory() as folder:
        here = str(Path(__file__).parent)
        begun = f"import sys\nsys.path.insert(0, {here!r})\nimport deleted\ndeleted.install()\n"
        Path(folder, "sitecustomize.py").write_text(begun)
        paths = [folder, here, os.environ.get("PYTHONPATH", "")]
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), GONE: "", TESTS: folder}
        environ[WHOLE] = "whole" if whole else ""
        command = [sys.executable, "-m", "pytest", "-p", "deleted", "-q", "--tb=no", "-r", "N", *arguments]
        subprocess.run(command, env=environ, cwd=ROOT, check=False)
        told = Path(folder, "passed.txt")
        if not told.exists():
            sys.exit("pytest ended before it ran a test. To fix: see what it says above.")
        return told.read_text().splitlines()


def counted(passed: list[str]) -> dict[str, int]:
    return dict(Counter(case.split("[")[0] for case in passed))


def told(passed: list[str]) -> str:
    return f"{len(passed)} cases of {len(counted(passed))} tests"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
