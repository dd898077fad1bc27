"""What a network shows, as a function of its fields alone; complex fields are allowed, for exact derivatives.

Nothing here imports the package under test.  That this is the network on its tokens (:mod:`oracles.tokens`) at
Z = W X^T / sqrt(D) is tested too (test_oracles.py, test_oracles_network.py, test_families.py).

* :func:`on_fields`: of any network.
* :func:`forward`, :func:`derivative`: of the simplest ones, where there are many samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from oracles.description import Layer, Network


def on_fields(network: Network, Z: np.ndarray, *, ratios: bool = False) -> np.ndarray:
    """(n, K): all entries of the output at fields Z (n, P, T), rows in the order of :class:`Network`.

    ratios: of attention matrices of a softmax, the log-ratios of attended entries to the first one of their row.
    """
    if network.limit == "ode":
        raise NotImplementedError("infinitely many layers")
    parts = []
    for number in range(network.slices):
        attentions, B = _run(network, Z, number, ratios)
        parts += [B] if network.output == "sequence" else attentions
    if network.output == "attention" and network.combine == "sum":
        parts = [sum(o * A for o, A in zip(network.layers[-1].readouts, parts, strict=True))]
    return np.concatenate([part.reshape(len(Z), math.prod(part.shape[1:])) for part in parts], axis=1)


def _run(network: Network, Z: np.ndarray, number: int, ratios: bool) -> tuple[list[np.ndarray], np.ndarray]:
    """(what the last layer's heads show, the mixing of tokens by all layers) on one slice of the embedding."""
    B = start = np.broadcast_to(np.eye(network.tokens), (len(Z), network.tokens, network.tokens))
    *_, last = range(len(network.layers))
    seen: list[np.ndarray] = []
    for depth, heads in enumerate(_heads(network, number)):
        layer = network.layers[depth]
        below = start if network.limit == "first_order" and depth != last else B
        if layer.rank_ratio is not None:
            laid = _symmetric if layer.tied else _between
            own = below @ laid(Z[:, depth], network.tokens) @ below.swapaxes(1, 2)
            scores = [_shifted(layer, layer.beta * layer.scale * own)]
        else:
            scores = [
                _scores(layer, Z[:, q] @ below.swapaxes(1, 2), Z[:, k] @ below.swapaxes(1, 2)) for q, k, _ in heads
            ]
        attentions = [_attention(layer, s) for s in scores]
        moved = layer.skip * B
        for (_, _, readout), A in zip(heads, attentions, strict=True):
            moved = moved + readout * (A @ below)
        B = moved
        seen = [_ratios(layer, s) for s in scores] if ratios and layer.activation == "softmax" else attentions
    return seen, B


def _heads(network: Network, number: int) -> Iterator[list[tuple[slice, slice, float]]]:
    """Layer by layer, (rows of queries, rows of keys, readout) of the heads that act on one slice."""
    row = 0
    for layer in network.layers:
        heads = []
        for a, readout in enumerate(layer.readouts):
            queries = slice(row, row + layer.rank)
            keys = queries if layer.tied else slice(row + layer.rank, row + 2 * layer.rank)
            row += layer.rows
            if network.head_layout == "shared" or a == number:
                heads.append((queries, keys, readout))
        yield heads


def _scores(layer: Layer, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    return _shifted(layer, layer.beta * layer.scale * (queries.swapaxes(1, 2) @ keys))


def _shifted(layer: Layer, scores: np.ndarray) -> np.ndarray:
    return np.asarray(scores if layer.position is None else scores + np.asarray(layer.position))


def _between(entries: np.ndarray, T: int) -> np.ndarray:
    """(n, T, T) scores of one token with another, row by row; of a token with itself none are seen."""
    found = np.zeros((len(entries), T, T), dtype=entries.dtype)
    found[:, ~np.eye(T, dtype=bool)] = entries
    return found


def _symmetric(fields: np.ndarray, tokens: int) -> np.ndarray:
    """(n, T, T) from its upper triangle (n, T (T + 1) / 2), of which the diagonal is over sqrt(2)."""
    first, second = np.triu_indices(tokens)
    scores = np.zeros((len(fields), tokens, tokens), dtype=fields.dtype)
    scores[:, first, second] = scores[:, second, first] = np.where(first == second, math.sqrt(2), 1.0) * fields
    return scores


def _attention(layer: Layer, scores: np.ndarray) -> np.ndarray:
    mask = _mask(layer, scores.shape[-1])
    if layer.activation == "softmax":
        top = np.where(mask, scores.real, -np.inf).max(axis=-1, keepdims=True)
        weights = np.where(mask, np.exp(np.where(mask, scores - top, 0)), 0)
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
    if layer.activation == "hardmax":
        return np.eye(scores.shape[-1])[np.where(mask, scores.real, -np.inf).argmax(axis=-1)]
    values: Any = scores if layer.activation == "linear" else layer.activation(scores)  # type: ignore[operator]
    return np.where(mask, values, 0)


def _ratios(layer: Layer, scores: np.ndarray) -> np.ndarray:
    columns = []
    for row, seen in enumerate(_mask(layer, scores.shape[-1])):
        first, *others = np.flatnonzero(seen)
        columns += [scores[:, row, other] - scores[:, row, first] for other in others]
    return np.stack(columns, axis=1)


def _mask(layer: Layer, size: int) -> np.ndarray:
    if layer.mask is None:
        return np.ones((size, size), bool)
    return np.tri(size, dtype=bool) if isinstance(layer.mask, str) else np.asarray(layer.mask, bool)


# ----------------------------------------------------------------------------------------------- the simplest networks


def forward(Z: np.ndarray, network: Network) -> tuple[np.ndarray, np.ndarray]:
    """The simplest networks on their fields: (output (T, T, S), tokens that enter the last layer (T, T, S)).

    Samples come last, for there are up to 10^7 of them; Z is (P, T, S), real or complex.  These are the layers run on T
    tokens that are the unit vectors of R^T, where scores are products of ``tokens @ Z[l]``: any Gram matrix X X^T plays
    no part in the scores.
    """
    if not network.simplest:
        raise NotImplementedError("layers beyond tied ones of rank one: on_fields")
    size = network.tokens
    tokens = np.broadcast_to(np.eye(size, dtype=Z.dtype)[:, :, None], (size, size, Z.shape[2]))
    for number, (layer, field) in enumerate(zip(network.layers, Z, strict=True), start=1):
        projected = np.stack([sum(tokens[i, j] * field[j] for j in range(size)) for i in range(size)])
        scores = layer.beta * projected[:, None] * projected[None, :]
        attention = scores if layer.linear else _softmax_stack(scores)
        if number < len(network.layers):
            mixed = [sum(attention[i, k] * tokens[k] for k in range(size)) for i in range(size)]
            tokens = np.stack([layer.skip * tokens[i] + mixed[i] for i in range(size)])
    return attention, tokens


def _softmax_stack(scores: np.ndarray) -> np.ndarray:
    shift = scores.real.max(axis=1, keepdims=True)
    weights = np.exp(scores - shift)
    return weights / weights.sum(axis=1, keepdims=True)


def derivative(Z: np.ndarray, network: Network) -> np.ndarray:
    """d y / d Z, (T, T, P, T), of one of the simplest networks at fields Z (P, T), by complex steps."""
    fields, size = Z.shape
    columns = []
    for p in range(fields):
        for t in range(size):
            moved = Z.astype(complex)
            moved[p, t] += 1e-40j
            columns.append(forward(moved[:, :, None], network)[0][:, :, 0].imag / 1e-40)
    return np.stack(columns, axis=-1).reshape(size, size, fields, size)
