"""Priors: what the solvers ask of one, against quadrature, and a kind from outside the package through every solver."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention
from smisym.base.errors import InputError
from smisym.prior import GaussianPrior, GaussianRows, Prior, SlicedRows, remaining

A = Attention


@final
@dataclass(frozen=True)
class WideRows(GaussianPrior):
    """Rows of standard deviations other than one: a kind of prior that the package does not have."""

    widths: tuple[float, ...]

    @property
    def row_slices(self) -> tuple[int, ...]:
        return (0,) * len(self.widths)

    @property
    def deviations(self) -> np.ndarray:
        return np.array(self.widths)

    def describe(self) -> str:
        return f"independent normal entries of standard deviations {self.widths}"


PRIORS = {
    "rows": GaussianRows(3),
    "sliced": SlicedRows((0, 1, 1)),
    "wide": WideRows((0.5, 1.0, 2.0)),
}


def overlap(prior: Prior, seed: int = 0) -> np.ndarray:
    """A generic one, with nothing between rows that have none."""
    G = np.random.default_rng(seed).standard_normal((prior.rows, prior.rows))
    S = prior.together() * (G @ G.T)
    return np.asarray(0.7 * S / np.linalg.eigvalsh(S)[-1])


@pytest.mark.parametrize("name", PRIORS)
def test_the_law_of_fields_is_one_law_from_either_end(name: str) -> None:
    """omega given Z, and Z given omega: the same covariances; V is what is left, and units are of order one."""
    prior, Q = PRIORS[name], overlap(PRIORS[name])
    law, (A, B) = prior.law(Q), prior.roots(Q)
    C = law.scale @ law.scale.T
    np.testing.assert_allclose(A @ A.T + B @ B.T, C, atol=1e-14)
    np.testing.assert_allclose(law.gain @ C, A @ A.T, atol=1e-14)  # Cov(omega, Z), and by Nishimori that of omega
    np.testing.assert_allclose(law.gain @ C @ law.gain.T + law.noise @ law.noise.T, A @ A.T, atol=1e-14)
    np.testing.assert_allclose(law.V, B @ B.T, atol=1e-14)
    np.testing.assert_allclose(law.units @ np.linalg.inv(law.V) @ law.units.T, np.eye(3), atol=1e-13)
    np.testing.assert_allclose(np.diag(law.V), np.diag(law.scale) ** 2 * np.diag(remaining(Q)), atol=1e-14)


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("lam", [0.0, 0.3])
def test_what_is_left_is_what_gamp_leaves(name: str, lam: float) -> None:
    """The response of the overlap and the denoiser of GAMP are one posterior of W, in their two units."""
    prior, Q = PRIORS[name], overlap(PRIORS[name], 1)
    told = overlap(prior, 2)  # alpha E in units of the fields
    law, left = prior.law(Q), remaining(Q)
    scale = np.diag(law.scale)
    values, vectors = np.linalg.eigh(left)
    root = (vectors * np.sqrt(values)) @ vectors.T
    response = prior.response(left, root @ (scale[:, None] * told * scale) @ root, lam)
    after = root @ (response.vectors / response.values) @ response.vectors.T @ root
    _, C_hat = prior.denoise(told, np.zeros((prior.rows, 4)), lam)
    np.testing.assert_allclose(scale[:, None] * after * scale, C_hat, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", PRIORS)
def test_the_response_is_the_derivative_that_it_says(name: str) -> None:
    prior, Q = PRIORS[name], overlap(PRIORS[name], 3)
    left, told, change = remaining(Q), overlap(prior, 4), 1e-6 * overlap(prior, 5)

    def log_ratio(told: np.ndarray) -> np.ndarray:
        found = prior.response(left, told, 0.2)
        return np.asarray((found.vectors * -np.log(found.values)) @ found.vectors.T)

    here = prior.response(left, told, 0.2)
    moved = (log_ratio(told + change) - log_ratio(told - change)) / 2
    # To first order where what is told commutes with the rest; its trace always.
    assert np.trace(moved) == pytest.approx(-np.trace(here.half @ change @ here.half.T), rel=1e-7)


@pytest.mark.parametrize("name", PRIORS)
def test_the_entropy_is_stationary_where_the_response_rests(name: str) -> None:
    """d entropy / d Q = -(V^{-1} - I) / 2 over the multiplicity: with alpha E / 2 the stationary points of Phi."""
    prior, Q = PRIORS[name], overlap(PRIORS[name], 6)
    change = 1e-5 * overlap(prior, 7)
    slope = (prior.entropy(Q + change) - prior.entropy(Q - change)) / 2
    expected = -0.5 * np.sum((np.linalg.inv(remaining(Q)) - np.eye(3)) * change) / prior.multiplicity
    assert slope == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", PRIORS)
def test_projections_are_transposes_of_each_other(name: str) -> None:
    prior, rng = PRIORS[name], np.random.default_rng(8)
    W, X = prior.draw(8, rng), rng.standard_normal((5, 2, 8))
    g = rng.standard_normal((5, 3, 2))
    flat = X.reshape(-1, 8)
    forth, back = np.sum(prior.project(W, flat, 2) * g), np.sum(W * prior.back_project(g, flat))
    assert forth == pytest.approx(back, rel=1e-12)
    lengths = np.linalg.norm(prior.in_units(prior.draw(2000, rng, normalised=True)), axis=1)
    np.testing.assert_allclose(lengths, np.sqrt(prior.row_dimension(2000)), rtol=1e-12)


# ------------------------------------------------------------------------------------- a kind from outside the package


WIDTH = 0.7
PAIRS = {
    # The same model written in two ways: fields that are narrower, and a link that makes them so.
    "expression": (SMI("z1**2", 1), SMI(f"({WIDTH}*z1)**2", 1)),
    "noisy": (SMI("tanh(z1)", 1, noise=0.1), SMI(f"tanh({WIDTH}*z1)", 1, noise=0.1)),
    "attention": (Architecture(2, (A(),)), Architecture(2, (A(beta=WIDTH**2),))),
    "two layers": (Architecture(2, (A(), A())), Architecture(2, (A(beta=WIDTH**2), A(beta=WIDTH**2)))),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_prior_from_outside_is_the_same_model_with_rescaled_fields(name: str) -> None:
    """Through every solver: E, thresholds, a fixed point, free entropy, prediction errors."""
    wide, usual = PAIRS[name]
    one = smisym.compile(wide, prior=WideRows((WIDTH,) * smisym.compile(wide).fields))
    two = smisym.compile(usual)
    Q = 0.4 * np.eye(one.fields)
    maps = [smisym.overlap_map(model, samples=256, scrambles=4, rtol=1e-4) for model in (one, two)]
    (E, _), (F, _) = (omap(Q) for omap in maps)
    np.testing.assert_allclose(E, F, rtol=2e-3, atol=2e-3 * np.abs(F).max())
    found = [smisym.state_evolution(omap, 0.6).value for omap in maps]
    np.testing.assert_allclose(found[0].Q, found[1].Q, atol=3e-3)
    # Base measures on the output may differ by a constant.
    phi = [[smisym.free_entropy(omap, q * np.eye(one.fields), 0.6).value for q in (0.2, 0.4)] for omap in maps]
    assert np.diff(phi[0])[0] == pytest.approx(np.diff(phi[1])[0], abs=2e-3)
    errors = [smisym.prediction_errors(model, Q, samples=256)["bayes"].value for model in (one, two)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-9)
    first = [smisym.weak_recovery(omap, stages=1).value[0] for omap in maps]
    assert first[0].kind == first[1].kind
    assert first[0].alpha == pytest.approx(first[1].alpha, rel=2e-3)


def test_gamp_with_a_prior_from_outside_is_gamp_with_rescaled_weights() -> None:
    wide, usual = PAIRS["attention"]
    one, two = smisym.compile(wide, prior=WideRows((WIDTH,))), smisym.compile(usual)
    data = smisym.generate(one, 100, 1.5, np.random.default_rng(0))
    assert np.std(data.W) == pytest.approx(WIDTH, rel=0.2)
    runs = [
        smisym.gamp(one, data.X, data.y, W=data.W, max_steps=8, seed=1),
        smisym.gamp(two, data.X, data.y, W=data.W / WIDTH, max_steps=8, seed=1),
    ]
    np.testing.assert_allclose(runs[0].value.W_hat, WIDTH * runs[1].value.W_hat, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(runs[0].value.Q, runs[1].value.Q, atol=1e-5)
    np.testing.assert_allclose(runs[0].value.overlap, runs[1].value.overlap, atol=1e-5)


def test_a_prior_that_tells_exchangeable_rows_apart_is_refused() -> None:
    with pytest.raises(InputError, match="the same law"):
        smisym.compile(Architecture(2, (A(rank=2),)), prior=WideRows((1.0, 2.0)))
    with pytest.raises(InputError, match="row_slices"):
        smisym.compile(Architecture(2, (A(),)), prior=GaussianRows(2))
    with pytest.raises(InputError, match="row_slices"):
        smisym.compile(Architecture(2, (A(),)), prior="wide")  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [0.0, math.nan, math.inf])
def test_a_prior_under_which_a_row_does_not_vary_is_refused(width: float) -> None:
    with pytest.raises(InputError, match="positive, finite standard deviation"):
        smisym.compile(SMI("z1*z2 + z1", 2), prior=WideRows((1.0, width)))
