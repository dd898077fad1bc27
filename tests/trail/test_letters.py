"""The step that says what the letters are: of every kind of weights, with the shapes of the model, in every format."""

from __future__ import annotations

import re

import pytest

import smisym
from smisym import SMI, Architecture, Attention
from smisym.base.derivation import Derivation, Step
from smisym.declare.architecture import Architecture as Declared
from smisym.report import html, latex, markdown
from smisym.report.outlining import is_plain_math, to_latex

OFF_DIAGONAL = tuple(tuple(i != j for j in range(3)) for i in range(3))
# Declarations, entries of a row of weights, samples, what a column of the fields is a product with.
KINDS = {
    "layers": (Architecture(2, (Attention(), Attention())), "D", "D", "token"),
    "expressions": (SMI("sign(z1) + z2", 2, noise=0.1), "D", "D", "token"),
    "split heads": (Architecture(2, (Attention(heads=2),), head_layout="split"), "D/2", "D", "token"),
    "symmetric": (Architecture(2, (Attention(rank_ratio=0.5),)), "M", "D^2", "sensing matrices"),
    "small width": (Architecture(2, (Attention(rank_ratio=0),)), "M", "rD", "sensing matrices"),
    "two matrices": (
        Architecture(2, (Attention(rank_ratio=1), Attention(rank_ratio=1))),
        "M",
        "D^2",
        "sensing matrices",
    ),
    "untied": (
        Architecture(3, (Attention(rank_ratio=1, tied=False, mask=OFF_DIAGONAL),)),
        "M",
        "D^2",
        "sensing matrices",
    ),
    "rectangular": (SMI("z1", 1, rank_ratio=0.5), "D", "D", "token"),
}


def written(declared: Declared | SMI) -> Derivation:
    return smisym.derive(declared, checks=False)


def texts(step: Step) -> str:
    formulas = [f"{to_latex(f.left) if f.left is not None else ''} {to_latex(f.right)} {f.note}" for f in step.formulas]
    return "\n".join([step.text, *formulas])


@pytest.mark.parametrize("kind", list(KINDS))
def test_letters_have_the_shapes_of_the_model(kind: str) -> None:
    declared, entries, samples, seen = KINDS[kind]
    model, trail = smisym.compile(declared), written(declared)
    first, step = trail.steps[:2]
    assert (step.title, step.stage) == ("Notation", first.stage)
    told = texts(step)
    P, T = model.fields, model.tokens
    assert rf"W \in \mathbb{{R}}^{{{P} \times {entries}}}" in told
    assert rf"\in \mathbb{{R}}^{{{P} \times {T}}}" in told
    assert rf"Q, E, \hat Q \in \mathbb{{R}}^{{{P} \times {P}}}" in told
    shape = r" \times ".join(map(str, model.link.output_shape))
    assert rf"y \in \mathbb{{R}}^{{{shape}}}" in told
    assert rf"\alpha\, {samples}" in told and seen in told
    assert all(is_plain_math(to_latex(formula.right)) for formula in step.formulas)


@pytest.mark.parametrize("kind", list(KINDS))
def test_columns_of_the_weights_have_one_name(kind: str) -> None:
    """Message passing speaks of the columns that the notation has, and of as many entries."""
    declared, entries, _, seen = KINDS[kind]
    trail = written(declared)
    whole, passing = "\n".join(map(texts, trail)), "\n".join(map(texts, trail.stage("gamp")))
    assert not re.search(r"\\hat w|w_i\b|w_\{i", whole)
    assert r"\hat W_{i \to \mu}" in passing or "M" in entries or kind == "rectangular"
    assert rf"\sqrt{{{entries}}}" in passing and seen in passing
    assert ("slice" in passing) == (kind == "split heads")


def test_every_format_has_the_step() -> None:
    trail = written(KINDS["symmetric"][0])
    for page in (html.derivation_page(trail), markdown.derivation_text(trail), latex.derivation_document(trail)):
        assert "Notation" in page and "sensing matrices" in page


@pytest.mark.parametrize(
    ("declared", "left_out"),
    [
        (SMI("abs(z1)", 1), False),
        (Architecture(2, (Attention(rank_ratio=0.5),)), False),
        (Architecture(3, (Attention(rank=3),)), True),
        (SMI("sign(z1)", 1), False),  # a probability
        (SMI("z1 + sin(z1)/2", 1), False),  # no chart, every output told by itself
        (Architecture(2, (Attention(activation="tanh(s) + s**2"),)), True),  # no chart, more outputs than coordinates
    ],
)
def test_a_factor_of_the_output_is_left_out_only_where_there_is_one(declared: Declared | SMI, left_out: bool) -> None:
    model = smisym.compile(declared)
    (step,) = (step for step in model.derivation if step.title == "Posterior moments and the denoiser")
    assert ("is left out" in texts(step)) == left_out
    chart = model.level_set
    if chart is not None:
        assert ("this is a density" in texts(step)) == (chart.density or chart.complete)
