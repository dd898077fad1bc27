"""Reflections of combinations of rows that leave the output as it is, or change its sign.

Signed exchanges of rows can be tried one by one; that z1^2 + z1 z2 is blind to the reflections of two other directions,
those of its quadratic form, cannot.  A reflection I - 2 u u^T is a symmetry where f(Z - 2 u u^T Z) = f(Z) at all Z:
equations for u alone, solved by least squares at random fields from several starts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

# Starts of one search, for each dimension it has; more dimensions than this are not searched.
_STARTS, _MOST = 6, 4
# Root mean square, relative to the outputs' own, below which a search has ended in a symmetry.
_FOUND = 1e-9
_Output = Callable[[np.ndarray], np.ndarray]


def reflections(seen: _Output, fields: np.ndarray, span: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(u (P,), I - 2 u u^T (P, P)): candidates with u in a span (d, P), orthonormal, then those that exchange them.

    seen: fields (n, P, T) to outputs (n, M).  All u that are found by search are orthogonal to one another: what they
    generate is finite.  Exact to rounding where there is such a reflection; the caller tries them once more.
    """
    found: list[np.ndarray] = []
    if len(span) > _MOST:
        return
    while len(found) < len(span):
        left = span if not found else _complement(span, np.array(found))
        u = _search(seen, fields, left)
        if u is None:
            break
        found.append(u)
    both = [(a + s * b) * np.sqrt(0.5) for a, b in itertools.combinations(found, 2) for s in (1.0, -1.0)]
    for u in [*found, *both]:
        yield u, np.eye(len(u)) - 2 * np.outer(u, u)


def _complement(span: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Orthonormal rows (d - f, P): what of a span is orthogonal to rows inside it."""
    return np.asarray(np.linalg.svd(found @ span.T)[2][len(found) :] @ span)


def _search(seen: _Output, fields: np.ndarray, span: np.ndarray) -> np.ndarray | None:
    """A unit vector (P,) in a span whose reflection keeps the output, or its size; None where none was found."""
    usual = seen(fields)
    scale = np.sqrt(np.mean(usual**2))
    if not 0 < scale < np.inf:
        return None
    if len(span) == 1:
        change = min(_change(seen, fields, usual, span[0], sign) for sign in (1, -1))
        return _unit(span[0]) if change < _FOUND * scale else None
    from scipy.optimize import least_squares  # slow to import

    rng = np.random.default_rng(3)
    for sign, _ in itertools.product((1, -1), range(_STARTS * len(span))):
        ended = least_squares(
            lambda v, sign=sign: _gap(seen, fields, usual, v @ span, sign) / scale,
            rng.standard_normal(len(span)), xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=60,
        )  # fmt: skip
        u = _unit(ended.x @ span)
        if _change(seen, fields, usual, u, sign) < _FOUND * scale:
            return u
    return None


def _gap(seen: _Output, Z: np.ndarray, usual: np.ndarray, u: np.ndarray, sign: int) -> np.ndarray:
    """Outputs at the reflected fields, less the usual ones times a sign, as one vector."""
    u = _unit(u)
    moved = seen(Z - 2 * u[:, None] * np.einsum("p,npt->nt", u, Z)[:, None])
    return np.nan_to_num(moved - sign * usual, nan=1e6, posinf=1e6, neginf=-1e6).ravel()


def _change(seen: _Output, Z: np.ndarray, usual: np.ndarray, u: np.ndarray, sign: int) -> float:
    return float(np.sqrt(np.mean(_gap(seen, Z, usual, u, sign) ** 2)))


def _unit(v: np.ndarray) -> np.ndarray:
    return np.asarray(v / max(np.linalg.norm(v), 1e-300))
