"""Derivation -> Markdown with GitHub's mathematics.

Formulas use the fenced forms, ``$`...`$`` and a math block: between bare dollars Markdown would read
underscores, stars and backslashes as its own before the formula is seen.
"""

from __future__ import annotations

import re
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

_SPECIAL = re.compile(r"([\\`*_\[\]|~])")
_LINE_START = re.compile(r"^(\s*)([#>+-]|\d+(?=[.)]))")


def derivation_text(derivation: Derivation) -> str:
    """A Markdown document: contents, numbered sections, numbered equations, checks and sources.

    The same derivation gives the same text.  Everything is escaped; a formula that cannot be set is shown as code.
    """
    sections = outline(derivation)
    lines = [f"# {_inline(derivation.title or 'Derivation')}", ""]
    for section in sections:
        lines.append(f"{section.number}. [{section.title}](#s{section.number})")
        # As deep as the text behind the number above it: "10." is wider than "9.".
        indent = " " * len(f"{section.number}. ")
        lines += [f"{indent}- [{item.number} {_inline(item.step.title)}](#s{item.number})" for item in section.steps]
    lines.append("")
    for section in sections:
        lines += _section(section)
    lines += [*_reproduced(reproduced(derivation.origin)), *_references(references(derivation))]
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(section: Section) -> Iterator[str]:
    yield from (f'## <a id="s{section.number}"></a>{section.number}. {_inline(section.title)}', "")
    for item in section.steps:
        yield from _step(item)


def _step(item: NumberedStep) -> Iterator[str]:
    yield from (f'### <a id="s{item.number}"></a>{item.number} {_inline(item.step.title)}', "")
    for piece in paragraphs(item.step.text):
        yield from (_guard(_join(piece)), "")
    for equation in item.equations:
        yield from _equation(equation)
    if item.step.checks:
        yield from ("**Verified**", "")
        for statement, how in item.step.checks:
            yield f"- ✓ {_inline(statement)}" + (f" — {_inline(how)}" if how else "")
        yield ""
    if item.step.source:
        yield from (f"*Source:* {_inline(item.step.source)}", "")


def _reproduced(box: Reproduced | None) -> Iterator[str]:
    if box is None:
        return
    yield from ("## Reproduce", "")
    for language, code in (("toml", box.declaration), ("sh", box.command)):
        fence = "`" * max(3, _longest_run(code) + 1)
        yield from (f"{fence}{language}", code, fence, "")
    yield from (f"- {label}: {_escape(text)}" for label, text in box.lines)
    yield ""


def _references(found: tuple[Reference, ...]) -> Iterator[str]:
    if found:
        yield from ("## References", "")
    yield from (f"{number}. {_escape(one.sentence)}" for number, one in enumerate(found, start=1))


def _equation(equation: Equation) -> Iterator[str]:
    if is_plain_math(equation.latex):
        yield from ("```math", rf"{_github(equation.latex)} \tag{{{equation.number}}}", "```", "")
    else:
        yield from (f"({equation.number}) {_code(equation.latex)}", "")
    if equation.note:
        yield from (_guard(_inline(equation.note)), "")
    if equation.code:
        fence = "`" * max(3, _longest_run(equation.code) + 1)
        yield from (f"{fence}python", equation.code, fence, "")


def _inline(text: str) -> str:
    return _join(fragments(re.sub(r"\s+", " ", text)))


def _join(pieces: tuple[Fragment, ...]) -> str:
    return "".join(_math(piece.content) if piece.is_math else _escape(piece.content) for piece in pieces)


def _math(latex: str) -> str:
    return f"$`{_github(latex)}`$" if is_plain_math(latex) else _code(latex)


def _github(latex: str) -> str:
    """GitHub refuses the macro for operator names; this is the same, spelled out."""
    return re.sub(r"\\operatorname\*?\{([^{}]*)\}", r"\\mathop{\\mathrm{\1}}", latex)


def _code(text: str) -> str:
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)


def _escape(text: str) -> str:
    """Plain text that Markdown shows as it stands; HTML and dollars as character references."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", text).replace("$", "&#36;")


def _guard(line: str) -> str:
    """A line that does not start a list, a heading or a quotation."""
    return _LINE_START.sub(lambda m: rf"{m[1]}\{m[2]}" if not m[2].isdigit() else f"{m[1]}{m[2]}&#8203;", line)
