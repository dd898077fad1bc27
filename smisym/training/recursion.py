"""State evolution, iteration by iteration, from any start: Q_hat = alpha E(Q) + lam I, then Q = Q_hat (I + Q_hat)^{-1}.

In dimension D an estimate that knows nothing has squared cosine 1 / D with the truth all the same, by chance, and a new
one at every step: what GAMP's step adds to its estimate is noise along the truth as along any direction.  Side
information of strength lam = 1 / D says just that.  Without it a layer that cannot be learned yet would be forgotten,
from 1 / D to 0 as a power of the number of steps, and would wait for ever where GAMP begins anew from 1 / D.

Each scramble of the overlap map is iterated on its own, as everywhere (:mod:`smisym.theory.fixed_point`): their spread
is the statistical error.  Of what is learned perfectly nothing is lost again, since E is homogeneous in what is left; a
direction in which so little is left is taken as known, so that its rounding does not spill into others.
"""

from __future__ import annotations

import numpy as np

from smisym.prior import remaining
from smisym.theory.linearised import Equation, placed
from smisym.theory.maps import OverlapMap

# What is left of a direction from which on it counts as known: no figure shows it, and posteriors get dearer with it.
_PERFECT = 1e-9


def iterated(omap: OverlapMap, alpha: float, start: np.ndarray, steps: int, side_information: float) -> np.ndarray:
    """Overlaps (scrambles, steps + 1, P, P), the start (P, P) first; NaN from where a map is not finite."""
    start = omap.model.symmetry.project(start)
    found: list[np.ndarray] = omap.each(
        lambda r: _of_scramble(Equation(omap, r, side_information), alpha, start, steps)
    )
    return np.array(found)


def _of_scramble(equation: Equation, alpha: float, start: np.ndarray, steps: int) -> np.ndarray:
    overlaps = [start]
    while len(overlaps) <= steps:
        Q = overlaps[-1]
        known = _known(Q)
        if not np.isfinite(Q).all() or np.trace(known) > len(Q) - 0.5:
            overlaps.append(Q)  # nothing moves any more
            continue
        here = equation.at(placed(Q, known), alpha, known)
        finite = np.isfinite(here.residual).all()
        overlaps.append(placed(here.moved(here.residual), known) if finite else np.full_like(Q, np.nan))
    return np.array(overlaps)


def _known(Q: np.ndarray) -> np.ndarray:
    """The projector (P, P) on directions that are learned perfectly."""
    values, vectors = np.linalg.eigh(remaining(Q)) if np.isfinite(Q).all() else (np.ones(len(Q)), np.eye(len(Q)))
    perfect = vectors[:, values < _PERFECT]
    return np.asarray(perfect @ perfect.T)
