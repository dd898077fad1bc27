"""Arithmetic on arrays read off as a straight-line program: the function is run once on scalars that keep a record.

The program does what the function did, operation for operation, so that every bit stays; what is computed twice is
computed once, and what nothing needs is left out.  Arithmetic that cannot be taken apart into scalars calls a kernel by
name: :func:`call`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from smisym.kernels.named import kernel, named_kernels
from smisym.kernels.straight_line import Line, Operand, StraightLine, operation


class Untraceable(TypeError):
    """A function asks for the value, the shape or the type of a scalar, which has none while it is traced."""


class Traced(NDArrayOperatorsMixin):
    """A scalar of a program that is being written."""

    def __init__(self, record: Record, name: str) -> None:
        self.record, self.name = record, name

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            raise Untraceable(f"{ufunc.__name__}.{method} with {list(options)}")
        return self.record.apply(ufunc.__name__, inputs)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        if function not in _FUNCTIONS:
            raise Untraceable(f"{function.__name__} of a traced scalar")
        return _FUNCTIONS[function](self.record, *arguments, **options)

    def __bool__(self) -> bool:
        raise Untraceable("the truth of a traced scalar")

    def __float__(self) -> float:
        raise Untraceable("the value of a traced scalar")


class Entries:
    """Traced scalars in the place of an array (samples, ...): the axis of samples is not there, as one is traced."""

    def __init__(self, table: Mapping[tuple[int, ...], Traced]) -> None:
        self.table = table

    def __getitem__(self, key: tuple[Any, ...]) -> Traced:
        return self.table[tuple(int(k) for k in key[1:])]


def _select(record: Record, conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0.0) -> Any:
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        default = record.apply("where", (condition, choice, default))
    return default


# What is more than a ufunc and still one scalar at a time.
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.where: lambda record, *arguments: record.apply("where", arguments),
    np.select: _select,
    np.real: lambda record, x: x,
    np.iscomplexobj: lambda record, x: False,
    np.zeros_like: lambda record, x: 0.0,
    np.ones_like: lambda record, x: 1.0,
}


Operation = tuple[str, tuple[Operand, ...]]


class Record:
    """The lines written so far.  The same operation on the same operands is one line."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._known: dict[Any, Any] = {}
        self._made: dict[str, Operation] = {}
        self._count = 0

    def operand(self, value: Any) -> Operand:
        if isinstance(value, Traced):
            if value.record is not self:
                raise Untraceable("a scalar of another trace")
            return value.name
        if isinstance(value, bool | np.bool_):
            return bool(value)
        if isinstance(value, int | float | np.integer | np.floating):
            return float(value)
        if isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "fib":
            return self.operand(value[()])
        raise Untraceable(f"{type(value).__name__} in arithmetic of scalars")

    def apply(self, name: str, inputs: Sequence[Any]) -> Any:
        """One operation with one result: a :class:`Traced`, or a number where it is known."""
        operands = tuple(map(self.operand, inputs))
        key = (name, *((type(o), repr(o)) for o in operands))
        if key not in self._known:
            self._known[key] = self._simple(name, operands)
        return self._known[key]

    def _simple(self, name: str, operands: tuple[Operand, ...]) -> Any:
        try:
            function = operation(name)
        except KeyError:
            raise Untraceable(f"the operation {name}") from None
        if not any(isinstance(o, str) for o in operands):
            with np.errstate(all="ignore"):
                return self.operand(np.asarray(function(*operands)))
        same = _unchanged(name, operands)
        if same is not None:
            return Traced(self, same) if isinstance(same, str) else same
        shorter = _shorter(name, operands, self._made)
        if shorter is not None:
            return self.apply(shorter[0], [Traced(self, o) if isinstance(o, str) else o for o in shorter[1]])
        (found,) = self._line(name, operands, 1)
        self._made[found.name] = (name, operands)
        return found

    def kernel(self, name: str, inputs: Sequence[Any]) -> list[Any]:
        """A call of a kernel."""
        operands = tuple(map(self.operand, inputs))
        key = (name, *((type(o), repr(o)) for o in operands))
        if key not in self._known:
            self._known[key] = self._line(name, operands, kernel(name).outputs(len(operands)))
        return list(self._known[key])

    def _line(self, name: str, operands: tuple[Operand, ...], count: int) -> list[Traced]:
        targets = tuple(f"t{self._count + k}" for k in range(count))
        self._count += count
        self.lines.append(Line(targets, name, operands))
        return [Traced(self, target) for target in targets]


def _unchanged(name: str, operands: tuple[Operand, ...]) -> Operand | None:
    """The operand that an operation gives back as it is, whatever it may be; None where there is none."""
    match name, operands:
        case ("add", (0.0, x)) | ("add" | "subtract", (x, 0.0)):
            return x
        case ("multiply", (1.0, x)) | ("multiply" | "divide", (x, 1.0)):
            return x
        case ("bitwise_and", (True, x) | (x, True)) | ("bitwise_or", (False, x) | (x, False)):
            return x
        case "where", (bool(known), x, y):
            return x if known else y
    return None


def _shorter(name: str, operands: tuple[Operand, ...], made: dict[str, Operation]) -> Operation | None:
    """The same, bit for bit, by an operation that is cheaper or says more; ``made``: how names were made."""
    below = tuple(made.get(o, (o, ())) if isinstance(o, str) else ("", ()) for o in operands)
    match name, operands, below:
        case ("add", (a, _), (_, ("negative", (b,)))) | ("add", (_, a), (("negative", (b,)), _)):
            return "subtract", (a, b)
        case "subtract", (a, _), (_, ("negative", (b,))):
            return "add", (a, b)
        case ("multiply", (-1.0, a), _) | ("multiply", (a, -1.0), _):
            return "negative", (a,)
        case ("multiply", (a, _), (_, ("sign", (b,)))) | ("multiply", (_, a), (("sign", (b,)), _)) if a == b:
            return "absolute", (a,)
        case "power", (a, -1.0), _:
            return "divide", (1.0, a)
        case "power", (a, 2.0), _:
            return "multiply", (a, a)
        case "power", (a, 0.5), _:
            return "sqrt", (a,)
    return None


def trace(function: Callable[..., Sequence[Any]], arguments: Sequence[str]) -> StraightLine:
    """The program of a function of scalars, from its arguments to the scalars that it returns.

    Raises :class:`Untraceable` for a function that is more than arithmetic.
    """
    record = Record()
    with np.errstate(all="ignore"):
        found = function(*[Traced(record, name) for name in arguments])
    outputs = tuple(map(record.operand, found))
    needed = {o for o in outputs if isinstance(o, str)}
    lines = []
    for line in reversed(record.lines):
        if needed.intersection(line.targets):
            needed.update(o for o in line.operands if isinstance(o, str))
            lines.append(line)
    return StraightLine(tuple(arguments), tuple(reversed(lines)), outputs)


def call(name: str, entries: Sequence[Any]) -> list[Any]:
    """A kernel by name, of arrays or of traced scalars."""
    for entry in entries:
        if isinstance(entry, Traced):
            return entry.record.kernel(name, entries)
    return list(kernel(name)(*entries))


def traceable_kernels() -> dict[str, Callable[..., Any]]:
    """The kernels of unrolled code, each of which can be traced."""

    def traceable(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def either(*entries: Any) -> Any:
            return call(name, entries) if any(isinstance(e, Traced) for e in entries) else function(*entries)

        return either

    sized = {name: function for name, function in named_kernels().items() if name[-1].isdigit()}
    return named_kernels() | {name: traceable(name, function) for name, function in sized.items()}
