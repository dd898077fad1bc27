"""The channel against oracles that share nothing with it, and against the identities that it must obey.

Errors are measured in the norm of V^{-1}: that of a mean m is sqrt(sum_t (m - m')_t^T V^{-1} (m - m')_t), so that
one number serves V = I and V = 1e-8 I alike; for g = V^{-1}(m - omega) the same distance is that of V in g.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import CASES, DEEPER, ONE_LAYER, TWO_LAYERS, Case
from oracles.description import Layer
from oracles.fields import forward
from oracles.quadrature import DIGITS, one_layer, scores_of_last_layer, two_layers
from oracles.sampling import by_importance, by_kernel, draw

import smisym

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "gout_reference.json").read_text())["cases"]

OVERLAPS = {
    "none": np.zeros((2, 2)),
    "some": np.diag([0.3, 0.9]),
    "mixed": np.array([[0.5, -0.3], [-0.3, 0.6]]),
    "strongly mixed": np.array([[0.5, 0.45], [0.45, 0.55]]),
    "nearly one": (1 - 1e-8) * np.eye(2),
    "last known": np.diag([0.0, 1 - 1e-6]),
    "first known": np.diag([1 - 1e-6, 0.0]),
}


@cache
def compiled(name: str) -> Any:
    return smisym.compile(CASES[name].architecture)


def drawn(case: Case, Q: np.ndarray, seed: int, count: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(Z (S, P, T), omega (S, P, T), V (P, P)) as state evolution draws them at overlap Q."""
    rng = np.random.default_rng([seed, case.depth, case.tokens])
    V = np.eye(case.depth) - Q
    omega = draw(np.zeros((case.depth, case.tokens)), Q, count, rng)
    noise = draw(np.zeros((case.depth, case.tokens)), V, count, rng)
    return np.moveaxis(omega + noise, 2, 0), np.moveaxis(omega, 2, 0), V


def distance(g: np.ndarray, other: np.ndarray, V: np.ndarray) -> float:
    """Norm of V of a difference of two g (P, T): the error of the mean in the norm of V^{-1}."""
    gap = g - other
    return float(np.sqrt(np.einsum("pt,pq,qt->", gap, V, gap)))


def quarter(case: Case) -> np.ndarray:
    """An overlap with correlations between layers, well inside 0 < Q < I."""
    return 0.35 * np.eye(case.depth) + 0.05 * np.ones((case.depth, case.depth))


# ------------------------------------------------------------------------------------------------ values by quadrature


@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: f"seed {case['seed']}")
def test_the_five_reference_cases(case: dict[str, Any]) -> None:
    model = compiled("L2-T2")
    Z, omega, V = np.array([case["Z"]]), np.array([case["omega"]]), np.diag(1 - np.array(case["q"]))
    exact = model.channel.g_out(model.observe(Z), omega, V, rtol=1e-11)
    np.testing.assert_allclose(exact[0], case["g_out"], atol=1e-9)
    from_floats = model.channel.g_out(np.array([case["y"]]), omega, V, rtol=1e-11)
    np.testing.assert_allclose(from_floats[0], case["g_out"], atol=1e-9)


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("case", TWO_LAYERS, ids=str)
def test_two_layers_by_quadrature(case: Case, overlap: str) -> None:
    model = compiled(case.name)
    Z, omega, V = drawn(case, OVERLAPS[overlap], seed=11, count=3)
    # Where V fixes the last field only, the posterior lives on thin curves and digits cost nodes.
    rtol = 1e-6 if overlap == "last known" else 1e-9
    moments = model.channel.moments(model.observe(Z), omega, V, cov=True, rtol=rtol, max_nodes=4_000_000)
    assert moments.result.ok == (moments.error <= rtol).all()
    deviation = np.sqrt(np.diag(V))
    scale = deviation[:, None, None, None] * deviation[:, None]
    compared = 0
    for s in range(len(Z)):
        u = scores_of_last_layer(Z[s], case.network)
        try:
            exact = two_layers(u, omega[s], V, case.network.layers[0], tolerance=1e-11)
        except ArithmeticError:
            continue  # the oracle's own limit of nodes; most samples must count, see the end
        if moments.error[s] > rtol:
            # Nodes ran out, as stated in the result above; what came instead must be as good as it says.
            assert distance(moments.g[s], exact.g, V) < 6 * moments.error[s]
            continue
        compared += 1
        assert distance(moments.g[s], exact.g, V) < 5 * rtol
        assert abs(moments.log_partition[s] - exact.log_partition) < 5 * rtol
        np.testing.assert_allclose(moments.cov[s] / scale, exact.cov / scale, atol=50 * rtol)
        shift = (moments.mean[s] - exact.mean) / deviation[:, None]
        rounding = 1e-15 * abs(exact.mean) / deviation[:, None]
        assert (abs(shift) < 5 * rtol + 4 * rounding).all()
    assert compared >= 2


