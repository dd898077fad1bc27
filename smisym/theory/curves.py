"""Overlaps against alpha along the path that vanishing side information follows.

Every point is a fixed point of every scramble's own map, solved for and put back (:mod:`smisym.theory.fixed_point`):
nothing is interpolated.  What makes many alphas cheap is where each solve starts: the points before it, extrapolated.
Where Newton's method does not confirm such a start as the fixed point that is reached from below, the point is solved
for from the one before.  So a start only saves time, unless points are so few that a scramble's map is rough and has
several fixed points within a step: which one is found then depends on the alphas asked for, and the comparison with the
mean of all maps (:func:`smisym.theory.collecting.collect`) is what refuses those that are no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from smisym.base.edge import check_alpha
from smisym.base.errors import InputError
from smisym.base.solution import Solution, mean_and_error
from smisym.link.symmetry import Symmetry
from smisym.model.compiled import Model
from smisym.prior import remaining
from smisym.theory.aim import aimed, tolerance
from smisym.theory.along import Curve
from smisym.theory.at_once import fixed_point_near
from smisym.theory.between import passed_over
from smisym.theory.collecting import collect
from smisym.theory.effort import EXACT
from smisym.theory.evolution import refined_at_once
from smisym.theory.fixed_point import solve
from smisym.theory.guesses import Guesses
from smisym.theory.kick import without_traces
from smisym.theory.linearised import Equation
from smisym.theory.maps import OverlapMap
from smisym.theory.onward import Onward, Shifts
from smisym.theory.point import Point

# Newton steps in which a start must settle, and how far from it (in units of what is left to learn).
_STEPS, _FAR = 8, 0.35
# Points that an extrapolation goes through at most.
_THROUGH = 4
# Weight of a point in an extrapolation above which that is none.
_WILD = 30.0
# Share of what is left by which an overlap may lie below that of a smaller alpha: more is another branch.
_BELOW = 1e-3
# Tolerances beside the statistical error of the point before: its share, and between which bounds.
_SHARE, _FINEST, _COARSEST = 0.1, 1e-4, 5e-3
# How many times coarser than that a point may have been solved.
_COARSER = 2.0
# Overlaps that are rounding.
_ROUNDING = 1e-15

# How many times more samples those maps have that are asked where one of few is too rough.
_MORE = 8

Traced = tuple[OverlapMap, list[Point], Solution]
Predictor = Callable[[Sequence[Point], float], np.ndarray | None]


def curve(
    model: Model | OverlapMap,
    alphas: Sequence[float],
    *,
    tol: float | None = None,
    on_point: Callable[[Solution], object] | None = None,
    accuracy: float | None = None,
    most_samples: int | None = None,
    **settings: Any,
) -> Curve:
    """State evolution at many alphas, each as :func:`smisym.state_evolution` gives it, with every scramble's own
    residual as deterministic error.

    Returns a :class:`~smisym.Curve`: a sequence of one Solution for each alpha in increasing order (no alphas, no
    Solutions), value a FixedPoint; ``on_point`` is called with each as soon as it is known.

    tol
        On Newton's step, relative to what is left to learn.  None: about a tenth of the statistical error, between
        1e-4 and 5e-3.
    accuracy, most_samples
        The largest error of any overlap, as of :func:`smisym.state_evolution`: the whole curve is solved with few
        samples, and alphas whose error is larger once more, each with as many as it takes.
    settings
        Of the overlap map when ``model`` is a Model: samples, scrambles, seed, rtol, workers, store.

    Raises InputError for an alpha that is no number between 0 and 1e6, and for settings that the map refuses.
    """
    omap, aim = aimed(model, accuracy, most_samples, **settings)
    done: list[Solution] = []
    wanted_at = sorted(_listed(alphas))
    told = None if aim is None or not wanted_at else _Told(omap, tolerance(aim), wanted_at[-1])
    traced, onward = _traced(omap, wanted_at, tol, told, aim.accuracy if aim else 0.0), Onward()
    if aim is not None:
        wanted = tolerance(aim)
        # All of it with few samples first: where time runs out, every alpha has an answer.
        traced = iter(list(traced))
    for first, points, found in traced:
        if aim is not None:
            omap.what = first.what = f"curve at alpha = {found.value.alpha:g}"
            found = replace(found, settings=found.settings | {"tol": wanted})
            found = refined_at_once(first, aim, points, found, onward)
        done.append(found)
        if on_point is not None:
            on_point(found)
    return Curve(done)


class _Told:
    """Fixed points by one evaluation near where a map of few points has them."""

    def __init__(self, omap: OverlapMap, tol: float, last: float) -> None:
        # A map that is too rough for a straight line is so at the next alpha as well.
        self.maps, self.tol, self.shifts = [omap, omap.sibling(_MORE * omap.samples)], tol, Shifts()
        omap.what = "the way along the curve"
        self.guesses = Guesses.of(omap, last)
        self.rough, self.stage = 0, np.zeros(omap.model.fields, dtype=bool)

    def __call__(self, alpha: float) -> Traced | None:
        guess = self.guesses.at(alpha)
        if guess is None:
            return None
        if not self.shifts.at(guess) and not np.array_equal(learned := np.diag(guess) > 0, self.stage):
            self.rough, self.stage = 0, learned
        for number in range(self.rough, len(self.maps)):
            closer_by, omap = self.shifts.moved(guess, alpha), self.maps[number]
            told = None if closer_by is None else self._near(omap, closer_by, alpha, omap.samples)
            told = told or self._near(omap, guess, alpha, self.guesses.samples)
            if told is not None:
                self.rough = number
                self.shifts.learn(alpha, guess, told[1].value.Q)
                return omap, *told
        # Nor does any other of this stage: the guesses are too far off.
        self.rough = len(self.maps)
        return None

    def _near(self, omap: OverlapMap, Q: np.ndarray, alpha: float, known: int) -> tuple[list[Point], Solution] | None:
        return fixed_point_near(omap, Q, alpha, known, self.tol, most=1)


def _traced(
    omap: OverlapMap, alphas: Sequence[float], tol: float | None, told: _Told | None = None, enough: float = 0.0
) -> Iterator[Traced]:
    """At each alpha, increasing, a map, the points of all its scrambles, and the solution that they make.

    told: what is asked first, of which those are solved for that it does not tell.  enough: the error of overlaps that
    is small enough.
    """
    paths = [ScramblePath(omap, r) for r in range(omap.scrambles)]
    near = _COARSEST if tol is None else tol
    for alpha in alphas:
        omap.what = f"curve at alpha = {alpha:g}"
        known = None if told is None else told(alpha)
        if known is not None:
            if known[0] is omap:
                for path, point in zip(paths, known[1], strict=True):
                    path.found.append(point)
            yield known
            continue
        points = omap.each(lambda r, alpha=alpha, near=near: paths[r].at(alpha, near))
        wanted = _tolerance(omap, points) if tol is None else tol
        if near > _COARSER * wanted:
            points = omap.each(lambda r, wanted=wanted: paths[r].again(wanted))
            near = wanted
        yield omap, points, collect(omap, points, "symmetry-broken", near, enough)
        near = wanted


def _listed(alphas: Sequence[float]) -> list[float]:
    """The alphas, checked; an iterator can be read but once."""
    if not isinstance(alphas, Iterable):
        raise InputError("alphas", alphas, "a sequence of numbers", f"write curve(model, [{alphas!r}])")
    listed = list(alphas)
    for alpha in listed:
        check_alpha(alpha)
    return [float(alpha) for alpha in listed]


def _tolerance(omap: OverlapMap, points: Sequence[Point]) -> float:
    """What to solve the next point to: a share of the statistical error of this one, beside what is left."""
    if omap.model.channel.posterior.alike:
        return EXACT
    mean, spread = mean_and_error(np.array([point.Q for point in points]))
    q, error = omap.model.symmetry.coordinates(mean), np.abs(omap.model.symmetry.coordinates(spread))
    open_ = (q > 0) & (q < 1) & (error > 0)
    if not open_.any():
        return _COARSEST
    return float(np.clip(_SHARE * (error[open_] / (1 - q[open_])).min(), _FINEST, _COARSEST))


class ScramblePath:
    """One scramble's fixed points at increasing alphas.

    predict: where to look first, from the points so far (at least one) and an alpha: an overlap, or None where there is
    no telling.  It saves time and decides nothing: what Newton's method makes of it must be confirmed.
    """

    def __init__(self, omap: OverlapMap, r: int, predict: Predictor | None = None) -> None:
        self.omap, self.r = omap, r
        self.predict = predict or partial(extrapolated, omap.model.symmetry)
        self.found: list[Point] = []

    def at(self, alpha: float, tol: float) -> Point:
        """The fixed point at alpha, which is not below those asked for before."""
        last = self.found[-1] if self.found else None
        if last is not None and last.perfect:
            # More data never hurt: E grows with Q, and alpha E with alpha.
            found = replace(last, alpha=alpha, history=[])
        else:
            ahead = self._ahead(alpha, tol)
            # One that vanishing side information leaves is below what it leads to, as the last one is.
            found = ahead if ahead is not None and ahead.stable else self._from(ahead or last, alpha, tol)
        self.found.append(found)
        return found

    def again(self, tol: float) -> Point:
        """The last point, to a finer tolerance."""
        last = self.found.pop()
        self.found.append(last if last.perfect or not last.result.ok else self._from(last, last.alpha, tol))
        return self.found[-1]

    def _from(self, start: Point | None, alpha: float, tol: float) -> Point:
        """What vanishing side information reaches from a point, or from nothing."""
        Q, known = (None, None) if start is None else (self._begun(start, alpha), start.known)
        return solve(self.omap, self.r, alpha, Q=Q, known=known, tol=tol)

    def _begun(self, point: Point, alpha: float) -> np.ndarray:
        """Where to start from: the point's overlap, but nothing where less is learned than a kick gives and grows.

        So close to nothing the residual is below any tolerance, whether or not the direction is unstable.
        """
        Q, at = _evaluated(point), point.at
        if at is None or not point.alpha or at.growth(at.active)[0] * alpha / point.alpha <= 1:
            return Q
        Q = without_traces(Q, self.omap.model.symmetry)
        return np.asarray(np.where(np.abs(Q) < _ROUNDING, 0.0, Q))

    def _ahead(self, alpha: float, tol: float) -> Point | None:
        """The fixed point near where the last ones point to, or None where there is none that can be trusted."""
        if not self.found:
            return None
        start = self.predict(self.found, alpha)
        if start is None:
            return None
        last = self.found[-1]
        correction = None if last.correction is None else last.correction.copy()
        found = solve(
            self.omap, self.r, alpha, Q=start, known=last.known, tol=tol, max_steps=_STEPS, kicked=False,
            correction=correction,
        )  # fmt: skip
        return found if self._confirmed(found, start) else None

    def _confirmed(self, found: Point, start: np.ndarray) -> bool:
        """Whether Newton's method settled near the start, at a fixed point above the last one."""
        if not found.result.ok or found.at is None or found.perfect:
            return False
        before, after = (remaining(_evaluated(point)) for point in (self.found[-1], found))
        lost = np.linalg.eigvalsh(before * (1 + _BELOW) - after)[0]
        ratio = np.linalg.eigvals(np.linalg.solve(remaining(start), after)).real
        if lost < -1e-12 or np.abs(np.log(ratio)).max() > _FAR:
            return False
        # The last point was evaluated: that it is no fixed point any more, and how steeply, costs nothing to know.
        last = self.found[-1]
        below = Equation(self.omap, self.r).at(_evaluated(last), found.alpha, last.known)
        return not passed_over(below, found.at)


