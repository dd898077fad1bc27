"""Derivation -> one self-contained HTML page: no network, no script, formulas as MathML."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from smisym.base.derivation import Derivation
from smisym.report.breaking import pieces
from smisym.report.mathml_text import mathml
from smisym.report.outlining import Fragment, fragments, is_plain_math, outline, paragraphs, references, reproduced

_CLOSING_MARKS = ".,;:!?)]"
# Letters and signs of a formula that fits on the line of a telephone.
_LONG = 20


def derivation_page(derivation: Derivation) -> str:
    """A whole HTML document, readable as a paper: contents, numbered sections, equations, checks and sources.

    The same derivation gives the same bytes: no dates, no addresses.  Everything is escaped; a formula that
    cannot be converted is shown as its LaTeX.
    """
    template = environment().get_template("derivation.html.j2")
    return template.render(
        title=derivation.title or "Derivation", sections=outline(derivation), reproduced=reproduced(derivation.origin),
        references=references(derivation),
    )  # fmt: skip


@functools.cache
def environment() -> Environment:
    """The templates of this package, escaping by default, with the filters that turn text into HTML."""
    made = Environment(
        loader=PackageLoader("smisym.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"prose": prose, "inline": inline, "display": display, "in_parts": in_parts, "plain": plain}
    return made


def prose(text: str) -> Markup:
    """Paragraphs of prose with inline formulas, as ``<p>`` elements."""
    return Markup("\n").join(Markup("<p>{}</p>").format(_join(piece)) for piece in paragraphs(text))


def inline(text: str) -> Markup:
    """One run of prose with inline formulas, without a paragraph around it."""
    return _join(fragments(text))


def plain(text: str) -> str:
    """The same run without any markup, for titles and labels: formulas stay LaTeX, without dollars."""
    return "".join(fragment.content for fragment in fragments(text))


def display(latex: str) -> Markup:
    """A displayed formula, or its LaTeX as code where it cannot be converted."""
    return _math(latex, display=True)


def in_parts(latex: str) -> Markup:
    """The same; a long one is several that stand beside each other, so that a narrow page ends its lines where LaTeX
    would: MathML Core breaks none."""
    found = pieces(latex) if _letters(latex) > _LONG and is_plain_math(latex) else ()
    if len(found) < 2:
        return _math(latex, display=True)
    try:
        set_as = [Markup(mathml(one.latex, part=True)) for one in found]
    except ValueError:
        return _math(latex, display=True)
    gaps = [Markup('<span class="gap"> </span>') if one.gap else Markup("&#8203;") for one in found]
    parts = Markup().join(gap + one for gap, one in zip(gaps, set_as, strict=True))
    return Markup('<span class="parts">{}</span>').format(parts)


def _letters(latex: str) -> int:
    """About how many letters and signs a formula has."""
    return len(re.sub(r"\\[A-Za-z]+|[{}\\\s]", "", latex))


def _join(pieces: Iterable[Fragment]) -> Markup:
    """Fragments as HTML; a formula keeps hold of the punctuation after it, across line ends."""
    out = Markup()
    rest = list(pieces)
    for index, piece in enumerate(rest):
        if not piece.is_math:
            out += escape(piece.content)
            continue
        following = rest[index + 1] if index + 1 < len(rest) else None
        marks = ""
        if following is not None and not following.is_math:
            kept = following.content.lstrip(_CLOSING_MARKS)
            marks = following.content[: len(following.content) - len(kept)]
            rest[index + 1] = Fragment(kept)
        formula = _math(piece.content, display=False)
        out += Markup('<span class="nobr">{}{}</span>').format(formula, marks) if marks else formula
    return out


def _math(latex: str, *, display: bool) -> Markup:
    try:
        return Markup(mathml(latex, display=display))
    except ValueError:
        return Markup('<code class="tex">{}</code>').format(latex)
