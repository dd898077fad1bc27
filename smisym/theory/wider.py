"""Fields drawn wider than they are, with weights: the less is known of a row, the wider.

What tells most of fields are rare outputs of large ones, and these make most of the noise of the overlap map and of the
rates at which more is learned, averages of (E[z z^T - I | y])^2.  Drawn wider they are met more often.  What the
weights themselves add to the noise is taken back by dividing by their mean.
"""

from __future__ import annotations

import numpy as np

from smisym.prior import remaining

# By how much the variance of a row of which nothing is known is larger; fields, weighted with what is left to learn of
# them, up to which that holds, and from which on nothing is widened.  Variance of what two layers on two tokens give
# (4096 points, 24 scrambles), beside that without: the rate of the first layer at Q = (0, 0.9737), and the threshold
# where it is one, 0.5; E_11 at (0.3, 0.9), 0.45, E_22, 1.2.  Of three layers the rate of the first at (0, 0.9, 0.995)
# 0.5; but at (0, 0, 0.95), where four fields are left, rates gain little (0.6 and 0.9) and E_33 loses (1.5 to 2).
WIDER, FEW, MANY = 0.3, 2.0, 4.0


def variances(Q: np.ndarray, tokens: int) -> np.ndarray:
    """(P,) of what is drawn at Q (P, P), beside those of the fields.

    Nothing changes at Q = 0, where rates have controls of their own (:mod:`smisym.theory.controls`).
    """
    left = np.maximum(np.diag(remaining(Q)), 0.0)
    fields = tokens * float(left.sum())
    wider = WIDER * min(max((MANY - fields) / (MANY - FEW), 0.0), 1.0)
    return np.asarray(1 + wider * np.sqrt(left)) if Q.any() else np.ones(len(Q))


def widened(normals: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(normals, weights (n,) of mean one) from standard normals (n, P, T), of these variances (P,)."""
    if (variance == 1).all():
        return normals, np.ones(len(normals))
    drawn = normals * np.sqrt(variance)[:, None]
    # Of the prior over that of what is drawn, up to a factor.
    log_weight = -0.5 * np.einsum("p,npt->n", 1 - 1 / variance, drawn**2)
    weights = np.exp(log_weight - log_weight.max(initial=-np.inf))
    return drawn, weights / weights.mean()
