"""The second way to first thresholds, case by case: numbers that owe nothing to the package's charts and integrators.

* draws of fields and outputs sorted into bins, where an output has at most two coordinates (:mod:`oracles.binning`);
* random walks from the truth (:mod:`oracles.walking`);
* all solutions from many starts, where an output leaves finitely many fields (:mod:`oracles.roots`);
* nested quadratures over scores and fields, for tied layers of rank one (:mod:`oracles.thresholds`), and over singular
  values of scores, for an untied head of rank two (:mod:`oracles.bilinear`), and over the scores of an untied head
  behind a tied layer (:mod:`oracles.lengths`).

``python tests/second_way.py [NAME ...]`` writes what each of the cases named (all, if none is) gives to
docs/second_way.json, which docs/architectures.md shows beside its own numbers.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES, FAMILIES
from oracles import lengths
from oracles.bilinear import rates
from oracles.binning import binned_rate
from oracles.declared import described
from oracles.description import Network
from oracles.exchanges import seen
from oracles.roots import finite_rate
from oracles.thresholds import lower_grid, lower_hermite, lower_products, lower_sobol, susceptibilities
from oracles.walking import Seen, Walk, Walked, level_set_rate, likelihood_rate

import smisym
from smisym import Architecture, Attention

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
    "tied-r2-two-layers": 1024,
    "untied-two-layers": 1024,
    "untied-three-layers": 1024,
    "sequence-two-noiseless": 1024,
    "sequence-two-untied": 1024,
    "sequence-two": 1024,
    "heads-sum": 1024,
    "two-tokens": 1024,
    "noise-untied": 1024,
    "untied-r2-T2": 1024,
    "L2-T2-c0": 512,
    "L3-T2-mixed": 1024,
}
# By nested quadratures, in test_physics.py: nodes of the last layer's scores on a side; points of the fields of the
# others, on a side of a grid, or (log2, as scrambled Sobol points) in four scrambles.
QUADRATURE = {
    **{name: (40, 160) for name, case in CASES.items() if name.startswith("L2-T2") and name != "L2-T2-c0"},
    "L2-T3": (16, 44),
    "L3-T2": (28, 14),
}
# By nested quadratures as well, over singular values of scores: samples of the first computation, nodes on a side.
BILINEAR = {"untied-r2-T3": (128, 60)}
# The same over lengths and angles of scores: samples of the first computation, nodes of each.
LENGTHS = {"untied-on-tied": (256, (96, 64, 48))}
# Rows of docs/architectures.md that are no case of their own, by bins.
DOCUMENTED = {
    "doc-noise-0.01": Architecture(2, (Attention(),), noise=0.01),
    "doc-noise-0.0001": Architecture(2, (Attention(),), noise=0.0001),
    "doc-causal-first": Architecture(2, (Attention(mask="causal"), Attention())),
    "doc-tied-on-untied": Architecture(2, (Attention(tied=False), Attention())),
    "doc-sequence-untied": Architecture(2, (Attention(tied=False), Attention()), output="sequence"),
    # The link is the exact one, whatever posteriors make of the sum.
    "doc-committee": Architecture(
        2, (*[Attention(readout=0.125)] * 8, Attention()), limit="first_order", statistic="gaussian"
    ),
}
# The same by nested quadratures: nodes of the scores on a side, points of the fields (log2).
DOCUMENTED_NESTED = {"doc-L3-T3": (Architecture(3, (Attention(),) * 3), 16, 14)}
# The same without random numbers: nodes of the scores on a side, and Gauss-Hermite nodes of each field, twice.
DOCUMENTED_HERMITE = {"doc-L4-T2": (Architecture(2, (Attention(),) * 4), 24, (20, 16))}
# Split heads, each by itself a network whose second way is known.
DOCUMENTED_SPLIT = {"doc-split-L3-T2": (Architecture(2, (Attention(heads=2),) * 3, head_layout="split"), "L3-T2")}
# log2 of the draws, and replicates, where a narrow ridge needs narrow bins (without skip, mixing is nearly singular).
FINE = {
    "L2-T2-c0": (22, 4),
    "doc-noise-0.0001": (22, 4),
    "doc-causal-first": (22, 4),
    "doc-tied-on-untied": (22, 4),
    "doc-committee": (22, 2),
    "doc-sequence-untied": (22, 4),
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
    "p-split-hardmax": Walks(512, Walk(4000, 400), "fields"),
}
SLOW_WALKS = {
    "committee": Walks(1024, Walk(2000, 200)),
    "ring-mask": Walks(4096, Walk(2000, 200)),
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


@dataclass(frozen=True)
class Second:
    """A largest rate 1/alpha, its standard error, and what may be wrong with it beyond that.

    slack: what the limit of narrow bins may miss.  drift, drift_error: how much larger half of the steps (of
    the starts) would make it: more than its error says that they are too few.
    """

    way: str
    rate: float
    error: float
    slack: float = 0.0
    drift: float = 0.0
    drift_error: float = 0.0


def declared(name: str) -> Any:
    if name in DOCUMENTED:
        return DOCUMENTED[name]
    if name in DOCUMENTED_NESTED:
        return DOCUMENTED_NESTED[name][0]
    for documented in (DOCUMENTED_HERMITE, DOCUMENTED_SPLIT):
        if name in documented:
            return documented[name][0]
    return FAMILIES[name].declared if name in FAMILIES else CASES[name].architecture


def second(name: str) -> Second:
    """The first threshold of one case by its second way."""
    if name in QUADRATURE:
        return nested(name)
    if name in BILINEAR:
        fine, coarse = (np.linalg.eigvalsh(rates(side)[0])[-1] for side in (BILINEAR[name][1], BILINEAR[name][1] // 2))
        return Second("nested quadrature", float(fine), float(abs(fine - coarse)))
    if name in LENGTHS:
        nodes = LENGTHS[name][1]
        (fine, mass), (coarse, _) = lengths.rates(*nodes), lengths.rates(*[3 * n // 4 for n in nodes])
        error = fine.max() * abs(mass - 1) + abs(fine.max() - coarse.max())
        return Second("nested quadrature", float(fine.max()), float(error))
    if name in DOCUMENTED_SPLIT:
        # A slice of the embedding has as many times more samples per dimension as there are slices.
        one, slices = nested(DOCUMENTED_SPLIT[name][1]), described(declared(name)).slices
        return replace(one, rate=slices * one.rate, error=slices * one.error)
    if name in DOCUMENTED_HERMITE:
        architecture, outer, sides = DOCUMENTED_HERMITE[name]
        layers, tokens = len(architecture.layers) - 1, architecture.tokens
        lower = [lower_products(layers, tokens, side) for side in sides]
        fine, coarse = (susceptibilities(described(architecture), one, outer=outer).max() for one in lower)
        return Second("nested quadrature", float(fine), float(abs(fine - coarse)))
    if name in DOCUMENTED_NESTED:
        return by_sobol(described(declared(name)), *DOCUMENTED_NESTED[name][1:])
    if name in {**BINS, **SLOW_BINS, **DOCUMENTED}:
        model = smisym.compile(declared(name))
        log_n, replicates = FINE.get(name, (19, 8))
        found = binned_rate(coordinates(model), model.fields, model.tokens, log_n=log_n, replicates=replicates)
        return Second("bins", found.rate, found.error, found.width)
    network = described(declared(name))
    if name in SLOW_ROOTS:
        _, truths, starts = SLOW_ROOTS[name]
        way, walk = "all solutions", finite_rate(seen(network), samples=truths, starts=starts)
    else:
        plan = {**WALKS, **SLOW_WALKS}[name]
        way, walk = "walks", walked(seen(network), plan.walk, plan.moves)
    # A slice of the embedding has as many times more samples per dimension as there are slices.
    values = (network.slices * x for x in (walk.rate, walk.error, 0.0, walk.drift, walk.drift_error))
    return Second(way, *values)


def nested(name: str) -> Second:
    """The largest susceptibility of tied layers of rank one; its error from a coarser grid, or from scrambles."""
    case, (outer, points) = CASES[name], QUADRATURE[name]
    if (case.depth, case.tokens) == (2, 2):
        fine = susceptibilities(case.network, lower_grid(points), outer=outer).max()
        coarse = susceptibilities(case.network, lower_grid(3 * points // 4), outer=3 * outer // 4).max()
        return Second("nested quadrature", fine, abs(fine - coarse))
    if case.depth == 2:
        fine = susceptibilities(case.network, lower_hermite(points, case.tokens), outer=outer).max()
        coarse = susceptibilities(case.network, lower_hermite(3 * points // 8 * 2, case.tokens), outer=outer - 2).max()
        return Second("nested quadrature", fine, abs(fine - coarse))
    return by_sobol(case.network, outer, points)


def by_sobol(network: Network, outer: int, points: int) -> Second:
    """With quasi-random fields of the layers before the last, in four scrambles."""
    lower = [lower_sobol(len(network.layers) - 1, network.tokens, points, seed) for seed in range(4)]
    chi = np.array([susceptibilities(network, one, outer=outer) for one in lower])
    rates = chi[:, chi.mean(axis=0).argmax()]
    return Second("nested quadrature", rates.mean(), rates.std(ddof=1) / 2)


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
    seen = model.channel.sample(Z, rng).y if model.noise else model.link.raw(Z)
    return np.asarray(seen).reshape(len(Z), -1)


# ------------------------------------------------------------------------------------------------------------ walks


def walked(net: Seen, walk: Walk, moves: str) -> Walked:
    if moves == "surface":
        return level_set_rate(net, walk)
    # Without noise only moves that leave a discrete output as it is are accepted.
    return likelihood_rate(replace(net, noise=net.noise or 1e-9), walk)


# ------------------------------------------------------------------------------------------------------- the document

PATH = Path(__file__).parent.parent / "docs" / "second_way.json"


def main(names: list[str]) -> None:
    """Measure these cases, or all; the file is written after each."""
    every = [
        *QUADRATURE,
        *BILINEAR,
        *LENGTHS,
        *BINS,
        *SLOW_BINS,
        *DOCUMENTED,
        *DOCUMENTED_NESTED,
        *DOCUMENTED_HERMITE,
        *DOCUMENTED_SPLIT,
        *WALKS,
        *SLOW_WALKS,
        *SLOW_ROOTS,
    ]
    if unknown := set(names) - set(every):
        sys.exit(f"no case is called {sorted(unknown)}; cases: {every}")
    known = json.loads(PATH.read_text()) if PATH.exists() else {}
    for name in names or every:
        started = time.perf_counter()
        known[name] = {"digest": declared(name).digest, **asdict(second(name))}
        PATH.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
        sys.stdout.write(f"{name:24} {known[name]}  {time.perf_counter() - started:.1f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
