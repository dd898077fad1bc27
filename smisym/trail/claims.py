"""What a step of the trail claims of a model, and what it takes to believe it: a table of claims, tried one by one.

A claim is tried on the model itself, on what is drawn from a seed.  One that fails stops the derivation; one that was
not tried says why in the text of the step, and never stands among what was verified.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from smisym.base import patience
from smisym.base.derivation import Step
from smisym.base.errors import DerivationError, SmisymError
from smisym.integrate.accuracy import GAMP
from smisym.posterior.central_limit import ThroughStatistic
from smisym.verify.properties import Subject, Tried, left_out

# The chance that any claim of a right model fails, in one derivation; and of one of them, of which there are fewer than
# twenty that are left to chance.
DOCUMENT = 1e-4
LEVEL = DOCUMENT / 20
# Seconds of the processor that one posterior may take, for claims that take thousands of them, for runs of GAMP, where
# covariances narrow from step to step (three layers on two tokens: 3 ms here, 12 in the runs), and for thresholds that
# are integrated over outputs, of which a line takes up to forty thousand.
_PATIENCE, _ON_DATA, _QUICK = 0.012, 0.002, 0.002
# Seconds of the processor after which a claim is left out, whatever the probes said: coupled covariances may cost more;
# and after which all that are left are, so that a document takes ten with what else it takes.
_LONGEST, SECONDS = 8.0, 3.0
# The share of them that is kept for the first threshold until it is asked for, and the largest that one claim may take.
_KEPT, _ONE = 0.3, 0.4
# What algebra, and all else that needs no posteriors, may take even then: one claim, and all of them.
_ALWAYS, _GRACE = 1.0, 1.5
# Posteriors that are timed, how often, for the first time compiles loops, and how many times what is too slow need no
# second time, of few posteriors and of all.  First so few that slow ones are seen for what they are before they cost
# much.
_FEW, _PROBED, _TIMED, _HOPELESS, _SLOW = 2, 16, 3, 4, 2
# Posteriors that all claims of a document take together where nothing is short, the share of its seconds that they may
# take, and the least part of them that still tells something.
_ALL, _THEIRS, _LEAST = 20000, 0.4, 1 / 8
# Deviations beside what is allowed, and chances, that are told apart in documents: the last digits of rounding are of
# the machine.
_SHARES, _CHANCES = (1e-3, 0.01, 0.1, 0.5, 1.0), (0.1, 0.01, 1e-3)

T = TypeVar("T")


@dataclass(frozen=True)
class Claim:
    """statement: what must hold, in words with inline formulas.  trial: (subject, chance of a false alarm) -> what came
    of it, as of a property of :mod:`smisym.verify`.  posteriors: whether thousands of posteriors are needed for it, and
    exact ones.  few: whether some are, so that it is no algebra, which has its time at any rate.  applies: whether it
    says anything of a model at all."""

    statement: str
    trial: Callable[[Subject, float], Tried]
    posteriors: bool = False
    applies: Callable[[Subject], bool] = lambda subject: True
    few: bool = False


@dataclass(frozen=True)
class Part:
    """One step of the trail: ``written`` without its checks, the claims, and whether a model has such a step at all."""

    written: Callable[[Subject], Step]
    claims: tuple[Claim, ...]
    applies: Callable[[Subject], bool] = lambda subject: True


class Purse:
    """Seconds of the processor that one derivation may take, from its beginning on.

    kept: those that are not spent on claims until the first threshold has been asked for.  why: there are none, where
    that was not asked for.
    """

    def __init__(self, seconds: float, begun: float | None = None, why: str = "") -> None:
        self.why = why
        self.seconds = seconds
        self.kept = 0.0 if math.isinf(seconds) else _KEPT * seconds
        self.grace = _GRACE
        self._begun = time.process_time() if begun is None else begun

    @property
    def left(self) -> float:
        return self.seconds - (time.process_time() - self._begun)

    def spent(self, work: Callable[[], T], least: float = 0.0, number: bool = False) -> T | str:
        """What the work returns; or, where it took too long, why it was left.

        least: seconds that it has anyway, as long as there is grace.  number: whether it is what seconds are kept for.
        """
        begun = time.process_time()
        longest = self._longest(number)
        mercy = longest < min(least, self.grace)
        longest = min(least, self.grace) if mercy else longest
        if longest <= 0:
            return self.empty()

        try:
            found = patience.within(longest, lambda: (work(),))
            if found is not None:
                return found[0]
            return self.empty() if mercy or longest < _LONGEST else f"it took more than {_LONGEST:.0f} seconds"
        finally:
            if mercy:
                self.grace -= time.process_time() - begun
            if number:
                self.kept = 0.0

    def _longest(self, number: bool) -> float:
        if math.isinf(self.seconds):
            return self.seconds
        if number:  # whatever algebra took beyond what was its own
            return min(_LONGEST, max(self.left, self.kept))
        return min(_LONGEST, self.left - self.kept, _ONE * self.seconds)

    def empty(self) -> str:
        return self.why or (
            f"the {self.seconds:g} seconds of the processor that a document may take, compilation among them, did not "
            "suffice for it; more can be given (seconds)"
        )


def purse_of(subject: Subject, seconds: float = SECONDS, begun: float | None = None, why: str = "") -> Purse:
    """The purse of a derivation, filled when it is first asked for."""
    found: Purse = subject.once("purse", lambda: Purse(seconds, begun, why))
    return found


def part_of(subject: Subject) -> float:
    """The part of all draws, a power of two, that the seconds of a derivation suffice for."""
    found: float = subject.once("part", lambda: _part_of(subject))
    return found


def _part_of(subject: Subject) -> float:
    seconds = purse_of(subject).seconds
    if math.isinf(seconds):
        return 1.0
    affordable = _THEIRS * seconds / (_ALL * max(seconds_each(subject), 1e-9))
    return min(1.0, max(_LEAST, 2.0 ** math.floor(math.log2(max(affordable, _LEAST)))))


def tried(part: Part, subject: Subject, unasked: str = "") -> Step:
    """The step with what was verified; DerivationError where a claim fails.

    unasked: why no claim is tried at all, if none is.
    """
    step = part.written(subject)
    held, left = list(step.checks), dict[str, list[str]]()
    for claim in part.claims:
        if not claim.applies(subject):
            continue
        reason = unasked or (too_much(subject) if claim.posteriors else "")
        outcome = Tried(0, "", holds=None, said=reason) if reason else _outcome(claim, subject)
        if outcome.holds is None:
            left.setdefault(outcome.said, []).append(claim.statement)
        elif outcome.holds:
            held.append((claim.statement, how(outcome)))
        else:
            raise DerivationError(step.title, claim.statement, found(outcome))
    untried = [f"Not run, since {why}: that {'; that '.join(statements)}." for why, statements in left.items()]
    text = "\n\n".join([step.text, *untried])
    return replace(step, text=text, checks=tuple(held))


def _outcome(claim: Claim, subject: Subject) -> Tried:
    try:
        found = purse_of(subject).spent(
            lambda: claim.trial(subject, LEVEL), 0.0 if claim.posteriors or claim.few else _ALWAYS
        )
        return left_out(found) if isinstance(found, str) else found
    except (SmisymError, ArithmeticError, np.linalg.LinAlgError) as error:
        # What cannot even be computed does not hold.
        return Tried(0, "", float("inf"), None, False, f"{type(error).__name__}: {error}")


def how(outcome: Tried) -> str:
    """What was tried and how close it came, in coarse steps."""
    parts = [f"{outcome.number} {outcome.unit}"] if outcome.unit else []
    if outcome.p is not None:
        above = next((c for c in _CHANCES if outcome.p >= c), 0.0)
        chance = f"above {above:g}" if above else f"above {LEVEL:g}"
        parts.append(f"t test, false alarm {LEVEL:.0e}: the chance of as much is {chance}")
    elif outcome.unit:
        parts.append(f"deviation below {next((s for s in _SHARES if outcome.worst <= s), 1.0):g} of the tolerance")
    if outcome.said:
        parts.append(outcome.said)
    return "; ".join(parts)


def found(outcome: Tried) -> str:
    """What came of a trial that failed."""
    if not outcome.unit:
        return outcome.said
    chance = f"{outcome.worst:.3g} times what is allowed" if outcome.p is None else f"t = {outcome.worst:.3g}"
    return f"{chance} over {outcome.number} {outcome.unit}{f' ({outcome.said})' if outcome.said else ''}"


def are_quick(subject: Subject) -> bool:
    """Whether posteriors are so quick that a document can afford tens of thousands of them."""
    return seconds_each(subject) < _limit(subject, _QUICK)


def _limit(subject: Subject, seconds: float) -> float:
    """What one posterior may take, of a document that is given more than it has by default: as many times more.

    With no end of seconds there would be no limit either, and thousands of slow ones take days: it is the usual one.
    """
    given = purse_of(subject).seconds
    return seconds if math.isinf(given) else seconds * max(given / SECONDS, 1.0)


def seconds_each(subject: Subject) -> float:
    """Of the processor, for one posterior in the middle of all overlaps; inf where there is no time to tell."""
    middle = 0.4 * np.eye(subject.model.fields)

    def timed() -> float:
        found = purse_of(subject).spent(lambda: seconds_of(subject, middle, subject.rtol))
        return math.inf if isinstance(found, str) else found

    seconds: float = subject.once("seconds", timed)
    return seconds


def too_much(subject: Subject) -> str:
    """Why claims of thousands of exact posteriors are not tried, or nothing where they are."""
    if purse_of(subject).left <= 0:
        return purse_of(subject).empty()
    reason: str = subject.once("too much", lambda: _too_much(subject))
    return reason


def inexact(subject: Subject) -> str:
    """Why identities of exact posteriors are not tried, or nothing where they are."""
    if isinstance(subject.model.channel.posterior, ThroughStatistic):
        return "posteriors go through the central limit of a sum, and identities of exact ones hold to its error only"
    return ""


def _too_much(subject: Subject) -> str:
    if reason := inexact(subject):
        return reason
    if math.isinf(seconds_each(subject)):
        return purse_of(subject).empty()
    limit = _limit(subject, _PATIENCE)
    if seconds_each(subject) > limit:
        return f"one posterior takes more than {1e3 * limit:.0f} ms{in_arrays(subject)}, and it takes thousands"
    return ""


def in_arrays(subject: Subject) -> str:
    """Why posteriors may be slower here than elsewhere."""
    refused: list[str] = subject.once("refused", list)
    return " by arrays (loops that compilers need longer for are waited for with --seconds inf)" if refused else ""


def runs_too_much(subject: Subject) -> str:
    """Why GAMP is not run on data, or nothing where it is: there every row is coupled with every other."""
    if subject.model.prior.finite_size:
        return subject.model.prior.finite_size
    reason: str = subject.once("runs too much", lambda: _runs_too_much(subject))
    return reason


def _runs_too_much(subject: Subject) -> str:
    together = subject.model.prior.together()
    coupled = 0.35 * np.eye(len(together)) + 0.05 * together
    rtol = max(GAMP, subject.model.channel.default_rtol())
    limit = _limit(subject, _ON_DATA)
    if seconds_of(subject, coupled, rtol) > limit:
        return f"on data all rows are coupled, and one posterior then takes more than {1e3 * limit:.0f} ms"
    return ""


def seconds_of(subject: Subject, Q: np.ndarray, rtol: float) -> float:
    """Of the processor, for one posterior at an overlap to this tolerance."""
    model = subject.model
    A, B = model.prior.roots(Q)
    rng = subject.rng("probe")
    omega = A @ rng.standard_normal((_PROBED, model.fields, model.tokens))
    Z = omega + B @ rng.standard_normal(omega.shape)
    y, V = model.channel.sample(Z, rng), model.prior.law(Q).V
    seconds = []
    for count in (_FEW, _FEW, *[_PROBED] * _TIMED):
        begun = time.process_time()
        model.channel.moments(y[:count], omega[:count], V, cov=True, rtol=rtol)
        seconds.append((time.process_time() - begun) / count)
        if len(seconds) > 1 and seconds[-1] > (_HOPELESS if count == _FEW else _SLOW) * _limit(subject, _PATIENCE):
            break
    return min(seconds[1:])
