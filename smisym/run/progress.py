"""What a long run is doing: a bar on stderr for people at a terminal, a rare plain line for logs, calls for programs.

A run consists of parts, whose number is known, and of evaluations of the overlap map inside each, whose number is not.
An evaluation has as many posteriors as the map has samples: that of a single scramble, or of a map of fewer samples, is
a part of one, that of more samples several.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from smisym.base.errors import InputError

Record = Mapping[str, Any]
Choice = Callable[[Record], object] | bool | None

# Seconds to the first line where stderr is no terminal; between two, or this share of the time so far: a log wants to
# know that the run is alive, no more.
_FIRST, _QUIET, _RARER = 5.0, 30.0, 0.2
# Seconds after which a run is worth a line when it is over, where stderr is no terminal.
_WORTH_A_LINE = 3.0
# Parts after which they tell how long others take: of two or three, the last may be all the work.
_TELLING = 3
# Evaluations of a part, where none has finished yet: the bar comes half its way in so many.
_TYPICAL = 8


class Reporter(Protocol):
    """Called with the record of each finished part.

    ``evaluated`` is for ``OverlapMap.on_evaluation``: called with what that is called with and, by :func:`watching`,
    "share": how many evaluations of the map it was, a part of one for one scramble.
    """

    def __call__(self, record: Record) -> object: ...

    def evaluated(self, seen: Record) -> object: ...


class _State:
    """How far a run is; called from several threads."""

    def __init__(self, title: str, total: int | None, show: Callable[[_State], object]) -> None:
        self.title, self.total, self._show = title, total, show
        self.done, self.evaluations, self.before = 0, 0.0, 0.0
        self.what = ""
        self.began = time.monotonic()
        self._lock = threading.Lock()

    def __call__(self, record: Record) -> None:
        with self._lock:
            self.done, self.before = self.done + 1, self.evaluations
            self._show(self)

    def evaluated(self, seen: Record) -> None:
        with self._lock:
            self.evaluations += float(seen.get("share", 1.0))
            self.what = str(seen.get("what", ""))
            self._show(self)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def inside(self) -> float:
        """Parts done, and the share of the one at work that its evaluations suggest, never all of it."""
        now = self.evaluations - self.before
        typical = self.before / self.done if self.done and self.before else _TYPICAL
        return self.done + (now / (now + typical) if now else 0.0)

    @property
    def left(self) -> float | None:
        """Seconds left, as parts went so far; None before some are done and where their number is unknown."""
        if self.total is None or self.done < _TELLING:
            return None
        return self.elapsed / self.done * max(self.total - self.inside, 0.0)

    def summary(self) -> str:
        """One line on the whole, when it is over."""
        made = f", {_count(self.evaluations)} evaluations" if self.evaluations else ""
        return f"{self.title} done{made}, {duration(self.elapsed)}"

    def text(self) -> str:
        """One line: what is solved, parts, evaluations, time so far and left."""
        parts = f"{self.done}" if self.total is None else f"{self.done}/{self.total}"
        # "curve at alpha = 1" says "curve" by itself.
        named = "" if self.what.startswith(self.title) else self.title
        words = [f"{': '.join(text for text in (named, self.what) if text)} {parts}"]
        if self.evaluations:
            words.append(f"{_count(self.evaluations)} evaluations")
        words.append(duration(self.elapsed))
        if self.left is not None and self.done < (self.total or 0):
            words.append(f"about {duration(self.left)} left")
        return ", ".join(words)


def _count(evaluations: float) -> str:
    return f"{evaluations:.1f}".removesuffix(".0") if evaluations < 10 else f"{evaluations:.0f}"


def duration(seconds: float) -> str:
    """Seconds for people: 40 s, 5 min, 2.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def progress_bar(title: str, total: int | None = None) -> Iterator[Reporter]:
    """A bar on stderr while the block runs: what is solved, parts, evaluations, time so far and left.

    total: number of parts, None where unknown.  Yields a callable that takes the record of each finished part; its
    ``evaluated`` is to be given to ``OverlapMap.on_evaluation``.  Where stderr is no terminal, a plain line
    instead after some seconds, then at most one in half a minute, and one at the end of what took some seconds.
    """
    if not sys.stderr.isatty():
        state = _State(title, total, _rarely())
        yield state
        if state.elapsed > _WORTH_A_LINE:
            sys.stderr.write(f"smisym: {state.summary()}\n")
        return
    # Rich is slow to import, and only a terminal needs it.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=20))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield _State(title, total, lambda s: bar.update(task, completed=s.inside, description=s.text()))


def _rarely() -> Callable[[_State], object]:
    due = [time.monotonic() + _FIRST]

    def show(state: _State) -> None:
        if time.monotonic() > due[0]:
            due[:] = [time.monotonic() + max(_QUIET, _RARER * state.elapsed)]
            sys.stderr.write(f"smisym: {state.text()}\n")

    return show


@contextmanager
def reporting(choice: Choice, title: str, total: int | None = None) -> Iterator[Reporter]:
    """What a ``progress=`` argument asks for: None or False nothing, True a bar, a callable its calls.

    A callable is given the record of each finished part, and what each evaluation of the map tells.
    Raises InputError for anything else.
    """
    if choice is True:
        with progress_bar(title, total) as reporter:
            yield reporter
    elif callable(choice):
        yield _Calls(choice)
    elif choice is None or choice is False:
        yield _Calls(lambda record: None)
    else:
        raise InputError("progress", choice, "True, a callable, or None", "use progress=True for a bar on stderr")


class _Calls:
    def __init__(self, call: Callable[[Record], object]) -> None:
        self._call = call

    def __call__(self, record: Record) -> None:
        self._call(record)

    def evaluated(self, seen: Record) -> None:
        self._call(seen)


@contextmanager
def watching(omap: Any, reporter: Reporter) -> Iterator[None]:
    """The map tells ``reporter`` of its evaluations, and of its siblings' as shares of them, while the block runs."""
    before = getattr(omap, "on_evaluation", None)

    def heard(seen: Record) -> None:
        share = {"share": seen["samples"] / omap.samples} if "samples" in seen else {}
        reporter.evaluated({**seen, **share})

    omap.on_evaluation = heard
    try:
        yield
    finally:
        omap.on_evaluation = before
