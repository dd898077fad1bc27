"""Posteriors of a batch, and sums over points of them: what both integrands share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from smisym.export.parts.given import DIRECTIONS, FIELDS, FREE, LATENTS, SHEETS, TOKENS, Array

ENTRIES = FIELDS * TOKENS
DIM = FREE * TOKENS + len(LATENTS)  # dimensions that are integrated over
FLOATS = SHEETS * ENTRIES * (2 + DIRECTIONS)  # that one point takes
LINE = np.linspace(-8, 8, 2049)[None] if DIM == 1 else np.empty((DIM, 0))  # maxima of 0.0012 and more are met there


class Batch(NamedTuple):
    """Posteriors of S samples: what was seen (S, K), and Z = omega + L zeta, V = L L^T, rows in ORDER."""

    seen: Array
    omega: Array
    L: Array
    inverse: Array


class Values(NamedTuple):
    """At points (n, C): log of the density on every sheet (B, n, C), whitened fields zeta (B, P T, n, C), of what the
    density is a Gaussian (B, R, n, C), and unit vectors along which it is integrated already (B, k, P T, n, C)."""

    log: Array
    zeta: Array
    residual: Array
    along: Array | None = None


class Average(NamedTuple):
    """Log of the integral (S,), mean and covariance of zeta, error of the mean, evaluations."""

    log_norm: Array
    mean: Array
    cov: Array | None
    error: Array
    nodes: Array


class Sums:
    """Sums of exp(log) (1, zeta, zeta zeta^T) over the points of each sample, with the largest log taken out."""

    def __init__(self, samples: int, second: bool) -> None:
        self.top, self.mass = np.full(samples, -np.inf), np.zeros(samples)
        self.first = np.zeros((samples, ENTRIES))
        self.second = np.zeros((samples, ENTRIES, ENTRIES)) if second else None

    def add(self, s: Array, values: Values, minus: Array | float = 0.0) -> Array:
        """Add points of samples s (n,), ``minus`` (n, C) taken off their logs.  Returns their largest logs (n,)."""
        log = values.log - minus
        top, old = np.asarray(log.max(axis=(0, 2))), self.top.copy()
        np.maximum.at(self.top, s, top)
        known = np.where(np.isfinite(self.top), self.top, 0.0)
        scale, weight = np.exp(old - known), np.exp(log - known[s][:, None])
        self.mass, self.first = self.mass * scale, self.first * scale[:, None]
        np.add.at(self.mass, s, weight.sum(axis=(0, 2)))
        np.add.at(self.first, s, np.einsum("bnc,bjnc->nj", weight, values.zeta))
        if self.second is not None:
            self.second *= scale[:, None, None]
            flat = values.zeta.transpose(2, 1, 0, 3).reshape(len(s), ENTRIES, -1)
            spread = weight.transpose(1, 0, 2).reshape(len(s), 1, -1)
            np.add.at(self.second, s, (flat * spread) @ flat.transpose(0, 2, 1))
            if values.along is not None:  # directions
                pairs = np.einsum("bnc,bkinc,bkjnc->nij", weight, values.along, values.along)  # directions
                np.add.at(self.second, s, pairs)  # directions
        return top

    def moments(self) -> tuple[Array, Array, Array | None]:
        """Log of the mass, mean and covariance."""
        with np.errstate(divide="ignore", invalid="ignore"):
            mean, log_mass = self.first / self.mass[:, None], self.top + np.log(self.mass)
            if self.second is None:
                return log_mass, mean, None
            return log_mass, mean, self.second / self.mass[:, None, None] - mean[:, :, None] * mean[:, None, :]


def cloud(seed: int) -> Array:
    """Points (d, 97) where a density may be: the origin, and random ones near, far and very near."""
    points = np.random.default_rng(seed).standard_normal((DIM, 96)) * np.where(np.arange(96) % 2, 1.2, 2.4)
    points[:, 72:] *= 8.0 ** -(1 + np.arange(24) % 4)
    return np.concatenate([np.zeros((DIM, 1)), points], axis=1)


def slices(count: int, floats: int) -> int:
    """In how many parts so many points, of so many floats each, are worked through."""
    return max(1, -(-count * floats // 2**21))
