"""Many declarations at once: a folder of files, or families that one file spells out.

A file of families holds ``[[rows]]``, each a declaration with a name, and ``[[families]]``, each a declaration with a
``name`` that has places for what varies, and ``vary``, values by the names of a declaration: all of their combinations
are rows.  What two rows declare alike is one row, by the name that comes first.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from smisym.base.errors import InputError, Words
from smisym.base.files import check_path, read_bytes
from smisym.declare.architecture import Architecture, Attention
from smisym.declare.io import MAX_DECLARATION_BYTES, load, restored
from smisym.declare.smi import SMI
from smisym.declare.toml_text import read_toml

# More than anybody will solve, and than a slip of the keyboard should make.
MOST_ROWS = 10_000
_PLACE = re.compile(r"\{([\w.]+)\}")
_OF_LAYER = re.compile(r"layers\.(\d+)\.(\w+)", re.ASCII)
_LAYERS, _TOP = ({f.name for f in fields(kind)} for kind in (Attention, Architecture))
# Of a row, what is no declaration.
_ABOUT = ("name", "samples", "closed_form")


@dataclass(frozen=True)
class Row:
    """One declaration of a list.

    name: for people, unique.  samples: of the first try of its first threshold, where more are needed than such
    networks usually take; None where not.  closed_form: its first threshold as a fraction, where it is known from
    elsewhere.  place: of the file, "" for none.
    """

    name: str
    declared: Architecture | SMI
    samples: int | None = None
    closed_form: str | None = None
    place: str = field(default="", compare=False)


def read_rows(*places: str | os.PathLike[str]) -> tuple[Row, ...]:
    """The rows of files and folders, in order, each declaration once.

    Of a folder every file that ends in .toml, by name; a file without ``rows`` and ``families`` is one declaration,
    whose row has the file's name.  Raises InputError for what cannot be read, and for two declarations of one name.
    """
    found = [row for place in places for row in _rows_of(check_path(place, "folder of declarations"))]
    return once(found)


def once(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Each declaration once, by its first name; InputError where two have the same name."""
    by_digest: dict[str, Row] = {}
    for row in rows:
        by_digest.setdefault(row.declared.digest, row)
    names: dict[str, Row] = {}
    for row in by_digest.values():
        if names.setdefault(row.name, row) is not row:
            places = " and ".join(dict.fromkeys(one.place for one in (names[row.name], row) if one.place))
            fix = f"change one of the names{f' in {places}' if places else ''}"
            raise InputError("names of rows", row.name, "a name for each declaration", fix)
    return tuple(by_digest.values())


def _rows_of(place: Path) -> Iterator[Row]:
    if not place.is_dir():
        yield from _rows_in(place, place.stem)
        return
    files = sorted(place.rglob("*.toml"))
    if not files:
        given = Words(f"{place}, in which no file ends in .toml")
        fix = "put declarations there, as docs/declaring.md writes them"
        raise InputError("folder of declarations", given, "a folder with at least one", fix)
    for path in files:
        yield from _rows_in(path, path.relative_to(place).with_suffix("").as_posix())


def _rows_in(path: Path, name: str) -> Iterator[Row]:
    where = f"file of declarations {path}"
    table = read_toml(read_bytes(path, where, MAX_DECLARATION_BYTES), where)
    if not {"rows", "families"} & set(table):
        yield Row(name, load(path), place=str(path))
        return
    for key in table:
        if key not in ("rows", "families"):
            fix = "put it into a row or a family, or take the others out"
            raise InputError(f"key in {where}", key, "rows and families, beside one another", fix)
    for one in _listed(table, "rows", where):
        yield replace(_row(one, where), place=str(path))
    for one in _listed(table, "families", where):
        for row in _family(one, where):
            yield replace(row, place=str(path))


def _listed(table: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InputError(f"{key} in {where}", found, f"tables [[{key}]]", f"write [[{key}]], with double brackets")
    return found


def _row(table: Mapping[str, Any], where: str) -> Row:
    name, samples, exact = (table.get(key) for key in _ABOUT)
    if not isinstance(name, str) or not name:
        fix = 'write name = "two layers, T = 2"'
        raise InputError(f"name of a row in {where}", name, "a text that is not empty", fix)
    where = f"row {name!r} of {where}"
    if samples is not None and (isinstance(samples, bool) or not isinstance(samples, int) or samples < 1):
        raise InputError(f"samples in {where}", samples, "an integer >= 1", "leave it out for the usual number")
    if exact is not None:
        try:
            Fraction(exact)
        except (TypeError, ValueError, ZeroDivisionError):
            fix = 'write closed_form = "1/20", or leave it out'
            raise InputError(f"closed_form in {where}", exact, "a fraction, as text", fix) from None
    declared = restored({key: value for key, value in table.items() if key not in _ABOUT}, where)
    return Row(name, declared, samples, exact)


def _family(table: Mapping[str, Any], where: str) -> Iterator[Row]:
    name, vary = table.get("name"), table.get("vary", {})
    where = f"family {name!r} of {where}"
    if not isinstance(vary, dict) or not all(isinstance(values, list) and values for values in vary.values()):
        fix = "write vary = { tokens = [2, 3], rank = [1, 2] }"
        raise InputError(f"vary in {where}", vary, "names, each with a list of values", fix)
    if math.prod(map(len, vary.values())) > MOST_ROWS:
        raise InputError(f"vary in {where}", Words("more rows than that"), f"at most {MOST_ROWS}", "list fewer values")
    _check_places(name, list(vary), where)
    rest = {key: value for key, value in table.items() if key not in ("vary", "name")}
    for values in itertools.product(*vary.values()):
        at = dict(zip(vary, values, strict=True))
        one = deepcopy(rest)
        for key, value in at.items():
            _put(one, key, value, where)
        yield _row({**one, "name": _named(str(name), at)}, where)


def _named(name: str, at: Mapping[str, Any]) -> str:
    return _PLACE.sub(lambda found: _text(at[found[1]]), name)


def _check_places(name: object, keys: Sequence[str], where: str) -> None:
    """Rows of one family have different names where the name has a place for everything that varies."""
    places = _PLACE.findall(name) if isinstance(name, str) else []
    if set(places) != set(keys):
        wanted = " and ".join(f"{{{key}}}" for key in keys) or "no place in braces"
        raise InputError(f"name of {where}", name, f"a text with {wanted}", "name what varies, and nothing else")


def _put(table: dict[str, Any], key: str, value: Any, where: str) -> None:
    """One value of a family, into its table: of the top, of all its layers, of one of them, or their number."""
    layers = table.get("layers", [])
    of_one = _OF_LAYER.fullmatch(key)
    if key == "depth":
        if isinstance(value, bool) or not isinstance(value, int) or value < 1 or not layers:
            fix = "list integers, and write [[families.layers]]"
            raise InputError(f"depth in {where}", value, "integers >= 1, and at least one layer", fix)
        # The last one stays the last, and the first stands for all before it.
        table["layers"] = [dict(layers[0]) for _ in range(value - 1)] + [dict(layers[-1])]
    elif of_one and 1 <= int(of_one[1]) <= len(layers):
        layers[int(of_one[1]) - 1][of_one[2]] = value
    elif key in _LAYERS and key not in _TOP and layers:
        for layer in layers:
            layer[key] = value
    elif of_one:
        raise InputError(f"vary in {where}", key, f"one of its {len(layers)} layers", "vary depth first, or add layers")
    else:
        table[key] = value


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
