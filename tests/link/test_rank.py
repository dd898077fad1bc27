"""Ranks of Jacobians: what saturates, what is piecewise, what overflows."""

import numpy as np
import pytest
import sympy as sp
from scipy.special import expit

import smisym
from smisym import SMI, Architecture, Attention, InputError
from smisym.base.complex_step import jacobian
from smisym.base.derivation import Derivation
from smisym.kernels.named import named_kernels
from smisym.link.linking import LinkFunction, link_function
from smisym.link.program import Assign, Program, is_analytic
from smisym.link.rank import JacobianRanks, ranks
from smisym.posterior.surface import Surface


def link_of(declared: Architecture | SMI) -> LinkFunction:
    return link_function(declared, Derivation())


def rank(declared: Architecture | SMI) -> float:
    link = link_of(declared)
    return JacobianRanks(link, np.random.default_rng(0))(np.eye(link.fields))[0]


def test_saturated_activations_hide_no_rank() -> None:
    """Outputs that a steep softmax rounds to zeros and ones have the rank that they have in exact arithmetic.

    Rows of a product of mixing matrices on three tokens sum to a constant: six numbers, from six fields (tied) or from
    nine (the first layer untied).
    """
    for beta in (1.0, 8.0, 40.0):
        tied = Architecture(3, (Attention(skip=0.5), Attention(beta=beta)), output="sequence")
        untied = Architecture(3, (Attention(beta=beta, tied=False, skip=0.0), Attention()), output="sequence")
        assert rank(tied) == 6.0
        assert rank(untied) == 6.0
        assert Surface(link_of(untied)).rank() == 6


def test_a_declaration_that_was_refused() -> None:
    """Linear scores of a steep layer overflow the exponentials of the next one; the output has rank one."""
    layers = (Attention(skip=0, activation="linear", beta=8, tied=False), Attention(rank=2, skip=0.318))
    steep = Architecture(2, layers, output="sequence")
    assert rank(steep) == 3.0  # a matrix A_2 u_q u_k^T of two tokens
    assert smisym.compile(steep).fields == 4


def test_ranks_of_piecewise_links_are_means() -> None:
    """relu(z1): the rank is one on a half of the fields, within four standard errors of 1/2."""
    declared = SMI(("relu(z1)",), ("z1",))
    assert not is_analytic(link_of(declared).program)
    mean, error = JacobianRanks(link_of(declared), np.random.default_rng(0))(np.eye(1))
    assert abs(mean - 0.5) < 4 * error
    assert 0.005 < error < 0.01
    with pytest.raises(InputError, match="of rank 0 at some fields and 1 at others"):
        Surface(link_of(declared)).rank()


@pytest.mark.parametrize(
    ("expression", "analytic"),
    [
        ("z1*z2 + exp(z1)", True),
        ("z1**2/(1 + z2**2)", True),
        ("2**(1/2)*z1", True),
        ("z1 + sign(z2)", False),
        ("sqrt(1 + z1**2)", False),
        ("abs(z1)", False),
        ("max(z1, z2)", False),
        ("log(1 + z1**2)", False),
    ],
)
def test_what_counts_as_analytic(expression: str, analytic: bool) -> None:
    fields = tuple(name for name in ("z1", "z2") if name in expression)
    assert is_analytic(link_of(SMI((expression,), fields)).program) is analytic


def test_hardmax_is_not_analytic() -> None:
    assert not is_analytic(link_of(Architecture(3, (Attention(activation="hardmax"),))).program)


def test_derivatives_that_overflow_are_told() -> None:
    """exp(1000 z): no derivative in floats at z = 2, one at z = 0.1."""
    with np.errstate(over="ignore", invalid="ignore"):
        J = jacobian(lambda Z: np.exp(1000 * Z), np.array([[2.0], [0.1]]), np.arange(1))[1]
    np.testing.assert_array_equal(ranks([J], np.eye(1)), [-1, 1])


def test_complex_steps_through_two_saturated_tokens() -> None:
    """The derivative of a logistic function far out, against a(1 - a) from the real values: no infinity, no NaN."""
    logistic = named_kernels()["logistic"]
    x = np.array([[-900.0], [-500.0], [-1.0], [0.0], [2.0], [30.0], [900.0]])
    value, J = jacobian(logistic, x, np.arange(1))
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(logistic(x), expit(x), rtol=1e-14)
    np.testing.assert_allclose(value, expit(x), rtol=1e-14)
    np.testing.assert_allclose(J[:, 0], expit(x) * expit(-x), rtol=1e-13)


@pytest.mark.parametrize(
    ("expressions", "fields", "unseen"),
    [
        (("z1 + z2",), 2, [[1.0, -1.0]]),
        (("(z1 + 2*z2)**2",), 2, [[2.0, -1.0]]),
        (("abs(z1 + z2)*z3",), 3, [[1.0, -1.0, 0.0]]),
        (("z1*z2", "z3"), 3, []),
        (("z1 + 1/1000000*z2**2",), 2, []),
    ],
)
def test_directions_that_are_never_seen(expressions: tuple[str, ...], fields: int, unseen: list[list[float]]) -> None:
    found = JacobianRanks(link_of(SMI(expressions, fields)), np.random.default_rng(0)).unseen()
    assert found.shape == (len(unseen), fields)
    for direction, expected in zip(found, unseen, strict=True):
        np.testing.assert_allclose(abs(direction @ expected), np.linalg.norm(expected), rtol=1e-12)


def test_what_cells_never_show() -> None:
    """Piecewise links have thousands of fields and outputs: hardmax moves nowhere, z1 moves where sign(z2) does not."""
    hard = Architecture(3, (Attention(activation="hardmax"), Attention(activation="hardmax")))
    for threshold in smisym.perfect_recovery(smisym.compile(hard), samples=64).value:
        assert threshold.alpha == np.inf
    found = JacobianRanks(link_of(SMI(("z1 + sign(z2)",), 2)), np.random.default_rng(0)).unseen()
    np.testing.assert_allclose(abs(found), [[0.0, 1.0]], atol=1e-12)


def test_derivatives_that_overflow_everywhere_are_refused() -> None:
    """exp(exp(1000 + z)); a bare program is not tried out when it is declared."""
    z, y = sp.MatrixSymbol("z", 1, 1), sp.MatrixSymbol("y", 1, 1)
    value = sp.ImmutableDenseMatrix([[sp.exp(sp.exp(1000 + z[0, 0]))]])
    link = link_function(Program((z,), (Assign(y, value),), y), Derivation())
    with pytest.raises(InputError, match="overflow at all random fields"):
        JacobianRanks(link, np.random.default_rng(0))
