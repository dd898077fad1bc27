"""Which directions exactly are perfect.

A direction is taken to be perfect when a millionth of it is left, and then given far less, ``KNOWN``.  What is frozen
must not be askew by more than a small share of sqrt(KNOWN): a known combination z2 + t z1 tells z1 with a signal of t
over that, and what vanishes together with z2 is tilted by about as much.  The map knows better: its image of V is
smallest along the direction that does become perfect.  It turns towards it as long as the tilt shows little, which is
why what is left is made small no faster than the tilt becomes.
"""

from __future__ import annotations

import math

import numpy as np

from smisym.prior import remaining
from smisym.theory.linearised import KNOWN, NEARLY, Local

# How far askew what is known may be, beside its standard deviation: E is then off by its square.  What is still called
# right when it is held against its equation, and how far it may be on the way.
TILT, ASKEW, _STEADY = 0.01, 0.05, 0.1
# Factor by which what is left may change at once.
_STEP = 30.0
# Images after which a direction is not going to be found, and how many of them the next guess goes through.
_MOST, _MEMORY = 40, 3


def tilt(here: Local, known: np.ndarray | None = None) -> float:
    """How far the map turns what is known in radians; 0 where that is nothing or everything."""
    known = here.known if known is None else known
    count = round(float(np.trace(known)))
    if count in (0, len(known)):
        return 0.0
    turned = _smallest(here.image, count)
    return float(np.linalg.norm(turned - known @ turned, 2))


def askew(here: Local, bound: float = TILT) -> bool:
    """Whether what is known, and given its last ``KNOWN``, is farther askew than this share of its deviation."""
    return tilt(here) > bound * math.sqrt(KNOWN)


def _smallest(image: np.ndarray, count: int) -> np.ndarray:
    return np.asarray(np.linalg.eigh(image)[1][:, :count])


class Turning:
    """Turns what is known until the map leaves it where it is: Anderson's mixing of the last images.

    left: what is left of what is known meanwhile, at most as much as there was (``NEARLY`` where that is forgotten).
    """

    def __init__(self, here: Local, known: np.ndarray) -> None:
        self.count = round(float(np.trace(known)))
        vectors = np.linalg.eigh(known)[1]
        self.others, self.frame = vectors[:, : -self.count], vectors[:, -self.count :]
        self.slopes: list[np.ndarray] = []
        self.images: list[np.ndarray] = []
        most = float(np.linalg.eigvalsh(self.frame.T @ remaining(here.Q) @ self.frame)[-1])
        self.most = float(np.clip(most, KNOWN, NEARLY)) if most > 2 * KNOWN else NEARLY
        self.left = float(np.clip((tilt(here, known) / _STEADY) ** 2, KNOWN, self.most))

    @property
    def failed(self) -> bool:
        return len(self.images) >= _MOST

    def next(self, here: Local) -> np.ndarray | None:
        """The projector (P, P) to go on with, or None where what is known is where it belongs."""
        if self.left <= KNOWN and not askew(here):
            return None
        least, most = max(self.left / _STEP, KNOWN), min(self.left * _STEP, self.most)
        self.left = float(np.clip((tilt(here) / _STEADY) ** 2, least, most))
        self.slopes.append(self._slope(np.linalg.eigh(here.known)[1][:, -self.count :]))
        self.images.append(self._slope(_smallest(here.image, self.count)))
        span = np.linalg.qr(self.frame + self.others @ self._mixed())[0]
        return np.asarray(span @ span.T)

    def _slope(self, span: np.ndarray) -> np.ndarray:
        """(P - k, k): how much of the others goes with each vector of the frame."""
        return np.asarray(np.linalg.solve((self.frame.T @ span).T, (self.others.T @ span).T).T)

    def _mixed(self) -> np.ndarray:
        images = np.array(self.images[-_MEMORY:])
        missed = images - np.array(self.slopes[-_MEMORY:])
        if len(images) == 1:
            return np.asarray(images[0])
        differences = (missed[1:] - missed[:-1]).reshape(len(images) - 1, -1).T
        weights = np.linalg.lstsq(differences, missed[-1].ravel(), rcond=1e-6)[0]
        mixed = images[-1] - np.tensordot(weights, images[1:] - images[:-1], axes=1)
        # No farther than it would go by itself in a hundred steps.
        return np.asarray(mixed if np.abs(mixed - images[-1]).max() < 100 * np.abs(missed[-1]).max() else images[-1])
