"""The atlas as files: what ``smisym atlas`` reads, makes and writes."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from smisym.base.errors import InputError, Words
from smisym.base.files import check_path, read_bytes, write_text
from smisym.base.processes import cores
from smisym.declare import shipped
from smisym.declare.io import SCHEMA, origin, to_json
from smisym.report import atlas_pages
from smisym.run import atlases, terminal, unasked
from smisym.run.clusters import on_cluster
from smisym.run.output_names import check_page
from smisym.run.progress import progress_bar
from smisym.run.task import NOT_CONVERGED, fail

Record = dict[str, Any]

_MOST = 1 << 28
# Seconds from which on it is said how long the rows take.
_LONG = 60.0
# Prose below the table, in a folder of declarations.
NOTES = "notes.md"


# Many parameters: options of a command.
def make(
    folder: str | None,
    output: str | None,
    only: Sequence[str],
    seconds: float,
    settings: Mapping[str, Any],
    *,
    again: bool = False,
    beside: str | None = None,
    as_json: bool = False,
    state: str | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
) -> None:
    """Make the atlas of a folder, write and print it; exit code 3 where a row is no success."""
    path = check_page(output)
    other = None if beside is None else atlas_pages.read_beside(check_path(beside, "numbers of another way"))
    rows = atlases.listed(folder)
    known = [] if path is None else _of_same_settings(earlier(path.with_suffix(".json")), settings)
    if again:
        anew = {row.declared.digest for row in atlases.chosen(rows, only)}
        known = [record for record in known if record["digest"] not in anew]
    head = {
        "command": "atlas",
        **origin(),
        "seed": settings["seed"],
        "settings": {"scrambles": settings.get("scrambles")},
    }
    whole = {record["digest"] for record in known if atlases.is_whole(record)}
    _announce([row for row in atlases.chosen(rows, only) if row.declared.digest not in whole], seconds, workers)
    store = state if state is not None else unasked.keep({**head, "rows": [row.declared.digest for row in rows]})
    with progress_bar("atlas", None) as step, on_cluster(scheduler) as executor:
        found = atlases.atlas(
            rows, only=only, seconds=seconds, known=known, store=store, executor=executor, workers=workers,
            progress=step, **settings,
        )  # fmt: skip
    document = json.loads(to_json({**head, "declared": len(rows), "rows": list(found), "result": found.result}))
    if path is not None:
        _put_aside(path.with_suffix(".json"), document, settings)
        document["output"] = atlas_pages.written(document, path, other, notes_of(folder))
    if as_json:
        typer.echo(to_json(document))
    else:
        terminal.print_atlas(document)
    unasked.forget()
    bad = [row["name"] for row in found if row["result"] != "success" or row["name"] in found.failed]
    if bad:
        are = "is" if len(bad) == 1 else "are"
        more = f", and {len(bad) - 3} more" if len(bad) > 3 else ""
        fail(f"smisym: {len(bad)} of {len(found)} rows {are} no success: {'; '.join(bad[:3])}{more}", NOT_CONVERGED)


def _announce(rows: Sequence[atlases.Row], seconds: float, workers: int | None) -> None:
    """How long all of them take at most, where that is more than a minute."""
    longest = len(rows) * seconds / min(workers or cores(), max(1, len(rows)))
    if math.isfinite(longest) and longest > _LONG:
        each = f"{len(rows)} rows of up to {seconds:g} s of the processor each"
        typer.echo(f"smisym: {each}: at most about {longest / 60:.0f} min", err=True)


def earlier(path: Path) -> Record:
    """The document that a file has already; one without rows where there is no file.

    Raises InputError for a file that is none of ours: it would be overwritten.
    """
    if not path.exists():
        return {"rows": []}
    where = f"earlier atlas {path}"
    try:
        document: dict[str, Any] = json.loads(read_bytes(path, where, _MOST))
        ours = document["command"] == "atlas" and document["schema"] == SCHEMA and "seed" in document
        ours = ours and "scrambles" in document["settings"]
        ours = ours and all(isinstance(row["digest"], str) for row in document["rows"])
    except (ValueError, KeyError, TypeError, LookupError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        ours = False
    if not ours:
        fix = "choose another name, or delete it"
        raise InputError(where, Words("a file that smisym atlas did not write"), "one that it wrote, or none", fix)
    return document


def _of_same_settings(document: Record, settings: Mapping[str, Any]) -> list[Record]:
    """The rows of an earlier document, none of one of another seed or other scrambles."""
    asked = settings["seed"], settings.get("scrambles")
    same = bool(document["rows"]) and (document["seed"], document["settings"]["scrambles"]) == asked
    return list(document["rows"]) if same else []


def _put_aside(path: Path, document: Record, settings: Mapping[str, Any]) -> None:
    """Rows that a file has and that are not to be in it any more stay in a copy of it, under a name of its own."""
    before = earlier(path)
    now = {row["digest"] for row in document["rows"]} if _of_same_settings(before, settings) else set()
    gone = [row for row in before["rows"] if row["digest"] not in now]
    if not gone:
        return
    names = (path.with_suffix(f".earlier{f'-{k}' if k else ''}.json") for k in itertools.count())
    kept = next(name for name in names if not name.exists())
    write_text(kept, path.read_text(encoding="utf-8"))
    rows = f"{len(gone)} row{'s' if len(gone) > 1 else ''}"
    why = "not of these declarations" if now else "of other settings"
    typer.echo(f"smisym: {rows} of {path} {'are' if len(gone) > 1 else 'is'} {why}: kept in {kept}", err=True)


def notes_of(folder: str | None) -> str:
    """Prose that a folder of declarations has, or nothing."""
    place = shipped.ATLAS if folder is None else Path(folder)
    path = place / NOTES
    return read_bytes(path, f"notes {path}", _MOST).decode() if path.is_file() else ""
