"""Checks of what solvers are handed: models, numbers, overlaps.  A bad one is an InputError, whoever met it."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from smisym.base.errors import InputError, Words

# Where the system does not say how much memory it has left.
_MEMORY_UNKNOWN = 8 << 30
# Samples per dimension: by so many all that can be learned is, to the last digit of Q.
MOST_ALPHA = 1e6
# Dimension of data, and runs on them: beyond, there is no machine.
MOST_DIM, MOST_RUNS = 10**15, 10**6
_ROUNDING = 1e-10  # an overlap may leave symmetry and 0 <= Q <= I by so much


def check_model(model: Any, also: str = "") -> None:
    """InputError unless this is a compiled model; by what it has, since solvers take whatever serves as one.

    ``also`` names what else the caller takes.
    """
    if not all(hasattr(model, part) for part in ("link", "fields", "tokens")):
        allowed = f"a Model or {also}" if also else "a Model"
        raise InputError("model", type(model).__name__, allowed, "use smisym.compile(architecture)")


def check_number(
    what: str, value: Any, allowed: str, fix: str, *, least: float = -math.inf, most: float = math.inf
) -> float:
    """A finite number between least and most as a float, or an InputError."""
    good = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not (good and math.isfinite(value) and least <= value <= most):
        raise InputError(what, value, allowed, fix)
    return float(value)


def check_count(
    what: str, value: Any, least: int, fix: str = "leave it out for the default", most: int | None = None
) -> int:
    """A whole number >= least, and at most ``most``, or an InputError."""
    allowed = f"a whole number >= {least}" + ("" if most is None else f", at most {most}")
    # bool is an int in Python; as a count it is a slip.
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(what, value, allowed, fix)
    if most is not None and value > most:
        raise InputError(what, value, allowed, fix)
    return int(value)


def check_seed(seed: Any) -> int:
    return check_count("seed", seed, 0, "leave it out for 0")


def check_generator(rng: Any) -> None:
    if not isinstance(rng, np.random.Generator):
        raise InputError("rng", rng, "a numpy.random.Generator", "pass numpy.random.default_rng(0)")


def check_workers(workers: Any) -> None:
    if workers is not None:
        check_count("workers", workers, 1, "leave it out for one thread a processor")


def check_alpha(alpha: Any, most: float = MOST_ALPHA) -> None:
    """InputError unless alpha is a finite number between 0 and ``most``."""
    fix = "give the number of samples per dimension, N / D"
    allowed = "a finite number >= 0" + (f", at most {most:g}" if most < math.inf else "")
    check_number("alpha", alpha, allowed, fix, least=0.0, most=most)


def check_most(most: Any) -> float:
    """The largest alpha that branches are followed to, or an InputError unless it is above 0 and at most 1e6."""
    allowed = f"a positive number up to {MOST_ALPHA:g}"
    fix = "leave it out for three times the last threshold"
    return check_number("most", most, allowed, fix, least=1e-9, most=MOST_ALPHA)


def check_damping(damping: Any) -> float:
    """The share of the old state that an iteration keeps, or an InputError unless it is in [0, 1)."""
    allowed, fix = "0 <= damping < 1", "0 is none; 0.5 keeps half of the old state"
    if not 0 <= check_number("damping", damping, allowed, fix) < 1:
        raise InputError("damping", damping, allowed, fix)
    return float(damping)


def check_rows(rows: Any, fields: int) -> None:
    """InputError unless these are numbers of rows of Z, at least one."""
    whole = isinstance(rows, Sequence) and not isinstance(rows, str) and len(rows) > 0
    if not whole or not all(isinstance(r, int | np.integer) and 0 <= r < fields for r in rows):
        allowed = f"at least one row of Z, numbered from 0 to {fields - 1}"
        raise InputError("rows", rows, allowed, "give them as a tuple, for example (0,)")


def overlap_matrix(Q: Any, fields: int, scrambles: int | None = None) -> np.ndarray:
    """Q as a finite symmetric float array (P, P), or (scrambles, P, P) where these are given; InputError otherwise."""
    shapes = [(fields, fields), *([] if scrambles is None else [(scrambles, fields, fields)])]
    allowed = f"a finite symmetric real matrix of shape {' or '.join(map(str, shapes))}"
    try:
        array = np.asarray(Q)
    except ValueError:  # rows of unequal length
        raise InputError("Q", Q, allowed, "give one row per field of the model") from None
    if array.dtype.kind not in "fiu":
        raise InputError("Q", Q, allowed, "give real numbers")
    if array.shape not in shapes:
        raise InputError("Q", f"an array of shape {array.shape}", allowed, "give one row per field of the model")
    array = array.astype(float)
    if not np.isfinite(array).all():
        raise InputError("Q", "an array with NaN or infinity", allowed, "remove what is not finite")
    if np.abs(array - np.swapaxes(array, -1, -2)).max() > _ROUNDING:
        raise InputError("Q", Q, allowed, "pass (Q + Q.T) / 2 if the difference is noise")
    return array


def check_overlap(Q: Any, fields: int) -> np.ndarray:
    """Q as a symmetric float array (P, P) with 0 <= Q <= I to rounding, or an InputError."""
    array = overlap_matrix(Q, fields)
    values = np.linalg.eigvalsh(array)
    if values[0] < -_ROUNDING or values[-1] > 1 + _ROUNDING:
        given = f"eigenvalues {values.tolist()}"
        raise InputError("Q", given, "eigenvalues in [0, 1]", "an overlap has 0 <= Q <= I: project it")
    return array


def real_array(what: str, value: Any, allowed: str, fix: str) -> np.ndarray:
    """``value`` as a float64 array of any shape; InputError for text, complex numbers, objects and ragged rows."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(what, "rows of unequal length", allowed, fix) from None
    if array.dtype.kind not in "fiub":
        raise InputError(what, value if array.ndim == 0 else f"an array of {array.dtype}", allowed, fix)
    with np.errstate(over="ignore"):  # long doubles beyond the range: infinite, which the caller refuses
        return np.asarray(array, dtype=np.float64)


