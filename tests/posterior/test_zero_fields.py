"""Outputs of fields that are zero: the level set is singular there, which is said and not warned of."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention
from smisym.base.solution import Result

HEADS = {
    "tied": Architecture(2, (Attention(),)),
    "tied, linear": Architecture(3, (Attention(activation="linear"),)),
    "rank two on two tokens": Architecture(2, (Attention(rank=2),)),
    "rank two on three tokens": Architecture(3, (Attention(rank=2),)),
    "untied": Architecture(2, (Attention(tied=False),)),
    "untied, rank two": Architecture(2, (Attention(rank=2, tied=False),)),
}


@pytest.mark.parametrize("name", HEADS)
def test_the_posterior_at_zero_fields_is_missing_and_says_so(name: str) -> None:
    """The other sample of the batch is as it is alone."""
    model = smisym.compile(HEADS[name])
    Z = np.zeros((2, model.fields, model.tokens))
    Z[1] = np.random.default_rng(0).standard_normal(Z[1].shape)
    V = 0.5 * np.eye(model.fields)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.channel.moments(model.observe(Z), Z, V, rtol=1e-3)
        alone = model.channel.moments(model.observe(Z[1:]), Z[1:], V, rtol=1e-3)
    assert found.result is Result.INTEGRATION and np.isinf(found.error[0])
    np.testing.assert_allclose(found.mean[1], alone.mean[0], atol=1e-2)
    assert found.error[1] < 1e-3


def test_scores_that_are_zero_are_known_where_they_show_all_lengths() -> None:
    """Linear scores of rank two: a Gram matrix of zero has one solution, Z = 0."""
    model = smisym.compile(Architecture(3, (Attention(rank=2, activation="linear"),)))
    Z = np.zeros((1, 2, 3))
    omega = np.full_like(Z, 0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.channel.moments(model.observe(Z), omega, 0.5 * np.eye(2))
    np.testing.assert_allclose(found.mean, Z, atol=1e-9)
    assert found.result is Result.ILL_CONDITIONED


@pytest.mark.parametrize(("rank", "tokens"), [(2, 3), (3, 4), (4, 5)])
def test_rows_that_are_equal_are_no_success_of_a_softmax_that_leaves_a_shift(rank: int, tokens: int) -> None:
    """The shift of all tokens is read off by dividing by what vanishes there."""
    model = smisym.compile(Architecture(tokens, (Attention(rank=rank),)))
    rng = np.random.default_rng(12)
    omega = rng.standard_normal((1, rank, tokens))
    Z = omega + rng.standard_normal(omega.shape)
    Z[:, 1] = Z[:, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.channel.moments(model.observe(Z), omega, np.eye(rank), rtol=1e-2)
    assert not found.result.ok
