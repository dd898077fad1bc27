"""How long a caller is willing to wait: asked between the pieces of long work, wherever in the house that is done."""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
# Seconds between looks at the clock of the processor, by who asks and by who watches.
_SELDOM, _OFTEN = 0.01, 0.25
# Steps of a loop within which an exception that is on its way arrives: it takes one.
_STEPS = 100

# Seconds of the processor that other processes spent for this one.
_elsewhere, _counting = [0.0], threading.Lock()

_ask: ContextVar[Callable[[], None] | None] = ContextVar("ask", default=None)


def check() -> None:
    """Raises what the caller of this thread's work wants to be raised once its time is spent; else nothing."""
    ask = _ask.get()
    if ask is not None:
        ask()


def spent_elsewhere(seconds: float) -> None:
    """Count seconds of the processor that another process spent on work of this one."""
    with _counting:
        _elsewhere[0] += seconds


def _spent() -> float:
    """Seconds of the processor, of this process and of others for it."""
    return time.process_time() + _elsewhere[0]


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


def within(seconds: float, work: Callable[[], T], over: Over | None = None) -> T | None:
    """What the work returns, or None where it took more seconds of the processor than these, other processes included.

    over: what is raised then; of work that catches it, and returns what it has, ``over.raised`` tells.
    """
    if math.isinf(seconds):
        return work()
    over, begun, asked = over or Over(), _spent(), -math.inf

    def ask() -> None:
        # Of the two clocks that of the processor costs a call of the system.
        nonlocal asked
        if time.monotonic() > asked + _SELDOM:
            if _spent() > begun + seconds:
                over.raised = True
                raise over
            asked = time.monotonic()

    try:
        with asking(ask):
            return work()
    except Over as raised:
        if raised is not over:
            raise
        return None


def stopped_after(seconds: float, work: Callable[[], T]) -> T | None:
    """What the work returns, or None where it took more seconds of the processor, also if it never asks.

    For algebra, which asks nobody while it simplifies: an exception is put into this thread, as Ctrl-C does it, when
    the instruction of Python ends that it is at.
    """
    thread, lock, ended = ctypes.c_ulong(threading.get_ident()), threading.Lock(), threading.Event()
    begun, sent = _spent(), False

    def watch() -> None:
        nonlocal sent
        # Again and again, should somebody have caught it.
        while not ended.wait(_OFTEN):
            with lock:
                if _spent() > begun + seconds and not ended.is_set():
                    sent = True
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(Stopped))

    threading.Thread(target=watch, daemon=True).start()
    try:
        try:
            return work()
        finally:
            with lock:
                ended.set()
            # What is on its way comes here.  To take it back would leave Python looking for it at every step.
            for _ in range(_STEPS if sent else 0):
                pass
    except Stopped:
        ended.set()
        return None


class Stopped(BaseException):
    """The time of :func:`stopped_after` is over."""


class Over(BaseException):
    """The time of :func:`within` is over.  No fault: what handles faults, or searches for them, lets it pass."""

    raised = False
