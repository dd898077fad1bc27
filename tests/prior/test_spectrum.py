"""Eigenvalues of a Wishart matrix in noise: against the published cubic in many digits, matrices drawn at random, and
identities that tie the numbers to one another."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from smisym.prior import ExtensiveRank
from smisym.prior.spectrum import NoisyWishart

RATIOS = (1e-3, 0.1, 0.5, 1.0, 2.0, 1e3)
NOISES = (1e-10, 1e-6, 1e-3, 0.1, 0.6, 1.0, 3.0, 30.0, 1e3, 1e6, 1e8)


def published(rho: float, noise: float) -> tuple[mpmath.mpf, list[mpmath.mpf]]:
    """(F, edges, not centred) by the cubic and quartic of arXiv 2506.01582 and the integral of the cubed density."""
    with mpmath.workdps(30):
        a, D = 1 / mpmath.mpf(rho), mpmath.mpf(noise)
        s = mpmath.sqrt(a)
        quartic = [
            a,
            -2 * (s + a * s + s * D),
            1 - 2 * a + a**2 + 8 * D - 2 * a * D + D**2,
            -10 * D / s + 2 * s * D + 8 * a * s * D - 2 * D**2 / s + 8 * s * D**2,
            -12 * D + 4 * D / a + 12 * a * D - 4 * a**2 * D - 20 * D**2 + D**2 / a - 8 * a * D**2 - 4 * D**3,
        ]
        roots = mpmath.polyroots(quartic, maxsteps=200, extraprec=120)
        edges = sorted(r.real for r in roots if abs(r.imag) < mpmath.mpf(10) ** -18)

        def cubed(x: mpmath.mpf) -> mpmath.mpf:
            cubic = [s * D, -(s * x + D), x + s - 1 / s, -1]
            g = mpmath.polyroots(cubic, maxsteps=200, extraprec=120)
            return (max(abs(r.imag) for r in g) / mpmath.pi) ** 3

        # Gauss's rule of this degree leaves 1e-13 of what ends like a power 3/2.
        whole = sum(mpmath.quad(cubed, [b, e], maxdegree=6) for b, e in zip(edges[::2], edges[1::2], strict=True))
        return D - 4 * mpmath.pi**2 / 3 * D**2 * whole, edges


@pytest.mark.parametrize(("rho", "noise"), [(0.5, 0.6), (0.2, 0.1)])
def test_the_published_cubic_in_thirty_digits(rho: float, noise: float) -> None:
    expected, edges = published(rho, noise)
    found = NoisyWishart(rho, noise)
    assert found.left == pytest.approx(float(expected), rel=1e-11)
    np.testing.assert_allclose(found.edges + math.sqrt(rho), [float(e) for e in edges], rtol=1e-12)


@pytest.mark.parametrize("rho", RATIOS)
@pytest.mark.parametrize("noise", NOISES)
def test_two_formulas_of_the_error_and_the_mass(rho: float, noise: float) -> None:
    """Sums of positive numbers: what is left and what is known; and the published difference, which loses digits."""
    found = NoisyWishart(rho, noise)
    rounding = max(1e-9, 1e-15 * noise)
    assert found.mass == pytest.approx(1, abs=10 * rounding)
    assert found.left + found.known == pytest.approx(1, abs=rounding)
    difference = noise - 4 * np.pi**2 / 3 * noise**2 * found.cubed
    assert abs(difference - found.left) <= rounding * max(noise, found.left)
    # The Gaussian prior of the same variance is the worst.
    assert found.left <= noise / (1 + noise) * (1 + rounding)


@pytest.mark.parametrize("rho", RATIOS)
@pytest.mark.parametrize("noise", [1e-8, 1e-3, 0.3, 0.99, 1.01, 7.0, 300.0])
def test_the_slope_is_the_derivative(rho: float, noise: float) -> None:
    step = 1e-4
    above, below = (NoisyWishart(rho, noise * (1 + d)) for d in (step, -step))
    # Of whichever is known to more digits.
    rise = above.left - below.left if noise < 1 else below.known - above.known
    assert NoisyWishart(rho, noise).slope == pytest.approx(rise / (2 * step * noise), rel=2e-5)


@pytest.mark.parametrize("rho", RATIOS)
@pytest.mark.parametrize("told", [0.3, 2.0, 50.0])
def test_the_free_entropy_has_the_overlap_as_derivative(rho: float, told: float) -> None:
    """d Psi / d q_hat = Q / 4, Psi with the logarithmic energy of the law."""

    def psi(q: float) -> float:
        return 0.25 * q - 0.5 * NoisyWishart(rho, 1 / q).logarithm - 0.25 * math.log(q) - 0.125

    step = 1e-4 * told
    slope = (psi(told + step) - psi(told - step)) / (2 * step)
    assert slope == pytest.approx(NoisyWishart(rho, 1 / told).known / 4, rel=1e-6)


def test_matrices_drawn_at_random() -> None:
    """d = 600: the error of the denoiser, within what one draw fluctuates, and its eigenvalues between the edges."""
    d, rng = 600, np.random.default_rng(0)
    for rho, noise in ((0.5, 0.6), (2.0, 0.3), (0.2, 0.1), (0.05, 0.5), (1.0, 2.0)):
        W = rng.standard_normal((d, round(rho * d)))
        S = W @ W.T / math.sqrt(W.shape[1] * d)
        G = rng.standard_normal((d, d))
        Y = S + math.sqrt(noise) * (G + G.T) / math.sqrt(2 * d) - math.sqrt(rho) * np.eye(d)
        values, vectors = np.linalg.eigh(Y)
        found = NoisyWishart(rho, noise)
        hat = (vectors * found.shrunk(values)) @ vectors.T + math.sqrt(rho) * np.eye(d)
        assert np.sum((hat - S) ** 2) / d == pytest.approx(found.left, rel=0.03)
        assert found.edges[0] - 0.1 < values[0] and values[-1] < found.edges[-1] + 0.1
        if len(found.edges) == 4:
            gap = (values > found.edges[1] + 0.02) & (values < found.edges[2] - 0.02)
            assert not gap.any()


def test_eigenvalues_outside_of_the_support_are_shrunk_by_the_real_root() -> None:
    """Far out nothing is shrunk by more than the noise's own 2 Delta / z; at edges both branches meet."""
    for rho, noise in ((0.2, 0.1), (0.5, 0.6), (3.0, 1.0)):
        found = NoisyWishart(rho, noise)
        far = found.edges[-1] + np.array([50.0, 500.0])
        np.testing.assert_allclose(found.shrunk(far), far - 2 * noise / far, rtol=2e-3)
        for edge in found.edges:
            inside, outside = found.shrunk(edge + np.array([-1e-7, 1e-7]))
            assert inside == pytest.approx(outside, abs=2e-3)
        z = np.linspace(found.edges[0] - 1, found.edges[-1] + 1, 400)
        assert (np.diff(found.shrunk(z)) > 0).all()


