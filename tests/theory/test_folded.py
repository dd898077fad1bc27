"""The derivative of the map with control variates: against regressions sample by sample, and against itself without."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym.theory import folded


def drawn(n: int, c: int, P: int = 2, T: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """dg (n, P, T, P, T) and controls (n, c) of mean zero that share much with its square."""
    rng = np.random.default_rng(5)
    dg = rng.standard_normal((n, P, T, P, T))
    dg = dg + dg.transpose(0, 3, 4, 1, 2)
    traces = np.einsum("nptpt->np", dg**2)
    controls = rng.standard_normal((n, c)) + np.resize((traces - 12).T, (c, n)).T
    return dg, controls


def by_regression(dg: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """The same, every product by itself, by least squares on the other folds."""
    n, P = dg.shape[:2]
    products = np.einsum("nptas,nqtbs->npaqb", dg, dg).reshape(n, -1)
    fold, out = folded.folds(n), np.zeros_like(products)
    for f in np.unique(fold):
        mine = fold == f
        known, values = controls[~mine], products[~mine]
        fitted = np.linalg.lstsq(known - known.mean(axis=0), values - values.mean(axis=0), rcond=None)[0]
        out[mine] = products[mine] - controls[mine] @ fitted
    return out.mean(axis=0).reshape(P, P, P, P)


def test_it_is_the_regression_of_every_product() -> None:
    dg, controls = drawn(256, 3)
    assert folded.slope(dg, controls).value == pytest.approx(by_regression(dg, controls), rel=1e-10, abs=1e-10)


def test_units_and_copies_of_controls_do_not_matter() -> None:
    dg, controls = drawn(512, 2)
    known = folded.slope(dg, controls).value
    mixed = controls @ np.array([[3.0, 1e5], [1.0, -2e5]])
    assert folded.slope(dg, mixed).value == pytest.approx(known, rel=1e-9)
    assert folded.slope(dg, np.column_stack([controls, controls[:, 0], np.zeros(512)])).value == pytest.approx(
        known, rel=1e-6
    )


@pytest.mark.parametrize("n", [2, 16, 128])
def test_few_points_have_few_controls(n: int) -> None:
    dg, controls = drawn(n, 40)
    found = folded.slope(dg, controls).value
    raw = np.einsum("nptas,nqtbs->paqb", dg, dg) / n
    if n < 32:
        assert found == pytest.approx(raw, rel=1e-12)
    else:
        assert found == pytest.approx(by_regression(dg, controls[:, : n // 32]), rel=1e-9, abs=1e-9)


def test_rates_of_what_is_not_learned_scatter_less_and_are_the_same() -> None:
    """Two layers, the second known well: G of the first, whose trace has mean zero, at random fields."""
    model = smisym.compile(smisym.Architecture(tokens=2, layers=(smisym.Attention(), smisym.Attention())))
    law, rng = model.prior.law(np.diag([0.0, 0.97])), np.random.default_rng(3)
    beside, plain = [], []
    for _ in range(24):
        Z = rng.standard_normal((512, 2, 2))
        omega = law.gain @ Z + law.noise @ rng.standard_normal((512, 2, 2))
        moments = model.channel.moments(model.observe(Z), omega, law.V, cov=True, rtol=1e-3)
        assert moments.dg is not None
        trace = np.einsum("ntt->n", moments.dg[:, 0, :, 0])[:, None]
        beside.append(folded.slope(moments.dg, trace).value[0, 0, 0, 0])
        plain.append(folded.slope(moments.dg, trace[:, :0]).value[0, 0, 0, 0])
    # Variances over independent sets of points: measured, 3.5 of 96 sets, 2.5 to 5.5 of 24.
    assert np.var(beside, ddof=1) < np.var(plain, ddof=1) / 1.3
    difference = np.subtract(beside, plain)
    assert abs(difference.mean()) < 4 * difference.std(ddof=1) / np.sqrt(len(difference))


def test_what_errors_leave_of_a_constant_is_not_taken_off() -> None:
    """A control that is zero but for errors of the integrals: of that size is its mean, and all that it varies by."""
    dg, controls = drawn(256, 1)
    constant = -1e-6 + 1e-9 * controls
    found = folded.slope(dg, constant)
    np.testing.assert_array_equal(found.value, found.raw)
    assert not found.shares.any()


@pytest.mark.slow
def test_what_is_learned_late_is_not_called_hard() -> None:
    """z1 tells the sign of z2 z3: once it is known these are two fields of which the sign of the product is seen."""
    model = smisym.compile(smisym.SMI("z1**2 + sign(z1*z2*z3)", 3))
    found = smisym.weak_recovery(model, samples=1024)
    first, later = found.value
    assert found.result.ok
    assert (first.kind, first.names) == ("weak", ("z1",))
    assert (later.kind, later.names) == ("weak", ("z2", "z3"))
    assert abs(later.alpha - np.pi**2 / 4) < 5 * later.error + 1e-3


def test_the_rate_of_what_others_reveal_is_not_taken_off() -> None:
    """The same where z1 is known: the rate of z2 and z3 is (2 / pi)^2, for |E[z2 z3 | y, z1]| = 2 / pi."""
    model = smisym.compile(smisym.SMI("z1**2 + sign(z1*z2*z3)", 3))
    omap = smisym.overlap_map(model, samples=256, scrambles=2)
    found = [float(e.slope[1, 2, 2, 1]) for e in omap.evaluate(np.diag([1 - 1e-8, 0, 0]))]
    assert found == pytest.approx([4 / np.pi**2] * 2, rel=1e-3)
