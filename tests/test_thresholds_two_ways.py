"""First thresholds by two computations that share neither chart nor integrator, for every case of the table.

One goes from the declaration through chart, posterior moments and scrambles.  The other one is, case by case,

* a closed form: moments of Wishart, Gamma and chi laws, tested in test_families.py and test_physics.py;
* nested quadratures over scores and fields (:mod:`oracles_thresholds`), tested in test_physics.py;
* draws of fields and outputs sorted into bins, where an output has at most two coordinates (:mod:`oracles_binning`);
* random walks from the truth (:mod:`oracles_walking`);
* all solutions from many starts, where an output leaves finitely many fields (:mod:`oracles_roots`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cases import CASES, FAMILIES
from oracles_binning import binned_rate
from oracles_fields import exchanges, shown
from oracles_roots import finite_rate
from oracles_walking import Walk, invariances, level_set_rate, likelihood_rate
from specs import spec

import smisym
from smisym import Architecture

# Samples of the first computation; what takes more than some seconds is marked slow.
BINS = {
    "abs": 2048,
    "product": 2048,
    "sign-of-product": 2048,
    "p-causal": 2048,
    "untied-T2": 8192,
    "tied-r2-T2": 8192,
    "tied-r3-T2": 2048,
    "noise": 2048,
}
SLOW_BINS = {
    "p-hardmax": 1024,
    "p-shared-causal": 1024,
    "p-untied-sequence": 1024,
    "committee": 1024,
    "untied-on-tied": 1024,
    "tied-r2-two-layers": 1024,
    "untied-two-layers": 1024,
    "sequence-two-noiseless": 1024,
    "sequence-two-untied": 1024,
    "sequence-two": 1024,
    "heads-sum": 1024,
    "two-tokens": 1024,
    "noise-untied": 1024,
    "L2-T2-c0": 1024,
    "L3-T2-mixed": 256,
}


@dataclass(frozen=True)
class Walks:
    """samples: of the first computation.  moves: on the "surface" of outputs, or of "fields" under the likelihood."""

    samples: int
    walk: Walk
    moves: str = "surface"


WALKS = {
    "p-own-causal": Walks(2048, Walk(4000, 400), "fields"),
    "untied-T2-linear": Walks(2048, Walk(2000, 200)),
    "untied-T3-linear": Walks(1024, Walk(1500, 200)),
    "ring-mask": Walks(256, Walk(2000, 200)),
    "p-split-hardmax": Walks(512, Walk(4000, 400), "fields"),
}
SLOW_WALKS = {
    "p-own-causal": Walks(2048, Walk(4000, 400), "fields"),
    "untied-T2-linear": Walks(2048, Walk(2000, 200)),
    "untied-T3-linear": Walks(1024, Walk(1500, 200)),
    "untied-r2-T2": Walks(256, Walk(2000, 200)),
    "untied-r2-T3": Walks(256, Walk(1000, 200)),
    "heads-readouts": Walks(256, Walk(2000, 300)),
    "p-split-linear": Walks(512, Walk(4000, 300)),
    "p-own-shared": Walks(256, Walk(2000, 300)),
    "p-split-own-sequence": Walks(256, Walk(2000, 200)),
    "p-linear-causal": Walks(256, Walk(1000, 800)),
    "p-linear-shared": Walks(256, Walk(4000, 1000), "fields"),
    "p-split-causal-noise": Walks(2048, Walk(4000, 1000), "fields"),
    "p-hardmax-noise": Walks(256, Walk(4000, 1000), "fields"),
    "p-hardmax-causal": Walks(256, Walk(4000, 1000), "fields"),
    "L3-T3-linear": Walks(256, Walk(2000, 200)),
    "L2-T6": Walks(256, Walk(500, 200, 1.0)),
    "L4-T6": Walks(64, Walk(500, 300, 1.0)),
}
SLOW_ROOTS = {"sequence-two-T3": (1024, 1500, 100), "heads-sum-T3": (1024, 1500, 60), "sequence-two-T4": (256, 200, 60)}

# Where g_out(y, 0, I) is not zero there is no threshold to be found twice: test_multi_index.py.
TRIVIAL = {"committee-of-two", "two-outputs", "noisy-expression", "no-inverse", "curved-cell"}
# By nested quadratures, in test_physics.py.
QUADRATURE = {"L2-T3", "L3-T2"} | {name for name in CASES if name.startswith("L2-T2")} - {"L2-T2-c0"}


def test_every_case_has_two_ways() -> None:
    closed = {f.name for f in FAMILIES.values() if f.threshold} | {c.name for c in CASES.values() if c.threshold}
    numeric = {*BINS, *SLOW_BINS, *WALKS, *SLOW_WALKS, *SLOW_ROOTS, *QUADRATURE}
    assert {*FAMILIES, *CASES} == closed | numeric | TRIVIAL
    assert not (closed | numeric) & TRIVIAL


def declared(name: str) -> Any:
    return FAMILIES[name].declared if name in FAMILIES else CASES[name].architecture


def both_agree(name: str, samples: int, rate: float, error: float, slack: float = 0.0) -> None:
    """The first threshold of the package against the one of ``rate`` +- ``error``, up to ``slack`` in the rate."""
    found = smisym.weak_recovery(smisym.compile(declared(name)), samples=samples, stages=1).value[0]
    assert found.kind == "weak"
    bar = np.hypot(found.error / found.alpha, error / rate)
    assert abs(found.alpha * rate - 1) < 4 * bar + slack / rate
    assert bar < 0.1
    assert slack < 0.05 * rate


# ------------------------------------------------------------------------------------------------------------- bins


def coordinates(model: Any) -> Any:
    """Draws of at most two coordinates that carry all of the output."""
    probe = model.link(np.random.default_rng(0).standard_normal((64, model.fields, model.tokens))).reshape(64, -1)
    rows_are_fixed = probe.shape[1] == 4 and np.ptp(probe[:, :2].sum(axis=1)) < 1e-9 > np.ptp(probe[:, 2:].sum(axis=1))

    def draw(Z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        parts = [_seen(model, Z[i : i + 2**16], rng) for i in range(0, len(Z), 2**16)]
        v = np.concatenate(parts)
        if rows_are_fixed and v.shape[1] == 4:
            # The difference within a row is all that there is to know, under noise on both entries as well.
            v = np.stack([v[:, 1] - v[:, 0], v[:, 2] - v[:, 3]], axis=1)
        v = v[:, v.std(axis=0) > 1e-12]
        assert v.shape[1] <= 2
        return np.asarray(v)

    return draw


def _seen(model: Any, Z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    seen = model.channel.sample(Z, rng).y if model.link.noise else model.link.raw(Z)
    return np.asarray(seen).reshape(len(Z), -1)


@pytest.mark.parametrize("name", [*BINS, *[pytest.param(name, marks=pytest.mark.slow) for name in SLOW_BINS]])
def test_first_thresholds_are_those_of_binned_draws(name: str) -> None:
    model = smisym.compile(declared(name))
    oracle = binned_rate(coordinates(model), model.fields, model.tokens, log_n=19)
    both_agree(name, {**BINS, **SLOW_BINS}[name], oracle.rate, oracle.error, oracle.width)


def test_bins_know_conditional_moments() -> None:
    """y = |z|: E[z^2 | y] = y^2, rate Var z^2 = 2; y = z1 + z2: m = y/2 each, a rate known in closed form."""
    one = binned_rate(lambda Z, rng: np.abs(Z[:, 0, :1]), 1, 1, log_n=18)
    assert abs(one.rate - 2) < 4 * one.error + one.width
    sums = binned_rate(lambda Z, rng: Z[:, :, 0].sum(axis=1)[:, None], 2, 1, log_n=18)
    # G = (y^2/2 - 1) e e^T / 2 with e = (1, 1): largest eigenvalue E[(y^2/2 - 1)^2] = 2.
    assert abs(sums.rate - 2) < 4 * sums.error + sums.width


# ------------------------------------------------------------------------------------------------------------ walks


@dataclass(frozen=True)
class Network:
    """A network as the oracles read it: shape (P, T), the entries of its output that vary, the group of its fields."""

    forward: Any
    shape: tuple[int, int]
    group: np.ndarray
    noise: float
    slices: int


def network(architecture: Architecture) -> Network:
    own, tokens = spec(architecture), architecture.tokens
    maps = exchanges(own)
    shape = len(maps[0]), tokens
    ratios = not architecture.noise and architecture.combine == "stack"
    probe = shown(own, np.random.default_rng(0).standard_normal((64, *shape)), ratios=ratios)
    varies = np.ptp(probe, axis=0) > 0

    def forward(Z: np.ndarray) -> np.ndarray:
        return shown(own, Z, ratios=ratios)[:, varies]

    return Network(forward, shape, invariances(forward, maps, tokens), architecture.noise, own.slices)


def walked(net: Network, walk: Walk, moves: str) -> Any:
    if moves == "surface":
        return level_set_rate(net.forward, net.shape, net.noise, net.group, walk)
    # Without noise only moves that leave a discrete output as it is are accepted.
    return likelihood_rate(net.forward, net.shape, net.noise or 1e-9, net.group, walk)


@pytest.mark.parametrize("name", [*WALKS, *[pytest.param(name, marks=pytest.mark.slow) for name in SLOW_WALKS]])
def test_first_thresholds_are_those_of_walks_from_the_truth(name: str) -> None:
    plan, net = {**WALKS, **SLOW_WALKS}[name], network(declared(name))
    oracle = walked(net, plan.walk, plan.moves)
    assert abs(oracle.drift) < 4 * oracle.drift_error + 1e-9, "the walk has not forgotten its start"
    both_agree(name, plan.samples, net.slices * oracle.rate, net.slices * oracle.error)


KNOWN_WALKS = {
    "p-own-causal": Walks(2048, Walk(4000, 400), "fields"),
    "untied-T2-linear": Walks(2048, Walk(2000, 200)),
    "untied-T3-linear": Walks(1024, Walk(1500, 200)),
    "tied-r2-T3": ("surface", 6.0),
    "untied-T3": ("surface", 2 * (3 + np.sqrt(10))),
    "heads-split": ("surface", 6.0),
    "noise": ("fields", 1 / 0.4032),  # by bins and by quadrature, to 0.2 %
}


@pytest.mark.parametrize("name", KNOWN_WALKS)
def test_walks_know_closed_forms(name: str) -> None:
    """Without noise by moves on the surface, with noise by both kinds of moves."""
    moves, exact = KNOWN_WALKS[name]
    net = network(declared(name))
    steps = Walk(1500, 150) if moves == "surface" else Walk(4000, 400)
    for kind in {"surface", moves}:
        found = walked(net, steps, kind)
        assert abs(found.drift) < 4 * found.drift_error + 1e-9
        assert abs(found.rate - exact) < 4 * found.error
        assert found.error < 0.04 * exact


# ------------------------------------------------------------------------------------------------- finitely many fields


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_ROOTS)
def test_first_thresholds_are_those_of_all_solutions(name: str) -> None:
    samples, truths, starts = SLOW_ROOTS[name]
    net = network(declared(name))
    oracle = finite_rate(net.forward, net.shape, net.group, samples=truths, starts=starts)
    assert abs(oracle.drift) < 0.02 * oracle.rate, "half of the starts give another rate: there are too few"
    both_agree(name, samples, oracle.rate, oracle.error)


def test_all_solutions_of_one_layer() -> None:
    """Tied, rank one, sequence output on three tokens: the fields up to their sign, rate T (T + 1)."""
    net = network(declared("sequence"))
    oracle = finite_rate(net.forward, net.shape, net.group, samples=100, starts=16)
    assert abs(oracle.rate - 12) < 4 * oracle.error + 1e-9
    assert abs(oracle.drift) < 1e-9
