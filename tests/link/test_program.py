"""The program: anonymous links find the same chart, unrolled code is the program, singular mixing is seen."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

import smisym
from smisym.base.derivation import Derivation
from smisym.base.symbols import SCORE
from smisym.charts import find_level_set
from smisym.link.linking import link_function
from smisym.link.program import Assign, Elementwise, Program, RowSoftmax, generic_determinant, gram_factor


def declared(tokens: int, depth: int) -> smisym.Architecture:
    return smisym.Architecture(tokens=tokens, layers=tuple(smisym.Attention(skip=0.5 + k) for k in range(depth)))


@pytest.mark.parametrize(("tokens", "depth"), [(2, 1), (2, 2), (3, 2), (2, 3)])
def test_an_anonymous_program_finds_the_same_chart(tokens: int, depth: int) -> None:
    architecture = declared(tokens, depth)
    named = smisym.compile(architecture)
    program = link_function(architecture, Derivation()).program
    symbols = [*program.inputs, *(a.target for a in program.assigns)]
    anonymous = smisym.compile(program.rename({s.name: f"q{number}" for number, s in enumerate(symbols)}))
    assert anonymous.level_set.rule == named.level_set.rule
    assert anonymous.level_set.free_rows == named.level_set.free_rows
    rng = np.random.default_rng(0)
    Z, omega = rng.standard_normal((2, 4, depth, tokens))
    V = 0.3 * np.eye(depth)
    for model in (named, anonymous):
        assert np.allclose(model.link(Z), named.link(Z), rtol=0, atol=1e-15)
    first, second = (m.channel.moments(named.observe(Z), omega, V, rtol=1e-3) for m in (named, anonymous))
    assert np.array_equal(first.mean, second.mean)


def test_a_program_written_by_hand_finds_the_chart() -> None:
    """Other order of the fields, one assignment, a name in between: structure decides, not form."""
    a, b = sp.MatrixSymbol("a", 1, 2), sp.MatrixSymbol("b", 1, 2)
    v, s, out = sp.MatrixSymbol("v", 2, 1), sp.MatrixSymbol("s", 2, 2), sp.MatrixSymbol("out", 2, 2)
    mixing = sp.MatrixSymbol("mixing", 2, 2)
    program = Program(
        (a, b),
        (
            Assign(mixing, sp.Identity(2) + RowSoftmax(b.T * b)),
            Assign(v, mixing * a.T),
            Assign(s, v * v.T),
            Assign(out, RowSoftmax(s)),
        ),
        out,
    )
    by_hand = smisym.compile(program)
    assert by_hand.level_set.solved_rows == (0,)
    usual = smisym.compile(smisym.Architecture(tokens=2, layers=(smisym.Attention(), smisym.Attention())))
    rng = np.random.default_rng(1)
    Z, omega = rng.standard_normal((2, 3, 2, 2))
    V = np.array([[0.5, 0.1], [0.1, 0.2]])
    swap = [1, 0]
    g = usual.channel.g_out(usual.observe(Z), omega, V)
    swapped = by_hand.channel.g_out(by_hand.observe(Z[:, swap]), omega[:, swap], V[np.ix_(swap, swap)])
    assert np.allclose(swapped[:, swap], g, rtol=1e-7, atol=1e-8)


def test_a_program_without_a_chart_says_why() -> None:
    a, b = sp.MatrixSymbol("a", 1, 3), sp.MatrixSymbol("b", 1, 3)
    out = sp.MatrixSymbol("out", 3, 3)
    product = RowSoftmax(a.T * a) * RowSoftmax(b.T * b)
    with pytest.raises(smisym.NoChartError, match="not a known affine map of one attention matrix"):
        find_level_set(link_function(Program((a, b), (Assign(out, product),), out), Derivation()), Derivation())
    # The compiler then finds the fields numerically, and says why.
    model = smisym.compile(Program((a, b), (Assign(out, product),), out))
    assert model.level_set is None
    assert any("not a known affine map" in step.text for step in model.derivation)


def test_gram_matrices_are_recognised() -> None:
    h, M = sp.MatrixSymbol("h", 1, 3), sp.MatrixSymbol("M", 3, 3)
    u = M * h.T
    assert gram_factor(2 * u * u.T) == (2, u)
    assert gram_factor(h.T * h) == (1, h.T)
    assert gram_factor(M * h.T * h) is None


@pytest.mark.parametrize("depth", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_unrolled_code_is_the_program(depth: int) -> None:
    """The explicit entries of sympy, evaluated with 30 digits, against the code."""
    architecture = declared(2, depth)
    model = smisym.compile(architecture)
    program = model.link.program
    Z = np.random.default_rng(2).standard_normal((1, depth, 2))
    explicit = program.expand(program.output).as_explicit()
    values = {s[0, t]: sp.Float(Z[0, k, t], 30) for k, s in enumerate(program.inputs) for t in range(2)}
    exact = np.array(explicit.subs(values).evalf(30).tolist(), dtype=float)
    assert np.allclose(model.link(Z)[0], exact, rtol=1e-13, atol=0)


def test_singular_mixing_is_told_from_small_mixing() -> None:
    small = smisym.Architecture(tokens=3, layers=(smisym.Attention(skip=0.0),) * 4)
    program = link_function(small, Derivation()).program
    mixing = next(a.target for a in program.assigns if a.target.name == "A_3")
    assert 1e-20 < generic_determinant(program, mixing) < 1e-1
    linear = smisym.Attention(skip=0.0, activation="linear")
    with pytest.raises(smisym.NoChartError, match="singular"):
        find_level_set(
            link_function(smisym.Architecture(tokens=3, layers=(linear, smisym.Attention())), Derivation()),
            Derivation(),
        )


def test_entries_of_masked_attention_are_those_of_what_is_attended() -> None:
    scores, mask = sp.MatrixSymbol("s", 2, 2), sp.ImmutableDenseMatrix([[1, 0], [1, 1]])
    at = {scores: sp.ImmutableMatrix([[1, 2], [3, 5]])}
    causal, free = (RowSoftmax(scores, *more) for more in ((mask,), ()))
    assert [causal[0, k].subs(at) for k in range(2)] == [1, 0]
    assert [causal[1, k] for k in range(2)] == [free[1, k] for k in range(2)]
    squares = Elementwise(scores, SCORE**2, mask)
    assert [squares[0, k].subs(at).doit() for k in range(2)] == [1, 0] and squares[1, 1].subs(at).doit() == 25
