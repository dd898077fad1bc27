"""Matrices with eigenvalues of one's own: the law of what is seen, its denoiser, and the solvers on top of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention, InputError, OwnSpectrum
from smisym.prior.atoms import NoisyAtoms
from smisym.prior.spectrum import NoisyWishart

TWO = ([-1.0, 1.0], None)
THREE = ([-2.0, 0.5, 3.0], [0.2, 0.5, 0.3])
NOISES = [1e-9, 1e-4, 0.1, 0.9, 1.5, 30.0, 1e6]


OFF_DIAGONAL = tuple(tuple(i != j for j in range(3)) for i in range(3))


def prior(values: list[float], shares: list[float] | None) -> OwnSpectrum:
    x, w = np.array(values), np.ones(len(values)) if shares is None else np.array(shares)
    spread = math.sqrt(np.average((x - np.average(x, weights=w)) ** 2, weights=w))
    return OwnSpectrum(tuple(x / spread), shares)


def wishart(rho: float, nodes: int) -> OwnSpectrum:
    """Gauss's rule for the law of S = W W^T / sqrt(r d), rho > 1: exact for polynomials over x."""
    theta = np.pi * np.arange(1, nodes + 1) / (nodes + 1)
    low, high = ((1 + sign / math.sqrt(rho)) ** 2 for sign in (-1, 1))
    x = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(theta)
    w = np.sin(theta) ** 2 / x
    # Rounding and the rule's own error of the variance; less than 1e-9 or the prior would refuse.
    return OwnSpectrum(tuple(math.sqrt(rho) * x), tuple(w))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("case", [TWO, THREE], ids=["two", "three"])
def test_masses_and_both_formulas_of_the_error(case: tuple[list[float], list[float] | None], noise: float) -> None:
    """What is left and what is known are one together; the cube of the density says the same (arXiv 2408.03733)."""
    found = prior(*case).spectrum(noise)
    assert found.mass == pytest.approx(1, abs=1e-11)
    assert found.left + found.known == pytest.approx(1, abs=1e-11)
    c = found.curve
    cubed = float(c.weight @ c.squared) / (np.pi * noise) ** 2
    assert noise - 4 * np.pi**2 / 3 * noise**2 * cubed == pytest.approx(found.left, rel=1e-9, abs=4e-15 * noise)


@pytest.mark.parametrize("noise", [1e-3, 0.3, 0.99, 1.01, 20.0])
@pytest.mark.parametrize("case", [TWO, THREE], ids=["two", "three"])
def test_slopes_are_derivatives(case: tuple[list[float], list[float] | None], noise: float) -> None:
    law, step = prior(*case), 1e-4
    ends = [law.spectrum(noise * (1 + sign * step)) for sign in (1, -1)]
    assert law.spectrum(noise).slope == pytest.approx((ends[0].left - ends[1].left) / (2 * step * noise), rel=1e-6)
    told = [law.potential(noise / (1 + sign * step)) for sign in (1, -1)]
    assert noise * (told[0] - told[1]) / (2 * step) == pytest.approx(law.spectrum(noise).known / 4, rel=1e-5)


@pytest.mark.parametrize("noise", [0.3, 1.0, 6.0])
def test_nodes_of_a_wishart_law_are_the_wishart_law(noise: float) -> None:
    """Two routes that share nothing: a cubic and its uniformisation, and Biane's curve."""
    rho = 2.0
    found, known = wishart(rho, 120).spectrum(noise), NoisyWishart(rho, noise)
    for name in ("left", "known", "slope", "logarithm"):
        assert getattr(found, name) == pytest.approx(getattr(known, name), rel=1e-8)
    z = np.linspace(-8, 9, 41)
    np.testing.assert_allclose(found.edges, known.edges, rtol=1e-7)
    np.testing.assert_allclose(found.shrunk(z), known.shrunk(z), atol=1e-7)


