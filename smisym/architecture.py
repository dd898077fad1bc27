"""Declarations: what network is studied.  Frozen plain values that compute nothing.

Everything that can be said is checked here, once, when it is said.  What is legal to declare but
has no rule yet (heads, sequence output, ...) is refused by the compiler, not here.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from smisym.errors import InputError

ACTIVATIONS = ("softmax", "linear")
OUTPUTS = ("attention", "sequence")


@dataclass(frozen=True, repr=False)
class Attention:
    """One attention layer, ``X -> (skip * I + sigma(beta * scores)) X`` with tokens as rows of X.

    rank
        Rank of the weights, an integer >= 1.
    skip
        Strength c of the skip connection, >= 0.  Solving for the last layer's fields needs the mixing of the
        layers before it to be invertible: at c = 0 softmax mixing is, almost surely; linear mixing of
        rank < tokens never is.
    activation
        "softmax" (of every row) or "linear" (the scores themselves).
    beta
        Inverse temperature > 0: multiplies the scores, for either activation.
    tied
        Whether keys and queries share their weights.
    heads
        Number of heads, an integer >= 1.

    Numbers are held as plain int and float, so that equal declarations are equal and hash alike.
    Raises :class:`~smisym.errors.InputError`.
    """

    rank: int = 1
    skip: float = 1.0
    activation: str = "softmax"
    beta: float = 1.0
    tied: bool = True
    heads: int = 1

    def __post_init__(self) -> None:
        _put(self, "rank", _integer("rank", self.rank, 1))
        _put(self, "skip", _real("skip", self.skip, "a finite number >= 0", lower=0.0))
        _put(self, "activation", _choice("activation", self.activation, ACTIVATIONS))
        _put(self, "beta", _real("beta", self.beta, "a finite number > 0", above=0.0))
        _put(self, "tied", _flag("tied", self.tied))
        _put(self, "heads", _integer("heads", self.heads, 1))

    def __repr__(self) -> str:
        return f"Attention({', '.join(_changed(self))})"


@dataclass(frozen=True, repr=False)
class Architecture:
    """An attention network on sequences of ``tokens`` tokens and what is observed of it.

    tokens
        Number T of tokens, an integer >= 2.
    layers
        At least one :class:`Attention`, first layer first; any iterable, held as a tuple.
    output
        "attention" (the last layer's attention matrix, (T, T)) or "sequence" (the last layer's tokens).
    noise
        Variance >= 0 of the Gaussian noise on every output entry; 0 is the noiseless channel.

    Compared by value and hashable; its ``repr`` is the Python that makes it.
    Raises :class:`~smisym.errors.InputError`.
    """

    tokens: int
    layers: tuple[Attention, ...]
    output: str = "attention"
    noise: float = 0.0

    def __post_init__(self) -> None:
        _put(self, "tokens", _integer("tokens", self.tokens, 2))
        _put(self, "layers", _layers(self.layers))
        _put(self, "output", _choice("output", self.output, OUTPUTS))
        _put(self, "noise", _real("noise", self.noise, "a finite number >= 0", lower=0.0))

    def __repr__(self) -> str:
        rest = "".join(f"    {text},\n" for text in _changed(self, skip=("tokens", "layers")))
        layers = "".join(f"        {layer!r},\n" for layer in self.layers)
        return f"Architecture(\n    tokens={self.tokens!r},\n    layers=(\n{layers}    ),\n{rest})"

    def canonical(self) -> dict[str, Any]:
        """Every value, defaults included, as plain JSON types: what files and digests hold."""
        top: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "layers"}
        return top | {"layers": [{f.name: getattr(layer, f.name) for f in fields(layer)} for layer in self.layers]}

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that name this declaration: SHA-256 of the canonical JSON."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _put(declaration: Attention | Architecture, name: str, value: object) -> None:
    object.__setattr__(declaration, name, value)


def _changed(declaration: Attention | Architecture, skip: tuple[str, ...] = ()) -> list[str]:
    """``name=value`` of every field that differs from its default, in order."""
    pairs = [(f, getattr(declaration, f.name)) for f in fields(declaration) if f.name not in skip]
    return [f"{f.name}={value!r}" for f, value in pairs if value != f.default]


def _integer(what: str, value: object, least: int) -> int:
    # bool is an Integral in Python; as a count it is a slip.
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InputError(what, value, f"an integer >= {least}", f"give {what} as a whole number, unquoted")
    return int(value)


def _real(what: str, value: object, allowed: str, *, lower: float = -math.inf, above: float = -math.inf) -> float:
    fix = f"give {what} as a number in that range"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(what, value, allowed, fix)
    try:
        number = float(value)
    except OverflowError:
        raise InputError(what, value, allowed, fix) from None
    if not (math.isfinite(number) and number >= lower and number > above):
        raise InputError(what, value, allowed, fix)
    return number + 0.0  # -0.0 becomes 0.0: equal declarations must have one digest


def _choice(what: str, value: object, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise InputError(what, value, " or ".join(f'"{name}"' for name in allowed), "choose one of these names")
    return str(value)


def _flag(what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError(what, value, "true or false", f"give {what} as a boolean, without quotes")
    return value


def _layers(value: object) -> tuple[Attention, ...]:
    allowed = "a sequence of at least one Attention"
    if isinstance(value, Attention) or not isinstance(value, Iterable):
        raise InputError("layers", value, allowed, "write layers=(Attention(), ...), first layer first")
    layers = tuple(value)
    if not layers:
        raise InputError("layers", value, allowed, "declare at least one layer")
    for number, layer in enumerate(layers, start=1):
        if not isinstance(layer, Attention):
            raise InputError(f"layer {number}", layer, "an Attention", "write Attention(...) for every layer")
    return layers
