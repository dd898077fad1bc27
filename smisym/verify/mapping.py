"""The mapping: a network on tokens is the link function at its fields, at any finite D (theory, 2)."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from smisym.declare.architecture import Architecture
from smisym.verify.properties import Property, Subject, Tried, left_out, prelude
from smisym.verify.searching import search
from smisym.verify.tokens import draw_tokens, fields_of, run_on_tokens, seen_by_link

# How well both must agree, relative, for each unit of the condition: what relative changes of the weights do to the
# output, tried with one of this size.
_EQUAL, _NUDGE = 1e-10, 1e-7
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
        return left_out("infinitely many layers cannot be run")

    def misfit(case: tuple[int, int]) -> float | None:
        X, W = draw_tokens(declared, *case)
        with np.errstate(all="ignore"):
            network, moved = (run_on_tokens(declared, X, w).astype(float) for w in (W, _nudged(W, case[1])))
            found = seen_by_link(declared, model.link(fields_of(declared, X, W)[None])[0], X)
        size = float(np.linalg.norm(network))
        if not np.isfinite(network).all() or not np.isfinite(moved).all():
            return None
        condition = max(1.0, float(np.linalg.norm(moved - network)) / max(size, 1e-300) / _NUDGE)
        return float(np.linalg.norm(found - network)) / max(size, 1e-300) / (_EQUAL * condition)

    cases: Any = st.tuples(st.sampled_from(_DIMENSIONS), st.integers(0, 2**16))
    found = search(cases, misfit, subject.many(60), subject.number("mapping"))
    shown = "" if found.failing is None else _lines(subject, *found.failing)
    return Tried(found.number, "networks", found.worst, None, found.holds, counterexample=shown)


def _nudged(W: np.ndarray, seed: int) -> np.ndarray:
    return W * (1 + _NUDGE * np.random.default_rng([seed, 1]).standard_normal(W.shape))


def _lines(subject: Subject, dimension: int, seed: int) -> str:
    return f"{prelude(subject)}\n{_BODY.format(dimension=dimension, seed=seed)}"


PROPERTIES = (
    Property(
        "mapping",
        "The network run on tokens at D = 1 to 128 shows what the link function gives at Z = W X^T / sqrt(D).",
        "theory 2; arXiv 2502.00901, eqs 2-7",
        "seconds",
        False,
        _network_is_link,
    ),
)