@pytest.mark.parametrize("case", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("noise", [0.05, 0.4, 2.0])
def test_matrices_drawn_at_random(case: tuple[list[float], list[float] | None], noise: float) -> None:
    """d = 600: errors within what one draw fluctuates by, eigenvalues in the support and in no gap of it."""
    law, d, rng = prior(*case), 600, np.random.default_rng(1)
    S, G = law.drawn(d, rng), rng.standard_normal((d, d))
    values, vectors = np.linalg.eigh(S + math.sqrt(noise) * (G + G.T) / math.sqrt(2 * d) - law.mean * np.eye(d))
    found = law.spectrum(noise)
    hat = (vectors * (found.shrunk(values) + law.mean)) @ vectors.T
    assert np.sum((hat - S) ** 2) / d == pytest.approx(found.left, rel=0.02)
    margin = 0.1 * math.sqrt(noise)
    for low, high in zip(found.edges[1:-1:2], found.edges[2::2], strict=True):
        assert not ((values > low + margin) & (values < high - margin)).any()
    assert found.edges[0] - margin < values[0] and values[-1] < found.edges[-1] + margin


@pytest.mark.parametrize("share", [0.5, 1e-3, 1e-9])
@pytest.mark.parametrize("noise", [1.1e-13, 1e-12, 1e-7, 1e-3, 2.0, 100.0])
def test_no_digits_are_lost(share: float, noise: float) -> None:
    """Intervals as narrow as rounding of their places, and an eigenvalue that nearly all of the matrix has."""
    law = OwnSpectrum((-math.sqrt(share / (1 - share)), math.sqrt((1 - share) / share)), (1 - share, share))
    found, step = law.spectrum(noise), 1e-4
    assert found.mass == pytest.approx(1, abs=1e-12)
    assert found.left + found.known == pytest.approx(1, abs=1e-12)
    ends = [law.left_of(noise * (1 + sign * step))[0] for sign in (1, -1)]
    assert found.slope == pytest.approx((ends[0] - ends[1]) / (2 * step * noise), rel=1e-5)
    if noise < 1e-9:
        assert found.left == pytest.approx(law.free_share * noise, rel=1e-7)


def test_what_is_free_is_what_little_noise_leaves() -> None:
    law = prior(*THREE)
    assert law.free_share == pytest.approx(1 - 0.2**2 - 0.5**2 - 0.3**2)
    assert law.spectrum(1e-9).left / 1e-9 == pytest.approx(law.free_share, rel=1e-6)


def test_a_matrix_is_drawn_with_its_eigenvalues() -> None:
    law = prior(*THREE)
    values = np.linalg.eigvalsh(law.drawn(50, np.random.default_rng(0)))
    np.testing.assert_allclose(values, np.repeat(law.eigenvalues, [10, 25, 15]), atol=1e-12)


def test_solvers_know_it_by_its_answers_alone() -> None:
    """Softmax on two tokens shows two numbers a sample: everything is known where it has shown as many as are free."""
    model = smisym.compile(Architecture(2, (Attention(rank_ratio=1),)), prior=OwnSpectrum([-1, 1]))
    stable, reached = smisym.perfect_recovery(model, samples=1024).value
    assert stable.alpha == pytest.approx(1 / 8)
    assert abs(reached.alpha - 1 / 8) <= 2 * reached.error
    found = smisym.state_evolution(model, 0.1)
    left = 1 - float(found.value.Q[0, 0])
    assert found.result.ok
    # V E(Q) = 2 K = 4 numbers of both halves: F(Delta) at Delta = V / (4 alpha).
    assert NoisyAtoms(np.array([-1.0, 1.0]), np.array([0.5, 0.5]), left / 0.4).left == pytest.approx(left, abs=1e-10)
    steps = [smisym.free_entropy(model, np.array([[1 - left + off]]), 0.1).value for off in (-0.01, 0.0, 0.01)]
    assert steps[1] > max(steps[0], steps[2])
    # One run of finite size lies above by a few hundredths.
    data = smisym.generate(model, 100, 0.1, np.random.default_rng(0))
    run = smisym.gamp(model, data.X, data.y, W=data.W, damping=0.5, max_steps=24, tol=2e-3)
    assert 1 - float(run.value.overlap[0, 0]) == pytest.approx(left, abs=0.06)


def test_equal_laws_are_equal() -> None:
    assert OwnSpectrum([1, -1]) == OwnSpectrum((-1.0, 1.0), (3, 3)) == OwnSpectrum([-1, 1, 1, -1])
    assert hash(OwnSpectrum([1, -1])) == hash(OwnSpectrum([-1, 1]))


@pytest.mark.parametrize(
    ("values", "shares", "told"),
    [
        ([1.0], None, "different"), ([0.0, 1.0], None, "variance one"), ([-1, math.nan], None, "finite"),
        ([-1, 1], [1.0], "2 numbers > 0"), ([-1, 1], [1, 0], "2 numbers > 0"), ("ab", None, "finite"),
        (["-1", "1"], None, "finite"), ([-1e200, 1e200], None, "overflow"),
        ([[-1, 1]], None, "finite"), (np.linspace(-math.sqrt(3), math.sqrt(3), 1001), None, "1000"),
    ],
)  # fmt: skip
def test_what_is_no_law_is_refused(values: object, shares: object, told: str) -> None:
    with pytest.raises(InputError, match=told):
        OwnSpectrum(values, shares)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "declared",
    [
        Architecture(2, (Attention(),)),
        Architecture(2, (Attention(rank_ratio=1), Attention(rank_ratio=1))),
        Architecture(3, (Attention(rank_ratio=1, tied=False, mask=OFF_DIAGONAL),)),
        SMI("z1", 1),
        SMI("z1", 1, rank_ratio=0.5),
        SMI(("z1[1]", "z1[2]", "z1[3]"), 1, tokens=3),
    ],
)
def test_what_has_no_fields_of_such_a_matrix_is_refused(declared: Architecture | SMI) -> None:
    """Of pairs of tokens, of one tied layer: any other declaration would be of another matrix, or of none."""
    with pytest.raises(InputError, match=r"1 layer with a rank_ratio, tied.*Attention\(rank_ratio=1\)"):
        smisym.compile(declared, prior=OwnSpectrum([-1, 1]))


def test_the_declared_rank_ratio_means_nothing() -> None:
    model = [smisym.compile(Architecture(3, (Attention(rank_ratio=r),)), prior=OwnSpectrum([-1, 1])) for r in (0, 0.5)]
    Z = np.random.default_rng(0).standard_normal((5, 1, 6))
    assert np.array_equal(model[0].link(Z), model[1].link(Z))
    assert model[0].prior == model[1].prior


def test_next_to_nothing_that_is_told_is_no_overflow() -> None:
    """Less than 1e-154 of information, as rounding leaves where outputs tell nothing of a matrix."""
    model = smisym.compile(Architecture(2, (Attention(rank_ratio=1.0),)))
    for told in (1e-300, 1e-160, 1e-20, 0.0):
        assert model.prior.overlap(np.array([[told]]))[0, 0] == pytest.approx(told, rel=1e-9)
