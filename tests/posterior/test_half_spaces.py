"""Posteriors in closed form of links that are affine in the fields: hardmax on two tokens, and linear measurements."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp, ndtr

import smisym
from smisym import Architecture, Attention
from smisym.base.errors import InputError
from smisym.posterior.half_spaces import half_spaces_of
from smisym.posterior.orthants import log_normal_orthant

HARDMAX = Architecture(2, (Attention(rank_ratio=0.5, activation="hardmax"),))


def by_brute_force(signs: tuple[float, float], omega: np.ndarray, V: float) -> tuple[float, np.ndarray, np.ndarray]:
    """(log p, mean (3,), E[z12 z] (3,)) by the trapezoid rule over z12: given it the others are truncated normals.

    Fields z11, z12, z22 with h = (sqrt(2) z11, z12, sqrt(2) z22); a token attends to itself where h_aa > h_12.
    """
    t = omega[1] + math.sqrt(V) * np.linspace(-12, 12, 20001)
    weight = np.exp(-0.5 * (t - omega[1]) ** 2 / V) / math.sqrt(2 * math.pi * V) * (t[1] - t[0])
    means, chances = [], []
    for sign, centre in zip(signs, (omega[0], omega[2]), strict=True):
        # sign (sqrt(2) z - t) > 0
        edge = sign * (centre - t / math.sqrt(2)) / math.sqrt(V)
        chance = ndtr(edge)
        density = np.exp(-0.5 * edge**2) / math.sqrt(2 * math.pi)
        chances.append(chance)
        means.append(centre * chance + sign * math.sqrt(V) * density)
    whole = weight * chances[0] * chances[1]
    parts = np.array([weight * means[0] * chances[1], whole * t, weight * chances[0] * means[1]])
    total = whole.sum()
    return math.log(total), parts.sum(axis=1) / total, (parts * t).sum(axis=1) / total


@pytest.mark.parametrize("V", [1.0, 0.3, 1e-3])
def test_hardmax_on_two_tokens_against_brute_force(V: float) -> None:
    model = smisym.compile(HARDMAX)
    rng = np.random.default_rng(0)
    omega = rng.standard_normal((12, 1, 3))
    Z = omega + math.sqrt(V) * rng.standard_normal(omega.shape)
    y = model.link(Z)
    found = model.channel.moments(y, omega, np.full((1, 1), V), cov=True)
    for s in range(len(Z)):
        signs = tuple(1.0 if y[s, i, i] == 1 else -1.0 for i in range(2))
        log, mean, second = by_brute_force(signs, omega[s, 0], V)  # type: ignore[arg-type]
        assert found.log_partition[s] == pytest.approx(log, abs=1e-9)
        np.testing.assert_allclose(found.g[s, 0], (mean - omega[s, 0]) / V, atol=1e-8 / math.sqrt(V))
        np.testing.assert_allclose(found.cov[s, 0, 1, 0], second - mean[1] * mean, atol=1e-8 * V)
    # What is known of h_aa - h_12 is all that is told.
    np.testing.assert_allclose(found.g[:, 0] @ [1 / math.sqrt(2), 1, 1 / math.sqrt(2)], 0, atol=1e-12 / V)


def test_one_plane_where_the_first_token_sees_itself_alone() -> None:
    model = smisym.compile(Architecture(2, (Attention(rank_ratio=1.0, activation="hardmax", mask="causal"),)))
    omega = np.random.default_rng(1).standard_normal((6, 1, 3))
    y = model.link(omega)
    kappa = np.abs(math.sqrt(2) * omega[:, 0, 2] - omega[:, 0, 1]) / math.sqrt(3 * 0.5)
    found = model.channel.log_partition(y, omega, np.full((1, 1), 0.5))
    np.testing.assert_allclose(found, np.log(ndtr(kappa)), atol=1e-12)


SIGNS = {
    "perceptron": ("sign(z1)", 1, 0.0),
    "biased perceptron": ("sign(z1 - 1/2)", 1, 0.0),
    "noisy perceptron": ("sign(z1)", 1, 0.3),
    "signs of two forms": ("sign(z1 + z2) + sign(z1 - 1)", 2, 0.0),
    "committee of two": ("sign(sign(z1) + sign(z2))", 2, 0.0),
    "vote of three": ("sign(sign(z1) + sign(z2) + sign(z3))", 3, 0.0),
    "vote of three, noisy": ("sign(z1) + sign(z2) + sign(z3)", 3, 0.2),
    "parity": ("sign(z1*z2*z3)", 3, 0.0),
}


@pytest.mark.parametrize("name", SIGNS)
def test_signs_of_affine_forms_are_in_closed_form(name: str) -> None:
    """Against draws of the cavity, of coupled rows, and Nishimori's identity: over all outputs, the mean is omega."""
    expression, fields, noise = SIGNS[name]
    model = smisym.compile(smisym.SMI(expression, fields, noise=noise))
    rng = np.random.default_rng(5)
    B = rng.standard_normal((fields, fields))
    V, omega = 0.3 * B @ B.T + 0.1 * np.eye(fields), 0.7 * rng.standard_normal((1, fields, 1))
    Z = omega + np.linalg.cholesky(V) @ rng.standard_normal((400_000, fields, 1))
    outputs = model.link(Z)
    y = model.channel.sample(Z[:40], rng).y if noise else np.unique(outputs, axis=0)
    many = np.repeat(omega, len(y), axis=0)
    found = model.channel.moments(y, many, V, cov=True)
    assert found.result is smisym.Result.SUCCESS
    assert (found.error < 1e-12).all() and model.channel.free_dimensions == 0
    for s in range(len(y)):
        off = ((outputs - y[s]).reshape(len(Z), -1) ** 2).sum(axis=1)
        weight = np.exp(-0.5 * off / noise) / math.sqrt(2 * math.pi * noise) if noise else 1.0 * (off == 0)
        effective = weight.sum() ** 2 / (weight**2).sum()
        assert abs(found.log_partition[s] - np.log(weight.mean())) < 5 * math.sqrt(1 / effective)
        mean = (weight @ Z[:, :, 0]) / weight.sum()
        spread = np.sqrt(np.diag(V) / effective)
        assert (np.abs(found.mean[s, :, 0] - mean) < 5 * spread).all()
        centred = Z[:, :, 0] - mean
        cov = (weight[:, None] * centred).T @ centred / weight.sum()
        assert (np.abs(np.asarray(found.cov)[s, :, 0, :, 0] - cov) < 8 * np.outer(spread, np.sqrt(np.diag(V)))).all()
    if not noise:
        chances = np.exp(found.log_partition)
        assert chances.sum() == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(np.einsum("s,spt->pt", chances, found.mean), omega[0], atol=1e-12)


