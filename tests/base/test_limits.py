"""Declarations that would take hours, or all memory, are refused at once, with the number that would fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention, InputError

TOO_LARGE: dict[str, tuple[Callable[[], Any], str]] = {
    "rank": (lambda: Attention(rank=200), r"given 200; allowed: .*at most 32"),
    "rank beyond memory": (lambda: Attention(rank=10**9), "at most 32"),
    "heads": (lambda: Attention(heads=10**5), "at most 48"),
    "beta": (lambda: Attention(beta=1e308), r"beta: given 1e\+308; allowed: a finite number > 0, at most 1e\+100"),
    "layers": (lambda: Architecture(2, (Attention(),) * 3000), "given '3000 layers'; allowed: at most 48"),
    "endless layers": (lambda: Architecture(2, iter(Attention, None)), "layers: given 'more than that many'"),
    "tokens": (lambda: Architecture(10**8, (Attention(),)), "at most 1024"),
    "tokens under a mask": (lambda: Architecture(10**8, (Attention(mask="causal"),)), "at most 1024"),
    "rows": (lambda: Architecture(2, (Attention(rank=32, tied=False),)), "64 rows of Z .*at most 48 rows"),
    "entries": (lambda: Architecture(16, (Attention(heads=16),)), "16 rows of Z .*at most 8 rows"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_too_large_a_declaration_is_refused(name: str) -> None:
    declare, message = TOO_LARGE[name]
    with pytest.raises(InputError, match=message):
        declare()


def test_too_many_sheets_are_refused() -> None:
    with pytest.raises(InputError, match=r"1048576 sheets.*at most 1024 sheets: 10 heads.*To fix: declare noise"):
        smisym.compile(Architecture(2, (Attention(heads=20),)))


def test_many_layers_in_a_limit_are_few_rows() -> None:
    deep = Architecture(2, (*[Attention(readout=0.001)] * 1000, Attention()), limit="ode")
    assert len(deep.layers) == 1001


@pytest.mark.parametrize("activation", ["exp(100*s)", "exp(7*s) + 1", "sinh(30*s)"])
def test_steep_activations_compile(activation: str) -> None:
    """sympy would seek all hundred roots of a polynomial in exp(s): the scores are found by bisection."""
    model = smisym.compile(Architecture(2, (Attention(activation=activation, beta=0.01),)))
    Z = np.random.default_rng(0).standard_normal((64, 1, 2))
    moments = model.channel.moments(model.observe(Z), 0.3 * Z, 0.5 * np.eye(1))
    # The scores are found to their last digits: +-Z are the only points.
    u = model.level_set.coordinates(model.observe(Z)).values
    np.testing.assert_allclose(np.abs(u), np.abs(Z[:, 0]), rtol=1e-6, atol=1e-9)
    assert np.isfinite(moments.g).all()
