"""Program into LinkFunction: fields in, output out, in numpy, with the digits that a float output loses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp

from smisym.base.counting import counted
from smisym.base.derivation import Derivation, Formula, Step
from smisym.base.edge import real_array
from smisym.base.errors import InputError
from smisym.declare.architecture import Architecture
from smisym.declare.describing import noise_in_words
from smisym.declare.smi import SMI
from smisym.kernels.straight_line import StraightLine
from smisym.kernels.tracing import call, trace
from smisym.link.compiling import compile_entries, compile_program
from smisym.link.core import Core, core_of
from smisym.link.interfaces import Interface, find_interfaces
from smisym.link.network import Row, build_program, record_architecture
from smisym.link.program import Assign, Elementwise, Program
from smisym.link.statistic import Statistic, find_statistic

# Fields at which a link is tried: large and small ones too, for some outputs change only far out, and others saturate.
_SEED, _POINTS, _SIZES = 20260101, 128, (0.1, 1.0, 10.0)
# Range of an output, relative to its size, that is rounding alone.
_NOTHING = 1e-13


@dataclass(frozen=True)
class Observation:
    """Outputs of a batch of samples, with the digits that a float ``y`` loses.

    y
        (S, ...), the outputs: (T, T) each for one attention or mixing matrix, (H, T, T) for those of H heads, (K,)
        for a model of K expressions.
    log_ratios
        Like y, ``log y_ij - log y_ik`` where the output is a row softmax (k = i, or the first attended column where i
        is masked; -inf at masked entries), else None.  Exact where y underflows or where nearly equal scores leave no
        digits in y.
    exact
        False when the log-ratios were taken from a rounded y.
    units
        (S,) by how many units of rounding log-ratios may be off that were taken from a rounded y: one, or more where
        entries of y are small beside what was added to them (a skip connection). None for one.
    scores
        Like y, what an activation of every score was applied to, where the link made y itself; else None.  They keep
        what y loses where the activation is flat, or one to the last digit.
    """

    y: np.ndarray
    log_ratios: np.ndarray | None
    exact: bool = True
    units: np.ndarray | None = None
    scores: np.ndarray | None = None

    def __len__(self) -> int:
        return self.y.shape[0]

    @property
    def lost(self) -> np.ndarray:
        """(S,) units of rounding by which the log-ratios may be off, beside those of their own size."""
        if self.exact:
            return np.zeros(len(self))
        return np.ones(len(self)) if self.units is None else self.units

    def __getitem__(self, index: slice | np.ndarray) -> Observation:
        ratios = None if self.log_ratios is None else self.log_ratios[index]
        units = None if self.units is None else self.units[index]
        scores = None if self.scores is None else self.scores[index]
        return Observation(self.y[index], ratios, self.exact, units, scores)


@dataclass(frozen=True, repr=False)
class LinkFunction:
    """The exact link ``y = f(Z)`` as a program.

    program
        Fields to output; inputs in the order of the rows of Z (layer, head, query before key, rank).
    rows
        What each row of Z is.
    slices
        Into how many slices the embedding is cut: 1, or the heads of a split layout.
    cores
        The attention matrix that each output is an affine map of, or None where one is not.
    """

    program: Program
    rows: tuple[Row, ...]
    slices: int
    cores: tuple[Core, ...] | None
    _numeric: Callable[..., list[np.ndarray]]

    def __repr__(self) -> str:
        shown = " by ".join(str(size) for size in self.program.output.shape)
        return f"<LinkFunction: {counted(self.fields, 'field')} on {counted(self.tokens, 'token')} to {shown}>"

    @property
    def fields(self) -> int:
        return len(self.rows)

    @property
    def tokens(self) -> int:
        return self.program.tokens

    @property
    def row_inputs(self) -> tuple[int, ...]:
        """For each row of Z, the index of its input in the program."""
        return tuple(row.input for row in self.rows)

    @property
    def row_layers(self) -> tuple[int, ...]:
        """For each row of Z, its layer, counted from 1."""
        return tuple(row.layer for row in self.rows)

    @property
    def row_slices(self) -> tuple[int, ...]:
        """For each row of Z, the slice of the embedding that it lives on."""
        return tuple(row.slice for row in self.rows)

    @property
    def labels(self) -> tuple[str, ...]:
        """For each row of Z, its name in plain text."""
        return tuple(row.label for row in self.rows)

    @cached_property
    def statistic(self) -> Statistic | None:
        """The sum through which alone some of the rows of Z enter the output, or None."""
        return find_statistic(self.program, self.row_inputs)

    @cached_property
    def interfaces(self) -> tuple[Interface, ...]:
        """Where the program can be cut between its inputs, and what passes there."""
        return find_interfaces(self.program)

    @cached_property
    def through_statistic(self) -> LinkFunction:
        """The same output as a function of the rows of the statistic's matrix and of the other rows of Z."""
        assert self.statistic is not None, "the program has no additive statistic"
        program = self.statistic.program
        names = program.inputs[0]
        rows = [Row(0, 0, 1, 0, f"{names.name}[{i + 1}]") for i in range(int(names.shape[0]))]
        inputs = {self.program.inputs.index(symbol): k for k, symbol in enumerate(program.inputs) if k}
        rest = [self.rows[r] for r in self.statistic.rest]
        rows += [Row(inputs[row.input], row.layer, row.head, row.slice, row.label) for row in rest]
        return _link(program, tuple(rows), self.slices)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the output of one sample."""
        outputs = self.program.outputs
        rows, columns = map(int, outputs[0].shape)
        one = (rows,) if columns == 1 else (rows, columns)
        return one if len(outputs) == 1 else (len(outputs), *one)

    @property
    def output_is_softmax(self) -> bool:
        """Whether every output shows the row softmax of some scores, whose log-ratios are then kept."""
        return self.cores is not None and all(core.softmax for core in self.cores)

    @property
    def attended(self) -> np.ndarray:
        """Which entries of the output are not masked, (...,) booleans of the output's shape."""
        masks = [getattr(core.expression, "mask", None) for core in self.cores or ()]
        size = self.output_shape[-2:]
        if not masks:
            return np.ones(self.output_shape, bool)
        table = [np.ones(size, bool) if m is None else np.array(m.tolist(), dtype=float) != 0 for m in masks]
        return np.array(table).reshape(self.output_shape)

    def raw(self, Z: np.ndarray) -> np.ndarray:
        """Log-ratios of a softmax output (0 where masked), or the output itself; Z (S, P, T), complex allowed.

        The log-ratios are an analytic function of Z: complex steps give exact derivatives.
        """
        return self._like_outputs(self._numeric, Z)

    @cached_property
    def _scores(self) -> Callable[..., list[np.ndarray]] | None:
        """Code of what activations of every score are applied to, where every output shows one; else None."""
        shown = [core.expression for core in self.cores or () if isinstance(core.expression, Elementwise)]
        if not shown or len(shown) < len(self.cores or ()):
            return None
        before = dict(zip(self.program.outputs, (activation.arg for activation in shown), strict=True))
        return compile_entries(self.program, lambda unroll, assign: unroll.entries(before[assign.target]))

    def _like_outputs(self, code: Callable[..., list[np.ndarray]], Z: np.ndarray) -> np.ndarray:
        """What code makes of the entries of fields (S, P, T), in the shape of the output."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            values = code(*np.moveaxis(Z.reshape(Z.shape[0], -1), 1, 0))
        shape = (Z.shape[0],)
        stacked = np.stack([np.broadcast_to(v, shape) for v in values], axis=1)
        # Code of constant entries gives integers, which could not hold the -inf of a masked one.
        return stacked.astype(np.result_type(stacked, float), copy=False).reshape(len(Z), *self.output_shape)

    @cached_property
    def raw_program(self) -> StraightLine:
        """:meth:`raw` as a straight-line program, from entries of the fields, row by row, to those of the output."""
        names = [f"z{p + 1}_{t + 1}" for p in range(self.fields) for t in range(self.tokens)]
        return trace(self._numeric, names)

    @cached_property
    def output_program(self) -> StraightLine:
        """The output itself, with what a softmax makes of its log-ratios, as such a program: for its gradient."""
        return trace(self._outputs, self.raw_program.arguments)

    def _outputs(self, *fields: Any) -> list[Any]:
        """Entries of the output from entries of the fields, arrays or traced scalars."""
        values = self._numeric(*fields)
        if not self.output_is_softmax:
            return list(values)
        ratios = np.empty(len(values), dtype=object)
        ratios[:] = values
        rows = ratios.reshape(-1, self.output_shape[-1])
        weights = np.zeros(rows.shape, dtype=object)
        for row, seen, out in zip(rows, self.attended.reshape(rows.shape), weights, strict=True):
            out[seen] = call(f"row_softmax_{seen.sum()}", list(row[seen])) if seen.sum() > 1 else 1.0
        several = weights.reshape(len(self.cores or ()), -1)
        return [
            core.constant.ravel()[k] + core.coefficient * value
            for core, values in zip(self.cores or (), several, strict=True)
            for k, value in enumerate(values)
        ]

    def of_entries(self, Z: np.ndarray) -> np.ndarray:
        """:meth:`raw` as a function of vectors: (N, M) at the entries Z (N, P T) of the fields, real or complex."""
        return self.raw(Z.reshape(len(Z), self.fields, self.tokens)).reshape(len(Z), math.prod(self.output_shape))

    def entries(self, fields: list[np.ndarray]) -> list[np.ndarray]:
        """Entries of the output from entries of the fields, row by row, that broadcast; for integrators."""
        values = self._numeric(*fields)
        if not self.output_is_softmax:
            return values
        shape = np.broadcast_shapes(*[np.shape(v) for v in values])
        raw = np.stack([np.broadcast_to(v, shape) for v in values]).reshape(*self.output_shape, *shape)
        raw[~self.attended] = -np.inf
        weights = np.exp(raw - raw.max(axis=len(self.output_shape) - 1, keepdims=True))
        weights /= weights.sum(axis=len(self.output_shape) - 1, keepdims=True)
        several = weights.reshape(len(self.program.outputs), -1, *shape)
        cores = self.cores or ()
        return [
            core.constant.ravel()[k] + core.coefficient * several[i, k]
            for i, core in enumerate(cores)
            for k in range(several.shape[1])
        ]

    def observe(self, Z: np.ndarray) -> Observation:
        """The noiseless output with its log-ratios; Z (S, P, T)."""
        Z = check_fields(Z, self.fields, self.tokens)
        if not len(Z):
            raise InputError("shape of the fields Z", Z.shape, "at least one sample", "stack samples along axis 0")
        raw = self.raw(Z)
        if not self.output_is_softmax:
            scores = None if self._scores is None else self._like_outputs(self._scores, Z)
            return Observation(raw, None, scores=scores)
        raw[:, ~self.attended] = -np.inf
        return Observation(self._around(softmax_of_ratios(raw)), raw)

    def _around(self, value: np.ndarray) -> np.ndarray:
        """The output whose cores have this value."""
        cores = self.cores or ()
        if len(cores) == 1:
            return cores[0].apply(value)
        return np.stack([core.apply(value[:, i]) for i, core in enumerate(cores)], axis=1)

    def core_values(self, y: np.ndarray) -> np.ndarray:
        """The attention matrices that outputs y (S, ...) are affine maps of."""
        cores = self.cores or ()
        if len(cores) == 1:
            return cores[0].undo(y)
        return np.stack([core.undo(y[:, i]) for i, core in enumerate(cores)], axis=1)

    def __call__(self, Z: np.ndarray) -> np.ndarray:
        """The noiseless output y (S, ...) at fields Z (S, P, T)."""
        return self.observe(Z).y


def softmax_of_ratios(ratios: np.ndarray) -> np.ndarray:
    weights = np.exp(ratios - ratios.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def check_fields(Z: np.ndarray, fields: int, tokens: int) -> np.ndarray:
    """Z as a float array of shape (S, P, T), or an InputError."""
    Z = real_array("fields Z", Z, "real numbers", "stack samples along axis 0, and pass the real part if that is meant")
    if Z.ndim != 3 or Z.shape[1:] != (fields, tokens):
        raise InputError("shape of the fields Z", Z.shape, f"(S, {fields}, {tokens})", "stack samples along axis 0")
    if not np.isfinite(Z).all():
        raise InputError("fields Z", "an array with NaN or infinity", "finite numbers", "remove the bad samples")
    return Z


def check_varies(link: LinkFunction) -> None:
    """InputError where the output is the same at random fields of every size: such data show nothing."""
    Z = np.random.default_rng(_SEED).standard_normal((_POINTS, link.fields, link.tokens))
    raw = np.concatenate([link.raw(size * Z) for size in _SIZES]).reshape(len(_SIZES) * _POINTS, -1)
    finite = raw[np.isfinite(raw).all(axis=1)]
    if len(finite) and (np.ptp(finite, axis=0) <= _NOTHING * np.abs(finite).max(axis=0)).all():
        raise InputError(
            "what the network shows",
            "a constant: the same at whatever fields, so that it shows nothing of the weights",
            "an output that depends on the fields",
            "let some token of the last layer attend to two tokens that differ: see its mask, and the layers before it",
        )


def link_function(declared: Architecture | SMI | Program, derivation: Derivation) -> LinkFunction:
    """Declaration -> LinkFunction; records its steps."""
    if isinstance(declared, Program):
        return _link(declared, _rows_of(declared), 1)
    if isinstance(declared, SMI):
        program = smi_program(declared)
        _record_smi(declared, program, derivation)
        ratio, aspect = declared.rank_ratio, declared.aspect
        return _link(program, tuple(replace(r, rank_ratio=ratio, aspect=aspect) for r in _rows_of(program)), 1)
    program, rows = build_program(declared)
    record_architecture(declared, program, derivation)
    return _link(program, rows, 1 + max(row.slice for row in rows))


def sublink(program: Program, rows: tuple[Row, ...], slices: int) -> LinkFunction:
    """The link of a part of a program, whose inputs these rows are, group by group in their order."""
    groups = {number: k for k, number in enumerate(dict.fromkeys(row.input for row in rows))}
    return _link(program, tuple(replace(row, input=groups[row.input]) for row in rows), slices)


def _link(program: Program, rows: tuple[Row, ...], slices: int) -> LinkFunction:
    cores = tuple(core for core in (core_of(program, o) for o in program.outputs) if core is not None)
    complete = cores if len(cores) == len(program.outputs) else None
    return LinkFunction(program, rows, slices, complete, compile_program(program, complete))


def _rows_of(program: Program) -> tuple[Row, ...]:
    """Rows of a program handed over as such: every input is its own group, and its own layer."""
    rows = []
    for number, symbol in enumerate(program.inputs):
        rank = int(symbol.shape[0])
        for k in range(rank):
            rows.append(Row(number, number + 1, 1, 0, symbol.name if rank == 1 else f"{symbol.name}[{k + 1}]"))
    return tuple(rows)


def smi_program(model: SMI) -> Program:
    """The program of a model given by expressions: one input a field, one explicit column of outputs."""
    inputs = tuple(sp.MatrixSymbol(name, 1, model.tokens) for name in model.fields)
    swap = {
        scalar: field[0, t]
        for field, scalars in zip(inputs, model.symbols(), strict=True)
        for t, scalar in enumerate(scalars)
    }
    values = [expression.xreplace(swap) for expression in model.parsed()]
    output = sp.MatrixSymbol("y", len(values), 1)
    return Program(inputs, (Assign(output, sp.ImmutableDenseMatrix(values)),), output)


def _record_smi(model: SMI, program: Program, derivation: Derivation) -> None:
    tokens = program.tokens
    weights = "have independent standard normal rows" if model.rank_ratio is None else "are the entries of one matrix"
    K = math.prod(map(int, program.output.shape))
    derivation.add(
        Step(
            "link",
            "What was declared",
            f"A sequence multi-index model with {counted(len(program.inputs), 'field')} on "
            f"$T = {tokens}$ {'token' if tokens == 1 else 'tokens'} and {counted(K, 'output')}, given by "
            "expressions. Tokens are rows: $X$ is $(T, D)$ with independent standard normal "
            f"entries, and the weights $W$ {weights}. {noise_in_words(model.noise)}",
            (
                Formula("Z", r"W X^{\top} / \sqrt{D}", "the fields: one row an index, one column a token"),
                *(Formula(a.target, a.value, code=f"{a.target.name} = {a.value}") for a in program.assigns),
            ),
            source="declared by the user",
        )
    )
