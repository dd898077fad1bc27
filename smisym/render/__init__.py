"""Derivations and reports as documents: HTML, Markdown, LaTeX."""

from __future__ import annotations

from smisym.render.files import write_derivation
from smisym.render.html import derivation_page
from smisym.render.latex import derivation_document
from smisym.render.markdown import derivation_text
from smisym.render.numbers import format_with_error
from smisym.render.report import report_page

__all__ = [
    "derivation_document",
    "derivation_page",
    "derivation_text",
    "format_with_error",
    "report_page",
    "write_derivation",
]
