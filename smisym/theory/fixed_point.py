"""One fixed point of state evolution: one scramble of the overlap map, one alpha.

What is left to learn, V, is moved by congruences, V -> V^{1/2} exp(-S) V^{1/2}: no step leaves 0 < V, and S is
of order one however small V is.  In these terms the equation is R = 0 with R = -log(V^{-1/2} V' V^{-1/2}) and V' what
the prior leaves of it (:meth:`smisym.prior.Prior.response`):
plain iteration is S = R, and the derivative of the map, J = alpha V^{1/2} dE[V^{1/2} . V^{1/2}] V^{1/2}, is symmetric:
its largest eigenvalue tells whether a fixed point is stable, in learned and in idle directions alike.

A direction in which V falls below ``NEARLY`` and still shrinks is learned perfectly: E is homogeneous in V there, so
that nothing stops it, and what is known of the others can only help (E grows with Q).  It is set to ``KNOWN`` and left
there, but for being turned to where the map has it (:mod:`smisym.theory.turning`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from smisym.base.solution import Result
from smisym.prior import remaining
from smisym.theory.between import CLOSE_TO_ALL, SHORT, bounded, cubic
from smisym.theory.kick import Left, leaves
from smisym.theory.linearised import KNOWN, NEARLY, ROUNDED, Equation, Local, placed
from smisym.theory.maps import OverlapMap
from smisym.theory.point import Point
from smisym.theory.turning import ASKEW, Turning, askew

# The same while all others vanish with it: posteriors are dear where what is left differs much.
_THIN = 1e-10
# Largest factor by which one step may change what is left to learn, for Newton's and for lengthened plain steps.
_NEWTON_STEP, _LONGEST = math.log(30.0), math.log(10.0)
# The most that a plain step is lengthened, and with it the least that Newton's step divides by.
_GAIN = 2048.0
# What may be left of an overlap, absolutely, whatever its error bar: nobody reads further.
FINE = 2e-4
# Steps within the tolerance of Q = I that do not halve what is left, after which nobody will know if it is reached.
_CRAWL = 6
# Longest step of which both ends tell one derivative.
_NEAR = 0.7
# Residual after a long step, beside that before it, of the other sign, that tells that it went too far.
_TURNED = 0.1
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
    step, newton = _Solve(omap, r, point.alpha, point.side_information, False, tol, point.correction)._proposed(here)
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
        k = len(omap.model.symmetry.basis)
        self.correction = np.zeros((k, k)) if correction is None else correction
        self.omap, self.alpha, self.lam, self.kicked, self.tol = omap, alpha, lam, kicked, tol
        self.equation = Equation(omap, r, lam)
        self.history: list[dict[str, Any]] = []
        self.gain = 1.0
        self.last: Local | None = None
        self.before: tuple[Local, np.ndarray] | None = None  # where the last step began, and the step
        self.best: tuple[float, Local, np.ndarray] | None = None
        self.stalled = self.crawled = self.resting = 0
        self.least = math.inf  # the least that was left of what is being learned
        self.turning: Turning | None = None
        self.left: Left | None = None

    def run(self, Q: np.ndarray | None, known: np.ndarray | None, max_steps: int) -> Point:
        P = self.omap.model.fields
        Q = np.zeros((P, P)) if Q is None else Q
        known = np.zeros((P, P)) if known is None else known
        for _ in range(max_steps):
            if np.trace(known) > P - 0.5:  # everything is perfect
                return self._end(self.last, known, np.zeros((P, P)), Result.SUCCESS)
            placed_at = placed(Q, known, KNOWN if self.turning is None else self.turning.left)
            here = self.last = self.equation.at(placed_at, self.alpha, known)
            if not np.isfinite(here.estimate.E).all() or not np.isfinite(here.residual).all():
                return self._end(here, known, np.full((P, P), math.inf), Result.DIVERGED)
            turned = self._turned(here)
            if turned is not None:
                if self.turning is None or not self.turning.failed:
                    known = turned
                    continue
                return self._end(here, known, np.full((P, P), math.inf), Result.MAX_STEPS)
            newly = self._perfect(here)
            if newly is not None:
                known = known + newly
                self.turning = Turning(here, known)
                self._forget()
                continue
            step, newton = self._proposed(here)
            self._record(here, step)
            if self.left is not None and self.left.came_back(here, self.omap.model.symmetry):
                # The map of this scramble rests here, whatever the estimate of its derivative says.
                return self._died(self.left, known)
            newton = newton or self._rests(here)
            if newton and self._settled(here, step):
                here, step = self._best(here, step)
                new = leaves(here, step, self.omap.model.symmetry) if self.kicked else None
                if new is not None:
                    if self.left is not None and new.again(self.left):
                        return self._died(new, known)
                    # A fixed point that vanishing side information leaves: go on along its unstable direction.
                    self.left, Q = new, new.start + new.kick
                    self._forget()
                    continue
                return self._end(here, known, here.in_overlap(step), _code(here))
            if self._crawls(here):
                return self._end(here, known, here.remainder, _code(here))
            taken = self._taken(here, step)
            self.before = here, taken
            Q = here.moved(taken)
        left = np.full((P, P), math.inf) if self.best is None else self.best[1].in_overlap(self.best[2])
        return self._end(here, known, left, Result.MAX_STEPS)

    def _end(self, here: Local | None, known: np.ndarray, left: np.ndarray, result: Result) -> Point:
        P = len(known)
        Q = np.eye(P) if here is None or np.trace(known) > P - 0.5 else placed(here.Q, known, 0.0)
        return Point(Q, known, here, left, result, self.history, self.alpha, self.lam, self.correction)

    def _record(self, here: Local, step: np.ndarray) -> None:
        size = float(np.abs(step).max())
        q = self.omap.model.symmetry.coordinates(here.Q)
        self.history.append({"step": len(self.history), "overlaps": q.tolist(), "change": size})

    def _forget(self) -> None:
        self.gain, self.before, self.best, self.stalled = 1.0, None, None, 0

    def _died(self, left: Left, known: np.ndarray) -> Point:
        """The fixed point that a kick left and came back to."""
        ended = self._end(left.here, known, left.here.in_overlap(left.step), _code(left.here))
        ended.died = left.kick
        return ended

    # ---- ends ----------------------------------------------------------------------------------

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
        """Projector on directions that are learned perfectly from here on, or None."""
        values, vectors = np.linalg.eigh(remaining(here.Q) + here.known)
        nearly = vectors[:, values < NEARLY]
        if not nearly.shape[1]:
            return None
        within = nearly.T @ here.matrix @ nearly
        if np.linalg.eigvalsh(within)[0] <= 0:
            return None
        if nearly.shape[1] < len(values) - round(float(np.trace(here.known))) and self._all_small(here):
            return None  # they get there together; the thinner one is beside the others, the dearer are posteriors
        return np.asarray(nearly @ nearly.T)

    def _all_small(self, here: Local) -> bool:
        """Whether all that is left to learn is small, and none of it is at its limit yet."""
        values = np.linalg.eigvalsh(remaining(here.Q))
        left = values[values > 2 * KNOWN]
        return bool(len(left) and values[-1] < CLOSE_TO_ALL and left[0] > _THIN)

    def _all_vanishes(self, here: Local) -> bool:
        """Whether moreover all of it gets smaller."""
        if not self._all_small(here):
            return False
        values, vectors = np.linalg.eigh(remaining(here.Q))
        open_ = vectors[:, values > 2 * KNOWN]
        return bool(np.linalg.eigvalsh(open_.T @ here.matrix @ open_)[0] > 0)

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

    # ---- steps ---------------------------------------------------------------------------------

    def _slopes(self, here: Local) -> np.ndarray:
        """(a, a): minus the derivative of R in the active coordinates.

        It is an estimate with noise of its own: it is corrected along the step that was made before.
        """
        on = np.ix_(here.active, here.active)
        M = np.eye(int(here.active.sum())) - here.scaled[on]
        if self.before is not None:
            old, taken = self.before
            if (old.active == here.active).all() and taken.any() and np.abs(taken).max() < _NEAR:
                seen = (old.residual - here.residual)[here.active]
                along = taken[here.active]
                now = M + self.correction[on]
                wrong = bounded(seen, now @ along, along) - now @ along
                self.correction[on] += np.outer(wrong, along) / float(along @ along)
        return np.asarray(M + self.correction[on])

    def _proposed(self, here: Local) -> tuple[np.ndarray, bool]:
        """A step (k,) mode by mode, and whether it is Newton's in all of them.

        Newton's where the map contracts, plain ones that lengthen while they keep their direction where it does not.
        """
        on, step = here.active, np.zeros(len(here.active))
        if not on.any():
            return step, True
        # Symmetric but for noise, which makes a pair of equal slopes complex: then it is one mode of two dimensions.
        slopes, modes = np.linalg.eig(self._slopes(here))
        contracts = slopes.real >= 1 / _GAIN
        together = self._all_vanishes(here)
        if together:
            # E is homogeneous there: one mode is that of all of V in proportion, whose slope is nothing but noise.
            contracts &= slopes.real > slopes.real.min()
        plain = here.residual
        onward = self.before is not None and float(self.before[1] @ plain) > 0
        size = max(float(np.abs(plain).max()), 1e-300)
        most = min(_GAIN, max(1.0, _LONGEST / size))
        self.gain = most if together else min(2 * self.gain, most) if onward and not contracts.all() else 1.0
        factor = np.where(contracts, 1 / np.where(contracts, slopes, 1.0), self.gain)
        step[on] = (modes @ (np.linalg.solve(modes, plain[on].astype(modes.dtype)) * factor)).real
        return step, bool(contracts.all())

    def _taken(self, here: Local, step: np.ndarray) -> np.ndarray:
        """The step to take: back to a fixed point that was jumped over, or the one proposed, or a plain one."""
        if here.vanishing and not self._all_vanishes(here):
            return here.residual  # what vanishes has yet to find its shape, which long steps overshoot
        for back in (self._passed(here), self._jumped(here)):
            if back is not None and self._inside(here, back):
                return back
        step = step * min(1.0, self._longest(here, step) / max(float(np.abs(step).max()), 1e-300))
        while not self._inside(here, step):
            if np.abs(step).max() < np.abs(here.residual).max():
                return here.residual
            step = 0.5 * step
        return step

    def _longest(self, here: Local, step: np.ndarray) -> float:
        """How far a step may go: on the way up, not so far that a fixed point between its ends goes unseen.

        Plain iteration passes none, as E grows with Q.  Close to Q = I the map is homogeneous, and there is none.
        """
        plain = here.residual
        climbs = float(step @ plain) > 0 and np.linalg.norm(step) > np.linalg.norm(plain)
        if not climbs or here.most_left < CLOSE_TO_ALL:
            return _NEWTON_STEP
        return max(SHORT, 1.5 * float(np.abs(plain).max()))

    def _inside(self, here: Local, step: np.ndarray) -> bool:
        """Whether 0 <= Q after the step, and what is learned stays so."""
        Q = here.moved(step)
        before = np.linalg.eigvalsh(here.Q)
        if not np.isfinite(Q).all() or np.linalg.eigvalsh(Q)[0] < -ROUNDED:
            return False
        active = self.omap.model.symmetry.coordinates(Q)[here.active]
        return bool(not self.omap.model.symmetry.projectors or (active > 0).all() or before[0] < -ROUNDED)

    def _passed(self, here: Local) -> np.ndarray | None:
        """Back to where the residual along a long step changes its sign, as the secant has it."""
        if self.before is None:
            return None
        old, taken = self.before
        if np.abs(taken).max() < _NEAR or (old.active != here.active).any():
            return None
        began, ended = float(old.residual @ taken), float(here.residual @ taken)
        if began <= 0 or ended >= -_TURNED * began:
            return None
        return np.asarray((np.clip(began / (began - ended), 0.1, 0.9) - 1) * taken)

    def _jumped(self, here: Local) -> np.ndarray | None:
        """Where a long step upwards may have passed a fixed point: the lowest point of the cubic along the step.

        The residual along the step is known at both ends with its slopes; where the cubic through them is negative
        between two positive ends, there are fixed points below, and the lowest is the one that is meant.
        """
        if self.before is None:
            return None
        old, taken = self.before
        norm = float(np.linalg.norm(taken))
        if norm < 0.05 or (old.active != here.active).any():
            return None
        along = taken / norm
        f = float(old.residual @ along), float(here.residual @ along)
        if min(f) <= 0 or float(old.residual @ along) >= norm:  # a plain step cannot pass a fixed point
            return None
        s, residual = cubic(old, here, taken)
        if residual.min() >= 0:
            return None
        return np.asarray((s[int(residual.argmin())] - 1) * taken)


def _code(here: Local) -> Result:
    return Result.SUCCESS if here.estimate.accurate else Result.INTEGRATION
