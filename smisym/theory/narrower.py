"""Half of the fields drawn close to where two solutions of an output meet, with weights.

Where an output leaves finitely many fields, and little is left to learn, one solution has all the mass but near where a
symmetry g leaves the fields as they are: for |(1 - g) Z|^2 of the order of V both are likely, and these few outputs, of
which there are V^{k T / 2}, are all that E lacks of T V^{-1}.  They are the fixed points close to perfect recovery.
Drawn as often as all others together they are seen; weights are two at most.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from smisym.prior import remaining
from smisym.theory.wider import variances

# Variance along (1 - g) Z beside what is left to learn of it.  One tied head on three tokens, 1024 points, 32
# scrambles: the spread of E at Q = 0.9937 without is 5.2e-3, with 2, 3 and 5 it is 2.5e-4, 2.1e-4 and 2.7e-4; at 0.98
# 6.7e-3, then 1.3e-3, 1.1e-3 and 1.4e-3; at 0.9 1.2e-2, then 1.0e-2, 8.8e-3 and 9.5e-3.
NARROW = 3.0
# Numbers that must be small together from which on that is rare enough: of |z|, one number, the spread at 0.9 is 5.7e-3
# without and 7.1e-3 with.
_FEWEST = 2
# Part of the points that are drawn so.
SHARE = 0.5
# What is left of what is known perfectly, and less.
_KNOWN = 1e-9
# Symmetries of which that is done, at most.
_MOST = 16


def meeting(elements: np.ndarray, tokens: int) -> np.ndarray:
    """(J, P, P): projectors (1 - g) / 2 of the symmetries among these (G, P, P) that are their own inverses and move
    the fewest directions; none where these are so few that solutions often meet."""
    eye = np.eye(elements.shape[1])
    halves = (eye - elements) / 2
    own = np.abs(halves @ halves - halves).max(axis=(1, 2)) < 1e-9
    rank = np.rint(np.trace(halves, axis1=1, axis2=2)).astype(int)
    own &= (rank * tokens >= _FEWEST) & (np.abs(halves - np.swapaxes(halves, 1, 2)).max(axis=(1, 2)) < 1e-9)
    if not own.any():
        return halves[:0]
    return halves[own & (rank == rank[own].min())][:_MOST]


def narrowed(
    normals: np.ndarray, chosen: np.ndarray, Q: np.ndarray, projectors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(fields, weights (n,) of mean one) from standard normals (n, P, T) and ``chosen`` (n,), uniform in [0, 1), at Q
    (P, P); projectors (J, P, P) as :func:`meeting` has them.  The rest are drawn wider (:mod:`smisym.theory.wider`)."""
    tokens, V = normals.shape[2], remaining(Q)
    wide = np.diag(variances(Q, tokens))
    rank = np.trace(projectors, axis1=1, axis2=2)
    left = np.einsum("jpq,qp->j", projectors, V) / rank
    there = (left > _KNOWN) & (NARROW * left < 1)
    narrow = projectors[there]
    # Where they are as wide as the others, they are the others: E is as smooth in Q as without them.
    width = NARROW * left[there] * np.einsum("jpq,qp->j", narrow, wide) / rank[there]
    fields = np.sqrt(wide) @ normals
    kind = np.where(chosen < SHARE, (chosen / SHARE * len(narrow)).astype(int), -1)
    precisions = [np.diag(1 / np.diag(wide))]
    for number, (P, variance) in enumerate(zip(narrow, width, strict=True)):
        mine, rest = kind == number, np.eye(len(P)) - P
        fields[mine] = rest @ fields[mine] + np.sqrt(variance) * (P @ normals[mine])
        precisions.append(rest @ precisions[0] @ rest + P / variance)
    logs = np.array([_log_density(fields, precision) for precision in precisions])
    share = np.array([1 - SHARE * bool(len(narrow)), *([SHARE / len(narrow)] * len(narrow) if len(narrow) else [])])
    log_weight = _log_density(fields, np.eye(len(V))) - logsumexp(logs, axis=0, b=share[:, None])
    weights = np.exp(log_weight)
    return fields, weights / weights.mean()


def _log_density(fields: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """(n,) of a normal with that precision for every token, up to a constant."""
    squares = np.einsum("npt,pq,nqt->n", fields, precision, fields)
    return np.asarray(0.5 * (fields.shape[2] * np.linalg.slogdet(precision)[1] - squares))
