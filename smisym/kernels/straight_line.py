"""Straight-line programs over named scalars: one operation a line, no branch, no loop.

What any backend can compile: numpy here, where every scalar stands for an array.  The lines are plain records; an
operation is a ufunc of numpy or scipy.special, ``where``, or a kernel of :mod:`smisym.kernels.named`, by its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special

from smisym.kernels.named import kernel

# A name, or a number.
Operand = str | float | bool

# How operations are written that Python has signs for.
INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**",
    "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
    "bitwise_and": "&", "bitwise_or": "|",
}  # fmt: skip
PREFIX = {"negative": "-", "invert": "~"}

# A line that is used once is written into the line that uses it, if that comes so soon and the whole stays so shallow:
# numpy then reuses the memory of what is inside, and no array lives longer than it is needed.
_SOON, _DEPTH = 12, 24


@dataclass(frozen=True)
class Line:
    """``targets = operation(operands)``; several targets where the operation is a kernel."""

    targets: tuple[str, ...]
    operation: str
    operands: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.targets)} = {written(self.operation, [literal(o) for o in self.operands])}"


@dataclass(frozen=True)
class StraightLine:
    """A straight-line program.

    arguments
        Names of the scalars that it is given.
    lines
        In order; every operand is a number, an argument, or a target of a line before, and every target is new.
    outputs
        Names, or numbers where an output is constant.
    """

    arguments: tuple[str, ...]
    lines: tuple[Line, ...]
    outputs: tuple[Operand, ...]

    def __str__(self) -> str:
        """The program as the text of a Python function."""
        body = [*map(str, self.lines), f"return [{', '.join(map(literal, self.outputs))}]"]
        return "\n    ".join([f"def program({', '.join(self.arguments)}):", *body])

    def compile(self) -> Callable[..., list[np.ndarray]]:
        """A numpy function of the arguments, arrays that broadcast; an output that is constant has the shape ()."""
        constants = [f"c{k}_" for k in range(len(self.outputs))]
        names: dict[str, Any] = {"where": np.where, "inf": np.inf, "nan": np.nan}
        for line in self.lines:
            if line.operation not in names:
                names[line.operation] = operation(line.operation)
        outputs = []
        for name, output in zip(constants, self.outputs, strict=True):
            if not isinstance(output, str):
                names[name] = np.asarray(float(output))
            outputs.append(output if isinstance(output, str) else name)
        exec(compile(_source(self, outputs), "<straight line>", "exec"), names)
        found: Callable[..., list[np.ndarray]] = names["program"]
        return found


def operation(name: str) -> Callable[..., Any]:
    """The numpy function of that name; KeyError where there is none."""
    for module in (np, scipy.special):
        found = getattr(module, name, None)
        if isinstance(found, np.ufunc):
            return found
    return np.where if name == "where" else kernel(name)


def literal(operand: Operand) -> str:
    """An operand in a line of Python, digits and all."""
    if isinstance(operand, str):
        return operand
    return f"({operand!r})" if isinstance(operand, float) and operand < 0 else repr(operand)


def written(name: str, operands: list[str]) -> str:
    """An operation on operands that are written already."""
    if name in INFIX:
        return f"{operands[0]} {INFIX[name]} {operands[1]}"
    if name in PREFIX:
        return f"{PREFIX[name]}{operands[0]}"
    return f"{name}({', '.join(operands)})"


def _source(program: StraightLine, outputs: list[str]) -> str:
    """Python in which arrays are let go of as soon as nothing needs them."""
    uses = Counter(o for line in program.lines for o in line.operands if isinstance(o, str))
    uses.update(set(outputs))
    place = {o: k for k, line in enumerate(program.lines) for o in line.operands if isinstance(o, str)}
    inside: dict[str, tuple[str, int]] = {}  # what is written into its only user, and how deep it is
    body: list[tuple[str, set[str]]] = []
    reads: dict[str, set[str]] = {}
    kept = set(outputs)
    for k, line in enumerate(program.lines):
        texts, depth, own = [], 0, set[str]()
        for o in line.operands:
            text, below = inside.get(o, (o, 0)) if isinstance(o, str) else (literal(o), 0)
            texts.append(text)
            depth = max(depth, below + 1)
            if isinstance(o, str):
                own |= reads.pop(o, {o})
        text = written(line.operation, texts)
        (target, *more) = line.targets
        once = not more and uses[target] == 1 and target not in kept and place[target] - k <= _SOON
        if once and depth < _DEPTH:
            inside[target], reads[target] = (f"({text})", depth), own
        else:
            body.append((f"{', '.join(t if uses[t] else '_' for t in line.targets)} = {text}", own))
    last = {name: k for k, (_, own) in enumerate(body) for name in own}
    given = kept | set(program.arguments)
    lines = [f"def program({', '.join(program.arguments)}):"]
    for k, (text, own) in enumerate(body):
        lines.append(text)
        gone = sorted(name for name in own - given if last[name] == k)
        if gone:
            lines.append(f"del {', '.join(gone)}")
    return "\n    ".join([*lines, f"return [{', '.join(outputs)}]"])
