"""Finite groups of signed exchanges of rows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

# With more inputs than this, candidates that are products of others are not tried.
FEW = 8


@dataclass(frozen=True)
class Found:
    """A map of the rows, in words, and whether the output stays as it is (or is only relabelled)."""

    matrix: np.ndarray
    name: str
    invariant: bool


# Finite groups are listed up to this many elements, and this many numbers in all of them.
LISTED, _MOST_NUMBERS = 4096, 4_000_000


def sign_group(invariances: list[np.ndarray], fields: int) -> np.ndarray:
    """All products of the flips among the invariances, the identity first, up to a largest number."""
    group = np.ones((1, fields))
    for flip in _independent([np.diag(m) for m in invariances if is_flip(m)]):
        if 2 * len(group) <= LISTED:
            group = np.concatenate([group, flip * group])
    return group


def is_flip(matrix: np.ndarray) -> bool:
    return not np.abs(matrix - np.diag(np.diag(matrix))).any()


def _independent(flips: list[np.ndarray]) -> list[np.ndarray]:
    """Flips none of which is a product of others, by elimination over two elements."""
    kept, reduced = [], list[int]()
    for flip in flips:
        bits = int("".join("1" if s < 0 else "0" for s in flip), 2)
        for other in reduced:
            bits = min(bits, bits ^ other)
        if bits:
            reduced.append(bits)
            reduced.sort(reverse=True)
            kept.append(flip)
    return kept


def group(invariances: list[np.ndarray], fields: int) -> np.ndarray:
    """All products of signed permutations, the identity first, up to a largest number."""
    exchanges = [m for m in invariances if not is_flip(m)]
    most = max(1, min(LISTED, _MOST_NUMBERS // fields**2))
    elements = {np.eye(fields).tobytes(): np.eye(fields)}
    frontier = [np.eye(fields)]
    while frontier and len(elements) < most:
        new = []
        for element, generator in itertools.product(frontier, exchanges):
            product = generator @ element + 0.0
            if product.tobytes() not in elements and len(elements) < most:
                elements[product.tobytes()] = product
                new.append(product)
        frontier = new
    flips = sign_group(invariances, fields)
    flips = flips[: max(1, most // len(elements))]
    # Flips are carried into flips by exchanges: every element is a flip of a product of exchanges.
    found = (flips[:, None, :, None] * np.array(list(elements.values()))[None]).reshape(-1, fields, fields) + 0.0
    return np.unique(found, axis=0)[::-1] if len(elements) > 1 and len(flips) > 1 else found


def closure(elements: np.ndarray, reflected: list[np.ndarray]) -> np.ndarray:
    """The group that a finite one and reflections generate, the identity first, up to a largest number.

    Equal to eight digits is equal: products of reflections are exact to rounding only.
    """
    most = max(1, min(LISTED, _MOST_NUMBERS // elements.shape[-1] ** 2))
    found = {_key(m): m for m in elements}
    frontier = list(elements)
    while frontier and len(found) < most:
        products = [a @ b for a in frontier for b in (*reflected, *elements[:FEW])]
        new = {_key(m): m for m in products if _key(m) not in found}
        frontier = list(new.values())[: most - len(found)]
        found |= {_key(m): m for m in frontier}
    return np.array(list(found.values()))


def _key(matrix: np.ndarray) -> bytes:
    return bytes((np.round(matrix, 8) + 0.0).tobytes())


def generating(found: list[Found], fields: int) -> list[Found]:
    """Maps that generate the others: independent flips, and the exchanges."""
    flips = [f for f in found if is_flip(f.matrix)]
    kept = _independent([np.diag(f.matrix) for f in flips])
    return [f for f in found if not is_flip(f.matrix) or any((np.diag(f.matrix) == k).all() for k in kept)]
