"""Files: declarations (TOML), results (JSON), data (NPZ) and the store that makes long runs resumable.

Every write is atomic (:mod:`smisym.base.files`).  Every fault of a file is an :class:`~smisym.base.errors.InputError`
that names it.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import hashlib
import io
import json
import lzma
import math
import os
import platform
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from smisym.base.backends import backend
from smisym.base.edge import available_memory, check_memory
from smisym.base.errors import InputError, Words
from smisym.base.files import check_path, make_folder, open_file, read_bytes, unreadable, write_bytes, write_text
from smisym.declare.architecture import MAX_LAYERS, Architecture, Attention
from smisym.declare.smi import SMI
from smisym.declare.toml_text import EXAMPLE, read_toml

SCHEMA = 1
MAX_DECLARATION_BYTES = 1 << 20
MAX_ENTRY_BYTES = 1 << 28

_ARCHITECTURE_KEYS = tuple(f.name for f in dataclasses.fields(Architecture))
_LAYER_KEYS = tuple(f.name for f in dataclasses.fields(Attention))
_SMI_KEYS = tuple(f.name for f in dataclasses.fields(SMI))
_KINDS = ("attention", "smi")


# --- declarations --------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> Architecture | SMI:
    """The architecture, or the model by expressions, declared in a TOML file.

    An architecture has the names of :class:`~smisym.declare.architecture.Architecture` at the top, then one
    ``[[layers]]`` table per layer with the names of :class:`~smisym.declare.architecture.Attention`.  With ``kind =
    "smi"`` the names are those of :class:`~smisym.declare.smi.SMI`.  Whatever is left out has its default. Raises
    :class:`~smisym.base.errors.InputError`.
    """
    where = f"architecture file {check_path(path, 'architecture file')}"
    table = read_toml(read_bytes(path, where, MAX_DECLARATION_BYTES), where)
    kind = table.pop("kind", "attention")
    if kind not in _KINDS:
        allowed = " or ".join(f'"{name}"' for name in _KINDS)
        raise InputError(f"kind in {where}", kind, allowed, "choose one of these, or leave kind out for attention")
    return _load_smi(table, where) if kind == "smi" else _load_architecture(table, where)


def restored(canonical: Mapping[str, Any], where: str) -> Architecture | SMI:
    """The declaration that a result file holds, checked as one of a TOML file; InputError where it is none."""
    if not isinstance(canonical, Mapping):
        raise InputError(f"architecture in {where}", canonical, "a table of a declaration", "make the file again")
    table = {str(key): value for key, value in _without_none(dict(canonical)).items()}
    kind = table.pop("kind", "attention")
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
            raise InputError(where, sorted(table), f'a file with the key "{key}"', EXAMPLE)
    layers = table.pop("layers")
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        raise InputError(
            f"layers in {where}", layers, "one [[layers]] table per layer", "write [[layers]], with double brackets"
        )
    # Layers that are written alike are read once: a file may hold thousands of them.
    known: dict[str, Attention] = {}
    made = []
    for number, layer in enumerate(layers, start=1):
        place = f"layer {number} in {where}"
        try:
            written = repr(layer)
        except ValueError:  # an integer of thousands of digits, which is refused below
            written = place
        if written not in known:
            if len(known) > MAX_LAYERS:
                given = Words(f"more than {MAX_LAYERS} layers that are written differently")
                raise InputError(f"layers in {where}", given, f"at most {MAX_LAYERS}", "declare fewer layers")
            _check_keys(layer, _LAYER_KEYS, place)
            known[written] = _make(Attention, layer, place)
        made.append(known[written])
    architecture: Architecture = _make(Architecture, table | {"layers": tuple(made)}, where)
    return architecture


def save(architecture: Architecture | SMI, path: str | os.PathLike[str]) -> None:
    """Write the TOML file that :func:`load` reads back as an equal declaration; defaults are written out."""
    if not isinstance(architecture, Architecture | SMI):
        raise InputError(
            "declaration to save", architecture, "an Architecture or an SMI", "pass Architecture(...) or SMI(...)"
        )
    text = toml_of(architecture)
    if len(text.encode()) > MAX_DECLARATION_BYTES:
        given, allowed = Words(f"{len(text.encode())} bytes of text"), f"at most {MAX_DECLARATION_BYTES} bytes"
        raise InputError("declaration to save", given, allowed, 'keep it as Python, or write mask="causal" for a table')
    write_text(path, text)


def toml_of(declared: Architecture | SMI) -> str:
    """The text of the file that :func:`save` writes."""
    return tomli_w.dumps(_without_none(declared.canonical()))


def _without_none(value: Any) -> Any:
    """TOML has no null: what is None is left out, and so has its default when it is read."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value


