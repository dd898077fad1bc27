"""Singular values of a Gaussian product in noise: against the published quartic in many digits, matrices drawn at
random, limits, and identities that tie the numbers to one another."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from smisym.prior.singular_values import NoisyProduct, pure_noise

RATIOS = (1e-3, 0.1, 0.5, 0.999, 1.0, 2.0, 1e3)
ASPECTS = (1.0, 1.0001, 1.5, 30.0, 100.0)
NOISES = (1e-13, 1e-10, 1e-6, 1e-3, 0.3, 1.0, 3.0, 1e3, 1e6)


def published(rho: float, beta: float, noise: float) -> mpmath.mpf:
    """F by the quartic of arXiv 2410.18858 and its integrals, in singular values of Y / (d L)^(1/4)."""
    with mpmath.workdps(30):
        R, b = mpmath.mpf(noise), mpmath.mpf(beta)
        phi, psi = mpmath.mpf(rho) / b, mpmath.mpf(rho)
        eta, zeta = (1 + R) * mpmath.sqrt(b), mpmath.sqrt(b)

        def density(z: mpmath.mpf) -> mpmath.mpf:
            w = z * z
            quartic = [
                zeta * w**2 * phi**2 * (eta - zeta),
                -zeta * w * phi * (2 * zeta * psi - 2 * zeta * phi - 2 * eta * psi + 2 * eta * phi + psi * w),
                -(zeta**2) * (phi - psi) ** 2
                + zeta * (eta * (phi - psi) ** 2 + psi * w * (2 * phi - psi))
                - eta * psi**2 * w * phi,
                psi * (zeta * (psi - phi) + psi * (eta * (phi - psi) + psi * w)),
                -(psi**3),
            ]
            roots = mpmath.polyroots(quartic, maxsteps=300, extraprec=150)
            return max(abs(r.imag) for r in roots) * z / mpmath.pi

        low, high = (mpmath.sqrt(e / mpmath.sqrt(b)) for e in NoisyProduct(rho, beta, noise).edges)
        # In the square of z the ends are square roots, which this substitution takes away.
        middle, half = (low**2 + high**2) / 2, (high**2 - low**2) / 2

        def over(t: mpmath.mpf) -> mpmath.mpf:
            z = mpmath.sqrt(middle - half * mpmath.cos(t))
            mu = density(z)
            parts = (b - 1) ** 2 / b * mu / z**2 + 4 * mpmath.pi**2 / (3 * b) * mu**3
            return parts * half * mpmath.sin(t) / z

        return R - R**2 / mpmath.sqrt(b) * mpmath.quad(over, [0, mpmath.pi / 2, mpmath.pi], maxdegree=5)


@pytest.mark.parametrize(("rho", "beta", "noise"), [(0.5, 2.0, 0.5), (2.0, 1.5, 1.0)])
def test_the_published_quartic_in_many_digits(rho: float, beta: float, noise: float) -> None:
    assert NoisyProduct(rho, beta, noise).left == pytest.approx(float(published(rho, beta, noise)), rel=1e-8)


@pytest.mark.parametrize("rho", RATIOS)
@pytest.mark.parametrize("beta", ASPECTS)
def test_mass_and_two_formulas_of_the_error(rho: float, beta: float) -> None:
    """Sums of positive numbers: what is left and what is known make one, and so does the density."""
    for noise in NOISES:
        found = NoisyProduct(rho, beta, noise)
        assert found.mass == pytest.approx(1, abs=1e-8)
        assert found.left + found.known == pytest.approx(1, abs=1e-10)
        # The Gaussian prior of the same variance is the worst; no rank tells more than the one free share.
        assert found.left <= noise / (1 + noise) * (1 + 1e-10)
        assert len(found.edges) in (2, 4) and (np.diff(found.edges) > 0).all()


@pytest.mark.parametrize("rho", RATIOS)
@pytest.mark.parametrize("beta", [1.0, 3.0])
@pytest.mark.parametrize("noise", [1e-3, 0.3, 0.99, 1.01, 7.0, 300.0])
def test_slopes_are_derivatives(rho: float, beta: float, noise: float) -> None:
    """dF / dR; and of the mutual information, whose derivative in R is -F / (2 R^2)."""
    step = 1e-4
    above, below = (NoisyProduct(rho, beta, noise * (1 + d)) for d in (step, -step))
    here = NoisyProduct(rho, beta, noise)
    rise = above.left - below.left if noise < 1 else below.known - above.known
    assert here.slope == pytest.approx(rise / (2 * step * noise), rel=2e-5)
    fall = (above.told - below.told) / (2 * step)
    assert fall == pytest.approx(-here.left / (2 * noise), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("rho", [0.3, 2.0])
def test_the_published_limit_of_many_columns(rho: float) -> None:
    """L / d to infinity (arXiv 2410.18858): 1 - F in closed form."""
    for R in (0.05, 0.5, 3.0):
        root = math.sqrt(1 + rho * ((R + 2) * rho * R + 2 * R + rho - 2))
        known = 1 - R + R / 2 * (root - (rho - 1) - R * rho)
        assert NoisyProduct(rho, 1e5, R).known == pytest.approx(known, rel=2e-4)


def test_matrices_drawn_at_random() -> None:
    """d = 600: the error of the denoiser, within what one draw fluctuates; singular values lie between the edges."""
    d, rng = 600, np.random.default_rng(0)
    for rho, beta, noise in ((0.5, 1.0, 0.3), (0.2, 1.0, 0.2), (0.5, 2.0, 0.5), (2.0, 1.5, 1.0), (0.1, 1.5, 0.5)):
        L, r = round(beta * d), round(rho * d)
        S = rng.standard_normal((d, r)) @ rng.standard_normal((r, L)) / math.sqrt(r)
        left, values, right = np.linalg.svd(S + math.sqrt(noise) * rng.standard_normal((d, L)), full_matrices=False)
        found, x = NoisyProduct(rho, beta, noise), values**2 / d
        hat = (left * (values * found.shrunk(x))) @ right
        assert np.mean((hat - S) ** 2) == pytest.approx(found.left, rel=0.03)
        assert 0.9 * found.edges[0] <= x[-1] and x[0] < 1.1 * found.edges[-1]
        if len(found.edges) == 4:
            assert not ((x > 1.1 * found.edges[1]) & (x < 0.9 * found.edges[2])).any()


def test_singular_values_outside_of_the_support_are_shrunk_too() -> None:
    """Larger ones stay larger; far out nothing is shrunk but by what noise adds on average, R (1 + beta) / x."""
    for rho, beta, noise in ((0.5, 1.0, 0.3), (0.2, 1.0, 0.2), (0.5, 2.0, 0.5), (2.0, 1.5, 1.0)):
        found = NoisyProduct(rho, beta, noise)
        x = np.linspace(max(found.edges[0], 1e-3), 2 * found.edges[-1], 400)
        assert (np.diff(np.sqrt(x) * found.shrunk(x)) > 0).all()
        far = found.edges[-1] * np.array([1e3, 1e4])
        np.testing.assert_allclose(1 - found.shrunk(far), noise * (1 + beta) / far, rtol=0.01)
        y = found.transform(x)
        n = noise * y + rho * y / (rho - y)
        np.testing.assert_allclose(((1 + n) * (beta + n) / y).real, x, rtol=1e-9)


@pytest.mark.parametrize("beta", [1.0, 2.0, 5.0])
def test_limits_of_small_and_of_large_ratios(beta: float) -> None:
    """rho to infinity: independent entries.  rho to 0: a few spikes, in noise R = beta / ((1 + beta) rho t), of which
    the published formula of low rank is known."""
    for noise in (1e-3, 0.2, 5.0, 1e3):
        large = NoisyProduct(1e3, beta, noise)
        assert large.left == pytest.approx(noise / (1 + noise), rel=2e-3)
        told = large.logarithm - 0.5 * math.log(noise) - pure_noise(beta)
        assert told == pytest.approx(0.5 * math.log1p(1 / noise), rel=2e-3)
    for t in (0.3, 0.7, 1.5, 5.0):
        above = max((beta + 1) ** 2 * t**2 - beta, 0.0) / ((beta + 1) * t)
        spikes = above**2 / ((beta * t + t + 1) * (beta * t + t + beta))
        for rho in (1e-3, 1e-5):
            few = NoisyProduct(rho, beta, beta / ((1 + beta) * rho * t))
            assert few.known == pytest.approx(spikes, abs=3 * rho)
