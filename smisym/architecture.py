"""Declarations: what network is studied.  Frozen plain values that compute nothing.

Everything that can be said is checked here, once, when it is said.  What is legal to declare but has
no chart (see :mod:`smisym.charts`) is compiled all the same: its fields are then found numerically, or integrated
over all of them (:mod:`smisym.integration`).
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import math
import numbers
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import sympy as sp

from smisym.errors import InputError
from smisym.expression_text import text_of
from smisym.expressions import evaluate, parse, varies
from smisym.symbols import SCORE

ACTIVATIONS = ("softmax", "linear", "hardmax")
OUTPUTS = ("attention", "sequence")
LAYOUTS = ("shared", "split")
COMBINATIONS = ("stack", "sum")
LIMITS = ("first_order", "ode")
STATISTICS = ("exact", "gaussian")
# Variance of the noise below which its inverse overflows on the way, and rounding of outputs is larger anyway.
LEAST_NOISE = 1e-20
# Largest positional score: scores of size one keep ten digits beside it.
MOST_POSITION = 1e6
# Largest declarations, by what compiles within a minute or so (2 cores of 2021): rank, heads, layers (many more where
# they are one limit), tokens that a table of masks is made for, rows of Z and entries of Z, and inverse temperature.
MAX_RANK, MAX_HEADS, MAX_LAYERS, MAX_LIMIT_LAYERS, MAX_SEQUENCE = 32, 48, 48, 100_000, 1024
MAX_ROWS, MAX_FIELD_ENTRIES, MAX_BETA = 48, 128, 1e100
# Scores at which an activation is tried, of either sign, and the size up to which it must not even overflow.
_SCORES = np.geomspace(1e-6, 30.0, 200)
_USUAL = 3.0

Table = tuple[tuple[float, ...], ...]
Mask = str | tuple[tuple[bool, ...], ...]


@dataclass(frozen=True, repr=False)
class Attention:
    """One attention layer, ``X -> (skip * I + sum_a readout_a sigma(beta * scale * scores_a)) X``, tokens as rows of X.

    rank
        Rank of the weights, an integer >= 1.
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
    Raises :class:`~smisym.errors.InputError`.
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

    def __post_init__(self) -> None:
        _put(self, "rank", _integer("rank", self.rank, 1, MAX_RANK))
        _put(self, "skip", _real("skip", self.skip, "a finite number >= 0", lower=0.0))
        _put(self, "activation", _activation(self.activation))
        _put(
            self,
            "beta",
            _real("beta", self.beta, f"a finite number > 0, at most {MAX_BETA:g}", above=0.0, upper=MAX_BETA),
        )
        _put(self, "tied", _flag("tied", self.tied))
        _put(self, "heads", _integer("heads", self.heads, 1, MAX_HEADS))
        _put(self, "readout", _readout(self.readout, self.heads))
        _put(self, "scale", _scale(self.scale, self.rank))
        _put(self, "mask", _mask(self.mask))
        _put(self, "position", _position(self.position))

    def __repr__(self) -> str:
        return f"Attention({', '.join(_changed(self))})"

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
    Raises :class:`~smisym.errors.InputError`.
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
        _put(self, "tokens", _integer("tokens", self.tokens, 2, MAX_SEQUENCE))
        _put(self, "layers", _layers(self.layers))
        _put(self, "output", _choice("output", self.output, OUTPUTS))
        _put(self, "noise", _noise(self.noise))
        _put(self, "head_layout", _choice("head_layout", self.head_layout, LAYOUTS))
        _put(self, "combine", _choice("combine", self.combine, COMBINATIONS))
        if self.limit is not None:
            _put(self, "limit", _choice("limit", self.limit, LIMITS))
        _put(self, "statistic", _choice("statistic", self.statistic, STATISTICS))
        for number, layer in enumerate(self.layers, start=1):
            _check_tables(layer, number, self.tokens)
        _check_heads(self)
        _check_combine(self)
        _check_limit(self)
        _check_size(self)

    def __repr__(self) -> str:
        rest = "".join(f"    {text},\n" for text in _changed(self, skip=("tokens", "layers")))
        layers = "".join(f"        {layer!r},\n" for layer in self.layers)
        return f"Architecture(\n    tokens={self.tokens!r},\n    layers=(\n{layers}    ),\n{rest})"

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
_LATER = ("readout", "scale", "mask", "position", "head_layout", "combine", "limit", "statistic")


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


def _integer(what: str, value: object, least: int, most: int | None = None) -> int:
    # bool is an Integral in Python; as a count it is a slip.
    allowed = f"an integer >= {least}" + ("" if most is None else f", at most {most}")
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InputError(what, value, allowed, f"give {what} as a whole number, unquoted")
    if most is not None and int(value) > most:
        raise InputError(what, value, allowed, f"give {what} of {most} or less: larger ones take hours to compile")
    return int(value)


def _real(
    what: str,
    value: object,
    allowed: str,
    *,
    lower: float = -math.inf,
    above: float = -math.inf,
    upper: float = math.inf,
) -> float:
    fix = f"give {what} as a number in that range"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(what, value, allowed, fix)
    try:
        number = float(value)
    except OverflowError:
        raise InputError(what, value, allowed, fix) from None
    if not (math.isfinite(number) and number >= lower and number > above and number <= upper):
        raise InputError(what, value, allowed, fix)
    return number + 0.0  # -0.0 becomes 0.0: equal declarations must have one digest


