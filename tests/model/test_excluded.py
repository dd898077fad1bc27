"""Posteriors that are far from their cavity are no success: maxima may be missed there."""

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention
from smisym.base.solution import Result


def test_an_output_that_omega_excludes_is_no_success() -> None:
    model = smisym.compile(Architecture(2, (Attention(tied=False),)))
    Z, V = np.random.default_rng(0).standard_normal((2, 2, 2)), 0.01 * np.eye(2)
    # The second sample is fifteen deviations off in each of four entries.
    omega = Z + np.array([0.0, 1.5])[:, None, None]
    assert model.channel.moments(model.observe(Z), omega, V).result is Result.EXCLUDED
    assert model.channel.moments(model.observe(Z[:1]), omega[:1], V).result is Result.SUCCESS


def test_a_sum_over_sheets_looks_for_no_maximum() -> None:
    model = smisym.compile(SMI("abs(z1)", 1))
    Z = np.array([[[2.0]]])
    found = model.channel.moments(model.observe(Z), np.array([[[50.0]]]), np.array([[0.1]]))
    assert found.result is Result.SUCCESS
    assert found.mean.item() == pytest.approx(2.0)


def test_a_module_states_no_error_there() -> None:
    model = smisym.compile(Architecture(2, (Attention(tied=False),)))
    module: dict[str, object] = {"__name__": "exported"}
    exec(compile(smisym.export_code(model), "exported.py", "exec"), module)
    Z = np.random.default_rng(0).standard_normal((3, 2, 2))
    omega, V = Z.copy(), np.tile(np.eye(2), (3, 1, 1))
    omega[1] += 30.0
    V[2] = np.full((2, 2), 0.5) + 1e-6 * np.eye(2)
    found = module["moments"](model.observe(Z).y, omega, V)  # type: ignore[operator]
    assert np.isfinite(found.error[0]) and np.isinf(found.error[1:]).all()
