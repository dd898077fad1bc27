"""Derivations where the weights are one matrix: what is said of Gaussian weights alone is not said, and counts hold."""

from __future__ import annotations

import pytest

import smisym
from smisym import SMI, Architecture, Attention
from smisym.base.derivation import Derivation

DECLARED = {
    "symmetric": Architecture(2, (Attention(rank_ratio=0.5),)),
    "rectangular": SMI("z1", 1, rank_ratio=0.5, aspect=2.0),
}


def told(derivation: Derivation) -> str:
    """All formulas, as LaTeX."""
    return "\n".join(f"{formula.left} = {formula.right}" for step in derivation for formula in step.formulas)


@pytest.mark.parametrize("name", DECLARED)
def test_a_derivation_of_matrices_is_tried_and_says_what_the_prior_leaves(name: str) -> None:
    """Nothing stops it, the count of free numbers is the prior's, and neither
    Q_hat / (1 + Q_hat) nor its logarithm is written."""
    model = smisym.compile(DECLARED[name])
    derivation = smisym.derive(model, seconds=2.0)
    written = told(derivation)
    assert r"1 - F\big(1 / \hat Q^{(k)}\big)" in written and r"\Psi(\hat Q)" in written
    assert r"\left(I + \hat Q^{(k)}\right)^{-1}" not in written and r"\log\det" not in written
    (counted,) = [step for step in derivation if step.title == "Perfect recovery by counting"]
    assert any(formula.left == r"\dim \mathcal{S}" for formula in counted.formulas)
    tried = [str(check) for step in derivation for check in step.checks]
    assert any("$S$ changes along a segment by the integral of its derivative" in check for check in tried)
    plain = told(smisym.derive(SMI("z1", 1), checks=False))
    assert r"\log\det" in plain and r"\Psi" not in plain
