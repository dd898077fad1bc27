"""Key-query matrices of extensive rank that are not tied: where the square prior is exact, and where it is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention
from smisym.base.errors import InputError
from smisym.prior import RectangularRank, UntiedRank
from smisym.verify.tokens import mapping_misfit

OTHERS = tuple(tuple(a != b for b in range(3)) for a in range(3))
MODEL = smisym.compile(Architecture(3, (Attention(rank_ratio=0.5, tied=False, mask=OTHERS),)))


def test_no_token_may_attend_to_itself() -> None:
    for mask in (None, "causal", ((True, True, False), (True, False, True), (True, True, False))):
        with pytest.raises(InputError, match="more is told of it than of the antisymmetric one"):
            Attention(rank_ratio=0.5, tied=False, mask=mask)
    assert MODEL.prior == UntiedRank(0.5) and MODEL.tokens == 6
    assert mapping_misfit(MODEL, 20, 0) is not None and mapping_misfit(MODEL, 20, 0) < 1  # type: ignore[operator]


def test_both_parts_of_the_matrix_are_told_alike() -> None:
    """E sum_{a<b} (g_ab + g_ba)^2 = E sum_{a<b} (g_ab - g_ba)^2 with a hidden diagonal: no correlation is left."""
    rng, q = np.random.default_rng(0), 0.4
    A, B = MODEL.prior.roots(np.full((1, 1), q))
    omega = A[0, 0] * rng.standard_normal((20000, 1, 6))
    y = MODEL.observe(omega + B[0, 0] * rng.standard_normal(omega.shape))
    g = np.zeros((len(omega), 3, 3))
    g[:, ~np.eye(3, dtype=bool)] = MODEL.channel.moments(y, omega, np.full((1, 1), 1 - q)).g[:, 0]
    first, second = np.triu_indices(3, 1)
    products = (g[:, first, second] * g[:, second, first]).sum(axis=1)
    assert abs(products.mean()) < 4 * products.std() / math.sqrt(len(products))
    assert np.mean((g**2).sum(axis=(1, 2))) == pytest.approx(3 / (1 - q), rel=0.03)


def test_linear_scores_with_a_diagonal_tell_more_of_the_symmetric_part() -> None:
    """Why the rest is refused: T / (T - 1) times as much, where either part is left with the same variance."""
    rng, T, V, count = np.random.default_rng(1), 4, 0.7, 40000
    g = rng.standard_normal((count, T, T)) / math.sqrt(V)  # (z - omega) / V off the diagonal
    g[:, range(T), range(T)] /= math.sqrt(2)  # of variance 2 V, hence g of 1 / (2 V)
    first, second = np.triu_indices(T, 1)
    both = (g[:, first, second] + g[:, second, first], g[:, first, second] - g[:, second, first])
    symmetric, antisymmetric = (float(np.mean((x**2).sum(axis=1))) for x in both)
    symmetric += 2 * float(np.mean((g[:, range(T), range(T)] ** 2).sum(axis=1)))
    assert symmetric / antisymmetric == pytest.approx(T / (T - 1), rel=0.02)


def test_state_evolution_is_that_of_so_many_measurements() -> None:
    """T (T - 2) of a softmax that hides the diagonal."""
    seen, omap = 3, smisym.overlap_map(MODEL, samples=256)
    expected = smisym.curve(smisym.compile(SMI("z1", 1, rank_ratio=0.5)), [0.5])[0].value.Q
    np.testing.assert_allclose(smisym.curve(omap, [0.5 / seen])[0].value.Q, expected, atol=1e-6)
    assert smisym.perfect_recovery(omap).value[0].alpha == pytest.approx(0.75 / seen, rel=1e-9)


def test_linear_scores_have_a_chart() -> None:
    """T (T - 1) measurements, and fewer where a mask hides more."""
    fewer = ((False, True, True), (False, False, True), (True, False, False))
    for mask, count in ((OTHERS, 6), (fewer, 4)):
        layer = Attention(rank_ratio=0.5, tied=False, mask=mask, activation="linear", beta=2.0)
        for output in ("attention", "sequence"):
            model = smisym.compile(Architecture(3, (layer,), output=output))
            assert model.level_set is not None and model.level_set.dimension == count
            misfit = mapping_misfit(model, 20, 0)
            assert misfit is not None and misfit < 1


def test_rows_are_matrices_and_projections_are_transposes() -> None:
    prior, rng, dim = UntiedRank(0.5), np.random.default_rng(1), 9
    W = prior.draw(dim, rng)
    X, g = rng.standard_normal((7 * 3, dim)), rng.standard_normal((7, 1, 6))
    z = prior.project(W, X, 3)
    assert np.sum(z * g) == pytest.approx(np.sum(W * prior.back_project(g, X)), rel=1e-12)
    S = prior.matrix(W)
    assert np.linalg.matrix_rank(S) == 4 and np.sum(prior.matrix(prior.draw(90, rng)) ** 2) / 90 == pytest.approx(
        1, 0.1
    )
    for sample, x in enumerate(X.reshape(7, 3, dim)):
        np.testing.assert_allclose(z[sample, 0], (x @ S @ x.T / math.sqrt(dim))[~np.eye(3, dtype=bool)], rtol=1e-10)
    assert prior.tokens(6) == 3 and prior.samples(0.1, 50) == 250 and prior.alpha(250, 50) == pytest.approx(0.1)
    assert prior.left_of(0.3) == RectangularRank(0.5).left_of(0.3)


def test_gamp_follows_state_evolution_in_both_parts() -> None:
    """d = 60, alpha = 0.5 / 3, two runs: errors of the symmetric and of the antisymmetric part are one."""
    alpha, dim, errors = 0.5 / 3, 60, []
    expected = 1 - float(smisym.curve(MODEL, [alpha])[0].value.Q[0, 0])
    assert isinstance(MODEL.prior, UntiedRank)
    for seed in range(2):
        data = smisym.generate(MODEL, dim, alpha, np.random.default_rng(seed), normalised=True)
        run = smisym.gamp(MODEL, data.X, data.y, W=data.W, damping=0.4, max_steps=40, seed=seed)
        off = MODEL.prior.matrix(run.value.W_hat - data.W)
        errors.append([np.sum((off + sign * off.T) ** 2) / 2 / dim for sign in (1, -1)])
    symmetric, antisymmetric = np.mean(errors, axis=0)
    assert symmetric == pytest.approx(expected, abs=0.03)
    assert antisymmetric == pytest.approx(expected, abs=0.03)
