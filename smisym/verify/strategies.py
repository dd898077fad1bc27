"""Strategies of hypothesis: declarations, overlaps of a model, fields and cavities.

They shrink to what a person can read: numbers with three decimals, few layers, overlaps that are diagonal.  For tests
of one's own: ``@given(architectures())``, ``@given(cavities(model))``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from smisym.base.extras import needed
from smisym.declare.architecture import Architecture, Attention
from smisym.declare.checking import LEAST_NOISE
from smisym.declare.smi import SMI
from smisym.model.compiled import Model

needed("hypothesis", "verify")

from hypothesis import strategies as st  # noqa: E402

__all__ = [
    "Cavity",
    "any_overlaps",
    "architectures",
    "attentions",
    "cavities",
    "decimals",
    "fields",
    "models_by_expressions",
    "overlaps",
]

ACTIVATIONS = ("softmax", "linear", "hardmax", "tanh(s)")
# Functions of one field in expressions: smooth, with a kink, with a jump.
_FUNCTIONS = ("{}", "{}**2", "abs({})", "sign({})", "tanh({})", "relu({})")


def decimals(low: float, high: float) -> Any:
    """Numbers with three decimals between two bounds, which shrink towards zero."""
    return st.integers(round(1000 * low), round(1000 * high)).map(lambda k: k / 1000)


# ---------------------------------------------------------------------------------------------------- declarations


@st.composite
def attentions(
    draw: Any, tokens: int, heads: int | None = None, skips: Any = None, betas: Any = None, ranks: int = 2
) -> Attention:
    """Layers with every option: rank, skip, activation, beta, ties, heads, readouts, scale, mask and position.

    heads: a number of them, or None for one or two.  skips, betas: strategies of their own, by default [0, 4] and
    [0.1, 3].  ranks: the largest.
    """
    heads = draw(st.integers(1, 2)) if heads is None else heads
    readout = st.sampled_from([1.0, 0.5, -0.7])
    table = st.lists(st.lists(decimals(-1, 1), min_size=tokens, max_size=tokens), min_size=tokens, max_size=tokens)
    seen = st.lists(st.integers(1, 2**tokens - 1), min_size=tokens, max_size=tokens).map(
        lambda rows: tuple(tuple(bool(row >> j & 1) for j in range(tokens)) for row in rows)
    )
    return Attention(
        rank=draw(st.integers(1, ranks)),
        skip=draw(decimals(0, 4) if skips is None else skips),
        activation=draw(st.sampled_from(ACTIVATIONS)),
        beta=draw(decimals(0.1, 3) if betas is None else betas),
        tied=draw(st.booleans()),
        heads=heads,
        readout=draw(readout if heads == 1 else readout | st.tuples(*[readout] * heads)),
        scale=draw(st.sampled_from([1.0, "1/sqrt(rank)", 0.5])),
        mask=draw(st.none() | st.just("causal") | seen),
        position=draw(st.none() | table),
    )


@st.composite
def architectures(
    draw: Any, tokens: int = 4, layers: int = 4, skips: Any = None, betas: Any = None, noises: Any = None
) -> Architecture:
    """Networks of two to ``tokens`` tokens and up to ``layers`` layers, with every option of both.

    skips, betas: strategies of the layers' numbers.  noises: of the noise, by default none, or 1e-20 to 10.
    """
    size = draw(st.integers(2, tokens))
    layout = draw(st.sampled_from(["shared", "split"]))
    heads = draw(st.integers(1, 2)) if layout == "split" else None
    own = attentions(size, heads, skips, betas)
    listed = draw(st.lists(own, min_size=1, max_size=layers))
    output = draw(st.sampled_from(["attention", "sequence"]))
    combine = draw(st.sampled_from(["stack", "sum"])) if output == "attention" else "stack"
    limited = len(listed) > 1 and all(layer.skip == 1 for layer in listed[:-1])
    limit = draw(st.sampled_from([None, "first_order"])) if limited else None
    noise = draw(st.just(0.0) | st.floats(LEAST_NOISE, 10.0) if noises is None else noises)
    return Architecture(size, listed, output, noise, layout, combine, limit)


@st.composite
def models_by_expressions(draw: Any, fields: int = 3, terms: int = 3, noises: Any = None) -> SMI:
    """Models ``y = f(z)`` of one token: up to two outputs, each a sum of up to ``terms`` products of functions of
    fields; every field appears."""
    P = draw(st.integers(1, fields))
    names = [f"z{p}" for p in range(1, P + 1)]
    factor = st.builds(lambda f, z: f.format(z), st.sampled_from(_FUNCTIONS), st.sampled_from(names))
    coefficient = st.sampled_from(["1", "2", "0.5"])
    # No factor twice: a sign times itself would be the same at all fields.
    factors = st.lists(factor, min_size=1, max_size=2, unique=True)
    term = st.builds(lambda c, fs: "*".join([c, *fs]), coefficient, factors)
    outputs = draw(st.lists(st.lists(term, min_size=1, max_size=terms), min_size=1, max_size=2))
    texts = [" + ".join(output) for output in outputs]
    # What no term drew is added to the first output, which then also depends on something.
    texts[0] += "".join(f" + {name}" for name in names)
    return SMI(tuple(texts), P, noise=draw(st.just(0.0) if noises is None else noises))


# ------------------------------------------------------------------------------------------------- a model's numbers


class Sized(Protocol):
    """What fields are drawn for: a model, or a link."""

    @property
    def fields(self) -> int: ...

    @property
    def tokens(self) -> int: ...


def fields(model: Sized, largest: float = 3.0) -> Any:
    """Fields Z (P, T) of a model or a link, entries with three decimals."""
    P, T = model.fields, model.tokens
    row = st.lists(decimals(-largest, largest), min_size=T, max_size=T)
    return st.lists(row, min_size=P, max_size=P).map(np.array)


# Overlaps along one direction: anywhere, nothing or little, nearly all.
_MODERATE = decimals(0.05, 0.9)
_LITTLE = st.sampled_from([0.0, 1e-3, 0.01])
_MUCH = st.sampled_from([0.99, 0.999, 0.9999])


@st.composite
def any_overlaps(draw: Any, size: int, turned: bool = True) -> np.ndarray:
    """Overlaps Q (P, P), 0 <= Q < I: diagonal or turned; moderate, near 0, near I, or each direction by itself, which
    is near-singular as well."""
    kind = draw(st.sampled_from(["moderate", "near 0", "near I", "each by itself"]))
    one = {"moderate": _MODERATE, "near 0": _LITTLE, "near I": _MUCH, "each by itself": _MODERATE | _LITTLE | _MUCH}
    Q = np.diag([draw(one[kind]) for _ in range(size)])
    for i in range(size - 1 if turned else 0):
        angle = draw(st.sampled_from([0.0, 0.3, 0.7, -0.5]))
        if angle:
            turn = np.eye(size)
            turn[np.ix_([i, i + 1], [i, i + 1])] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
            Q = turn @ Q @ turn.T
    return np.asarray((Q + Q.T) / 2)


def overlaps(model: Model) -> Any:
    """Overlaps (P, P) of a model, as its symmetries leave them: the group averages of :func:`any_overlaps`."""
    return any_overlaps(model.fields, turned=not _diagonal(model)).map(
        lambda Q: model.symmetry.project(model.prior.together() * Q)
    )


def _diagonal(model: Model) -> bool:
    """Whether symmetries leave diagonal overlaps alone."""
    basis = model.symmetry.basis
    return bool((np.abs(basis[:, ~np.eye(model.fields, dtype=bool)]) < 1e-12).all())


@dataclass(frozen=True)
class Cavity:
    """One sample: true fields Z (P, T), and what is known of them beforehand, omega (P, T) and V (P, P)."""

    Z: np.ndarray
    omega: np.ndarray
    V: np.ndarray


@st.composite
def cavities(draw: Any, model: Model) -> Cavity:
    """Samples of a model: omega with three decimals, V = I - Q of any overlap (in units of the prior), Z near omega as
    V has it."""
    law = model.prior.law(draw(any_overlaps(model.fields)))
    omega = draw(fields(model, 2.0))
    return Cavity(omega + np.linalg.cholesky(law.V) @ draw(fields(model, 2.0)), omega, law.V)
