"""Least squares by the method of Levenberg and Marquardt, many small problems side by side.

Each problem is its own: what another one does, or that it has ended, changes none of its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

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
    x, live = x.copy(), np.arange(len(x))
    r, given = values(live, x)
    J = _slopes(slopes, live, x, r) if given is None else given
    kept_r, kept_J = r.copy(), J.copy()
    damping, failed = np.full(len(x), rule.first), np.zeros(len(x), dtype=int)
    for _ in range(steps):
        here = x[live]
        solve, moved = _damped(J, r, here, damping[live], rule)
        step = -solve(r) if refine is None else refine(Refined(live, here, r, J, solve))
        trial = here + step
        new_r, new_J = values(live, trial)
        with np.errstate(all="ignore"):
            before, after = _squares(here, r, rule), _squares(trial, new_r, rule)
            better = after < before
        taken = live[better]
        x[taken] = trial[better]
        r = np.where(better[:, None], new_r, r)
        kept_r[taken] = r[better]
        scaled = damping[live]
        damping[live] = np.where(better, rule.eased * scaled, np.maximum(rule.tightened * scaled, rule.least))
        failed[live] = np.where(better, 0, failed[live] + 1)
        keep = ~ends(Tried(live, r, before, after, better, damping[live], failed[live], moved))
        if not keep.any():
            break
        if new_J is not None:
            J = np.where(better[:, None, None], new_J, J)
        live, r, J, better = live[keep], r[keep], J[keep], better[keep]
        if new_J is None and together:
            J = _slopes(slopes, live, x[live], r)
        elif new_J is None and better.any():
            J[better] = _slopes(slopes, live[better], x[live[better]], r[better])
        kept_J[live] = J
    return x, kept_r, kept_J


def _squares(x: np.ndarray, r: np.ndarray, rule: Rule) -> np.ndarray:
    own = (r**2).sum(axis=1)
    return np.asarray((x**2).sum(axis=1) + own if rule.gaussian else own)


def _slopes(slopes: Slopes | None, which: np.ndarray, x: np.ndarray, r: np.ndarray) -> np.ndarray:
    if slopes is None:
        raise TypeError("values without slopes: give slopes too")
    return slopes(which, x, r)


def _damped(
    J: np.ndarray, r: np.ndarray, x: np.ndarray, damping: np.ndarray, rule: Rule
) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]:
    """What solves the damped equations (no step where they are not finite), and where they are finite (n,)."""
    turned = np.swapaxes(J, 1, 2)
    with np.errstate(all="ignore"):
        normal = np.einsum("nmk,nlk->nml", J, J) if rule.least_norm else np.einsum("nmk,nml->nkl", J, J)
        K = normal.shape[1]
        normal = normal + np.eye(K) if rule.gaussian else normal
        diagonal = np.einsum("nkk->nk", normal)
        size = np.ones(len(J)) if rule.diagonal else diagonal.sum(axis=1) / K
        size = np.where(size > 0, size, 1.0)
        weights = diagonal if rule.diagonal else np.ones((len(J), K))
        normal = normal / size[:, None, None] + (damping[:, None] * weights)[:, :, None] * np.eye(K)
        good = np.isfinite(normal).all(axis=(1, 2)) & np.isfinite(r).all(axis=1)
    normal[~good] = np.eye(K)

    def solve(residuals: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            right = residuals if rule.least_norm else np.einsum("nkm,nm->nk", turned, residuals)
            right = (right + x if rule.gaussian else right) / size[:, None]
            usable = good & np.isfinite(right).all(axis=1)
            found = solve_each(normal, np.where(usable[:, None], right, 0.0))
            found = np.einsum("nkm,nm->nk", turned, found) if rule.least_norm else found
            return np.where(usable[:, None] & np.isfinite(found).all(axis=1, keepdims=True), found, 0.0)

    return solve, good
