"""Integrals of many dimensions: quasi-random points around the maxima, with weights."""

from __future__ import annotations

import math

import numpy as np

from smisym.export.parts.climbing import maxima
from smisym.export.parts.given import Array
from smisym.export.parts.on_level_set import evaluate
from smisym.export.parts.posterior import DIM, ENTRIES, FLOATS, Average, Batch, Sums, slices

REPLICATES, POINTS, COMPONENTS, FREEDOM = 8, 256, 12, 8
EVERYWHERE, WIDEST = 0.15, 1.1  # share of points that know nothing of the maxima, and how wide they lie


def integral(batch: Batch, rtol: float, second: bool, seed: int, max_nodes: int) -> Average:
    """More points until the error is what is asked for.

    The error is one standard error over independent shifts of the points, or what the point of largest weight does
    to the mean, if that is more; it knows nothing of a maximum that no start led to.
    """
    S, R = len(batch.omega), REPLICATES
    proposal, rng = Mixture(batch, seed), np.random.default_rng(seed)
    shifts = rng.random((R, 1, 1 + DIM + DIM % 2 + FREEDOM // 2))
    sums, pooled = Sums(S * R, False), Sums(S, second)
    heaviest, there = np.full(S, -np.inf), np.full((S, ENTRIES), np.nan)
    error, left, size = np.full(S, np.inf), np.arange(S), 0
    nodes = np.zeros(S, dtype=int)
    while left.size:
        new = max(POINTS, size)  # twice as many in all
        for r in range(R):
            for first in range(size, size + new, POINTS):
                uniforms = quasi_random(np.arange(first, first + POINTS), shifts[r])
                for s in np.array_split(left, slices(left.size, FLOATS * POINTS)):
                    x, log_density = proposal.drawn(s, uniforms)
                    values = evaluate(batch, s, x)
                    sums.add(s * R + r, values, log_density)
                    top = pooled.add(s, values, log_density)
                    for k in np.flatnonzero(top > heaviest[s]):
                        at = np.unravel_index(np.argmax(values.log[:, k] - log_density[k]), values.log[:, k].shape)
                        heaviest[s[k]], there[s[k]] = top[k], values.zeta[at[0], :, k, at[1]]
        size += new
        nodes[left] += R * new
        log_mass, mean, _ = pooled.moments()
        apart = sums.moments()[1].reshape(S, R, ENTRIES) - mean[:, None]
        error = np.sqrt((apart**2).sum(axis=(1, 2)) / (R * (R - 1)))
        share = np.exp(heaviest - log_mass) * np.sqrt(((there - mean) ** 2).sum(axis=1))
        error = np.nan_to_num(np.maximum(error, share), nan=np.inf)
        left = left[(error[left] > rtol) & (2 * nodes[left] <= max_nodes)]
    log_mass, mean, cov = pooled.moments()
    return Average(log_mass - np.log(nodes), mean, cov, error, nodes)


def quasi_random(k: Array, shift: Array) -> Array:
    """Points (N, n) of Richtmyer's sequence: multiples of roots of primes, shifted at random, modulo one."""
    primes = [p for p in range(2, 400) if all(p % q for q in range(2, math.isqrt(p) + 1))][: shift.shape[1]]
    return np.clip((k[:, None] * np.sqrt(primes) + shift) % 1.0, 1e-12, 1 - 1e-12)


class Mixture:
    """Student's t about each maximum, as wide as the Gaussian there, and one about the origin: centre (S, C, d),
    factors of the covariances and their inverses (S, C, d, d), shares (S, C)."""

    def __init__(self, batch: Batch, seed: int) -> None:
        S, C = len(batch.omega), COMPONENTS + 1
        self.centre, self.share = np.zeros((S, C, DIM)), np.zeros((S, C))
        self.inverse = np.broadcast_to(np.eye(DIM) / WIDEST, (S, C, DIM, DIM)).copy()
        self.share[:, 0] = 1.0
        tops = maxima(batch, seed)
        for s in np.unique(tops.s):
            own = np.flatnonzero(tops.s == s)
            own = own[np.argsort(-tops.log[own], kind="stable")]
            kept: list[int] = []
            for k in own:
                gaps = [tops.x[k] - tops.x[j] for j in kept]
                if len(kept) < COMPONENTS and all(
                    g @ tops.precision[j] @ g > 0.1 for g, j in zip(gaps, kept, strict=True)
                ):
                    kept.append(int(k))
            # No narrower than the Gaussian, and no wider than the fields are before outputs are seen.
            values, vectors = np.linalg.eigh(tops.precision[kept])
            values = np.maximum(values, 1 / WIDEST**2)
            size = tops.log[kept] - 0.5 * np.log(values).sum(axis=1)
            size = np.exp(size - size.max())
            C = 1 + len(kept)
            self.centre[s, 1:C] = tops.x[kept]
            self.inverse[s, 1:C] = np.sqrt(values)[:, :, None] * vectors.transpose(0, 2, 1)
            self.share[s, 0] = EVERYWHERE
            self.share[s, 1:C] = (1 - EVERYWHERE) * (0.5 * size / size.sum() + 0.5 / len(kept))
        self.factor = np.linalg.inv(self.inverse)
        self.log_det = np.linalg.slogdet(self.inverse)[1]

    def drawn(self, s: Array, uniforms: Array) -> tuple[Array, Array]:
        """Points x (d, n, N) for samples s (n,) from uniforms (N, k), and the log of their density (n, N)."""
        component = (uniforms[:, 0] > np.cumsum(self.share[s], axis=1)[:, :-1, None]).sum(axis=1)
        pairs = uniforms[:, 1 : 1 + DIM + DIM % 2].reshape(len(uniforms), -1, 2)
        radius, angle = np.sqrt(-2 * np.log(pairs[..., 0])), 2 * np.pi * pairs[..., 1]
        normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[:, :DIM]
        chi_square = -2 * np.log(uniforms[:, -(FREEDOM // 2) :]).sum(axis=1)
        normal = normal * np.sqrt(FREEDOM / chi_square)[:, None]
        take = s[:, None]
        x = self.centre[take, component] + (self.factor[take, component] @ normal[None, :, :, None])[..., 0]
        total = np.full(x.shape[:2], -np.inf)
        for c in np.flatnonzero(self.share[s].any(axis=0)):
            z = (x - self.centre[s, c][:, None]) @ self.inverse[s, c].transpose(0, 2, 1)
            with np.errstate(divide="ignore"):
                constant = self.log_det[s, c] + np.log(self.share[s, c])
            own = -0.5 * (FREEDOM + DIM) * np.log1p((z * z).sum(axis=2) / FREEDOM) + constant[:, None]
            total = np.logaddexp(total, own)
        log_gamma = math.lgamma(0.5 * (FREEDOM + DIM)) - math.lgamma(0.5 * FREEDOM)
        return x.transpose(2, 0, 1), total + log_gamma - 0.5 * DIM * math.log(FREEDOM * math.pi)
