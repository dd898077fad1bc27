"""How the atlas scales: measured on one and two processes, and replayed on many workers.

    python benchmarks/scaling.py measure [--rows 12] [--seconds 4]
    python benchmarks/scaling.py replay docs/architectures.json [--workers 2 8 64]

"measure" makes the first so many rows that are whole in docs/architectures.json and took at most so many seconds, with
one process and with two, from nothing each time, and says how long it took and whether all numbers are the same. Where
the machine does other things as well, the share of the processor's time that went into rows tells what sending them
costs. "replay" takes the durations of all rows, for those that were not made yet all that they may take (--budget), and
hands them to so many workers, in the order in which they are sent, each to the first that is free, as an executor does:
efficiency is the work over workers times the time until the last one ends. A worker that begins compiles and imports
first (--begin seconds).
"""

from __future__ import annotations

import argparse
import heapq
import json
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import smisym
from smisym.base import processes
from smisym.declare import shipped
from smisym.declare.listed import read_rows
from smisym.run.atlases import is_whole, size_of

DATA = Path(__file__).parents[1] / "docs" / "architectures.json"


def rows_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return found


def makespan(durations: Sequence[float], workers: int, begin: float = 0.0) -> float:
    """Seconds until the last task ends, each going to the worker that is free first."""
    free = [begin] * workers
    for seconds in durations:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def replay(path: Path, counts: Sequence[int], begin: float, budget: float) -> None:
    known = {row["digest"]: row["seconds"] for row in rows_of(path) if row["budget"]}
    rows = sorted(read_rows(shipped.ATLAS), key=lambda row: size_of(row.declared), reverse=True)
    as_sent = [known.get(row.declared.digest, budget) for row in rows]
    orders = {
        "as they are sent, largest networks first": as_sent,
        "longest first, if it were known": sorted(as_sent, reverse=True),
    }
    whole, left = sum(as_sent), len(rows) - len(known)
    print(f"{len(rows)} rows, {whole:.0f} s of the processor; {left} of them are not measured, and count {budget:g} s")
    print("| workers | order | seconds | efficiency |\n|---|---|---|---|")
    for count in counts:
        for name, durations in orders.items():
            seconds = makespan(durations, count, begin)
            print(f"| {count} | {name} | {seconds:.0f} | {100 * whole / (count * seconds):.0f} % |")


def measure(count: int, seconds: float) -> None:
    known = {row["name"] for row in rows_of(DATA) if row["budget"] and is_whole(row) and row["seconds"] <= seconds}
    chosen = [row for row in read_rows(shipped.ATLAS) if row.name in known][:count]
    smisym.atlas(chosen[:1], workers=1)  # what is compiled at first use is there for both
    found = {}
    for workers in (1, 2):
        began, before = time.perf_counter(), processor()
        found[workers] = smisym.atlas(chosen, workers=workers)
        spent, used = time.perf_counter() - began, processor() - before
        work = sum(row["seconds"] for row in found[workers])
        shares = 100 * work / (spent * workers), 100 * work / used
        print(f"{workers} process(es): {len(chosen)} rows, {spent:.1f} s, efficiency {shares[0]:.0f} %")
        print(f"    {work:.1f} of {used:.1f} s of the processor in rows, {shares[1]:.0f} %", flush=True)
    print(f"the same numbers: {found[1] == found[2]}; {processes.cores()} cores")


def processor() -> float:
    """Seconds of the processor, those of processes that ended included: what else the machine does counts in none."""
    ours, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in (ours, theirs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "replay"))
    parser.add_argument("file", type=Path, nargs="?", default=DATA)
    parser.add_argument("--rows", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 8, 64])
    parser.add_argument("--begin", type=float, default=3.0)
    parser.add_argument("--budget", type=float, default=60.0)
    asked = parser.parse_args()
    if asked.what == "measure":
        measure(asked.rows, asked.seconds)
    else:
        replay(asked.file, asked.workers, asked.begin, asked.budget)


if __name__ == "__main__":
    main()
