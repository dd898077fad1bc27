"""Values of the channel that a written module is tested against."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from smisym.link.linking import Observation
from smisym.model.compiled import Model

# Overlaps of the two references: rows known a little and a lot, and coupled in the second one.
_KNOWN = (0.3, 0.8)


def reference_values(model: Model, rtol: float, ratios: bool, seed: int) -> list[dict[str, Any]]:
    """y (or log-ratios), omega, V and g_out of samples, with its error in the norm of V, as plain lists."""
    rng, (P, T) = np.random.default_rng(seed), (model.fields, model.tokens)
    found = []
    for number, overlap in enumerate(_KNOWN):
        V = (1 - overlap) * np.eye(P)
        if number and P > 1:
            V = V + 0.2 * (1 - overlap) * (np.ones((P, P)) - np.eye(P))
        omega = np.sqrt(overlap) * rng.standard_normal((1, P, T))
        Z = omega + np.linalg.cholesky(V) @ rng.standard_normal((1, P, T))
        observed = model.channel.sample(Z, rng)
        y = observed.log_ratios if ratios else observed.y
        # Numbers that are written with few digits, and read back to the same bits.
        omega, V = np.round(omega, 12), np.round(V, 12)
        if not ratios:
            observed = Observation(observed.y, None, observed.exact)
        with _nothing_compiled():
            moments = model.channel.moments(observed, omega, V, rtol=rtol, seed=seed)
        found.append(
            {
                "log_ratios": ratios,
                "y": np.asarray(y)[0].tolist(),
                "omega": omega[0].tolist(),
                "V": V.tolist(),
                "g": moments.g[0].tolist(),
                "error": float(moments.bound[0]),
            }
        )
    return found


@contextmanager
def _nothing_compiled() -> Iterator[None]:
    """With loops in numpy: a posterior or two are not worth the seconds that numba takes for a loop."""
    before = os.environ.get("SMISYM_BACKEND")
    os.environ["SMISYM_BACKEND"] = "numpy"
    try:
        yield
    finally:
        if before is None:
            del os.environ["SMISYM_BACKEND"]
        else:
            os.environ["SMISYM_BACKEND"] = before
