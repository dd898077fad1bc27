"""From the error asked of an answer to the samples that it takes.

An answer is first sought with few samples, a pilot, and then with as many as its error says are missing: the spread
over scrambles of Sobol points falls like a power of their number, between n^(-1/2), where few outputs matter, and
n^(-1).  The value is that of the last try alone, never a mean over tries.

A try that ends the search ended it because its spread was small; taken at its word, such a spread is too small on
average.  What is stated is therefore the root mean square of a try's own spread and of what the try before it
predicts, where that is larger.  With seven degrees of freedom and spreads that fall like n^(-1/2), -0.7 or -1, from
a third of to thirty times what is asked, intervals of Student's t then hold the truth in 65 % or more where 68.3 %
are said (in most cases in more than that), and in 94.5 % or more where 95 % are (20000 simulated searches each;
tests/theory/test_aim.py has 4000); with each spread at its word alone it was 63 and 92.5 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smisym.base.edge import check_count, check_number
from smisym.base.errors import InputError, OutOfTime
from smisym.base.solution import Result, Solution
from smisym.model.compiled import Model
from smisym.theory.effort import affordable, usual_scrambles
from smisym.theory.maps import OverlapMap, as_map

# The least accuracy that floats leave room for.
_FINEST_ASKED = 1e-12
# Samples of one evaluation in the first try, and at most: a hundred times those of a threshold.
PILOT, MOST = 4096, 2**22
# Bytes of the derivatives of one scramble's posteriors in one array, of which a few exist at a time.
_BYTES = 2**28
# Part of the accuracy asked that the next try aims at, and that the pilot must reach to be the answer itself.
_MARGIN, _AT_ONCE = 0.7, 0.5
# Factor between the samples of two tries: at least, at most, and where a try has no error to tell by.
_LEAST, _LARGEST, _UNKNOWN = 2, 64, 8
# By how much less than a power of two more a next try takes, as a power: the margin holds it.
_ROUNDED = 0.3
# Power of the number of samples with which errors fall, before it was seen (two layers: 0.6 to 0.7), and its bounds.
_RATE, _SLOWEST, _FASTEST = 0.7, 0.5, 1.0
# Part of the accuracy asked within which an answer is not refined on the same samples.
SETTLED = 0.9
# Part of the accuracy asked that the inner integrals may take.
INNER = 0.25
# Tolerance of fixed points beside the accuracy asked for, and its bounds.
_SHARE, _FINEST, _COARSEST = 0.1, 1e-6, 5e-3
# How a solve may end that more samples remedy.
_MORE_HELPS = (Result.NOISY, Result.RESIDUAL, Result.INCONSISTENT, Result.MAX_STEPS)


@dataclass(frozen=True)
class Aim:
    """accuracy: largest error of an answer, in its unit.  most_samples: of one evaluation of the map at most."""

    accuracy: float
    most_samples: int

    def settings(self) -> dict[str, Any]:
        return {"accuracy": self.accuracy, "most_samples": self.most_samples}


def aimed(
    model: Model | OverlapMap, accuracy: float | None, most_samples: int | None, **settings: Any
) -> tuple[OverlapMap, Aim | None]:
    """The map to begin with, and what is asked of the answer, None for nothing.

    Raises InputError for an accuracy that is no positive number, for samples beside it (of a map they are those of the
    first try), and for fewer samples at most than at first.
    """
    if accuracy is None:
        if most_samples is not None:
            fix = "add accuracy=0.002, say, or leave most_samples out"
            raise InputError("most_samples", most_samples, "the bound of a search for an accuracy", fix)
        return as_map(model, **settings), None
    fix = "give the largest error, for example accuracy=0.002, or leave it out for a fixed number of samples"
    allowed = f"a positive number, at least {_FINEST_ASKED:g}"
    if not check_number("accuracy", accuracy, allowed, fix) >= _FINEST_ASKED:
        raise InputError("accuracy", accuracy, allowed, fix)
    if settings.get("samples") is not None:
        given, allowed = (settings["samples"], accuracy), "one of the two: the number of samples follows from accuracy"
        raise InputError("samples, accuracy", given, allowed, "leave out one of them")
    if not isinstance(model, OverlapMap):
        settings["samples"] = pilot(model, settings.get("scrambles"))
        if settings.get("rtol") is None and isinstance(model, Model):
            # Errors of posteriors average out: of three layers 1e-2 leaves 1.5e-4 of E at Q = (0, 0, 0.95) and 2.6e-3
            # at (0, 0.8, 0.98).  Where that is not enough, it is seen on some posteriors, and made finer.
            usual, (of_accuracy, coarser) = model.channel.plan.averaged, model.channel.plan.rough
            settings["rtol"] = min(max(of_accuracy * accuracy, usual), coarser * usual)
    omap = as_map(model, **settings)
    most = min(MOST, omap.scrambles * max(_BYTES // (8 * (omap.model.fields * omap.model.tokens) ** 2), 2))
    if most_samples is not None:
        most = check_count("most_samples", most_samples, 1)
        if most < omap.samples:
            allowed = f"at least {omap.samples}, the samples of the first try"
            raise InputError("most_samples", most, allowed, "raise it, or leave it out")
    return omap, Aim(float(accuracy), most)


def pilot(model: Model, scrambles: Any) -> int:
    """Samples of the first try."""
    # What is no number of scrambles is told by the map.
    usual = usual_scrambles(model)
    count = scrambles if isinstance(scrambles, int) and scrambles > 0 else usual
    return max(affordable(model, PILOT) // usual, 2) * count


def tolerance(aim: Aim) -> float:
    """Of fixed points that are to be so accurate, relative to what is left to learn."""
    return min(max(_SHARE * aim.accuracy, _FINEST), _COARSEST)


class Tries:
    """The tries so far at one answer: what each is to state, and how many samples the next one takes."""

    def __init__(self, aim: Aim) -> None:
        self.aim = aim
        self.made: list[tuple[int, np.ndarray]] = []  # samples, and spread as it was seen

    @property
    def rate(self) -> float:
        """Power of the number of samples with which the error falls, from the first to the last try."""
        if len(self.made) > 1:
            (n0, first), (n1, last) = self.made[0], self.made[-1]
            e0, e1 = float(np.max(first)), float(np.max(last))
            if 0 < e1 < math.inf and 0 < e0 < math.inf and n1 > n0:
                return float(np.clip(math.log(e0 / e1) / math.log(n1 / n0), _SLOWEST, _FASTEST))
        return _RATE

    def stated(self, samples: int, spread: Any) -> np.ndarray:
        """The error to state of a try with this spread (a number or an array), which is kept."""
        spread = np.asarray(spread, dtype=float)
        own = spread
        if self.made:
            before, last = self.made[-1]
            with np.errstate(invalid="ignore"):
                expected = np.where(np.isfinite(last), last, 0.0) * (before / samples) ** self.rate
            own = np.maximum(spread, np.sqrt(0.5 * (spread**2 + expected**2)))
        self.made.append((samples, spread))
        return own

    def _likely(self, error: float) -> float:
        """The error of the last try as the one before it tells it too: a spread of eight is a fourth too large or small
        once in three times, and the next try would take twice too many samples, or half of them."""
        if len(self.made) < 2:
            return error
        (n0, first), (n1, last) = self.made[-2:]
        own, expected = float(np.max(last)), float(np.max(first)) * (n0 / n1) ** _RATE
        return error * math.sqrt(expected / own) if 0 < own < math.inf and 0 < expected < math.inf else error

    def reached(self, error: float) -> bool:
        """Whether a try with this error, all in all, is the answer."""
        enough = self.aim.accuracy if len(self.made) > 1 else _AT_ONCE * self.aim.accuracy
        return error <= enough

    def more(self, error: float) -> int | None:
        """Samples of the next try after one with this error, None where there are no more to have."""
        samples, _ = self.made[-1]
        factor: float = _UNKNOWN
        if math.isfinite(error):
            factor = (self._likely(error) / (_MARGIN * self.aim.accuracy)) ** (2 / (self.rate + _RATE))
        factor = min(max(factor, _LEAST), _LARGEST)
        wanted = samples << math.ceil(math.log2(factor) - _ROUNDED)
        while wanted > max(self.aim.most_samples, samples):
            wanted //= 2
        return wanted if wanted > samples else None


def search(aim: Aim, first: Solution, again: Callable[[int, bool], Solution], second: int | None = None) -> Solution:
    """The solution of the last of as many tries as the accuracy takes; MISSED where they end before.

    first: with few samples; value holds its error as ``Q_error``.  again: solves with so many samples, and with a finer
    tolerance of the inner integrals or not.  second: samples of the second try, where others have told them.  Where the
    time that a map was given is spent the last try is the answer.
    """
    tries = Tries(aim)
    found = _stated(tries, first)
    history = [_record(found)]
    while not (done := _good(tries, found)):
        left = found.checks.get("integrals", 0.0)
        finer = bool(np.max(left) > INNER * aim.accuracy)
        wanted = tries.more(_lasting(found) if found.result.ok else math.inf)
        if second is not None and len(history) == 1 and second > found.settings["samples"]:
            wanted = second
        if wanted is None:
            break
        try:
            found = _stated(tries, again(wanted, finer))
        except OutOfTime:
            break
        history.append(_record(found))
    if not done and found.result.ok and _whole(found) > aim.accuracy:
        found = replace(found, result=Result.MISSED)
    return replace(found, settings=found.settings | aim.settings(), checks=found.checks | {"tries": tuple(history)})


def _good(tries: Tries, found: Solution) -> bool:
    return found.result not in _MORE_HELPS and tries.reached(_whole(found))


def _stated(tries: Tries, found: Solution) -> Solution:
    """The solution of a try with the error that it is to state."""
    error = tries.stated(found.settings["samples"], found.statistical_error)
    return replace(found, value=replace(found.value, Q_error=error), statistical_error=error)


def _whole(found: Solution) -> float:
    """The largest error of any entry, statistical and deterministic together."""
    return float(np.max(found.statistical_error + found.deterministic_error))


def _lasting(found: Solution) -> float:
    """The same without what a next try, which begins closer by, does not leave of the equation."""
    residual = np.minimum(found.checks.get("residual", 0.0), found.deterministic_error)
    left = found.deterministic_error - np.where(np.isfinite(residual), residual, 0.0)
    return float(np.max(found.statistical_error + left))


def _record(found: Solution) -> dict[str, Any]:
    used = {name: found.settings[name] for name in ("samples", "rtol", "fine") if name in found.settings}
    return used | {"error": _whole(found)}
