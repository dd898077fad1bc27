"""The oracles against one another: what the other tests trust must agree where methods share nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from oracles.description import Layer, Network
from oracles.fields import forward, on_fields
from oracles.quadrature import DIGITS, one_layer, scores_from_output, scores_of_last_layer, two_layers
from oracles.sampling import by_importance, by_kernel, draw, scores_roots
from oracles.thresholds import last_layer_known, lower_grid, lower_sobol, susceptibilities
from oracles.tokens import on_tokens

PLAIN = Layer()
TWO = Network(2, (PLAIN, PLAIN))
REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "gout_reference.json").read_text())["cases"]


def drawn(network: Network, V: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(Z, omega), each (P, T), as state evolution draws them at Q = I - V."""
    rng = np.random.default_rng(seed)
    omega = draw(np.zeros((network.fields, network.tokens)), np.eye(network.fields) - V, 1, rng)[:, :, 0]
    return draw(omega, V, 1, rng)[:, :, 0], omega


def generic(network: Network, V: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The first draw whose output is far from saturation and from the edge of the image, where kernels are blind."""
    off = ~np.eye(network.tokens, dtype=bool)
    while True:
        Z, omega = drawn(network, V, seed)
        y = forward(Z[:, :, None], network)[0][:, :, 0]
        if y[off].min() > 0.1 and (y + y.T)[off].max() < 0.85 and y.diagonal().min() > 0.2:
            return Z, omega
        seed += 1000


# ------------------------------------------------------------------------------------------------------- the network


def test_the_network_on_tokens_is_the_network_on_fields() -> None:
    rng = np.random.default_rng(0)
    network = Network(4, (Layer(skip=0.5, beta=0.7), Layer(activation="linear"), PLAIN))
    X, W = rng.standard_normal((4, 30)), rng.standard_normal((3, 30))
    Z = W @ X.T / np.sqrt(30)
    reached = forward(Z[:, :, None], network)[0][:, :, 0]
    np.testing.assert_allclose(reached, on_tokens(network, X, W), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(reached.ravel(), on_fields(network, Z[None])[0], rtol=1e-12, atol=1e-14)


def test_extended_precision_has_more_digits() -> None:
    rng = np.random.default_rng(1)
    X, W = rng.standard_normal((3, 10)), rng.standard_normal((2, 10))
    network = Network(3, (PLAIN, PLAIN))
    extended = on_tokens(network, X, W, np.longdouble)
    assert extended.dtype == np.longdouble
    assert 0 < abs(extended - on_tokens(network, X, W)).max() < 1e-13
    assert abs(extended.sum(axis=1) - 1).max() < 1e-18


@pytest.mark.parametrize(
    "layer", [PLAIN, Layer(beta=3.0), Layer(activation="linear")], ids=["softmax", "beta 3", "linear"]
)
@pytest.mark.parametrize("tokens", [2, 3, 5])
def test_the_output_shows_the_scores_up_to_sign_and_nothing_less(layer: Layer, tokens: int) -> None:
    u = 0.7 * np.random.default_rng(tokens).standard_normal(tokens)
    y = forward(u[None, :, None], Network(tokens, (layer,)))[0][:, :, 0]
    roots = scores_roots(y, layer, np.random.default_rng(2))
    assert len(roots) == 2
    distance = abs(roots[:, None] - np.stack([u, -u])).max(axis=2)
    assert distance.min(axis=1).max() < 1e-7


# --------------------------------------------------------------------------------------------- quadrature, L = 2, T = 2


@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: str(case["seed"]))
def test_quadrature_reproduces_the_reference(case: dict) -> None:
    V = np.diag(1 - np.array(case["q"]))
    u = scores_of_last_layer(np.array(case["Z"]), TWO)
    found = two_layers(u, np.array(case["omega"]), V, PLAIN)
    np.testing.assert_allclose(found.g, case["g_out"], atol=1e-12, rtol=1e-12)
    # From the float output, up to the digits that it keeps.
    u_seen = scores_from_output(np.array(case["y"]), 1.0)
    np.testing.assert_allclose(u_seen * np.sign(u_seen[0] * u[0]), u, rtol=1e-9)


@pytest.mark.parametrize("index", [1, 2])
def test_thirty_digits_agree_with_floats_and_converge_beyond_them(index: int) -> None:
    case = REFERENCE[index]
    V, omega = np.diag(1 - np.array(case["q"])), np.array(case["omega"])
    u = scores_of_last_layer(np.array(case["Z"]), TWO, DIGITS)
    digits = two_layers(u, omega, V, PLAIN, digits=30)
    floats = two_layers(u.astype(float), omega, V, PLAIN)
    assert digits.accuracy < 1e-15
    np.testing.assert_allclose(digits.g, floats.g, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(digits.log_partition, floats.log_partition, rtol=1e-13)


@pytest.mark.parametrize(
    "V", [np.diag([1.0, 1e-6]), np.diag([0.5, 1e-5]), 1e-8 * np.eye(2)], ids=["anisotropic", "half", "small"]
)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("first", [PLAIN, Layer(skip=0.5, beta=2.0)], ids=["plain", "c 0.5, beta 2"])
def test_two_charts_agree(V: np.ndarray, seed: int, first: Layer) -> None:
    """Free first field or free last field: different integrands, Jacobians and nodes, one posterior."""
    network = Network(2, (first, PLAIN))
    Z, omega = drawn(network, V, seed)
    u = scores_of_last_layer(Z, network)
    one = two_layers(u, omega, V, first)
    two = two_layers(u, omega, V, first, over="last", tolerance=1e-11)
    deviation = np.sqrt(np.diag(V))[:, None]
    np.testing.assert_allclose(two.g * deviation, one.g * deviation, atol=1e-10)
    np.testing.assert_allclose(two.log_partition, one.log_partition, atol=1e-10)
    scale = np.einsum("p,q->pq", deviation[:, 0], deviation[:, 0])[:, None, :, None]
    np.testing.assert_allclose(two.cov / scale, one.cov / scale, atol=1e-9)


def test_thin_curves_are_not_missed() -> None:
    """A posterior on a thin curve: the values are those of a plain sum over 7e8 nodes of the plane."""
    Z = np.array([[0.38545156, 0.30787001], [0.51025323, 2.06374173]])
    omega = np.array([[0.0, 0.0], [0.50979035, 2.06560638]])
    found = two_layers(scores_of_last_layer(Z, TWO), omega, np.diag([1.0, 1e-6]), PLAIN)
    assert found.accuracy < 1e-12
    np.testing.assert_allclose(found.g[1], [346.4529, -576.7034], rtol=2e-4)
    np.testing.assert_allclose(found.log_partition, 4.88042, atol=2e-3)


def test_a_rule_that_cannot_converge_raises() -> None:
    Z, omega = drawn(TWO, np.diag([0.5, 0.9]), 0)
    with pytest.raises(ArithmeticError):
        u = scores_of_last_layer(Z, TWO)
        two_layers(u, omega, np.diag([0.5, 0.9]), PLAIN, over="last", max_nodes=300_000)


# ------------------------------------------------------------------------------------------------------- Monte Carlo


@pytest.mark.parametrize("seed", range(4))
def test_importance_sampling_agrees_with_quadrature(seed: int) -> None:
    V = np.array([[0.6, 0.15], [0.15, 0.5]])
    first, last = (PLAIN, PLAIN) if seed % 2 else (Layer(skip=0.3, beta=2.0), Layer(activation="linear"))
    network = Network(2, (first, last))
    Z, omega = drawn(network, V, seed)
    exact = two_layers(scores_of_last_layer(Z, network), omega, V, first)
    sampled = by_importance(Z, omega, V, network, np.random.default_rng(seed), samples=100_000)
    assert sampled.samples > 1000
    assert (abs(sampled.mean - exact.mean) < 4.5 * sampled.error).all()
    assert (abs(sampled.g - exact.g) < 4.5 * sampled.g_error).all()
    assert abs(sampled.log_partition - exact.log_partition) < 4.5 * sampled.log_partition_error


@pytest.mark.parametrize("tokens", [2, 3, 6])
def test_importance_sampling_agrees_with_the_closed_form(tokens: int) -> None:
    V = np.array([[0.4]])
    network = Network(tokens, (PLAIN,))
    Z, omega = drawn(network, V, tokens)
    exact = one_layer(Z[0], omega[0], 0.4)
    sampled = by_importance(Z, omega, V, network, np.random.default_rng(0), samples=2)
    np.testing.assert_allclose(sampled.mean, exact.mean, atol=1e-7)
    np.testing.assert_allclose(sampled.log_partition, exact.log_partition, atol=1e-7)


@pytest.mark.parametrize(
    ("depth", "tokens", "bandwidth", "samples"),
    [(1, 2, 0.02, 10**7), (1, 3, 0.03, 10**7), (2, 2, 0.02, 10**7), (3, 2, 0.025, 4 * 10**6), (2, 3, 0.035, 2 * 10**7)],
)
def test_inverting_nothing_agrees_with_exact_conditioning(
    depth: int, tokens: int, bandwidth: float, samples: int
) -> None:
    network = Network(tokens, (PLAIN,) * depth)
    V = 0.6 * np.eye(depth)
    Z, omega = generic(network, V, 1)
    rng = np.random.default_rng(5)
    blind = by_kernel(Z, omega, V, network, rng, samples=samples, bandwidth=bandwidth)
    exact = by_importance(Z, omega, V, network, rng, samples=100_000)
    assert blind.samples > 1000
    assert blind.error.max() < 0.03
    assert (abs(blind.mean - exact.mean) < 4 * np.hypot(blind.error, exact.error)).all()


# -------------------------------------------------------------------------------------------------------- thresholds


def test_first_thresholds_of_two_layers() -> None:
    coarse = susceptibilities(TWO, lower_grid(120), outer=32)
    fine = susceptibilities(TWO, lower_grid(160), outer=40)
    np.testing.assert_allclose(coarse, fine, rtol=1e-8)
    np.testing.assert_allclose(1 / fine, [6.157, 0.185478], rtol=2e-5)


def test_sampled_lower_layers_agree_with_the_grid() -> None:
    exact = susceptibilities(TWO, lower_grid(120), outer=32)
    found = np.array([susceptibilities(TWO, lower_sobol(1, 2, 12, s), outer=32) for s in range(4)])
    error = found.std(axis=0, ddof=1) / 2
    assert (abs(found.mean(axis=0) - exact) < 5 * error + 1e-4 * exact).all()


def test_susceptibility_of_a_sampled_posterior() -> None:
    """chi_L = E (z . z')^2 - T with z, z' two draws of one posterior: by brute force, L = 2, T = 2."""
    rng = np.random.default_rng(3)
    truth = draw(np.zeros((2, 2)), np.eye(2), 150, rng)
    values = []
    for Z in np.moveaxis(truth, 2, 0):
        u = scores_of_last_layer(Z, TWO)
        mean_square = two_layers(u, np.zeros((2, 2)), np.eye(2), PLAIN, tolerance=1e-6).cov[1, :, 1, :]
        values.append(((mean_square - np.eye(2)) ** 2).sum())
    exact = susceptibilities(TWO, lower_grid(120), outer=32)[1]
    assert abs(np.mean(values) - exact) < 4 * np.std(values) / np.sqrt(150)
    assert np.std(values) / np.sqrt(150) < 0.3 * exact


@pytest.mark.slow
def test_second_threshold_of_two_layers() -> None:
    """alpha chi_1 = 1 on the branch where only the last layer is known: at q = 0.97365, alpha = 0.7196."""
    found = last_layer_known(PLAIN, 0.97365, count=9)
    assert abs(found.alpha - 0.7196) < 2e-4
    assert abs(found.alpha * found.chi - 1) < 1e-3


def test_branch_with_the_last_layer_half_known() -> None:
    found = last_layer_known(PLAIN, 0.5, count=6)
    assert abs(found.alpha - 0.4042) < 4e-4
    assert found.chi > susceptibilities(TWO, lower_grid(120), outer=32)[0]
