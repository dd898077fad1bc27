"""Attention matrices of the last layer, noiseless: head by head from the catalogue, on top of the layers before.

Every output is an attention matrix sigma(k U V^T) (up to a known affine map), U and V linear in fields that the mixing
before the layer does not depend on: U = M h^T.  Each head is inverted by itself (:mod:`smisym.charts.catalogue`), then
h^T = M^{-1} U, at the price of |det M|^{-1} for each row.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import mpmath
import numpy as np
import sympy as sp

from smisym.base.errors import InputError
from smisym.charts.base import Arrays, Coordinates, Fault, Frame, LevelSet, Refusal, Sheets, Unfolding, faults
from smisym.charts.catalogue import Columns, Inverse, TiedHead, UntiedHead
from smisym.charts.frames import log_mass
from smisym.charts.matching import closure, linear_in_one_field, resolve, square_factors
from smisym.charts.programs import Counts, programmed
from smisym.charts.reading import HeadReading
from smisym.charts.scores import forward_program, inverse_activation
from smisym.charts.telling import told_heads
from smisym.charts.unmixing import Head, combine, size, unmix
from smisym.link.core import core_of
from smisym.link.linking import LinkFunction, Observation
from smisym.link.program import (
    Elementwise,
    Program,
    RowSoftmax,
    generic_determinant,
    product_factor,
    split_constant,
)
from smisym.link.unroll import Unroller

# Sheets of all heads together beyond which every posterior takes seconds.
_SHEETS = 1024


def attention_matrices(link: LinkFunction) -> LevelSet | Refusal:
    """The chart of a program whose outputs are attention matrices of the last layer, one head each."""
    program = link.program
    heads = []
    for output in program.outputs:
        head = _match(program, output)
        if isinstance(head, Refusal):
            return head
        heads.append(head)
    unknown = [field for head in heads for field in head.solved]
    if len(set(unknown)) < len(unknown):
        return Refusal("two outputs share a field")
    for head in heads:
        if program.depends_on(head.mixing, [field for h in heads for field in h.fields]):
            return Refusal("the mixing before the last layer depends on the fields of the last layer")
    # Heads that share the embedding share their mixing: each factor once.
    for factor in dict.fromkeys(f for head in heads for f in square_factors(head.mixing, program.definitions)):
        if generic_determinant(program, factor) < mpmath.mpf(10) ** -300:
            return Refusal(f"the mixing matrix {factor} is singular: it cannot be inverted")
    sheets = math.prod(head.inverse.branches for head in heads)
    if sheets > _SHEETS:
        raise InputError(
            "heads",
            f"{len(heads)} noiseless outputs, whose level set has {sheets} sheets",
            f"at most {_SHEETS} sheets: {int(math.log2(_SHEETS))} heads of rank one",
            'declare noise > 0, fewer heads, or combine="sum"',
        )
    return _assemble(link, heads, unknown)


def _match(program: Program, output: sp.MatrixSymbol) -> Head | Refusal:
    core = core_of(program, output)
    if core is None:
        return Refusal("an output is not a known affine map of one attention matrix")
    activation = core.expression
    undo = None
    if isinstance(activation, RowSoftmax):
        scores = activation.arg
    elif isinstance(activation, Elementwise):
        if activation.mask is not None:
            return Refusal("the output is masked: fewer scores are seen than this catalogue needs")
        found = inverse_activation(activation.expression)
        if isinstance(found, Refusal):
            return found
        scores, undo = activation.arg, found
    else:
        scores = activation
    if getattr(activation, "mask", None) is not None:
        return Refusal("the output is masked: fewer scores are seen than this catalogue needs")
    constant, rest = split_constant(scores)
    product = product_factor(resolve(rest, program.definitions, product_factor))
    if product is None:
        return Refusal("the output is not a function of scores k U V^T")
    coefficient, left, right = product
    if not (coefficient.is_number and coefficient.is_positive):
        return Refusal(f"the coefficient {coefficient} of the scores is not a positive number")
    tied = left == right
    parts = [linear_in_one_field(program, side) for side in ((left,) if tied else (left, right))]
    for part in parts:
        if isinstance(part, Refusal):
            return part
    fields, mixings = zip(*parts, strict=True)
    if len(set(mixings)) > 1:
        return Refusal("queries and keys are mixed by different matrices")
    T, rank = program.tokens, int(left.shape[1])
    softmax = isinstance(activation, RowSoftmax)
    inverse: Inverse = (TiedHead if tied else UntiedHead)(T, rank, softmax=softmax)
    shift = np.zeros((T, T)) if constant is None else np.array(constant.tolist(), dtype=float)
    return Head(core, float(coefficient), shift, fields, mixings[0], inverse, undo)


def _assemble(link: LinkFunction, heads: list[Head], unknown: list[sp.MatrixSymbol]) -> LevelSet:
    program, T = link.program, link.tokens
    indices = {program.inputs.index(field) for field in unknown}
    solved = tuple(r for r, i in enumerate(link.row_inputs) if i in indices)
    free = tuple(r for r, i in enumerate(link.row_inputs) if i not in indices)
    numeric = _compile(program, heads, unknown)
    order = sorted(range(len(unknown)), key=lambda i: program.inputs.index(unknown[i]))
    sizes = _Sizes(heads)

    def coordinates(observation: Observation) -> Coordinates:
        parts = [_coordinates(head, observation, number, link) for number, head in enumerate(heads)]
        sizes.record([part.values.shape[1] for part in parts])
        error = np.max([part.relative_error for part in parts], axis=0)
        outside = tuple(fault for part in parts for fault in part.faults)
        return Coordinates(np.concatenate([part.values for part in parts], axis=1), error, outside)

    def solve(free: Arrays, latent: Arrays, u: Arrays) -> Sheets:
        factors, known = numeric(free)
        options = []
        for head, mine, own_u, matrices, keys in zip(
            heads, sizes.latents(latent), sizes.coordinates(u), factors, known, strict=True
        ):
            options.append(unmix(head.inverse.sheets(mine, own_u, keys, size(matrices, T)), matrices, T))
        return combine(options, heads, order, T)

    dimension = sum(head.inverse.dimension for head in heads)
    latents = tuple(kind for head in heads for kind in head.inverse.latents)
    branches = int(np.prod([head.inverse.branches for head in heads]))
    directions = sum(head.inverse.directions for head in heads)
    counts = Counts(len(free) * T, len(latents), sizes.total, branches, len(solved) * T, directions)
    straight, compiled = programmed(solve, counts)
    return LevelSet(
        rule="attention matrices, head by head",
        free_rows=free,
        solved_rows=solved,
        branches=branches,
        dimension=dimension,
        coordinates=coordinates,
        solve=compiled,
        steps=told_heads(heads),
        latents=latents,
        directions=directions,
        density=False,
        # Equations for queries at given keys leave nothing out; what frames and orbits leave out their unfoldings say.
        complete=all(head.inverse.known_columns > 0 for head in heads),
        unfolding=_unfolding(heads),
        frame=_frame(heads, free),
        program=straight,
        reading=tuple(_reading(head, number if len(heads) > 1 else None) for number, head in enumerate(heads)),
    )


def _frame(heads: list[Head], free: tuple[int, ...]) -> Frame | None:
    """The frame of one tied head on its own."""
    inverse = heads[0].inverse
    if len(heads) > 1 or free or not isinstance(inverse, TiedHead):
        return None
    r, m = inverse.rank, inverse.frame
    return Frame(r, m, inverse.directions, inverse.branches, log_mass(m, r))


def _unfolding(heads: list[Head]) -> Unfolding | None:
    """All heads' coordinates side by side, where each head's coordinates are independent numbers."""
    parts = [head.inverse.unfolding() for head in heads]
    if any(part is None for part in parts):
        return None
    known = [part for part in parts if part is not None]
    sizes = [part.size for part in known]
    flips = np.array([np.concatenate(choice) for choice in itertools.product(*[part.flips for part in known])])

    def embed(v: Arrays) -> Arrays:
        own = zip(known, _cut(v, sizes), strict=True)
        return [value for part, mine in own for value in (mine if part.embed is None else part.embed(mine))]

    def log_weight(v: Arrays) -> np.ndarray:
        own = zip(known, _cut(v, sizes), strict=True)
        return sum((part.log_weight(mine) for part, mine in own if part.log_weight is not None), np.zeros(()))

    return Unfolding(sum(sizes), flips, embed, log_weight)


class _Sizes:
    """How latent coordinates and coordinates of y are shared out among heads."""

    def __init__(self, heads: list[Head]) -> None:
        self._latents = [len(head.inverse.latents) for head in heads]
        self._coordinates: list[int] = [_width(head.inverse) for head in heads]

    def record(self, widths: list[int]) -> None:
        if widths != self._coordinates:
            raise ValueError(f"coordinates of widths {widths}, not {self._coordinates}")

    @property
    def total(self) -> int:
        """Coordinates of y in all."""
        return sum(self._coordinates)

    def latents(self, latent: Arrays) -> list[Arrays]:
        return _cut(latent, self._latents)

    def coordinates(self, u: Arrays) -> list[Arrays]:
        return _cut(u, self._coordinates)


def _width(inverse: Inverse) -> int:
    if isinstance(inverse, TiedHead):
        return inverse.tokens * inverse.frame
    if isinstance(inverse, UntiedHead) and inverse.orbit:
        return (inverse.tokens + inverse.differences) * inverse.rank
    return inverse.dimension


def _cut(values: Arrays, sizes: list[int]) -> list[Arrays]:
    ends = list(itertools.accumulate(sizes))
    return [values[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _coordinates(head: Head, observation: Observation, number: int, link: LinkFunction) -> Coordinates:
    """Coordinates of one head's output from the scores, or log-ratios, that it shows."""
    eps = np.finfo(float).eps
    several = len(link.program.outputs) > 1
    outside: tuple[Fault, ...] = ()
    if isinstance(head.core.expression, RowSoftmax):
        ratios = np.asarray(observation.log_ratios)
        scores = ratios[:, number] if several else ratios
        rounding = 8 * eps * (np.abs(scores).max(axis=(1, 2)) + observation.lost)
        shift = head.constant - np.diag(head.constant)[:, None]
    elif head.undo is not None and observation.scores is not None:
        scores = observation.scores[:, number] if several else observation.scores
        rounding = 8 * eps * np.abs(scores).max(axis=(1, 2))
        shift = head.constant
    else:
        y = observation.y[:, number] if several else observation.y
        scores = head.core.undo(y)
        off = 8 * eps * (np.abs(scores) + np.abs(y / head.core.coefficient))
        rounding = off.max(axis=(1, 2))
        if head.undo is not None:
            # What rounding of y does to the scores: much where the activation is flat.
            moved = [head.undo(scores + s * off) for s in (1.0, -1.0)]
            scores = head.undo(scores)
            rounding = np.max([np.nan_to_num(np.abs(m - scores), nan=np.inf).max(axis=(1, 2)) for m in moved], axis=0)
            outside = _score_faults(scores)
            scores = np.where(outside[0].which[:, None, None], 0.0, scores) if outside else scores
        shift = head.constant
    found = head.inverse.coordinates((scores - shift) / head.coefficient, rounding / head.coefficient)
    return replace(found, faults=outside + found.faults)