@pytest.mark.xfail(strict=True, reason="on thin curves the lattice states 1e-6 where its error is 4e-5")
@pytest.mark.parametrize("name", ["L2-T2-beta3", "L2-T2-mixed"])
def test_the_error_stated_on_thin_curves(name: str) -> None:
    """Found when draws were made independent of the processor: other fields than those of the test above."""
    case, model = CASES[name], compiled(name)
    rng = np.random.default_rng([11, 2, 2])
    variance = np.array([1.0, 1e-6])[:, None, None]
    omega = np.sqrt(1 - variance) * rng.standard_normal((2, 2, 4))
    Z = np.moveaxis(omega + np.sqrt(variance) * rng.standard_normal((2, 2, 4)), 2, 0)
    omega, V = np.moveaxis(omega, 2, 0), np.diag(variance[:, 0, 0])
    moments = model.channel.moments(model.observe(Z), omega, V, cov=True, rtol=1e-6, max_nodes=4_000_000)
    for s in np.flatnonzero(moments.error <= 1e-6):
        try:
            exact = two_layers(
                scores_of_last_layer(Z[s], case.network), omega[s], V, case.network.layers[0], tolerance=1e-11
            )
        except ArithmeticError:
            continue
        assert distance(moments.g[s], exact.g, V) < 1e-5


@pytest.mark.parametrize("overlap", ["last known", "first known", "nearly one"])
def test_small_and_anisotropic_v_at_the_default_settings(overlap: str) -> None:
    case, model = CASES["L2-T2"], compiled("L2-T2")
    Z, omega, V = drawn(case, OVERLAPS[overlap], seed=13, count=12)
    moments = model.channel.moments(model.observe(Z), omega, V)
    assert moments.result.ok
    for s in range(len(Z)):
        exact = two_layers(
            scores_of_last_layer(Z[s], case.network), omega[s], V, case.network.layers[0], tolerance=1e-9
        )
        assert distance(moments.g[s], exact.g, V) < 1e-5


@pytest.mark.parametrize(
    ("name", "overlap", "seed"),
    [("L2-T2", "strongly mixed", 3), ("L2-T2-c0.7", "mixed", 4), ("L2-T2-mixed", "nearly one", 5)],
)
def test_two_layers_with_thirty_digits(name: str, overlap: str, seed: int) -> None:
    case, model = CASES[name], compiled(name)
    Z, omega, V = drawn(case, OVERLAPS[overlap], seed)
    u = scores_of_last_layer(Z[0], case.network, DIGITS)
    exact = two_layers(u, omega[0], V, case.network.layers[0], digits=30)
    assert exact.accuracy < 1e-14
    moments = model.channel.moments(model.observe(Z), omega, V, rtol=1e-11, max_nodes=4_000_000)
    assert distance(moments.g[0], exact.g, V) < 1e-10
    assert abs(moments.log_partition[0] - exact.log_partition) < 1e-10


@pytest.mark.parametrize("variance", [1.0, 0.3, 1e-4, 1e-8])
@pytest.mark.parametrize("case", [*ONE_LAYER, CASES["L1-T3-linear"]], ids=str)
def test_one_layer_in_closed_form(case: Case, variance: float) -> None:
    model = compiled(case.name)
    Z, omega, V = drawn(case, np.array([[1 - variance]]), seed=12, count=5)
    moments = model.channel.moments(model.observe(Z), omega, V, cov=True)
    for s in range(len(Z)):
        exact = one_layer(Z[s, 0], omega[s, 0], variance)
        np.testing.assert_allclose(moments.mean[s], exact.mean, atol=1e-10)
        assert distance(moments.g[s], exact.g, V) < 1e-6
        np.testing.assert_allclose(moments.cov[s], exact.cov, atol=1e-9)
        # A density in u: the base measure shows up here and nowhere else.
        np.testing.assert_allclose(moments.log_partition[s], exact.log_partition, rtol=1e-6, atol=1e-8)


