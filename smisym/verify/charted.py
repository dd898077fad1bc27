"""The chart of the level set {Z : f(Z) = y}: its points give y back, hold the true fields, and carry the right measure.

The measure must be the surface measure over sqrt(pdet J J^T), J = df/dZ, up to a factor that depends on y alone
(co-area formula), on every sheet alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from smisym.base.errors import InputError
from smisym.charts.base import FLAT, LINE, SCALE, LevelSet, Sheets
from smisym.charts.covering import (
    FAR,
    columns,
    coverage,
    log_normal,
    log_volume,
    points,
    read_coordinates,
    steady,
    usual_size,
)
from smisym.link.linking import LinkFunction, Observation
from smisym.model.observing import observation_from_array
from smisym.verify.properties import Property, Subject, Tried, left_out, lines
from smisym.verify.searching import Found, search
from smisym.verify.strategies import decimals, fields

# What may be wrong: with the output, with fields on a sheet (relative), with the log of the measure.
_SAME, _NEAR, _EVEN = 1e-6, 1e-5, 1e-3
# How far fields are moved aside that may lie on a set of no measure.
_BESIDE = 1e-6
# Relative size of a jitter of coordinates, and multiple of what it does that is allowed besides.
_JITTER, _ROUNDED = 1e-12, 1e4
# How far a chart's coordinates may move, in what it states and two units of rounding, when y moves by one of these.
_UNDERSTATED = 16.0
# Stated error from which on a chart claims no digits.
_UNSURE = 0.01
_EPS = float(np.finfo(float).eps)
# Derivatives of fourth order: step, and largest difference from those of second order.
_STEP, _CONVERGED = 2e-4, 3e-3
_LOG_SLOPE: dict[str, Callable[[Any], Any]] = {LINE: lambda v: np.log(np.cosh(v)), SCALE: float, FLAT: lambda v: 0.0}

_READ = """from smisym.charts.covering import points, read_coordinates

link, chart = model.charted, model.level_set
u = read_coordinates(chart, link.observe(Z[None]))[0].values
"""
_BACK = """print(link.raw(Z[None]))  # the output
on, sheets = points(link, chart, x[:, None], u)
print(np.array([link.raw(sheet) for sheet in on]))  # on each sheet the same (-inf: no part of it)
print(sheets.log_weight)"""
_ON = """x = Z[list(chart.free_rows)].reshape(-1, 1)
on, sheets = points(link, chart, x, u)
print(Z)  # the fields that the output is of; they should be one of the points on the sheets:
print(on[:, 0] + 0.0)
print(sheets.log_weight)  # with a weight above -inf
print(np.abs(on[:, 0] - Z).max(axis=(1, 2)))  # how far each is from them: none is zero where a sheet is lost"""
_ROUNDING = """from smisym.verify.charted import moved_by_rounding

print(moved_by_rounding(link, chart, Z))  # of coordinates: relative, and as the chart states it
"""
_MEASURE = """from smisym.verify.charted import log_measures

print(log_measures(link, chart, x, u))
print(log_measures(link, chart, other, u))  # all the same, on every sheet (NaN: not told)"""


@dataclass(frozen=True)
class Spot:
    """True fields Z (P, T), and coordinates x, other (n,) of two points on the level set of their output."""

    Z: np.ndarray
    x: np.ndarray
    other: np.ndarray


def _spots(subject: Subject) -> Any:
    link, chart = subject.model.charted, subject.model.level_set
    assert chart is not None
    free = [decimals(-2.5, 2.5)] * (len(chart.free_rows) * link.tokens)
    x = st.tuples(*free, *[decimals(-0.5, 0.5)] * len(chart.latents)).map(lambda v: np.array(v, dtype=float))
    return st.builds(Spot, fields(link), x, x)


def _read(link: LinkFunction, chart: LevelSet, usual: float, Z: np.ndarray) -> tuple[np.ndarray, float] | None:
    """Coordinates u (1, K) of the output, and how far rounding may have moved them; None where rounding leaves too
    little of the fields to tell anything."""
    with np.errstate(all="ignore"):
        if not np.isfinite(link.raw(Z[None])).all() or not steady(link, chart, Z[None], usual)[0]:
            return None
        found, good = read_coordinates(chart, link.observe(Z[None]))
    error = float(found.relative_error[0])
    return (found.values, max(error, _JITTER)) if good[0] and np.isfinite(error) else None


