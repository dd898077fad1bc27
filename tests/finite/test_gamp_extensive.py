"""GAMP for matrices of extensive rank: it follows state evolution, and streams over samples."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention
from smisym.prior import ExtensiveRank

MODEL = smisym.compile(Architecture(2, (Attention(rank_ratio=0.5),)))


def test_gamp_on_matrices_follows_state_evolution() -> None:
    """Softmax, T = 2, rho = 0.5, d = 40 and 100: the gap falls with d, to a few per cent of what there is to know."""
    alpha = 0.12
    expected = float(smisym.curve(MODEL, [alpha])[0].value.Q[0, 0])
    gaps = []
    for dim, runs in ((40, 4), (100, 2)):
        found = []
        for seed in range(runs):
            data = smisym.generate(MODEL, dim, alpha, np.random.default_rng(seed), normalised=True)
            assert len(data.X) == round(alpha * dim**2)
            run = smisym.gamp(MODEL, data.X, data.y, W=data.W, damping=0.4, max_steps=25, seed=seed)
            assert run.settings["alpha"] == pytest.approx(alpha, rel=1e-3)
            assert isinstance(MODEL.prior, ExtensiveRank)
            error = np.sum((MODEL.prior.matrix(run.value.W_hat) - MODEL.prior.matrix(data.W)) ** 2) / dim
            assert error == pytest.approx(float(np.mean((run.value.W_hat - data.W) ** 2)), rel=1e-9)
            found.append(error)
        gaps.append(float(np.mean(found)) - (1 - expected))
    assert abs(gaps[1]) < 0.06
    assert abs(gaps[1]) < abs(gaps[0])


def test_memory_is_that_of_the_tokens() -> None:
    """No array of N d^2 numbers: a step takes less than the tokens themselves and a few matrices."""
    dim, tokens = 60, 3
    model = smisym.compile(Architecture(tokens, (Attention(rank_ratio=0.5),)))
    data = smisym.generate(model, dim, 0.2, np.random.default_rng(0))
    smisym.gamp(model, data.X, data.y, damping=0.4, max_steps=1)
    tracemalloc.start()
    smisym.gamp(model, data.X, data.y, damping=0.4, max_steps=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * (6 * data.X.size + 40 * len(data.X) * 36)
    assert peak < 0.3 * 8 * len(data.X) * dim**2


def test_a_network_of_expressions_runs_too() -> None:
    """Outputs that are no linear measurements: hardmax, whose posterior is a truncated Gaussian."""
    model = smisym.compile(Architecture(2, (Attention(rank_ratio=0.5, activation="hardmax"),)))
    data = smisym.generate(model, 60, 1.0, np.random.default_rng(1), normalised=True)
    run = smisym.gamp(model, data.X, data.y, W=data.W, damping=0.4, max_steps=25)
    expected = 0.0673 * (1.106 / 1.0) ** 2
    assert float(np.mean((run.value.W_hat - data.W) ** 2)) == pytest.approx(expected, abs=0.06)


def test_small_width_on_data() -> None:
    """Of rank d^{1/2}: a run ends where state evolution of that very width has it, and not far from the limit."""
    model = smisym.compile(Architecture(2, (Attention(rank_ratio=0.0),)))
    dim, alpha = 64, 0.4
    data = smisym.generate(model, dim, alpha, np.random.default_rng(0), normalised=True)
    assert len(data.X) == round(alpha * 8 * dim)
    run = smisym.gamp(model, data.X, data.y, W=data.W, damping=0.85, max_steps=100)
    assert run.settings["alpha"] == pytest.approx(alpha, rel=1e-2)
    error = float(np.mean((run.value.W_hat - data.W) ** 2))
    wide = smisym.compile(Architecture(2, (Attention(rank_ratio=1 / 8),)))
    expected = 1 - float(smisym.curve(wide, [alpha / 8])[0].value.Q[0, 0])
    assert error == pytest.approx(expected, abs=0.15)
