"""A declared parameter swept: thresholds, or curves, of one declaration after another."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Any, Literal

from smisym.base.edge import check_alpha, check_settings
from smisym.base.errors import InputError
from smisym.declare.architecture import Architecture
from smisym.declare.io import Store, header, plain, to_json
from smisym.declare.smi import SMI
from smisym.integrate.accuracy import SAMPLES, THRESHOLD_SAMPLES
from smisym.model.compiled import Model, compile
from smisym.run import records
from smisym.run.executing import check_executor, resumed_by
from smisym.run.progress import Choice, Reporter, reporting, watching
from smisym.run.swept import Sweep
from smisym.theory.aim import aimed
from smisym.theory.effort import affordable, usual_scrambles

Record = dict[str, Any]
What = Literal["thresholds"] | Sequence[float]

_OF_MAP = ("samples", "scrambles", "seed", "rtol", "workers")
_AIM = ("accuracy", "most_samples")
_OF_THRESHOLDS = ("stages", "quadrature", *_AIM)
_OF_CURVES = ("start", *_AIM)


def sweep(
    make: Callable[[Any], Architecture | SMI | Model],
    values: Iterable[Any],
    what: What = "thresholds",
    *,
    store: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: Choice = None,
    **settings: Any,
) -> Sweep:
    """Thresholds, or points of a curve, for every value of a parameter.

    make
        From a value to a declaration, or to a Model: ``lambda skip: Architecture(2, (Attention(skip=skip),) * 2)``.
    what
        "thresholds", or the alphas of a curve.
    store
        A folder that keeps every finished part, and every evaluation of the map: the same sweep, or a larger one,
        resumes from it to the same bits.  It needs declarations, not bare programs.
    executor
        Of concurrent.futures, to which every value is sent, for which ``make`` must return declarations: results do not
        depend on it, and finished values are kept as they come back.  None: one value after the other, each on all
        workers.
    progress
        True for a bar on stderr, or a callable that is given each finished record.
    settings
        Of every overlap map: samples, scrambles, seed, rtol, workers; of thresholds: stages, quadrature
        (:func:`smisym.weak_recovery`); of a curve: start (:func:`smisym.state_evolution`); of both: accuracy and
        most_samples, in place of samples.

    Returns a list of one record for each value, in the order given, in plain JSON types but for the value itself:
    value, architecture (as declared), labels (of the rows of Z), and "thresholds" and "result", or "points", as in the
    files of :func:`smisym.analyze`.  It shows itself in a notebook, and is a table and a figure
    (:class:`smisym.run.swept.Sweep`).
    Raises InputError for other keywords, and whatever ``make`` and the solvers raise.
    """
    values, alphas = _listed(values), _alphas(what)
    check_settings(settings, _OF_MAP + (_OF_THRESHOLDS if alphas is None else _OF_CURVES))
    if not callable(make):
        raise InputError("make", make, "a callable from a value to a declaration", "pass for example a lambda")
    check_executor(executor)
    if executor is not None:
        return _sent(make, values, alphas, settings, store, executor, progress)
    done = Sweep()
    with reporting(progress, "sweep", len(values)) as report:
        for value in values:
            made = make(value)
            model = made if isinstance(made, Model) else compile(made)
            done.append({"value": value, **_one(model, alphas, settings, store, report)})
            report(done[-1])
    return done


# Many parameters: what is solved, where it is kept, and who is told.
def _sent(
    make: Callable[[Any], Any],
    values: list[Any],
    alphas: list[float] | None,
    settings: dict[str, Any],
    store: str | os.PathLike[str] | None,
    executor: Executor,
    progress: Choice,
) -> Sweep:
    """The same on an executor: whole values are kept, by all that their records depend on."""
    declared = [make(value) for value in values]
    for one in declared:
        if not isinstance(one, Architecture | SMI):
            fix = "return a declaration, or leave executor out"
            raise InputError("make", one, "with an executor a callable that returns an Architecture or an SMI", fix)
    keep = None if store is None else Store(store, {"command": "sweep values"})
    own = {name: value for name, value in settings.items() if name != "workers"}
    about = {"alphas": alphas, "settings": own}
    tasks = [(_name(one, about), (one, alphas, own)) for one in declared]
    found: dict[int, Record] = {}

    def told(number: int, record: Record) -> None:
        found[number] = {"value": values[number], **record}
        report(found[number])

    with reporting(progress, "sweep", len(values)) as report:
        resumed_by(executor, keep, solved_alone, tasks, _is_record, told)
    return Sweep(found[number] for number in range(len(values)))


def solved_alone(declared: Architecture | SMI, alphas: list[float] | None, settings: dict[str, Any]) -> Record:
    """One declaration in one thread, as a record; a function by itself, so that it can be sent."""
    with reporting(None, "") as report:
        return _one(compile(declared), alphas, {**settings, "workers": 1}, None, report)


def _name(declared: Architecture | SMI, about: dict[str, Any]) -> str:
    return f"{declared.digest} {to_json({**about, 'versions': header(declared, 0, {})['versions']})}"


def _is_record(entry: Any) -> bool:
    return isinstance(entry["labels"], list) and ("thresholds" in entry or "points" in entry)


def _one(
    model: Model,
    alphas: list[float] | None,
    settings: dict[str, Any],
    store: str | os.PathLike[str] | None,
    report: Reporter,
) -> Record:
    own = {name: settings[name] for name in dict.fromkeys(_OF_THRESHOLDS + _OF_CURVES) if name in settings}
    of_map = {"seed": 0, "scrambles": usual_scrambles(model)} | {
        name: settings[name] for name in _OF_MAP if name in settings
    }
    aim = {name: own.get(name) for name in _AIM}
    if of_map.get("samples") is None and aim["accuracy"] is None:
        of_map["samples"] = affordable(model, THRESHOLD_SAMPLES if alphas is None else SAMPLES)
    kept = _store(model, of_map, own, store)
    omap, _ = aimed(model, **aim, store=kept, **of_map)
    labels = list(model.labels)
    declared = None if model.architecture is None else plain(model.architecture)
    with watching(omap, report):
        if alphas is None:
            return {"architecture": declared, "labels": labels, **records.thresholds(omap, store=kept, **own)}
        return {"architecture": declared, "labels": labels, "points": records.curve(omap, alphas, store=kept, **own)}


def _store(
    model: Model, of_map: dict[str, Any], own: dict[str, Any], folder: str | os.PathLike[str] | None
) -> Store | None:
    if folder is None:
        return None
    if model.architecture is None:
        fix = "make an Architecture or an SMI, or leave store out"
        raise InputError("store", folder, "declarations, by which what is kept is told apart", fix)
    # The number of threads changes nothing; alphas are told apart by their entries.
    settings = {name: value for name, value in {**of_map, **own}.items() if name not in ("workers", "seed")}
    return Store(folder, {"command": "sweep", **header(model.architecture, of_map["seed"], settings)})


def _listed(values: Iterable[Any]) -> list[Any]:
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise InputError("values", values, "a sequence of values for make", f"write [{values!r}]")
    return list(values)


def _alphas(what: What) -> list[float] | None:
    if isinstance(what, str):
        if what != "thresholds":
            raise InputError("what", what, '"thresholds", or a sequence of alphas', 'write "thresholds"')
        return None
    if not isinstance(what, Iterable):
        raise InputError("what", what, '"thresholds", or a sequence of alphas', f"write [{what!r}]")
    alphas = list(what)
    for alpha in alphas:
        check_alpha(alpha)
    return [float(alpha) for alpha in alphas]
