"""Oracle of the first threshold of an untied head of rank one behind a tied layer, two tokens: nested quadratures.

Nothing here imports the package under test.  With B the mixing of the first layer, of field h, and C = B B^T, the last
layer shows e = q d: q ~ N(0, C) its mixed queries and d ~ N(0, s^2), s^2 = w^T C w, w = (-1, 1), the difference of its
mixed keys.  At given h the length of d is integrated out in closed form: with R = e^T C^{-1} e

    p(e | h) = exp(-R^{1/2} / s) / (2 pi s |det B| R^{1/2}),   E d^{-2} = (1 + R^{1/2} / s) / R,   E d^2 = s R^{1/2},

and with v = B^T w the fields of queries and keys, B^{-1} e / d and those with v . k = d, have the second moments

    E q q^T = B^{-1} e e^T B^{-T} E d^{-2},   E q k^T = B^{-1} e v^T / s^2,
    E k k^T = I + v v^T (E d^2 / s^2 - 1) / s^2.

What is left is the trapezoid rule over h, over the direction of e, and over the logarithm of its length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# How far the fields of the first layer reach, and between which logarithms the length of e lies.
_REACH, _LENGTHS = 8.5, (-14.0, 6.0)


@dataclass(frozen=True)
class First:
    """The first layer at n fields: its two entries h (2, n) with weights (n,), inverse mixings (n, 2, 2), |det B| and
    s^2 (n,), v (n, 2)."""

    h: np.ndarray
    weight: np.ndarray
    inverse: np.ndarray
    det: np.ndarray
    square: np.ndarray
    along: np.ndarray


def first_layer(side: int, skip: float = 1.0) -> First:
    """An even number of points on a side, so that none is at zero."""
    line = np.linspace(-_REACH, _REACH, side)
    law = np.exp(-0.5 * line**2) * (line[1] - line[0]) / np.sqrt(2 * np.pi)
    h = np.stack([one.ravel() for one in np.meshgrid(line, line, indexing="ij")])
    weight = np.outer(law, law).ravel()
    # Fields of either sign mix alike.
    kept = (h[0] > 0) & (weight > 1e-17)
    h, weight = h[:, kept], 2 * weight[kept]
    a, b = 1 / (1 + np.exp(h[0] * (h[0] - h[1]))), 1 / (1 + np.exp(h[1] * (h[1] - h[0])))
    B = np.moveaxis(np.array([[skip + 1 - a, a], [b, skip + 1 - b]]), 2, 0)
    along = B[:, 1] - B[:, 0]
    return First(h, weight, np.linalg.inv(B), np.abs(np.linalg.det(B)), (along**2).sum(axis=1), along)


def rates(side: int = 100, lengths: int = 50, angles: int = 48) -> tuple[np.ndarray, float]:
    """((4,) rates, mass): of the first layer; of queries and keys together, the larger one; of overlaps between
    queries and keys; and of queries alone.  The mass of all outputs is 1 where nothing is missed."""
    first = first_layer(side)
    log = np.linspace(*_LENGTHS, lengths)
    total, mass = np.zeros(5), 0.0
    for angle in (np.arange(angles) + 0.5) * 2 * np.pi / angles:
        density, squares = _along(first, np.array([np.cos(angle), np.sin(angle)]), np.exp(log))
        measure = density * np.exp(2 * log) * (log[1] - log[0]) * 2 * np.pi / angles
        mass += measure.sum()
        total += squares @ measure
    own, queries, keys, between, crossed = total / mass
    both = np.linalg.eigvalsh([[queries, between], [between, keys]])[-1]
    return np.array([own, both, crossed, queries]), float(mass)


def _along(first: First, e: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Density (r,) of outputs at these lengths in the direction e, and (5, r) what they make of the rates."""
    q = first.inverse @ e
    root = np.sqrt((q**2).sum(axis=1))
    s = np.sqrt(first.square)
    far = length[:, None] * root / s
    weight = first.weight / (2 * np.pi * first.det * s * root) * np.exp(-far) / length[:, None]
    density = weight.sum(axis=1)
    share = weight / density[:, None]
    eye = np.eye(2)
    h = np.einsum("in,jn->nij", first.h, first.h) - eye
    queries, v = np.einsum("ni,nj->nij", q, q), np.einsum("ni,nj->nij", first.along, first.along)
    crossed = np.einsum("ni,nj->nij", q, first.along / first.square[:, None])
    G = np.tensordot(share, h, 1)
    Q = np.tensordot(share * (1 + far) / root**2, queries, 1) - eye
    K = np.tensordot(share * (far - 1) / first.square, v, 1)
    X = length[:, None, None] * np.tensordot(share, crossed, 1)
    mixed = (Q * K).sum(axis=(1, 2)) + (X * np.swapaxes(X, 1, 2)).sum(axis=(1, 2))
    return density, np.stack([*((M**2).sum(axis=(1, 2)) for M in (G, Q, K, X)), mixed])
