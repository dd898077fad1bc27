"""Straight-line programs as the text of numpy functions, to be read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smisym.base.errors import InputError
from smisym.kernels.straight_line import INFIX, PREFIX, Line, Operand, StraightLine, literal

# Longest line of what is written, and longest expression that is written into the one line that uses it.
WIDTH, INSIDE = 110, 72
# Kernels whose first arguments are their sizes.
_SIZED = ("solve_columns", "inverse_logdet", "least_norm")


# Functions that a module brings along, for numpy has them not.
OWN = frozenset({"log_ndtr", "erf", "erfc"})


@dataclass(frozen=True)
class Body:
    """Lines of a function, what its outputs are written as, and the kernels and further functions that it calls."""

    lines: tuple[str, ...]
    outputs: tuple[str, ...]
    calls: frozenset[str]


def without_guards(program: StraightLine) -> StraightLine:
    """The same without outputs that are replaced where something is not finite: whoever calls it sees to that."""
    made = {target: line for line in program.lines for target in line.targets}

    def guard(o: Operand) -> bool:
        line = made.get(o) if isinstance(o, str) else None
        if line is None:
            return False
        return line.operation == "isfinite" or (line.operation == "bitwise_and" and all(map(guard, line.operands)))

    def free(o: Operand) -> Operand:
        line = made.get(o) if isinstance(o, str) else None
        bare = line is not None and line.operation == "where" and guard(line.operands[0])
        return line.operands[1] if bare and line is not None and not isinstance(line.operands[2], str) else o

    return needed(StraightLine(program.arguments, program.lines, tuple(map(free, program.outputs))))


def needed(program: StraightLine) -> StraightLine:
    """The same without lines that no output needs."""
    wanted = {o for o in program.outputs if isinstance(o, str)}
    lines = []
    for line in reversed(program.lines):
        if wanted.intersection(line.targets):
            wanted.update(o for o in line.operands if isinstance(o, str))
            lines.append(line)
    return StraightLine(program.arguments, tuple(reversed(lines)), program.outputs)


def body(program: StraightLine, names: Mapping[str, str]) -> Body:
    """A program as lines of numpy; ``names``: of its arguments, and of targets that mean something."""
    program = needed(program)
    uses = Counter(o for line in program.lines for o in line.operands if isinstance(o, str))
    uses.update(o for o in program.outputs if isinstance(o, str))
    texts = {name: names.get(name, name) for name in program.arguments}
    lines: list[str] = []
    calls: set[str] = set()

    def said(o: Operand) -> str:
        return texts[o] if isinstance(o, str) else literal(o).replace("inf", "np.inf").replace("nan", "np.nan")

    for line in program.lines:
        text, call = _written(line, [said(o) for o in line.operands])
        calls |= {call} if call else set()
        (target, *more) = line.targets
        if not more and uses[target] == 1 and target not in names and len(text) <= INSIDE:
            texts[target] = f"({text})" if line.operation in INFIX or line.operation in PREFIX else text
            continue
        for one in line.targets:
            texts[one] = names.get(one, one)
        lines.append(f"{', '.join(texts[one] if uses[one] else '_' for one in line.targets)} = {text}")
    return Body(tuple(lines), tuple(_bare(said(o)) for o in program.outputs), frozenset(calls))


def _written(line: Line, operands: list[str]) -> tuple[str, str | None]:
    """One operation, and the function that it calls beside those of numpy."""
    name = line.operation
    if name in INFIX:
        return f"{operands[0]} {INFIX[name]} {operands[1]}", None
    if name in PREFIX:
        return f"{PREFIX[name]}{operands[0]}", None
    kernel = re.fullmatch(r"([a-z_]+?)((?:_\d+)+)", name)
    if kernel is None:
        own = name in OWN
        if not own and not hasattr(np, name):
            raise InputError(
                "model to write as Python", f"it calls {name}, which numpy has not",
                f"functions of numpy, {', '.join(sorted(OWN))}", "use the channel itself",
            )  # fmt: skip
        return f"{'' if own else 'np.'}{name}({', '.join(_bare(o) for o in operands)})", name if own else None
    sizes = [*kernel[2].strip("_").split("_"), "["] if kernel[1] in _SIZED else []
    inside = ", ".join(_bare(o) for o in operands)
    call = f"{', '.join(sizes[:-1])}, ({inside},)" if sizes else inside
    return f"{kernel[1]}({call})", kernel[1]


def _bare(text: str) -> str:
    """An argument without the brackets that it needs elsewhere."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for k, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and k < len(text) - 1:
            return text
    return text[1:-1]


def wrapped(text: str, indent: int) -> list[str]:
    """A line broken after commas and before signs, where it is too long."""
    if len(text) + indent <= WIDTH:
        return [" " * indent + text]
    head, opened, rest = text.partition(" = ")
    if not opened:
        head, rest = "", text
    pieces = re.split(r"(?<=,) | (?=[-+*/&|] )", rest)
    lines, room = [f"{head} = (" if head else "("], WIDTH - indent - 4
    current = ""
    for piece in pieces:
        if current and len(current) + 1 + len(piece) > room:
            lines.append("    " + current)
            current = piece
        else:
            current = f"{current} {piece}" if current else piece
    return [" " * indent + line for line in (*lines, "    " + current, ")")]


def listed(items: Sequence[str], indent: int) -> list[str]:
    """Items of a list, as many a line as it holds, with their commas."""
    lines, current = [], ""
    for item in items:
        if current and indent + len(current) + len(item) + 2 > WIDTH:
            lines.append(" " * indent + current)
            current = ""
        current = f"{current} {item}," if current else f"{item},"
    return [*lines, *([" " * indent + current] if current else [])]
