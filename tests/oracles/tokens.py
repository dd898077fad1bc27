"""An attention network of any kind at finite embedding dimension, run as it is: tokens mixed layer by layer.

Nothing here imports the package under test, and no field Z enters: scores are X M X^T with the (D, D) key-query matrix
M of each head.  Conventions are those of the theory: tokens are rows of X (T, D), rows of W are weights, softmax acts
on rows and multiplies from the left.

* :func:`draw`, :func:`exact_fields`: data, and the fields Z = W X^T / sqrt(D).
* :func:`on_tokens`: what is observed; :func:`final_tokens`: the tokens after the last layer.
* :func:`deep_mixing`: B of infinitely many layers, by an ordinary differential equation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from oracles.description import Layer, Network

# (radius, step) of the trapezoid rule by number of Gaussian dimensions.  Error of B against a finer rule, softmax of
# length 1/2: rounding in one and two dimensions, 1e-11 in three, 1e-6 in four.
GRIDS = {1: (9.0, 0.02), 2: (9.0, 0.09), 3: (8.0, 0.25), 4: (7.5, 0.45)}


# ------------------------------------------------------------------------------------------------------------- data


def draw(network: Network, D: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(X (T, D), W (P, D) or (P, D/H), Z (P, T)), Gaussian; Z to double rounding of its exact value."""
    _slice_width(network, D)
    X = rng.standard_normal((network.tokens, D))
    rows = sum(_ranks(network, D)) or network.fields
    W = rng.standard_normal((rows, D // network.slices))
    return X, W, exact_fields(network, X, W).astype(float)


def exact_fields(network: Network, X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Z (P, T) = W X^T / sqrt(D) in extended precision; split heads: of every row with its slice, over sqrt(D/H)."""
    X, W = np.asarray(X, np.longdouble), np.asarray(W, np.longdouble)
    width = _slice_width(network, X.shape[1])
    if network.layers[0].rank_ratio is not None:
        rows = []
        for M in _matrices(network, W, np.longdouble):
            if not network.layers[0].tied:
                rows.append((X @ M @ X.T)[~np.eye(len(X), dtype=bool)])
                continue
            scores = X @ M @ X.T - np.trace(M) * np.eye(len(X))
            scores[np.diag_indices(len(X))] /= np.sqrt(np.longdouble(2))
            rows.append(scores[np.triu_indices(len(X))])
        return np.array(rows)
    Z = np.empty((len(W), len(X)), np.longdouble)
    row = 0
    for layer in network.with_rows:
        for head in range(layer.heads):
            start = head * width if network.head_layout == "split" else 0
            for p in range(row, row + layer.rows):
                Z[p] = X[:, start : start + width] @ W[p] / np.sqrt(np.longdouble(width))
            row += layer.rows
    return Z


def _extensive(W: np.ndarray, dtype: Any) -> np.ndarray:
    """S / sqrt(D), S = W^T W / sqrt(r D), of W (r, D)."""
    rank, D = W.shape
    return W.T @ W / (np.sqrt(dtype(rank)) * dtype(D))


def _ranks(network: Network, D: int) -> list[int]:
    """Of layers of extensive rank."""
    return [max(round(layer.rank_ratio * D), 1) for layer in network.layers if layer.rank_ratio is not None]


def _matrices(network: Network, W: np.ndarray, dtype: Any) -> list[np.ndarray]:
    """S / sqrt(D) of every layer; of one that is not tied queries (r, D) stand above keys in W, and S is of both."""
    if not network.layers[0].tied:
        queries, keys = W[: len(W) // 2], W[len(W) // 2 :]
        return [
            sum(np.outer(q, k) for q, k in zip(queries, keys, strict=True)) / np.sqrt(dtype(len(keys))) / W.shape[1]
        ]
    return [_extensive(own, dtype) for own in np.split(W, np.cumsum(_ranks(network, W.shape[1]))[:-1])]


def _slice_width(network: Network, D: int) -> int:
    if D % network.slices:
        raise ValueError(f"D={D} cannot be cut into {network.slices} slices")
    return D // network.slices


# ------------------------------------------------------------------------------------------------------ the network


@dataclass(frozen=True)
class _Head:
    """One head of one layer, with its (D, D) matrix: scores of tokens X are X matrix X^T."""

    layer: Layer
    readout: float
    matrix: np.ndarray | None  # None where a limit has done away with the weights

    def attention(self, X: np.ndarray) -> np.ndarray:
        size = len(self.matrix)
        seen = X[:, :size]  # the coordinates beyond are carried along and seen by no head
        scores = seen @ self.matrix @ seen.T
        if self.layer.rank_ratio is not None:
            mixing = X[:, size:]
            scores = scores - np.trace(self.matrix) * (mixing @ mixing.T)
        return attention_matrix(self.layer, scores)


def on_tokens(network: Network, X: np.ndarray, W: np.ndarray, dtype: Any = float) -> np.ndarray:
    """What is observed of the network on tokens X (T, D) with weights W; ``dtype`` may be ``numpy.longdouble``."""
    runs = [_run(network, number, X, W, dtype) for number in range(network.slices)]
    if network.output == "sequence":
        mixings = [moved[:, -network.tokens :] for _, moved in runs]
        return mixings[0] if len(mixings) == 1 else np.stack(mixings)
    heads = [A for attentions, _ in runs for A in attentions]
    if network.combine == "sum":
        return sum(dtype(o) * A for o, A in zip(network.layers[-1].readouts, heads, strict=True))
    return heads[0] if len(heads) == 1 else np.stack(heads)


def final_tokens(network: Network, X: np.ndarray, W: np.ndarray, dtype: Any = float) -> np.ndarray:
    """X_L (T, D), the tokens after the last layer; what :func:`on_tokens` shows for "sequence" is B in X_L = B X."""
    return np.hstack([_run(network, n, X, W, dtype)[1][:, : -network.tokens] for n in range(network.slices)])


def _run(
    network: Network, number: int, X: np.ndarray, W: np.ndarray, dtype: Any
) -> tuple[list[np.ndarray], np.ndarray]:
    """(attention matrices of the last layer, its output) on one slice.

    Tokens carry T coordinates more than they have, the unit vectors of R^T, which no head sees: they are mixed as the
    rest is, and become the mixing matrix.
    """
    width = _slice_width(network, np.shape(X)[1])
    tokens = np.asarray(X, dtype)[:, number * width : (number + 1) * width]
    tokens = np.hstack([tokens, np.eye(network.tokens, dtype=dtype)])
    *before, last = _heads(network, number, np.asarray(W, dtype), width, dtype)
    if network.limit == "ode":
        length = float(sum(head.readout for heads in before for head in heads))
        if before:
            tokens = deep_mixing(before[0][0].layer, length, network.tokens).astype(dtype) @ tokens
    elif network.limit == "first_order":
        added = [dtype(head.readout) * (head.attention(tokens) @ tokens) for heads in before for head in heads]
        tokens = sum(added, tokens)
    else:
        for layer, heads in zip(network.layers, before, strict=False):
            tokens = _step(layer, heads, tokens, dtype)[1]
    return _step(network.layers[-1], last, tokens, dtype)


def _step(layer: Layer, heads: list[_Head], X: np.ndarray, dtype: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """(attention matrices, tokens after the layer)."""
    attentions = [head.attention(X) for head in heads]
    moved = dtype(layer.skip) * X
    for head, A in zip(heads, attentions, strict=True):
        moved = moved + dtype(head.readout) * (A @ X)
    return attentions, moved


def _heads(network: Network, number: int, W: np.ndarray, width: int, dtype: Any) -> list[list[_Head]]:
    """Layer by layer, the heads that act on one slice: all of them if shared, one if split."""
    if network.layers[0].rank_ratio is not None:
        matrices = _matrices(network, W, dtype)
        return [[_Head(layer, layer.readouts[0], M)] for layer, M in zip(network.layers, matrices, strict=True)]
    if W.shape != (network.fields, width):
        raise ValueError(f"W has shape {W.shape}, not {(network.fields, width)}")
    layers, row = [], 0
    for depth, layer in enumerate(network.layers, start=1):
        heads = []
        for a, readout in enumerate(layer.readouts):
            matrix = None
            if network.limit != "ode" or depth == len(network.layers):
                queries = W[row : row + layer.rank]
                keys = queries if layer.tied else W[row + layer.rank : row + 2 * layer.rank]
                matrix = queries.T @ keys / dtype(width)
                row += layer.rows
            if network.head_layout == "shared" or a == number:
                heads.append(_Head(layer, readout, matrix))
        layers.append(heads)
    return layers


def attention_matrix(layer: Layer, scores: np.ndarray) -> np.ndarray:
    """Attention (..., T, T) of a layer, from plain scores (..., T, T): U U^T or U^q U^kT."""
    number, size = scores.dtype.type, scores.shape[-1]
    scores = number(layer.beta) * number(layer.scale) * scores
    if layer.position is not None:
        scores = scores + np.asarray(layer.position, scores.dtype)
    seen = _mask(layer, size)
    if layer.activation == "softmax":
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)
    if layer.activation == "hardmax":
        return np.eye(size, dtype=scores.dtype)[np.where(seen, scores, -np.inf).argmax(axis=-1)]
    mixed = scores if layer.activation == "linear" else layer.activation(scores)
    return np.where(seen, mixed, number(0))


def _mask(layer: Layer, size: int) -> np.ndarray:
    if layer.mask is None:
        return np.ones((size, size), bool)
    seen = np.tri(size, dtype=bool) if isinstance(layer.mask, str) else np.asarray(layer.mask, bool)
    if (isinstance(layer.mask, str) and layer.mask != "causal") or seen.shape != (size, size):
        raise ValueError(f"mask {layer.mask!r} for {size} tokens")
    if not seen.any(axis=1).all():
        raise ValueError("a token that attends to none has no attention")
    return seen


# ------------------------------------------------------------------------------------------------------ large depth


def deep_mixing(layer: Layer, length: float, tokens: int) -> np.ndarray:
    """B(1) (T, T) of dB/ds = length E_h[sigma(B h^T h B^T)] B, B(0) = I; h (rank, T) standard normal, keys apart if
    untied.

    Trapezoid rules for at most four Gaussian numbers (T times rank, twice that if untied); activations must be smooth.
    """
    if layer.activation == "hardmax":
        raise NotImplementedError("the mean of a discontinuous function needs another rule")
    h, weights = _gaussian_grid(tokens * layer.rows)
    h = h.reshape(-1, layer.rows, tokens)

    def velocity(_: float, flat: np.ndarray) -> np.ndarray:
        B = flat.reshape(tokens, tokens)
        U = (h @ B.T).swapaxes(1, 2)
        queries, keys = U[:, :, : layer.rank], U[:, :, -layer.rank :]
        mean = np.tensordot(weights, attention_matrix(layer, queries @ keys.swapaxes(1, 2)), axes=1)
        return (length * mean @ B).ravel()

    start = np.eye(tokens).ravel()
    solution = solve_ivp(velocity, (0.0, 1.0), start, method="DOP853", rtol=1e-10, atol=1e-11, first_step=0.25)
    if not solution.success:
        raise ArithmeticError(solution.message)
    return solution.y[:, -1].reshape(tokens, tokens)


@lru_cache(maxsize=2)
def _gaussian_grid(dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (S, d) and weights of the mean of an even function of d Gaussian numbers: half of a ball."""
    if dimension not in GRIDS:
        raise NotImplementedError(f"no rule for {dimension} Gaussian dimensions")
    radius, step = GRIDS[dimension]
    count = int(radius / step)
    line = step * (np.arange(-count, count) + 0.5)
    nodes = np.stack(np.meshgrid(line[count:], *[line] * (dimension - 1), indexing="ij"), axis=-1)
    nodes = nodes.reshape(-1, dimension)
    square = (nodes**2).sum(axis=1)
    nodes, square = nodes[square < radius**2], square[square < radius**2]
    weights = np.exp(-square / 2)
    return nodes, weights / weights.sum()
