"""Ctrl-C, and what a batch system sends before it kills, end a command once: at once, with what is kept in order.

A signal may come twice, as ``timeout`` sends it to a process and to its group: a second exception would strike in the
middle of ending others.  And the exception of one may be lost, where it strikes inside of compiled code that cannot
raise (scipy's Sobol numbers, as they are set up): it is then raised again.
"""

from __future__ import annotations

import os
import signal
import time

from smisym.run.task import INTERRUPTED

# Seconds after which an interrupt that nobody has caught was lost, and after which this process ends as it is.
_LOST, _LAST = 4.0, 12.0


class _Interrupts:
    def __init__(self) -> None:
        self.first: float | None = None
        self.caught = False

    def __call__(self, number: int, frame: object) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = now
            if hasattr(signal, "setitimer"):
                signal.signal(signal.SIGALRM, self)
                signal.setitimer(signal.ITIMER_REAL, _LOST, _LOST)
            raise KeyboardInterrupt
        if now - self.first > _LAST:
            os._exit(INTERRUPTED)
        if now - self.first >= _LOST and not self.caught:
            raise KeyboardInterrupt


_interrupts = _Interrupts()


def listen() -> None:
    """From here on signals are KeyboardInterrupt, once."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupts)


def came() -> bool:
    """Whether this process was interrupted, whatever has become of the exception.

    On its way through compiled code it may become another: pybind11 makes an ImportError of what strikes while a module
    is loaded; and where one was lost, what is half done may fail before it is raised again.
    """
    return _interrupts.first is not None


def caught() -> None:
    """The exception was caught, and is not to be raised again."""
    _interrupts.caught = True


def ending() -> None:
    """What comes after an interrupt while Python shuts down is no news; what then hangs is ended."""
    if _interrupts.first is None:
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, _LAST + 1)
