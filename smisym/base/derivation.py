"""The trail of a derivation: plain data that every pass appends to.

A pass that turns one object into the next (architecture into link, link into level set, ...)
records what it did as a :class:`Step`.  The steps are the only source of the documents, so
that what is written down is what was computed.  Nothing here renders anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import sympy as sp


@dataclass(frozen=True)
class Formula:
    """One displayed equation ``left = right``; a side may be None or plain LaTeX text.

    ``code`` is the same content as a line of Python, where there is one.
    """

    left: sp.Basic | str | None
    right: sp.Basic | str
    note: str = ""
    code: str = ""


@dataclass(frozen=True)
class Step:
    """One step of the derivation.

    stage
        The room it was made in: "architecture", "link", "symmetry", "chart", "channel", "model".
    title, text
        What was done and why, in plain prose (no markup; ``$...$`` holds inline LaTeX).
    formulas
        The objects made by the step, in order.
    checks
        What was verified: (statement, how), e.g. ("f(Z(t, s; y)) = y", "substituted, simplified to 0").
    source
        Where the step comes from: paper and equation, or a proof given in ``text``.
    """

    stage: str
    title: str
    text: str = ""
    formulas: tuple[Formula, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    source: str = ""


@dataclass
class Derivation:
    """An append-only list of steps."""

    title: str = ""
    steps: list[Step] = field(default_factory=list)

    def add(self, step: Step) -> None:
        self.steps.append(step)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def stage(self, name: str) -> tuple[Step, ...]:
        """The steps recorded by one room."""
        return tuple(step for step in self.steps if step.stage == name)
