"""Straight-line programs as scalar Python for numba, and generated modules: their text, kept on disk, and how they are
loaded.

A generated module is plain source in a folder of the user's (``SMISYM_CACHE``, or the system's place for caches), named
by what it was made of: its text, the versions of numba, numpy and this package's scalar functions.  It is written in
one step, and numba keeps the machine code beside it; a folder that cannot be written costs the time to compile, nothing
else.  Who has seconds, and compiling may take forty, asks for what is kept alone (:func:`as_kept`), and for arrays in
place of the rest.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib.util
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from smisym.base.backends import NUMBA, backend
from smisym.base.errors import InputError
from smisym.base.files import cache_folder, write_text
from smisym.kernels.straight_line import Line, StraightLine, literal, written

# What scalars.py has, or the mathematics of the standard library by another name: one float each.
OWN = {"exp", "log", "log1p", "logaddexp", "sign", "maximum", "minimum", "isfinite", "where"}
_LIBRARY = {
    "absolute": "abs", "sqrt": "math.sqrt", "sin": "math.sin", "cos": "math.cos", "tan": "math.tan",
    "arctan": "math.atan", "tanh": "math.tanh", "sinh": "math.sinh", "cosh": "math.cosh", "arcsinh": "math.asinh",
    "arctanh": "math.atanh", "hypot": "math.hypot", "expm1": "math.expm1", "erf": "math.erf", "erfc": "math.erfc",
}  # fmt: skip
_SIGNS = {
    "add", "subtract", "multiply", "divide", "power", "less", "less_equal", "greater", "greater_equal", "equal",
    "not_equal", "bitwise_and", "bitwise_or", "negative",
}  # fmt: skip

HEADER = """import math

import numba
import numpy as np
from smisym.kernels.scalars import (
    WITHIN, exp, inlined, isfinite, kept, larger, largest, lent, log, log1p, logaddexp, maximum, minimum, sign, smaller,
    smallest, steepest, total, weight, where
)

