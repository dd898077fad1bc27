"""What declarations say of what they refuse: what is meant, and what fits."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import fields, replace

import pytest

import smisym


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: smisym.Attention(activaton="softmax"), ("activaton", "write activation if that was meant")),
        (lambda: smisym.Architecture(token=2, layers=(smisym.Attention(),)), ("token", "write tokens")),
        (lambda: smisym.SMI(fields=["z1"], expression=["z1"]), ("expression", "write expressions")),
        (lambda: smisym.Attention(readout=0), ("of size 1e+06 at most. To fix: give another number",)),
        (lambda: smisym.Attention(readout=0, heads=2), ("or 2 of them, one a head", "leave out a head")),
        (
            lambda: smisym.Attention(mask=[[True] * 3] * 2),
            ("given 2 rows of 3 entries", "for two tokens two rows of two"),
        ),
        (lambda: smisym.SMI(fields=["z1"], expressions=["eval(z1)"]), ("eval", "use one of these names")),
        (lambda: smisym.SMI(fields=["z1"], expressions=["z3**2"]), ('write "z1" if that was meant',)),
    ],
)
def test_what_is_refused_is_said(declare: Callable[[], object], words: tuple[str, ...]) -> None:
    with pytest.raises(smisym.InputError) as caught:
        declare()
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_declarations_keep_their_signatures() -> None:
    for kind in (smisym.Attention, smisym.Architecture, smisym.SMI):
        assert list(inspect.signature(kind).parameters) == [field.name for field in fields(kind)]
    layer = smisym.Attention(rank=2)
    assert replace(layer, skip=2.0) == smisym.Attention(2, 2.0)
    assert pickle.loads(pickle.dumps(layer)) == copy.deepcopy(layer) == layer
