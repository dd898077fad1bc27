"""First thresholds by two computations that share neither chart nor integrator, for every family that allows it.

One goes from the declaration through chart, posterior moments and scrambles; the other only draws fields and outputs
and sorts them into bins (:mod:`oracles_binning`), which needs outputs with at most two coordinates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import FAMILIES
from oracles_binning import Binned, binned_rate

import smisym

# Samples of the first computation; what takes more than some seconds is marked slow.
QUICK = {
    "abs": 2048,
    "product": 2048,
    "sign-of-product": 2048,
    "p-causal": 2048,
    "untied-T2": 8192,
    "tied-r2-T2": 8192,
    "tied-r3-T2": 2048,
    "noise": 2048,
}
SLOW = {
    "untied-on-tied": 1024,
    "tied-r2-two-layers": 1024,
    "untied-two-layers": 1024,
    "sequence-two-noiseless": 1024,
    "sequence-two-untied": 1024,
    "heads-sum": 1024,
    "two-tokens": 1024,
    "noise-untied": 1024,
    "p-hardmax": 1024,
}


def coordinates(model: Any) -> Any:
    """Draws of at most two coordinates that carry all of the output."""
    link = model.link

    def draw(Z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        parts = [_seen(model, Z[i : i + 2**16], rng) for i in range(0, len(Z), 2**16)]
        v = np.concatenate(parts)
        if v.shape[1] == 4 and (link.noise or np.ptp(v[:, 0] + v[:, 1]) < 1e-9):
            # Rows with a constant sum: the difference within a row is all that noise on both entries leaves to know.
            v = np.stack([v[:, 1] - v[:, 0], v[:, 2] - v[:, 3]], axis=1)
        return np.asarray(v[:, v.std(axis=0) > 1e-12])

    return draw


def _seen(model: Any, Z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    seen = model.channel.sample(Z, rng).y if model.link.noise else model.link.raw(Z)
    return np.asarray(seen).reshape(len(Z), -1)


def binned(name: str) -> Binned:
    model = smisym.compile(FAMILIES[name].declared)
    return binned_rate(coordinates(model), model.fields, model.tokens, log_n=19)


@pytest.mark.parametrize("name", [*QUICK, *[pytest.param(name, marks=pytest.mark.slow) for name in SLOW]])
def test_first_thresholds_are_those_of_binned_draws(name: str) -> None:
    model = smisym.compile(FAMILIES[name].declared)
    found = smisym.weak_recovery(model, samples={**QUICK, **SLOW}[name]).value[0]
    oracle = binned(name)
    assert found.kind == "weak"
    bar = np.hypot(found.error / found.alpha, oracle.error / oracle.rate)
    assert abs(found.alpha / oracle.alpha - 1) < 4 * bar + oracle.width / oracle.rate
    assert bar < 0.05
    assert oracle.width < 0.02 * oracle.rate


def test_bins_know_conditional_moments() -> None:
    """y = |z|: E[z^2 | y] = y^2, rate Var z^2 = 2; y = z1 + z2: m = y/2 each, a rate known in closed form."""
    one = binned_rate(lambda Z, rng: np.abs(Z[:, 0, :1]), 1, 1, log_n=18)
    assert abs(one.rate - 2) < 4 * one.error + one.width
    sums = binned_rate(lambda Z, rng: Z[:, :, 0].sum(axis=1)[:, None], 2, 1, log_n=18)
    # G = (y^2/2 - 1) e e^T / 2 with e = (1, 1): largest eigenvalue E[(y^2/2 - 1)^2] = 2.
    assert abs(sums.rate - 2) < 4 * sums.error + sums.width
