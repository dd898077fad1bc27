"""Outputs of a network that shows row softmaxes, and their log-ratios."""

from __future__ import annotations

import numpy as np

from smisym.export.parts.given import ATTENDED, COEFFICIENT, CONSTANT, FIELDS, OUTPUT, TOKENS, Array, network


def outputs(fields: list[Array]) -> tuple[Array, Array]:
    """Outputs (*OUTPUT, ...) at entries of the fields that broadcast, and their log-ratios, -inf where masked."""
    with np.errstate(all="ignore"):  # far out scores overflow
        values = network(*fields)
    shape = np.broadcast_shapes(*[np.shape(value) for value in (*values, *fields)])
    ratios = np.stack([np.broadcast_to(value, shape) for value in values]).reshape(*OUTPUT, *shape)
    ratios[~ATTENDED] = -np.inf
    row = len(OUTPUT) - 1
    with np.errstate(invalid="ignore"):
        weights = np.exp(ratios - ratios.max(axis=row, keepdims=True))
        weights /= weights.sum(axis=row, keepdims=True)
    more = (1,) * len(shape)
    return CONSTANT.reshape(*OUTPUT, *more) + COEFFICIENT.reshape(*OUTPUT, *more) * weights, ratios


def observe(Z: Array) -> tuple[Array, Array]:
    """Outputs and log-ratios (S, ...) at fields Z (S, P, T)."""
    y, ratios = outputs(list(Z.reshape(len(Z), FIELDS * TOKENS).T))
    return np.moveaxis(y, -1, 0), np.moveaxis(ratios, -1, 0)
