"""What is learned after what: the directions that become unstable along the path of vanishing side information.

A part is what symmetries leave of the overlaps and no further: one block of rows, or several whose overlaps are
coupled (:attr:`smisym.link.symmetry.Symmetry.parts`).  A stage begins where a class of idle parts, which feed one
another, grows faster than it decays at the fixed point that the learned ones have at that alpha.  Where that is, is
found on a rough map (some of every scramble's points) and then on the map itself, between two alphas at which every
scramble's fixed point is solved for: at the lower one the class decays, at the upper one it grows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from smisym.base.edge import check_model
from smisym.base.errors import InputError, OutOfTime
from smisym.base.solution import Result, mean_and_error
from smisym.theory.aim import INNER, Aim, Tries
from smisym.theory.evolution import collect, tolerance
from smisym.theory.fixed_point import solve
from smisym.theory.growth import class_rate, coupled_classes
from smisym.theory.kick import KICK
from smisym.theory.linearised import KNOWN, Equation
from smisym.theory.maps import OverlapMap
from smisym.theory.point import Point
from smisym.theory.stage import Stage, begun, excited, first_stage, growing, leader, within
from smisym.theory.unshown import finer, of_growth

# Scrambles of the rough map, and points of each: a part of those of the map, at most so many.
_ROUGH_SCRAMBLES, _ROUGH, _MOST = 2, 2, 256
# Rate of growth below which a direction is hard: squares of what integration leaves in g_out.
NO_RATE = 1e-5
# Multiple of what the integrals say of their errors that a rate must exceed to be one.
_DOUBT = 4.0
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
# Part of the accuracy asked for that the straight line between both ends may miss.
_BENT = 0.2
# The most of a direction that is taken over from the rough map.
_MOST_KNOWN = 0.99
# Tolerance of the fixed points, relative to what is left to learn.
_TOL, _ROUGH_TOL = 5e-4, 2e-3


def staircase(omap: OverlapMap, aim: Aim | None = None) -> Iterator[Stage]:
    """The stages in the order in which they are met, each computed when it is asked for.

    ``alpha`` of the first one is sampled at Q = 0; the caller may know it better (:mod:`smisym.theory.over_outputs`).
    aim: what is asked of later ones, which are measured on maps of as many samples as that takes.
    """
    check_model(omap.model)
    first = first_stage(omap)
    if first is None:
        return
    yield first
    stage = first
    unseen = _unseen(omap)
    while stage.after is Result.SUCCESS and not (stage.active | unseen).all():
        following = _Rung(omap, stage, unseen, aim).following()
        if following is None:
            return
        yield following
        stage = following


def idle_directions(omap: OverlapMap, active: np.ndarray, idle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(R, c, c) rates at alpha = 1 of overlaps that are idle (their numbers (c,)), by scramble, where the active parts
    are known almost perfectly; and how much of them may be the errors of the integrals: that grows at no alpha.

    Posteriors get dear as more is known, so that less is asked first: where something grows plainly that is enough.
    """
    symmetry = omap.model.symmetry
    projector, on = symmetry.span(active), np.ix_(idle, idle)

    def task(r: int, left: float) -> tuple[np.ndarray, np.ndarray]:
        here = Equation(omap, r).at((1 - left) * projector, 1.0)
        return here.jacobian[on], here.estimate.unclear[on]

    rates = unclear = np.zeros((omap.scrambles, len(idle), len(idle)))
    for left in _LEFT if active.any() else _LEFT[:1]:
        found: list[tuple[np.ndarray, np.ndarray]] = omap.each(lambda r, left=left: task(r, left))
        rates, unclear = (np.array(x) for x in zip(*found, strict=True))
        if largest_rate((rates - unclear).mean(axis=0), symmetry.parts[idle]) > _PLAIN:
            break
    return rates, unclear


def _unseen(omap: OverlapMap) -> np.ndarray:
    """Which parts an analytic output never sees, exactly: nothing of them is ever learned."""
    directions = omap.model.symmetry.directions
    try:
        ranks = omap.model.jacobian_ranks(np.random.default_rng(0))
    except InputError:  # derivatives that overflow tell nothing
        return np.zeros(len(directions), dtype=bool)
    unseen = ranks.unseen() if ranks.analytic else np.empty((0, omap.model.fields))
    return np.array([np.abs(D - D @ unseen.T @ unseen).max() < 1e-9 for D in directions])


def largest_rate(rates: np.ndarray, parts: np.ndarray) -> float:
    """Of all classes of coordinates with these rates (c, c) and parts (c,); 0 where there are none."""
    return max((class_rate(rates, members) for members in coupled_classes(rates, parts)), default=0.0)


@dataclass
class _Look:
    """Fixed points of all scrambles at one alpha, with only the stage's blocks learned, and what is idle there.

    rates (R, c, c): alpha times the derivative of E among idle blocks.
    """

    omap: OverlapMap
    alpha: float
    points: list[Point]
    rates: np.ndarray

    def growth(self, members: Sequence[int]) -> np.ndarray:
        """(R,) of one class."""
        return np.array([class_rate(rates, members) for rates in self.rates])

    def mean(self, members: Sequence[int]) -> float:
        return max(float(self.growth(members).mean()), 1e-300)


