"""A model into one module that needs numpy alone.

Sizes and three functions are written from the straight-line programs that the channel itself uses
(:mod:`smisym.export.functions`); the integrator and all that is asked of the module are the same for every
architecture (:mod:`smisym.export.parts`).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np

from smisym.base.errors import InputError
from smisym.declare.io import package_version
from smisym.export.functions import coordinates_function, kernel_texts, level_set_function, network_function
from smisym.export.reference import reference_values
from smisym.export.wording import docstring
from smisym.link.program import is_smooth, reference
from smisym.model.compiled import Model
from smisym.posterior.all_fields import OnAllFields
from smisym.posterior.central_limit import ThroughStatistic
from smisym.posterior.half_spaces import OnHalfSpaces

_LATTICE = 3  # dimensions up to which a lattice is used
# Tolerance by default, by the dimension; evaluations at most, on a lattice and by sampling.
_RTOL = {0: 1e-12, 1: 1e-8, 2: 1e-8, 3: 1e-5}
_SAMPLED_RTOL, _MOST, _MOST_SAMPLED = 1e-2, 2**20, 2**17


@dataclass(frozen=True)
class Plan:
    """How posteriors of a model are integrated in the module: dimension, by sampling or not, tolerance, evaluations."""

    dim: int
    sampled: bool
    rtol: float
    most: int


def denoiser_module(model: Model, seed: int = 0) -> str:
    """The text of the module.  ``seed``: of the references of its self-test.

    Raises InputError where there is no level set as a program, and no noise: discrete outputs but those of which the
    cells are unions of orthants, fields that are found numerically, ``statistic="gaussian"``, charts of one's own that
    are no program or do not say how outputs are read.
    """
    _check(model)
    plan = plan_for(model)
    network, calls = network_function(model.link)
    functions = ["\n".join(network)]
    helpers: list[str] = []
    if not model.noise:
        assert model.level_set is not None
        text, more = level_set_function(model.link, model.level_set)
        functions.append("\n".join(text))
        text, helpers, others = coordinates_function(model.level_set)
        functions.append("\n".join(text))
        calls |= more | others
    pieces = [
        docstring(model, plan.dim, plan.sampled, plan.rtol),
        _imports([*kernel_texts(calls), *helpers], plan),
        "\n".join(_constants(model, plan)),
        "# " + "-" * 30 + " this architecture, from its straight-line programs",
        *functions,
        *[_numpy_only(text) for text in (*helpers, *kernel_texts(calls))],
        "# " + "-" * 30 + " any architecture: outputs, posteriors, integrals",
        *_parts(model, plan),
        "\n".join(_references(model, plan, seed)),
        _part("trying", {"derivative"} if plan.sampled else set()),
        'if __name__ == "__main__":\n    sys.exit(0 if self_test() else 1)\n',
    ]
    return re.sub(r"\n{4,}", "\n\n\n", "\n\n\n".join(piece.strip("\n") for piece in pieces)) + "\n"


def plan_for(model: Model) -> Plan:
    """How the module integrates."""
    if model.noise:
        dim, smooth = model.fields * model.tokens, is_smooth(model.link.program)
    else:
        assert model.level_set is not None
        level_set = model.level_set
        dim, smooth = len(level_set.free_rows) * model.tokens + len(level_set.latents), level_set.smooth
    if dim and (dim > _LATTICE or not smooth):
        return Plan(dim, True, _SAMPLED_RTOL, _MOST_SAMPLED)
    return Plan(dim, False, _RTOL[dim], _MOST)


def _check(model: Model) -> None:
    """InputError where no module can be written, with the reason and the remedy."""
    posterior, level_set = model.channel.posterior, model.level_set
    if isinstance(posterior, ThroughStatistic):
        why, fix = "posteriors go through a Gaussian sum of the first layers", 'declare statistic="exact"'
    elif model.noise:
        return
    elif level_set is None:
        discrete = isinstance(posterior, OnAllFields | OnHalfSpaces)
        why = "a discrete output, whose posteriors are cells" if discrete else "fields that are found numerically"
        fix = "declare a little noise, or use the channel itself"
    elif level_set.program is None:
        why = "a chart that is code of its own, as of register_chart"
        fix = "use the channel itself: only charts that smisym found are kept as programs"
    elif level_set.reading is None:
        why, fix = "a chart that does not say how outputs are read", "give its LevelSet a reading"
    else:
        return
    raise InputError("model to write as Python", why, "a closed chart that is a program, or noise on the output", fix)


# -------------------------------------------------------------------------------------------------- the pieces


# Functions that not every module has, and how lines end that need them.
_MARKED = {"orthonormal": "# directions", "along_line": "# one dimension"}


def _parts(model: Model, plan: Plan) -> list[str]:
    """The generic parts that this architecture needs."""
    softmax = model.link.output_is_softmax
    names = ["network_softmax" if softmax else "network_plain"]
    if not model.noise:
        names.append("seen_softmax" if softmax else "seen_plain")
    names += ["posterior", "on_all_fields" if model.noise else "on_level_set"]
    if not plan.dim:
        names.append("finite_sum")
    else:
        names += ["climbing", "sampling" if plan.sampled else "lattice"]
    without = set[str]()
    if not model.noise and not model.level_set.directions:  # type: ignore[union-attr]
        without.add("orthonormal")
    if plan.sampled:
        without.add("narrowness")
    if plan.dim != 1:
        without.add("along_line")
    return [_part(name, without) for name in (*names, "asking")]


def _part(name: str, without: set[str]) -> str:
    """The text of a part without its docstring and imports, and without the functions named."""
    module = importlib.import_module(f"smisym.export.parts.{name}")
    text = inspect.getsource(module)
    marks = tuple(mark for name, mark in _MARKED.items() if name in without)
    text = "\n".join(line for line in text.splitlines() if not (marks and line.endswith(marks)))
    lines, kept, cut = text.splitlines(), [], 0
    for node in ast.parse(text).body:
        first = node.lineno - 1
        dropped = isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        )
        if dropped or (isinstance(node, ast.FunctionDef) and node.name in without):
            cut = node.end_lineno or first
            continue
        kept += lines[cut : node.end_lineno]
        cut = node.end_lineno or first
    return re.sub(r"  # (type: ignore\[[a-z-]+\]|directions|noqa: T201)", "", "\n".join(kept).strip("\n"))


def _imports(texts: list[str], plan: Plan) -> str:
    every = "\n".join(texts)
    lines = ["from __future__ import annotations", ""]
    needed = {
        "itertools": "itertools." in every or (plan.dim and not plan.sampled),
        "math": "math." in every or plan.sampled,
        "re": True,  # the self-test
        "sys": True,
    }
    lines += [f"import {name}" for name, used in needed.items() if used]
    lines.append(f"from typing import {'Any, ' if 'Any' in every else ''}NamedTuple")
    lines += [
        "",
        "import numpy as np",
        "",
        '__all__ = ["dg_out", "g_out", "moments", "self_test"]',
        "Array = np.ndarray",
    ]
    return "\n".join(lines)


def _numpy_only(text: str) -> str:
    return text.strip("\n")


def _constants(model: Model, plan: Plan) -> list[str]:
    """Sizes, and what an attention matrix becomes on its way to the output."""
    link, level_set = model.link, model.level_set
    free = () if model.noise or level_set is None else level_set.free_rows
    solved = tuple(range(link.fields)) if model.noise or level_set is None else level_set.solved_rows
    order = (*free, *solved)
    lines = [
        f"FIELDS, TOKENS = {link.fields}, {link.tokens}  # P rows and T columns of the fields Z",
        f"LABELS = {link.labels!r}  # what each row of Z is",
        f"ORDER = {order!r}  # rows in which Z is whitened" + (": the free ones first" if free else ""),
        f"OUTPUT = {link.output_shape!r}  # shape of one output",
        f"RTOL, MAX_NODES, SAMPLED = {plan.rtol!r}, 2**{plan.most.bit_length() - 1}, {plan.sampled}",
    ]
    if plan.dim and not plan.sampled:
        ragged = level_set is not None and any(
            (level_set.shared, level_set.pieces, level_set.bordered, level_set.kinked)
        )
        smooth = not ragged if level_set is not None else is_smooth(link.program)
        lines.append(f"ANALYTIC = {smooth}  # whether densities are analytic, so that a lattice converges fast")
    if model.noise:
        lines.append(f"NOISE = {model.noise!r}  # variance on every entry of the output")
        lines += [f"FREE, LATENTS, SHEETS, DIRECTIONS = {link.fields}, (), 1, 0"]
    else:
        assert level_set is not None
        lines += [
            "NOISE = 0.0",
            f"FREE, SHEETS, DIRECTIONS = {len(free)}, {level_set.branches}, {level_set.directions}",
            f"LATENTS: tuple[str, ...] = {level_set.latents!r}",
        ]
    if link.output_is_softmax:
        attended = link.attended
        columns = np.empty(link.output_shape[:-1], dtype=int)
        for place in np.ndindex(columns.shape):
            columns[place] = reference(list(np.flatnonzero(attended[place])), place[-1])
        cores = link.cores or ()
        shape = link.output_shape
        constant = np.broadcast_to(np.array([core.constant for core in cores]).reshape(shape), shape)
        coefficient = np.array([core.coefficient for core in cores])
        lines.append(
            "# Output = CONSTANT + COEFFICIENT * row softmax; log-ratios of a row refer to its REFERENCE_COLUMN."
        )
        lines += _assigned("CONSTANT", constant)
        size = coefficient.reshape(-1, 1, 1) if len(cores) > 1 else coefficient.reshape(1, 1)
        lines.append(f"COEFFICIENT = np.broadcast_to(np.array({size.tolist()!r}), OUTPUT)")
        lines += _assigned("ATTENDED", attended)
        lines += _assigned("REFERENCE_COLUMN", columns)
    return lines


def _assigned(name: str, values: np.ndarray) -> list[str]:
    """An array as a line, or as a short one where all entries are alike."""
    if (values == values.ravel()[0]).all() and values.ndim > 1:
        return [f"{name} = np.full(OUTPUT, {values.ravel()[0].item()!r})"]
    return _numbers(f"{name} = np.array(", values.tolist(), ")")


def _references(model: Model, plan: Plan, seed: int) -> list[str]:
    """The references as plain lists."""
    ratios = not model.noise and model.link.output_is_softmax
    aim = {0: 1e-12, 1: 1e-10, 2: 1e-10, 3: 1e-5}.get(plan.dim, model.channel.plan.single)
    values = reference_values(model, aim, ratios, seed)
    lines = [
        f"# g_out of smisym {package_version()}, its errors in the norm of V; y are "
        + ("log-ratios." if ratios else "outputs."),
        f"NISHIMORI = {32 if plan.sampled else {0: 4096, 1: 512, 2: 256, 3: 32}[plan.dim]}  # draws of the self-test",
        "REFERENCE = [",
    ]
    for known in values:
        lines.append("    {")
        for name, value in known.items():
            lines += ["        " + line for line in _numbers(f'"{name}": ', value, ",")]
        lines.append("    },")
    return [*lines, "]"]


def _numbers(head: str, value: Any, tail: str) -> list[str]:
    """Nested lists of numbers, broken into lines."""
    text = re.sub(r"\b(inf|nan)\b", r"np.\1", f"{head}{value!r}{tail}")
    return textwrap.wrap(text, 100, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
