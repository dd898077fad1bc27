"""``smisym check`` of every shipped example and every row of docs/architectures.md, the quickest first; resumable.

    python benchmarks/check_everything.py OUT.jsonl [--seconds 700] [--each 100] [--only NAME ...] [--seed 0]

One JSON line a row: what fails with its counterexample, what is left out and why, the seconds of each property.  A
property is left out where it takes more seconds of the processor than ``--each``.  A row runs in a process of its own,
which ends after so many seconds of the clock: the properties until then count, and the row says which one it was in.
Rows that the file has already, of the same declaration, are not run again.
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
from smisym.declare import shipped
from smisym.declare.listed import read_rows
from smisym.verify import PROPERTIES, check

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


def put_through(declared: Any, each: float, seed: int, out: Any) -> None:
    """Every property in turn, each reported as it ends."""
    model = smisym.compile(declared)
    for one in PROPERTIES:
        out.put((one.name, None))
        (row,) = check(model, only=one.name, seed=seed, seconds=each).rows
        out.put((one.name, row.record()))


def checked(declared: Any, seconds: float, each: float, seed: int) -> dict[str, Any]:
    """What came of one declaration within so many seconds."""
    context = multiprocessing.get_context("spawn")
    out: Any = context.Queue()
    process = context.Process(target=put_through, args=(declared, each, seed, out))
    process.start()
    found, inside = dict[str, Any](), "compile"
    spent, before = 0.0, time.monotonic()
    while len(found) < len(PROPERTIES) and spent < seconds:
        # By the second, so that a machine that is paused meanwhile uses up none of them.
        spent, before = spent + min(time.monotonic() - before, 2.0), time.monotonic()
        try:
            name, record = out.get(timeout=1.0)
        except queue.Empty:
            if not process.is_alive() and out.empty():
                break
            continue
        inside = name
        if record is not None:
            found[name] = record
    ended = process.exitcode
    if process.is_alive():
        process.terminate()
    process.join()
    kept = ("said", "worst", "p", "counterexample")
    return {
        "fails": {n: {key: r[key] for key in kept} for n, r in found.items() if r["verdict"] == "fails"},
        "left_out": {n: r["said"] for n, r in found.items() if r["verdict"] == "left out"},
        "cut_short": [n for n, r in found.items() if r["cut_short"]],
        "holds": [n for n, r in found.items() if r["verdict"] == "holds"],
        "seconds": {n: r["seconds"] for n, r in found.items()},
        "stopped_in": None if len(found) == len(PROPERTIES) else inside,
        "exit": ended,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=700.0)
    parser.add_argument("--each", type=float, default=100.0)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    lines = asked.out.read_text().splitlines() if asked.out.exists() else []
    known = {json.loads(line)["digest"] for line in lines}
    for name, declared in rows().items():
        if declared.digest in known or (asked.only and name not in asked.only):
            continue
        row = {"name": name, "digest": declared.digest, "seed": asked.seed, "each": asked.each}
        row |= checked(declared, asked.seconds, asked.each, asked.seed)
        with asked.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        said = f"fails: {', '.join(row['fails'])}" if row["fails"] else "nothing fails"
        print(f"{name:60} {said}; {sum(row['seconds'].values()):.0f} s; {row['stopped_in'] or 'done'}", flush=True)


if __name__ == "__main__":
    main()
