"""The network run on tokens at finite D, layer by layer with its (D, D) matrices: no field, no program, no link.

Tokens are rows of X (T, D), rows of W are weights, softmax acts on rows and multiplies from the left (theory, 2).
"""

from __future__ import annotations

import numpy as np

from smisym.base import symbols
from smisym.declare.architecture import Architecture, Attention
from smisym.declare.evaluating import evaluate
from smisym.declare.expressions import parse
from smisym.declare.smi import SMI
from smisym.model.compiled import Model

Long = np.longdouble

# How well both must agree, relative, for each unit of the condition: what relative changes of the weights do to the
# output, tried with one of this size.
_EQUAL, _NUDGE = 1e-10, 1e-7


def slices_of(declared: Architecture | SMI) -> int:
    """Into how many slices the embedding is cut."""
    split = isinstance(declared, Architecture) and declared.head_layout == "split"
    return declared.layers[0].heads if split and isinstance(declared, Architecture) else 1


def ratios_of(declared: Architecture | SMI) -> list[float]:
    """Layer by layer the rank over the dimension, where that is what was declared; else nothing."""
    layers = declared.layers if isinstance(declared, Architecture) else ()
    return [layer.rank_ratio for layer in layers if layer.rank_ratio is not None]


def ranks_of(declared: Architecture | SMI, dimension: int) -> list[int]:
    """Layer by layer the rank of extensive ones at a dimension."""
    return [max(round(ratio * dimension), 1) for ratio in ratios_of(declared)]


def tied(declared: Architecture | SMI) -> bool:
    """Whether queries are keys in all layers."""
    return isinstance(declared, Architecture) and all(layer.tied for layer in declared.layers)


def rows_of(declared: Architecture | SMI) -> list[int]:
    """The slice, counted from 0, of each row of W: layer, head, query before key, rank."""
    if isinstance(declared, SMI):
        return [0] * len(declared.fields)
    split = declared.head_layout == "split"
    return [
        head if split else 0
        for layer in declared.layers
        for head in range(layer.heads)
        for _ in range(layer.rank * (1 if layer.tied else 2))
    ]


