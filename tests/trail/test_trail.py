"""The trail of a right model: its own symbols, what is proved by algebra, and what is not said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention
from smisym.base.derivation import Step
from smisym.report.outlining import is_plain_math, outline
from smisym.trail import notation, proofs
from smisym.trail.claims import Claim, Part, tried
from smisym.verify.properties import Subject, Tried, left_out

# Seconds of the processor in which every claim is tried on any machine.
PLENTY = 60.0
MODELS = {
    "two layers": Architecture(2, (Attention(), Attention())),
    "rotations": Architecture(2, (Attention(rank=2),)),
    "split": Architecture(2, (Attention(heads=2), Attention(heads=2)), head_layout="split"),
    "coupled": SMI(("z1*z2 + z1", "z2**2"), 2),
    "noise": Architecture(2, (Attention(tied=False),), noise=0.1),
    "closure": Architecture(
        2, (*[Attention(readout=0.2)] * 3, Attention()), limit="first_order", statistic="gaussian"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_every_formula_can_be_set_and_unasked_checks_are_not_ticked_off(name: str) -> None:
    trail = smisym.derive(MODELS[name], checks=False)
    for section in outline(trail):
        for item in section.steps:
            for equation in item.equations:
                assert is_plain_math(equation.latex), equation.latex
    first = len(smisym.compile(MODELS[name]).derivation)
    for step in trail.steps[first:]:
        assert not step.checks and step.source
    assert "checks were not asked for" in trail.stage("entropy")[0].text


@pytest.mark.parametrize("name", ["two layers", "rotations", "split", "coupled"])
def test_matrix_calculus_holds_on_the_overlap_of_a_model(name: str) -> None:
    symmetry = smisym.compile(MODELS[name]).symmetry
    assert proofs.affordable(symmetry)
    assert not any(proofs.stationary_in_conjugate(symmetry)) and proofs.eliminated(symmetry) == 0
    Q = notation.overlap_matrix(symmetry)
    values = dict(zip(notation.block_symbols(symmetry), np.linspace(0.2, 0.3, len(symmetry.basis)), strict=True))
    assert np.allclose(np.array(Q.subs(values), dtype=float), symmetry.matrix(np.array(list(values.values()))))


def test_an_approximation_is_not_held_to_what_is_exact() -> None:
    trail = smisym.derive(MODELS["closure"], seconds=PLENTY)
    assert "central limit" in trail.stage("nishimori")[0].text and not trail.stage("nishimori")[0].checks
    assert "a quarter of the error" in dict(trail.stage("depth")[0].checks).popitem()[1]


def test_what_there_is_no_time_for_says_so_and_algebra_is_done_at_any_rate() -> None:
    network = SMI("abs(z1)", 1)
    step = smisym.derive(network, seconds=0).stage("entropy")[0]
    assert "Not run, since the 0 seconds of the processor" in step.text
    assert [how for _, how in step.checks] and all("symbolically" in how for _, how in step.checks)
    assert smisym.derive(network, seconds=1e-3, checks=False).origin.command.count("--seconds 0.001 ") == 1
    with pytest.raises(smisym.InputError, match="seconds"):
        smisym.derive(network, seconds=-1.0)


def test_what_was_not_tried_stands_in_the_text_and_what_fails_is_raised() -> None:
    subject = Subject(smisym.compile(SMI("abs(z1)", 1)))

    def part(outcome: Tried) -> Part:
        return Part(lambda _: Step("x", "A step", "Text."), (Claim("it holds", lambda s, level: outcome),))

    step = tried(part(left_out("it is too dear")), subject)
    assert not step.checks and "Not run, since it is too dear: that it holds." in step.text
    step = tried(part(Tried(3, "cases", 0.02)), subject)
    assert step.checks == (("it holds", "3 cases; deviation below 0.1 of the tolerance"),)
    with pytest.raises(smisym.DerivationError, match=r"'A step'.*it holds.*7 times what is allowed over 3 cases"):
        tried(part(Tried(3, "cases", 7.0, None, False)), subject)


def test_extensive_rank_is_given_no_formula_of_gaussian_rows() -> None:
    trail = smisym.derive(Architecture(2, (Attention(rank_ratio=0.5),)), seconds=PLENTY)
    printed = " ".join(str(f.right) for step in trail.steps for f in step.formulas)
    assert r"(I + \hat Q)^{-1}" not in printed and r"\log\det" not in printed
    assert "no normal equations of their own" in trail.stage("prior")[-1].text
    assert "N/D^2" in trail.stage("evolution")[0].text and len(trail.stage("evolution")[0].checks) == 2


def test_heads_that_split_the_embedding_have_fields_in_units_of_their_slice() -> None:
    trail = smisym.derive(MODELS["split"], checks=False)
    assert trail.stage("architecture")[0].formulas[0].right == r"W X^{\top} / \sqrt{D/2}"
    assert "h_l = w_l X^{\\top} / \\sqrt{D/2}" in trail.stage("link")[0].text


def test_log_ratios_that_a_chart_is_written_in_are_said() -> None:
    """Under a causal mask the second row shows h2 (h1 - h2), not an entry of y."""
    step = smisym.compile(Architecture(3, (Attention(mask="causal"),))).derivation.stage("chart")[1]
    assert str(step.formulas[0].right) == r"\log \left(y_{21} / y_{22}\right)"
    assert "orthant" not in step.text


def test_a_first_threshold_has_its_number_where_time_is_short_or_says_what_gives_it() -> None:
    step = smisym.derive(SMI("z1**2*z2", 2), checks=False).stage("stability")[0]
    assert "The command smisym thresholds gives it" in step.text and "--seconds inf" in step.text
    assert not any(f.note and "samples of" in f.note for f in step.formulas)
    step = smisym.derive(Architecture(2, (Attention(activation="hardmax"),)), seconds=6.0).stage("stability")[0]
    # Sampled, or integrated over outputs where the machine is quick enough: the last digit is the error then.
    (number,) = [f for f in step.formulas if f.note and "as solvers find it" in f.note]
    value, _, error = str(number.right).partition(r"\pm")
    assert (r"\pm" in str(number.right)) == ("outputs, with one standard error" in number.note)
    assert abs(float(value) - np.pi**2 / 12) < 5 * float(error or 1e-4) < 0.5


def test_all_that_is_trivial_is_named_and_nothing_comes_later() -> None:
    trail = smisym.derive(SMI("z1*exp(z2)", 2), seconds=3.0)
    notes = [f.note for f in trail.stage("stability")[0].formulas if str(f.right) == "0"]
    assert notes == ["z1: trivial", "z2: trivial"]
    later = next(step for step in trail.stage("recovery") if step.title == "Later thresholds")
    assert "no weak recovery comes later" in later.text
    other = smisym.derive(SMI("z1*abs(z2)", 2), checks=False).stage("recovery")[0]
    assert "2 parts; the command smisym thresholds" in other.text


def test_what_must_be_told_a_least_amount_is_written_so() -> None:
    """Matrices of a rank that is small beside their dimension: hardmax is learned from alpha = 1 / (2 E(0)) on."""
    declared = Architecture(2, (Attention(rank_ratio=0, activation="hardmax"),))
    step = smisym.derive(declared, seconds=2.0).stage("stability")[0]
    assert "nothing is learned until it reaches 1," in step.text
    law, number = (str(f.right) for f in step.formulas if str(f.left) == r"\alpha_c")
    assert law == r"\frac{1}{2\, E(0)}"
    assert float(number) == pytest.approx(0.40341, abs=2e-5)


def test_a_derivation_waits_for_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a cache that is empty nothing is compiled, and what compilers would have made can be made afterwards."""
    monkeypatch.setenv("SMISYM_CACHE", str(tmp_path))
    trail = smisym.derive(Architecture(2, (Attention(tied=False, beta=1.375), Attention(beta=0.625))), seconds=1.0)
    assert len(trail) > 15 and not list(tmp_path.rglob("*.nbi"))
