"""Where little is learned E is the integral of its own derivative: the same map, with less noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

import smisym
from smisym import SMI, Architecture, Attention
from smisym.theory.estimate import Estimate
from smisym.theory.small_overlaps import from_slopes

TWO = Architecture(2, (Attention(), Attention()))
UNTIED = Architecture(2, (Attention(tied=False),))
RETRIEVAL = SMI("abs(z1)", 1)


def of_retrieval(q: float, nodes: int = 200) -> float:
    """E(q) of y = |z|, one token: the posterior is +y or -y, with log-odds 2 omega y / V."""
    x, weight = np.polynomial.hermite_e.hermegauss(nodes)
    weight = weight / weight.sum()
    V = 1 - q
    omega = np.sqrt(q) * x[:, None]
    z = omega + np.sqrt(V) * x
    g = (z * np.tanh(omega * z / V) - omega) / V
    return float(weight @ g**2 @ weight)


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
def test_rule_is_exact(power: float) -> None:
    """For E = q^p with the derivative of that, at every q that counts as little; of p = 4 one part in 75 too much."""
    model = smisym.compile(RETRIEVAL)
    omap = smisym.overlap_map(model, samples=64, scrambles=2)

    def made(scramble: int, Q: np.ndarray) -> Estimate:
        q = float(Q[0, 0])
        slope = np.full((1, 1, 1, 1), (1 - q) ** 2 * power * q ** (power - 1))
        return replace(omap.at(scramble, Q), slope=slope)

    for q in (1e-6, 1e-3, 0.03):
        found = from_slopes(model.symmetry, np.array([[q]]), 0, made)
        assert found.E[0, 0] == pytest.approx(q**power * (76 / 75 if power == 4 else 1), rel=1e-12)
    beyond = from_slopes(model.symmetry, np.array([[0.31]]), 0, made)
    np.testing.assert_array_equal(beyond.white, omap.at(0, np.array([[0.31]])).white)


@pytest.mark.parametrize("q", [1e-3, 0.01, 0.03, 0.1, 0.25, 0.4])
def test_against_quadrature(q: float) -> None:
    """E of |z|, also between where slopes tell all of it and none."""
    omap = smisym.overlap_map(smisym.compile(RETRIEVAL), samples=2**15, scrambles=8, seed=4)
    found, error = omap(np.array([[q]]))
    exact = of_retrieval(q)
    assert abs(found[0, 0] - exact) < 5 * error[0, 0] + 2e-4 * exact


def test_noise_is_less_than_that_of_an_average() -> None:
    """E_22 of two layers beside the mean of g g^T over the same points, which is the same on average."""
    omap = smisym.overlap_map(smisym.compile(TWO), samples=2**12, scrambles=16, seed=1, rtol=0.1)
    for Q in (np.diag([0.0, 0.005]), np.diag([0.01, 0.97])):
        k = int(Q[0, 0] > 0) ^ 1
        estimates = omap.evaluate(Q)
        own = np.array([e.white[k, k] for e in estimates])
        plain = np.array([e.three[0][k, k] for e in estimates])
        apart = np.abs((own - plain).mean()) / ((own - plain).std(ddof=1) / 4)
        assert apart < 4
        assert own.std() < 0.7 * plain.std()


def test_queries_and_keys_go_together() -> None:
    """Overlaps of an untied head, small at once or one of them alone: the average, within its noise."""
    omap = smisym.overlap_map(smisym.compile(UNTIED), samples=2**13, scrambles=16, seed=2)
    for Q in (np.diag([0.01, 0.005]), np.diag([0.01, 0.6])):
        estimates = omap.evaluate(Q)
        apart = np.array([(e.white - e.three[0]).diagonal() for e in estimates])
        assert (np.abs(apart.mean(axis=0)) < 4 * apart.std(axis=0, ddof=1) / 4).all()
    # Where one is known much of the other is told, and the average is as it was.
    assert omap.at(0, np.diag([0.01, 0.6])).white[0, 0] > 0.1


@pytest.mark.parametrize("seed", range(20, 22))
def test_just_above_a_threshold(seed: int) -> None:
    """Two layers, 1.1 % above the first threshold: 0.0026(2), by the mean of 12 other seeds.

    From averages it was 0.0082(9) with one seed.
    """
    solution = smisym.state_evolution(smisym.compile(TWO), 0.1875, accuracy=2e-3, seed=seed)
    assert solution.result.ok
    error = solution.statistical_error[1, 1] + solution.deterministic_error[1, 1]
    assert error <= 2e-3
    assert abs(solution.value.Q[1, 1] - 0.0026) < 4 * error


@pytest.mark.parametrize("alpha", [0.505, 0.51, 0.53])
def test_just_above_an_exact_threshold(alpha: float) -> None:
    """|z| against the root of its equation by quadrature: Newton's step of a mean map, from twice as far away, left
    what its own error did not hold (0.0048 for 0.0020 with a stated 0.0003)."""
    exact = brentq(lambda q: q - alpha * of_retrieval(q) / (1 + alpha * of_retrieval(q)), 1e-4, 0.5)
    model = smisym.compile(RETRIEVAL)
    for seed in range(2):
        solution = smisym.state_evolution(model, alpha, accuracy=1e-3, seed=seed)
        error = float((solution.statistical_error + solution.deterministic_error)[0, 0])
        assert solution.result.ok
        assert error <= 1e-3
        assert abs(solution.value.Q[0, 0] - exact) < 3 * error


def test_parts_of_which_one_alone_tells_of_the_other_go_together() -> None:
    """z1 is told once z2 and z3 are, up to one sign, and tells nothing of them: where E = Q, slopes tell all of it."""
    model = smisym.compile(SMI(("z2**2 + z3**2", "z2**2*z3**2", "z1*z2*z3"), 3))
    alone = [model.symmetry.may_be_shown(np.arange(2) == part) for part in range(2)]
    assert [one.tolist() for one in alone] == [[True, False], [True, True]]
    omap = smisym.overlap_map(model, samples=64, scrambles=2)

    def made(scramble: int, Q: np.ndarray) -> Estimate:
        V = np.eye(3) - Q
        return replace(omap.at(scramble, Q), slope=np.einsum("pa,bq->paqb", V, V))

    Q = np.diag([0.01, 0.02, 0.02])
    np.testing.assert_allclose(from_slopes(model.symmetry, Q, 0, made).E, Q, rtol=0, atol=1e-14)
