"""From one stage of the staircase to the next: where idle parts begin to grow.

A rough map is followed along the branch of fixed points (:mod:`smisym.theory.branch`) to where a class of idle parts
grows; one or two evaluations of the map itself then tell where (:mod:`smisym.theory.crossing`).  Where the branch
turns back, is lost, or is not confirmed, fixed points are solved for at one alpha after the other instead, until two
are found between which the class begins to grow, on the rough map and then, scramble by scramble, on the map itself.
"""

from __future__ import annotations

import math

import numpy as np

from smisym.base.errors import OutOfTime
from smisym.base.solution import Result, mean_and_error
from smisym.theory.aim import SETTLED, Aim, Tries, tolerance
from smisym.theory.branch import Passed, followed
from smisym.theory.collecting import collect
from smisym.theory.crossing import Guess, between, crossing_near, guessed
from smisym.theory.fixed_point import solve
from smisym.theory.growth import class_rate, coupled_classes
from smisym.theory.limits import NO_RATE, idle_directions, largest_rate
from smisym.theory.linearised import KNOWN, Equation
from smisym.theory.look import Look, root_of_means, roots
from smisym.theory.maps import OverlapMap
from smisym.theory.point import Point
from smisym.theory.stage import BEGUN, Stage, begun, excited, growing, leader, within
from smisym.theory.unshown import finer, of_growth

# Scrambles of the rough map, and points of each: a part of those of the map, at most so many, fewer where dear.
_ROUGH_SCRAMBLES, _ROUGH, _MOST = 4, 2, 128
# How many times more where that is too few to tell.
CLEARER = 4
# How much larger the tolerance of its integrals is, and at most: its noise is a tenth, and posteriors of deep networks
# have a few among them that cost hundreds of times what the others do (three layers at Q = (0, 0, 0.976): 3.8 ms each
# at 5e-3, 1.0 ms at 3e-2).
_LOOSER, _LOOSEST = 4.0, 3e-2
# Standard errors by which alpha must fall along the branch for it to turn back.
_FALLS = 2.0
# Steps along the branch on the rough map at most.
_ALONG = 40
# Multiple of what the integrals say of their errors that a rate must exceed to be one.
_DOUBT = 4.0
# Share of the limit at perfect overlaps that a rate can have on the way there, at least a little less than all.
_LIMIT = 0.9
# Steps in alpha of the search on the rough map, how closely it brackets, and its smallest step.
_SEARCH, _CLOSE, _LEAP = 40, 1.12, 1.25
# Multiple of the least alpha at which a direction can be unstable beyond which none is looked for.
_FARTHEST = 100.0
# Half-width of the bracket on the map itself, relative: a few errors of the rough one, within bounds; and its tries.
_ERRORS, _NARROW, _WIDE, _TRIES = 2.0, 0.02, 0.08, 4
# Factor between the points of two maps on the way from the rough one to the map itself: each step of Newton's method is
# then so small that one evaluation of the next is enough.
_FINER = 8
# Factor to the map that is asked after a pilot that was too rough.
_MORE = 8
# Part of the accuracy asked for that the inner integrals may take: errors of a crossing add up by their squares.
_INNER = 0.4
# Part of the accuracy asked for that the straight line between both ends may miss.
_BENT = 0.2
# The most of a direction that is taken over from the rough map.
_MOST_KNOWN = 0.99
# Tolerance of the fixed points, relative to what is left to learn.
_TOL, _ROUGH_TOL = 5e-4, 2e-3


