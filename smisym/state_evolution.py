"""Fixed points of state evolution, Q = Q_hat (I + Q_hat)^{-1} with Q_hat = alpha E(Q) + side information.

Every scramble of the overlap map is a smooth deterministic map and is solved on its own; the spread of
the solutions is the statistical error.  (arXiv 2502.00901, eq. 14; the derivative of E is exact, see
:class:`smisym.overlap_map.Estimate`.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from smisym.edge import check_alpha, check_count, check_number
from smisym.errors import InputError
from smisym.model import Model
from smisym.overlap_map import Estimate, OverlapMap, as_map
from smisym.solution import Result, Solution, mean_and_error, worst

STARTS = ("symmetry-broken", "uninformed", "informed")
# Largest eigenvalue of V below which an overlap is perfect to rounding of the fields.
PERFECT = 1e-9
# First overlap along an unstable direction: the limit of vanishing side information is a start along it.
KICK = 0.02
INFORMED = 1e-3


@dataclass(frozen=True)
class FixedPoint:
    """A fixed point of state evolution at one alpha.

    Q, Q_error (P, P): mean over the scrambles and its standard error.  Q_hat (P, P): alpha E(Q), infinite entries
    at perfect recovery.  overlaps (R, k): each scramble's solution in the invariant coordinates.
    start: where the iteration began.  stable (R,): whether small overlaps in all invariant directions shrink back.
    potential (R,): E log Zout at each scramble's solution, NaN where it is perfect.
    """

    alpha: float
    Q: np.ndarray
    Q_error: np.ndarray
    Q_hat: np.ndarray
    overlaps: np.ndarray
    start: str
    side_information: float
    stable: np.ndarray
    potential: np.ndarray

    @property
    def perfect(self) -> bool:
        """Whether every scramble reached Q = I to rounding."""
        return bool(np.abs(self.Q - np.eye(len(self.Q))).max() == 0.0)


@dataclass
class _Run:
    """One scramble's solve."""

    Q: np.ndarray
    E: np.ndarray
    result: Result
    stable: bool
    history: list[dict[str, Any]]
    inner_error: float
    potential: float = math.nan


def state_evolution(
    model: Model | OverlapMap,
    alpha: float,
    *,
    start: str = "symmetry-broken",
    side_information: float = 0.0,
    warm: FixedPoint | None = None,
    tol: float = 1e-4,
    max_steps: int = 400,
    callback: Callable[[dict[str, Any]], object] | None = None,
    **settings: Any,
) -> Solution:
    """The fixed point that state evolution reaches at ``alpha``; ``Solution.value`` is a :class:`FixedPoint`.

    start
        "symmetry-broken": the limit of vanishing side information (kicked along every unstable direction in turn);
        "uninformed": exactly Q = 0, where an even model stays; "informed": near Q = I.
    side_information
        Strength lam >= 0 of an extra observation sqrt(lam) W + noise.
    warm
        A solution at a smaller alpha to continue from (symmetry-broken only); results agree within ``tol``.
    tol
        On the largest change of an overlap, relative to what is left to learn in it.
    settings
        Of the overlap map when ``model`` is a Model: samples, scrambles, seed, rtol, workers.

    Result: SUCCESS, MAX_STEPS, DIVERGED or INTEGRATION.  Raises InputError for bad arguments.
    """
    _check(alpha, start, side_information, tol, max_steps)
    omap = as_map(model, **settings)
    _check_warm(warm, omap)

    def solve(r: int) -> _Run:
        return _solve(omap, r, float(alpha), float(side_information), start, warm, tol, max_steps)

    runs: list[_Run] = omap.each(solve)
    if callback is not None:
        for r, run in enumerate(runs):
            for record in run.history:
                callback({"scramble": r, **record})
    return _collect(omap, runs, float(alpha), start, float(side_information), tol)


