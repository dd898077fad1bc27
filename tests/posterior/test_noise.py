"""Noise on the output: integrals around the level set, against all fields, brute force, and what they must obey."""

from __future__ import annotations

import numpy as np
import pytest
from noisy_channels import MODELS, ONE, A, apart, around, chart_of, drawn, everywhere, noisy
from numpy.polynomial.hermite_e import hermegauss
from scipy import special

import smisym
from smisym import SMI, Architecture, Attention
from smisym.posterior.all_fields import OnAllFields
from smisym.posterior.around import AroundLevelSet, unfolding_of
from smisym.posterior.around_image import AroundImage
from smisym.posterior.composite import WhereNoiseIsWeak

# --------------------------------------------------------------------------------------------------- the coordinates


@pytest.mark.parametrize("name", MODELS)
def test_the_output_is_a_function_of_its_coordinates_alone(name: str) -> None:
    """Any free fields and latent coordinates at one v give one output, and so do the flips of v."""
    link, chart = chart_of(MODELS[name])
    unfolding, rng = unfolding_of(chart), np.random.default_rng(3)
    v = rng.standard_normal(unfolding.size)
    seen = []
    for flip in unfolding.flips:
        u = [np.asarray(x) for x in flip * v]
        free = list(rng.standard_normal((len(chart.free_rows) * link.tokens, 5)))
        latent = list(0.3 * rng.standard_normal((len(chart.latents), 5)))
        sheets = chart.solve(free, latent, u if unfolding.embed is None else unfolding.embed(u))
        for solved in sheets.solved:
            Z = np.empty((5, link.fields, link.tokens))
            for i, row in enumerate(chart.free_rows):
                Z[:, row] = np.array(free[i * link.tokens : (i + 1) * link.tokens]).T
            for i, row in enumerate(chart.solved_rows):
                for t in range(link.tokens):
                    Z[:, row, t] = solved[i * link.tokens + t]
            seen.append(link(Z))
    np.testing.assert_allclose(np.concatenate(seen), np.broadcast_to(seen[0][0], np.concatenate(seen).shape), atol=1e-9)


# ------------------------------------------------------------------------------------------- against other integrals


@pytest.mark.parametrize("overlap", [0.0, 0.5])
@pytest.mark.parametrize(
    ("name", "count", "rtol", "tolerance"),
    [
        ("one layer", 40, 1e-6, 1e-5),
        ("linear", 40, 1e-6, 1e-5),
        ("three tokens", 6, 1e-4, 1e-3),
        ("sequence", 6, 1e-4, 1e-3),
        ("two layers", 3, 1e-2, 4e-2),
        ("two heads", 3, 1e-2, 4e-2),
        ("rank two", 3, 1e-2, 4e-2),
        ("untied", 3, 1e-2, 4e-2),
    ],
)
def test_moments_and_density_are_those_over_all_fields(
    name: str, count: int, rtol: float, tolerance: float, overlap: float
) -> None:
    """At a noise that both integrals can do; the density tells whether the Jacobian is whole."""
    here, there = around(MODELS[name], 0.05), everywhere(MODELS[name], 0.05)
    y, omega, V, _ = drawn(here, overlap, count)
    a = here.moments(y, omega, V, cov=True, rtol=rtol)
    b = there.moments(y, omega, V, cov=True, rtol=rtol)
    assert apart(a, b, V).max() < tolerance
    assert a.cov is not None
    assert b.cov is not None
    assert np.abs(a.cov - b.cov).max() < 5 * tolerance
    # Untied scores have a density with a pole where they vanish, which importance sampling meets with few points.
    assert np.abs(a.log_partition - b.log_partition).max() < (0.1 if name == "untied" else tolerance)


