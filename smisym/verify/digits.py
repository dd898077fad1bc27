"""Digits: links and charts in floats, by numpy and in compiled loops, are what thirty digits make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from smisym.charts.base import LevelSet, Sheets
from smisym.charts.covering import FAR, read_coordinates
from smisym.kernels.numba_code import compiled_program
from smisym.link.program import output_in_digits
from smisym.verify.properties import Property, Subject, Tried, left_out, lines
from smisym.verify.searching import search
from smisym.verify.straight_lines import DIGITS, carry_out
from smisym.verify.strategies import decimals, fields

# What rounding may do to a number of size one, to that of another backend, and to one for each unit of the condition:
# what relative changes of the arguments do, tried in thirty digits with two of this size.
_ROUNDING, _BACKENDS, _EACH, _NUDGE = 1e-11, 1e-12, 1e-12, 1e-8

_LINK = """from smisym.link.program import output_in_digits

print(output_in_digits(model.link.program, Z, 30))  # with thirty digits
print(model.link(Z[None])[0])"""
_CHART = """from smisym.verify.digits import chart_values
from smisym.verify.straight_lines import carry_out

print([float(v) for v in carry_out(model.level_set.program, at)])  # with thirty digits
print(chart_values(model.level_set, model.tokens, at[:, None])[:, 0])  # numpy"""


def _moved(x: np.ndarray) -> np.ndarray:
    return x * (1 + _NUDGE * np.random.default_rng(7).standard_normal((2, *x.shape)))


def _condition(exact: Callable[[np.ndarray], np.ndarray], x: np.ndarray, at: np.ndarray) -> np.ndarray:
    """What relative changes of x do to each value, those ``at`` x known."""
    with np.errstate(invalid="ignore"):
        return np.max([np.abs(exact(moved) - at) for moved in _moved(x)], axis=0) / _NUDGE


def _misfit(wanted: np.ndarray, found: np.ndarray, condition: np.ndarray, rounding: float) -> float | None:
    """Largest deviation beside what is allowed, entry by entry; None where floats overflow."""
    if not np.isfinite(wanted).all() or not np.isfinite(condition).all():
        return None
    return float(np.max(np.abs(found - wanted) / (rounding * (1 + np.abs(wanted)) + _EACH * condition)))


# ---------------------------------------------------------------------------------------------------------- the link


def _link_misfit(model: Any, Z: np.ndarray) -> float | None:
    def exact(fields_: np.ndarray) -> np.ndarray:
        outputs = output_in_digits(model.link.program, fields_, DIGITS)
        return np.array([float(v) for output in outputs for v in output])

    with np.errstate(all="ignore"):
        found = model.link(Z[None]).ravel()
    if not np.isfinite(found).all():
        return None
    wanted = exact(Z)
    return _misfit(wanted, found, _condition(exact, Z, wanted), _ROUNDING)


# --------------------------------------------------------------------------------------------------------- the chart


def chart_values(chart: LevelSet, tokens: int, at: np.ndarray) -> np.ndarray:
    """(outputs, n): fields on all sheets, log-weights, and directions, at coordinates (arguments, n), by numpy."""
    free, latents = len(chart.free_rows) * tokens, len(chart.latents)
    args = list(at)
    with np.errstate(all="ignore"):
        sheets: Sheets = chart.solve(args[:free], args[free : free + latents], args[free + latents :])
    flat = [*(v for s in sheets.solved for v in s), *sheets.log_weight]
    flat += [v for sheet in sheets.directions for vector in sheet for v in vector]
    return np.stack([np.broadcast_to(np.asarray(v, dtype=float), at.shape[1:]) for v in flat])


def _compiled_values(chart: LevelSet, at: np.ndarray) -> np.ndarray | None:
    """The same by compiled loops; None where there are none."""
    assert chart.program is not None
    run = compiled_program(chart.program, len(at))
    if run is None:
        return None
    out = np.empty((len(chart.program.outputs), at.shape[1]))
    run(np.ascontiguousarray(at), np.empty(0), out)
    return out


def _chart_misfit(model: Any, Z: np.ndarray, x: np.ndarray) -> float | None:
    chart, link = model.level_set, model.charted
    with np.errstate(all="ignore"):
        if not np.isfinite(link.raw(Z[None])).all():
            return None
        read, good = read_coordinates(chart, link.observe(Z[None]))
    at = np.concatenate([x, read.values[0]]) if good[0] else np.full(1, np.nan)
    if not np.isfinite(at).all():
        return None

    def exact(arguments: np.ndarray) -> np.ndarray:
        return np.array([float(v) for v in carry_out(chart.program, list(arguments))])

    try:
        wanted = exact(at)
        condition = _condition(exact, at, wanted)
    except (ZeroDivisionError, ValueError):
        # At a singular point of the level set.
        return None
    found = chart_values(chart, model.tokens, at[:, None])[:, 0]
    # A sheet that has no point there has a weight of -inf, and values that mean nothing.
    there = np.isfinite(wanted) & np.isfinite(condition) & (np.abs(wanted) < FAR)
    if not there.any():
        return None
    worst = _misfit(wanted[there], found[there], condition[there], _ROUNDING)
    compiled = _compiled_values(chart, at[:, None])
    if worst is None or compiled is None:
        return worst
    other = _misfit(found[there], compiled[there, 0], condition[there], _BACKENDS)
    return None if other is None else max(worst, other)


# -------------------------------------------------------------------------------------------------------- as property


def _thirty_digits_agree(subject: Subject, level: float) -> Tried:
    model, chart = subject.model, subject.model.level_set
    # In thirty digits every operation takes microseconds: few fields, whatever the network.
    count = subject.many(12)
    found = search(fields(model), lambda Z: _link_misfit(model, Z), count, subject.number("link digits"))
    if found.failing is not None:
        shown = lines(subject, _LINK, Z=found.failing)
        return Tried(found.number, "fields", found.worst, None, False, "the link function", shown)
    number, worst = found.number, found.worst
    if chart is not None and chart.program is not None:
        coordinates = [decimals(-2.5, 2.5)] * (len(chart.free_rows) * model.charted.tokens)
        coordinates += [decimals(-0.5, 0.5)] * len(chart.latents)
        x = st.tuples(*coordinates).map(lambda v: np.array(v, dtype=float))
        cases: Any = st.tuples(fields(model.charted), x)
        on = search(cases, lambda case: _chart_misfit(model, *case), count, subject.number("chart digits"))
        if on.failing is not None:
            Z, x = on.failing
            u = read_coordinates(chart, model.charted.observe(Z[None]))[0].values[0]
            shown = lines(subject, _CHART, at=np.concatenate([x, u]))
            return Tried(on.number, "points", on.worst, None, False, "the chart", shown)
        number, worst = number + on.number, max(worst, on.worst)
    if not number:
        return left_out("floats overflow, or the level set is singular, at all fields that were tried")
    return Tried(number, "points", worst)


PROPERTIES = (
    Property(
        "digits",
        "The link and the chart in floats, by numpy and in compiled loops, are what 30 digits give, to rounding.",
        "smisym/link/program.py, smisym/kernels/straight_line.py",
        "seconds",
        False,
        _thirty_digits_agree,
    ),
)
