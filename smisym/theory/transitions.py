"""All transitions in alpha that thresholds do not tell: folds of branches, and where the optimum changes branch.

Two stable fixed points coexist between a *spinodal*, where one of them appears, and where the other one ends: at a fold
of its branch, or where something begins to grow.  Between both lies the *information*-theoretic transition, where their
free entropies are the same: above it more is known in principle than vanishing side information leads to, which is the
hard phase of algorithms.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from smisym.base.edge import check_most
from smisym.base.solution import Result, Solution
from smisym.base.threshold import Threshold
from smisym.model.compiled import Model
from smisym.theory.all_branches import Branch, every_branch, nothing
from smisym.theory.branched import Branches, BranchLine, Phases
from smisym.theory.coexistence import Crossing, Fold, crossing, fold
from smisym.theory.fixed_point import solve
from smisym.theory.maps import OverlapMap, as_map
from smisym.theory.stability import counting
from smisym.theory.stages import staircase

# Times the last threshold, or the alpha where Q = I becomes stable, up to which branches are followed by default, and
# how far informed starts are tried where nothing is learned from below.
_BEYOND, _FARTHEST = 3.0, 256.0
# Overlap that is most of something.
_MOSTLY = 0.9
# Points of one scramble of the map on which branches are followed; those of the map itself tell where they turn.
_POINTS = 256
# Overlap in a direction by which two states differ in it; relative difference below which two folds are the same.
_APART, _SAME = 0.02, 0.02
# Relative error of a transition from which on it is noise.
_NOISY = 0.05


def branches(model: Model | OverlapMap, *, most: float | None = None, **settings: Any) -> Solution:
    """Every branch of fixed points up to alpha = most; ``Solution.value`` is a tuple of
    :class:`~smisym.theory.branched.BranchLine` that shows itself.

    most: None for three times the last threshold.  settings: those of the overlap map when ``model`` is a Model.
    PARTIAL where a branch was lost.  Raises InputError for ``most`` that is no positive number.
    """
    omap = as_map(model, **settings)
    most = _most(omap) if most is None else check_most(most)
    found = every_branch(omap, most)
    code = Result.PARTIAL if _is_lost(found) else Result.SUCCESS
    lines = Branches(map(BranchLine.of, found), omap.model.labels)
    return Solution(lines, code, settings={**omap.settings(), "most": most})


def phases(model: Model | OverlapMap, *, most: float | None = None, **settings: Any) -> Solution:
    """Spinodals and information-theoretic transitions up to alpha = most; value: Phases, thresholds by alpha, whose
    ``branches`` are the fixed points that they were found on.

    kind "spinodal": where a branch of fixed points turns in alpha; below it (of a smallest alpha) or above it (of a
    largest) it has no point.  ``Q`` is the overlap there.  kind "information": where two stable fixed points have the
    same free entropy; ``Q`` is the one that is the optimum above.  Where that is Q = I, whose free entropy is infinite
    as soon as it is stable, the transition is where it becomes stable.
    ``subspace`` and ``names`` are the directions in which both differ.

    Branches are followed on a map of few points, folds and crossings told by the map itself: ``samples`` steer their
    errors (standard errors over the scrambles, and what the fit of a fold may miss).  most: None for three times the
    last threshold.  settings: those of the overlap map when ``model`` is a Model.

    checks: "unseen", the relative depth in alpha that a fold must have to be told from chance.

    Result: SUCCESS, PARTIAL where a branch was lost, NOISY where an error is above 5 %, where chance would hide a fold
    of that depth, or where the optimum must change between two folds and chance hides where.
    Raises InputError for ``most`` that is no positive number, and for settings that the map refuses.
    """
    omap = as_map(model, **settings)
    most = _most(omap) if most is None else check_most(most)
    points = min(_POINTS, omap.samples // omap.scrambles)
    rough = every_branch(omap.sibling(points * omap.scrambles), most)
    followed = [branch.on(omap) for branch in rough]
    changes, missed = _information(omap, followed, most)
    found = [*_spinodals(omap, followed), *changes]
    lost = _is_lost(followed)
    # A fold that is less deep than chance goes unseen.
    unseen = max((branch.unseen for branch in followed if branch.points or branch.ends != "lost"), default=0.0)
    noisy = missed or unseen > _NOISY or any(t.error > _NOISY * t.alpha for t in found)
    code = Result.NOISY if noisy else Result.PARTIAL if lost else Result.SUCCESS
    found.sort(key=lambda threshold: threshold.alpha)
    return Solution(
        Phases(found, omap.model.labels, map(BranchLine.of, followed)),
        code,
        statistical_error=tuple(t.error for t in found),
        degrees_of_freedom=omap.scrambles - 1,
        settings={**omap.settings(), "most": most},
        checks={"unseen": unseen},
    )


def _is_lost(branches: Sequence[Branch]) -> bool:
    return any(branch.ends == "lost" and (branch.begins == "weak" or not branch.points) for branch in branches)


def _most(omap: OverlapMap) -> float:
    """Three times what there is to see from below, and from above where nothing is."""
    stable = counting(omap.model)[1]
    below = [stage.alpha for stage in staircase(omap, roughly=True)]
    known = [alpha for alpha in (*below, stable) if math.isfinite(alpha) and alpha > 0]
    if not known and below:
        known = [_mostly(omap)]
    return _BEYOND * max(known) if known else _FARTHEST


def _mostly(omap: OverlapMap) -> float:
    """About where most is known of what is learned at any alpha: the first of 1/4, 1/2, 1, 2, ..."""
    alpha = 0.25
    while alpha < _FARTHEST / _BEYOND:
        Q = solve(omap, 0, alpha).Q
        if np.linalg.eigvalsh(Q)[-1] > _MOSTLY:
            break
        alpha *= 2
    return alpha


def _spinodals(omap: OverlapMap, followed: Sequence[Branch]) -> list[Threshold]:
    found = list[Fold]()
    for branch in followed:
        for at in branch.turns:
            one = fold(branch, at)
            if one is not None and not any(_same(one, other) for other in found):
                found.append(one)
    return [
        _threshold(omap.model, "spinodal", one.alpha, math.hypot(one.error, one.shape), one.Q, np.zeros_like(one.Q))
        for one in found
    ]


def _same(one: Fold, other: Fold) -> bool:
    near = abs(one.alpha - other.alpha) < _SAME * one.alpha
    return near and one.largest == other.largest and np.abs(one.Q - other.Q).max() < 0.1


def _information(omap: OverlapMap, followed: Sequence[Branch], most: float) -> tuple[list[Threshold], bool]:
    """All of them, and whether one must be there that was not found."""
    parted = [[piece for piece in branch.resting() if len(piece.points) > 2] for branch in followed]
    pieces, missed = [piece for own in parted for piece in own], False
    idle = nothing(omap, most)
    pieces = pieces if idle is None else [idle, *pieces]
    found = list[Crossing]()
    for k, one in enumerate(pieces):
        for other in pieces[k + 1 :]:
            lower, upper = sorted((one, other), key=_learned)
            cross = crossing(omap, lower, upper)
            if cross is not None and not any(_alike(cross, known) for known in found):
                found.append(cross)
            missed |= cross is None and any(_folded(lower, upper, own) for own in parted)
    optimal = [_threshold(omap.model, "information", c.alpha, c.error, c.upper, c.lower) for c in found]
    return optimal + _perfect(omap, pieces), missed


def _folded(lower: Branch, upper: Branch, own: Sequence[Branch]) -> bool:
    """Whether two pieces are neighbours on one branch that folds between them: somewhere they are as good."""
    return any({id(lower), id(upper)} == {id(a), id(b)} for a, b in itertools.pairwise(own))


def _alike(one: Crossing, other: Crossing) -> bool:
    near = abs(one.alpha - other.alpha) <= 4 * math.hypot(one.error, other.error) + 1e-4 * one.alpha
    return near and float(np.abs(one.upper - other.upper).max()) < _APART


def _learned(piece: Branch) -> float:
    return float(np.trace(piece.points[len(piece.points) // 2].Q))


def _perfect(omap: OverlapMap, pieces: Sequence[Branch]) -> list[Threshold]:
    """Where Q = I becomes the optimum, if a stable piece reaches beyond that alpha."""
    alpha, error = counting(omap.model)[1:]
    beyond = [piece for piece in pieces if piece.alphas.max() > alpha * (1 + 2 * _SAME)]
    if not math.isfinite(alpha) or not beyond:
        return []
    eye = np.eye(omap.model.fields)
    last = max(beyond, key=lambda piece: float(piece.alphas.max()))
    return [_threshold(omap.model, "information", alpha, error, eye, last.points[int(last.alphas.argmax())].Q)]


# Many parameters: a record, and the overlaps between which it lies.
def _threshold(model: Model, kind: str, alpha: float, error: float, Q: np.ndarray, other: np.ndarray) -> Threshold:
    values, vectors = np.linalg.eigh(Q - other)
    subspace = vectors.T[values > min(_APART, 0.5 * float(values[-1]))]
    subspace = subspace * np.where(subspace.sum(axis=1) < 0, -1.0, 1.0)[:, None]
    rows = np.flatnonzero(np.abs(subspace).max(axis=0) > 1e-6)
    layers = tuple(sorted({model.row_layers[r] for r in rows}))
    names = tuple(model.labels[r] for r in rows)
    return Threshold(kind, layers, subspace, float(alpha), float(error), Q, names=names)