def _reading(head: Head, number: int | None) -> HeadReading:
    """What :func:`_coordinates` does, as data."""
    core, softmax, inverse = head.core, isinstance(head.core.expression, RowSoftmax), head.inverse
    forward = forward_program(core.expression.expression) if isinstance(core.expression, Elementwise) else None
    shift = head.constant - (np.diag(head.constant)[:, None] if softmax else 0.0)
    count = inverse.frame if isinstance(inverse, TiedHead) else inverse.rank
    return HeadReading(
        number, softmax, core.constant, core.coefficient, forward, shift, head.coefficient, inverse.reader, count
    )


def _score_faults(scores: np.ndarray) -> tuple[Fault, ...]:
    """Where an activation has saturated to the last digit, or y is out of its range, there are no scores."""
    return faults(
        ~np.isfinite(scores).all(axis=(1, 2)),
        lambda _: "an entry at or beyond the end of the activation's range",
        "entries whose scores are finite",
        "use a smaller beta or an activation that saturates more slowly, or declare noise",
    )


def _compile(
    program: Program, heads: list[Head], unknown: list[sp.MatrixSymbol]
) -> Callable[[Arrays], tuple[list[list[list[Arrays]]], list[Columns]]]:
    """Numpy code from the free fields to the factors of each head's mixing matrix and to its known columns."""
    unroll = Unroller()
    arguments = [s for symbol in program.inputs if symbol not in unknown for s in unroll.bind(symbol)]
    T = program.tokens
    factors = [square_factors(head.mixing, program.definitions) for head in heads]
    keys = [head.fields[1:] if head.inverse.known_columns else () for head in heads]
    formed = {s for own in factors for f in own for s in closure(f, program.definitions)}
    formed |= {
        s for head, own in zip(heads, keys, strict=True) if own for s in closure(head.mixing, program.definitions)
    }
    for assign in program.assigns:
        if assign.target in formed:
            unroll.assign(assign.target, assign.value)
    outputs: list[sp.Expr] = []
    for head, own, known in zip(heads, factors, keys, strict=True):
        outputs += [entry for factor in own for entry in unroll.entries(factor)]
        for field in known:
            outputs += list(unroll.entries((head.mixing * field.T).doit()).T)
    numeric = unroll.compile(arguments, outputs)
    counts = [(len(own), head.inverse.known_columns) for own, head in zip(factors, heads, strict=True)]

    def evaluate(free: Arrays) -> tuple[list[list[list[Arrays]]], list[Columns]]:
        values = iter(numeric(*free)) if outputs else iter(())
        matrices: list[list[list[Arrays]]] = []
        known: list[Columns] = []
        for n_factors, n_known in counts:
            matrices.append([[[next(values) for _ in range(T)] for _ in range(T)] for _ in range(n_factors)])
            known.append([[next(values) for _ in range(T)] for _ in range(n_known)])
        return matrices, known

    return evaluate
