"""The additive statistic of a program, and posteriors integrated through it by the central limit."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import Architecture, InputError, Model
from smisym import Attention as A
from smisym.base.derivation import Derivation
from smisym.link.linking import link_function
from smisym.posterior.central_limit import CavityOfSum, ThroughStatistic, skewness
from smisym.theory.over_outputs import first_threshold

LINKS = {
    "committee": (Architecture(2, (*[A(readout=0.25)] * 4, A()), limit="first_order"), 4, 2, (4,)),
    "three tokens": (Architecture(3, (*[A(readout=0.5)] * 2, A()), limit="first_order"), 2, 6, (2,)),
    "unlike layers": (
        Architecture(2, (A(readout=0.5), A(rank=2, beta=0.7), A(tied=False), A(tied=False)), limit="first_order"),
        3, 2, (5, 6),
    ),
    "scores themselves": (
        Architecture(2, (*[A(readout=0.1, activation="linear")] * 3, A()), limit="first_order"), 3, 3, (3,),
    ),
    "masked": (Architecture(2, (*[A(mask="causal")] * 3, A()), output="sequence", limit="first_order"), 3, 1, (3,)),
    "heads of one layer": (Architecture(2, (A(heads=3, readout=(0.5, 0.5, 0.25)), A())), 3, 2, (3,)),
    "noise": (Architecture(2, (*[A(readout=0.5)] * 2, A()), noise=0.1, limit="first_order"), 2, 2, (2,)),
}  # fmt: skip


def through(model: Model) -> ThroughStatistic:
    assert isinstance(model.channel.posterior, ThroughStatistic)
    return model.channel.posterior


def committee(terms: int, tokens: int = 2, **options) -> Model:
    inner = [A(readout=1 / terms)] * terms
    return smisym.compile(Architecture(tokens, (*inner, A()), limit="first_order", statistic="gaussian", **options))


def draws(model: Model, q: np.ndarray, samples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(omega, Z) (S, P, T) at a diagonal overlap."""
    rng = np.random.default_rng(seed)
    omega = np.sqrt(q)[:, None] * rng.standard_normal((samples, len(q), model.tokens))
    return omega, omega + np.sqrt(1 - q)[:, None] * rng.standard_normal(omega.shape)


# ---- the statistic ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("declared", "terms", "numbers", "rest"), LINKS.values(), ids=LINKS.keys())
def test_the_statistic_reproduces_the_link(declared, terms, numbers, rest) -> None:
    link = link_function(declared, Derivation())
    statistic = link.statistic
    assert statistic is not None
    assert (statistic.summands, statistic.dimension, statistic.rest) == (terms, numbers, rest)
    assert sorted((*statistic.rows, *statistic.rest)) == list(range(link.fields))
    Z = np.random.default_rng(0).standard_normal((50, link.fields, link.tokens))
    S = statistic(Z)
    reduced = link.through_statistic.raw(np.concatenate([S, Z[:, list(rest)]], axis=1))
    np.testing.assert_allclose(reduced, link.raw(Z), rtol=1e-10, atol=1e-11)
    # It varies in the directions of the basis only.
    flat = S.reshape(len(S), -1) - statistic.origin
    np.testing.assert_allclose(flat @ statistic.basis @ statistic.basis.T, flat, atol=1e-12)


@pytest.mark.parametrize(
    "declared",
    [
        Architecture(2, (A(), A(), A()), statistic="gaussian"),  # the second layer reads the first
        Architecture(2, (A(), A()), limit="first_order", statistic="gaussian"),  # one term is no sum
        Architecture(2, (A(heads=2),), combine="sum", noise=0.1, statistic="gaussian"),  # the sum itself is seen
    ],
    ids=["deep", "one term", "observed"],
)
def test_where_there_is_no_sum_the_declaration_is_refused(declared: Architecture) -> None:
    assert link_function(declared, Derivation()).statistic is None
    with pytest.raises(InputError, match="statistic"):
        smisym.compile(declared)


# ---- cost and symmetry -----------------------------------------------------------------------------


