r"""LaTeX -> MathML Core, which browsers read without any script.

The conversion itself is latex2mathml's.  What is added here is the typography that MathML Core leaves to
its author: names of functions upright and spaced as TeX spaces them, bold letters as Unicode letters (Core knows
no ``mathvariant``), relations marked as operators, bars paired.  Only known elements and attributes pass.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from xml.etree import ElementTree as ET

from latex2mathml.converter import convert

from smisym.report.outlining import is_plain_math

_ROWS = frozenset("math mrow mtd msqrt mstyle mpadded mphantom".split())
_TOKENS = frozenset("mi mn mo mtext mspace".split())
_SCRIPTS = frozenset("msub msup msubsup munder mover munderover".split())
_ELEMENTS = _ROWS | _TOKENS | _SCRIPTS | frozenset("mfrac mroot mtable mtr".split())
_ATTRIBUTES = frozenset(
    "accent depth display displaystyle form height linethickness lspace mathvariant maxsize minsize movablelimits "
    "rspace scriptlevel stretchy style width".split()
)
_LIMITS = frozenset("lim max min sup inf argmax argmin limsup liminf".split())
_SPACES = {"negativethinmathspace": "-0.167em"}
_THIN = "0.167em"
_BARS = ("|", "‖")
_TALL = frozenset("mfrac mroot msqrt mtable mover munder munderover".split())
_SUMS = ("∑", "∏")
_LARGE = (*_SUMS, "∫")
_SIGNS = ("−", "+", "±", "∓")
_CLOSING = ")]}|‖⟩"
# Inside \text{...} latex2mathml copies these unescaped; they travel as private characters.
_PRIVATE = {"<": "\ue000", ">": "\ue001", r"\&": "\ue002", r"\_": "\ue003", r"\%": "\ue004", r"\#": "\ue005"}
_RESTORE = str.maketrans({private: tex.lstrip("\\") for tex, private in _PRIVATE.items()})


def mathml(latex: str, *, display: bool = False, part: bool = False) -> str:
    r"""``latex`` (no dollars) as one ``<math>`` element, with the LaTeX as ``alttext`` and as annotation.

    display
        A formula on its own line; else inline.
    part
        One of several parts of a displayed formula, between which lines may end.

    Raises ValueError when the formula cannot be converted; the message names it.
    """
    if not is_plain_math(latex):
        raise ValueError(f"not a formula that can be set as it stands: {latex}")
    layout = "block" if display or part else "inline"
    try:
        root = ET.fromstring(re.sub(r' xmlns="[^"]*"', "", convert(_prepare(latex), layout), count=1))
    except Exception as error:
        # latex2mathml raises its own bare Exceptions, and IndexError or KeyError, on LaTeX that it does not know.
        raise ValueError(f"latex2mathml cannot read {latex}: {error!r}") from error
    try:
        _tidy(root)
    except ValueError as error:
        raise ValueError(f"cannot set {latex}: {error}") from error
    styled = {"display": "inline", "displaystyle": "true"} if part else {"display": layout}
    math = ET.Element("math", {**styled, "alttext": latex})
    semantics = ET.SubElement(math, "semantics")
    row = ET.SubElement(semantics, "mrow")
    row.extend(root[0] if len(root) == 1 and root[0].tag == "mrow" else root)
    ET.SubElement(semantics, "annotation", {"encoding": "application/x-tex"}).text = latex
    return ET.tostring(math, encoding="unicode")


def _prepare(latex: str) -> str:
    """Spellings that latex2mathml does not know, in spellings that it does."""
    latex = re.sub(r"\\(begin|end)\{(?:aligned|split)\}", r"\\\1{align*}", latex)
    latex = latex.replace(r"\begin{gathered}", r"\begin{array}{c}").replace(r"\end{gathered}", r"\end{array}")
    latex = re.sub(r"\\(?:middle|nolimits)(?![A-Za-z])", "", latex)
    latex = re.sub(r"\\mathop\{\\mathrm\{([A-Za-z]+)\}\}", r"\\operatorname{\1}", latex)
    latex = re.sub(r"\\operatorname\*", r"\\operatorname", latex)
    latex = re.sub(r"\\mathrm\{([A-Za-z]+)\}", r"\\operatorname{\1}", latex)
    return re.sub(r"\\text[a-z]*\{[^{}]*\}", lambda match: _hide(match[0]), latex)


def _hide(text: str) -> str:
    for tex, private in _PRIVATE.items():
        text = text.replace(tex, private)
    return text


def _tidy(element: ET.Element) -> None:
    if element.tag not in _ELEMENTS:
        raise ValueError(f"latex2mathml made an element that is not known here: {element.tag}")
    for child in list(element):
        _tidy(child)
    if element.tag in _TOKENS:
        _tidy_token(element)
    if element.tag in _SCRIPTS:
        _tidy_script(element)
    if element.tag in _ROWS:
        _tidy_row(element)
    if element.tag == "mtable" and element.find(".//mfrac") is not None:
        element.set("displaystyle", "true")
    if align := element.get("columnalign"):
        element.set("style", f"text-align: {align}")
    for name in [name for name in element.attrib if name not in _ATTRIBUTES]:
        del element.attrib[name]


def _tidy_token(token: ET.Element) -> None:
    text = (token.text or "").translate(_RESTORE)
    if text.startswith("\\"):
        raise ValueError(f"unknown command {text}")
    token.text = text or None
    if token.tag == "mspace":
        token.set("width", _SPACES.get(token.get("width", "0"), token.get("width", "0")))
    if token.tag == "mo" and text.isalpha() and text.isascii():
        token.tag, token.attrib = "mi", {"mathvariant": "normal"}
    elif token.tag == "mi" and len(text) == 1 and unicodedata.category(text)[0] in "SP":
        token.tag, token.text = "mo", {"~": "∼"}.get(text, text)
    if token.tag == "mo" and token.text == "/":
        token.attrib = {"lspace": "0.04em", "rspace": "0.04em"}
    if token.tag == "mo" and token.text == "∫":
        token.set("rspace", "0.25em")
    variant = token.get("mathvariant")
    if variant in ("bold", "bold-italic", "italic"):
        _style_letters(token, variant)


def _style_letters(token: ET.Element, variant: str) -> None:
    del token.attrib["mathvariant"]
    if token.tag == "mtext":
        token.set("style", "font-weight: bold" if variant == "bold" else "font-style: italic")
    elif variant != "italic":
        token.text = "".join(_bold(c, slanted=variant == "bold-italic") for c in token.text or "")


def _bold(character: str, *, slanted: bool) -> str:
    """The bold mathematical letter of Unicode, found by its name; the character itself where there is none."""
    name = unicodedata.name(character, "").replace("LATIN ", "").replace("GREEK ", "").replace(" LETTER", "")
    try:
        return unicodedata.lookup(f"MATHEMATICAL BOLD {'ITALIC ' if slanted and 'DIGIT' not in name else ''}{name}")
    except KeyError:
        return character


def _tidy_script(script: ET.Element) -> None:
    base = script[0]
    name = _function_name(base)
    if script.tag == "msub" and name in _LIMITS:
        script.tag = "munder"
        operator = ET.Element("mo", {"movablelimits": "true", "form": "prefix", "lspace": "0", "rspace": "0"})
        operator.text = name
        script[0] = operator
    if base.tag == "mo" and base.text in _SUMS:
        # Beside it in a line of text, by the operator's own movable limits; below and above in a display.
        script.tag = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}.get(script.tag, script.tag)
    for operator in (o for part in script[1:] for o in part.iter("mo")):
        # TeX sets scripts without space around operators.
        operator.attrib |= {"lspace": "0", "rspace": "0"}
    if script.tag == "mover" and len(script) == 2 and script[1].tag == "mo" and script.get("accent"):
        script[1].set("stretchy", "false")


def _tidy_row(row: ET.Element) -> None:
    children = [child for child in _merged(list(row)) if not _is_empty_fence(child)]
    _shrink_fences(children)
    _pair_bars(children)
    _mark_signs(children)
    spaced: list[ET.Element] = []
    for child, after in itertools.zip_longest(children, children[1:]):
        is_function = bool(_function_name(child))
        if is_function and spaced and _takes_space(spaced[-1]):
            spaced.append(ET.Element("mspace", {"width": _THIN}))
        spaced.append(child)
        if is_function and after is not None and _takes_space(after, opening=True):
            spaced.append(ET.Element("mspace", {"width": _THIN}))
    row[:] = spaced


def _merged(children: list[ET.Element]) -> list[ET.Element]:
    """Runs of upright letters as one name: r, o, w is the name "row", not a product."""
    merged: list[ET.Element] = []
    for child in children:
        last = merged[-1] if merged else None
        if last is not None and _is_upright_letter(child) and last.tag == "mi" and last.get("merge"):
            last.text = (last.text or "") + (child.text or "")
            continue
        if _is_upright_letter(child):
            child.set("merge", "yes")
        merged.append(child)
    for child in merged:
        child.attrib.pop("merge", None)
    return merged


def _is_upright_letter(element: ET.Element) -> bool:
    return element.tag == "mi" and element.get("mathvariant") == "normal" and len(element.text or "") == 1


def _is_empty_fence(element: ET.Element) -> bool:
    return element.tag == "mo" and not element.text


def _core(element: ET.Element) -> ET.Element:
    """The token under scripts and under rows of one element."""
    while element.tag in _SCRIPTS or (element.tag == "mrow" and len(element) == 1):
        element = element[0]
    return element


def _function_name(element: ET.Element) -> str:
    core = _core(element)
    text = core.text or ""
    named = core.tag == "mi" or core.get("movablelimits") == "true"
    return text if named and len(text) > 1 and text.replace("\u2006", "").isalpha() else ""


def _takes_space(neighbour: ET.Element, *, opening: bool = False) -> bool:
    """Whether TeX puts a thin space between a function's name and this neighbour (not before an opening fence)."""
    if neighbour.tag == "mspace" or (not opening and _function_name(neighbour)):
        return False
    edge = neighbour
    while opening and edge.tag == "mrow" and len(edge):
        edge = edge[0]
    core = _core(edge)
    if core.tag != "mo":
        return True
    if opening:
        return core.get("form") == "prefix" and core.text in _BARS
    return _is_closing(core)


