"""Expressions that are periodic in a field: all solutions, or none of the way."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import SMI

CASES = {
    "sin(3*z1)+z2**2": lambda z1, z2: np.sin(3 * z1) + z2**2,
    "sin(z1)*z2**2": lambda z1, z2: np.sin(z1) * z2**2,
    "z1+sin(z1)+z2**2": lambda z1, z2: z1 + np.sin(z1) + z2**2,
}


@pytest.mark.parametrize("text", ["sin(3*z1)+z2**2", "z1+sin(z1)+z2**2"])
def test_every_field_lies_on_a_sheet_of_each_way_to_solve(text: str) -> None:
    """Sheets share the level set: each way that takes part must hold all of it.  One root of the expression for either
    field is the field itself, as far out as fields reach."""
    model = smisym.compile(SMI(text, 2))
    chart = model.level_set
    assert chart is not None
    Z = 2.5 * np.random.default_rng(0).standard_normal((400, 2, 1))
    Z = np.clip(Z, -8.5, 8.5)
    u = list(chart.coordinates(model.observe(Z)).values.T)
    with np.errstate(all="ignore"):
        # One coordinate: what is solved for is given at each of both fields in turn.
        held = np.zeros(len(Z))
        for kept in (0, 1):
            x = Z[:, kept, 0] / 1.3
            sheets = chart.solve([], [x], u)
            on = np.zeros(len(Z), dtype=bool)
            for solved in sheets.solved:
                points = np.stack(np.broadcast_arrays(*solved), axis=1)
                on |= (np.abs(points - Z[:, :, 0]) <= 1e-5 * (1 + np.abs(Z[:, :, 0]))).all(axis=1)
            held += on
    # Where the sign of a field cuts the sheets its coordinate is another one: then the other way alone is seen here.
    assert (held >= 1).mean() > 0.98


@pytest.mark.parametrize("text", CASES)
def test_posteriors_are_those_of_draws_of_the_cavity(text: str) -> None:
    """Of sin(3 z1) + z2^2 principal solutions alone gave means 600 stated errors off, and said success."""
    model, rng = smisym.compile(SMI(text, 2)), np.random.default_rng(0)
    V = np.array([[0.6, -0.3], [-0.3, 0.5]])
    root = np.linalg.cholesky(V)
    omega = rng.multivariate_normal([0, 0], np.eye(2) - V, size=40)[:, :, None]
    Z = omega + (root @ rng.standard_normal((40, 2, 1)))
    # Outputs that change fast enough beside the width of the kernel below.
    some = np.flatnonzero(np.abs(CASES[text](*Z[:, :, 0].T)) > 0.4)[:3]
    omega, Z = omega[some], Z[some]
    y = model.observe(Z)
    found = model.channel.moments(y, omega, V, rtol=1e-2)
    drawn = root @ rng.standard_normal((2, 2_000_000))
    for k in range(3):
        z = omega[k] + drawn
        value = CASES[text](*Z[k, :, 0])
        near = z[:, np.abs(CASES[text](*z) - value) < 3e-3 * max(1.0, abs(value))]
        error = near.std(axis=1) / np.sqrt(near.shape[1])
        assert (np.abs(found.mean[k, :, 0] - near.mean(axis=1)) < 4.5 * error + 2 * found.error[k]).all()