def test_the_dimension_does_not_grow_with_depth() -> None:
    found = {n: committee(n) for n in (2, 4, 7)}
    assert {n: model.channel.free_dimensions for n, model in found.items()} == {2: 2, 4: 2, 7: 2}
    assert committee(3, tokens=3).channel.free_dimensions == 6
    exact = smisym.compile(Architecture(2, (*[A(readout=0.2)] * 5, A()), limit="first_order"))
    assert exact.channel.free_dimensions == 10
    # Off-diagonal overlaps of a committee vanish by the flip of each layer: q_d and the last layer are left.
    for n, model in found.items():
        np.testing.assert_array_equal(model.symmetry.basis, [np.diag([1.0] * n + [0.0]), np.diag([0.0] * n + [1.0])])
    # Without flips, and with more inputs than all exchanges are tried for: q_d and q_a.
    cubes = smisym.SMI("+".join(f"z{k}**3" for k in range(1, 11)), 10, noise=0.1)
    together = np.full((10, 10), 0.1)
    basis = smisym.compile(cubes).symmetry.basis
    np.testing.assert_allclose(sorted(basis.tolist()), sorted([together.tolist(), (np.eye(10) - together).tolist()]))


def test_the_third_cumulant_decays_as_the_root_of_the_terms() -> None:
    few, many = (skewness(committee(n).link.statistic) for n in (4, 16))
    assert few / many == pytest.approx(2, rel=1e-9)


# ---- moments of the statistic ----------------------------------------------------------------------


def test_mean_and_covariance_with_coupled_rows() -> None:
    """Rows of the committee coupled with -q_a and with the last row: against the law of the sum itself."""
    n, points = 6, 2**19
    model, rng = committee(n), np.random.default_rng(0)
    q_d, q_a = 0.4, 0.06
    V = np.full((n + 1, n + 1), -q_a)
    V[n, :n] = V[:n, n] = 0.1
    np.fill_diagonal(V, [1 - q_d] * n + [0.5])
    omega = 0.7 * rng.standard_normal((1, n + 1, 2))
    cavity = CavityOfSum.of(through(model), omega, V[None])
    Z = omega + np.einsum("pq,sqt->spt", np.linalg.cholesky(V), rng.standard_normal((points, n + 1, 2)))
    statistic = model.link.statistic
    assert statistic is not None
    sampled = np.concatenate([statistic(Z).reshape(points, -1) @ statistic.basis, Z[:, n]], axis=1)
    covariance = np.cov(sampled.T)
    ours = cavity.factor[0] @ cavity.factor[0].T
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    np.testing.assert_allclose(
        cavity.centre[0], sampled.mean(axis=0), atol=5 * np.sqrt(scale.diagonal().max() / points)
    )
    np.testing.assert_allclose(ours / scale, covariance / scale, atol=6e-3)
    # Without the coupling of the rows the variances are wrong by far more.
    uncoupled = CavityOfSum.of(through(model), omega, np.diag(np.diag(V))[None]).factor[0]
    assert np.abs((uncoupled @ uncoupled.T - covariance) / scale)[:2, :2].max() > 0.04


def test_a_statistic_that_does_not_vary_tells_nothing() -> None:
    """Saturated softmaxes: the covariance vanishes, and the last layer sees a known mixing."""
    model = committee(3)
    omega = np.zeros((1, 4, 2))
    omega[0, :3] = 60.0, -60.0
    omega[0, 3] = 0.3, -0.8
    V = np.diag([1e-4, 1e-4, 1e-4, 0.5])
    Z = omega.copy()
    Z[0, 3] = 0.5, 0.2
    moments = model.channel.moments(model.observe(Z), omega, V, cov=True)
    assert np.isfinite(moments.dg).all()
    np.testing.assert_allclose(moments.g[0, :3], 0.0, atol=1e-12)
    mean = np.tanh(Z[0, 3] @ omega[0, 3] / 0.5) * Z[0, 3]
    np.testing.assert_allclose(moments.g[0, 3], (mean - omega[0, 3]) / 0.5, rtol=1e-6)


# ---- the channel -----------------------------------------------------------------------------------


