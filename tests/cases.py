"""One table of architectures, with what is known about each; every test of the mathematics reads from it.

Facts are mathematics, not outputs of the package: how many free dimensions the level set has, which layer is learned
first, the first threshold where it is known, and a floor below which no threshold can lie.  For tied rank-one layers:

* the fields of all layers but the last are free, T each;
* a field on T tokens that no symmetry couples to another one has threshold >= 1 / (T (T + 1)), by Jensen, with
  equality when the output shows z z^T (a single layer);
* every sign of a row of Z leaves the link unchanged: 2^L flips.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from oracles.declared import described
from oracles.description import Network

import smisym
from smisym import SMI, Architecture, Attention, Model
from smisym.base.derivation import Derivation
from smisym.base.errors import NoChartError
from smisym.charts import LevelSet, find_level_set
from smisym.link.linking import LinkFunction


@dataclass(frozen=True)
class Case:
    """An architecture and its facts.

    network
        The same as the oracles read it.
    first_layer
        Which layer is learned first, counted from 1.
    threshold
        Its weak-recovery threshold and the error to which that number is known, or None.
    """

    name: str
    tokens: int
    layers: tuple[Attention, ...]
    first_layer: int | None = None
    threshold: tuple[float, float] | None = None

    @property
    def architecture(self) -> Architecture:
        return Architecture(self.tokens, self.layers)

    @property
    def network(self) -> Network:
        return described(self.architecture)

    @property
    def depth(self) -> int:
        return len(self.layers)

    @property
    def free_dimensions(self) -> int:
        return self.tokens * (self.depth - 1)

    @property
    def floor(self) -> float:
        return 1 / (self.tokens * (self.tokens + 1))

    def __str__(self) -> str:
        return self.name


A = Attention
PLAIN = A()

ONE_LAYER = tuple(
    Case(f"L1-T{tokens}", tokens, (PLAIN,), first_layer=1, threshold=(1 / (tokens * (tokens + 1)), 1e-12))
    for tokens in range(2, 7)
)

# Thresholds of L = 2, T = 2 are computed by oracles/thresholds.py when tested (two nested quadratures, to 1e-7); what
# is recorded here is which layer comes first.
TWO_LAYERS = (
    Case("L2-T2", 2, (PLAIN, PLAIN), first_layer=2, threshold=(0.185478, 1e-6)),
    Case("L2-T2-c0.1", 2, (A(skip=0.1), PLAIN), first_layer=2),
    Case("L2-T2-c0.7", 2, (A(skip=0.7), PLAIN), first_layer=2),
    Case("L2-T2-c4", 2, (A(skip=4.0), PLAIN), first_layer=2),
    Case("L2-T2-beta0.3", 2, (A(beta=0.3), A(beta=0.3)), first_layer=2),
    Case("L2-T2-beta3", 2, (A(beta=3.0), A(beta=3.0)), first_layer=2),
    Case("L2-T2-linear-last", 2, (PLAIN, A(activation="linear")), first_layer=2, threshold=(0.185478, 1e-6)),
    Case("L2-T2-linear-first", 2, (A(activation="linear"), PLAIN), first_layer=1),
    Case("L2-T2-mixed", 2, (A(skip=0.5, beta=2.0), A(beta=0.7, activation="linear")), first_layer=2),
)

DEEPER = (
    Case("L2-T3", 3, (PLAIN, PLAIN), first_layer=2),
    Case("L3-T2", 2, (PLAIN, PLAIN, PLAIN), first_layer=3),
    Case("L3-T2-mixed", 2, (A(skip=2.0, beta=0.5), A(activation="linear", beta=0.4), PLAIN), first_layer=2),
    Case("L3-T3-linear", 3, (A(activation="linear"), A(skip=0.3), A(activation="linear", beta=2.0))),
    Case("L2-T6", 6, (PLAIN, PLAIN), first_layer=2),
    Case("L4-T6", 6, (PLAIN, A(beta=0.5), A(skip=2.0), PLAIN)),
    Case("L2-T2-c0", 2, (A(skip=0.0), PLAIN)),
    Case("L1-T3-linear", 3, (A(activation="linear", beta=1.5),), first_layer=1, threshold=(1 / 12, 1e-12)),
)

CASES = {case.name: case for case in (*ONE_LAYER, *TWO_LAYERS, *DEEPER)}
# Which of them have a first threshold in closed form, and which one by nested quadratures.
CLOSED = (*ONE_LAYER, CASES["L1-T3-linear"])
MORE = ("L2-T3", "L3-T2")
NESTED = (*[case.name for case in TWO_LAYERS], *MORE)


# ------------------------------------------------------------------------------------------- every family, declared


@dataclass(frozen=True)
class Family:
    """A declaration and its facts.

    fields, free
        P, and the dimensions of the posterior's integral.
    samples
        Draws of the tests that average over the channel: fewer where one costs more.
    threshold
        First weak-recovery threshold in closed form, where there is one.
    """

    name: str
    declared: Architecture | SMI
    fields: int
    free: int
    samples: int = 400
    threshold: float | None = None

    def __str__(self) -> str:
        return self.name


def attention(tokens: int, *layers: Attention, **rest: Any) -> Architecture:
    return Architecture(tokens, layers, **rest)


def tied_threshold(tokens: int, rank: int, *, linear: bool = False) -> float:
    """One tied layer: 1/alpha = T(T+1)/r, less what a softmax hides where r >= T.

    The posterior mean of U U^T / r is the Gram matrix itself, or without the chi-square part of the common row.
    """
    hidden = 0 if linear else 2 * max(rank - tokens + 1, 0) / rank**2
    return 1 / (tokens * (tokens + 1) / rank - hidden)


def untied_threshold(tokens: int) -> float:
    """One untied layer of rank one, softmax: queries and keys grow together.

    Rates (T^2 - 1) and (T - 1)^2, fed by each other at T (T - 1): elementary because the Bessel functions of the
    posterior mean length have order 1/2 (derived in smisym/theory/closed_forms.py).
    """
    return 1 / ((tokens - 1) * (tokens + math.sqrt(tokens**2 + 1)))


POSITION = ((0.0, 0.4), (-0.3, 0.2))
RING = ((True, True, False), (False, True, True), (True, False, True))
OTHERS = ((False, True, True), (True, False, True), (True, True, False))

# These rows alone cover all pairs of (tying, rank, heads and layout, output, activation, mask, noise, depth); a test
# counts.
PAIRS = (
    Family("p-causal", attention(2, A(mask="causal")), 1, 1),
    Family(
        "p-split-own-sequence",
        attention(
            2, A(tied=False, rank=2, heads=2, activation="s/(1 + abs(s))"), output="sequence", head_layout="split"
        ),
        8,
        6,
        12,
    ),
    Family(
        "p-hardmax-noise", attention(2, *[A(heads=2, activation="hardmax")] * 2, output="sequence", noise=0.1), 4, 8, 12
    ),
    Family(
        "p-linear-causal",
        attention(2, *[A(tied=False, rank=2, activation="linear", mask="causal")] * 2, noise=0.1),
        8,
        16,
        6,
    ),
    Family(
        "p-hardmax-causal", attention(2, A(tied=False, rank=2, heads=2, activation="hardmax", mask="causal")), 8, 16, 6
    ),
    Family("p-split-linear", attention(2, *[A(heads=2, activation="linear")] * 2, head_layout="split"), 4, 4, 24),
    Family(
        "p-own-causal",
        attention(2, A(activation="s/(1 + abs(s))", mask="causal"), output="sequence", noise=0.1),
        1,
        2,
        300,
    ),
    Family("p-untied-sequence", attention(2, *[A(tied=False)] * 2, output="sequence", noise=0.1), 4, 8, 12),
    Family(
        "p-split-causal-noise",
        attention(2, A(rank=2, heads=2, mask="causal"), output="sequence", head_layout="split", noise=0.1),
        4,
        8,
        12,
    ),
    Family("p-own-shared", attention(2, *[A(heads=2, activation="s/(1 + abs(s))")] * 2), 4, 4, 24),
    Family("p-linear-shared", attention(2, A(heads=2, activation="linear"), output="sequence", noise=0.1), 2, 4, 24),
    Family("p-hardmax", attention(2, A(activation="hardmax")), 1, 2, 60),
    Family("p-split-hardmax", attention(2, A(heads=2, activation="hardmax"), head_layout="split"), 2, 4, 24),
    Family("p-shared-causal", attention(2, A(heads=2, mask="causal")), 2, 2, 60),
)

NAMED = (
    Family("tied-r2-T2", attention(2, A(rank=2)), 2, 1, 600, tied_threshold(2, 2)),
    Family("tied-r2-T3", attention(3, A(rank=2)), 2, 1, 600, tied_threshold(3, 2)),
    Family("tied-r3-T2", attention(2, A(rank=3)), 3, 2, 300, tied_threshold(2, 3)),
    Family("tied-r3-T4", attention(4, A(rank=3)), 3, 3, 30, tied_threshold(4, 3)),
    Family(
        "tied-r2-T2-linear",
        attention(2, A(rank=2, activation="linear", scale="1/sqrt(rank)")),
        2,
        1,
        600,
        tied_threshold(2, 2, linear=True),
    ),
    Family("tied-r2-two-layers", attention(2, A(), A(rank=2)), 3, 3, 40),
    Family("untied-T2", attention(2, A(tied=False)), 2, 1, 600, untied_threshold(2)),
    Family("untied-T3", attention(3, A(tied=False)), 2, 1, 600, untied_threshold(3)),
    Family("untied-T4", attention(4, A(tied=False)), 2, 1, 600, untied_threshold(4)),
    Family("untied-T2-linear", attention(2, A(tied=False, activation="linear")), 2, 1, 600),
    Family("untied-T3-linear", attention(3, A(tied=False, activation="linear")), 2, 1, 600),
    Family("untied-r2-T2", attention(2, A(tied=False, rank=2)), 4, 2, 100),
    Family("untied-r2-T3", attention(3, A(tied=False, rank=2)), 4, 3, 8),
    Family("untied-on-tied", attention(2, A(), A(tied=False)), 3, 3, 40),
    Family("untied-two-layers", attention(2, A(tied=False), A(tied=False)), 4, 5, 20),
    Family("untied-three-layers", attention(2, A(), A(), A(tied=False)), 4, 5, 20),
    Family("heads-2", attention(2, A(heads=2)), 2, 0, 2000, 1 / 6),
    Family("heads-4", attention(3, A(heads=4)), 4, 0, 1000, 1 / 12),
    Family("heads-3-untied", attention(2, A(heads=3, tied=False)), 6, 3, 40, untied_threshold(2)),
    Family("heads-readouts", attention(2, A(heads=2, readout=(0.5, 1.0)), A(heads=2)), 4, 4, 24),
    Family("heads-split", attention(2, A(heads=2), head_layout="split"), 2, 0, 2000, 1 / 12),
    Family("heads-3-split", attention(2, A(heads=3), head_layout="split"), 3, 0, 2000, 1 / 18),
    Family("heads-4-split", attention(2, A(heads=4), head_layout="split"), 4, 0, 2000, 1 / 24),
    Family("heads-sum", attention(2, A(heads=2, readout=(1.0, 0.5)), combine="sum", noise=0.05), 2, 4, 24),
    Family("sequence", attention(3, A(skip=0.5), output="sequence"), 1, 0, 2000, 1 / 12),
    Family("sequence-two-noiseless", attention(2, A(), A(), output="sequence"), 2, 2, 60),
    Family("sequence-two-untied", attention(2, A(tied=False), A(beta=0.5, readout=0.7), output="sequence"), 3, 3, 24),
    Family("sequence-two-T3", attention(3, A(), A(), output="sequence"), 2, 0, 60),
    Family("sequence-two-T4", attention(4, A(), A(), output="sequence"), 2, 0, 60),
    Family("heads-sum-T3", attention(3, A(heads=2, readout=(1.0, 0.5)), combine="sum"), 2, 0, 60),
    Family("sequence-two", attention(2, A(), A(), output="sequence", noise=0.02), 2, 4, 24),
    Family("position", attention(2, A(position=POSITION)), 1, 0, 2000, 1 / 6),
    Family("own", attention(3, A(activation="s/(1 + abs(s))")), 1, 0, 1000, 1 / 12),
    Family("ring-mask", attention(3, A(mask=RING), A()), 2, 3, 40),
    Family("committee", attention(2, *[A(readout=0.1)] * 2, A(), limit="first_order"), 3, 4, 16),
    Family("large-depth", attention(2, *[A(readout=0.1)] * 5, A(), limit="ode"), 1, 0, 2000, 1 / 6),
    Family("noise", attention(2, A(), noise=0.05), 1, 2, 300),
    Family("noise-untied", attention(2, A(tied=False), noise=0.05), 2, 4, 24),
)

# Matrices whose rank grows with the dimension: T (T + 1) / 2 fields in one row, T (T - 1) where they are not tied.
EXTENSIVE = (
    Family("extensive-T2", attention(2, A(rank_ratio=0.5)), 1, 0, 2000),
    Family("extensive-T3-ring", attention(3, A(rank_ratio=2.0, mask=RING), output="sequence"), 1, 0, 1000),
    Family("extensive-T3-linear", attention(3, A(rank_ratio=0.5, activation="linear")), 1, 0, 1000),
    Family("extensive-hardmax", attention(2, A(rank_ratio=0.5, activation="hardmax")), 1, 0, 1000),
    Family("extensive-own", attention(2, A(rank_ratio=0.1, activation="s/(1 + abs(s))")), 1, 0, 60),
    Family("extensive-untied", attention(3, A(rank_ratio=0.5, tied=False, mask=OTHERS)), 1, 0, 1000),
    Family("extensive-two-layers", attention(2, A(rank_ratio=0.5), A(rank_ratio=1.5)), 2, 2, 24),
    Family("extensive-noise", attention(2, A(rank_ratio=0.5, activation="linear"), noise=0.05), 1, 3, 40),
)

MODELS = (
    Family("abs", SMI("abs(z1)", 1), 1, 0, 2000, 1 / 2),
    # Weights that are the entries of a matrix: nothing is known of them at first, as of independent ones.
    Family("matrix-abs", SMI("abs(z1)", 1, rank_ratio=0.5), 1, 0, 2000, 1 / 2),
    Family("product", SMI("z1*z2", 2), 2, 1, 600, 0.59375),
    Family("sign-of-product", SMI("sign(z1*z2)", 2), 2, 0, 200, math.pi**2 / 4),
    Family("triple-product", SMI("z1*z2*z3", 3), 3, 2, 40, 2.565),
    Family("sign-of-triple", SMI("sign(z1*z2*z3)", 3), 3, 0, 20, math.inf),
    Family("staircase", SMI("z1**2 + sign(z1*z2*z3)", 3), 3, 2, 60, 0.5752),
    Family("committee-of-two", SMI("sign(sign(z1) + sign(z2))", 2), 2, 0, 200, 0.0),
    Family("two-outputs", SMI(("z1*z2", "z1 + z2"), 2), 2, 0, 1000, 0.0),
    Family("two-tokens", SMI(("a[1]*b[1]", "a[2]*b[2]"), ("a", "b"), tokens=2), 2, 2, 100),
    Family("noisy-expression", SMI("sin(z1)*z2 + z1", 2, noise=0.2), 2, 2, 300, 0.0),
    Family("no-inverse", SMI("z1 + tanh(z1*z2) + z2**2", 2), 2, 1, 40),
    # Solved by a tangent, which has values where the arc tangent has none.
    Family("bounded", SMI("atan(z1 + 2*z2)*z2**2", 2), 2, 1, 400, 0.0),
    # A level set that closes upon itself: solutions for either field have folds.
    Family("ellipse", SMI("2*z1**2 + z2**2", 2), 2, 1, 400, 0.6157),
    Family("curved-cell", SMI("sign(z1 + z2**2)", 2), 2, 2, 60),
)

FAMILIES = {family.name: family for family in (*PAIRS, *NAMED, *EXTENSIVE, *MODELS)}
# Every row, by the name that tests call it by.
DECLARED: dict[str, Architecture | SMI] = {
    **{name: family.declared for name, family in FAMILIES.items()},
    **{name: case.architecture for name, case in CASES.items()},
}


@cache
def compiled(name: str) -> Model:
    """The model of a row, compiled once a process: models are never changed."""
    return smisym.compile(DECLARED[name])


@cache
def charted(name: str) -> tuple[LinkFunction, LevelSet] | None:
    """Link and chart of a row, with noise too, whose model has no chart; None where no rule finds one."""
    model = compiled(name)
    if model.level_set is not None:
        return model.charted, model.level_set
    try:
        return model.link, find_level_set(model.link, Derivation())
    except NoChartError:
        return None


# First thresholds known in closed form: those of ELSEWHERE are tested at more length in test_multi_index.py.
ELSEWHERE = ("triple-product", "staircase")
KNOWN = [f for f in FAMILIES.values() if f.threshold is not None and f.name not in ELSEWHERE]


# ----------------------------------------------------------------------------------------------- kinds of families


def _layers(*, of: Callable[[Attention], bool]) -> Callable[[Architecture | SMI], bool]:
    """Networks with a layer like this."""
    return lambda d: isinstance(d, Architecture) and any(of(layer) for layer in d.layers)


def _networks(of: Callable[[Architecture], bool]) -> Callable[[Architecture | SMI], bool]:
    return lambda d: isinstance(d, Architecture) and of(d)


def _several_heads(d: Architecture) -> bool:
    return any(layer.heads > 1 for layer in d.layers)


# Which declarations are of which family: tests that say "every family" count by this.
KINDS: dict[str, Callable[[Architecture | SMI], bool]] = {
    "tied, rank above one": _layers(of=lambda a: a.tied and a.rank > 1),
    "untied, rank one": _layers(of=lambda a: not a.tied and a.rank_ratio is None and a.rank == 1),
    "untied, rank above one": _layers(of=lambda a: not a.tied and a.rank_ratio is None and a.rank > 1),
    "extensive rank": _layers(of=lambda a: a.tied and a.rank_ratio is not None),
    "untied, extensive rank": _layers(of=lambda a: not a.tied and a.rank_ratio is not None),
    "several layers": _networks(lambda d: len(d.layers) > 1 and d.limit is None),
    "split heads": _networks(lambda d: d.head_layout == "split" and _several_heads(d)),
    "shared heads, stacked": _networks(
        lambda d: d.head_layout == "shared" and d.combine == "stack" and _several_heads(d)
    ),
    "summed heads": _networks(lambda d: d.combine == "sum" and _several_heads(d)),
    "sequence output": _networks(lambda d: d.output == "sequence"),
    "linear scores": _layers(of=lambda a: a.activation == "linear"),
    "hardmax": _layers(of=lambda a: a.activation == "hardmax"),
    "activation of one's own": _layers(of=lambda a: a.activation not in ("softmax", "linear", "hardmax")),
    "mask": _layers(of=lambda a: a.mask is not None),
    "scores of position": _layers(of=lambda a: a.position is not None),
    "noise": lambda d: d.noise > 0,
    "committee, layer by layer": _networks(lambda d: d.limit == "first_order" and d.statistic == "exact"),
    "many layers": _networks(lambda d: d.limit == "ode"),
    "expressions on one token": lambda d: isinstance(d, SMI) and d.tokens == 1,
    "expressions on several tokens": lambda d: isinstance(d, SMI) and d.tokens > 1,
}
