"""Declarations: what network is studied.  Frozen plain values that compute nothing.

Everything that can be said is checked here, once, when it is said.  What is legal to declare but has
no chart (see :mod:`smisym.charts`) is compiled all the same: its fields are then found numerically, or integrated
over all of them (:mod:`smisym.model.integration`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from smisym.base.cards import Card, Shown
from smisym.base.errors import InputError
from smisym.base.keywords import named
from smisym.declare.checking import (
    ACTIVATIONS,
    MOST_MIXING,
    Mask,
    Table,
    checked_activation,
    checked_flag,
    checked_mask,
    checked_noise,
    checked_position,
    checked_rank_ratio,
    checked_readout,
    checked_scale,
    one_of,
    real_number,
    whole_number,
)
from smisym.declare.describing import layer_facts, layer_formulas, network_card
from smisym.declare.extensive import check_extensive, check_together

OUTPUTS = ("attention", "sequence")
LAYOUTS = ("shared", "split")
COMBINATIONS = ("stack", "sum")
LIMITS = ("first_order", "ode")
STATISTICS = ("exact", "gaussian")
# Largest declarations, by what compiles within a minute or so (2 cores of 2021): rank, heads, layers (many more where
# they are one limit), tokens that a table of masks is made for, rows of Z and entries of Z, and inverse temperature.
MAX_RANK, MAX_HEADS, MAX_LAYERS, MAX_LIMIT_LAYERS, MAX_SEQUENCE = 32, 48, 48, 100_000, 1024
MAX_ROWS, MAX_FIELD_ENTRIES, MAX_BETA = 48, 128, 1e100
# Tokens where the rank is extensive, which has T (T + 1) / 2 fields.
MAX_EXTENSIVE = 12


@named
@dataclass(frozen=True, repr=False)
class Attention(Shown):
    """One attention layer, ``X -> (skip * I + sum_a readout_a sigma(beta * scale * scores_a)) X``, tokens as rows of X.

    rank
        Rank of the weights, an integer >= 1.
    rank_ratio
        None, or the rank over the dimension d of the tokens, 0.001 to 1000, in place of ``rank``: the scores are
        (X S X^T - tr S I) / sqrt(d), S = W W^T / sqrt(r d) of rank r = rank_ratio d, and alpha is N / d^2 (arXiv
        2506.01582).  For layers with one head: one, tied or not, or several tied ones whose overlaps are not coupled.
        Untied, S = Q K^T / sqrt(r d), and no token may attend to itself.  0: the limit of small width, of one tied
        layer: a rank that grows more slowly than d; alpha is N / (r d) there.
    skip
        Strength c of the skip connection, >= 0.  Solving for the last layer's fields needs the mixing of the
        layers before it to be invertible: at c = 0 softmax mixing is, almost surely; linear mixing of
        rank < tokens never is.
    activation
        "softmax" (of every row), "linear" (the scores themselves), "hardmax" (1 at the largest score of every row), or
        an expression in ``s``, such as "tanh(s)", which acts on every score by itself.  It must be real and finite:
        it is tried at scores of both signs, of size 1e-6 to 30.
    beta
        Inverse temperature > 0: multiplies the scores, whatever the activation.
    tied
        Whether keys and queries share their weights.
    heads
        Number of heads, an integer >= 1.  How they see the embedding: ``head_layout`` of :class:`Architecture`.
    readout
        What multiplies each head's attention where it acts on tokens or is summed: a finite number other than 0 for all
        heads, or one a head.
    scale
        A second factor of the scores, > 0: a number, or an expression in ``rank`` such as "1/sqrt(rank)".
    mask
        None, "causal" (token i attends to tokens j <= i), or a T x T table of booleans, True where row i may attend to
        column j; every row needs one True.  Masked entries are zero, and softmax and hardmax run over the others.
    position
        None, or a T x T table of numbers added to the scores of every head (after ``beta`` and ``scale``), of size 1e6
        at most.

    Numbers are held as plain int and float, so that equal declarations are equal and hash alike.
    Raises :class:`~smisym.base.errors.InputError`.
    """

    rank: int = 1
    skip: float = 1.0
    activation: str = "softmax"
    beta: float = 1.0
    tied: bool = True
    heads: int = 1
    readout: float | tuple[float, ...] = 1.0
    scale: float = 1.0
    mask: Mask | None = None
    position: Table | None = None
    rank_ratio: float | None = None

    def __post_init__(self) -> None:
        _put(self, "rank", whole_number("rank", self.rank, 1, MAX_RANK))
        allowed = f"a number >= 0, at most {MOST_MIXING:g}"
        _put(self, "skip", real_number("skip", self.skip, allowed, lower=0.0, upper=MOST_MIXING))
        _put(self, "activation", checked_activation(self.activation))
        _put(
            self,
            "beta",
            real_number("beta", self.beta, f"a finite number > 0, at most {MAX_BETA:g}", above=0.0, upper=MAX_BETA),
        )
        _put(self, "tied", checked_flag("tied", self.tied))
        _put(self, "heads", whole_number("heads", self.heads, 1, MAX_HEADS))
        _put(self, "readout", checked_readout(self.readout, self.heads))
        given: object = self.scale
        if self.rank_ratio is not None and isinstance(given, str):
            raise InputError("scale", given, "a number > 0 beside rank_ratio", "the rank grows: give a number")
        _put(self, "scale", checked_scale(self.scale, self.rank))
        _put(self, "mask", checked_mask(self.mask))
        _put(self, "position", checked_position(self.position))
        _put(self, "rank_ratio", checked_rank_ratio(self.rank_ratio))
        check_extensive(self.rank_ratio, self.rank, self.heads, self.tied, self.mask)

    def __repr__(self) -> str:
        return f"Attention({', '.join(_changed(self))})"

    def card(self) -> Card:
        """What a notebook shows, as plain data."""
        return Card("Attention layer", facts=layer_facts(self), formulas=layer_formulas(self))

    @property
    def readouts(self) -> tuple[float, ...]:
        """The readout of every head."""
        return self.readout if isinstance(self.readout, tuple) else (self.readout,) * self.heads

    @property
    def elementwise(self) -> bool:
        """Whether the activation is an expression of the user's own."""
        return self.activation not in ACTIVATIONS

    def attended(self, tokens: int) -> tuple[tuple[bool, ...], ...]:
        """The mask as a T x T table, all True where there is none."""
        if isinstance(self.mask, tuple):
            return self.mask
        return tuple(tuple(self.mask is None or j <= i for j in range(tokens)) for i in range(tokens))


