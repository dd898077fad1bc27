"""Sequence output of two layers on two tokens: coordinates without a border, against nested quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.sequences import two_layer_sequence

import smisym
from smisym import Architecture, Attention


def model_of(skip: float) -> smisym.Model:
    return smisym.compile(Architecture(2, (Attention(skip=skip),) * 2, output="sequence"))


@pytest.mark.parametrize(
    ("skip", "variances"),
    [(0.3, (1.0, 1.0)), (0.3, (0.05, 0.05)), (1.0, (0.5, 0.5)), (1.0, (0.9, 0.2)), (0.0, (0.5, 0.5))],
)
def test_errors_are_as_stated(skip: float, variances: tuple[float, float]) -> None:
    """Means, second moments and the log-partition, up to one constant for all outputs."""
    model, V = model_of(skip), np.array(variances)
    assert model.level_set is not None and model.level_set.smooth and model.channel.free_dimensions == 2
    omega, rest = np.random.default_rng(5).standard_normal((2, 8, 2, 2))
    omega = np.sqrt(1 - V)[:, None] * omega
    y = model.observe(omega + np.sqrt(V)[:, None] * rest)
    found = model.channel.moments(y, omega, np.diag(V), cov=True, rtol=1e-2)
    logs = []
    for k in range(len(omega)):
        coarse, fine = (two_layer_sequence(y.y[k], omega[k], V, skip, nodes) for nodes in (120, 170))
        own = np.linalg.norm((coarse[1] - fine[1]) / np.sqrt(V)[:, None])
        off = np.linalg.norm((found.mean[k] - fine[1]) / np.sqrt(V)[:, None])
        assert off <= found.error[k] + 3 * own
        if found.error[k] < 1e-2 and own < 1e-3:
            logs.append(found.log_partition[k] - fine[0])
            assert found.cov is not None
            second = found.cov[k].reshape(4, 4) + np.outer(found.mean[k], found.mean[k])
            np.testing.assert_allclose(second, fine[2], atol=3e-2)
    assert len(logs) >= 4 and np.ptp(logs) < 1e-2


def test_large_scores_keep_the_chart_with_a_border() -> None:
    assert (level_set := model_of(3.0).level_set) is not None
    assert not level_set.smooth and level_set.shared
