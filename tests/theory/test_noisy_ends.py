"""Under noise nothing is learned perfectly, however large alpha is, and free entropies stay finite."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq

import smisym
from smisym import SMI

NOISE = 1e-5


def left(alpha: float) -> float:
    """1 - Q of z + z^3 / 10 under noise so weak that the cavity sees the slope of the link alone."""
    z, weight = np.polynomial.hermite_e.hermegauss(200)
    square = (1 + 0.3 * z**2) ** 2
    weight = weight / weight.sum()
    root = brentq(lambda v: np.exp(v) * (1 + alpha * weight @ (square / (NOISE + square * np.exp(v)))) - 1, -25, -2)
    return float(np.exp(root))


def test_what_is_left_is_of_the_order_of_the_noise() -> None:
    """From 1e-6 on it was called perfect: 1 - Q = 0 without an error, and a free entropy of minus infinity."""
    omap = smisym.overlap_map(smisym.compile(SMI("z1+0.1*z1**3", 1, noise=NOISE)), samples=4096)
    entropies = []
    for found in smisym.curve(omap, [10.0, 30.0, 300.0]):
        assert found.result.ok
        alpha = found.value.alpha
        error = found.value.Q_error[0, 0]
        assert 0 < error < 0.02 * left(alpha)
        assert abs(1 - found.value.Q[0, 0] - left(alpha)) < 5 * error
        entropies.append(smisym.free_entropy(omap, found.value.Q, alpha).value / alpha)
    assert np.isfinite(entropies).all() and (np.diff(entropies) > 0).all()


def test_overlaps_that_symmetries_change_are_refused() -> None:
    """Their free entropy was that of the prior at one overlap and of the outputs at another."""
    omap = smisym.overlap_map(smisym.compile(SMI("tanh(z1)*z2+0.5*z1", 2, noise=0.1)), samples=64)
    Q = np.array([[0.5, 0.4], [0.4, 0.4]])
    for ask in (omap, omap.evaluate, lambda Q: smisym.free_entropy(omap, Q, 1.0)):
        with pytest.raises(smisym.InputError, match=r"change by 0\.4"):
            ask(Q)
        ask(omap.model.symmetry.project(Q))
