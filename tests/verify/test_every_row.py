"""Every row of the one table through the properties of ``smisym check`` that cost little whatever the posterior.

The rest of them, for all rows: slow tests here, and ``python benchmarks/check_everything.py`` (docs/verification.md).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from cases import CASES, FAMILIES

import smisym
from smisym.verify import PROPERTIES, assert_holds, check

DECLARED = {family.name: family.declared for family in FAMILIES.values()}
DECLARED |= {f"case {case.name}": case.architecture for case in CASES.values()}
# Of programs and charts alone: no posterior is integrated.
QUICK = ("mapping", "many-layers", "symmetry", "level-set", "sheets", "measure")


@cache
def compiled(name: str) -> Any:
    return smisym.compile(DECLARED[name])


@pytest.mark.parametrize("name", DECLARED)
def test_network_symmetry_and_chart(name: str) -> None:
    report = check(compiled(name), only=QUICK)
    assert report.ok, report.summary()
    # Links, and symmetries where there is one, are tried whatever is declared.
    tried = {row.name for row in report.rows if row.tried.holds}
    assert tried & {"mapping", "many-layers", "symmetry"} or not isinstance(DECLARED[name], smisym.Architecture)


@pytest.mark.slow
@pytest.mark.parametrize("name", DECLARED)
def test_all_properties(name: str) -> None:
    assert_holds(compiled(name), only=[one.name for one in PROPERTIES if one.name not in QUICK])
