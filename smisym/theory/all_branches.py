"""Every branch of fixed points, followed along its own length through the folds where it turns back in alpha.

A branch begins where directions begin to be learned (:mod:`smisym.theory.stages`), or, where nothing leads to it from
below, at the fixed point of an informed start at large alpha.  Pieces of it between two folds on which every small
change shrinks back are what the algorithm may rest at; the others part what flows to one of them from what flows to the
other.  (Keller's continuation, :mod:`smisym.theory.branch`.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from smisym.base.counting import counted
from smisym.base.matrices import units
from smisym.base.solution import Result
from smisym.prior import remaining
from smisym.theory.branch import Passed, followed, once_more
from smisym.theory.fixed_point import solve
from smisym.theory.linearised import Equation
from smisym.theory.maps import OverlapMap
from smisym.theory.stage import BEGUN, Stage
from smisym.theory.stages import staircase

# Length of a step, in log V; steps of one branch at most; what is left of everything where a branch is at its end.
LENGTH, _MOST, LEFT = 0.25, 400, 1e-4
# The least overlap that counts as something learned.
_SOME = 1e-6
# What an informed start leaves to learn, and how much more than an uninformed one it must have learned to be another.
_INFORMED, _APART = 1e-3, 0.02
# Where something is learned at once: alpha at which its branch begins, beside the one up to which it is followed.
_EARLY = 0.05
# Halvings of that alpha, at most, until no more than so much is learned of anything.
_EARLIER, _LITTLE = 30, 0.3
# Where so little is learned at once the branch is that of nothing: free entropies differ by the square of it.
_FAINT = 1e-4
# Points at the beginning of a branch that are looked for on another.
_FIRST = 5
# Points beside a fold that go with those farther off.
_AT_FOLD = 3
# Points between two that are compared for what chance may hide.
_BEHIND = 4
# Standard errors by which alpha must come back for a branch to have turned.
_CLEARLY = 4.0


@dataclass(frozen=True)
class Branch:
    """Fixed points, in the order in which they are met along their branch.

    begins: "weak" where directions begin to be learned, "informed" where it is followed down from an informed start.
    points: of :class:`smisym.theory.branch.Passed`.  outside: those that were met beyond the largest alpha that was
    asked for, before these or after: they tell whether two branches are one.  ends: "perfect", "alpha" (that largest),
    "nothing" (all overlaps vanish), "vanishing" (next to nothing is left of one direction, much more of another: what
    is learned on begins a branch of its own) or "lost" (no further point was found).
    """

    begins: str
    points: tuple[Passed, ...]
    ends: str
    outside: tuple[Passed, ...] = ()

    def __repr__(self) -> str:
        low, high = min(self.alphas, default=math.nan), max(self.alphas, default=math.nan)
        turns = counted(len(self.turns), "fold")
        return f"<Branch: {self.begins}, {len(self.points)} points, alpha {low:.4g} to {high:.4g}, {turns}>"

    @property
    def alphas(self) -> np.ndarray:
        """(n,)"""
        return np.array([point.alpha for point in self.points])

    @property
    def overlaps(self) -> np.ndarray:
        """Q (n, P, P)."""
        return np.array([point.Q for point in self.points])

    @property
    def growth(self) -> np.ndarray:
        """(n,): by how much the fastest small change grows, per iteration; the point is stable where that is below
        one."""
        return np.array([growth(point) for point in self.points])

    @property
    def turns(self) -> tuple[int, ...]:
        """Points where alpha turns: its largest and smallest values on the way, where what lies between two of them is
        more than chance."""
        found, upward, best = list[int](), self.begins != "informed", 0
        for n, point in enumerate(self.points):
            height, error = point.beyond(self.points[best])
            height *= 1 if upward else -1
            if height > 0:
                best = n
            elif -height > _CLEARLY * error:
                found.append(best)
                upward, best = not upward, n
        return tuple(found)

    @property
    def unseen(self) -> float:
        """How much alpha may come back, relative, before that is more than chance: of half of the points."""
        pairs = zip(self.points, self.points[_BEHIND:], strict=False)
        errors = [later.beyond(point)[1] for point, later in pairs]
        # Of a branch of few points nothing is seen, unless it ends as soon as all is known, or nothing any more.
        whole = self.ends in ("perfect", "nothing")
        return _CLEARLY * float(np.median(errors)) if errors else 0.0 if whole else math.inf

    def on(self, omap: OverlapMap) -> Branch:
        """The same points as another map has them; one that it loses is left out."""
        moved = (once_more(omap, point) for point in self.points)
        return Branch(self.begins, tuple(point for point in moved if point is not None), self.ends)

    def pieces(self) -> tuple[Branch, ...]:
        """The branch cut where it turns: on each piece there is one point at any alpha."""
        cuts = [0, *(n + 1 for n in self.turns), len(self.points)]
        return tuple(Branch(self.begins, self.points[a:b], self.ends) for a, b in itertools.pairwise(cuts) if b > a)

    def resting(self) -> tuple[Branch, ...]:
        """Of each piece the points at which the algorithm may rest."""
        stable, n = resting_points(self.growth, self.turns), 0
        found = []
        for piece in self.pieces():
            here = stable[n : n + len(piece.points)]
            n += len(piece.points)
            points = tuple(point for point, rests in zip(piece.points, here, strict=True) if rests)
            found += [Branch(self.begins, points, self.ends)] if points else []
        return tuple(found)


def resting_points(growth: np.ndarray, turns: Sequence[int]) -> np.ndarray:
    """Whether each point (n,) of a branch is stable, told from the growth (n,) at all of them.

    A branch begins stable, and at a fold the number of directions that grow changes by one: after every other fold it
    is odd.  On the pieces between, growth passes one once at most.  Near a fold growth is one, and chance tells on
    which side single points are: they go with the others.
    """
    stable = np.zeros(len(growth), dtype=bool)
    cuts = [0, *(n + 1 for n in turns), len(growth)]
    for first, last in list(itertools.pairwise(cuts))[::2]:
        at = np.flatnonzero(_without_flicker(growth[first:last]))
        if len(at):
            low = 0 if first > 0 and at[0] <= _AT_FOLD else int(at[0])
            high = last - first if last < len(growth) and last - first - 1 - at[-1] <= _AT_FOLD else int(at[-1]) + 1
            stable[first + low : first + high] = True
    return stable


def _without_flicker(growth: np.ndarray) -> np.ndarray:
    """Whether growth (n,) is below one, where it passes one once at most."""
    excess = np.asarray(growth, dtype=float) - 1
    # What it costs to call the first so many points stable, and the others not; and the other way round.
    above, below = np.maximum(excess, 0), np.maximum(-excess, 0)
    first = np.concatenate([[0.0], np.cumsum(above)]) + np.concatenate([np.cumsum(below[::-1])[::-1], [0.0]])
    last = np.concatenate([[0.0], np.cumsum(below)]) + np.concatenate([np.cumsum(above[::-1])[::-1], [0.0]])
    places = np.arange(len(excess))
    if first.min() <= last.min():
        return np.asarray(places < int(first.argmin()))
    return np.asarray(places >= int(last.argmin()))


def growth(point: Passed) -> float:
    """The largest eigenvalue of the derivative of the map (mean of all scrambles) at a point of a branch."""
    mean = np.mean([here.jacobian for here in point.found], axis=0) * point.alpha / point.found[0].alpha
    return float(np.linalg.eigvalsh(mean)[-1])


def every_branch(omap: OverlapMap, most: float) -> tuple[Branch, ...]:
    """Branches of the mean map up to alpha = most: those that begin at a threshold, and the informed one if it is
    another."""
    found = [branch for stage in _stages(omap, most) if (branch := _of_stage(omap, stage, most)) is not None]
    informed = _informed(omap, most)
    if informed is not None and not any(_meet(informed, branch) for branch in found):
        found.append(informed)  # also where it is lost: it is not known what there is
    return tuple(found)


def nothing(omap: OverlapMap, most: float) -> Branch | None:
    """Where nothing is learned, or next to nothing, up to where something begins to be; None where something is at any
    alpha."""
    first = next(staircase(omap, roughly=True), None)
    if first is not None and first.trivial:
        last = _begun_at_once(omap, most)[0]
        if not last:
            return None
    else:
        last = most if first is None else min(most, first.alpha)
    zero, nowhere = np.zeros((omap.model.fields,) * 2), np.zeros(len(omap.model.symmetry.basis))
    points = []
    for share in (0.01, 0.25, 0.5, 0.75, 1.0):
        found = omap.each(lambda r, alpha=share * last: Equation(omap, r).at(zero, alpha))
        still = np.zeros(omap.scrambles)
        points.append(Passed(zero, share * last, still, found, nowhere, np.zeros(len(nowhere) + 1)))
    return Branch("nothing", tuple(points), "weak" if last < most else "alpha")


def _stages(omap: OverlapMap, most: float) -> Iterator[Stage]:
    for stage in staircase(omap, roughly=True):
        if stage.alpha > most:
            return
        yield stage


def _of_stage(omap: OverlapMap, stage: Stage, most: float) -> Branch | None:
    symmetry = omap.model.symmetry
    if stage.trivial:
        begun = _begun_at_once(omap, most)[1]
        if begun is None:
            return None
        alpha, Q = begun
    else:
        alpha, Q = stage.alpha, stage.beginning(symmetry, BEGUN)
    return _branch("weak", omap, Q, alpha, stage.upwards(symmetry), most)


def _begun_at_once(omap: OverlapMap, most: float) -> tuple[float, tuple[float, np.ndarray] | None]:
    """Of what is learned at any alpha: up to which alpha that is next to nothing, 0 where it is more, and an alpha
    with its overlap, at which little is learned; None where there is none up to alpha = most."""
    # Early enough that little is learned yet: where alpha is large the branch may have folded already.
    alpha, faint = _EARLY * most, 0.0
    for _ in range(_EARLIER):
        points = omap.each(lambda r, alpha=alpha: solve(omap, r, alpha, kicked=False))
        Q = np.mean([point.Q for point in points], axis=0)
        learned = float(np.linalg.eigvalsh(Q)[-1])
        if learned < _FAINT:
            faint = alpha
            if alpha >= most:
                break
            alpha = min(2 * alpha, most)
        elif not any(point.known.any() for point in points) and learned < _LITTLE:
            return faint, (alpha, Q)
        else:
            alpha = 0.5 * (faint + alpha)
    return faint, None


def _informed(omap: OverlapMap, most: float) -> Branch | None:
    """Down from the fixed point that an informed start reaches, unless that is perfect or the uninformed one; without
    points where none is reached."""
    P, symmetry = omap.model.fields, omap.model.symmetry
    known = (1 - _INFORMED) * np.eye(P)
    ends = omap.each(lambda r: solve(omap, r, most, Q=known))
    if any(point.known.any() for point in ends):
        return None
    # The mean map is followed from there, whatever single posteriors are off by; some scrambles may have none.
    reached = [point.Q for point in ends if point.result in (Result.SUCCESS, Result.INTEGRATION)]
    if 2 * len(reached) <= len(ends):
        return Branch("informed", (), "lost")
    Q = np.mean(reached, axis=0)
    if np.linalg.eigvalsh(Q)[-1] < _APART:
        return None
    down = -np.einsum("kij,ij->k", units(symmetry.basis), np.eye(P))
    return _branch("informed", omap, Q, most, down, most * (1 + 1e-9))


# Many parameters: where a branch begins, and how far it is followed.
def _branch(begins: str, omap: OverlapMap, Q: np.ndarray, alpha: float, along: np.ndarray, most: float) -> Branch:
    omap.what = f"branch from alpha = {alpha:.3g}"
    points, outside, ends = list[Passed](), list[Passed](), "lost"
    for point in followed(omap, Q, alpha, along, LENGTH):
        values = np.linalg.eigvalsh(point.Q)
        if point.alpha > most:
            outside.append(point)
            if begins == "weak" or points or len(outside) >= _FIRST:
                ends = "alpha"
                break
            # The mean map has what an informed start reached a little farther up than asked for.
            continue
        if values[-1] < _SOME:
            ends = "nothing"
            break
        points.append(point)
        if np.linalg.eigvalsh(remaining(point.Q))[-1] < LEFT:
            ends = "perfect"
            break
        if any(here.vanishing for here in point.found):
            ends = "vanishing"
            break
        if len(points) >= _MOST:
            break
    return Branch(begins, tuple(points), ends, tuple(outside))


def _meet(one: Branch, other: Branch) -> bool:
    """Whether one branch runs along the other: some of its first points lie between two of the other's."""
    return any(_between(point, other) for point in (*one.outside, *one.points[:_FIRST]))


def _between(point: Passed, other: Branch) -> bool:
    for a, b in itertools.pairwise((*other.points, *other.outside)):
        if min(a.alpha, b.alpha) <= point.alpha <= max(a.alpha, b.alpha):
            share = (point.alpha - a.alpha) / (b.alpha - a.alpha) if b.alpha != a.alpha else 0.0
            if np.abs(a.Q + share * (b.Q - a.Q) - point.Q).max() < _APART:
                return True
    return False
