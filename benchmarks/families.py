"""Cost and error of posterior moments for one member of each family: milliseconds a sample, and the channel's own
error.

    python benchmarks/families.py

Draws at an overlap of one half; what is asked for is 1e-2 of a posterior standard deviation, as the overlap map asks.
"""

from __future__ import annotations

import time

import numpy as np
from threadpoolctl import threadpool_limits

import smisym
from smisym import SMI, Architecture, Attention

A = Attention
CASES: list[tuple[str, Architecture | SMI, int]] = [
    ("tied, rank 1, T = 3", Architecture(3, (A(),)), 20000),
    ("tied, rank 2, T = 2", Architecture(2, (A(rank=2),)), 4000),
    ("tied, rank 2, T = 3", Architecture(3, (A(rank=2),)), 4000),
    ("tied, rank 3, T = 2", Architecture(2, (A(rank=3),)), 4000),
    ("tied, rank 3, T = 3", Architecture(3, (A(rank=3),)), 4000),
    ("tied, rank 3, T = 5", Architecture(5, (A(rank=3),)), 4000),
    ("tied, rank 3, T = 8", Architecture(8, (A(rank=3),)), 4000),
    ("tied, rank 4, T = 2", Architecture(2, (A(rank=4),)), 4000),
    ("tied, rank 4, T = 4", Architecture(4, (A(rank=4),)), 4000),
    ("tied, rank 4, T = 8", Architecture(8, (A(rank=4),)), 4000),
    ("untied, rank 1, T = 2", Architecture(2, (A(tied=False),)), 4000),
    ("untied, rank 1, T = 4", Architecture(4, (A(tied=False),)), 4000),
    ("untied, rank 2, T = 2", Architecture(2, (A(tied=False, rank=2),)), 24),
    ("untied, rank 2, T = 3", Architecture(3, (A(tied=False, rank=2),)), 24),
    ("two heads, stacked, T = 2", Architecture(2, (A(heads=2),)), 20000),
    ("two untied heads, stacked, T = 2", Architecture(2, (A(heads=2, tied=False),)), 400),
    ("two split heads, two layers, T = 2", Architecture(2, (A(heads=2), A(heads=2)), head_layout="split"), 48),
    ("sequence output, T = 3", Architecture(3, (A(),), output="sequence"), 20000),
    ("sequence output, two layers, T = 2", Architecture(2, (A(), A()), output="sequence"), 100),
    ("sequence output, two layers, T = 3", Architecture(3, (A(), A()), output="sequence"), 200),
    ("sequence output, two layers, T = 4", Architecture(4, (A(), A()), output="sequence"), 200),
    ("two heads, summed, T = 2", Architecture(2, (A(heads=2, readout=(1.0, 0.5)),), combine="sum"), 8),
    ("two heads, summed, T = 3", Architecture(3, (A(heads=2, readout=(1.0, 0.5)),), combine="sum"), 200),
    ("causal mask, T = 2", Architecture(2, (A(mask="causal"),)), 1000),
    ("two layers, T = 2", Architecture(2, (A(), A())), 4000),
    ("two layers, rank 1 then 2, T = 2", Architecture(2, (A(), A(rank=2))), 100),
    ("two layers, tied then untied, T = 2", Architecture(2, (A(), A(tied=False))), 100),
    ("noise 0.05, T = 2", Architecture(2, (A(),), noise=0.05), 1000),
    ("noise 0.0001, T = 2", Architecture(2, (A(),), noise=0.0001), 1000),
    ("noise 0.05, two layers, T = 2", Architecture(2, (A(), A()), noise=0.05), 48),
    ("hardmax, T = 2", Architecture(2, (A(activation="hardmax"),)), 48),
    (
        "committee of 20, through its sum, T = 2",
        Architecture(2, (*[A(readout=0.05)] * 20, A()), limit="first_order", statistic="gaussian"),
        1000,
    ),
    ("z1 z2", SMI("z1*z2", 2), 4000),
    ("z1 + tanh(z1 z2) + z2^2", SMI("z1 + tanh(z1*z2) + z2**2", 2), 40),
    ("sign(z1 z2)", SMI("sign(z1*z2)", 2), 1000),
    ("z1^2 + sign(z1 z2 z3)", SMI("z1**2 + sign(z1*z2*z3)", 3), 400),
]


def measure(declared: Architecture | SMI, count: int) -> tuple[int, float, float, float, str]:
    """(free dimensions, ms a sample, median and 99 % of the estimated error, result)."""
    model = smisym.compile(declared)
    rng = np.random.default_rng(0)
    shape = (count, model.fields, model.tokens)
    omega = np.sqrt(0.5) * rng.standard_normal(shape)
    observed = model.channel.sample(omega + np.sqrt(0.5) * rng.standard_normal(shape), rng)
    V = 0.5 * np.eye(model.fields)
    # What is compiled once, and kept, is none of it.
    model.channel.moments(observed[:2], omega[:2], V, cov=True, rtol=1e-2)
    start = time.perf_counter()
    moments = model.channel.moments(observed, omega, V, cov=True, rtol=1e-2)
    spent = 1e3 * (time.perf_counter() - start) / count
    low, high = np.quantile(moments.error, [0.5, 0.99])
    return model.channel.free_dimensions, spent, float(low), float(high), moments.result.name


def main() -> None:
    print("| family | free | ms a sample | error, median | error, 99 % | result |")
    print("|---|---|---|---|---|---|")
    with threadpool_limits(1):
        for name, declared, count in CASES:
            free, spent, low, high, result = measure(declared, count)
            print(f"| {name} | {free} | {spent:.3g} | {low:.1e} | {high:.1e} | {result} |", flush=True)


if __name__ == "__main__":
    main()