def _collect(
    omap: OverlapMap, runs: Sequence[_Run], alpha: float, start: str, side_information: float, tol: float
) -> Solution:
    symmetry = omap.model.symmetry
    stacked = np.array([run.Q for run in runs])
    Q, error = mean_and_error(stacked)
    perfect = bool((stacked == np.eye(len(Q))).all())
    E = np.mean([run.E for run in runs], axis=0)
    Q_hat = np.diag(np.full(len(Q), np.inf)) if perfect else alpha * E
    point = FixedPoint(
        alpha,
        Q,
        error,
        Q_hat,
        symmetry.coordinates(stacked),
        start,
        side_information,
        np.array([run.stable for run in runs]),
        np.array([run.potential for run in runs]),
    )
    return Solution(
        point,
        worst([run.result for run in runs]),
        statistical_error=error,
        deterministic_error=float(max(run.inner_error for run in runs)) * np.abs(np.eye(len(Q)) - Q).max(),
        degrees_of_freedom=len(runs) - 1,
        history=tuple({"scramble": r, **record} for r, run in enumerate(runs) for record in run.history),
        settings={**omap.settings(), "start": start, "side_information": side_information, "tol": tol},
    )


def _solve(
    omap: OverlapMap,
    r: int,
    alpha: float,
    lam: float,
    start: str,
    warm: FixedPoint | None,
    tol: float,
    max_steps: int,
) -> _Run:
    symmetry, P = omap.model.symmetry, omap.model.fields
    eye = np.eye(P)
    if warm is not None and start == "symmetry-broken":
        Q = symmetry.matrix(warm.overlaps[r])
        if np.abs(Q - eye).max() == 0.0:
            return _Run(eye, np.zeros((P, P)), Result.SUCCESS, True, [], 0.0)
    else:
        Q = (1 - INFORMED) * eye if start == "informed" else np.zeros((P, P))
    run = _Run(Q, np.zeros((P, P)), Result.MAX_STEPS, False, [], 0.0)
    gain, previous, before = 1.0, None, np.zeros(len(symmetry.basis))
    for step in range(max_steps):
        estimate = omap.at(r, Q)
        if not np.isfinite(estimate.E).all():
            run.result = Result.DIVERGED
            return run
        run.Q, run.E, run.potential = Q, estimate.E, estimate.log_partition
        run.inner_error = max(run.inner_error, estimate.inner_error)
        change, jacobian, target = _step(omap, estimate, alpha, lam)
        left = max(float(np.linalg.eigvalsh(eye - Q)[-1]), 1e-300)
        size = float(np.abs(change).max())
        run.history.append({"step": step, "overlaps": symmetry.coordinates(Q).tolist(), "change": size})
        radius, direction = _top(jacobian, _idle(symmetry.basis, Q))
        if size <= tol * left:
            if radius <= 1 + 1e-9 or start == "uninformed":
                run.stable = bool(radius <= 1 + 1e-9)
                run.result = Result.SUCCESS if estimate.accurate else Result.INTEGRATION
                return run
            # A fixed point that vanishing side information leaves: go on along its unstable direction.
            Q = Q + KICK * _positive(symmetry.matrix(direction))
            gain, previous = 1.0, None
            continue
        if float(np.linalg.eigvalsh(eye - target)[-1]) < PERFECT:
            run.Q, run.stable, run.result, run.potential = eye.copy(), True, Result.SUCCESS, math.nan
            return run
        q = symmetry.coordinates(Q)
        if previous is not None and float(previous @ change) < 0:
            # Jumped over the solution (the slope of E is estimated with noise): it lies between, where the secant says.
            share = float(previous @ previous) / float(previous @ previous - previous @ change)
            Q, gain = symmetry.matrix(before + share * (q - before)), 1.0
        else:
            Q, gain = _next(q, change, jacobian, symmetry, gain, previous)
        previous, before = change, q
    return run


def _check(alpha: float, start: str, side_information: float, tol: float, max_steps: int) -> None:
    check_alpha(alpha)
    if not isinstance(start, str) or start not in STARTS:
        raise InputError("start", start, f"one of {', '.join(STARTS)}", "leave it out for symmetry-broken")
    check_number("side_information", side_information, "a finite number >= 0", "leave it out for none", least=0.0)
    if not check_number("tol", tol, "a positive number", "leave it out for the default") > 0:
        raise InputError("tol", tol, "a positive number", "leave it out for the default")
    check_count("max_steps", max_steps, 1)


