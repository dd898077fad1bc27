"""All properties in their order, and what puts a model through them."""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from smisym.base import patience
from smisym.base.edge import check_number, check_seed
from smisym.base.errors import InputError, SmisymError
from smisym.base.extras import needed
from smisym.base.files import source_digest
from smisym.declare.architecture import Architecture
from smisym.declare.io import Store, header, load
from smisym.declare.smi import SMI
from smisym.finite.message_passing import gamp
from smisym.model.compiled import Model, compile
from smisym.theory.maps import OverlapMap

needed("hypothesis", "verify")

from smisym.verify import (  # noqa: E402
    averages,
    charted,
    depth,
    digits,
    error_bars,
    evolutions,
    exact,
    mapping,
    messages,
    posteriors,
    recovery,
    repeating,
    symmetries,
    weak_noise,
    weighing,
)
from smisym.verify.chance import SUITE  # noqa: E402
from smisym.verify.properties import Property, Subject, Tried, left_out  # noqa: E402
from smisym.verify.reports import Report, Row, asked  # noqa: E402

_MODULES: tuple[Any, ...] = (
    mapping, depth, symmetries, charted, digits, posteriors, weighing, weak_noise, averages, error_bars, evolutions,
    exact, recovery, messages, repeating,
)  # fmt: skip
PROPERTIES: tuple[Property, ...] = tuple(one for module in _MODULES for one in module.PROPERTIES)
# Of the whole suite, shared out over what is left to chance.
LEVEL = SUITE / sum(one.statistical for one in PROPERTIES)
# Of the processor, for one property: many times what any takes of the networks that are shipped.
SECONDS = 300.0
# Cases and samples of a thorough check and of a quick one, beside the usual number.
THOROUGH, QUICK = 8.0, 1 / 8
# Of these seconds, what the sample of a test of chance has; and the share of the sample that has the rest.
_FIRST, _SMALLER = 2 / 3, 1 / 8
_CUT = "as many as {:g} seconds of the processor allow"
_FEWER = "an eighth of the sample: the whole was not done after {:.3g} of {:g} seconds of the processor"
_SLOW = "not done after {:g} seconds of the processor"


def verified(
    target: Architecture | SMI | Model,
    chosen: Sequence[Property],
    subject: dict[str, Any],
    seconds: float,
    progress: Callable[[Row], object],
    store: Store | None = None,
) -> Report:
    """The report of some properties; subject: the other fields of :class:`Subject`.  seconds: of the processor for each
    of them.  progress: called with each row.  store: rows that it has are not made again."""
    declared = not isinstance(target, Model)
    model = target if isinstance(target, Model) else compile(target)
    of = Subject(model, declared=declared, **subject)
    rows = []
    for one in chosen:
        # What had no time, or too little, may have it where there are more seconds.
        within = f"{one.name} in {seconds:g} s"
        row = None if store is None else _kept(store, one.name) or _kept(store, within)
        if row is None:
            row = _tried(one, of, seconds)
            if store is not None:
                done = row.tried.holds is not None and not row.tried.cut
                store.put(one.name if done else within, row.record())
        rows.append(row)
        progress(row)
    alarm = LEVEL * sum(one.statistical for one, row in zip(chosen, rows, strict=True) if row.tried.holds is not None)
    return Report(tuple(rows), of.seed, of.effort, LEVEL, alarm)


def _tried(one: Property, of: Subject, seconds: float) -> Row:
    begun = time.perf_counter()
    try:
        tried = _in_time(one, of, seconds)
    except (SmisymError, ArithmeticError) as error:
        # What cannot even be computed does not hold.
        tried = Tried(0, "", float("inf"), None, False, f"{type(error).__name__}: {error}")
    return Row(one.name, one.sentence, one.source, tried, round(time.perf_counter() - begun, 3))


def _in_time(one: Property, of: Subject, seconds: float) -> Tried:
    """What can be told in so many seconds: of a search all cases by then, of a test of chance a smaller sample."""
    first = (_FIRST if one.statistical else 1.0) * seconds
    over = patience.Over()
    tried = patience.within(first, lambda: one.verify(of, LEVEL), over)
    if tried is not None:  # it may be a search that was cut short (searching.py)
        return dataclasses.replace(tried, cut=_CUT.format(first)) if tried.holds and over.raised else tried
    slow = _SLOW.format(seconds)
    doubts: list[str] = getattr(over, "__notes__", [])
    if doubts:
        return left_out(f"{doubts[0]}: {slow}")
    if not one.statistical:
        return left_out(slow)
    # Which of both samples counts is told by the clock alone: it is one test.
    fewer = dataclasses.replace(of, effort=of.effort * _SMALLER)
    tried = patience.within(seconds - first, lambda: one.verify(fewer, LEVEL))
    if tried is None:
        return left_out(slow)
    return tried if tried.holds is None else dataclasses.replace(tried, cut=_FEWER.format(first, seconds))


def _kept(store: Store, name: str) -> Row | None:
    """The row as it was kept."""
    found = store.get(name, lambda entry: Row.of(entry).record() == entry)
    return None if found is None else Row.of(found)


def chosen_of(only: Sequence[str] | str | None) -> tuple[Property, ...]:
    """Properties by name, all for None, in their own order; InputError for a name that none has."""
    if only is None:
        return PROPERTIES
    known = [one.name for one in PROPERTIES]
    if not isinstance(only, str | Iterable):
        raise InputError("only", only, f"names of properties: {', '.join(known)}", "leave it out for all")
    names = names_of([only] if isinstance(only, str) else list(only)) or []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            fix = f'write "{near[0]}" if that was meant' if near else "choose among these"
            raise InputError("only", name, f"names of properties: {', '.join(known)}", fix)
    if not names:
        raise InputError("only", only, "at least one name of a property", "leave it out for all")
    return tuple(one for one in PROPERTIES if one.name in names)


