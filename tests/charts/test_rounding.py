"""What charts state of the rounding of an output, where a skip connection hides the digits of attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention
from smisym.verify.charted import moved_by_rounding

SKIPPED = Architecture(3, (Attention(tied=False),), output="sequence")
MASKED = Architecture(2, (Attention(tied=False, mask="causal"),))


@pytest.mark.parametrize("declared", [SKIPPED, MASKED], ids=["under a skip", "masked"])
def test_what_one_unit_of_rounding_does_is_stated(declared: Architecture) -> None:
    """Of outputs that are given as floats, too: attention of 1e-8 beside a one has half of its digits left."""
    model, rng = smisym.compile(declared), np.random.default_rng(2)
    chart = model.level_set
    assert chart is not None
    known, given = [], []
    for _ in range(300):
        Z = rng.standard_normal((model.fields, model.tokens)) * rng.choice((0.3, 1.0, 2.0))
        found = moved_by_rounding(model.charted, chart, Z)
        known += found[:1]
        given += found[1:]
    assert len(given) > 250
    for change, stated in (*known, *given):
        assert change <= 4 * (stated + 2 * np.finfo(float).eps)
    # It is floats that lose them.
    assert np.median([stated for _, stated in known]) < 1e-14
    if declared is SKIPPED:
        assert max(change for change, _ in given) > 1e-11


def test_scores_of_an_activation_that_a_skip_hides() -> None:
    """There are no log-ratios to keep: the output is floats in either case."""
    declared = Architecture(2, (Attention(activation="s/(1 + abs(s))", tied=False),), output="sequence")
    model, rng = smisym.compile(declared), np.random.default_rng(3)
    chart = model.level_set
    assert chart is not None
    for size in (1e-3, 0.1, 1.0):
        found = moved_by_rounding(model.charted, chart, size * rng.standard_normal((model.fields, model.tokens)))
        assert all(change <= 4 * (stated + 2 * np.finfo(float).eps) for change, stated in found) and found
        # Scores of size 10^-6 are added to one.
        assert size > 1e-3 or max(change for change, _ in found) > 1e-13


def test_floats_that_hide_the_digits_are_ill_conditioned() -> None:
    model = smisym.compile(SKIPPED)
    Z = np.array([[[5.0, 0.0, 0.5], [-5.0, 0.3, 0.4]]])
    y = model.observe(Z).y
    assert 0 < y[0, 0, 0] - 1 < 1e-7
    omega, V = 0.9 * Z, 0.1 * np.eye(2)
    assert model.channel.moments(model.observe(Z), omega, V).result is smisym.Result.SUCCESS
    assert model.channel.moments(y, omega, V).result is smisym.Result.ILL_CONDITIONED


@pytest.mark.parametrize("activation", ["tanh(3*s)", "erf(s)"])
def test_outputs_of_our_own_keep_the_scores_that_saturation_loses(activation: str) -> None:
    """Thresholds of a strictly monotone activation are those of linear scores, also where its floats end."""
    model = smisym.compile(Architecture(2, (Attention(activation=activation),)))
    chart, rng = model.level_set, np.random.default_rng(3)
    assert chart is not None
    Z = rng.standard_normal((400, 1, 2))
    y = model.link.observe(np.concatenate([0.4 * Z, 3 * Z]))
    assert (np.abs(y.y) == 1).any()
    kept = chart.coordinates(y)
    assert not kept.faults and kept.relative_error.max() < 1e-14
    # As floats: the same to within what is stated, and refused where nothing is left.
    as_floats = chart.coordinates(replace(y[:400], scores=None))
    off = np.abs(as_floats.values - kept.values[:400]).max(axis=1) / np.abs(kept.values[:400]).max(axis=1)
    assert (off <= 16 * (as_floats.relative_error + 1e-15)).all()
    with pytest.raises(smisym.InputError, match="end of the activation's range"):
        smisym.gamp(model, rng.standard_normal((800, 2, 50)), y.y)
    found = smisym.weak_recovery(model, samples=2048)
    assert found.value[0].alpha == pytest.approx(1 / 6, abs=1e-6)


def test_parts_of_an_output_keep_their_scores() -> None:
    heads = Architecture(2, (Attention(activation="tanh(3*s)", heads=2),), head_layout="split")
    model = smisym.compile(heads)
    assert smisym.weak_recovery(model, samples=2048).value[0].alpha == pytest.approx(1 / 12, abs=1e-6)
