"""Derivation -> a LaTeX article that compiles with pdflatex, xelatex or lualatex and common packages only."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from smisym.base.derivation import Derivation
from smisym.base.references import Reference
from smisym.report.breaking import Before, pieces
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
\setlength{\columnsep}{7mm}
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
\raggedbottom
% Narrow columns: a loose line rather than one that is too long.
\emergencystretch=2em
\hbadness=3000
\makeatletter
\renewcommand{\section}{\@startsection{section}{1}{0pt}{3.5ex plus 1ex}{1.5ex}{\raggedright\Large\bfseries}}
\renewcommand{\subsection}{\@startsection{subsection}{2}{0pt}{3ex plus 1ex}{1ex}{\raggedright\large\bfseries}}
\makeatother
\renewcommand{\arraystretch}{1.35}
% A formula wider than the column is broken at its gaps, then before relations and signs; a part that is wider by itself
% is scaled down.
\newsavebox{\partbox}
\newlength{\room}
\newcommand{\piece}[2][0]{\allowbreak\penalty#1\sbox{\partbox}{$\displaystyle #2$}%
  \ifdim\wd\partbox>\room\resizebox{\room}{!}{\usebox{\partbox}}\else\usebox{\partbox}\fi}
\newcommand{\gap}[1]{$#1$}
\newcommand{\fit}[1]{\setlength{\room}{0.86\linewidth}\sbox{\partbox}{#1}%
  \ifdim\wd\partbox>\room
    \parbox{0.88\linewidth}{\raggedright\setlength{\room}{0.8\linewidth}\setlength{\parskip}{3pt}%
      \lineskip=4pt\lineskiplimit=3pt\hangindent=1.5em\noindent
      \renewcommand{\gap}[1]{\par\hangindent=1.5em\noindent}#1\par}%
  \else\usebox{\partbox}\fi}
\newcommand{\source}[1]{\par{\small\raggedright\emph{Source:} #1\par}}
\newcommand{\note}[1]{\par{\centering\small #1\par}}
\newenvironment{code}{\par\begingroup\small\ttfamily\raggedright\parskip=0pt\leftskip=2em}{\par\endgroup}
% A display that begins a paragraph would leave an empty line above it.
\newcommand{\shown}{\ifvmode\noindent\fi}
\newcommand{\codeline}[1]{\noindent\hangindent=1.5em #1\par}
\newenvironment{verified}{\par\textbf{Verified}\csname @beginparpenalty\endcsname=10000
  \begin{itemize}\raggedright\setlength{\itemsep}{0pt}\setlength{\parskip}{0pt}}{\end{itemize}}
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
        lines.append(r"{\setlength{\parskip}{0pt}\tableofcontents}")
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
        yield rf"\source{{{_inline(item.step.source)}}}"


def _equation(equation: Equation) -> Iterator[str]:
    settable = is_plain_math(equation.latex)
    body = _broken(equation.latex) if settable else rf"\text{{{_code(equation.latex)}}}"
    # LaTeX counts through the article as the outline does, so its own numbers are the right ones.
    yield from (r"\shown\begin{equation}", body, r"\end{equation}")
    if equation.note:
        yield rf"\note{{{_inline(equation.note)}}}"
    if equation.code:
        yield _code_lines(equation.code)


def _broken(latex: str) -> str:
    """The formula with the places where LaTeX may break it: at gaps, before relations, before signs."""
    penalties = {Before.GAP: "", Before.RELATION: "[0]", Before.SIGN: "[200]"}
    found = pieces(_math_text(latex))
    gaps = [rf"\gap{{{one.gap}}}" if one.gap else "" for one in found]
    parts = [rf"{gap}\piece{penalties[one.before]}{{{one.latex}}}" for gap, one in zip(gaps, found, strict=True)]
    return rf"\fit{{{''.join(parts)}}}"


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
    """Lines of code, each a paragraph: after a break of lines a bracket would be read as its option."""
    return "\n".join(
        [r"\begin{code}", *(rf"\codeline{{{_code_line(line)}}}" for line in code.splitlines()), r"\end{code}"]
    )


def _code_line(line: str) -> str:
    text = line.lstrip(" ")
    return "~" * (len(line) - len(text)) + (_typed(text) or r"\mbox{}")


def _code(text: str) -> str:
    return rf"\texttt{{{_typed(text)}}}"


def _typed(text: str) -> str:
    """Code as it is typed: two hyphens are no dash."""
    return _escape(text).replace("--", "-{}-{}")


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
        # Other capitals, as that of alpha, look like Latin ones and have no command.
        if letter in (_GREEK if match[1] == "SMALL" else _GREEK_CAPITALS):
            return "\\" + (letter if match[1] == "SMALL" else letter.capitalize())
    return f"[U+{ord(character):04X}]"


_GREEK = frozenset(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega".split()
)
_GREEK_CAPITALS = frozenset("gamma delta theta lambda xi pi sigma upsilon phi psi omega".split())
