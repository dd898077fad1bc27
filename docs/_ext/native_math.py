"""Formulas as native MathML, by the renderer of smisym's own documents: no script, nothing fetched, read off line."""

from __future__ import annotations

import html
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from smisym.report.mathml_text import mathml

TAG = re.compile(r"\s*\\tag\{([^{}]*)\}")


def rendered(node: nodes.Element, display: bool) -> str:
    """MathML of a formula; one that cannot be set is a warning, which the build takes for an error."""
    latex = " ".join(node.astext().split())
    found = TAG.search(latex)
    latex = TAG.sub("", latex)
    try:
        # A renderer of inline formulas refuses tags and environments of its own accord.
        text = mathml(latex, display=display)
    except ValueError as error:
        logging.getLogger(__name__).warning("formula: %s", error, location=node)
        text = f"<code>{html.escape(latex)}</code>"
    if not display:
        return text
    number = found[1] if found else ""
    return f'<div class="math-block">{text}<span class="math-number">{f"({number})" if number else ""}</span></div>'


def inline(self: Any, node: nodes.math) -> None:
    self.body.append(rendered(node, display=False))
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    self.body.append(rendered(node, display=True))
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
