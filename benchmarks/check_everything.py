"""``smisym check`` of every shipped example and every row of docs/architectures.md, the quickest first; resumable.

    python benchmarks/check_everything.py OUT.jsonl [--seconds 700] [--each 100] [--only NAME ...] [--seed 0]
        [--late] [--quick]

One JSON line a row: what fails with its counterexample, what is left out and why, the seconds of each property.  A
property is left out where it takes more seconds of the processor than ``--each``.  A row runs in a process of its own,
which ends after so many seconds of the clock: the properties until then count, and the row says which one it was in.
Rows that the file has already, of the same declaration, are not run again; of a row that was stopped, the properties
that it did not come to are, for as many seconds again; with ``--late`` those too that took more than ``--each``.
``--quick`` tries an eighth of the cases and samples; the row says of which properties.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import time
from pathlib import Path
from typing import Any

import smisym
from smisym.base.files import write_text
from smisym.declare import shipped
from smisym.declare.listed import read_rows
from smisym.verify import PROPERTIES, check
from smisym.verify.reports import LATE

TABLE = Path(__file__).parents[1] / "docs" / "architectures.json"


def rows() -> dict[str, Any]:
    """Name to declaration: shipped ones, then those of the table by how long their threshold took; each once."""
    measured = {row["digest"]: row["seconds"] for row in json.loads(TABLE.read_text())["rows"]}
    table = [(row.name, row.declared) for row in read_rows(shipped.ATLAS) if row.declared.digest in measured]
    ordered = sorted(table, key=lambda row: measured.get(row[1].digest, float("inf")))
    every = [*shipped.architectures().items(), *ordered]
    found: dict[str, Any] = {}
    for name, declared in every:
        if all(declared.digest != known.digest for known in found.values()):
            found[name] = declared
    return found


def put_through(declared: Any, names: list[str], settings: dict[str, Any], out: Any) -> None:
    """Properties in turn, each reported as it ends: one check, so that they share what several of them need."""
    model = smisym.compile(declared)
    out.put(None)
    check(model, only=names, **settings, progress=lambda row: out.put((row.name, row.record())))


def left_by(row: dict[str, Any]) -> list[str]:
    """The properties that a row has not come to, in order; all of them for an empty one."""
    return [one.name for one in PROPERTIES if one.name not in row.get("seconds", {})]


def without_late(row: dict[str, Any]) -> dict[str, Any]:
    """A row as if it had not come to the properties that were not done in their seconds."""
    late = [name for name, said in row["left_out"].items() if LATE in said]
    parts = {key: {n: v for n, v in row[key].items() if n not in late} for key in ("left_out", "seconds")}
    return row | parts


def checked(declared: Any, names: list[str], seconds: float, settings: dict[str, Any]) -> dict[str, Any]:
    """What came of one declaration within so many seconds."""
    context = multiprocessing.get_context("spawn")
    out: Any = context.Queue()
    process = context.Process(target=put_through, args=(declared, names, settings, out))
    process.start()
    found, inside = dict[str, Any](), "compile"
    spent, before = 0.0, time.monotonic()
    while len(found) < len(names) and spent < seconds:
        # By the second, so that a machine that is paused meanwhile uses up none of them.
        spent, before = spent + min(time.monotonic() - before, 2.0), time.monotonic()
        try:
            reported = out.get(timeout=1.0)
        except queue.Empty:
            if not process.is_alive() and out.empty():
                break
            continue
        if reported is not None:
            name, found[name] = reported
        inside = next((name for name in names if name not in found), "done")
    ended = process.exitcode
    if process.is_alive():
        process.terminate()
    process.join()
    kept = ("said", "worst", "p", "counterexample")
    return {
        "fails": {n: {key: r[key] for key in kept} for n, r in found.items() if r["verdict"] == "fails"},
        "left_out": {n: r["said"] for n, r in found.items() if r["verdict"] == "left out"},
        "cut_short": [n for n, r in found.items() if r["cut_short"]],
        "quick": [n for n, r in found.items() if settings["quick"] and r["verdict"] != "left out"],
        "holds": [n for n, r in found.items() if r["verdict"] == "holds"],
        "seconds": {n: r["seconds"] for n, r in found.items()},
        "stopped_in": None if len(found) == len(names) else inside,
        "exit": ended,
    }  # fmt: skip


def together(before: dict[str, Any], after: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    """A row that was stopped, and what it was stopped before; of what was tried again and not come to, what it said
    first."""
    both = {
        key: {**before[key], **after[key]} if isinstance(after[key], dict) else before.get(key, []) + after[key]
        for key in ("fails", "left_out", "cut_short", "quick", "holds", "seconds")
    }
    for key in ("left_out", "seconds"):
        both[key] = {name: said for name, said in first[key].items() if name not in both["seconds"]} | both[key]
    return before | after | both


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=700.0)
    parser.add_argument("--each", type=float, default=100.0)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    settings = {"seconds": asked.each, "seed": asked.seed, "quick": asked.quick}
    lines = asked.out.read_text().splitlines() if asked.out.exists() else []
    known = {row["digest"]: row for row in map(json.loads, lines)}
    for name, declared in rows().items():
        before = known.get(declared.digest, {})
        if asked.only and name not in asked.only:
            continue
        kept = without_late(before) if before and asked.late else before
        names = left_by(kept)
        if not names:
            continue
        row = {"name": name, "digest": declared.digest, "seed": asked.seed, "each": asked.each}
        row |= checked(declared, names, asked.seconds, settings)
        known[declared.digest] = together(kept, row, before) if before else row
        written = "".join(json.dumps(each) + "\n" for each in known.values())
        write_text(asked.out, written)
        said = f"fails: {', '.join(row['fails'])}" if row["fails"] else "nothing fails"
        print(f"{name:60} {said}; {sum(row['seconds'].values()):.0f} s; {row['stopped_in'] or 'done'}", flush=True)


if __name__ == "__main__":
    main()
