"""Maps of outputs that are few and whose posteriors are exact: sums over all of them, smooth in the overlap."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_ndtr

import smisym
from smisym import SMI

# The trapezoid rule: of what jumps within 0.03 at q = 0.999 too.
NODES = np.linspace(-12, 12, 48001)
WEIGHTS = np.exp(-0.5 * NODES**2)


def perceptron(q: float) -> tuple[float, float]:
    """(E, E log Zout) of sign(z) by quadrature over omega (Gardner and Derrida, J. Phys. A 22, 1989)."""
    kappa = np.sqrt(q / (1 - q)) * NODES
    share = WEIGHTS / WEIGHTS.sum()
    found = np.zeros(2)
    for y in (-1, 1):
        log = log_ndtr(y * kappa)
        slope = np.exp(-0.5 * kappa**2 - log) / np.sqrt(2 * np.pi)
        found += [share @ (np.exp(log) * slope**2) / (1 - q), share @ (np.exp(log) * log)]
    return float(found[0]), float(found[1])


@pytest.mark.parametrize("q", [0.1, 0.6, 0.95, 0.999])
def test_the_perceptron_against_quadrature(q: float) -> None:
    omap = smisym.OverlapMap(smisym.compile(SMI("sign(z1)", 1)), samples=4096, workers=1)
    own = [omap.at(r, np.array([[q]])) for r in range(omap.scrambles)]
    for found, exact in zip(([e.E[0, 0] for e in own], [e.log_partition for e in own]), perceptron(q), strict=True):
        error = np.std(found, ddof=1) / np.sqrt(len(own))
        assert abs(np.mean(found) - exact) < 6 * error
        assert error < 0.02 * abs(exact)


@pytest.mark.parametrize(("expression", "fields"), [("sign(z1)", 1), ("sign(sign(z1) + sign(z2) + sign(z3))", 3)])
def test_one_scramble_is_smooth_in_the_overlap(expression: str, fields: int) -> None:
    """Drawn outputs flip one by one as the overlap moves, by 1 / samples of E each; all of them together do not."""
    omap = smisym.OverlapMap(smisym.compile(SMI(expression, fields)), samples=1024, workers=1)
    Q, step = 0.5 * np.eye(fields), 1e-4
    values = np.array([omap.at(0, Q * (1 + k * step)).E[0, 0] for k in range(9)])
    # Third differences of a smooth function are of the order of the step cubed.
    assert np.abs(np.diff(values, 3)).max() < 1e-9 * abs(values[0])
    assert np.abs(np.diff(values)).min() > 1e-6 * abs(values[0])


def test_noisy_outputs_are_drawn_as_before() -> None:
    omap = smisym.OverlapMap(smisym.compile(SMI("sign(z1)", 1, noise=0.1)), samples=256, workers=1)
    assert omap.model.channel.posterior.outputs is None
    assert omap.at(0, np.array([[0.5]])).E[0, 0] > 0


def test_only_what_is_left_to_chance_is_drawn() -> None:
    """Half as many Sobol coordinates: E of a vote of three at its fold varied by 1.1e-3 where fields were drawn too."""
    omap = smisym.OverlapMap(
        smisym.compile(SMI("sign(sign(z1) + sign(z2) + sign(z3))", 3)), samples=16384, scrambles=8, workers=1
    )
    Q = 0.7378 * np.eye(3) + 0.0913 * (np.ones((3, 3)) - np.eye(3))
    values = np.array([omap.at(r, Q).E[0, 0] for r in range(omap.scrambles)])
    assert values.std(ddof=1) < 4e-4


@pytest.mark.parametrize("Q", [np.full((3, 3), np.nan), np.triu(np.full((3, 3), 0.1)), np.eye(2)])
def test_what_is_no_overlap_is_refused_scramble_by_scramble_too(Q: np.ndarray) -> None:
    omap = smisym.OverlapMap(smisym.compile(SMI("sign(sign(z1) + sign(z2) + sign(z3))", 3)), samples=64, workers=1)
    with pytest.raises(smisym.InputError, match=r"^Q: given"):
        omap.at(0, Q)


@pytest.mark.parametrize(
    ("expression", "fields", "alpha"),
    # E[z1 z2 | y] = 2 / pi on either output; two independent pairs seen at once need no more samples than one.
    [("sign(z1*z2)", 2, np.pi**2 / 4), ("sign(z1*z2) + 3*sign(z3*z4)", 4, np.pi**2 / 4)],
)
def test_first_thresholds_of_parities_are_known_to_rounding(expression: str, fields: int, alpha: float) -> None:
    found = smisym.weak_recovery(smisym.compile(SMI(expression, fields)), samples=256, stages=1).value[0]
    assert found.alpha == pytest.approx(alpha, rel=1e-12 if fields == 2 else 3e-3)
    assert found.samples is None
