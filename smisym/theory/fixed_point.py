"""One fixed point of state evolution: one scramble of the overlap map, one alpha.

What is left to learn, V, is moved by congruences, V -> V^{1/2} exp(-S) V^{1/2}: no step leaves 0 < V, and S is
of order one however small V is.  In these terms the equation is R = 0 with R = -log(V^{-1/2} V' V^{-1/2}) and V' what
the prior leaves of it (:meth:`smisym.prior.Prior.response`):
plain iteration is S = R, and the derivative of the map, J = alpha V^{1/2} dE[V^{1/2} . V^{1/2}] V^{1/2}, is symmetric:
its largest eigenvalue tells whether a fixed point is stable, in learned and in idle directions alike.

A direction in which V falls below ``NEARLY`` and still shrinks is learned perfectly: E is homogeneous in V there, so
that nothing stops it but noise, and what is known of the others can only help (E grows with Q).  Without noise it is
set to ``KNOWN`` and left there, but for being turned to where the map has it (:mod:`smisym.theory.turning`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from smisym.base.iterating import Record, iterate
from smisym.base.solution import Result
from smisym.prior import remaining
from smisym.theory.kick import Left, leaves
from smisym.theory.linearised import KNOWN, NEARLY, Equation, Local, placed
from smisym.theory.maps import OverlapMap
from smisym.theory.point import Point
from smisym.theory.steps import Steps, all_small
from smisym.theory.turning import ASKEW, Turning, askew

# What may be left of an overlap, absolutely, whatever its error bar: nobody reads further.
FINE = 2e-4
# Steps within the tolerance of Q = I that do not halve what is left, after which nobody will know if it is reached.
_CRAWL = 6
# Steps within the tolerance over this factor (what a slow contraction may leave) after which a point rests.
_SLOWEST, _RESTED = 50.0, 3
# Newton steps without halving what is left after which the last digits are noise of the inner integrals.
_STALLED = 6
# The most that such noise explains, relative to what is left to learn.
_NOISE = 2e-3


# Many parameters: settings, all by keyword.
def solve(
    omap: OverlapMap,
    r: int,
    alpha: float,
    *,
    lam: float = 0.0,
    Q: np.ndarray | None = None,
    known: np.ndarray | None = None,
    kicked: bool = True,
    tol: float = 1e-4,
    max_steps: int = 400,
    correction: np.ndarray | None = None,
) -> Point:
    """The fixed point that scramble r reaches from Q (P, P), by default from nothing.

    kicked: whether unstable idle directions are followed, which is what vanishing side information does.
    tol: on Newton's step, relative to what is left to learn in each direction.  correction: as a point nearby found it.
    """
    return _Solve(omap, r, alpha, lam, kicked, tol, correction).run(Q, known, max_steps)


def put_back(omap: OverlapMap, r: int, point: Point, tol: float) -> np.ndarray:
    """What is left of the equation at the overlap that a point reports: Newton's step there (P, P), in the unit of Q.

    Solved or not, and however it was found.  Infinite where the map does not contract and something is left to learn.
    """
    eye = np.eye(len(point.Q))
    values, vectors = np.linalg.eigh(point.Q)
    if values[-1] > 1 + 1e-9 or values[0] < -1e-9:
        return np.full_like(eye, math.inf)
    perfect = vectors[:, values > 1 - 1e-13]
    known = np.asarray(perfect @ perfect.T)
    if perfect.shape[1] == len(eye):
        # Where everything is perfect the equation is that of the last step: V must still have been shrinking.
        last = point.at
        shrinks = last is not None and _shrinks(omap, r, last.Q, point)
        return np.zeros_like(eye) if shrinks else np.full_like(eye, math.inf)
    here = Equation(omap, r, point.side_information).at(placed(point.Q, known), point.alpha, known)
    if askew(here, ASKEW):
        return np.full_like(eye, math.inf)
    if not here.active.any():
        return np.zeros_like(eye)
    step, newton = Steps(omap.model.symmetry, point.correction).proposed(here)
    if newton:
        return np.abs(here.in_overlap(step))
    if np.abs(here.residual).max() <= tol / _SLOWEST:
        return _SLOWEST * np.abs(here.in_overlap(here.residual))
    rest = here.remainder
    return rest if rest.max() <= max(tol, FINE) else np.full_like(eye, math.inf)


def _shrinks(omap: OverlapMap, r: int, Q: np.ndarray, point: Point) -> bool:
    """Whether all of a small V gets smaller, but for what is known already."""
    values, vectors = np.linalg.eigh(remaining(Q))
    open_ = vectors[:, values > 2 * KNOWN]
    here = Equation(omap, r, point.side_information).at(Q, point.alpha)
    within = open_.T @ here.matrix @ open_
    return bool(values[-1] < NEARLY and (not open_.shape[1] or np.linalg.eigvalsh(within)[0] > 0))


@dataclass(frozen=True)
class _Place:
    """Where the map is evaluated next, and what is perfect there (P, P); at the end the point that came of it.

    record: of the step that led here, empty where that only turned or named what is perfect.
    """

    Q: np.ndarray
    known: np.ndarray
    record: Record = field(default_factory=dict)
    point: Point | None = None


class _Solve:
    """The iteration; what it remembers from step to step."""

    def __init__(
        self,
        omap: OverlapMap,
        r: int,
        alpha: float,
        lam: float,
        kicked: bool,
        tol: float,
        correction: np.ndarray | None = None,
    ) -> None:
        self.omap, self.alpha, self.lam, self.kicked, self.tol = omap, alpha, lam, kicked, tol
        self.equation = Equation(omap, r, lam)
        self.steps = Steps(omap.model.symmetry, correction)
        self.last: Local | None = None
        self.best: tuple[float, Local, np.ndarray] | None = None
        self.stalled = self.crawled = self.resting = 0
        self.least = math.inf  # the least that was left of what is being learned
        self.turning: Turning | None = None
        self.left: Left | None = None

    def run(self, Q: np.ndarray | None, known: np.ndarray | None, max_steps: int) -> Point:
        P = self.omap.model.fields
        nothing = np.zeros((P, P))
        start = _Place(nothing if Q is None else Q, nothing if known is None else known)
        ended = iterate(
            self._onward,
            start,
            max_steps=max_steps,
            record=lambda number, before, place: place.record,
            stop=lambda place, record: None if place.point is None else (place.point.result, ""),
        )
        point = ended.state.point
        if point is None:
            left = np.full((P, P), math.inf) if self.best is None else self.best[1].in_overlap(self.best[2])
            point = self._point(self.last, ended.state.known, left, Result.MAX_STEPS)
        made = [record for record in ended.history if record]
        return replace(point, history=[{"step": number, **record} for number, record in enumerate(made)])

    def _onward(self, place: _Place) -> _Place:
        """From one evaluation of the map to the next, or to the end."""
        known = place.known
        if np.trace(known) > len(known) - 0.5:  # everything is perfect
            return self._end(self.last, known, np.zeros_like(known), Result.SUCCESS)
        placed_at = placed(place.Q, known, KNOWN if self.turning is None else self.turning.left)
        here = self.last = self.equation.at(placed_at, self.alpha, known)
        if not np.isfinite(here.estimate.E).all() or not np.isfinite(here.residual).all():
            return self._end(here, known, np.full_like(known, math.inf), Result.DIVERGED)
        turned = self._turned(here)
        if turned is not None:
            if self.turning is None or not self.turning.failed:
                return _Place(place.Q, turned)
            return self._end(here, known, np.full_like(known, math.inf), Result.MAX_STEPS)
        newly = self._perfect(here)
        if newly is not None:
            known = known + newly
            self.turning = Turning(here, known)
            self._forget()
            return _Place(place.Q, known)
        return self._stepped(here, known)

    def _stepped(self, here: Local, known: np.ndarray) -> _Place:
        """The step from where nothing is newly perfect: on, along what is unstable there, or none any more."""
        step, newton = self.steps.proposed(here)
        record = self._record(here, step)
        symmetry = self.omap.model.symmetry
        if self.left is not None and self.left.came_back(here, symmetry):
            # The map of this scramble rests here, whatever the estimate of its derivative says.
            return self._died(self.left, known, record)
        newton = newton or self._rests(here)
        if newton and self._settled(here, step):
            here, step = self._best(here, step)
            new = leaves(here, step, symmetry) if self.kicked else None
            if new is None:
                return self._end(here, known, here.in_overlap(step), _code(here), record)
            if self.left is not None and new.again(self.left):
                return self._died(new, known, record)
            # A fixed point that vanishing side information leaves: go on along its unstable direction.
            self.left = new
            self._forget()
            return _Place(new.start + new.kick, known, record)
        if self._crawls(here):
            return self._end(here, known, here.remainder, _code(here), record)
        return _Place(self.steps.onward(here, step), known, record)

    def _record(self, here: Local, step: np.ndarray) -> Record:
        q = self.omap.model.symmetry.coordinates(here.Q)
        return {"overlaps": q.tolist(), "change": float(np.abs(step).max())}

    def _forget(self) -> None:
        self.steps.forget()
        self.best, self.stalled = None, 0

    # ---- ends ----------------------------------------------------------------------------------

    def _point(self, here: Local | None, known: np.ndarray, left: np.ndarray, result: Result) -> Point:
        P = len(known)
        Q = np.eye(P) if here is None or np.trace(known) > P - 0.5 else placed(here.Q, known, 0.0)
        return Point(Q, known, here, left, result, [], self.alpha, self.lam, self.steps.correction)

    def _end(
        self, here: Local | None, known: np.ndarray, left: np.ndarray, result: Result, record: Record | None = None
    ) -> _Place:
        point = self._point(here, known, left, result)
        return _Place(point.Q, known, record or {}, point)

    def _died(self, left: Left, known: np.ndarray, record: Record) -> _Place:
        """The fixed point that a kick left and came back to."""
        point = self._point(left.here, known, left.here.in_overlap(left.step), _code(left.here))
        return _Place(point.Q, known, record, replace(point, died=left.kick))

    def _turned(self, here: Local) -> np.ndarray | None:
        """Projector on what is perfect, where that is askew in this evaluation; None where it is not."""
        if self.turning is None and askew(here):
            self.turning = Turning(here, here.known)
        turned = None if self.turning is None else self.turning.next(here)
        if turned is None:
            self.turning = None
        else:
            self._forget()
        return turned

    def _perfect(self, here: Local) -> np.ndarray | None:
        """Projector on directions that are learned perfectly from here on, or None, as always under noise: what is
        left is then of the order of its variance over alpha, and E stays finite."""
        if self.omap.model.noise:
            return None
        values, vectors = np.linalg.eigh(remaining(here.Q) + here.known)
        nearly = vectors[:, values < NEARLY]
        if not nearly.shape[1]:
            return None
        within = nearly.T @ here.matrix @ nearly
        if np.linalg.eigvalsh(within)[0] <= 0:
            return None
        if nearly.shape[1] < len(values) - round(float(np.trace(here.known))) and all_small(here):
            return None  # they get there together; the thinner one is beside the others, the dearer are posteriors
        return np.asarray(nearly @ nearly.T)

    def _rests(self, here: Local) -> bool:
        """Whether plain steps stopped moving it, whatever the estimated derivative says of its stability."""
        still = float(np.abs(here.residual).max()) <= self.tol / _SLOWEST
        self.resting = self.resting + 1 if still and here.active.any() else 0
        return self.resting > _RESTED

    def _settled(self, here: Local, step: np.ndarray) -> bool:
        """Whether Newton's step is below the tolerance, or the last digits stopped coming."""
        size = float(np.abs(step).max())
        if self.best is None or size < 0.5 * self.best[0]:
            self.best, self.stalled = (size, here, step), 0
        else:
            self.stalled += 1
        # Close by, the noise of the inner integrals can stop the iteration; farther out it must go on.
        noise = max(self.tol, min(10 * self.tol, _NOISE))
        return size <= self.tol or (self.stalled >= _STALLED and self.best[0] <= noise)

    def _best(self, here: Local, step: np.ndarray) -> tuple[Local, np.ndarray]:
        if self.best is not None and self.best[0] < np.abs(step).max():
            return self.best[1], self.best[2]
        return here, step

    def _crawls(self, here: Local) -> bool:
        """Whether all that is left is below the tolerance and does not get settled: at the threshold of perfection."""
        if here.most_left > min(self.tol, FINE):
            return False
        if here.most_left < 0.5 * self.least:
            self.least = here.most_left
            return False
        self.crawled += 1
        return self.crawled > _CRAWL


def _code(here: Local) -> Result:
    return Result.SUCCESS if here.estimate.accurate else Result.INTEGRATION
