"""Fields drawn close to where two solutions meet: weights take nothing away, and what is rare is seen."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import integrate, special, stats

import smisym
from smisym import SMI, Architecture, Attention
from smisym.theory.narrower import NARROW, meeting, narrowed
from smisym.theory.wider import variances, widened

FLIP = np.array([[[1.0]], [[-1.0]]])


def drawn(Q: np.ndarray, elements: np.ndarray, tokens: int = 3, n: int = 2**14) -> tuple[np.ndarray, np.ndarray]:
    P = len(Q)
    points = stats.qmc.Sobol(P * tokens + 1, rng=np.random.default_rng(5)).random(n)
    normals = special.ndtri(points[:, :-1]).reshape(n, P, tokens)
    found = narrowed(normals, points[:, -1], Q, meeting(elements, tokens))
    assert (found.rest > 0).sum() == n
    return found.fields, found.weights


@pytest.mark.parametrize("left", [0.3, 0.05, 1e-3])
@pytest.mark.parametrize("near", [True, False])
def test_means_are_those_of_the_prior(left: float, near: bool) -> None:
    """E[exp(-|z|^2 / 2 s)] = (s / (1 + s))^{T / 2}, also where that is 3e-5."""
    scale = left if near else 1.0
    fields, weights = drawn(np.array([[1 - left]]), FLIP)
    values = np.exp(-0.5 * (fields**2).sum(axis=(1, 2)) / scale)
    assert np.mean(weights * values) == pytest.approx((scale / (1 + scale)) ** 1.5, rel=0.02)
    assert weights.max() < 1.6


def test_flips_of_rows_and_exchanges_are_met() -> None:
    swap, one, other = np.eye(2)[::-1], np.diag([1.0, -1.0]), np.diag([-1.0, 1.0])
    found = meeting(np.array([np.eye(2), swap, one, other, -np.eye(2), -swap, one @ swap]), 2)
    # Of rank one: both flips, the difference and the sum; not the flip of both, nor a turn by a quarter.
    assert len(found) == 4 and np.allclose(np.trace(found, axis1=1, axis2=2), 1)
    assert np.allclose(sorted(np.round(P[0, 1], 12) for P in found), [-0.5, 0, 0, 0.5])
    Q = 0.98 * np.eye(2)
    fields, weights = drawn(Q, np.array([np.eye(2), swap]), 2)
    apart = (fields[:, 0] - fields[:, 1]) / np.sqrt(2)
    assert np.mean((apart**2).sum(axis=1) < 0.1) > 0.12  # 0.05 of the prior
    for values, exact in (((fields[:, 0] * fields[:, 1]).sum(axis=1), 0.0), ((apart**2).sum(axis=1), 2.0)):
        assert np.mean(weights * values) == pytest.approx(exact, abs=0.03)


def test_solutions_that_often_meet_are_left_alone() -> None:
    """|z| of one token; a row that is known perfectly, and one of which much is left."""
    assert len(meeting(FLIP, 1)) == 0
    normals = np.random.default_rng(3).standard_normal((512, 1, 3))
    for Q in (np.array([[1.0 - 1e-13]]), np.array([[0.45]])):
        here = narrowed(normals, np.linspace(0, 1, 512, endpoint=False), Q, meeting(FLIP, 3))
        for one, other in zip((here.fields, here.weights), widened(normals, variances(Q, 3)), strict=True):
            assert np.allclose(one, other, rtol=1e-12, atol=0)


def test_the_rest_is_what_is_drawn_without_close_points() -> None:
    """All others, with the weights that they have by themselves; each close one comes from one of them."""
    normals = np.random.default_rng(3).standard_normal((512, 1, 3))
    for Q in (np.array([[0.9]]), np.array([[0.999]])):
        found = narrowed(normals, np.linspace(0, 1, 512, endpoint=False), Q, meeting(FLIP, 3))
        own, (fields, weights) = found.rest > 0, widened(normals, variances(Q, 3))
        assert np.allclose(found.fields[own], fields, rtol=1e-12, atol=0) and len(found.fields) == 640
        assert np.allclose(found.rest[own] / found.rest[own].mean(), weights, rtol=1e-9, atol=0)
        assert np.allclose(
            found.fields[~own] / normals[found.points[~own]], np.sqrt(NARROW * (1 - Q[0, 0]) * variances(Q, 3)[0])
        )


def test_nothing_jumps_where_a_second_symmetry_sets_in() -> None:
    """Two rows, each known up to its sign, of which the second begins to be met closely where half of it is left."""
    entries = ("z1[1]*z1[2]", "z1[1]**2", "z2[1]*z2[2]", "z2[2]**2")
    model = smisym.compile(SMI(entries, 2, tokens=2))
    omap = smisym.overlap_map(model, samples=4096, seed=0, workers=1)
    below, above, beyond = (
        np.array([one.E[0, 0] * 0.01 for one in omap.evaluate(np.diag([0.99, 0.5 + d]))]) for d in (-1e-6, 1e-6, 1e-4)
    )
    assert np.abs(above - below).max() < 1e-4 and np.abs(beyond - above).max() < 2e-3


def test_solutions_that_meet_more_often_than_those_told_of() -> None:
    """Two squares of one token: each sign by itself is in doubt far more often than both, so that nothing is done; and
    a symmetry whose projector does not commute with what is drawn wider leaves that out."""
    flips = np.array([np.diag(signs) for signs in ((1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0))])
    assert len(meeting(flips, 1)) == 0 and len(meeting(flips, 2)) == 2
    turned = np.eye(2) - 2 * np.array([[0.852, 0.355], [0.355, 0.148]])
    half = np.array([[0.852, 0.355], [0.355, 0.148]])
    fields, weights = drawn(np.eye(2) - 0.02 * np.eye(2), np.array([np.eye(2), turned]), 2)
    values = np.einsum("npt,nqt,n->pq", fields, fields, weights) / len(fields)
    assert np.allclose(values, 2 * np.eye(2), atol=0.03) and np.allclose(half @ half, half, atol=2e-3)


def exact_gain(Q: float, tokens: int) -> float:
    """V E(Q) of fields known up to one sign for all tokens: T - E[|z|^2 sech^2(z omega / V)] / V, where z omega is
    Q |z|^2 + sqrt(Q V) |z| times a standard normal."""
    V = 1 - Q

    def at(size: float) -> float:
        def inner(n: float) -> float:
            return float(stats.norm.pdf(n) / np.cosh((Q * size**2 + np.sqrt(Q * V) * size * n) / V) ** 2)

        centre = -np.sqrt(Q / V) * size
        ends = sorted({-12.0, float(np.clip(centre - 3, -12, 12)), float(np.clip(centre + 3, -12, 12)), 12.0})
        within = sum(integrate.quad(inner, a, b, limit=200)[0] for a, b in itertools.pairwise(ends))
        return float(stats.chi.pdf(size, tokens)) * size**2 * within

    largest = 12 * np.sqrt(V)
    lost = sum(integrate.quad(at, a, b, limit=200)[0] for a, b in ((0, largest / 4), (largest / 4, largest)))
    return tokens - lost / V


@pytest.mark.parametrize("tokens", [2, 3, 5])
@pytest.mark.parametrize("Q", [0.98, 0.9937])
def test_the_map_close_to_perfect_recovery(tokens: int, Q: float) -> None:
    """One tied head: by quadrature over the length of z.  Without such points five tokens at 0.9937 were 7e-6 off with
    a spread of 3e-8, and three at 0.98 had a spread of 1e-3."""
    model = smisym.compile(Architecture(tokens, (Attention(),)))
    found = smisym.overlap_map(model, samples=8192, seed=2).evaluate(np.array([[Q]]))
    values = np.array([one.E[0, 0] * (1 - Q) for one in found])
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - exact_gain(Q, tokens)) < 6 * error + 1e-9
    assert error < {2: 2e-3, 3: 6e-4, 5: 1e-4}[tokens]


def test_state_evolution_just_below_perfect_recovery() -> None:
    """One tied head on three tokens, stable at Q = I from 1/3 on: what 2048 samples could not settle at 0.33125, the
    fixed point of the quadrature."""
    alpha, low, high = 0.33125, 0.98, 0.9999
    for _ in range(40):
        middle = 0.5 * (low + high)
        hat = alpha * exact_gain(middle, 3) / (1 - middle)
        low, high = (middle, high) if hat / (1 + hat) > middle else (low, middle)
    model = smisym.compile(Architecture(3, (Attention(),)))
    found = smisym.state_evolution(model, alpha, samples=2048, seed=0)
    assert found.result.ok, found
    spread = found.value.overlaps.std(ddof=1) / np.sqrt(len(found.value.overlaps))
    assert abs(found.value.Q[0, 0] - low) < 6 * spread + 1e-5 and spread < 3e-4
