"""Programs without a chart of attention: each rule says what it misses, in the terms of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy as sp

import smisym
from smisym.base.derivation import Derivation
from smisym.charts import Refusal, find_level_set
from smisym.charts.attention import attention_matrices
from smisym.charts.mixed_scores import mixed_measurements
from smisym.charts.mixing import mixing_product
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


# One mixing matrix each of z and of w; w mixed by the first; and a symmetric matrix of fields, mixed by it.
I2, S, PAIR = sp.Identity(2), RowSoftmax, sp.MatrixSymbol("p", 2, 2)
OTHER, B, C = (sp.MatrixSymbol(name, 2, 2) for name in ("other", "b", "c"))
FIRST, OF_W = Assign(B, I2 + S(Z.T * Z)), Assign(C, I2 + S(W.T * W))
MIXED, BOTH, U = Assign(V, B * W.T), (Assign(C, I2 + S(V * V.T)), Assign(OUT, C * B)), sp.MatrixSymbol("u", 2, 1)
H = sp.MatrixSymbol("h", 1, 3)
ENTRIES = sp.ImmutableMatrix([[sp.sqrt(2) * H[0, 0], H[0, 1]], [H[0, 1], sp.sqrt(2) * H[0, 2]]])
SHORT = sp.ImmutableMatrix([[W[0, 0], W[0, 1]], [W[0, 1], W[0, 0]]])
UNEQUAL = sp.ImmutableMatrix([[1, 0], [0, 2]])


def seen(matrix: Any, *assigns: Assign, inputs: tuple[sp.MatrixSymbol, ...] = (H, Z)) -> Program:
    return program(*assigns, Assign(OUT, matrix), inputs=inputs)


@pytest.mark.parametrize(
    ("rule", "refused", "reason"),
    [
        (attention_matrices, Program((Z,), (Assign(OUT, S(Z.T * Z)), Assign(OTHER, S(Z.T * Z))), OUT, (OTHER,)),
         "two outputs share a field"),
        (attention_matrices,
         Program((Z, W), (FIRST, MIXED, Assign(OTHER, S(Z.T * Z)), Assign(OUT, S(V * V.T))), OUT, (OTHER,)),
         "depends on the fields of the last layer"),
        (attention_matrices,
         program(Assign(C, I2 + S(H[0, 0] * I2)), Assign(V, C * Z.T), Assign(U, W.T), Assign(OUT, S(V * U.T)),
                 inputs=(Z, W, H)), "mixed by different matrices"),
        (mixing_product, program(Assign(B, UNEQUAL + S(Z.T * Z)), MIXED, *BOTH), "no multiple of the identity"),
        (mixing_product, program(Assign(B, I2 + S(Z.T * Z + W.T * W)), MIXED, *BOTH), "are not k U V^T"),
        (mixing_product, program(Assign(B, I2 + S(PAIR.T * PAIR)), MIXED, *BOTH, inputs=(PAIR, W)), "a rank above one"),
        (mixing_product, program(FIRST, OF_W, Assign(OUT, C * B)), "not mixed by the layers before"),
        (mixing_product, program(FIRST, Assign(V, B * Z.T), *BOTH, inputs=(Z,)), "depends on"),
        (mixed_measurements, seen(B * ENTRIES * C.T, FIRST, OF_W, inputs=(H, Z, W)), "different matrices"),
        (mixed_measurements, seen(B * ENTRIES * B.T, Assign(B, I2 + S(ENTRIES)), inputs=(H,)), "depends on the fields"),
        (mixed_measurements, seen(B * ENTRIES.applyfunc(lambda e: e**2) * B.T, FIRST), "one symmetric matrix"),
        (mixed_measurements, seen(B * (3 * ENTRIES) * B.T, FIRST), "one symmetric matrix"),
        (mixed_measurements, seen(B * SHORT * B.T, FIRST, inputs=(W, Z)), "one symmetric matrix of fields"),
        (mixed_measurements, seen(B * ENTRIES * B.T, Assign(B, I2 - S(Z.T * Z))), "is singular"),
    ],
)  # fmt: skip
def test_each_rule_says_why_a_link_is_not_its_own(rule: Callable[[Any], Any], refused: Program, reason: str) -> None:
    found = rule(link_function(refused, Derivation()))
    assert isinstance(found, Refusal) and reason in found.reason


def test_scores_with_a_constant_have_the_chart_of_a_product() -> None:
    """Positions in the first layer: the chart gives its outputs back."""
    link = link_function(program(Assign(B, I2 + S(Z.T * Z + UNEQUAL)), MIXED, *BOTH), Derivation())
    chart = mixing_product(link)
    assert not isinstance(chart, Refusal)
    report = smisym.verify.check(smisym.compile(link.program), only=["level-set", "sheets", "measure"], seconds=60)
    assert report.ok, report.summary()
