"""A cache that threads share: bounded, the least recently used entry goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Remembered(Generic[T]):
    """Values by key, at most ``most`` of them (None: no limit)."""

    def __init__(self, most: int | None = None) -> None:
        self._most, self._values, self._lock = most, OrderedDict[Hashable, T](), threading.Lock()

    def __reduce__(self) -> tuple[type[Remembered[T]], tuple[int | None]]:
        """Where an object that holds one goes to another process, it goes empty."""
        return Remembered, (self._most,)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is kept under this key, or what ``make`` makes, which is kept then.

        Nothing is locked while it is made: two threads may make one value twice, and the first one is kept.
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        return self.put(key, make())

    def put(self, key: Hashable, made: T) -> T:
        """What is kept under this key from now on: what was kept before, or this."""
        with self._lock:
            kept = self._values.setdefault(key, made)
            while self._most is not None and len(self._values) > self._most:
                self._values.popitem(last=False)
        return kept

    def items(self) -> dict[Any, T]:
        """All that is kept, by key, as it is now."""
        with self._lock:
            return dict(self._values)
