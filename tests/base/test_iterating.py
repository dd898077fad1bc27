"""The loop of every fixed point: what it ends with, whatever a step, a rule of stopping or a listener does."""

from __future__ import annotations

from typing import Any

import pytest

from smisym.base.iterating import Diverged, Ended, iterate
from smisym.base.solution import Result


def halved(**more: Any) -> Ended[float]:
    """1, 1/2, 1/4, ..., until below a tenth."""

    def stop(state: float, _: Any) -> tuple[Result, str] | None:
        return (Result.SUCCESS, "small") if state < 0.1 else None

    def record(number: int, before: float | None, state: float) -> dict[str, Any]:
        return {"step": number, "state": state, "change": None if before is None else before - state}

    rest = {"step": lambda state: state / 2, "max_steps": 20, "stop": stop, "record": record}
    return iterate(start=1.0, **{**rest, **more})  # type: ignore[arg-type]


def test_it_ends_where_it_is_told_to_with_a_record_of_each_step() -> None:
    seen: list[Any] = []
    ended = halved(callback=seen.append)
    assert (ended.state, ended.result, ended.reason) == (0.0625, Result.SUCCESS, "small")
    assert [one["step"] for one in ended.history] == [0, 1, 2, 3, 4] and ended.history == seen
    assert ended.last is ended.history[-1] and ended.last["change"] == 0.0625
    few = halved(max_steps=2)
    assert (few.state, few.result, few.reason, len(few.history)) == (0.25, Result.MAX_STEPS, "", 3)


def test_a_step_that_has_no_next_state_leaves_the_last_one() -> None:
    def step(state: float) -> float:
        if state < 0.5:
            raise Diverged("it blew up")
        return state / 2

    ended = halved(step=step)
    assert (ended.state, ended.result, ended.reason) == (0.25, Result.DIVERGED, "it blew up")
    assert [one["state"] for one in ended.history] == [1.0, 0.5, 0.25]


@pytest.mark.parametrize("kept", [True, False])
def test_an_interrupt_leaves_the_last_whole_state_to_who_asked_for_it(kept: bool) -> None:
    def listen(record: dict[str, Any]) -> None:
        if record["step"] == 2:
            raise KeyboardInterrupt

    if not kept:
        with pytest.raises(KeyboardInterrupt):
            halved(callback=listen)
        return
    ended = halved(callback=listen, keep_interrupted=True)
    assert (ended.state, ended.result, ended.reason) == (0.25, Result.INTERRUPTED, "interrupted")
    assert ended.last["step"] == 2 and ended.history[-1] is ended.last


def test_an_interrupt_in_the_rule_of_stopping_loses_no_step() -> None:
    calls: list[int] = []

    def stop(state: float, last: dict[str, Any]) -> None:
        calls.append(last["step"])
        if len(calls) == 3:
            raise KeyboardInterrupt

    ended = halved(stop=stop, keep_interrupted=True)
    assert ended.state == 0.125 and ended.last["step"] == 3 and len(ended.history) == 4
