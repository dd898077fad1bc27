"""Moments of orthogonal matrices of two rows under exp(tr(A^T O)), against Haar's measure, in closed form.

With the singular values s of A in place of A, A = U s V^T, and O = U M V^T, a rotation M by an angle has
tr(s M) = (s_1 + s_2) cos, and a reflection, a rotation times diag(1, -1), (s_1 - s_2) cos:

    int dM exp(tr(s M)) = I_0(s_1 + s_2) + I_0(s_1 - s_2),

and cos has the mean I_1 / I_0.
"""

from __future__ import annotations

import numpy as np
from scipy.special import i0e, i1e

from smisym.integrate.rotations import Turned, carried, over


def turned_two(A: np.ndarray, rtol: float) -> Turned:
    """Moments under exp(tr(A^T O)), A (n, 2, 2), to rounding, whatever is asked."""
    n = len(A)
    U, s, Vt = np.linalg.svd(A)
    log_norm, mean, second = np.empty((2, n)), np.zeros((2, n, 2, 2)), np.zeros((2, n, 2, 2, 2, 2))
    for k, sign in enumerate((1.0, -1.0)):
        size = s[:, 0] + sign * s[:, 1]
        zero = i0e(size)
        log_norm[k] = np.log(zero) + size
        cosine = i1e(size) / zero
        sine_square = over(cosine, size)
        mean[k, :, 0, 0], mean[k, :, 1, 1] = cosine, sign * cosine
        for i, j in ((0, 1), (1, 0)):
            second[k, :, i, i, i, i], second[k, :, i, i, j, j] = 1 - sine_square, sign * (1 - sine_square)
            second[k, :, i, j, i, j], second[k, :, i, j, j, i] = sine_square, -sign * sine_square
    top = log_norm.max(axis=0)
    share = np.exp(log_norm - top)
    whole = share.sum(axis=0)
    share /= whole
    mean, second = np.einsum("kn,knai->nai", share, mean), np.einsum("kn,knaibj->naibj", share, second)
    return carried(U, Vt, top + np.log(whole), mean, second.reshape(n, 4, 4), np.zeros(n), np.ones(n))
