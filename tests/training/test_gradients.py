"""The gradient of the square loss is that of the link, for any declared architecture that has one."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention
from smisym.training.gradients import SquareLoss

A = Attention
LINKS = {
    "two layers": Architecture(2, (A(), A())),
    "masked, three tokens": Architecture(3, (A(mask="causal"),)),
    "untied, rank two": Architecture(2, (A(tied=False, rank=2),)),
    "heads that are summed, noise": Architecture(2, (A(heads=2, readout=(1.0, 0.5)),), combine="sum", noise=0.3),
    "heads that split the tokens": Architecture(2, (A(heads=2),), head_layout="split"),
    "sequence output": Architecture(2, (A(),), output="sequence"),
    "an activation of one's own": Architecture(2, (A(activation="s/(1 + abs(s))"),)),
    "extensive rank": Architecture(2, (A(rank_ratio=0.5),)),
    "expressions": SMI(fields=("z1", "z2"), expressions=("abs(z1) + tanh(z2)",), noise=0.1),
}


@pytest.mark.parametrize("name", LINKS)
def test_it_is_the_derivative_of_the_loss(name: str) -> None:
    model = smisym.compile(LINKS[name])
    rng = np.random.default_rng(0)
    Z, other = rng.standard_normal((2, 6, model.fields, model.tokens))
    y = model.link(other)
    value, gradient = SquareLoss.of(model.link)(Z, y)
    assert value == pytest.approx(0.5 * np.sum((model.link(Z) - y) ** 2) / 6, rel=1e-12)
    step, slopes = 1e-6, np.empty_like(Z)
    for place in np.ndindex(Z.shape):
        ends = [Z.copy(), Z.copy()]
        ends[0][place] += step
        ends[1][place] -= step
        # Of one sample's loss: differences of the others' are nothing but rounding.
        high, low = (0.5 * np.sum((model.link(end[place[:1], ...]) - y[place[0]]) ** 2) for end in ends)
        slopes[place] = (high - low) / (2 * step)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-8 * np.abs(slopes).max())


def test_it_has_64_bits_whatever_the_user_has_set() -> None:
    model = smisym.compile(LINKS["two layers"])
    Z = np.random.default_rng(1).standard_normal((3, 2, 2))
    _, gradient = SquareLoss.of(model.link)(Z, model.link(Z) + 1e-9)
    assert gradient.dtype == np.float64
    assert 0 < np.abs(gradient).max() < 1e-8  # 32 bits would leave 1e-8 of y itself


@pytest.mark.parametrize(
    "declared",
    [
        Architecture(2, (A(activation="hardmax"),)),
        Architecture(2, (A(activation="hardmax"), A())),
        SMI(fields=("z1", "z2"), expressions=("sign(z1*z2)",)),
        SMI(fields=("z1", "z2"), expressions=("z1**2", "sign(z1*z2)"), noise=0.1),
    ],
)
def test_a_link_that_jumps_is_refused_with_what_helps(declared: Architecture | SMI) -> None:
    with pytest.raises(smisym.InputError) as caught:
        SquareLoss.of(smisym.compile(declared).link)
    assert "jumps" in str(caught.value) and "softmax of large beta" in str(caught.value)
