"""hypothesis as a function: draws cases, keeps the worst, and shrinks the first that fails to one a person can read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity

from smisym.base import patience

# Seconds of shrinking: from then on only cases that are known to fail do.
_SHRINKING = 10.0
# Cases that are an answer where time is up before all were tried: half of the fewest that are asked for.
_ENOUGH = 4


@dataclass(frozen=True)
class Found:
    """number: of cases that told something.  worst: largest misfit among them, beside what is allowed.  failing: the
    smallest case whose misfit is above one, or None."""

    number: int
    worst: float
    failing: Any = None

    @property
    def holds(self) -> bool | None:
        return None if not self.number else self.failing is None


class _Broken(Exception):
    """Raised where a case fails."""


def search(strategy: Any, misfit: Callable[[Any], float | None], examples: int, seed: int) -> Found:
    """Cases of a strategy, in each of which ``misfit`` must be at most one; None is a case that tells nothing.

    The same seed gives the same cases.  What is not a number fails.  Where the caller's time is up
    (:mod:`smisym.base.patience`), what was tried counts if that is a few.
    """
    search_ = _Search(misfit)
    told = hypothesis.settings(
        max_examples=examples, deadline=None, database=None, verbosity=Verbosity.quiet, print_blob=False,
        report_multiple_bugs=False, phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
    )  # fmt: skip

    def body(case: Any) -> None:
        search_(case)

    try:
        hypothesis.seed(seed)(told(hypothesis.given(strategy)(body)))()
    except _Broken:
        return Found(search_.number, search_.worst, search_.failing)
    except patience.Over:
        if search_.failing is None and search_.number < _ENOUGH:
            raise
        return Found(search_.number, search_.worst, search_.failing)  # what fails is told, however small it would get
    except hypothesis.errors.Unsatisfiable:
        return Found(0, 0.0)
    return Found(search_.number, search_.worst)


class _Search:
    """The cases of one search so far."""

    def __init__(self, misfit: Callable[[Any], float | None]) -> None:
        self.misfit = misfit
        self.number, self.worst = 0, 0.0
        self.failing: Any = None
        self._known: set[str] = set()
        self._until = float("inf")

    def __call__(self, case: Any) -> None:
        # hypothesis tells failures apart by the line that raises: there is one.
        if self._fails(case):
            self.failing = case
            raise _Broken

    def _fails(self, case: Any) -> bool:
        # Text of arrays takes as long as some properties: it is written once something failed.
        if self._known and repr(case) in self._known:
            return True
        if time.monotonic() > self._until:
            return False
        patience.check()
        value = self.misfit(case)
        hypothesis.assume(value is not None)
        misfit = float(value or 0.0)
        if self.failing is None:
            self.number, self.worst = self.number + 1, max(self.worst, misfit)
        if misfit <= 1:
            return False
        if self.failing is None:
            self._until = time.monotonic() + _SHRINKING
        self._known.add(repr(case))
        return True
