"""An atlas: what is known of many architectures at once, one row each, whatever becomes of the others.

Rows do not depend on one another: they go to any executor, are kept as they come, and resume.
"""

from __future__ import annotations

import fnmatch
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from smisym.base.cards import Card, Grid, Listing, Shown, Tabled, Variable
from smisym.base.edge import check_count, check_number, check_seed, check_settings
from smisym.base.errors import InputError
from smisym.base.outcome import ABOUT, UNITS
from smisym.base.solution import Result, worst
from smisym.declare import shipped
from smisym.declare.architecture import Architecture
from smisym.declare.io import Store, header, to_json
from smisym.declare.listed import Row, once, read_rows
from smisym.declare.smi import SMI
from smisym.integrate.accuracy import SCRAMBLES
from smisym.report import atlas_pages
from smisym.run.executing import check_executor, resumed_by, running_on
from smisym.run.progress import Choice, reporting
from smisym.run.rows import FAILED, PARTS, Job, solved

Record = dict[str, Any]
Listed = str | os.PathLike[str] | Mapping[str, Architecture | SMI] | Sequence[Row] | None

# Seconds of the processor for one row.
SECONDS = 60.0
_SETTINGS = ("seed", "scrambles")
# Each has at least two points of the fewest samples.
_MOST_SCRAMBLES = 64