# --------------------------------------------------------------------------------------------- values by Monte Carlo


@pytest.mark.parametrize(
    "name", ["L3-T2", "L2-T3", "L3-T2-mixed", "L3-T3-linear", "L4-T6", "L2-T6", "L2-T2-c4", "L2-T2-c0"]
)
def test_exact_conditioning_by_sampling(name: str) -> None:
    case, model = CASES[name], compiled(name)
    Z, omega, V = drawn(case, quarter(case), seed=21)
    rng = np.random.default_rng(22)
    sampled = by_importance(Z[0], omega[0], V, case.network, rng, samples=100_000)
    assert sampled.samples > 300
    moments = model.channel.moments(model.observe(Z), omega, V)
    allowance = moments.error[0] * np.sqrt(np.diag(V))[:, None]
    assert (abs(moments.mean[0] - sampled.mean) < 4.5 * np.hypot(sampled.error, allowance)).all()
    tolerance = 4.5 * sampled.log_partition_error + 5 * moments.error[0]
    assert abs(moments.log_partition[0] - sampled.log_partition) < tolerance


@pytest.mark.parametrize(
    ("name", "bandwidth", "samples", "seed"),
    [("L2-T2", 0.02, 10**7, 31), ("L3-T2", 0.025, 10**7, 32), ("L2-T3", 0.035, 2 * 10**7, 33)],
)
def test_sampling_that_inverts_nothing(name: str, bandwidth: float, samples: int, seed: int) -> None:
    case, model = CASES[name], compiled(name)
    Z, omega, V = next(filter(lambda draws: seen_by_kernels(draws[0][0], case), redrawn(case, seed)))
    blind = by_kernel(
        Z[0], omega[0], V, case.network, np.random.default_rng(seed), samples=samples, bandwidth=bandwidth
    )
    assert blind.samples > 1000
    assert blind.error.max() < 0.03
    found = model.channel.moments(model.observe(Z), omega, V).mean[0]
    assert (abs(found - blind.mean) < 4 * blind.error).all()


def redrawn(case: Case, seed: int) -> Any:
    while True:
        yield drawn(case, quarter(case), seed)
        seed += 1000


def seen_by_kernels(Z: np.ndarray, case: Case) -> bool:
    """Whether the output is far from saturation and from the edge of the image, where a kernel has a large bias."""
    y = forward(Z[:, :, None], case.network)[0][:, :, 0]
    off = ~np.eye(case.tokens, dtype=bool)
    return bool(y[off].min() > 0.1 and (y + y.T)[off].max() < 0.85 and y.diagonal().min() > 0.2)


# -------------------------------------------------------------------------------------------------------- identities

EXACT_ENOUGH = [*TWO_LAYERS[:4], CASES["L2-T2-mixed"], CASES["L1-T4"], CASES["L2-T3"]]
"""Cases whose integrals reach ten digits or so at a small cost, so that they can be differentiated."""


def richardson(f: Any, x: np.ndarray, direction: np.ndarray, step: float) -> Any:
    """Derivative of f along ``direction`` at x, to order step^4."""
    central = [(f(x + h * direction) - f(x - h * direction)) / (2 * h) for h in (step, step / 2)]
    return (4 * central[1] - central[0]) / 3


def precise(case: Case, y: Any, omega: np.ndarray, V: np.ndarray, **options: Any) -> Any:
    """Moments to as many digits as a derivative needs."""
    rtol = 1e-7 if case.free_dimensions > 2 else 1e-11
    moments = compiled(case.name).channel.moments(y, omega, V, rtol=rtol, max_nodes=4_000_000, **options)
    assert moments.error.max() < 10 * rtol
    return moments


