"""Names of subspaces of fields, for people: a formula of one direction, and of several how many they are."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

# A component that is smaller, of the largest one, is none; how far ratios may be from whole numbers; the largest of
# these, and what the smallest component may stand for.
_NONE, _NEAR, _LARGEST, _SMALLEST = 1e-4, 0.02, 9, 4
_NUMBERED = re.compile(r"(.*\S) (head|rank index) (\d+)")
_PLURAL = {"head": "heads", "rank index": "rank indices"}


def grouped(names: Sequence[str]) -> str:
    """Names in a row, what they share said once: "layer 1 heads 1, 2" of "layer 1 head 1" and "layer 1 head 2"."""
    parts, several = [], False
    for key, group in itertools.groupby(names, key=_shared):
        members = list(group)
        if key is None or len(members) == 1:
            parts += members
        else:
            several = True
            numbers = ", ".join(name.rpartition(" ")[2] for name in members)
            parts.append(f"{key[0]} {_PLURAL[key[1]]} {numbers}")
    return ("; " if several else ", ").join(parts)


def _shared(name: str) -> tuple[str, str] | None:
    found = _NUMBERED.fullmatch(name)
    return None if found is None else (found[1], found[2])


def is_part(subspace: Any, names: Sequence[str]) -> bool:
    """Whether a subspace (dim, P) is a proper part of what the rows that it has components of, the named ones, span."""
    vectors = _vectors(subspace)
    return 0 < len(vectors) < len(names) == int(_components(vectors).sum())


def spanned(subspace: Any, names: Sequence[str]) -> str:
    """What a subspace (dim, P) is, by the names of the rows that it has components of.

    All that they span: the names.  One direction with ratios of small whole numbers: "z1 + z2 - 2 z3".  Else
    "2 directions of z1, z2, z3".  Where the names do not belong to the rows, or there is no subspace: the names.
    """
    if not is_part(subspace, names):
        return grouped(names)
    vectors = _vectors(subspace)
    if len(vectors) == 1:
        whole = _whole(vectors[0][_components(vectors)])
        if whole is not None:
            return _sum(whole, names)
    return f"{len(vectors)} direction{'s' * (len(vectors) > 1)} of {grouped(names)}"


def _vectors(subspace: Any) -> np.ndarray:
    try:
        vectors = np.asarray(subspace, dtype=float)
    except (TypeError, ValueError):  # files leave out what is not known
        return np.empty((0, 0))
    return vectors if vectors.ndim == 2 and vectors.size and np.isfinite(vectors).all() else np.empty((0, 0))


def _components(vectors: np.ndarray) -> np.ndarray:
    """Which rows it has components of."""
    sizes = np.abs(vectors).max(axis=0, initial=0.0)
    return np.asarray(sizes > _NONE * sizes.max(initial=0.0))


def _whole(components: np.ndarray) -> list[int] | None:
    """Small whole numbers with the ratios of the components, the first one above 0; None where there are none."""
    least = components[np.abs(components).argmin()]
    for scale in range(1, _SMALLEST + 1):
        ratios = components * np.sign(components[0]) * scale / abs(least)
        found = np.round(ratios)
        if np.abs(found).max() <= _LARGEST and np.all(np.abs(ratios - found) <= _NEAR * np.abs(found)):
            return [int(number) for number in found]
    return None


def _sum(numbers: Sequence[int], names: Sequence[str]) -> str:
    text = ""
    for number, name in zip(numbers, names, strict=True):
        sign = " - " if number < 0 else " + "
        size, one = abs(number), f"({name})" if " " in name else name
        text += f"{sign if text else ''}{name if size == 1 else f'{size} {one}'}"
    return text
