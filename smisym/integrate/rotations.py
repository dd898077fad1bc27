"""Moments of orthogonal matrices of three rows under exp(tr(A^T O)), against Haar's measure.

With the singular values s of A in place of A, A = U s V^T, and O = U M V^T, a rotation M is a unit quaternion, and
tr(s M) a quadratic form of it without mixed terms.  Of its four squares two pairs, (0, 3) and (1, 2), have sums x and
1 - x, x uniform on [0, 1], and an angle each, which Bessel's functions integrate (T. Lee, Bayesian attitude estimation
with the matrix Fisher distribution on SO(3), IEEE Trans. Automat. Control 63, 3377 (2018), eq. 12):

    int dM exp(tr(s M)) = int_0^1 dx I_0(x (s_1 + s_2)) I_0((1 - x) (s_1 - s_2)) exp(s_3 (2 x - 1)).

Moments to second order of M are those of squares and fourth powers of the quaternion, by the same integral.
Reflections are rotations times diag(1, 1, -1): the same with -s_3 for s_3.  x is a logistic function of the variable
that the trapezoid rule is used in, which resolves both ends at once, however large s is: errors fall as
exp(-pi^2 / step).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import i0e, i1e

# Steps of the trapezoid rule, shares of the mass left out at either end, and what is missed at most so (1000 matrices
# of sizes to 1e7): the first that does is taken.
_RULES = ((0.5, 1e-8, 1e-4), (0.3, 1e-15, 4e-9), (0.2, 1e-16, 0.0))
# Arguments below which I_1(z) / (z I_0(z)) is its value at zero, to rounding.
_SMALL = 1e-7
# Numbers held at once in the largest array.
_MEMORY = 250_000
# Powers of x and 1 - x, and of what the angles make of the two squares of a pair, that moments are made of.
_FEATURES = 15


@dataclass(frozen=True)
class Turned:
    """Moments of O (n, r, r) in O(r).

    log_norm (n,): of the integral over rotations and reflections, of mass one each.  mean (n, r, r).  second
    (n, r, r, r, r): E[O_ai O_bj].  missed (n,): what the rule misses of these, at most.  nodes (n,): of the rule.
    """

    log_norm: np.ndarray
    mean: np.ndarray
    second: np.ndarray
    missed: np.ndarray
    nodes: np.ndarray


def turned(A: np.ndarray, rtol: float) -> Turned:
    """Moments under exp(tr(A^T O)), A (n, 3, 3), so well that no mean misses more than rtol, or than rounding."""
    n = len(A)
    U, s, Vt = np.linalg.svd(A)
    log_norm, diagonal, second, missed = np.empty(n), np.empty((n, 3)), np.zeros((n, 9, 9)), np.empty(n)
    step, left = next(rule[:2] for rule in _RULES if rule[2] <= rtol)
    per = max(1, _MEMORY // (_FEATURES * 256))
    for i in range(0, n, per):
        part = slice(i, i + per)
        log_norm[part], diagonal[part], second[part], missed[part] = _in_frame(s[part], step, left)
    return carried(U, Vt, log_norm, diagonal[:, :, None] * np.eye(3), second, missed, np.ones(n))


# Many parameters: the axes, and all that is known in them.
def carried(
    U: np.ndarray,
    Vt: np.ndarray,
    log_norm: np.ndarray,
    mean: np.ndarray,
    second: np.ndarray,
    missed: np.ndarray,
    nodes: np.ndarray,
) -> Turned:
    """Moments of O = U M V^T from those of M, of r rows: mean (n, r, r) and second (n, r^2, r^2)."""
    n, r = U.shape[:2]
    turn = np.einsum("nak,nmi->naikm", U, Vt).reshape(n, r * r, r * r)
    second = turn @ second @ np.swapaxes(turn, 1, 2)
    return Turned(log_norm, U @ mean @ Vt, second.reshape(n, r, r, r, r), missed, nodes)


def angular(s: np.ndarray, step: float, left: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (n, N) of the logistic variable for singular values s (n, 3), an even number, and their steps (n,)."""
    wide, narrow = s[:, 0] + s[:, 1], s[:, 0] - s[:, 1]
    low = np.log(left / (1 + narrow + 2 * (s[:, 1] + s[:, 2])))
    high = -np.log(left / (1 + wide))
    nodes = 2 * int(np.ceil((high - low).max() / (2 * step)))
    own = (high - low) / nodes
    return low[:, None] + own[:, None] * np.arange(nodes), own


