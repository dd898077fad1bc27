"""Values that outputs take with a probability of their own, as signs do: which sheets an output that has one is on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from smisym.charts.base import Arrays

# How far an output may be from one of its constant values, relative to that and to how much the output varies.
_EQUAL = 1e-9
# The constant values of a sheet, by the number of the output that has them.
Constants = dict[int, float]


def only_there(constants: Constants, units: np.ndarray, u: Arrays, weight: np.ndarray) -> np.ndarray:
    """The log-weight of a sheet, which carries no mass where an output has another value than it has there."""
    for k, value in constants.items():
        weight = np.where(_at(u[k], value, units[k]), weight, -np.inf)
    return weight


def preferred(sheets: Sequence[Constants], units: np.ndarray, u: Arrays, weights: Arrays) -> Arrays:
    """Log-weights: where an output has one of its constant values, sheets on which that output varies carry no mass."""
    atoms: dict[int, set[float]] = {}
    for constants in sheets:
        for k, value in constants.items():
            atoms.setdefault(k, set()).add(value)
    for k, values in atoms.items():
        at = np.zeros((), dtype=bool)
        for value in values:
            at = at | _at(u[k], value, units[k])
        weights = [w if k in own else np.where(at, -np.inf, w) for w, own in zip(weights, sheets, strict=True)]
    return weights


def _at(u: np.ndarray, value: float, unit: float) -> Any:
    return np.abs(u - value) <= _EQUAL * (unit + abs(value))
