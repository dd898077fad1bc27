"""Cards and derivations -> pieces of HTML for a notebook: self-contained, formulas as MathML, no script.

A piece stands among others on a page that is not ours: its style is scoped, and takes colours and fonts from the page;
identifiers of its figure cannot meet those of another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from markupsafe import Markup, escape

from smisym.base.cards import Card, Cell, Number
from smisym.base.derivation import Derivation
from smisym.report.drawing import small_svg
from smisym.report.html import environment, inline
from smisym.report.numbers import format_with_error
from smisym.report.outlining import outline, to_latex
from smisym.report.svg import embedded

# Rows of a table up to which it is shown at once.
_OPEN = 12


def card_html(card: Card) -> str:
    """One card as a ``<div>``."""
    formulas = [(f.note, to_latex(f.right) if f.left is None else f"{to_latex(f.left)} = {to_latex(f.right)}")
                for f in card.formulas]  # fmt: skip
    rows = () if card.listing is None else card.listing.rows
    return _rendered(
        "card.html.j2",
        card=card,
        formulas=formulas,
        facts=[(inline(name), cell_html(value)) for name, value in card.facts],
        rows=[[cell_html(cell) for cell in row] for row in rows],
        failed=() if card.listing is None else card.listing.failed or (False,) * len(rows),
        shown=len(rows) <= _OPEN,
        figure="" if card.picture is None else _figure(small_svg(card.picture), card.title),
    )


def trail_html(derivation: Derivation) -> str:
    """A derivation as a ``<div>``: its sections folded, with formulas and checks."""
    sections = outline(derivation)
    steps = [item for section in sections for item in section.steps]
    checks = sum(len(item.step.checks) for item in steps)
    prefix = f"d{_digest([derivation.title, *(equation.latex for item in steps for equation in item.equations)])}-"
    return _rendered(
        "steps.html.j2",
        title=derivation.title or "Derivation", sections=sections, steps=len(steps), checks=checks, prefix=prefix,
    )  # fmt: skip


def cell_html(cell: Cell) -> Markup:
    """A cell: prose with formulas, a number with its error, or several numbers."""
    if isinstance(cell, str):
        return inline(cell)
    if isinstance(cell, Number):
        return escape(format_with_error(cell.value, cell.error))
    return escape(", ".join(format_with_error(number.value, number.error, digits=4) for number in cell))


def _rendered(template: str, **given: object) -> str:
    text = environment().get_template(template).render(**given)
    # A line that is empty ends HTML in Markdown, which is what some notebooks paste this into.
    return "\n".join(line for line in text.splitlines() if line.strip()) + "\n"


def _figure(svg: str, label: str) -> Markup:
    return embedded(svg, f"f{_digest([svg])}-", label)


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:10]
