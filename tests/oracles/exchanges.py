"""What a network shows, as a function of its fields alone; complex fields are allowed, for exact derivatives.

Nothing here imports the package under test.  That this is the network of :mod:`oracles_network` at Z = W X^T / sqrt(D)
is tested there too (tests/oracles/test_oracles_network.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from oracles.networks import LayerSpec, Spec


def shown(spec: Spec, Z: np.ndarray, *, ratios: bool = False) -> np.ndarray:
    """(n, K): all entries of the output at fields Z (n, P, T), rows in the order of :mod:`oracles_network`.

    ratios: of attention matrices of a softmax, the log-ratios of attended entries to the first one of their row.
    """
    if spec.limit == "ode":
        raise NotImplementedError("infinitely many layers")
    parts = []
    for number in range(spec.slices):
        attentions, B = _run(spec, Z, number, ratios)
        parts += [B] if spec.output == "sequence" else attentions
    if spec.output == "attention" and spec.combine == "sum":
        parts = [sum(o * A for o, A in zip(spec.layers[-1].readouts, parts, strict=True))]
    return np.concatenate([part.reshape(len(Z), math.prod(part.shape[1:])) for part in parts], axis=1)


def _run(spec: Spec, Z: np.ndarray, number: int, ratios: bool) -> tuple[list[np.ndarray], np.ndarray]:
    """(what the last layer's heads show, the mixing of tokens by all layers) on one slice of the embedding."""
    B = start = np.broadcast_to(np.eye(spec.tokens), (len(Z), spec.tokens, spec.tokens))
    *_, last = range(len(spec.layers))
    seen: list[np.ndarray] = []
    for depth, heads in enumerate(_heads(spec, number)):
        layer = spec.layers[depth]
        below = start if spec.limit == "first_order" and depth != last else B
        scores = [_scores(layer, Z[:, q] @ below.swapaxes(1, 2), Z[:, k] @ below.swapaxes(1, 2)) for q, k, _ in heads]
        attentions = [_attention(layer, s) for s in scores]
        moved = layer.skip * B
        for (_, _, readout), A in zip(heads, attentions, strict=True):
            moved = moved + readout * (A @ below)
        B = moved
        seen = [_ratios(layer, s) for s in scores] if ratios and layer.activation == "softmax" else attentions
    return seen, B


def _heads(spec: Spec, number: int) -> Iterator[list[tuple[slice, slice, float]]]:
    """Layer by layer, (rows of queries, rows of keys, readout) of the heads that act on one slice."""
    row = 0
    for layer in spec.layers:
        heads = []
        for a, readout in enumerate(layer.readouts):
            queries = slice(row, row + layer.rank)
            keys = queries if layer.tied else slice(row + layer.rank, row + 2 * layer.rank)
            row += layer.rows
            if spec.head_layout == "shared" or a == number:
                heads.append((queries, keys, readout))
        yield heads


def _scores(layer: LayerSpec, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    scores = layer.beta * layer.scale * (queries.swapaxes(1, 2) @ keys)
    return np.asarray(scores if layer.position is None else scores + np.asarray(layer.position))


def _attention(layer: LayerSpec, scores: np.ndarray) -> np.ndarray:
    mask = _mask(layer, scores.shape[-1])
    if layer.activation == "softmax":
        top = np.where(mask, scores.real, -np.inf).max(axis=-1, keepdims=True)
        weights = np.where(mask, np.exp(np.where(mask, scores - top, 0)), 0)
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
    if layer.activation == "hardmax":
        return np.eye(scores.shape[-1])[np.where(mask, scores.real, -np.inf).argmax(axis=-1)]
    values: Any = scores if layer.activation == "linear" else layer.activation(scores)  # type: ignore[operator]
    return np.where(mask, values, 0)


def _ratios(layer: LayerSpec, scores: np.ndarray) -> np.ndarray:
    columns = []
    for row, seen in enumerate(_mask(layer, scores.shape[-1])):
        first, *others = np.flatnonzero(seen)
        columns += [scores[:, row, other] - scores[:, row, first] for other in others]
    return np.stack(columns, axis=1)


def _mask(layer: LayerSpec, size: int) -> np.ndarray:
    if layer.mask is None:
        return np.ones((size, size), bool)
    return np.tri(size, dtype=bool) if isinstance(layer.mask, str) else np.asarray(layer.mask, bool)


def exchanges(spec: Spec) -> list[np.ndarray]:
    """Signed exchanges (P, P) of rows of Z that may leave what is shown unchanged: within a head, between heads."""
    eye = np.eye(sum(layer.heads * layer.rows for layer in spec.layers))
    heads, row = [], 0
    for layer in spec.layers:
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
