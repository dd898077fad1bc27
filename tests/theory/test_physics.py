"""Physics: identities, thresholds, potentials and dynamics that must hold whatever the implementation.

Constants come from the theory or from the oracles (``oracles/thresholds.py``: quadrature of the network's own fields).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from cases import CASES, CLOSED, DEEPER, MORE, ONE_LAYER, TWO_LAYERS, Case
from oracles.declared import described
from oracles.description import Layer
from oracles.sampling import draw
from oracles.thresholds import last_layer_known, lower_grid, lower_sobol, susceptibilities

import smisym
from smisym import Architecture, Attention

FIRST_OF_TWO = 0.18547784  # susceptibilities of L = 2, T = 2, c = 1, converged to all digits shown
SECOND_OF_TWO = 0.719635  # last_layer_known at q = 0.973649, where alpha chi_1 = 1; converged to 1e-5


@cache
def compiled(name: str) -> Any:
    return smisym.compile(CASES[name].architecture)


@cache
def overlap_map(name: str, seed: int = 0, samples: int = 4096) -> Any:
    return smisym.overlap_map(compiled(name), samples=samples, scrambles=8, seed=seed)


def diagonal(*values: float) -> np.ndarray:
    return np.diag(np.array(values, dtype=float))


# ---------------------------------------------------------------------------------------------------- Nishimori

NISHIMORI = [
    ("L1-T3", diagonal(0.4), 4000),
    ("L1-T2", diagonal(0.9999), 4000),
    ("L2-T2", diagonal(0.0, 0.0), 4000),
    ("L2-T2", diagonal(0.3, 0.9), 4000),
    ("L2-T2", np.array([[0.5, -0.3], [-0.3, 0.6]]), 4000),
    ("L2-T2", diagonal(0.999, 0.9999), 4000),
    ("L2-T2-c0.7", diagonal(0.2, 0.6), 4000),
    ("L2-T2-beta3", diagonal(0.4, 0.4), 2000),
    ("L2-T2-linear-first", diagonal(0.3, 0.3), 2000),
    ("L2-T2-mixed", diagonal(0.6, 0.2), 4000),
    ("L2-T3", diagonal(0.3, 0.7), 500),
    ("L3-T2", diagonal(0.2, 0.4, 0.6), 300),
]


@pytest.mark.parametrize(("name", "Q", "count"), NISHIMORI, ids=lambda x: x if isinstance(x, str) else "")
def test_the_truth_is_a_posterior_sample(name: str, Q: np.ndarray, count: int) -> None:
    """Four identities between averages over the posterior and averages over the truth, in units of V."""
    case, model = CASES[name], compiled(name)
    rng = np.random.default_rng(7)
    shape = (case.depth, case.tokens)
    V = np.eye(case.depth) - Q
    omega = np.moveaxis(draw(np.zeros(shape), Q, count, rng), 2, 0)
    Z = omega + np.moveaxis(draw(np.zeros(shape), V, count, rng), 2, 0)
    moments = model.channel.moments(model.observe(Z), omega, V, cov=True, rtol=max(1e-5, model.channel.default_rtol()))
    whiten = np.linalg.inv(np.linalg.cholesky(V))
    found, truth = whiten @ (moments.mean - omega), whiten @ (Z - omega)
    inside = np.einsum("ap,sptqt,bq->sab", whiten, moments.cov, whiten)
    outer = np.einsum("spt,sqt->spq", found, found)
    root = np.linalg.cholesky(V)
    slope = root.T @ np.einsum("sptqt->spq", moments.dg) @ root
    pairs = {
        "E <z><z>^T = E <z> z*^T": np.einsum("spt,sqt->spq", moments.mean, moments.mean - Z),
        "E (m - w)(m - w)^T = E (m - w)(z* - w)^T": outer - np.einsum("spt,sqt->spq", found, truth),
        "E C_tt = V - E (m - w)(m - w)^T": inside + outer - case.tokens * np.eye(case.depth),
        "E g g^T = - E dg": outer + slope,
    }
    inner = 4 * np.sqrt(case.tokens * case.depth) * moments.error.mean()
    for identity, values in pairs.items():
        mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(count)
        assert (abs(mean) <= 4.5 * error + inner + 1e-12).all(), identity
    size = np.einsum("spp->s", outer)
    assert size.std() / np.sqrt(count) < 0.15 * case.tokens, "the error bars would hide a failure"


# -------------------------------------------------------------------------------------------------- the overlap map


@pytest.mark.parametrize("name", ["L2-T2", "L2-T2-c0.7", "L1-T3"])
def test_the_overlap_map_is_the_mean_of_g_g(name: str) -> None:
    case, model = CASES[name], compiled(name)
    Q = diagonal(*np.linspace(0.3, 0.6, case.depth))
    E, error = overlap_map(name)(Q)
    rng = np.random.default_rng(8)
    V, count = np.eye(case.depth) - Q, 8000
    omega = draw(np.zeros((case.depth, case.tokens)), Q, count, rng)
    Z = np.moveaxis(omega + draw(np.zeros(omega.shape[:2]), V, count, rng), 2, 0)
    g = model.channel.g_out(model.observe(Z), np.moveaxis(omega, 2, 0), V, rtol=1e-5)
    products = np.einsum("spt,sqt->spq", g, g)
    own = products.std(axis=0) / np.sqrt(count)
    assert (abs(products.mean(axis=0) - E) < 4.5 * np.hypot(own, error)).all()
    # Rows of different layers are uncorrelated, by symmetry.
    np.testing.assert_allclose(E, np.diag(np.diag(E)), atol=1e-12)


def test_the_overlap_map_against_quadrature() -> None:
    E, error = overlap_map("L2-T2")(diagonal(0.0, 0.5))
    exact = last_layer_known(Layer(), 0.5, count=6).information
    assert abs(E[1, 1] - exact) < 4 * error[1, 1]
    assert error[1, 1] < 0.02 * exact
    assert abs(E[0, 0]) < 1e-10


def test_information_never_exceeds_what_the_output_holds() -> None:
    """tr(V E) is at most the number of outputs, K = 2, and tends to it as V vanishes."""
    for q, limit in ((0.2, 2.0), (0.9, 2.0), (1 - 1e-6, 2.0)):
        E, error = overlap_map("L2-T2")(diagonal(q, q))
        held = (1 - q) * np.trace(E)
        assert held < limit + 4 * (1 - q) * np.trace(error)
    assert abs(held - 2.0) < 0.01


# ------------------------------------------------------------------------------------------------------- thresholds


def weak(name: str, samples: int, stages: int | None = None) -> list[Any]:
    solution = smisym.weak_recovery(compiled(name), samples=samples, scrambles=8, stages=stages)
    return [t for t in solution.value if t.kind == "weak"]


@pytest.mark.parametrize("case", CLOSED, ids=str)
def test_a_single_layer_meets_the_floor(case: Case) -> None:
    (found,) = weak(case.name, 16384)
    assert found.layers == (1,)
    assert abs(found.alpha - case.floor) < 5 * found.error + 1e-6
    assert found.error < 0.02 * case.floor
    np.testing.assert_array_equal(found.Q, np.zeros((1, 1)))


SLOW_ONES = ("L2-T2-c0.1", "L2-T2-beta3", "L2-T2-mixed")


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.slow if c.name in SLOW_ONES else ()) for c in TWO_LAYERS], ids=str
)
def test_first_threshold_of_two_layers(case: Case) -> None:
    exact = 1 / susceptibilities(case.network, lower_grid(160), outer=40)
    found = weak(case.name, 512, stages=1)[0]
    assert found.layers == (case.first_layer,)
    assert int(exact.argmin()) + 1 == case.first_layer
    assert abs(found.alpha - exact.min()) < 5 * found.error + 1e-6
    assert found.error <= (1e-3 if case.network.layers[0].linear else 1e-4)
    assert found.alpha > case.floor - 5 * found.error
    np.testing.assert_allclose(abs(found.subspace), np.eye(2)[[case.first_layer - 1]], atol=1e-6)
    if case.threshold is not None:
        assert abs(exact.min() - case.threshold[0]) < case.threshold[1]


@pytest.mark.slow
@pytest.mark.parametrize("skip", [0.3, 2.0])
def test_no_skip_strength_goes_below_the_floor(skip: float) -> None:
    """The published curve does (0.144 at c = 1, 0.083 at c = 4): a single index on T = 2 tokens needs 1/6."""
    declared = Architecture(2, (Attention(skip=skip), Attention()))
    exact = 1 / susceptibilities(described(declared), lower_grid(160), outer=40)
    assert exact.min() > 1 / 6
    found = smisym.weak_recovery(smisym.compile(declared), samples=512, scrambles=8).value[0]
    assert found.layers == (2,)
    assert abs(found.alpha - exact[1]) < 5 * found.error + 1e-6
    assert found.error <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_first_threshold_of_more_tokens_and_layers(name: str) -> None:
    case = CASES[name]
    outer, points = (14, 12) if case.tokens == 3 else (28, 14)
    chi = np.array(
        [susceptibilities(case.network, lower_sobol(case.depth - 1, case.tokens, points, s), outer=outer)
         for s in range(4)]
    )  # fmt: skip
    exact, error = 1 / chi[:, -1].mean(), chi[:, -1].std(ddof=1) / 2 / chi[:, -1].mean() ** 2
    assert (chi.mean(axis=0).argmax() + 1) == case.first_layer
    solution = smisym.weak_recovery(compiled(name), samples=1024, scrambles=8)
    found = solution.value[0]
    assert found.kind == "weak"
    assert found.layers == (case.first_layer,)
    assert abs(found.alpha - exact) < 4.5 * np.hypot(error, found.error) + 2e-5
    assert found.error < 0.05 * exact
    assert found.alpha > case.floor - 4.5 * found.error


@pytest.mark.slow
def test_both_thresholds_of_two_layers() -> None:
    first, second = weak("L2-T2", 8192)
    assert (first.layers, second.layers) == ((2,), (1,))
    assert abs(first.alpha - FIRST_OF_TWO) < 5 * first.error + 1e-6
    assert abs(second.alpha - SECOND_OF_TWO) < 5 * second.error
    assert second.error < 5e-3
    # The overlap just below: the last layer at its actual overlap, the first still unknown.
    assert abs(second.Q[1, 1] - 0.97365) < 5 * second.error
    assert second.Q[0, 0] == 0.0


def test_counting_for_perfect_recovery() -> None:
    """P / K for one and two layers; with three, the first two together would do with less: the largest ratio binds."""
    for name, expected in (("L1-T2", 1 / 2), ("L1-T5", 1 / 5), ("L1-T3-linear", 1 / 3)):
        found = {t.kind: t for t in smisym.perfect_recovery(compiled(name), samples=1024).value}
        assert found["perfect_stable"].alpha == pytest.approx(expected)
        assert [t.names for t in found.values()] == [compiled(name).labels] * 2


@pytest.mark.slow
def test_perfect_recovery_of_two_layers() -> None:
    found = {t.kind: t for t in smisym.perfect_recovery(compiled("L2-T2"), samples=1024).value}
    assert found["perfect_stable"].alpha == pytest.approx(1.0)
    assert found["perfect_amp"].alpha > 1 - 5 * found["perfect_amp"].error - 5e-3
    assert found["perfect_amp"].alpha < 1.03


# -------------------------------------------------------------------------------------------------- state evolution


def test_uninformed_stays_and_side_information_moves() -> None:
    omap = overlap_map("L2-T2")
    still = smisym.state_evolution(omap, 0.5, start="uninformed").value
    np.testing.assert_allclose(still.Q, np.zeros((2, 2)), atol=1e-9)
    helped = smisym.state_evolution(omap, 1e-6, start="uninformed", side_information=0.5).value
    np.testing.assert_allclose(helped.Q, 0.5 / 1.5 * np.eye(2), atol=1e-4)


def test_below_the_first_threshold_nothing_is_learned() -> None:
    below = smisym.state_evolution(overlap_map("L2-T2"), 0.17).value
    np.testing.assert_allclose(below.Q, np.zeros((2, 2)), atol=1e-8)


@pytest.mark.parametrize("alpha", [0.3, pytest.param(0.5, marks=pytest.mark.slow)])
def test_fixed_points_lie_on_the_exact_branch(alpha: float) -> None:
    """Where only the last layer is known, quadrature gives alpha as a function of its overlap."""
    point = smisym.state_evolution(overlap_map("L2-T2"), alpha)
    assert point.result.ok
    Q, error = point.value.Q, point.value.Q_error
    assert Q[0, 0] < 1e-8
    here, there = (last_layer_known(Layer(), q, count=7).alpha for q in (Q[1, 1], Q[1, 1] + 0.01))
    slope = (there - here) / 0.01
    assert abs(here - alpha) < 4.5 * slope * error[1, 1] + 1e-4
    assert error[1, 1] < 0.02
    # A fixed point: Q_hat (I + Q_hat)^{-1} = Q with Q_hat = alpha E(Q).
    E, spread = overlap_map("L2-T2")(Q)
    Q_hat = alpha * E[1, 1]
    assert abs(Q_hat / (1 + Q_hat) - Q[1, 1]) < 5 * (error[1, 1] + alpha * spread[1, 1] / (1 + Q_hat) ** 2)


@pytest.mark.slow
def test_perfect_recovery_is_reached_above_one() -> None:
    point = smisym.state_evolution(compiled("L2-T2"), 1.2, samples=1024).value
    np.testing.assert_allclose(point.Q, np.eye(2), atol=1e-6)


# ----------------------------------------------------------------------------------------------------- free entropy


def conjugate(Q: np.ndarray) -> np.ndarray:
    """Q_hat at which state evolution would return Q: (I - Q)^{-1} - I."""
    return np.linalg.inv(np.eye(len(Q)) - Q) - np.eye(len(Q))


def slope_of_phi(name: str, Q: np.ndarray, alpha: float, direction: np.ndarray, step: float) -> tuple[float, float]:
    """Derivative of Phi along ``direction`` by central differences with common random numbers, and its error."""
    values = []
    for seed in range(5):
        omap = overlap_map(name, seed, 1024)
        ends = [smisym.free_entropy(omap, Q + s * direction, alpha).value for s in (step, -step)]
        values.append((ends[0] - ends[1]) / (2 * step))
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


@pytest.mark.parametrize("name", ["L2-T2", "L2-T2-linear-last", "L1-T3"])
@pytest.mark.parametrize("layer", [1, 2])
def test_the_gradient_of_the_free_entropy(name: str, layer: int) -> None:
    """dPhi = 1/2 tr[(alpha E(Q) - Q_hat(Q)) dQ].

    Phi = 1/2 tr Q + 1/2 log det(I - Q) + alpha E log Zout.  The first two terms give (I - (I - Q)^{-1}) / 2 =
    -Q_hat / 2; the last gives alpha E / 2, as d/dQ E log p(y | omega) = E[g g^T] / 2 (Stein on omega, and Nishimori).
    """
    depth = CASES[name].depth
    if layer > depth:
        layer = depth
    Q, alpha = diagonal(*np.linspace(0.25, 0.55, depth)), 0.6
    direction = np.zeros((depth, depth))
    direction[layer - 1, layer - 1] = 1.0
    found, error = slope_of_phi(name, Q, alpha, direction, 0.02)
    estimates = [overlap_map(name, seed, 1024)(Q)[0] for seed in range(5)]
    E, spread = np.mean(estimates, axis=0), np.std(estimates, axis=0, ddof=1) / np.sqrt(5)
    expected = 0.5 * np.sum((alpha * E - conjugate(Q)) * direction)
    bar = np.hypot(error, 0.5 * alpha * np.sum(spread * direction))
    curvature = 2e-3 * (1 + abs(expected))  # third derivative times step^2 / 6
    assert abs(found - expected) < 4.5 * bar + curvature
    # The test can tell alpha E - Q_hat from each of its terms, and the half from the whole.
    assert 4.5 * bar + curvature < 0.3 * abs(0.5 * np.sum(conjugate(Q) * direction))


def test_fixed_points_are_stationary_points_of_the_free_entropy() -> None:
    alpha = 0.45
    Q = smisym.state_evolution(overlap_map("L2-T2", 0, 1024), alpha).value.Q
    slope, error = slope_of_phi("L2-T2", Q, alpha, diagonal(0.0, 1.0), 0.01)
    assert abs(slope) < 4.5 * error + 0.01
    # Moving away from it costs free entropy on both sides.
    maps = [overlap_map("L2-T2", seed, 1024) for seed in range(5)]
    phi = [
        np.mean([smisym.free_entropy(omap, Q + diagonal(0.0, d), alpha).value for omap in maps])
        for d in (-0.2, 0.0, 0.15)
    ]
    assert phi[1] > max(phi[0], phi[2])


def test_the_free_entropy_diverges_at_perfect_recovery() -> None:
    model = compiled("L2-T2")
    assert smisym.free_entropy(model, np.eye(2), 1.3).value == np.inf
    assert smisym.free_entropy(model, np.eye(2), 0.7).value == -np.inf
    growing = [smisym.free_entropy(overlap_map("L2-T2"), (1 - e) * np.eye(2), 1.5).value for e in (1e-1, 1e-3, 1e-5)]
    # Phi ~ 1/2 (P - alpha K) log V = -1/2 log V at alpha = 1.5.
    assert growing[2] - growing[1] == pytest.approx(0.5 * np.log(100), rel=0.1)


# ------------------------------------------------------------------------------------------------------- prediction


def test_prediction_errors_when_nothing_is_known() -> None:
    for name, plug_in, bayes in (("L2-T2", 0.3868, 0.3024), ("L3-T2", 0.5845, 0.5328)):
        depth = CASES[name].depth
        found = smisym.prediction_errors(compiled(name), np.zeros((depth, depth)))
        assert abs(found["plug_in"].value - plug_in) < 5e-5 + 4 * found["plug_in"].statistical_error
        assert abs(found["bayes"].value - bayes) < 5e-5 + 4 * found["bayes"].statistical_error
        assert found["gibbs"].value == pytest.approx(2 * found["bayes"].value)


# ------------------------------------------------------------------------------------------------------------- GAMP


def predicted(name: str, alpha: float, lam: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Overlaps (steps + 1, P) of state evolution from side information alone, and their errors over four maps."""
    depth = CASES[name].depth
    runs = []
    for seed in range(4):
        Q = lam / (1 + lam) * np.eye(depth)
        path = [np.diag(Q)]
        for _ in range(steps):
            Q_hat = alpha * overlap_map(name, seed, 2048)(Q)[0] + lam * np.eye(depth)
            Q = Q_hat @ np.linalg.inv(np.eye(depth) + Q_hat)
            path.append(np.diag(Q))
        runs.append(path)
    return np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1) / 2


