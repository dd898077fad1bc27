"""Where idle parts begin to grow, as one system of equations in overlap and alpha.

    R(Q, alpha) = 0,     log growth(Q, alpha) = 0

of the mean of all scrambles' maps, by Newton's method from where a rougher map has it: the map does not depend on
alpha, so that one evaluation tells how far both are off, and no fixed point is solved for at any other alpha.  What
each scramble alone would have made of it follows to first order from the same evaluation, which is all that the
statistical error takes: to that order the mean of the scrambles' own roots is the root of their mean.

How growth changes with the overlap is not among what an evaluation estimates.  It is taken from differences on a map
of few points, the same on both sides; that only directs the last step and the spread of the roots.  What noise makes of
the step is in the error: that of this difference in what the step may miss, that of all others in the spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from smisym.base.solution import Result, mean_and_error
from smisym.prior import remaining
from smisym.theory.growth import class_rate
from smisym.theory.linearised import ROUNDED, Equation, Local
from smisym.theory.maps import OverlapMap
from smisym.theory.point import Point
from smisym.theory.sentinel import agreement, judged, outlying, sound

# Step on either side by which growth is differenced, in units of what is left to learn; the least, where an overlap is
# small.
_ASIDE, _LEAST_ASIDE = 0.2, 0.02
# Newton's step, and standard errors, in these units, beyond which the equations are no straight lines any more.
_FAR, _UNSURE = 0.35, 0.1
# Part of the statistical error that what the step misses may be, and evaluations that this may take.
_BENT, _MOST = 0.5, 3
# Standard errors of how growth changes that a step is taken to be off by.
_DOUBT = 2.0
# Values of scrambles that differ by less, relative, are no strays.
_ALIKE = 5e-3


@dataclass(frozen=True)
class Guess:
    """Where a crossing may be: overlap (P, P), alpha, and the derivative (k,) of the log of the growth along steps in
    unit matrices, with its standard error ``doubt``; ``on`` (k,): the coordinates that are learned there."""

    Q: np.ndarray
    alpha: float
    slope: np.ndarray
    doubt: np.ndarray
    on: np.ndarray


@dataclass(frozen=True)
class Crossing:
    """The crossing as one evaluation of a map has it.

    alpha, spread: the root of the mean map, and the standard error of the scrambles' roots.  bend: what the step may
    miss.  points: the scrambles' own roots.  rates (R, c, c): there, of idle coordinates.  result: of what the
    evaluation is held against.  guess: the root, from which to go on.
    """

    omap: OverlapMap
    alpha: float
    spread: float
    bend: float
    points: list[Point]
    rates: np.ndarray
    result: Result
    guess: Guess


def between(low: tuple[float, np.ndarray], high: tuple[float, np.ndarray], alpha: float) -> np.ndarray:
    """The overlap (P, P) at alpha, from two others (alpha, Q): by a line through the logarithms of what is left."""
    share = (alpha - low[0]) / (high[0] - low[0])
    logs = [_log(remaining(Q)) for _, Q in (low, high)]
    values, vectors = np.linalg.eigh((1 - share) * logs[0] + share * logs[1])
    return remaining((vectors * np.exp(values)) @ vectors.T)


def guessed(rough: OverlapMap, Q: np.ndarray, alpha: float, own: np.ndarray, slopes: bool = True) -> Guess | None:
    """With the slope by differences on a map of few points, but where nobody asks for ``slopes``; own: the numbers of
    the coordinates that begin to grow.

    None where nothing is learned, or where a step leaves what an overlap can be.
    """
    found: list[Local] = rough.each(lambda r: Equation(rough, r).at(Q, alpha))
    on = np.any([here.active for here in found], axis=0)
    on[own] = False
    slope, doubt = np.zeros((2, len(on)))
    for i in np.flatnonzero(on & slopes):
        step = np.zeros(len(on))
        step[i] = _ASIDE
        while _least(found[0].moved(-step)) < -ROUNDED and step[i] > _LEAST_ASIDE:
            step = 0.5 * step
        ends = [found[0].moved(sign * step) for sign in (-1, 1)]
        if min(_least(end) for end in ends) < -ROUNDED:
            return None
        logs = []
        for end in ends:
            there: list[Local] = rough.each(lambda r, end=end: Equation(rough, r).at(end, alpha))
            logs.append(np.log([max(class_rate(rates, range(len(own))), 1e-300) for rates in _of_own(there, own)]))
        slope[i], doubt[i] = mean_and_error((logs[1] - logs[0]) / (2 * step[i]))
    return Guess(found[0].Q, alpha, slope, doubt, on) if on.any() else None


def crossing_near(
    omap: OverlapMap, guess: Guess, idle: np.ndarray, members: Sequence[int], enough: float = 0.0
) -> Crossing | None:
    """The crossing on a map, from a guess; None where Newton's method does not confirm that it is near.

    idle: the numbers of all idle coordinates.  members: which of these begin to grow.  enough: the error that it may
    have.
    """
    for _ in range(_MOST):
        found = _evaluated(omap, guess, idle, members)
        if found is None or found.bend <= _BENT * found.spread or math.hypot(found.spread, found.bend) <= enough:
            return found
        guess = found.guess
    return found


def _evaluated(omap: OverlapMap, guess: Guess, idle: np.ndarray, members: Sequence[int]) -> Crossing | None:
    """The roots of the mean map, and of each scramble's, by Newton's step from one evaluation."""
    on, alpha, own = guess.on, guess.alpha, idle[list(members)]
    found: list[Local] = omap.each(lambda r: Equation(omap, r).at(guess.Q, alpha))
    rates = _of_own(found, own)
    mean = class_rate(rates.mean(axis=0), range(len(own)))
    slopes = np.eye(int(on.sum())) - np.mean([here.scaled for here in found], axis=0)[np.ix_(on, on)]
    if mean <= 0 or np.linalg.eigvals(slopes).real.min() <= 0:
        return None
    vector = np.linalg.eigh(rates.mean(axis=0))[1][:, -1]
    growth = np.log(mean) + np.einsum("i,rij,j->r", vector, rates, vector) / mean - 1
    # Unknown: the step in the overlap, and that in log alpha.
    onward = alpha * np.mean([here.onward for here in found], axis=0)[on]
    system = np.block([[slopes, -onward[:, None]], [guess.slope[on], np.ones(1)]])
    if np.linalg.det(system) <= 0:
        return None  # growth falls along the path: it is no crossing from below
    residual = np.array([here.residual[on] for here in found])
    step = np.linalg.solve(system, np.append(residual.mean(axis=0), -growth.mean()))
    # Around the step of the mean map, so that what noise of its derivatives makes of it is in the spread.
    turned = np.array([here.scaled[np.ix_(on, on)] @ step[:-1] + alpha * here.onward[on] * step[-1] for here in found])
    left = np.column_stack([residual - step[:-1] + turned, -growth - system[-1] @ step])
    roots = step + np.linalg.solve(system, left.T).T
    step, error = (np.asarray(x) for x in mean_and_error(roots))
    if np.abs(step).max() > _FAR or np.max(error) > _UNSURE:
        return None
    # What the noise of how growth changes, the same for all scrambles, makes of the step.
    back = np.abs(np.linalg.inv(system)[-1])
    doubt = _DOUBT * float(back[-1] * (guess.doubt[on] @ np.abs(step[:-1])))
    # Straight lines miss the square of the step, and on average that of the noise of the mean.
    doubt += max(float(back.sum()), 1.0) * float(np.abs(step).max() ** 2 + np.max(error) ** 2)
    return _crossing(omap, guess, found, roots, idle, doubt)


def _crossing(
    omap: OverlapMap, guess: Guess, found: Sequence[Local], roots: np.ndarray, idle: np.ndarray, doubt: float
) -> Crossing | None:
    """From steps (R, a + 1) of all scrambles to their roots; doubt: of the mean one's log alpha."""
    on, alpha, symmetry = guess.on, guess.alpha, omap.model.symmetry
    steps = np.zeros((len(found), len(on)))
    steps[:, on] = roots[:, :-1]
    alphas = alpha * np.exp(roots[:, -1])
    mean, error = (np.asarray(x) for x in mean_and_error(roots))
    overlaps = [found[0].moved(step) for step in steps]
    if min(_least(Q) for Q in overlaps) < -ROUNDED:
        return None
    value = alpha * float(np.exp(mean[-1]))
    bend = value * doubt
    estimates = [here.estimate for here in found]
    values = np.column_stack([symmetry.coordinates(np.array(overlaps))[:, on], alphas / value])
    strays = outlying(values, floor=_ALIKE) or not all(sound(omap, estimate) for estimate in estimates)
    code = Result.SUCCESS if all(estimate.accurate for estimate in estimates) else Result.INTEGRATION
    result = judged(code, agreement(omap, estimates), left_is_small=True, strays=strays)
    nothing = np.zeros_like(guess.Q)
    points = [Point(Q, nothing, here, nothing, code, [], value) for Q, here in zip(overlaps, found, strict=True)]
    rates = np.array([here.jacobian[np.ix_(idle, idle)] for here in found])
    after = np.zeros(len(on))
    after[on] = mean[:-1]
    onward = replace(guess, Q=symmetry.project(found[0].moved(after)), alpha=value)
    return Crossing(omap, value, float(error[-1] * value), bend, points, rates, result, onward)


def _of_own(found: Sequence[Local], own: np.ndarray) -> np.ndarray:
    """(R, c, c): how fast these coordinates grow, scramble by scramble."""
    return np.array([here.jacobian[np.ix_(own, own)] for here in found])


def _least(Q: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(Q)[0])


def _log(V: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(V)
    return np.asarray((vectors * np.log(values)) @ vectors.T)
