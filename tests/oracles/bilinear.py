"""Oracle of the first threshold of one untied head of rank two on three tokens, softmax: all of it by quadrature.

Nothing here imports the package under test.  The output shows E = q k^T, q (3, 2) the queries and k (2, 2) the keys in
two orthonormal contrasts of the tokens, all standard normal; what gives E is q M and k M^{-T} of any M in GL(2), with
the measure |det M|^{-1} dM.  Nothing tells rotations of both, and S = M M^T has at E = U diag(d) W^T, from q = U
diag(d)^{1/2} and k = W diag(d)^{1/2}, the law

    |det S|^{-1} exp(-tr diag(d) (S + S^{-1}) / 2) dS,

so that the means of q q^T and k k^T are U diag(d s) U^T and W diag(d i) W^T with s_i = E S_ii, i_i = E (S^{-1})_ii.  S
has eigenvalues exp(m + t) and exp(m - t), t > 0; over its angle it integrates to Bessel functions, and m and -m
together make what is even.  The law of the singular values d_1 > d_2 is (d_1 d_2)^{1/2} (d_1^2 - d_2^2) Z(d), Z the
norm of that of S.
"""

from __future__ import annotations

import numpy as np
from scipy.special import i0e, i1e

# The largest singular value, and by how many natural logarithms a density has fallen where it is cut off.
_LARGEST, _FALLEN = 40.0, 50.0


def rates(side: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """(rates (2, 2) of queries and keys, means (2,) of the squared lengths of queries and keys, 6 and 4).

    1 / alpha is the largest eigenvalue of the rates: G of queries is (U diag(d s) U^T / 2 - I), of keys likewise,
    and E / 2 between them, each times the identity of two rows.
    """
    x, weight = np.polynomial.legendre.leggauss(side)
    x, weight = 0.5 * (x + 1), 0.5 * weight
    total = np.zeros(6)
    for one, share in zip(x, weight, strict=True):
        # Squares of nodes: the law is that of a root at zero.
        d = _LARGEST * one**2 * np.stack([np.ones(side), x**2], axis=1)
        log_norm, *s = inner(d, side)
        law = np.exp(log_norm) * np.sqrt(d.prod(axis=1)) * (d[:, 0] ** 2 - d[:, 1] ** 2)
        law *= share * weight * (2 * _LARGEST * one) * (2 * x * d[:, 0])
        queries, keys = (((0.5 * d * one - 1) ** 2).sum(axis=1) for one in s)
        lengths = [(d * one).sum(axis=1) for one in s]
        # The queries of one more token than there are contrasts are orthogonal to all that is seen: G = -1 there.
        kept = np.stack([np.ones(side), queries + 1, (d**2).sum(axis=1) / 4, keys, *lengths])
        total += kept @ law
    mean = total[1:] / total[0]
    return np.array([[mean[0], mean[1]], [mean[1], mean[2]]]), mean[3:]


def inner(d: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(log Z (n,) up to a constant, E S_ii (n, 2), E (S^{-1})_ii (n, 2)) at singular values d (n, 2)."""
    x, weight = np.polynomial.legendre.leggauss(side)
    x, weight = 0.5 * (x + 1), 0.5 * weight
    reach = np.arccosh(1 + 0.5 * _FALLEN / d[:, 1])
    m, t = (reach[:, None] * x)[:, :, None], (reach[:, None] * x)[:, None, :]
    sizes, gap = d.sum(axis=1)[:, None, None], (d[:, 0] - d[:, 1])[:, None, None]
    z = gap * np.sinh(m) * np.sinh(t)
    log = z - sizes * np.cosh(m) * np.cosh(t)
    top = log.max(axis=(1, 2))
    share = np.exp(log - top[:, None, None]) * np.sinh(t) * np.outer(weight, weight)
    even, odd = i0e(z), i1e(z)
    norm = (share * np.cosh(m) * even).sum(axis=(1, 2))
    both = (share * np.cosh(2 * m) * np.cosh(t) * even).sum(axis=(1, 2))
    apart = (share * np.sinh(2 * m) * np.sinh(t) * odd).sum(axis=(1, 2))
    inverse = (share * np.cosh(t) * even).sum(axis=(1, 2))
    means = np.stack([both - apart, both + apart, inverse, inverse], axis=1) / norm[:, None]
    return np.log(norm) + top + 2 * np.log(reach), means[:, :2], means[:, 2:]
