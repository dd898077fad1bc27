"""Speed and accuracy of the posterior moments: one core, Sobol samples, against a far smaller tolerance.

    OMP_NUM_THREADS=1 python benchmarks/moments.py [case ...]

Each case reports milliseconds a sample (best of three, process time) and the quantiles of the true error of the mean in
the norm of V^{-1}.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

import smisym

A = smisym.Attention
# name: (layers, tokens, diagonal of Q, tolerance asked for, tolerance of the reference, samples)
CASES: dict[str, tuple[tuple[smisym.Attention, ...], int, tuple[float, ...], float, float, int]] = {
    "L2-T2": ((A(),) * 2, 2, (0.3, 0.9), 2e-5, 1e-10, 4096),
    "L2-T2-c0.7": ((A(skip=0.7),) * 2, 2, (0.3, 0.9), 3e-5, 1e-10, 4096),
    "L2-T2-loose": ((A(),) * 2, 2, (0.3, 0.9), 1e-2, 1e-10, 4096),
    "L2-T3": ((A(),) * 2, 3, (0.3, 0.9), 1e-2, 1e-5, 256),
    "L3-T2": ((A(),) * 3, 2, (0.3, 0.3, 0.9), 1e-2, 3e-5, 256),
    "L3-T2-start": ((A(),) * 3, 2, (0.0, 0.0, 0.0), 1e-2, 3e-5, 256),
    "L3-T2-end": ((A(),) * 3, 2, (0.9, 0.9, 0.99), 1e-2, 3e-5, 256),
    "L3-T2-c0.3": ((A(skip=0.3),) * 3, 2, (0.3, 0.3, 0.9), 1e-2, 3e-5, 256),
    "L3-T2-c3": ((A(skip=3.0),) * 3, 2, (0.3, 0.3, 0.9), 1e-2, 1e-4, 256),
    "L3-T2-causal": ((A(mask="causal"), A(), A()), 2, (0.3, 0.3, 0.9), 1e-2, 3e-5, 256),
    "L3-T2-linear": ((A(), A(activation="linear"), A()), 2, (0.3, 0.3, 0.9), 1e-2, 3e-5, 256),
    "L3-T2-untied": ((A(), A(tied=False), A()), 2, (0.3, 0.3, 0.3, 0.9), 1e-2, 1e-3, 16),
    "L3-T2-heads": ((A(heads=2), A(), A()), 2, (0.3, 0.3, 0.3, 0.9), 1e-2, 3e-4, 32),
    "L4-T2": ((A(),) * 4, 2, (0.3, 0.3, 0.3, 0.9), 2e-3, 1e-4, 24),
    "L4-T2-start": ((A(),) * 4, 2, (0.0,) * 4, 2e-3, 1e-4, 64),
    "L4-T2-end": ((A(),) * 4, 2, (0.9, 0.9, 0.9, 0.99), 2e-3, 1e-4, 32),
    "L4-T2-c0.3": ((A(skip=0.3),) * 4, 2, (0.3, 0.3, 0.3, 0.9), 2e-3, 1e-4, 32),
    "L4-T2-c3": ((A(skip=3.0),) * 4, 2, (0.3, 0.3, 0.3, 0.9), 1e-2, 1e-3, 16),
    **{f"L{depth}-T2": ((A(),) * depth, 2, (0.3,) * (depth - 1) + (0.9,), 1e-2, 1e-3, 8) for depth in (6, 8, 12, 16)},
    "L3-T2-tanh": ((A(), A(activation="tanh(s)"), A()), 2, (0.3, 0.3, 0.9), 1e-2, 1e-4, 256),
}


def run(name: str) -> None:
    layers, tokens, overlap, rtol, fine, samples = CASES[name]
    model = smisym.compile(smisym.Architecture(tokens=tokens, layers=layers))
    depth = model.fields
    q = np.array(overlap)[None, :, None]
    uniform = qmc.Sobol(2 * depth * tokens, rng=np.random.default_rng(0)).random(samples)
    normals = ndtri(np.maximum(uniform, 2.0**-54)).reshape(samples, 2, depth, tokens)
    omega = np.sqrt(q) * normals[:, 0]
    Z = omega + np.sqrt(1 - q) * normals[:, 1]
    observation, V = model.observe(Z), np.diag(1 - np.array(overlap))
    times = []
    for _ in range(3):
        start = time.process_time()
        moments = model.channel.moments(observation, omega, V, rtol=rtol)
        times.append((time.process_time() - start) / samples * 1e3)
    reference = model.channel.moments(observation, omega, V, rtol=fine, max_nodes=10**6)
    # Samples whose reference has not converged tell nothing.
    known = reference.error < 0.1 * rtol if fine < 0.1 * rtol else reference.error <= 1.5 * fine
    error = np.sqrt((((moments.mean - reference.mean) ** 2) / (1 - q)).sum(axis=(1, 2)))[known]
    quantiles = " ".join(f"{x:.1e}" for x in np.quantile(error, (0.5, 0.9, 0.99, 1)))
    print(
        f"{name:12s} {min(times):8.3f} ms/sample  asked {rtol:.0e}  error 50/90/99/100 %: {quantiles}  "
        f"nodes {moments.nodes.mean():.0f}  sampled {moments.statistical.mean():.2f}  {moments.result.value}  "
        f"known {known.mean():.2f}",
        flush=True,
    )


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        run(case)