def _noise(value: object) -> float:
    allowed = f"0, or a finite number >= {LEAST_NOISE:g}"
    number = _real("noise", value, allowed, lower=0.0)
    if 0.0 < number < LEAST_NOISE:
        raise InputError("noise", value, allowed, "use noise=0: so little is below the rounding of the outputs")
    return number


def unpacked(value: Any) -> Any:
    """Numpy arrays as nested lists, and what they hold as plain Python."""
    return value.tolist() if hasattr(value, "tolist") else value


def _choice(what: str, value: object, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise InputError(what, value, " or ".join(f'"{name}"' for name in allowed), "choose one of these names")
    return str(value)


def _flag(what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError(what, value, "true or false", f"give {what} as a boolean, without quotes")
    return value


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


def _activation(value: object) -> str:
    if not isinstance(value, str):
        names = " or ".join(f'"{name}"' for name in ACTIVATIONS)
        raise InputError(
            "activation", value, f"{names}, or an expression in s", "give a name, or for example 'tanh(s)'"
        )
    if value in ACTIVATIONS:
        return str(value)
    near = difflib.get_close_matches(value, ACTIVATIONS, n=1)
    if near:
        names = ", ".join(f'"{name}"' for name in ACTIVATIONS)
        raise InputError("activation", value, f"{names}, or an expression in s", f'write "{near[0]}" if that was meant')
    expression = parse(value, {"s": SCORE}, what="activation")
    if SCORE not in expression.free_symbols:
        raise InputError(
            "activation", value, "an expression that depends on the score s", "use s in it, as in 'tanh(s)'"
        )
    _try_out(value, expression)
    return text_of(expression)


def _try_out(text: str, expression: sp.Expr) -> None:
    """Refuse an activation that is complex-valued, undefined or constant at scores of moderate size.

    What overflows at large scores, as exp(s**2) does, is real all the same.
    """
    scores = np.concatenate([-_SCORES[::-1], _SCORES])
    values = {SCORE: scores}
    result = evaluate(expression, values)
    bad = ~np.isfinite(result)
    if bad.any():
        parts = [evaluate(part, values) for part in sp.preorder_traversal(expression)]
        overflow = np.any([np.broadcast_to(np.isinf(part), scores.shape) for part in parts], axis=0)
        bad &= ~overflow | (np.abs(scores) <= _USUAL)
    if bad.any():
        nearest = scores[bad][np.abs(scores[bad]).argmin()]
        raise InputError(
            "activation",
            f"{text} (complex-valued or undefined activation)",
            f"real and finite at every score; this one is not at s = {nearest:.4g}",
            "keep the arguments of log, sqrt and fractional powers positive, for example by abs",
        )
    if not varies(expression, {SCORE: np.concatenate([scores, 100 * scores])}):
        raise InputError(
            "activation", text, "an expression that depends on the score s", "use s in it, as in 'tanh(s)'"
        )


def _readout(value: object, heads: int) -> float | tuple[float, ...]:
    value = unpacked(value)
    allowed = f"a finite number other than 0, or {heads} of them"
    if isinstance(value, str) or not isinstance(value, Iterable):
        number = _real("readout", value, allowed)
        if number == 0.0:
            raise InputError("readout", value, allowed, "leave out a head that does nothing")
        return number
    numbers_given = tuple(_real("readout", item, allowed) for item in value)
    if len(numbers_given) != heads or 0.0 in numbers_given:
        raise InputError("readout", numbers_given, allowed, "give one number a head, none of them 0")
    return numbers_given[0] if len(set(numbers_given)) == 1 else numbers_given


def _scale(value: object, rank: int) -> float:
    allowed = "a finite number > 0, or an expression in rank"
    if isinstance(value, str):
        value = float(parse(value, {"rank": sp.Integer(rank)}, what="scale"))
    return _real("scale", value, allowed, above=0.0)


def _mask(value: object) -> Mask | None:
    if value is None or (isinstance(value, str) and value == "causal"):
        return value
    rows = _table("mask", value, '"causal", or T rows of T booleans')
    for row in rows:
        for item in row:
            _flag("mask", item)
    return tuple(tuple(bool(item) for item in row) for row in rows)


def _position(value: object) -> Table | None:
    if value is None:
        return None
    rows = _table("position", value, "T rows of T finite numbers")
    table = tuple(tuple(_real("position", item, "finite numbers") for item in row) for row in rows)
    for item in itertools.chain(*table):
        if abs(item) > MOST_POSITION:
            raise InputError(
                "position",
                item,
                f"numbers between -{MOST_POSITION:g} and {MOST_POSITION:g}, so that scores keep their digits",
                "rescale it; what a token should not attend to is said by mask",
            )
    return table


def _table(what: str, value: object, allowed: str) -> list[list[Any]]:
    """Rows of a square table; numpy arrays and nested lists are read alike."""
    value = unpacked(value)
    value = [unpacked(row) for row in value] if isinstance(value, (list, tuple)) else value
    square = isinstance(value, (list, tuple)) and all(
        isinstance(r, (list, tuple)) and len(r) == len(value) for r in value
    )
    if not square or not isinstance(value, (list, tuple)) or not value:
        raise InputError(what, value, allowed, "write it as nested lists, one a row")
    return [list(row) for row in value]


def _check_tables(layer: Attention, number: int, tokens: int) -> None:
    for what, table in (("mask", layer.mask), ("position", layer.position)):
        if isinstance(table, tuple) and len(table) != tokens:
            raise InputError(
                f"{what} of layer {number}",
                f"{len(table)} rows",
                f"{tokens} rows of {tokens} entries",
                "match the tokens",
            )
    for row, attended in enumerate(layer.attended(tokens), start=1):
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
