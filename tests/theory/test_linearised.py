"""State evolution as one equation: its derivatives are those of the map, and its tangent is that of the path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention
from smisym.base.solution import mean_and_error
from smisym.theory.fixed_point import solve
from smisym.theory.linearised import Equation

# What is declared, an alpha at which some of it is learned and some is not, and side information.
DECLARED: dict[str, tuple[Any, float, float]] = {
    "untied": (Architecture(2, (Attention(tied=False),)), 0.6, 0.0),
    "two layers": (Architecture(2, (Attention(), Attention())), 0.45, 0.0),
    "coupled overlaps": (SMI("z1*z2 + z1**2", 2), 0.3, 1.0),
    "with side information": (SMI("abs(z1)", 1), 0.4, 0.3),
}
# With fewer the slope of two layers is not told from its noise.
SAMPLES = {"two layers": 16384}


@pytest.mark.parametrize("name", DECLARED)
def test_the_tangent_is_that_of_the_path(name: str) -> None:
    """In every scramble but for the noise of the estimated derivative, which the spread over the scrambles shows."""
    declared, alpha, lam = DECLARED[name]
    omap = smisym.overlap_map(smisym.compile(declared), samples=SAMPLES.get(name, 4096), scrambles=8)
    step = 0.02 * alpha

    def both(r: int) -> tuple[np.ndarray, np.ndarray]:
        middle = solve(omap, r, alpha, lam=lam, tol=1e-6).at
        assert middle is not None
        at = [solve(omap, r, alpha + s * step, lam=lam, Q=middle.Q, tol=1e-6, kicked=False).Q for s in (-1, 1)]
        return (at[1] - at[0]) / (2 * step), Equation(omap, r, lam).at(middle.Q, alpha).tangent()

    seen, told = (np.array(values) for values in zip(*omap.each(both), strict=True))
    assert np.abs(seen).max() > 0.05
    off, error = mean_and_error(told - seen)
    size = np.abs(seen.mean(axis=0)).max()
    assert (np.abs(off) <= 4 * np.asarray(error) + 0.01 * size).all()
    assert np.asarray(error).max() < 0.2 * size  # the comparison is one


@pytest.mark.parametrize("name", DECLARED)
def test_the_residual_in_alpha(name: str) -> None:
    """Away from fixed points, where what is learned commutes with what is being learned, and its trace in any case."""
    declared, alpha, lam = DECLARED[name]
    omap = smisym.overlap_map(smisym.compile(declared), samples=128, scrambles=2)
    equation, symmetry = Equation(omap, 1, lam), omap.model.symmetry
    Q = symmetry.project(np.diag(np.linspace(0.2, 0.4, omap.model.fields)))
    here, step = equation.at(Q, alpha), 1e-5 * alpha
    ahead, behind = (equation.at(Q, alpha + s * step) for s in (1, -1))
    change = (ahead.residual - behind.residual) / (2 * step)
    if name != "coupled overlaps":
        np.testing.assert_allclose(here.onward, change, rtol=1e-6)
    traces = [float(np.einsum("k,kii->", x, here.units)) for x in (here.onward, change)]
    assert traces[0] == pytest.approx(traces[1], rel=1e-6)


def test_a_plain_step_of_coupled_rows_is_state_evolution() -> None:
    """Three rows: eigenvectors of two are a symmetric matrix, as LAPACK gives them, of which any transpose is right."""
    omap = smisym.overlap_map(smisym.compile(SMI("z1 + 2*z2 - 3*z3", 3)), samples=64, scrambles=2)
    symmetry = omap.model.symmetry
    assert not symmetry.apart
    G = np.random.default_rng(0).standard_normal((3, 3))
    Q = symmetry.project(0.2 * np.eye(3) + 0.05 * G @ G.T)
    here = Equation(omap, 0).at(Q, 0.7)
    left = np.linalg.inv(np.eye(3) + 0.7 * symmetry.project(here.estimate.E))
    assert np.abs(np.linalg.eigh(left)[1] - np.linalg.eigh(left)[1].T).max() > 0.1
    np.testing.assert_allclose(here.image, left, atol=1e-12)
    np.testing.assert_allclose(here.moved(here.residual), np.eye(3) - left, atol=1e-12)
