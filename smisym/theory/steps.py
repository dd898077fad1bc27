"""Steps from one evaluation of the map towards its fixed point.

Newton's where the map contracts, plain and lengthened ones where it does not; none so far that a fixed point between
its ends goes unseen.
"""

from __future__ import annotations

import math

import numpy as np

from smisym.link.symmetry import Symmetry
from smisym.prior import remaining
from smisym.theory.between import CLOSE_TO_ALL, SHORT, bounded, cubic
from smisym.theory.linearised import KNOWN, ROUNDED, Local

# What is left of a direction while all others vanish with it, when it counts as perfect: posteriors are dear where what
# is left differs much.
_THIN = 1e-10
# Largest factor by which one step may change what is left to learn, for Newton's and for lengthened plain steps.
_NEWTON_STEP, _LONGEST = math.log(30.0), math.log(10.0)
# The most that a plain step is lengthened, and with it the least that Newton's step divides by.
_GAIN = 2048.0
# Slope of R that is no noise: with outputs that only say on which side of something fields are it is about one half
# close to Q = I, and what is left has a fixed point (hardmax at small width, alpha = 10: 0.48).
_FLAT = 0.25
# Longest step of which both ends tell one derivative.
_NEAR = 0.7
# Residual after a long step, beside that before it, of the other sign, that tells that it went too far.
_TURNED = 0.1


def all_small(here: Local) -> bool:
    """Whether all that is left to learn is small, and none of it is at its limit yet."""
    values = np.linalg.eigvalsh(remaining(here.Q))
    left = values[values > 2 * KNOWN]
    return bool(len(left) and values[-1] < CLOSE_TO_ALL and left[0] > _THIN)


def all_vanishes(here: Local) -> bool:
    """Whether moreover all of it gets smaller."""
    if not all_small(here):
        return False
    values, vectors = np.linalg.eigh(remaining(here.Q))
    open_ = vectors[:, values > 2 * KNOWN]
    return bool(np.linalg.eigvalsh(open_.T @ here.matrix @ open_)[0] > 0)


class Steps:
    """The steps of one solve, which learn from the step before.

    correction (k, k): what the derivative of R proved to be beside its estimate, as a point nearby found it.
    """

    def __init__(self, symmetry: Symmetry, correction: np.ndarray | None = None) -> None:
        k = len(symmetry.basis)
        self.symmetry = symmetry
        self.correction = np.zeros((k, k)) if correction is None else correction
        self.forget()

    def forget(self) -> None:
        """Begin anew, but for the correction."""
        self.gain = 1.0
        self.before: tuple[Local, np.ndarray] | None = None  # where the last step began, and the step

    def onward(self, here: Local, step: np.ndarray) -> np.ndarray:
        """The overlap (P, P) after a step that was proposed, or what is taken in its place."""
        taken = self._taken(here, step)
        self.before = here, taken
        return here.moved(taken)

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

    def proposed(self, here: Local) -> tuple[np.ndarray, bool]:
        """A step (k,) mode by mode, and whether it is Newton's in all of them.

        Newton's where the map contracts, plain ones that lengthen while they keep their direction where it does not.
        """
        on, step = here.active, np.zeros(len(here.active))
        if not on.any():
            return step, True
        # Symmetric but for noise, which makes a pair of equal slopes complex: then it is one mode of two dimensions.
        slopes, modes = np.linalg.eig(self._slopes(here))
        contracts = slopes.real >= 1 / _GAIN
        together = all_vanishes(here)
        if together:
            # Where E is homogeneous there one mode is that of all of V in proportion, whose slope is nothing but noise.
            contracts &= slopes.real > min(slopes.real.min(), _FLAT)
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
        if here.vanishing and not all_vanishes(here):
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
        active = self.symmetry.coordinates(Q)[here.active]
        return bool(not self.symmetry.projectors or (active > 0).all() or before[0] < -ROUNDED)

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
