"""What the points before on a curve tell of the next one: where a map of more samples has it, and how many it takes.

Maps of one seed differ from each other by noise that changes slowly along a curve.  What has moved the fixed point of
a map of few samples to that of one with many at one alpha moves it about as far at the next, so that one evaluation
close by tells it, where from the first one it takes two or three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from smisym.base.matrices import square_root
from smisym.base.solution import Solution
from smisym.prior import remaining
from smisym.theory.aim import Aim
from smisym.theory.point import Point

# Power of samples with which errors fall, and part of the accuracy asked that the next point aims at.
_RATE, _MARGIN = 0.6, 0.75
# Samples from which on a map of an eighth as many is asked first: it is not worth a second evaluation of the map.
_MANY, _FIRST = 2**17, 64
# What is left, in units of what was left before, below which no shift is told.
_NOTHING = 1e-12


class Shifts:
    """By how much (P, P), in units of what is left, fixed points were moved, at the last two alphas of one stage."""

    def __init__(self) -> None:
        self._learned = np.zeros(0, dtype=bool)
        self._made: list[tuple[float, np.ndarray]] = []

    def at(self, Q: np.ndarray) -> bool:
        """Whether something is told at fixed points Q (..., P, P), of the stage that they are in."""
        learned = (np.abs(Q) > 0).any(axis=-1).reshape(-1, Q.shape[-1]).any(axis=0)
        if not np.array_equal(learned, self._learned):
            self._learned, self._made = learned, []
        return bool(self._made)

    def moved(self, Q: np.ndarray, alpha: float) -> np.ndarray | None:
        """Where Q (P, P) will be moved to at alpha; None where nothing is told, or no overlap."""
        if not self._made:
            return None
        at, shift = self._made[-1]
        if len(self._made) > 1:
            before, other = self._made[0]
            # On a straight line, but not far beyond the two.
            shift = shift + min((alpha - at) / (at - before), 1.0) * (shift - other)
        root = square_root(remaining(Q))
        values, vectors = np.linalg.eigh(shift)
        moved = np.asarray(remaining(root @ ((vectors * np.exp(values)) @ vectors.T) @ root))
        return moved if np.linalg.eigvalsh(moved)[0] >= 0 else None

    def learn(self, alpha: float, before: np.ndarray, after: np.ndarray) -> None:
        """Take notice of what was moved (P, P) at an alpha that is larger than those before."""
        inverse = np.linalg.inv(square_root(remaining(before)))
        left = inverse @ remaining(after) @ inverse
        values, vectors = np.linalg.eigh(0.5 * (left + left.T))
        if not values[0] > _NOTHING or (self._made and not alpha > self._made[-1][0]):
            self._made = []
            return
        self._made = [*self._made[-1:], (alpha, np.asarray((vectors * np.log(values)) @ vectors.T))]


class Onward:
    """Shifts from a map of few samples to one with as many as an accuracy takes, and the noise that tells how many."""

    def __init__(self) -> None:
        self._shifts = Shifts()
        self._noise: float | None = None  # error times samples to a power
        self._few = 0  # samples of the map of few

    def at(self, points: Sequence[Point], samples: int) -> bool:
        """Whether something is told at the fixed points that come next, of a map of few samples."""
        if samples != self._few:
            # Of a map of its own.
            self._few, self._shifts = samples, Shifts()
        known = any(point.known.any() for point in points)
        told = self._shifts.at(np.array([point.Q for point in points])) and not known
        self._noise = self._noise if told else None
        return told

    def moved(self, Q: np.ndarray, alpha: float) -> np.ndarray | None:
        """As :meth:`Shifts.moved`."""
        return self._shifts.moved(Q, alpha)

    @staticmethod
    def first(samples: int) -> int:
        """Of how many samples the fixed point counts as known, so that maps of fewer than ``samples`` are asked
        before."""
        return samples // _FIRST if samples >= _MANY else samples

    def samples(self, aim: Aim, had: int) -> int | None:
        """How many the next point takes, a power of two times ``had``; None where nothing is told."""
        if not self._noise:
            return None
        wanted = (self._noise / (_MARGIN * aim.accuracy)) ** (1 / _RATE)
        times = max(round(math.log2(wanted / had)), 0)
        while times and had << times > aim.most_samples:
            times -= 1
        return had << times

    def learn(self, points: Sequence[Point], found: Solution) -> None:
        """Take notice of a point: fixed points of the map of few samples, and the solution that was made of them."""
        error = float(np.max(found.statistical_error + found.deterministic_error))
        if not found.result.ok or not math.isfinite(error) or any(point.known.any() for point in points):
            self._shifts, self._noise = Shifts(), None
            return
        before = np.mean([point.Q for point in points], axis=0)
        self._shifts.at(before)
        self._shifts.learn(found.value.alpha, before, found.value.Q)
        noise = error * float(found.settings["samples"]) ** _RATE
        self._noise = noise if self._noise is None else math.sqrt(noise * self._noise)
