"""A drawing as a part of a page."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from markupsafe import Markup, escape


def embedded(text: str, prefix: str, label: str) -> Markup:
    """An inline SVG whose identifiers cannot meet those of another one on the page.

    Raises ValueError for anything that is not a drawing: another root, scripts, handlers, references outside.
    """
    text = text[text.find("<svg") :] if "<svg" in text else text
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise ValueError(f"the figure is not well-formed SVG: {error}") from error
    if _local(root.tag) != "svg":
        raise ValueError(f"the figure's root element is {_local(root.tag)}, not svg")
    for element in root.iter():
        outside = [v for k, v in element.attrib.items() if _local(k) == "href" and not v.startswith("#")]
        handlers = [k for k in element.attrib if _local(k).lower().startswith("on")]
        if _local(element.tag).lower() in ("script", "foreignobject", "image", "iframe") or outside or handlers:
            raise ValueError(f"the figure holds more than a drawing: {_local(element.tag)} {outside or handlers}")
    text = re.sub(r'(\sid="|href="#|url\(#)', lambda match: match[1] + prefix, text)
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    return Markup(text.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1))


def _local(name: str) -> str:
    return name.rsplit("}", 1)[-1]
