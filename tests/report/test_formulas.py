"""Numbers with their errors, prose with its formulas, and formulas as MathML."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from xml.etree import ElementTree as ET

import fake_results
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from smisym.report.mathml_text import mathml
from smisym.report.numbers import format_with_error, number_latex
from smisym.report.outlining import Fragment, fragments, is_plain_math, outline, paragraphs, to_latex

# --- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "error", "expected"),
    [
        (0.71942, 6e-4, "0.7194(6)"),
        (0.1854781, 1e-4, "0.18548(10)"),
        (0.1855, 1.9e-5, "0.185500(19)"),
        (0.1855, 1.96e-5, "0.18550(2)"),
        (5.0, 0.096, "5.00(10)"),
        (5.0, 0.0949, "5.00(9)"),
        (5.0, 0.95, "5.0(1.0)"),
        (12.3, 1.5, "12.3(1.5)"),
        (123.4, 5, "123(5)"),
        (12345, 678, "12300(700)"),
        (-0.5, 0.03, "−0.50(3)"),
        (-0.001, 0.02, "0.00(2)"),
        (3e-12, 2e-12, "3(2)×10⁻¹²"),
        (0.0, 2e-10, "0(2)×10⁻¹⁰"),
        (123456789, 1200, "1.234568(12)×10⁸"),
        (1.0, 0.0, "1"),
        (0.1, 0, "0.1"),
        (0.0, 0.0, "0"),
        (-0.0, None, "0"),
        (1 / 3, None, "0.333333"),
        (1.2e-17, None, "1.2×10⁻¹⁷"),
        (0.71942, math.inf, "0.7194(∞)"),
        (0.5, math.nan, "0.5"),
        (None, 0.1, "–"),
        (math.nan, None, "–"),
        (math.inf, 0.0, "∞"),
        (-math.inf, None, "−∞"),
    ],
)
def test_numbers_with_errors(value: float | None, error: float | None, expected: str) -> None:
    assert format_with_error(value, error) == expected


def test_numbers_in_latex() -> None:
    assert number_latex(format_with_error(-3.2e-7, 4e-9)) == r"-3.20(4)\times 10^{-7}"
    assert number_latex("0.5(∞)") == r"0.5(\infty)"
    assert number_latex("0.7194(6)") == "0.7194(6)"


def test_a_negative_error_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        format_with_error(1.0, -0.1)


@given(
    st.floats(-1e12, 1e12, allow_subnormal=False),
    st.floats(1e-12, 1e12),
)
def test_a_number_with_error_reads_back_within_its_last_digit(value: float, error: float) -> None:
    shown = format_with_error(value, error).replace("−", "-")
    power = re.search(r"×10([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)$", shown)
    scale = Decimal(10) ** int(power[1].translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")) if power else 0)
    number, inside = re.fullmatch(r"(-?[\d.]+)\(([\d.]+)\)", shown.split("×")[0]).groups()
    places = len(number.partition(".")[2])
    read_error = Decimal(inside) if "." in inside or not places else Decimal(inside).scaleb(-places)
    assert len(inside.replace(".", "").strip("0")) <= 2
    # One digit of 2 or more, or two digits: rounding moves the error, and the value, by a quarter of the error at most.
    assert abs(float(read_error * scale) / error - 1) <= 0.2501
    assert abs(Decimal(number) * scale - Decimal(repr(value))) <= Decimal(repr(error)) * Decimal("0.2501")


# --- prose and formulas ----------------------------------------------------------------------------


def test_prose_is_cut_at_dollars_that_hold_a_formula() -> None:
    assert fragments(r"so $x_1$, not \$5.") == (Fragment("so "), Fragment("x_1", True), Fragment(", not $5."))
    assert fragments("from $5 to $6 a piece") == (Fragment("from $5 to $6 a piece"),)
    assert fragments("a $ alone") == (Fragment("a $ alone"),)
    assert fragments("") == ()
    assert len(paragraphs("one\nline\n\nthe $x$\n\n\n")) == 2


def test_formulas_that_are_refused_are_those_that_could_break_a_document() -> None:
    good = [
        r"\left[\begin{matrix}a & b\\c & d\end{matrix}\right]",
        r"\left. x \right|_{0}",
        r"\{ Z \}",
        r"100\%",
        r"\text{a \& b}",
        r"a < b",
        r"\displaystyle x",
        r"\letter",
    ]
    bad = [
        "",
        r"\frac{a",
        "a}",
        r"\left( x",
        r"a & b",
        r"a \\ b",
        "$",
        "%",
        "a\\",
        r"\input{x}",
        r"\href{x}{y}",
        r"\write18{x}",
        r"\begin{verbatim}",
        r"\end{equation} x \begin{equation}",
        r"\begin{matrix}a\end{cases}",
        "a`b",
        r"\tag{7}",
        "^^5c",
    ]
    assert [latex for latex in good if not is_plain_math(latex)] == []
    assert [latex for latex in bad if is_plain_math(latex)] == []


def test_sympy_is_printed_in_the_conventions_of_the_papers() -> None:
    h, B, y = sp.MatrixSymbol("h_1", 1, 2), sp.MatrixSymbol("B_1", 2, 2), sp.MatrixSymbol("y", 2, 2)
    x = sp.Symbol("x")
    assert to_latex(h[0, 1]) == "h_{1,2}"
    assert to_latex(B[0, 1]) == "B_{1,12}"
    assert to_latex(y[1, 0]) == "y_{21}"
    assert to_latex(sp.MatrixSymbol("c", 1, 1)[0, 0] + x) == "x + c"
    assert to_latex((B * h.T).doit()) == r"B_{1} h_{1}^{\top}"
    assert to_latex(sp.Transpose(B + y)) == r"\left(B_{1} + y\right)^{\top}"
    assert to_latex(sp.Identity(2)) == "I"
    assert to_latex(sp.exp(x)) == "e^{x}"
    assert to_latex(sp.exp(x * (x - 1) / 7)).startswith(r"\exp\left(")
    assert to_latex("  a\n b ") == "a b"


def _presentation(latex: str, *, display: bool = False) -> ET.Element:
    root = ET.fromstring(mathml(latex, display=display))
    assert root.get("alttext") == latex
    assert root[0][1].text == latex
    return root[0][0]


def _leaves(element: ET.Element) -> list[str]:
    return [f"{leaf.tag}:{leaf.text or ''}" for leaf in element.iter() if not len(leaf)]


def test_names_of_functions_are_upright_and_spaced_as_in_tex() -> None:
    assert _leaves(_presentation(r"2\log\det V")) == [
        "mn:2",
        "mspace:",
        "mi:log",
        "mspace:",
        "mi:det",
        "mspace:",
        "mi:V",
    ]
    assert _leaves(_presentation(r"\tanh(x)")) == ["mi:tanh", "mo:(", "mi:x", "mo:)"]
    assert _leaves(_presentation(r"\operatorname{tr} Q")) == ["mi:tr", "mspace:", "mi:Q"]
    assert _leaves(_presentation(r"\mathrm{softmax}_{\mathrm{row}}")) == ["mi:softmax", "mi:row"]


def test_signs_bars_letters_and_fences_are_what_they_mean() -> None:
    unary = next(o for o in _presentation("x = -y").iter("mo") if o.text == "−")
    binary = next(o for o in _presentation("x - y").iter("mo") if o.text == "−")
    assert (unary.get("form"), binary.get("form")) == ("prefix", None)
    assert [o.get("form") for o in _presentation(r"\lVert x\rVert_F").iter("mo")] == ["prefix", "postfix"]
    assert [o.get("form") for o in _presentation(r"p(y | z)").iter("mo") if o.text == "|"] == [None]
    assert _leaves(_presentation(r"\boldsymbol{\omega}\mathbf{1}\mathbf{\Sigma}")) == ["mi:𝝎", "mn:𝟏", "mi:𝚺"]
    assert _leaves(_presentation(r"\mathit{x}\mathbf{x}")) == ["mi:𝑥", "mi:𝐱"]
    styles = [_presentation(rf"\text{how}{{a b}}").find("mtext").get("style") for how in ("bf", "it", "")]
    assert styles == ["font-weight: bold", "font-style: italic", None]
    assert _presentation(r"\pm u").find("mo").text == "±"
    low, tall = (_presentation(rf"\left({inner}\right)").find(".//mo") for inner in ("x", r"\frac{x}{y}"))
    assert (low.get("stretchy"), tall.get("stretchy")) == ("false", "true")
    assert _presentation(r"\max_x f", display=True).find("munder") is not None
    assert _presentation(r"\begin{aligned}a&=b\\c&=d\end{aligned}").find("mtable") is not None


def test_text_in_formulas_is_escaped_and_unknown_commands_are_refused() -> None:
    assert "<b>" not in mathml(r"\text{a <b> \& c}")
    assert _leaves(_presentation(r"\text{a <b> \& c}")) == ["mtext:a\u00a0<b>\u00a0&\u00a0c"]
    for latex in (r"\unknown x", "x^2^3", r"\href{javascript:alert(1)}{x}", r"\frac{a"):
        with pytest.raises(ValueError, match=re.escape(latex.split()[0][:5])):
            mathml(latex)
    with pytest.raises(ValueError, match="an element that is not known here: menclose"):
        mathml(r"\boxed{x}")


def test_only_known_elements_and_attributes_are_written() -> None:
    for section in outline(fake_results.derivation()):
        for step in section.steps:
            for equation in step.equations:
                text = mathml(equation.latex, display=True)
                assert not re.search(r"mathvariant=\"(?!normal)", text)
                assert not re.search(r"\s(href|on\w+|class|mathcolor|columnalign|fence)=", text)
