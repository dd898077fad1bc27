"""Charts are held against the link when a model is compiled: a wrong one is refused, whoever wrote it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cases import CASES, FAMILIES, charted
from scipy.special import lambertw

import smisym
from smisym import Architecture, Attention, InputError
from smisym.base.derivation import Derivation
from smisym.charts import RULES, LevelSet, find_level_set
from smisym.charts.base import Coordinates, Sheets
from smisym.charts.checking import QUICK, THOROUGH, check_chart
from smisym.charts.covering import coverage
from smisym.link.linking import link_function
from smisym.model.calibrating import check_calibration
from smisym.model.channel import Channel
from smisym.posterior.level_set import OnLevelSet

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

    return dataclasses.replace(chart, solve=solve, program=None)


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
    assert len(step.checks) == 3


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


OURS = [*(f.name for f in FAMILIES.values() if f.declared.noise == 0), *CASES]


@pytest.mark.parametrize("name", OURS)
def test_our_own_charts_pass(name: str) -> None:
    """At thousands of fields where sheets are read off, at some where latent coordinates are searched for."""
    check_ours(name, 48)


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_our_own_charts_pass_many_searches(name: str) -> None:
    check_ours(name, 2048)


def check_ours(name: str, searched: int) -> None:
    """None of the fields may be on no sheet, none refused."""
    found_chart = charted(name)
    if found_chart is None:
        return
    link, chart = found_chart
    assert not chart.registered
    checks = check_chart("ours", link, chart, THOROUGH if searched > 48 or not chart.latents else QUICK)
    assert len(checks) == (2 if chart.shared else 3) or len(chart.latents) > 8
    found = coverage(link, chart, 4096 if not chart.latents else searched if len(chart.latents) < 3 else 24, seed=3)
    assert found.met.sum() > 0.9 * len(found.fields)
    assert not found.lost.any()
    assert not found.refused.any()


# ------------------------------------------------------------------------------------------- charts that lack a sheet


def product_with_its_exponential(*sheets: int) -> LevelSet:
    """z exp(z) = y by the Lambert function: z >= -1 (sheet 0), z < -1 (sheet -1; a sixth of the prior)."""

    def solve(free: Any, latent: Any, u: Any) -> Sheets:
        z = [lambertw(u[0], k).real for k in sheets]
        inside = [(u[0] > -np.exp(-1)) & ((u[0] < 0) | (k == 0)) for k in sheets]
        with np.errstate(all="ignore"):
            weight = [-np.log(np.abs(1 + v)) - v for v in z]
        return Sheets(
            [[np.where(there, v, 0.0)] for v, there in zip(z, inside, strict=True)],
            [np.where(there & np.isfinite(w), w, -np.inf) for w, there in zip(weight, inside, strict=True)],
        )

    def coordinates(observation: Any) -> Coordinates:
        return Coordinates(observation.y.reshape(-1, 1), np.zeros(len(observation)))

    return LevelSet("Lambert", (), (0,), len(sheets), 1, coordinates, solve, (), density=True)


BY_ITS_EXPONENTIAL = smisym.SMI("z1*exp(z1)", 1)


def test_both_sheets_of_a_lambert_function_are_accepted(ruled: Callable[[Any], None]) -> None:
    ruled(lambda _: product_with_its_exponential(0, -1))
    model = smisym.compile(BY_ITS_EXPONENTIAL)
    assert model.level_set is not None
    assert model.level_set.registered
    titles = [step.title for step in model.derivation]
    assert "The chart against the link" in titles
    assert "Posteriors on the chart" in titles


@pytest.mark.parametrize("sheet", [0, -1])
def test_one_sheet_of_a_lambert_function_is_refused(sheet: int, ruled: Callable[[Any], None]) -> None:
    ruled(lambda _: product_with_its_exponential(sheet))
    with pytest.raises(InputError, match="no sheet that holds the fields"):
        smisym.compile(BY_ITS_EXPONENTIAL)


@pytest.mark.parametrize(("name", "share"), [("two layers", 0.002), ("absolute value", 0.002), ("causal", 0.01)])
def test_a_sheet_that_ends_too_early_is_refused(name: str, share: float, ruled: Callable[[Any], None]) -> None:
    """Few fields in a thousand are on no sheet: those whose first coordinate is among the largest."""
    good = chart_of(MANY_SHEETS[name])
    link = link_function(MANY_SHEETS[name], Derivation())
    Z = np.random.default_rng(0).standard_normal((20000, link.fields, link.tokens))
    edge = np.quantile(good.coordinates(link.observe(Z)).values[:, 0], 1 - share)

    def solve(free: Any, latent: Any, u: Any) -> Sheets:
        sheets = good.solve(free, latent, u)
        return dataclasses.replace(sheets, log_weight=[np.where(u[0] > edge, -np.inf, w) for w in sheets.log_weight])

    ruled(lambda _: dataclasses.replace(good, solve=solve, program=None))
    with pytest.raises(InputError, match="no sheet that holds the fields"):
        smisym.compile(MANY_SHEETS[name])


def test_coordinates_that_refuse_outputs_are_refused(ruled: Callable[[Any], None]) -> None:
    """A sheet may be missing in the guise of an error: outputs that the chart does not take for any."""
    good = product_with_its_exponential(0)

    def coordinates(observation: Any) -> Coordinates:
        if (observation.y < 0).any():
            raise InputError("y", observation.y.min(), "y >= 0", "this chart knows no other")
        return good.coordinates(observation)

    ruled(lambda _: dataclasses.replace(good, coordinates=coordinates))
    with pytest.raises(InputError, match=r"coordinates that refuse .* outputs of random fields"):
        smisym.compile(BY_ITS_EXPONENTIAL)


# --------------------------------------------------------------------------------------------- probability is conserved


@pytest.mark.parametrize("name", [*ARCHITECTURES, "absolute value", "cells"])
def test_right_charts_conserve_probability(name: str) -> None:
    model = smisym.compile({**ARCHITECTURES, **MANY_SHEETS}[name])
    (checked,) = check_calibration("ours", model.channel)
    assert "outputs of random fields" in checked[1]


def through(name: str, chart: LevelSet) -> Channel:
    link = link_function({**ARCHITECTURES, **MANY_SHEETS}[name], Derivation())
    return Channel(link, OnLevelSet(chart, link.tokens))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *itertools.product(["two layers", "untied", "causal"], ["a sheet less", "a quarter of a weight"]),
        ("two layers", "another Jacobian"),  # elsewhere too little changes: the co-area formula is there to see it
    ],
)
def test_wrong_charts_do_not_conserve_probability(name: str, change: str) -> None:
    """What no search is needed for: the posteriors alone tell."""

    def spoil(sheets: Sheets, x: list[np.ndarray]) -> Sheets:
        if change == "another Jacobian":
            return dataclasses.replace(sheets, log_weight=[w - 0.5 * x[0] ** 2 for w in sheets.log_weight])
        weights = [*sheets.log_weight] * (len(sheets.solved) // len(sheets.log_weight))
        less = -np.inf if change == "a sheet less" else np.log(0.25)
        return dataclasses.replace(sheets, log_weight=[weights[0], *[w + less for w in weights[1:]]])

    with pytest.raises(InputError, match="do not conserve"):
        check_calibration("spoilt", through(name, spoilt(chart_of({**ARCHITECTURES, **MANY_SHEETS}[name]), spoil)))


@pytest.mark.parametrize("name", ["two layers", "untied"])
@pytest.mark.parametrize("change", [heavier, shifted, first_sheet_alone])
def test_a_wrong_chart_of_our_own_is_a_defect(name: str, change: Any) -> None:
    """It is not used, and the derivation says so: what rounding does is told apart from a sheet that is missing."""
    wrong = spoilt(chart_of(ARCHITECTURES[name]), change)
    model = smisym.compile(ARCHITECTURES[name], rules=[(RULES[0][0], lambda _: wrong)])
    assert model.level_set is None
    assert any("this is a defect of smisym" in step.text for step in model.derivation)


def test_nearly_singular_mixing_compiles() -> None:
    layers = (Attention(skip=0.0, beta=0.186), Attention(skip=0.01, activation="linear"), Attention(skip=3.9))
    assert smisym.compile(Architecture(4, layers)).level_set is not None


@pytest.mark.slow
def test_what_sympy_would_substitute_without_end_has_no_chart() -> None:
    """Softmax with one more term: solved for one field, the rest is logarithms within logarithms."""
    norms = [f"1 + exp(z[{i}]*z[1]) + exp(z[{i}]*z[2])" for i in (1, 2)]
    entries = [f"exp(z[{i}]*z[{j}])/({norms[i - 1]})" for i in (1, 2) for j in (1, 2)]
    assert smisym.compile(smisym.SMI(entries, ["z"], tokens=2)).level_set is None