def _there(sheets: Sheets, at: np.ndarray, count: int = 1) -> np.ndarray:
    """(branches,): which sheets have a point at the first of ``count`` coordinates, fields ``at`` (branches, P, T)."""
    weight = np.broadcast_to(columns(sheets.log_weight, count)[:, 0], len(at))
    return np.isfinite(weight) & np.isfinite(at).all(axis=(1, 2)) & (np.abs(at).max(axis=(1, 2)) <= FAR)


def _moved(u: np.ndarray, size: float) -> np.ndarray:
    return u * (1 + size * np.random.default_rng(3).standard_normal(u.shape))


# ------------------------------------------------------------------------------------------------------ the output


def _gives_back(link: LinkFunction, chart: LevelSet, usual: float, spot: Spot) -> float | None:
    read = _read(link, chart, usual, spot.Z)
    if read is None:
        return None
    u, error = read
    at, sheets = points(link, chart, spot.x[:, None], u)
    there = _there(sheets, at[:, 0])
    jittered = points(link, chart, spot.x[:, None], _moved(u, error))[0][there, 0]
    at = at[there, 0]
    if not len(at):
        return None
    raw = link.raw(spot.Z[None])
    with np.errstate(all="ignore"):
        here, moved = link.raw(at), link.raw(jittered)
    allowed = _SAME * (1 + np.abs(raw)) + _ROUNDED * np.abs(np.nan_to_num(moved - here, nan=np.inf))
    return float(np.max(np.abs(here - raw) / allowed))


def moved_by_rounding(link: LinkFunction, chart: LevelSet, Z: np.ndarray) -> list[tuple[float, float]]:
    """(relative change of the coordinates of the output of fields Z, what the chart states) where every number of the
    output is moved by one unit of rounding: of the output itself, and of one of which only floats y are known."""
    rng, found = np.random.default_rng(3), []
    with np.errstate(all="ignore"):
        whole = link.observe(Z[None])
        y, ratios, scores = (_beside(numbers, rng) for numbers in (whole.y, whole.log_ratios, whole.scores))
        both = [(whole, Observation(y, ratios, whole.exact, scores=scores))]
        try:
            both.append((observation_from_array(whole.y, link), observation_from_array(_beside(whole.y, rng), link)))
        except InputError:  # entries that are zero to a float
            pass
        for pair in both:
            (own, good), (other, there) = (read_coordinates(chart, one) for one in pair)
            if good[0] and there[0] and own.values.size:
                change = np.abs(other.values - own.values).max() / max(np.abs(own.values).max(), 1e-300)
                found.append((float(change), float(own.relative_error[0])))
    return found


def _beside(numbers: np.ndarray | None, rng: np.random.Generator) -> Any:
    if numbers is None:
        return None
    factor = 1 + _EPS * rng.choice((-1.0, 1.0), numbers.shape)
    return np.where(np.isfinite(numbers), numbers * factor, numbers)


def _stated(link: LinkFunction, chart: LevelSet, Z: np.ndarray) -> float | None:
    """What rounding does beside what the chart states, and may; None where the chart says that nothing is known.

    Of fields that are zero, or alike, a sign of the coordinates may be decided by rounding, either way on a sheet: what
    holds beside them is enough.
    """
    rng, shares = np.random.default_rng(5), []
    for aside in (0.0, 1e-3, 1e-3):
        shares += [
            change / (_UNDERSTATED * (error + 2 * _EPS))
            for change, error in [_worst(moved_by_rounding(link, chart, Z + aside * rng.standard_normal(Z.shape)))]
            if error < _UNSURE
        ]
        if shares and shares[-1] <= 1:
            return shares[-1]
    return min(shares, default=None)


def _worst(found: list[tuple[float, float]]) -> tuple[float, float]:
    """The pair that is furthest from what it states; one that states nothing where there is none."""
    told = [pair for pair in found if np.isfinite(pair).all()]
    return max(told, key=lambda pair: pair[0] / (pair[1] + 2 * _EPS), default=(0.0, np.inf))


# ------------------------------------------------------------------------------------------------------ the fields


def _on_a_sheet(link: LinkFunction, chart: LevelSet, usual: float, Z: np.ndarray) -> float | None:
    gap = _gap(link, chart, usual, Z)
    if gap is None or gap < np.inf:
        return gap
    # Fields that are exactly zero, or alike, have no probability: a sheet that is missing is missing beside them too.
    beside = _gap(link, chart, usual, Z + _BESIDE * np.random.default_rng(5).standard_normal(Z.shape))
    return gap if beside is not None and beside == np.inf else None


