"""Values that JSON has no type for, beside the JSON that holds them: arrays, tuples, and numbers that are not finite.

A document holds lists where arrays and tuples were and ``null`` where a number is not finite, as all files of this
package do.  Its "types" says what these are, by JSON pointers (RFC 6901) to them:

    "/checks/residual": "float64 (2, 2)"    an array of this type and shape
    "/checks/tries": "tuple"
    "/points/3/Q_hat/0/0": "+inf"           or "-inf", "nan"

So whoever reads the JSON alone reads what is in it, and whoever reads the types too has it back exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from smisym.base.errors import InputError

_NUMBERS = {"nan": math.nan, "+inf": math.inf, "-inf": -math.inf}
_ARRAYS = {kind: np.dtype(kind) for kind in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                                             "uint64", "float16", "float32", "float64")}  # fmt: skip
_ARRAY = re.compile(r"(\w+) \(((?:\d+(?:, \d+)*)?,?)\)")


def types_of(value: Any, place: str = "") -> dict[str, str]:
    """Pointers to what JSON has no type for, and what that is.

    Raises InputError for what cannot be written down exactly: other objects, other arrays, keys that are no text.
    """
    return dict(_told(value, place))


def _told(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if value is None or isinstance(value, bool | np.bool_ | str | int | np.integer):
        return
    if isinstance(value, float | np.floating):
        if not math.isfinite(value):
            yield place, _name(float(value))
    elif isinstance(value, np.ndarray):
        yield from _told_of_array(value, place)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise _unknown(key, f"a key at {place or '/'}")
            yield from _told(item, f"{place}/{_escaped(key)}")
    elif isinstance(value, list | tuple):
        if isinstance(value, tuple):
            yield place, "tuple"
        for number, item in enumerate(value):
            yield from _told(item, f"{place}/{number}")
    else:
        raise _unknown(value, place)


def _told_of_array(array: np.ndarray, place: str) -> Iterator[tuple[str, str]]:
    if array.dtype.name not in _ARRAYS:
        raise _unknown(f"an array of {array.dtype}", place)
    yield place, f"{array.dtype.name} {array.shape}"
    if array.dtype.kind == "f":
        for index in np.argwhere(~np.isfinite(array)):
            # Of an array of no dimensions the entry has another place than the array.
            yield "/".join([place, *(map(str, index) if array.ndim else [""])]), _name(float(array[tuple(index)]))


def with_types(value: Any, types: Mapping[str, str]) -> Any:
    """What was described, from its JSON and its types.

    Raises ValueError where the two do not fit.
    """
    left = dict(types)
    found = _rebuilt(value, left, "")
    if left:
        raise ValueError(f"types of {next(iter(left))!r}, which is not there")
    return found


def _rebuilt(value: Any, types: dict[str, str], place: str) -> Any:
    told = types.pop(place, None)
    if told in _NUMBERS:
        if value is not None:
            raise ValueError(f"{place} is said to be {told}, but it is not null")
        return _NUMBERS[told]
    if isinstance(value, Mapping):
        found: Any = {key: _rebuilt(item, types, f"{place}/{_escaped(key)}") for key, item in value.items()}
    elif isinstance(value, list):
        found = [_rebuilt(item, types, f"{place}/{number}") for number, item in enumerate(value)]
    else:
        found = _NUMBERS.get(types.pop(f"{place}/", ""), None) if value is None else value
    if told is None:
        return found
    if told == "tuple" and isinstance(found, list):
        return tuple(found)
    return _array(found, told, place)


def _array(value: Any, told: str, place: str) -> np.ndarray:
    match = _ARRAY.fullmatch(told)
    if match is None or match[1] not in _ARRAYS:
        raise ValueError(f"{place} is said to be {told[:80]!r}, which is no type")
    dtype, shape = _ARRAYS[match[1]], tuple(int(size) for size in re.findall(r"\d+", match[2]))
    entries = list(_leaves(value, len(shape)))
    kinds: Any = {"b": bool, "f": (int, float)}.get(dtype.kind, int)
    if not all(isinstance(entry, kinds) and (dtype.kind == "b" or not isinstance(entry, bool)) for entry in entries):
        raise ValueError(f"{place} is said to be {told!r}, but some of it is not")
    made = np.array(entries, dtype=dtype)
    # Only an empty array says less about its shape than its lists do.
    if made.size and np.shape(value) != shape:
        raise ValueError(f"{place} is said to be {told!r}, but has the shape {np.shape(value)}")
    return made.reshape(shape)


def _leaves(value: Any, depth: int) -> Iterator[Any]:
    if not depth:
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, depth - 1)
    else:
        raise ValueError("an array has numbers where it should have lists")


def _name(number: float) -> str:
    return "nan" if math.isnan(number) else "+inf" if number > 0 else "-inf"


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _unknown(given: Any, place: str) -> InputError:
    allowed = "numbers, text, arrays of numbers, lists, tuples and dicts of these with text as keys"
    return InputError(f"result to save, at {place or '/'}", given, allowed, "leave it out of what you save")
