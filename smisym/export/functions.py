"""The functions that are written for one architecture: network, level set, and what reads outputs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from smisym.base.axes import signed
from smisym.base.counting import counted
from smisym.charts import LevelSet, reading
from smisym.charts.reading import EntryReading, HeadReading
from smisym.export.naming import field_names, named_values, names_in
from smisym.export.writing import Body, body, listed, without_guards, wrapped
from smisym.kernels import named
from smisym.kernels.straight_line import StraightLine
from smisym.link.linking import LinkFunction

_SAMPLES = 4
# Functions that others call.
_HELPERS: dict[str, tuple[Any, ...]] = {
    "factor_of_gram": (signed, reading.largest),
    "factor_of_ratios": (signed, reading.largest),
    "factors_of_product": (signed,),
    "factors_of_differences": (signed, reading.factors_of_product),
    "all_differences": (reading.all_scores,),
}

LOG_NDTR = '''def log_ndtr(x: Array) -> Array:
    """Log of the normal distribution function; far below its asymptotic series."""
    near = np.maximum(x, -30.0)
    far = np.minimum(x, -30.0)
    inside = np.log(0.5 * np.frompyfunc(math.erfc, 1, 1)(-near / math.sqrt(2.0)).astype(float))
    series = 1 - far**-2.0 + 3 * far**-4.0 - 15 * far**-6.0 + 105 * far**-8.0
    outside = -0.5 * far * far - np.log(-far) - 0.5 * math.log(2 * math.pi) + np.log(series)
    return np.where(x < -30.0, outside, inside)
'''


def _by_math(name: str, what: str) -> str:
    """The text of a function that Python has for one number, for arrays."""
    return f'''def {name}(x: Array) -> Array:
    """{what}"""
    return np.asarray(np.frompyfunc(math.{name}, 1, 1)(x), dtype=float)
'''


# Functions that numpy has not.
OWN_TEXTS = {
    "log_ndtr": LOG_NDTR,
    "erf": _by_math("erf", "The error function."),
    "erfc": _by_math("erfc", "One less the error function."),
}


def network_function(link: LinkFunction) -> tuple[list[str], frozenset[str]]:
    """``network``, and what it calls."""
    program, fields = link.raw_program, field_names(link)
    Z = np.random.default_rng(7).standard_normal((_SAMPLES, link.fields, link.tokens))
    at = dict(zip(program.arguments, Z.reshape(_SAMPLES, -1).T, strict=True))
    names = dict(zip(program.arguments, fields, strict=True))
    names |= names_in(program, at, dict(named_values(link, Z)))
    found = body(program, names)
    shown = "Log-ratios of the output" if link.output_is_softmax else "Entries of the output"
    lines = [
        f"def network({', '.join(f'{name}: Array' for name in fields)}) -> list[Array]:",
        f'    """{shown}, row by row, from entries of the fields (row of Z, then token)."""',
    ]
    if len(lines[0]) > 100:
        lines[:1] = ["def network(*fields: Array) -> list[Array]:"]
        lines += [*_unpacked(fields, "fields")]
    return [*lines, *_lines(found, 4), *_list("return ", found.outputs, 4)], found.calls


def level_set_function(link: LinkFunction, level_set: LevelSet) -> tuple[list[str], frozenset[str]]:
    """``level_set``, and what it calls."""
    assert level_set.program is not None
    program = without_guards(level_set.program)
    T, fields = link.tokens, field_names(link)
    given = {kind: [a for a in program.arguments if a[0] == kind] for kind in "zxu"}
    free = [fields[row * T + t] for row in level_set.free_rows for t in range(T)]
    names = dict(zip(given["z"], free, strict=True))
    names |= {a: f"{a[0]}_{a[1:]}" for kind in "xu" for a in given[kind]}
    names |= _known_names(program, link, level_set, given)
    found = body(program, names)
    lines = [
        "def level_set(free: list[Array], x: list[Array], u: list[Array]) -> tuple[list, list, list]:",
        f'    """{_said(link, level_set)}"""',
    ]
    for kind, argument in (("z", "free"), ("x", "x"), ("u", "u")):
        lines += _unpacked([names[a] for a in given[kind]], argument)
    return [*lines, *_lines(found, 4), *_returned(found, level_set, T)], found.calls


def coordinates_function(level_set: LevelSet) -> tuple[list[str], list[str], frozenset[str]]:
    """``coordinates``, the texts of the functions that it calls, and what else it calls."""
    lines = [
        "def coordinates(seen: Array) -> Array:",
        '    """Coordinates u (S, K) of outputs, or of log-ratios."""',
        "    found = []",
    ]
    helpers: dict[str, None] = {}
    calls: frozenset[str] = frozenset()
    for part in level_set.reading or ():
        if isinstance(part, HeadReading):
            lines += _head(part)
            for function in (*_HELPERS.get(part.reader.__name__, ()), part.reader):
                helpers[inspect.getsource(function)] = None
            if part.forward is not None:
                text, more = _activation(part.forward)
                helpers[text] = None
                calls |= more
        else:
            entry, more = _entry(part)
            lines += entry
            calls |= more
    lines += ["    return np.concatenate([part.reshape(len(seen), -1) for part in found], axis=1)"]
    return lines, list(helpers), calls


def kernel_texts(calls: frozenset[str]) -> list[str]:
    """Texts of the functions that programs call by name."""
    found = [text for name, text in OWN_TEXTS.items() if name in calls]
    if "solve_logdet" in calls:
        found.append(inspect.getsource(named.pivot))
    return found + [inspect.getsource(getattr(named, name)) for name in sorted(calls - OWN_TEXTS.keys())]


# -------------------------------------------------------------------------------------------------- level set


def _known_names(
    program: StraightLine, link: LinkFunction, level_set: LevelSet, given: dict[str, list[str]]
) -> dict[str, str]:
    """Names of the numbers of a chart that are entries of the network's matrices."""
    rng = np.random.default_rng(7)
    Z = rng.standard_normal((_SAMPLES, link.fields, link.tokens))
    u = level_set.coordinates(link.observe(Z)).values
    at = dict(zip(given["z"], Z[:, list(level_set.free_rows)].reshape(_SAMPLES, -1).T, strict=True))
    at |= dict(zip(given["u"], u.T, strict=True))
    at |= dict(zip(given["x"], rng.standard_normal((len(given["x"]), _SAMPLES)), strict=True))
    found = names_in(program, at, dict(named_values(link, Z)))
    solved = [row * link.tokens + t for row in level_set.solved_rows for t in range(link.tokens)]
    computed = {target for line in program.lines for target in line.targets}
    for k, output in zip(solved, program.outputs, strict=False):
        if output in computed and output not in found:
            found[str(output)] = field_names(link)[k]
    return found