@pytest.mark.parametrize("v", [1.0, 0.03, 1e-3])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_vote_of_uncoupled_members_far_out(v: float, side: float) -> None:
    """Against products of chances in logs, at outputs that are likely (side 1) and that are all but impossible."""
    model = smisym.compile(smisym.SMI("sign(sign(z1) + sign(z2) + sign(z3))", 3))
    omega = np.random.default_rng(6).standard_normal((60, 3))
    y = side * np.sign(np.sign(omega).sum(axis=1))
    found = model.channel.moments(y[:, None], omega[:, :, None], v * np.eye(3), cov=True)
    kappa = y[:, None] * omega / math.sqrt(v)
    logs, firsts, seconds = [], [], []
    for signs in np.ndindex(2, 2, 2):
        s = 2.0 * np.array(signs) - 1
        if s.sum() > 0:
            # Of each member that is on this side of zero: the log of its chance, and moments of what it is then.
            own = log_ndtr(s * kappa)
            mills = s * np.exp(-0.5 * kappa**2 - 0.5 * math.log(2 * math.pi) - own)
            logs.append(own.sum(axis=1))
            firsts.append(mills)
            pairs = mills[:, :, None] * mills[:, None]
            pairs[:, range(3), range(3)] = 1 - kappa * mills
            seconds.append(pairs)
    total = logsumexp(logs, axis=0)
    share = np.exp(np.array(logs) - total)
    mean = np.einsum("cs,csi->si", share, firsts)
    np.testing.assert_allclose(found.log_partition, total, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(found.g[:, :, 0], y[:, None] * mean / math.sqrt(v), rtol=1e-8, atol=1e-9)
    cov = np.einsum("cs,csij->sij", share, seconds) - mean[:, :, None] * mean[:, None]
    assert total.min() < (-40 if side < 0 and v < 0.1 else 0)
    # Relative to what is known of fields far beyond their plane: second moments cancel there.
    scale = 1 + (mean**2).max(axis=1)[:, None, None]
    np.testing.assert_allclose(np.asarray(found.cov)[:, :, 0, :, 0] / v / scale, cov / scale, atol=1e-9)


@pytest.mark.parametrize(("expression", "fields"), (("sign(z1)", 1), ("sign(sign(z1) + sign(z2))", 2)))
def test_what_rounding_leaves_of_an_output_that_is_all_but_excluded_is_stated(expression: str, fields: int) -> None:
    """k deviations beyond their plane fields are 1/k on the other side; means were off by k^3 roundings, unsaid."""
    channel = smisym.compile(smisym.SMI(expression, fields)).channel
    k = 10.0 ** np.arange(1, 9)
    omega = np.broadcast_to(-k[:, None, None], (len(k), fields, 1))
    found = channel.moments(np.ones((len(k), 1)), omega, np.eye(fields), rtol=1e-3)
    with mpmath.workdps(60):
        # That both fields are positive is two such conditions.
        mean = np.array([float(mpmath.npdf(x) / mpmath.ncdf(-x) - x) for x in map(mpmath.mpf, k)])
    away = np.linalg.norm(found.mean[:, :, 0] - mean[:, None], axis=1)
    assert (away <= found.error).all()
    assert found.result is smisym.Result.INTEGRATION
    assert (found.error[k < 1e4] <= 1e-3).all()


@pytest.mark.parametrize("y", (30.0, 1e4, 1e8))
def test_outputs_under_noise_that_are_far_from_all_cells_are_those_of_the_nearest(y: float) -> None:
    """Squares of y agree in all their digits; what tells cells apart is the product of y and their difference."""
    expression = "sign(sign(z1) + sign(z2) + sign(z3))"
    omega = np.full((1, 3, 1), 0.3)
    sure = smisym.compile(smisym.SMI(expression, 3)).channel.moments(np.ones((1, 1)), omega, np.eye(3), cov=True)
    for noise in (1e-8, 1e-4, 0.01):
        channel = smisym.compile(smisym.SMI(expression, 3, noise=noise)).channel
        found = channel.moments(np.array([[y]]), omega, np.eye(3), cov=True)
        np.testing.assert_allclose(found.mean, sure.mean, rtol=1e-12)
        np.testing.assert_allclose(np.asarray(found.cov), np.asarray(sure.cov), atol=1e-12)
        log_noise = -0.5 * (y - 1) ** 2 / noise - 0.5 * math.log(2 * math.pi * noise)
        np.testing.assert_allclose(found.log_partition, sure.log_partition + log_noise, rtol=1e-12)


def test_of_outputs_that_no_cell_has_nothing_is_known() -> None:
    """As of a field that is zero, which no draw is."""
    model = smisym.compile(smisym.SMI("sign(z1) + sign(z2)", 2))
    found = model.channel.moments(np.array([[2.0], [1.0]]), np.zeros((2, 2, 1)), np.eye(2), cov=True)
    assert found.result is smisym.Result.INTEGRATION
    assert found.error[0] < 1e-13 and found.error[1] == math.inf
    assert found.log_partition.tolist() == [pytest.approx(math.log(0.25)), -math.inf]
    np.testing.assert_allclose(found.mean[0], math.sqrt(2 / math.pi), rtol=1e-12)


@pytest.mark.parametrize(
    ("expression", "fields"),
    [("sign(z1)*z2", 2), ("sign(z1**2 - 1)", 1), ("sign(z1) + sign(z1 - 1)", 1), ("sign(z1 + z2 + z3 + z4)*z1", 4)],
)
def test_what_signs_of_independent_forms_do_not_decide_is_integrated(expression: str, fields: int) -> None:
    assert half_spaces_of(smisym.compile(smisym.SMI(expression, fields)).link, 0.0) is None


def test_the_normal_orthant_far_out_and_at_strong_correlations() -> None:
    h = np.array([0.3, -1.0, 2.0, -8.0, -30.0, -4.0, 3.0])
    k = np.array([1.0, -0.5, -1.5, -7.0, -2.0, 5.0, -20.0])
    c = np.array([1 / 3, -0.9, 0.99, 1 / 3, -0.5, 0.7, 0.999])
    found = log_normal_orthant(h, k, c)
    for i in range(len(h)):
        with mpmath.workdps(25):
            s = mpmath.sqrt(1 - mpmath.mpf(c[i]) ** 2)
            cuts = [min(h[i], 0) - 25, *sorted({min(h[i], x) for x in (k[i] / c[i], h[i] - 1, h[i] - 4)}), h[i]]
            points = sorted(set(cuts))
            # Relative to what was found: quadrature stops at an absolute error.
            scale = mpmath.exp(-mpmath.mpf(float(found[i])))
            value = mpmath.quad(
                lambda x, i=i, s=s, scale=scale: scale * mpmath.npdf(x) * mpmath.ncdf((k[i] - c[i] * x) / s), points
            )
            assert float(value) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    ("tokens", "activation", "mask"), [(2, "softmax", None), (3, "softmax", "causal"), (3, "linear", None)]
)
def test_linear_measurements_are_conditioned_gaussians(tokens: int, activation: str, mask: str | None) -> None:
    """Against the projection written out for all T (arXiv 2506.01582), or conditioning on the entries that are seen."""
    model = smisym.compile(
        Architecture(tokens, (Attention(rank_ratio=0.5, activation=activation, mask=mask, beta=1.7),))
    )
    rng, V, n = np.random.default_rng(2), 0.37, tokens * (tokens + 1) // 2
    omega = rng.standard_normal((5, 1, n))
    Z = omega + math.sqrt(V) * rng.standard_normal(omega.shape)
    found = model.channel.moments(model.observe(Z), omega, np.full((1, 1), V), cov=True)
    first, second = np.triu_indices(tokens)
    tau = np.where(first == second, 1 / math.sqrt(2), 1.0)  # z of equal scores
    if mask == "causal":
        seen = np.array([1 / math.sqrt(2) if i == 0 and j == 0 else 0.0 for i, j in zip(first, second, strict=True)])
        free = np.stack([seen / np.linalg.norm(seen)])
        # Rows 2 and 3 see differences within them; the first entry is in none.
        rows = [(1, 0, 1), (2, 0, 2), (2, 1, 2)]
        entry = {pair: k for k, pair in enumerate(zip(first, second, strict=True))}
        forms = np.zeros((3, n))
        for line, (i, j, k) in enumerate(rows):
            for column, sign in ((j, 1), (k, -1)):
                a, b = min(i, column), max(i, column)
                forms[line, entry[a, b]] += sign * (math.sqrt(2) if a == b else 1.0)
        projector = forms.T @ np.linalg.solve(forms @ forms.T, forms)
        assert np.abs(projector @ free.T).max() < 1e-12
    elif activation == "softmax":
        projector = np.eye(n) - np.outer(tau, tau) / (tau @ tau)
    else:
        projector = np.eye(n)
    np.testing.assert_allclose(found.g[:, 0], (Z - omega)[:, 0] @ projector / V, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.cov[0, 0, :, 0], V * (np.eye(n) - projector), atol=1e-12)
    assert model.channel.free_dimensions == 0