def names_of(texts: Sequence[object] | None) -> list[str] | None:
    """Names, in small letters, from texts that each have one, or several with commas between."""
    if texts is None:
        return None
    names = [name.strip().lower() for text in texts for name in str(text).split(",")]
    return [name for name in names if name]


# Many parameters: what the command line takes.
def check_file(
    file: str,
    chosen: Sequence[Property],
    effort: float,
    seed: int,
    seconds: float | None,
    progress: Callable[[Row], object],
    store: str | Store | None = None,
) -> dict[str, Any]:
    """What ``smisym check`` prints of a network's file: :meth:`Report.record`, with what makes the run again."""
    how: dict[str, Any] = {**asked(effort), "seed": seed, "seconds": seconds, "store": store}
    report = check(load(file), only=_names(chosen), progress=progress, **how)
    return headed(file, chosen, effort, seed, seconds) | report.record()


def until_interrupted(
    file: str, chosen: Sequence[Property], effort: float, seed: int, seconds: float | None, rows: Sequence[Any]
) -> dict[str, Any]:
    """What :func:`check_file` returns, of those properties alone whose records are there: ``rows``."""
    alarm = LEVEL * sum(row["p"] is not None for row in rows)
    done = {
        "properties": [*rows], "ok": None, "seed": seed, **asked(effort), "level": LEVEL, "false_alarm": alarm,
        "interrupted": True,
    }  # fmt: skip
    return headed(file, chosen, effort, seed, seconds) | done


def headed(
    file: str, chosen: Sequence[Property] | None, effort: float, seed: int, seconds: float | None
) -> dict[str, Any]:
    """What makes the run again; chosen: None for what each of its properties depends on."""
    settings: dict[str, Any] = asked(effort) | ({} if seconds is None else {"seconds": seconds})
    settings |= {} if chosen is None else {"only": _names(chosen)}
    return {"command": "check", **header(load(file), seed, settings)}


def _names(chosen: Sequence[Property]) -> list[str]:
    return [one.name for one in chosen]


def effort_of(thorough: bool, quick: bool) -> float:
    """Cases and samples beside the usual number; InputError where both are asked for."""
    if thorough and quick:
        raise InputError("thorough, quick", "both", "one of them, or none", "leave one out")
    return THOROUGH if thorough else QUICK if quick else 1.0


# Many parameters: settings, all by keyword.
def check(
    target: Architecture | SMI | Model,
    *,
    only: Sequence[str] | str | None = None,
    thorough: bool = False,
    quick: bool = False,
    seed: int = 0,
    seconds: float | None = None,
    maps: Any = OverlapMap,
    algorithm: Any = gamp,
    progress: Callable[[Row], object] | None = None,
    store: str | os.PathLike[str] | Store | None = None,
) -> Report:
    """Put a declaration, or a compiled model, through everything that must hold; a :class:`Report`, whose ``ok`` says
    whether no property fails.

    only: names of properties (:data:`PROPERTIES`), or a text with commas between them; None for all.  thorough: eight
    times as many cases and samples.  quick: an eighth of them, which sees less, where posteriors are dear.  seed: of
    all that is drawn: the same seed, the same report.  seconds: of the processor for each property: of a search the
    cases count that were tried by then, of a test of chance an eighth of its sample, if that is done, else it is left
    out; None: 300, thorough 2400; math.inf: as long as it takes.
    maps: what makes overlap maps, a class with the constructor and ``load`` of :class:`~smisym.OverlapMap`.
    algorithm: what runs GAMP on data, called as :func:`smisym.gamp` is.  progress: called with each :class:`Row`.
    store: a folder in which what holds or fails of a declaration is kept, by all that it depends on; the same check, of
    these or other properties, does not try it again.

    A statistical property fails falsely with a chance of at most 1e-3 over their number, all together at most 1e-3.
    Raises InputError for another target, names that no property has, a bad seed, thorough and quick together, and where
    hypothesis is not installed.
    """
    given: object = target
    if not isinstance(given, Architecture | SMI | Model):
        fix = "write smisym.verify.check(smisym.load('network.toml'))"
        raise InputError("what is checked", given, "an Architecture, an SMI or a Model", fix)
    effort = effort_of(thorough, quick)
    subject = {"seed": check_seed(seed), "effort": effort, "maps": maps, "algorithm": algorithm}
    longest = SECONDS * max(effort, 1.0) if seconds is None else seconds
    if longest != math.inf:
        longest = check_number("seconds", longest, "seconds >= 0, or math.inf", "leave it out", least=0.0)
    keep = None
    if store is not None:
        if isinstance(target, Model) or (maps, algorithm) != (OverlapMap, gamp):
            fix = "leave store out, or check the declaration"
            raise InputError("store", store, "a folder, where a declaration alone is checked", fix)
        more = {"command": "check", **asked(effort), "source": source_digest()}
        keep = store if isinstance(store, Store) else Store(store, header(target, subject["seed"], more))
    return verified(target, chosen_of(only), subject, longest, progress or (lambda row: None), keep)


def assert_holds(target: Architecture | SMI | Model, **settings: Any) -> None:
    """For tests: AssertionError, with each property that fails and a program that shows it, unless all hold; also where
    everything that was asked for is left out.

    settings: those of :func:`check`.
    """
    report = check(target, **settings)
    if not report.ok:
        raise AssertionError(report.summary())
