"""How an object shows itself without knowing who draws it.

Rooms import from rooms above them, and the room that draws, ``report``, lies below.  So objects say *what* there is to
show (:mod:`smisym.base.cards`), and ask here for whoever makes a page, a figure or a table of it.  Who that is says
``smisym/__init__.py``, which is in no room.  Nothing is imported before it is asked for: figures take half a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Maker = Callable[..., Any]

_FOUND_BY: dict[str, Callable[[], Maker]] = {}


def offer(form: str, find: Callable[[], Maker]) -> None:
    """``find`` gives what makes that form; it is called at the first use, and at each later one."""
    _FOUND_BY[form] = find


def made(form: str, *given: Any, **options: Any) -> Any:
    """What is given, in that form: "card", "trail", "plot", "dataframe", "dataset"."""
    return _FOUND_BY[form]()(*given, **options)