def rough_map(omap: OverlapMap) -> OverlapMap:
    """The map that only finds the way."""
    most = _MOST // max(omap.model.channel.plan.dearer // 2, 1)
    few = max(min(omap.samples // omap.scrambles // _ROUGH, most), 2)
    rtol = max(omap.rtol, min(_LOOSER * omap.rtol, _LOOSEST))
    return omap.sibling(few * _ROUGH_SCRAMBLES, _ROUGH_SCRAMBLES, rtol)


class Rung:
    """From one stage to the next."""

    def __init__(
        self, omap: OverlapMap, stage: Stage, unseen: np.ndarray, aim: Aim | None = None, roughly: bool = False
    ) -> None:
        self.omap, self.stage, self.aim, self.roughly = omap, stage, aim, roughly
        self.tol = _TOL if aim is None else min(_TOL, tolerance(aim))
        self.rough = rough_map(omap)
        self.idle = np.flatnonzero(~(stage.active | unseen)[omap.model.symmetry.parts])
        self.looks: list[Look] = []  # on the rough map, by alpha
        self.guess: Guess | None = None
        self.known = self.rough.samples  # of the map that the guess is from

    def following(self) -> Stage | None:
        """The next stage, or None where no idle block ever grows."""
        self.omap.what = f"next threshold, beyond alpha = {self.stage.alpha:.3g}"
        members = self._on_the_branch()
        if members is not None and self.roughly and self.guess is not None:
            return self._roughly(self.guess, members)
        stage = None if members is None else self._answer(members, None)
        if stage is not None:
            return stage
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
        self.guess = self._guess(low, high, members)
        return self._answer(members, (low, high))

    def _roughly(self, guess: Guess, members: list[int]) -> Stage:
        """The stage as the rough map has it."""
        found = self.rough.each(lambda r: Equation(self.rough, r).at(guess.Q, guess.alpha))
        on, nothing = np.ix_(self.idle, self.idle), np.zeros_like(guess.Q)
        points = [Point(here.Q, nothing, here, nothing, Result.SUCCESS, [], guess.alpha) for here in found]
        look = Look(self.rough, guess.alpha, points, np.array([here.jacobian[on] for here in found]))
        return self._stage(look, members, guess.alpha, 0.0, (1.0, 1.0), [])

    # ---- along the branch --------------------------------------------------------------------------

    def _on_the_branch(self) -> list[int] | None:
        """What grows first along the branch of the rough map, and a guess of where; None where that is not clear.

        Where alpha falls along it, or growth is above one from the beginning, state evolution jumps.
        """
        if self.stage.trivial:
            return None
        members = self._along(self.rough)
        if members is None and self.omap.model.channel.plan.dearer > 1:
            # Where posteriors are dear it has so few points that its noise may hide the way.
            members = self._along(self.rough.sibling(CLEARER * self.rough.samples))
        return members

    def _along(self, rough: OverlapMap) -> list[int] | None:
        """The same on one map."""
        symmetry, last = self.omap.model.symmetry, None
        start = self.stage.beginning(symmetry, BEGUN)
        for number, point in enumerate(followed(rough, start, self.stage.alpha, self.stage.upwards(symmetry))):
            rates = point.rates(self.idle)
            classes = coupled_classes(rates, symmetry.parts[self.idle])
            growth, members = max(((class_rate(rates, m), m) for m in classes), key=lambda pair: pair[0])
            if number == 0 or last is None:
                if growth >= 1:
                    return None
            elif point.alpha <= last.alpha * math.exp(-_FALLS * math.hypot(point.error, last.error)):
                return None
            elif growth >= 1:
                self.guess = self._crossed(rough, last, point, members)
                return None if self.guess is None else members
            if number > _ALONG or any(here.vanishing for here in point.found):
                return None
            last = point
        return None

    def _crossed(self, rough: OverlapMap, low: Passed, high: Passed, members: list[int]) -> Guess | None:
        """Where growth is one between two points of the branch."""
        f0, f1 = (math.log(max(class_rate(point.rates(self.idle), members), 1e-300)) for point in (low, high))
        alpha = math.exp(math.log(low.alpha) - f0 / (f1 - f0) * math.log(high.alpha / low.alpha))
        Q = between((low.alpha, low.Q), (high.alpha, high.Q), alpha)
        return guessed(rough, Q, alpha, self.idle[members], slopes=not self.roughly)

    # ---- fixed points ------------------------------------------------------------------------------

    def _look(self, omap: OverlapMap, alpha: float, before: Look | None, tol: float) -> Look:
        """Solve at alpha, every scramble from an earlier look, maybe a rough one, or from the stage as it begins."""
        symmetry, active = omap.model.symmetry, self.stage.active

        def task(r: int) -> Point:
            start = None if before is None else before.points[r % len(before.points)]
            if before is None or start is None or start.at is None:
                return solve(omap, r, alpha, Q=self.stage.beginning(self.omap.model.symmetry), kicked=False, tol=tol)
            if before.omap is omap:
                return solve(omap, r, alpha, Q=start.at.Q, known=start.known, kicked=False, tol=tol)
            # What another map knows perfectly this one has yet to learn.
            return solve(omap, r, alpha, Q=within(symmetry, start.at.Q, active, _MOST_KNOWN), kicked=False, tol=tol)

        points: list[Point] = omap.each(task)
        on = np.ix_(self.idle, self.idle)
        rates = np.array([p.at.jacobian[on] if p.at is not None else np.zeros((len(self.idle),) * 2) for p in points])
        return Look(omap, alpha, points, rates)

    def _rough_look(self, alpha: float) -> Look:
        self.looks = self._with_look(self.rough, self.looks, alpha, _ROUGH_TOL)
        (made,) = [look for look in self.looks if look.alpha == alpha]
        return made

    def _with_look(self, omap: OverlapMap, looks: list[Look], alpha: float, tol: float) -> list[Look]:
        """Looks by alpha, with one more; it starts from the one below: the path of vanishing side information rises."""
        below = [look for look in looks if look.alpha <= alpha] or [look for look in self.looks if look.alpha <= alpha]
        return sorted([*looks, self._look(omap, alpha, below[-1] if below else None, tol)], key=lambda look: look.alpha)

    # ---- search ------------------------------------------------------------------------------------

    def _top(self, look: Look) -> tuple[float, list[int]]:
        """(growth, members) of the class that grows fastest, on average over the scrambles."""
        classes = coupled_classes(look.rates.mean(axis=0), self.omap.model.symmetry.parts[self.idle])
        return max(((look.mean(m), m) for m in classes), key=lambda pair: pair[0])

    def _bracketed(self, least: float) -> tuple[Look | None, Look, list[int]] | None:
        """(look where nothing idle grows, look where something does, what does), close together; on the rough map."""
        low: Look | None = None
        high: tuple[Look, list[int]] | None = None
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

    def _between(self, low: Look | None, high: Look, members: list[int], bottom: float) -> float:
        """Where to look next inside a bracket: where the rates say, away from the ends."""
        x0, x1 = math.log(bottom), math.log(high.alpha)
        share = 0.5
        if low is not None:
            f0, f1 = math.log(low.mean(members)), math.log(high.mean(members))
            share = -f0 / (f1 - f0) if f1 > f0 else 0.5
        return math.exp(x0 + min(max(share, 0.15), 0.85) * (x1 - x0))

    # ---- results -----------------------------------------------------------------------------------

    def _at_once(self, high: Look, members: list[int]) -> Stage:
        """The next class grows as soon as the stage has begun."""
        last = self.stage
        error = max(last.error, high.alpha - last.alpha)
        return self._stage(high, members, last.alpha, error, (0.0, high.mean(members)), [self._judged(high)])

    def _guess(self, low: Look, high: Look, members: list[int]) -> Guess | None:
        """The crossing as the rough map has it; None where it is too rough, or something is perfect already."""
        if any(point.known.any() or not point.result.ok for look in (low, high) for point in look.points):
            return None
        alpha = root_of_means(low, high, members)
        ends = [(look.alpha, np.mean([point.Q for point in look.points], axis=0)) for look in (low, high)]
        return guessed(self.rough, between(ends[0], ends[1], alpha), alpha, self.idle[members])

    def _on_the_way(self, omap: OverlapMap) -> list[int]:
        """Samples of the maps to ask one after the other, the map itself last."""
        counts = [omap.samples]
        while counts[0] // _FINER > max(self.known, 2 * omap.scrambles):
            counts.insert(0, counts[0] // _FINER)
        return counts

    def _at_one_point(self, omap: OverlapMap, members: list[int]) -> tuple[Stage, tuple[Look, ...]] | None:
        """The crossing by Newton's method, and what was looked at there; None where that does not confirm it."""
        found, enough = None, 0.0 if self.aim is None else SETTLED * self.aim.accuracy
        for few in self._on_the_way(omap):
            if self.guess is not None:
                # Settled on a map of few points as well: one more evaluation there may save one of many.
                found = crossing_near(omap.sibling(few), self.guess, self.idle, members, enough)
                # A map that is too rough to tell leaves it to the next.
                self.guess = self.guess if found is None else found.guess
        if found is None:
            return None
        self.known = omap.samples
        look = Look(omap, found.alpha, found.points, found.rates)
        inner = self._of_integrals(look, members)
        error = math.hypot(found.spread, found.bend, inner)
        stage = self._stage(look, members, found.alpha, error, (1.0, 1.0), [found.result])
        return stage, (look,)

    def _answer(self, members: list[int], ends: tuple[Look, Look] | None) -> Stage | None:
        """The crossing on the map; with an aim on maps of as many samples as that takes, by way of others with fewer.

        ends: what it was found between on the rough map, None where it was found along the branch.
        None where nothing confirms it.
        """
        omap, what, aim = self.omap, self.omap.what, self.aim
        measured = self._at_one_point(omap, members) or (ends and self._measured(omap, *ends, members))
        if measured is None and aim is not None:
            # A pilot may be too rough to tell, and still more so where each scramble is solved for by itself.
            more = min(_MORE * omap.samples, aim.most_samples)
            measured = self._at_one_point(omap.sibling(more), members) if more > omap.samples else None
        if measured is None or aim is None:
            return measured[0] if measured else None
        stage, looks = measured
        tries = Tries(aim)
        stage.error = float(tries.stated(stage.samples, stage.error))
        while not tries.reached(stage.error):
            doubtful = self._of_integrals(looks[0], members) > _INNER * aim.accuracy
            clear = not {Result.NOISY, Result.RESIDUAL} & set(stage.results)
            samples = tries.more(stage.error if clear else math.inf)
            if samples is None:
                break
            smaller = looks[0].omap
            larger = smaller.sibling(samples, fine=finer(smaller, aim.accuracy) if doubtful else None)
            omap.what = f"{what}, {samples} samples"
            if len(looks) > 1:
                self.looks = sorted([*self.looks, *looks], key=lambda look: look.alpha)
                ends = looks[0], looks[-1]
            try:
                measured = self._at_one_point(larger, members) or (ends and self._measured(larger, *ends, members))
            except OutOfTime:
                break
            if measured is None:
                break
            stage, looks = measured
            stage.error = float(tries.stated(samples, stage.error))
        return stage

    def _of_integrals(self, look: Look, members: list[int]) -> float:
        """What inner integrals may change in the alpha of a crossing; nothing where nothing is asked."""
        if self.aim is None:
            return 0.0
        own = self.idle[members]
        return look.alpha * of_growth(look.omap, look.points[0], self.aim.accuracy, lambda J: class_rate(J, own))

    def _half(self, alpha: float, spread: float) -> float:
        """Half-width of the bracket, relative: some errors of what is known, and so narrow that its bend is small."""
        narrow = _NARROW
        if self.aim is not None:
            narrow = min(narrow, math.sqrt(2 * _BENT * self.aim.accuracy / alpha))
        return min(max(_ERRORS * spread / alpha * math.sqrt(2), narrow), _WIDE)

    def _measured(self, omap: OverlapMap, low: Look, high: Look, members: list[int]) -> tuple[Stage, tuple[Look, ...]]:
        """The crossing on a map, between two alphas at which all scrambles are solved for, and the looks there."""
        alpha, spread = (float(x) for x in mean_and_error(roots(low, high, members)))
        half = self._half(alpha, spread)
        looks: list[Look] = []
        for _ in range(_TRIES):
            for at in (alpha / (1 + half), alpha * (1 + half)):
                looks = self._with_look(omap, looks, at, self.tol)
            below = [look for look in looks if look.mean(members) < 1]
            above = [look for look in looks if look.mean(members) >= 1]
            if below and above and below[-1].alpha < above[0].alpha:
                break
            alpha = float(np.mean(roots(looks[0], looks[-1], members)))
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
        value, spread = (float(x) for x in mean_and_error(roots(low, high, members)))
        # What the straight line between the two ends may miss: as much as a growth of its own between them.
        bend = (high.alpha - low.alpha) ** 2 / (8 * value)
        # The mean of all roots and the root of all means are one number but for noise.
        bias = abs(root_of_means(low, high, members) - value)
        codes = [self._judged(low), self._judged(high)]
        if bias > math.hypot(spread, bend):
            codes.append(Result.NOISY)
        inner = self._of_integrals(low, members)
        return self._stage(low, members, value, math.hypot(spread, bend, bias, inner), rates, codes), (low, high)

    def _judged(self, look: Look) -> Result:
        """Whether the fixed points at which rates were asked are ones, by all that state evolution is held against."""
        # Above a threshold what is about to be learned grows, and nothing here follows it.
        return collect(look.omap, look.points, "uninformed", self.tol).result

    def _stage(
        self,
        look: Look,
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
