"""Inverting one attention matrix: the finite catalogue of what the scores of one head leave unknown.

``y = sigma(k U V^T)`` with U = V (tied) or not, both (T, r).  Each entry of the catalogue writes all U, V with the
given y
as functions of latent coordinates, a branch and, where it is affine in the rest, of directions; and gives the measure
on them, up to factors that depend on y alone.  (arXiv 2502.00901, appendix E, for tied rank one; the others are derived
in ``smisym``'s documents and held against the co-area formula by tests.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from smisym.charts.base import FLAT, Arrays, Coordinates, Fault, Unfolding, faults
from smisym.charts.frames import TURN, dot, rotation, sphere
from smisym.charts.lengths import length
from smisym.charts.rank_one_vector import from_log_ratios
from smisym.charts.reading import (
    HeadReader,
    all_differences,
    all_scores,
    factor_of_gram,
    factor_of_ratios,
    factors_of_differences,
    factors_of_product,
    vector_of_ratios,
)
from smisym.kernels.tracing import call

# A column of U: T arrays.  Columns come in the order of the rows of the fields, queries before keys.
Columns = list[Arrays]


@dataclass(frozen=True)
class Sheet:
    """One branch: the columns, their log-weight (None: 0), and directions (each like ``columns``)."""

    columns: Columns
    log_weight: np.ndarray | None
    directions: list[Columns]


# Largest entry of a field, in units of the integrator's variable.
_REACH = 1.3


class Inverse(Protocol):
    """What one head leaves unknown.

    tokens, rank, softmax: which head it is; without softmax it shows the scores themselves.  latents, branches,
    directions: as in :class:`~smisym.charts.base.LevelSet`.  dimension: independent coordinates of the head's output.
    known_columns: how many columns (the keys) must be given instead of being solved for.  reader: what reads the
    coordinates off scores.

    ``sheets`` is arithmetic of scalars, of which programs are made (:mod:`smisym.charts.programs`).
    """

    tokens: int
    rank: int
    softmax: bool
    latents: tuple[str, ...]
    branches: int
    directions: int
    dimension: int
    known_columns: int
    reader: HeadReader

    def coordinates(self, scores: np.ndarray, rounding: np.ndarray) -> Coordinates:
        """From ``k U V^T`` (S, T, T), or its log-ratios, and their absolute rounding error (S,)."""
        ...

    def sheets(self, latent: Arrays, u: Arrays, known: Columns, size: np.ndarray) -> list[Sheet]:
        """All branches; ``size`` is the scale of U where the fields are of order one."""
        ...

    def unfolding(self) -> Unfolding | None:
        """The head's part of the chart's :class:`~smisym.charts.base.Unfolding`, or None where there is none yet."""
        ...


class TiedHead:
    """y shows the Gram matrix G = U U^T (linear), or G_ij - G_ii (softmax).

    Linear: U = U_0 F with F the first min(r, T) rows of a rotation, Haar.  Softmax: the differences of rows have a
    known
    Gram matrix, U_c = C F with F min(r, T-1) rows of a rotation; the mean row is known where it overlaps with the
    differences, and any vector in their complement (of r - T + 1 dimensions, flat) where r >= T.
    """

    def __init__(self, tokens: int, rank: int, *, softmax: bool) -> None:
        self.tokens, self.rank, self.softmax = tokens, rank, softmax
        self.frame = min(rank, tokens - 1 if softmax else tokens)
        self.latents = (FLAT,) * sum(max(rank - 1 - i, 0) for i in range(self.frame))
        self.branches = 2 if self.frame == rank else 1
        self.directions = rank - self.frame if softmax else 0
        self.known_columns = 0
        self.dimension = tokens * rank - len(self.latents) - self.directions
        self.reader: HeadReader = factor_of_ratios if softmax else factor_of_gram
        if softmax and rank == 1:
            self.reader = vector_of_ratios

    def coordinates(self, scores: np.ndarray, rounding: np.ndarray) -> Coordinates:
        T, m = self.tokens, self.frame
        if self.rank == 1 and self.softmax:
            return from_log_ratios(scores, rounding)
        known, values = self.reader(scores, m)
        centre = np.eye(T) - 1 / T
        if self.softmax:
            gram = scores + (scores[:, 0, :] - scores[:, :, 0])[:, :, None]
            outside = _symmetry_faults(gram, 4 * rounding)
        else:
            gram = 0.5 * (scores + np.swapaxes(scores, 1, 2))
            outside = _symmetry_faults(scores, rounding)
        smallest = values.min(axis=1) if m else np.ones(len(scores))
        error = _relative(rounding, smallest)
        seen, factor = (gram, known)
        if self.softmax:
            # Factors that leave rows undetermined are infinite, and those outputs faults.
            with np.errstate(invalid="ignore"):
                seen, factor = centre @ gram @ centre, known - known.mean(axis=1, keepdims=True)
        outside += _rank_faults(seen, factor @ np.swapaxes(factor, 1, 2), rounding, error)
        return Coordinates(known.reshape(len(scores), math.prod(known.shape[1:])), error, outside)

    def sheets(self, latent: Arrays, u: Arrays, known: Columns, size: np.ndarray) -> list[Sheet]:
        T, r, m = self.tokens, self.rank, self.frame
        found = []
        for sign in (1.0, -1.0) if self.branches == 2 else (1.0,):
            frame, weight = rotation(latent, m, r, sign)
            known_rows = [u[t * m : (t + 1) * m] for t in range(T)]
            columns = [[dot(row, [f[c] for f in frame]) for row in known_rows] for c in range(r)]
            directions = []
            for vector in frame[m : m + self.directions]:
                directions.append([[vector[c]] * T for c in range(r)])
            found.append(Sheet(columns, weight if self.latents else None, directions))
        return found

    def unfolding(self) -> Unfolding | None:
        """Of rank one the scores' vector itself; of rank two on two tokens under a softmax, its part across them.

        There U = v f^T + d 1 g^T with (f, g) a frame at an angle of TURN times the latent coordinate, so that
        |det dU/d(v, latent, d)| = TURN |v_1 - v_2|; half a turn takes v to -v.
        """
        T, r = self.tokens, self.rank
        flips = np.array([np.ones(T), -np.ones(T)])
        if r == 1:
            return Unfolding(T, flips)
        if self.softmax and r == T == 2:
            return Unfolding(T, flips, log_weight=lambda v: np.log(TURN * np.abs(v[0] - v[1])))
        return None


class UntiedHead:
    """y shows q k^T (linear), or q_i (k_j - k_1)^T (softmax): E = q c^T with n = T or T - 1 rows of c.

    r <= n: an orbit of GL(r), q = A M, c = C M^{-T}, with measure |det M|^{-r} dM (linear) or |det M|^{1-r} dM and a
    free, flat shift of the keys (softmax).  Of rank two M is a rotation times an upper triangular matrix, in whose
    shear both are affine: one latent coordinate less, and one direction more.  r > n: each q_i obeys n linear
    equations, given the keys, which are free. Two tokens under a softmax see of the keys their difference alone.
    """

    def __init__(self, tokens: int, rank: int, *, softmax: bool) -> None:
        self.tokens, self.rank, self.softmax = tokens, rank, softmax
        self.differences = tokens - 1 if softmax else tokens
        self.orbit = rank <= self.differences
        if self.orbit:
            shears = int(rank == 2)
            self.latents: tuple[str, ...] = (FLAT,) * (rank**2 - shears)
            self.branches = 2 if rank <= 2 else 1
            shifts = rank if softmax else 0
            self.directions = shifts + shears
            self.known_columns = 0
            self.dimension = 2 * tokens * rank - rank**2 - shifts
        else:
            self.polar = softmax and self.differences == 1
            self.branches = 1
            self.latents = (FLAT,) * rank if self.polar else ()
            self.directions = tokens * (rank - self.differences) + (rank if self.polar else 0)
            self.known_columns = 0 if self.polar else rank
            self.dimension = tokens * self.differences
        choice = (factors_of_differences, factors_of_product) if self.orbit else (all_differences, all_scores)
        self.reader: HeadReader = choice[0 if softmax else 1]

    def coordinates(self, scores: np.ndarray, rounding: np.ndarray) -> Coordinates:
        E = scores[:, :, 1:] - scores[:, :, :1] if self.softmax else scores
        if not self.orbit:
            return Coordinates(E.reshape(len(E), -1), _relative(rounding, np.abs(E).max(axis=(1, 2))))
        known, values = self.reader(scores, self.rank)
        cut = self.tokens * self.rank
        A, C = known[:, :cut].reshape(len(E), -1, self.rank), known[:, cut:].reshape(len(E), -1, self.rank)
        error = _relative(rounding, values[:, -1])
        return Coordinates(known, error, _rank_faults(E, A @ np.swapaxes(C, 1, 2), rounding, error))

    def sheets(self, latent: Arrays, u: Arrays, known: Columns, size: np.ndarray) -> list[Sheet]:
        if not self.orbit:
            return self._conditional(latent, u, known, size)
        return self._sheared(latent, u, size) if self.rank == 2 else self._orbit(latent, u, size)

    def unfolding(self) -> Unfolding | None:
        """Rank one on two tokens under a softmax: E = q (k_2 - k_1) is any vector of R^2.

        With q = E M / |E| and k_2 - k_1 = |E| / M, dq d(k_2 - k_1) = dE dM / |E|.
        """
        if not (self.softmax and self.rank == 1 and self.tokens == 2):
            return None

        def embed(v: Arrays) -> Arrays:
            size = np.hypot(v[0], v[1])
            return [v[0] / size, v[1] / size, size]

        return Unfolding(2, np.ones((1, 2)), embed, lambda v: -np.log(np.hypot(v[0], v[1])))

    def _orbit(self, latent: Arrays, u: Arrays, size: np.ndarray) -> list[Sheet]:
        T, r, n = self.tokens, self.rank, self.differences
        A = [u[t * r : (t + 1) * r] for t in range(T)]
        C = [u[T * r + t * r : T * r + (t + 1) * r] for t in range(n)]
        gauges = self._gauges(latent, C, _REACH * size)
        found = []
        for M, weight in gauges:
            inverse, log_det = _inverse(M)
            queries = [[dot(A[t], [row[c] for row in M]) for t in range(T)] for c in range(r)]
            keys = [[dot(C[t], inverse[c]) for t in range(n)] for c in range(r)]
            power = 1 - r if self.softmax else -r
            weight = weight + power * log_det if power else weight
            directions: list[Columns] = []
            if self.softmax:
                keys = [[np.zeros(()), *column] for column in keys]
                directions = self._shifts()
            found.append(Sheet(queries + keys, weight, directions))
        return found

    def _sheared(self, latent: Arrays, u: Arrays, size: np.ndarray) -> list[Sheet]:
        """M = (e, f) ((a, s), (0, b)), e and f orthonormal: an angle, lengths a and b of either sign, a direction s.

        q = (a A e, s A e + b A f) and c = (C e / a - s C f / (a b), C f / b); dM = |a| d(angle) da db ds, and (a, b)
        and (-a, -b) are half a turn apart.
        """
        T, n = self.tokens, self.differences
        A, C = ([u[first + 2 * t : first + 2 * t + 2] for t in range(rows)] for first, rows in ((0, T), (2 * T, n)))
        # Columns of C are orthogonal and those of A orthonormal: shared out evenly, so that M is near a rotation.
        roots = [np.sqrt(np.sqrt(sum(row[i] ** 2 for row in C))) for i in range(2)]
        A = [[value * root for value, root in zip(row, roots, strict=True)] for row in A]
        C = [[value / root for value, root in zip(row, roots, strict=True)] for row in C]
        e, turn = sphere(latent[:1])
        f = [-e[1], e[0]]
        Ae, Af, Ce, Cf = ([dot(row, vector) for row in rows] for rows in (A, C) for vector in (e, f))
        sizes = [np.sqrt(dot(column, column)) for column in (Ae, Af)]
        products = [own * np.sqrt(dot(seen, seen)) for own, seen in zip(sizes, (Ce, Cf), strict=True)]
        (a, log_a), (b, log_b) = (length(x, [p], _REACH * size) for x, p in zip(latent[1:], products, strict=True))
        a, b, log_sizes = a / sizes[0], b / sizes[1], np.log(sizes[0] * sizes[1])
        weight = (
            turn
            + log_a
            + log_b
            - log_sizes
            + (0 if self.softmax else -1) * np.log(a)
            - (1 if self.softmax else 2) * np.log(b)
        )
        first = [np.zeros(())] if self.softmax else []
        found = []
        for sign in (1.0, -1.0):
            own = sign * b
            keys = [[*first, *(value / a for value in Ce)], [*first, *(value / own for value in Cf)]]
            queries, zero = [[a * value for value in Ae], [own * value for value in Af]], [np.zeros(())] * T
            shear = [zero, Ae, [*first, *(-value / (a * own) for value in Cf)], zero]
            found.append(Sheet(queries + keys, weight, [shear, *(self._shifts() if self.softmax else [])]))
        return found

    def _gauges(self, latent: Arrays, C: list[Arrays], reach: np.ndarray) -> list[tuple[list[Arrays], np.ndarray]]:
        """Elements M of GL(r) at the latent coordinates, and the log of dM/d(latent); queries are A M, A orthonormal.

        Rank one: M and C / M are lengths of queries and of keys, of either sign.
        """
        if self.rank > 1:
            M = [[reach * latent[i * self.rank + j] for j in range(self.rank)] for i in range(self.rank)]
            return [(M, self.rank**2 * np.log(reach))]
        scale, weight = length(latent[0], [column[0] for column in C], reach)
        return [([[scale]], weight), ([[-scale]], weight)]

    def _shifts(self) -> list[Columns]:
        """All keys moved alike, component by component."""
        zero, one = np.zeros(()), np.ones(())
        T, r = self.tokens, self.rank
        return [[[zero] * T] * r + [[one if c == i else zero] * T for c in range(r)] for i in range(r)]

    def _conditional(self, latent: Arrays, u: Arrays, known: Columns, size: np.ndarray) -> list[Sheet]:
        """Queries by least norm given keys, and what is free of each; where polar, keys 0 and K and their shift too."""
        T, r, n, zero = self.tokens, self.rank, self.differences, np.zeros(())
        weight = zero
        if self.polar:
            own, weight = length(latent[0], u, _REACH * size)
            point, turn = sphere(latent[1:])
            K = [own * x for x in point]
            weight = weight + turn + (r - 1) * np.log(own)
        else:
            first = 1 if self.softmax else 0
            base = [column[0] if self.softmax else 0.0 for column in known]
            K = [known[c][first + j] - base[c] for j in range(n) for c in range(r)]
        *found, volume = call(f"least_norm_{n}_{r}", [*K, *u[: T * n]])
        queries, null = found[: T * r], found[T * r :]
        columns = [[queries[t * r + c] for t in range(T)] for c in range(r)]
        directions = [
            [[null[i * r + c] if s == t else zero for s in range(T)] for c in range(r)]
            for t in range(T)
            for i in range(r - n)
        ]
        if self.polar:
            columns += [[zero, K[c]] for c in range(r)]
            directions = [[*direction, *[[zero] * T] * r] for direction in directions] + self._shifts()
        return [Sheet(columns, weight - T * volume, directions)]


def _inverse(M: list[Arrays]) -> tuple[list[Arrays], np.ndarray]:
    """Inverse and log|det| of an r x r matrix of arrays."""
    if len(M) == 1:
        return [[1 / M[0][0]]], np.log(np.abs(M[0][0]))
    r = len(M)
    *entries, log_det = call(f"inverse_logdet_{r}", [entry for row in M for entry in row])
    return [entries[i * r : (i + 1) * r] for i in range(r)], log_det


def _relative(rounding: np.ndarray, size: np.ndarray) -> np.ndarray:
    """(S,) rounding over the size of what it rounds; infinite where nothing is left of that."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(size > 0, rounding / size, np.inf)


