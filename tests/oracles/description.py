"""What a network is, in the words of the oracles: two records of plain numbers, which every oracle reads.

Nothing here imports the package under test; :mod:`oracles.declared` alone reads its declarations into these words.

Rows of W, and of Z: layer by layer, head by head, and within a head ``rank`` rows if tied, else ``rank`` queries,
``rank`` keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Layer:
    """X -> skip X + sum_a readout_a A_a X, with A_a = activation(beta scale scores_a + position), masked.

    activation
        "softmax", "linear" (the scores), "hardmax" (one at the largest entry of a row), or a function of the scores,
        elementwise.  Masked entries get no weight: rows are normalised over the others.
    readout
        One number for all heads, or one per head.
    mask
        None, "causal", or (T, T) booleans, True where attended.
    position
        None or (T, T) numbers, added to the scores after beta and scale.
    rank_ratio
        None, or r / D of a layer of extensive rank, one head: scores are (X S X^T - tr S I) / sqrt(D) with
        S = W^T W / sqrt(r D), W (r, D).  Its fields are one row: the scores of tokens a <= b, row by row of the upper
        triangle, those with a = b over sqrt(2).
    """

    rank: int = 1
    skip: float = 1.0
    activation: str | Callable[[Any], Any] = "softmax"
    beta: float = 1.0
    tied: bool = True
    heads: int = 1
    readout: float | tuple[float, ...] = 1.0
    scale: float = 1.0
    mask: str | Sequence[Sequence[bool]] | None = None
    position: Sequence[Sequence[float]] | None = None
    rank_ratio: float | None = None

    @property
    def readouts(self) -> tuple[float, ...]:
        """One number per head."""
        several = tuple(self.readout) if isinstance(self.readout, Sequence) else (self.readout,) * self.heads
        if len(several) != self.heads:
            raise ValueError(f"{len(several)} readouts for {self.heads} heads")
        return several

    @property
    def rows(self) -> int:
        """Rows of W of one head."""
        return self.rank if self.tied else 2 * self.rank

    @property
    def linear(self) -> bool:
        return self.activation == "linear"

    @property
    def simplest(self) -> bool:
        """Whether skip, beta and a softmax or none say all: tied, of rank one, one head that all tokens see."""
        plain = Layer(skip=self.skip, beta=self.beta, activation=self.activation)
        return self == plain and self.activation in ("softmax", "linear")


@dataclass(frozen=True)
class Network:
    """A network and what is observed of it.

    output
        "attention": of the last layer: its matrices (H, T, T), or (T, T) for one head (``combine="stack"``), or their
        sum weighted by the readouts, (T, T) (``combine="sum"``).  "sequence": the mixing B of all layers, X_L = B X.
    head_layout
        "shared": every head sees the whole token.  "split": head a sees, and moves, the a-th slice of D/H coordinates;
        W is (P, D/H), and "sequence" shows H mixings, (H, T, T).
    limit
        None: the network itself.  "first_order": every layer but the last is evaluated on the first tokens, and what
        they add is summed.  "ode": infinitely many layers before the last; those that are declared must be alike and
        only lend their readouts, whose sum is the length of the flow; W has rows for the last layer only.
    noise
        Variance of the Gaussian noise that is added to every entry.  Oracles of the network itself show it without.
    """

    tokens: int
    layers: tuple[Layer, ...]
    output: str = "attention"
    head_layout: str = "shared"
    combine: str = "stack"
    limit: str | None = None
    noise: float = 0.0

    def __post_init__(self) -> None:
        choices = {
            "output": ("attention", "sequence"),
            "head_layout": ("shared", "split"),
            "combine": ("stack", "sum"),
            "limit": (None, "first_order", "ode"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}, not one of {allowed}")
        if self.head_layout == "split" and len({layer.heads for layer in self.layers}) > 1:
            raise ValueError("split heads: every layer has the same number of heads")
        if self.limit is not None and any(layer.skip != 1 for layer in self.layers[:-1]):
            raise ValueError("in a limit of large depth, the skip of every layer but the last is 1")
        if self.limit == "ode" and len({_kind(layer) for layer in self.layers[:-1]}) > 1:
            raise ValueError("ode: all layers but the last are alike, readouts apart")

    @property
    def with_rows(self) -> tuple[Layer, ...]:
        """Layers that have rows of W."""
        return self.layers[-1:] if self.limit == "ode" else self.layers

    @property
    def fields(self) -> int:
        """Number P of rows of W."""
        return sum(layer.heads * layer.rows for layer in self.with_rows)

    @property
    def slices(self) -> int:
        """Number of slices of the embedding that never mix."""
        return self.layers[-1].heads if self.head_layout == "split" else 1

    @property
    def simplest(self) -> bool:
        """Whether the last of simplest layers shows its attention: a row of Z a layer."""
        return self == Network(self.tokens, self.layers, noise=self.noise) and all(o.simplest for o in self.layers)


def _kind(layer: Layer) -> str:
    return repr(replace(layer, readout=1.0, heads=1))