@pytest.mark.parametrize("case", EXACT_ENOUGH, ids=str)
def test_g_is_the_gradient_of_the_log_partition(case: Case) -> None:
    Z, omega, V = drawn(case, quarter(case), seed=41, count=3)
    y = compiled(case.name).observe(Z)
    g = precise(case, y, omega, V).g
    direction = np.random.default_rng(1).standard_normal(omega.shape)
    slope = richardson(lambda w: precise(case, y, w, V).log_partition, omega, direction, 2e-2)
    np.testing.assert_allclose((g * direction).sum(axis=(1, 2)), slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", EXACT_ENOUGH, ids=str)
def test_dg_is_the_derivative_of_g(case: Case) -> None:
    Z, omega, V = drawn(case, quarter(case), seed=42, count=3)
    y = compiled(case.name).observe(Z)
    dg = precise(case, y, omega, V, cov=True).dg
    direction = np.random.default_rng(2).standard_normal(omega.shape)
    slope = richardson(lambda w: precise(case, y, w, V).g, omega, direction, 2e-2)
    np.testing.assert_allclose(np.einsum("sptqu,squ->spt", dg, direction), slope, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(dg, dg.transpose(0, 3, 4, 1, 2), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", [CASES["L2-T2"], CASES["L2-T2-mixed"], CASES["L2-T3"], CASES["L3-T2"]], ids=str)
def test_moments_fit_together(case: Case) -> None:
    """g = V^{-1}(mean - omega) and dg = V^{-1} cov V^{-1} - V^{-1}, delta in tokens."""
    model = compiled(case.name)
    Z, omega, V = drawn(case, quarter(case), seed=43, count=3)
    y = model.observe(Z)
    moments = model.channel.moments(y, omega, V, cov=True)
    inverse = np.linalg.inv(V)
    np.testing.assert_allclose(moments.g, inverse @ (moments.mean - omega), rtol=1e-9, atol=1e-10)
    prior = np.einsum("pq,tu->ptqu", inverse, np.eye(case.tokens))
    expected = np.einsum("pa,satbu,bq->sptqu", inverse, moments.cov, inverse) - prior
    found = model.channel.dg_out(y, omega, V, rtol=model.channel.default_rtol())
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 + 20 * moments.error.max())
    spectrum = np.linalg.eigvalsh(moments.cov.reshape(len(Z), case.depth * case.tokens, -1))
    assert spectrum.min() > -1e-9


@pytest.mark.parametrize(
    "case", [*TWO_LAYERS[:3], CASES["L2-T2-linear-first"], CASES["L1-T5"], CASES["L2-T3"], CASES["L3-T2"]], ids=str
)
def test_signs_of_layers(case: Case) -> None:
    """Flipping rows of omega (and V with them) flips rows of g and leaves the log-partition, for every symmetry."""
    model = compiled(case.name)
    Z, omega, V = drawn(case, quarter(case), seed=51, count=2)
    y = model.observe(Z)
    here = model.channel.moments(y, omega, V)
    tolerance = 1e-8 + 4 * here.error.max()
    signs = np.asarray(model.symmetry.signs)
    assert len(signs) == 2**case.depth
    for flip in signs:
        there = model.channel.moments(y, flip[:, None] * omega, flip[:, None] * V * flip)
        np.testing.assert_allclose(there.g, flip[:, None] * here.g, atol=5 * tolerance)
        np.testing.assert_allclose(there.log_partition, here.log_partition, atol=5 * tolerance)


@pytest.mark.parametrize(
    "case", [*TWO_LAYERS[:3], CASES["L1-T5"], CASES["L2-T3"], CASES["L3-T2"], CASES["L3-T2-mixed"]], ids=str
)
def test_permutations_of_tokens(case: Case) -> None:
    model = compiled(case.name)
    Z, omega, V = drawn(case, quarter(case), seed=52, count=2)
    y = model.observe(Z)
    order = np.roll(np.arange(case.tokens), 1)
    moved = model.observe(Z[:, :, order])
    np.testing.assert_allclose(moved.y, y.y[:, order][:, :, order], rtol=1e-11, atol=1e-14)
    here = model.channel.moments(y, omega, V)
    there = model.channel.moments(moved, omega[:, :, order], V)
    tolerance = 1e-8 + 20 * max(here.error.max(), there.error.max())
    np.testing.assert_allclose(there.g, here.g[:, :, order], atol=tolerance)
    np.testing.assert_allclose(there.log_partition, here.log_partition, atol=tolerance)


@pytest.mark.parametrize("case", [CASES["L2-T2"], CASES["L1-T3"], CASES["L2-T2-linear-last"], CASES["L3-T2"]], ids=str)
def test_an_array_serves_as_well_as_an_observation(case: Case) -> None:
    model = compiled(case.name)
    Z, omega, V = drawn(case, quarter(case), seed=53, count=4)
    kept = [s for s in range(4) if forward(Z[s, :, :, None], case.network)[0].min() > 1e-3]
    Z, omega = Z[kept], omega[kept]
    assert len(kept) >= 1
    observed = model.observe(Z)
    here = model.channel.moments(observed, omega, V)
    there = model.channel.moments(observed.y, omega, V)
    np.testing.assert_allclose(here.mean, there.mean, atol=1e-8 + 10 * here.error.max())


@pytest.mark.parametrize("case", [CASES["L1-T2"], CASES["L2-T2"], CASES["L2-T3"]], ids=str)
def test_one_v_for_all_or_one_a_sample(case: Case) -> None:
    model = compiled(case.name)
    Z, omega, V = drawn(case, quarter(case), seed=54, count=3)
    y = model.observe(Z)
    several = np.stack([V, 0.9 * V, 1.1 * V])
    together = model.channel.g_out(y, omega, several)
    for s in range(3):
        alone = model.channel.g_out(y[s : s + 1], omega[s : s + 1], several[s])
        np.testing.assert_allclose(alone[0], together[s], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "case", [CASES["L1-T2"], CASES["L2-T2"], CASES["L2-T2-c0.7"], CASES["L2-T2-linear-first"], CASES["L2-T3"]], ids=str
)
def test_the_partition_is_normalised(case: Case) -> None:
    """E[p(y | omega', V') / p(y | omega, V)] = 1 when y is drawn from (omega, V), whatever omega' and V' <= V."""
    model = compiled(case.name)
    count = 2000 if case.free_dimensions <= 2 else 300
    rng = np.random.default_rng(55)
    omega = 0.5 * rng.standard_normal((case.depth, case.tokens))
    V = np.eye(case.depth) - quarter(case)
    Z = np.moveaxis(draw(omega, V, count, rng), 2, 0)
    y = model.observe(Z)
    everywhere = np.broadcast_to(omega, Z.shape)
    moved = everywhere + 0.2 * rng.standard_normal(omega.shape)
    ratio = np.exp(
        model.channel.log_partition(y, moved, 0.85 * V, rtol=1e-5)
        - model.channel.log_partition(y, everywhere, V, rtol=1e-5)
    )
    error = ratio.std() / np.sqrt(count)
    assert error < 0.1
    assert abs(ratio.mean() - 1) < 4 * error


@pytest.mark.parametrize("name", ["L2-T2", "L1-T3", "L3-T2"])
def test_a_sample_of_the_channel_is_the_output(name: str) -> None:
    model, case = compiled(name), CASES[name]
    Z, _, _ = drawn(case, quarter(case), seed=56, count=3)
    np.testing.assert_array_equal(model.channel.sample(Z, np.random.default_rng(0)).y, model.link(Z))


def test_the_stated_error_holds() -> None:
    """At loose tolerances the true error of the mean stays within a small multiple of the error stated."""
    case, model = CASES["L2-T2"], compiled("L2-T2")
    Z, omega, V = drawn(case, np.diag([0.3, 0.9]), seed=57, count=200)
    y = model.observe(Z)
    exact = model.channel.g_out(y, omega, V, rtol=1e-11)
    for rtol in (1e-2, 1e-4, 1e-6):
        moments = model.channel.moments(y, omega, V, rtol=rtol)
        true = np.array([distance(moments.g[s], exact[s], V) for s in range(len(Z))])
        assert np.percentile(true, 99) < rtol
        assert (true < 10 * moments.error + rtol).all()


def test_every_case_has_a_channel() -> None:
    for case in (*ONE_LAYER, *TWO_LAYERS, *DEEPER):
        assert compiled(case.name).channel is not None
    assert Layer() == CASES["L2-T2"].network.layers[0]