def _symmetry_faults(gram: np.ndarray, rounding: np.ndarray) -> tuple[Fault, ...]:
    off = np.abs(gram - np.swapaxes(gram, 1, 2)).max(axis=(1, 2))
    with np.errstate(over="ignore"):  # of an output that rounding leaves nothing of
        bad = off > 1e3 * rounding + 1e-9 * (1 + np.abs(gram).max(axis=(1, 2)))
    return _faults(bad, off, "scores that are not symmetric")


def _rank_faults(scores: np.ndarray, again: np.ndarray, rounding: np.ndarray, error: np.ndarray) -> tuple[Fault, ...]:
    """Scores of more than the declared rank, or a Gram matrix with negative eigenvalues, belong to no fields."""
    off = np.abs(scores - again).max(axis=(1, 2))
    with np.errstate(over="ignore"):
        tolerance = 1e3 * rounding + 1e-9 * (1 + np.abs(scores).max(axis=(1, 2)))
    return _faults((off > tolerance) & np.isfinite(error), off, "scores that miss every product of the declared rank")


def _faults(bad: np.ndarray, off: np.ndarray, what: str) -> tuple[Fault, ...]:
    return faults(
        bad,
        lambda sample: f"{what} by {off[sample]:.3g}",
        "an output of this architecture, noiseless",
        "check that y comes from this architecture; with noise, declare the noise",
    )
