"""Files: declarations (TOML), results (JSON), data (NPZ) and the store that makes long runs resumable.

Every write is atomic (:mod:`smisym.files`).  Every fault of a file is an :class:`~smisym.errors.InputError` that
names it.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import hashlib
import json
import math
import os
import platform
import re
import tomllib
import zipfile
import zlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from smisym.architecture import Architecture, Attention
from smisym.errors import InputError
from smisym.files import make_folder, reason, write_text
from smisym.smi import SMI

SCHEMA = 1
MAX_DECLARATION_BYTES = 1 << 20

_ARCHITECTURE_KEYS = tuple(f.name for f in dataclasses.fields(Architecture))
_LAYER_KEYS = tuple(f.name for f in dataclasses.fields(Attention))
_SMI_KEYS = tuple(f.name for f in dataclasses.fields(SMI))
_KINDS = ("attention", "smi")
_EXAMPLE = 'begin with "tokens = 2", then write one [[layers]] line for every layer'


# --- declarations --------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> Architecture | SMI:
    """The architecture, or the model by expressions, declared in a TOML file.

    An architecture has the names of :class:`~smisym.architecture.Architecture` at the top, then one ``[[layers]]``
    table per layer with the names of :class:`~smisym.architecture.Attention`.  With ``kind = "smi"`` the names are
    those of :class:`~smisym.smi.SMI`.  Whatever is left out has its default.
    Raises :class:`~smisym.errors.InputError`.
    """
    where = f"architecture file {path}"
    table = _parse(_read(path, where, MAX_DECLARATION_BYTES), where)
    kind = table.pop("kind", "attention")
    if kind not in _KINDS:
        allowed = " or ".join(f'"{name}"' for name in _KINDS)
        raise InputError(f"kind in {where}", kind, allowed, "choose one of these, or leave kind out for attention")
    return _load_smi(table, where) if kind == "smi" else _load_architecture(table, where)


def _load_smi(table: dict[str, Any], where: str) -> SMI:
    _check_keys(table, ("kind", *_SMI_KEYS), where)
    for key in ("fields", "expressions"):
        if key not in table:
            fix = 'write, for example, fields = ["z1", "z2"] and expressions = ["z1 * z2"]'
            raise InputError(where, sorted(table), f'a file with the key "{key}"', fix)
    made: SMI = _make(SMI, table, where)
    return made


def _load_architecture(table: dict[str, Any], where: str) -> Architecture:
    for key in ("fields", "expressions"):
        if key in table and "layers" not in table:
            raise InputError(f"key in {where}", key, ", ".join(_ARCHITECTURE_KEYS), 'add kind = "smi" at the top')
    _check_keys(table, _ARCHITECTURE_KEYS, where)
    for key in ("tokens", "layers"):
        if key not in table:
            raise InputError(where, sorted(table), f'a file with the key "{key}"', _EXAMPLE)
    layers = table.pop("layers")
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        raise InputError(
            f"layers in {where}", layers, "one [[layers]] table per layer", "write [[layers]], with double brackets"
        )
    made = []
    for number, layer in enumerate(layers, start=1):
        place = f"layer {number} in {where}"
        _check_keys(layer, _LAYER_KEYS, place)
        made.append(_make(Attention, layer, place))
    architecture: Architecture = _make(Architecture, table | {"layers": tuple(made)}, where)
    return architecture


def save(architecture: Architecture | SMI, path: str | os.PathLike[str]) -> None:
    """Write the TOML file that :func:`load` reads back as an equal declaration; defaults are written out."""
    if not isinstance(architecture, Architecture | SMI):
        raise InputError(
            "declaration to save", architecture, "an Architecture or an SMI", "pass Architecture(...) or SMI(...)"
        )
    write_text(path, tomli_w.dumps(_without_none(architecture.canonical())))


def _without_none(value: Any) -> Any:
    """TOML has no null: what is None is left out, and so has its default when it is read."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value


