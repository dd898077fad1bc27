"""Averages over densities with a Gaussian part that no chart of ours made: mixtures in closed form, rings, ridges."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp

from smisym.integrate import quadrature
from smisym.integrate.accuracy import LATTICE, LATTICES, SUM, plan
from smisym.integrate.averages import Average, discrete
from smisym.integrate.importance import mixture
from smisym.integrate.modes import Values
from smisym.integrate.seeking import find_modes


class _Mixture:
    """Sheets with residuals A_b x - c_b and constant weights: Gaussians, everything in closed form.

    along (branches, k, m): orthonormal directions of the residuals that are integrated beforehand, or None.
    """

    widening, modeless, broken = 1.0, False, False
    bordered = ended = saturating = tailed = False
    latents = 0
    outlying = 0.0

    def __init__(self, slopes: np.ndarray, centres: np.ndarray, weights: np.ndarray, along: np.ndarray | None = None):
        self.slopes, self.centres, self.weights, self.along = slopes, centres, weights, along
        self.samples = len(centres)
        self.branches, self.residuals, self.dim = slopes.shape

    @classmethod
    def drawn(cls, dim: int, seed: int, samples: int = 6, branches: int = 2, steep: float = 2.0) -> _Mixture:
        rng = np.random.default_rng(seed)
        slopes = steep * rng.standard_normal((branches, dim + 1, dim)) / np.sqrt(max(dim, 1))
        centres, weights = rng.standard_normal((samples, branches, dim + 1)), rng.standard_normal((samples, branches))
        return cls(slopes, centres, weights)

    def take(self, index: np.ndarray) -> _Mixture:
        return _Mixture(self.slopes, self.centres[index], self.weights[index], self.along)

    def points(self) -> None:
        return None

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        r = np.einsum("bmd,dnc->bmnc", self.slopes, x) - np.moveaxis(self.centres[index], 0, 2)[:, :, None]
        log_weight = np.broadcast_to(self.weights[index].T[:, None], (self.branches, *x.shape[1:]))
        along = None
        if self.along is not None:
            shape = (*self.along.shape, *x.shape[1:])
            along = np.broadcast_to(self.along[..., None, None], shape)
        return Values(r, log_weight, along)

    def exact(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """log of the integral (S,), mean (S, d + m) and covariance (S, d + m, d + m) of (x, r)."""
        A, c, d = self.slopes, self.centres, self.dim
        M = np.eye(d) + np.einsum("bmi,bmj->bij", A, A)
        b = np.einsum("bmi,sbm->sbi", A, c)
        centre = np.linalg.solve(M, b[..., None])[..., 0]
        logs = self.weights + 0.5 * (d * np.log(2 * np.pi) - np.linalg.slogdet(M)[1])
        logs = logs + 0.5 * ((b * centre).sum(axis=2) - (c**2).sum(axis=2))
        share = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        T = np.concatenate([np.broadcast_to(np.eye(d), (len(A), d, d)), A], axis=1)
        means = np.einsum("bid,sbd->sbi", T, centre) - np.concatenate([np.zeros((*c.shape[:2], d)), c], axis=2)
        within = np.einsum("bid,bde,bje->bij", T, np.linalg.inv(M), T)
        if self.along is not None:
            within[:, d:, d:] += np.einsum("bki,bkj->bij", self.along, self.along)
        mean = np.einsum("sb,sbi->si", share, means)
        off = means - mean[:, None]
        cov = np.einsum("sb,bij->sij", share, within) + np.einsum("sb,sbi,sbj->sij", share, off, off)
        return np.asarray(logsumexp(logs, axis=1)), mean, cov


def _missed(found: Average, exact: _Mixture) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Norms of the errors of log-norm, mean and covariance, (S,) each."""
    log_norm, mean, cov = exact.exact()
    assert found.cov is not None
    return (
        np.abs(found.log_norm - log_norm),
        np.linalg.norm(found.mean - mean, axis=1),
        np.linalg.norm(found.cov - cov, axis=(1, 2)),
    )


def test_a_sum_over_sheets_is_exact() -> None:
    for seed in range(20):
        integrand = _Mixture.drawn(0, seed, branches=4)
        for missed in _missed(discrete(integrand, cov=True), integrand):
            assert missed.max() < 1e-13