def test_the_channel_is_a_density_and_obeys_nishimori_exactly() -> None:
    """Over outputs drawn from itself: integral one, E g = 0, E g g^T = -E dg, committee rows included."""
    n = 10
    model, rng = committee(n), np.random.default_rng(1)
    omega, V = 0.6 * rng.standard_normal((n + 1, 2)), np.diag([0.6] * n + [0.5])
    axis = np.arange(-20, 20) * 0.4 + 0.2
    u = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    u = u[u[:, 0] > 0]  # both signs of the scores are one output
    moments = model.channel.moments_at(u, np.broadcast_to(omega, (len(u), n + 1, 2)), V, cov=True, rtol=1e-5)
    weight = np.exp(moments.log_partition) * (axis[1] - axis[0]) ** 2
    assert weight.sum() == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(np.einsum("s,spt->pt", weight, moments.g), 0.0, atol=1e-4)
    products = np.einsum("s,spt,squ->ptqu", weight, moments.g, moments.g)
    curvature = -np.einsum("s,sptqu->ptqu", weight, moments.dg)
    np.testing.assert_allclose(products, curvature, atol=1e-4)
    ours = slice(0, n)
    np.testing.assert_allclose(products[ours, :, ours], curvature[ours, :, ours], atol=1e-6)
    np.testing.assert_allclose(moments.mean, omega + np.einsum("pq,sqt->spt", V, moments.g), atol=1e-12)


def test_the_denoiser_of_the_last_layer_is_the_gradient_of_the_log_partition() -> None:
    model = committee(4)
    omega, Z = draws(model, np.array([0.3] * 4 + [0.5]), 4)
    V = np.diag([0.7] * 4 + [0.5])
    V[4, :4] = V[:4, 4] = 0.05
    y, step = model.observe(Z), 1e-4
    moments = model.channel.moments(y, omega, V, cov=True, rtol=1e-9)
    for t in range(2):
        shift = np.zeros((5, 2))
        shift[4, t] = step
        up, down = (model.channel.moments(y, omega + s * shift, V, rtol=1e-9) for s in (1, -1))
        np.testing.assert_allclose((up.log_partition - down.log_partition) / (2 * step), moments.g[:, 4, t], rtol=1e-5)
        np.testing.assert_allclose((up.g - down.g)[:, 4] / (2 * step), moments.dg[:, 4, :, 4, t], rtol=1e-4, atol=1e-5)


def exact(omega: np.ndarray, v: np.ndarray, u: np.ndarray, points: int, seed: int) -> tuple[float, np.ndarray]:
    """(log-partition, g (P, 2)) of the exact committee, by fields drawn from the cavity; two tokens, readouts 1/n."""
    n = len(omega) - 1
    z = np.random.default_rng(seed).standard_normal((n, 2, points))
    h = omega[:n, :, None] + np.sqrt(v[:n])[:, None, None] * z
    a = (1 / (1 + np.exp(h[:, 0] * (h[:, 0] - h[:, 1])))).mean(axis=0)
    b = (1 / (1 + np.exp(h[:, 1] * (h[:, 1] - h[:, 0])))).mean(axis=0)
    det = (2 - a) * (2 - b) - a * b
    x = np.array([(2 - b) * u[0] - a * u[1], (2 - a) * u[1] - b * u[0]]) / det
    both = [np.exp(-0.5 * ((s * x - omega[n][:, None]) ** 2).sum(axis=0) / v[n]) / det for s in (1, -1)]
    w = both[0] + both[1]
    g = np.empty((n + 1, 2))
    g[:n] = (z * w).mean(axis=2) / w.mean() / np.sqrt(v[:n])[:, None]
    g[n] = (((both[0] - both[1]) * x).mean(axis=1) / w.mean() - omega[n]) / v[n]
    return float(np.log(w.mean() / (2 * np.pi * v[n]))), g


