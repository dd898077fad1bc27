"""The integrand of an output with noise: all fields."""

from __future__ import annotations

import numpy as np

from smisym.export.parts.given import FIELDS, NOISE, TOKENS, Array
from smisym.export.parts.network_softmax import outputs
from smisym.export.parts.posterior import ENTRIES, Batch, Values


def read(y: Array, log_ratios: bool) -> Array:
    """Entries (S, M) of outputs."""
    if log_ratios:
        raise ValueError("log_ratios: noise leaves none")
    return y.reshape(len(y), -1)


def check_outputs(batch: Batch, y: Array, log_ratios: bool) -> None:
    """Under noise every output is possible."""


def evaluate(batch: Batch, s: Array, x: Array) -> Values:
    """Densities of samples s (n,) at the whitened fields x (P T, n, C)."""
    shape = x.shape[1:]
    rows = x.reshape(FIELDS, TOKENS, *shape)
    fields = batch.omega[s].transpose(1, 2, 0)[..., None] + np.zeros(shape)
    for p in range(FIELDS):
        for q in range(p + 1):
            fields[p] += batch.L[s, p, q][:, None] * rows[q]
    with np.errstate(all="ignore"):
        y, _ = outputs(list(fields.reshape(ENTRIES, *shape)))
        misfit = (y.reshape(-1, *shape) - batch.seen[s].T[:, :, None]) / np.sqrt(NOISE)
        log = -0.5 * (x * x).sum(axis=0) - 0.5 * (misfit * misfit).sum(axis=0)
    residual = np.nan_to_num(np.concatenate([x, misfit]))
    return Values(np.where(np.isfinite(log), log, -np.inf)[None], x[None], residual[None])


def log_constant(batch: Batch) -> Array:
    """What the log of the integral lacks to log p(y | omega, V), (S,)."""
    noise = -0.5 * batch.seen.shape[1] * np.log(2 * np.pi * NOISE)
    return np.full(len(batch.seen), noise - 0.5 * ENTRIES * np.log(2 * np.pi))
