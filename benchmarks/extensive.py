"""Attention of extensive rank: a point of state evolution and a step of GAMP, ours and the way of the published code.

    python benchmarks/extensive.py        prints a table; processor time, one core, softmax, T = 2, rank ratio 0.5

The published way is written here anew from the published formulas, with nothing of this package: damped iteration of q
with the cubed density integrated adaptively, and all sensing matrices of all samples held as one array.
"""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import integrate

import smisym
from smisym import Architecture, Attention

RHO, ALPHAS = 0.5, np.linspace(0.02, 0.18, 9)
MODEL = smisym.compile(Architecture(2, (Attention(rank_ratio=RHO),)))
# alpha of the steps of GAMP; largest array that the published way is given, in bytes.
ALPHA, MOST = 0.1, 2e9


def seconds(of: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """The least processor time of so many tries, and what came of the last."""
    taken = []
    for _ in range(times):
        began = time.process_time()
        found = of()
        taken.append(time.process_time() - began)
    return min(taken), found


# --- the published way ------------------------------------------------------------------------------


def density(x: float, noise: float) -> float:
    """Of eigenvalues of S in noise, from the roots of the cubic."""
    root = 1 / math.sqrt(RHO)
    g = np.roots([root * noise, -(root * x + noise), x + root - 1 / root, -1.0])
    return float(max(g.imag.max(), 0.0)) / math.pi


def left(noise: float) -> float:
    width = 2 * math.sqrt(noise)
    low, high = (math.sqrt(RHO) * (1 - s / math.sqrt(RHO)) ** 2 for s in (1, -1))
    low = 0.0 if RHO < 1 else low
    cubed = integrate.quad(lambda x: density(x, noise) ** 3, low - width, high + width, limit=200, epsabs=1e-7)[0]
    return noise - 4 * math.pi**2 / 3 * noise**2 * cubed


def iterated(alpha: float, tol: float = 1e-5, most: int = 2000) -> tuple[float, int]:
    """(error, iterations) of damped iteration from nothing."""
    mmse = 1.0
    for step in range(1, most + 1):
        new = 0.5 * mmse + 0.5 * left(mmse / (4 * alpha))
        if abs(new - mmse) < tol:
            return new, step
        mmse = new
    return mmse, most


def dense_step(dim: int) -> tuple[float, float] | None:
    """(seconds, bytes) of both products of a step with the array (N, 3, d, d) of sensing matrices; None where it is too
    large."""
    count = round(ALPHA * dim**2)
    size = 8.0 * count * 3 * dim**2
    if size > MOST:
        return None
    rng = np.random.default_rng(0)
    X, S = rng.standard_normal((count, 2, dim)), rng.standard_normal((dim, dim))
    sensing = np.stack([np.einsum("ni,nj->nij", X[:, a], X[:, b]) for a, b in ((0, 0), (0, 1), (1, 1))], axis=1)
    flat = sensing.reshape(3 * count, dim**2)
    g = rng.standard_normal(3 * count)
    return seconds(lambda: (flat @ S.ravel(), g @ flat))[0], size


# --- this package -----------------------------------------------------------------------------------


def step(dim: int) -> tuple[float, float, int]:
    """(seconds of a step, bytes that GAMP takes beside the tokens, bytes of the tokens)."""
    data = smisym.generate(MODEL, dim, ALPHA, np.random.default_rng(0), normalised=True)

    def run(steps: int) -> Any:
        return smisym.gamp(MODEL, data.X, data.y, W=data.W, damping=0.7, max_steps=steps, tol=1e-12)

    run(1)
    few, many = (seconds(lambda n=n: run(n), 1)[0] for n in (1, 9))  # type: ignore[misc]
    tracemalloc.start()
    run(2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (many - few) / 8, float(peak), data.X.nbytes


def main() -> None:
    smisym.curve(MODEL, [0.1])
    taken, points = seconds(lambda: smisym.curve(MODEL, list(ALPHAS)))
    print(f"state evolution, curve of {len(ALPHAS)} points: {1e3 * taken / len(ALPHAS):.1f} ms a point")
    print(f"state evolution, one point alone: {1e3 * seconds(lambda: smisym.state_evolution(MODEL, 0.1))[0]:.1f} ms")
    for alpha in (ALPHAS[4], ALPHAS[-1]):
        taken, (mmse, steps) = seconds(lambda a=alpha: iterated(a), 1)  # type: ignore[misc]
        own = next(1 - float(p.value.Q[0, 0]) for p in points if p.value.alpha == alpha)
        print(f"the published way, alpha = {alpha:.3f}: {taken:.2f} s, {steps} iterations, {mmse:.5f} (ours {own:.5f})")
    for dim in (100, 400):
        taken, peak, tokens = step(dim)
        text = f"GAMP, d = {dim}: {taken:.3f} s a step, {peak / 1e6:.0f} MB beside {tokens / 1e6:.0f} MB of tokens"
        dense = dense_step(dim)
        size = 24.0 * round(ALPHA * dim**2) * dim**2
        other = "not run" if dense is None else f"{dense[0]:.3f} s for its two products"
        print(f"{text}; the published way: {size / 1e9:.2f} GB of sensing matrices, {other}")


if __name__ == "__main__":
    main()