def _said(link: LinkFunction, level_set: LevelSet) -> str:
    """One line on what a level set is, in words."""
    over = [link.labels[row] for row in level_set.free_rows]
    over += [f"{counted(len(level_set.latents), 'latent coordinate')} x"] if level_set.latents else []
    where = f" over {', '.join(over)}" if over else ""
    along = f", {counted(level_set.directions, 'direction')} integrated in closed form" if level_set.directions else ""
    return f"Every Z with an output of coordinates u: {counted(level_set.branches, 'sheet')}{where}{along}."


def _returned(found: Body, level_set: LevelSet, T: int) -> list[str]:
    """Sheets of solved fields, log-weights, and directions of every sheet."""
    solved, B, K = len(level_set.solved_rows) * T, level_set.branches, level_set.directions
    rest = len(found.outputs) - B * solved * (1 + K)
    sheets = [found.outputs[b * solved : (b + 1) * solved] for b in range(B)]
    weights = found.outputs[B * solved : B * solved + rest]
    along = found.outputs[B * solved + rest :]
    lines = ["    solved = ["]
    for sheet in sheets:
        lines += _list("", sheet, 8, ",")
    lines += ["    ]", *_list("log_weight = ", weights, 4)]
    if not K:
        return [*lines, "    return solved, log_weight, []"]
    lines += ["    directions = ["]
    for b in range(B):
        lines += ["        ["]
        for k in range(K):
            first = (b * K + k) * solved
            lines += _list("", along[first : first + solved], 12, ",")
        lines += ["        ],"]
    return [*lines, "    ]", "    return solved, log_weight, directions"]


