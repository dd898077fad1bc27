"""Probabilities that three normal numbers are below given ones, against closed forms, quadrature and other orders."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp, ndtr

from smisym.posterior.orthants import log_normal_orthant, log_orthant

ORDERS = ([0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1])


def correlations(many: int, spread: float, least: float, rng: np.random.Generator) -> np.ndarray:
    """(many, 3, 3): of determinants above ``least``; the smaller ``spread``, the nearer to a plane or a line."""
    A = rng.standard_normal((40 * many, 3, 3)) * [1.0, spread, spread**2]
    C = A @ A.transpose(0, 2, 1)
    d = np.sqrt(np.diagonal(C, axis1=1, axis2=2))
    C = C / d[:, :, None] / d[:, None, :]
    C[:, range(3), range(3)] = 1.0
    return np.asarray(C[np.linalg.det(C) > least][:many])


def test_the_octant_has_its_closed_form() -> None:
    C = correlations(200, 0.7, 1e-4, np.random.default_rng(0))
    found, _, _ = log_orthant(np.zeros((len(C), 3)), C)
    exact = 0.125 + np.arcsin(C[:, [0, 0, 1], [1, 2, 2]]).sum(axis=1) / (4 * math.pi)
    np.testing.assert_allclose(np.exp(found), exact, rtol=1e-9, atol=1e-13)


def test_signs_add_up() -> None:
    """Over the eight signs probabilities add up to one; over one of them, to that of the two others."""
    rng = np.random.default_rng(1)
    C, h = correlations(40, 0.6, 1e-3, rng), rng.standard_normal((40, 3))
    total, pair = np.zeros(40), np.zeros(40)
    for signs in np.ndindex(2, 2, 2):
        s = 2.0 * np.array(signs) - 1
        share = np.exp(log_orthant(s * h, s[:, None] * s * C)[0])
        total += share
        pair += share if signs[1:] == (1, 1) else 0.0
    np.testing.assert_allclose(total, 1, atol=1e-12)
    two = np.exp(log_normal_orthant(h[:, 1], h[:, 2], C[:, 1, 2]))
    np.testing.assert_allclose(pair, two, atol=1e-12)


@pytest.mark.parametrize("spread", [1.0, 0.3, 0.05])
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_the_same_in_any_order_far_out_and_nearly_singular(spread: float, scale: float) -> None:
    rng = np.random.default_rng(2)
    C = correlations(40, spread, 1e-4, rng)
    h = scale * rng.standard_normal((len(C), 3))
    logs = [log_orthant(h[:, order], C[:, order][:, :, order])[0] for order in ORDERS]
    assert logs[0].min() < -100 and logs[0].max() > -1
    for other in logs[1:]:
        # Rounding of correlations moves large logs by more.
        np.testing.assert_allclose(other, logs[0], rtol=1e-10, atol=1e-7)


FAR = {
    "middle": ([0.3, -0.4, 0.8], [0.3, -0.5, 0.2]),
    "far out": ([-6.0, -5.0, -7.0], [0.3, -0.2, 0.4]),
    "one far out": ([1.0, 2.0, -9.0], [0.8, 0.3, 0.6]),
    "nearly alike": ([0.5, 0.45, -0.2], [0.999, 0.9, 0.91]),
    "nearly opposite": ([0.5, 0.6, 0.2], [-0.98, 0.3, -0.25]),
}


def panels(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss's rule in sixty panels from low to high, along a new axis."""
    x, w = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(low, high, 61, axis=-1)
    half = 0.5 * np.diff(edges, axis=-1)[..., None]
    nodes = edges[..., :-1, None] + half * (1 + x)
    return nodes.reshape(*nodes.shape[:-2], -1), (half * w).reshape(*nodes.shape[:-2], -1)


@pytest.mark.parametrize("name", FAR)
def test_against_nested_quadrature(name: str) -> None:
    """Each number within its end given those before (Genz's order of integration), in logs."""
    ends, (c, d, e) = FAR[name]
    C = np.array([[1, c, d], [c, 1, e], [d, e, 1]])
    L = np.linalg.cholesky(C)
    x, wx = panels(np.array(min(ends[0], 0.0) - 13.0), np.array(ends[0]))
    end = (ends[1] - L[1, 0] * x) / L[1, 1]
    y, wy = panels(np.minimum(end, 0.0) - 13.0, end)
    # In the order of the largest of them, so that no digit is lost.
    logs = -0.5 * (x * x)[:, None] - 0.5 * y * y + log_ndtr((ends[2] - L[2, 0] * x[:, None] - L[2, 1] * y) / L[2, 2])
    exact = logsumexp(logs, b=wx[:, None] * wy) - math.log(2 * math.pi)
    (found,), _, _ = log_orthant(np.array([ends]), C[None])
    assert found == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_derivatives_are_differences(k: int) -> None:
    rng = np.random.default_rng(3)
    C = correlations(30, 0.6, 1e-2, rng)[:, :k, :k]
    h = rng.standard_normal((len(C), k)) - 0.5
    log, slope, second = log_orthant(h, C)
    step = 1e-5
    for i in range(k):
        e = step * np.eye(k)[i]
        up, down = log_orthant(h + e, C), log_orthant(h - e, C)
        np.testing.assert_allclose((up[0] - down[0]) / (2 * step), slope[:, i], rtol=1e-6, atol=1e-7)
        # Second derivatives of Phi over Phi.
        curve = (up[1] - down[1]) / (2 * step) + slope * slope[:, i, None]
        np.testing.assert_allclose(curve, second[:, i], rtol=1e-5, atol=1e-6)
    if k == 1:
        np.testing.assert_allclose(np.exp(log), ndtr(h[:, 0]), rtol=1e-12)


@pytest.mark.parametrize("k", (2, 3))
@pytest.mark.parametrize("least", (1e-2, 1e-5, 1e-10))
def test_where_absolute_errors_count_nearly_dependent_numbers_are_the_same_another_way(k: int, least: float) -> None:
    """Drezner and Wesolowsky's expansion, and pieces of an interval, against integrals around the top."""
    rng = np.random.default_rng(1)
    n = 40
    factor = np.linalg.qr(rng.standard_normal((n, k, k)))[0] * np.sqrt([1.0, 0.6, least][:1] + [0.6, least][-(k - 1) :])
    M = factor @ np.swapaxes(factor, 1, 2)
    sizes = np.sqrt(np.einsum("sii->si", M))
    C = M / sizes[:, :, None] / sizes[:, None]
    # Half of them where all of the numbers meet.
    h = (factor @ rng.standard_normal((n, k, 1)))[..., 0] / sizes + rng.standard_normal((n, k)) * (np.arange(n) % 2)[
        :, None
    ]
    near = log_orthant(h, C, np.ones(n, dtype=bool))
    # Logarithms of -1e9, of those that never meet, have no digits for slopes.
    with np.errstate(over="ignore"):
        exact = log_orthant(h, C)
    p = [np.exp(one[0]) for one in (near, exact)]
    np.testing.assert_allclose(p[0], p[1], rtol=0, atol=1e-13)
    there = exact[0] > -700
    assert there.sum() >= n / 2
    slopes = [one[1][there] * size[there, None] for one, size in zip((near, exact), p, strict=True)]
    np.testing.assert_allclose(*slopes, rtol=0, atol=1e-12)
