"""Derivations of models that are known by heart: what is said of where learning begins, and what is not tried."""

from __future__ import annotations

from typing import Any

import pytest
import sympy as sp

import smisym
from smisym import SMI, Architecture, Attention
from smisym.link.program import Assign, Program


def bare() -> smisym.Model:
    """y = 2 z, by hand: there is no declaration."""
    z, y = sp.MatrixSymbol("z", 1, 1), sp.MatrixSymbol("y", 1, 1)
    return smisym.compile(Program((z,), (Assign(y, 2 * z),), y))


FIRST_ORDER = Architecture(2, (Attention(readout=0.1), Attention(readout=0.1), Attention()), limit="first_order")
AT_ONCE = r"since something is learned at any $\alpha$"


@pytest.mark.parametrize(
    ("network", "words", "threshold"),
    [
        (SMI("z1", 1), [AT_ONCE], "0"),
        (SMI("sign(z1)", 1), [AT_ONCE, "2 sheets in all"], "0"),
        (SMI("z1", 1, rank_ratio=0.5), [AT_ONCE, "The posterior mean keeps"], "0"),
        (bare(), [AT_ONCE, "a bare program has no tokens"], "0"),
        # abs(z): 1/(T(T+1)).
        (SMI("abs(z1)", 1), [], "0.5"),
    ],
)
def test_where_learning_begins_is_said_of_models_that_are_known_by_heart(
    network: Any, words: list[str], threshold: str
) -> None:
    trail = smisym.derive(network)
    text = "\n".join(step.text for step in trail)
    assert all(word in text for word in words)
    begins = [formula for step in trail for formula in step.formulas if formula.left == r"\alpha_c"]
    assert begins and {str(formula.right) for formula in begins} <= {threshold, r"\frac{1}{2}", "1/2"}


def test_first_order_in_the_readouts_says_what_it_drops_and_is_tried_on_the_network() -> None:
    trail = smisym.derive(FIRST_ORDER)
    (step,) = trail.stage("depth")
    assert "The 2 layers before the last act as a sum" in step.text and "an expansion and no limit" in step.text
    assert step.checks