@named
@dataclass(frozen=True, repr=False)
class Architecture(Shown):
    """An attention network on sequences of ``tokens`` tokens and what is observed of it.

    tokens
        Number T of tokens, an integer >= 2.
    layers
        At least one :class:`Attention`, first layer first; any iterable, held as a tuple.
    output
        "attention" (the last layer's attention matrix, (T, T)) or "sequence" (the last layer's tokens).
    noise
        Variance of the Gaussian noise on every output entry, >= 1e-20, or 0, the noiseless channel.
    head_layout
        "shared": every head sees the whole token.  "split": the embedding is cut into as many slices as there are heads
        (the same number in every layer), and each head sees, mixes and learns its own slice; overlaps couple only
        within a slice, and a slice of D / heads dimensions has heads * alpha samples per dimension.
    combine
        What is observed of a last layer with several heads under ``output="attention"``: "stack", all their attention
        matrices, (heads, T, T), or "sum", their sum weighted by the readouts, (T, T).  A sequence has no choice.
    limit
        None: the network as it stands.  For many layers before the last, each with skip 1 and a small readout:
        "first_order", where these layers act on the original tokens and their attention matrices add up (a committee,
        exact as the readouts vanish at fixed depth), or "ode", where their sum is replaced by its limit at fixed
        sum of the readouts, the solution of an ordinary differential equation.
    statistic
        How posteriors treat layers or heads that enter the output through one sum only.  "exact": all their fields are
        integrated, at a cost that grows with their number.  "gaussian": given the cavity the sum is taken for Gaussian
        (central limit), so that only its T (T - 1) numbers are integrated; averages are wrong by O(1/number of terms).

    Compared by value and hashable; its ``repr`` is the Python that makes it.
    Raises :class:`~smisym.base.errors.InputError`.
    """

    tokens: int
    layers: tuple[Attention, ...]
    output: str = "attention"
    noise: float = 0.0
    head_layout: str = "shared"
    combine: str = "stack"
    limit: str | None = None
    statistic: str = "exact"

    def __post_init__(self) -> None:
        _put(self, "tokens", whole_number("tokens", self.tokens, 2, MAX_SEQUENCE))
        _put(self, "layers", _layers(self.layers))
        _put(self, "output", one_of("output", self.output, OUTPUTS))
        _put(self, "noise", checked_noise(self.noise))
        _put(self, "head_layout", one_of("head_layout", self.head_layout, LAYOUTS))
        _put(self, "combine", one_of("combine", self.combine, COMBINATIONS))
        if self.limit is not None:
            _put(self, "limit", one_of("limit", self.limit, LIMITS))
        _put(self, "statistic", one_of("statistic", self.statistic, STATISTICS))
        _check_heads(self)
        _check_combine(self)
        _check_limit(self)
        _check_size(self)
        check_together(
            [layer.rank_ratio for layer in self.layers],
            all(layer.tied for layer in self.layers),
            (self.limit, self.statistic),
        )
        for number, layer in enumerate(self.layers, start=1):
            _check_tables(layer, number, self.tokens)

    def __repr__(self) -> str:
        rest = "".join(f"    {text},\n" for text in _changed(self, skip=("tokens", "layers")))
        layers = "".join(f"        {layer!r},\n" for layer in self.layers)
        return f"Architecture(\n    tokens={self.tokens!r},\n    layers=(\n{layers}    ),\n{rest})"

    def card(self) -> Card:
        """What a notebook shows, as plain data."""
        return network_card(self)

    def canonical(self) -> dict[str, Any]:
        """Every value, defaults included, as plain JSON types: what files and digests hold."""
        top: dict[str, Any] = {f.name: _plain(getattr(self, f.name)) for f in fields(self) if f.name != "layers"}
        layers = [{f.name: _plain(getattr(layer, f.name)) for f in fields(layer)} for layer in self.layers]
        return top | {"layers": layers}

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that name this declaration: SHA-256 of the canonical JSON.

        What came later than the first version is left out where it has its default, so that names of old files stay.
        """
        top = _without_later(self, self.canonical())
        layers = [_without_later(layer, table) for layer, table in zip(self.layers, top["layers"], strict=True)]
        return digest_of(top | {"layers": layers})


# Fields that came after files were first named by digests.
_LATER = ("readout", "scale", "mask", "position", "rank_ratio", "head_layout", "combine", "limit", "statistic")


def _without_later(declaration: Any, table: dict[str, Any]) -> dict[str, Any]:
    later = {f.name for f in fields(declaration) if f.name in _LATER and getattr(declaration, f.name) == f.default}
    return {name: value for name, value in table.items() if name not in later}


def digest_of(canonical: dict[str, Any]) -> str:
    """16 hexadecimal digits of the SHA-256 of canonical JSON."""
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _put(declaration: object, name: str, value: object) -> None:
    object.__setattr__(declaration, name, value)


def _changed(declaration: Any, skip: tuple[str, ...] = ()) -> list[str]:
    """``name=value`` of every field that differs from its default, in order."""
    pairs = [(f, getattr(declaration, f.name)) for f in fields(declaration) if f.name not in skip]
    return [f"{f.name}={value!r}" for f, value in pairs if value != f.default]


def _layers(value: object) -> tuple[Attention, ...]:
    allowed = f"a sequence of at least one Attention, at most {MAX_LIMIT_LAYERS}"
    if isinstance(value, Attention) or not isinstance(value, Iterable):
        raise InputError("layers", value, allowed, "write layers=(Attention(), ...), first layer first")
    layers = tuple(itertools.islice(value, MAX_LIMIT_LAYERS + 1))
    if len(layers) > MAX_LIMIT_LAYERS:
        raise InputError("layers", "more than that many", allowed, 'declare fewer, or limit="ode" with larger readouts')
    if not layers:
        raise InputError("layers", value, allowed, "declare at least one layer")
    for number, layer in enumerate(layers, start=1):
        if not isinstance(layer, Attention):
            raise InputError(f"layer {number}", layer, "an Attention", "write Attention(...) for every layer")
    return layers


def _check_tables(layer: Attention, number: int, tokens: int) -> None:
    for what, table in (("mask", layer.mask), ("position", layer.position)):
        if isinstance(table, tuple) and len(table) != tokens:
            raise InputError(
                f"{what} of layer {number}",
                f"{len(table)} rows",
                f"{tokens} rows of {tokens} entries",
                "match the tokens",
            )
    for row, attended in enumerate(layer.mask if isinstance(layer.mask, tuple) else (), start=1):
        if not any(attended):
            raise InputError(
                f"mask of layer {number}",
                f"row {row} with no True",
                "at least one True in every row",
                f"let token {row} attend to some token, itself for example",
            )


def _check_size(architecture: Architecture) -> None:
    """Refuse at once what would take hours to compile, or more memory than there is."""
    tokens, layers = architecture.tokens, architecture.layers
    shown = layers[-1:] if architecture.limit == "ode" else layers
    if len(shown) > MAX_LAYERS:
        raise InputError(
            "layers", f"{len(shown)} layers", f"at most {MAX_LAYERS}", 'declare fewer layers, or limit="ode"'
        )
    extensive = any(layer.rank_ratio is not None for layer in shown)
    if extensive and tokens > MAX_EXTENSIVE:
        raise InputError(
            "tokens", tokens, f"at most {MAX_EXTENSIVE} where the rank is extensive", "declare fewer tokens"
        )
    rows = sum(layer.rank * layer.heads * (1 if layer.tied else 2) for layer in shown)
    most = min(MAX_ROWS, max(1, MAX_FIELD_ENTRIES // tokens))
    if rows > most and tokens <= MAX_FIELD_ENTRIES:
        raise InputError(
            "layers",
            f"{rows} rows of Z (rank times heads, twice where untied, over all layers) on {tokens} tokens",
            f"at most {most} rows on so many tokens",
            "declare fewer layers, heads or a lower rank"
            + ("" if architecture.limit else ', or limit="ode" for many equal layers'),
        )


def _check_heads(architecture: Architecture) -> None:
    counts = [layer.heads for layer in architecture.layers]
    if architecture.head_layout == "split" and len(set(counts)) > 1:
        raise InputError(
            "heads of the layers",
            counts,
            'the same number in every layer under head_layout="split"',
            "a slice of the embedding has one head in every layer: give all layers the same heads",
        )


def _check_combine(architecture: Architecture) -> None:
    if architecture.combine == "sum" and architecture.output == "sequence":
        raise InputError(
            "combine",
            '"sum" with output="sequence"',
            '"stack" there: the heads of the last layer act on the tokens, and their readouts add them up',
            'leave combine out, or choose output="attention"',
        )


def _check_limit(architecture: Architecture) -> None:
    if architecture.limit is None:
        return
    *inner, _ = architecture.layers
    if not inner or any(layer.skip != 1.0 for layer in inner):
        raise InputError(
            "limit",
            f"{architecture.limit!r} with skips {[layer.skip for layer in inner]} before the last layer",
            "at least one layer before the last, each with skip 1 and a small readout",
            "rescale: X -> X + sigma(X)/c is Attention(skip=1, readout=1/c)",
        )
    if architecture.limit == "ode" and (len(set(inner)) > 1 or architecture.head_layout == "split"):
        raise InputError(
            "layers", "layers that differ before the last", 'equal layers under limit="ode"', "declare them equal"
        )
