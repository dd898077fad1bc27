"""A vote of three signs, by a quadrature of its own: where its members become different is a jump.

Turning the members into one another leaves an overlap q_u of their sum and one, q_v, of all differences.  Given omega
the fields are equally correlated normal numbers: P(most are positive) = sum_{i<j} Phi_2 - 2 Phi_3, and

    d Phi_3 / d r = sum_{i<j} phi_2(k_i, k_j; r) Phi((k_l - m) / s),  m = r (k_i + k_j) / (1 + r),

s^2 = (1 - r) (1 + 2 r) / (1 + r), the mean and the variance of the third given the two (Plackett's identity).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, special
from two_overlaps import fixed_point

import smisym
from smisym import SMI

VOTE = SMI("sign(sign(z1) + sign(z2) + sign(z3))", 3)
# The sum and two differences, orthonormal.
AXES = np.array([[1, 1, 1], [1, -1, 0], [1, 1, -2]]) / np.sqrt([[3], [2], [6]])
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
LINE, LENGTHS = np.polynomial.legendre.leggauss(24)
PAIRS = ((0, 1, 2), (0, 2, 1), (1, 2, 0))
GRID = np.stack(np.meshgrid(NODES, NODES, NODES, indexing="ij")).reshape(3, -1)
MASS = np.einsum("a,b,c->abc", WEIGHTS, WEIGHTS, WEIGHTS).ravel()


def pair(a: np.ndarray, b: np.ndarray, r: float) -> np.ndarray:
    """Density of two normal numbers of correlation r."""
    root = math.sqrt(1 - r * r)
    found: np.ndarray = np.exp(-(a * a - 2 * r * a * b + b * b) / (2 * root**2)) / (2 * math.pi * root)
    return found


def both_below(a: np.ndarray, b: np.ndarray, r: float) -> np.ndarray:
    along = sum(w * pair(a, b, r * (x + 1) / 2) for x, w in zip(LINE, LENGTHS, strict=True))
    found: np.ndarray = special.ndtr(a) * special.ndtr(b) + 0.5 * r * along
    return found


def all_below(k: np.ndarray, r: float) -> np.ndarray:
    found: np.ndarray = special.ndtr(k).prod(axis=0)
    for x, w in zip(LINE, LENGTHS, strict=True):
        t = r * (x + 1) / 2
        s = math.sqrt((1 - t) * (1 + 2 * t) / (1 + t))
        for i, j, other in PAIRS:
            beyond = special.ndtr((k[other] - t / (1 + t) * (k[i] + k[j])) / s)
            found = found + 0.5 * r * w * pair(k[i], k[j], t) * beyond
    return found


def votes(q_u: float, q_v: float) -> tuple[np.ndarray, np.ndarray, float, float]:
    """P(y = 1 | omega) on the grid, means of the fields beside their size, their correlation and their size."""
    variance, shared = (1 - q_u + 2 * (1 - q_v)) / 3, (q_v - q_u) / 3
    r, size = shared / variance, math.sqrt(variance)
    k = AXES.T @ (np.sqrt([q_u, q_v, q_v])[:, None] * GRID) / size
    chance = sum(both_below(k[i], k[j], r) for i, j, _ in PAIRS) - 2 * all_below(k, r)
    return chance, k, r, size


def log_partition(q_u: float, q_v: float) -> float:
    """E log P(y | omega)."""
    chance = votes(q_u, q_v)[0].clip(0, 1)  # rounding leaves 1e-16 beyond
    return float((special.xlogy(chance, chance) + special.xlogy(1 - chance, 1 - chance)) @ MASS)


def free_entropy(alpha: float, q_u: float, q_v: float) -> float:
    prior = 0.5 * (q_u + math.log(1 - q_u)) + q_v + math.log(1 - q_v)
    return prior + alpha * log_partition(q_u, q_v)


def rates(q_u: float, q_v: float) -> tuple[float, float]:
    """E of the squared derivative of log P(y | omega) along the sum, and along one difference."""
    chance, k, r, size = votes(q_u, q_v)
    slopes = np.empty_like(k)
    for i in range(3):
        a, b = ((k[j] - r * k[i]) / math.sqrt(1 - r * r) for j in range(3) if j != i)
        density = np.exp(-(k[i] ** 2) / 2) / math.sqrt(2 * math.pi)
        slopes[i] = density * (special.ndtr(a) + special.ndtr(b) - 2 * both_below(a, b, r / (1 + r))) / size
    # An output that rounding alone leaves possible tells nothing.
    known = (chance > 1e-12) & (chance < 1 - 1e-12)
    told = np.where(known, 1 / np.where(known, chance * (1 - chance), 1.0), 0.0)
    e = ((AXES @ slopes) ** 2 * told) @ MASS
    return float(e[0]), float(e[1:].mean())


def test_three_signs_specialise_by_a_jump() -> None:
    """From nothing at alpha = 19.2; but once known apart they stay so down to 10.92, where the branch turns."""
    alphas = [fixed_point(rates, q_v, 0.85, 0.97)[0] for q_v in (0.002, 0.2, 0.64, 0.7)]
    # With 80 nodes an axis, which leave 3e-4; with so few as here 1e-2.
    assert alphas == pytest.approx([19.113, 13.654, 10.924, 10.975], abs=0.015)


def alike(alpha: float) -> float:
    """q_u at q_v = 0, members alike."""
    return float(optimize.brentq(lambda q: q / (1 - q) - alpha * rates(q, 0.0)[0], 0.8, 0.98, xtol=1e-8))


def test_members_that_are_apart_are_the_optimum_from_11_33_on() -> None:
    """Between there and 19.2, where members that are alike become unstable, is a hard phase."""
    model = smisym.compile(VOTE)

    def above(q_v: float) -> tuple[float, float, float, float]:
        alpha, q_u = fixed_point(rates, q_v, 0.85, 0.99)
        q = alike(alpha)
        return free_entropy(alpha, q_u, q_v) - free_entropy(alpha, q, 0.0), alpha, q_u, q

    q_v = optimize.brentq(lambda q: above(q)[0], 0.775, 0.795, xtol=1e-3)
    _, alpha, q_u, q = above(q_v)
    # With 32, 48 and 64 nodes an axis 11.3312, 11.3326 and 11.3325.
    assert alpha == pytest.approx(11.3325, abs=0.005)
    for diagonal in ([q_u, q_v, q_v], [q, 0.0, 0.0]):
        Q = AXES.T @ np.diag(diagonal) @ AXES
        own = smisym.free_entropy(model, Q, alpha, samples=256, workers=1)
        assert own.value == pytest.approx(free_entropy(alpha, *diagonal[:2]), abs=5 * own.statistical_error)
        assert own.statistical_error < 0.1 * abs(own.value)


def test_the_map_of_the_package_is_that_of_the_quadrature() -> None:
    Q = AXES.T @ np.diag([0.92, 0.66, 0.66]) @ AXES  # near the turn
    omap = smisym.overlap_map(smisym.compile(VOTE), samples=256, workers=1)
    each = np.array([np.diag(AXES @ one.E @ AXES.T) for one in omap.evaluate(Q)])
    found = np.stack([each[:, 0], each[:, 1:].mean(axis=1)], axis=1)
    error = found.std(axis=0, ddof=1) / math.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - rates(0.92, 0.66)) < 5 * error).all()
    assert (error < 0.25 * found.mean(axis=0)).all()
