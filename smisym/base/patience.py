"""How long a caller is willing to wait: asked between the pieces of long work, wherever in the house that is done."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
# Seconds between looks at the clock of the processor.
_SELDOM = 0.01

_ask: ContextVar[Callable[[], None] | None] = ContextVar("ask", default=None)


def check() -> None:
    """Raises what the caller of this thread's work wants to be raised once its time is spent; else nothing."""
    ask = _ask.get()
    if ask is not None:
        ask()


@contextmanager
def asking(ask: Callable[[], None] | None) -> Iterator[None]:
    """``check`` calls ``ask`` inside, in this thread, after whatever it called outside."""
    token = _ask.set(_both(_ask.get(), ask))
    try:
        yield
    finally:
        _ask.reset(token)


def _both(outer: Callable[[], None] | None, inner: Callable[[], None] | None) -> Callable[[], None] | None:
    if outer is None or inner is None:
        return outer or inner

    def ask() -> None:
        outer()
        inner()

    return ask


def within(seconds: float, work: Callable[[], T]) -> T | None:
    """What the work returns, or None where it took more seconds of the processor than these."""
    if math.isinf(seconds):
        return work()
    over, begun, asked = Over(), time.process_time(), -math.inf

    def ask() -> None:
        # Of the two clocks that of the processor costs a call of the system.
        nonlocal asked
        if time.monotonic() > asked + _SELDOM:
            if time.process_time() > begun + seconds:
                raise over
            asked = time.monotonic()

    try:
        with asking(ask):
            return work()
    except Over as raised:
        if raised is not over:
            raise
        return None


class Over(BaseException):
    """The time of :func:`within` is over.  No fault: what handles faults, or searches for them, lets it pass."""
