"""Every row of the one table through the properties of ``smisym check`` that cost little whatever the posterior.

The rest of them, for all rows: slow tests here, and ``python benchmarks/check_everything.py`` (docs/verification.md).
"""

from __future__ import annotations

import pytest
from cases import DECLARED, compiled

import smisym
from smisym.verify import PROPERTIES, assert_holds, check

# Of programs and charts alone: no posterior is integrated.
QUICK = ("mapping", "many-layers", "symmetry", "level-set", "rounding", "sheets", "measure")


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