class _Rung:
    """From one stage to the next."""

    def __init__(self, omap: OverlapMap, stage: Stage, unseen: np.ndarray, aim: Aim | None = None) -> None:
        self.omap, self.stage, self.aim = omap, stage, aim
        self.tol = _TOL if aim is None else min(_TOL, tolerance(aim))
        few = max(min(omap.samples // omap.scrambles // _ROUGH, _MOST), 2)
        self.rough = omap.sibling(few * _ROUGH_SCRAMBLES, _ROUGH_SCRAMBLES)
        self.idle = np.flatnonzero(~(stage.active | unseen)[omap.model.symmetry.parts])
        self.looks: list[_Look] = []  # on the rough map, by alpha

    def following(self) -> Stage | None:
        """The next stage, or None where no idle block ever grows."""
        self.omap.what = f"next threshold, beyond alpha = {self.stage.alpha:.3g}"
        limits, unclear = (x.mean(axis=0) for x in idle_directions(self.rough, self.stage.active, self.idle))
        parts = self.omap.model.symmetry.parts[self.idle]
        best = largest_rate(limits - unclear, parts)
        if largest_rate(limits - _DOUBT * unclear, parts) <= NO_RATE:
            if best > NO_RATE:
                self.stage.after = Result.INTEGRATION
            return None
        found = self._bracketed(_LIMIT / best)
        if found is None:
            return None
        low, high, members = found
        if low is None:
            return self._at_once(high, members)
        return (
            self._aimed(self.aim, low, high, members) if self.aim else self._measured(self.omap, low, high, members)[0]
        )

    # ---- fixed points ------------------------------------------------------------------------------

    def _look(self, omap: OverlapMap, alpha: float, before: _Look | None, tol: float) -> _Look:
        """Solve at alpha, every scramble from an earlier look, maybe a rough one, or from the stage as it begins."""
        symmetry, active = omap.model.symmetry, self.stage.active

        def task(r: int) -> Point:
            start = None if before is None else before.points[r % len(before.points)]
            if before is None or start is None or start.at is None:
                return solve(omap, r, alpha, Q=self._beginning(), kicked=False, tol=tol)
            if before.omap is omap:
                return solve(omap, r, alpha, Q=start.at.Q, known=start.known, kicked=False, tol=tol)
            # What another map knows perfectly this one has yet to learn.
            return solve(omap, r, alpha, Q=within(symmetry, start.at.Q, active, _MOST_KNOWN), kicked=False, tol=tol)

        points: list[Point] = omap.each(task)
        on = np.ix_(self.idle, self.idle)
        rates = np.array([p.at.jacobian[on] if p.at is not None else np.zeros((len(self.idle),) * 2) for p in points])
        return _Look(omap, alpha, points, rates)

    def _beginning(self) -> np.ndarray:
        """Where the path is as the stage begins: what was learned before, and a little of what is new."""
        if self.stage.trivial:
            return np.zeros((self.omap.model.fields,) * 2)
        least = np.zeros(len(self.stage.active))
        least[self.stage.new] = KICK
        return within(self.omap.model.symmetry, self.stage.Q, self.stage.active, 1 - KNOWN, least)

    def _rough_look(self, alpha: float) -> _Look:
        self.looks = self._with_look(self.rough, self.looks, alpha, _ROUGH_TOL)
        (made,) = [look for look in self.looks if look.alpha == alpha]
        return made

    def _with_look(self, omap: OverlapMap, looks: list[_Look], alpha: float, tol: float) -> list[_Look]:
        """Looks by alpha, with one more; it starts from the one below: the path of vanishing side information rises."""
        below = [look for look in looks if look.alpha <= alpha] or [look for look in self.looks if look.alpha <= alpha]
        return sorted([*looks, self._look(omap, alpha, below[-1] if below else None, tol)], key=lambda look: look.alpha)

    # ---- search ------------------------------------------------------------------------------------

    def _top(self, look: _Look) -> tuple[float, list[int]]:
        """(growth, members) of the class that grows fastest, on average over the scrambles."""
        classes = coupled_classes(look.rates.mean(axis=0), self.omap.model.symmetry.parts[self.idle])
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
        return self._stage(high, members, last.alpha, error, (0.0, high.mean(members)), [self._judged(high)])

    def _aimed(self, aim: Aim, low: _Look, high: _Look, members: list[int]) -> Stage:
        """The crossing on a map of as many samples as the accuracy takes, by way of others with fewer."""
        omap, what = self.omap, self.omap.what
        tries = Tries(aim)
        stage, looks = self._measured(omap, low, high, members)
        stage.error = float(tries.stated(omap.samples, stage.error))
        while not tries.reached(stage.error):
            doubtful = self._of_integrals(looks[0], members) > INNER * aim.accuracy
            clear = not {Result.NOISY, Result.RESIDUAL} & set(stage.results)
            samples = tries.more(stage.error if clear else math.inf)
            if samples is None:
                break
            smaller = looks[0].omap
            larger = omap.sibling(samples, rtol=finer(smaller) if doubtful else smaller.rtol)
            omap.what = f"{what}, {samples} samples"
            self.looks = sorted([*self.looks, *looks], key=lambda look: look.alpha)
            try:
                stage, looks = self._measured(larger, looks[0], looks[-1], members)
            except OutOfTime:
                break
            stage.error = float(tries.stated(samples, stage.error))
        return stage

    def _of_integrals(self, look: _Look, members: list[int]) -> float:
        """What a finer tolerance of the inner integrals changes in the alpha of a crossing."""
        own = self.idle[members]
        return look.alpha * of_growth(look.omap, look.points[0], lambda J: class_rate(J, own))

    def _half(self, alpha: float, spread: float) -> float:
        """Half-width of the bracket, relative: some errors of what is known, and so narrow that its bend is small."""
        narrow = _NARROW
        if self.aim is not None:
            narrow = min(narrow, math.sqrt(2 * _BENT * self.aim.accuracy / alpha))
        return min(max(_ERRORS * spread / alpha * math.sqrt(2), narrow), _WIDE)

    def _measured(
        self, omap: OverlapMap, low: _Look, high: _Look, members: list[int]
    ) -> tuple[Stage, tuple[_Look, _Look]]:
        """The crossing on a map, between two alphas at which all scrambles are solved for, and the looks there."""
        roots = _roots(low, high, members)
        alpha, spread = (float(x) for x in mean_and_error(roots))
        half = self._half(alpha, spread)
        looks: list[_Look] = []
        for _ in range(_TRIES):
            for at in (alpha / (1 + half), alpha * (1 + half)):
                looks = self._with_look(omap, looks, at, self.tol)
            below = [look for look in looks if look.mean(members) < 1]
            above = [look for look in looks if look.mean(members) >= 1]
            if below and above and below[-1].alpha < above[0].alpha:
                break
            alpha = float(np.mean(_roots(looks[0], looks[-1], members)))
            half = min(2 * half, _WIDE)
        if not below or not above:
            middle = looks[len(looks) // 2]
            rates = looks[0].mean(members), looks[-1].mean(members)
            # Growth rises at least like alpha, so that a rate tells how far its crossing can be.
            beyond = [look.alpha * look.mean(members) ** sign for look in looks for sign in (-1, 1)]
            error = max(abs(x - middle.alpha) for x in beyond)
            return self._stage(middle, members, middle.alpha, error, rates, [Result.RESIDUAL]), (looks[0], looks[-1])
        low, high = below[-1], above[0]
        rates = low.mean(members), high.mean(members)
        if low.alpha >= high.alpha:
            # It grows here and decays beyond: the noise of the rates is larger than their rise.
            alpha = math.sqrt(looks[0].alpha * looks[-1].alpha)
            error = looks[-1].alpha - looks[0].alpha
            return self._stage(low, members, alpha, error, rates, [Result.NOISY]), (looks[0], looks[-1])
        value, spread = (float(x) for x in mean_and_error(_roots(low, high, members)))
        # What the straight line between the two ends may miss: as much as a growth of its own between them.
        bend = (high.alpha - low.alpha) ** 2 / (8 * value)
        # The mean of all roots and the root of all means are one number but for noise.
        bias = abs(_root_of_means(low, high, members) - value)
        codes = [self._judged(low), self._judged(high)]
        if bias > math.hypot(spread, bend):
            codes.append(Result.NOISY)
        inner = 0.0 if self.aim is None else self._of_integrals(low, members)
        return self._stage(low, members, value, math.hypot(spread, bend, bias, inner), rates, codes), (low, high)

    def _judged(self, look: _Look) -> Result:
        """Whether the fixed points at which rates were asked are ones, by all that state evolution is held against."""
        # Above a threshold what is about to be learned grows, and nothing here follows it.
        return collect(look.omap, look.points, "uninformed", self.tol).result

    def _stage(
        self,
        look: _Look,
        members: list[int],
        alpha: float,
        error: float,
        rates: tuple[float, float],
        results: list[Result],
    ) -> Stage:
        symmetry, before = self.omap.model.symmetry, self.stage.active
        pivot, together = leader(symmetry, self.idle, look.rates.mean(axis=0), members)
        mean = symmetry.project(np.mean([p.Q for p in look.points], axis=0))
        Q = within(symmetry, mean, np.ones_like(before), math.inf)
        active = excited(self.rough, pivot, before | together, within(symmetry, Q, before, 1 - KNOWN))
        stage = Stage(pivot, active, alpha, error, Q, rates=rates, results=results, samples=look.omap.samples)
        return begun(self.rough, stage, before, growing(symmetry, self.idle, look.rates, members))


def _root_of_means(low: _Look, high: _Look, members: list[int]) -> float:
    """The alpha at which the mean growth of a class is one, by a line through both looks in logarithms."""
    f0, f1 = math.log(low.mean(members)), math.log(high.mean(members))
    return math.exp(math.log(low.alpha) - f0 / (f1 - f0) * math.log(high.alpha / low.alpha))


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
