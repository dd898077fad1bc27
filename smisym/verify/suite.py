"""All properties in their order, and what puts a model through them."""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from smisym.base import patience
from smisym.base.edge import check_number, check_seed
from smisym.base.errors import InputError, SmisymError
from smisym.base.extras import needed
from smisym.declare.architecture import Architecture
from smisym.declare.io import header, load
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
    repeating,
    symmetries,
    weak_noise,
    weighing,
)
from smisym.verify.chance import SUITE  # noqa: E402
from smisym.verify.properties import Property, Subject, Tried, left_out  # noqa: E402
from smisym.verify.reports import Report, Row  # noqa: E402

_MODULES: tuple[Any, ...] = (
    mapping, depth, symmetries, charted, digits, posteriors, weighing, weak_noise, averages, error_bars, evolutions,
    exact, messages, repeating,
)  # fmt: skip
PROPERTIES: tuple[Property, ...] = tuple(one for module in _MODULES for one in module.PROPERTIES)
# Of the whole suite, shared out over what is left to chance.
LEVEL = SUITE / sum(one.statistical for one in PROPERTIES)
# Of the processor, for one property: many times what any takes of the networks that are shipped.
SECONDS = 300.0
_SLOW = "not done after {:g} seconds of the processor (seconds = more, on the command line --seconds, lets it go on)"


def verified(
    target: Architecture | SMI | Model,
    chosen: Sequence[Property],
    subject: dict[str, Any],
    seconds: float,
    progress: Callable[[Row], object],
) -> Report:
    """The report of some properties; subject: the other fields of :class:`Subject`.  seconds: of the processor for each
    of them.  progress: called with each row."""
    declared = not isinstance(target, Model)
    model = target if isinstance(target, Model) else compile(target)
    of = Subject(model, declared=declared, **subject)
    rows = []
    for one in chosen:
        begun = time.perf_counter()
        try:
            found = patience.within(seconds, lambda one=one: one.verify(of, LEVEL))  # type: ignore[misc]
            tried = left_out(_SLOW.format(seconds)) if found is None else found
        except (SmisymError, ArithmeticError) as error:
            # What cannot even be computed does not hold.
            tried = Tried(0, "", float("inf"), None, False, f"{type(error).__name__}: {error}")
        rows.append(Row(one.name, one.sentence, one.source, tried, time.perf_counter() - begun))
        progress(rows[-1])
    alarm = LEVEL * sum(one.statistical for one, row in zip(chosen, rows, strict=True) if row.tried.holds is not None)
    return Report(tuple(rows), of.seed, of.thorough, LEVEL, alarm)


def chosen_of(only: Sequence[str] | str | None) -> tuple[Property, ...]:
    """Properties by name, all for None, in their own order; InputError for a name that none has."""
    if only is None:
        return PROPERTIES
    names = names_of([only] if isinstance(only, str) else list(only)) or []
    known = [one.name for one in PROPERTIES]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            fix = f'write "{near[0]}" if that was meant' if near else "choose among these"
            raise InputError("only", name, f"names of properties: {', '.join(known)}", fix)
    if not names:
        raise InputError("only", names, "at least one name of a property", "leave it out for all")
    return tuple(one for one in PROPERTIES if one.name in names)


def names_of(texts: Sequence[object] | None) -> list[str] | None:
    """Names, in small letters, from texts that each have one, or several with commas between."""
    if texts is None:
        return None
    names = [name.strip().lower() for text in texts for name in str(text).split(",")]
    return [name for name in names if name]


def check_file(
    file: str,
    chosen: Sequence[Property],
    thorough: bool,
    seed: int,
    seconds: float | None,
    progress: Callable[[Row], object],
) -> dict[str, Any]:
    """What ``smisym check`` prints of a network's file: :meth:`Report.record`, with what makes the run again."""
    declared = load(file)
    names = [one.name for one in chosen]
    report = check(declared, only=names, thorough=thorough, seed=seed, seconds=seconds, progress=progress)
    settings = {"only": names, "thorough": thorough} | ({} if seconds is None else {"seconds": seconds})
    return {"command": "check", **header(declared, seed, settings), **report.record()}


# Many parameters: settings, all by keyword.
def check(
    target: Architecture | SMI | Model,
    *,
    only: Sequence[str] | str | None = None,
    thorough: bool = False,
    seed: int = 0,
    seconds: float | None = None,
    maps: Any = OverlapMap,
    algorithm: Any = gamp,
    progress: Callable[[Row], object] | None = None,
) -> Report:
    """Put a declaration, or a compiled model, through everything that must hold; a :class:`Report`, whose ``ok`` says
    whether no property fails.

    only: names of properties (:data:`PROPERTIES`), or a text with commas between them; None for all.  thorough: eight
    times as many cases and samples.  seed: of all that is drawn: the same seed, the same report.  seconds: of the
    processor for each property, which is left out where it is not done then; None: 300, thorough 2400; math.inf: as
    long as it takes.  maps: what makes
    overlap maps, a class with the constructor and ``load`` of :class:`~smisym.OverlapMap`.  algorithm: what runs GAMP
    on data, called as :func:`smisym.gamp` is.  progress: called with each :class:`Row`.

    A statistical property fails falsely with a chance of at most 1e-3 over their number, all together at most 1e-3.
    Raises InputError for another target, names that no property has, a bad seed, and where hypothesis is not installed.
    """
    given: object = target
    if not isinstance(given, Architecture | SMI | Model):
        fix = "write smisym.verify.check(smisym.load('network.toml'))"
        raise InputError("what is checked", given, "an Architecture, an SMI or a Model", fix)
    subject = {"seed": check_seed(seed), "thorough": bool(thorough), "maps": maps, "algorithm": algorithm}
    longest = SECONDS * (8 if thorough else 1) if seconds is None else seconds
    if longest != math.inf:
        longest = check_number("seconds", longest, "seconds >= 0, or math.inf", "leave it out", least=0.0)
    return verified(target, chosen_of(only), subject, longest, progress or (lambda row: None))


def assert_holds(target: Architecture | SMI | Model, **settings: Any) -> None:
    """For tests: AssertionError, with each property that fails and a program that shows it, unless all hold; also where
    everything that was asked for is left out.

    settings: those of :func:`check`.
    """
    report = check(target, **settings)
    if not report.ok:
        raise AssertionError(report.summary())
