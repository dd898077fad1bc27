"""Several matrices of extensive rank: the answers of one matrix each, and the law of their fields."""

from __future__ import annotations

import numpy as np
import pytest

from smisym.base.errors import InputError
from smisym.prior import ExtensiveRank, ExtensiveRows
from smisym.prior.spectrum import NoisyWishart

RATIOS = (0.5, 2.0)
PRIOR = ExtensiveRows(RATIOS)


def test_each_row_has_the_answers_of_its_own_matrix() -> None:
    V, told = np.diag([0.6, 0.2]), np.diag([0.9, 1.7])
    found = PRIOR.response(V, told, 0.1)
    for k, ratio in enumerate(RATIOS):
        one, at = ExtensiveRank(ratio), slice(k, k + 1)
        own = one.response(V[at, at], told[at, at], 0.1)
        assert found.values[k] == own.values[0]
        for name in ("half", "still", "rest"):
            assert getattr(found, name)[k, k] == getattr(own, name)[0, 0]
    Q = np.eye(2) - V
    assert PRIOR.entropy(Q) == sum(ExtensiveRank(r).entropy(Q[k : k + 1, k : k + 1]) for k, r in enumerate(RATIOS))
    assert PRIOR.dimension(np.eye(2)) == pytest.approx(0.75 + 1.0)
    assert PRIOR.dimension(np.eye(2)[:1]) == pytest.approx(0.75)


@pytest.mark.parametrize("coupling", [0.0, 0.25])
def test_the_law_of_fields(coupling: float) -> None:
    """Cov Z = I + R, Cov omega = Cov(omega, Z) = R + Q, R = diag(rho), also where overlaps are coupled."""
    Q = np.array([[0.4, coupling], [coupling, 0.7]])
    law, (A, B), R = PRIOR.law(Q), PRIOR.roots(Q), np.diag(RATIOS)
    whole = law.scale @ law.scale.T
    np.testing.assert_allclose(whole, np.eye(2) + R)
    np.testing.assert_allclose(law.gain @ whole, R + Q, atol=1e-14)
    np.testing.assert_allclose(law.gain @ whole @ law.gain.T + law.noise @ law.noise.T, R + Q, atol=1e-14)
    np.testing.assert_allclose(A @ A.T, R + Q, atol=1e-14)
    np.testing.assert_allclose(B @ B.T, np.eye(2) - Q, atol=1e-14)
    np.testing.assert_allclose(law.units @ np.linalg.solve(law.V, law.units.T), np.eye(2), atol=1e-14)
    with pytest.raises(InputError, match="0 <= Q < I"):
        PRIOR.law(np.eye(2))


def test_what_noise_leaves_of_data_is_what_it_leaves_in_the_limit() -> None:
    """b = A W + sqrt(A) noise, row by row: the mean's error is the one stated, and 1 - overlap(A) as D grows."""
    rng, dim, told = np.random.default_rng(4), 150, np.diag([0.7, 6.0])
    W = PRIOR.draw(dim, rng, normalised=True)
    assert W.shape == (2, PRIOR.row_dimension(dim))
    b = told @ W + np.sqrt(told) @ rng.standard_normal(W.shape)
    mean, left = PRIOR.denoise(told, b, 0.0)
    limit = PRIOR.overlap(told * (dim + 1) / dim)
    np.testing.assert_allclose(np.diag(left), 1 - np.diag(limit), rtol=1e-9)
    for k in range(2):
        # Traces are known to the prior: the mean of the weights is no guess of what the overlap counts.
        assert np.mean((mean[k] - W[k]) ** 2) == pytest.approx(left[k, k], rel=0.08)
    np.testing.assert_allclose(PRIOR.conjugate(PRIOR.overlap(told)), told, rtol=1e-8)
    assert not left[0, 1] and PRIOR.finite_size and PRIOR.precision is None
    start = PRIOR.start(dim, 0.1, rng)
    still = [ExtensiveRank(ratio).start(dim, 0.0, rng)[0] for ratio in RATIOS]
    for k in range(2):
        assert 0 < np.std(start[k] - still[k]) < 1


def test_fields_of_data_are_those_of_each_matrix() -> None:
    rng, dim = np.random.default_rng(5), 12
    W, X, g = PRIOR.draw(dim, rng), rng.standard_normal((7 * 3, dim)), rng.standard_normal((7, 2, 6))
    z = PRIOR.project(W, X, 3)
    assert z.shape == (7, 2, 6)
    for k, ratio in enumerate(RATIOS):
        np.testing.assert_array_equal(z[:, k], ExtensiveRank(ratio).project(W[k : k + 1], X, 3)[:, 0])
    assert np.sum(z * g) == pytest.approx(np.sum(W * PRIOR.back_project(g, X)), rel=1e-12)
    truth = PRIOR.in_units(PRIOR.draw(60, rng, normalised=True))
    np.testing.assert_allclose(np.mean(truth**2, axis=1), 1, rtol=1e-12)


def test_rows_of_one_law_may_be_exchanged() -> None:
    swap = np.eye(2)[::-1]
    assert ExtensiveRows((0.5, 0.5)).respects(swap)
    assert not PRIOR.respects(swap)
    assert not ExtensiveRows((0.5, 0.5)).respects(np.diag([1.0, -1.0]))


def test_overlaps_between_rows_answer_as_if_both_were_gaussian() -> None:
    """Two matrices seen in noise that is correlated a little: the overlap between them, to first order in Q_hat_12.

    d Q_12 / d Q_hat_12 = <Cov_1, Cov_2> / (d^2 / 2): eigenvectors of both posteriors have nothing to do with each
    other, so that it is V_1 V_2.  Covariances of S by its eigenvalues after denoising: that of entries in the
    eigenbasis is (m_i - m_j) / (z_i - z_j) Delta, and turned at random for the other.
    """
    rng, dim, covariances, left = np.random.default_rng(0), 60, [], []
    for rho, noise in ((0.5, 0.6), (2.0, 0.8)):
        rank = round(rho * dim)
        W, G = rng.standard_normal((dim, rank)), rng.standard_normal((dim, dim))
        seen = W @ W.T / np.sqrt(rank * dim) + np.sqrt(noise / (2 * dim)) * (G + G.T) - np.sqrt(rho) * np.eye(dim)
        values, vectors = np.linalg.eigh(seen)
        shrunk = NoisyWishart(rho, noise).shrunk(values)
        gap = values[:, None] - values + 10 * np.eye(dim)
        C = noise * np.where(np.eye(dim) > 0, 0.0, (shrunk[:, None] - shrunk) / gap)
        covariances.append((C, vectors))
        left.append(C.sum() / dim**2)
    (C1, U1), (C2, U2) = covariances
    turn = U1.T @ U2
    # Tr over symmetric matrices X of Cov_1(Cov_2(X)): in basis 1, Cov is multiplication of entries by C.
    trace = 0.0
    for i in range(dim):
        for j in range(dim):
            E = np.zeros((dim, dim))
            E[i, j] = C1[i, j]
            E = turn.T @ E @ turn
            trace += float((turn @ (C2 * E) @ turn.T)[i, j])
    assert trace / dim**2 == pytest.approx(left[0] * left[1], rel=0.1)
