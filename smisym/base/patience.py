"""How long a caller is willing to wait: asked between the pieces of long work, wherever in the house that is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
