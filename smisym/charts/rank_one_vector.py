"""The vector u of scores u u^T, up to its sign, from what one head of rank one shows of them."""

from __future__ import annotations

import numpy as np

from smisym.charts.base import Coordinates, Fault, faults
from smisym.charts.reading import vector_of_gram, vector_of_ratios


def from_log_ratios(D: np.ndarray, rounding: np.ndarray) -> Coordinates:
    """+-u from D_ij = u_i (u_j - u_i) (S, T, T); rounding (S,): the absolute error that D may carry."""
    u, square = vector_of_ratios(D)
    outside = _gap_faults(square, rounding[:, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        error = rounding / np.maximum(square.max(axis=1), 0.0)
    error = np.where(np.isfinite(error), error, np.inf)
    return Coordinates(u, error, outside + _consistency_faults(u, D, rounding, error))


def from_gram(gram: np.ndarray, rounding: np.ndarray) -> Coordinates:
    """+-u from u u^T (S, T, T), which rounding may have moved by so much (S,)."""
    u, diagonal = vector_of_gram(gram)
    largest = diagonal.max(axis=1)
    outside = faults(
        largest < -rounding,
        lambda s: f"diagonal {diagonal[s]}",
        "a Gram matrix: diagonal entries >= 0",
        "check that y is the linear attention matrix of tied weights",
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(u[:, :, None] * u[:, None, :] - gram).max(axis=(1, 2))
        error = np.where(largest > 0, 0.5 * rounding / largest, np.inf)
    outside += faults(
        ~(off <= 8 * gram.shape[1] * rounding) & (largest > 0),
        lambda s: f"a matrix that misses every u u^T by {off[s]:.3g}",
        "y = beta u u^T, rank one",
        "check that y comes from this architecture; with noise, declare the noise",
    )
    return Coordinates(u, error, outside)


def _gap_faults(square: np.ndarray, rounding: np.ndarray) -> tuple[Fault, ...]:
    return faults(
        np.asarray((square < -4 * rounding).any(axis=1)),
        lambda s: f"y_ij y_ji / (y_ii y_jj) = {np.exp(-square[s].min()):.6g} for some pair of tokens",
        "at most 1 (for two tokens: y_12 + y_21 <= 1), as scores are a Gram matrix",
        "check that y is the attention matrix of tied weights, rows summing to one, without noise",
    )


def _consistency_faults(u: np.ndarray, D: np.ndarray, rounding: np.ndarray, error: np.ndarray) -> tuple[Fault, ...]:
    """With three tokens or more y has T(T-1) entries and only T numbers in them: the rest must agree."""
    with np.errstate(invalid="ignore", over="ignore"):  # where an output is no output, its values mean nothing
        rebuilt = u[:, :, None] * (u[:, None, :] - u[:, :, None])
        scale = 1 + np.abs(D).max(axis=(1, 2))
        tolerance = np.maximum(1e3 * error, 1e-10) * scale + 1e3 * rounding
        off = np.abs(rebuilt - D).max(axis=(1, 2))
        bad = (off > tolerance) & np.isfinite(error) & np.isfinite(off)
    return faults(
        bad,
        lambda s: f"log-ratios that miss every rank-one Gram matrix by {off[s]:.3g}",
        "the attention matrix of tied rank-one weights, noiseless",
        "check that y comes from this architecture; with noise, declare the noise",
    )
