"""The same mathematics for every family of the table: facts, oracles, posterior moments, thresholds.

Mapping, symmetry and chart of every row: tests/verify/test_every_row.py.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from cases import CASES, FAMILIES, KINDS, KNOWN, PAIRS, Family, compiled
from oracles.declared import described
from oracles.fields import on_fields
from oracles.tokens import draw, on_tokens

import smisym
from smisym import Architecture
from smisym.charts.telling import TESTED
from smisym.declare.shipped import architectures

EVERY = list(FAMILIES.values())
NETWORKS = [f for f in EVERY if isinstance(f.declared, Architecture)]


# ------------------------------------------------------------------------------------------------------ the table


def test_the_table_covers_all_pairs() -> None:
    """Every two of tying, rank, heads and layout, output, activation, mask, noise and depth meet in some row."""
    levels = [_levels(f.declared) for f in PAIRS if isinstance(f.declared, Architecture)]
    for a, b in itertools.combinations(range(len(levels[0])), 2):
        have = {(row[a], row[b]) for row in levels}
        for x, y in itertools.product({row[a] for row in levels}, {row[b] for row in levels}):
            assert (x, y) in have, f"no row has {x} with {y}"
    assert len(FAMILIES) >= 40


def _levels(declared: Architecture) -> tuple[Any, ...]:
    layer = declared.layers[-1]
    heads = "one" if layer.heads == 1 else declared.head_layout
    activation = layer.activation if layer.activation in ("softmax", "linear", "hardmax") else "own"
    return (
        layer.tied, layer.rank, heads, declared.output, activation, layer.mask, declared.noise > 0, len(declared.layers)
    )  # fmt: skip


def test_every_registered_architecture_is_in_the_table() -> None:
    known = {f.declared.digest for f in EVERY}
    known |= {case.architecture.digest for case in CASES.values()}
    for name, declared in architectures().items():
        assert declared.digest in known, f"{name} is shipped, but no case has it"


def test_every_kind_of_family_is_in_the_table() -> None:
    """And every row is of some kind."""
    for kind, of in KINDS.items():
        assert any(of(f.declared) for f in EVERY), f"no row has {kind}"
    for family in EVERY:
        assert any(of(family.declared) for of in KINDS.values()), f"{family} is of no kind"


@pytest.mark.parametrize("family", EVERY, ids=str)
def test_facts(family: Family) -> None:
    model = compiled(family.name)
    assert model.fields == family.fields
    assert model.channel.free_dimensions == family.free
    assert len(model.labels) == family.fields


# ---------------------------------------------------------------------------------------------------- the mapping


@pytest.mark.parametrize("family", [f for f in NETWORKS if f.declared.limit != "ode"], ids=str)
def test_the_oracle_in_fields_is_the_network(family: Family) -> None:
    assert isinstance(family.declared, Architecture)
    own = described(family.declared)
    for seed in range(3):
        X, W, Z = draw(own, 24, np.random.default_rng(seed))
        expected = np.asarray(on_tokens(own, X, W), dtype=float).ravel()
        np.testing.assert_allclose(on_fields(own, Z[None])[0], expected, rtol=1e-11, atol=1e-11)


# --------------------------------------------------------------------------------------------------- the symmetry


@pytest.mark.parametrize("family", EVERY, ids=str)
def test_invariant_overlaps_commute_with_the_group(family: Family) -> None:
    model = compiled(family.name)
    symmetry = model.symmetry
    for B in symmetry.basis:
        for element in symmetry.elements[:64]:
            np.testing.assert_allclose(element @ B, B @ element, atol=1e-12)
    if symmetry.projectors:
        np.testing.assert_allclose(symmetry.basis.sum(axis=0), np.eye(model.fields), atol=1e-12)
        np.testing.assert_allclose(symmetry.basis @ symmetry.basis, symmetry.basis, atol=1e-12)


# ------------------------------------------------------------------------------------------------------ the chart

NUMERIC = ("sequence-two-T3", "sequence-two-T4", "heads-sum-T3", "no-inverse", "extensive-own")
CHARTED = [
    f for f in EVERY if f.declared.noise == 0 and "hardmax" not in f.name and f.name not in ("curved-cell", *NUMERIC)
]


def test_derivations_claim_the_tests_of_charts_that_there_are() -> None:
    """Sizes at which entries of the catalogue are said to be tested: those of the last layers of charted families."""
    have: dict[tuple[bool, bool], set[tuple[int, int]]] = {}
    for family in CHARTED:
        chart = compiled(family.name).level_set
        if isinstance(family.declared, Architecture) and chart.rule.startswith("attention matrices"):
            last = family.declared.layers[-1]
            sizes = have.setdefault((last.tied, last.activation == "softmax"), set())
            sizes.add((last.rank, family.declared.tokens))
    assert {entry: set(sizes) for entry, sizes in TESTED.items()} == have


# ------------------------------------------------------------------------------------------------ posterior moments


# Where nothing is known, all families as slow tests: those that cover all pairs of options here, and every family's
# density at zero and its first threshold below.
@pytest.mark.parametrize(
    ("family", "overlap"),
    [
        pytest.param(f, q, marks=() if q or f in PAIRS else pytest.mark.slow, id=f"{f}-{q}")
        for f in EVERY
        for q in (0.0, 0.5)
    ],
)
def test_moments_are_those_of_the_truth(family: Family, overlap: float) -> None:
    """E[phi(y, omega) (Z - m)] = 0 and E[phi (Z Z^T - C - m m^T)] = 0 for functions phi of what is known.

    Brute-force Monte Carlo over the truth, without any formula for the posterior; it contains Nishimori's identities
    (phi the posterior mean itself).
    """
    model, rng = compiled(family.name), np.random.default_rng(5)
    P, T, n = model.fields, model.tokens, min(family.samples, 1000)
    Q = _overlap(model, overlap, rng)
    V = np.eye(P) - Q
    omega = (
        np.linalg.cholesky(Q + 1e-300 * np.eye(P)) @ rng.standard_normal((n, P, T)) if overlap else np.zeros((n, P, T))
    )
    Z = omega + np.linalg.cholesky(V) @ rng.standard_normal((n, P, T))
    observed = model.channel.sample(Z, rng)
    moments = model.channel.moments(observed, omega, V, cov=True, rtol=0.03)
    if not np.isfinite(moments.error).all():
        # Eight dimensions and more, few nodes: what matters is that it is not returned as if it were right.
        assert family.free >= 8
        assert moments.result is smisym.Result.INTEGRATION
        return
    whiten = np.linalg.inv(np.linalg.cholesky(V))
    m = (whiten @ (moments.mean - omega)).reshape(n, -1)
    z = (whiten @ (Z - omega)).reshape(n, -1)
    C = np.einsum("ap,sptqu,bq->satbu", whiten, moments.cov, whiten).reshape(n, P * T, P * T)
    known = np.concatenate(
        [np.ones((n, 1)), omega.reshape(n, -1), m, np.tanh(observed.y.reshape(n, -1))[:, :4]], axis=1
    )
    inner = 3 * float(moments.error.mean())
    for phi in known.T:
        first = phi[:, None] * (z - m)
        second = phi[:, None, None] * (z[:, :, None] * z[:, None, :] - C - m[:, :, None] * m[:, None, :])
        size = np.abs(phi).mean()
        for values in (first, second):
            error = values.std(axis=0, ddof=1) / np.sqrt(n)
            # Products of fields have heavy tails: with few draws a normal law for their mean is optimistic.
            clear = 5.0 + 30.0 / np.sqrt(n)
            assert (np.abs(values.mean(axis=0)) <= clear * error + inner * size + 1e-9).all()
    assert (np.linalg.eigvalsh(C) > -0.2).all()


@pytest.mark.parametrize("family", EVERY, ids=str)
def test_the_log_partition_is_normalised(family: Family) -> None:
    """E[p(y | omega, V) / p(y | 0, I)] = 1 over outputs of standard normal fields, whatever factors of y are left out.

    V < I keeps the variance of the ratio finite; a density that missed a branch or a factor of omega would not have
    mean one.
    """
    model, rng, n = compiled(family.name), np.random.default_rng(6), family.samples
    P, T = model.fields, model.tokens
    Q = _overlap(model, 0.4, rng)
    omega = np.linalg.cholesky(Q) @ rng.standard_normal((n, P, T)) / np.sqrt(P * T)
    observed = model.channel.sample(rng.standard_normal((n, P, T)), rng)
    other = model.channel.moments(observed, omega, np.eye(P) - Q, rtol=0.03)
    base = model.channel.moments(observed, np.zeros((n, P, T)), np.eye(P), rtol=0.03)
    error = other.error + base.error
    known = error < 0.5
    if not known.all():
        assert smisym.Result.INTEGRATION in (other.result, base.result)
    if known.mean() < 0.9:
        return  # many dimensions, few nodes: what matters is that it is not returned as if it were right
    ratio = np.exp(other.log_partition - base.log_partition)[known]
    inner = 3 * float(error[known].mean()) + 3 * float(1 - known.mean())
    clear, scatter = 5.0 + 30.0 / np.sqrt(n), float(ratio.std(ddof=1) / np.sqrt(n))
    assert abs(ratio.mean() - 1) < clear * scatter + inner
    if n >= 200:
        assert scatter < 0.1, "the error bar would hide a failure"


def _overlap(model: Any, overlap: float, rng: np.random.Generator) -> np.ndarray:
    """A generic overlap with eigenvalues up to ``overlap``, zero between slices of the embedding."""
    P = model.fields
    G = rng.standard_normal((P, P))
    S = G @ G.T
    slices = np.array(model.row_slices)
    S = S * (slices[:, None] == slices[None])
    return np.asarray(overlap * (0.6 * np.eye(P) + 0.4 * S / np.linalg.eigvalsh(S)[-1]))


# -------------------------------------------------------------------------------------------------- first thresholds

# Samples of six outputs' coordinates in three free dimensions, which a lattice takes 0.1 s for.
SLOW = {"heads-3-untied": 512}
# Those whose error bars would be above the bound with the samples of the others.
NOISIER = {"tied-r3-T2": 8192, "ellipse": 8192}


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=pytest.mark.slow if f.name in SLOW else ()) for f in KNOWN], ids=str
)
def test_first_thresholds_in_closed_form(family: Family) -> None:
    """The closed forms come from moments of Wishart and Gamma laws: no chart, no integrator."""
    samples = (SLOW | NOISIER).get(family.name, 512 if family.free > 2 else 2048)
    found = smisym.weak_recovery(compiled(family.name), samples=samples, stages=1).value[0]
    if family.threshold == 0.0:
        assert found.kind == "trivial"
    elif family.threshold == np.inf:
        assert found.kind == "hard"
        assert found.order == 3
    else:
        assert found.kind == "weak"
        assert abs(found.alpha - family.threshold) < 5 * found.error + 1e-6 * family.threshold
        assert found.error < 0.03 * family.threshold
