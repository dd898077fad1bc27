"""One table of architectures, with what is known about each; every test of the mathematics reads from it.

Facts are mathematics, not outputs of the package: how many free dimensions the level set has, which layer is learned
first, the first threshold where it is known, and a floor below which no threshold can lie.  For tied rank-one layers:

* the fields of all layers but the last are free, T each;
* a field on T tokens that no symmetry couples to another one has threshold >= 1 / (T (T + 1)), by Jensen, with
  equality when the output shows z z^T (a single layer);
* every sign of a row of Z leaves the link unchanged: 2^L flips.
"""

from __future__ import annotations

from dataclasses import dataclass

from oracles import Layer

from smisym import Architecture, Attention


@dataclass(frozen=True)
class Case:
    """An architecture and its facts.

    layers
        As the oracles read them; :attr:`architecture` is the declaration with the same meaning.
    first_layer
        Which layer is learned first, counted from 1.
    threshold
        Its weak-recovery threshold and the error to which that number is known, or None.
    """

    name: str
    tokens: int
    layers: tuple[Layer, ...]
    first_layer: int | None = None
    threshold: tuple[float, float] | None = None

    @property
    def architecture(self) -> Architecture:
        return declare(self.tokens, self.layers)

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


def declare(tokens: int, layers: tuple[Layer, ...]) -> Architecture:
    """The declaration of these layers."""
    return Architecture(
        tokens=tokens,
        layers=tuple(
            Attention(skip=layer.skip, beta=layer.beta, activation="linear" if layer.linear else "softmax")
            for layer in layers
        ),
    )


PLAIN = Layer()

ONE_LAYER = tuple(
    Case(f"L1-T{tokens}", tokens, (PLAIN,), first_layer=1, threshold=(1 / (tokens * (tokens + 1)), 1e-12))
    for tokens in range(2, 7)
)

# Thresholds of L = 2, T = 2 are computed by oracles_thresholds.py when tested (two nested quadratures, to 1e-7); what
# is recorded here is which layer comes first.
TWO_LAYERS = (
    Case("L2-T2", 2, (PLAIN, PLAIN), first_layer=2, threshold=(0.185478, 1e-6)),
    Case("L2-T2-c0.1", 2, (Layer(skip=0.1), PLAIN), first_layer=2),
    Case("L2-T2-c0.7", 2, (Layer(skip=0.7), PLAIN), first_layer=2),
    Case("L2-T2-c4", 2, (Layer(skip=4.0), PLAIN), first_layer=2),
    Case("L2-T2-beta0.3", 2, (Layer(beta=0.3), Layer(beta=0.3)), first_layer=2),
    Case("L2-T2-beta3", 2, (Layer(beta=3.0), Layer(beta=3.0)), first_layer=2),
    Case("L2-T2-linear-last", 2, (PLAIN, Layer(linear=True)), first_layer=2, threshold=(0.185478, 1e-6)),
    Case("L2-T2-linear-first", 2, (Layer(linear=True), PLAIN), first_layer=1),
    Case("L2-T2-mixed", 2, (Layer(skip=0.5, beta=2.0), Layer(beta=0.7, linear=True)), first_layer=2),
)

DEEPER = (
    Case("L2-T3", 3, (PLAIN, PLAIN), first_layer=2),
    Case("L3-T2", 2, (PLAIN, PLAIN, PLAIN), first_layer=3),
    Case("L3-T2-mixed", 2, (Layer(skip=2.0, beta=0.5), Layer(linear=True, beta=0.4), PLAIN), first_layer=2),
    Case("L3-T3-linear", 3, (Layer(linear=True), Layer(skip=0.3), Layer(linear=True, beta=2.0))),
    Case("L2-T6", 6, (PLAIN, PLAIN), first_layer=2),
    Case("L4-T6", 6, (PLAIN, Layer(beta=0.5), Layer(skip=2.0), PLAIN)),
    Case("L2-T2-c0", 2, (Layer(skip=0.0), PLAIN)),
    Case("L1-T3-linear", 3, (Layer(linear=True, beta=1.5),), first_layer=1, threshold=(1 / 12, 1e-12)),
)

CASES = {case.name: case for case in (*ONE_LAYER, *TWO_LAYERS, *DEEPER)}
