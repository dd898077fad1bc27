"""What fields make of rates of growth on average over all that an output leaves, where these are finitely many.

X = z z^T - I of the fields that an output was made of fluctuates at that output: a truth far out, among others that are
likelier, tells of itself and not of G.  Its conditional mean tells of the output alone, and on average over outputs it
is as well known.  Two layers with sequence output on three tokens, 640 outputs: fluctuations of 0.20 of the rate beside
it, where X and what X and G make together leave 0.36, and X alone 1.35.
"""

from __future__ import annotations

import numpy as np

from smisym.link.linking import Observation
from smisym.model.compiled import Model
from smisym.posterior.points import OnPoints
from smisym.theory.controls import known_mean, products, rates_of


def squares(model: Model, observed: Observation, unit: np.ndarray) -> np.ndarray | None:
    """(n, k, k): E[R_jk of X | y] of n outputs where nothing else is known; None where fields are not finitely many.

    unit (k, P, P): unit matrices.  An output without any solution has that of a Gaussian, as if it told nothing.
    """
    posterior = model.channel.posterior
    if not isinstance(posterior, OnPoints):
        return None
    V, law = model.prior.nothing_known(), model.prior.law(np.zeros((model.fields,) * 2))
    solutions = posterior.read(observed)
    n, m = solutions.log_weight.shape
    Z = solutions.values.reshape(n, m, model.fields, model.tokens)
    z = law.units @ np.linalg.solve(V, Z)
    log = solutions.log_weight - 0.5 * np.einsum("nmpt,nmpt->nm", Z, np.linalg.solve(V, Z))
    top = log.max(axis=1, keepdims=True)
    share = np.exp(log - np.where(np.isfinite(top), top, 0.0))
    total = share.sum(axis=1, keepdims=True)
    found = total[:, 0] > 0
    share = share / np.where(total > 0, total, 1.0)
    out = np.zeros((n, len(unit), len(unit)))
    out[~found] = known_mean(unit, model.tokens)
    for slot in range(m):  # one of each output at a time
        out += share[:, slot, None, None] * rates_of(unit, products(z[:, slot]))
    return out