def test_limits_of_small_and_of_large_ratios() -> None:
    """rho to infinity: a Gaussian matrix.  rho to 0: a few spikes of size 1 / sqrt(rho), known above noise of that
    size (BBP): Q = (1 - t)^2 with t = rho Delta < 1, else nothing."""
    for noise in (1e-3, 0.2, 5.0, 1e3):
        assert NoisyWishart(1e3, noise).left == pytest.approx(noise / (1 + noise), rel=2e-3)
    for t in (0.05, 0.3, 0.7):
        assert NoisyWishart(1e-3, t / 1e-3).known == pytest.approx((1 - t) ** 2, abs=0.01)
    assert NoisyWishart(1e-3, 1.5 / 1e-3).known < 3e-3


@pytest.mark.parametrize("rho", RATIOS)
def test_the_noise_that_leaves_so_much(rho: float) -> None:
    prior = ExtensiveRank(rho)
    for left in (1e-12, 1e-6, 0.01, 0.3, 0.9, 0.999):
        noise = prior.noise_of(left, 1 - left)
        assert prior.left_of(noise)[0] == pytest.approx(left, rel=1e-9)
    for known in (1e-12, 1e-6, 1e-3):
        assert prior.left_of(prior.noise_of(1 - known, known))[1] == pytest.approx(known, rel=1e-4)
    assert prior.noise_of(1.0, 0.0) == math.inf
