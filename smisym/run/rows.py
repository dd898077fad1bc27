"""One row of an atlas: everything that is told of one declaration within so many seconds of the processor.

A row is made of parts, one after the other, the cheapest first.  A part that fails, or for which there is no time left,
says so, and those that are finished stand.  What a part returns does not depend on where it is made, nor on the budget:
these tell only which parts there are.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np

from smisym.base import patience
from smisym.base.errors import OutOfTime
from smisym.base.solution import Result, Solution, worst
from smisym.declare.io import Store, header, plain, to_json, versions
from smisym.declare.listed import Row
from smisym.model.compiled import Model, compile
from smisym.run import records
from smisym.run.ordering import hard_phases, orders
from smisym.theory.effort import affordable, usual_scrambles
from smisym.theory.maps import OverlapMap, overlap_map
from smisym.theory.stability import counting, perfect_recovery, weak_recovery

Record = dict[str, Any]

# Samples of the map that everything begins with, where a posterior is cheap; relative errors of a first threshold that
# will do, and that the rest of the time is spent on; samples that it may take.
_SAMPLES, _WITHIN, _FINER, _MOST = 2048, 5e-3, 1e-3, 65536
# Part of the budget after which a first threshold that will not do is left for the staircase.
_OF_FIRST = 0.5
# What becomes of a part that has no result code.
OUT_OF_TIME, FAILED, NOT_TRIED = "out_of_time", "failed", "not_looked_for"
# Posteriors that stand in place of a chart, by the names of their kinds.
_CHARTLESS = {
    "OnPoints": "points found numerically",
    "OnSlices": "general numeric channel",
    "AroundLevelSet": "around the level set, weak noise",
    "AroundImage": "around the level set, weak noise",
}
# Characters of an error that a row tells.
_LONGEST = 300


@dataclass(frozen=True)
class Job:
    """What is done for every row.

    seconds: of the processor, for all of it.  settings: seed and scrambles.  folder, asked: where parts are kept, or
    None, and whether somebody asked for that.
    """

    seconds: float
    settings: dict[str, Any]
    folder: str | None = None
    asked: bool = True

    def store(self, row: Row) -> Store | None:
        if self.folder is None:
            return None
        seed = self.settings.get("seed", 0)
        rest = {key: value for key, value in self.settings.items() if key != "seed"}
        own = {"command": "atlas", "row": [row.samples, row.closed_form], **header(row.declared, seed, rest)}
        return Store(self.folder, own, asked=self.asked)


class _Clock:
    """Seconds of the processor that this thread has worked since; what others do meanwhile does not count."""

    def __init__(self, seconds: float) -> None:
        self._began, self._end = time.thread_time(), seconds

    @property
    def spent(self) -> float:
        return time.thread_time() - self._began

    def until(self, share: float) -> Callable[[], None]:
        """Raises OutOfTime once that share of the budget is spent."""

        def check() -> None:
            if self.spent > share * self._end:
                raise OutOfTime(f"{self.spent:.0f} s of the processor are spent")

        return check


class _Work:
    """What the parts of one row share."""

    def __init__(self, row: Row, job: Job, store: Store | None) -> None:
        self.row, self.job, self.store = row, job, store
        self.found: dict[str, Record] = {}

    @cached_property
    def model(self) -> Model:
        return compile(self.row.declared)

    @cached_property
    def omap(self) -> OverlapMap:
        """Of few samples: staircase, perfect recovery and branches are found on it, and a first threshold if that
        does."""
        settings = {"seed": 0, "scrambles": usual_scrambles(self.model), **self.job.settings}
        samples = affordable(self.model, _SAMPLES)
        return overlap_map(self.model, samples=samples, store=self.store, workers=1, **settings)


def solved(row: Row, job: Job) -> Record:
    """The row, in plain JSON types; a function by itself, so that it can be sent."""
    clock, work = _Clock(job.seconds), _Work(row, job, job.store(row))
    told: dict[str, Record] = {}
    for name, share, make in _PARTS:
        begun = clock.spent
        if job.seconds * share <= begun or (told and "model" not in work.found):
            told[name] = {"result": NOT_TRIED}
            continue
        best: list[Record] = []
        try:
            with patience.asking(clock.until(share)):
                part = records.kept(work.store, f"part {name}", partial(_last, make, work, best, clock), _has_result)
            told[name] = {"result": part["result"], "seconds": part["seconds"]}
        except OutOfTime:
            # Of a search what it had so far.
            part, told[name] = (best[-1] if best else {}), {"result": OUT_OF_TIME}
        except Exception as error:  # whatever one declaration does to the solvers, the others are solved
            part = {}
            told[name] = {"result": FAILED, "said": f"{type(error).__name__}: {error}"[:_LONGEST]}
        if part:
            work.found[name] = json.loads(to_json(part))
        # Those that it took when it was made, where it is kept.
        told[name].setdefault("seconds", round(clock.spent - begun, 2))
    made = {"budget": job.seconds, "versions": versions()}
    record = {**_record(row, work.found, told), **made}
    return dict(json.loads(to_json(record)))


def _last(make: Callable[[_Work], Iterator[Record]], work: _Work, best: list[Record], clock: _Clock) -> Record:
    """The last of what a part gives, which is the answer; each before it stands where there is no time for the next."""
    begun = clock.spent
    for one in make(work):
        best.append(one)
    return {**best[-1], "seconds": round(clock.spent - begun, 2)}


def _has_result(entry: Any) -> bool:
    Result(entry["result"])
    return isinstance(entry["seconds"], int | float)


# --- parts ----------------------------------------------------------------------------------------


def _model(work: _Work) -> Iterator[Record]:
    """What was compiled, and what is known exactly."""
    model, channel = work.model, work.model.channel
    every = "all fields, noise" if model.noise else "all fields, cells"
    posterior = getattr(channel.posterior, "thin", channel.posterior)
    exact = records.first_exactly(model)
    if exact is None and work.row.closed_form is not None:
        value = Fraction(work.row.closed_form)
        exact = {"alpha": float(value), "value": str(value), "formula": str(value)}
    yield {
        "labels": list(model.labels),
        "chart": _CHARTLESS.get(type(posterior).__name__) or (model.level_set.rule if model.level_set else every),
        "free": channel.free_dimensions,
        "branches": model.level_set.branches if model.level_set else 1,
        "closed_form": exact,
        "result": Result.SUCCESS,
    }


def _counting(work: _Work) -> Iterator[Record]:
    """From which alpha on perfect recovery is stable."""
    span, alpha, error = counting(work.model)
    rows = np.flatnonzero(np.abs(span).max(axis=0) > 1e-9)
    names = [work.model.labels[row] for row in rows]
    yield {"alpha": alpha, "error": error, "names": names, "result": Result.SUCCESS}


def _first(work: _Work, within: float = _WITHIN) -> Iterator[Record]:
    """The first threshold, on maps of more and more samples until its relative error will do."""
    omap = work.omap
    if work.row.samples is not None and work.row.samples > omap.samples:
        omap = omap.sibling(work.row.samples)
    while True:
        found = _thresholds(weak_recovery(omap, stages=1), omap)
        yield found
        alpha, error = found["thresholds"][0]["alpha"], found["thresholds"][0]["error"]
        if alpha is None or not math.isfinite(alpha) or not error > within * alpha or omap.samples >= _MOST:
            return
        missing = (error / (within * alpha)) ** 2 if math.isfinite(error) else 4.0
        more = omap.samples << max(1, math.ceil(math.log2(missing)))
        omap = omap.sibling(min(more, _MOST))


def _finer(work: _Work) -> Iterator[Record]:
    return _first(work, _FINER)


def _staircase(work: _Work) -> Iterator[Record]:
    """All that is learned later, stage by stage."""
    omap, count = work.omap, 0
    for stages in range(1, omap.model.fields + 1):
        found = _thresholds(weak_recovery(omap, stages=stages), omap)
        if len(found["thresholds"]) <= count:
            break
        yield found
        count = len(found["thresholds"])
    yield _thresholds(weak_recovery(omap), omap)


def _perfect(work: _Work) -> Iterator[Record]:
    yield _thresholds(perfect_recovery(work.omap), work.omap)


def _folds(work: _Work) -> Iterator[Record]:
    """Branches through their folds; of them, what tells the order of transitions."""
    yield records.phases(work.omap, store=work.store)


def _thresholds(solution: Solution, omap: OverlapMap) -> Record:
    found = [
        {
            "kind": one.kind, "names": one.names, "alpha": one.alpha, "error": one.error, "order": one.order,
            "samples": one.samples,
        }
        for one in records.finished(solution).value
    ]  # fmt: skip
    return {"thresholds": plain(found), "samples": omap.samples, "result": solution.result}


# Name, the part of the budget after which it is not begun and does not go on, and what makes it.
_PARTS: tuple[tuple[str, float, Callable[[_Work], Iterator[Record]]], ...] = (
    ("model", 1.0, _model),
    ("counting", 1.0, _counting),
    ("first", _OF_FIRST, _first),
    ("staircase", 1.0, _staircase),
    ("perfect", 1.0, _perfect),
    ("folds", 1.0, _folds),
    ("finer", 1.0, _finer),
)
PARTS = tuple(name for name, _, _ in _PARTS)


# --- the row --------------------------------------------------------------------------------------


def _record(row: Row, found: Mapping[str, Record], told: Mapping[str, Record]) -> Record:
    """What is told of it; numbers that no part gave are None, and ``parts`` says why."""
    model, counted = found.get("model", {}), found.get("counting", {})
    first = _one_first(found)
    later = found.get("staircase", {}).get("thresholds", [])[1:]
    met = [*([first] if first else []), *later]
    perfect = {one["kind"]: one for one in found.get("perfect", {}).get("thresholds", [])}
    folds = found.get("folds", {})
    order = orders(met, folds.get("branches"))
    exact = model.get("closed_form")
    reached = perfect.get("perfect_amp")
    codes = [Result(one["result"]) for one in told.values() if one["result"] not in (OUT_OF_TIME, FAILED, NOT_TRIED)]
    return {
        "name": row.name,
        "digest": row.declared.digest,
        "architecture": plain(row.declared),
        "tokens": row.declared.tokens,
        "fields": len(model["labels"]) if model else None,
        **{key: model.get(key) for key in ("chart", "free", "branches")},
        **{key: first.get(key) if first else None for key in ("kind", "names", "alpha", "error", "order", "samples")},
        "transition": order[0] if order else NOT_TRIED,
        "closed_form": exact["value"] if exact else None,
        "closed_value": exact["alpha"] if exact else None,
        "later": [
            {**{key: one[key] for key in ("kind", "names", "alpha", "error", "order")}, "transition": which}
            for one, which in zip(later, order[1:], strict=True)
        ],
        "perfect_stable": counted.get("alpha"),
        "perfect_stable_error": counted.get("error"),
        "perfect_amp": reached["alpha"] if reached else None,
        "perfect_amp_error": reached["error"] if reached else None,
        "hard_phases": hard_phases(counted, reached, folds.get("thresholds", []), folds.get("branches", [])),
        "folds": [
            {key: one[key] for key in ("kind", "names", "alpha", "error")} for one in folds.get("thresholds", [])
        ],
        "unseen": folds.get("unseen"),
        "parts": dict(told),
        "result": worst(codes).value,
        "seconds": round(sum(part.get("seconds", 0.0) for part in told.values()), 1),
    }


def _one_first(found: Mapping[str, Record]) -> Record | None:
    """The first threshold where it is known best."""
    for name in ("finer", "first", "staircase"):
        if name in found and found[name]["thresholds"]:
            return dict(found[name]["thresholds"][0])
    return None
