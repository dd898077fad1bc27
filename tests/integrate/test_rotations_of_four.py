"""Moments of orthogonal matrices of four rows against closed forms, slopes, plain draws and one another."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

from smisym.integrate.rotations import turned
from smisym.integrate.rotations_of_four import turned_four


def matrices(n: int, size: float) -> np.ndarray:
    return size * np.random.default_rng(3).standard_normal((n, 4, 4))


@pytest.mark.parametrize("size", (0.0, 0.3, 1.0))
@pytest.mark.parametrize("rtol", (1e-2, 1e-9))
def test_plain_draws_say_the_same(size: float, rtol: float) -> None:
    A, drawn = matrices(1, size), ortho_group.rvs(4, size=200_000, random_state=7)
    found, weight = turned_four(A, rtol), np.exp(np.einsum("ai,nai->n", A[0], drawn))
    share, count = weight / weight.mean(), len(weight)
    assert abs(found.log_norm[0] - np.log(2 * weight.mean())) < 5 * share.std() / np.sqrt(count) + 1e-12
    pairs = np.einsum("nai,nbj->naibj", drawn[:, :2], drawn).reshape(count, -1)
    for values, mean in ((drawn.reshape(count, -1), found.mean), (pairs, found.second[:, :2])):
        own = mean[0].ravel()
        error = np.sqrt(share**2 @ (values - own) ** 2) / count
        assert (np.abs(share @ values / count - own) < 5 * error + 1e-12).all()


@pytest.mark.parametrize("size", (0.1, 1.0, 10.0, 100.0, 1e4))
def test_a_multiple_of_the_identity_has_a_closed_form(size: float) -> None:
    """Of rotations the average of exp(x tr R) is the determinant of I_{i-j}(2 x) + I_{i+j}(2 x), i, j = 0, 1, halved,
    of reflections that of I_0(2 x)^2 with what the two eigenvalues 1 and -1 leave: I_0(2 x) - I_2(2 x)."""
    x = mpmath.mpf(size)
    with mpmath.workdps(40):
        bessel = [mpmath.besseli(k, 2 * x) for k in range(4)]
        whole = bessel[0] * (bessel[0] + bessel[2]) - 2 * bessel[1] ** 2 + (bessel[0] - bessel[2])
        expected = float(mpmath.log(whole))
    found = turned_four(size * np.eye(4)[None], 1e-9)
    assert abs(found.log_norm[0] - expected) <= found.missed[0] + 4e-15 * (1 + size)


@pytest.mark.parametrize("spread", (0.0, 1.0, 2.0, 4.0, 7.0))
@pytest.mark.parametrize("rtol", (1e-3, 1e-6))
def test_what_a_loose_rule_misses_is_stated(spread: float, rtol: float) -> None:
    """Singular values of all sizes beside one another."""
    rng = np.random.default_rng(int(spread))
    values = 10 ** (rng.uniform(-1, spread, (200, 1)) + rng.uniform(-spread, 0, (200, 4)))
    A = values[:, :, None] * ortho_group.rvs(4, size=200, random_state=2)
    loose, tight = turned_four(A, rtol), turned_four(A, 1e-12)
    rounding = 2e-15 * (10 + values.sum(axis=1))
    for own, other in ((loose.log_norm, tight.log_norm), (loose.mean, tight.mean), (loose.second, tight.second)):
        off = np.abs(own - other).reshape(len(A), -1).max(axis=1)
        assert (off <= loose.missed + tight.missed + 2 * rounding).all()
    assert loose.missed.max() < rtol and tight.missed.max() < 1e-9


def test_both_ways_to_nodes_agree() -> None:
    """Between singular values whose sums are 299 and 301 other nodes are taken: the log of the integral changes by the
    integral of its slope, which is that of the mean."""
    B = matrices(20, 1.0)
    B /= np.linalg.svd(B, compute_uv=False).sum(axis=1)[:, None, None]
    ends = [turned_four(size * B, 1e-12) for size in (299.0, 301.0)]
    assert (ends[1].nodes != ends[0].nodes).all()
    x, weight = np.polynomial.legendre.leggauss(6)
    slopes = [np.einsum("nai,nai->n", B, turned_four((300.0 + at) * B, 1e-12).mean) for at in x]
    assert np.abs(ends[1].log_norm - ends[0].log_norm - weight @ slopes).max() < 2e-12


def test_what_is_nearly_known_keeps_its_digits() -> None:
    """At s = 1e6 entries off the diagonal vary by 1 / (s_i + s_j), to first order in it."""
    s = np.array([3.0, 2.0, 1.5, 0.7]) * 1e6
    found = turned_four(np.diag(s)[None], 1e-9)
    for i in range(4):
        for j in range(i):
            # A rotation by x in the plane of i and j lowers the exponent by (s_i + s_j) x^2 / 2.
            assert found.second[0, i, j, i, j] * (s[i] + s[j]) == pytest.approx(1, abs=5e-6)
            assert found.second[0, i, j, j, i] * (s[i] + s[j]) == pytest.approx(-1, abs=5e-6)


@pytest.mark.parametrize("size", (0.5, 3.0))
def test_one_row_that_is_all_but_known_leaves_three(size: float) -> None:
    """A first row along an axis with a weight of 1e9: what is left is an orthogonal matrix of three rows."""
    B = size * np.random.default_rng(8).standard_normal((3, 3))
    A = np.zeros((1, 4, 4))
    A[0, 0, 0], A[0, 1:, 1:] = 1e9, B
    found, three = turned_four(A, 1e-11), turned(B[None], 1e-12)
    assert np.abs(found.mean[0, 1:, 1:] - three.mean[0]).max() < 1e-7
    assert np.abs(found.second[0, 1:, 1:, 1:, 1:] - three.second[0]).max() < 1e-7


@given(st.integers(0, 2**32 - 1), st.floats(0, 50))
@settings(max_examples=30)
def test_axes_do_not_matter(seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    A = size * rng.standard_normal((1, 4, 4))
    left, right = (np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(2))
    here, there = turned_four(A, 1e-9), turned_four(left @ A @ right.T, 1e-9)
    allowed = here.missed[0] + there.missed[0] + 1e-12 * (1 + size)
    assert here.log_norm == pytest.approx(there.log_norm, abs=allowed)
    assert np.abs(left @ here.mean @ right.T - there.mean).max() < allowed
    turn = np.einsum("ak,im->aikm", left, right).reshape(16, 16)
    second = turn @ here.second.reshape(16, 16) @ turn.T
    assert np.abs(second - there.second.reshape(16, 16)).max() < allowed
