"""Frames of vectors in R^r by angles on the line, Haar distributed with their weights."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr

from smisym.charts.base import Arrays

# An angle runs over the line with a weight that is one turn in all: a box of one turn, smoothed over _SMOOTH.
TURN, _SMOOTH = 1.25, 0.5
# A polar angle has cosine tanh(_POLE x), which is analytic up to the poles.
_POLE = 1.4


def rotation(latent: Arrays, rows: int, size: int, sign: float) -> tuple[list[Arrays], np.ndarray]:
    """An orthonormal basis of R^size whose first ``rows`` vectors are Haar distributed, and the log of its weight.

    Vector by vector: a point on the sphere of what is left, by its angles, and the reflection that takes the first axis
    there.  On the circle a rotation: a reflection jumps where the point is the first axis itself, at the angle zero,
    which of a sphere of more dimensions is at infinity.  ``latent`` are of kind FLAT; ``sign`` is that of the last
    vector where ``rows`` is ``size``.
    """
    if rows == 0 or size == 0:
        basis = [[np.asarray(float(i == j)) for j in range(size)] for i in range(size)]
        return basis, np.zeros(())
    if size == 1:
        return [[np.asarray(sign)]], np.zeros(())
    point, weight = sphere(latent[: size - 1])
    inner, rest = rotation(latent[size - 1 :], rows - 1, size - 1, sign)
    if size == 2:
        ((last,),) = inner
        return [point, [-point[1] * last, point[0] * last]], weight + rest
    return [point, *[_reflect(point, [np.zeros(()), *vector]) for vector in inner]], weight + rest


def sphere(angles: Arrays) -> tuple[Arrays, np.ndarray]:
    """A point on the sphere and the log of its weight: the k-th last angle has the density sin^k."""
    point: Arrays = []
    sine, weight = np.ones(()), np.zeros(())
    for i, x in enumerate(angles[:-1]):
        power = len(angles) - 1 - i
        latitude = _POLE * x
        inverse = np.cosh(latitude)
        point.append(sine * np.tanh(latitude))
        sine = sine / inverse
        weight = weight - (power + 1) * np.log(inverse)
    turn = TURN * angles[-1]
    inside, outside = (np.pi - np.abs(turn)) / _SMOOTH, (-np.pi - np.abs(turn)) / _SMOOTH
    log_inside = log_ndtr(inside)
    weight = weight + log_inside + np.log1p(-np.exp(log_ndtr(outside) - log_inside))
    return [*point, sine * np.cos(turn), sine * np.sin(turn)], weight


def log_mass(rows: int, size: int) -> float:
    """The log of the integral of the weight of :func:`rotation` over all its latent coordinates."""
    if rows == 0 or size <= 1:
        return 0.0
    turn = math.log(2 * math.pi / TURN)
    # The integral of cosh(_POLE x)^-(power + 1).
    poles = [math.lgamma((k + 1) / 2) - math.lgamma(k / 2 + 1) + math.log(math.sqrt(math.pi) / _POLE)
             for k in range(1, size - 1)]  # fmt: skip
    return turn + sum(poles) + log_mass(rows - 1, size - 1)


def dot(a: Arrays, b: Arrays) -> np.ndarray:
    """Sum of products, as far as the shorter reaches; an array also where there is nothing to add."""
    return sum((x * y for x, y in zip(a, b, strict=False)), np.zeros(()))


def _reflect(point: Arrays, vector: Arrays) -> Arrays:
    """The reflection that takes the first axis to ``point``, applied to a vector with first entry zero."""
    w = [1 - point[0], *[-p for p in point[1:]]]
    along = dot(w, vector) / np.maximum(w[0], 1e-300)  # |w|^2 = 2 w_0
    return [b - a * along for a, b in zip(w, vector, strict=True)]
