"""Boundaries of a phase diagram: thresholds at neighbouring values that are the same one; where one begins or ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smisym.base.cards import Boundary
from smisym.base.directions import is_part, spanned
from smisym.base.solution import Result

Record = Mapping[str, Any]

# How far thresholds at neighbouring values may be apart to be the same one: a factor in alpha, and an overlap.
_FACTOR, _OVERLAP = 2.0, 0.5
_LABELS = {
    "trivial": "learned from the first sample on",
    "perfect_stable": "perfect recovery is stable",
    "perfect_amp": "perfect recovery is reached",
    "spinodal": "fold of a branch",
    "information": "optimum changes branch",
}


@dataclass
class Track:
    """One boundary: the places of its values among all, and its threshold at each."""

    kind: str
    names: tuple[str, ...]
    places: list[int] = field(default_factory=list)
    found: list[Record] = field(default_factory=list)

    @property
    def label(self) -> str:
        """For people."""
        if self.kind in _LABELS:
            return _LABELS[self.kind]
        parts = {spanned(one.get("subspace"), self.names) for one in self.found if self._is_part(one)}
        if len(parts) == 1 and all(map(self._is_part, self.found)):
            return f"{self.kind}, {parts.pop()}"
        return f"{self.kind}, " + ", ".join(self.names[:3]) + (", ..." if len(self.names) > 3 else "")

    def _is_part(self, one: Record) -> bool:
        """Whether what is learned is a part of what the named rows span."""
        return is_part(one.get("subspace"), self.names)


@dataclass(frozen=True)
class Change:
    """A boundary begins or ends between two values that were solved at, neighbours.

    label, kind: of the boundary.  what: "begins" or "ends", in increasing values.  second: the second parameter and its
    value, of a diagram over two.
    """

    label: str
    kind: str
    what: str
    between: tuple[float, float]
    second: tuple[str, float] | None = None

    def text(self, name: str = "") -> str:
        """For people; name: of the parameter that the boundary begins or ends in."""
        low, high = self.between
        where = f"{name} = {low:.6g}" if name else f"{low:.6g}"
        other = f", at {self.second[0]} = {self.second[1]:.6g}" if self.second is not None else ""
        return f"{self.label} {self.what} between {where} and {high:.6g}{other}"

    def __repr__(self) -> str:
        return f"<Change: {self.text()}>"


def tracks(records: Sequence[Record]) -> list[Track]:
    """The finite thresholds of all records, which are in increasing order of their values, as boundaries.

    At neighbouring values thresholds of one kind and of the same rows go together so that alpha and overlap change
    least, and not where alpha changes by more than a factor of two.
    """
    every: list[Track] = []
    for place, record in enumerate(records):
        alive = [track for track in every if track.places[-1] == place - 1]
        by_key: dict[tuple[str, tuple[str, ...]], list[Record]] = {}
        for one in record["thresholds"]:
            if one["alpha"] is not None and math.isfinite(one["alpha"]):
                by_key.setdefault((one["kind"], tuple(one["names"])), []).append(one)
        for key, found in by_key.items():
            before = [track for track in alive if (track.kind, track.names) == key]
            every += _joined(before, found, place, key)
    return every


def _joined(before: list[Track], found: list[Record], place: int, key: tuple[str, tuple[str, ...]]) -> list[Track]:
    """Puts each threshold on the track that it goes on with; returns the new tracks of the others."""
    from scipy.optimize import linear_sum_assignment  # slow to import

    cost = np.array([[_apart(track.found[-1], one) for one in found] for track in before]).reshape(
        len(before), len(found)
    )
    pairs = {int(b): int(a) for a, b in zip(*linear_sum_assignment(np.minimum(cost, 1e6)), strict=True)}
    new = []
    for number, one in enumerate(found):
        at = pairs.get(number)
        if at is not None and math.isfinite(cost[at, number]):
            track = before[at]
        else:
            track = Track(*key)
            new.append(track)
        track.places.append(place)
        track.found.append(one)
    return new


def _apart(one: Record, other: Record) -> float:
    """How far two thresholds are from being the same; infinite where they are not."""
    a, b = one["alpha"], other["alpha"]
    factor = abs(math.log(a / b)) if a > 0 and b > 0 else abs(a - b) * 10
    known = 0.0
    if one["Q"] is not None and other["Q"] is not None:
        known = float(np.abs(np.diag(np.array(one["Q"], float)) - np.diag(np.array(other["Q"], float))).max())
    # Those of recovery are one a value, however fast they move.
    several = one["kind"] in ("spinodal", "information")
    if several and (factor > math.log(_FACTOR) or known > _OVERLAP):
        return math.inf
    return factor + known


def changes(every: Sequence[Track], values: Sequence[float], ok: Sequence[bool]) -> tuple[Change, ...]:
    """Where boundaries begin and end inside the values; between two of which one failed nothing is said."""
    found = []
    for track in every:
        first, last = track.places[0], track.places[-1]
        if first > 0 and ok[first - 1] and ok[first]:
            found.append(Change(track.label, track.kind, "begins", (values[first - 1], values[first])))
        if last < len(values) - 1 and ok[last] and ok[last + 1]:
            found.append(Change(track.label, track.kind, "ends", (values[last], values[last + 1])))
    return tuple(sorted(found, key=lambda change: (change.between, change.label)))


def drawn(track: Track, values: Sequence[float], ok: Sequence[bool], after: str = "") -> Boundary:
    """A track as a figure takes it."""
    return Boundary(
        track.label + after,
        track.kind,
        np.array([values[place] for place in track.places], dtype=float),
        np.array([one["alpha"] for one in track.found], dtype=float),
        np.array([math.nan if one["error"] is None else one["error"] for one in track.found], dtype=float),
        np.array([ok[place] for place in track.places], dtype=bool),
    )


def is_ok(record: Record) -> bool:
    """Whether what was found at a value is a success."""
    return Result(record["result"]).ok
