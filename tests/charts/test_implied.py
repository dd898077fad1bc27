"""Outputs that others imply: attention variants written out entry by entry, whose rows say one thing twice."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np
import pytest
import sympy as sp

import smisym
from smisym import SMI
from smisym.base.derivation import Derivation
from smisym.charts.base import LevelSet, Refusal
from smisym.charts.implied import independent
from smisym.charts.solving import solved_expressions
from smisym.link.linking import link_function


def entries(score: str, fields: tuple[str, ...], more: str = "") -> SMI:
    """exp(score_ij) / (more + sum_k exp(score_ik)) on two tokens."""
    each = ("1", "2")
    e = {(i, j): f"exp({score.replace('i', i).replace('j', j)})" for i in each for j in each}
    norm = {i: " + ".join([*([more] if more else []), *(e[i, k] for k in each)]) for i in each}
    rows = [f"{e[i, j]}/({norm[i]})" for i in each for j in each]
    return SMI(rows, list(fields), tokens=2)


SINK = entries("z[i]*z[j]", ("z",), more="1")
ADDITIVE = entries("tanh(q[i] + k[j])", ("q", "k"))


@cache
def found(what: SMI) -> LevelSet | Refusal:
    return solved_expressions(link_function(what, Derivation()))


@cache
def sink() -> Any:
    return smisym.compile(SINK)


def test_a_sink_shows_its_fields_up_to_a_sign() -> None:
    """Four outputs, two of them independent; at omega = 0 the mean vanishes and the covariance is z z^T."""
    Z = np.random.default_rng(0).standard_normal((8, 1, 2))
    told = sink().channel.moments(sink().observe(Z), np.zeros((8, 1, 2)), np.eye(1), cov=True)
    assert sink().level_set.dimension == 2 and sink().level_set.branches == 2
    np.testing.assert_allclose(told.mean, 0.0, atol=1e-9)
    np.testing.assert_allclose(told.cov[:, 0, :, 0, :], Z[:, 0, :, None] * Z[:, 0, None, :], atol=1e-9)


def test_outputs_that_contradict_one_another_are_refused() -> None:
    y = np.array(sink().observe(np.array([[[0.7, -0.4]]])).y)
    y[..., -1] += 0.01
    with pytest.raises(smisym.InputError, match="contradict one another"):
        sink().channel.moments(y, np.zeros((1, 1, 2)), np.eye(1))


def test_outputs_that_single_out_a_solution_are_not_left_out() -> None:
    """z^2 has two solutions, of which z + z^3 knows the one."""
    refusal = found(SMI(["z1**2", "z1 + z1**3"], 1))
    assert isinstance(refusal, Refusal) and "single out some of the solutions" in refusal.reason


def test_what_has_no_inverse_is_refused_before_sympy_is_asked() -> None:
    """Sympy seeks one for additive scores for many minutes."""
    assert isinstance(found(ADDITIVE), Refusal)


def test_which_outputs_say_no_more_than_others() -> None:
    a, b = fields = sp.symbols("a b", real=True)
    assert independent([a + b, sp.exp(a + b), a - b], fields) == (0, 2)
    assert independent([a, b], fields) == (0, 1)
    # A sign is constant where it does not jump, and says what nothing smooth does.
    assert independent([sp.sign(a), a * b, 2 * a * b], fields) == (0, 1, 2)
    assert independent([a * sp.sign(a), a * b, a**2], fields) == (1, 2)


def test_scores_of_an_untied_head_under_a_sigmoid_are_solved_for() -> None:
    """Four entries of which three are independent; of determinants of their slopes sympy would cancel fractions."""
    scores = [f"q[{i}]*k[{j}]" for i in "12" for j in "12"]
    linear, rng = smisym.compile(SMI(scores, ["q", "k"], tokens=2)), np.random.default_rng(0)
    Z = rng.standard_normal((20, 2, 2))
    omega = np.zeros_like(Z)
    known = linear.channel.moments(linear.channel.sample(Z, rng), omega, np.eye(2), cov=True)
    for scale in ("", "2*"):
        model = smisym.compile(SMI([f"1/({scale}(1+exp(-{s})))" for s in scores], ["q", "k"], tokens=2))
        assert model.level_set is not None and model.level_set.rule == "expressions solved on every orthant"
        found = model.channel.moments(model.channel.sample(Z, rng), omega, np.eye(2), cov=True)
        # Outputs tell the four products, as linear scores do: the same posterior.
        gap = np.abs(found.dg - known.dg).reshape(20, -1).max(axis=1)
        assert (gap <= 30 * (found.error + known.error) + 1e-6).all()


def test_what_sympy_would_take_minutes_for_is_refused_at_once_in_the_names_of_the_declaration() -> None:
    """General quartics of a softmax of 1 + s + s^2/2; functions of functions under a temperature of each query."""
    p = {i + j: f"(1 + z[{i}]*z[{j}] + (z[{i}]*z[{j}])**2/2)" for i in "12" for j in "12"}
    taylor = SMI([f"{p[i + j]}/({p[i + '1']} + {p[i + '2']})" for i in "12" for j in "12"], ["z"], tokens=2)
    for declared in (taylor, entries("exp(c[i])*z[i]*z[j]", ("z", "c"))):
        begun = time.process_time()
        model = smisym.compile(declared)
        assert model.level_set is None and time.process_time() - begun < 15
        refused = " ".join(step.text for step in model.derivation.stage("chart"))
        assert "sympy solved none of" in refused and "z[1]*z[2]" in refused and "__" not in refused
