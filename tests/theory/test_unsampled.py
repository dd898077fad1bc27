"""First thresholds without samples of posteriors: one network of several, and outputs that are counted."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention
from smisym.link.separate import networks_of
from smisym.theory.alone import network_alone, threshold_alone
from smisym.theory.counted import are_counted, counted_threshold

A = Attention


def test_networks_side_by_side_are_told_by_their_data_flow() -> None:
    """Heads of one layer are separate, also above split ones; heads that are summed, and layers, are not."""
    two = smisym.compile(Architecture(2, (A(heads=2, tied=False),)))
    parts = networks_of(two.link)
    assert sorted(parts[0].rows + parts[1].rows) == [0, 1, 2, 3]
    assert len(networks_of(smisym.compile(Architecture(2, (A(heads=2), A(heads=2)), head_layout="split")).link)) == 2
    for other in (
        Architecture(2, (A(heads=2, readout=(1.0, 0.5)),), combine="sum", noise=0.05),
        Architecture(2, (A(heads=2), A(heads=2))),
        Architecture(2, (A(), A())),
    ):
        assert len(networks_of(smisym.compile(other).link)) == 1
    # Each is the whole one with the other's fields put anywhere.
    Z = np.random.default_rng(0).standard_normal((8, 4, 2))
    for k, part in enumerate(parts):
        own = smisym.compile(part.program)
        y = two.link(Z)
        assert any(np.allclose(own.link(Z[:, list(part.rows)]), y[:, i], rtol=1e-12, atol=0) for i in (k, 1 - k))


@pytest.mark.parametrize(
    ("declared", "parts", "exact"),
    [
        (Architecture(2, (A(heads=2),)), [0], 1 / 6),
        (Architecture(2, (A(heads=2),), head_layout="split"), [0], 1 / 12),
        (Architecture(2, (A(heads=2, tied=False),)), [0, 1], np.sqrt(5) - 2),
    ],
)
def test_one_network_grows_as_all_do(declared: Architecture, parts: list[int], exact: float) -> None:
    found = threshold_alone(smisym.compile(declared), parts)
    assert found is not None
    alpha, error = found
    assert abs(alpha - exact) <= error
    assert error < 1e-3 * alpha


@pytest.mark.slow
def test_one_network_alone_agrees_with_samples_of_the_whole() -> None:
    """Two split heads of two linear layers: both layers' rates, by samples of the whole network."""
    model = smisym.compile(Architecture(2, (A(heads=2, activation="linear"),) * 2, head_layout="split"))
    sampled = smisym.weak_recovery(model, samples=256, stages=1, quadrature=False).value[0]
    both = [threshold_alone(model, [part]) for part in (0, 1)]
    least = min(one[0] for one in both if one is not None)
    assert abs(sampled.alpha - least) < 4.5 * sampled.error


def test_weights_of_other_laws_and_single_networks_are_left_alone() -> None:
    assert network_alone(smisym.compile(Architecture(2, (A(),))), [0]) is None


@pytest.mark.parametrize(
    ("declared", "exact"),
    [
        (Architecture(2, (A(activation="hardmax"),)), np.pi**2 / 12),
        (SMI("sign(z1*z2)", 2), np.pi**2 / 4),
        (SMI("sign(abs(z1) - 1)", 1), None),
    ],
)
def test_outputs_that_are_few_are_counted(declared: Architecture | SMI, exact: float | None) -> None:
    """Integrals over cones; and P(|z| < 1) = p with E[z^2 | |z| < 1] = 1 - 2 phi(1) / p."""
    model = smisym.compile(declared)
    assert are_counted(model)
    alpha, error = counted_threshold(model, [0])
    if exact is None:
        inside, density = 0.6826894921370859, np.exp(-0.5) / np.sqrt(2 * np.pi)
        exact = inside * (1 - inside) / (2 * density) ** 2
    assert abs(alpha - exact) < 4.5 * error + 1e-7
    assert error < 1e-3 * alpha
    found = smisym.weak_recovery(model, samples=512, stages=1).value[0]
    assert (found.alpha, found.error) == (alpha, error)


def test_what_is_not_few_is_not_counted() -> None:
    assert not are_counted(smisym.compile(SMI("abs(z1)", 1)))
    assert not are_counted(smisym.compile(Architecture(2, (A(activation="hardmax"),), noise=0.05)))