def test_the_error_decays_with_the_number_of_terms() -> None:
    off_log, off_last, off_all, share = [], [], [], []
    for n in (3, 12):
        model, q = committee(n), np.array([0.3] * n + [0.9])
        omega, Z = draws(model, q, 48, seed=n)
        u = model.channel.posterior.read(model.observe(Z)).values
        runs = [[exact(o, 1 - q, y, 2**14, seed) for o, y in zip(omega, u, strict=True)] for seed in (0, 1)]
        ours = model.channel.moments_at(u, omega, np.diag(1 - q), rtol=1e-3)
        log_z = np.mean([[r[0] for r in run] for run in runs], axis=0)
        one, two = (np.array([r[1] for r in run]) for run in runs)
        off_log.append(np.sqrt(np.mean((ours.log_partition - log_z) ** 2)))
        off_last.append(np.sqrt(np.mean(((ours.g - one) * (ours.g - two))[:, n]) / np.mean(one[:, n] * two[:, n])))
        # The product of two runs has no bias from their noise.
        off_all.append(np.mean(((ours.g - one) * (ours.g - two))[:, :n]) / np.mean(one[:, :n] * two[:, :n]))
        share.append(np.mean(ours.g[:, :n] ** 2) / np.mean(one[:, :n] * two[:, :n]))
    assert off_log[0] < 0.04 and off_log[1] < 0.4 * off_log[0]
    assert off_last[0] < 0.04 and off_last[1] < 0.4 * off_last[0]
    # Pointwise the square of the committee's error decays as 1/n, and so does the error of E(Q).
    assert off_all[0] < 0.06 and off_all[1] < 0.5 * off_all[0]
    assert share[0] == pytest.approx(1, abs=0.12) and share[1] == pytest.approx(1, abs=0.06)


def test_the_first_threshold_through_the_statistic() -> None:
    """Against the exact channel at n = 16: a lattice of outputs, fields of the committee drawn."""
    alpha, _ = first_threshold(committee(16), (1,))
    assert alpha == pytest.approx(0.168137, rel=2e-4)


def test_a_noisy_output_needs_no_chart() -> None:
    model = committee(6, noise=0.05)
    assert model.channel.free_dimensions == 4 and model.level_set is None
    exact_model = smisym.compile(Architecture(2, (*[A(readout=1 / 6)] * 6, A()), limit="first_order", noise=0.05))
    q = np.array([0.4] * 6 + [0.6])
    omega, Z = draws(model, q, 6)
    y = model.channel.sample(Z, np.random.default_rng(0))
    ours = model.channel.moments(y, omega, np.diag(1 - q), rtol=1e-2)
    theirs = exact_model.channel.moments(y, omega, np.diag(1 - q), rtol=2e-2)
    np.testing.assert_allclose(ours.log_partition, theirs.log_partition, atol=0.02)
    np.testing.assert_allclose(ours.g[:, 6], theirs.g[:, 6], atol=0.06)


def test_nishimori_in_the_overlap_map() -> None:
    """Outputs of the exact network: the identities hold to the order of the approximation."""
    model = committee(8)
    omap = smisym.overlap_map(model, samples=4096, scrambles=2)
    estimates = omap.evaluate(np.diag([0.4] * 8 + [0.8]))
    three = model.symmetry.coordinates(np.mean([e.three for e in estimates], axis=0))
    np.testing.assert_allclose(three[1:, 1], three[0, 1], rtol=0.03)
    np.testing.assert_allclose(three[1, 0], three[0, 0], rtol=0.15)


# ---- the declaration -------------------------------------------------------------------------------


def test_the_choice_is_declared(tmp_path) -> None:
    layers = (*[A(readout=0.5)] * 2, A())
    plain, chosen = (Architecture(2, layers, limit="first_order", statistic=s) for s in ("exact", "gaussian"))
    assert plain.digest == Architecture(2, layers, limit="first_order").digest != chosen.digest
    smisym.save(chosen, tmp_path / "committee.toml")
    assert smisym.load(tmp_path / "committee.toml") == chosen
    assert eval(repr(chosen), {"Architecture": Architecture, "Attention": A}) == chosen
    with pytest.raises(InputError, match="statistic"):
        Architecture(2, layers, statistic="normal")
    (step,) = smisym.compile(chosen).derivation.stage("statistic")
    assert "central limit" in step.text and any("third cumulant" in how for _, how in step.checks)
