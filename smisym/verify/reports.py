"""What a verification reports: one row a property."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smisym.base.counting import counted
from smisym.verify.properties import Tried

HOLDS, FAILS, LEFT_OUT = "holds", "fails", "left out"
# What is said of a property whose seconds were up.
LATE = "seconds of the processor"


@dataclass(frozen=True)
class Row:
    """One property: what it says and where from, what came of it, and the seconds that it took."""

    name: str
    sentence: str
    source: str
    tried: Tried
    seconds: float

    @property
    def verdict(self) -> str:
        return LEFT_OUT if self.tried.holds is None else HOLDS if self.tried.holds else FAILS

    @staticmethod
    def of(record: Mapping[str, Any]) -> Row:
        """The row of a record (:meth:`record`)."""
        worst = math.inf if record["worst"] is None else record["worst"]
        holds = {HOLDS: True, FAILS: False, LEFT_OUT: None}[record["verdict"]]
        said, shown, cut = record["said"], record["counterexample"] or "", record["cut_short"] or ""
        tried = Tried(record["tried"], record["of"], worst, record["p"], holds, said, shown, cut)
        return Row(record["property"], record["sentence"], record["source"], tried, record["seconds"])

    def record(self) -> dict[str, Any]:
        """As plain types, for files; what is infinite is None."""
        t = self.tried
        worst = t.worst if math.isfinite(t.worst) else None
        return {
            "property": self.name, "sentence": self.sentence, "source": self.source, "verdict": self.verdict,
            "tried": t.number, "of": t.unit, "worst": worst, "p": t.p, "said": t.said,
            "counterexample": t.counterexample or None, "cut_short": t.cut or None, "seconds": round(self.seconds, 3),
        }  # fmt: skip


@dataclass(frozen=True)
class Report:
    """What was asked of a model and what came of it.

    rows: one a property, in their order.  seed: as asked.  effort: cases and samples beside the usual number.  level:
    the chance of a false alarm of each statistical property; false_alarm: of all that were asked together, at most.
    """

    rows: tuple[Row, ...]
    seed: int
    effort: float
    level: float
    false_alarm: float

    def __repr__(self) -> str:
        held, out = (sum(row.verdict == which for row in self.rows) for which in (HOLDS, LEFT_OUT))
        tried, failed = held + len(self.failures), ", ".join(row.name for row in self.failures)
        told = [f"{held} of {counted(tried, 'property', 'properties')} {'hold' if tried > 1 else 'holds'}"]
        if failed:
            told.append(f"{failed} {'fail' if len(self.failures) > 1 else 'fails'}")
        if out:
            told.append(f"{out} left out")
        return f"<Report: {'; '.join(told if tried else ['nothing was tried', *told[1:]])}>"

    @property
    def ok(self) -> bool:
        """Whether no property fails; one that is left out is no failure, and says why, but something must be tried."""
        return not self.failures and any(row.verdict == HOLDS for row in self.rows)

    @property
    def failures(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.verdict == FAILS)

    def summary(self) -> str:
        """In words: what holds, what was left out and why, and each property that fails with its counterexample."""
        out = told_apart([row.record() for row in self.rows])
        if all(row.verdict == LEFT_OUT for row in self.rows):
            out.append("Nothing was tried.")
        parts = [
            f"{row.name}: {row.sentence}\n{_found(row)}\n\n{row.tried.counterexample}".rstrip() for row in self.failures
        ]
        return "\n\n".join(["\n".join([repr(self), *out]), *parts])

    def record(self) -> dict[str, Any]:
        """As plain types, for files."""
        return {
            "properties": [row.record() for row in self.rows], "ok": self.ok, "seed": self.seed,
            **asked(self.effort), "level": self.level, "false_alarm": self.false_alarm,
        }  # fmt: skip


def asked(effort: float) -> dict[str, bool]:
    """How much was asked for, as files have it."""
    return {"thorough": effort > 1} | ({"quick": True} if effort < 1 else {})


def told_apart(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines that say what was left out, and what was tried in part: one for each reason.

    rows: records (:meth:`Row.record`).
    """
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row["verdict"] == LEFT_OUT:
            reasons.setdefault(f"left out: {row['said']}", []).append(row["property"])
    for row in rows:
        if row["cut_short"]:
            reasons.setdefault(row["cut_short"], []).append(row["property"])
    return [f"{', '.join(names)} {'is ' if len(names) == 1 else 'are '}{reason}" if reason.startswith("left out")
            else f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]  # fmt: skip


def verdict_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """One sentence: how many properties hold, fail, were left out, and of these for lack of seconds."""
    count = Counter(row["verdict"] for row in rows)
    late = sum(row["verdict"] == LEFT_OUT and LATE in row["said"] for row in rows)
    told = [f"{count[verdict]} {word}" for verdict, word in ((HOLDS, "hold"), (FAILS, "fail")) if count[verdict]]
    if count[LEFT_OUT]:
        lack = f", {'all' if late == count[LEFT_OUT] else late} of these for lack of time" if late else ""
        told.append(f"{count[LEFT_OUT]} left out{lack}")
    return f"Of {counted(len(rows), 'property', 'properties')} {'; '.join(told)}."


def _found(row: Row) -> str:
    t = row.tried
    chance = f"{t.worst:.3g} times what is allowed" if t.p is None else f"t = {t.worst:.3g}, chance {t.p:.1g}"
    if not t.number:
        return f"Not so: {t.said or chance}"
    return f"Not so after {t.tries}: {chance}{f'; {t.said}' if t.said else ''}"
