"""No answer depends on the units of an output: k f(Z) + c is known where f(Z) is."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import SMI
from smisym.base.derivation import Derivation
from smisym.link.linking import link_function
from smisym.link.scale import sizes, units
from smisym.link.symmetry import find_symmetry
from smisym.posterior.surface import Surface

# With the number of maps of rows that leave the output unchanged.
EXPRESSIONS = {"z1": 1, "z1**2": 2, "z1**3 + z1": 1, "z1*z2": 4, "z1**2 + z2": 2, "sign(z1*z2)": 4, "exp(z1)": 1}
FACTORS = ("1e-200", "1e-12", "1e12", "1e200")


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("written", [*(f"{k}*({{}})" for k in FACTORS), "1 + 1e-10*({})", "1e10 + ({})"])
def test_symmetries_do_not_depend_on_units(expression: str, written: str) -> None:
    found = find_symmetry(
        link_function(SMI(written.format(expression), 2 if "z2" in expression else 1), Derivation()), Derivation()
    )
    assert len(found.elements) == EXPRESSIONS[expression]


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("expression", ["z1", "z1**2", "z1*z2", "sign(z1*z2)", "relu(z1)", "z1**3 + z1"])
def test_moments_do_not_depend_on_units(expression: str, factor: str) -> None:
    fields = 2 if "z2" in expression else 1
    omega, rest = np.random.default_rng(5).standard_normal((2, 6, fields, 1))
    V = np.diag([0.7, 0.4])[:fields, :fields]
    Z = 0.5 * omega + np.sqrt(V) @ rest
    omega = 0.5 * omega
    seen = []
    for text in (expression, f"{factor}*({expression})"):
        model = smisym.compile(SMI(text, fields))
        seen.append(model.channel.moments(model.observe(Z), omega, V))
    one, other = seen
    np.testing.assert_allclose(other.g, one.g, rtol=0, atol=1e-9 + 3 * (one.error + other.error).max())
    assert one.error.max() < 0.02 and other.error.max() < 0.02


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("two", [("z1", "{}*z2"), ("z1**2", "{}*z2*z3"), ("z1*z2", "{}*sign(z1*z3)")])
def test_each_output_has_units_of_its_own(two: tuple[str, str], factor: str) -> None:
    """An output is as much of an observation beside others that are larger by hundreds of orders."""
    fields = 3 if "z3" in two[1] else 2
    one, other = (
        link_function(SMI((two[0], two[1].format(k)), fields), Derivation()) for k in ("1", factor)
    )  # fmt: skip
    wanted, found = find_symmetry(one, Derivation()), find_symmetry(other, Derivation())
    np.testing.assert_array_equal(found.elements, wanted.elements)
    assert Surface(one).rank() == Surface(other).rank()


@pytest.mark.parametrize("factor", FACTORS)
def test_what_is_seen_in_small_units_is_learned(factor: str) -> None:
    model = smisym.compile(SMI(("z1", f"{factor}*z2"), 2))
    found = smisym.state_evolution(model, 0.7)
    np.testing.assert_allclose(found.value.Q, 0.7 * np.eye(2), atol=1e-4)


@pytest.mark.parametrize("factor", [1e-200, 1.0, 1e150])
def test_sizes_have_the_units_of_the_values(factor: float) -> None:
    values = np.random.default_rng(6).standard_normal((100, 3)) * [1.0, 1e-6, 0.0]
    np.testing.assert_allclose(sizes(factor * values)[:, :2], factor * sizes(values)[:, :2], rtol=1e-12)
    np.testing.assert_allclose(units(factor * values) / factor, units(values), rtol=2.0)
    values[3, 0], values[:, 2] = np.inf, np.nan
    assert np.isfinite(sizes(values)).all() and (sizes(values) > 0).all()