def observed(name: str, alpha: float, lam: float, steps: int, dim: int, seeds: int) -> np.ndarray:
    """Overlaps (seeds, steps + 1, P) of GAMP with the truth, from side information, on fresh data."""
    model = compiled(name)
    runs = []
    for seed in range(seeds):
        rng = np.random.default_rng([seed, dim])
        W = rng.standard_normal((model.fields, dim))
        X = rng.standard_normal((round(alpha * dim), model.tokens, dim))
        Z = np.einsum("pd,ntd->npt", W, X) / np.sqrt(dim)
        side = np.sqrt(lam) * W + rng.standard_normal(W.shape)
        solution = smisym.gamp(
            model, X, model.observe(Z), W=W, max_steps=steps, side_information=(lam, side), tol=1e-12, seed=seed
        )
        runs.append([np.diag(record["overlap"]) for record in solution.history])
    return np.array(runs)


@pytest.mark.parametrize(
    ("name", "alpha", "lam"), [("L1-T2", 0.4, 0.2), pytest.param("L2-T2", 0.9, 0.3, marks=pytest.mark.slow)]
)
def test_gamp_follows_state_evolution(name: str, alpha: float, lam: float) -> None:
    """Iteration by iteration, the mean over 8 seeds is state evolution plus C / sqrt(D), C fitted at two D."""
    steps, dims = 6, (200, 800)
    theory, theory_error = predicted(name, alpha, lam, steps)
    mean, error = [], []
    for dim in dims:
        runs = observed(name, alpha, lam, steps, dim, seeds=8)
        mean.append(runs.mean(axis=0))
        error.append(runs.std(axis=0, ddof=1) / np.sqrt(8))
    gap, error = np.array(mean) - theory, np.array(error)
    scale = 1 / np.sqrt(np.array(dims))[:, None, None]
    C = (gap * scale / error**2).sum(axis=0) / (scale**2 / error**2).sum(axis=0)
    assert (abs(gap - C * scale) < 3 * np.hypot(error, theory_error) + 1e-3).all()
    # Large D is close to theory as it stands: a wrong Onsager term is off by far more than this.
    assert abs(gap[1]).max() < 0.08
    assert theory[-1].max() > 2 * theory[0].max()


@pytest.mark.slow
def test_gamp_recovers_perfectly() -> None:
    """alpha = 1.3 lies above P / K = 1: from a small random start GAMP finds both rows, up to sign."""
    model, dim = compiled("L2-T2"), 300
    for seed in range(2):
        # Data and start from different streams: from one stream the start would be the truth, scaled down.
        data = smisym.generate(model, dim, 1.3, np.random.default_rng([seed, 1]))
        solution = smisym.gamp(model, data.X, data.y, W=data.W, max_steps=60, seed=seed)
        cosines = np.array([record["cosines"] for record in solution.history])
        assert abs(cosines[0]).max() < 0.3
        assert cosines[-1].min() > 0.9999


def test_every_first_layer_is_a_layer() -> None:
    for case in (*ONE_LAYER, *TWO_LAYERS, *DEEPER):
        assert case.first_layer is None or 1 <= case.first_layer <= case.depth
