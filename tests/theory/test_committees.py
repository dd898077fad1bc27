"""A committee of two signs, by a quadrature of its own: where it specialises, smoothly, and what is known beyond.

y = sign(sign z1 + sign z2) tells in which of three cones (z1 + z2, z1 - z2) / sqrt(2) = (u, v) lies: u > |v|, u < -|v|,
or neither.  Turning both members into one another leaves overlaps q_u and q_v of two independent fields.  (Aubin et
al., arXiv 1806.05451: second order, near alpha = 2.)
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special
from two_overlaps import fixed_point

import smisym
from smisym import SMI

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(48)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
INNER, INNER_WEIGHTS = np.polynomial.legendre.leggauss(160)


def rates(q_u: float, q_v: float) -> tuple[float, float]:
    """E of the squared derivative of log P(y | omega) by omega_u and by omega_v."""
    s_u, s_v = math.sqrt(1 - q_u), math.sqrt(1 - q_v)
    w_u, w_v = (math.sqrt(q_u) * NODES)[:, None], (math.sqrt(q_v) * NODES)[None, :]
    upper, by_u, by_v = (np.zeros((len(NODES),) * 2) for _ in range(3))
    # Over x, where v = w_v + s_v x, on each side of v = 0, where |v| has its kink.
    for side in (-1, 1):
        edge = np.clip(-w_v / s_v, -9.0, 9.0)
        low, high = (edge, 9.0) if side > 0 else (-9.0, edge)
        half = 0.5 * (high - low)
        for node, weight in zip(INNER, INNER_WEIGHTS, strict=True):
            x = 0.5 * (high + low) + half * node
            mass = weight * half * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
            height = (w_u - np.abs(w_v + s_v * x)) / s_u
            density = mass * np.exp(-(height**2) / 2) / math.sqrt(2 * math.pi) / s_u
            upper, by_u, by_v = upper + mass * special.ndtr(height), by_u + density, by_v - side * density
    # The lower cone is the upper one at -omega_u; the third has what is left.
    lower, lower_u, lower_v = upper[::-1], -by_u[::-1], by_v[::-1]
    between = 1 - upper - lower
    found = []
    for one, other in ((by_u, lower_u), (by_v, lower_v)):
        cones = ((upper, one), (lower, other), (between, -one - other))
        # An output that rounding alone leaves possible tells nothing.
        square = sum(np.where(chance > 1e-12, slope**2 / np.maximum(chance, 1e-12), 0) for chance, slope in cones)
        found.append(float(WEIGHTS @ square @ WEIGHTS))
    return found[0], found[1]


def test_two_signs_specialise_smoothly() -> None:
    """Alpha grows with the overlap from the threshold on: no fold, second order."""
    alphas = [fixed_point(rates, q_v, 0.5, 0.98)[0] for q_v in (0.002, 0.1, 0.3, 0.6)]
    assert abs(alphas[0] - 2.051) < 0.01
    assert (np.diff(alphas) > 0.02).all()


def test_the_map_of_the_package_is_that_of_the_quadrature() -> None:
    Q = np.array([[0.5, 0.2], [0.2, 0.5]])  # q_u = 0.7, q_v = 0.3
    omap = smisym.overlap_map(smisym.compile(SMI("sign(sign(z1) + sign(z2))", 2)), samples=1024, workers=1)
    each = np.array([(one.E[0, 0] + one.E[0, 1], one.E[0, 0] - one.E[0, 1]) for one in omap.evaluate(Q)])
    error = each.std(axis=0, ddof=1) / math.sqrt(len(each))
    assert (np.abs(each.mean(axis=0) - rates(0.7, 0.3)) < 5 * error).all()
    assert (error < 0.05 * each.mean(axis=0)).all()


def test_differences_of_three_signs_are_not_known_from_the_first_sample() -> None:
    """A vote tells the sum of its members at once, and by the symmetry that turns them nothing of how they differ."""
    vote = smisym.compile(SMI("sign(sign(z1) + sign(z2) + sign(z3))", 3))
    (first,) = smisym.weak_recovery(vote, samples=512, stages=1, workers=1).value
    assert first.kind == "trivial"
    assert first.subspace == pytest.approx(np.full((1, 3), 3**-0.5), abs=1e-9)


def test_what_the_symmetry_hides_stays_hidden_from_rough_integrals() -> None:
    """Where only the sum is known, E tells of nothing else, whatever the errors of the posteriors' integrals."""
    vote = smisym.compile(SMI("sign(z1 + z1**3 + z2 + z2**3 + z3 + z3**3)", 3))
    one = smisym.overlap_map(vote, samples=128, workers=1).at(0, np.full((3, 3), 0.31))
    assert one.inner_error > 1e-4
    assert np.abs(one.white - one.white.mean()).max() < 1e-12 * one.white.mean()
