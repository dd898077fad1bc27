"""Fixed points of state evolution, Q = Q_hat (I + Q_hat)^{-1} with Q_hat = alpha E(Q) + side information.

Every scramble of the overlap map is a smooth deterministic map and is solved on its own
(:mod:`smisym.theory.fixed_point`); the spread of the solutions is the statistical error.  What is reported was put back
into the equation: the step that Newton's method would still make there is the deterministic error, in the unit of Q.
(arXiv 2502.00901, eq. 14.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smisym.base.edge import check_alpha, check_count, check_number
from smisym.base.errors import InputError, OutOfTime
from smisym.base.solution import Result, Solution, mean_and_error, worst
from smisym.model.compiled import Model
from smisym.theory.aim import Aim, aimed, search
from smisym.theory.fixed_point import FINE, NEARLY, put_back, solve
from smisym.theory.linearised import UNSTABLE, Equation, Local, placed
from smisym.theory.maps import OverlapMap
from smisym.theory.point import Point
from smisym.theory.sentinel import agreement, judged, outlying, sound
from smisym.theory.taking_over import alike, closer
from smisym.theory.unshown import finer, of_idle, of_integrals

STARTS = ("symmetry-broken", "uninformed", "informed")
# What a scramble may leave of a direction that others know perfectly.
_NEITHER = 0.01
# Standard errors above one from which on growth is clear.
_CLEARLY = 3.0
# What an informed start leaves to learn.
INFORMED = 1e-3
# Tolerance beside the accuracy asked for, and its bounds.
_SHARE, _FINEST, _COARSEST = 0.1, 1e-6, 5e-3


@dataclass(frozen=True)
class FixedPoint:
    """A fixed point of state evolution at one alpha.

    Q, Q_error (P, P): mean over the scrambles and its standard error, which of a success also holds what outputs too
    rare for any of the points to show would change.  Q_hat (P, P): alpha E(Q), infinite entries at perfect recovery,
    of everything or of some directions.  overlaps (R, k): each scramble's solution in the
    invariant coordinates.  start: where the iteration began.  stable (R,): whether small overlaps in all invariant
    directions shrink back.  potential (R,): E log Zout at each scramble's solution, NaN where any direction is perfect.
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

    def __repr__(self) -> str:
        rows = np.array2string(np.diag(self.Q), precision=4, separator=", ", threshold=8)
        return f"FixedPoint(alpha={self.alpha:g}, start={self.start!r}, diagonal of Q={rows})"

    @property
    def perfect(self) -> bool:
        """Whether every scramble reached Q = I to rounding."""
        return bool(np.abs(self.Q - np.eye(len(self.Q))).max() == 0.0)


