"""The atlas as files: what ``smisym atlas`` reads, makes and writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from smisym.base.errors import InputError, Words
from smisym.base.files import check_path, read_bytes
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
    known = [] if path is None else earlier(path.with_suffix(".json"), settings)
    if again:
        anew = {row.declared.digest for row in atlases.chosen(rows, only)}
        known = [record for record in known if record["digest"] not in anew]
    head = {
        "command": "atlas",
        **origin(),
        "seed": settings["seed"],
        "settings": {"scrambles": settings.get("scrambles")},
    }
    store = state if state is not None else unasked.keep({**head, "rows": [row.declared.digest for row in rows]})
    with progress_bar("atlas", None) as step, on_cluster(scheduler) as executor:
        found = atlases.atlas(
            rows, only=only, seconds=seconds, known=known, store=store, executor=executor, workers=workers,
            progress=step, **settings,
        )  # fmt: skip
    document = json.loads(to_json({**head, "declared": len(rows), "rows": list(found), "result": found.result}))
    if path is not None:
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


def earlier(path: Path, settings: Mapping[str, Any]) -> list[Record]:
    """Rows that a file has already, of the same settings; none where there is no file.

    Raises InputError for a file that is none of ours: it would be overwritten.
    """
    if not path.exists():
        return []
    where = f"earlier atlas {path}"
    try:
        document = json.loads(read_bytes(path, where, _MOST))
        ours = document["command"] == "atlas" and document["schema"] == SCHEMA
        rows = [row for row in document["rows"] if isinstance(row["digest"], str)]
    except (ValueError, KeyError, TypeError, LookupError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        ours, rows = False, []
    if not ours:
        fix = "choose another name, or delete it"
        raise InputError(where, Words("a file that smisym atlas did not write"), "one that it wrote, or none", fix)
    same = document["seed"] == settings["seed"] and document["settings"]["scrambles"] == settings.get("scrambles")
    return rows if same else []


def notes_of(folder: str | None) -> str:
    """Prose that a folder of declarations has, or nothing."""
    place = shipped.ATLAS if folder is None else Path(folder)
    path = place / NOTES
    return read_bytes(path, f"notes {path}", _MOST).decode() if path.is_file() else ""
