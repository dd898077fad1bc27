"""Fields that are drawn wider than they are: averages stay what they are, and rates have less noise."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention
from smisym.theory.wider import variances, widened

TWO = Architecture(2, (Attention(), Attention()))


@pytest.mark.parametrize("diagonal", [(0.0, 0.9), (0.3, 0.9), (0.9, 0.99)])
def test_averages_are_those_of_the_prior(diagonal: tuple[float, float]) -> None:
    """Of Gaussian normals: 1, x^2 and x^4 of every row, within the errors of the draws."""
    normals = np.random.default_rng(3).standard_normal((200_000, 2, 2))
    drawn, weights = widened(normals, variances(np.diag(diagonal), 2))
    assert weights.mean() == pytest.approx(1.0, rel=1e-12)
    assert drawn.var() > normals.var()
    for power, exact, spread in ((1, 0.0, 1.0), (2, 1.0, 2.0), (4, 3.0, 96.0)):
        means = np.einsum("n,npt->pt", weights, drawn**power) / len(drawn)
        np.testing.assert_allclose(means, exact, atol=4 * np.sqrt(2 * spread / len(drawn)))


def test_where_nothing_changes() -> None:
    normals = np.random.default_rng(3).standard_normal((64, 3, 2))
    for Q in (np.zeros((3, 3)), np.diag([0.0, 0.0, 0.5])):  # everything is left to learn, and nearly everything
        drawn, weights = widened(normals, variances(Q, 2))
        assert drawn is normals
        np.testing.assert_array_equal(weights, 1.0)


def test_it_is_the_same_map() -> None:
    """E_22, the first layer's rate and E log Zout against plain averages over the prior's own draws."""
    model, Q, n = smisym.compile(TWO), np.diag([0.0, 0.9]), 2**13
    estimates = smisym.overlap_map(model, samples=n, scrambles=16, seed=5).evaluate(Q)
    found = np.array([(e.E[1, 1], e.derivative(np.diag([1.0, 0.0]))[0, 0], e.log_partition) for e in estimates])
    rng, law = np.random.default_rng(11), model.prior.law(Q)
    fields, other = rng.standard_normal((2, n, 2, 2))
    Z = law.scale @ fields
    omega = law.gain @ Z + law.noise @ other
    moments = model.channel.moments(model.channel.draw(Z, np.zeros((n, 0))), omega, law.V, cov=True, rtol=1e-4)
    assert moments.dg is not None
    plain = np.stack([(moments.g[:, 1] ** 2).sum(axis=1), (moments.dg[:, 0, :, 0] ** 2).sum(axis=(1, 2)),
                      moments.log_partition], axis=1)  # fmt: skip
    error = np.sqrt(found.var(axis=0, ddof=1) / 16 + plain.var(axis=0) / n)
    assert (np.abs(found.mean(axis=0) - plain.mean(axis=0)) < 4 * error).all()
