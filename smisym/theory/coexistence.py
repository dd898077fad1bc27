"""Where branches of fixed points turn, where two of them coexist, and which of the two the optimum is at.

At a fold alpha has no slope along the branch: a parabola through the points beside it tells where it lies.  Between two
folds two fixed points are stable at once; the one of larger free entropy is the information-theoretic optimum, the one
that vanishing side information reaches is what the algorithm finds.  Along fixed points dPhi/dalpha = E log Zout
(theory: Phi is stationary in Q), so that Newton's method finds the alpha where both have the same Phi.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from smisym.base.solution import mean_and_error
from smisym.theory.all_branches import Branch
from smisym.theory.branch import Passed, inside, newton_step
from smisym.theory.linearised import Local
from smisym.theory.maps import OverlapMap

# Points beside a fold through which its parabola goes, at least, and how far alpha may differ there, in log.
_BESIDE, _LOW = 2, 0.02
# Where in the window that two pieces have in common they are compared at first.
_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
# Alphas between which the free entropies of two pieces are compared as their points have them.
_BETWEEN = 41
# Steps of Newton's method to where two free entropies are the same, and how near that is, relative to alpha.
_STEPS, _CLOSE = 12, 1e-5
# Newton's step, relative to what is left to learn, from which on a point is there: its free entropy is off by the
# square; and the largest that still leads to it.
_NEAR, _FAR = 0.02, 1.0
# Share of the step before that a step may have without being halved.
_SHRINKS = 0.7
# How much of a direction two fixed points must differ by to be two.
_APART = 0.02


@dataclass(frozen=True)
class Fold:
    """Where a branch turns: alpha with its standard error and what the shape of the fit may miss, the overlap there,
    whether alpha is largest (a maximum) or smallest."""

    alpha: float
    error: float
    shape: float
    Q: np.ndarray
    largest: bool


@dataclass(frozen=True)
class Crossing:
    """Where two stable fixed points have the same free entropy: alpha, its standard error, both overlaps."""

    alpha: float
    error: float
    lower: np.ndarray
    upper: np.ndarray


def fold(branch: Branch, at: int) -> Fold | None:
    """The fold at a point of a branch; None where it has too few points beside it."""
    height = np.log(branch.alphas / branch.alphas[at])
    first = at
    while first > 0 and (at - first < _BESIDE or abs(height[first]) < _LOW):
        first -= 1
    last = at
    while last < len(height) - 1 and (last - at < _BESIDE or abs(height[last]) < _LOW):
        last += 1
    points = branch.points[first : last + 1]
    found = None if len(points) < 4 else _vertex(points, branch.alphas[at])
    if found is None or min(at - first, last - at) >= _BESIDE:
        return found
    # Near the end of a branch the fit hangs on one side: it may be off by as much as the points beside it are.
    beside = max(abs(float(height[n])) for n in (at - 1, at + 1) if 0 <= n < len(height))
    return replace(found, shape=math.hypot(found.shape, found.alpha * beside))


def _vertex(points: Sequence[Passed], near: float) -> Fold | None:
    """Of parabola and cubic through points, by their lengths along the branch."""
    s = np.concatenate([[0.0], np.cumsum([_apart(a, b) for a, b in itertools.pairwise(points)])])
    height = np.log([point.alpha / near for point in points])
    error = np.array([point.error for point in points])
    weights = 1 / np.maximum(error, 1e-3 * error.max())
    found = []
    for degree in (2, 3) if len(points) > 4 else (2,):
        fit = np.polynomial.Polynomial.fit(s, height, degree, w=weights)
        roots = [float(r.real) for r in fit.deriv().roots() if abs(r.imag) < 1e-9 and s[0] <= r.real <= s[-1]]
        if roots:
            where = roots[int(np.argmax(np.abs(fit.deriv(2)(np.array(roots)))))]
            found.append((where, float(fit(where)), float(fit.deriv(2)(where))))
    if not found:
        return None
    where, value, bent = found[0]
    shape = abs(found[-1][1] - value) if len(found) > 1 else 0.0
    nearest = int(np.abs(s - where).argmin())
    alpha = near * math.exp(value)
    # A fold is met where chance leads, and the fit leans on points whose scrambles happen to agree: few scrambles say
    # little of their own spread, that of all points says more.
    spread = max(float(error[nearest]), float(np.median(error)))
    return Fold(alpha, alpha * spread, alpha * shape, points[nearest].Q, bent < 0)


def _apart(a: Passed, b: Passed) -> float:
    """Length between two points, in log V."""
    V = [np.linalg.eigvalsh(np.eye(len(p.Q)) - p.Q) for p in (a, b)]
    return float(np.linalg.norm(np.log(V[0]) - np.log(V[1])))


def crossing(omap: OverlapMap, lower: Branch, upper: Branch) -> Crossing | None:
    """Where the free entropies of two pieces are the same; None where nowhere at an alpha that both have.

    What both have in common of a scramble's error cancels in the difference.
    """
    low = max(lower.alphas.min(), upper.alphas.min())
    high = min(lower.alphas.max(), upper.alphas.max())
    if not low < high:
        return None
    at = _roughly(omap, lower, upper, low, high)
    if at is None:
        # Near folds some scramble has none of the two any more.
        tried = [low + share * (high - low) for share in _SHARES]
        found = [(alpha, gap) for alpha in tried if (gap := _difference(omap, lower, upper, alpha)) is not None]
        below = [alpha for alpha, gap in found if gap.value < 0]
        above = [alpha for alpha, gap in found if gap.value >= 0]
        if not below or not above or max(below) > min(above):
            return None
        low, high = max(below), min(above)
        at = 0.5 * (low + high)
    for _ in range(_STEPS):
        gap = _difference(omap, lower, upper, at)
        if gap is None or gap.slope <= 0:
            return None
        low, high = (at, high) if gap.value < 0 else (low, at)
        step = -gap.value / gap.slope
        if abs(step) < _CLOSE * at or high - low < _CLOSE * at:
            return Crossing(at, gap.error / gap.slope, gap.below, gap.above)
        at = at + step if low < at + step < high else 0.5 * (low + high)
    return None


def _roughly(omap: OverlapMap, lower: Branch, upper: Branch, low: float, high: float) -> float | None:
    """About where the free entropies are the same, from the points of both pieces; None where these show nothing.

    The points were evaluated near the fixed points, where the free entropy does not change to first order.
    """
    grid = np.linspace(low, high, _BETWEEN)
    phi = []
    for piece in (lower, upper):
        order = np.argsort(piece.alphas)
        values = [_free_entropy(omap, piece.points[n]) for n in order]
        phi.append(np.interp(grid, piece.alphas[order], values))
    gap = phi[1] - phi[0]
    turns = np.flatnonzero((gap[:-1] < 0) & (gap[1:] >= 0))
    if len(turns) != 1:
        return None
    n = int(turns[0])
    return float(grid[n] - gap[n] * (grid[n + 1] - grid[n]) / (gap[n + 1] - gap[n]))


def _free_entropy(omap: OverlapMap, point: Passed) -> float:
    Q = point.found[0].Q
    potential = np.mean([here.estimate.log_partition for here in point.found])
    return float(omap.model.prior.entropy(Q) + point.alpha * potential)


@dataclass(frozen=True)
class _Gap:
    """Phi above less Phi below at one alpha, its slope in alpha and its standard error; both overlaps."""

    value: float
    slope: float
    error: float
    below: np.ndarray
    above: np.ndarray


def _difference(omap: OverlapMap, lower: Branch, upper: Branch, alpha: float) -> _Gap | None:
    """The gap at one alpha; None where some scramble does not rest on both pieces."""
    states = [_rests(omap, piece, alpha) for piece in (lower, upper)]
    below, above = states
    if below is None or above is None:
        return None
    prior = omap.model.prior
    gaps, slopes = [], []
    for a, b in zip(below, above, strict=True):
        slopes.append(b.estimate.log_partition - a.estimate.log_partition)
        gaps.append(prior.entropy(b.Q) - prior.entropy(a.Q) + alpha * slopes[-1])
    gap, error = mean_and_error(np.array(gaps))
    Q = [state[0].Q for state in (below, above)]
    if np.abs(Q[1] - Q[0]).max() < _APART or not np.isfinite(gaps).all():
        return None
    return _Gap(float(gap), float(np.mean(slopes)), float(error), Q[0], Q[1])


def _rests(omap: OverlapMap, piece: Branch, alpha: float) -> list[Local] | None:
    """All scrambles at the fixed point of their mean at alpha, from where the piece has it; None where it has none.

    The free entropy is stationary there: what each scramble's own fixed point would change is of second order.
    """
    order = np.argsort(piece.alphas)
    alphas, overlaps = piece.alphas[order], piece.overlaps[order]
    at = min(max(int(np.searchsorted(alphas, alpha)), 1), len(alphas) - 1)
    share = float(np.clip((alpha - alphas[at - 1]) / (alphas[at] - alphas[at - 1]), 0, 1))
    Q = (1 - share) * overlaps[at - 1] + share * overlaps[at]
    pace, last = 1.0, math.inf
    for _ in range(_STEPS):
        found, step = newton_step(omap, Q, alpha)
        size = float(np.abs(step).max(initial=0.0)) if np.isfinite(step).all() else math.inf
        if size > _FAR:
            return None
        if size <= _NEAR:
            return found
        # With few points the slope of the map is rough, and whole steps may go to and fro.
        pace *= 1.0 if size < _SHRINKS * last else 0.5
        Q, last = inside(found[0], pace * step), size
    return None