def draw_tokens(declared: Architecture | SMI, dimension: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens X (T, D) and weights W (P, D), (P, D / H) where H heads split the embedding, (r, D) of extensive ranks
    that add up to r, twice as many where keys are apart, with standard normal entries; D is ``dimension`` times the
    number of slices."""
    rng, slices = np.random.default_rng(seed), slices_of(declared)
    X = rng.standard_normal((declared.tokens, dimension * slices))
    rows = sum(ranks_of(declared, dimension)) * (2 if ratios_of(declared) and not tied(declared) else 1)
    rows = rows or len(rows_of(declared))
    return X, rng.standard_normal((rows, dimension))


def fields_of(declared: Architecture | SMI, X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Z (P, T) = W X^T / sqrt(D), each row with its slice, rounded once; of extensive rank the scores of tokens a <= b,
    those of a token with itself over sqrt(2)."""
    width = W.shape[1]
    if ratios_of(declared):
        if not tied(declared):
            scores = _between(X.astype(Long), W.astype(Long))
            return np.asarray(scores[~np.eye(len(X), dtype=bool)][None].astype(float))
        first, second = np.triu_indices(len(X))
        scale = np.where(first == second, np.sqrt(Long(2)), Long(1))
        ends = np.cumsum(ranks_of(declared, width))[:-1]
        each = [_extensive(X.astype(Long), own, np.eye(len(X), dtype=Long)) for own in np.split(W.astype(Long), ends)]
        return np.array([scores[first, second] / scale for scores in each]).astype(float)
    parts = [X[:, s * width : (s + 1) * width] for s in rows_of(declared)]
    rows = [part.astype(Long) @ w.astype(Long) / np.sqrt(Long(width)) for part, w in zip(parts, W, strict=True)]
    return np.array(rows).astype(float)


def run_on_tokens(declared: Architecture | SMI, X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """What is observed: attention matrices (..., T, T), the expressions (K,), or the tokens of the last layer, one
    slice beside the other (T, D), in extended precision.

    Raises ValueError for ``limit="ode"``, which is no network of finitely many layers.
    """
    if isinstance(declared, SMI):
        Z = fields_of(declared, X, W)
        values = {s: Z[p, t] for p, row in enumerate(declared.symbols()) for t, s in enumerate(row)}
        return np.array([float(evaluate(expression, values)) for expression in declared.parsed()])
    if declared.limit == "ode":
        raise ValueError("infinitely many layers")
    width, slices = W.shape[1], slices_of(declared)
    runs = [_run(declared, X[:, s * width : (s + 1) * width].astype(Long), W.astype(Long), s) for s in range(slices)]
    if declared.output == "sequence":
        return np.hstack([tokens for _, tokens in runs])
    shown = [A for attentions, _ in runs for A in attentions]
    if declared.combine == "sum":
        return np.sum([Long(o) * A for o, A in zip(declared.layers[-1].readouts, shown, strict=True)], axis=0)
    return shown[0] if len(shown) == 1 else np.stack(shown)


def seen_by_link(declared: Architecture | SMI, y: np.ndarray, X: np.ndarray) -> np.ndarray:
    """The same of an output y of the link at the fields: a sequence output is the mixing B in X_L = B X."""
    if isinstance(declared, SMI) or declared.output != "sequence":
        return y
    slices = slices_of(declared)
    mixings = y.reshape(slices, declared.tokens, declared.tokens)
    return np.hstack([B @ part for B, part in zip(mixings, np.split(X, slices, axis=1), strict=True)])


def mapping_misfit(model: Model, dimension: int, seed: int) -> float | None:
    """Difference of the network on tokens and the link at its fields, over what is allowed; None where one overflows.

    Raises ValueError for ``limit="ode"``.
    """
    declared = model.architecture
    assert declared is not None, "a bare program has no tokens"
    X, W = draw_tokens(declared, dimension, seed)
    nudged = W * (1 + _NUDGE * np.random.default_rng([seed, 1]).standard_normal(W.shape))
    with np.errstate(all="ignore"):
        network, moved = (run_on_tokens(declared, X, w).astype(float) for w in (W, nudged))
        found = seen_by_link(declared, model.link(fields_of(declared, X, W)[None])[0], X)
    size = float(np.linalg.norm(network))
    if not np.isfinite(network).all() or not np.isfinite(moved).all():
        return None
    condition = max(1.0, float(np.linalg.norm(moved - network)) / max(size, 1e-300) / _NUDGE)
    return float(np.linalg.norm(found - network)) / max(size, 1e-300) / (_EQUAL * condition)


def _run(declared: Architecture, X: np.ndarray, W: np.ndarray, which: int) -> tuple[list[np.ndarray], np.ndarray]:
    """(attention matrices of the last layer, tokens after it) on one slice."""
    first, row, attentions = X, 0, list[np.ndarray]()
    B, extensive = np.eye(len(X), dtype=Long), iter(np.split(W, np.cumsum(ranks_of(declared, W.shape[1]))[:-1]))
    for number, layer in enumerate(declared.layers):
        seen = X if declared.limit is None or number == len(declared.layers) - 1 else first
        attentions, moved = [], Long(layer.skip) * X
        if layer.rank_ratio is not None:
            scores = _extensive(seen, next(extensive), B) if layer.tied else _between(seen, W)
            attentions = [_attention(layer, scores)]
            mixing = Long(layer.skip) * np.eye(len(X), dtype=Long) + Long(layer.readouts[0]) * attentions[0]
            X, B = mixing @ X, mixing @ B
            continue
        for head, readout in enumerate(layer.readouts):
            queries = W[row : row + layer.rank]
            keys = queries if layer.tied else W[row + layer.rank : row + 2 * layer.rank]
            row += layer.rank * (1 if layer.tied else 2)
            if declared.head_layout == "split" and head != which:
                continue
            scores = seen @ (queries.T @ keys / Long(W.shape[1])) @ seen.T
            A = _attention(layer, scores)
            attentions.append(A)
            moved = moved + Long(readout) * (A @ seen)
        X = moved
    return attentions, X


def _between(X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """X S X^T / sqrt(D), S of queries and keys, which stand in W (2 r, D) one above the other."""
    queries, keys = np.split(W, 2)
    return np.asarray((X @ queries.T) @ (X @ keys.T).T / (np.sqrt(Long(len(keys))) * Long(W.shape[1])))


def _extensive(X: np.ndarray, W: np.ndarray, B: np.ndarray) -> np.ndarray:
    """(X S X^T - tr S B B^T) / sqrt(D), S = W^T W / sqrt(r D), of W (r, D) and tokens that were mixed by B."""
    rank, dimension = W.shape
    scores = (X @ W.T) @ (X @ W.T).T - np.sum(W * W) * (B @ B.T)
    return np.asarray(scores / (np.sqrt(Long(rank)) * Long(dimension)))


def _attention(layer: Attention, scores: np.ndarray) -> np.ndarray:
    """Attention (T, T) from plain scores X M X^T."""
    T = len(scores)
    scores = Long(layer.beta) * Long(layer.scale) * scores
    if layer.position is not None:
        scores = scores + np.array(layer.position, dtype=Long)
    seen = np.array(layer.attended(T))
    if layer.activation == "softmax":
        weights = np.where(seen, np.exp(scores - np.where(seen, scores, -np.inf).max(axis=1, keepdims=True)), 0)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
    if layer.activation == "hardmax":
        return np.eye(T, dtype=Long)[np.where(seen, scores, -np.inf).argmax(axis=1)]
    if layer.activation == "linear":
        return np.where(seen, scores, Long(0))
    own = parse(layer.activation, {"s": symbols.SCORE}, what="activation")
    return np.where(seen, evaluate(own, {symbols.SCORE: scores.astype(float)}), Long(0))
