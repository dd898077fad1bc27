"""What the prior of extensive rank answers: each answer against another one, or against matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest

from smisym.base.errors import InputError
from smisym.prior import ExtensiveRank

RATIOS = (0.01, 0.5, 1.0, 30.0)


def at(q: float) -> np.ndarray:
    return np.full((1, 1), q)


@pytest.mark.parametrize("rho", RATIOS)
@pytest.mark.parametrize("q", [0.0, 0.3, 1 - 1e-9])
def test_fields_and_estimates_have_the_law_of_the_theory(rho: float, q: float) -> None:
    """Var z = Q0 = 1 + rho, Var omega = Cov(omega, z) = rho + Q, and 1 - Q is left."""
    prior = ExtensiveRank(rho)
    law, (A, B) = prior.law(at(q)), prior.roots(at(q))
    whole = float(law.scale[0, 0] ** 2)
    assert whole == pytest.approx(1 + rho)
    assert law.gain[0, 0] * whole == pytest.approx(rho + q) == pytest.approx(float(A[0, 0] ** 2))
    assert law.gain[0, 0] ** 2 * whole + law.noise[0, 0] ** 2 == pytest.approx(rho + q)
    assert float(law.V[0, 0]) == pytest.approx(1 - q, rel=1e-6) == pytest.approx(float(B[0, 0] ** 2), rel=1e-6)
    assert not prior.centred()
    with pytest.raises(InputError, match="0 <= Q < I"):
        prior.law(at(1.0))


@pytest.mark.parametrize("rho", RATIOS)
@pytest.mark.parametrize("lam", [0.0, 0.3])
def test_what_is_left_is_what_gamp_leaves_and_its_slopes(rho: float, lam: float) -> None:
    prior, q, told = ExtensiveRank(rho), 0.4, 0.9
    here = prior.response(at(1 - q), at(told), lam)
    # As told in units of the weights, GAMP's denoiser has its noise d / (d + 1) / A.
    dim = 40
    _, left = prior.denoise(at(told / (1 - q) * dim / (dim + 1)), np.zeros((1, prior.row_dimension(dim))), 0.0)
    if not lam:
        assert float(left[0, 0]) == pytest.approx((1 - q) / float(here.values[0]), rel=1e-10)
    step = 1e-5
    above, below = (prior.response(at(1 - q), at(told + d), lam) for d in (step, -step))
    rise = math.log(float(above.values[0] / below.values[0])) / (2 * step)
    assert rise == pytest.approx(float(here.half[0, 0] ** 2), rel=1e-6)
    # At rest V stays as it is, and still^2 is half there.
    rested = prior.response(at(1 - q), here.rest, 0.0)
    assert float(rested.values[0]) == pytest.approx(1, abs=1e-9)
    assert float(here.still[0, 0] ** 2) == pytest.approx(float(rested.half[0, 0]), rel=1e-8)


@pytest.mark.parametrize("rho", RATIOS)
def test_the_entropy_is_stationary_where_the_response_rests(rho: float) -> None:
    """d entropy / d Q = -Q_hat / 4, and -Q_hat V is what is told at rest."""
    prior = ExtensiveRank(rho)
    for q in (0.05, 0.5, 0.95):
        step = 1e-4 * q * (1 - q)
        slope = (prior.entropy(at(q + step)) - prior.entropy(at(q - step))) / (2 * step)
        rest = float(prior.response(at(1 - q), at(0.5), 0.0).rest[0, 0])
        assert slope == pytest.approx(-rest / (1 - q) / 4, rel=1e-6)
    assert prior.entropy(at(0.0)) == 0
    # A little: that of Gaussian weights of this multiplicity, -Q^2 / 8.
    assert prior.entropy(at(1e-4)) == pytest.approx(-1e-8 / 8, rel=0.02)


@pytest.mark.parametrize("rho", RATIOS)
def test_next_to_nothing_left(rho: float) -> None:
    """V falls to dimension * V / told: 1 - (1 - rho)^2 of all numbers are free, or all of them."""
    prior, told = ExtensiveRank(rho), 0.2
    dimension = prior.dimension(np.ones((1, 1)))
    assert dimension == pytest.approx(1 - max(1 - rho, 0) ** 2)
    for left in (1e-9, 1e-12):
        assert prior.response(at(left), at(told), 0.0).values[0] == pytest.approx(told / dimension, rel=1e-5)


def test_rows_are_matrices_and_projections_are_transposes() -> None:
    prior, rng, dim = ExtensiveRank(0.5), np.random.default_rng(1), 9
    W = prior.draw(dim, rng)
    S = prior.matrix(W)
    np.testing.assert_allclose(prior.row(S), W, rtol=1e-14)
    assert np.linalg.matrix_rank(S) == round(0.5 * dim)
    X, g = rng.standard_normal((7 * 3, dim)), rng.standard_normal((7, 1, 6))
    z = prior.project(W, X, 3)
    assert np.sum(z * g) == pytest.approx(np.sum(W * prior.back_project(g, X)), rel=1e-12)
    # Against the indices as they are defined.
    first, second = np.triu_indices(3)
    for sample, x in enumerate(X.reshape(7, 3, dim)):
        h = (x @ S @ x.T - np.trace(S) * np.eye(3)) / math.sqrt(dim)
        scale = np.where(first == second, math.sqrt(2), 1.0)
        np.testing.assert_allclose(z[sample, 0], h[first, second] / scale, rtol=1e-10, atol=1e-12)
    truth = prior.in_units(prior.draw(60, rng, normalised=True))
    assert np.mean(truth**2) == pytest.approx(1, rel=1e-12)
    assert prior.tokens(6) == 3
    assert prior.alpha(round(prior.samples(0.3, 50)), 50) == pytest.approx(0.3)


def test_the_denoiser_of_gamp_leaves_what_it_says() -> None:
    """On truths seen through noise, b = A W + sqrt(A) noise: the error of the mean is the covariance that it states."""
    prior, rng, dim = ExtensiveRank(0.5), np.random.default_rng(2), 150
    for A in (0.5, 3.0, 30.0):
        W = prior.draw(dim, rng, normalised=True)
        b = A * W + math.sqrt(A) * rng.standard_normal(W.shape)
        mean, left = prior.denoise(at(A), b, 0.0)
        assert np.mean((mean - W) ** 2) == pytest.approx(float(left[0, 0]), rel=0.08)
    nothing, left = prior.denoise(at(0.0), np.zeros_like(W), 0.0)
    np.testing.assert_allclose(prior.matrix(nothing), math.sqrt(0.5) * np.eye(dim), atol=1e-12)
    assert left == 1.0