def check_settings(settings: Mapping[str, Any], allowed: Collection[str], given_map: bool = False) -> None:
    """InputError for a keyword that is none of ``allowed``, naming those near it, and for any at all with a map.

    settings: the keywords that a function passes on, name to value.  given_map: a map was passed, which has its own.
    """
    for name in settings:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=2, cutoff=0.5)
            fix = f"write {' or '.join(near)} if that was meant, or leave it out" if near else "leave it out"
            raise InputError("keyword", name, ", ".join(sorted(allowed)) or "none", fix)
    if given_map and settings:
        names = ", ".join(settings)
        raise InputError(
            "settings",
            names,
            "settings of the overlap map with a Model only: a map has its own",
            f"pass {names} to smisym.overlap_map, or the model instead of the map",
        )


def available_memory() -> int:
    """Bytes of memory that are free now, as the system says; 8 GiB where it does not say."""
    return _memory("SC_AVPHYS_PAGES")


def whole_memory() -> int:
    """Bytes of memory that the machine has, as the system says; 8 GiB where it does not say."""
    return _memory("SC_PHYS_PAGES")


def _memory(pages: str) -> int:
    try:
        return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system
        return _MEMORY_UNKNOWN


def check_memory(what: str, given: object, needed: float, fix: str, whole: bool = False) -> None:
    """InputError, before anything is allocated, for what takes more bytes than are available; fix says what fits.

    whole: of what the machine has, for what is used for long, while what is free comes and goes.
    """
    available = whole_memory() if whole else available_memory()
    if needed > available:
        takes = f"{given}, which takes {_gigabytes(needed)} of memory"
        which = "all that this machine has" if whole else "free now"
        raise InputError(what, Words(takes), f"what fits in {_gigabytes(available)}, {which}", fix)


def _gigabytes(count: float) -> str:
    return f"{min(count, 10**300) / 2**30:.3g} GiB"
