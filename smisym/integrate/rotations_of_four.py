"""Moments of orthogonal matrices of four rows under exp(tr(A^T O)), against Haar's measure.

With the singular values s of A in place of A, A = U s V^T, and O = U M V^T, a rotation M is a pair of unit quaternions,
M x = p x q^*, and tr(s M) = sum_k m_k p_k q_k.  Of the squares of p the sum of the first two, t, is uniform on [0, 1],
and so is t' of q; of the four angles Bessel's functions integrate differences and sums:

    int dM exp(tr(s M)) = int dt dt' I_0(X (s_1 + s_2)) I_0(X (s_3 + s_4)) I_0(Y (s_1 - s_2)) I_0(Y (s_3 - s_4))

with X^2 = t t' and Y^2 = (1 - t)(1 - t').  The integrand knows X and Y alone, of which X + Y = R is at most one.  With
X = R z, Y = R (1 - z), R = 1 / sqrt(1 + 4 z (1 - z) sinh(h)^2) for z in [0, 1] and h >= 0

    dt dt' = 8 z (1 - z) R^4 dz dh,

without a singularity, even in h, and smooth in the logarithms of z and 1 - z, so that trapezoid rules in h and the
logit of z converge exponentially, however large s is.  Where s is moderate the integrand, which is entire in
t and t', needs fewer nodes of Gauss's rules for these, some times the root of the sum of s in each.

Moments to second order of M are those of products of four entries of p and q, by the same integral.  Reflections are
rotations times diag(1, 1, 1, -1): the same with -s_4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import i0e, i1e

from smisym.integrate.rotations import Turned, carried, over


@dataclass(frozen=True)
class _Rule:
    """What is asked of sums over nodes.

    step: of the trapezoid rules.  left: the share of the mass left out at an end.  narrow: steps in h in standard
    deviations of the Gaussian that the integrand is where R is nearly known.  root: nodes of Gauss's rule for t, over
    the root of the sum of s.  usual: what is usually missed so.
    """

    step: float
    left: float
    narrow: float
    root: float
    usual: float


# The first that serves is begun with, and where it states more than was asked for the next is taken.
_RULES = (_Rule(0.6, 1e-8, 1.2, 1.4, 2e-5), _Rule(0.4, 1e-12, 0.9, 1.8, 1e-9), _Rule(0.3, 1e-16, 0.7, 2.2, 0.0))
# Sums of s up to which Gauss's rules are taken, and by how many nodes two of them differ that are held together.
_MODERATE, _FEWER = 300.0, 2
# What is left out at all ends together, in shares of one.
_TAILS = 1e3
# Numbers held at once in the largest array, and samples.
_MEMORY, _TOGETHER = 500_000, 64
# Singular values below which, beside the largest one and one, the last one is none: reflections are then as rotations.
# How far below the largest exponents may be.
_NONE, _DEPTH = 1e-13, 40.0
_LAST = np.array([1.0, 1.0, 1.0, -1.0])


def turned_four(A: np.ndarray, rtol: float) -> Turned:
    """Moments under exp(tr(A^T O)), A (n, 4, 4), so well that no mean misses more than rtol, or than rounding."""
    n = len(A)
    U, s, Vt = np.linalg.svd(A)
    log_norm, missed, nodes = np.empty((2, n)), np.empty((2, n)), np.empty((2, n), dtype=int)
    first, second = np.empty((2, n, 4)), np.empty((2, n, 4, 4, 4, 4))
    found = log_norm, first, second, missed, nodes
    # Where the last singular value is none, reflections are as many and as likely as rotations.
    same = s[:, 3] <= _NONE * (1 + s[:, 0])
    # And where it is large they have no mass: exp(-2 s_4) beside it, and powers of what the others exceed it by.
    log_norm[1], first[1], second[1], missed[1], nodes[1] = -np.inf, 0.0, 0.0, 0.0, 0
    several = ~same & (2 * s[:, 3] - 3 * np.log1p(s[:, 0]) < _DEPTH)
    for k, which in ((0, np.arange(n)), (1, np.flatnonzero(several))):
        for into, own in zip(found, _well_enough(s[which] * _LAST**k, rtol), strict=True):
            into[k, which] = own
    for into in found:
        into[1, same] = into[0, same]
    nodes[1, same] = 0
    first[1] *= _LAST
    second[1] *= _LAST[:, None, None] * _LAST
    top = log_norm.max(axis=0)
    share = np.exp(log_norm - top)
    whole = share.sum(axis=0)
    share /= whole
    diagonal = np.einsum("kn,kna->na", share, first)[:, :, None] * np.eye(4)
    both = np.einsum("kn,knabcd->nabcd", share, second).reshape(n, 16, 16)
    return carried(U, Vt, top + np.log(whole), diagonal, both, (share * missed).sum(axis=0), nodes.sum(axis=0))


def _well_enough(s: np.ndarray, rtol: float) -> tuple[np.ndarray, ...]:
    """What :func:`_rotations` finds by the first rule that states no more than rtol, or by the last one."""
    begin = next(k for k, rule in enumerate(_RULES) if rule.usual <= rtol)
    found = _rotations(s, _RULES[begin])
    for rule in _RULES[begin + 1 :]:
        more = np.flatnonzero(found[3] > rtol)
        if not more.size:
            break
        for into, own in zip(found, _rotations(s[more], rule), strict=True):
            into[more] = own
    return found


def _rotations(s: np.ndarray, rule: _Rule) -> tuple[np.ndarray, ...]:
    """Of rotations alone, s (n, 4) with the last one of any sign: log of the integral (n,), E[M_aa] (n, 4),
    E[M_ab M_cd] (n, 4, 4, 4, 4), what is missed (n,), and nodes (n,)."""
    n, size = len(s), s.sum(axis=1)
    sums, missed, nodes = np.empty((n, _FEATURES)), np.empty(n), np.empty(n, dtype=int)
    found = sums, missed, nodes
    moderate = size <= _MODERATE
    for which, how in ((np.flatnonzero(moderate), _by_gauss), (np.flatnonzero(~moderate), _by_trapezoids)):
        if which.size:
            for into, own in zip(found, how(s[which], rule), strict=True):
                into[which] = own
    means = sums / sums[:, :1]
    return np.log(sums[:, 0]) + size, means @ _FIRST, (means @ _SECOND).reshape(n, 4, 4, 4, 4), missed, nodes


def _off(fewer: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """By how much sums over fewer nodes miss (n,), of means and of the log of the integral."""
    means, others = sums / sums[:, :1], fewer / fewer[:, :1]
    return np.asarray(np.abs(others - means).max(axis=1) + np.abs(fewer[:, 0] / sums[:, 0] - 1))


def _by_gauss(s: np.ndarray, rule: _Rule) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of the features (n, features), what they miss (n,), and nodes (n,), by Gauss's rules for t and t'."""
    n = len(s)
    sums, missed, nodes = np.empty((n, _FEATURES)), np.empty(n), np.empty(n, dtype=int)
    # In steps of two, so that samples are taken together.
    side = 4 + 2 * np.ceil(0.5 * rule.root * np.sqrt(s.sum(axis=1))).astype(int)
    for N in np.unique(side):
        own = np.flatnonzero(side == N)
        per = max(1, int(_MEMORY // (_FEATURES * N * (N + 1) // 2)))
        for i in range(0, len(own), per):
            part = own[i : i + per]
            sums[part], fewer = _over_squares(s[part], int(N)), _over_squares(s[part], int(N) - _FEWER)
            missed[part] = _off(fewer, sums[part])
        nodes[own] = N * (N + 1) // 2 + (N - _FEWER) * (N - _FEWER + 1) // 2
    return sums, missed, nodes


def _over_squares(s: np.ndarray, side: int) -> np.ndarray:
    """Sums of the features (n, features) over pairs of nodes of t and t', of which neither comes first."""
    x, weight = np.polynomial.legendre.leggauss(side)
    i, j = np.triu_indices(side)
    both = 0.25 * weight[i] * weight[j] * np.where(i == j, 1.0, 2.0)
    X, Y = 0.5 * np.sqrt((1 + x[i]) * (1 + x[j])), 0.5 * np.sqrt((1 - x[i]) * (1 - x[j]))
    a, b, c, d = (s[:, k, None] for k in range(4))
    zero, features = _with_bessel(X, Y, s[:, :, None])
    # Less the largest exponent, at X = 1.
    exponent = (X - 1) * (a + b + c + d) + Y * (a - b + c - d)
    weight = both * np.exp(exponent) * zero
    return np.asarray((features @ weight[:, :, None])[:, :, 0])


def _by_trapezoids(s: np.ndarray, rule: _Rule) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same by trapezoid rules for h and the logit of z."""
    n, left = len(s), rule.left
    sums, fewer = np.empty((2, n, _FEATURES))
    low, high = _logits(s, left)
    count = 2 * np.ceil((high - low) / (2 * rule.step)).astype(int)
    logits = low[:, None] + np.linspace(0, 1, 17) * (high - low)[:, None]
    spread = 0.5 / np.sqrt(s.sum(axis=1)[:, None] * _product(logits))
    deep = (_farthest(s, logits, left) / np.minimum(rule.step, rule.narrow * spread)).max(axis=1)
    deep = 2 * np.ceil(0.5 * deep).astype(int)
    nodes = count * deep
    # Samples with about as many nodes together.
    order, i = np.argsort(nodes), 0
    while i < n:
        most = max(1, int(_MEMORY // (_FEATURES * nodes[order[min(i + _TOGETHER, n) - 1]])))
        part = order[i : i + min(most, _TOGETHER)]
        shape = int(count[part].max()), int(deep[part].max())
        sums[part], fewer[part] = _summed(s[part], low[part], high[part], shape, left)
        i += len(part)
    off = _off(fewer, sums)
    # The error more than squares where the steps are halved: it falls as exp(-pi^2 / step), and of a Gaussian faster.
    return sums, np.minimum(4 * off**2, off) + _TAILS * left, nodes


def _logits(s: np.ndarray, left: float) -> tuple[np.ndarray, np.ndarray]:
    """Between which logits of 1 - z the mass is (n,) each.

    The exponent at R and z is at least 2 (1 - z) (s_2 + s_4) below its maximum; towards either end the integrand falls
    with the square of what vanishes there.
    """
    fine = np.sqrt(left)
    low = np.log(fine / (1 + 2 * (s[:, 1] + s[:, 3]) + (s[:, 0] - s[:, 1]) + (s[:, 2] - s[:, 3])))
    high = -np.log(fine / (1 + s[:, 0] + s[:, 1] + s[:, 2] + s[:, 3]))
    most = _depth(s, left) / np.maximum(2 * (s[:, 1] + s[:, 3]), 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        cut = np.where(most < 1, np.log(most) - np.log1p(-np.minimum(most, 1)), np.inf)
    return low, np.minimum(high, cut)


def _depth(s: np.ndarray, left: float) -> np.ndarray:
    """(n,) how far below its maximum the exponent is where of the mass a share ``left`` is: Gaussians of the six planes
    of rotation have what is under the maximum."""
    size = np.abs(s)
    planes = [np.log1p(2 * np.pi * (size[:, i] + size[:, j])) for i in range(4) for j in range(i)]
    return np.asarray(-np.log(left) + 0.5 * np.sum(planes, axis=0))


def _product(logit: np.ndarray) -> np.ndarray:
    """z (1 - z)."""
    return np.asarray(1 / ((1 + np.exp(logit)) * (1 + np.exp(-logit))))


def _farthest(s: np.ndarray, logit: np.ndarray, left: float) -> np.ndarray:
    """Beyond which h nothing is left, at each logit (n, N) of 1 - z: R has an exponent, and a fourth power."""
    depth = _depth(s, left)
    most = np.minimum(depth / np.maximum(s.sum(axis=1), 1e-300), 1.0)[:, None]
    # 1 - R up to ``most``, or R^4 down to where the exponent would be.
    least = np.exp(-0.25 * depth)[:, None]
    R = np.maximum(1 - most, least)
    gap = np.where(R > least, most, 1 - R)
    return np.asarray(np.arcsinh(np.sqrt(gap * (1 + R) / (4 * _product(logit))) / R))


def _summed(
    s: np.ndarray, low: np.ndarray, high: np.ndarray, shape: tuple[int, int], left: float
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the features (n, features) over all nodes, and over every other one in both directions, times four."""
    n, (N, K) = len(s), shape
    own = (high - low) / N
    logit = low[:, None] + own[:, None] * np.arange(N)
    w, z = 1 / (1 + np.exp(-logit)), 1 / (1 + np.exp(logit))
    # Nodes at 0, h, 2 h ..., of which the first counts half: the integrand is even.
    along = _farthest(s, logit, left) / K
    h = along[:, :, None] * np.arange(K)
    wide = 4 * (z * w)[:, :, None] * np.sinh(h) ** 2
    square = 1 / (1 + wide)
    R = np.sqrt(square)
    # 1 - R to its own relative accuracy.
    gap = wide * square / (1 + R)
    X, Y = R * z[:, :, None], R * w[:, :, None]
    weight = 8 * ((z * w) ** 2 * along * own[:, None])[:, :, None] * square**2
    weight[:, :, 0] *= 0.5
    s = s[:, :, None, None]
    zero, features = _with_bessel(X, Y, s)
    weight *= np.exp(-gap * s.sum(axis=1) - 2 * Y * (s[:, 1] + s[:, 3])) * zero
    fewer = features[:, :, ::2, ::2].reshape(n, _FEATURES, -1) @ weight[:, ::2, ::2].reshape(n, -1, 1)
    return (features.reshape(n, _FEATURES, -1) @ weight.reshape(n, -1, 1))[:, :, 0], 4 * fewer[:, :, 0]


def _with_bessel(X: np.ndarray, Y: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The product of the four Bessel functions, scaled with their exponentials, at X and Y, and what is averaged there,
    features second; s (n, 4, ...)."""
    arguments = X * (s[:, 0] + s[:, 1]), X * (s[:, 2] + s[:, 3]), Y * (s[:, 0] - s[:, 1]), Y * (s[:, 2] - s[:, 3])
    zero = [i0e(one) for one in arguments]
    ratios = [i1e(one) / base for one, base in zip(arguments, zero, strict=True)]
    squares = [1 - over(ratio, one) for ratio, one in zip(ratios, arguments, strict=True)]
    return zero[0] * zero[1] * zero[2] * zero[3], _features(X, Y, ratios, squares)


# Of the cosines of the four angles means a, b (those of X) and c, d (of Y), and of their squares aa, bb, cc, dd; of
# products of two squares of p and q that are of different pairs the mean is a quarter of 1 - X^2 - Y^2, and more.
_NAMES = (
    "1", "Xa", "Xb", "Yc", "Yd", "XX", "XXaa", "XXbb", "XXab", "YY", "YYcc", "YYdd", "YYcd", "XYac", "XYad", "XYbc",
    "XYbd", "W", "Wab", "Wcd", "Wabcd",
)  # fmt: skip
_FEATURES = len(_NAMES)


def _features(X: np.ndarray, Y: np.ndarray, ratios: list[np.ndarray], squares: list[np.ndarray]) -> np.ndarray:
    """What is averaged at the nodes (n, features, N, K), in the order of ``_NAMES``."""
    (a, b, c, d), (aa, bb, cc, dd) = ratios, squares
    W, ab, cd = 1 - X * X - Y * Y, a * b, c * d
    values = (
        np.ones_like(X), X * a, X * b, Y * c, Y * d, X * X, X * X * aa, X * X * bb, X * X * ab, Y * Y, Y * Y * cc,
        Y * Y * dd, Y * Y * cd, X * Y * a * c, X * Y * a * d, X * Y * b * c, X * Y * b * d, W, W * ab, W * cd,
        W * ab * cd,
    )  # fmt: skip
    found = np.empty((len(a), _FEATURES, *a.shape[1:]))
    for k, value in enumerate(values):
        found[:, k] = value
    return found


def _products() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients of the features: of E[p_k q_k] (features, 4), E[p_k q_k p_l q_l] and E[p_k^2 q_l^2] (features, 4, 4)
    each.

    p_0 q_0 and p_1 q_1 are X (cos(difference) +- cos(sum)) / 2 of the angles of the first pair, p_2 q_2 and p_3 q_3
    the same of Y and the second one.
    """
    first, mixed, squares = np.zeros((_FEATURES, 4)), np.zeros((_FEATURES, 4, 4)), np.zeros((_FEATURES, 4, 4))

    def put(into: np.ndarray, at: tuple[int, ...], **terms: float) -> None:
        for name, value in terms.items():
            into[(_NAMES.index(name), *at)] += value

    for k, (size, left, right) in enumerate((("X", "a", "b"), ("X", "a", "b"), ("Y", "c", "d"), ("Y", "c", "d"))):
        sign = 1 - 2 * (k % 2)
        put(first, (k,), **{size + left: 0.5, size + right: 0.5 * sign})
        pair, two = k - k % 2, size * 2
        both = {two + 2 * left: 0.25, two + 2 * right: 0.25, two + left + right: 0.5 * sign}
        put(mixed, (k, k), **both)
        put(squares, (k, k), **both)
        other = pair + 1 - k % 2
        put(mixed, (k, other), **{two + 2 * left: 0.25, two + 2 * right: -0.25})
        put(squares, (k, other), **{two: 0.5, two + 2 * left: -0.25, two + 2 * right: -0.25})
    for k, up in ((0, 1.0), (1, -1.0)):
        for m, to_right in ((2, 1.0), (3, -1.0)):
            for i, j in ((k, m), (m, k)):
                put(mixed, (i, j), XYac=0.25, XYad=0.25 * to_right, XYbc=0.25 * up, XYbd=0.25 * up * to_right)
                put(squares, (i, j), W=0.125, Wab=0.125 * up, Wcd=0.125 * to_right, Wabcd=0.125 * up * to_right)
    return first, mixed, squares


def _of_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Features to E[M_aa] (features, 4) and to E[M_ab M_cd] (features, 256)."""
    unit = np.zeros((4, 4, 4))
    for k, b, a, sign in (
        (0, 0, 0, 1), (0, 1, 1, 1), (0, 2, 2, 1), (0, 3, 3, 1), (1, 0, 1, 1), (1, 1, 0, -1), (1, 2, 3, 1),
        (1, 3, 2, -1), (2, 0, 2, 1), (2, 1, 3, -1), (2, 2, 0, -1), (2, 3, 1, 1), (3, 0, 3, 1), (3, 1, 2, 1),
        (3, 2, 1, -1), (3, 3, 0, -1),
    ):  # fmt: skip
        unit[a, k, b] = sign
    # (p x q^*)_a = turn[a, b, k, l] p_k x_b q_l.
    turn = np.einsum("ajl,jkb,l->abkl", unit, unit, [1.0, -1.0, -1.0, -1.0])
    first, mixed, squares = _products()
    diagonal = np.einsum("aakk,fk->fa", turn, first)
    other = 1 - np.eye(4)
    second = np.einsum("abkk,cdmm,fkm->fabcd", turn, turn, mixed)
    second += np.einsum("abkl,cdkl,kl,fkl->fabcd", turn, turn, other, squares)
    second += np.einsum("abkl,cdlk,kl,fkl->fabcd", turn, turn, other, mixed)
    return diagonal, second.reshape(_FEATURES, 256)


_FIRST, _SECOND = _of_pairs()
