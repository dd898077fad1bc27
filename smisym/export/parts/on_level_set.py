"""The integrand of a noiseless output: the fields on its level set."""

from __future__ import annotations

from typing import Any

import numpy as np

from smisym.export.parts.given import (
    DIRECTIONS,
    FIELDS,
    FREE,
    LATENTS,
    ORDER,
    SHEETS,
    TOKENS,
    Array,
    coordinates,
    level_set,
)
from smisym.export.parts.network_softmax import observe
from smisym.export.parts.posterior import DIM, ENTRIES, Batch, Values, cloud
from smisym.export.parts.seen_softmax import seen_in


def read(y: Array, log_ratios: bool) -> Array:
    """Coordinates (S, K) of outputs, or of log-ratios."""
    return coordinates(seen_in(y, log_ratios))


def check_outputs(batch: Batch, y: Array, log_ratios: bool) -> None:
    """ValueError where no point of the level set gives y back: then no fields do."""
    S, unread = len(y), ~np.isfinite(batch.seen).all(axis=1)
    if unread.any():
        raise ValueError(f"y of sample {unread.argmax()}: no output of this noiseless network")
    values = evaluate(batch, np.arange(S), cloud(1)[:, None] + np.zeros((1, S, 1)))
    zeta = values.zeta.transpose(2, 0, 3, 1).reshape(S, -1, FIELDS, TOKENS)
    Z = (batch.omega[:, None] + batch.L[:, None] @ zeta)[:, :, np.argsort(ORDER)]
    again, ratios = observe(Z.reshape(-1, FIELDS, TOKENS))
    told = seen_in(again if ratios is None else ratios, ratios is not None).reshape(S, len(Z[0]), -1)
    wanted = seen_in(y, log_ratios).reshape(S, 1, -1)
    with np.errstate(invalid="ignore"):
        gap = np.abs(told - wanted).max(axis=2) / (1 + np.abs(wanted).max(axis=2))
    there = np.isfinite(values.log.transpose(1, 0, 2).reshape(S, -1))
    strange = (there.any(axis=1) | (DIM == 0)) & ~(there & (gap <= 1e-5)).any(axis=1)  # small ones may be passed by
    if strange.any():
        raise ValueError(f"y of sample {strange.argmax()}: no output of this noiseless network")


def evaluate(batch: Batch, s: Array, x: Array) -> Values:
    """Densities of samples s (n,) at coordinates x (d, n, C): whitened free fields, then latent coordinates."""
    shape, white = x.shape[1:], FREE * TOKENS
    zeta = np.empty((SHEETS, FIELDS, TOKENS, *shape))
    zeta[:, :FREE] = x[:white].reshape(FREE, TOKENS, *shape)
    # The free fields, and the means of the others given these.
    known = times(batch.L[s][:, :, :FREE], zeta[:1, :FREE])[0] + batch.omega[s].transpose(1, 2, 0)[..., None]
    inverse = batch.inverse[s][:, FREE:, FREE:]
    latent, measure = latent_coordinates(x[white:])
    with np.errstate(all="ignore"):
        free = list(known[:FREE].reshape(white, *shape))
        solved, log_weight, directions = level_set(free, latent, [u[:, None] for u in batch.seen[s].T])
        zeta[:, FREE:] = times(inverse, stacked(solved, shape) - known[FREE:])
        flat = zeta.reshape(SHEETS, ENTRIES, *shape)
        log = np.stack([np.broadcast_to(weight, shape) for weight in log_weight]) + measure
        along = None
        if DIRECTIONS:  # directions
            along, norms = orthonormal(inverse, directions, shape)  # directions
            log = log - norms + 0.5 * DIRECTIONS * np.log(2 * np.pi)  # directions
            for unit in along.swapaxes(0, 1):  # directions
                flat = flat - (unit * flat).sum(axis=1, keepdims=True) * unit  # directions
        log = log - 0.5 * (flat * flat).sum(axis=1)
    there = np.isfinite(log)  # where a sheet has no point, its numbers are not finite
    flat = np.where(there[:, None], flat, 0.0)
    along = None if along is None else np.where(there[:, None, None], along, 0.0)
    return Values(np.where(there, log, -np.inf), flat, flat, along)


def stacked(sheets: list[Any], shape: tuple[int, ...]) -> Array:
    """Entries of the solved fields of every sheet, (B, R, T, n, C)."""
    table = [np.broadcast_to(value, shape) for sheet in sheets for value in sheet]
    return np.stack(table).reshape(len(sheets), FIELDS - FREE, TOKENS, *shape)


def times(matrix: Array, rows: Array) -> Array:
    """Matrices (n, R, Q) times fields (B, Q, T, n, C)."""
    out = np.zeros((len(rows), matrix.shape[1], *rows.shape[2:]))
    for r, q in np.argwhere(matrix.any(axis=0)):
        out[:, r] += matrix[:, r, q, None] * rows[:, q]
    return out


def latent_coordinates(x: Array) -> tuple[list[Array], Array | float]:
    """Latent coordinates as functions of x, and the log of their measure."""
    found: list[Array] = []
    measure: Array | float = 0.0
    for kind, value in zip(LATENTS, x, strict=True):
        found.append(np.sinh(value) if kind == "line" else np.exp(value) if kind == "scale" else value)
        measure += np.log(np.cosh(value)) if kind == "line" else value if kind == "scale" else 0.0
    return found, measure


def orthonormal(inverse: Array, directions: list[Any], shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Directions of every sheet, whitened and made orthonormal one after the other; the log of their volume."""
    along, norms = np.zeros((SHEETS, DIRECTIONS, FIELDS, TOKENS, *shape)), np.zeros((SHEETS, *shape))
    flat = along.reshape(SHEETS, DIRECTIONS, ENTRIES, *shape)
    for k in range(DIRECTIONS):
        along[:, k, FREE:] = times(inverse, stacked([own[k] for own in directions], shape))
        for j in range(k):
            flat[:, k] -= (flat[:, j] * flat[:, k]).sum(axis=1, keepdims=True) * flat[:, j]
        norm = np.sqrt((flat[:, k] ** 2).sum(axis=1))
        flat[:, k] /= norm[:, None]
        norms += np.log(norm)
    return flat, norms


def log_constant(batch: Batch) -> Array:
    """What the log of the integral lacks to log p(y | omega, V), (S,)."""
    solved = np.log(np.einsum("sii->si", batch.L)[:, FREE:]).sum(axis=1)
    return np.asarray(-0.5 * ENTRIES * np.log(2 * np.pi) - TOKENS * solved)
