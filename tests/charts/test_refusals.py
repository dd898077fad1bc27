"""Programs without a chart of attention: each rule says what it misses, in the terms of the program."""

from __future__ import annotations

import pytest
import sympy as sp

import smisym
from smisym.base.derivation import Derivation
from smisym.charts import find_level_set
from smisym.link.linking import link_function
from smisym.link.program import Assign, Program, RowSoftmax

Z, W = sp.MatrixSymbol("z", 1, 2), sp.MatrixSymbol("w", 1, 2)
V, OUT = sp.MatrixSymbol("v", 2, 1), sp.MatrixSymbol("out", 2, 2)


def program(*assigns: Assign, inputs: tuple[sp.MatrixSymbol, ...] = (Z, W)) -> Program:
    return Program(inputs, assigns, OUT)


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (
            program(Assign(V, (sp.Identity(2) + RowSoftmax(Z.T * Z)) * Z.T), Assign(OUT, RowSoftmax(V * V.T)),
                    inputs=(Z,)),
            "depends on",
        ),
        (program(Assign(OUT, RowSoftmax(-Z.T * Z)), inputs=(Z,)), "the coefficient -1 of the scores is not a positive"),
        (program(Assign(OUT, RowSoftmax(Z.T * Z) * RowSoftmax(W.T * W))), "not a known affine map"),
    ],
)  # fmt: skip
def test_rules_say_what_they_miss(refused: Program, words: str) -> None:
    """In the error where no rule has a chart, else in the step that lists the rules before the one that has."""
    trail = Derivation()
    try:
        find_level_set(link_function(refused, trail), trail)
        told = "\n".join(step.text for step in trail.stage("chart"))
    except smisym.NoChartError as error:
        told = str(error)
    assert words in told
