"""What the prior of small width answers: the limit of the one of extensive rank, and spikes in noise at finite d."""

from __future__ import annotations

import math

import numpy as np
import pytest

from smisym.base.errors import InputError
from smisym.prior import ExtensiveRank, GaussianRows, SmallWidth
from smisym.prior.small_width import rank_at

PRIOR = SmallWidth()


def at(q: float) -> np.ndarray:
    return np.full((1, 1), q)


@pytest.mark.parametrize("q_hat", [0.5, 1.2, 2.0, 5.0, 100.0])
def test_it_is_the_limit_of_extensive_rank(q_hat: float) -> None:
    """rho Q_hat in units of d^2 is Q_hat in units of r d: V' of both as rho falls, off by O(rho^{1/2}) at most."""
    left, gaps = 0.6, []
    limit = left / float(PRIOR.response(at(left), at(q_hat * left), 0.0).values[0])
    for rho in (1e-2, 1e-3, 1e-4):
        found = ExtensiveRank(rho).response(at(left), at(rho * q_hat * left), 0.0)
        gaps.append(abs(left / float(found.values[0]) - limit))
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.05
    assert limit == pytest.approx(1 - max(1 - 1 / q_hat, 0) ** 2)


def test_spikes_in_noise_are_found_as_far_as_it_says() -> None:
    """Twelve spikes of size (d / r)^{1/2} at d = 1200, seen through noise of the size that Q_hat = 2 makes: the overlap
    of the vectors is 1 - 1 / Q_hat, that of S its square."""
    dim, rank, q_hat = 1200, 12, 2.0
    rng = np.random.default_rng(0)
    W = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
    S = math.sqrt(dim / rank) * W @ W.T
    noise = rng.standard_normal((dim, dim))
    seen = S + (noise + noise.T) / math.sqrt(2 * dim * q_hat * rank / dim)
    found = np.linalg.eigh(seen)[1][:, -rank:]
    assert np.sum((found.T @ W) ** 2) / rank == pytest.approx(1 - 1 / q_hat, abs=0.05)
    mean = (1 - 1 / q_hat) * math.sqrt(dim / rank) * found @ found.T
    left = PRIOR.response(at(1.0), at(q_hat), 0.0)
    assert np.sum((mean - S) ** 2) / dim == pytest.approx(1 / float(left.values[0]), abs=0.05)


def test_nothing_is_learned_until_enough_is_told() -> None:
    assert PRIOR.least_told() == pytest.approx(1.0)
    for told in (0.0, 0.3, 0.999, 1.0):
        assert PRIOR.response(at(1.0), at(told), 0.0).values[0] == 1.0
    assert PRIOR.response(at(1.0), at(1.001), 0.0).values[0] > 1.0
    for other in (GaussianRows(2), ExtensiveRank(0.01)):
        assert not other.least_told().any()


@pytest.mark.parametrize("q", [1e-6, 0.1, 0.5, 0.95])
@pytest.mark.parametrize("lam", [0.0, 0.3])
def test_its_slopes_its_rest_and_its_entropy(q: float, lam: float) -> None:
    told, step = 1.7, 1e-6
    here = PRIOR.response(at(1 - q), at(told), lam)
    above, below = (PRIOR.response(at(1 - q), at(told + d), lam) for d in (step, -step))
    rise = math.log(float(above.values[0] / below.values[0])) / (2 * step)
    assert rise == pytest.approx(float(here.half[0, 0] ** 2), rel=1e-5)
    rested = PRIOR.response(at(1 - q), here.rest, 0.0)
    assert float(rested.values[0]) == pytest.approx(1, abs=1e-12)
    assert float(here.still[0, 0] ** 2) == pytest.approx(float(rested.half[0, 0]), rel=1e-6)
    # d entropy / d Q = -Q_hat / 4.
    step = 1e-4 * q * (1 - q)
    slope = (PRIOR.entropy(at(q + step)) - PRIOR.entropy(at(q - step))) / (2 * step)
    assert slope == pytest.approx(-float(here.rest[0, 0]) / (1 - q) / 4, rel=1e-5)


def test_it_is_r_rows_of_gaussian_weights_at_the_root_of_the_overlap() -> None:
    """Entropy of the vectors, u = Q^{1/2}; and near the end d r numbers are free, of r d / 2."""
    for u in (0.1, 0.5, 0.9):
        assert PRIOR.entropy(at(u**2)) == pytest.approx(GaussianRows(1).entropy(at(u)))
    told = 0.2
    assert PRIOR.dimension(np.ones((1, 1))) == 2
    assert PRIOR.response(at(1e-9), at(told), 0.0).values[0] == pytest.approx(told / 2, rel=1e-6)
    law = PRIOR.law(at(0.3))
    assert (law.scale, law.gain, law.V) == (1.0, 0.3, 0.7)
    assert PRIOR.centred()
    with pytest.raises(InputError, match="0 <= Q < I"):
        PRIOR.law(at(1.0))


def test_data_have_a_small_width() -> None:
    rng, dim = np.random.default_rng(3), 64
    W = PRIOR.draw(dim, rng)
    S = ExtensiveRank(1.0).matrix(W)
    assert np.linalg.matrix_rank(S) == rank_at(dim) == 8
    assert PRIOR.samples(0.3, dim) == pytest.approx(0.3 * 8 * 64)
    assert PRIOR.alpha(round(PRIOR.samples(0.25, dim)), dim) == pytest.approx(0.25)
    X, g = rng.standard_normal((7 * 3, dim)), rng.standard_normal((7, 1, 6))
    assert np.sum(PRIOR.project(W, X, 3) * g) == pytest.approx(np.sum(W * PRIOR.back_project(g, X)), rel=1e-12)
