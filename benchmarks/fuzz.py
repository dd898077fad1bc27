"""Hostile architecture files and command lines: an answer or a clear error, soon, in little memory, nothing executed.

    python benchmarks/fuzz.py [cases] [seed]       prints a table, and every case that fails
    python benchmarks/fuzz.py commands [every]     the same of hostile command lines, or of every so many of them

Files are those of ``tests/hostile.py``: shipped ones and those of the documents, changed at random, others drawn by a
grammar, and nineteen of up to two megabytes.  Command lines are those of ``tests/hostile_commands.py``, each of which
must end with exit code 2.  Limits: 5 seconds of processor time, 1 GiB of memory (set on the process).
"""

from __future__ import annotations

import collections
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import hostile
import hostile_commands

ROOT = Path(__file__).parents[1]


def main(cases: int, seed: int) -> int:
    """Read them all; the number of failures."""
    resource.setrlimit(resource.RLIMIT_DATA, (hostile.BYTES, hostile.BYTES))
    hostile.watch()
    counts: collections.Counter[str] = collections.Counter()
    messages: set[str] = set()
    slowest, failed, began = (0.0, ""), [], time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        path = Path(folder) / "case.toml"
        long = list(hostile.long_files())
        for number in range(-len(long), cases):
            rng = random.Random(f"{seed} {number}")
            name, content = long[number] if number < 0 else (f"case {number}", hostile.case(rng))
            verdict = hostile.judged(content, path)
            counts[verdict.kind] += 1
            messages.add(verdict.detail.partition(" in architecture")[0][:60])
            slowest = max(slowest, (verdict.seconds, name))
            if not verdict.good:
                failed.append(name)
                shown = content if len(content) < 1500 else content[:700] + b" ... " + content[-700:]
                print(
                    f"--- {name}: {verdict.kind} after {verdict.seconds:.2f} s: {verdict.detail[:300]}\n{shown!r}",
                    flush=True,
                )
                Path(hostile.CANARY).unlink(missing_ok=True)
        os.chdir("/")
    print(f"| files | {' | '.join(counts)} | slowest | memory | whole |")
    print(
        f"| {sum(counts.values())} | {' | '.join(map(str, counts.values()))} | {slowest[0]:.2f} s ({slowest[1]}) | "
        f"{hostile.memory() / 2**20:.0f} MiB | {time.process_time() - began:.0f} s |"
    )
    return len(failed)


def _limits() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (hostile.BYTES, hostile.BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))


def commands(every: int = 1) -> int:
    """Run every so many of the hostile command lines, each in a process of its own; the number of failures."""
    lines = list(hostile_commands.refused())[::every]
    failed, slowest, largest = 0, (0.0, ""), 0
    for arguments in lines:
        with tempfile.TemporaryDirectory() as folder:
            hostile_commands.files(Path(folder))
            env = os.environ | {"PYTHONPATH": str(ROOT), "SMISYM_CACHE": f"{folder}/cache", "OMP_NUM_THREADS": "1"}
            with open(f"{folder}/out", "wb") as out, open(f"{folder}/err", "wb") as err:
                process = subprocess.Popen(
                    hostile_commands.command(arguments), cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out,
                    stderr=err, preexec_fn=_limits,
                )  # fmt: skip
                _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            texts = [Path(folder, name).read_text(errors="replace") for name in ("out", "err")]
        seconds, shown = (
            used.ru_utime + used.ru_stime,
            " ".join(arguments)[:100].encode("ascii", "backslashreplace").decode(),
        )
        slowest, largest = max(slowest, (seconds, shown)), max(largest, used.ru_maxrss * 1024)
        wrong = hostile_commands.complaint(process.returncode, *texts)
        wrong = wrong or ("too long" if seconds > hostile.SECONDS else "")
        if wrong:
            failed += 1
            print(f"--- {shown}: {wrong} after {seconds:.2f} s: {texts[0][-300:]} | {texts[1][-400:]}", flush=True)
    print("| command lines | refused clearly | slowest | memory |")
    print(f"| {len(lines)} | {len(lines) - failed} | {slowest[0]:.2f} s ({slowest[1]}) | {largest / 2**20:.0f} MiB |")
    return failed


if __name__ == "__main__":
    if sys.argv[1:2] == ["commands"]:
        sys.exit(bool(commands(*map(int, sys.argv[2:3]))))
    numbers = [int(text) for text in sys.argv[1:]]
    sys.exit(bool(main(*(numbers + [5000, 0][len(numbers) :]))))
