"""Symmetries are held against the link when a model is compiled: a wrong one never gets to an overlap."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from cases import CASES, FAMILIES

import smisym
from smisym import Architecture, Attention
from smisym.base.derivation import Derivation
from smisym.link.linking import link_function
from smisym.link.symmetry import Symmetry, find_symmetry
from smisym.link.symmetry_check import check_symmetry, symmetry_misfit

EVERY = {**{f.name: f.declared for f in FAMILIES.values()}, **{c.name: c.architecture for c in CASES.values()}}


@pytest.mark.parametrize("name", EVERY)
def test_what_was_found_is_a_symmetry(name: str) -> None:
    link = link_function(EVERY[name], Derivation())
    check_symmetry(link, find_symmetry(link, Derivation()))


def planted(symmetry: Symmetry, kind: str) -> Symmetry:
    P = symmetry.signs.shape[1]
    exchange = np.eye(P)[[1, 0, *range(2, P)]]
    if kind == "exchange":
        return dataclasses.replace(symmetry, elements=np.concatenate([symmetry.elements, exchange[None]]))
    if kind == "rotation":
        return dataclasses.replace(symmetry, rotations=(((0, 1),),))
    return dataclasses.replace(symmetry, signs=np.concatenate([symmetry.signs, [[-1.0] + [1.0] * (P - 1)]]))


@pytest.mark.parametrize("kind", ["exchange", "rotation", "flip"])
def test_a_wrong_symmetry_is_a_defect(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    architecture = Architecture(2, (Attention(tied=False),))

    def wrong(link: Any, derivation: Any, **how: Any) -> Symmetry:
        return planted(find_symmetry(link, derivation, **how), kind)

    right = smisym.compile(architecture)
    assert symmetry_misfit(right) < 1e-12
    assert symmetry_misfit(dataclasses.replace(right, symmetry=planted(right.symmetry, kind))) > 0.1
    monkeypatch.setattr("smisym.model.compiled.find_symmetry", wrong)
    with pytest.raises(ArithmeticError, match="defect of smisym"):
        smisym.compile(architecture)
