"""How coordinates of the level set are read off an output: as data, from which code that stands by itself is written.

The functions use numpy alone; :mod:`smisym.export` copies their text.  Charts call the same ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from smisym.base.axes import signed
from smisym.kernels.straight_line import StraightLine

# From scores, or log-ratios, (S, T, T), and how many vectors: coordinates (S, ...), and the sizes that they divide by.
HeadReader = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class HeadReading:
    """Coordinates from the scores k U V^T that one output matrix shows, or from its log-ratios.

    output: which one of several, None where there is one.  ratios: whether log-ratios are read, else the value of the
    core, of which the output is ``constant + coefficient * value``.  forward: the activation, a program of one score,
    where it acts score by score.  scores are (what is seen - shift) / scale.  reader: a function of this module, and
    how many vectors it is asked for.
    """

    output: int | None
    ratios: bool
    constant: np.ndarray
    coefficient: float
    forward: StraightLine | None
    shift: np.ndarray
    scale: float
    reader: HeadReader
    count: int


@dataclass(frozen=True)
class EntryReading:
    """Coordinates from entries of the output, row by row, or of its log-ratios, by a program."""

    program: StraightLine
    ratios: bool


Reading = tuple[HeadReading | EntryReading, ...]


def vector_of_ratios(D: np.ndarray, count: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """+-u (S, T) from D_ij = u_i (u_j - u_i): differences first, then the entry that divides best; and these squared.

    |u_i - u_j|^2 = -(D_ij + D_ji), u_i = -D_ij/(u_i - u_j); then u_k = u_i + D_ik/u_i.
    """
    i, j = np.array(list(itertools.combinations(range(D.shape[1]), 2))).T
    square = -(D[:, i, j] + D[:, j, i])
    best, take = square.argmax(axis=1), np.arange(len(D))
    i, j = i[best], j[best]
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.sqrt(np.maximum(square[take, best], 0.0))
        u_i, u_j = -D[take, i, j] / gap, D[take, j, i] / gap
        anchor = np.where(np.abs(u_i) >= np.abs(u_j), i, j)
        value = np.where(np.abs(u_i) >= np.abs(u_j), u_i, u_j)
        u = value[:, None] + D[take, anchor] / value[:, None]
        u[take, i], u[take, j] = u_i, u_j
    return u, square


def vector_of_gram(gram: np.ndarray, count: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """+-u (S, T) from u u^T: the largest diagonal entry divides; and the diagonal."""
    diagonal = np.einsum("sii->si", gram)
    anchor, take = diagonal.argmax(axis=1), np.arange(len(gram))
    with np.errstate(divide="ignore", invalid="ignore"):
        return gram[take, anchor] / np.sqrt(diagonal[take, anchor])[:, None], diagonal


def factor_of_gram(scores: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """U (S, T, count) with U U^T = scores, by eigenvectors; and the squares of its columns."""
    values, vectors = largest(0.5 * (scores + np.swapaxes(scores, 1, 2)), count)
    return vectors * np.sqrt(values)[:, None, :], values


def factor_of_ratios(ratios: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The same from G_ij - G_ii, G = U U^T: differences of rows, and the mean row where it overlaps with them."""
    T = ratios.shape[1]
    # G up to a constant: G_ij = D_ij + G_ii, and G_ii - G_11 = D_1i - D_i1 by symmetry.
    gram = ratios + (ratios[:, 0, :] - ratios[:, :, 0])[:, :, None]
    centre = np.eye(T) - 1 / T
    values, vectors = largest(centre @ gram @ centre, count)
    root = np.sqrt(values)
    # Tokens that are all alike, as where all fields are zero, leave their mean open: not a number.
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.einsum("sti,st->si", vectors, (centre @ gram).mean(axis=2)) / root
    return vectors * root[:, None, :] + mean[:, None, :], values


def factors_of_product(E: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """A and C, A C^T = E, side by side: A row by row, then C; and the singular values."""
    left, values, right = np.linalg.svd(E, full_matrices=False)
    sign, values = signed(left)[:, None, :count], values[:, :count]
    A, C = sign * left[:, :, :count], np.swapaxes(right, 1, 2)[:, :, :count] * sign * values[:, None, :]
    return np.concatenate([A.reshape(len(E), -1), C.reshape(len(E), -1)], axis=1), values


def factors_of_differences(ratios: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The same of the differences q_i (k_j - k_1)."""
    return factors_of_product(ratios[:, :, 1:] - ratios[:, :, :1], count)


def all_scores(E: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The scores themselves, and their sizes."""
    return E, np.abs(E)


def all_differences(ratios: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The differences q_i (k_j - k_1), and their sizes."""
    return all_scores(ratios[:, :, 1:] - ratios[:, :, :1], count)


def largest(gram: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``count`` largest eigenvalues (S, count), not below zero, and their vectors (S, T, count)."""
    values, vectors = np.linalg.eigh(gram)
    first = values.shape[1] - count
    vectors = vectors[:, :, first:]
    return np.maximum(values[:, first:], 0.0), vectors * signed(vectors)[:, None, :]
