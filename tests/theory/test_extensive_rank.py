"""Attention of extensive rank: state evolution against published curves, single equations and counting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

import smisym
from smisym import Architecture, Attention
from smisym.prior.spectrum import NoisyWishart
from smisym.run.records import curve


def network(tokens: int, rho: float, **options: object) -> Architecture:
    noise = float(options.pop("noise", 0.0))  # type: ignore[arg-type]
    return Architecture(tokens, (Attention(rank_ratio=rho, **options),), noise=noise)  # type: ignore[arg-type]


# alpha and mmse of "Bayes optimal learning of attention-indexed models" (arXiv 2506.01582), softmax, T = 2.
PUBLISHED = {
    0.1: ((0.0086, 0.9495), (0.0164, 0.8625), (0.0242, 0.7328), (0.0319, 0.5717), (0.0397, 0.3642)),
    0.5: ((0.0338, 0.8272), (0.0647, 0.6247), (0.0956, 0.4199), (0.1257, 0.2434), (0.1566, 0.1016)),
    1.0: ((0.0451, 0.7903), (0.0863, 0.5719), (0.1275, 0.3631), (0.1677, 0.1905), (0.2088, 0.0614)),
    2.0: ((0.0451, 0.8056), (0.0863, 0.6146), (0.1275, 0.4266), (0.1677, 0.2579), (0.2088, 0.1100)),
}


@pytest.mark.parametrize("rho", PUBLISHED)
def test_softmax_on_two_tokens_is_as_published(rho: float) -> None:
    """To the digits of the alphas that were printed; and to 1e-8 the single equation F(Delta) = 4 alpha Delta."""
    alphas, errors = np.array(PUBLISHED[rho]).T
    found = smisym.curve(smisym.compile(network(2, rho)), alphas)
    for alpha, error, point in zip(alphas, errors, found, strict=True):
        assert point.result.ok
        left = 1 - float(point.value.Q[0, 0])
        assert left == pytest.approx(error, abs=1e-3 if rho < 0.2 else 4e-4)
        noise = brentq(lambda x, a=alpha: math.log(NoisyWishart(rho, math.exp(x)).left) - math.log(4 * a) - x, -9, 9)
        assert left == pytest.approx(4 * alpha * math.exp(noise), abs=1e-7)


def test_more_tokens_are_more_measurements() -> None:
    """All that counts is alpha times the measurements of a sample: T (T + 1) / 2 of linear scores, of softmax one less,
    whatever the temperature."""
    told, curves = 0.3, []
    for tokens, options in ((2, {}), (3, {"beta": 3.0}), (5, {}), (3, {"activation": "linear"})):
        seen = tokens * (tokens + 1) / 2 - (options.get("activation") != "linear")
        model = smisym.compile(network(tokens, 0.5, **options))
        curves.append(smisym.curve(model, [told / seen])[0].value.Q[0, 0])
    np.testing.assert_allclose(curves, curves[0], atol=1e-6)


@pytest.mark.parametrize(
    ("tokens", "rho", "options"),
    [(2, 0.1, {}), (2, 2.0, {}), (4, 0.5, {}), (3, 0.5, {"activation": "linear"}), (2, 1.0, {"activation": "linear"})],
)
def test_everything_is_known_from_where_counting_says(tokens: int, rho: float, options: dict[str, str]) -> None:
    """(2 rho - rho^2) d^2 / 2 free numbers, or d^2 / 2, over the measurements of a sample; and from the start on."""
    seen = tokens * (tokens + 1) - (0 if options else 2)
    counted = (1 - max(1 - rho, 0) ** 2) / seen
    omap = smisym.overlap_map(smisym.compile(network(tokens, rho, **options)))
    stable, reached = smisym.perfect_recovery(omap).value
    assert (stable.kind, reached.kind) == ("perfect_stable", "perfect_amp")
    assert stable.alpha == pytest.approx(counted, rel=1e-12)
    assert reached.alpha == pytest.approx(counted, rel=1e-2)
    (first,) = smisym.weak_recovery(omap).value
    assert (first.kind, first.alpha) == ("trivial", 0.0)
    assert smisym.closed_form(omap.model) is None


def test_hardmax_on_two_tokens() -> None:
    """mmse at rho = 0.5, as AMP has it: the published 0.803, 0.295, 0.049 come from a density in place of the
    derivative of the distribution function."""
    omap = smisym.overlap_map(smisym.compile(network(2, 0.5, activation="hardmax")), samples=4096)
    for alpha, error in ((0.1416, 0.642), (1.106, 0.0673)):
        found = smisym.state_evolution(omap, alpha)
        assert found.result.ok
        assert 1 - found.value.Q[0, 0] == pytest.approx(error, rel=0.01)
    (stable, _) = smisym.perfect_recovery(omap).value
    assert stable.alpha == math.inf


@pytest.mark.slow
def test_hardmax_far_out() -> None:
    omap = smisym.overlap_map(smisym.compile(network(2, 0.5, activation="hardmax")), samples=65536)
    found = smisym.state_evolution(omap, 9.52)
    assert 1 - found.value.Q[0, 0] == pytest.approx(0.0011, rel=0.05)
    # The error falls like alpha^-2.
    errors = [1 - smisym.state_evolution(omap, alpha).value.Q[0, 0] for alpha in (8.0, 16.0)]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)


def test_noise_on_linear_scores() -> None:
    """Each score is seen twice: h_12 in two entries, and h_aa = sqrt(2) z_aa: E = (T (T + 1) / 2) / (V + Delta / 2)."""
    rho, noise, alpha = 0.5, 0.1, 0.1
    omap = smisym.overlap_map(smisym.compile(network(2, rho, activation="linear", noise=noise)), samples=256)
    E, error = omap(np.array([[0.4]]))
    assert 2 * 3 / (0.6 + noise / 2) == pytest.approx(E[0, 0], abs=5 * error[0, 0] + 2e-3)
    found = smisym.state_evolution(omap, alpha)
    left = brentq(lambda V: NoisyWishart(rho, (V + noise / 2) / (6 * alpha)).left - V, 1e-6, 1.0)
    assert 1 - found.value.Q[0, 0] == pytest.approx(left, abs=5 * found.value.Q_error[0, 0] + 1e-3)


def test_the_free_entropy_is_highest_at_the_fixed_point() -> None:
    """Its derivative is (2 alpha E_of_one - Q_hat) / 4: zero at the fixed point and of one sign on either side."""
    omap = smisym.overlap_map(smisym.compile(network(2, 0.5)), samples=4096)
    alpha = 0.1
    q = float(smisym.curve(omap, [alpha])[0].value.Q[0, 0])
    at = {d: smisym.free_entropy(omap, np.array([[q + d]]), alpha).value for d in (-0.2, -0.1, 0.0, 0.1, 0.2)}
    assert at[0.0] > max(at[-0.1], at[0.1]) > max(at[-0.2], at[0.2]) - 0.1
    assert smisym.free_entropy(omap, np.eye(1), 0.2).value == math.inf
    assert smisym.free_entropy(omap, np.eye(1), 0.18).value == -math.inf


def test_points_of_a_curve_carry_the_error_of_each_layer() -> None:
    (nothing, some) = curve(smisym.overlap_map(smisym.compile(network(2, 0.5)), samples=1024), [0.0, 0.1])
    assert nothing["mmse"] == [1.0]
    assert some["mmse"] == pytest.approx([1 - some["Q"][0][0]])
    two = smisym.compile(Architecture(2, (Attention(rank=2), Attention())))
    point = curve(smisym.overlap_map(two, samples=64, scrambles=2), [0.0])[0]
    assert point["mmse"] == [1.0, 1.0]


def test_an_even_activation_does_not_hide_the_sign_of_a_matrix() -> None:
    """(x S x^T)^2 is blind to the sign of the scores, but S is positive: its mean tells them apart."""
    model = smisym.compile(network(2, 0.5, activation="s**2"))
    assert len(model.symmetry.elements) == 1
    observed, omega = model.observe(np.array([[[0.7, 0.4, 1.1]]])), np.array([[[0.5, 0.2, 0.9]]])
    mean = model.channel.moments(observed, omega, np.full((1, 1), 0.05)).mean
    np.testing.assert_allclose(mean[0, 0], [0.7, 0.4, 1.1], atol=0.05)  # not nothing, as of all signs alike


@pytest.mark.parametrize("V", [0.6, 1e-4])
def test_the_free_entropy_of_a_field_that_is_seen_is_exact(V: float) -> None:
    """E log N(y; omega, V), whatever the points are."""
    found = smisym.free_entropy(smisym.compile(smisym.SMI("z1", 1)), np.array([[1 - V]]), 0.7)
    exact = (1 - V) / 2 + math.log(V) / 2 - 0.7 * (math.log(2 * math.pi * V) + 1) / 2
    assert found.value == pytest.approx(exact, abs=1e-12) and found.statistical_error < 1e-12