# Many parameters: settings, all by keyword.
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
    accuracy: float | None = None,
    most_samples: int | None = None,
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
        On the largest change of an overlap, relative to what is left to learn in it; with an accuracy at most a tenth
        of that.
    accuracy, most_samples
        The largest error of any entry of Q, statistical and deterministic together, in the unit of Q, and how many
        samples of one evaluation it may take (None: 2^22, fewer where posteriors are large): solved again on maps of
        the same seed with more samples until the error that is stated is so small (:mod:`smisym.theory.aim`).  The
        error then also holds what inner integrals change when they are refined (``checks["integrals"]``, in the
        deterministic one) and what directions that seem idle may hold (``checks["idle"]``).  ``checks["tries"]``:
        samples and errors on the way.  A map's own samples are those of the first try.
    settings
        Of the overlap map when ``model`` is a Model: samples, scrambles, seed, rtol, workers.

    Result: SUCCESS, MISSED where the accuracy was not reached, MAX_STEPS, DIVERGED or INTEGRATION; RESIDUAL where the
    overlap does not solve its equation to within the larger of its statistical error and the smaller of ``tol`` and
    2e-4; NISHIMORI where the estimators of E disagree; INCONSISTENT where one scramble is no draw from what the others
    show; NOISY where some scrambles know a direction perfectly and others are on another branch, and where the mean of
    all maps has its fixed point farther from the mean of their fixed points than the statistical error
    (``checks["bias"]``: near a fold every scramble rests too early), and where something clearly grows at that mean of
    which no scramble learned anything.
    Raises InputError for bad arguments.
    """
    _check(alpha, start, side_information, tol, max_steps)
    omap, aim = aimed(model, accuracy, most_samples, **settings)
    _check_warm(warm, omap)
    tol = tol if aim is None else min(tol, tolerance(aim))

    def task(r: int) -> Point:
        return _solve(omap, r, float(alpha), float(side_information), start, warm, tol, max_steps)

    omap.what = f"state evolution at alpha = {alpha:g}"
    points: list[Point] = omap.each(task)
    if callback is not None:
        for r, point in enumerate(points):
            for record in point.history:
                callback({"scramble": r, **record})
    found = collect(omap, points, start, tol)
    if aim is None:
        return found

    def again(larger: OverlapMap, before: Sequence[Point]) -> list[Point]:
        if start == "symmetry-broken" and not side_information:
            return closer(larger, before, tol)
        once_more: list[Point] = larger.each(
            lambda r: _solve(larger, r, float(alpha), float(side_information), start, None, tol, max_steps)
        )
        return once_more

    return refined(omap, aim, points, found, again)


def tolerance(aim: Aim) -> float:
    """Of fixed points that are to be so accurate, relative to what is left to learn."""
    return min(max(_SHARE * aim.accuracy, _FINEST), _COARSEST)


def refined(
    omap: OverlapMap,
    aim: Aim,
    points: list[Point],
    found: Solution,
    again: Callable[[OverlapMap, Sequence[Point]], list[Point]],
) -> Solution:
    """The solution of a map of as many samples as the accuracy takes, by way of others with fewer.

    points, found: of the first map.  again: the points of a map with more samples, from those with fewer.
    """
    start, tol, what = found.settings["start"], found.settings["tol"], omap.what
    at: list[tuple[OverlapMap, list[Point]]] = [(omap, points)]

    def more(samples: int, finer_integrals: bool) -> Solution:
        smaller, before = at[-1]
        larger = omap.sibling(samples, rtol=finer(smaller) if finer_integrals else smaller.rtol)
        omap.what = f"{what}, {samples} samples"
        at.append((larger, again(larger, before)))
        return _doubted(*at[-1], collect(*at[-1], start, tol))

    try:
        first = _doubted(omap, points, found)
    except OutOfTime:
        # Without knowing what its spread does not show: no such error is small.
        return replace(found, result=worst([found.result, Result.MISSED]), settings=found.settings | aim.settings())
    return search(aim, first, more)


def _doubted(omap: OverlapMap, points: Sequence[Point], found: Solution) -> Solution:
    """The solution with errors that hold what the spread of the scrambles does not show."""
    if any(point.at is None or not np.isfinite(point.left).all() for point in points):
        return found
    kicked = found.value.start != "uninformed"
    idle = of_idle(omap, points, found.value.Q) if kicked else np.zeros_like(found.value.Q)
    error, integrals = np.hypot(found.statistical_error, idle), of_integrals(omap, points[0])
    return replace(
        found,
        value=replace(found.value, Q_error=error),
        statistical_error=error,
        deterministic_error=found.deterministic_error + integrals,
        checks=found.checks | {"integrals": integrals, "idle": idle},
    )


# Many parameters: those of state_evolution, checked.
def _solve(
    omap: OverlapMap, r: int, alpha: float, lam: float, start: str, warm: FixedPoint | None, tol: float, max_steps: int
) -> Point:
    Q = known = None
    if warm is not None and start == "symmetry-broken":
        Q = omap.model.symmetry.matrix(warm.overlaps[r])
        known = perfect_part(Q)
    elif start == "informed":
        Q = (1 - INFORMED) * np.eye(omap.model.fields)
    kicked = start != "uninformed"
    return solve(omap, r, alpha, lam=lam, Q=Q, known=known, kicked=kicked, tol=tol, max_steps=max_steps)


def perfect_part(Q: np.ndarray) -> np.ndarray:
    """Projector (P, P) on the directions in which an overlap is exactly one."""
    values, vectors = np.linalg.eigh(Q)
    known = vectors[:, values > 1 - 1e-13]
    return np.asarray(known @ known.T)


def collect(omap: OverlapMap, points: Sequence[Point], start: str, tol: float) -> Solution:
    """The solution that the scrambles' fixed points make, held against its equation and against Nishimori's."""
    stacked = np.array([point.Q for point in points])
    Q, error = mean_and_error(stacked)
    # Where a kick died though the derivative says that it grows, this scramble knows no more than the size of the kick.
    died = [np.zeros_like(Q) if point.died is None else np.abs(point.died) for point in points]
    error = np.hypot(error, np.mean(died, axis=0))
    back = omap.each(lambda r: put_back(omap, r, points[r], tol))
    left = np.maximum(np.abs([point.left for point in points]), back).mean(axis=0)
    if any(point.known.any() and not point.perfect for point in points):
        left = np.maximum(left, NEARLY)  # how well a direction that is perfect by itself is told from the others
    estimates = [point.at.estimate for point in points if point.at is not None]
    found = agreement(omap, estimates)
    small = bool((left <= np.maximum(error, min(tol, FINE))).all())
    code = worst([point.result for point in points])
    if code is Result.SUCCESS and _branches_differ(points):
        code = Result.NOISY
    overlaps = omap.model.symmetry.coordinates(stacked)
    strays = outlying(overlaps, floor=10 * tol) or not all(sound(omap, estimate) for estimate in estimates)
    result = judged(code, found, left_is_small=small, strays=strays)
    checks = {"residual": left, "nishimori": found.record()}
    if result is Result.SUCCESS:
        at_mean = _at_the_mean(omap, points, Q, start != "uninformed")
        if at_mean is not None:
            bias, rare = at_mean
            checks |= {"bias": bias, "rare": rare}
            error = np.hypot(error, rare)
            if not (bias <= np.maximum(error, min(tol, FINE))).all():
                result = Result.NOISY
    return Solution(
        FixedPoint(
            points[0].alpha,
            Q,
            error,
            _conjugate(points),
            overlaps,
            start,
            points[0].side_information,
            np.array([point.stable for point in points]),
            np.array([point.potential for point in points]),
        ),
        result,
        statistical_error=error,
        deterministic_error=left,
        degrees_of_freedom=len(points) - 1,
        history=tuple({"scramble": r, **record} for r, point in enumerate(points) for record in point.history),
        settings={
            **omap.settings(), "start": start, "side_information": points[0].side_information, "tol": tol,
        },
        checks=checks,
    )  # fmt: skip


def _branches_differ(points: Sequence[Point]) -> bool:
    """Whether some scrambles know a direction perfectly and others do not by far: a mean of the two is neither."""
    known = [float(np.trace(point.known)) for point in points]
    if max(known) - min(known) < 0.5:
        return False
    most = points[int(np.argmax(known))].known
    return min(float(np.trace(most @ point.Q)) for point in points) < np.trace(most) - _NEITHER


def _at_the_mean(
    omap: OverlapMap, points: Sequence[Point], Q: np.ndarray, kicked: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """What the spread of the scrambles does not show, from their mean map at the mean of their fixed points; (P, P).

    First how far that mean is from the fixed point of the mean map: Newton's step there.  To first order in the noise
    there is none.  Near a fold, where a fixed point is about to vanish, that fails: every scramble rests a little
    early, and they agree with one another on what is wrong.  Infinite where the mean map does not contract, and where
    what no scramble learned clearly grows in it, though every kick (``kicked``) died.

    Then what an output would change that tells next to nothing and that none of the points saw: E by all that it is,
    over the number of points.  Close to Q = I that can be all there is to learn: where the sign of a field is in doubt
    in one output of a thousand, scrambles that saw none of these agree to all digits.

    None where some scrambles know a direction perfectly that others almost do: one map has no such mean.
    """
    known = points[0].known
    nothing = np.zeros_like(Q)
    if not alike([point.known for point in points]):
        return None
    if points[0].perfect:
        return nothing, nothing
    alpha, lam = points[0].alpha, points[0].side_information
    found = omap.each(lambda r: Equation(omap, r, lam).at(placed(Q, known), alpha, known))
    active = np.any([here.active for here in found], axis=0)
    if kicked and _left_behind(found, ~active):
        return np.full_like(Q, np.inf), nothing
    if not active.any():
        return nothing, nothing
    residual = np.mean([here.residual for here in found], axis=0)
    slopes = np.eye(int(active.sum())) - np.mean([here.scaled for here in found], axis=0)[np.ix_(active, active)]
    if np.linalg.eigvals(slopes).real.min() <= 0:
        return np.full_like(Q, np.inf), nothing
    # At a fixed point V^{1/2} alpha E V^{1/2} is similar to Q.
    unseen = np.einsum("kij,ij->k", found[0].units, found[0].Q) / omap.samples
    steps = np.zeros((2, len(active)))
    steps[:, active] = np.linalg.solve(slopes, np.stack([residual, unseen])[:, active].T).T
    return np.abs(found[0].in_overlap(steps[0])), np.abs(found[0].in_overlap(steps[1]))


def _left_behind(found: Sequence[Local], idle: np.ndarray) -> bool:
    """Whether what no scramble learned (k,) clearly grows in their mean map."""
    if not idle.any():
        return False
    of_idle = np.array([here.jacobian[np.ix_(idle, idle)] for here in found])
    fastest = np.linalg.eigh(of_idle.mean(axis=0))[1][:, -1]
    growth, error = mean_and_error(np.einsum("i,rij,j->r", fastest, of_idle, fastest))
    return bool(growth - _CLEARLY * error > 1 + UNSTABLE)


def _conjugate(points: Sequence[Point]) -> np.ndarray:
    """alpha E(Q) + lam I, averaged; infinite on the diagonal where a direction is perfect."""
    P = len(points[0].Q)
    known = np.mean([point.known for point in points], axis=0)
    finite = [p.alpha * p.E + p.side_information * np.eye(P) for p in points if not p.perfect]
    rest = np.eye(P) - known
    Q_hat = rest @ np.mean(finite, axis=0) @ rest if finite else np.zeros((P, P))
    Q_hat[np.diag_indices(P)] += np.where(np.diag(known) > 1e-9, np.inf, 0.0)
    return np.asarray(Q_hat)


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
