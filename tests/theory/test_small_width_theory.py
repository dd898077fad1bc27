"""Attention of small width: thresholds by counting and in closed form, curves, and the limit of finite rank ratios."""

from __future__ import annotations

import math

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention, Result
from smisym.theory.told import first_told


def network(tokens: int = 2, **options: object) -> Architecture:
    return Architecture(tokens, (Attention(rank_ratio=options.pop("rho", 0.0), **options),))  # type: ignore[arg-type]


@pytest.mark.parametrize(("tokens", "activation"), [(2, "softmax"), (4, "softmax"), (2, "linear")])
def test_linear_measurements(tokens: int, activation: str) -> None:
    """K of them a sample: weak recovery at 1 / 2K, perfect recovery at 1 / K, and between them kappa (2 - kappa)."""
    K = tokens * (tokens + 1) // 2 - (activation == "softmax")
    model = smisym.compile(network(tokens, activation=activation))
    omap = smisym.overlap_map(model)
    found = smisym.weak_recovery(omap)
    (weak,) = found.value
    assert found.result is Result.SUCCESS
    assert (weak.kind, weak.alpha) == ("weak", pytest.approx(1 / (2 * K), rel=1e-9))
    assert abs(found.checks["growth"][0]) < 1e-9
    closed = smisym.closed_form(model)
    assert closed is not None
    assert float(closed) == 1 / (2 * K)
    stable, reached = smisym.perfect_recovery(omap).value
    assert stable.alpha == pytest.approx(1 / K, rel=1e-12)
    assert reached.alpha == pytest.approx(1 / K, rel=1e-2)
    kappas = np.array([0.5, 0.99, 1.1, 1.5, 1.9])
    for kappa, point in zip(kappas, smisym.curve(omap, kappas / (2 * K)), strict=True):
        assert point.result.ok
        expected = kappa * (2 - kappa) if kappa > 1 else 1.0
        assert 1 - point.value.Q[0, 0] == pytest.approx(expected, abs=1e-8)


def test_hardmax_on_two_tokens() -> None:
    """E(0) = 2 kappa^2 (8 / 3p + 4 / 3p') with kappa = phi(0) / 2 over the four outputs, of probability p = 1/4 +-
    arcsin(1/3) / 2 pi; errors at alpha = 0.45, 0.6, 1, 2, 5 from a program of our own."""
    omap = smisym.overlap_map(smisym.compile(network(activation="hardmax")), samples=16384)
    kappa, angle = 0.5 / math.sqrt(2 * math.pi), math.asin(1 / 3) / (2 * math.pi)
    E = 2 * kappa**2 * (8 / (3 * (0.25 + angle)) + 4 / (3 * (0.25 - angle)))
    (weak,) = smisym.weak_recovery(omap).value
    assert weak.alpha == pytest.approx(1 / (2 * E), rel=1e-10)
    assert weak.alpha == pytest.approx(0.40341, abs=5e-6)
    assert weak.samples is None
    assert smisym.perfect_recovery(omap).value[0].alpha == math.inf
    for alpha, error in ((0.35, 1.0), (0.45, 0.988), (0.6, 0.844), (1.0, 0.430), (2.0, 0.120), (5.0, 0.0193)):
        point = smisym.state_evolution(omap, alpha)
        assert point.result.ok
        assert 1 - point.value.Q[0, 0] == pytest.approx(error, abs=6e-4 + 4 * point.value.Q_error[0, 0])


def test_hardmax_close_to_all_goes_with_the_square_of_alpha() -> None:
    """What is left has a fixed point however little it is: steps as of a map that shrinks it for ever went round."""
    omap, left = smisym.overlap_map(smisym.compile(network(activation="hardmax"))), {}
    for alpha in (10.0, 20.0):
        point = smisym.state_evolution(omap, alpha)
        assert point.result is Result.SUCCESS
        left[alpha] = 1 - point.value.Q[0, 0]
        assert left[alpha] == pytest.approx(0.49 / alpha**2, abs=5 * point.value.Q_error[0, 0])
    assert left[20.0] < 0.3 * left[10.0]


def test_finite_ratios_approach_it() -> None:
    """At alpha / rho = 0.35, softmax on two tokens: 1.4 (2 - 1.4)."""
    gaps = []
    for rho in (0.1, 0.01, 0.001):
        point = smisym.curve(smisym.compile(network(rho=rho)), [0.35 * rho])[0]
        gaps.append(1 - float(point.value.Q[0, 0]) - 1.4 * 0.6)
    assert abs(gaps[0]) > abs(gaps[1]) > abs(gaps[2])
    assert abs(gaps[2]) < 0.01


def test_what_shows_nothing_at_first_is_hard() -> None:
    """(x S x^T)^2 where nothing is known: growth from small overlaps is not heard."""
    found = smisym.weak_recovery(smisym.compile(network(activation="s**2")), samples=64, scrambles=2)
    assert found.result is Result.SUCCESS
    assert [(t.kind, t.alpha, t.order) for t in found.value] == [("hard", math.inf, 2)]


def test_free_entropy_is_highest_at_the_fixed_point() -> None:
    omap, alpha = smisym.overlap_map(smisym.compile(network()), samples=4096), 0.35
    q = float(smisym.curve(omap, [alpha])[0].value.Q[0, 0])
    at = {d: smisym.free_entropy(omap, np.array([[q + d]]), alpha).value for d in (-0.1, -0.05, 0.0, 0.05, 0.1)}
    assert at[0.0] > max(at[-0.05], at[0.05]) > max(at[-0.1], at[0.1])


def test_hardmax_on_three_tokens_is_counted() -> None:
    """E(0) over its outputs by means of draws, against plain draws of symmetric scores."""
    alpha, error = first_told(smisym.compile(network(3, activation="hardmax")), (), 0)
    rng, first, second = np.random.default_rng(5), *np.triu_indices(3)
    z = rng.standard_normal((2, 200000, 6))
    h = np.empty((2, 200000, 3, 3))
    h[..., first, second] = h[..., second, first] = np.where(first == second, math.sqrt(2), 1.0) * z
    kind = h.argmax(axis=-1) @ [9, 3, 1]
    kinds, counts = np.unique(kind, return_counts=True)
    means = [np.array([z[s][kind[s] == k].mean(axis=0) for k in kinds]) for s in range(2)]
    E = 2 * float(counts / kind.size @ (means[0] * means[1]).sum(axis=1))
    assert len(kinds) == 25  # no three scores that are each the larger one of the next
    assert alpha == pytest.approx(1 / E, rel=1e-2)
    assert 0 < error < 1e-3 * alpha
