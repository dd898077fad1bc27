"""Exported modules of one free dimension meet every maximum, however many there are."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

import smisym
from smisym import SMI

SAMPLES = 30


@pytest.mark.parametrize("noise", (1e-3, 0.05))
@pytest.mark.parametrize("frequency", (12.0, 20.0))
def test_of_an_output_that_turns_fast_under_noise(
    frequency: float, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to sixty maxima of a five hundredth of a standard deviation: some were missed, and the error knew of none."""
    channel = smisym.compile(SMI(f"cos({frequency:g}*z1)", 1, noise=noise)).channel
    module = types.ModuleType("turning")
    monkeypatch.setitem(sys.modules, "turning", module)
    exec(smisym.export_code(SMI(f"cos({frequency:g}*z1)", 1, noise=noise)), module.__dict__)
    rng = np.random.default_rng(1)
    omega = rng.standard_normal((SAMPLES, 1, 1))
    omega[: SAMPLES // 2] = 0.0
    y = channel.sample(omega + rng.standard_normal(omega.shape), rng).y
    found = module.moments(y, omega, np.eye(1), rtol=1e-3)
    x = np.linspace(-9, 9, 40001)
    z = omega[:, 0] + x
    exponent = -0.5 * x**2 - (y.reshape(-1, 1) - np.cos(frequency * z)) ** 2 / (2 * noise)
    top = exponent.max(axis=1, keepdims=True)
    weight = np.exp(exponent - top)
    total = weight.sum(axis=1)
    away = np.abs(found.mean[:, 0, 0] - (weight * z).sum(axis=1) / total)
    log_norm = top[:, 0] + np.log(total * (x[1] - x[0])) - np.log(2 * np.pi) - 0.5 * np.log(noise)
    assert (found.error <= 1e-3).all()
    # Beside the stated error what a module leaves out around each maximum: exp(-10) of the tolerance.
    assert (away <= found.error + 60 * 1e-3 * np.exp(-10)).all()
    np.testing.assert_allclose(found.log_partition, log_norm, atol=2e-3)


# What a lattice of steps of a tenth passes by: an output that rules a slot out, and a step of one.
NARROW = {
    "exp(-400*z1**2)": (0.01, 1.0, -0.09735519604196714, -0.17469037462127704),
    "tanh(20*z1)": (0.1, 0.3, 1.253397212523368, 1.565961097542911),
}


@pytest.mark.parametrize("expression", NARROW)
def test_what_is_narrower_than_steps_is_in_the_error(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Means were off by 0.013 and 0.0033 where 4e-6 and 2e-4 were stated."""
    noise, V, y, omega = NARROW[expression]
    module = types.ModuleType("narrow")
    monkeypatch.setitem(sys.modules, "narrow", module)
    exec(smisym.export_code(SMI(expression, 1, noise=noise)), module.__dict__)
    x = np.linspace(-9, 9, 400001)
    z = omega + np.sqrt(V) * x
    shown = np.exp(-400 * z**2) if expression.startswith("exp") else np.tanh(20 * z)
    weight = np.exp(-0.5 * x**2 - (y - shown) ** 2 / (2 * noise))
    mean = (weight * z).sum() / weight.sum()
    for rtol in (1e-2, 1e-3, 1e-4, 1e-5):
        found = module.moments(np.array([[y]]), np.array([[[omega]]]), np.array([[V]]), rtol=rtol)
        assert found.error[0] <= rtol
        assert abs(found.mean[0, 0, 0] - mean) / np.sqrt(V) <= 1.1 * found.error[0] + 1e-9
