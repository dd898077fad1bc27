"""What objects show in a notebook: whole, self-contained HTML with formulas as MathML; and in a terminal one line."""

from __future__ import annotations

import dataclasses
import re
from typing import Any
from xml.etree import ElementTree as ET

import fake_results
import fake_solutions
import numpy as np
import pytest
from hypothesis import given, settings

import smisym
from smisym.base.cards import Card, Listing, Number
from smisym.base.derivation import Derivation, Formula
from smisym.declare.expressions import FUNCTIONS
from smisym.report.cards import card_html
from smisym.verify import strategies

A = smisym.Attention
NETWORKS = {
    "two layers": smisym.Architecture(2, (A(), A())),
    "heads": smisym.Architecture(3, (A(heads=3, rank=2, readout=(1.0, 0.5, -2.0)), A(heads=2))),
    "untied": smisym.Architecture(2, (A(tied=False, beta=1e-7, scale="1/sqrt(rank)", skip=0.25), A())),
    "masked": smisym.Architecture(2, (A(activation="tanh(s)", mask="causal"), A(position=((0.0, 1.0), (1.0, 0.0))))),
    "sequence": smisym.Architecture(2, (A(activation="linear"),), output="sequence", noise=1e-3),
    "summed": smisym.Architecture(2, (A(heads=2, activation="hardmax"),), combine="sum"),
    "deep": smisym.Architecture(2, (A(readout=1e-3),) * 1000 + (A(),), limit="ode"),
    "slices": smisym.Architecture(2, (A(heads=2), A(heads=2)), head_layout="split", statistic="gaussian"),
    "many": smisym.Architecture(2, tuple(A(beta=1.0 + n) for n in range(12))),
}
MODELS = {
    "one token": smisym.SMI(("z1*z2", "relu(z1) - tanh(z2)**2/2"), 2),
    "named": smisym.SMI(("key[1]*query_b[2]", "exp(key[2] - query_b[1])"), ("key", "query_b"), 2, noise=0.5),
    "names that meet": smisym.SMI(("z1 * z_1 + _ * x_y2 / alpha",), ("z1", "z_1", "_", "x_y2", "alpha")),
    "functions": smisym.SMI(
        tuple(f"{name}(z)" for name in FUNCTIONS if name not in ("max", "min", "log", "sqrt")), ("z",)
    ),
    "outputs": smisym.SMI(tuple(f"z1**{n}" for n in range(1, 30)), 1),
}


def shown() -> dict[str, Any]:
    found: dict[str, Any] = {**NETWORKS, **MODELS, "layer": A(heads=2)}
    found |= {f"solution: {name}": make() for name, make in fake_solutions.ALL.items() if name != "several"}
    found |= {"value": fake_solutions.point(0.5).value, "gamp's": fake_solutions.gamp().value}
    found |= {"thresholds'": fake_solutions.thresholds().value, "threshold": fake_solutions.thresholds().value[1]}
    found |= {"derivation": fake_results.derivation(), "no steps": Derivation()}
    return found


SHOWN = shown()


def piece(thing: Any) -> ET.Element:
    """The HTML, which is XML as well: elements are closed and nest, and what must be escaped is."""
    return ET.fromstring(thing._repr_html_())


def words(root: ET.Element) -> str:
    """What a reader sees: all text but the style and the LaTeX that formulas carry along to be copied."""
    for parent in root.iter():
        for child in [c for c in parent if c.tag.rpartition("}")[2] in ("style", "annotation")]:
            parent.remove(child)
    return "".join(root.itertext())


@pytest.mark.parametrize("name", SHOWN)
def test_a_piece_is_whole_and_holds_nothing_from_outside(name: str) -> None:
    root = piece(SHOWN[name])
    assert root.tag == "div" and root.get("class") == "smisym"
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags.isdisjoint({"script", "iframe", "link", "img", "image", "object", "foreignObject"})
    for element in root.iter():
        for key, value in element.attrib.items():
            key = key.rpartition("}")[2]
            assert not key.startswith("on") and key != "src", key
            assert key != "href" or value.startswith("#")
    text = ET.tostring(root, encoding="unicode")
    assert "url(http" not in text and "@import" not in text


@pytest.mark.parametrize("name", SHOWN)
def test_no_latex_is_left_for_the_reader(name: str) -> None:
    only_what_is_read(SHOWN[name])


def only_what_is_read(thing: Any) -> None:
    root = piece(thing)
    assert not [e for e in root.iter() if e.get("class") == "tex"]
    text = words(root)
    assert "\\" not in text and "$" not in text and not re.search(r"[_^]\{", text), text


@pytest.mark.parametrize("name", SHOWN)
def test_the_same_object_shows_the_same_and_says_who_it_is_in_one_line(name: str) -> None:
    thing = SHOWN[name]
    assert thing._repr_html_() == thing._repr_html_()
    if not isinstance(thing, smisym.Architecture | smisym.SMI):  # whose repr is the Python that makes them
        assert "\n" not in repr(thing) and len(repr(thing)) < 600


@pytest.mark.parametrize("name", [*NETWORKS, *MODELS])
def test_declarations_show_their_formulas(name: str) -> None:
    formulas = [e for e in piece(SHOWN[name]).iter() if e.tag == "math" and e.get("display") == "block"]
    assert 1 <= len(formulas) <= 12


