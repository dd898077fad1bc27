"""More fields drawn close to where two solutions of an output meet, with weights.

Where an output leaves finitely many fields, and little is left to learn, one solution has all the mass but near where a
symmetry g leaves the fields as they are: for |(1 - g) Z|^2 of the order of V both are likely, and these few outputs, of
which there are V^{k T / 2}, are all that E lacks of T V^{-1}.  They are the fixed points close to perfect recovery.
With a quarter more points, drawn there, they are seen.  Means are those over both sets of points, in which each field
counts by how often the two together draw it; what is smooth is told by the first set alone, as without the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from smisym.prior import remaining
from smisym.theory.wider import variances, widened

# Variance along (1 - g) Z beside what is left to learn of it.  One tied head on three tokens, 1024 points, 32
# scrambles: the spread of E at Q = 0.9937 without is 5.2e-3, with 2, 3 and 5 it is 3.8e-4, 4.4e-4 and 2.9e-4; at 0.98
# 6.7e-3, then 1.8e-3, 1.9e-3 and 1.5e-3; at 0.9 1.2e-2, then 7.3e-3, 8.9e-3 and 9.6e-3.
NARROW = 2.0
# Numbers that must be small together from which on that is rare enough: of |z|, one number, such points took the spread
# at 0.9 from 5.7e-3 to 7.1e-3.
_FEWEST = 2
# One more point for so many, and their part of all at most, which vanishes as they are no closer than others.
EACH, SHARE = 4, 0.2
# What is left of what is known perfectly, and less.
_KNOWN = 1e-9
# Symmetries of which that is done, at most.
_MOST = 16


def meeting(elements: np.ndarray, tokens: int) -> np.ndarray:
    """(J, P, P): projectors (1 - g) / 2 of the symmetries among these (G, P, P) that are their own inverses and move
    the fewest directions; none where these are so few that solutions often meet."""
    halves = (np.eye(elements.shape[1]) - elements) / 2
    own = np.abs(halves @ halves - halves).max(axis=(1, 2)) < 1e-9
    own &= np.abs(halves - np.swapaxes(halves, 1, 2)).max(axis=(1, 2)) < 1e-9
    rank = np.rint(np.trace(halves, axis1=1, axis2=2)).astype(int)
    own &= rank > 0
    if not own.any() or rank[own].min() * tokens < _FEWEST:
        return halves[:0]
    return halves[own & (rank == rank[own].min())][:_MOST]


class Weighted(NamedTuple):
    """Fields (n, P, T), the points (n,) whose coordinates they come from, and weights (n,) of mean one; ``rest``: those
    of the points that are drawn as if nothing were rare, zero for others."""

    fields: np.ndarray
    points: np.ndarray | slice
    weights: np.ndarray
    rest: np.ndarray


def narrowed(normals: np.ndarray, chosen: np.ndarray, Q: np.ndarray, projectors: np.ndarray) -> Weighted:
    """From standard normals (n, P, T), and ``chosen`` (n,), uniform in [0, 1), at Q (P, P); projectors (J, P, P) as
    :func:`meeting` has them."""
    tokens, V, rank = normals.shape[2], remaining(Q), np.trace(projectors, axis1=1, axis2=2)
    variance = variances(Q, tokens)
    wide = np.diag(variance)
    if np.abs(projectors @ wide - wide @ projectors).max(initial=0.0) > 0:
        variance, wide = np.ones(len(Q)), np.eye(len(Q))
    left = np.einsum("jpq,qp->j", projectors, V) / rank
    beside = NARROW * left
    near = np.where(left > _KNOWN, np.clip(2 - 2 * beside, 0.0, 1.0), 0.0)
    fields, plain = widened(normals, variance)
    if not near.any():
        return Weighted(fields, slice(None), plain, plain)
    everyone, first = np.arange(len(normals)), np.diag(1 / variance)
    # Of each symmetry a part that vanishes as its points are no closer: E is as smooth in Q as without them.
    shares = SHARE * near / len(near)
    precisions = [first]
    # The first of Sobol points, which are such points themselves: every fourth lies in one half of every coordinate.
    more = everyone[: max(len(normals) // EACH, 1)]
    kind = (chosen[more] * len(near)).astype(int)
    close = fields[more]
    for number, P in enumerate(projectors):
        mine, others = kind == number, np.eye(len(P)) - P
        width = min(float(beside[number]), 1.0) * float(np.trace(P @ wide)) / rank[number]
        close[mine] = others @ close[mine] + np.sqrt(width) * (P @ normals[more[mine]])
        precisions.append(others @ first @ others + P / width if near[number] else first)
    points = np.concatenate([everyone, more])
    of_all = np.concatenate([fields, close])
    logs = np.array([_log_density(of_all, precision) for precision in precisions])
    parts = np.array([1 - shares.sum(), *shares])
    weights = np.exp(_log_density(of_all, np.eye(len(V))) - logsumexp(logs, axis=0, b=parts[:, None]))
    weights[: len(normals)] *= parts[0] / len(normals)
    weights[len(normals) :] *= shares[kind] * len(near) / len(more)
    rest = np.concatenate([plain, np.zeros(len(more))])
    # Among all others, so that folds of the points have their part of them.
    order = np.argsort(np.concatenate([everyone, EACH * more]), kind="stable")
    weights, rest = weights[order], rest[order]
    return Weighted(of_all[order], points[order], weights / weights.mean(), rest / rest.mean())


def _log_density(fields: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """(n,) of a normal with that precision for every token, up to a constant."""
    squares = np.einsum("npt,pq,nqt->n", fields, precision, fields)
    return np.asarray(0.5 * (fields.shape[2] * np.linalg.slogdet(precision)[1] - squares))
