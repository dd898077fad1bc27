"""Two layers of extensive rank: where overlaps of their matrices are uncoupled, thresholds, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention
from smisym.base.errors import InputError


def layers(*ratios: float, **last: object) -> tuple[Attention, ...]:
    *before, ratio = ratios
    return (*(Attention(rank_ratio=r) for r in before), Attention(rank_ratio=ratio, **last))  # type: ignore[arg-type]


def test_overlaps_between_layers_vanish_where_signs_only_relabel() -> None:
    """At Q = 0 and elsewhere the mean of g_1 g_2 is no more than its error, and counting says where all is known."""
    model = smisym.compile(Architecture(2, layers(0.5, 2.0)))
    assert model.symmetry.apart
    omap = smisym.overlap_map(model, samples=64, scrambles=2, rtol=0.1)
    for Q in (np.zeros((2, 2)), np.diag([0.3, 0.6])):
        E, _ = omap(Q)
        assert E[0, 1] == 0
        assert (np.diag(E) > 0).all()
    assert [t.kind for t in smisym.weak_recovery(omap).value] == ["trivial", "trivial"]
    # 1 - (1 - rho)^2 of each, over two measurements a sample that count twice.
    assert smisym.theory.stability.counting(model)[1] == pytest.approx((0.75 + 1.0) / 4)


@pytest.mark.parametrize(
    ("declared", "given"),
    [
        (Architecture(2, layers(0.5, 0.5), output="sequence"), "coupled"),
        (Architecture(2, layers(0.5, 0.5, 0.5)), "coupled"),
        (Architecture(3, layers(0.5, 0.5, activation="hardmax")), "coupled"),
    ],
)
def test_coupled_matrices_are_refused(declared: Architecture, given: str) -> None:
    with pytest.raises(InputError, match=given) as error:
        smisym.compile(declared)
    assert "not known" in str(error.value)


def test_widths_of_different_orders_are_refused() -> None:
    for mixed in ((Attention(), Attention(rank_ratio=0.5)), layers(0.0, 0.0), layers(0.5, 0.0)):
        with pytest.raises(InputError, match="layers"):
            Architecture(2, mixed)


def test_the_first_layer_does_not_matter_to_what_the_last_one_shows_of_itself() -> None:
    """Linear scores on top of a first layer whose mixing is the identity times a number: one layer, rescaled."""
    below = Attention(rank_ratio=0.5, activation="linear", beta=1e-9)
    model = smisym.compile(Architecture(2, (below, Attention(rank_ratio=0.5))))
    one = smisym.compile(Architecture(2, layers(0.5)))
    rng, V = np.random.default_rng(0), 0.4
    omega = rng.standard_normal((4, 2, 3))
    Z = omega + np.sqrt(V) * rng.standard_normal(omega.shape)
    g = model.channel.g_out(model.observe(Z), omega, V * np.eye(2), rtol=1e-3)
    alone = one.channel.g_out(one.observe(Z[:, 1:]), omega[:, 1:], V * np.eye(1))
    np.testing.assert_allclose(g[:, 1:], alone, atol=5e-2)
