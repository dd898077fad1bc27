"""Weak thresholds put back into the two equations that each solves, on a map of few samples.

    Q is a fixed point at alpha,     growth(Q, alpha) = 1

The map has few samples, so that it costs next to nothing; what it tells is no better than its own errors, which are
kept beside.  A first threshold by quadrature is held against samples in this way, for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from smisym.base.errors import OutOfTime
from smisym.base.solution import Result, mean_and_error
from smisym.base.threshold import Threshold
from smisym.theory.aim import pilot
from smisym.theory.collecting import perfect_part
from smisym.theory.controls import controlled
from smisym.theory.growth import class_rate, coupled_classes
from smisym.theory.linearised import Equation, Local, placed
from smisym.theory.maps import OverlapMap
from smisym.theory.sentinel import CHANCE, NOTHING, Agreement, agreement
from smisym.theory.stage import Stage
from smisym.theory.told import shares

# Stated errors of a threshold, relative to it, that the growth there may be off by.
_STATED = 5.0
Met = tuple[Stage, Threshold]


def checked(omap: OverlapMap, met: Sequence[Met]) -> tuple[dict[str, Any], list[Result]]:
    """(checks, codes) of the weak thresholds among these, in the order in which they are met.

    Checks: "nishimori", the worst :class:`~smisym.theory.sentinel.Agreement` of them as a record; "residual" and
    "residual_error", what is left of the fixed point's equation in the unit of the overlap, its largest entry, and the
    standard error of that; "growth" and "growth_error", of what begins to grow there, less one.  A number for each weak
    threshold; nan where that was met in a jump, so that there is no such point, or no time was left.
    """
    weak = [number for number, (stage, _) in enumerate(met) if not stage.trivial]
    numbers = np.full((len(weak), 4), math.nan)
    worst, codes = NOTHING, list[Result]()
    for row, number in enumerate(weak):
        before = met[number - 1][0] if number else None
        try:
            found = _put_back(omap, *met[number], before)
        except OutOfTime:
            break
        if found is None:
            continue
        numbers[row], seen = found
        worst = min(worst, seen, key=lambda one: (one.p, -one.degrees_of_freedom))
        codes += _judged(numbers[row], seen, met[number][1], omap.scrambles - 1)
    if not weak:
        return {}, codes
    names = ("residual", "residual_error", "growth", "growth_error")
    columns = {name: tuple(column) for name, column in zip(names, numbers.T.tolist(), strict=True)}
    return {"nishimori": worst.record(), **columns}, codes


def _put_back(
    omap: OverlapMap, stage: Stage, threshold: Threshold, before: Stage | None
) -> tuple[np.ndarray, Agreement] | None:
    """((4,) residual and its error, growth less one and its error; agreement of the estimators)."""
    few = omap.sibling(min(omap.samples, pilot(omap.model, omap.scrambles)))
    if before is None:
        # What was not sampled is held against all samples, which were looked at to find what grows.
        few = omap if threshold.samples is None else few
        estimates = few.evaluate(np.zeros_like(stage.Q))
        if stage.told:
            each = list(threshold.alpha * shares(omap.model, estimates, stage.pivot))
        else:
            rates = controlled([estimate.beside for estimate in estimates])
            each = [threshold.alpha * class_rate(of_one, stage.members) for of_one in rates]
        return np.array([0.0, 0.0, *_less_one(each)]), agreement(few, estimates)
    if stage.rates is None or stage.rates[0] == 0:
        return None
    known = perfect_part(threshold.Q)
    Q, alpha = placed(threshold.Q, known), threshold.alpha
    found: list[Local] = few.each(lambda r: Equation(few, r).at(Q, alpha, known))
    parts = omap.model.symmetry.parts
    idle = np.flatnonzero(~before.active[parts])
    rates = np.array([here.jacobian[np.ix_(idle, idle)] for here in found])
    classes = coupled_classes(rates.mean(axis=0), parts[idle])
    members = next(one for one in classes if stage.pivot in parts[idle[one]])
    each = [class_rate(of_one, members) for of_one in rates]
    left = [_left(here, ~np.isin(np.arange(len(parts)), idle)) for here in found]
    mean, error = mean_and_error(np.array(left))
    most = np.unravel_index(int(np.abs(mean).argmax()), mean.shape)
    return (
        np.array([abs(mean[most]), error[most], *_less_one(each)]),
        agreement(few, [here.estimate for here in found]),
    )


def _left(here: Local, on: np.ndarray) -> np.ndarray:
    """(P, P): what the equation leaves of coordinates (k,) that are learned, in the unit of the overlap."""
    return here.in_overlap(np.where(on, here.residual, 0.0))


def _less_one(growth: Sequence[float]) -> tuple[float, float]:
    mean, error = mean_and_error(np.array(growth))
    return float(mean) - 1, float(error)


def _judged(numbers: np.ndarray, seen: Agreement, threshold: Threshold, freedom: int) -> list[Result]:
    codes = [] if seen.holds else [Result.NISHIMORI]
    _, _, growth, error = numbers
    excess = abs(growth) - _STATED * threshold.error / threshold.alpha
    if excess > 0 and error > 0 and 2 * special.stdtr(freedom, -excess / error) < CHANCE:
        codes.append(Result.INCONSISTENT)
    return codes
