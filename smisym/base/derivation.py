"""The trail of a derivation: plain data that every pass appends to.

A pass that turns one object into the next (architecture into link, link into level set, ...)
records what it did as a :class:`Step`.  The steps are the only source of the documents, so
that what is written down is what was computed.  Nothing here renders anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import sympy as sp

from smisym.base.presenting import made


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
        The room it was made in, "architecture", "link", "symmetry", "chart", "channel"; or, of what follows from the
        model, what it is about: "gamp", "evolution", "entropy" and so on.
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


@dataclass(frozen=True)
class Origin:
    """What makes a derivation again.

    declaration: the network as TOML, or as Python where it has no file.  command: lines to run.  seed: of all checks.
    level: the chance that any check of a right model fails, None where none was run.  versions: of what it ran on.
    """

    declaration: str
    command: str
    seed: int
    level: float | None
    versions: tuple[tuple[str, str], ...]


class Derivation:
    """An append-only list of steps.

    origin: what makes it again, None where nobody said.
    """

    def __init__(self, title: str = "", origin: Origin | None = None) -> None:
        self.title = title
        self.origin = origin
        self._steps: list[Step | Callable[[], Step]] = []

    def add(self, step: Step | Callable[[], Step]) -> None:
        """Append a step, or what makes it: writing formulas out can cost more than the rest of a compilation, and is
        done when somebody reads them."""
        self._steps.append(step)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All of them, in order."""
        self._steps = [step if isinstance(step, Step) else step() for step in self._steps]
        return tuple(step for step in self._steps if isinstance(step, Step))

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self._steps)

    def __repr__(self) -> str:
        title = f"{self.title!r}, " if self.title else ""
        return f"<Derivation: {title}{len(self)} step{'' if len(self) == 1 else 's'}>"

    def _repr_html_(self) -> str:
        """For notebooks: the steps, folded, with their formulas as MathML."""
        return str(made("trail", self))

    def stage(self, name: str) -> tuple[Step, ...]:
        """The steps recorded by one room."""
        return tuple(step for step in self.steps if step.stage == name)