@pytest.mark.parametrize("noise", [1e-2, 1e-4])
@pytest.mark.parametrize("overlap", [0.0, 0.6])
def test_two_fields_against_a_dense_grid(noise: float, overlap: float) -> None:
    channel = around(ONE, noise)
    y, omega, V, _ = drawn(channel, overlap, 6, seed=2)
    found = channel.moments(y, omega, V, cov=True, rtol=1e-5)
    side = np.linspace(-7, 7, 700 if noise > 1e-3 else 1400)
    zeta = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    for s in range(len(omega)):
        Z = omega[s, 0] + np.sqrt(1 - overlap) * zeta
        misfit = ((channel.link(Z[:, None]) - y.y[s]) ** 2).sum(axis=(1, 2)) / noise
        log_f = -0.5 * misfit - 0.5 * (zeta**2).sum(axis=1)
        w = np.exp(log_f - log_f.max())
        mean = w @ Z / w.sum()
        centred = Z - mean
        log_p = np.log(w.sum()) + log_f.max() + 2 * np.log(side[1] - side[0]) - np.log(2 * np.pi)
        log_p -= 2 * np.log(2 * np.pi * noise)
        np.testing.assert_allclose(found.mean[s, 0], mean, atol=1e-3)
        assert found.cov is not None
        np.testing.assert_allclose(
            found.cov[s, 0, :, 0, :], np.einsum("n,ni,nj->ij", w, centred, centred) / w.sum(), atol=1e-3
        )
        assert abs(found.log_partition[s] - log_p) < 1e-3


@pytest.mark.parametrize("name", ["two layers", "untied", "rank two", "two heads"])
def test_four_fields_against_monte_carlo(name: str) -> None:
    """Density of y and posterior mean from plain draws of the fields, with error bars, at noise 1e-2."""
    channel = around(MODELS[name], 1e-2)
    y, omega, V, _ = drawn(channel, 0.3, 2, seed=5)
    found = channel.moments(y, omega, V, rtol=1e-2)
    rng, n, blocks = np.random.default_rng(6), 2**16, 16
    outputs = y.y[0].size
    for s in range(len(omega)):
        totals = []
        for _ in range(blocks):
            Z = omega[s] + np.sqrt(0.7) * rng.standard_normal((n, channel.fields, channel.tokens))
            misfit = ((channel.link(Z) - y.y[s]) ** 2).reshape(n, -1).sum(axis=1) / 1e-2
            w = np.exp(-0.5 * misfit)
            totals.append([w.mean(), *(w @ Z.reshape(n, -1) / n)])
        table = np.array(totals)
        mean, error = table.mean(axis=0), table.std(axis=0, ddof=1) / np.sqrt(blocks)
        density = np.exp(found.log_partition[s] + 0.5 * outputs * np.log(2 * np.pi * 1e-2))
        assert abs(density - mean[0]) < 5 * error[0] + 0.02 * density
        gap = np.abs(density * found.mean[s].ravel() - mean[1:])
        assert (gap < 5 * error[1:] + 0.03 * density).all()


# ------------------------------------------------------------------------------------------------- what must hold


@pytest.mark.parametrize("name", ["one layer", "two layers"])
def test_the_denoiser_tends_to_the_noiseless_one(name: str) -> None:
    """At y = f(Z) the difference is of the order of the noise."""
    exact = smisym.compile(MODELS[name]).channel
    rng, P = np.random.default_rng(1), exact.fields
    omega = 0.6 * rng.standard_normal((6, P, 2))
    Z = omega + 0.8 * rng.standard_normal((6, P, 2)) * np.array([1.0, 1.3])
    V, observed, rtol = 0.64 * np.eye(P), exact.link.observe(Z), 1e-7 if P == 1 else 1e-3
    noiseless = exact.moments(observed, omega, V, rtol=1e-7)
    gaps = []
    for noise in (1e-5, 1e-6):
        with_noise = around(MODELS[name], noise).moments(observed.y, omega, V, rtol=rtol)
        gaps.append(np.median(apart(with_noise, noiseless, V)))
    if P == 1:
        assert 6 < gaps[0] / gaps[1] < 15
    assert gaps[1] < 5e-3