def _shrink_fences(children: list[ET.Element]) -> None:
    """Fences around something of ordinary height keep their ordinary size, as TeX leaves them."""
    fences = [c for c in children if c.tag == "mo" and c.get("stretchy") == "true" and c.get("minsize") is None]
    if not any(part.tag in _TALL or part.text in _LARGE for child in children for part in child.iter()):
        for fence in fences:
            fence.set("stretchy", "false")


def _mark_signs(children: list[ET.Element]) -> None:
    """A sign after an operator or an opening is unary, and set close to what it signs."""
    for before, sign in itertools.pairwise(children):
        if sign.tag == "mo" and sign.text in _SIGNS and before.tag == "mo" and not _is_closing(before):
            sign.set("form", "prefix")


def _is_closing(operator: ET.Element) -> bool:
    return (operator.text or " ") in _CLOSING and operator.get("form") != "prefix"


def _pair_bars(children: list[ET.Element]) -> None:
    """|x|: bars open and close in turn; an odd one out stays a divider."""
    for bar in _BARS:
        found = [
            core for core in map(_core, children) if core.tag == "mo" and core.text == bar and core.get("form") is None
        ]
        for index, core in enumerate(found[: len(found) // 2 * 2]):
            core.attrib = {"form": ("prefix", "postfix")[index % 2], "stretchy": "false", "lspace": "0", "rspace": "0"}
