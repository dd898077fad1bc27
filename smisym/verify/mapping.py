"""The mapping: a network on tokens is the link function at its fields, at any finite D (theory, 2)."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from smisym.declare.architecture import Architecture
from smisym.verify.properties import Property, Subject, Tried, left_out, prelude
from smisym.verify.searching import search
from smisym.verify.tokens import mapping_misfit

_DIMENSIONS = (1, 2, 3, 8, 37, 128)

_BODY = """from smisym.verify.tokens import draw_tokens, fields_of, run_on_tokens, seen_by_link

declared = model.architecture
X, W = draw_tokens(declared, {dimension}, seed={seed})
print(run_on_tokens(declared, X, W))  # the network on tokens
print(seen_by_link(declared, model.link(fields_of(declared, X, W)[None])[0], X))  # the link at its fields"""


def _network_is_link(subject: Subject, level: float) -> Tried:
    model, declared = subject.model, subject.model.architecture
    if declared is None:
        return left_out("a bare program has no tokens")
    if isinstance(declared, Architecture) and declared.limit == "ode":
        return left_out("infinitely many layers cannot be run: see many-layers")

    def misfit(case: tuple[int, int]) -> float | None:
        return mapping_misfit(model, *case)

    cases: Any = st.tuples(st.sampled_from(_DIMENSIONS), st.integers(0, 2**16))
    found = search(cases, misfit, subject.many(60), subject.number("mapping"))
    shown = "" if found.failing is None else _lines(subject, *found.failing)
    unit = "networks" if isinstance(declared, Architecture) else "draws of tokens and weights"
    return Tried(found.number, unit, found.worst, None, found.holds, counterexample=shown)


def _lines(subject: Subject, dimension: int, seed: int) -> str:
    return f"{prelude(subject)}\n{_BODY.format(dimension=dimension, seed=seed)}"


PROPERTIES = (
    Property(
        "mapping",
        "The network run on tokens at D = 1 to 128 shows what the link function gives at Z = W X^T / sqrt(D).",
        "arXiv 2502.00901, eqs 2-7",
        "seconds",
        False,
        _network_is_link,
    ),
)
