"""Charts are held against the link when a model is compiled: a wrong one is refused, whoever wrote it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cases import FAMILIES

import smisym
from smisym import Architecture, Attention, InputError
from smisym.charts import RULES, LevelSet, find_level_set
from smisym.charts.base import Sheets
from smisym.charts.checking import check_chart
from smisym.derivation import Derivation
from smisym.link import link_function

ARCHITECTURES = {
    "two layers": Architecture(2, (Attention(), Attention())),
    "untied": Architecture(3, (Attention(tied=False),)),
    "rank two": Architecture(3, (Attention(rank=2),)),
    "causal": Architecture(2, (Attention(mask="causal"),)),
    "expressions": smisym.SMI("z1*z2", 2),
}


@pytest.fixture
def ruled() -> Iterator[Callable[[Any], None]]:
    """Registers a rule for the length of a test."""
    before = list(RULES)
    yield lambda rule: smisym.register_chart("of my own", rule)
    RULES[:] = before


def chart_of(declared: Any) -> LevelSet:
    return find_level_set(link_function(declared, Derivation()), Derivation())


def spoilt(chart: LevelSet, change: Callable[[Sheets, list[np.ndarray]], Sheets]) -> LevelSet:
    def solve(free: Any, latent: Any, u: Any) -> Sheets:
        return change(chart.solve(free, latent, u), [*free, *latent])

    return dataclasses.replace(chart, solve=solve)


def heavier(sheets: Sheets, x: list[np.ndarray]) -> Sheets:
    """A weight that grows by one percent as the first coordinate grows by one."""
    return dataclasses.replace(sheets, log_weight=[w + 0.01 * x[0] for w in sheets.log_weight])


def shifted(sheets: Sheets, x: list[np.ndarray]) -> Sheets:
    """The last solved entry off by 1e-3."""
    return dataclasses.replace(sheets, solved=[[*s[:-1], s[-1] + 1e-3] for s in sheets.solved])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_what_was_checked_is_in_the_derivation(name: str) -> None:
    steps = list(smisym.compile(ARCHITECTURES[name]).derivation)
    (step,) = [s for s in steps if s.title == "The chart against the link"]
    assert len(step.checks) == 2


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize(("change", "message"), [(heavier, "log-weight"), (shifted, "output differs")])
def test_a_wrong_chart_is_refused(name: str, change: Any, message: str, ruled: Callable[[Any], None]) -> None:
    good = chart_of(ARCHITECTURES[name])
    ruled(lambda _: good)
    smisym.compile(ARCHITECTURES[name])
    RULES.pop(0)
    ruled(lambda _: spoilt(good, change))
    with pytest.raises(InputError, match=message):
        smisym.compile(ARCHITECTURES[name])


def first_sheet_alone(sheets: Sheets, x: list[np.ndarray]) -> Sheets:
    weights = [*sheets.log_weight] * (len(sheets.solved) // len(sheets.log_weight))  # one may stand for all
    return dataclasses.replace(sheets, log_weight=[w if k == 0 else w - np.inf for k, w in enumerate(weights)])


MANY_SHEETS = {
    **{name: ARCHITECTURES[name] for name in ("two layers", "untied", "causal")},
    "absolute value": smisym.SMI("abs(z1)", 1),
    "cells": smisym.SMI("sign(z1*z2)", 2),
    "sequence of two layers": Architecture(2, (Attention(), Attention()), output="sequence"),
}


@pytest.mark.parametrize("name", MANY_SHEETS)
def test_a_chart_that_lacks_sheets_is_refused(name: str, ruled: Callable[[Any], None]) -> None:
    """It gives the output back, with the right measure: only that some fields are nowhere tells."""
    good = chart_of(MANY_SHEETS[name])
    assert good.branches > 1
    ruled(lambda _: spoilt(good, first_sheet_alone))
    with pytest.raises(InputError, match="no sheet that holds the fields"):
        smisym.compile(MANY_SHEETS[name])


@pytest.mark.parametrize(("change", "message"), [(heavier, "log-weight"), (first_sheet_alone, "no sheet")])
def test_a_wrong_chart_of_cells_is_refused(change: Any, message: str, ruled: Callable[[Any], None]) -> None:
    """Discrete outputs: cells, on which nothing is solved for."""
    good = chart_of(MANY_SHEETS["cells"])
    assert good.dimension == 0
    ruled(lambda _: spoilt(good, change))
    with pytest.raises(InputError, match=message):
        smisym.compile(MANY_SHEETS["cells"])


def test_a_chart_with_too_few_coordinates_is_refused(ruled: Callable[[Any], None]) -> None:
    good = chart_of(ARCHITECTURES["untied"])
    ruled(lambda _: dataclasses.replace(good, dimension=good.dimension - 1))
    with pytest.raises(InputError, match="coordinates"):
        smisym.compile(ARCHITECTURES["untied"])


OURS = [f for f in FAMILIES.values() if f.declared.noise == 0]


@pytest.mark.parametrize("family", OURS, ids=str)
def test_our_own_charts_pass(family: Any) -> None:
    """``compile`` refuses only charts of registered rules: of ours it says nothing where rounding spoils the check."""
    model = smisym.compile(family.declared)
    if model.level_set is not None:
        checks = check_chart("ours", model.link, model.level_set, whole=True)
        assert len(checks) == (2 if model.level_set.shared else 3)


def test_nearly_singular_mixing_compiles() -> None:
    layers = (Attention(skip=0.0, beta=0.186), Attention(skip=0.01, activation="linear"), Attention(skip=3.9))
    assert smisym.compile(Architecture(4, layers)).level_set is not None
