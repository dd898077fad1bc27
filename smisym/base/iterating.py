"""One loop for every fixed point: a step, what is recorded of it, whether it is the last one, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from smisym.base.solution import Result

S = TypeVar("S")
Record = dict[str, Any]


class Diverged(Exception):
    """Raised by a step that has no next state; the argument says why."""


@dataclass(frozen=True)
class Ended(Generic[S]):
    """Where an iteration stopped: its last whole state, with the record of that one, and why, in words.

    history: of the steps made.  reason: empty after max_steps, which tell nothing by themselves.
    """

    state: S
    last: Record
    result: Result
    reason: str
    history: list[Record]


# Many parameters: what an iteration is made of, all by keyword.
def iterate(
    step: Callable[[S], S],
    start: S,
    *,
    max_steps: int,
    record: Callable[[int, S | None, S], Record],
    stop: Callable[[S, Record], tuple[Result, str] | None],
    callback: Callable[[Record], object] | None = None,
    keep_interrupted: bool = False,
) -> Ended[S]:
    """At most so many steps, until ``stop`` has a result and a reason.

    record
        What is kept of a step and given to ``callback``, from its number, the state before (None at the start) and its
        own.
    keep_interrupted
        Whether Ctrl-C ends it with the last whole state; else it goes on to whoever called.

    Result: that of ``stop``; MAX_STEPS; DIVERGED where a step or ``stop`` raised :class:`Diverged`; INTERRUPTED.
    """
    latest = (start, record(0, None, start))
    history = [latest[1]]
    result, reason = Result.MAX_STEPS, ""
    try:
        if callback is not None:
            callback(history[0])
        for number in range(1, max_steps + 1):
            new = step(latest[0])
            # One assignment: an interrupt finds a state with its own record, whichever it finds.
            latest = (new, record(number, latest[0], new))
            history.append(latest[1])
            if callback is not None:
                callback(latest[1])
            ending = stop(*latest)
            if ending is not None:
                result, reason = ending
                break
    except Diverged as error:
        result, reason = Result.DIVERGED, str(error)
    except KeyboardInterrupt:
        if not keep_interrupted:
            raise
        result, reason = Result.INTERRUPTED, "interrupted"
    state, last = latest
    if history[-1] is not last:
        history.append(last)
    return Ended(state, last, result, reason, history)
