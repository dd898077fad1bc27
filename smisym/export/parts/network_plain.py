"""Outputs of a network that shows expressions or scores themselves."""

from __future__ import annotations

import numpy as np

from smisym.export.parts.given import FIELDS, OUTPUT, TOKENS, Array, network


def outputs(fields: list[Array]) -> tuple[Array, None]:
    """Outputs (*OUTPUT, ...) at entries of the fields that broadcast, and no log-ratios."""
    with np.errstate(all="ignore"):  # far out scores overflow
        values = network(*fields)
    shape = np.broadcast_shapes(*[np.shape(value) for value in (*values, *fields)])
    return np.stack([np.broadcast_to(value, shape) for value in values]).reshape(*OUTPUT, *shape), None


def observe(Z: Array) -> tuple[Array, None]:
    """Outputs (S, ...) at fields Z (S, P, T), and no log-ratios."""
    y, _ = outputs(list(Z.reshape(len(Z), FIELDS * TOKENS).T))
    return np.moveaxis(y, -1, 0), None
