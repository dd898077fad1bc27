"""First thresholds in closed form: their moments taken again by sympy, and the numbers of the solvers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

import smisym
from smisym import SMI, Architecture, Attention, InputError
from smisym.declare import shipped
from smisym.declare.listed import read_rows
from smisym.prior import GaussianPrior

DOCS = Path(__file__).parents[2] / "docs"


def one(tokens: int, **layer: object) -> Architecture:
    return Architecture(tokens, (Attention(**layer),))


def gaussian_mean(polynomial: sp.Expr) -> sp.Expr:
    """Mean of a polynomial of independent standard normal symbols."""
    poly = sp.Poly(polynomial, *sorted(polynomial.free_symbols, key=str))
    total = sp.Integer(0)
    for powers, coefficient in poly.terms():
        if all(p % 2 == 0 for p in powers):
            total += coefficient * sp.prod([sp.factorial2(p - 1) if p else 1 for p in powers])
    return total


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("tokens", [2, 3])
@pytest.mark.parametrize("activation", ["softmax", "linear"])
def test_a_tied_layer_shows_what_gaussian_moments_say(tokens: int, rank: int, activation: str) -> None:
    u = sp.Matrix(tokens, rank, lambda t, p: sp.Symbol(f"u{t}_{p}"))
    deviation = u * u.T / rank - sp.eye(tokens)
    rate = gaussian_mean(sp.expand(sum(entry**2 for entry in deviation)))
    if activation == "softmax" and rank >= tokens:
        # The chi-square of rank - tokens + 1 degrees along the common row, over T: Var(chi^2_n / T) * ||11^T||^2 / r^2.
        rate -= sp.Rational(2 * (rank - tokens + 1), tokens**2) * sp.Rational(tokens**2, rank**2)
    found = smisym.closed_form(one(tokens, rank=rank, activation=activation))
    assert found is not None
    assert found.alpha == 1 / rate


@pytest.mark.parametrize("tokens", [2, 3, 4])
def test_an_untied_layer_shows_what_bessel_moments_say(tokens: int) -> None:
    s, half = sp.Symbol("s", positive=True), sp.Rational(1, 2)

    def moment(k: int, dimension: int) -> sp.Expr:
        """E|x|^k in R^dimension."""
        return 2 ** (k * half) * sp.gamma((dimension + k) * half) / sp.gamma(dimension * half)

    def square(above: sp.Expr, below: sp.Expr) -> sp.Expr:
        """E[m(s)^2], m = s K_above / K_below."""
        m = sp.simplify(sp.expand_func(s * sp.besselk(above, s) / sp.besselk(below, s)))
        return sum(c * moment(k, tokens) * moment(k, tokens - 1) for (k,), c in sp.Poly(sp.expand(m**2), s).terms())

    T = sp.Integer(tokens)
    # E|k - mean k|^2 = T - 1 = E m_k, so that E||m_k c c^T - P||^2 = E[m_k^2] - (T - 1).
    rates = sp.Matrix([[square(3 * half, half) - T, T * (T - 1)], [T * (T - 1), square(half, half) - (T - 1)]])
    largest = max(rates.applyfunc(sp.simplify).eigenvals(), key=float)
    found = smisym.closed_form(one(tokens, tied=False))
    assert found is not None
    assert sp.simplify(found.alpha - 1 / largest) == 0


def test_lengths_of_queries_given_the_product_are_bessel_functions() -> None:
    # int rho^{a-1} exp(-(rho^2 + s^2/rho^2)/2) d rho = s^{a/2} K_{a/2}(s), here a = T - (T - 1) + 2 k with k = 0 and 1.
    from scipy import integrate, special

    for s in (0.3, 2.0):
        for a in (1, 3):
            number = integrate.quad(lambda r, a=a, s=s: r ** (a - 1) * math.exp(-(r * r + s * s / r / r) / 2), 0, 40)[0]
            assert number == pytest.approx(s ** (a / 2) * special.kv(a / 2, s), rel=1e-9)


ROWS = json.loads((DOCS / "architectures.json").read_text())["rows"]
DECLARED = {row.name: row for row in read_rows(shipped.ATLAS)}
EXACT = [row["name"] for row in ROWS if row["closed_form"]]
NUMBERS = [row["name"] for row in ROWS if row["closed_form"] and row["alpha"] is not None]


def test_a_formula_without_a_number_beside_it_had_no_time() -> None:
    without = {row["parts"]["first"]["result"] for row in ROWS if row["closed_form"] and row["alpha"] is None}
    assert without <= {"out_of_time"}
    assert len(NUMBERS) > len(EXACT) // 2


@pytest.mark.parametrize("name", EXACT)
def test_the_formula_is_the_number_of_the_table(name: str) -> None:
    row = next(row for row in ROWS if row["name"] == name)
    declared = DECLARED[name]
    found = smisym.closed_form(smisym.compile(declared.declared))
    exact = sp.Rational(declared.closed_form) if found is None else found.alpha
    assert str(exact) == row["closed_form"]
    if name in NUMBERS:
        assert row["kind"] == "weak"
        assert abs(float(exact) - row["alpha"]) <= 5 * row["error"] + 1e-6


@pytest.mark.parametrize(
    ("declared", "alpha"),
    [
        # Both fields are known up to a sign that they share: of one row it would be 1/2.
        (SMI(("z1**2", "z1*z2"), 2), sp.Rational(1, 3)),
        (SMI("abs(z1)", 1), sp.Rational(1, 2)),
        (Architecture(2, (Attention(heads=2, rank=2, activation="linear"),), head_layout="split"), sp.Rational(1, 6)),
        (Architecture(3, (Attention(heads=2, tied=False),), head_layout="split"), (sp.sqrt(10) - 3) / 4),
        (one(2, activation="hardmax"), sp.pi**2 / 12),
        (SMI("sign(z1**2 - 3*z2**2)", 2), 8 * sp.pi**2 / 27),
    ],
)
def test_the_formula_is_what_the_solver_finds(declared: SMI | Architecture, alpha: sp.Expr) -> None:
    model = smisym.compile(declared)
    exact = smisym.closed_form(model)
    assert exact is not None
    assert sp.simplify(exact.alpha - alpha) == 0
    first = smisym.weak_recovery(smisym.overlap_map(model, samples=4096), stages=1).value[0]
    assert first.kind == "weak"
    assert abs(first.alpha - float(exact)) < 6 * first.error + 1e-6


@pytest.mark.parametrize(
    "declared",
    [
        Architecture(2, (Attention(), Attention())),
        Architecture(2, (Attention(),), noise=0.01),
        one(2, mask="causal"),
        one(2, tied=False, activation="linear"),
        Architecture(3, (Attention(heads=2, readout=(1.0, 0.5)),), combine="sum"),
        SMI("z1**3", 1),  # nothing is hidden: learned at any alpha
        SMI("sign(z1) + sign(z2)", 2),  # constant on cones, but not even
        SMI("sign(z1 - 0.3*z2) * sign(z2)", 2),  # on cones whose edges are no multiples of pi/24
    ],
)
def test_where_no_rule_holds_there_is_none(declared: SMI | Architecture) -> None:
    assert smisym.closed_form(declared) is None


class WideRow(GaussianPrior):
    row_slices = (0,)
    deviations = np.array([2.0])

    def describe(self) -> str:
        return "independent normal entries of standard deviation 2"


def test_a_law_of_the_weights_of_ones_own_has_none() -> None:
    # Its first threshold may be another one, and no rule is proved for it.
    assert smisym.closed_form(smisym.compile(one(2), prior=WideRow())) is None


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(InputError, match="model"):
        smisym.closed_form(np.eye(2))  # type: ignore[arg-type]
