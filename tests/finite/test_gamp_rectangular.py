"""GAMP for rectangular matrices of extensive rank follows state evolution."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import smisym
from smisym import SMI, InputError

MODEL = smisym.compile(SMI("z1", 1, rank_ratio=0.5))


def test_gamp_on_bilinear_sequence_regression_follows_state_evolution() -> None:
    """rho = 0.5, alpha = 0.5, d = 30 and 60: the gap falls with d, to a few hundredths (d = 100: 0.345 and 0.335 of two
    runs, where 0.351 is expected)."""
    alpha = 0.5
    expected = 1 - float(smisym.curve(MODEL, [alpha])[0].value.Q[0, 0])
    gaps = []
    for dim, runs in ((900, 4), (3600, 3)):
        found = []
        for seed in range(runs):
            data = smisym.generate(MODEL, dim, alpha, np.random.default_rng(seed), normalised=True)
            assert data.X.shape == (round(alpha * dim), 1, dim)
            run = smisym.gamp(MODEL, data.X, data.y, W=data.W, max_steps=25, seed=seed)
            found.append(float(np.mean((run.value.W_hat - data.W) ** 2)))
            assert float(run.value.C_hat[0, 0]) == pytest.approx(expected, abs=0.03)
        gaps.append(float(np.mean(found)) - expected)
    assert abs(gaps[1]) < 0.02
    assert abs(gaps[1]) < abs(gaps[0])


def test_dimensions_that_are_no_matrix_are_refused() -> None:
    with pytest.raises(InputError, match="use D = 1024 = 32 x 32"):
        smisym.generate(MODEL, 1000, 0.5, np.random.default_rng(0))
    # Too many numbers for the memory: what fits is a matrix too.
    with pytest.raises(InputError, match=r"D = \d+ fits") as refused:
        smisym.generate(MODEL, 10**8, 0.5, np.random.default_rng(0))
    (fits,) = re.findall(r"D = (\d+) fits", str(refused.value))
    assert math.isqrt(int(fits)) ** 2 == int(fits)
