"""Networks written out as expressions: the charts found for them are those of the networks, to the last digits."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import smisym
from smisym import SMI, Architecture, Attention
from smisym.base.errors import InputError
from smisym.charts.peeling import peel
from smisym.model.compiled import Model

RULE = "expressions in linear forms of some fields"
Z1, Z2 = sp.symbols("z1 z2", real=True)

# ------------------------------------------------------------------------------------------------------ outer functions

OUTER = {
    "exp": (sp.exp, np.exp),
    "tanh": (sp.tanh, np.tanh),
    "atan": (sp.atan, np.arctan),
    "sinh": (sp.sinh, np.sinh),
    "asinh": (sp.asinh, np.arcsinh),
    "logistic": (lambda e: 1 / (1 + sp.exp(-e)), lambda x: 1 / (1 + np.exp(-x))),
    "cube": (lambda e: e**3, lambda x: x**3),
    "affine": (lambda e: 3 - e / 2, lambda x: 3 - x / 2),
    "share": (lambda e: sp.exp(e) / (sp.exp(e) + sp.exp(-e)), lambda x: np.exp(x) / (np.exp(x) + np.exp(-x))),
}


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(sorted(OUTER)), max_size=2), st.floats(-1.5, 1.5))
def test_what_is_peeled_off_gives_the_inner_value_back(names: list[str], value: float) -> None:
    expression: sp.Expr = Z1 * Z2
    y = np.array([value])
    for name in names:
        symbolic, numeric = OUTER[name]
        expression, y = symbolic(expression), numeric(y)
    peeled = peel(expression)
    # What is left may be an affine function of the product, by whatever was folded into it.
    inside = float(sp.N(peeled.inner.subs({Z1: value, Z2: 1})))
    # Where an outer function has saturated, y has few digits of it.
    moved = [peeled.values(y * (1 + s * 4e-16)) for s in (-1, 1)]
    assume(np.isfinite(moved).all() and np.ptp(moved) < 1e-6)
    np.testing.assert_allclose(peeled.values(y), [inside], rtol=1e-5, atol=1e-5)


def test_what_takes_values_twice_is_left() -> None:
    for expression in ((Z1 * Z2) ** 2, sp.cosh(Z1), sp.Abs(Z1), sp.sin(Z1 + Z2)):
        assert peel(expression).inner == expression


# ------------------------------------------------------------------------------------------------- networks written out


def attends_itself(h: dict[int, str], i: int) -> str:
    """The weight of token i for itself under a softmax of h_i h_j."""
    return f"1/(1+exp({h[3 - i]}*{h[i]} - {h[i]}*{h[i]}))"


def mixed(weight: dict[int, str], fields: dict[int, str], skip: float = 1.0) -> dict[int, str]:
    return {i: f"(({skip}+{weight[i]})*{fields[i]} + (1-{weight[i]})*{fields[3 - i]})" for i in (1, 2)}


def named(name: str) -> dict[int, str]:
    return {i: f"{name}[{i}]" for i in (1, 2)}


def layers(*names: str) -> dict[int, str]:
    """The fields of the last layer as it sees them, the other layers written out."""
    streams = {name: named(name) for name in names}
    for number, name in enumerate(names[:-1]):
        weight = {i: attends_itself(streams[name], i) for i in (1, 2)}
        for later in names[number + 1 :]:
            streams[later] = mixed(weight, streams[later])
    return streams[names[-1]]


def logistic(scores: dict[int, str], entries: tuple[tuple[int, int], ...]) -> tuple[str, ...]:
    return tuple(f"1/(1+exp({scores[i]}*{scores[3 - j]} - {scores[i]}*{scores[j]}))" for i, j in entries)


ALL = ((1, 1), (1, 2), (2, 1), (2, 2))


@pytest.fixture(scope="module")
def written() -> Model:
    return smisym.compile(SMI(logistic(layers("h", "g"), ALL), ("h", "g"), tokens=2))


def same_posteriors(one: Model, other: Model, rtol: float, count: int = 64) -> None:
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((count, one.fields, one.tokens))
    law = one.prior.law(0.5 * np.eye(one.fields))
    omega = law.gain @ Z + law.noise @ rng.standard_normal(Z.shape)
    # An entry close to one has few digits of its score, and a single entry of a row no other to tell them.
    assert one.level_set is not None
    told = one.level_set.coordinates(one.observe(Z)).relative_error < 1e-9
    assert told.mean() > 0.8
    Z, omega = Z[told], omega[told]
    a, b = (model.channel.moments(model.observe(Z), omega, law.V, cov=True, rtol=rtol) for model in (one, other))
    assert a.result is b.result
    assert a.cov is not None
    assert b.cov is not None
    np.testing.assert_allclose(a.mean, b.mean, atol=10 * rtol + 1e-7)
    np.testing.assert_allclose(a.cov, b.cov, atol=30 * rtol + 1e-7)


def test_two_layers_written_out_are_the_network(written: Model) -> None:
    network = smisym.compile(Architecture(2, (Attention(), Attention())))
    assert written.level_set is not None
    assert written.level_set.rule == RULE
    assert written.level_set.dimension == 2
    assert written.channel.free_dimensions == 2
    np.testing.assert_array_equal(written.symmetry.elements, network.symmetry.elements)
    same_posteriors(written, network, 1e-6, 24)
    found = smisym.weak_recovery(written, samples=256, stages=1).value[0]
    assert abs(found.alpha - 0.185478) < 5 * found.error + 1e-6
    assert found.error < 1e-4


def test_other_names_and_other_words_say_the_same(written: Model) -> None:
    h = layers("xx", "h")
    renamed = smisym.compile(SMI(logistic(h, ALL), ("h", "xx"), tokens=2))
    assert renamed.level_set is not None
    assert renamed.level_set.rule == RULE
    # As a share of exponentials, and of each row one entry alone, which is all that there is to know.
    shares = tuple(f"exp({h[i]}*{h[1]})/(exp({h[i]}*{h[1]}) + exp({h[i]}*{h[2]}))" for i in (1, 2))
    shared = smisym.compile(SMI(shares, ("xx", "h"), tokens=2))
    assert shared.level_set is not None
    assert shared.level_set.rule == RULE
    same_posteriors(shared, written, 1e-6, 24)


def test_three_layers_written_out_have_a_chart() -> None:
    model = smisym.compile(SMI(logistic(layers("h", "g", "k"), ((1, 1), (2, 2))), ("h", "g", "k"), tokens=2))
    network = smisym.compile(Architecture(2, (Attention(), Attention(), Attention())))
    assert model.level_set is not None
    assert model.level_set.rule == RULE
    same_posteriors(model, network, 3e-2, 4)


def test_outputs_of_no_fields_are_told_one_by_one(written: Model) -> None:
    y = np.array(written.observe(np.random.default_rng(2).standard_normal((4, 2, 2))).y)
    y[1, 1] = y[1, 1] + 0.1  # a row of attention that does not sum to one
    y[3, 0] = 1.5
    found = written.level_set.coordinates(written.observe(np.ones((4, 2, 2))).__class__(y, None, exact=False))  # type: ignore[union-attr]
    np.testing.assert_array_equal(found.read, [True, False, True, False])
    with pytest.raises(InputError, match="sample 1"):
        written.channel.moments(y[:2], np.zeros((2, 2, 2)), np.eye(2))
    with pytest.raises(InputError, match="sample 0"):
        written.channel.moments(y[3:], np.zeros((1, 2, 2)), np.eye(2))