def _read(path: str | os.PathLike[str], where: str, limit: int) -> bytes:
    """At most ``limit`` bytes of a file; ``where`` names it in errors."""
    try:
        with open(path, "rb") as handle:
            content = handle.read(limit + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise _unreadable(where, error) from None
    if len(content) > limit:
        raise InputError(where, f"more than {limit} bytes", f"a file of at most {limit} bytes", "check the name")
    return content


def _unreadable(where: str, error: Exception) -> InputError:
    return InputError(where, reason(error), "a file that exists and can be read", "check the name and the permissions")


def _parse(content: bytes, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(where, str(error), "TOML text in UTF-8", "save the file as UTF-8") from None
    except RecursionError:
        raise InputError(where, "brackets nested too deep", "TOML text", _EXAMPLE) from None
    except ValueError as error:  # TOMLDecodeError, and integers too long to read
        raise InputError(where, str(error), "TOML text", f"mend the file at that place: {_EXAMPLE}") from None


def _check_keys(table: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=1, cutoff=0.5)
            fix = f'write "{near[0]}" if that was meant, or remove it' if near else "remove it"
            raise InputError(f"key in {where}", key, ", ".join(allowed), fix)


def _make(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """Construct a declaration; its errors say in which file they were met."""
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{error.what} in {where}", error.given, error.allowed, error.fix) from None


# --- results -------------------------------------------------------------------------------------


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """:func:`to_json` into a file, atomically."""
    write_text(path, to_json(value) + "\n")


def to_json(value: object) -> str:
    """One JSON document: arrays as lists, floats to the last bit, infinity and NaN as null."""
    return json.dumps(plain(value), indent=2, allow_nan=False)


def plain(value: object) -> Any:
    """``value`` in plain JSON types; :class:`TypeError` for what has no JSON form."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Architecture | SMI):
        return value.canonical()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise TypeError(f"no JSON form for {type(value).__name__}: add a case to smisym.io.plain")


# --- what every result file begins with ----------------------------------------------------------


def header(architecture: Architecture | SMI, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What reproduces a result: schema, versions, declaration, seed and every setting, as plain JSON types."""
    return {
        "schema": SCHEMA,
        "package": "smisym",
        "package_version": package_version(),
        "architecture": architecture.canonical(),
        "architecture_digest": architecture.digest,
        "seed": int(seed),
        "settings": plain(dict(settings)),
        "versions": dict(_versions()),
    }


@functools.cache
def package_version() -> str:
    """Version of the installed package; "unknown" where smisym runs from a folder without being installed."""
    try:
        return metadata.version("smisym")
    except metadata.PackageNotFoundError:
        return "unknown"


@functools.cache
def _versions() -> tuple[tuple[str, str], ...]:
    names = ("numpy", "scipy", "sympy")
    return (("python", platform.python_version()), *((name, metadata.version(name)) for name in names))


# --- data ----------------------------------------------------------------------------------------


def read_data(path: str | os.PathLike[str]) -> tuple[np.ndarray, np.ndarray]:
    """The arrays X and y of an .npz file, as they are; :func:`smisym.gamp` checks shapes and values against the model.

    Pickled content is never loaded.  Raises :class:`~smisym.errors.InputError` for a fault of the file.
    """
    where = f"data file {path}"
    allowed = "an .npz file with the arrays X (N, T, D) and y (N, ...)"
    fix = "write it with numpy.savez(file, X=X, y=y)"
    try:
        with open(path, "rb") as handle:
            archive = np.load(handle, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InputError(where, "a single array (.npy)", allowed, fix)
            if not {"X", "y"} <= set(archive.files):
                raise InputError(where, archive.files, allowed, fix)
            return archive["X"], archive["y"]
    except InputError:
        raise
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError) as error:
        raise InputError(where, str(error) or type(error).__name__, allowed, fix) from None
    except OSError as error:
        raise _unreadable(where, error) from None


# --- results that survive ------------------------------------------------------------------------


class Store:
    """Finished results of one task on disk, so that the same task resumes where it stopped.

    The folder is named by the digest of ``key`` (everything that the results depend on), so results of
    another architecture, seed, setting or version are never mixed in; key.json beside them says
    what the folder holds.  One file per entry, written atomically and read only if its checksum holds.

    Raises :class:`~smisym.errors.InputError` where the folder cannot be made or written.
    """

    def __init__(self, directory: str | os.PathLike[str], key: Mapping[str, Any]) -> None:
        text = to_json(key)
        canonical = json.dumps(plain(key), sort_keys=True, separators=(",", ":"))
        self.folder = make_folder(Path(directory) / _digest(canonical), "folder to keep results in")
        # Always written: it tells now, before any computing, whether results can be kept.
        write_text(self.folder / "key.json", text + "\n")

    def get(self, name: str) -> dict[str, Any] | None:
        """The entry as :meth:`put` returned it, or None where there is no intact entry of that name."""
        try:
            entry = json.loads(self._path(name).read_bytes())
            intact = entry["name"] == name and entry["checksum"] == _digest(json.dumps(entry["value"]))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(f"stored result {self._path(name)}", error) from None
        except (ValueError, KeyError, TypeError):  # damaged after it was written: compute it again
            return None
        return entry["value"] if intact else None

    def put(self, name: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """Keep one entry; returns it as :meth:`get` will give it, so that a resumed run sees the same bits."""
        kept = json.loads(to_json(value))
        entry = {"name": name, "checksum": _digest(json.dumps(kept)), "value": kept}
        write_json(self._path(name), entry)
        return kept

    def _path(self, name: str) -> Path:
        # Readable, safe on any file system, and distinct for distinct names.
        readable = re.sub(r"[^A-Za-z0-9=.,-]+", "_", name)[:60]
        return self.folder / f"entry_{readable}_{_digest(json.dumps(name))}.json"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
