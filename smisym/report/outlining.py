"""Derivation -> numbered outline: what the HTML, Markdown and LaTeX writers have in common.

Sections follow the stages in the order recorded, equations are numbered through, prose is cut into
text and inline formulas.  Nothing here knows a markup language other than the LaTeX of the formulas.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any

import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixElement
from sympy.printing.latex import LatexPrinter

from smisym.base.derivation import Derivation, Formula, Origin, Step
from smisym.base.references import Reference, named
from smisym.base.symbols import indexed

STAGE_TITLES = {
    "architecture": "Architecture",
    "link": "Link function",
    "symmetry": "Symmetry",
    "chart": "Level set",
    "channel": "Channel",
    "trial": "The compiled model, tried",
    "depth": "Large depth",
    "prior": "Prior",
    "nishimori": "Nishimori identities",
    "gamp": "Message passing",
    "evolution": "State evolution",
    "entropy": "Free entropy",
    "stability": "Weak recovery",
    "recovery": "Later thresholds and perfect recovery",
    "prediction": "Prediction errors",
    "model": "Model",
}

# Of stages that are entered again; of any other one the title, continued.
STAGES_AGAIN = {"link": "Parts of the link function"}

# Commands with which a formula could read or write files, load the network or redefine others.
_FORBIDDEN = (
    "begingroup|bibliography|catcode|class|closein|closeout|csname|def|directlua|edef|endcsname|endgroup|endinput|eqref|"
    "everymath|expandafter|gdef|global|href|htmlClass|htmlData|htmlId|htmlStyle|immediate|include|includegraphics|input|"
    "label|let|makeatletter|newcommand|newread|newwrite|nonumber|notag|openin|openout|par|read|ref|renewcommand|require|"
    "special|style|tag|unicode|url|usepackage|verbatiminput|write|xdef"
)
_FORBIDDEN_COMMAND = re.compile(rf"\\(?:{_FORBIDDEN})(?![A-Za-z])")
_ENVIRONMENTS = frozenset(
    "matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix smallmatrix array cases aligned gathered split".split()
)
_TOKEN = re.compile(r"\\begin\{(?P<begin>[^{}]*)\}|\\end\{(?P<end>[^{}]*)\}|\\[A-Za-z]+|\\.|.", re.DOTALL)
_CLOSES = {"}": "{", r"\right": r"\left"}
# A dollar opens a formula only before, and closes one only after, something that is not a space.
_MATH = re.compile(r"(?<!\\)\$(?!\s)((?:[^$\\]|\\.)+?)(?<!\s)\$(?!\d)", re.DOTALL)


@dataclass(frozen=True)
class Fragment:
    """A piece of prose: plain text, or the LaTeX of an inline formula."""

    content: str
    is_math: bool = False


@dataclass(frozen=True)
class Equation:
    """A displayed equation with its number in the document."""

    number: int
    latex: str
    note: str
    code: str


@dataclass(frozen=True)
class NumberedStep:
    """A step with its number, "2.1", and its equations."""

    number: str
    step: Step
    equations: tuple[Equation, ...]


@dataclass(frozen=True)
class Section:
    """A run of consecutive steps of one stage."""

    number: int
    title: str
    steps: tuple[NumberedStep, ...]


def outline(derivation: Derivation) -> tuple[Section, ...]:
    """Sections, steps and equations, numbered in the order in which they were recorded.

    A stage that was left and entered again opens a new section, by another title: the order of the trail is never
    changed.
    """
    sections: list[Section] = []
    count, before = itertools.count(1), set[str]()
    for number, (stage, run) in enumerate(itertools.groupby(derivation, key=lambda step: step.stage), start=1):
        steps = tuple(
            NumberedStep(f"{number}.{k}", step, tuple(_equation(next(count), f) for f in step.formulas))
            for k, step in enumerate(run, start=1)
        )
        title = STAGE_TITLES.get(stage, stage.replace("_", " ").strip().capitalize())
        if stage in before:
            title = STAGES_AGAIN.get(stage, f"{title or 'Steps'}, continued")
        before.add(stage)
        sections.append(Section(number, title or "Steps", steps))
    return tuple(sections)


def references(derivation: Derivation) -> tuple[Reference, ...]:
    """The papers that sources of the steps name, in the order in which they are met."""
    return named(step.source for step in derivation)


@dataclass(frozen=True)
class Reproduced:
    """What a document says of how it is made again: code, and lines of (label, text)."""

    declaration: str
    command: str
    lines: tuple[tuple[str, str], ...]


def reproduced(origin: Origin | None) -> Reproduced | None:
    """The box of a derivation that says where it is from; None of one that does not."""
    if origin is None:
        return None
    chance = (
        "no step was tried on the model"
        if origin.level is None
        else f"a right model fails any of the checks with a chance of at most {origin.level:g}"
    )
    versions = ", ".join(f"{name} {version}" for name, version in origin.versions)
    lines = (("Seed", str(origin.seed)), ("Checks", chance), ("Versions", versions))
    return Reproduced(origin.declaration, origin.command, lines)


def _equation(number: int, formula: Formula) -> Equation:
    right = to_latex(formula.right)
    latex = right if formula.left is None else f"{to_latex(formula.left)} = {right}"
    return Equation(number, latex, formula.note, formula.code)


def to_latex(side: sp.Basic | str) -> str:
    """LaTeX of one side of a formula; text is LaTeX already.

    As sympy prints it, but in the conventions of the papers: indices count from 1, a transpose is marked by a sign
    that is not the number of tokens T, the identity is I, a long exponent is an argument of exp, a decimal number has
    six digits.
    """
    latex = side if isinstance(side, str) else _Printer().doprint(side)
    return re.sub(r"\s+", " ", latex).strip()


class _Printer(LatexPrinter):
    _LONGEST_EXPONENT, _DIGITS = 14, 6

    def _print_MatrixElement(self, expr: MatrixElement) -> str:
        parent: Any = expr.parent
        rows, columns = parent.shape
        if rows == columns == 1 and isinstance(parent, sp.MatrixSymbol):
            return str(self._print(parent))
        indices = [self._print(index + 1) for index in expr.indices]
        if rows == 1 or columns == 1:
            indices = indices[1:] if rows == 1 else indices[:1]
        name = self._print(parent)
        return indexed(name if isinstance(parent, sp.MatrixSymbol) else rf"\left({name}\right)", indices)

    def _print_Float(self, expr: sp.Float) -> str:
        # The code beside a formula holds all digits.
        return str(super()._print_Float(sp.Float(expr, self._DIGITS)))

    def _print_Transpose(self, expr: sp.Transpose) -> str:
        return rf"{self.parenthesize(expr.arg, sp.printing.precedence.PRECEDENCE['Pow'])}^{{\top}}"

    def _print_Identity(self, expr: sp.Identity) -> str:
        return "I"

    def _print_exp(self, expr: sp.exp, exp: str | None = None) -> str:
        argument = self._print(expr.args[0])
        if len(argument) <= self._LONGEST_EXPONENT:
            printed = f"e^{{{argument}}}"
            return printed if exp is None else rf"\left({printed}\right)^{{{exp}}}"
        power = "" if exp is None else f"^{{{exp}}}"
        return rf"\exp{power}\left({argument}\right)"


def paragraphs(text: str) -> tuple[tuple[Fragment, ...], ...]:
    """Prose as paragraphs (cut at blank lines) of fragments; single line breaks are spaces."""
    pieces = (piece.strip() for piece in re.split(r"\n\s*\n", text))
    return tuple(fragments(re.sub(r"\s+", " ", piece)) for piece in pieces if piece)


def fragments(text: str) -> tuple[Fragment, ...]:
    r"""Text cut at inline formulas ``$...$``; ``\$`` and a dollar without partner are plain dollars."""
    found: list[Fragment] = []
    end = 0
    for match in _MATH.finditer(text):
        found += _text(text[end : match.start()])
        found.append(Fragment(match[1].strip(), is_math=True))
        end = match.end()
    return (*found, *_text(text[end:]))


def _text(text: str) -> list[Fragment]:
    return [Fragment(text.replace(r"\$", "$"))] if text else []


def is_plain_math(latex: str) -> bool:
    """Whether a formula can be set as it stands in any of the three formats.

    False for braces, environments or ``\\left``/``\\right`` without partner, for a character that would end the formula
    early, and for commands that reach outside it.  Such a formula is shown as code instead: a page
    is never broken or hijacked by the name of a symbol.
    """
    if not latex or _FORBIDDEN_COMMAND.search(latex) or any(mark in latex for mark in ("^^", "`", "<!--")):
        return False
    stack: list[str] = []
    for match in _TOKEN.finditer(latex):
        token = match[0]
        if token in _CLOSES:
            if not stack or stack.pop() != _CLOSES[token]:
                return False
        elif match["end"]:
            if not stack or stack.pop() != match["end"]:
                return False
        elif match["begin"]:
            if match["begin"] not in _ENVIRONMENTS:
                return False
            stack.append(match["begin"])
        elif token in ("{", r"\left"):
            stack.append(token)
        elif token in ("&", r"\\"):
            if not any(name in _ENVIRONMENTS for name in stack):
                return False
        elif token in ("$", "%", "#", "~", "\\"):
            return False
    return not stack
