"""Waiting no longer than that: for what asks, and for what does not."""

from __future__ import annotations

import threading
import time

import pytest

from smisym.base import patience


def _spin(seconds: float = 1e3) -> str:
    begun = time.process_time()
    while time.process_time() < begun + seconds:
        pass
    return "done"


def test_work_that_never_asks_is_stopped() -> None:
    begun = time.process_time()
    assert patience.stopped_after(0.1, _spin) is None
    assert time.process_time() - begun < 5
    assert patience.stopped_after(60.0, lambda: _spin(0.3)) == "done"
    # Nothing is left that would come later.
    assert _spin(0.6) == "done"


def test_in_any_thread_and_whatever_catches_it() -> None:
    caught: list[BaseException] = []

    def stubborn() -> None:
        while True:
            try:
                _spin()
            except BaseException as error:
                caught.append(error)
                if len(caught) > 2:
                    raise

    found: list[object] = ["nothing yet"]

    def run() -> None:
        found[0] = patience.stopped_after(0.1, stubborn)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert found == [None] and len(caught) == 3


def test_what_the_work_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        patience.stopped_after(60.0, lambda: 1 // 0)


def test_of_two_limits_the_outer_one_ends_both() -> None:
    def asking() -> None:
        while True:
            patience.check()

    assert patience.within(0.1, lambda: patience.within(1e3, asking) or "inner") is None
    assert patience.within(1e3, lambda: patience.within(0.1, asking) or "inner") == "inner"
    assert patience.within(float("inf"), lambda: 3) == 3