@pytest.mark.parametrize(("name", "count"), [("one layer", 1600), ("three tokens", 160)])
def test_nishimori_under_weak_noise(name: str, count: int) -> None:
    """The truth is one more draw from the posterior: E[m (Z - m)] = 0 and E[C] = V - E[m m^T], omega taken off."""
    channel = around(MODELS[name], 1e-4)
    y, omega, V, Z = drawn(channel, 0.5, count, seed=8)
    found = channel.moments(y, omega, V, cov=True, rtol=1e-2)
    m, z = (found.mean - omega).reshape(count, -1), (Z - omega).reshape(count, -1)
    assert found.cov is not None
    C = found.cov.reshape(count, m.shape[1], m.shape[1])
    first = m[:, :, None] * (z - m)[:, None, :]
    second = C + m[:, :, None] * m[:, None, :] - z[:, :, None] * z[:, None, :]
    for values in (first, second):
        error = values.std(axis=0, ddof=1) / np.sqrt(count)
        assert (np.abs(values.mean(axis=0)) < 5 * error + 2e-3).all()


@pytest.mark.parametrize("noise", [0.02, 0.002])
def test_the_density_of_the_output_has_mass_one(noise: float) -> None:
    """Importance sampling over outputs, from draws at a larger noise: E_q[p / q] = 1."""
    channel, rng = around(ONE, noise), np.random.default_rng(4)
    wide, n = around(ONE, 2 * noise), 800
    omega, V = np.zeros((n, 1, 2)), np.eye(1)
    y = wide.sample(rng.standard_normal((n, 1, 2)), rng).y
    ratio = np.exp(channel.log_partition(y, omega, V, rtol=1e-3) - wide.log_partition(y, omega, V, rtol=1e-3))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(n)
    assert ratio.std() / np.sqrt(n) < 0.05


def test_noise_is_a_gaussian_average_of_the_noiseless_density() -> None:
    """p(y) of z1^2-like outputs: int du N(y; f(u), noise) p(u), by Gauss-Hermite over the fields of one layer."""
    nodes, weights = hermegauss(200)
    Z = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 1, 2)
    w = np.outer(weights, weights).ravel() / (2 * np.pi)
    channel, noise = around(ONE, 0.03), 0.03
    y = channel.sample(np.random.default_rng(0).standard_normal((5, 1, 2)), np.random.default_rng(1)).y
    f = channel.link(Z)
    for s in range(5):
        expected = np.log(w @ np.exp(-0.5 * ((f - y[s]) ** 2).sum(axis=(1, 2)) / noise)) - 2 * np.log(2 * np.pi * noise)
        found = channel.log_partition(y[s : s + 1], np.zeros((1, 1, 2)), np.eye(1))
        np.testing.assert_allclose(found, expected, atol=1e-6)


# ---------------------------------------------------------------------------------------------------- the choice


@pytest.mark.parametrize(
    ("declared", "chosen", "words"),
    [
        (noisy(ONE, 1e-3), AroundLevelSet, "around the level set"),
        (noisy(ONE, 0.1), OnAllFields, "no thin shell"),
        (Architecture(2, (A(), A()), output="sequence", noise=1e-3), AroundImage, "found numerically"),
        (Architecture(3, (A(tied=False),), noise=1e-2), OnAllFields, "do not pay"),
        (SMI("z1*z2", 2, noise=1e-3), OnAllFields, "a lattice over all of them"),
        (Architecture(3, (A(), A()), output="sequence", noise=1e-4), OnAllFields, "has no chart"),
    ],
)
def test_the_choice_is_recorded(declared: Architecture | SMI, chosen: type, words: str) -> None:
    model = smisym.compile(declared)
    posterior = model.channel.posterior
    assert type(posterior.thin if isinstance(posterior, WhereNoiseIsWeak) else posterior) is chosen
    steps = [step for step in model.derivation.stage("channel") if step.title == "Integration under noise"]
    assert len(steps) == 1
    assert words in steps[0].text


