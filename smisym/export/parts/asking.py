"""What is asked of the module: moments, the denoiser and its derivative."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from smisym.export.parts.finite_sum import integral
from smisym.export.parts.given import (
    FIELDS,
    MAX_NODES,
    ORDER,
    OUTPUT,
    RTOL,
    SHEETS,
    TOKENS,
    Array,
)
from smisym.export.parts.on_level_set import check_outputs, log_constant, read
from smisym.export.parts.posterior import DIM, ENTRIES, FLOATS, LINE, Average, Batch

BLOCK = 256
# Maxima are looked for around omega: not answered for where y is as many deviations from there, or where rows of Z are
# known from one another, before y, up to such a share of their variance.
FAR, TOGETHER = 20.0, 1e-4


class Moments(NamedTuple):
    """Posterior moments of the fields of S samples.

    log_partition (S,): log p(y | omega, V), up to a constant that depends on y alone.  mean (S, P, T): E[Z | y].
    g (S, P, T): V^{-1} (mean - omega).  error (S,): of the mean, in the norm of V^{-1}; compare it with ``rtol``.
    It is that of the integral: digits that y has lost before, as of nearly equal entries, are not told.
    inf where maxima may be missed: y twenty deviations and more from omega, or rows that V hardly tells apart; and,
    with a mean of NaN, where no fields were met that give y.
    nodes (S,): evaluations.  cov, dg (S, P, T, P, T): covariance and d g / d omega, where asked for, else None.
    """

    log_partition: Array
    mean: Array
    g: Array
    error: Array
    nodes: Array
    cov: Array | None
    dg: Array | None


# Many parameters: settings, all by keyword.
def moments(
    y: Array,
    omega: Array,
    V: Array,
    *,
    cov: bool = False,
    rtol: float = RTOL,
    seed: int = 0,
    max_nodes: int = MAX_NODES,
    log_ratios: bool = False,
) -> Moments:
    """Posterior moments given outputs y (S, ...), means omega (S, P, T) and covariances V (P, P) or (S, P, P).

    log_ratios: y holds log y_ij - log y_ii in place of y_ij, which keeps the digits that a softmax loses.
    rtol: error aimed at.  max_nodes: evaluations a sample that this may take.  The same seed gives the same bits.
    Raises ValueError for wrong shapes, numbers that are not real and finite, a V that is not symmetric and positive
    definite, and outputs that the network cannot give.
    """
    if any(np.iscomplexobj(given) for given in (y, omega, V)):
        raise ValueError("y, omega and V must be real")
    y, omega, V = (np.asarray(given, dtype=float) for given in (y, omega, V))
    S = len(omega) if omega.ndim else 0
    allowed = {"omega": (S, FIELDS, TOKENS), "y": (S, *OUTPUT), "V": (S, FIELDS, FIELDS)[V.ndim != 3 :]}
    for (name, shape), values in zip(allowed.items(), (omega, y, V), strict=True):
        if values.shape != shape:
            raise ValueError(f"shape of {name}: {values.shape}; allowed: {shape}")
    if not all(np.isfinite(given).all() for given in (omega, V)) or np.isnan(y).any() or not rtol > 0 or not S:
        raise ValueError("y, omega and V must be finite and not empty, and rtol positive")
    if not np.allclose(V, np.swapaxes(V, -1, -2), rtol=1e-9, atol=0.0):
        raise ValueError("V must be symmetric")
    rows = list(ORDER)
    try:
        L = np.linalg.cholesky(np.broadcast_to(V, (S, FIELDS, FIELDS))[:, rows][:, :, rows])
    except np.linalg.LinAlgError:
        raise ValueError("V must be positive definite: nothing is added to it") from None
    batch = Batch(read(y, log_ratios), omega[:, rows], L, np.linalg.inv(L))
    check_outputs(batch, y, log_ratios)
    size = max(1, min(BLOCK, 2**23 // (FLOATS * (97 + LINE.shape[1] + 51 * SHEETS * (1 + 2 * DIM)))))
    parts = []
    for first in range(0, S, size):
        part = Batch(*(array[first : first + size] for array in batch))
        parts.append(of_fields(part, integral(part, rtol, cov, seed, max_nodes)))
    columns = [None if column[0] is None else np.concatenate(column) for column in zip(*parts, strict=True)]
    return Moments(*columns)  # type: ignore[arg-type]


def of_fields(batch: Batch, found: Average) -> Moments:
    """Moments of Z = omega + L zeta, rows in their own order, from those of zeta."""
    S, back = len(batch.omega), np.argsort(ORDER)
    zeta = found.mean.reshape(S, FIELDS, TOKENS)
    mean, g = batch.omega + batch.L @ zeta, batch.inverse.transpose(0, 2, 1) @ zeta
    cov = dg = None
    if found.cov is not None:
        spread = found.cov.reshape(S, FIELDS, TOKENS, FIELDS, TOKENS)
        less = (found.cov - np.eye(ENTRIES)).reshape(spread.shape)
        cov = np.einsum("spi,sitju,sqj->sptqu", batch.L, spread, batch.L, optimize=True)
        dg = np.einsum("sip,sitju,sjq->sptqu", batch.inverse, less, batch.inverse, optimize=True)
        cov, dg = (one[:, back][:, :, :, back] for one in (cov, dg))
    log_partition = found.log_norm + log_constant(batch)
    own = (np.diagonal(batch.L, axis1=1, axis2=2) ** 2 / (batch.L**2).sum(axis=2)).min(axis=1)
    missed = (np.einsum("spt,spt->s", zeta, zeta) > FAR**2) | (own < TOGETHER)
    error = np.where(missed, np.inf, found.error) if DIM else found.error
    return Moments(log_partition, mean[:, back], g[:, back], error, found.nodes, cov, dg)


def g_out(y: Array, omega: Array, V: Array, **settings: object) -> Array:
    """The denoiser V^{-1} (E[Z | y] - omega), (S, P, T); settings as of :func:`moments`."""
    return moments(y, omega, V, **settings).g  # type: ignore[arg-type]


def dg_out(y: Array, omega: Array, V: Array, **settings: object) -> Array:
    """d g_out[p, t] / d omega[q, s], (S, P, T, P, T), from the posterior covariance."""
    return np.asarray(moments(y, omega, V, cov=True, **settings).dg)  # type: ignore[arg-type]
