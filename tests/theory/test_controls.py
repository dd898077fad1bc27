"""First thresholds sampled with control variates: known means, exact cases, and no bias."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.declared import described
from oracles.exchanges import seen
from oracles.manifold import jacobian
from oracles.roots import distinct, solutions

import smisym
from smisym import SMI, Architecture, Attention
from smisym.base.matrices import units
from smisym.theory.at_points import squares
from smisym.theory.controls import NUMBERS, beside, controlled, products, rates_of
from smisym.theory.growth import growth_rates
from smisym.theory.stage import rates_of_class
from smisym.theory.surrogate import Surrogate

A = Attention


def test_outputs_whose_squares_are_no_floats_have_their_axis() -> None:
    """Up to 1e300: a stand-in is poor, and is one."""
    huge = Surrogate.of(smisym.compile(SMI("exp(170*z1)", 1)))
    assert huge.axes.shape == (1, 1) and huge.width[0] > 1e250
    assert all(np.isfinite(part).all() for part in (huge.width, huge.scale, huge.G, huge.sizes(np.ones((1, 1)))))


def test_sizes_have_no_tails_that_few_points_do_not_meet() -> None:
    """Those of products of two fields are taken as they are; of exponentials a power that reaches as far as these."""
    rng = np.random.default_rng(0)
    far = {}
    for text in ("z1*z2", "exp(4*abs(z1))*z2"):
        model = smisym.compile(SMI(text, 2))
        made, y = Surrogate.of(model), model.link(rng.standard_normal((2**17, 2, 1))).reshape(-1, 1)
        plain, sizes = np.abs(y - made.centre)[:, 0] / made.width[0], made.sizes(y)
        np.testing.assert_allclose(sizes[:, 0], plain**made.power, rtol=1e-12)
        np.testing.assert_allclose(sizes[:, 1], sizes[:, 0] ** 2, rtol=1e-12)
        far[text] = made.power, np.quantile(sizes[:, 0], 0.9999) / np.median(sizes[:, 0])
    assert far["z1*z2"][0] == 1
    assert far["exp(4*abs(z1))*z2"][0] < 0.5
    assert all(15 < ratio < 60 for _, ratio in far.values())


def test_what_is_known_of_fields_has_mean_zero() -> None:
    """The means of the controls: of a trace of X, and of what X makes of the rates, at many random fields."""
    rng = np.random.default_rng(0)
    unit = np.array([np.diag([1.0, 0.0, 0.0]), np.diag([0.0, 1.0, 1.0]), [[0, 0, 0], [0, 0, 1], [0, 1, 0]]])
    unit /= np.sqrt((unit**2).sum(axis=(1, 2)))[:, None, None]
    found = []
    for _ in range(16):
        z = rng.standard_normal((2**13, 3, 2))
        found.append(beside(unit, products(z), z)[..., 0])
    mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / 4
    assert (np.abs(mean[..., 1:4]) < 6 * error[..., 1:4] + 1e-12).all()
    # The rate itself of fields that are seen: T^2 tr tr + T tr(U_j U_k).
    trace = np.einsum("kpp->k", unit)
    exact = 4 * np.outer(trace, trace) + 2 * np.einsum("jpq,kqp->jk", unit, unit)
    assert (np.abs(mean[..., 0] - exact) < 6 * error[..., 0]).all()


def test_fields_in_place_of_their_means_change_nothing_on_average() -> None:
    """Fields of which the output shows one row, and one of two terms of an entry of another up to its sign."""
    rng = np.random.default_rng(2)
    unit = np.array([np.diag([1.0, 0.0]), np.diag([0.0, 1.0]), np.sqrt(0.5) * np.array([[0, 1], [1, 0]])])
    found = []
    for _ in range(16):
        z = rng.standard_normal((2**13, 2, 2))
        term = z[:, 1, 0].copy()
        z[:, 1, 0] = (term + rng.standard_normal(len(z))) / np.sqrt(2)
        X = products(z)
        G = np.zeros_like(X)
        G[:, 0, :, 0, :] = X[:, 0, :, 0, :]
        G[:, 1, 0, 1, 0] = 0.5 * (term**2 - 1)
        found.append(beside(unit, G, z))
    mean, error = np.mean(found, axis=0)[..., 0], np.std(found, axis=0, ddof=1)[..., 0] / 4
    assert (np.abs(mean[..., 6]) < 6 * error[..., 6] + 1e-12).all()
    assert mean[0, 0, 0] == pytest.approx(6, abs=6 * error[0, 0, 0])  # T (T + 1)
    # The row that is seen in part fluctuates beyond what its mean does; the one that is seen whole does not.
    spread = np.mean(found, axis=0)[..., 7]
    assert spread[0, 0, 6] < 1e-20 < 0.1 < spread[1, 1, 6]


def test_coefficients_are_those_of_the_others() -> None:
    """A rate that is a combination of its controls is known exactly; one that is not is not biased."""
    rng = np.random.default_rng(1)
    mix = np.array([2.0, -1.0, 0.5, 0.0, 3.0, -0.7, 1.0, 0.3])
    exact, noisy = [], []
    for _ in range(200):
        one, other = [], []
        for _ in range(8):
            x = rng.standard_normal((16, NUMBERS - 1))
            for rows, own in ((one, 0.0), (other, 1.0)):
                v = np.column_stack([7 + x @ mix + own * (rng.standard_normal(16) * x[:, 0] ** 2), x])
                spread = np.cov(v.T, bias=True)
                rows.append(np.concatenate([v.mean(axis=0)[:, None], spread], axis=1)[None, None])
        exact.append(controlled(one).mean())
        noisy.append(controlled(other).mean())
    assert np.abs(np.array(exact) - 7).max() < 1e-9
    assert abs(np.mean(noisy) - 7) < 4 * np.std(noisy) / np.sqrt(len(noisy))


@pytest.mark.parametrize(
    ("declared", "exact"),
    [
        (Architecture(3, (A(),)), 1 / 12),  # known up to a sign: nothing is left to fluctuate
        (Architecture(3, (A(rank=2),)), 1 / 6),
        (Architecture(3, (A(tied=False),)), (np.sqrt(10) - 3) / 2),
        (Architecture(2, (A(heads=2),), head_layout="split"), 1 / 12),
        (SMI("z1*z2", 2), 0.59375),
    ],
)
def test_sampled_thresholds_are_closer_and_honest(declared: Architecture | SMI, exact: float) -> None:
    """Six seeds: errors that hold, in all below those of the plain means over the same points."""
    off, plain = [], []
    for seed in range(6):
        omap = smisym.OverlapMap(smisym.compile(declared), samples=1024, seed=seed)
        nothing = np.zeros((omap.model.fields,) * 2)
        found = smisym.weak_recovery(omap, stages=1, quadrature=False).value[0]
        off.append((found.alpha - exact) / (found.error + 1e-7))
        rates = np.array([np.linalg.eigvalsh(growth_rates(omap, e))[-1] for e in omap.evaluate(nothing)])
        plain.append(rates.std(ddof=1) / np.sqrt(len(rates)) / rates.mean() / (found.error / found.alpha + 1e-9))
    assert np.sqrt(np.mean(np.square(off))) < 2.2  # Student's t of seven degrees, six of them, at one in a thousand
    assert np.median(plain) > 1


@pytest.mark.parametrize("text", ["z1*tanh(3*z1)", "z1*tanh(z1)"])
def test_what_a_stand_in_is_off_by_is_not_brought_in_where_the_rest_tells_all(text: str) -> None:
    # Fields known up to a sign: E[z z^T - 1 | y] is z z^T - 1, of mean square 2, and X alone is an exact control.  The
    # stand-in says nearly the same, with a mean that was drawn, alike for all scrambles.
    model = smisym.compile(SMI(text, 1))
    for seed in range(5):
        found = smisym.weak_recovery(model, samples=1024, seed=seed)
        error = float(np.ravel(found.statistical_error)[0])
        assert error < 1e-6 and abs(found.value[0].alpha - 0.5) < 6 * error + 1e-9


def test_controls_take_no_more_than_there_is() -> None:
    """Rates are squares; of the heavy tails of three linear layers controls once left a negative threshold."""
    generator, found = np.random.default_rng(0), []
    for _ in range(4):
        one = np.zeros((1, 1, NUMBERS, NUMBERS + 1))
        one[0, 0, 0, 0] = 1.0 + 0.1 * generator.random()
        one[0, 0, 1, 0] = 3.0  # a control that is far off its mean of zero here, and looks like the rate
        one[0, 0, :2, 1:3] = 1.0
        found.append(one)
    assert controlled(found).mean() < 0
    rates, rate, error = rates_of_class(found, [0])
    assert (rates > 0).all() and rate == pytest.approx(rates.mean()) and 0 < error < 0.1


def test_cells_tell_what_is_known_of_a_square() -> None:
    """y = |z|: G = y^2 - 1.  The stand-in is close to it, and its shares and means are those of the cells."""
    model = smisym.compile(SMI("abs(z1)", 1))
    made = Surrogate.of(model)
    z = np.random.default_rng(0).standard_normal((2**16, 1, 1))
    found = made.at(model, model.observe(z), np.random.SeedSequence(5))
    H = found.points.ravel()
    assert np.mean((H - products(z).ravel()) ** 2) < 1e-2 * 2
    share, value, mean = found.share, found.value, found.mean
    assert share.sum() == pytest.approx(1)
    assert np.array_equal(value, made.G)
    # The size of an output, in standard deviations from its mean, and its square: of mean zero.
    y, mean_of = np.abs(z).ravel(), np.sqrt(2 / np.pi)
    exact = (y - mean_of) ** 2 / (1 - mean_of**2) - 1
    assert np.abs(found.sizes[:, 1] - exact).max() < 0.02 * (1 + exact.max())
    assert np.abs(found.sizes.mean(axis=0)).max() < 6 * exact.std() / 2**8
    # E[G H] = E[X H], the latter by the draws of the stand-in alone.
    assert (share * (mean * value).ravel().reshape(len(share))).sum() == pytest.approx(
        np.mean(H * products(z).ravel()), abs=6 * np.std(H * products(z).ravel()) / 2**8
    )


def test_noise_and_copies_of_entries_are_no_coordinates() -> None:
    """Rows that sum to one, and noise across them: the output of two tokens has two coordinates."""
    for declared in (Architecture(2, (A(), A()), output="sequence"), Architecture(2, (A(),), noise=0.05)):
        assert Surrogate.of(smisym.compile(declared)).axes.shape == (4, 2)


def test_squares_of_fields_known_up_to_signs_are_their_own() -> None:
    """Two layers with sequence output on four tokens leave one class of fields: the mean over it is what they make."""
    model = smisym.compile(Architecture(4, (A(), A()), output="sequence"))
    z, unit = np.random.default_rng(0).standard_normal((3, 2, 4)), units(model.symmetry.basis)
    found = squares(model, model.observe(z), unit)
    assert found is not None
    assert np.allclose(found, rates_of(unit, products(z)), rtol=1e-6)


def test_squares_are_means_over_all_solutions() -> None:
    """Two heads summed on three tokens: solutions by the oracle, from starts of its own."""
    declared = Architecture(3, (A(heads=2, readout=(1.0, 0.5)),), combine="sum")
    model, net = smisym.compile(declared), seen(described(declared))
    unit, rng = units(model.symmetry.basis), np.random.default_rng(1)
    z = rng.standard_normal((4, 2, 3))
    found = squares(model, model.observe(z), unit)
    assert found is not None
    several = 0
    for truth, one in zip(z, found, strict=True):
        starts = rng.standard_normal((300, 2, 3)) * rng.uniform(0.3, 2.0, (300, 1, 1))
        points = distinct(np.concatenate([truth[None], solutions(net.forward, truth, starts)[0]]), net.rows)
        slope = jacobian(net.forward, points)[1]
        log = -0.5 * (points**2).sum(axis=(1, 2)) - np.log(np.linalg.svd(slope, compute_uv=False)[:, :6]).sum(axis=1)
        share = np.exp(log - log.max()) / np.exp(log - log.max()).sum()
        assert np.allclose(one, np.einsum("n,njk->jk", share, rates_of(unit, products(points))), rtol=1e-5)
        several += len(points) > 1
    assert several


def test_squares_are_of_few_fields_only() -> None:
    model = smisym.compile(Architecture(2, (A(),)))
    z = np.random.default_rng(0).standard_normal((2, 1, 2))
    assert squares(model, model.observe(z), units(model.symmetry.basis)) is None
