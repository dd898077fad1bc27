"""What the prior of rectangular matrices answers: each answer against another one, or against matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest

from smisym.base.errors import InputError
from smisym.prior import GaussianRows, RectangularRank

SHAPES = ((0.01, 1.0), (0.5, 1.0), (0.5, 3.0), (0.3, 0.4), (30.0, 2.0))


def at(q: float) -> np.ndarray:
    return np.full((1, 1), q)


@pytest.mark.parametrize(("rho", "beta"), SHAPES)
def test_what_is_left_is_what_gamp_leaves_and_its_slopes(rho: float, beta: float) -> None:
    prior, q, told = RectangularRank(rho, beta), 0.4, 0.9
    for lam in (0.0, 0.3):
        here = prior.response(at(1 - q), at(told), lam)
        dim = prior.row_dimension(math.floor(20 * beta + 0.5) * 20)
        _, left = prior.denoise(at(told / (1 - q)), np.zeros((1, dim)), lam)
        assert float(left[0, 0]) == pytest.approx((1 - q) / float(here.values[0]), rel=1e-10)
        step = 1e-5
        above, below = (prior.response(at(1 - q), at(told + d), lam) for d in (step, -step))
        rise = math.log(float(above.values[0] / below.values[0])) / (2 * step)
        assert rise == pytest.approx(float(here.half[0, 0] ** 2), rel=1e-6)
    rested = prior.response(at(1 - q), here.rest, 0.0)
    assert float(rested.values[0]) == pytest.approx(1, abs=1e-9)
    assert float(here.still[0, 0] ** 2) == pytest.approx(float(rested.half[0, 0]), rel=1e-8)


@pytest.mark.parametrize(("rho", "beta"), SHAPES)
def test_the_entropy_is_stationary_where_the_response_rests(rho: float, beta: float) -> None:
    """d entropy / d Q = -Q_hat / 2, and Q_hat V is what is told at rest."""
    prior = RectangularRank(rho, beta)
    for q in (0.05, 0.5, 0.95):
        step = 1e-4 * q * (1 - q)
        slope = (prior.entropy(at(q + step)) - prior.entropy(at(q - step))) / (2 * step)
        rest = float(prior.response(at(1 - q), at(0.5), 0.0).rest[0, 0])
        assert slope == pytest.approx(-rest / (1 - q) / 2, rel=1e-5)
    assert prior.entropy(at(0.0)) == 0
    # A little: that of Gaussian weights.
    assert prior.entropy(at(1e-4)) == pytest.approx(GaussianRows(1).entropy(at(1e-4)), rel=0.02)


@pytest.mark.parametrize(("rho", "beta"), SHAPES)
def test_next_to_nothing_left(rho: float, beta: float) -> None:
    """V falls to dimension * V / told: of d L numbers r (d + L - r) are free where r is below both, else all."""
    prior, told = RectangularRank(rho, beta), 0.2
    dimension = prior.dimension(np.ones((1, 1)))
    assert dimension == pytest.approx(rho * (1 + beta - rho) / beta if rho < min(1, beta) else 1)
    for left in (1e-9, 1e-12):
        assert prior.response(at(left), at(told), 0.0).values[0] == pytest.approx(told / dimension, rel=1e-5)


def test_a_matrix_and_its_transpose_are_one() -> None:
    tall, wide, rng = RectangularRank(0.3, 0.5), RectangularRank(0.6, 2.0), np.random.default_rng(0)
    for noise in (1e-6, 0.2, 30.0):
        assert tall.left_of(noise) == wide.left_of(noise)
    W = tall.draw(800, rng)
    S = tall.matrix(W)
    assert S.shape == (40, 20) and np.linalg.matrix_rank(S) == 12
    one, left = tall.denoise(at(2.0), W, 0.0)
    other, same = wide.denoise(at(2.0), S.T.reshape(1, -1), 0.0)
    np.testing.assert_allclose(tall.matrix(one), wide.matrix(other).T, rtol=1e-9, atol=1e-12)
    assert left == same


def test_rows_are_matrices_and_projections_are_transposes() -> None:
    prior, rng = RectangularRank(0.5, 1.5), np.random.default_rng(1)
    dim = 8 * 12
    W, X, g = prior.draw(dim, rng), rng.standard_normal((7 * 2, dim)), rng.standard_normal((7, 1, 2))
    z = prior.project(W, X, 2)
    assert np.sum(z * g) == pytest.approx(np.sum(W * prior.back_project(g, X)), rel=1e-12)
    S = prior.matrix(W)
    for sample, tokens in enumerate(X.reshape(7, 2, 8, 12)):
        np.testing.assert_allclose(z[sample, 0], np.sum(tokens * S, axis=(1, 2)) / math.sqrt(dim), rtol=1e-12)
    assert np.mean(prior.in_units(prior.draw(dim, rng, normalised=True)) ** 2) == pytest.approx(1, rel=1e-12)
    assert np.mean(prior.draw(40 * 60, rng) ** 2) == pytest.approx(1, rel=0.15)
    assert prior.alpha(round(prior.samples(0.3, 96)), 96) == pytest.approx(0.3, rel=0.02)
    assert prior.centred() and prior.respects(-np.eye(1)) and not prior.respects(2 * np.eye(1))


def test_the_denoiser_of_gamp_leaves_what_it_says() -> None:
    """On truths seen through noise, b = A W + sqrt(A) noise: the error of the mean is the covariance that it states."""
    prior, rng, dim = RectangularRank(0.5, 2.0), np.random.default_rng(2), 100 * 200
    W = prior.draw(dim, rng, normalised=True)
    for A in (0.5, 3.0, 30.0):
        b = A * W + math.sqrt(A) * rng.standard_normal(W.shape)
        mean, left = prior.denoise(at(A), b, 0.0)
        assert np.mean((mean - W) ** 2) == pytest.approx(float(left[0, 0]), rel=0.05)
    nothing, left = prior.denoise(at(0.0), np.zeros_like(W), 0.0)
    assert not nothing.any() and left == 1.0
    with pytest.raises(np.linalg.LinAlgError):
        prior.denoise(at(-1.0), W, 0.0)


def test_what_is_no_matrix_is_refused() -> None:
    with pytest.raises(InputError, match="1024 = 32 x 32"):
        RectangularRank(0.5).row_dimension(1000)
    assert RectangularRank(0.5, 2.0).row_dimension(2 * 17**2) == 2 * 17**2
    for ratio, aspect in ((0.0, 1.0), (0.5, 0.0), (math.nan, 1.0), (0.5, 1e3)):
        with pytest.raises(InputError):
            RectangularRank(ratio, aspect)
