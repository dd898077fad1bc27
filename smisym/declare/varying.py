"""Declarations with one value changed: what a sweep or a phase diagram goes over, by the names of a file."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from smisym.base.errors import InputError
from smisym.declare.architecture import Architecture, Attention
from smisym.declare.smi import SMI

MOST_VALUES = 10_000
_LAYER = re.compile(r"layers?\.(\d+)\.(\w+)", re.ASCII)
_FORM = "NAME=START:STOP:COUNT, NAME=START:STOP:COUNT:log, or NAME=VALUE,VALUE,..."
# Of declarations, what holds one number or none.
_NUMBERS: dict[type, tuple[str, ...]] = {
    Architecture: ("tokens", "noise"),
    SMI: ("tokens", "noise", "rank_ratio", "aspect"),
    Attention: ("rank", "skip", "beta", "heads", "readout", "scale", "rank_ratio"),
}


@dataclass(frozen=True)
class Varied:
    """A parameter by its name, its values in increasing order, and "linear" or "log", as they are spaced."""

    name: str
    values: tuple[float, ...]
    scale: str = "linear"


def read_varied(text: str) -> Varied:
    """What ``skip=0:4:33``, ``beta=0.1:10:9:log`` or ``layers.1.skip=0.5,1,2`` says, both ends included.

    Raises InputError for anything else.
    """
    name, equal, rest = text.partition("=")
    parts = rest.split(":")
    try:
        if not equal or not name.strip() or len(parts) not in (1, 3, 4) or (len(parts) == 4 and parts[3] != "log"):
            raise ValueError(text)
        if len(parts) == 1:
            values = [float(part) for part in rest.split(",")]
        else:
            start, stop, count = float(parts[0]), float(parts[1]), int(parts[2])
            if not 1 <= count <= MOST_VALUES:
                raise ValueError(text)
            space = np.geomspace if len(parts) == 4 else np.linspace
            if not (math.isfinite(start) and math.isfinite(stop)) or (len(parts) == 4 and min(start, stop) <= 0):
                raise ValueError(text)
            values = [float(f"{value:.12g}") for value in space(start, stop, count)]
    except ValueError:
        raise _bad(text) from None
    if not all(math.isfinite(value) for value in values):
        raise _bad(text)
    return Varied(name.strip(), tuple(sorted(set(values))), "log" if len(parts) == 4 else "linear")


def _bad(text: str) -> InputError:
    allowed = f"{_FORM}, with finite numbers and 1 <= COUNT <= {MOST_VALUES}; those of log above 0"
    return InputError("parameter to vary", text, allowed, "write for example skip=0:4:17")


def varied(declaration: Architecture | SMI, name: str, value: float) -> Architecture | SMI:
    """The declaration with the parameter of that name at that value.

    name: of the top of a file (``noise``, ``tokens``), of all its layers (``skip``, ``beta``, ``readout``, ``scale``,
    ``rank``, ``heads``, ``rank_ratio``), or of one, counted from 1 (``layers.2.skip``).  Raises InputError for a name
    that the declaration does not have, and what its own checks raise for the value.
    """
    if not isinstance(declaration, Architecture | SMI):
        raise InputError("declaration", declaration, "an Architecture or an SMI", "pass Architecture(...) or SMI(...)")
    own = names_of(declaration)
    if name not in own and name not in _of_one_layer(declaration):
        near = difflib.get_close_matches(name, own, n=1)
        fix = f"write {near[0]}" if near else "choose one of these"
        if isinstance(declaration, Architecture):
            count = len(declaration.layers)
            fix += f"; one of {count} layers alone is layers.NUMBER.NAME" if count > 1 else "; there is one layer"
        raise InputError("parameter to vary", name, ", ".join(own), fix)
    if name in _NUMBERS[type(declaration)]:
        return _with(declaration, name, value)
    assert isinstance(declaration, Architecture)
    one = _LAYER.fullmatch(name)
    number, key = (int(one[1]), one[2]) if one else (None, name)
    layers = tuple(
        _with(layer, key, value) if number in (None, place) else layer
        for place, layer in enumerate(declaration.layers, start=1)
    )
    return replace(declaration, layers=layers)


def names_of(declaration: Architecture | SMI) -> tuple[str, ...]:
    """What can be varied of a declaration."""
    top = _NUMBERS[type(declaration)]
    if isinstance(declaration, SMI):
        return top
    each = _NUMBERS[Attention]
    # Of one layer both are the same: the short name says it.
    return (*top, *each, *(_of_one_layer(declaration) if len(declaration.layers) > 1 else ()))


def _of_one_layer(declaration: Architecture | SMI) -> tuple[str, ...]:
    """Names that mean one layer alone."""
    if isinstance(declaration, SMI):
        return ()
    numbers = range(1, len(declaration.layers) + 1)
    return tuple(f"layers.{number}.{key}" for number in numbers for key in _NUMBERS[Attention])


def _with(declaration: Any, name: str, value: float) -> Any:
    whole = next(f.type for f in fields(declaration) if f.name == name) == "int"
    return replace(declaration, **{name: int(value) if whole and float(value).is_integer() else value})


def halfway(low: float, high: float, scale: str, whole: bool) -> float | None:
    """A value between two, as they are spaced; None between whole numbers that are neighbours."""
    middle = math.sqrt(low * high) if scale == "log" else 0.5 * (low + high)
    middle = float(round(middle)) if whole else float(f"{middle:.12g}")
    return middle if low < middle < high else None


def is_whole(declaration: Architecture | SMI, name: str) -> bool:
    """Whether a parameter takes whole numbers alone."""
    key = name.rpartition(".")[2]
    return key in ("tokens", "rank", "heads")


def spacing(values: Sequence[float]) -> str:
    """ "log" for values above 0 with ratios nearer to one another than differences are, else "linear"."""
    v = np.sort(np.asarray(values, dtype=float))
    if len(v) < 3 or v[0] <= 0:
        return "linear"
    steps, ratios = np.diff(v), np.diff(np.log(v))
    return "log" if np.ptp(ratios) / ratios.mean() < np.ptp(steps) / steps.mean() else "linear"
