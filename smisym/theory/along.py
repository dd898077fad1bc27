"""Solutions along alpha: a curve, as a sequence, as a table and as a figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from smisym.base.cards import Card, Cell, Grid, Listing, Number, Points, Shown, Tabled, Variable
from smisym.base.errors import InputError
from smisym.base.outcome import ABOUT, attributes, provenance
from smisym.base.presenting import made
from smisym.base.solution import Solution
from smisym.base.threshold import Threshold

# Of rows, how many a table for people has a column for.
_COLUMNS = 8
# What may be known beside the overlaps, with its error under the same name and ``_stderr``.
BESIDE = {
    "bayes_error": "prediction error of the Bayes estimate",
    "plug_in_error": "prediction error of the plug-in estimate",
    "free_entropy": "free entropy, relative to a base measure on the outputs",
}


class Curve(Shown, Tabled, Sequence[Solution]):
    """Solutions of state evolution at increasing alphas, each with a :class:`~smisym.FixedPoint` as its value.

    A sequence: indexed, iterated and compared as a list of these Solutions, sliced into Curves, never changed.
    beside: of each Solution what else was computed there, in the names of ``smisym curve --json``: prediction errors
    and free entropy, or nothing.
    """

    def __init__(self, solutions: Iterable[Solution] = (), beside: Iterable[Mapping[str, Any]] = ()) -> None:
        self._solutions = tuple(solutions)
        if not all(isinstance(one, Solution) and hasattr(one.value, "alpha") for one in self._solutions):
            given = [one for one in self._solutions if not isinstance(one, Solution)] or "solutions of something else"
            allowed = "Solutions whose value is a FixedPoint"
            raise InputError("solutions", given, allowed, "pass what smisym.state_evolution returned")
        self.beside = tuple(beside)
        if len(self.beside) not in (0, len(self._solutions)):
            allowed = f"one record for each of the {len(self._solutions)} solutions, or none"
            raise InputError("beside", f"{len(self.beside)} records", allowed, "leave it out")

    # ---- a sequence ----------------------------------------------------------------------------------

    @overload
    def __getitem__(self, index: int) -> Solution: ...

    @overload
    def __getitem__(self, index: slice) -> Curve: ...

    def __getitem__(self, index: int | slice) -> Solution | Curve:
        if isinstance(index, slice):
            return Curve(self._solutions[index], self.beside[index])
        return self._solutions[index]

    def __len__(self) -> int:
        return len(self._solutions)

    def __iter__(self) -> Iterator[Solution]:
        return iter(self._solutions)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Curve | list | tuple):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Iterable[Solution]) -> list[Solution]:
        return [*self, *other]

    def __radd__(self, other: Iterable[Solution]) -> list[Solution]:
        return [*other, *self]

    def __repr__(self) -> str:
        """How many points, where, and whether all of them are a success, in one line; :meth:`summary` says more."""
        if not self:
            return "<Curve: no points>"
        where = (
            f"alpha from {self.alphas[0]:g} to {self.alphas[-1]:g}" if len(self) > 1 else f"alpha {self.alphas[0]:g}"
        )
        return f"<Curve: {len(self)} point{'s' * (len(self) > 1)}, {where}; {self._ended}>"

    # ---- what it holds -------------------------------------------------------------------------------

    @property
    def alphas(self) -> np.ndarray:
        """(n,)"""
        return np.array([solution.value.alpha for solution in self], dtype=float)

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each row of Q."""
        return self[0].value.labels if self else ()

    @property
    def _ended(self) -> str:
        good = sum(solution.result.ok for solution in self)
        return "success" if good == len(self) else f"{good} of {len(self)} a success"

    def summary(self) -> str:
        """A line for each alpha: the overlap of every row with its standard error, and how the solve ended."""
        lines = ["  ".join(["alpha".ljust(10), *(name.ljust(19) for name in self.names[:_COLUMNS]), "result"])]
        for solution in self:
            found = solution.value
            pairs = zip(np.diag(found.Q), np.diag(found.Q_error), strict=True)
            cells = [f"{q:.5f} +- {error:.1e}".ljust(19) for q, error in list(pairs)[:_COLUMNS]]
            lines.append("  ".join([f"{found.alpha:<10.6g}", *cells, solution.result.value]))
        return "\n".join(lines)

    def card(self) -> Card:
        """What a notebook shows, as plain data."""
        bad = [solution for solution in self if not solution.result.ok]
        worst = {solution.result.value: solution.message for solution in bad}
        notice = "; ".join(f"{code}: {message}" for code, message in worst.items())
        if bad:
            notice = f"{len(bad)} of {len(self)} points {'are' if len(bad) > 1 else 'is'} no success. {notice}"
        head = (r"$\alpha$", *self.names[:_COLUMNS], "result")
        listing = Listing(head, tuple(map(_line, self)), tuple(not solution.result.ok for solution in self))
        facts: list[tuple[str, Cell]] = [("points", str(len(self)))]
        notes = ("Digits in parentheses are one standard error of the last digits shown; bands are 95 % intervals.",)
        if not self:
            return Card("Curve", facts=tuple(facts))
        return Card("Overlap with the truth along alpha", notice, tuple(facts), (), listing, self.picture(), notes)

    def picture(self, thresholds: Iterable[Threshold] = ()) -> Points:
        """What ``plot`` draws: the overlap of every row against alpha."""
        if not self:
            raise InputError("curve", "no points", "at least one point", "ask for one alpha or more")
        return Points(tuple(map(point_record, self)), self.names, tuple(vars(threshold) for threshold in thresholds))

    def plot(self, ax: Any = None, thresholds: Solution | Iterable[Threshold] = ()) -> Any:
        """Overlaps against alpha with their 95 % bands, on a matplotlib Axes or on a new one, which is returned.

        thresholds: dotted lines; a Solution of :func:`smisym.weak_recovery`, or its Thresholds.  Points that are no
        success are hollow and not joined to others.
        """
        given: Any = thresholds.value if isinstance(thresholds, Solution) else thresholds
        found = tuple(given) if isinstance(given, Iterable) else (given,)
        if not all(isinstance(one, Threshold) for one in found):
            allowed, fix = "a Solution of smisym.weak_recovery, or its Thresholds", "leave it out, or find them first"
            raise InputError("thresholds", thresholds, allowed, fix)
        return made("plot", self.picture(found), ax)

    def grid(self) -> Grid:
        """All overlaps as arrays along ``alpha``, ``row`` and ``row_``, as plain data."""
        rows, names = len(self.names), self.names
        shape = (len(self), rows, rows)
        one, whole = ("alpha",), ("alpha", "row", "row_")
        matrices = {
            "overlap": ([s.value.Q for s in self], "overlap of rows with the truth"),
            "overlap_error": ([s.value.Q_error for s in self], "one standard error of the overlap"),
            "deterministic_error": ([_left(s) for s in self], "left of the equation, in the unit of the overlap"),
            "conjugate": ([s.value.Q_hat for s in self], "alpha E(Q), the conjugate overlap"),
        }
        variables = {
            name: Variable(whole, np.array(values, dtype=float).reshape(shape), about, "1")
            for name, (values, about) in matrices.items()
        }
        each = [provenance(s) | {"start": s.value.start} for s in self]
        for name in ("result", "samples", "seed", "start"):
            kind = np.str_ if name in ("result", "start") else int
            variables[name] = Variable(one, np.array([record[name] for record in each], dtype=kind), ABOUT[name])
        freedom = [s.degrees_of_freedom or 0 for s in self]
        variables["degrees_of_freedom"] = Variable(one, np.array(freedom, dtype=int), ABOUT["degrees_of_freedom"])
        for name, about in BESIDE.items():
            if any(name in record for record in self.beside):
                variables[name] = Variable(one, numbers_of(self.beside, name), about)
                stated = numbers_of(self.beside, f"{name}_stderr")
                variables[f"{name}_stderr"] = Variable(one, stated, "one standard error")
        coordinates: dict[str, Any] = {"alpha": self.alphas, "row": names, "row_": names}
        shared = {name: value for name, value in (attributes(self[0]) if self else {}).items() if name != "samples"}
        return Grid(coordinates, variables, whole, shared)


def point_record(solution: Solution) -> dict[str, Any]:
    """A point as the record that figures take."""
    found = solution.value
    return {
        "alpha": found.alpha, "Q": found.Q, "Q_error": found.Q_error, "result": solution.result.value,
        "degrees_of_freedom": solution.degrees_of_freedom,
    }  # fmt: skip


def _line(solution: Solution) -> tuple[Cell, ...]:
    found = solution.value
    pairs = list(zip(np.diag(found.Q), np.diag(found.Q_error), strict=True))[:_COLUMNS]
    return (Number(found.alpha), *(Number(float(q), float(error)) for q, error in pairs), solution.result.value)


def _left(solution: Solution) -> np.ndarray:
    left = solution.deterministic_error
    return np.full(solution.value.Q.shape, np.nan) if left is None else np.asarray(left, dtype=float)


def numbers_of(records: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    """The numbers under one name, infinite where the record says so beside it."""
    ends = {"+inf": np.inf, "-inf": -np.inf}
    values = []
    for record in records:
        value = record.get(name)
        if value is None and name == "free_entropy":
            value = ends.get(record.get("unbounded", ""))
        values.append(np.nan if value is None else float(value))
    return np.array(values, dtype=float)
