"""Kill -9 at random moments: what resumes is what was never interrupted, to the bit.

    python benchmarks/kill.py [kills] [seed]       prints a table, and every run that ends otherwise

Commands are those of ``tests/killing.py``.  Of every five trials two kill one process, up to three times in a row;
one is of one of two processes that share a state folder; after two a file of the state folder is damaged.  The command
is then given again.  Its exit code, what it prints and what it writes are held against those of an uninterrupted run: a
command line that says what to remove, and does what it should once that is done, is told apart.
"""

from __future__ import annotations

import collections
import random
import re
import resource
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from killing import COMMANDS, DAMAGES, Ended, begin, damage, ended, killed, wait

HOW = ("killed", "killed", "two at once", "damaged", "damaged")


def _spent() -> float:
    """Seconds of processor time of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def resumed(command: list[str], folder: Path, whole: Ended) -> str:
    """Give the command again: how its result compares."""
    found = ended(begin(command, folder), folder)
    if found.same(whole):
        return "same"
    named = re.search(r"stored result (\S+): .*delete it", found.err)
    if found.code == 2 and named is not None:
        shutil.rmtree(folder / named[1])
        return "said what to remove" if ended(begin(command, folder), folder).same(whole) else "differs"
    print(f"--- {command[0]}: code {found.code}, {found.err[-600:]}", flush=True)
    return "differs"


def once(rng: random.Random, name: str, how: str, folder: Path, whole: Ended, seconds: float) -> tuple[str, int]:
    """One trial: how it ended, and how often a process was killed while it was at work."""
    command, kills = COMMANDS[name], 0
    if how == "two at once":
        first, second = begin(command, folder), begin(command, folder / "second", "../state")
        wait(first, rng.uniform(0.0, seconds))
        first.kill()
        first.communicate()
        kills += first.returncode == -9
        if not ended(second, folder / "second").same(whole):
            return "differs", kills
    else:
        for _ in range(rng.randint(1, 3) if how == "killed" else 1):
            kills += killed(command, folder, rng.uniform(0.0, seconds))
    kind = rng.choice(DAMAGES)
    if how == "damaged" and not damage(rng, folder, kind):
        how = "killed"  # nothing was kept yet
    return resumed(command, folder, whole), kills


def main(wanted: int, seed: int) -> int:
    """The number of trials that ended otherwise."""
    rng = random.Random(seed)
    counts: dict[str, collections.Counter[str]] = {}
    whole: dict[str, tuple[Ended, float]] = {}
    kills = trial = 0
    while kills < wanted:
        name, how = list(COMMANDS)[trial % len(COMMANDS)], HOW[trial // len(COMMANDS) % len(HOW)]
        trial += 1
        with tempfile.TemporaryDirectory() as folder:
            if name not in whole:
                began = _spent()
                made = ended(begin(COMMANDS[name], Path(folder) / "whole"), Path(folder) / "whole")
                whole[name] = made, _spent() - began
                print(f"{name}: uninterrupted, {whole[name][1]:.1f} s of work, code {made.code}", flush=True)
            told, count = once(rng, name, how, Path(folder) / "trial", *whole[name])
        kills += count
        counts.setdefault(f"{name} | {how}", collections.Counter()).update({told: 1, "kills": count, "trials": 1})
        print(f"{trial}: {name}, {how}: {told} ({kills} kills)", file=sys.stderr, flush=True)
    print("| command | how | trials | kills | same to the bit | said what to remove | differs |\n|" + "---|" * 7)
    for row, found in sorted(counts.items()):
        columns = (found[key] for key in ("trials", "kills", "same", "said what to remove", "differs"))
        print(f"| {row} | {' | '.join(map(str, columns))} |")
    return sum(found["differs"] for found in counts.values())


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:]]
    sys.exit(bool(main(*(numbers + [50, 0][len(numbers) :]))))
