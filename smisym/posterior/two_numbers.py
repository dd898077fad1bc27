"""Two numbers that pass from layer to layer of a network on two tokens, and what follows from them; arrays alone.

A product of mixings whose rows sum to s, without entries below zero, is C = s [delta I + (1 - delta) 1 (t, 1 - t)].
"""

from __future__ import annotations

import numpy as np

# Smallest |delta| of which there is a logarithm.
TINY = 1e-12
# Of one table: the sign of delta and the box, in log |delta| and t.
Span = tuple[float, np.ndarray, np.ndarray]
ANYWHERE: tuple[Span, ...] = tuple((sign, np.full(2, -np.inf), np.full(2, np.inf)) for sign in (1.0, -1.0))


def mixed(C: np.ndarray, h: np.ndarray) -> np.ndarray:
    """U = h C^T of states (M, T, T) and fields (n, T, K): (n T, M K)."""
    T = C.shape[-1]
    n, _, K = h.shape
    out = np.empty((n, T, len(C), K))
    for p in range(n):
        for t in range(T):
            np.multiply(C[:, t, 0, None], h[p, 0], out=out[p, t])
            for v in range(1, T):
                out[p, t] += C[:, t, v, None] * h[p, v]
    return out.reshape(n * T, -1)


def passed_on(A: np.ndarray, C: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """delta and t (M, K) of A C for mixings (M K, 2, 2) and states (M, 2, 2), whose rows sum to ``scale`` together.

    Of matrices of such rows, delta multiplies, and the rest of the first column adds up: with C = s [delta I + 1 p^T],
    A C = s' [delta' delta I + 1 (delta p'^T + p^T)].
    """
    M = len(C)
    own = float(C[0, 0].sum())
    q, p = C[:, 0, 1, None] / own, C[:, 1, 0, None] / own
    first = A[:, 1, 0].reshape(M, -1) * (own / scale)
    other = A[:, 0, 1].reshape(M, -1) * (own / scale)
    delta = 1.0 - p - q
    p, q = p + delta * first, q + delta * other
    rest = p + q
    with np.errstate(divide="ignore", invalid="ignore"):
        # Where nothing is shared, t means nothing.
        t = np.where(rest > 0, p / rest, 0.5)
    return delta * (1.0 - first - other), t


def products(A: np.ndarray, C: np.ndarray) -> np.ndarray:
    """A C (2, 2, M K) of mixings (M K, 2, 2) and states (M, 2, 2)."""
    M = len(C)
    out = np.empty((2, 2, M, len(A) // M))
    for i in range(2):
        first, other = A[:, i, 0].reshape(M, -1), A[:, i, 1].reshape(M, -1)
        for j in range(2):
            np.multiply(first, C[:, 0, j, None], out=out[i, j])
            out[i, j] += other * C[:, 1, j, None]
    return out.reshape(2, 2, -1)


def behind(
    C: np.ndarray, points: np.ndarray, weight: np.ndarray, omega: np.ndarray, whitening: np.ndarray, *, cov: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The network behind matrices C (2, 2, N): log of its sum over points (B, n, 2) with their log-weights (B,), means
    (2 n, N) of its whitened fields L^{-1} (U C^{-T} - omega), and of products of two (2 n, 2 n, N)."""
    B, n, T = points.shape
    N = C.shape[-1]
    det = C[0, 0] * C[1, 1] - C[0, 1] * C[1, 0]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inverse = 1.0 / det
        fields = np.empty((B, n, T, N))
        for b in range(B):
            for p in range(n):
                first, other = points[b, p]
                fields[b, p, 0] = (C[1, 1] * first - C[0, 1] * other) * inverse - omega[p, 0]
                fields[b, p, 1] = (C[0, 0] * other - C[1, 0] * first) * inverse - omega[p, 1]
        r = fields * whitening[0, 0] if n == 1 else np.einsum("pq,bqtn->bptn", whitening, fields)
        r = r.reshape(B, n * T, N)
        exponent = weight[:, None] - 0.5 * (r * r).sum(axis=1) + n * np.log(np.abs(inverse))
        exponent[~np.isfinite(exponent)] = -np.inf
        top = exponent.max(axis=0)
        nothing = ~np.isfinite(top)
        top[nothing] = 0.0
        share = np.exp(exponent - top)
        total = share.sum(axis=0)
        log_weight = np.log(total) + top
        share /= total
    if nothing.any():
        log_weight[nothing], share[:, nothing], r[:, :, nothing] = -np.inf, 0.0, 0.0
    mean = (share[:, None] * r).sum(axis=0)
    if not cov:
        return log_weight, mean, None
    second = np.zeros((n * T, n * T, N))
    for b in range(B):
        second += (share[b] * r[b])[:, None] * r[b][None]
    return log_weight, mean, second


def places(delta: np.ndarray, x: np.ndarray, floor: float, spans: tuple[Span, ...]) -> tuple[list[Span], np.ndarray]:
    """The boxes around points (M, K), of coordinates x (2, M, K), within spans whose |delta| is not below the floor;
    and which box they lie in, -1 for none."""
    found: list[Span] = []
    place = np.full(delta.shape, -1)
    for sign, low, high in spans:
        mine = sign * delta >= floor
        for a in range(2):
            if low[a] > -np.inf:
                mine &= x[a] >= low[a]
            if high[a] < np.inf:
                mine &= x[a] <= high[a]
        if not mine.any():
            continue
        inside = x.reshape(2, -1) if mine.all() else x[:, mine]
        place[mine] = len(found)
        found.append((sign, inside.min(axis=1), inside.max(axis=1)))
    return found, place


def matrices(nodes: np.ndarray, sign: float, scale: float) -> np.ndarray:
    """(M, 2, 2) from log |delta| and t (2, M)."""
    delta, t = sign * np.exp(nodes[0]), nodes[1]
    shared = np.stack([(1 - delta) * t, (1 - delta) * (1 - t)], axis=-1)
    return np.asarray(scale * (delta[:, None, None] * np.eye(2) + shared[:, None, :]))
