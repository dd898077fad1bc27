"""An attention layer with a hard phase: it shows only the sizes of scores, the fields up to a sign of each token.

With the activation |s|, one tied layer of rank one shows z_t z_t' up to its sign, that is |z_t| of every token t: phase
retrieval with T outputs a sample, whose alpha is T times smaller.  There the optimum is perfect from 1 on, and what
begins from nothing rests below until 1.1293 (tests/theory/test_phases.py).
"""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention

LAYER = Architecture(2, (Attention(activation="abs(s)"),))
SIZES = SMI(("abs(z1[1])", "abs(z1[2])"), 1, tokens=2)


def test_the_layer_shows_sizes_and_nothing_else() -> None:
    link = smisym.compile(LAYER).link
    Z = np.random.default_rng(0).standard_normal((50, 1, 2))
    turned = Z * np.array([1.0, -1.0])
    np.testing.assert_allclose(link(turned), link(Z), rtol=1e-12)
    size = np.abs(Z[:, 0])
    np.testing.assert_allclose(link(Z), size[:, :, None] * size[:, None, :], rtol=1e-12)


def test_its_map_is_that_of_two_sizes() -> None:
    Q = np.array([[0.8]])
    layer, sizes = (
        smisym.overlap_map(smisym.compile(declared), samples=64, scrambles=2, workers=1) for declared in (LAYER, SIZES)
    )
    for one, other in zip(layer.evaluate(Q), sizes.evaluate(Q), strict=True):
        assert one.E[0, 0] == pytest.approx(other.E[0, 0], rel=2e-3)


def test_its_hard_phase_is_that_of_one_size_at_alpha_over_two() -> None:
    stable, reached = smisym.perfect_recovery(smisym.compile(SIZES), samples=2048, workers=1).value
    assert stable.alpha == 0.5
    assert abs(reached.alpha - 1.1293 / 2) < 5 * reached.error + 2e-3
    assert reached.alpha - 5 * reached.error > stable.alpha + 0.02
    # Counting sees the same of the layer itself.
    assert smisym.compile(LAYER).jacobian_ranks(np.random.default_rng(0))(np.eye(1))[0] == 2


@pytest.mark.parametrize(("rank", "tokens", "hard"), [(3, 3, True), (3, 4, False)])
def test_a_linear_head_whose_rank_is_that_of_its_scores_has_one(rank: int, tokens: int, hard: bool) -> None:
    """The Gram matrix of r fields on r tokens leaves the sign of a determinant open, as |z| does of one."""
    layer = Architecture(tokens, (Attention(rank=rank, activation="linear"),))
    stable, reached = smisym.perfect_recovery(smisym.compile(layer), samples=8192, workers=1).value
    assert stable.alpha == pytest.approx(rank / (tokens * (tokens + 1) / 2 - (tokens - rank) * (tokens - rank + 1) / 2))
    if hard:
        assert reached.alpha - 4 * reached.error > stable.alpha
    else:
        assert abs(reached.alpha - stable.alpha) < 4 * reached.error + 1e-6
