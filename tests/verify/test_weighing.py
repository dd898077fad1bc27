"""Draws weighed by how near their outputs are: the unit in which near is told."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention
from smisym.verify import check
from smisym.verify.weighing import in_fields, weighed


def test_outputs_are_told_in_the_unit_of_the_fields() -> None:
    """Changes of outputs that change at any rate, some not at all, have the length of those of the fields."""
    rng = np.random.default_rng(1)
    slopes = np.diag([1e2, 1.0, 1e-1]) @ rng.standard_normal((3, 3))
    root = np.linalg.cholesky(np.array([[2.0]]))
    metric = in_fields(lambda Z: np.concatenate([Z[:, 0] @ slopes.T, 0 * Z[:, 0]], axis=1), rng.random((1, 3)), root)
    moved = 1e-2 * rng.standard_normal((50, 3))
    outputs = np.concatenate([np.sqrt(2.0) * moved @ slopes.T, np.zeros((50, 3))], axis=1)
    lengths = np.linalg.norm(outputs @ metric, axis=1)
    assert lengths == pytest.approx(np.linalg.norm(moved, axis=1), rel=1e-5)
    # What no field changes is no nearer for it.
    assert np.linalg.norm(np.eye(6)[5] @ metric) >= 0.99 * np.linalg.norm(np.eye(6)[:3] @ metric, axis=1).max()


def test_outputs_that_rest_or_are_no_numbers_keep_their_own() -> None:
    for link in (lambda Z: np.sign(Z[:, 0]), lambda Z: np.where(Z[:, 0] > 1, np.inf, Z[:, 0])):
        assert np.array_equal(in_fields(link, np.full((1, 2), 1.0), np.eye(1)), np.eye(2))


def test_cubes_of_scores_are_no_false_alarm() -> None:
    """Of 40 and 0.008 with one width the smaller was any: t = 15 for a right channel."""
    model = smisym.compile(Architecture(2, (Attention(activation="s**3"),)))
    Z, omega = np.array([[-1.8493580634213747, -0.4464323350576459]]), np.array([[-0.75407986526539, 0.66431214729222]])
    found = weighed(model, Z, omega, np.array([[0.5157713016630967]]), 2.0, 524288, 4166046832)
    assert found is not None
    mean, error = found.values.mean(axis=0), found.values.std(axis=0) / np.sqrt(len(found.values))
    assert (np.abs(mean) < 5 * error + found.allowed).all()
    assert check(model, only="moments").rows[0].tried.holds
