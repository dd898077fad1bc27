"""What holds a chart against nothing but the link: the co-area formula, point by point on one level set.

The measure that a chart puts on {Z : f(Z) = y} must be the surface measure over sqrt(det J J^T), J = df/dZ, up to a
factor that depends on y alone: log_weight - log vol(dZ/d(coordinates)) + log sqrt(pdet J J^T) is the same everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

POINTS = 6
SPREAD = 0.2  # of the coordinates: small, so that the smoothed turn of an angle counts every point once


def chart_errors(model: Any, seed: int = 0) -> tuple[float, float]:
    """(largest change of the output on the level set of one random output, spread of the log-measure)."""
    link, chart = model.link, model.level_set
    P, T = link.fields, link.tokens
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((1, P, T))
    u = chart.coordinates(link.observe(Z)).values
    free = len(chart.free_rows) * T
    x = SPREAD * rng.standard_normal((free + len(chart.latents), POINTS))
    points, sheets = _fields(chart, x, u, P, T)
    seen = np.isfinite(_log_weights(sheets, chart)).reshape(-1) & np.isfinite(
        points.reshape(len(points) * POINTS, -1)
    ).all(axis=1)
    flat = points.reshape(-1, P, T)[seen]
    change = np.abs(link.raw(flat) - link.raw(Z)).max() if len(flat) else np.inf
    # Sheets that share points have weights that only add up to those of the surface.
    return float(change), 0.0 if chart.shared else _spread(model, x, u, points, sheets)


def _fields(chart: Any, x: np.ndarray, u: np.ndarray, P: int, T: int) -> tuple[np.ndarray, Any]:
    """Fields (branches, n, P, T) at coordinates x, and the sheets they come from."""
    free = len(chart.free_rows) * T
    sheets = chart.solve(
        list(x[:free]), [_latent(k, v) for k, v in zip(chart.latents, x[free:], strict=True)], list(u.T)
    )
    out = np.empty((chart.branches, x.shape[1], P, T))
    for b in range(chart.branches):
        for i, row in enumerate(chart.free_rows):
            out[b, :, row] = x[i * T : (i + 1) * T].T
        for i, row in enumerate(chart.solved_rows):
            for t in range(T):
                out[b, :, row, t] = sheets.solved[b][i * T + t]
    return out, sheets


def _latent(kind: str, value: np.ndarray) -> np.ndarray:
    return {"line": np.sinh, "scale": np.exp, "flat": np.asarray}[kind](value)


def _log_weights(sheets: Any, chart: Any) -> np.ndarray:
    weights = [np.broadcast_to(w, (POINTS,)) for w in sheets.log_weight]
    return np.array(weights * (chart.branches // len(weights)))


def _spread(model: Any, x: np.ndarray, u: np.ndarray, points: np.ndarray, sheets: Any) -> float:
    chart, link = model.level_set, model.link
    P, T = link.fields, link.tokens
    free = len(chart.free_rows) * T
    step = 1e-5
    tangents = []
    for i in range(len(x)):
        ahead, behind = x.copy(), x.copy()
        ahead[i] += step
        behind[i] -= step
        tangents.append((_fields(chart, ahead, u, P, T)[0] - _fields(chart, behind, u, P, T)[0]) / (2 * step))
    weights = _log_weights(sheets, chart).copy()
    for kind, value in zip(chart.latents, x[free:], strict=True):
        weights += {"line": np.log(np.cosh(value)), "scale": value, "flat": 0 * value}[kind]
    values = []
    for b in range(chart.branches):
        for j in range(POINTS):
            if np.isfinite(weights[b, j]) and np.isfinite(points[b, j]).all():
                frame = [t[b, j].ravel() for t in tangents]
                frame += [_direction(d, chart, P, T, j) for d in (sheets.directions[b] if chart.directions else [])]
                normal = np.linalg.svd(_jacobian(link, points[b, j]), compute_uv=False)[: chart.dimension]
                assert len(frame) == P * T - chart.dimension, "coordinates and outputs do not add up to the fields"
                volume = np.log(np.linalg.svd(np.array(frame), compute_uv=False)).sum() if frame else 0.0
                values.append(weights[b, j] - volume + np.log(normal).sum())
    return float(np.ptp(values))


def _direction(vector: Any, chart: Any, P: int, T: int, j: int) -> np.ndarray:
    out = np.zeros((P, T))
    for i, row in enumerate(chart.solved_rows):
        for t in range(T):
            out[row, t] = np.broadcast_to(vector[i * T + t], (POINTS,))[j]
    return out.ravel()


def _jacobian(link: Any, Z: np.ndarray) -> np.ndarray:
    """df/dZ (n, P T) of the exact output by complex steps."""
    columns = []
    for p in range(link.fields):
        for t in range(link.tokens):
            shifted = Z[None].astype(complex)
            shifted[0, p, t] += 1e-30j
            columns.append(link.raw(shifted).imag.ravel() / 1e-30)
    return np.stack(columns, axis=1)
