"""How long an evaluation of the overlap map will take, from a few posteriors, before it is asked for."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from smisym.base.edge import check_count, check_number
from smisym.base.linear_algebra import one_thread
from smisym.base.solution import Result
from smisym.model.compiled import Model
from smisym.run.progress import duration
from smisym.theory.maps import OverlapMap, as_map

# A posterior may take seconds: what it may cost is raised step by step until it is found, or time is up.
_NODES = tuple(4**k for k in range(5, 13))
# Overlaps (of the first and of the last row, others between) at which posteriors are timed: those of nothing learned
# are the widest; where the last row is nearly known and the first on its way, curves and thresholds spend most.
_AT = ((0.0, 0.0), (0.5, 0.5), (0.6, 0.99))
_BINDING = 4**7
_LONGER = 3.0  # seconds
# Nodes from one try to the next, and how many times as long as expected something takes in which loops were compiled.
_STEP, _STRANGE = 4, 3.0
# The time that any number takes is at most so many times that of the posteriors of a batch.
_SHARED = 4
# Many together cost less each; more only while the budget lasts.
_COUNTS = (4, 16, 64, 256, 1024)


@dataclass(frozen=True)
class Cost:
    """seconds: of one evaluation of the map, all scrambles, with its workers.  at_least: whether the budget ended
    before a posterior was found, so that it will be more.  spent: seconds that the estimate took."""

    seconds: float
    at_least: bool
    spent: float

    def __str__(self) -> str:
        return f"{'more than' if self.at_least else 'about'} {duration(max(self.seconds, 1.0))}"


def estimate(
    model: Model | OverlapMap, samples: int | None = None, scrambles: int | None = None, *, budget: float = 2.0
) -> Cost:
    """What one evaluation of the overlap map costs, by timing some posteriors at Q = 0, at I / 2 and at a larger one.

    samples, scrambles: of the evaluation; by default the map's own, or those of a map of the model.
    budget: seconds that the estimate may take, roughly, and some more where an evaluation takes minutes.
    Raises InputError for what is no model or map, and for numbers that are not positive.
    """
    omap = as_map(model)
    samples = omap.samples if samples is None else check_count("samples", samples, 1)
    scrambles = omap.scrambles if scrambles is None else check_count("scrambles", scrambles, 1)
    check_number("budget", budget, "a positive number of seconds", "use budget=2.0", least=1e-3)
    began = time.monotonic()
    seconds, whole = 0.0, True
    points = max(samples // scrambles, 1)
    with one_thread():  # as the map evaluates
        for ends in _AT:
            q = _overlap(omap.model, *ends)
            (shared, one), found = _posterior(omap, q, samples, budget / len(_AT))
            seconds, whole = max(seconds, shared + one * points), whole and found
    turns = math.ceil(scrambles / min(omap.workers, scrambles))
    return Cost(seconds * turns, not whole, time.monotonic() - began)


def _overlap(model: Model, first: float, last: float) -> np.ndarray:
    """One (P, P) that the symmetries allow, which maps are asked for alone: posteriors may be cheaper there."""
    alone = len(model.symmetry.basis) == 1
    q = np.full(model.fields, last) if alone else np.linspace(first, last, model.fields)
    return model.symmetry.project(np.diag(q))


def _posterior(omap: OverlapMap, q: np.ndarray, samples: int, budget: float) -> tuple[tuple[float, float], bool]:
    """(seconds of any batch, and of each posterior in it) at overlap q (P, P), and whether the budget was enough.

    The budget is of posteriors: what is compiled meanwhile is kept, and whatever follows would have waited for it.
    """
    first, _ = _timed(omap, q, 1, _NODES[0])  # what is compiled or remembered at first use
    one, spent = math.inf, 0.0
    for nodes in _NODES:
        before = one
        one, result = _timed_again(omap, q, 1, nodes, min(first, _STEP * before))
        spent += one if spent or first > _STRANGE * one else first + one
        # One that missed its tolerance with as many nodes as it wants costs no more with more.
        if result is not Result.INTEGRATION or (nodes > _BINDING and one < 1.5 * before):
            break
        if spent + 4 * one > budget + _longer(one, samples):
            return (0.0, one), False
    last, taken, shared = 1, one, 0.0
    # Fewer than the evaluation itself has: the estimate of something cheap must be cheaper.
    for count in (n for n in _COUNTS if n <= samples // 2):
        if spent + (count - last) * one + taken > budget + _longer(one, samples):
            break
        now = _timed_again(omap, q, count, None, taken + (count - last) * one)[0]
        # What one more costs: much of the time of a few is the same for any number.
        one = max((now - taken) / (count - last), now / count / _SHARED)
        last, taken, shared, spent = count, now, max(now - count * one, 0.0), spent + now
    return (shared, one), True


def _longer(one: float, samples: int) -> float:
    """Seconds more, where what follows takes far longer: a hundredth of one evaluation, of which there will be ten."""
    return min(0.01 * one * samples, _LONGER)


def _timed_again(
    omap: OverlapMap, q: np.ndarray, count: int, nodes: int | None, expected: float
) -> tuple[float, Result]:
    """As :func:`_timed`; what takes far longer than expected may have been compiled meanwhile: timed once more."""
    seconds, result = _timed(omap, q, count, nodes)
    if seconds > _STRANGE * expected:
        seconds = min(seconds, _timed(omap, q, count, nodes)[0])
    return seconds, result


def _timed(omap: OverlapMap, q: np.ndarray, count: int, nodes: int | None) -> tuple[float, Result]:
    model, rng = omap.model, np.random.default_rng(0)
    Z, other = rng.standard_normal((2, count, model.fields, model.tokens))
    law = model.prior.law(q)
    Z = law.scale @ Z
    omega = law.gain @ Z + law.noise @ other
    y = model.channel.sample(Z, rng)
    began = time.perf_counter()
    found = model.channel.moments(y, omega, law.V, cov=True, rtol=omap.rtol, max_nodes=nodes)
    return time.perf_counter() - began, found.result
