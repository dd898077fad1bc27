"""What is learned after what: the directions that become unstable along the path of vanishing side information.

A stage begins where a class of idle blocks, which feed one another, grows faster than it decays at the fixed point
that the learned ones have at that alpha.  Where that is, is found on a rough map (a part of every scramble's points)
and then on the map itself, between two alphas at which every scramble's fixed point is solved for: at the lower one
the class decays, at the upper one it grows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smisym.edge import check_model
from smisym.effort import scout_points
from smisym.estimate import Estimate
from smisym.fixed_point import KICK, Point, solve
from smisym.growth import LEAST, clear_growth, coupled_classes, growth_rates
from smisym.linearised import KNOWN, local
from smisym.overlap_map import OverlapMap
from smisym.sentinel import agreement
from smisym.solution import Result, mean_and_error, worst

# Points of one scramble, and scrambles, of the look at Q = 0 that tells trivial directions.
_TRIVIAL_POINTS, _TRIVIAL_SCRAMBLES = 64, 8
# Standard errors (over the scrambles) above which E(0) shows a trivial direction.
_SHOWN = 8.0
# Scrambles of the rough map, and points of each: a part of those of the map, at most so many.
_ROUGH_SCRAMBLES, _ROUGH, _MOST = 2, 2, 256
# Rate of growth below which a direction is hard: squares of what integration leaves in g_out.
NO_RATE = 1e-5
# Share of the limit at perfect overlaps that a rate can have on the way there, at least a little less than all.
_LIMIT = 0.9
# What is left of learned directions where the limit is looked for, and a rate that is plain.
_LEFT, _PLAIN = (1e-2, 1e-4, 1e-6), 1e-2
# Steps in alpha of the search on the rough map, how closely it brackets, and its smallest step.
_SEARCH, _CLOSE, _LEAP = 40, 1.12, 1.25
# Multiple of the least alpha at which a direction can be unstable beyond which none is looked for.
_FARTHEST = 100.0
# Half-width of the bracket on the map itself, relative: a few errors of the rough one, within bounds; and its tries.
_ERRORS, _NARROW, _WIDE, _TRIES = 2.0, 0.02, 0.08, 4
# Tolerance of the fixed points, relative to what is left to learn.
_TOL, _ROUGH_TOL = 5e-4, 2e-3


@dataclass
class Stage:
    """One step of the staircase.

    pivot: the block that grows most.  new: the blocks that begin here, the pivot first.  active (k,): what is learned
    from here on.  alpha, error: where it begins, with statistical and deterministic error; 0 where trivial.
    Q (P, P): the overlap just below.  rates: growth of the class just below and just above, where that was solved for.
    results: of the solves that led here.
    """

    pivot: int
    new: list[int]
    active: np.ndarray
    alpha: float
    error: float
    Q: np.ndarray
    trivial: bool = False
    rates: tuple[float, float] | None = None
    results: list[Result] = field(default_factory=list)


def staircase(omap: OverlapMap) -> Iterator[Stage]:
    """The stages in the order in which they are met, each computed when it is asked for.

    ``alpha`` of the first one is sampled at Q = 0; the caller may know it better (:mod:`smisym.over_outputs`).
    """
    check_model(omap.model)
    first = _first(omap)
    if first is None:
        return
    yield first
    stage = first
    while not stage.active.all():
        following = _Rung(omap, stage).following()
        if following is None:
            return
        yield following
        stage = following


def idle_directions(omap: OverlapMap, active: np.ndarray) -> np.ndarray:
    """(R, c, c) rates of idle blocks at alpha = 1, by scramble, where the active ones are known almost perfectly; less
    what may be the errors of the integrals.

    Posteriors get dear as more is known, so that less is asked first: where something grows plainly that is enough.
    """
    projector = omap.model.symmetry.basis[active].sum(axis=0) if active.any() else np.zeros((omap.model.fields,) * 2)
    idle = np.flatnonzero(~active)

    def task(r: int, left: float) -> np.ndarray:
        here = local(omap, r, (1 - left) * projector, 1.0, 0.0, np.zeros_like(projector))
        # What may be nothing but errors of the integrals grows at no alpha.
        return (here.jacobian - here.estimate.unclear)[np.ix_(idle, idle)]

    rates = np.zeros((omap.scrambles, len(idle), len(idle)))
    for left in _LEFT if active.any() else _LEFT[:1]:
        rates = np.array(omap.each(lambda r, left=left: task(r, left)))
        mean = rates.mean(axis=0)
        if max((_class_rate(mean, m) for m in coupled_classes(mean)), default=0.0) > _PLAIN:
            break
    return rates


# ---- the first stage -------------------------------------------------------------------------------


def _first(omap: OverlapMap) -> Stage | None:
    """What is learned first: trivial directions, or the class that grows fastest at Q = 0; None where nothing is."""
    omap.what = "first threshold"
    symmetry, k = omap.model.symmetry, len(omap.model.symmetry.basis)
    nothing, zero = np.zeros(k, dtype=bool), np.zeros((omap.model.fields,) * 2)
    points = min(scout_points(omap.model), 2 ** (omap.samples.bit_length() - 1))
    small = omap.sibling(2 * points, 2)
    still = small.at(0, zero)
    trivial = trivial_coordinates(small)
    if trivial.any():
        shown = np.where(trivial, symmetry.coordinates(still.three[0]), 0.0)
        pivot = int(shown.argmax())
        active = _excited(small, pivot, trivial, shown)
        return Stage(pivot, [int(b) for b in np.flatnonzero(trivial)], active, 0.0, 0.0, zero, trivial=True)
    growth, _ = clear_growth(small, still)
    if growth.max() <= 0:
        return None
    pivot, together = _fastest(small, still, nothing, growth)
    active = _excited(small, pivot, together, np.zeros(k))
    new = [pivot, *[int(b) for b in np.flatnonzero(active) if b != pivot]]
    estimates = omap.evaluate(zero)
    members = np.flatnonzero(together)
    rates = np.array([_class_rate(growth_rates(omap, e, nothing)[1], members) for e in estimates])
    rate, error = mean_and_error(rates)
    found = agreement(omap, estimates)
    results = [] if found.holds else [Result.NISHIMORI]
    # 1 / the mean rate, which a few samples bias less than they do the mean of 1 / rate.
    return Stage(pivot, new, active, float(1 / rate), float(error / rate**2), zero, results=results)


def _fastest(omap: OverlapMap, estimate: Estimate, active: np.ndarray, growth: np.ndarray) -> tuple[int, np.ndarray]:
    """(pivot, blocks (k,)) of the class that grows fastest: all of it becomes unstable at once, the pivot most."""
    idle, rates = growth_rates(omap, estimate, active)
    fastest = int(growth.argmax())
    (members,) = [m for m in coupled_classes(rates) if fastest in idle[m]]
    return _leader(omap, idle, rates, members)


def _leader(omap: OverlapMap, idle: np.ndarray, rates: np.ndarray, members: list[int]) -> tuple[int, np.ndarray]:
    """(pivot, blocks (k,)) of one class of idle blocks with these rates."""
    symmetry = omap.model.symmetry
    vector = np.abs(np.linalg.eigh(rates[np.ix_(members, members)])[1][:, -1])
    blocks = np.zeros(len(symmetry.basis), dtype=bool)
    blocks[idle[members]] = True
    # Overlap per row, as the coordinates are eigenvalues.
    size = np.trace(symmetry.basis[idle[members]], axis1=1, axis2=2)
    return int(idle[members][int((vector / np.sqrt(size)).argmax())]), blocks


def _class_rate(rates: np.ndarray, members: Sequence[int] | np.ndarray) -> float:
    which = np.asarray(members, dtype=int)
    return float(np.linalg.eigvalsh(rates[np.ix_(which, which)])[-1])


def trivial_coordinates(omap: OverlapMap) -> np.ndarray:
    """Which blocks of rows have g_out(y, 0, I) other than 0: (k,) booleans.

    A block that some symmetry flips has g_out = 0 there exactly; no estimate is asked.
    """
    symmetry = omap.model.symmetry
    found = np.zeros(len(symmetry.basis), dtype=bool)
    fixed = np.array([_fixed(symmetry, B) for B in symmetry.basis], dtype=bool)
    if not fixed.any():
        return found
    estimates = trivial_map(omap).evaluate(np.zeros((omap.model.fields,) * 2))
    shown = np.array([symmetry.coordinates(e.three[0]) for e in estimates])
    mean, error = mean_and_error(shown)
    bounded = [e.inner_error for e in estimates if np.isfinite(e.inner_error)]
    inner = float(np.mean(bounded)) if bounded else 0.0
    found[fixed] = (np.asarray(mean) > np.maximum(_SHOWN * np.asarray(error), max(inner, LEAST)))[fixed]
    return found


def trivial_map(omap: OverlapMap) -> OverlapMap:
    """The few points that tell trivial directions."""
    return omap.sibling(_TRIVIAL_POINTS * _TRIVIAL_SCRAMBLES, _TRIVIAL_SCRAMBLES)


def _excited(small: OverlapMap, pivot: int, active: np.ndarray, q: np.ndarray) -> np.ndarray:
    """``active`` and the blocks that are learned with it at once, because g_out does not vanish there any more.

    Only blocks that no symmetry flips while it leaves the active rows where they are can be.
    """
    symmetry = small.model.symmetry
    may = np.array([_fixed(symmetry, B, active) for B in symmetry.basis]) & ~active
    if not may.any():
        return active
    q = np.where(active, np.clip(q, 0.0, 0.9), 0.0)
    q[pivot] = max(q[pivot], 0.3)
    shown = symmetry.coordinates(small.at(0, symmetry.matrix(q)).three[0])
    return np.asarray(active | (may & (shown > 1e-6 * shown[pivot])))


def _fixed(symmetry: Any, B: np.ndarray, active: np.ndarray | None = None) -> bool:
    """Whether the part of the group that leaves active rows where they are leaves some vector in the range of B too."""
    elements, rotations = symmetry.elements, symmetry.rotations
    if active is not None and active.any():
        known = symmetry.basis[active].sum(axis=0)
        elements = elements[np.abs(elements @ known - known).max(axis=(1, 2)) < 1e-9]
        touched = np.abs(known).max(axis=0) > 1e-9
        rotations = [group for group in rotations if not any(touched[row] for rows in group for row in rows)]
    average = elements.mean(axis=0)
    turned = [row for group in rotations for rows in group for row in rows]
    average[turned] = 0.0
    return bool(np.abs(average @ B).max() > 1e-9)


# ---- the next one ----------------------------------------------------------------------------------


@dataclass
class _Look:
    """Fixed points of all scrambles at one alpha, with only the stage's blocks learned, and what is idle there.

    rates (R, c, c): alpha times the derivative of E among idle blocks.
    """

    alpha: float
    points: list[Point]
    rates: np.ndarray

    def growth(self, members: Sequence[int]) -> np.ndarray:
        """(R,) of one class."""
        return np.array([_class_rate(rates, members) for rates in self.rates])

    def mean(self, members: Sequence[int]) -> float:
        return max(float(self.growth(members).mean()), 1e-300)


class _Rung:
    """From one stage to the next."""

    def __init__(self, omap: OverlapMap, stage: Stage) -> None:
        self.omap, self.stage = omap, stage
        few = max(min(omap.samples // omap.scrambles // _ROUGH, _MOST), 2)
        self.rough = omap.sibling(few * _ROUGH_SCRAMBLES, _ROUGH_SCRAMBLES)
        self.idle = np.flatnonzero(~stage.active)
        self.looks: list[_Look] = []  # on the rough map, by alpha

    def following(self) -> Stage | None:
        """The next stage, or None where no idle block ever grows."""
        self.omap.what = f"next threshold, beyond alpha = {self.stage.alpha:.3g}"
        limits = idle_directions(self.rough, self.stage.active)
        best = max(
            (max(_class_rate(limits.mean(axis=0), m), 0.0) for m in coupled_classes(limits.mean(axis=0))), default=0.0
        )
        if best <= NO_RATE:
            return None
        found = self._bracketed(_LIMIT / best)
        if found is None:
            return None
        low, high, members = found
        if low is None:
            return self._at_once(high, members)
        return self._measured(low, high, members)

    # ---- fixed points ------------------------------------------------------------------------------

    def _look(self, omap: OverlapMap, alpha: float, starts: Sequence[Point | None], tol: float) -> _Look:
        """Solve at alpha, every scramble from a start or from the beginning of the stage."""

        def task(r: int) -> Point:
            start = starts[r % len(starts)]
            Q = self._beginning() if start is None or start.at is None else start.at.Q
            known = None if start is None else start.known
            return solve(omap, r, alpha, Q=Q, known=known, kicked=False, tol=tol)

        points: list[Point] = omap.each(task)
        on = np.ix_(self.idle, self.idle)
        rates = np.array([p.at.jacobian[on] if p.at is not None else np.zeros((len(self.idle),) * 2) for p in points])
        return _Look(alpha, points, rates)

    def _beginning(self) -> np.ndarray:
        """Where the path is as the stage begins: what was learned before, and a little of what is new."""
        if self.stage.trivial:
            return np.zeros((self.omap.model.fields,) * 2)
        symmetry = self.omap.model.symmetry
        q = symmetry.coordinates(self.stage.Q)
        q = np.where(self.stage.active, np.clip(q, 0.0, 1 - KNOWN), 0.0)
        q[self.stage.new] = np.maximum(q[self.stage.new], KICK)
        return np.asarray(symmetry.matrix(q))

    def _rough_look(self, alpha: float) -> _Look:
        below = [look for look in self.looks if look.alpha <= alpha]
        starts: list[Point | None] = [None] * self.rough.scrambles if not below else list(below[-1].points)
        made = self._look(self.rough, alpha, starts, _ROUGH_TOL)
        self.looks = sorted([*self.looks, made], key=lambda look: look.alpha)
        return made

    # ---- search ------------------------------------------------------------------------------------

    def _top(self, look: _Look) -> tuple[float, list[int]]:
        """(growth, members) of the class that grows fastest, on average over the scrambles."""
        classes = coupled_classes(look.rates.mean(axis=0))
        return max(((look.mean(m), m) for m in classes), key=lambda pair: pair[0])

    def _bracketed(self, least: float) -> tuple[_Look | None, _Look, list[int]] | None:
        """(look where nothing idle grows, look where something does, what does), close together; on the rough map."""
        low: _Look | None = None
        high: tuple[_Look, list[int]] | None = None
        floor = self.stage.alpha
        alpha = max(1.02 * floor, least)
        for _ in range(_SEARCH):
            look = self._rough_look(alpha)
            growth, members = self._top(look)
            if growth >= 1:
                high = look, members
            else:
                low = look
            if high is None and alpha > _FARTHEST * max(least, floor):
                return None  # what grows is not clear of the errors of the integrals
            if high is None:
                alpha *= min(max(1.02 / growth, _LEAP), 2.0)
                continue
            bottom = max(floor, 1e-3 * high[0].alpha) if low is None else low.alpha
            if high[0].alpha < _CLOSE * bottom:
                return low, *high
            alpha = self._between(low, high[0], high[1], bottom)
        return None if high is None else (low, *high)

    def _between(self, low: _Look | None, high: _Look, members: list[int], bottom: float) -> float:
        """Where to look next inside a bracket: where the rates say, away from the ends."""
        x0, x1 = math.log(bottom), math.log(high.alpha)
        share = 0.5
        if low is not None:
            f0, f1 = math.log(low.mean(members)), math.log(high.mean(members))
            share = -f0 / (f1 - f0) if f1 > f0 else 0.5
        return math.exp(x0 + min(max(share, 0.15), 0.85) * (x1 - x0))

    # ---- results -----------------------------------------------------------------------------------

    def _at_once(self, high: _Look, members: list[int]) -> Stage:
        """The next class grows as soon as the stage has begun."""
        last = self.stage
        error = max(last.error, high.alpha - last.alpha)
        return self._stage(high, members, last.alpha, error, (0.0, high.mean(members)), [self._judged([high])])

    def _measured(self, low: _Look, high: _Look, members: list[int]) -> Stage:
        """The crossing on the map itself, between two alphas at which all scrambles are solved for."""
        roots = _roots(low, high, members)
        alpha, spread = (float(x) for x in mean_and_error(roots))
        half = min(max(_ERRORS * spread / alpha * math.sqrt(2), _NARROW), _WIDE)
        starts: Sequence[Point | None] = high.points
        looks: list[_Look] = []
        for _ in range(_TRIES):
            for at in (alpha / (1 + half), alpha * (1 + half)):
                looks.append(self._look(self.omap, at, starts, _TOL))
                starts = looks[-1].points
            looks.sort(key=lambda look: look.alpha)
            below = [look for look in looks if look.mean(members) < 1]
            above = [look for look in looks if look.mean(members) >= 1]
            if below and above and below[-1].alpha < above[0].alpha:
                break
            alpha = float(np.mean(_roots(looks[0], looks[-1], members)))
            half = min(2 * half, _WIDE)
        if not below or not above:
            middle = looks[len(looks) // 2]
            rates = looks[0].mean(members), looks[-1].mean(members)
            return self._stage(middle, members, middle.alpha, half * middle.alpha, rates, [Result.RESIDUAL])
        low, high = below[-1], above[0]
        value, error = (float(x) for x in mean_and_error(_roots(low, high, members)))
        # What the straight line between the two ends may miss: as much as a growth of its own between them.
        bend = (high.alpha - low.alpha) ** 2 / (8 * value)
        code = self._judged([low, high])
        rates = low.mean(members), high.mean(members)
        return self._stage(low, members, value, math.hypot(error, bend), rates, [code])

    def _judged(self, looks: Sequence[_Look]) -> Result:
        codes = []
        for look in looks:
            codes += [point.result for point in look.points]
            estimates = [point.at.estimate for point in look.points if point.at is not None]
            codes.append(Result.SUCCESS if agreement(self.omap, estimates).holds else Result.NISHIMORI)
        return worst(codes)

    def _stage(
        self,
        look: _Look,
        members: list[int],
        alpha: float,
        error: float,
        rates: tuple[float, float],
        results: list[Result],
    ) -> Stage:
        mean = look.rates.mean(axis=0)
        pivot, together = _leader(self.omap, self.idle, mean, members)
        symmetry = self.omap.model.symmetry
        Q = np.maximum(np.mean([symmetry.coordinates(p.Q) for p in look.points], axis=0), 0.0)
        q = np.where(self.stage.active, np.minimum(Q, 1 - KNOWN), 0.0)
        active = _excited(self.rough, pivot, self.stage.active | together, q)
        new = [pivot, *[int(b) for b in np.flatnonzero(active & ~self.stage.active) if b != pivot]]
        return Stage(pivot, new, active, alpha, error, symmetry.matrix(Q), rates=rates, results=results)


def _roots(low: _Look, high: _Look, members: list[int]) -> np.ndarray:
    """(R,) alphas at which a class has growth one, by a line through both looks in logarithms, scramble by scramble."""
    x0, x1 = math.log(low.alpha), math.log(high.alpha)
    f0, f1 = (np.log(np.maximum(look.growth(members), 1e-300)) for look in (low, high))
    slope = (f1 - f0) / (x1 - x0)
    # A scramble whose rates happen not to rise is read off with the slope of all.
    mean = (math.log(high.mean(members)) - math.log(low.mean(members))) / (x1 - x0)
    slope = np.where(slope > 0.2 * mean, slope, mean)
    if mean <= 0:
        return np.full(len(f0), high.alpha)
    return np.exp(0.5 * (x0 + x1) - 0.5 * (f0 + f1) / slope)