@pytest.mark.parametrize(("dim", "rtol"), [(1, 1e-10), (2, 1e-8), (3, 1e-6), (4, 1e-3)])
def test_the_lattice_on_mixtures(dim: int, rtol: float) -> None:
    """Within what was asked, and within what is stated but for the last digits."""
    for seed in range(2):
        integrand = _Mixture.drawn(dim, seed, samples=6 if dim < 4 else 2)
        found = quadrature.lattice(integrand, rtol=rtol, cov=True)
        assert found.converged.all()
        log_norm, mean, cov = _missed(found, integrand)
        assert (found.error <= rtol).all()
        assert (mean <= found.error + 1e-12).all()
        assert log_norm.max() < 10 * rtol
        assert cov.max() < 100 * rtol


@pytest.mark.parametrize("steep", [1.0, 30.0, 1000.0])
def test_the_lattice_on_steep_sheets(steep: float) -> None:
    """A maximum of width 1/steep between nodes of the first lattice is found all the same."""
    integrand = _Mixture.drawn(2, 3, steep=steep)
    found = quadrature.lattice(integrand, rtol=1e-6, cov=True)
    assert found.converged.all()
    assert (_missed(found, integrand)[1] <= found.error + 1e-12).all()


def test_directions_integrated_beforehand_count_in_the_covariance() -> None:
    base = _Mixture.drawn(2, 5)
    along = np.linalg.qr(np.random.default_rng(0).standard_normal((2, 3, 1)))[0].transpose(0, 2, 1)
    integrand = _Mixture(base.slopes, base.centres, base.weights, along)
    found = quadrature.lattice(integrand, rtol=1e-8, cov=True)
    assert _missed(found, integrand)[2].max() < 1e-6
    sampled = mixture(integrand, rtol=1e-2, cov=True, rng=np.random.default_rng(1))
    assert _missed(sampled, integrand)[2].max() < 0.1


@pytest.mark.parametrize("dim", [1, 4, 8])
def test_errors_of_sampling_are_standard_errors(dim: int) -> None:
    """Over many posteriors the error of a mean is what is stated, on average of squares."""
    integrand = _Mixture.drawn(dim, 7, samples=64)
    found = mixture(integrand, rtol=1e-2, cov=True, rng=np.random.default_rng(2))
    assert found.converged.all()
    mean = _missed(found, integrand)[1]
    # Eight shifts each: a chi-squared of 7 degrees of freedom in the denominator, 64 posteriors.
    assert 0.5 < np.mean((mean / found.error) ** 2) < 2.5
    assert (mean < 6 * found.error).all()


def test_a_posterior_is_the_same_alone_and_among_others() -> None:
    integrand = _Mixture.drawn(2, 11)
    together = quadrature.lattice(integrand, rtol=1e-7, cov=True)
    for s in range(integrand.samples):
        alone = quadrature.lattice(integrand.take(np.array([s])), rtol=1e-7, cov=True)
        assert alone.nodes[0] == together.nodes[s]
        np.testing.assert_allclose(alone.mean[0], together.mean[s], rtol=0, atol=1e-14)
        np.testing.assert_allclose(alone.log_norm[0], together.log_norm[s], rtol=0, atol=1e-14)


def test_what_costs_too_much_has_not_converged() -> None:
    integrand = _Mixture.drawn(3, 13)
    enough = quadrature.lattice(integrand, rtol=1e-6)
    assert enough.converged.all()
    few = int(enough.nodes.min()) // 20
    for found in (
        quadrature.lattice(integrand, rtol=1e-6, max_nodes=few),
        mixture(integrand, rtol=1e-6, cov=False, rng=np.random.default_rng(0), max_nodes=few),
    ):
        assert not found.converged.any()
        assert (found.error > 1e-6).all()


def test_where_two_ways_are_tried_the_better_one_is_kept() -> None:
    integrand = _Mixture.drawn(2, 17)
    fine, rough = (quadrature.lattice(integrand, rtol=rtol, cov=True) for rtol in (1e-9, 1e-2))
    mean = rough.mean.copy()
    worse = np.flatnonzero(fine.error < rough.error)
    index = np.arange(integrand.samples)
    used = rough.replace(index, fine, 1e-2)
    assert worse.size
    assert (np.flatnonzero(used) == worse).all()
    np.testing.assert_array_equal(rough.mean[worse], fine.mean[worse])
    np.testing.assert_array_equal(np.delete(rough.mean, worse, 0), np.delete(mean, worse, 0))


