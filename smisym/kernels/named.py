"""What straight-line code calls by name and does not spell out: softmax of a row, small linear systems, continuations.

The size is part of the name: ``row_softmax_3`` takes three arrays and returns three.  Every kernel takes and returns
arrays that broadcast, one for each scalar.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

# Unrolled code grows as T^3 a layer; beyond this size a declaration is refused with that reason.
MAX_TOKENS = 16


@dataclass(frozen=True)
class Kernel:
    """A block of arithmetic with a name.

    function
        Of arrays that broadcast; returns ``outputs`` of them.
    outputs
        How many scalars come back, from how many are given.
    """

    function: Callable[..., Any]
    outputs: Callable[[int], int]

    def __call__(self, *entries: Any) -> Any:
        return self.function(*entries)


@cache
def kernel(name: str) -> Kernel:
    """The kernel of that name; KeyError where there is none."""
    found = re.fullmatch(r"([a-z_]+?)((?:_\d+)+)", name)
    if found is None:
        raise KeyError(name)
    sizes = tuple(map(int, found[2].strip("_").split("_")))
    match found[1], sizes:
        case "row_softmax", (n,):
            return Kernel(row_softmax, lambda count: count)
        case "row_hardmax", (n,):
            return Kernel(row_hardmax, lambda count: count)
        case "solve_logdet", (n,):
            return Kernel(solve_logdet, lambda count: n + 1)
        case "solve_columns", (n,):
            return Kernel(lambda *entries: solve_columns(n, entries), lambda count: count - n * n + 1)
        case "inverse_logdet", (n,):
            return Kernel(lambda *entries: inverse_logdet(n, entries), lambda count: count + 1)
        case "least_norm", (n, r):
            return Kernel(
                lambda *entries: least_norm(n, r, entries),
                lambda count: r * (count // n - r) + r * (r - n) + 1,
            )
    raise KeyError(name)


def continuations() -> dict[str, Callable[..., Any]]:
    """Analytic continuations that agree with the real functions: complex steps give exact derivatives."""
    return {"abs": _abs, "sign": _sign, "amax": _amax, "amin": _amin, "logistic": _logistic}


def named_kernels() -> dict[str, Callable[..., Any]]:
    """All that unrolled code calls, by name, for every size it may need."""
    names = [f"{family}_{n}" for family in ("row_softmax", "row_hardmax", "solve_logdet") for n in _SIZES]
    return continuations() | {name: kernel(name) for name in names}


_SIZES = range(2, MAX_TOKENS + 1)


def _logistic(x: Any) -> Any:
    """1 / (1 + exp(-x)); of complex x without the infinities that it would turn into NaN."""
    if not np.iscomplexobj(x):
        return 1 / (1 + np.exp(-x))
    turned = np.where(x.real < 0, x, -x)
    small = np.exp(turned)
    return np.where(x.real < 0, small, 1) / (1 + small)


def row_softmax(*scores: Any) -> np.ndarray:
    """(T, ...) softmax of T arrays, shifted by their maximum."""
    rows = np.array(np.broadcast_arrays(*scores))
    rows = np.exp(rows - rows.real.max(axis=0))
    rows /= rows.sum(axis=0)
    return rows


def row_hardmax(*scores: Any) -> np.ndarray:
    """(T, ...): one at the largest of T arrays, the first of equals."""
    rows = np.array(np.broadcast_arrays(*scores)).real
    return np.asarray(np.arange(len(rows)).reshape(-1, *[1] * (rows.ndim - 1)) == rows.argmax(axis=0), dtype=float)


def _sign(x: Any) -> Any:
    return np.sign(np.real(x))


def _abs(x: Any) -> Any:
    return x * _sign(x)


def _amax(values: Any, axis: int = 0) -> Any:
    largest = values[0]
    for value in values[1:]:
        largest = np.where(np.real(value) > np.real(largest), value, largest)
    return largest


def _amin(values: Any, axis: int = 0) -> Any:
    return np.negative(_amax([np.negative(value) for value in values]))


def solve_logdet(*entries: Any) -> np.ndarray:
    """Gaussian elimination with partial pivoting, vectorised over the trailing axes.

    ``entries``: the T*T entries of A row by row, then the T entries of the right-hand side.
    Returns (T+1, ...): the solution, then log|det A|.
    """
    size = round((float(np.sqrt(4 * len(entries) + 1)) - 1) / 2)
    rows = np.array(np.broadcast_arrays(*entries), dtype=float)
    matrix = np.concatenate(
        [rows[: size * size].reshape(size, size, *rows.shape[1:]), rows[size * size :][:, None]], axis=1
    )
    logdet = np.zeros(rows.shape[1:])
    for k in range(size):
        pivot(matrix, k)
        logdet += np.log(np.abs(matrix[k, k]))
        for i in range(k + 1, size):
            factor = matrix[i, k] / matrix[k, k]
            matrix[i, k + 1 :] -= factor * matrix[k, k + 1 :]
    out = np.empty((size + 1, *rows.shape[1:]))
    for k in reversed(range(size)):
        total = matrix[k, size].copy()
        for j in range(k + 1, size):
            total -= matrix[k, j] * out[j]
        out[k] = total / matrix[k, k]
    out[size] = logdet
    return out


def pivot(matrix: np.ndarray, k: int) -> None:
    """Swap row k with the row below it of largest entry in column k, elementwise over the batch."""
    for i in range(k + 1, matrix.shape[0]):
        swap = np.abs(matrix[i, k]) > np.abs(matrix[k, k])
        if swap.any():
            upper = np.where(swap, matrix[i, k:], matrix[k, k:])
            matrix[i, k:] = np.where(swap, matrix[k, k:], matrix[i, k:])
            matrix[k, k:] = upper


def solve_columns(size: int, entries: tuple[Any, ...]) -> list[np.ndarray]:
    """Several right-hand sides at once: A row by row, then the columns one after the other.

    Returns the solutions, column by column, then log|det A|, NaN where A is singular or not finite.
    """
    shape = np.broadcast_shapes(*map(np.shape, entries))
    count = (len(entries) - size * size) // size
    full = np.empty((*shape, size, size))
    right = np.empty((*shape, size, count))
    for place, entry in enumerate(entries[: size * size]):
        full[..., place // size, place % size] = entry
    for place, entry in enumerate(entries[size * size :]):
        right[..., place % size, place // size] = entry
    finite = np.isfinite(full).all(axis=(-1, -2))
    full[~finite] = np.eye(size)
    log_det = np.linalg.slogdet(full)[1]
    regular = finite & np.isfinite(log_det)
    full[~regular] = np.eye(size)
    solved = np.linalg.solve(full, right)
    log_det = np.where(regular, log_det, np.nan)
    return [*(solved[..., i, k] for k in range(count) for i in range(size)), log_det]


def inverse_logdet(size: int, entries: tuple[Any, ...]) -> list[np.ndarray]:
    """A^{-1} row by row, then log|det A|, from A row by row."""
    matrix = np.moveaxis(np.array(np.broadcast_arrays(*entries)), 0, -1)
    matrix = matrix.reshape(*matrix.shape[:-1], size, size)
    log_det = np.linalg.slogdet(matrix)[1]
    # A singular matrix has weight zero: its log-weight is not finite, whatever stands in its place.
    inverse = np.linalg.inv(np.where(np.isfinite(log_det)[..., None, None], matrix, np.eye(size)))
    log_det = np.where(np.isfinite(log_det), log_det, np.nan)
    return [*(inverse[..., i, j] for i in range(size) for j in range(size)), log_det]


def least_norm(n: int, r: int, entries: tuple[Any, ...]) -> list[np.ndarray]:
    """Solutions of K q_t = E_t of least norm, K (n, r) with n < r: K row by row, then E_t, one t after the other.

    Returns the solutions one after the other, r - n orthonormal vectors of the null space of K, one after the other,
    and log sqrt(det K K^T), NaN where K has a lower rank.
    """
    given = np.moveaxis(np.array(np.broadcast_arrays(*entries)), 0, -1)
    K = given[..., : n * r].reshape(*given.shape[:-1], n, r)
    right = np.swapaxes(given[..., n * r :].reshape(*given.shape[:-1], -1, n), -1, -2)  # (..., n, count)
    orthogonal, triangular = np.linalg.qr(np.swapaxes(K, -1, -2), mode="complete")  # K^T = Q R
    R = np.swapaxes(triangular[..., :n, :], -1, -2)
    regular = (np.einsum("...ii->...i", R) != 0).all(axis=-1)
    R = np.where(regular[..., None, None], R, np.eye(n))
    solved = orthogonal[..., :n] @ np.linalg.solve(R, right)  # (..., r, count)
    volume = np.log(np.abs(np.einsum("...ii->...i", R))).sum(axis=-1)
    return [
        *(solved[..., c, t] for t in range(right.shape[-1]) for c in range(r)),
        *(orthogonal[..., c, n + i] for i in range(r - n) for c in range(r)),
        np.where(regular, volume, np.nan),
    ]
