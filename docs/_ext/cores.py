"""Cells and examples on one core, so that what they are said to take they take anywhere; derivations on all.

Examples are run, and pages are read, by several processes at once, each of which takes a core that none of the others
has.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

# Of the build; processes that it begins are bound to one, and told of all by this variable.
_NAMED = "SMISYM_DOCS_CORES"


def _all() -> set[int]:
    if _NAMED in os.environ:
        return {int(core) for core in os.environ[_NAMED].split(",")}
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


ALL = _all()
os.environ[_NAMED] = ",".join(map(str, sorted(ALL)))
LOCKS = Path(__file__).parents[1] / "_build" / "cores"
# Open for as long as this process lives: its lock says that the core is taken.
_taken: dict[int, IO[str]] = {}


def use_one() -> None:
    """This process and those that it starts run on one core, where the system lets them be bound to one."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(ALL)})


def use_own() -> None:
    """The same, on a core that no other process of this build has taken; at the first call in each process."""
    if os.getpid() in _taken or not hasattr(os, "sched_setaffinity"):
        return
    import fcntl

    LOCKS.mkdir(parents=True, exist_ok=True)
    for core in sorted(ALL):
        lock = (LOCKS / str(core)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        _taken[os.getpid()] = lock
        os.sched_setaffinity(0, {core})
        return


def for_an_example(gallery: dict[str, object], name: str, when: str) -> None:
    """What sphinx-gallery calls before and after each example, in the process that runs it."""
    if when == "before":
        use_own()
    elif (lock := _taken.pop(os.getpid(), None)) is not None:
        lock.close()


def use_all() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, ALL)