def _check_warm(warm: FixedPoint | None, omap: OverlapMap) -> None:
    """InputError unless this is a fixed point of the same model with as many scrambles."""
    if warm is None:
        return
    shape = (omap.scrambles, len(omap.model.symmetry.basis))
    if not isinstance(warm, FixedPoint) or np.shape(warm.overlaps) != shape:
        given = f"overlaps of shape {np.shape(warm.overlaps)}" if isinstance(warm, FixedPoint) else warm
        raise InputError(
            "warm",
            given,
            f"a FixedPoint of the same model with overlaps of shape {shape}, scrambles by invariant directions",
            "pass the value of a Solution, solution.value, of the same model and scrambles",
        )


def _step(omap: OverlapMap, estimate: Estimate, alpha: float, lam: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """F(Q) - Q and dF/dQ in the invariant coordinates, and F(Q) itself."""
    symmetry = omap.model.symmetry
    eye = np.eye(len(estimate.Q))
    rest = np.linalg.inv(eye + alpha * symmetry.project(estimate.E) + lam * eye)
    target = eye - rest
    columns = [symmetry.coordinates(rest @ (alpha * estimate.derivative(B)) @ rest) for B in symmetry.basis]
    return symmetry.coordinates(target - estimate.Q), np.array(columns).T, target


def _idle(basis: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """Which basis matrices live where nothing is learned yet."""
    silent = ~(np.abs(Q) > 0).any(axis=1)
    outside = ~np.outer(silent, silent)
    return np.array([not np.abs(B[outside]).any() for B in basis])


def _top(jacobian: np.ndarray, idle: np.ndarray) -> tuple[float, np.ndarray]:
    """Largest growth rate among the idle directions and its eigenvector."""
    direction = np.zeros(len(jacobian))
    if not idle.any():
        return 0.0, direction
    values, vectors = np.linalg.eig(jacobian[np.ix_(idle, idle)])
    top = int(values.real.argmax())
    direction[idle] = vectors[:, top].real
    return float(values[top].real), direction


def _positive(M: np.ndarray) -> np.ndarray:
    """The sign and scale of an eigenvector that make it positive semi-definite with largest eigenvalue one."""
    values = np.linalg.eigvalsh(M)
    if abs(values[0]) > abs(values[-1]):
        M, values = -M, -values[::-1]
    lowest = min(float(values[0]), 0.0)
    return (M - lowest * np.eye(len(M)) * (np.abs(M).sum(axis=1) > 0)) / (values[-1] - lowest)


def _next(
    q: np.ndarray,
    change: np.ndarray,
    jacobian: np.ndarray,
    symmetry: Any,
    gain: float,
    previous: np.ndarray | None,
) -> tuple[np.ndarray, float]:
    """Newton where the map contracts, else plain steps that lengthen while they keep pointing the same way."""
    active = np.abs(q) > 0
    small = jacobian[np.ix_(active, active)]
    radius = np.abs(np.linalg.eigvals(small)).max() if active.any() else 0.0
    if active.any() and radius < 0.97:
        step = np.zeros_like(q)
        step[active] = np.linalg.solve(np.eye(int(active.sum())) - small, change[active])
        trial = symmetry.matrix(q + step)
        if _inside(trial, symmetry.matrix(q)):
            return trial, 1.0
    gain = min(2 * gain, 16.0) if previous is not None and float(previous @ change) > 0 else 1.0
    while gain > 1:
        trial = symmetry.matrix(q + gain * change)
        if _inside(trial, symmetry.matrix(q)):
            return trial, gain
        gain /= 2
    return symmetry.matrix(q + change), 1.0


def _inside(trial: np.ndarray, Q: np.ndarray) -> bool:
    """Within 0 <= Q < I, leaving at least a hundredth of what there was left to learn."""
    if np.linalg.eigvalsh(trial)[0] < -1e-14:
        return False
    V = np.eye(len(Q)) - Q
    return bool(np.linalg.eigvalsh(np.eye(len(Q)) - trial - 0.01 * V)[0] >= 0)
