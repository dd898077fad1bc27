"""What an interrupted command had finished is kept though nobody asked for it, so that the same command resumes.

In a folder of the user's cache, by all that results depend on, the text of this package included; removed when the
command ends, and after some days.  Where it cannot be written nothing is kept, and nothing is said.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smisym.base.errors import InputError
from smisym.base.files import cache_folder, source_digest
from smisym.declare.io import Store

# Days that a command may be taken up again, and bytes of all of them together, the latest first.
DAYS, _BYTES = 7, 2**30

_kept: list[Store] = []


def place() -> Path:
    """The folder that holds a folder for each interrupted command."""
    return cache_folder() / "interrupted"


def keep(key: Mapping[str, Any]) -> Store | None:
    """A store for one command; None where there is no place for it.  Others that are old, or too many, are removed."""
    try:
        _tidy()
        store = Store(place(), {**key, "source": source_digest()}, asked=False)
    except (InputError, OSError, RuntimeError):  # RuntimeError: a user without a home
        return None
    _kept.append(store)
    return store


def forget() -> None:
    """The command has ended: what it kept is removed."""
    while _kept:
        shutil.rmtree(_kept.pop().folder, ignore_errors=True)


def told(state: str | None) -> str:
    """What a command that is interrupted says of it; state: the folder that was asked for."""
    if state:
        return f"what was finished is in {state}; the same command resumes from there"
    for store in _kept:
        if any(store.folder.rglob("entry_*.json")):
            return f"the same command resumes, for {DAYS} days, from what is kept in {store.folder}"
    forget()
    return "nothing was finished yet"


def count() -> int:
    """How many commands there are that can be taken up again."""
    with contextlib.suppress(OSError, RuntimeError):
        return sum(1 for folder in place().iterdir() if any(folder.rglob("entry_*.json")))
    return 0


def _tidy() -> None:
    with contextlib.suppress(OSError):
        found = sorted(place().iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
        whole = 0
        for folder in found:
            with contextlib.suppress(OSError):
                whole += sum(path.stat().st_size for path in folder.rglob("*"))
                if whole > _BYTES or folder.stat().st_mtime < time.time() - DAYS * 86400:
                    shutil.rmtree(folder, ignore_errors=True)
