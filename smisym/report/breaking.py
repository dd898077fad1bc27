"""Where a long formula may be broken over lines: before relations and signs that stand outside of every bracket."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

_TOKEN = re.compile(
    r"\\begin\{[^{}]*\}|\\end\{[^{}]*\}|\\(?:left|right|bigl?|bigr?|Bigl?|Bigr?)\b\s*(?:\\[A-Za-z]+|\\.|.)"
    r"|\\[A-Za-z]+|\\.|\s+|.",
    re.DOTALL,
)
_RELATIONS = frozenset(
    r"= < > \le \ge \leq \geq \ne \approx \propto \sim \to \mapsto \Rightarrow \Leftrightarrow \equiv".split()
)
_SIGNS = frozenset(r"+ - \pm \mp".split())
_SPACES = frozenset(r"\quad \qquad".split())
# What a sign is no operation behind: it stands before what it belongs to.
_NOT_OPERANDS = _RELATIONS | _SIGNS | _SPACES | frozenset(r", ; : \cdot \times \in \log \det \mid \,".split())
_INDICES = frozenset("_^")


class Before(Enum):
    """What a piece stands behind: the start or a gap, or what it begins with, a relation or a sign."""

    GAP = "gap"
    RELATION = "relation"
    SIGN = "sign"


@dataclass(frozen=True)
class Piece:
    """A part of a formula that stays on one line.  gap: the space before it, which a break takes away."""

    latex: str
    before: Before
    gap: str = ""


def pieces(latex: str) -> tuple[Piece, ...]:
    """The formula cut where it may be broken; joined again, with their gaps, they set as it does.

    A formula whose brackets have no partners is one piece.
    """
    found: list[Piece] = []
    current, before, gap, depth, last = "", Before.GAP, "", 0, ""
    for match in _TOKEN.finditer(latex):
        token = match[0]
        depth += _opened(token)
        if depth == 0 and current.strip() and _breaks(token, last):
            found.append(Piece(current.strip(), before, gap))
            # An empty operand before a sign keeps its spaces.
            current, before, gap = "{}", Before.SIGN if token in _SIGNS else Before.RELATION, ""
            if token in _SPACES:
                current, before = "", Before.GAP
        if not current and (token in _SPACES or token.isspace()):
            gap += token.strip()
        else:
            current += token
        if not token.isspace():
            last = "index" if last in _INDICES else token
    if depth or not current.strip():
        return (Piece(latex, Before.GAP),)
    return (*found, Piece(current.strip(), before, gap))


def _breaks(token: str, last: str) -> bool:
    if last in _INDICES:
        return False  # the index of what stands before it
    if token in _RELATIONS or token in _SPACES:
        return True
    return token in _SIGNS and last not in _NOT_OPERANDS and last != ""


def _opened(token: str) -> int:
    """+1 for what opens a bracket, -1 for what closes one."""
    if token.startswith((r"\begin", r"\left")) or token in ("{", "(", "["):
        return 1
    if token.startswith((r"\end", r"\right")) or token in ("}", ")", "]"):
        return -1
    # \big( and its kind: the bracket that they enlarge.
    if token.startswith((r"\big", r"\Big")):
        return _opened(token[-1])
    return 0