inf, nan = math.inf, math.nan
"""


class NotCompiled(ValueError):
    """A program calls what compiled code does not have; the text is its name.  Or nobody waits for its code."""


def check(program: StraightLine) -> None:
    """Raise :class:`NotCompiled` where a program calls what compiled code does not have."""
    for line in program.lines:
        if line.operation not in OWN and line.operation not in _LIBRARY and line.operation not in _SIGNS:
            if line.operation != "invert":
                raise NotCompiled(line.operation)


def scalar_function(program: StraightLine, name: str) -> str:
    """The program as the text of an inlined function of floats that returns a tuple."""
    check(program)
    body = [f"{', '.join(line.targets)} = {_written(line)}" for line in program.lines]
    outputs = "".join(f"{_operand(o)}, " for o in program.outputs)
    return "\n    ".join(
        ["@inlined", f"def {name}({', '.join(program.arguments)}):", *body, f"return ({outputs})"]
    ).replace("@inlined\n    ", "@inlined\n")


def _operand(operand: Any) -> str:
    return literal(operand) if isinstance(operand, str | bool) else literal(float(operand))


def _written(line: Line) -> str:
    operands = [_operand(o) for o in line.operands]
    if line.operation == "invert":
        return f"not {operands[0]}"
    if line.operation in _LIBRARY:
        return f"{_LIBRARY[line.operation]}({', '.join(operands)})"
    return written(line.operation, operands)


def compiled_program(program: StraightLine, varying: int) -> Callable[..., None] | None:
    """``run(x, p, out)``: the program at N points, x (varying, N), at which all other arguments p are the same;
    written: out (outputs, N).  None where the backend is numpy, or has not all that the program calls."""
    return _compiled_program(backend().loops, program, varying, impatient())


@functools.lru_cache(maxsize=256)
def _compiled_program(name: str, program: StraightLine, varying: int, impatient: bool) -> Callable[..., None] | None:
    if name != NUMBA:
        return None
    try:
        found: Callable[..., None] = load(program_source(program, varying)).run
    except NotCompiled:
        return None
    return found


def program_source(program: StraightLine, varying: int) -> str:
    """The text of a module with ``run``."""
    constant = len(program.arguments) - varying
    outputs = [f"o{k}" for k in range(len(program.outputs))]
    arguments = [*(f"x[{k}, j]" for k in range(varying)), *(f"p{k}" for k in range(constant))]
    lines = [
        scalar_function(program, "point"),
        "",
        "",
        "@numba.njit('void(float64[:,::1], float64[::1], float64[:,::1])',",
        "            nogil=True, cache=True, error_model='numpy', fastmath={'contract'})",
        "def run(x, p, out):",
        *(f"    p{k} = p[{k}]" for k in range(constant)),
        "    for j in range(x.shape[1]):",
        f"        {', '.join(outputs)}, = point({', '.join(arguments)})",
        *(f"        out[{k}, j] = {name}" for k, name in enumerate(outputs)),
    ]
    return HEADER + "\n\n" + "\n".join(lines) + "\n"


# ------------------------------------------------------------------------------------------------- generated modules

_LOADED: dict[str, ModuleType] = {}
_LOCK = threading.Lock()
# Names of modules that were not compiled, while nobody waits for that.
_REFUSED: ContextVar[list[str] | None] = ContextVar("refused", default=None)


# Called with the number of lines of a module that is about to be compiled, by the thread that asks for it.
_TELLS: ContextVar[Callable[[int], object] | None] = ContextVar("tells", default=None)


@contextmanager
def telling(tell: Callable[[int], object]) -> Iterator[None]:
    """Inside, ``tell(lines)`` is called before a module of so many lines is compiled, which happens once."""
    token = _TELLS.set(tell)
    try:
        yield
    finally:
        _TELLS.reset(token)


@contextmanager
def as_kept() -> Iterator[list[str]]:
    """Inside, what is not compiled yet is not compiled: :func:`load` raises :class:`NotCompiled`, and arrays do the
    work.  Yields the list of modules that this left out so far."""
    refused: list[str] = []
    token = _REFUSED.set(refused)
    try:
        yield refused
    finally:
        _REFUSED.reset(token)


def impatient() -> bool:
    """Whether nobody waits for compilers: who remembers that a program has no code of its own remembers this too."""
    return _REFUSED.get() is not None


@functools.cache
def _versions() -> str:
    texts = (Path(__file__).with_name(f"{name}.py").read_bytes() for name in ("parts", "scalars", "stencils"))
    own = hashlib.sha256(b"".join(texts)).hexdigest()[:16]
    return f"{version('numba')} {np.__version__} {sys.version_info[:2]} {own}"


def load(source: str) -> ModuleType:
    """The module of this source, from the folder of generated modules where it is known.

    Raises NotCompiled where it is not, and nobody waits for it (:func:`as_kept`).
    """
    name = "smisym_" + hashlib.sha256((_versions() + source).encode()).hexdigest()[:24]
    refused = _REFUSED.get()
    with _LOCK:
        if refused is not None and name not in _LOADED and not _has_code(name):
            refused.append(name)
            raise NotCompiled(name)
        if name not in _LOADED:
            tell = _TELLS.get()
            if tell is not None and not _has_code(name):
                tell(source.count("\n"))
            _LOADED[name] = _made(name, source)
        return _LOADED[name]


def _made(name: str, source: str) -> ModuleType:
    path = _kept(name, source)
    try:
        return _imported(name, path)
    except (ImportError, OSError, ValueError, pickle.UnpicklingError, EOFError):
        # What numba keeps beside it is torn, or the folder went away: compiled anew, elsewhere.
        return _imported(name, _elsewhere(name, source))


def _has_code(name: str) -> bool:
    """Whether machine code lies beside the module, where numba keeps it."""
    return any((folder() / "__pycache__").glob(f"{name}.*.nbi"))


def folder() -> Path:
    """Where generated modules are kept."""
    return cache_folder()


def _kept(name: str, source: str) -> Path:
    """The file with this source: it is written where it is missing or torn."""
    path = folder() / f"{name}.py"
    try:
        if path.read_text(encoding="utf-8") == source:
            return path
    except (OSError, ValueError):
        pass
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, source)
    except (OSError, InputError):
        return _elsewhere(name, source)
    return path


def _elsewhere(name: str, source: str) -> Path:
    path = Path(tempfile.mkdtemp(prefix="smisym-")) / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    return path


def _imported(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, f"cannot load the generated module {path}"
    module = importlib.util.module_from_spec(spec)
    # Before it is run: numba finds functions of a module by its name when it reads machine code back.
    sys.modules[name] = module
    try:
        with _uncollected():
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without looks for cycles, which a compiler that makes millions of objects spends a twelfth of its time on."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
