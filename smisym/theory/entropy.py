"""The free entropy whose stationary points are the fixed points of state evolution.

    Phi(Q) = S(Q) + alpha E log Zout(y; omega, V),  V what is left to learn at Q

with the prior's term S (:meth:`smisym.prior.Prior.entropy`; tr Q / 2 + log det V / 2 for Gaussian weights), relative to
the chart's base measure on y, which shifts it by alpha times a constant: only differences at fixed alpha mean anything.
Its derivative is dPhi/dQ = (alpha E(Q) - V^{-1} + I) / 2 for such weights (Stein).  The largest Phi wins.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from smisym.base.edge import check_alpha, check_overlap
from smisym.base.solution import Result, Solution, mean_and_error
from smisym.model.compiled import Model
from smisym.theory.effort import check_invariant
from smisym.theory.maps import OverlapMap, as_map

# An eigenvalue of Q from here on is one: what is missing is rounding.
_PERFECT = 1 - 1e-13


def free_entropy(model: Model | OverlapMap, Q: np.ndarray, alpha: float, **settings: Any) -> Solution:
    """Phi(Q) at ``alpha``; ``Solution.value`` is a float, +inf at perfect recovery when alpha K > P.

    Q (P, P), 0 <= Q <= I, as the symmetries of the model leave it: InputError for another.  At Q = I the potential
    behaves like (P - alpha K)/2 log det V / P: +inf above P/K, -inf below, and the value is reported as such; likewise
    where only some directions are perfect.  ``settings`` are those of the overlap map when ``model`` is a Model.
    """
    omap = as_map(model, **settings)
    Q = check_overlap(Q, omap.model.fields)
    check_invariant(omap.model, Q)
    check_alpha(alpha)
    if np.linalg.eigvalsh(Q)[-1] >= _PERFECT:
        return Solution(perfect_value(omap.model, alpha, Q), Result.SUCCESS, settings={"alpha": alpha})
    prior = omap.model.prior.entropy(Q)
    estimates = omap.evaluate(Q)
    value, error = mean_and_error(np.array([prior + alpha * e.log_partition for e in estimates]))
    accurate = all(e.accurate for e in estimates)
    return Solution(
        float(value),
        Result.SUCCESS if accurate else Result.INTEGRATION,
        statistical_error=float(error),
        degrees_of_freedom=omap.scrambles - 1,
        settings={**omap.settings(), "alpha": alpha},
    )


def perfect_value(model: Model, alpha: float, Q: np.ndarray) -> float:
    """The limit of Phi as some directions S become perfect: its sign is that of alpha K_S - dim S, K_S the mean rank of
    df/dZ on S; under noise the prior wins."""
    if model.noise:
        return -math.inf
    values, vectors = np.linalg.eigh(Q)
    S = vectors.T[values >= _PERFECT]
    rank = model.jacobian_ranks(np.random.default_rng(0))(S)[0]
    return math.inf if alpha * rank * model.prior.multiplicity > model.prior.dimension(S) else -math.inf
