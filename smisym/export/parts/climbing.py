"""Maxima of the densities: where integrators begin."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from smisym.export.parts.given import ANALYTIC, SHEETS, Array
from smisym.export.parts.on_level_set import evaluate
from smisym.export.parts.posterior import DIM, Batch, cloud

# Starts on every sheet: of the coarse points the best and the first; steps of the climb, and of its differences.
BEST, FIRST_ONES, CLIMBS, STEP = 3, 48, 40, 1e-5


class Maxima(NamedTuple):
    """Points x (N, d) of samples s (N,) on sheets (N,), log of the density (N,), matrix of its Gaussian (N, d, d)."""

    s: Array
    sheet: Array
    x: Array
    log: Array
    precision: Array


def maxima(batch: Batch, seed: int) -> Maxima:
    """From a coarse start, the best of some random points and the origin, by damped Gauss-Newton on every sheet."""
    S, coarse = len(batch.omega), cloud(seed)
    log = evaluate(batch, np.arange(S), coarse[:, None] + np.zeros((1, S, 1))).log
    chosen = np.argsort(-log, axis=2, kind="stable")[:, :, :BEST]
    others = np.broadcast_to(np.arange(FIRST_ONES), (SHEETS, S, FIRST_ONES))
    chosen = np.concatenate([chosen, others], axis=2)
    sheet, s, _ = (index.ravel() for index in np.indices(chosen.shape))
    x = coarse[:, chosen.ravel()].T
    value, slope, precision = around(batch, s, sheet, x)
    damping, live = np.full(len(s), 1e-2), np.isfinite(value)
    for _ in range(CLIMBS):
        k = np.flatnonzero(live)
        if not k.size:
            break
        diagonal = np.einsum("nii->ni", precision[k])
        damped = precision[k] + np.eye(DIM) * (damping[k, None] * (1 + diagonal))[:, None]
        step = np.linalg.solve(damped, slope[k][..., None])[..., 0]
        step /= np.maximum(1.0, np.sqrt((step**2).sum(axis=1, keepdims=True)) / 3)
        new = around(batch, s[k], sheet[k], x[k] + step)
        up = new[0] > value[k]
        x[k[up]] += step[up]
        value[k[up]], slope[k[up]], precision[k[up]] = (values[up] for values in new)
        damping[k] = np.clip(np.where(up, damping[k] / 5, damping[k] * 5), 1e-9, 1e9)
        widths = np.einsum("ni,nij,nj->n", step, precision[k], step)
        there = (widths < 1e-2) & (np.abs(step).max(axis=1) < 0.1)
        live[k] = ~(there & (up | (damping[k] > 1e3)))
    there = np.isfinite(value)
    return Maxima(s[there], sheet[there], x[there], value[there], precision[there])


def around(batch: Batch, s: Array, sheet: Array, x: Array) -> tuple[Array, Array, Array]:
    """Log of the density of one sheet each at x (N, d), its slope, and the matrix of its Gauss-Newton model."""
    moves = STEP * np.concatenate([np.zeros((1, DIM)), np.eye(DIM), -np.eye(DIM)])
    values = evaluate(batch, s, (x[:, None] + moves).transpose(2, 0, 1))
    take = np.arange(len(s))
    residual, log = values.residual[sheet, :, take], values.log[sheet, take]
    with np.errstate(invalid="ignore"):
        slope = (log[:, 1 : DIM + 1] - log[:, DIM + 1 :]) / (2 * STEP)
    jacobian = (residual[..., 1 : DIM + 1] - residual[..., DIM + 1 :]) / (2 * STEP)
    precision = jacobian.transpose(0, 2, 1) @ jacobian
    bad = ~np.isfinite(slope).all(axis=1)
    return log[:, 0], np.where(bad[:, None], 0.0, slope), np.where(bad[:, None, None], np.eye(DIM), precision)


def narrowness(batch: Batch, tops: Maxima) -> Array:
    """Inverse squares (N, d) of widths at maxima along each axis, no wider than to where a sheet ends."""
    width = 1 / np.sqrt(np.maximum(np.einsum("nii->ni", tops.precision), 1.0))
    for _ in range(0 if ANALYTIC else 30):
        moves = np.concatenate([np.eye(DIM), -np.eye(DIM)]) * width[:, None]
        log = evaluate(batch, tops.s, (tops.x[:, None] + moves).transpose(2, 0, 1)).log
        ended = ~np.isfinite(log[tops.sheet, np.arange(len(moves))]).reshape(-1, 2, DIM).all(axis=1)
        if not ended.any():
            break
        width = np.where(ended, width / 2, width)
    return np.asarray(1 / width**2)
