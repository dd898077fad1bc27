"""The mapping: an attention network on tokens X is the link function at Z = W X^T / sqrt(D), at any finite D.

The network of ``oracles/tokens.py`` runs on the tokens, with its (D, D) matrices of weights; the package only ever
sees Z.  The two must agree to rounding, and rounding is multiplied by the condition of the map, which is estimated
from the derivative of the network by complex steps.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases import CASES, Case, compiled
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from oracles.declared import described
from oracles.description import Network
from oracles.fields import derivative
from oracles.tokens import on_tokens

import smisym
from smisym import Architecture, Attention
from smisym.base.derivation import Derivation
from smisym.link.linking import link_function


def layer(linear: bool, skip: float, beta: float) -> Attention:
    # Linear mixing without a skip connection has rank one: the fields after it cannot be solved for (tested below).
    skip = round(max(skip, 0.01) if linear else skip, 3)
    return Attention(skip=skip, beta=round(beta, 3), activation="linear" if linear else "softmax")


layers_of_any_kind = st.lists(
    st.builds(layer, st.booleans(), st.floats(0, 4), st.floats(0.1, 3)), min_size=1, max_size=4
).map(tuple)


def condition(Z: np.ndarray, network: Network, y: np.ndarray) -> float:
    """Relative change of the output per relative change of each entry of the fields, and at least 1.

    Saturated softmaxes make the derivative vanish while y keeps its own rounding: hence the floor.
    """
    with np.errstate(all="ignore"):
        slope = np.nan_to_num(abs(derivative(Z, network)), nan=np.inf, posinf=np.inf)
        moved = np.einsum("ijpt,pt->ij", slope, abs(Z))
    return max(1.0, float(np.linalg.norm(moved) / np.linalg.norm(y)))


def data(tokens: int, dimension: int, depth: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(X (T, D), W (P, D), Z (P, T)) with Gaussian entries; Z to double rounding of its exact value."""
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((tokens, dimension)), rng.standard_normal((depth, dimension))
    exact = W.astype(np.longdouble) @ X.T.astype(np.longdouble) / np.sqrt(np.longdouble(dimension))
    return X, W, exact.astype(float)


def check(declared: Architecture, dimension: int, seed: int) -> float:
    """Relative distance between network and link, in units of the condition; asserts that it is below 1e-10."""
    network, tokens = described(declared), declared.tokens
    X, W, Z = data(tokens, dimension, network.fields, seed)
    link = link_function(declared, Derivation())
    expected = on_tokens(network, X, W, np.longdouble).astype(float)
    found = link(Z[None])
    assert found.shape == (1, tokens, tokens)
    distance = np.linalg.norm(found[0] - expected) / np.linalg.norm(expected)
    amplification = condition(Z, network, expected)
    assert distance <= 1e-10 * amplification
    return distance / amplification


# Every example compiles a network: shrinking a failure would cost minutes and make it no clearer.
@settings(max_examples=30, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
@given(st.integers(2, 6), layers_of_any_kind, st.integers(1, 64), st.integers(0, 2**32 - 1))
def test_the_network_is_the_link_at_its_fields(
    tokens: int, layers: tuple[Attention, ...], dimension: int, seed: int
) -> None:
    check(Architecture(tokens, layers), dimension, seed)


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_the_mapping_for_every_case(case: Case) -> None:
    for seed in range(3):
        assert check(case.architecture, 37, seed) < 1e-13


@pytest.mark.parametrize("last", [Attention(), Attention(activation="linear")], ids=["softmax", "linear"])
def test_mixing_that_cannot_be_inverted_has_no_chart_with_a_reason(last: Attention) -> None:
    model = smisym.compile(Architecture(3, (Attention(activation="linear", skip=0.0), last)))
    assert model.level_set is None
    refusals = model.derivation.stage("chart")[0].text
    assert any(word in refusals for word in ("inverted", "singular"))


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_facts_of_the_compiled_model(case: Case) -> None:
    model = compiled(case.name)
    assert model.tokens == case.tokens
    assert model.fields == case.depth
    assert model.row_layers == tuple(range(1, case.depth + 1))
    assert len(model.labels) == case.depth
    # One sign per layer, all of them, and no two equal.
    signs = {tuple(row) for row in np.asarray(model.symmetry.signs)}
    assert len(signs) == len(model.symmetry.signs) == 2**case.depth


@pytest.mark.parametrize("case", [CASES["L2-T2"], CASES["L3-T2-mixed"], CASES["L4-T6"]], ids=str)
def test_a_batch_is_its_samples_one_by_one(case: Case) -> None:
    model = compiled(case.name)
    Z = np.random.default_rng(3).standard_normal((5, case.depth, case.tokens))
    together = model.link(Z)
    # Lanes of a vector unit and the scalar remainder of an array may round an exponential differently.
    for sample in range(5):
        np.testing.assert_allclose(model.link(Z[sample : sample + 1])[0], together[sample], rtol=1e-13)


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_an_observation_keeps_the_output(case: Case) -> None:
    model = compiled(case.name)
    Z = np.random.default_rng(4).standard_normal((6, case.depth, case.tokens))
    observed = model.observe(Z)
    assert len(observed) == 6
    np.testing.assert_array_equal(observed.y, model.link(Z))
    np.testing.assert_array_equal(observed[2:4].y, observed.y[2:4])


@pytest.mark.parametrize("case", [CASES["L2-T3"], CASES["L4-T6"], CASES["L2-T2-mixed"]], ids=str)
def test_the_link_is_even_and_equivariant(case: Case) -> None:
    """Flipping the sign of any layer changes nothing; permuting tokens permutes rows and columns of the output."""
    model = compiled(case.name)
    rng = np.random.default_rng(5)
    Z = 0.5 * rng.standard_normal((4, case.depth, case.tokens))
    y = model.link(Z)
    for signs in np.asarray(model.symmetry.signs):
        np.testing.assert_allclose(model.link(signs[:, None] * Z), y, rtol=1e-9, atol=1e-14)
    order = rng.permutation(case.tokens)
    np.testing.assert_allclose(model.link(Z[:, :, order]), y[:, order][:, :, order], rtol=1e-9, atol=1e-14)
