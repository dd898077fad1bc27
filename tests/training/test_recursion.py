"""State evolution step by step is the public overlap map, iterated."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention
from smisym.training.recursion import iterated

ONE_LAYER = Architecture(2, (Attention(),))


@pytest.mark.parametrize(
    ("declared", "start", "lam"),
    [
        (ONE_LAYER, np.diag([0.05]), 0.01),
        (Architecture(2, (Attention(heads=2),), head_layout="split"), np.diag([0.05, 0.2]), 0.0),
        (Architecture(2, (Attention(tied=False),)), np.diag([0.1, 0.2]), 0.02),
    ],
)
def test_it_iterates_the_public_map(declared: Architecture, start: np.ndarray, lam: float) -> None:
    model = smisym.compile(declared)
    omap = smisym.overlap_map(model, samples=256, scrambles=2, workers=1)
    alpha, steps, unit = 0.4, 5, np.eye(model.fields)
    found = iterated(omap, alpha, start, steps, lam)
    each = np.broadcast_to(model.symmetry.project(start), (2, *start.shape)).copy()
    for step in range(steps):
        np.testing.assert_allclose(found[:, step], each, atol=1e-10)
        for r, estimate in enumerate(omap.evaluate(each)):
            told = alpha * model.symmetry.project(estimate.E) + lam * unit
            each[r] = unit - np.linalg.inv(unit + told)
    np.testing.assert_allclose(found[:, steps], each, atol=1e-10)
    assert np.abs(found[:, -1] - found[:, 0]).max() > 0.05


def test_what_is_learned_perfectly_stays() -> None:
    """One layer is recovered perfectly at alpha = 2, in a few steps, and there the recursion rests."""
    omap = smisym.overlap_map(smisym.compile(ONE_LAYER), samples=256, scrambles=2, workers=1)
    found = iterated(omap, 2.0, np.diag([0.3]), 40, 0.0)[:, :, 0, 0]
    assert np.isfinite(found).all() and (np.diff(found, axis=1) > -1e-12).all()
    np.testing.assert_allclose(found[:, -5:], 1.0, atol=1e-8)


def test_without_side_information_nothing_is_learned_from_nothing() -> None:
    omap = smisym.overlap_map(smisym.compile(ONE_LAYER), samples=256, scrambles=2, workers=1)
    np.testing.assert_array_equal(iterated(omap, 0.5, np.zeros((1, 1)), 3, 0.0), 0.0)
    # Above the threshold, 1/6, each step multiplies it by alpha / alpha_c and adds what is told beside.
    lam, growth = 1e-6, 0.5 * 6
    grown = iterated(omap, 0.5, np.zeros((1, 1)), 3, lam)[:, :, 0, 0] / lam
    np.testing.assert_allclose(grown[:, 1:], np.cumsum(growth ** np.arange(3.0))[None] * np.ones((2, 1)), rtol=0.03)