def extrapolated(symmetry: Symmetry, found: Sequence[Point], alpha: float) -> np.ndarray | None:
    """An overlap (P, P) from polynomials in alpha through log V of the last points of the same stage."""
    active = _active(found[-1])
    points: list[Point] = []
    for point in reversed(found[-_THROUGH:]):
        same = (_active(point) == active).all() and np.allclose(point.known, found[-1].known)
        if not same or not point.result.ok or (points and point.alpha >= points[-1].alpha):
            break
        points.append(point)
    if not active.any() or len(points) < 2:
        return None
    at = np.array([point.alpha for point in points])
    logs = np.array([_log(remaining(_evaluated(p))) for p in points])
    # Through as many points as would have told the last one best.
    missed = [np.abs(_onward(at[1:n], logs[1:n], at[0]) - logs[0]).max() for n in range(3, len(at) + 1)]
    through = 2 + int(np.argmin(missed)) if missed else 2
    if np.abs(_weights(at[:through], alpha)).max() > _WILD:
        return None  # far beyond points that lie close together
    values, vectors = np.linalg.eigh(_onward(at[:through], logs[:through], alpha))
    Q = remaining((vectors * np.exp(values)) @ vectors.T)
    Q = symmetry.project(np.where(np.abs(_evaluated(points[0])) > 0, Q, 0.0))
    V = remaining(_evaluated(points[0]))
    # More is learned, but not all of a sudden.
    grows = np.linalg.eigvalsh(Q - _evaluated(points[0]) + _BELOW * V)[0] >= 0
    grows = grows and np.linalg.eigvalsh(Q)[0] >= 0
    return Q if grows and np.linalg.eigvalsh(remaining(Q) - 0.05 * V)[0] > 0 else None


def _weights(at: np.ndarray, alpha: float) -> np.ndarray:
    """What each of some points counts for in the polynomial through them."""
    return np.array([np.prod([(alpha - b) / (a - b) for b in at if b != a]) for a in at])


def _onward(at: np.ndarray, values: np.ndarray, alpha: float) -> np.ndarray:
    """The polynomial through values (n, ...) at n points."""
    return np.asarray(np.tensordot(_weights(at, alpha), values, axes=1))


def _evaluated(point: Point) -> np.ndarray:
    """The overlap (P, P) at which a point was last evaluated: a little below one where it is perfect."""
    return point.Q if point.at is None else point.at.Q


def _active(point: Point) -> np.ndarray:
    return (np.abs(point.Q) > 0).any(axis=1)


def _log(V: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(V)
    return np.asarray((vectors * np.log(values)) @ vectors.T)
