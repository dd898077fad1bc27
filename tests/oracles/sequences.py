"""Sequence output of two tied layers of rank one on two tokens: its posterior by nested quadrature.

y = F_2 F_1 with F = c I + A.  The attention of the first layer is ((1 - a, a), (b, 1 - b)); with s = a + b, t = a - b
all entries of both layers are positive, and both a + b below one, in a polygon.  It is integrated piece by piece, split
wherever a side, or a line on which a layer has a = b, meets another one, each piece by double exponential quadrature in
t inside of such in s: singular ends and narrow wedges there cost nothing.
"""

from __future__ import annotations

import itertools

import numpy as np


def _rule(n: int, reach: float = 5.2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes on (0, 1), what they lack to one, and weights of tanh-sinh quadrature."""
    x, h = np.linspace(-reach, reach, n, retstep=True)
    inner = 0.5 * np.pi * np.sinh(x)
    below, above = 1 / (1 + np.exp(-2 * inner)), 1 / (1 + np.exp(2 * inner))
    return below, above, h * 0.5 * np.pi * np.cosh(x) / np.cosh(inner) ** 2 / 2


def two_layer_sequence(
    y: np.ndarray, omega: np.ndarray, V: np.ndarray, skip: float, nodes: int = 160
) -> tuple[float, np.ndarray, np.ndarray]:
    """(log p(y), mean (2, 2), second moments (4, 4)) of the fields, rows by layers; V diagonal (2,)."""
    S = skip + 1
    A, B = y[0, 1] / S, y[1, 0] / S
    lam = S * S - y[0, 1] - y[1, 0]
    edge = 1 - (lam / skip - skip) if skip > 0 else 0.0
    low = max(0.0, edge)
    high = min(1.0, A + B)
    cuts = [A, B, 2 * A, 2 * B, abs(A - B)]
    ends = [low, *sorted(cut for cut in cuts if low < cut < high), high]
    x, rest, w = _rule(nodes)
    parts = []
    for first, last in itertools.pairwise(ends):
        on, off = (last - first) * x, (last - first) * rest
        s, from_a, from_b, sigma = (_from(z, first, last, on, off) for z in (0.0, A, B, A + B))
        sigma = -sigma
        # What both sums of attention lack to one.
        lacks = ((1 - last) + off)[:, None]
        below = skip * ((first - edge) + on)[:, None] / (skip + lacks) if skip > 0 else lam / (skip + lacks)
        corners = _corners(s, sigma, from_a, from_b, A, B)
        for left, right in itertools.pairwise(corners):
            size = _size(left[:4], right[:4])[:, None]
            away = [0.5 * (p[:, None] + size * x) for p in (left[0], left[3])]
            away = [away[0], *[0.5 * (p[:, None] + size * rest) for p in (right[1], right[2])], away[1]]
            # t and t - (A - B), each from the nearer end.
            apart = [
                np.where((np.abs(q) < np.abs(p))[:, None], q[:, None] - size * rest, p[:, None] + size * x)
                for p, q in zip(left[4:], right[4:], strict=True)
            ]
            weight = (last - first) * w[:, None] * size * w
            parts.append(_sums(away, apart, (lacks, below), weight, (omega, V, skip)))
    top = max(part[0] for part in parts)
    total = sum(np.exp(part[0] - top) * part[1] for part in parts)
    return top + float(np.log(total[0])), (total[1:5] / total[0]).reshape(2, 2), total[5:].reshape(4, 4) / total[0]


def _from(z: float, first: float, last: float, on: np.ndarray, off: np.ndarray) -> np.ndarray:
    """s - z, with all its digits where z is an end of the piece."""
    return (first - z) + on if abs(first - z) < abs(last - z) else (last - z) - off


def _corners(
    s: np.ndarray, sigma: np.ndarray, from_a: np.ndarray, from_b: np.ndarray, A: float, B: float
) -> list[tuple[np.ndarray, ...]]:
    """Ends of the pieces at each s, in order: twice a, b, A - a, B - b, then t and t - (A - B).

    sigma = A + B - s, from_a = s - A, from_b = s - B.
    """
    zero = np.zeros_like(s)
    a, d = np.maximum(0, 2 * from_b), np.maximum(0, -2 * from_b)
    left = (a, 2 * s - a, 2 * sigma - d, d, a - s, d - sigma)
    b, c = np.maximum(0, 2 * from_a), np.maximum(0, -2 * from_a)
    right = (2 * s - b, b, c, 2 * sigma - c, s - b, sigma - c)
    one = (s, s, 2 * A - s, 2 * B - s, zero, zero - (A - B))
    two = (s + (A - B), s - (A - B), sigma, sigma, zero + (A - B), zero)
    inner = [one, two] if A >= B else [two, one]
    found = [left]
    for corner in inner:
        low, high = corner[4] <= left[4], corner[4] >= right[4]
        found.append(
            tuple(np.where(low, p, np.where(high, q, own)) for p, q, own in zip(left, right, corner, strict=True))
        )
    return [*found, right]


def _size(left: tuple[np.ndarray, ...], right: tuple[np.ndarray, ...]) -> np.ndarray:
    """Length of a piece in t, from the distances that are smallest."""
    signs = (1, -1, -1, 1)
    gaps = np.stack([sign * (q - p) for sign, p, q in zip(signs, left, right, strict=True)])
    largest = np.stack([np.maximum(np.abs(p), np.abs(q)) for p, q in zip(left, right, strict=True)])
    return np.take_along_axis(gaps, largest.argmin(axis=0)[None], axis=0)[0]


def _sums(
    away: list[np.ndarray],
    apart: list[np.ndarray],
    lacks: tuple[np.ndarray, np.ndarray],
    weight: np.ndarray,
    given: tuple,
) -> tuple[float, np.ndarray]:
    """(log of a scale, sums of 1, fields, products of fields) over nodes, all four signs."""
    omega, V, skip = given
    S = skip + 1
    with np.errstate(all="ignore"):
        other = skip + lacks[0]
        a, b, c, d = away[0], away[1], S * away[2] / other, S * away[3] / other
        log = np.log(0.5 * weight) - 2 * np.log(other) - np.log(S * other)
        fields = []
        for p, q, gone, rest in ((a, b, apart[0], lacks[0]), (c, d, -S * apart[1] / other, lacks[1])):
            gap = np.sqrt(np.logaddexp(0.0, np.log(rest) - np.log(p) - np.log(q)))
            one, two = _log_odds(p, q + rest, gone - rest), _log_odds(q, p + rest, -gone - rest)
            fields.append((-one / gap, two / gap))
            log = log - np.log(p) - np.log(q + rest) - np.log(q) - np.log(p + rest) - np.log(2 * gap**2)
        v = fields[1]
        back = (((S - b) * v[0] - a * v[1]) / (S * other), ((S - a) * v[1] - b * v[0]) / (S * other))
        flips = [(i, j) for i in (1, -1) for j in (1, -1)]
        Z = [np.stack([i * fields[0][0], i * fields[0][1], j * back[0], j * back[1]]) for i, j in flips]
        var = np.repeat(V, 2)[:, None, None]
        logs = [log - 0.5 * ((z - omega.reshape(4, 1, 1)) ** 2 / var).sum(axis=0) for z in Z]
    logs = [np.where(np.isfinite(one), one, -np.inf) for one in logs]
    top = max(float(one.max()) for one in logs)
    top = top if np.isfinite(top) else 0.0
    out = np.zeros(21)
    for z, one in zip(Z, logs, strict=True):
        f, z = np.exp(one - top).ravel(), np.nan_to_num(z.reshape(4, -1))
        out += np.concatenate([[f.sum()], z @ f, ((z * f) @ z.T).ravel()])
    return top, out


def _log_odds(p: np.ndarray, q: np.ndarray, difference: np.ndarray) -> np.ndarray:
    """log p / q where p - q is known better than p and q."""
    return np.where(np.abs(difference) < 0.5 * q, np.log1p(difference / q), np.log(p) - np.log(q))