def test_an_output_off_the_image_is_refused() -> None:
    model = smisym.compile(Architecture(3, (Attention(rank_ratio=0.5),)))
    y = model.link(np.random.default_rng(3).standard_normal((2, 1, 6)))
    y[1, 0] = y[1, 0, ::-1]
    with pytest.raises(InputError, match="linear equations"):
        model.channel.g_out(y, np.zeros((2, 1, 6)), np.eye(1))


def test_a_cell_that_the_first_points_miss_is_found_by_later_ones() -> None:
    """Of 25 outputs one that is drawn once in a thousand times: what no point has met yet keeps its proposal."""
    model, V = smisym.compile(Architecture(3, (Attention(rank_ratio=0.5, activation="hardmax"),))), 0.13
    rng = np.random.default_rng(3)
    omega = np.array([-0.027, -0.719, -0.434, -0.737, 0.146, -0.681])[None, None]
    Z = omega + np.sqrt(V) * rng.standard_normal((200_000, 1, 6))
    y = model.link.observe(Z).y.reshape(len(Z), -1)
    _, which, counts = np.unique(y, axis=0, return_inverse=True, return_counts=True)
    rare = int(np.argmin(np.abs(counts - 200)))
    hit = np.flatnonzero(which.reshape(-1) == rare)
    observed, many = model.observe(np.repeat(Z[hit[:1]], 8, axis=0)), np.repeat(omega, 8, axis=0)
    found = model.channel.moments(observed, many, V * np.eye(1), rtol=0.02, max_nodes=40_000)
    assert np.isfinite(found.mean).all() and np.isfinite(found.log_partition).all()
    # Each from forty hits or so, which is too few for an error to be stated; together they are enough to be told by.
    scatter = found.log_partition.std(ddof=1) / np.sqrt(8) + 1 / np.sqrt(len(hit))
    assert abs(found.log_partition.mean() - np.log(len(hit) / len(Z))) < 5 * scatter
    error = Z[hit, 0].std(axis=0) * np.sqrt(1 / len(hit) + 1 / 160)
    assert (np.abs(found.mean.mean(axis=0)[0] - Z[hit, 0].mean(axis=0)) < 5 * error).all()


def test_cells_that_two_nearly_equal_rows_all_but_exclude() -> None:
    """One cell has all the mass; bounds of others are of order one, and their logs -3000: they count for nothing."""
    model = smisym.compile(smisym.SMI("sign(z1*z2*z3)", 3))
    omega = np.array([[[-1.324], [-0.197], [1.999]]])
    u = np.array([0.878, -0.479]) / math.hypot(0.878, 0.479)
    V = 1e-4 * np.eye(3) + 0.95 * np.diag([0.0, 0.0, 1.0])
    V[:2, :2] += 0.95 * np.outer(u, u)
    Z = omega + np.linalg.cholesky(V) @ np.random.default_rng(7).standard_normal((400_000, 3, 1))
    own = Z[model.link(Z).ravel() == 1]
    found = model.channel.moments(np.array([[1.0]]), omega, V, cov=True)
    assert abs(found.log_partition[0] - math.log(len(own) / len(Z))) < 5 / math.sqrt(len(own))
    error = own.std(axis=0) / math.sqrt(len(own))
    assert (np.abs(found.mean[0] - own.mean(axis=0)) < 5 * error).all()
    np.testing.assert_allclose(V @ found.g[0], found.mean[0] - omega[0], atol=1e-12)
