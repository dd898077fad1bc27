"""Links that are explicit expressions in the fields, and expressions as pieces on which their signs are known."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import sympy as sp

from smisym.base import symbols
from smisym.base.derivation import Formula
from smisym.charts.base import Refusal
from smisym.charts.reading import EntryReading
from smisym.kernels.straight_line import StraightLine
from smisym.link.linking import LinkFunction, Observation
from smisym.link.program import Activation, Elementwise, reference

# Fields under a masked softmax that are solved for symbolically: beyond, the solver takes minutes.
_SOLVABLE = 6

Fields = tuple[sp.Symbol, ...]


@dataclass(frozen=True)
class Read:
    """What reads the values (S, K) of the expressions off an output: its entries, or log-ratios at some places (head,
    row, column); shape: of the output.  bases: the columns that log-ratios refer to.  kept: which of these, None for
    all."""

    shape: tuple[int, ...]
    places: tuple[tuple[int, int, int], ...] | None = None
    bases: tuple[int, ...] = ()
    kept: tuple[int, ...] | None = None

    def __call__(self, observation: Observation) -> np.ndarray:
        if self.places is None:
            values = observation.y.reshape(len(observation), -1)
        else:
            ratios = np.asarray(observation.log_ratios)
            values = np.stack([ratios.reshape(len(ratios), -1)[:, place] for place in self._flat()], axis=1)
        return values if self.kept is None else values[:, list(self.kept)]

    def rounding(self, observation: Observation, values: np.ndarray) -> np.ndarray:
        """(S,) what rounding of y may have done to its values (S, K), relative to the largest: log-ratios of rounded
        entries are off by some units of 10^-16, however small they are."""
        if self.places is None or not values.shape[1]:
            return np.zeros(len(values))
        largest = np.maximum(np.abs(values).max(axis=1), np.finfo(float).tiny)
        return np.asarray(4 * np.finfo(float).eps * observation.lost / largest)

    def only(self, kept: tuple[int, ...]) -> Read:
        """The same of some of the expressions."""
        return replace(self, kept=kept)

    @property
    def letter(self) -> str:
        """Of the symbols that stand for the values."""
        return "y" if self.places is None else "s"

    def meanings(self) -> tuple[Formula, ...]:
        """What these symbols stand for, where it is not the outputs themselves."""
        heads = len({head for head, _, _ in self.places or ()})
        entries = []
        for (head, i, j), base in zip(self.places or (), self.bases, strict=True):
            whose = f"{head + 1}," if heads > 1 else ""
            entries.append(rf"\log \left(y_{{{whose}{i + 1}{j + 1}}} / y_{{{whose}{i + 1}{base + 1}}}\right)")
        return tuple(Formula(f"s_{{{k + 1}}}", entry) for k, entry in enumerate(entries))

    def reading(self) -> EntryReading:
        """The same as a program."""
        arguments = tuple(f"y{k + 1}" for k in range(math.prod(self.shape)))
        every = arguments if self.places is None else tuple(arguments[place] for place in self._flat())
        kept = every if self.kept is None else tuple(every[k] for k in self.kept)
        return EntryReading(StraightLine(arguments, (), kept), self.places is not None)

    def _flat(self) -> list[int]:
        rows, columns = self.shape[-2:]
        return [(head * rows + i) * columns + j for head, i, j in self.places or ()]


def explicit_entries(link: LinkFunction) -> tuple[Fields, list[sp.Expr], Read] | Refusal:
    """(scalar fields row by row, expressions that the output shows, how to read their values (S, K) off an output).

    The expressions of a declared model, or the scores (or their differences) under one layer of attention.
    """
    explicit = explicit_expressions(link)
    if explicit is not None:
        return *explicit, Read(link.output_shape)
    program, swap = link.program, _entries(link)
    fields = tuple(swap.values())
    if not link.output_is_softmax:
        return Refusal("the link is neither a list of explicit expressions nor a softmax of scores")
    if max(link.row_layers) > 1:
        return Refusal("the scores come after more than one layer")
    if len(fields) > _SOLVABLE:
        return Refusal(f"{len(fields)} fields are more than sympy is asked to solve scores for ({_SOLVABLE})")
    if program.tokens > 2 and any(int(symbol.shape[0]) > 1 for symbol in program.inputs):
        return Refusal("the scores have a rank above one, for which sympy takes minutes")
    shown, places, bases = [], [], []
    for number, core in enumerate(link.cores or ()):
        scores = program.expand(core.expression.arg)
        if scores.atoms(Activation, Elementwise):
            return Refusal("the scores are not polynomials in the fields")
        table = scores.as_explicit().xreplace(swap)
        for i in range(int(core.expression.shape[0])):
            columns = core.expression.attended(i)
            base = reference(columns, i)
            for j in columns:
                if j != base:
                    shown.append(sp.expand(table[i, j] - table[i, base]))
                    places.append((number, i, j))
                    bases.append(base)
    if len(shown) > len(fields):
        return Refusal(f"{len(shown)} differences of scores are seen, more than the {len(fields)} fields")
    return fields, shown, Read(link.output_shape, tuple(places), tuple(bases))


def explicit_expressions(link: LinkFunction) -> tuple[Fields, list[sp.Expr]] | None:
    """(scalar fields row by row, the expressions of a model declared by them), or None."""
    value = link.program.definitions[link.program.output]
    if len(link.program.assigns) > 1 or not isinstance(value, sp.MatrixBase) or value.shape[1] != 1:
        return None
    swap = _entries(link)
    return tuple(swap.values()), [sp.sympify(e).xreplace(swap) for e in value]


def _entries(link: LinkFunction) -> dict[sp.Expr, sp.Symbol]:
    """A scalar for each entry of the fields, row by row."""
    swap = {}
    for symbol in link.program.inputs:
        for i, j in itertools.product(range(int(symbol.shape[0])), range(int(symbol.shape[1]))):
            swap[symbol[i, j]] = symbols.entry(symbol, i, j)
    return swap


def split_signs(expression: sp.Expr) -> sp.Expr:
    """The same with absolute values and maxima written by signs, and signs of products as products of signs."""
    w = sp.Wild("w")
    expression = expression.replace(sp.Max, lambda *a: _largest(a, 1)).replace(sp.Min, lambda *a: _largest(a, -1))
    expression = expression.replace(sp.Abs(w), lambda w: w * sp.sign(w))

    def split(argument: sp.Expr) -> sp.Expr:
        result: sp.Expr = sp.Integer(1)
        for factor, power in sp.factor_list(argument)[1] if argument.free_symbols else []:
            result *= sp.sign(factor) ** power
        constant = sp.factor_list(argument)[0] if argument.free_symbols else argument
        return sp.sign(constant) * result

    return expression.replace(
        lambda e: isinstance(e, sp.sign) and e.args[0].is_polynomial(*e.args[0].free_symbols),
        lambda e: split(e.args[0]),
    )


def _largest(arguments: tuple[sp.Expr, ...], direction: int) -> sp.Expr:
    total = arguments[0]
    for other in arguments[1:]:
        total = (total + other + direction * (total - other) * sp.sign(total - other)) / 2
    return total


def sign_arguments(expression: sp.Expr) -> set[sp.Expr]:
    """Arguments of signs that are still there once the signs inside them are known."""
    return {e.args[0] for e in expression.atoms(sp.sign) if not e.args[0].atoms(sp.sign)}
