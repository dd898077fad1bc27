"""What a property is, what it is asked of, and what it answers: plain records."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smisym.base.counting import of_units
from smisym.finite.message_passing import gamp
from smisym.integrate.accuracy import SAMPLING
from smisym.model.compiled import Model
from smisym.theory.effort import affordable
from smisym.theory.maps import OverlapMap

# Independent scramblings of the maps that are tested: as many values go into each t test.
SCRAMBLES = 16
# Tolerance of inner integrals where these converge fast: far below what the tests can see.
_FINE = 1e-4


@dataclass(frozen=True)
class Subject:
    """What is checked, and how much of it.

    model: compiled.  seed: of everything that is drawn.  maps: what makes an overlap map of it, called as
    :class:`~smisym.theory.maps.OverlapMap` is, with ``load`` as it has: the class itself, or one of a user's own.
    algorithm: what runs GAMP, called as :func:`~smisym.finite.message_passing.gamp` is.  declared: whether a
    declaration was given, which a reproduction can compile anew.  effort: cases and samples beside the usual number.
    """

    model: Model
    seed: int = 0
    maps: Any = OverlapMap
    algorithm: Any = gamp
    declared: bool = True
    effort: float = 1.0
    _made: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What several properties need, made by the first of them; of a share of all samples only where there was no
        time for all."""
        more = [effort for known, effort in self._made if known == name and effort >= self.effort]
        if more:
            return self._made[name, max(more)]
        made = self._made[name, self.effort] = make()
        return made

    def many(self, usual: int) -> int:
        """A number of cases or samples: ``usual``, as many times as the effort says."""
        return max(1, int(usual * self.effort))

    def number(self, *words: Any) -> int:
        """A seed of its own for every purpose."""
        return zlib.crc32(repr((self.seed, *words)).encode())

    def rng(self, *words: Any) -> np.random.Generator:
        return np.random.default_rng(self.number(*words))

    @property
    def examples(self) -> int:
        """Cases that hypothesis draws where each takes one posterior or some: fewer where posteriors are dear."""
        return self.many(max(8, 40 // self.model.channel.plan.dearer))

    @property
    def rtol(self) -> float:
        """Tolerance of the inner integrals of maps."""
        plan = self.model.channel.plan
        return plan.averaged if plan.method == SAMPLING or plan.moments > _FINE else _FINE

    def overlap_map(self, samples: int, *words: Any, scrambles: int = SCRAMBLES, **settings: Any) -> OverlapMap:
        """A map with a seed of its own; ``samples`` over all scrambles, fewer where posteriors are dear."""
        points = max(
            4, int(affordable(self.model, int(samples * max(self.effort, 1.0))) * min(self.effort, 1.0)) // scrambles
        )
        points = 1 << (points.bit_length() - 1)
        how = {"rtol": self.rtol, "seed": self.number("map", *words), **settings}
        made: OverlapMap = self.maps(self.model, samples=points * scrambles, scrambles=scrambles, **how)
        return made


@dataclass(frozen=True)
class Tried:
    """What came of one property.

    number: cases that told something, of what ``unit`` names.  worst: the largest deviation beside what is allowed (1
    is the limit) of a comparison without chance, the largest t of one with.  p: the chance of as much, after Bonferroni
    over all comparisons of this property, None without chance.  holds: None where the property does not apply, or
    nothing could be told; ``said`` has the reason, or what was found.  counterexample: lines of Python, for a failure.
    cut: why fewer cases or samples were tried than were meant to be, where time was up.
    """

    number: int
    unit: str
    worst: float = 0.0
    p: float | None = None
    holds: bool | None = True
    said: str = ""
    counterexample: str = ""
    cut: str = ""

    @property
    def tries(self) -> str:
        """The number of cases, in words."""
        return of_units(self.number, self.unit)


def left_out(reason: str) -> Tried:
    """Of a property that does not apply, or of which nothing can be told."""
    return Tried(0, "", holds=None, said=reason)


@dataclass(frozen=True)
class Property:
    """Something that must hold of every model.

    name: how it is asked for.  sentence: what it says.  source: where that is proved.  cost: "seconds" or "a minute" on
    two layers.  statistical: whether it is a test with a p-value.  verify: (subject, level) -> :class:`Tried`, where
    level is the chance of a false alarm that a statistical one may have.
    """

    name: str
    sentence: str
    source: str
    cost: str
    statistical: bool
    verify: Callable[[Subject, float], Tried] = field(repr=False)


# ------------------------------------------------------------------------------------------------ lines of Python


def written(array: np.ndarray) -> str:
    """An array as Python that makes it."""
    return f"np.array({np.asarray(array).tolist()!r})"


def prelude(subject: Subject) -> str:
    """Lines that make ``model``; of a model that was handed over, a comment."""
    declared = subject.model.architecture
    if subject.declared and declared is not None:
        made = f"model = smisym.compile({repr(declared).rstrip()})"
        return f"import numpy as np\nimport smisym\nfrom smisym import SMI, Architecture, Attention\n\n{made}"
    return "import numpy as np\nimport smisym\n\n# model: the one that was checked"


def lines(subject: Subject, body: str, **arrays: np.ndarray) -> str:
    """A counterexample: what it imports, the model, the arrays by name, and what to do with them."""
    given = "".join(f"{name} = {written(array)}\n" for name, array in arrays.items())
    text = f"{prelude(subject)}\n{given}{body}".splitlines()
    imported = [line for line in text if line.startswith(("import ", "from "))]
    rest = "\n".join(line for line in text if line not in imported)
    return "\n".join(dict.fromkeys(imported)) + "\n\n" + re.sub(r"\n{3,}", "\n\n", rest).strip()