class Atlas(Sequence[Record], Shown, Tabled):
    """Rows in their order: records in plain JSON types, as :doc:`/guide/atlas` names their keys.

    A number that is None is infinite where its part of ``parts`` is a success, and else not known.
    """

    def __init__(self, rows: Iterable[Record]) -> None:
        self._rows = list(rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        """Whether all numbers are the same; seconds are none of them."""
        return isinstance(other, Atlas) and list(map(without_seconds, self)) == list(map(without_seconds, other))

    __hash__ = None  # type: ignore[assignment]

    @property
    def result(self) -> Result:
        """The gravest of what was solved for; what there was no time for is none."""
        return worst([Result(row["result"]) for row in self])

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of rows of which a part failed."""
        return tuple(row["name"] for row in self if any(part["result"] == FAILED for part in row["parts"].values()))

    def __repr__(self) -> str:
        whole = sum(map(is_whole, self))
        return f"<Atlas: {len(self)} rows, {whole} of them whole, {len(self.failed)} with a part that failed>"

    def card(self) -> Card:
        """What a notebook shows, as plain data."""
        columns = ("architecture", "first threshold", "transition", "stable", "reached", "hard phase", "open")
        listing = Listing(columns, tuple(tuple(atlas_pages.COLUMNS[name](row) for name in columns) for row in self))
        return Card("Atlas", "", listing=listing)

    def grid(self) -> Grid:
        """One line for each row, as plain data; NaN for a number that is infinite or not known."""
        one = ("row",)
        columns: dict[str, Variable] = {}
        for name in ("name", "chart", "kind", "transition", "closed_form", "result"):
            words = np.array([row[name] or "" for row in self], dtype=np.str_)
            columns["architecture" if name == "name" else name] = Variable(one, words, name)
        about = {"alpha": (ABOUT["alpha"], UNITS["alpha"]), "seconds": ("of the processor", "s")}
        for name in ("alpha", "error", "perfect_stable", "perfect_amp", "fields", "free", "seconds"):
            values = np.array([math.nan if row[name] is None else row[name] for row in self], float)
            columns[name] = Variable(one, values, *about.get(name, (name, "")))
        return Grid({"row": np.arange(len(self))}, columns, one)


# Keys of a row by the part that they come from.
_OF_PARTS = {
    "first": ("kind", "names", "alpha", "error", "order", "samples"),
    "staircase": ("later",),
    "perfect": ("perfect_amp", "perfect_amp_error"),
    "folds": ("transition", "folds", "unseen", "hard_phases"),
}


def completed(row: Record, earlier: Record | None) -> Record:
    """The row, with parts of an earlier one of the same declaration in place of those that it lacks."""
    codes, parts, taken = {code.value for code in Result}, dict(row["parts"]), dict[str, Any]()
    for name, keys in _OF_PARTS.items():
        had = {} if earlier is None else earlier["parts"].get(name, {})
        if earlier is not None and parts[name]["result"] not in codes and had.get("result") in codes:
            parts[name] = had
            taken |= {key: earlier[key] for key in keys}
    return {**row, **taken, "parts": parts}


def is_whole(row: Record) -> bool:
    """Whether every part ended with a result code, if not all with a success."""
    codes = {code.value for code in Result}
    return all(part["result"] in codes for part in row["parts"].values())


def without_seconds(row: Record) -> Record:
    """A row without what depends on the machine: times, and the budget."""
    parts = {name: {k: v for k, v in part.items() if k != "seconds"} for name, part in row["parts"].items()}
    return {key: value for key, value in row.items() if key not in ("seconds", "budget")} | {"parts": parts}


# Many parameters: settings, all by keyword.
def atlas(
    declarations: Listed = None,
    *,
    only: Sequence[str] = (),
    seconds: float = SECONDS,
    known: Iterable[Record] = (),
    store: str | os.PathLike[str] | Store | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Choice = None,
    **settings: Any,
) -> Atlas:
    """First thresholds, later ones with the order of each transition, perfect recovery and hard phases of many
    architectures.

    declarations
        A folder of declarations, or a file that spells out families of them (:mod:`smisym.declare.listed`); a dict of
        declarations by name; rows of :func:`smisym.declare.listed.read_rows`; None for the list that comes with smisym.
    only
        Of names: words that they have in them, or, with ``*`` or ``?``, what all of them is like, as in names of files.
        Other rows are left out.
    seconds
        Of the processor, for each row.  What was not finished by then is told as such.  Which parts these are depends
        on the machine; the others do not.
    known
        Rows of an earlier atlas: those that are whole, or had as many seconds, are not made again, and those that
        ``only`` leaves out are taken as they are.  A part for which a row has no time now, but had then, stays.
    store
        A folder that keeps what is finished: the same atlas, or a larger one, resumes from it to the same bits.
    executor
        Of concurrent.futures, to which every row is sent.  With one that is not of this machine finished rows are kept
        as they come back.  None: processes of our own.
    workers
        How many of these; None for one a core, 1 for none.
    progress
        True for a bar on stderr, or a callable that is given each finished row.
    settings
        seed and scrambles, of every overlap map.

    A row that fails says so, and ends nothing.  Returns an :class:`Atlas`.  Raises InputError for what is no list of
    declarations, for other keywords, and where no row is left.
    """
    check_settings(settings, _SETTINGS)
    _check(**settings)
    seconds = check_number("seconds", seconds, "a positive number", "use seconds=60", least=1e-3)
    check_executor(executor)
    rows = listed(declarations)
    those = chosen(rows, only)
    keep = store if isinstance(store, Store) or store is None else Store(store, {"command": "atlas rows"})
    # Parts are kept as well where this machine makes them.
    place = store.folder if isinstance(store, Store) else store
    folder = None if place is None or executor is not None else os.fspath(place)
    job = Job(seconds, dict(settings), folder, keep is None or keep.asked)
    earlier = {row["digest"]: row for row in known}
    done = {row.declared.digest: earlier[row.declared.digest] for row in rows if row.declared.digest in earlier}
    asked = [row for row in those if not _will_do(done.get(row.declared.digest), seconds)]
    # The larger a network the longer it takes, about: with a long one at the end the others would wait for it.
    asked.sort(key=lambda row: size_of(row.declared), reverse=True)

    def told(number: int, found: Record) -> None:
        digest = asked[number].declared.digest
        done[digest] = completed(found, earlier.get(digest))
        report(done[digest])

    with reporting(progress, "atlas", len(asked)) as report, running_on(executor, workers, len(asked)) as running:
        tasks = [(_name(row, job), (row, job)) for row in asked]
        resumed_by(running, keep, solved, tasks, lambda entry: _is_row(entry) and _will_do(entry, seconds), told)
    found = [(row, done[row.declared.digest]) for row in rows if row.declared.digest in done]
    return Atlas([{**record, "name": row.name} for row, record in found])


def listed(declarations: Listed = None) -> tuple[Row, ...]:
    """The rows of what :func:`atlas` takes."""
    if declarations is None:
        return read_rows(shipped.ATLAS)
    if isinstance(declarations, str | os.PathLike):
        return read_rows(declarations)
    rows: list[Any] = []
    if isinstance(declarations, Mapping):
        rows = [Row(str(name), one) for name, one in declarations.items()]
    elif isinstance(declarations, Iterable):
        rows = list(declarations)
    if not rows or not all(isinstance(row, Row) and isinstance(row.declared, Architecture | SMI) for row in rows):
        allowed = "a folder, a dict of declarations by name, or rows"
        raise InputError("declarations", declarations, allowed, 'write {"one layer": Architecture(...)}')
    return once(rows)


def _check(seed: Any = 0, scrambles: Any = SCRAMBLES) -> None:
    """What no row could be solved with is refused before any is."""
    check_seed(seed)
    given = check_count("scrambles", scrambles, 2)
    if given & (given - 1) or given > _MOST_SCRAMBLES:
        allowed = f"a power of two from 2 to {_MOST_SCRAMBLES}"
        raise InputError("scrambles", scrambles, allowed, "leave it out for the default")


def chosen(rows: Sequence[Row], only: Sequence[str]) -> list[Row]:
    """The rows whose names have one of ``only`` in them, or are like one with * or ?; all of them where it is empty."""
    if isinstance(only, str):
        only = (only,)
    found = [row for row in rows if not only or any(_is_like(row.name, one) for one in only)]
    if not found:
        fix = f"leave it out for all, or write for example {rows[0].name!r}"
        raise InputError("only", list(only), f"what some of {len(rows)} names have in them, or are like", fix)
    return found


def _is_like(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) if set("*?") & set(pattern) else pattern in name


def size_of(declared: Architecture | SMI) -> tuple[int, int]:
    """How large a network is: entries of what is learned, and layers, as far as the declaration tells."""
    if isinstance(declared, SMI):
        return len(declared.fields) * declared.tokens, 0
    rows = sum(layer.rank * layer.heads * (1 if layer.tied else 2) for layer in declared.layers)
    return rows * declared.tokens, len(declared.layers)


def _name(row: Row, job: Job) -> str:
    """By which a row is kept: all that its numbers depend on."""
    rest = {"settings": job.settings, "versions": header(row.declared, 0, {})["versions"]}
    return f"{row.declared.digest} {row.samples} {row.closed_form} {to_json(rest)}"


def _is_row(entry: Any) -> bool:
    Result(entry["result"])
    return isinstance(entry["parts"], dict) and set(entry["parts"]) == set(PARTS)


def _will_do(record: Record | None, seconds: float) -> bool:
    """Whether a row need not be made again: whole, or with no less time."""
    return record is not None and (is_whole(record) or (record.get("budget") or 0.0) >= seconds)