# -------------------------------------------------------------------------------------------------- reading


def _head(part: HeadReading) -> list[str]:
    """Coordinates of one head's output."""
    place = "" if part.output is None else f"[:, {part.output}]"
    lines = [f"    scores = seen{place}"]
    if not part.ratios and (part.constant.any() or part.coefficient != 1):
        lines.append(f"    scores = (scores - {_array(part.constant)}) / {part.coefficient!r}")
    if part.forward is not None:
        lines.append("    scores = inverse_activation(scores)")
    if part.shift.any():
        lines.append(f"    scores = scores - {_array(part.shift)}")
    if part.scale != 1:
        lines.append(f"    scores = scores / {part.scale!r}")
    return [*lines, f"    found.append({part.reader.__name__}(scores, {part.count})[0])"]


def _activation(forward: StraightLine) -> tuple[str, frozenset[str]]:
    """The inverse of an activation that is monotone, by bisection."""
    found = body(forward, {"s": "s"})
    text = ["def activation(s: Array) -> Array:", '    """The activation of one score."""']
    text += [*_lines(found, 4), f"    return {found.outputs[0]}", "", "", inspect.getsource(bisected)]
    return "\n".join(text).replace("def bisected", "def inverse_activation").replace(
        "forward(", "activation("
    ), found.calls


def bisected(y: np.ndarray) -> np.ndarray:
    """Scores at which a strictly monotone activation has the values y, by bisection down to rounding."""
    rising = 1.0 if forward(np.ones(1))[0] > forward(-np.ones(1))[0] else -1.0
    low, high = np.full(y.shape, -1.0), np.full(y.shape, 1.0)
    with np.errstate(all="ignore"):
        for _ in range(40):
            low = np.where(rising * (forward(low) - y) > 0, 2 * low, low)
            high = np.where(rising * (forward(high) - y) < 0, 2 * high, high)
        inside = (rising * (forward(low) - y) <= 0) & (rising * (forward(high) - y) >= 0)
        for _ in range(100):
            middle = 0.5 * (low + high)
            below = rising * (forward(middle) - y) < 0
            low, high = np.where(below, middle, low), np.where(below, high, middle)
    if not inside.all():
        raise ValueError("y: an entry at or beyond the end of the activation's range")
    return 0.5 * (low + high)


def forward(s: np.ndarray) -> np.ndarray:
    """Stands for the activation that is written."""
    return s


def _entry(part: EntryReading) -> tuple[list[str], frozenset[str]]:
    """Coordinates by a program of the entries of the output."""
    program = part.program
    names = {name: f"y_{name[1:]}" for name in program.arguments}
    found = body(program, names)
    lines = _unpacked([names[a] for a in program.arguments], "seen.reshape(len(seen), -1).T")
    lines += _lines(found, 4)
    text = ", ".join(f"{o} + 0.0 * {names[program.arguments[0]]}" if o[0].isdigit() else o for o in found.outputs)
    return [*lines, *wrapped(f"found.append(np.stack([{text}], axis=1))", 4)], found.calls


# -------------------------------------------------------------------------------------------------- text


def _lines(found: Body, indent: int) -> list[str]:
    return [line for text in found.lines for line in wrapped(text, indent)]


def _list(head: str, items: Sequence[str], indent: int, end: str = "") -> list[str]:
    """``head[items]end``, on one line or on several."""
    one = f"{head}[{', '.join(items)}]{end}"
    if len(one) + indent <= 110:
        return [" " * indent + one]
    return [f"{' ' * indent}{head}[", *listed(items, indent + 4), f"{' ' * indent}]{end}"]


def _unpacked(names: Sequence[str], argument: str) -> list[str]:
    """Names for the entries of a list."""
    if not names:
        return []
    one = f"    ({names[0]},) = {argument}" if len(names) == 1 else f"    {', '.join(names)} = {argument}"
    return [one] if len(one) <= 110 else ["    (", *listed(names, 8), f"    ) = {argument}"]


def _array(values: np.ndarray) -> str:
    return f"np.array({values.tolist()!r})"
