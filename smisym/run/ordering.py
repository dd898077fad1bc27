"""The order of transitions: whether an overlap grows smoothly where it begins, or jumps because its branch folds.

Told from branches of fixed points that were followed through their folds (:func:`smisym.phases`), as records in plain
JSON types.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]

SECOND, FIRST, UNKNOWN = "second order", "first order", "not looked for"
# A branch that turns back in so few points, or so near in alpha, does so at its threshold.
_AT_ONCE, _NEAR = 1, 0.02
# Where perfect recovery is reached above where it is stable: by so many errors, and so much relative to alpha.
_ERRORS, _APART = 4.0, 0.01


def orders(met: Sequence[Record], branches: Sequence[Record] | None) -> list[str]:
    """One word for each threshold, in the order in which they are met.

    "first order" where its branch turns back at once, "second order" where it goes on to larger alpha, "not looked for"
    where no branch of it was followed.  Nothing begins at a threshold of kind trivial, at alpha = 0, or hard, at none.
    branches: records of :func:`smisym.run.records.phases`, None where none were followed; those that begin weakly are
    in the order of their thresholds.
    """
    weak = [one for one in branches or () if one["begins"] == "weak"]
    count = sum(one["kind"] == "weak" for one in met)
    if any(one["kind"] == "trivial" for one in met) and len(weak) > count:
        weak = weak[1:]  # of what is learned at any alpha
    left = iter(weak)
    return [_order(next(left, None)) if one["kind"] == "weak" else "" for one in met]


def _order(branch: Record | None) -> str:
    if branch is None or len(branch["alphas"]) <= _AT_ONCE:
        return UNKNOWN
    return FIRST if _turns_at_once(branch) else SECOND


def _turns_at_once(branch: Record) -> bool:
    first = branch["turns"][0] if branch["turns"] else math.inf
    if first == math.inf:
        return False
    alphas = branch["alphas"]
    return bool(first <= _AT_ONCE or abs(alphas[first] - alphas[0]) < _NEAR * alphas[0])


def hard_phases(
    counted: Record, reached: Record | None, folds: Sequence[Record], branches: Sequence[Record]
) -> list[list[float | None]]:
    """Pairs [from, to] of alpha between which more is known in principle than what the algorithm finds.

    From where Q = I is stable to where it is reached, if these differ; and from where the optimum changes branch to
    where the branch that is followed from nothing folds, or begins.  None at the end: it never ends. counted, reached:
    the thresholds of perfect recovery, by counting and of state evolution.  folds: records of kinds spinodal and
    information.
    """
    found: list[list[float | None]] = []
    stable = counted.get("alpha")
    if stable is not None and reached is not None:
        until = reached["alpha"]
        error = math.hypot(reached["error"] or 0.0, counted["error"] or 0.0)
        if until is None or until - stable > max(_ERRORS * error, _APART * stable):
            found.append([stable, until])
    turning = [one["alpha"] for one in folds if one["kind"] == "spinodal"]
    for branch in branches:
        if branch["begins"] != "weak" or not branch["turns"]:
            continue
        last = max(branch["alphas"][branch["turns"][0]], branch["alphas"][0])
        # A fold is known better than the points beside it.
        last = _nearest(turning, last)
        better = [one["alpha"] for one in folds if one["kind"] == "information" and one["alpha"] < last]
        if better and not any(_overlap([better[0], last], other) for other in found):
            found.append([max(better), last])
    return sorted(found, key=lambda one: one[0] or 0.0)


def _nearest(alphas: Sequence[float], alpha: float) -> float:
    return min(alphas, key=lambda one: abs(one - alpha), default=alpha)


def _overlap(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    (a, b), (c, d) = ((first or 0.0, math.inf if last is None else last) for first, last in (one, other))
    return a < d and c < b
