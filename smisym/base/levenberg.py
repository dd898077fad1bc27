"""Least squares by the method of Levenberg and Marquardt, many small problems side by side.

Each problem is its own: what another one does, or that it has ended, changes none of its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from smisym.base import patience
from smisym.base.matrices import solve_each

Values = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray | None]]
"""(which (n,), x (n, k)) -> residuals (n, m) of these problems and their slopes (n, m, k), None to have them asked for
where they are needed alone."""

Slopes = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(which, x, residuals there) -> slopes (n, m, k)."""


@dataclass(frozen=True)
class Rule:
    """By what steps are damped, in units of the mean eigenvalue of J^T J, or of its diagonal.

    first: at the beginning.  eased, tightened: factors after a step that lowered the sum of squares, and after one that
    did not; then at least ``least``.  gaussian: whether the unknowns are residuals too, beside the others.  least_norm:
    whether fewer equations than unknowns are solved, by the smallest step that does.
    """

    first: float = 1e-2
    eased: float = 0.1
    tightened: float = 8.0
    least: float = 1e-14
    diagonal: bool = False
    gaussian: bool = False
    least_norm: bool = False


class Tried(NamedTuple):
    """One step of the problems that are still followed, (n,) each but for residuals (n, m): those after it.

    before, after: sums of squares at the point and at the trial.  better: whether the trial was taken.
    damping: of the next step.  failed: how many trials running were not taken.  moved: whether there was a finite step.
    """

    which: np.ndarray
    residuals: np.ndarray
    before: np.ndarray
    after: np.ndarray
    better: np.ndarray
    damping: np.ndarray
    failed: np.ndarray
    moved: np.ndarray


class Refined(NamedTuple):
    """A point from which a step is wanted: which (n,), x (n, k), residuals and slopes there; ``solve`` gives what has
    to be taken off x to take residuals (n, m) away."""

    which: np.ndarray
    x: np.ndarray
    residuals: np.ndarray
    slopes: np.ndarray
    solve: Callable[[np.ndarray], np.ndarray]


# Many parameters: two pieces of the problem, two of the rule, and a hook each for steps and ends.
def descend(
    values: Values,
    x: np.ndarray,
    ends: Callable[[Tried], np.ndarray],
    *,
    steps: int,
    rule: Rule,
    slopes: Slopes | None = None,
    refine: Callable[[Refined], np.ndarray] | None = None,
    together: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points (n, k) after at most so many steps from x (n, k), residuals (n, m) there, and slopes (n, m, k) where the
    last step began.

    ends: which of the problems tried are followed no further, (n,) booleans.  refine: the step to take, by default
    -solve(residuals).  together: whether slopes are asked for all problems tried at once, or of those that moved.
    """
    which, x = np.arange(len(x)), x.copy()
    r, given = values(which, x)
    J = _slopes(slopes, which, x, r) if given is None else given
    out = x.copy(), r.copy(), J.copy()
    damping, failed = np.full(len(x), rule.first), np.zeros(len(x), dtype=int)
    before = _squares(x, r, rule)
    for _ in range(steps):
        patience.check()
        solve, moved = _damped(J, r, x, damping, rule)
        step = -solve(r) if refine is None else refine(Refined(which, x, r, J, solve))
        trial = x + step
        new_r, new_J = values(which, trial)
        after = _squares(trial, new_r, rule)
        better = after < before
        taken = better[:, None]
        x, r = np.where(taken, trial, x), np.where(taken, new_r, r)
        damping = np.where(better, rule.eased * damping, np.maximum(rule.tightened * damping, rule.least))
        failed = np.where(better, 0, failed + 1)
        keep = ~ends(Tried(which, r, before, after, better, damping, failed, moved))
        before = np.where(better, after, before)
        if not keep.all():
            for kept, new in zip(out, (x, r, J), strict=True):
                kept[which[~keep]] = new[~keep]
            which, x, r, J, better = which[keep], x[keep], r[keep], J[keep], better[keep]
            damping, failed, before = damping[keep], failed[keep], before[keep]
            if not len(which):
                break
            new_J = None if new_J is None else new_J[keep]
        if new_J is not None:
            J = np.where(better[:, None, None], new_J, J)
        elif together:
            J = _slopes(slopes, which, x, r)
        elif better.any():
            J[better] = _slopes(slopes, which[better], x[better], r[better])
    for kept, new in zip(out, (x, r, J), strict=True):
        kept[which] = new
    return out


def _squares(x: np.ndarray, r: np.ndarray, rule: Rule) -> np.ndarray:
    with np.errstate(all="ignore"):
        own = (r**2).sum(axis=1)
        return np.asarray((x**2).sum(axis=1) + own if rule.gaussian else own)


def _finite(array: np.ndarray) -> np.ndarray:
    """(n,) whether all of each problem's numbers are finite."""
    if np.isfinite(array.sum()):
        return np.ones(len(array), dtype=bool)
    return np.isfinite(array).reshape(len(array), -1).all(axis=1)


def _slopes(slopes: Slopes | None, which: np.ndarray, x: np.ndarray, r: np.ndarray) -> np.ndarray:
    assert slopes is not None, "values without slopes: give slopes too"
    return slopes(which, x, r)


def _damped(
    J: np.ndarray, r: np.ndarray, x: np.ndarray, damping: np.ndarray, rule: Rule
) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]:
    """What solves the damped equations (no step where they are not finite), and where they are finite (n,)."""
    with np.errstate(all="ignore"):
        normal = np.einsum("nmk,nlk->nml", J, J) if rule.least_norm else np.einsum("nmk,nml->nkl", J, J)
        K = normal.shape[1]
        eye = np.eye(K)
        normal = normal + eye if rule.gaussian else normal
        diagonal = np.einsum("nkk->nk", normal)
        if rule.diagonal:
            normal += (damping[:, None] * diagonal)[:, :, None] * eye
        else:
            size = diagonal.sum(axis=1) / K
            size = np.where(size > 0, size, 1.0)
            normal = normal / size[:, None, None] + damping[:, None, None] * eye
        good = _finite(normal) & _finite(r)
    normal[~good] = eye

    def solve(residuals: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            right = residuals if rule.least_norm else np.einsum("nmk,nm->nk", J, residuals)
            right = right + x if rule.gaussian else right
            right = right if rule.diagonal else right / size[:, None]
            usable = good & _finite(right)
            found = solve_each(normal, np.where(usable[:, None], right, 0.0))
            found = np.einsum("nmk,nm->nk", J, found) if rule.least_norm else found
            return np.where((usable & _finite(found))[:, None], found, 0.0)

    return solve, good