def _check_keys(table: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=1, cutoff=0.5)
            fix = f'write "{near[0]}" if that was meant, or remove it' if near else "remove it"
            # Letters of other alphabets that look like ours are told apart.
            given: object = key if key.isascii() else Words(f"{key[:80]!r}, which is {key[:80]!a}")
            raise InputError(f"key in {where}", given, ", ".join(allowed), fix)


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
        # What is plain as a whole is not looked at number by number.
        whole = value.dtype.kind in "biu" or (value.dtype == float and np.isfinite(value).all())
        return value.tolist() if whole else plain(value.tolist())
    if isinstance(value, Architecture | SMI):
        return value.canonical()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise TypeError(f"no JSON form for {type(value).__name__}: add a case to smisym.declare.io.plain")


# --- what every result file begins with ----------------------------------------------------------


def header(architecture: Architecture | SMI, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What reproduces a result: schema, versions, declaration, seed and every setting, as plain JSON types."""
    known = origin()
    of_software = known.pop("versions")
    return {
        **known,
        "architecture": architecture.canonical(),
        "architecture_digest": architecture.digest,
        "seed": int(seed),
        "settings": plain(dict(settings)),
        "versions": of_software,
    }


def origin() -> dict[str, Any]:
    """Schema and versions: what every file of ours says of itself."""
    return {
        "schema": SCHEMA,
        "package": "smisym",
        "package_version": package_version(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of what numbers are made with: Python, libraries, and the backend of compiled loops."""
    return {**dict(_versions()), "backend": backend().version}


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


@dataclasses.dataclass(frozen=True)
class DataFile:
    """Arrays of an .npz file: X, y and, if there is one, the truth W; others: names of arrays that were not read."""

    X: np.ndarray
    y: np.ndarray
    W: np.ndarray | None
    others: tuple[str, ...]


def read_data(path: str | os.PathLike[str]) -> DataFile:
    """The arrays X, y and W of an .npz file, as they are; :func:`smisym.gamp` checks shapes and values of them.

    Pickled content is never loaded, and nothing that the file's headers say would not fit in memory.
    Raises :class:`~smisym.base.errors.InputError` for a fault of the file.
    """
    where = f"data file {check_path(path, 'data file')}"
    allowed = "an .npz file with the arrays X (N, T, D) and y (N, ...), and W (P, D) if the truth is known"
    fix = "write it with numpy.savez(file, X=X, y=y)"
    try:
        with open_file(path) as handle:
            if handle.read(6) == b"\x93NUMPY":
                raise InputError(where, Words("a single array (.npy)"), allowed, fix)
            handle.seek(0)
            with zipfile.ZipFile(handle) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist()]
                if not {"X", "y"} <= set(names):
                    raise InputError(where, names, allowed, fix)
                wanted = [name for name in ("X", "y", "W") if name in names]
                _check_sizes(archive, wanted, where)
            handle.seek(0)
            with np.load(handle, allow_pickle=False) as arrays:
                read = {name: arrays[name] for name in wanted}
    except InputError:
        raise
    except (
        ValueError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, KeyError, NotImplementedError, TypeError,
        MemoryError, OverflowError, SyntaxError, RuntimeError,
    ) as error:  # fmt: skip
        raise InputError(where, Words(str(error) or type(error).__name__), allowed, fix) from None
    except OSError as error:
        raise unreadable(where, error) from None
    others = tuple(name for name in names if name not in wanted)
    return DataFile(read["X"], read["y"], read.get("W"), others)


