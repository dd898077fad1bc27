"""Derivations and reports as documents: HTML, Markdown, LaTeX."""

from __future__ import annotations

from smisym.report.analysis_page import report_page
from smisym.report.citing import bibliography
from smisym.report.files import check_document, write_derivation
from smisym.report.html import derivation_page
from smisym.report.latex import derivation_document, derivation_formulas
from smisym.report.markdown import derivation_text
from smisym.report.numbers import format_with_error

__all__ = [
    "bibliography",
    "check_document",
    "derivation_document",
    "derivation_formulas",
    "derivation_page",
    "derivation_text",
    "format_with_error",
    "report_page",
    "write_derivation",
]