def latex(thing: Any) -> list[str]:
    return [e.get("alttext", "") for e in piece(thing).iter() if e.tag == "math" and e.get("display") == "block"]


def test_a_network_is_the_recursion_that_was_declared() -> None:
    scores, first, last = latex(NETWORKS["two layers"])
    assert scores == r"S_\ell = \tfrac{1}{D} X_{\ell-1} W_\ell^{\top} W_\ell X_{\ell-1}^{\top}"
    assert first == r"X_{1} = \left(I + \mathrm{softmax}\left(S_{1}\right)\right) X_{0}"
    assert last == r"y = \mathrm{softmax}\left(S_{2}\right)"
    scores, first, _ = latex(NETWORKS["untied"])
    assert r"Q_\ell^{\top} K_\ell" in scores and r"0.25\, I" in first and r"1 \cdot 10^{-7}" in first
    _, only = latex(NETWORKS["sequence"])
    assert only == r"y = \left(I + S_{1}\right) X_{0} + \sqrt{0.001}\, \xi"
    assert any(
        r"o_a \sum_{a=1}^{3}" in formula or r"\sum_{a=1}^{3} o_a" in formula for formula in latex(NETWORKS["heads"])
    )


def test_two_fields_are_never_shown_as_one() -> None:
    (formula,) = latex(MODELS["names that meet"])
    assert all(rf"\mathrm{{{name}}}" in formula for name in ("z1", r"z\_1", r"\_", r"x\_y2", "alpha")), formula
    first, second = latex(MODELS["named"])
    assert first == r"y_{1} = \mathrm{key}_{1} \mathrm{query\_b}_{2}" and r"\mathrm{key}_{2}" in second


@given(declared=strategies.architectures() | strategies.models_by_expressions())
@settings(deadline=None, max_examples=40)
def test_whatever_is_declared_has_formulas_that_can_be_set(declared: Any) -> None:
    only_what_is_read(declared)


def test_a_thousand_equal_layers_are_one_line() -> None:
    _, inner, last = latex(NETWORKS["deep"])
    assert r"X_{\ell}" in inner and r"S_{1001}" in last
    assert "1 to 1000" in words(piece(NETWORKS["deep"]))


def test_a_model_shows_what_it_was_compiled_to() -> None:
    model = smisym.compile(NETWORKS["two layers"])
    text = words(piece(model))
    assert "layer 1, layer 2" in text and "free dimensions" in text and model.level_set.rule in text
    assert latex(model) == latex(NETWORKS["two layers"])
    steps = words(piece(model.derivation))
    assert all(step.title in steps for step in model.derivation if "$" not in step.title)
    assert (
        repr(model.derivation) == f"<Derivation: 'From the declaration to the denoiser', {len(model.derivation)} steps>"
    )


def test_what_failed_says_so_and_what_helps() -> None:
    for thing in (
        fake_solutions.point(0.5, result=smisym.Result.DIVERGED),
        fake_solutions.curve(),
        fake_solutions.gamp(),
    ):
        (notice,) = [e for e in piece(thing).iter() if e.get("class") == "notice"]
        assert re.search("damping|raise samples", "".join(notice.itertext()))
    assert not [e for e in piece(fake_solutions.thresholds()).iter() if e.get("class") == "notice"]
    failed = [e for e in piece(fake_solutions.curve()).iter() if e.get("class") == "failed"]
    assert len(failed) == 1


def test_numbers_come_with_their_errors() -> None:
    assert "0.250(5)" in words(piece(fake_solutions.point(0.5)))
    text = words(piece(fake_solutions.thresholds()))
    assert "0.1854779(18)" in text and "∞" in text and "hard" in text
    assert "−∞" in words(piece(fake_solutions.number()))


def test_long_tables_are_folded_and_figures_keep_apart() -> None:
    curve = fake_solutions.curve()
    assert "<details>" not in curve._repr_html_()
    long = smisym.Curve([*curve, *curve, *curve])
    assert "<summary>15 lines</summary>" in long._repr_html_()
    names = [{e.get("id") for e in piece(thing).iter() if e.get("id")} for thing in (curve, long)]
    assert all(names) and not names[0] & names[1]


def test_a_picture_of_blocks_from_three_rows_on() -> None:
    two = fake_solutions.point(0.5).value
    three = dataclasses.replace(two, Q=np.eye(3) / 2, Q_error=np.zeros((3, 3)), names=("a", "b", "c"))
    assert "<svg" not in two._repr_html_() and "<svg" in three._repr_html_()
    many = dataclasses.replace(two, Q=np.eye(20) / 2, Q_error=np.zeros((20, 20)), names=())
    assert "The first 8 of 20 rows." in words(piece(many)) and "row 8" in words(piece(many))


def test_names_and_words_of_others_stay_words() -> None:
    evil = "<script>alert('$x$')</script> & \"quotes\""
    card = Card(
        evil, evil, ((evil, evil),), (Formula("y", evil),), Listing((evil,), ((evil, Number(1.0, 0.1)),)), notes=(evil,)
    )
    root = ET.fromstring(card_html(card))
    assert "script" not in {element.tag for element in root.iter()}
    found = fake_solutions.thresholds().value
    named = smisym.Thresholds([dataclasses.replace(found[0], names=("<b>bold</b>",))], ("<i>", "&"))
    assert "<b>bold</b>" in words(piece(named))
    trail = Derivation("<script>")
    assert "<script>" in words(piece(trail))
