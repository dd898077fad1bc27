"""Chance: t tests of means that should vanish, and the share of false alarms that each may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from smisym.base import patience

# Chance of a false alarm of the whole suite.
SUITE = 1e-3
# A first sample with a chance below this asks for a second one, which alone is the verdict, of so many times the size.
_SUSPECT, _LARGER = 0.02, 4
# Independent draws are averaged in so many groups, whose means are close to normal.
_GROUPS = 32


@dataclass(frozen=True)
class Verdict:
    """t: the largest of all comparisons.  p: its chance, after Bonferroni.  which: the comparison.  number: of values
    in the sample that decided.  error: the largest standard error.  stage: 1, or 2 where a second sample was asked."""

    t: float
    p: float
    which: int
    number: int
    error: float
    stage: int


def means_vanish(values: np.ndarray, allowed: np.ndarray | float = 0.0, sides: int = 2) -> Verdict:
    """Whether means over the first axis of values (R, k), independent draws, vanish up to ``allowed`` (k,).

    sides: 2, or 1 where only means below zero are wrong.  A value that is not finite has no chance.
    """
    values = np.asarray(values, dtype=float).reshape(len(values), -1)
    if not np.isfinite(values).all():
        return Verdict(np.inf, 0.0, int(np.argmax(~np.isfinite(values).all(axis=0))), len(values), np.inf, 1)
    mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return from_means(mean, error, len(values), allowed, sides)


def from_means(
    mean: np.ndarray, error: np.ndarray, number: int, allowed: np.ndarray | float = 0.0, sides: int = 2
) -> Verdict:
    """The same of means (k,) and standard errors (k,) of so many independent draws."""
    beyond = np.maximum((np.abs(mean) if sides == 2 else -mean) - allowed, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(beyond > 0, beyond / error, 0.0)
    which = int(t.argmax())
    p = min(1.0, sides * t.size * float(special.stdtr(number - 1, -t[which]))) if t[which] > 0 else 1.0
    return Verdict(float(t[which]), p, which, number, float(np.max(error)), 1)


def groups(values: np.ndarray) -> np.ndarray:
    """Means (32, k) of groups of independent draws (n, k); all of them where there are not twice as many."""
    n = len(values) // _GROUPS
    return values if n < 2 else values[: n * _GROUPS].reshape(_GROUPS, n, -1).mean(axis=1)


def in_two_stages(test: Callable[[int, int], Verdict]) -> Verdict:
    """A test at a small sample and, where that is suspicious, at a larger one of other draws, which alone counts.

    test: (number of the sample, how many times the usual size) -> Verdict.  A false alarm of the whole has at most the
    chance of one of the second test, which is made once at most.
    """
    first = test(0, 1)
    if first.p >= _SUSPECT:
        return first
    try:
        second = test(1, _LARGER)
    except patience.Over as over:
        # No smaller sample may stand in for the one that was asked for.
        over.add_note(f"a sample has a chance of {first.p:.2g}, and there was no time for one {_LARGER} times as large")
        raise
    return Verdict(second.t, second.p, second.which, second.number, second.error, 2)