def _gap(link: LinkFunction, chart: LevelSet, usual: float, Z: np.ndarray) -> float | None:
    """How far fields are from the nearest sheet of their output, over what is allowed; None where that is not told."""
    read = _read(link, chart, usual, Z)
    if read is None:
        return None
    u, error = read
    x, gaps = Z[list(chart.free_rows)].reshape(-1, 1), []
    for own in (u, _moved(u, error)):
        at, sheets = points(link, chart, x, own)
        gap = np.abs(at[:, 0] - Z).max(axis=(1, 2))
        gaps.append(float(np.where(_there(sheets, at[:, 0]), gap, np.inf).min()))
    near = _NEAR * (1 + float(np.abs(Z).max()))
    if not np.isfinite(gaps).all():
        return float(np.inf) if np.isinf(gaps).all() else None
    return gaps[0] / (near + 1e3 * abs(gaps[1] - gaps[0]))


# ----------------------------------------------------------------------------------------------------- the measure


def log_measures(link: LinkFunction, chart: LevelSet, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """(branches,): log-weight - log vol(dZ/d(coordinates, directions)) + log sqrt(pdet J J^T) at coordinates x (n,) of
    each sheet: by the co-area formula the same all over a level set.  NaN where differences do not tell."""
    steps = _STEP * np.eye(len(x))[:, :, None] * np.array([1, -1, 2, -2])
    # One call: a chart takes about as long for one point as for hundreds.
    asked = np.concatenate([x[:, None], x[:, None] + steps.reshape(len(x), 4 * len(x))], axis=1)
    on, sheets = points(link, chart, asked, u)
    at, count, entries = on[:, 0], asked.shape[1], link.fields * link.tokens
    there = _there(sheets, at, count)
    tangents, told = [], there.copy()
    for around in np.moveaxis(on[:, 1:].reshape(chart.branches, len(x), 4, entries), 1, 0):
        a, b, c, d = np.moveaxis(around, 1, 0)
        plain = (a - b) / (2 * _STEP)
        fine = (4 * plain - (c - d) / (4 * _STEP)) / 3
        with np.errstate(invalid="ignore"):
            told &= np.abs(fine - plain).max(axis=1) <= _CONVERGED * np.abs(fine).max(axis=1)
        tangents.append(fine)
    for k in range(chart.directions):
        along = np.zeros((chart.branches, link.fields, link.tokens))
        for branch, vectors in enumerate(sheets.directions):
            along[branch][list(chart.solved_rows)] = columns(vectors[k], count)[:, 0].reshape(-1, link.tokens)
        tangents.append(along.reshape(-1, entries))
    weight = np.broadcast_to(columns(sheets.log_weight, count)[:, 0], chart.branches).astype(float)
    latents = x[len(x) - len(chart.latents) :]
    weight = weight + sum(float(_LOG_SLOPE[k](v)) for k, v in zip(chart.latents, latents, strict=True))
    volume = np.zeros(chart.branches)
    if tangents and told.any():
        volume[told] = log_volume(np.stack(tangents, axis=1)[told], len(tangents))
    normal = np.full(chart.branches, np.nan)
    if told.any():
        normal[told] = log_normal(link, chart, at[told])
    return np.where(told, weight - volume + normal, np.nan)


def _even(link: LinkFunction, chart: LevelSet, usual: float, spot: Spot) -> float | None:
    read = _read(link, chart, usual, spot.Z)
    if read is None or read[1] > 1e-9:
        return None
    values = np.concatenate([log_measures(link, chart, x, read[0]) for x in (spot.x, spot.other)])
    values = values[np.isfinite(values)]
    return float(np.ptp(values)) / _EVEN if len(values) > 1 else None


# ---------------------------------------------------------------------------------------------------- as properties


def _chart_of(subject: Subject) -> tuple[LinkFunction, LevelSet, float] | Tried:
    """Link, chart, and how much the link moves at usual fields."""
    if subject.model.level_set is None:
        reason = "under noise there is none" if subject.model.noise else "no rule found a chart"
        return left_out(f"no chart: {reason}")
    link, chart = subject.model.charted, subject.model.level_set
    return link, chart, subject.once("usual size", lambda: usual_size(link, chart))


def _searched(subject: Subject, name: str, found: Found, unit: str, body: str) -> Tried:
    if found.holds is None:
        return left_out("rounding hides every case that was tried")
    shown, case = "", found.failing
    if isinstance(case, Spot):
        shown = lines(subject, _READ + body, Z=case.Z, x=case.x, other=case.other)
    elif case is not None:
        shown = lines(subject, _READ + body, Z=case)
    return Tried(found.number, unit, found.worst, None, found.holds, counterexample=shown)


def _output_comes_back(subject: Subject, level: float) -> Tried:
    of = _chart_of(subject)
    if isinstance(of, Tried):
        return of
    found = search(_spots(subject), lambda s: _gives_back(*of, s), subject.many(60), subject.number("level set"))
    return _searched(subject, "level-set", found, "points", _BACK)


def _no_sheet_is_missing(subject: Subject, level: float) -> Tried:
    of = _chart_of(subject)
    if isinstance(of, Tried):
        return of
    link, chart, usual = of
    # Latent coordinates have to be searched for: fewer fields, and none at all where that would take minutes.
    if chart.latents or chart.directions:
        return _searched_for(subject, link, chart)
    found = search(
        fields(link), lambda Z: _on_a_sheet(link, chart, usual, Z), subject.many(60), subject.number("sheets")
    )
    if found.holds:
        # Sheets that end too early lose one field in hundreds.
        return _searched_for(subject, link, chart, found)
    return _searched(subject, "sheets", found, "fields", _ON)


def _searched_for(subject: Subject, link: LinkFunction, chart: LevelSet, before: Found | None = None) -> Tried:
    """By :func:`smisym.charts.covering.coverage`, many fields at once."""
    if len(chart.latents) > 8:
        return left_out(f"{len(chart.latents)} latent coordinates to be searched for take too long")
    count = subject.many(1024 if not chart.latents else 24)
    found = coverage(link, chart, count, subject.number("coverage") % 2**31)
    if found.lost.any():
        Z = min(found.fields[found.lost], key=np.linalg.norm)
        body = "print(model.level_set.rule)  # no sheet of it holds Z: see smisym.charts.covering.coverage"
        shown = lines(subject, body if chart.latents else _READ + _ON, Z=Z)
        return Tried(found.judged, "fields", np.inf, None, False, f"{found.lost.sum()} on no sheet", shown)
    if not found.telling:
        return left_out("rounding hides more than half of the fields")
    worst = 0.0 if before is None else before.worst
    return Tried(found.judged + (0 if before is None else before.number), "fields", worst)


def _rounding_is_stated(subject: Subject, level: float) -> Tried:
    of = _chart_of(subject)
    if isinstance(of, Tried):
        return of
    link, chart, _ = of
    found = search(fields(link), lambda Z: _stated(link, chart, Z), subject.many(60), subject.number("rounding"))
    return _searched(subject, "rounding", found, "outputs", _ROUNDING)


def _measure_is_even(subject: Subject, level: float) -> Tried:
    of = _chart_of(subject)
    if isinstance(of, Tried):
        return of
    chart = of[1]
    if chart.shared or chart.pieces:
        return left_out("sheets share points, or differ in dimension: posteriors are held against the truth instead")
    found = search(_spots(subject), lambda s: _even(*of, s), subject.many(60), subject.number("measure"))
    if found.holds is None and not len(chart.free_rows) and chart.branches == 1:
        return left_out("a level set of one point has no measure")
    return _searched(subject, "measure", found, "pairs of points", _MEASURE)


PROPERTIES = (
    Property(
        "level-set",
        "Points of the chart, at random free coordinates, give the output back on every sheet.",
        "definition of a chart: smisym/charts/base.py",
        "seconds",
        False,
        _output_comes_back,
    ),
    Property(
        "rounding",
        "Rounding of an output moves its coordinates by no more than the chart states.",
        "definition of a chart: smisym/charts/base.py",
        "seconds",
        False,
        _rounding_is_stated,
    ),
    Property(
        "sheets",
        "The fields that an output was made from lie on one of the sheets: none is missing.",
        "definition of a chart: smisym/charts/base.py",
        "seconds",
        False,
        _no_sheet_is_missing,
    ),
    Property(
        "measure",
        "The weight of the chart is that of the co-area formula, by finite differences, on every sheet alike.",
        "co-area formula",
        "seconds",
        False,
        _measure_is_even,
    ),
)
