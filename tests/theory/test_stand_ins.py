"""What first thresholds are sampled beside where posteriors are dear: stand-ins, and sizes of outputs."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention
from smisym.theory.surrogate import Surrogate

POINTS = 4000
TWO = (Attention(), Attention())
MODELS = {
    "two layers": Architecture(2, TWO),
    "two layers, noise": Architecture(2, TWO, noise=0.05),
    "one layer, weak noise": Architecture(3, (Attention(),), noise=1e-3),
    "sequence output, noise": Architecture(2, TWO, output="sequence", noise=0.1),
    "hardmax, noise": Architecture(2, (Attention(activation="hardmax"),), noise=0.1),
    "expression, noise": SMI("z1*z2 + tanh(z1)", 2, noise=0.2),
}


@pytest.mark.parametrize("name", MODELS)
def test_means_that_are_known_are_those_of_outputs_as_they_are_observed(name: str) -> None:
    """Of outputs of the channel, noise and all: sizes and the stand-in have the means that are taken off them."""
    model = smisym.compile(MODELS[name])
    rng = np.random.default_rng(3)
    y = model.channel.sample(rng.standard_normal((POINTS, model.fields, model.tokens)), rng)
    made = Surrogate.of(model)
    found = made.at(model, y, np.random.SeedSequence(1))
    off = found.sizes.mean(axis=0) / (found.sizes.std(axis=0) / np.sqrt(POINTS))
    assert np.abs(off).max() < 4.5
    # So has the stand-in.
    value = found.points - np.einsum("c,c...->...", found.share, found.value)
    spread = found.points.std(axis=0) / np.sqrt(POINTS)
    seen = spread > 1e-9
    assert seen.any() and np.abs(value.mean(axis=0)[seen] / spread[seen]).max() < 4.5
