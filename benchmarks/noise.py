"""Weak noise in coordinates of the image found numerically, against all fields: cost, estimated errors, and the gap.

    python benchmarks/noise.py

Draws at an overlap of 0.3; 1e-2 of a posterior standard deviation is asked for.
"""

from __future__ import annotations

import time

import numpy as np
from threadpoolctl import threadpool_limits

import smisym
from smisym import Architecture, Attention
from smisym.model.channel import Channel, Moments
from smisym.posterior.all_fields import OnAllFields

A = Attention
COUNT, OVERLAP = 16, 0.3
CASES: list[tuple[str, Architecture]] = [
    ("untied, rank 1, T = 3", Architecture(3, (A(tied=False),))),
    ("untied, rank 1, linear, T = 2", Architecture(2, (A(tied=False, activation="linear"),))),
    ("untied, rank 2, T = 2", Architecture(2, (A(tied=False, rank=2),))),
    ("tied, rank 2, T = 3", Architecture(3, (A(rank=2),))),
    ("tied, rank 3, T = 2", Architecture(2, (A(rank=3),))),
    ("sequence output, two layers, T = 2", Architecture(2, (A(), A()), output="sequence")),
    ("tied, then untied of rank 2, T = 2", Architecture(2, (A(), A(tied=False, rank=2)))),
]


def noisy(declared: Architecture, noise: float) -> Architecture:
    return Architecture(declared.tokens, declared.layers, output=declared.output, noise=noise)


def measure(declared: Architecture) -> list[tuple[float, Moments, float, Moments, float, float]]:
    """(noise, moments and ms around the level set, the same over all fields, the median gap of the means)."""
    rows = []
    for noise in (1e-3, 1e-4, 1e-5):
        channel = smisym.compile(noisy(declared, noise)).channel
        rng, shape = np.random.default_rng(0), (COUNT, channel.fields, channel.tokens)
        omega = np.sqrt(OVERLAP) * rng.standard_normal(shape)
        y = channel.sample(omega + np.sqrt(1 - OVERLAP) * rng.standard_normal(shape), rng)
        V = (1 - OVERLAP) * np.eye(channel.fields)
        found = []
        for used in (channel, Channel(channel.link, OnAllFields(channel.link, noise), noise)):
            start = time.perf_counter()
            moments = used.moments(y, omega, V, cov=True, rtol=1e-2)
            found.append((1e3 * (time.perf_counter() - start) / COUNT, moments))
        (ms, around), (other, everywhere) = found
        gap = np.sqrt(((around.mean - everywhere.mean) ** 2).sum(axis=(1, 2)) / (1 - OVERLAP))
        rows.append((noise, around, ms, everywhere, other, float(np.median(gap))))
    return rows


def main() -> None:
    print("| case | noise | ms a sample | error, 50 / 90 % | over all fields: ms | its error, 50 / 90 % | gap, 50 % |")
    print("|---|---|---|---|---|---|---|")
    with threadpool_limits(1):
        for name, declared in CASES:
            for noise, around, ms, everywhere, other, gap in measure(declared):
                own, its = (
                    [f"{np.quantile(m.error, q, method='higher'):.1e}" for q in (0.5, 0.9)]
                    for m in (around, everywhere)
                )
                print(
                    f"| {name} | {noise:.0e} | {ms:.0f} | {own[0]} / {own[1]} | {other:.0f} | {its[0]} / {its[1]} "
                    f"| {gap:.1e} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
