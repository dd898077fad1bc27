"""How fast small overlaps grow: the overlap map linearised in the blocks that are not learned yet."""

from __future__ import annotations

import numpy as np

from smisym.estimate import Estimate, units
from smisym.overlap_map import OverlapMap

# Share of the largest rate above which one block feeds another.
_COUPLED = 1e-3
# Growth at Q = 0 is none where all but this share of it may be the errors of the integrals, and below ``LEAST``.
_CLEAR, LEAST = 0.02, 1e-8
# Share of the growth that these errors may be where it is still known.
_KNOWN = 0.25


def growth_of(omap: OverlapMap, estimate: Estimate, active: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    """alpha times the rate (k,) at which small overlaps of idle blocks reproduce themselves: of each block's class.

    Blocks feed one another where the output shows their products (queries and keys): a class of such blocks grows
    together, at the largest eigenvalue of its rates.
    """
    return _by_class(*growth_rates(omap, estimate, active), alpha, len(active))


def _by_class(idle: np.ndarray, rates: np.ndarray, alpha: float, count: int) -> np.ndarray:
    out = np.zeros(count)
    for members in coupled_classes(rates):
        out[idle[members]] = alpha * float(np.linalg.eigvalsh(rates[np.ix_(members, members)])[-1])
    return out


def clear_growth(omap: OverlapMap, estimate: Estimate) -> tuple[np.ndarray, np.ndarray]:
    """(rates of growth at Q = 0 (k,), zero where nothing clear of the errors of the integrals grows; known (k,)).

    known: whether these errors are a minor part of the rate, or none is left of it.
    """
    active = np.zeros(len(estimate.unclear), dtype=bool)
    idle, rates = growth_rates(omap, estimate, active)
    growth = _by_class(idle, rates, 1.0, len(active))
    clear = _by_class(idle, rates - estimate.unclear, 1.0, len(active))
    growth[clear <= _CLEAR * growth + LEAST] = 0.0
    return growth, (growth == 0) | (clear > (1 - _KNOWN) * growth)


def growth_rates(omap: OverlapMap, estimate: Estimate, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(idle blocks (c,), rates (c, c)): how fast each idle block grows from each at alpha = 1, as unit matrices."""
    idle = np.flatnonzero(~active)
    symmetry = omap.model.symmetry
    basis = symmetry.basis[idle]
    unit = units(basis)
    rates = np.array([[float(np.sum(A * estimate.derivative(B))) for B in unit] for A in unit])
    rates = rates.reshape(len(idle), len(idle))
    return idle, 0.5 * (rates + rates.T)


def coupled_classes(rates: np.ndarray) -> list[list[int]]:
    """Blocks that feed one another, directly or through others, beyond what integration leaves."""
    floor = _COUPLED * max(float(np.abs(rates).max(initial=0.0)), 1e-300)
    left, classes = set(range(len(rates))), []
    while left:
        members, frontier = set[int](), {min(left)}
        while frontier:
            members |= frontier
            frontier = {j for i in frontier for j in left - members if abs(rates[i, j]) > floor}
        classes.append(sorted(members))
        left -= members
    return classes


def growth_at_zero(omap: OverlapMap, scramble: int, coordinate: int) -> float:
    """Rate, at alpha = 1, at which a small overlap along one coordinate reproduces itself at Q = 0."""
    k = len(omap.model.symmetry.basis)
    estimate = omap.at(scramble, omap.model.symmetry.matrix(np.zeros(k)))
    return float(growth_of(omap, estimate, np.zeros(k, dtype=bool))[coordinate])
