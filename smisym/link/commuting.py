"""Which overlaps symmetries leave: the symmetric matrices that commute with all of them, part by part.

A *part* is a set of rows, or of combinations of rows, whose overlaps with all others vanish, and which falls apart no
further.  Where it has one overlap it is learned as a whole; where it has several, they are coupled.
"""

from __future__ import annotations

import itertools

import numpy as np

# Eigenvalues and entries below this are rounding.
_ZERO = 1e-9


def commutant(
    maps: list[np.ndarray],
    rotations: tuple[tuple[tuple[int, ...], ...], ...],
    slices: tuple[int, ...],
    reflections: list[np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(basis (k, P, P), which part each belongs to (k,)) of the symmetric matrices that commute with all maps.

    maps: signed exchanges of rows.  rotations: groups of rows that are turned alike.  reflections: other orthogonal
    maps.  Rows on different slices of the embedding have no overlap.  The basis is orthogonal under the trace; a part
    with one matrix has the projector on it, one with several has an orthonormal basis with few entries.
    """
    P = len(slices)
    pairs = [p for p in itertools.combinations_with_replacement(range(P), 2) if slices[p[0]] == slices[p[1]]]
    start = np.array([_on_pairs(row, pairs, P) for row in _orbits(maps, pairs)])
    left = _that_commute(start, [*_generators(rotations, P), *(reflections or [])])
    basis: list[np.ndarray] = []
    parts: list[int] = []
    for number, projector in enumerate(_projectors(_that_commute(left, list(left)))):
        inside = _span(np.einsum("ab,kbc,cd->kad", projector, left, projector), pairs)
        own = projector[None] if len(inside) == 1 else inside
        basis += list(own)
        parts += [number] * len(own)
    return np.array(basis), np.array(parts)


def _that_commute(start: np.ndarray, maps: list[np.ndarray]) -> np.ndarray:
    """The combinations (k, P, P) of symmetric matrices that commute with all maps, orthonormal if these are."""
    # Squares of the commutators: what they all vanish on.
    square = np.zeros((len(start), len(start)))
    for m in maps:
        rows = np.stack([(m @ B - B @ m).ravel() for B in start], axis=1)
        square += rows.T @ rows
    values, vectors = np.linalg.eigh(square)
    return np.einsum("ka,aij->kij", vectors.T[values < _ZERO], start)


def _orbits(maps: list[np.ndarray], pairs: list[tuple[int, int]]) -> np.ndarray:
    """(k, n) orthonormal: sums over orbits of pairs of rows, with signs, that signed exchanges leave as they are.

    An exchange m moves entry (i, j) of a symmetric matrix to (c_i, c_j) with the sign s_i s_j; an orbit that comes back
    to a pair with the other sign carries nothing.
    """
    number = {pair: k for k, pair in enumerate(pairs)}
    leader, sign = np.arange(len(pairs)), np.ones(len(pairs))
    dead = np.zeros(len(pairs), dtype=bool)
    i, j = np.array(pairs).T
    for m in maps:
        image = np.abs(m).argmax(axis=1)
        s = m[np.arange(len(m)), image]
        low, high = np.minimum(image[i], image[j]), np.maximum(image[i], image[j])
        turned = s[i] * s[j]
        for k in np.flatnonzero((low != i) | (high != j) | (turned < 0)):
            other = number[int(low[k]), int(high[k])]
            a, b, relative = leader[k], leader[other], turned[k] * sign[k] * sign[other]
            if a == b:
                dead[leader == a] |= relative < 0
                continue
            moved = leader == b
            sign[moved] *= relative
            dead[moved | (leader == a)] = dead[k] or dead[other]
            leader[moved] = a
    rows = [np.where(leader == a, sign, 0.0) for a in np.unique(leader[~dead])]
    return np.array([row / np.linalg.norm(row) for row in rows]).reshape(len(rows), len(pairs))


def _on_pairs(row: np.ndarray, pairs: list[tuple[int, int]], fields: int) -> np.ndarray:
    """The symmetric matrix with these coefficients on the orthonormal basis of pairs of rows."""
    matrix = np.zeros((fields, fields))
    for k in np.flatnonzero(row):
        i, j = pairs[k]
        matrix[i, j] = matrix[j, i] = row[k] * (1.0 if i == j else np.sqrt(0.5))
    return matrix


def _generators(rotations: tuple[tuple[tuple[int, ...], ...], ...], fields: int) -> list[np.ndarray]:
    """Infinitesimal rotations, and one reflection, of each group of rows."""
    found = []
    for group in rotations:
        size = len(group[0])
        for i, j in itertools.combinations(range(size), 2):
            matrix = np.zeros((fields, fields))
            for rows in group:
                matrix[rows[i], rows[j]], matrix[rows[j], rows[i]] = 1.0, -1.0
            found.append(matrix)
        reflection = np.eye(fields)
        for rows in group:
            reflection[rows[0], rows[0]] = -1.0
        found.append(reflection)
    return found


def _projectors(commuting: np.ndarray) -> list[np.ndarray]:
    """Projectors that span an algebra of commuting symmetric matrices (k, P, P), in the order of their first rows."""
    weights = np.random.default_rng(2).standard_normal(len(commuting))
    values, vectors = np.linalg.eigh(np.einsum("k,kij->ij", weights, commuting))
    found = []
    for part in np.split(np.arange(len(values)), np.flatnonzero(np.diff(values) > 1e-7) + 1):
        projector = vectors[:, part] @ vectors[:, part].T
        projector[np.abs(projector) < 1e-12] = 0.0
        found.append(_rounded(projector))
    return sorted(found, key=lambda p: (int(np.flatnonzero(np.diag(p) > _ZERO)[0]), -float(p.sum())))


def _rounded(projector: np.ndarray) -> np.ndarray:
    """Entries of a projector that are fractions of small numbers, exactly."""
    for denominator in (1, 2, 3, 4, 5, 6, 7, 8):
        near = np.round(projector * denominator) / denominator
        if np.abs(near - projector).max() < 1e-9:
            return near + 0.0
    return projector


def _span(matrices: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """An orthonormal basis (k, P, P), with few entries each, of the span of symmetric matrices: row echelon form."""
    P = matrices.shape[-1]
    start = np.array([_on_pairs(row, pairs, P) for row in np.eye(len(pairs))])
    rows = np.einsum("aij,kij->ka", start, matrices)
    _, size, axes = np.linalg.svd(rows)
    rows = _echelon(axes[: int((size > 1e-7).sum())])
    basis: list[np.ndarray] = []
    for row in rows:
        for other in basis:
            row = row - other * (row @ other)
        basis.append(row / np.linalg.norm(row))
    return np.array([_on_pairs(row, pairs, P) for row in basis])


def _echelon(rows: np.ndarray) -> np.ndarray:
    """Reduced row echelon form of independent rows."""
    rows, done = rows.copy(), 0
    for column in range(rows.shape[1]):
        best = done + int(np.abs(rows[done:, column]).argmax()) if done < len(rows) else done
        if best == len(rows) or abs(rows[best, column]) < 1e-7:
            continue
        rows[[done, best]] = rows[[best, done]]
        rows[done] /= rows[done, column]
        others = np.arange(len(rows)) != done
        rows[others] -= np.outer(rows[others, column], rows[done])
        done += 1
    rows[np.abs(rows) < 1e-12] = 0.0
    return rows
