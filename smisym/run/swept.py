"""What a sweep found: records, value by value, as a table and as a figure."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from smisym.base.cards import Card, Cell, Drawn, Grid, Listing, Number, Shown, Stages, Tabled, Variable, row_names
from smisym.base.errors import InputError
from smisym.base.outcome import ABOUT, UNITS
from smisym.base.solution import Result, worst
from smisym.theory.along import BESIDE, numbers_of

Record = dict[str, Any]

# Columns of numbers of the tables, by what is swept: name of the column, name in the record, what it is.
_OF_THRESHOLDS = (
    ("alpha", "alpha", "samples per dimension; infinite of what is hard"),
    ("alpha_error", "error", "one standard error"),
)
_MATRICES = (("overlap", "Q"), ("overlap_error", "Q_error"), ("deterministic_error", "Q_deterministic_error"))


class Sweep(list[Record], Shown, Tabled, Drawn):
    """One record for each value, in the order given: a list that shows itself."""

    def __repr__(self) -> str:
        """How many values, which, and whether all are a success, in one line."""
        good = sum(_code(record).ok for record in self)
        values = ", ".join(str(record["value"]) for record in self[:4]) + (", ..." if len(self) > 4 else "")
        ended = "success" if good == len(self) else f"{good} of {len(self)} a success"
        return f"<Sweep: {self._what} at {len(self)} value{'s' * (len(self) != 1)} ({values}); {ended}>"

    @property
    def _what(self) -> str:
        return "curves" if any("points" in record for record in self) else "thresholds"

    def card(self) -> Card:
        """What a notebook shows, as plain data."""
        bad = {_code(record) for record in self if not _code(record).ok}
        notice = "; ".join(f"{code.value}: {code.message}" for code in sorted(bad, key=lambda code: code.value))
        line, head = (_curve_line, ("points", r"$\alpha$", "overlaps at the last"))
        if self._what == "thresholds":
            line, head = (_thresholds_line, ("weak recovery", "hard", "perfect recovery"))
        rows = tuple((str(record["value"]), *line(record), _code(record).value) for record in self)
        listing = Listing(("value", *head, "result"), rows, tuple(not _code(record).ok for record in self))
        title = f"Sweep of {self._what}"
        return Card(title, notice, listing=listing if self else None, picture=self._drawn())

    def picture(self) -> Stages:
        """What ``plot`` draws: finite thresholds against the value, where it is a number."""
        found = self._drawn()
        if found is None:
            allowed = "thresholds at values that are numbers, some of them finite"
            raise InputError(
                "sweep", repr(self), allowed, 'of curves draw one: smisym.curve_figure(sweep[0]["points"])'
            )
        return found

    def _drawn(self) -> Stages | None:
        numbers = [_number(record["value"]) for record in self]
        if self._what == "curves" or None in numbers:
            return None
        places = [
            (value, _code(record).ok, one)
            for value, record in zip(numbers, self, strict=True)
            for one in record["thresholds"]
            if one["alpha"] is not None
        ]
        if not places:
            return None
        values, ok, found = zip(*places, strict=True)
        return Stages(np.array(values, dtype=float), np.array(ok, dtype=bool), found)

    def grid(self) -> Grid:
        """A line for each threshold, or for each entry of Q at each alpha, of each value; as plain data."""
        lines = self._lines_of_points() if self._what == "curves" else self._lines_of_thresholds()
        one = ("line",)
        variables = {name: Variable(one, _column(values), *about) for name, (values, *about) in lines.items()}
        size = max((len(v.values) for v in variables.values()), default=0)
        return Grid({"line": np.arange(size)}, variables, one)

    def _lines_of_thresholds(self) -> dict[str, tuple[Any, ...]]:
        found = [(record, one) for record in self for one in record["thresholds"]]
        columns: dict[str, tuple[Any, ...]] = {
            "value": ([record["value"] for record, _ in found], "of the parameter that was swept"),
            "kind": ([one["kind"] for _, one in found], "kind of threshold"),
            "rows": ([", ".join(one["names"]) for _, one in found], "rows of Z that take part"),
        }
        for name, key, about in _OF_THRESHOLDS:
            columns[name] = ([math.inf if one[key] is None else one[key] for _, one in found], about, UNITS["alpha"])
        samples = [-1 if one.get("samples") is None else one["samples"] for _, one in found]
        columns["samples"] = (samples, "of the map; -1: not sampled")
        return columns | {"result": ([record["result"] for record, _ in found], ABOUT["result"])}

    def _lines_of_points(self) -> dict[str, tuple[Any, ...]]:
        places = [
            (record, point, names, i, j)
            for record in self
            for point in record["points"]
            for names in [row_names(record["labels"], len(point["Q"]))]
            for i, j in np.ndindex(len(point["Q"]), len(point["Q"]))
        ]
        columns: dict[str, tuple[Any, ...]] = {
            "value": ([record["value"] for record, *_ in places], "of the parameter that was swept"),
            "alpha": ([point["alpha"] for _, point, *_ in places], ABOUT["alpha"], UNITS["alpha"]),
            "row": ([names[i] for *_, names, i, _ in places], "row of Z"),
            "row_": ([names[j] for *_, names, _, j in places], "row of Z"),
        }
        for name, key in _MATRICES:
            columns[name] = ([_known(point[key][i][j]) for _, point, _, i, j in places], name.replace("_", " "), "1")
        points = [point for _, point, *_ in places]
        for name, about in BESIDE.items():
            columns[name] = (numbers_of(points, name).tolist(), about)
            columns[f"{name}_stderr"] = (numbers_of(points, f"{name}_stderr").tolist(), "one standard error")
        columns["samples"] = ([point["samples"] for _, point, *_ in places], ABOUT["samples"])
        return columns | {"result": ([point["result"] for _, point, *_ in places], ABOUT["result"])}


def _code(record: Record) -> Result:
    codes = [point["result"] for point in record["points"]] if "points" in record else [record["result"]]
    return worst([Result(code) for code in codes])


def _thresholds_line(record: Record) -> tuple[Cell, ...]:
    by_kind: dict[str, list[Record]] = {}
    for one in record["thresholds"]:
        by_kind.setdefault(one["kind"], []).append(one)
    weak = [*by_kind.get("trivial", ()), *by_kind.get("weak", ())]
    hard = ", ".join(name for one in by_kind.get("hard", ()) for name in one["names"]) or "–"
    return _numbers(weak), hard, _numbers(by_kind.get("perfect_amp", ()))


def _numbers(found: Any) -> Cell:
    numbers = tuple(Number(math.inf if one["alpha"] is None else one["alpha"], one["error"]) for one in found)
    return numbers or "–"


def _curve_line(record: Record) -> tuple[Cell, ...]:
    points = record["points"]
    if not points:
        return "0", "–", "–"
    last = tuple(
        Number(q[i], error[i]) for i, (q, error) in enumerate(zip(points[-1]["Q"], points[-1]["Q_error"], strict=True))
    )
    return str(len(points)), (Number(points[0]["alpha"]), Number(points[-1]["alpha"])), last[:8]


def _known(value: float | None) -> float:
    return math.nan if value is None else value


def _number(value: Any) -> float | None:
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return float(value) if real and math.isfinite(value) else None


def _column(values: list[Any]) -> np.ndarray:
    """Numbers as numbers, text as text, and anything else as what it says of itself."""
    if all(_number(value) is not None or isinstance(value, float) for value in values):
        return np.array(values)
    return np.array([str(value) for value in values], dtype=np.str_)
