"""Subspaces of fields have names for people."""

from __future__ import annotations

import numpy as np
import pytest

from smisym.base.directions import grouped, is_part, spanned

THREE = ("z1", "z2", "z3")


@pytest.mark.parametrize(
    ("subspace", "names", "told"),
    [
        ([[0.577, 0.5774, 0.5771]], THREE, "z1 + z2 + z3"),
        ([[-0.816, 0.408, 0.408]], THREE, "2 z1 - z2 - z3"),
        ([[0.0, -0.7, 0.7]], ("z2", "z3"), "z2 - z3"),
        ([[0.4, -0.6]], ("layer 1 head 1", "layer 1 head 2"), "2 (layer 1 head 1) - 3 (layer 1 head 2)"),
        ([[0.8, 0.31, 0.51]], THREE, "1 direction of z1, z2, z3"),
        ([[0.0, 0.7, -0.7], [0.8, -0.4, -0.4]], THREE, "2 directions of z1, z2, z3"),
        (np.eye(3), THREE, "z1, z2, z3"),
        ([[0.0, 1.0]], ("z2",), "z2"),
        (None, ("z1", "z2"), "z1, z2"),
        ([], (), ""),
    ],
)
def test_subspaces_have_names(subspace: object, names: tuple[str, ...], told: str) -> None:
    assert spanned(subspace, names) == told
    assert is_part(subspace, names) == (told != ", ".join(names))


def test_names_that_begin_alike_are_said_once() -> None:
    heads = [f"layer {layer} head {head}" for layer in (1, 2) for head in (1, 2)]
    assert grouped(heads[:2]) == "layer 1 heads 1, 2"
    assert grouped(heads[:3]) == "layer 1 heads 1, 2; layer 2 head 1"
    assert grouped(["layer 1, rank index 1", "layer 1, rank index 2"]) == "layer 1, rank indices 1, 2"
    assert grouped(["layer 1", "layer 2"]) == "layer 1, layer 2"
