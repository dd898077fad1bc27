"""Cells and examples on one core, so that what they are said to take they take anywhere; derivations on all."""

from __future__ import annotations

import os

ALL = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def use_one() -> None:
    """This process and those that it starts run on one core, where the system lets them be bound to one."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(ALL)})


def use_all() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, ALL)
