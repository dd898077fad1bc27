"""First thresholds by two computations that share neither chart nor integrator, for every case of the table.

One goes from the declaration through chart, posterior moments and scrambles.  The other one is, case by case,

* a closed form: moments of Wishart, Gamma and chi laws, tested in test_families.py, test_multi_index.py and
  test_physics.py;
* nested quadratures over scores and fields (:mod:`oracles.thresholds`), tested in test_physics.py;
* bins, walks from the truth, or all solutions from many starts: :mod:`second_way`.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases import CASES, CLOSED, ELSEWHERE, EXTENSIVE, FAMILIES, KNOWN, NESTED
from oracles import lengths as of_lengths
from oracles.bilinear import rates as bilinear_rates
from oracles.binning import binned_rate
from oracles.declared import described
from oracles.exchanges import seen
from oracles.roots import finite_rate
from oracles.walking import Walk
from second_way import (
    BILINEAR,
    BINS,
    LENGTHS,
    QUADRATURE,
    SLOW_BINS,
    SLOW_ROOTS,
    SLOW_WALKS,
    WALKS,
    coordinates,
    declared,
    second,
    walked,
)

import smisym

# Where g_out(y, 0, I) is not zero: that there is a trivial direction is what is found twice.
TRIVIAL = {"committee-of-two", "two-outputs", "noisy-expression", "no-inverse", "curved-cell", "bounded"}
# The mean of a matrix of extensive rank is known, so that the output tells of what varies from the start.
TRIVIAL |= {family.name for family in EXTENSIVE}


QUICK = {**BINS, **{name: plan.samples for name, plan in WALKS.items()}}
SLOW = {
    **SLOW_BINS,
    **{name: plan.samples for name, plan in SLOW_WALKS.items()},
    **{name: samples for name, (samples, _, _) in SLOW_ROOTS.items()},
    **{name: samples for name, (samples, _) in (BILINEAR | LENGTHS).items()},
}


def test_every_case_has_two_ways() -> None:
    """What counts is what tests run over: the lists that they are parametrised by."""
    closed = {f.name for f in KNOWN} | {*ELSEWHERE} | {c.name for c in CLOSED}
    assert {*FAMILIES, *CASES} == closed | {*QUICK, *SLOW} | {*NESTED} | TRIVIAL
    assert {f.name for f in FAMILIES.values() if f.threshold is not None} <= closed
    assert {*NESTED} == {*QUADRATURE}  # what second_way.py computes for the document is what is tested
    assert not ({*QUICK, *SLOW} | {*NESTED}) & TRIVIAL


def discrete(y: np.ndarray) -> bool:
    return len(np.unique(y)) < 4


# Fields of this one are found numerically.
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n == "no-inverse" else ()) for n in sorted(TRIVIAL)]
)
def test_trivial_directions_by_both_ways(name: str) -> None:
    """E[Z | y] is not zero along what is found: there the fields themselves are correlated with the output."""
    model, rng = smisym.compile(declared(name)), np.random.default_rng(0)
    found = smisym.weak_recovery(model, samples=64, stages=1, quadrature=False).value[0]
    assert (found.kind, found.alpha) == ("trivial", 0.0)
    Z = rng.standard_normal((200000, model.fields, model.tokens))
    y = model.channel.sample(Z, rng).y.reshape(len(Z), -1)
    # Of the output, functions of every size: the fields' means in sixteen classes of each of its numbers.
    classes = np.argsort(np.argsort(y, axis=0), axis=0) * 16 // len(Z) if not discrete(y) else (y > 0).astype(int)
    along = np.einsum("dp,npt->ndt", found.subspace, Z).reshape(len(Z), -1)
    inside = (classes[:, :, None] == np.arange(16)).reshape(len(Z), -1)
    scores = along.T @ inside / np.sqrt(np.maximum(inside.sum(axis=0), 1))  # standard normal if nothing is seen
    assert np.abs(scores).max(axis=1).min() > 8


# An integral over the output itself would need thousands of posteriors of 10 to 300 milliseconds.
SAMPLED = {"ring-mask", "L2-T2-c0", "L3-T2-mixed"}


# Quick ones that take most of a minute all the same; test_multi_index.py holds them against Bessel functions.
LONG = {"untied-T2-linear", "untied-T3-linear"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LONG or n in SLOW else ()) for n in (*QUICK, *SLOW)]
)
def test_first_thresholds_by_both_ways(name: str) -> None:
    oracle = second(name)
    assert oracle.slack < 0.05 * oracle.rate, "the bins are too wide"
    if oracle.way == "all solutions":
        assert abs(oracle.drift) < 0.02 * oracle.rate, "there are too few starts"
    else:
        assert abs(oracle.drift) < 4 * oracle.drift_error + 1e-9, "the walk has not forgotten its start"
    model, samples = smisym.compile(declared(name)), {**QUICK, **SLOW}[name]
    quadrature = False if name in SAMPLED else None
    found = smisym.weak_recovery(model, samples=samples, stages=1, quadrature=quadrature).value[0]
    assert found.kind == "weak"
    bar = np.hypot(found.error / found.alpha, oracle.error / oracle.rate)
    assert abs(found.alpha * oracle.rate - 1) < 4 * bar + oracle.slack / oracle.rate
    assert bar < 0.1


def test_bins_know_conditional_moments() -> None:
    """y = |z|: E[z^2 | y] = y^2, rate Var z^2 = 2; y = z1 + z2: m = y/2 each, a rate known in closed form."""
    one = binned_rate(lambda Z, rng: np.abs(Z[:, 0, :1]), 1, 1, log_n=18)
    assert abs(one.rate - 2) < 4 * one.error + one.width
    sums = binned_rate(lambda Z, rng: Z[:, :, 0].sum(axis=1)[:, None], 2, 1, log_n=18)
    # G = (y^2/2 - 1) e e^T / 2 with e = (1, 1): largest eigenvalue E[(y^2/2 - 1)^2] = 2.
    assert abs(sums.rate - 2) < 4 * sums.error + sums.width


@pytest.mark.parametrize(
    ("name", "exact"), [("tied-r2-T2", 2.5), ("untied-T2", 2 + np.sqrt(5)), ("L2-T2", 5.391479633)]
)
def test_bins_of_two_coordinates_extrapolate_to_exact_rates(name: str, exact: float) -> None:
    """Closed forms, and the nested quadrature of two layers, whose bins are ridges 3 % off before."""
    model = smisym.compile(declared(name))
    found = binned_rate(coordinates(model), model.fields, model.tokens, log_n=18)
    assert abs(found.rate - exact) < 4 * found.error + found.width
    assert found.width < 0.04 * exact


KNOWN_WALKS = {
    "tied-r2-T3": 6.0,
    "untied-T3": 2 * (3 + np.sqrt(10)),
    "noise": 1 / 0.4032,  # by bins and by quadrature, to 0.2 %
}


@pytest.mark.parametrize("name", KNOWN_WALKS)
def test_walks_know_closed_forms(name: str) -> None:
    """On the surface of all outputs; with noise also by the likelihood of moves of the fields alone."""
    exact, net = KNOWN_WALKS[name], seen(described(declared(name)))
    plans = [("surface", Walk(1000 if net.noise > 0 else 500, 100))] + [("fields", Walk(4000, 400))] * (net.noise > 0)
    for moves, walk in plans:
        found = walked(net, walk, moves)
        assert abs(found.drift) < 4 * found.drift_error + 1e-9
        assert abs(found.rate - exact) < 4 * found.error
        assert found.error < 0.06 * exact


def test_singular_values_of_scores_know_what_fields_are() -> None:
    """An untied head of rank two: lengths of six queries and of four keys in the contrasts, E |E|^2 / 4 = 3 between
    them, and walks from the truth, which gave 0.186(4) and forget nothing that this knows."""
    found, lengths = bilinear_rates(32)
    assert np.abs(lengths - [6, 4]).max() < 1e-6
    assert abs(found[0, 1] - 3) < 1e-6
    assert np.abs(found - bilinear_rates(24)[0]).max() < 1e-4
    oracle = walked(seen(described(declared("untied-r2-T3"))), Walk(128, 200), "surface")
    assert abs(np.linalg.eigvalsh(found)[-1] - oracle.rate) < 4 * oracle.error


def test_lengths_of_scores_know_what_draws_do() -> None:
    """An untied head behind a tied layer: all outputs are met, and the rates are those of draws sorted into bins."""
    found, mass = of_lengths.rates(80, 40, 32)
    assert abs(mass - 1) < 1e-5
    assert found.argmax() == 1
    model = smisym.compile(declared("untied-on-tied"))
    bins = binned_rate(coordinates(model), model.fields, model.tokens, log_n=18)
    assert abs(bins.rate - found.max()) < 4 * bins.error + bins.width
    assert bins.width < 0.01 * found.max()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["doc-L4-T2", "doc-split-L3-T2"])
def test_rows_of_the_table_by_nested_quadratures(name: str) -> None:
    """Quasi-random rows that all outputs share against nodes of Gauss and Hermite; split heads, each by itself."""
    oracle = second(name)
    found = smisym.weak_recovery(smisym.compile(declared(name)), samples=128, stages=1).value[0]
    assert found.error < 0.005 * found.alpha
    assert oracle.error < 0.005 * oracle.rate
    assert abs(found.alpha * oracle.rate - 1) < 2 * (found.error / found.alpha + oracle.error / oracle.rate)


def test_all_solutions_of_one_layer() -> None:
    """Tied, rank one, sequence output on three tokens: the fields up to their sign, rate T (T + 1)."""
    oracle = finite_rate(seen(described(declared("sequence"))), samples=100, starts=16)
    assert abs(oracle.rate - 12) < 4 * oracle.error + 1e-9
    assert abs(oracle.drift) < 1e-9
