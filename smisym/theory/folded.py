"""The derivative of the overlap map with less noise: identities of Nishimori beside it, as control variates.

What (dg) M (dg)^T fluctuates by it shares, where nothing is learned yet, with the trace of the posterior's second
moments less the prior's, E[dg], of mean zero there.  Where something is learned the noise of the coefficients is more
than what such controls gain.  Measured where a second class begins to grow, at Q = (0, 0.9736) of two layers on two
tokens, as the factor by which the variance of its rate over 16 scrambles falls: 2.6 at 512 points each, 1.8 at 4096.
The differences between E[g g^T] and E[g g*^T], products of dg with the true fields' second moments, and polynomials of
the fields were tried beside it: they gain nothing more (Sobol points integrate them well by themselves).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# Parts of the points of one scramble that take their control coefficients from each other.
FOLDS = 4
# Points of one scramble for each control, and controls at most: each costs as much as the slope itself.
_EACH, _MOST = 32, 24
# Share of the largest variance of a control below which it is a combination of the others; variance, beside that of the
# loudest, below which a control is rounding.
_SAME, _SILENT = 1e-9, 1e-20
# Standard deviation, beside the size of dg, below which a control is constant; and error of its mean, beside its
# standard deviation, from which on it is not known to be zero.
QUIET = 1e-2


def folds(n: int) -> np.ndarray:
    """(n,): the fold of each point; parts of Sobol points, in their order, are balanced themselves."""
    return np.arange(n) * min(FOLDS, n) // n


@dataclass(frozen=True)
class Slope:
    """value (P, P, P, P): the mean of dg_pas dg_qbs over points, less what it shares with controls.  raw: the mean
    itself.  shares (c, P, P, P, P): what was taken for each unit of a control's mean."""

    value: np.ndarray
    raw: np.ndarray
    shares: np.ndarray


def slope(dg: np.ndarray, controls: np.ndarray, rows: np.ndarray | None = None, unsure: float = 0.0) -> Slope:
    """The mean of dg_pas dg_qbs over points, less what it shares with controls of mean zero.

    dg (n, P, T, P, T); controls (n, c); rows (P,): those among which this is done, None for all.  unsure:
    standard error of the controls' means that no number of points takes away.  Each fold of the
    points takes its coefficients from the others: fitted to the points that they are applied to, they would bias the
    mean.
    """
    n, P = dg.shape[:2]
    flat = dg.transpose(0, 1, 3, 2, 4).reshape(n, P * P, -1)
    among = np.ones(P) if rows is None else rows.astype(float)
    pair = np.outer(among, among).ravel()
    size = math.sqrt(float((flat[:, pair > 0] ** 2).sum()) / max(n, 1))
    loud = _heard(controls, max(QUIET * size, unsure / QUIET))
    heard = controls[:, loud]
    fold = folds(n)
    parts = [_sums(flat[fold == f], heard[fold == f]) for f in range(int(fold[-1]) + 1)]
    whole = [sum(part[i] for part in parts) for i in range(len(parts[0]))]
    total, shares = np.array(whole[1]), np.zeros((controls.shape[1], P * P, P * P))
    if len(loud):
        for part in parts:
            others = [everything - own for everything, own in zip(whole, part, strict=True)]
            taken = _coefficients(*others) * np.outer(pair, pair)
            total -= np.einsum("c,cij->ij", part[2], taken)
            shares[loud] += part[0] / n * taken
    shape = (P,) * 4
    return Slope((total / n).reshape(shape), (whole[1] / n).reshape(shape), shares.reshape(-1, *shape))


def _heard(controls: np.ndarray, least: float) -> np.ndarray:
    """Which of the controls (n, c) vary, as many of the first as there are points for.

    One that varies by less than ``least`` is constant: what errors of the integrals leave of its mean is then more than
    what it varies by, and would be taken off as if it were noise.
    """
    spread = controls.var(axis=0)
    loud = np.flatnonzero((spread > _SILENT * spread.max(initial=0.0)) & (spread > least**2))
    return loud[: min(len(controls) // _EACH, _MOST)]


def _sums(flat: np.ndarray, controls: np.ndarray) -> tuple[np.ndarray, ...]:
    """Over points: their number, products (a, a) of flat (m, a, s), controls (c,), their products, and (c, a, a)."""
    rows = np.ascontiguousarray(flat.transpose(1, 0, 2)).reshape(flat.shape[1], -1)
    each = np.repeat(controls.T, flat.shape[2], axis=1)
    mixed = np.array([(rows * weight) @ rows.T for weight in each]).reshape(len(each), len(rows), len(rows))
    return np.array(float(len(flat))), rows @ rows.T, controls.sum(axis=0), controls.T @ controls, mixed


def _coefficients(
    n: np.ndarray, sums: np.ndarray, first: np.ndarray, second: np.ndarray, mixed: np.ndarray
) -> np.ndarray:
    """(c, a, a): of the controls, from sums over points."""
    spread = second / n - np.outer(first, first) / n**2
    shared = mixed / n - np.multiply.outer(first, sums) / n**2
    size = np.sqrt(np.maximum(np.diag(spread), 0.0))
    size = np.where(size > 0, size, 1.0)
    solved = np.linalg.pinv(spread / np.outer(size, size), rcond=_SAME, hermitian=True)
    return np.asarray(np.einsum("cd,dij->cij", solved, shared / size[:, None, None]) / size[:, None, None])
