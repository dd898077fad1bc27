"""What the fixed points of all scrambles make: their mean, its error, and what it is held against.

What is reported was put back into the equation: the step that Newton's method would still make there is the
deterministic error, in the unit of Q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from smisym.base.cards import Blocks, Card, Cell, Grid, Listing, Number, Shown, row_names
from smisym.base.derivation import Formula
from smisym.base.outcome import Outcome, Solved, ending, notice
from smisym.base.solution import Result, Solution, mean_and_error, worst
from smisym.theory.along import Curve
from smisym.theory.fixed_point import FINE, NEARLY, put_back
from smisym.theory.linearised import UNSTABLE, Equation, Local, placed
from smisym.theory.maps import OverlapMap
from smisym.theory.point import Point
from smisym.theory.sentinel import agreement, judged, outlying, sound
from smisym.theory.taking_over import alike
from smisym.theory.unshown import of_idle

# What a scramble may leave of a direction that others know perfectly.
_NEITHER = 0.01
# Standard errors above one from which on growth is clear.
_CLEARLY = 3.0


@dataclass(frozen=True)
class FixedPoint(Shown, Outcome):
    """A fixed point of state evolution at one alpha.

    Q, Q_error (P, P): mean over the scrambles and its standard error, which of a success also holds what outputs too
    rare for any of the points to show would change.  Q_hat (P, P): alpha E(Q), infinite entries at perfect recovery,
    of everything or of some directions.  overlaps (R, k): each scramble's solution in the
    invariant coordinates.  start: where the iteration began.  stable (R,): whether small overlaps in all invariant
    directions shrink back.  potential (R,): E log Zout at each scramble's solution, NaN where any direction is perfect.
    names: of the rows of Z.
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
    names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        rows = np.array2string(np.diag(self.Q), precision=4, separator=", ", threshold=8)
        return f"FixedPoint(alpha={self.alpha:g}, start={self.start!r}, diagonal of Q={rows})"

    @property
    def perfect(self) -> bool:
        """Whether every scramble reached Q = I to rounding."""
        return bool(np.abs(self.Q - np.eye(len(self.Q))).max() == 0.0)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each row of Q."""
        return row_names(self.names, len(self.Q))

    def card(self) -> Card:
        """What a notebook shows, as plain data."""
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (name, *_pairs(self.Q, self.Q_error, row)) for row, name in enumerate(self.labels[:_SHOWN])
        )
        head = ("overlap with the truth", *self.labels[:_SHOWN])
        facts: tuple[tuple[str, Cell], ...] = ((r"$\alpha$", Number(self.alpha)), ("start", self.start))
        notes = () if len(self.Q) <= _SHOWN else (f"The first {_SHOWN} of {len(self.Q)} rows.",)
        picture = self._blocks if len(self.Q) >= _DRAWN else None
        return Card("Fixed point of state evolution", "", facts, (_EQUATION,), Listing(head, rows), picture, notes)

    def card_of(self, solution: Solved) -> Card:
        own = self.card()
        left = solution.deterministic_error
        facts = [*own.facts, *(fact for fact in ending(solution) if fact[0] != own.facts[0][0])]
        if left is not None:
            facts.append(("left of the equation", Number(float(np.max(left)))))
        return replace(own, notice=notice(solution), facts=tuple(facts))

    def grid_of(self, solution: Solved) -> Grid:
        return Curve([cast(Solution, solution)]).grid()

    def picture_of(self, solution: Solved) -> Blocks:
        return self._blocks

    @property
    def _blocks(self) -> Blocks:
        return Blocks(self.Q, self.Q_error, self.labels)


_EQUATION = Formula("Q", r"\hat Q \, (I + \hat Q)^{-1}, \qquad \hat Q = \alpha \, E(Q)")
# Rows that a table for people has, and from how many on a picture helps.
_SHOWN, _DRAWN = 8, 3


def _pairs(Q: np.ndarray, error: np.ndarray, row: int) -> tuple[Number, ...]:
    return tuple(Number(float(q), float(e)) for q, e in zip(Q[row, :_SHOWN], error[row, :_SHOWN], strict=True))


def perfect_part(Q: np.ndarray) -> np.ndarray:
    """Projector (P, P) on the directions in which an overlap is exactly one."""
    values, vectors = np.linalg.eigh(Q)
    known = vectors[:, values > 1 - 1e-13]
    return np.asarray(known @ known.T)


def collect(omap: OverlapMap, points: Sequence[Point], start: str, tol: float, enough: float = 0.0) -> Solution:
    """The solution that the scrambles' fixed points make, held against its equation and against Nishimori's.

    enough: the error of overlaps that is small enough; where some are perfect and all others nearly, to within it, all
    know the same.
    """
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
    if code is Result.SUCCESS and _branches_differ(points, enough):
        code = Result.NOISY
    overlaps = omap.model.symmetry.coordinates(stacked)
    strays = outlying(overlaps, floor=10 * tol) or not all(sound(omap, estimate) for estimate in estimates)
    result = judged(code, found, left_is_small=small, strays=strays)
    checks = {"residual": left, "nishimori": found.record()}
    if result is Result.SUCCESS:
        kicked = start != "uninformed"
        at_mean = _at_the_mean(omap, points, Q, kicked)
        if at_mean is not None:
            bias, rare = at_mean
            idle = of_idle(omap, points, Q) if kicked else np.zeros_like(Q)
            checks |= {"bias": bias, "rare": rare, "idle": idle}
            error = np.hypot(np.maximum(error, idle), rare)
            if idle.max() >= 1:
                result = Result.NOISY
            unseen = bias > np.maximum(error, min(tol, FINE))
            # Near Q = I it may be more than the spread shows, and still less than anybody asked.
            left = np.where(unseen, np.maximum(left, bias), left)
            if (unseen & ~(bias <= enough)).any():
                result = Result.NOISY
    return Solution(
        FixedPoint(
            points[0].alpha,
            Q,
            error,
            conjugate(points),
            overlaps,
            start,
            points[0].side_information,
            np.array([point.stable for point in points]),
            np.array([point.potential for point in points]),
            omap.model.labels,
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


def _branches_differ(points: Sequence[Point], enough: float) -> bool:
    """Whether some scrambles know a direction perfectly and others do not by far: a mean of the two is neither."""
    known = [float(np.trace(point.known)) for point in points]
    if max(known) - min(known) < 0.5:
        return False
    most = points[int(np.argmax(known))].known
    return min(float(np.trace(most @ point.Q)) for point in points) < np.trace(most) - max(_NEITHER, enough)


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
    if kicked and left_behind(found, ~active):
        return np.full_like(Q, np.inf), nothing
    if not active.any():
        return nothing, nothing
    slopes = np.eye(int(active.sum())) - np.mean([here.scaled for here in found], axis=0)[np.ix_(active, active)]
    if np.linalg.eigvals(slopes).real.min() <= 0:
        return np.full_like(Q, np.inf), nothing
    step = np.zeros(len(active))
    step[active] = np.linalg.solve(slopes, np.mean([here.residual for here in found], axis=0)[active])
    return np.abs(found[0].in_overlap(step)), unseen_change(omap, found[0], slopes, active)


def unseen_change(omap: OverlapMap, here: Local, slopes: np.ndarray, active: np.ndarray) -> np.ndarray:
    """(P, P): what one output that no point saw would change there; slopes (a, a): of the active coordinates (k,)."""
    if omap.model.channel.posterior.alike:  # there is no such output
        return np.zeros_like(here.Q)
    unseen = np.einsum("kij,ij->k", here.units, here.rest) / omap.samples
    step = np.zeros(len(active))
    step[active] = np.linalg.solve(slopes, unseen[active])
    return np.abs(here.in_overlap(step))


def left_behind(found: Sequence[Local], idle: np.ndarray, doubtful: bool = False) -> bool:
    """Whether what no scramble learned (k,) clearly grows in their mean map; or where that is not clear (doubtful)."""
    if not idle.any():
        return False
    of_idle = np.array([here.jacobian[np.ix_(idle, idle)] for here in found])
    fastest = np.linalg.eigh(of_idle.mean(axis=0))[1][:, -1]
    growth, error = mean_and_error(np.einsum("i,rij,j->r", fastest, of_idle, fastest))
    return bool(growth + (_CLEARLY if doubtful else -_CLEARLY) * error > 1 + UNSTABLE)


def conjugate(points: Sequence[Point]) -> np.ndarray:
    """alpha E(Q) + lam I, averaged; infinite on the diagonal where a direction is perfect."""
    P = len(points[0].Q)
    known = np.mean([point.known for point in points], axis=0)
    finite = [p.alpha * p.E + p.side_information * np.eye(P) for p in points if not p.perfect]
    rest = np.eye(P) - known
    Q_hat = rest @ np.mean(finite, axis=0) @ rest if finite else np.zeros((P, P))
    Q_hat[np.diag_indices(P)] += np.where(np.diag(known) > 1e-9, np.inf, 0.0)
    return np.asarray(Q_hat)
