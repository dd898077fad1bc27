"""The network behind a cut as a shallower one, in mixed fields: against the whole link, at fields of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import CASES, FAMILIES
from hypothesis import given, settings
from strategies import architectures

from smisym import Architecture, Attention
from smisym.base.derivation import Derivation
from smisym.link.linking import LinkFunction, link_function
from smisym.link.reduction import Reduction, apart, find_reductions, record_reduction

A = Attention
DECLARED: dict[str, Any] = {name: family.declared for name, family in FAMILIES.items()}
DECLARED |= {name: case.architecture for name, case in CASES.items()}


def link_of(declared: Any) -> LinkFunction:
    return link_function(declared, Derivation())


def holds(link: LinkFunction, reduction: Reduction, least: float = 1.0) -> None:
    """behind(C, h) = behind(I, h C^T) at random fields, in units of what shifts of 1e-9 of their entries do.

    least: share of the fields at which it must hold.
    """
    rng = np.random.default_rng(11)
    Z = rng.standard_normal((24, link.fields, link.tokens))

    def mixed(Z: np.ndarray) -> np.ndarray:
        C = reduction.mixing(Z[:, reduction.early].reshape(len(Z), -1))
        return Z[:, reduction.late] @ np.swapaxes(C, 1, 2)

    def largest(outputs: np.ndarray) -> np.ndarray:
        return np.abs(outputs.reshape(len(Z), -1)).max(axis=1)

    with np.errstate(invalid="ignore", over="ignore"):
        U = mixed(Z)
        whole, other = link.raw(Z), reduction.link.raw(U)
        moved = np.zeros(len(Z))
        # Entry by entry: a common factor would leave cancellations as they are, which rounding does not.
        for _ in range(4):
            near, beside = (F * (1 + 1e-9 * rng.standard_normal(F.shape)) for F in (Z, U))
            moved = np.maximum(moved, largest(link.raw(near) - whole))
            moved = np.maximum(moved, largest(reduction.link.raw(beside) - other))
        off, size = largest(other - whole), largest(whole)
    # What overflows somewhere says nothing (a network may be steeper than any float).
    told = np.isfinite(off) & np.isfinite(moved)
    within = off[told] <= 1e-9 * np.maximum(size[told], 1) + 4 * moved[told]
    assert within.sum() >= least * len(within)


@pytest.mark.parametrize("name", DECLARED)
def test_the_shallower_network_at_mixed_fields_is_the_whole_one(name: str) -> None:
    link = link_of(DECLARED[name])
    for reduction in find_reductions(link):
        assert sorted((*reduction.early, *reduction.late)) == list(range(link.fields))
        assert reduction.early and reduction.late
        assert [row.label for row in reduction.link.rows] == [link.rows[r].label for r in reduction.late]
        holds(link, reduction)


@settings(max_examples=12, deadline=None)
@given(architectures)
def test_of_any_architecture(declared: Architecture) -> None:
    link = link_of(declared)
    for reduction in find_reductions(link):
        # Steep layers behind a mean of all tokens blow one rounding up, at a field here and there.
        holds(link, reduction, least=0.75)


# Declaration, and the rows before each of its cuts.
KNOWN: list[tuple[Architecture, list[tuple[int, ...]]]] = [
    (Architecture(2, (A(),)), []),
    (Architecture(2, (A(), A(), A())), [(0,), (0, 1)]),
    (Architecture(3, (A(mask="causal"), A(skip=0.0), A())), [(0,), (0, 1)]),
    (Architecture(2, (A(tied=False), A(rank=2), A())), [(0, 1), (0, 1, 2, 3)]),
    (Architecture(2, (A(), A(heads=2), A(activation="tanh(s)"), A())), [(0,), (0, 1, 2), (0, 1, 2, 3)]),
    # A sequence shows what was mixed beside what it is mixed with.
    (Architecture(2, (A(), A()), output="sequence"), []),
]


@pytest.mark.parametrize(("declared", "early"), KNOWN, ids=range(len(KNOWN)))
def test_cuts_of_deep_attention(declared: Architecture, early: list[tuple[int, ...]]) -> None:
    assert [reduction.early for reduction in find_reductions(link_of(declared))] == early


def test_what_does_not_hold_is_told() -> None:
    """The same statement about the mixing of another network fails by more than rounding."""
    link, other = (link_of(Architecture(2, (A(skip=c), A()))) for c in (1.0, 1.001))
    (mine,), (wrong,) = find_reductions(link), find_reductions(other)
    assert (
        apart(link, mine) <= 1 < apart(link, Reduction(mine.early, mine.late, wrong.mixing, mine.link, wrong.interface))
    )


def test_the_derivation_says_what_was_found() -> None:
    derivation = Derivation()
    (reduction,) = find_reductions(link_of(Architecture(2, (A(), A()))))
    record_reduction(reduction, derivation)
    (step,) = derivation
    assert "2 numbers" in step.text and len(step.formulas) == 1 + len(reduction.link.program.assigns)
