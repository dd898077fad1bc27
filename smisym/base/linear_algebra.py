"""Linear algebra in one thread: small matrices gain nothing from more, and results are the same bits everywhere."""

from __future__ import annotations

import sys
from typing import Any

from threadpoolctl import ThreadpoolController

_FOUND: list[tuple[int, ThreadpoolController]] = []


def one_thread() -> Any:
    """A context in which the libraries of linear algebra that are loaded use one thread each.

    They are looked for again only where modules were imported since: to look takes 2 ms.
    """
    modules = len(sys.modules)
    if not _FOUND or _FOUND[-1][0] != modules:
        _FOUND[:] = [(modules, ThreadpoolController())]
    return _FOUND[-1][1].limit(limits=1)