def _in_frame(s: np.ndarray, step: float, left: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The same for singular values s (n, 3), descending: E[M_ii] (n, 3) and E[M_km M_ln] (n, 9, 9)."""
    weight, top, features = _sampled(s, step, left)
    sums = weight @ features
    whole = sums.sum(axis=1)
    half = 2 * (weight[:, :, ::2] @ features[:, ::2]).sum(axis=1)
    # The error squares where the step is halved: less is stated, as half of the nodes may be off by less by chance.
    off = np.abs(half / half[:, :1] - whole / whole[:, :1]).max(axis=1) + np.abs(half[:, 0] / whole[:, 0] - 1)
    missed = np.minimum(2 * off**1.5, off) + 2 * left
    log_norm = np.log(whole[:, 0]) + top
    share = sums[:, :, 0] / whole[:, :1]
    diagonal, second = np.zeros((len(s), 3)), np.zeros((len(s), 9, 9))
    for k, sign in enumerate((1.0, -1.0)):
        there = share[:, k] > 0
        own = np.where(there[:, None], sums[:, k] / np.where(there, sums[:, k, 0], 1.0)[:, None], 0.0)
        mean, square = _squares(own)
        one, two = _of_rotations(mean, square, sign)
        diagonal += share[:, k, None] * one
        second += share[:, k, None, None] * two
    return log_norm, diagonal, second, missed


def _sampled(s: np.ndarray, step: float, left: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights of the nodes (n, 2, N), of rotations and of reflections, the exponent taken out of them (n,), and what is
    averaged at the nodes, (n, N, features): see :func:`_squares`."""
    wide, narrow = s[:, 0] + s[:, 1], s[:, 0] - s[:, 1]
    at, own = angular(s, step, left)
    # 1 - x and x, each to its own relative accuracy.
    with np.errstate(over="ignore"):
        y, x = 1 / (1 + np.exp(-at)), 1 / (1 + np.exp(at))
    first, second = x * wide[:, None], y * narrow[:, None]
    bessel = i0e(first), i0e(second)
    common = x * y * bessel[0] * bessel[1] * own[:, None]
    last = s[:, 2, None]
    weight = np.stack(
        [
            common * np.exp(-2 * y * (s[:, 1, None] + last)),
            common * np.exp(-2 * y * (s[:, 1, None] - last) - 2 * last),
        ],
        axis=1,
    )
    a, b = i1e(first) / bessel[0], i1e(second) / bessel[1]
    c, d = over(a, first), over(b, second)
    features = np.stack([np.ones_like(x), x, x * a, y, y * b, x * x, x * x * a, x * x * c, y * y, y * y * b, y * y * d,
                         x * y, x * y * a, x * y * b, x * y * a * b], axis=2)  # fmt: skip
    return weight, wide + s[:, 2], features


def over(ratio: np.ndarray, z: np.ndarray) -> np.ndarray:
    """I_1(z) / (z I_0(z)) from I_1(z) / I_0(z), z >= 0."""
    return np.asarray(np.where(z > _SMALL, ratio / np.where(z > _SMALL, z, 1.0), 0.5))


def _squares(own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[q_i^2] (n, 4) and E[q_i^2 q_j^2] (n, 4, 4) of the quaternion, from the averages of the features.

    Of a pair of sum x, q_0^2 = x (1 + cos) / 2 and q_3^2 = x (1 - cos) / 2, where cos has the mean a = I_1 / I_0 and
    its square the mean 1 - a / z.
    """
    _, x, xa, y, yb, xx, xxa, xxc, yy, yyb, yyd, xy, xya, xyb, xyab = own.T
    mean = np.stack([x + xa, y + yb, y - yb, x - xa], axis=1) / 2
    square = np.empty((len(own), 4, 4))
    square[:, 0, 0], square[:, 3, 3] = 2 * xx + 2 * xxa - xxc, 2 * xx - 2 * xxa - xxc
    square[:, 1, 1], square[:, 2, 2] = 2 * yy + 2 * yyb - yyd, 2 * yy - 2 * yyb - yyd
    square[:, 0, 3] = square[:, 3, 0] = xxc
    square[:, 1, 2] = square[:, 2, 1] = yyd
    for i, up in ((0, 1.0), (3, -1.0)):
        for j, right in ((1, 1.0), (2, -1.0)):
            square[:, i, j] = square[:, j, i] = xy + up * xya + right * xyb + up * right * xyab
    return mean, square / 4


def _of_rotations(mean: np.ndarray, square: np.ndarray, sign: float) -> tuple[np.ndarray, np.ndarray]:
    """E[M_ii] (n, 3) and E[M_km M_ln] (n, 9, 9) of M = R diag(1, 1, sign), from moments of the quaternion of R.

    R_ii = q_0^2 + q_i^2 - q_j^2 - q_k^2, and R_ij = 2 (q_i q_j -+ q_0 q_k): of products of two entries only those of
    R_ii R_jj, R_ij^2 and R_ij R_ji have a mean.
    """
    signs = np.array([[1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]], dtype=float)
    last = np.array([1.0, 1.0, sign])
    first = mean @ signs.T * last
    both = signs @ square @ signs.T * np.outer(last, last)
    second = np.zeros((len(mean), 3, 3, 3, 3))
    for i in range(3):
        for j in range(3):
            second[:, i, i, j, j] = both[:, i, j]
            if i != j:
                k = 3 - i - j
                here, there = square[:, i + 1, j + 1], square[:, 0, k + 1]
                second[:, i, j, i, j] = 4 * (here + there)
                second[:, i, j, j, i] = 4 * (here - there) * last[i] * last[j]
    return first, second.reshape(len(mean), 9, 9)
