"""Derivation -> a LaTeX article that compiles with pdflatex, xelatex or lualatex and common packages only."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from smisym.base.derivation import Derivation
from smisym.base.references import Reference
from smisym.report.outlining import (
    Equation,
    Fragment,
    NumberedStep,
    Reproduced,
    Section,
    fragments,
    is_plain_math,
    outline,
    paragraphs,
    references,
    reproduced,
)

_PREAMBLE = r"""\documentclass[11pt]{article}
\usepackage[a4paper, margin=28mm]{geometry}
\usepackage{iftex}
\ifPDFTeX
  \usepackage[T1]{fontenc}
  \usepackage[utf8]{inputenc}
  \IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\fi
\usepackage{amsmath, amssymb}
\usepackage{graphicx}
\usepackage[hidelinks]{hyperref}
\setlength{\parindent}{0pt}
\setlength{\parskip}{0.5\baselineskip}
\renewcommand{\arraystretch}{1.25}
% A formula wider than the page is scaled down to fit.
\newsavebox{\formulabox}
\newcommand{\fit}[1]{\sbox{\formulabox}{$\displaystyle #1$}%
  \ifdim\wd\formulabox>0.9\linewidth \resizebox{0.9\linewidth}{!}{\usebox{\formulabox}}\else\usebox{\formulabox}\fi}
\newcommand{\note}[1]{\par{\centering\small #1\par}}
\newenvironment{code}{\par\begingroup\small\ttfamily\raggedright\leftskip=2em}{\par\endgroup}
\newenvironment{verified}{\par\textbf{Verified}\csname @beginparpenalty\endcsname=10000
  \begin{itemize}\setlength{\itemsep}{0pt}\setlength{\parskip}{0pt}}{\end{itemize}}
"""

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "–": "--",
    "—": "---",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "…": r"\ldots{}",
    "\u00a0": "~",
}
_MATH_SYMBOLS = {
    "±": r"\pm", "×": r"\times", "·": r"\cdot", "−": "-", "≤": r"\le", "≥": r"\ge", "≠": r"\ne", "≈": r"\approx",
    "∝": r"\propto", "∞": r"\infty", "→": r"\to", "↦": r"\mapsto", "⇒": r"\Rightarrow", "∈": r"\in", "∑": r"\sum",
    "∏": r"\prod", "∫": r"\int", "√": r"\surd", "∂": r"\partial", "∇": r"\nabla", "⊗": r"\otimes", "⊤": r"\top",
    "⟨": r"\langle", "⟩": r"\rangle", "‖": r"\Vert", "ℝ": r"\mathbb{R}", "✓": r"\checkmark", "ℓ": r"\ell",
}  # fmt: skip


def derivation_document(derivation: Derivation) -> str:
    """A whole LaTeX document: contents, numbered sections, numbered equations, checks and sources.

    The same derivation gives the same text.  Everything is escaped; a formula that cannot be set is shown as code.
    """
    title = _inline(derivation.title or "Derivation")
    lines = [_PREAMBLE + rf"\title{{{title}}}", r"\author{}", r"\date{}", r"\begin{document}", r"\maketitle"]
    sections = outline(derivation)
    if sections:
        lines.append(r"\tableofcontents")
    for section in sections:
        lines += _section(section)
    lines += [*_reproduced(reproduced(derivation.origin)), *_references(references(derivation))]
    return "\n".join([*lines, r"\end{document}", ""])


def derivation_formulas(derivation: Derivation) -> str:
    """The formulas alone, as equations to be read by \\input: amsmath and amssymb are enough.

    What they are of, and what is said beside them, stands in comments.
    """
    lines = [f"% {_comment(derivation.title or 'Derivation')}: needs amsmath and amssymb"]
    for item in (item for section in outline(derivation) for item in section.steps if item.equations):
        lines += ["", f"% {_comment(item.step.title)}"]
        for equation in item.equations:
            if is_plain_math(equation.latex):
                note = f"  % {_comment(equation.note)}" if equation.note else ""
                lines += [rf"\begin{{equation}}{note}", f"  {_math_text(equation.latex)}", r"\end{equation}"]
            else:
                lines.append(f"% {_comment(equation.latex)}")
    return "\n".join([*lines, ""])


def _comment(text: str) -> str:
    """Text on one line."""
    return " ".join(text.split())


def _section(section: Section) -> Iterator[str]:
    yield from ("", _heading("section", section.title))
    for item in section.steps:
        yield from _step(item)


def _heading(kind: str, title: str) -> str:
    plain = "".join(piece.content for piece in fragments(title))
    return rf"\{kind}{{\texorpdfstring{{{_inline(title)}}}{{{_bookmark(plain)}}}}}"


def _bookmark(text: str) -> str:
    """Text for the outline of the PDF, which holds no commands at all."""
    return re.sub(r"[^\w\s.,;:()=+*/<>'-]", "", text).replace("_", " ").strip()


def _step(item: NumberedStep) -> Iterator[str]:
    yield from ("", _heading("subsection", item.step.title))
    for piece in paragraphs(item.step.text):
        yield from (_join(piece), "")
    for equation in item.equations:
        yield from _equation(equation)
    if item.step.checks:
        yield r"\begin{verified}"
        for statement, how in item.step.checks:
            yield rf"\item[$\checkmark$] {_inline(statement)}" + (f" --- {_inline(how)}" if how else "")
        yield r"\end{verified}"
    if item.step.source:
        yield rf"{{\small\emph{{Source:}} {_inline(item.step.source)}\par}}"


def _equation(equation: Equation) -> Iterator[str]:
    settable = is_plain_math(equation.latex)
    body = rf"\fit{{{_math_text(equation.latex)}}}" if settable else rf"\text{{{_code(equation.latex)}}}"
    # LaTeX counts through the article as the outline does, so its own numbers are the right ones.
    yield from (r"\begin{equation}", body, r"\end{equation}")
    if equation.note:
        yield rf"\note{{{_inline(equation.note)}}}"
    if equation.code:
        yield _code_lines(equation.code)


def _reproduced(box: Reproduced | None) -> Iterator[str]:
    if box is None:
        return
    yield from ("", r"\section*{Reproduce}", _code_lines(box.declaration), _code_lines(box.command))
    yield from (rf"\emph{{{label}:}} {_escape(text)}\par" for label, text in box.lines)


def _references(found: tuple[Reference, ...]) -> Iterator[str]:
    if not found:
        return
    yield from ("", r"\begin{thebibliography}{99}\raggedright")
    yield from (rf"\bibitem{{{one.key}}} {_escape(one.sentence)}" for one in found)
    yield r"\end{thebibliography}"


def _code_lines(code: str) -> str:
    lines = [re.sub(r"^ +", lambda m: "~" * len(m[0]), line) for line in code.splitlines()]
    return "\n".join([r"\begin{code}", "\\\\\n".join(_code_line(line) for line in lines), r"\end{code}"])


def _code_line(line: str) -> str:
    indent = len(line) - len(line.lstrip("~"))
    return "~" * indent + (_escape(line[indent:]) or r"\mbox{}")


def _code(text: str) -> str:
    return rf"\texttt{{{_escape(text)}}}"


def _inline(text: str) -> str:
    return _join(fragments(re.sub(r"\s+", " ", text)))


def _join(pieces: tuple[Fragment, ...]) -> str:
    return "".join(_math(piece.content) if piece.is_math else _escape(piece.content) for piece in pieces)


def _math(latex: str) -> str:
    return f"${_math_text(latex)}$" if is_plain_math(latex) else _code(latex)


def _math_text(latex: str) -> str:
    """A formula with letters and signs outside ASCII as commands."""
    return "".join(character if character.isascii() else f"{_symbol(character)} " for character in latex)


def _escape(text: str) -> str:
    return "".join(_character(character) for character in text)


def _character(character: str) -> str:
    """One character of plain text; what no common font encoding holds is named by its code point."""
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character.isascii():
        return character if character.isprintable() or character.isspace() else ""
    if ord(character) < 0x180 and character.isalpha():
        return character
    symbol = _symbol(character)
    return f"${symbol}$" if symbol.startswith("\\") or symbol == "-" else symbol


def _symbol(character: str) -> str:
    if character in _MATH_SYMBOLS:
        return _MATH_SYMBOLS[character]
    name = unicodedata.name(character, "")
    if match := re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", name):
        letter = match[2].lower().replace("lamda", "lambda")
        if letter in _GREEK:
            return "\\" + (letter.capitalize() if match[1] == "CAPITAL" and letter in _GREEK_CAPITALS else letter)
    return f"[U+{ord(character):04X}]"


_GREEK = frozenset(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega".split()
)
_GREEK_CAPITALS = frozenset("gamma delta theta lambda xi pi sigma upsilon phi psi omega".split())