def test_where_the_cavity_leaves_little_open_all_fields_are_integrated_over() -> None:
    """One V for all samples, or one each, some on either side of the rule: the same numbers."""
    model = smisym.compile(noisy(ONE, 1e-3))
    y, omega, _, _ = drawn(model.channel, 0.5, 6)
    V = np.array([0.5, 1e-4, 0.5, 1e-5, 0.5, 0.2])[:, None, None] * np.eye(1)
    found = model.channel.moments(y, omega, V, cov=True, rtol=1e-6)
    reference = everywhere(ONE, 1e-3).moments(y, omega, V, cov=True, rtol=1e-6)
    np.testing.assert_allclose(found.mean, reference.mean, atol=1e-5)
    np.testing.assert_allclose(found.log_partition, reference.log_partition, atol=1e-5)
    assert found.nodes[1] == reference.nodes[1]
    assert found.nodes[0] < reference.nodes[0]


@pytest.mark.parametrize("noise", [1e-6, 1e-10])
def test_outputs_on_the_edge_of_the_image(noise: float) -> None:
    """Equal attention, saturated attention, and outputs that no fields give."""
    y = np.array(
        [[[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]], [[3.0, -2.0], [5.0, 5.0]]]
    )
    found = around(ONE, noise).moments(y, np.zeros((4, 1, 2)), np.eye(1), cov=True, rtol=1e-2)
    assert np.isfinite(found.mean).all()
    assert np.isfinite(found.log_partition).all()


# omega, V, and an output of attention of beta 3 under noise of variance 0.01: ridges that lie between the cells of a
# lattice, with mass that is far from the prior's, and beyond what a Gaussian has.
RIDGES = [
    ((9.3228, 5.8133), 0.2, ((0.729, 0.394), (-0.103, 0.777)), 1e-4),
    ((9.3228, 5.8133), 0.2, ((0.729, 0.394), (-0.103, 0.777)), 1e-6),
    ((-2.4596, 0.0083), 1.0, ((0.896, 0.130), (1.034, 0.050)), 1e-6),
    ((0.3698, 0.5251), 1.0, ((0.780, 0.440), (0.135, 0.922)), 1e-6),
]


@pytest.mark.parametrize(("omega", "v", "y", "rtol"), RIDGES)
def test_a_ridge_between_the_cells_of_a_lattice_is_not_missed(
    omega: tuple[float, float], v: float, y: tuple[tuple[float, float], ...], rtol: float
) -> None:
    """Against a sum over both fields on a grid of its own, which two steps tell to 1e-9."""
    beta, noise, known = 3.0, 0.01, []
    for nodes in (2401, 3001):
        a, b = (centre + np.sqrt(v) * np.linspace(-12, 12, nodes) for centre in omega)
        gap = a[:, None] - b
        first, second = special.expit(-beta * a[:, None] * gap), special.expit(beta * b * gap)
        misfit = (1 - first - y[0][0]) ** 2 + (first - y[0][1]) ** 2
        misfit = misfit + (second - y[1][0]) ** 2 + (1 - second - y[1][1]) ** 2
        log = -0.5 * misfit / noise - 0.5 * ((a - omega[0])[:, None] ** 2 + (b - omega[1]) ** 2) / v
        weight = np.exp(log - log.max())
        known.append(np.array([weight.sum(axis=1) @ a, weight.sum(axis=0) @ b]) / weight.sum())
    doubt = np.linalg.norm(known[1] - known[0]) / np.sqrt(v)
    assert doubt < 1e-8
    model = smisym.compile(Architecture(2, (Attention(beta=beta),), noise=noise))
    found = model.channel.moments(np.array([y]), np.array([[omega]]), v * np.eye(1), rtol=rtol)
    off = np.linalg.norm(found.mean[0, 0] - known[1]) / np.sqrt(v)
    assert found.result.ok and off <= found.error[0] + doubt
