"""Long formulas, cut where they may end a line."""

from __future__ import annotations

import pytest

from smisym.report.breaking import Before, pieces


@pytest.mark.parametrize(
    ("latex", "cut"),
    [
        (r"a = b + c", ["a", "{}= b", "{}+ c"]),
        (r"x = -y \cdot -z", ["x", r"{}= -y \cdot -z"]),
        (r"f(a + b) = \left(c - d\right)^{2}", ["f(a + b)", r"{}= \left(c - d\right)^{2}"]),
        (r"\Big(a + \big[b = c\big]\Big) - e", [r"\Big(a + \big[b = c\big]\Big)", "{}- e"]),
        (r"\begin{matrix}a = b\\c + d\end{matrix} \approx \{e + f\}", [
            r"\begin{matrix}a = b\\c + d\end{matrix}", r"{}\approx \{e", r"{}+ f\}"
        ]),
        (r"x \in [0, 1) = y", [r"x \in [0, 1)", "{}= y"]),
        (r"] a = b", ["] a = b"]),
        (r"\log\det V - 1", [r"\log\det V", "{}- 1"]),
        (r"= a", ["= a"]),
        (r"z, \mathbb{R}_+ + A^- = c", [r"z, \mathbb{R}_+", "{}+ A^-", "{}= c"]),
    ],
)  # fmt: skip
def test_formulas_break_before_relations_and_signs_outside_of_brackets(latex: str, cut: list[str]) -> None:
    assert [piece.latex for piece in pieces(latex)] == cut


def test_gaps_are_kept_apart_and_come_first() -> None:
    first, equals, second, sign = pieces(r"a = b,\qquad \quad c - d")
    assert (second.latex, second.gap, second.before) == ("c", r"\qquad\quad", Before.GAP)
    assert (first.before, equals.before, sign.before) == (Before.GAP, Before.RELATION, Before.SIGN)
    assert equals.latex == "{}= b,"
