"""Slips of whoever writes a chart are named; and sheets that are none are told where outputs are nearly zero."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import smisym
from smisym import SMI, InputError
from smisym.base.derivation import Derivation
from smisym.charts import RULES, LevelSet, find_level_set
from smisym.link.linking import link_function

SLIPS: dict[str, tuple[Callable[[LevelSet], dict[str, Any]], str]] = {
    "branches": (lambda chart: {"branches": chart.branches + 1}, "sheet by sheet"),
    "rows": (lambda chart: {"solved_rows": ()}, "free_rows, solved_rows"),
    "twice": (lambda chart: {"free_rows": chart.solved_rows}, "check free_rows"),
    "arrays": (lambda chart: {"solve": fewer(chart)}, "sheet by sheet"),
    "weights": (lambda chart: {"solve": heavier(chart)}, "length of log_weight"),
}


def fewer(chart: LevelSet) -> Callable[..., Any]:
    def solve(free: Any, latent: Any, u: Any) -> smisym.Sheets:
        sheets = chart.solve(free, latent, u)
        return dataclasses.replace(sheets, solved=[one[:-1] for one in sheets.solved])

    return solve


def heavier(chart: LevelSet) -> Callable[..., Any]:
    def solve(free: Any, latent: Any, u: Any) -> smisym.Sheets:
        sheets = chart.solve(free, latent, u)
        return dataclasses.replace(sheets, log_weight=[np.zeros(())] * (chart.branches + 1))

    return solve


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_named(name: str) -> None:
    slip, words = SLIPS[name]
    declared = SMI("z1**2 + z1", 1)
    chart = find_level_set(link_function(declared, Derivation()), Derivation())
    before = list(RULES)
    smisym.register_chart("of my own", lambda link: dataclasses.replace(chart, program=None, **slip(chart)))
    try:
        with pytest.raises(InputError, match=words):
            smisym.compile(declared)
    finally:
        RULES[:] = before


def test_a_sheet_is_none_where_a_small_output_has_the_wrong_sign() -> None:
    """Of four sheets that two outputs leave, the others drop two: also where z_1 z_2 is far smaller than one."""
    root = "z[1]*z[2] / sqrt(z[{0}]**4 + z[1]**2*z[2]**2 + 1)", "z[{0}]**2 / sqrt(z[{0}]**4 + z[1]**2*z[2]**2 + 1)"
    outputs = (root[1].format(1), root[0].format(1), root[0].format(2), root[1].format(2))
    model = smisym.compile(SMI(outputs, ("z",), tokens=2))
    assert model.level_set is not None
    rng, V = np.random.default_rng(0), np.array([[1e-5]])
    Z = 0.003 * rng.standard_normal((1000, 1, 2))
    omega = Z + np.sqrt(V) * rng.standard_normal(Z.shape)
    found = model.channel.moments(model.observe(Z), omega, V)
    # Both signs of Z are possible, and nothing else.
    exact = np.tanh((Z * omega).sum(axis=(1, 2)) / V.item())[:, None, None] * Z
    np.testing.assert_allclose(found.mean, exact, atol=1e-9 * np.sqrt(V.item()))
