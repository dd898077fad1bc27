"""Moments of orthogonal matrices against closed forms, slopes, plain draws and a plain product rule of quaternions."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smisym.integrate.rotations import Turned, turned


def matrices(n: int, size: float) -> np.ndarray:
    return size * np.random.default_rng(3).standard_normal((n, 3, 3))


def from_quaternions(q: np.ndarray) -> np.ndarray:
    """Rotations (n, 3, 3) of unit quaternions (n, 4), by the textbook."""
    w, x, y, z = q.T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), -1, 0)


def product_rule(A: np.ndarray, side: int) -> Turned:
    """The same by Gauss's rule for the sum of two squares and trapezoid rules for the angles, in A's own axes."""
    x, weight = np.polynomial.legendre.leggauss(side)
    angles = 2 * np.pi * np.arange(2 * side) / (2 * side)
    grid = np.stack(np.meshgrid(0.5 * (x + 1), angles, angles, indexing="ij"), axis=-1).reshape(-1, 3)
    x, a, b = grid.T
    q = np.stack(
        [np.sqrt(x) * np.cos(a), np.sqrt(1 - x) * np.cos(b), np.sqrt(1 - x) * np.sin(b), np.sqrt(x) * np.sin(a)]
    )
    R = from_quaternions(q.T)
    R = np.concatenate([R, -R])
    w = np.tile(np.repeat(0.5 * weight, 4 * side**2) / (4 * side**2), 2) * np.exp(np.einsum("ai,nai->n", A, R))
    mean = np.einsum("n,nai->ai", w, R) / w.sum()
    second = np.einsum("n,nai,nbj->aibj", w, R, R, optimize=True) / w.sum()
    return Turned(np.log(w.sum())[None], mean[None], second[None], np.zeros(1), np.full(1, len(w)))


@pytest.mark.parametrize("size", (0.0, 0.3, 1.0, 3.0))
@pytest.mark.parametrize("rtol", (1e-2, 1e-9))
def test_a_product_rule_says_the_same(size: float, rtol: float) -> None:
    for A in matrices(3, size):
        found, other = turned(A[None], rtol), product_rule(A, 32)
        allowed = float(found.missed[0]) + 1e-12
        assert allowed < max(rtol, 1e-10)
        assert abs(found.log_norm - other.log_norm)[0] <= allowed
        assert np.abs(found.mean - other.mean).max() <= allowed
        assert np.abs(found.second - other.second).max() <= allowed


@pytest.mark.parametrize("size", (0.1, 1.0, 10.0, 100.0))
def test_a_multiple_of_the_identity_has_a_closed_form(size: float) -> None:
    """tr R = 1 + 2 cos(theta), theta with density (1 - cos(theta)) / pi; reflections are rotations times -1."""
    s = mpmath.mpf(size)
    with mpmath.workdps(30):
        bessel = mpmath.besseli(0, 2 * s), mpmath.besseli(1, 2 * s)
        whole = mpmath.exp(s) * (bessel[0] - bessel[1]) + mpmath.exp(-s) * (bessel[0] + bessel[1])
        expected = float(mpmath.log(whole))
    found = turned(size * np.eye(3)[None], 1e-9)
    assert abs(found.log_norm[0] - expected) <= found.missed[0] + 4e-15 * size


@pytest.mark.parametrize("size", (1e2, 1e4, 1e7))
def test_what_a_loose_rule_misses_is_stated(size: float) -> None:
    A = matrices(200, size)
    loose, tight = turned(A, 1e-2), turned(A, 1e-9)
    off = np.abs(loose.second - tight.second).max(axis=(1, 2, 3, 4))
    assert (off <= loose.missed + tight.missed).all()
    assert loose.missed.max() < 1e-4 and tight.missed.max() < 1e-8


def test_what_is_nearly_known_keeps_its_digits() -> None:
    """At s = 1e6 entries off the diagonal vary by 1 / (s_i + s_j), to first order in it."""
    s = np.array([3.0, 2.0, 1.5]) * 1e6
    found = turned(np.diag(s)[None], 1e-9)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        # A rotation by x in the plane of i and j lowers the exponent by (s_i + s_j) x^2 / 2.
        assert found.second[0, i, j, i, j] * (s[i] + s[j]) == pytest.approx(1, abs=3e-6)
        assert found.second[0, i, j, j, i] * (s[i] + s[j]) == pytest.approx(-1, abs=3e-6)


@given(st.integers(0, 2**32 - 1), st.floats(0, 50))
@settings(max_examples=30)
def test_axes_do_not_matter(seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    A = size * rng.standard_normal((1, 3, 3))
    left, right = (np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2))
    here, there = turned(A, 1e-9), turned(left @ A @ right.T, 1e-9)
    assert here.log_norm == pytest.approx(there.log_norm, abs=1e-12 * (1 + size))
    assert np.abs(left @ here.mean @ right.T - there.mean).max() < 1e-11 * (1 + size)
    turn = np.einsum("ak,im->aikm", left, right).reshape(9, 9)
    second = turn @ here.second.reshape(9, 9) @ turn.T
    assert np.abs(second - there.second.reshape(9, 9)).max() < 1e-11 * (1 + size)
