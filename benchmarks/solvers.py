"""Speed of the solvers: first thresholds, both weak ones, the 49-point curve, and GAMP at D = 1000.

python benchmarks/solvers.py first|thresholds|curve|gamp [seed]
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

import smisym
from smisym.theory.over_outputs import first_threshold

CURVE_SAMPLES = 65536


def two_layers(skip: float = 1.0) -> smisym.Model:
    return smisym.compile(smisym.Architecture(tokens=2, layers=(smisym.Attention(skip=skip), smisym.Attention())))


def first(seed: int) -> None:
    """By quadrature, which draws nothing: of two layers on three tokens, two on two, and three on two and on three."""
    for tokens, depth, skip in ((3, 2, 1.0), (3, 2, 0.5), (3, 2, 0.3), (2, 2, 1.0), (2, 3, 1.0), (3, 3, 1.0)):
        layers = (smisym.Attention(skip=skip),) * depth
        model = smisym.compile(smisym.Architecture(tokens=tokens, layers=layers))
        started = time.process_time()
        alpha, error = first_threshold(model, (depth - 1,))
        spent = time.process_time() - started
        print(
            f"T = {tokens}, L = {depth}, c = {skip}: {alpha:.9f} +- {error:.1e}  {spent:.1f} s of a processor",
            flush=True,
        )


def thresholds(seed: int) -> None:
    for threshold in smisym.weak_recovery(two_layers(), seed=seed).value:
        print(threshold.kind, threshold.layers, f"{threshold.alpha:.6f} +- {threshold.error:.1e}")


def curve(seed: int) -> None:
    points = smisym.curve(two_layers(), np.linspace(0, 1.6, 49).tolist(), samples=CURVE_SAMPLES, seed=seed, rtol=3e-2)
    for solution in points:
        q, error = np.diag(solution.value.Q), np.diag(solution.value.Q_error)
        print(f"{solution.value.alpha:.4f} {q[0]:.5f} {error[0]:.5f} {q[1]:.5f} {error[1]:.5f} {solution.result.value}")


def gamp(seed: int) -> None:
    model = two_layers()
    data = smisym.generate(model, 1000, 1.2, np.random.default_rng(seed))
    solution = smisym.gamp(model, data.X, data.y, W=data.W, max_steps=50, tol=1e-12, seed=seed)
    print("steps", solution.value.steps, "overlap", np.diag(solution.value.overlap).round(4), solution.result.value)


if __name__ == "__main__":
    start = time.perf_counter()
    {"first": first, "thresholds": thresholds, "curve": curve, "gamp": gamp}[sys.argv[1]](
        int(sys.argv[2]) if sys.argv[2:] else 0
    )
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        f"wall {time.perf_counter() - start:.1f} s, processor {used.ru_utime + used.ru_stime:.1f} s, "
        f"largest memory {used.ru_maxrss / 1024:.0f} MB (imports not in the wall time)"
    )
