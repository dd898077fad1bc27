"""Symmetries are held against the link when a model is compiled: a wrong one never gets to an overlap."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from cases import CASES, FAMILIES

import smisym
from smisym import SMI, Architecture, Attention
from smisym.base.derivation import Derivation
from smisym.link.linking import link_function
from smisym.link.symmetry import Symmetry, find_symmetry
from smisym.link.symmetry_check import check_symmetry, symmetry_misfit

EVERY = {**{f.name: f.declared for f in FAMILIES.values()}, **{c.name: c.architecture for c in CASES.values()}}


# Quicker: every row is compiled by other tests, which makes the same search, and the property "symmetry" of
# tests/verify/test_every_row.py holds what came of it against the link at other fields.
@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_what_was_found_is_a_symmetry(name: str) -> None:
    link = link_function(EVERY[name], Derivation())
    check_symmetry(link, find_symmetry(link, Derivation()))


SHARED = [
    Architecture(2, (Attention(rank=2),)),
    Architecture(2, (Attention(heads=2),), combine="sum"),
    Architecture(2, (Attention(rank=2, heads=2),), combine="sum"),
    Architecture(2, (Attention(tied=False, rank=2),)),
]


@pytest.mark.parametrize("declared", SHARED, ids=str)
def test_coordinates_are_those_of_the_group_average(declared: Architecture) -> None:
    """Where rows share a coordinate its basis matrix is not of length one."""
    symmetry = find_symmetry(link_function(declared, Derivation()), Derivation())
    rng = np.random.default_rng(0)
    q = rng.standard_normal(len(symmetry.basis))
    np.testing.assert_allclose(symmetry.coordinates(symmetry.matrix(q)), q, atol=1e-14)
    assert (np.einsum("kij,kij->k", symmetry.basis, symmetry.basis) > 1.5).any()
    G = rng.standard_normal(symmetry.basis.shape[1:])
    Q = G @ G.T
    average = symmetry.project(Q)
    np.testing.assert_allclose(symmetry.project(average), average, atol=1e-13)
    # What is taken away is orthogonal to all that is left.
    np.testing.assert_allclose(np.einsum("kij,ij->k", symmetry.basis, Q - average), 0.0, atol=1e-13)


def planted(symmetry: Symmetry, kind: str) -> Symmetry:
    P = symmetry.signs.shape[1]
    exchange = np.eye(P)[[1, 0, *range(2, P)]]
    if kind == "exchange":
        return dataclasses.replace(symmetry, elements=np.concatenate([symmetry.elements, exchange[None]]))
    if kind == "rotation":
        return dataclasses.replace(symmetry, rotations=(((0, 1),),))
    return dataclasses.replace(symmetry, signs=np.concatenate([symmetry.signs, [[-1.0] + [1.0] * (P - 1)]]))


@pytest.mark.parametrize("kind", ["exchange", "rotation", "flip"])
def test_a_wrong_symmetry_is_a_defect(kind: str) -> None:
    right = smisym.compile(Architecture(2, (Attention(tied=False),)))
    assert symmetry_misfit(right) < 1e-12
    assert symmetry_misfit(dataclasses.replace(right, symmetry=planted(right.symmetry, kind))) > 0.1
    with pytest.raises(ArithmeticError, match="defect of smisym"):
        check_symmetry(right.link, planted(right.symmetry, kind))


def test_compile_holds_the_symmetry_that_it_found_against_other_fields() -> None:
    """Where z1 > 2.5, both signs are not free: at none of the fields at which symmetries are looked for at first, but
    at some of those at which they are held against the link, and then they are looked for there too."""
    declared = SMI("z1*z2 + sign(z1 - 2.5)", 2)
    link = link_function(declared, Derivation())
    found = find_symmetry(link, Derivation())
    assert len(found.signs) == 2, "choose a rarer place: the search has seen this one"
    with pytest.raises(ArithmeticError, match="defect of smisym"):
        check_symmetry(link, found)
    model = smisym.compile(declared)
    assert len(model.symmetry.signs) == 1
    assert len(model.symmetry.elements) == 1
    check_symmetry(model.link, model.symmetry)