def test_every_sheet_has_its_maximum_found() -> None:
    integrand = _Mixture.drawn(3, 19)
    modes = find_modes(integrand, np.arange(integrand.samples))
    A, c = integrand.slopes, integrand.centres
    M = np.eye(3) + np.einsum("bmi,bmj->bij", A, A)
    for s in range(integrand.samples):
        for b in range(integrand.branches):
            best = modes.x[s][modes.branch[s] == b]
            exact = np.linalg.solve(M[b], A[b].T @ c[s, b])
            assert np.abs(best - exact).max(axis=1).min() < 1e-3


class _Ridge:
    """r = (x^2 - 1) / width in one dimension: two narrow maxima and a valley of nothing between them."""

    samples, dim, residuals, branches, widening = 1, 1, 1, 1, 1.0
    modeless = broken = bordered = ended = saturating = tailed = False
    latents = 0
    outlying = 0.0

    def __init__(self, width: float) -> None:
        self.width = width

    def points(self) -> None:
        return None

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        return Values(((x**2 - 1) / self.width)[None], np.zeros((1, *x.shape[1:])))


@pytest.mark.parametrize("width", [1.0, 1e-1, 1e-2, 1e-3])
def test_the_lattice_on_two_ridges(width: float) -> None:
    def density(x: float) -> float:
        return float(np.exp(-(x**2) / 2 - ((x**2 - 1) / width) ** 2 / 2))

    edges = (0.0, *np.clip(1 + 3 * width * np.array([-1.0, 0.0, 1.0]), 0.0, None), 1 + 20 * width)
    pieces = [quad(density, a, b, epsabs=0, epsrel=1e-12)[0] for a, b in pairwise(edges) if b > a]
    found = quadrature.lattice(_Ridge(width), rtol=1e-7, cov=True)
    assert found.converged.all()
    assert found.log_norm[0] == pytest.approx(np.log(2 * sum(pieces)), abs=1e-6)
    assert abs(found.mean[0, 0]) < 1e-6
    sampled = mixture(_Ridge(width), rtol=1e-2, cov=True, rng=np.random.default_rng(3))
    assert abs(sampled.mean[0, 0]) < 6 * sampled.error[0]


class _Ring:
    """A posterior on a thin ring, |r| = (|x| - 2)/width: no chart of ours, exact by symmetry and one quadrature."""

    samples, residuals, branches, widening = 1, 1, 1, 1.0
    modeless = broken = bordered = ended = saturating = tailed = False
    latents = 0
    outlying = 0.0

    def __init__(self, dim: int, width: float) -> None:
        self.dim, self.width = dim, width

    def points(self) -> None:
        return None

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        radius = np.sqrt((x**2).sum(axis=0))
        return Values(((radius - 2.0) / self.width)[None, None], np.zeros((1, *x.shape[1:])))


@pytest.mark.parametrize(("dim", "width"), [(2, 1.0), (2, 0.1), (2, 0.02), (3, 0.5)])
def test_the_lattice_on_a_ring(dim: int, width: float) -> None:
    radius = np.linspace(1e-9, 12, 400001)
    density = radius ** (dim - 1) * np.exp(-(radius**2) / 2 - ((radius - 2) / width) ** 2 / 2)
    area = {2: 2 * np.pi, 3: 4 * np.pi}[dim]
    exact = np.log(area * density.sum() * (radius[1] - radius[0]))
    second = (radius**2 * density).sum() / density.sum() / dim
    found = quadrature.lattice(_Ring(dim, width), rtol=1e-5, cov=True)
    assert found.converged.all()
    # The kink of the radius at the origin carries no mass; symmetry makes the mean vanish.
    assert found.log_norm[0] == pytest.approx(exact, abs=1e-4)
    assert np.abs(found.mean[0, :dim]).max() < 1e-4
    assert found.cov is not None
    assert found.cov[0, 0, 0] == pytest.approx(second, rel=1e-3)


def test_the_plan_has_a_row_for_everything() -> None:
    for free in range(12):
        smooth, rough = plan(free, True), plan(free, False)
        assert (smooth.method == SUM) == (rough.method == SUM) == (free == 0)
        assert smooth.method != LATTICE or free in LATTICES
        assert rough.method != LATTICE
        for row in (smooth, rough):
            assert row.measured
            # Averages of many need less of each than one that is asked for by name.
            assert row.single <= row.moments <= row.averaged