def _check_sizes(archive: zipfile.ZipFile, names: Sequence[str], where: str) -> None:
    """InputError, before anything is allocated, for arrays larger than memory, or than what the file holds of them."""
    total, samples = 0, 1
    for name in names:
        with archive.open(f"{name}.npy") as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(member)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or size > archive.getinfo(f"{name}.npy").file_size:
            given = Words(f"{name} of shape {shape} and type {dtype}, but not the numbers of it")
            raise InputError(where, given, "arrays of numbers, whole", "write it with numpy.savez(file, X=X, y=y)")
        total += size
        samples = shape[0] if name == "X" and shape else samples
    fits = int(samples * available_memory() / max(total, 1))
    check_memory(where, f"{samples} samples", total, f"keep at most {fits} samples")


def write_npz(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], head: Mapping[str, Any]) -> None:
    """Arrays in one .npz file, atomically, with ``head`` as JSON text in the array "header"."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, header=np.array(to_json(head)), **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


# --- results that survive ------------------------------------------------------------------------


class Store:
    """Finished results of one task on disk, so that the same task resumes where it stopped.

    The folder is named by the digest of ``key`` (everything that the results depend on), so results of another
    architecture, seed, setting or version are never mixed in; key.json beside them says what the folder holds.  One
    file per entry, written atomically and read only if its checksum holds.
    asked: False where nobody asked for it: what cannot be written later is not kept, and no file is synced.
    Raises :class:`~smisym.base.errors.InputError` where the folder cannot be made or written.
    """

    def __init__(self, directory: str | os.PathLike[str], key: Mapping[str, Any], *, asked: bool = True) -> None:
        self.asked = asked
        text = to_json(key)
        canonical = json.dumps(plain(key), sort_keys=True, separators=(",", ":"))
        directory = check_path(directory, "folder to keep results in")
        self.folder = make_folder(directory / _digest(canonical), "folder to keep results in")
        # Always written: it tells now, before any computing, whether results can be kept.
        own = self.folder / "key.json"
        if own.is_dir():
            raise InputError(f"stored result {own}", Words("a folder"), "a file", "delete it: it is written again")
        write_text(own, text + "\n")

    def get(self, name: str, valid: Callable[[Any], object] | None = None) -> dict[str, Any] | None:
        """The entry as :meth:`put` returned it, or None where there is no intact entry of that name.

        valid: called with the entry; where it is false or raises, the entry is not one of ours, and so absent.
        Raises InputError where the file cannot be read, or is larger than MAX_ENTRY_BYTES.
        """
        path = self._path(name)
        if not path.exists():
            return None
        try:
            content = read_bytes(path, f"stored result {path}", MAX_ENTRY_BYTES)
        except InputError as error:
            fix = "delete it: what it held is computed again"
            raise InputError(error.what, error.given, error.allowed, fix) from None
        try:
            entry = json.loads(content)
            value = entry["value"]
            intact = entry["name"] == name and entry["checksum"] == _digest(json.dumps(value))
            whole = intact and isinstance(value, dict) and (valid is None or valid(value))
        # Damaged after it was written, or another's: compute it again.
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
            return None
        return value if whole else None

    def put(self, name: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """Keep one entry; returns it as :meth:`get` will give it, so that a resumed run sees the same bits."""
        # On one line: of an indented document each number passes through the interpreter.
        kept = json.loads(json.dumps(plain(value), allow_nan=False))
        entry = {"name": name, "checksum": _digest(json.dumps(kept)), "value": kept}
        try:
            write_bytes(self._path(name), (json.dumps(entry) + "\n").encode(), synced=self.asked)
        except InputError:
            if self.asked:
                raise
        return kept

    def _path(self, name: str) -> Path:
        # Readable, safe on any file system, and distinct for distinct names.
        readable = re.sub(r"[^A-Za-z0-9=.,-]+", "_", name)[:60]
        return self.folder / f"entry_{readable}_{_digest(json.dumps(name))}.json"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
