"""Oracle of first thresholds: conditional moments by sorting Monte Carlo draws into bins of equal count.

Nothing here imports the package under test: no chart, no posterior, no integrator.  Outputs with one or two
coordinates are sorted into many small bins, and

    F(M) = E_y sum_ts G_ts M G_ts^T,     G_ts = E[z_t z_s^T | y] - delta_ts I

is estimated from products of the means of two halves of each bin, so that their noise averages out; what is left is
the width of the bins, seen by doubling it twice: the changes shrink by a factor, and what is still to come is the rest
of a geometric series.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Draw = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""(n, P, T) fields -> (n, 1) or (n, 2) coordinates of the output."""


@dataclass(frozen=True)
class Binned:
    """Largest rate in the limit of narrow bins, its standard error over the replicates, and what the limit may miss."""

    rate: float
    error: float
    width: float

    @property
    def alpha(self) -> float:
        return 1 / self.rate


def binned_rate(
    draw: Draw, fields: int, tokens: int, *, log_n: int = 20, each: int = 16, replicates: int = 8
) -> Binned:
    """Largest eigenvalue of F from ``replicates`` times 2^log_n draws in bins of ``each``."""
    fine, coarse, coarsest = [], [], []
    for seed in range(replicates):
        rng = np.random.default_rng(seed)
        Z = rng.standard_normal((2**log_n, fields, tokens))
        y = draw(Z, rng)
        fine.append(_operator(Z, y, each))
        coarse.append(_operator(Z, y, 4 * each))
        coarsest.append(_operator(Z, y, 16 * each))
    rates = np.array([_largest(F, fields) for F in fine])
    whole = _largest(np.mean(fine, axis=0), fields)
    error = float(rates.std(ddof=1) / np.sqrt(replicates))
    once, twice = (_largest(np.mean(F, axis=0), fields) for F in (coarse, coarsest))
    change = abs(whole - once)
    # Between half an order of convergence in the width and two.
    shrinks = np.clip(abs(once - twice) / max(change, 1e-300), np.sqrt(2), 4.0)
    rest = float(change / (shrinks - 1))
    # Rates known in closed form are met to a quarter of what is extrapolated (two layers, rank two, untied).
    return Binned(whole + rest, error, 0.5 * rest)


def _operator(Z: np.ndarray, y: np.ndarray, each: int) -> np.ndarray:
    """F as an array (P, P, P, P), indices p, a, q, b of M_ab -> F_pq."""
    n, P, T = Z.shape
    if y.shape[1] == 1:
        order = np.argsort(y[:, 0], kind="stable")
    else:
        # Strips of equal count in the first coordinate, cells of equal count in the second.
        strips = 2 ** (int(np.log2(n // each)) // 2)
        first = np.argsort(y[:, 0], kind="stable").reshape(strips, -1)
        second = np.argsort(y[first, 1], axis=1, kind="stable")
        order = np.take_along_axis(first, second, axis=1).ravel()
    z = Z.reshape(n, P * T)[order].reshape(-1, each, P * T)
    halves = []
    for part in (z[:, 0::2], z[:, 1::2]):
        second_moment = np.einsum("bni,bnj->bij", part, part, optimize=True) / part.shape[1]
        halves.append((second_moment - np.eye(P * T)).reshape(-1, P, T, P, T))
    one, two = halves
    F = np.einsum("nptas,nqtbs->paqb", one, two, optimize=True) / len(one)
    return np.asarray(0.5 * (F + F.transpose(2, 3, 0, 1)))


def _largest(F: np.ndarray, P: int) -> float:
    """Largest eigenvalue on symmetric matrices."""
    basis = []
    for i in range(P):
        for j in range(i, P):
            B = np.zeros((P, P))
            B[i, j] = B[j, i] = 1.0 if i == j else np.sqrt(0.5)
            basis.append(B)
    table = [[float(np.einsum("pq,paqb,ab->", A, F, B)) for B in basis] for A in basis]
    return float(np.linalg.eigvals(np.array(table)).real.max())
