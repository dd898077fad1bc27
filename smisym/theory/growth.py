"""How fast small overlaps grow: the overlap map linearised where nothing is learned yet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smisym.base.matrices import units
from smisym.theory.estimate import Estimate
from smisym.theory.maps import OverlapMap

# Share of the largest rate above which one block feeds another.
_COUPLED = 1e-3
# Growth at Q = 0 is none where all but this share of it may be the errors of the integrals, and below ``LEAST``.
_CLEAR, LEAST = 0.02, 1e-8
# Share of the growth that these errors may be where it is still known.
_KNOWN = 0.25


def clear_growth(omap: OverlapMap, estimate: Estimate) -> tuple[np.ndarray, np.ndarray]:
    """(rates of growth at Q = 0 by part, zero where nothing clear of the errors of the integrals grows; known).

    Parts feed one another where the output shows their products (queries and keys): a class of such parts grows
    together, at the largest eigenvalue of its rates.
    known: whether these errors are a minor part of the rate, or none is left of it.
    """
    parts = omap.model.symmetry.parts
    rates = growth_rates(omap, estimate)
    growth = _by_class(rates, parts)
    clear = _by_class(rates - estimate.unclear, parts)
    growth[clear <= _CLEAR * growth + LEAST] = 0.0
    return growth, (growth == 0) | (clear > (1 - _KNOWN) * growth)


def growth_rates(omap: OverlapMap, estimate: Estimate) -> np.ndarray:
    """(k, k): how fast each invariant overlap grows from each at alpha = 1, as unit matrices."""
    unit = units(omap.model.symmetry.basis)
    rates = np.array([[float(np.sum(A * estimate.derivative(B))) for B in unit] for A in unit])
    return 0.5 * (rates + rates.T)


def coupled_classes(rates: np.ndarray, parts: np.ndarray) -> list[list[int]]:
    """Coordinates of parts that feed one another, directly or through others, beyond what integration leaves.

    rates (c, c); parts (c,): the part of each coordinate, those of one part stay together.
    """
    floor = _COUPLED * max(float(np.abs(rates).max(initial=0.0)), 1e-300)
    joined = (np.abs(rates) > floor) | (parts[:, None] == parts)
    left, classes = set(range(len(rates))), []
    while left:
        members, frontier = set[int](), {min(left)}
        while frontier:
            members |= frontier
            frontier = {j for i in frontier for j in left - members if joined[i, j]}
        classes.append(sorted(members))
        left -= members
    return classes


def class_rate(rates: np.ndarray, members: Sequence[int] | np.ndarray) -> float:
    """The largest eigenvalue of the rates (c, c) of one class."""
    which = np.asarray(members, dtype=int)
    return float(np.linalg.eigvalsh(rates[np.ix_(which, which)])[-1])


def _by_class(rates: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Of each part the growth of its class."""
    out = np.zeros(int(parts.max()) + 1)
    for members in coupled_classes(rates, parts):
        out[parts[members]] = class_rate(rates, members)
    return out
