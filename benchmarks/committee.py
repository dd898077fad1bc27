"""The committee through its statistic: error of the central limit against the exact channel, and cost, as n grows.

    python benchmarks/committee.py errors|cost

Exact: averages over fields drawn from the cavity with n terms on two tokens, an implementation of its own.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

import smisym
from smisym import Architecture, Attention, Model

Moments = tuple[float, np.ndarray, np.ndarray]


def committee(terms: int, statistic: str) -> Model:
    """n layers with readouts 1/n that act on the original tokens, and a last layer."""
    inner = [Attention(readout=1 / terms)] * terms
    return smisym.compile(Architecture(2, (*inner, Attention()), limit="first_order", statistic=statistic))


def exact(omega: np.ndarray, v: np.ndarray, u: np.ndarray, points: int, rng: np.random.Generator) -> Moments:
    """(log-partition, g (P, 2), diagonal blocks of dg (P, 2, 2)) for the scores +-u; omega (P, 2), v (P,)."""
    n = len(omega) - 1
    z = rng.standard_normal((n, 2, points))
    if not omega[:n].any():
        z = np.concatenate([z, -z], axis=2)
    h = omega[:n, :, None] + np.sqrt(v[:n])[:, None, None] * z
    with np.errstate(over="ignore"):
        a = (1 / (1 + np.exp(h[:, 0] * (h[:, 0] - h[:, 1])))).mean(axis=0)
        b = (1 / (1 + np.exp(h[:, 1] * (h[:, 1] - h[:, 0])))).mean(axis=0)
    det = (2 - a) * (2 - b) - a * b
    x = np.array([(2 - b) * u[0] - a * u[1], (2 - a) * u[1] - b * u[0]]) / det
    both = [np.exp(-0.5 * ((s * x - omega[n][:, None]) ** 2).sum(axis=0) / v[n]) / det for s in (1, -1)]
    w = both[0] + both[1]
    g, dg = np.empty_like(omega), np.empty((n + 1, 2, 2))
    g[:n] = (z * w).mean(axis=2) / w.mean() / np.sqrt(v[:n])[:, None]
    g[n] = (((both[0] - both[1]) * x).mean(axis=1) / w.mean() - omega[n]) / v[n]
    second = np.einsum("ptn,psn,n->pts", z, z, w, optimize=True) / w.sum()
    dg[:n] = (second - np.eye(2)) / v[:n, None, None] - g[:n, :, None] * g[:n, None]
    mean = omega[n] + v[n] * g[n]
    dg[n] = ((x[:, None] * x[None] * w).mean(axis=2) / w.mean() - np.outer(mean, mean)) / v[n] ** 2 - np.eye(2) / v[n]
    return float(np.log(w.mean() / (2 * np.pi * v[n]))), g, dg


def draws(model: Model, q: np.ndarray, samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(omega, Z) at a diagonal overlap."""
    omega = np.sqrt(q)[:, None] * rng.standard_normal((samples, len(q), model.tokens))
    return omega, omega + np.sqrt(1 - q)[:, None] * rng.standard_normal(omega.shape)


def errors(samples: int = 300, points: int = 32768) -> None:
    print(
        "| Q | n | log Z, rms | E of the committee | E of the last layer | rate of the committee | of the last layer |"
    )
    print("|---|---|---|---|---|---|---|")
    for inner, last in ((0.0, 0.0), (0.0, 0.9), (0.0, 0.99), (0.3, 0.9), (0.6, 0.99)):
        for n in (2, 4, 8, 16, 32):
            rng, model = np.random.default_rng(n), committee(n, "gaussian")
            q = np.array([inner] * n + [last])
            omega, Z = draws(model, q, samples, rng)
            u = model.channel.posterior.read(model.observe(Z)).values
            runs = [[exact(o, 1 - q, y, points, rng) for o, y in zip(omega, u, strict=True)] for _ in range(2)]
            found = model.channel.moments_at(u, omega, np.diag(1 - q), cov=True, rtol=1e-3)
            log_z = np.log(np.mean([np.exp([r[0] for r in run]) for run in runs], axis=0))
            cells = [f"{np.sqrt(np.mean((found.log_partition - log_z) ** 2)):.1e}"]
            for k, ours in ((1, found.g), (2, np.einsum("sptpu->sptu", np.asarray(found.dg)))):
                one, two = (np.array([r[k] for r in run]) for run in runs)
                cells += [relative(one[:, part], two[:, part], ours[:, part]) for part in (slice(n), slice(n, None))]
            print(f"| ({inner:g}, {last:g}) | {n} | {' | '.join(cells)} |", flush=True)


def relative(one: np.ndarray, two: np.ndarray, ours: np.ndarray) -> str:
    """Relative error of a mean square with its deviation; the product of two runs has no bias from their noise."""
    axes = tuple(range(1, ours.ndim))
    truth, found = (one * two).sum(axis=axes), (ours * ours).sum(axis=axes)
    if found.mean() < 1e-20:
        return "0 by symmetry"
    spread = (found - truth).std() / np.sqrt(len(truth))
    return f"{100 * (found.mean() / truth.mean() - 1):+.1f} ± {100 * spread / truth.mean():.1f} %"


def cost() -> None:
    print("| layers | statistic | free dimensions | ms a sample | result |\n|---|---|---|---|---|")
    for n, statistic, samples in (
        (4, "exact", 64), (4, "gaussian", 512), (19, "exact", 16), (19, "gaussian", 512), (99, "gaussian", 128),
    ):  # fmt: skip
        model, q = committee(n, statistic), np.array([0.3] * n + [0.6])
        omega, Z = draws(model, q, samples, np.random.default_rng(0))
        y = model.observe(Z)
        model.channel.moments(y[:4], omega[:4], np.diag(1 - q), cov=True, rtol=1e-2)
        start = time.perf_counter()
        moments = model.channel.moments(y, omega, np.diag(1 - q), cov=True, rtol=1e-2)
        ms = 1e3 * (time.perf_counter() - start) / samples
        free = model.channel.free_dimensions
        print(f"| {n + 1} | {statistic} | {free} | {ms:.2g} | {moments.result.value} |", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        {"errors": errors, "cost": cost}[sys.argv[1] if len(sys.argv) > 1 else "errors"]()
