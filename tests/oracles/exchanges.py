"""Exchanges of rows of Z that a network cannot tell apart, and what walks and roots are given of it.

Nothing here imports the package under test.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from oracles.description import Network
from oracles.fields import on_fields
from oracles.walking import Seen, invariances


def seen(network: Network) -> Seen:
    """The entries of its output that vary, and the group of exchanges of its fields that leaves them unchanged."""
    maps = exchanges(network)
    ratios = not network.noise and network.combine == "stack"
    probe = np.random.default_rng(0).standard_normal((64, network.fields, network.tokens))
    varies = np.ptp(on_fields(network, probe, ratios=ratios), axis=0) > 0

    def forward(Z: np.ndarray) -> np.ndarray:
        return on_fields(network, Z, ratios=ratios)[:, varies]

    group = invariances(forward, maps, network.tokens)
    return Seen(forward, (network.fields, network.tokens), group, network.noise)


def exchanges(network: Network) -> list[np.ndarray]:
    """Signed exchanges (P, P) of rows of Z that may leave what is shown unchanged: within a head, between heads."""
    eye = np.eye(network.fields)
    heads, row = [], 0
    for layer in network.layers:
        own = [list(range(row + a * layer.rows, row + (a + 1) * layer.rows)) for a in range(layer.heads)]
        row += layer.heads * layer.rows
        heads.append([[rows[p :: layer.rank] for p in range(layer.rank)] for rows in own])
    found = []
    for layer_heads in heads:
        pairs = [units for head in layer_heads for units in _pairs(head)]
        flat = [[row for unit in head for row in unit] for head in layer_heads]
        pairs += list(_pairs(flat))
        for a, b in pairs:
            swap = eye.copy()
            swap[a + b] = eye[b + a]
            found.append(swap)
        for unit in (unit for head in layer_heads for unit in head):
            flip = eye.copy()
            flip[unit] *= -1
            found.append(flip)
    return found


def _pairs(items: list[Any]) -> Iterator[tuple[Any, Any]]:
    return itertools.combinations(items, 2)
