"""Phase diagrams: every transition in alpha, over one or two declared parameters.

Each value is solved by itself, with the same random numbers, so that it does not matter where and in which order: on
any executor, with the same bits.  Transitions at neighbouring values that go on into one another are one boundary.
Where a boundary begins or ends between two values more values are put in between, half and half again.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smisym.base.cards import Boundary, Card, Cell, Diagram, Drawn, Grid, Listing, Number, Shown, Tabled, Variable
from smisym.base.edge import check_count, check_most, check_settings
from smisym.base.errors import InputError
from smisym.base.outcome import ABOUT, UNITS
from smisym.base.solution import Result, worst
from smisym.declare.architecture import Architecture
from smisym.declare.io import Store, header, plain, to_json
from smisym.declare.smi import SMI
from smisym.declare.varying import halfway, is_whole, spacing, varied
from smisym.integrate.accuracy import THRESHOLD_SAMPLES
from smisym.model.compiled import compile
from smisym.run import records
from smisym.run.boundaries import Change, Track, changes, drawn, is_ok, tracks
from smisym.run.executing import check_executor, resumed_by, running_on
from smisym.run.progress import Choice, reporting
from smisym.theory.aim import aimed
from smisym.theory.effort import affordable, usual_scrambles

Record = dict[str, Any]
Declared = Architecture | SMI
Make = Callable[..., Declared]

_OF_MAP = ("samples", "scrambles", "seed", "rtol")
_OF_THRESHOLDS = ("stages", "quadrature", "accuracy", "most_samples")
_OF_BRANCHES = ("most",)
_MOST = 100_000
# Samples with which branches are followed where nothing is said, at most: each is a hundred evaluations of the map.
_FOLLOWED = 8192


class PhaseDiagram(Sequence[Record], Shown, Tabled, Drawn):
    """What was found at every value, in increasing order, and the boundaries that it makes up.

    A sequence of records in plain JSON types: "at" (the values of the parameters by name), "architecture", "labels",
    "thresholds", "branches" and "unseen" where branches were followed, and "result".
    names: of the one or two parameters.  boundaries: of :class:`smisym.run.boundaries.Track`; over two parameters one
    list for each value of the second.  changes: where a boundary begins or ends, of
    :class:`smisym.run.boundaries.Change`.
    """

    def __init__(self, found: Sequence[Record], names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._records = sorted(found, key=lambda record: tuple(record["at"][name] for name in reversed(self.names)))
        self.boundaries = [(second, tracks(one)) for second, one in self._rows()]
        self.changes = tuple(itertools.chain(*(self._changed(*row) for row in self._rows())))

    def __getitem__(self, index: Any) -> Any:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PhaseDiagram) and (list(self), self.names) == (list(other), other.names)

    __hash__ = None  # type: ignore[assignment]

    @property
    def result(self) -> Result:
        """The gravest of all."""
        return worst([Result(record["result"]) for record in self])

    @property
    def unseen(self) -> float | None:
        """The relative depth in alpha that a fold must have to be told from chance, at any value; None where no branch
        was followed."""
        found = [math.inf if record["unseen"] is None else record["unseen"] for record in self if "unseen" in record]
        return max(found, default=None)

    def _rows(self) -> Iterator[tuple[float | None, list[Record]]]:
        """Records of one value of the second parameter, where there are two."""
        if len(self.names) < 2:
            yield None, self._records
            return
        for second, one in itertools.groupby(self._records, key=lambda record: record["at"][self.names[1]]):
            yield second, list(one)

    def _changed(self, second: float | None, one: Sequence[Record]) -> Iterator[Change]:
        values = [record["at"][self.names[0]] for record in one]
        at = None if second is None else (self.names[1], second)
        for change in changes(tracks(one), values, [is_ok(record) for record in one]):
            yield replace(change, second=at)

    def __repr__(self) -> str:
        good = sum(map(is_ok, self))
        ended = "success" if good == len(self) else f"{good} of {len(self)} a success"
        return f"<PhaseDiagram: {', '.join(self.names)} at {len(self)} value{'s' * (len(self) != 1)}; {ended}>"

    def document(self) -> Record:
        """In plain JSON types: names, records, boundaries and changes."""
        boundaries = [
            {
                "label": one.label, "kind": one.kind, "names": list(track.names), "values": one.values.tolist(),
                "alphas": one.alphas.tolist(), "errors": plain(one.errors), "ok": one.ok.tolist(),
                **({} if second is None else {self.names[1]: second}),
            }
            for (second, every), (_, rows) in zip(self.boundaries, self._rows(), strict=True)
            for track in every
            for one in [self._line_of(track, rows)]
        ]  # fmt: skip
        changes: list[Record] = [_change_record(change) for change in self.changes]
        more = {"boundaries": boundaries, "changes": changes, "unseen": plain(self.unseen)}
        return {"names": list(self.names), "records": list(self), **more}

    def _line_of(self, track: Track, rows: Sequence[Record], after: str = "") -> Boundary:
        values = [record["at"][self.names[0]] for record in rows]
        return drawn(track, values, [is_ok(record) for record in rows], after)

    # ---- how it shows itself -------------------------------------------------------------------------

    def card(self) -> Card:
        """What a notebook shows, as plain data."""
        bad = {Result(record["result"]) for record in self if not is_ok(record)}
        notice = "; ".join(f"{code.value}: {code.message}" for code in sorted(bad, key=lambda code: code.value))
        head = (*self.names, "transitions", "result")
        rows = tuple(
            (*(f"{record['at'][name]:g}" for name in self.names), _line(record), record["result"]) for record in self
        )
        listing = Listing(head, rows, tuple(not is_ok(record) for record in self))
        notes = tuple(f"{change.text()}." for change in self.changes)
        notes += () if self.unseen is None else (f"A fold less deep than {100 * self.unseen:.2g} % goes unseen.",)
        picture = self._drawn()
        return Card("Phase diagram", notice, listing=listing, picture=picture if picture.boundaries else None,
                    notes=notes)  # fmt: skip

    def picture(self) -> Diagram:
        """What ``plot`` draws: alpha of every boundary over the first parameter, one line a value of the second."""
        found = self._drawn()
        if not found.boundaries:
            raise InputError("phase diagram", repr(self), "finite thresholds at some value", "print its records")
        return found

    def _drawn(self) -> Diagram:
        found = list[Boundary]()
        for (second, one), (_, rows) in zip(self.boundaries, self._rows(), strict=True):
            after = "" if second is None else f", {self.names[1]} = {second:g}"
            found += [self._line_of(track, rows, after) for track in one]
        return Diagram(tuple(found), self.names, spacing([record["at"][self.names[0]] for record in self]))

    def grid(self) -> Grid:
        """One line for each transition at each value, as plain data; -1 for the number of an infinite threshold."""
        numbered = list(self._numbered())
        one = ("line",)
        columns: dict[str, Variable] = {}
        for name in self.names:
            columns[name] = Variable(one, np.array([r["at"][name] for r, _, _ in numbered], float), "parameter")
        columns["boundary"] = Variable(one, np.array([n for _, _, n in numbered], int), "number of the boundary")
        texts = {"kind": [t["kind"] for _, t, _ in numbered], "rows": [", ".join(t["names"]) for _, t, _ in numbered]}
        for name, words in texts.items():
            columns[name] = Variable(one, np.array(words, dtype=np.str_), f"{name} of the transition")
        for name, key in (("alpha", "alpha"), ("alpha_error", "error")):
            values = [math.inf if t[key] is None else t[key] for _, t, _ in numbered]
            columns[name] = Variable(one, np.array(values, float), ABOUT["alpha"], UNITS["alpha"])
        results = np.array([r["result"] for r, _, _ in numbered], dtype=np.str_)
        columns["result"] = Variable(one, results, ABOUT["result"])
        return Grid({"line": np.arange(len(numbered))}, columns, one)

    def _numbered(self) -> Iterator[tuple[Record, Record, int]]:
        number: dict[int, int] = {}
        for n, track in enumerate(itertools.chain(*(one for _, one in self.boundaries))):
            number |= {id(found): n for found in track.found}
        for record in self:
            for threshold in record["thresholds"]:
                yield record, threshold, number.get(id(threshold), -1)


def _line(record: Record) -> Cell:
    finite = [t for t in record["thresholds"] if t["alpha"] is not None]
    return tuple(Number(t["alpha"], t["error"]) for t in finite) or "–"


# --- what is solved --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """What is done at every value: settings of the map and of thresholds, whether branches are followed, and where
    parts are kept (a folder and what names it), or None."""

    settings: dict[str, Any]
    follow: bool
    folder: str | None
    asked: bool = True

    def store(self, declared: Declared) -> Store | None:
        if self.folder is None:
            return None
        seed, rest = self.settings.get("seed", 0), {k: v for k, v in self.settings.items() if k != "seed"}
        return Store(self.folder, {"command": "phase-diagram", **header(declared, seed, rest)}, asked=self.asked)


def solved(declared: Declared, job: _Job) -> Record:
    """All transitions of one declaration, as a record; a function by itself, so that it can be sent."""
    model, store, settings = compile(declared), job.store(declared), job.settings
    own = {name: settings[name] for name in _OF_THRESHOLDS if settings.get(name) is not None}
    of_map = {"seed": 0, "scrambles": usual_scrambles(model)} | {
        k: settings[k] for k in _OF_MAP if settings.get(k) is not None
    }
    aim = {name: own.get(name) for name in ("accuracy", "most_samples")}
    if of_map.get("samples") is None and aim["accuracy"] is None:
        of_map["samples"] = affordable(model, THRESHOLD_SAMPLES)
    omap, _ = aimed(model, **aim, store=store, workers=1, **of_map)
    first = records.thresholds(omap, store=store, **own)
    record = {"architecture": plain(declared), "labels": list(model.labels), **first}
    if job.follow:
        fewer = omap.sibling(min(omap.samples, _FOLLOWED))
        more = records.phases(fewer, most=settings.get("most"), store=store)
        every = sorted([*record["thresholds"], *more["thresholds"]], key=_place)
        code = worst([Result(record["result"]), Result(more["result"])])
        found = {"branches": more["branches"], "unseen": more["unseen"], "result": code.value}
        record |= {"thresholds": every, **found}
    return dict(json.loads(to_json(record)))


def _place(threshold: Record) -> float:
    return math.inf if threshold["alpha"] is None else threshold["alpha"]


# Many parameters: settings, all by keyword.
def phase_diagram(
    network: Declared | Make,
    vary: Mapping[str, Sequence[float]],
    *,
    follow: bool = True,
    refine: int = 3,
    store: str | os.PathLike[str] | Store | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Choice = None,
    **settings: Any,
) -> PhaseDiagram:
    """Every transition in alpha over the values of one or two parameters.

    network
        A declaration, of which parameters are varied by name (:func:`smisym.declare.varying.varied`: ``skip``,
        ``noise``, ``layers.1.beta``, ...), or a callable that makes one: ``lambda skip: Architecture(...)``.
    vary
        Values by name, ``{"skip": [0, 0.5, 1]}``; of two parameters all pairs.
    follow
        Whether branches are followed for spinodals and information-theoretic transitions
        (:func:`smisym.phases`), beside thresholds of weak and perfect recovery.
    refine
        How often the gap in which a boundary begins or ends is halved, over one parameter.
    store
        A folder that keeps what is finished: the same diagram, or a larger one, resumes from it to the same bits.
    executor
        Of concurrent.futures, to which every value is sent: results do not depend on it.  With one that is not of this
        machine finished values are kept as they come back.  None: processes of our own.
    workers
        How many of these; None for one a core, 1 for none.
    progress
        True for a bar on stderr, or a callable that is given each finished record.
    settings
        samples, scrambles, seed, rtol, stages, quadrature, accuracy, most_samples, as of :func:`smisym.sweep`; most,
        the largest alpha of branches, as of :func:`smisym.phases`.

    Returns a :class:`PhaseDiagram`.  Raises InputError for values and names that are refused, and what solvers raise.
    """
    check_settings(settings, _OF_MAP + _OF_THRESHOLDS + _OF_BRANCHES)
    if settings.get("most") is not None:
        check_most(settings["most"])
    check_count("refine", refine, 0, "0 puts no value in between")
    given: object = network
    if not isinstance(given, Architecture | SMI) and not callable(given):
        allowed = "an Architecture, an SMI, or a callable that makes one"
        raise InputError("network", given, allowed, "pass a declaration, and name what varies")
    names, grids = _values(vary)
    keep, folder = _kept(store)
    check_executor(executor)
    asked = keep is None or keep.asked
    job = _Job(dict(settings), bool(follow), folder if executor is None else None, asked)
    at = [dict(zip(names, point, strict=True)) for point in itertools.product(*grids)]
    done: list[Record] = []
    with reporting(progress, "phase diagram", len(at)) as report, running_on(executor, workers, len(at)) as running:
        _solve(network, at, job, keep, running, done, report)
        for _ in range(refine if len(names) == 1 else 0):
            more = _between(network, PhaseDiagram(done, names), spacing(grids[0]))
            if not more:
                break
            _solve(network, more, job, keep, running, done, report)
    return PhaseDiagram(done, names)


def _kept(store: str | os.PathLike[str] | Store | None) -> tuple[Store | None, str | None]:
    """What keeps finished values, and the folder for parts of them."""
    if isinstance(store, Store):
        return store, str(store.folder)
    if store is None:
        return None, None
    return Store(store, {"command": "phase-diagram values"}), os.fspath(store)


def _values(vary: Any) -> tuple[list[str], list[list[float]]]:
    allowed = "one or two names, each with a sequence of finite numbers"
    fix = 'write for example {"skip": [0, 0.5, 1]}'
    if not isinstance(vary, Mapping) or len(vary) not in (1, 2) or not all(isinstance(name, str) for name in vary):
        raise InputError("vary", vary, allowed, fix)
    grids = []
    for values in vary.values():
        try:
            grid = sorted({float(value) for value in values})
        except (TypeError, ValueError):
            raise InputError("vary", values, allowed, fix) from None
        if not grid or not all(math.isfinite(value) for value in grid):
            raise InputError("vary", values, allowed, fix)
        grids.append(grid)
    if math.prod(map(len, grids)) > _MOST:
        raise InputError("vary", f"{math.prod(map(len, grids))} values", f"at most {_MOST}", "ask for fewer")
    return list(vary), grids


def _made(network: Declared | Make, at: Mapping[str, float]) -> Declared:
    if isinstance(network, Architecture | SMI):
        for name, value in at.items():
            network = varied(network, name, value)
        return network
    made: object = network(**at)
    if not isinstance(made, Architecture | SMI):
        fix = "return a declaration, which can be sent to other processes"
        raise InputError("network", made, "a callable that returns an Architecture or an SMI", fix)
    return made


# Many parameters: what is solved, where it is kept, and who is told.
def _solve(
    network: Declared | Make,
    at: Sequence[dict[str, float]],
    job: _Job,
    keep: Store | None,
    running: Executor | None,
    done: list[Record],
    report: Callable[[Record], object],
) -> None:
    """Adds the record of every value to ``done``: those that are kept, then the others as they come."""
    declared = [_made(network, point) for point in at]
    tasks = [(_name(one, job), (one, job)) for one in declared]

    def told(number: int, found: Record) -> None:
        done.append({"at": at[number], **found})
        report(done[-1])

    resumed_by(running, keep, solved, tasks, _is_record, told)


def _change_record(change: Change) -> Record:
    """In plain JSON types; of two parameters the second and its value too."""
    found: Record = {"label": change.label, "kind": change.kind, "what": change.what, "between": list(change.between)}
    return found if change.second is None else found | {change.second[0]: change.second[1]}


def _name(declared: Declared, job: _Job) -> str:
    """By which a value is kept: all that its record depends on."""
    rest = {"settings": job.settings, "follow": job.follow, "versions": header(declared, 0, {})["versions"]}
    return f"{declared.digest} {to_json(rest)}"


def _is_record(entry: Any) -> bool:
    Result(entry["result"])
    return isinstance(entry["thresholds"], list) and isinstance(entry["labels"], list)


def _between(network: Declared | Make, found: PhaseDiagram, scale: str) -> list[dict[str, float]]:
    """Values halfway where a boundary begins or ends."""
    (name,) = found.names
    whole = isinstance(network, Architecture | SMI) and is_whole(network, name)
    gaps = dict.fromkeys(change.between for change in found.changes)
    middles = [halfway(low, high, scale, whole) for low, high in gaps]
    return [{name: value} for value in middles if value is not None]
