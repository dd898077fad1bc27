"""Posteriors and gradients on what JAX finds, beside numba on the processor of the same machine.

    python benchmarks/accelerator.py OUT.json [CASE ...]     cases of boxes.py with this in their name; by default all
    python benchmarks/accelerator.py OUT.json solvers        first thresholds and GAMP alone

Posteriors: microseconds each of a batch drawn at Q, as ``channel.moments`` gives them, after one call that compiles;
boxes alone (:func:`smisym.integrate.boxes.on_boxes`), without what takes over where they do not resolve; the share that
they resolve; and the share of means that are farther apart than both errors.  Overlap map: seconds of one evaluation
after another one, all processes of numba against one of JAX.  Gradients: milliseconds of one of the square loss.
Solvers: seconds of a first threshold and of GAMP on data, each after one that compiles, and how far the answers of the
two backends lie apart.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from boxes import CASES

import smisym
from smisym import Architecture, Attention
from smisym.base import processes
from smisym.base.backends import backend
from smisym.integrate import boxes
from smisym.training.gradients import SquareLoss

JAX, NUMBA = "jax+numba", "numba"
SOLVED = (Architecture(2, (Attention(),) * 2), Architecture(3, (Attention(),) * 2))
Record = dict[str, Any]


def main(out: str, parts: list[str], samples: int = 8192) -> None:
    os.environ["SMISYM_BACKEND"] = JAX
    print(f"{backend().version}: {backend().why}; {processes.cores()} cores", flush=True)
    rows = [solvers(declared) for declared in SOLVED] if not parts or "solvers" in parts else []
    for name, (declared, overlap) in CASES.items():
        if parts and not any(part in name for part in parts):
            continue
        model = smisym.compile(declared)
        rows.append({"case": name} | posteriors(model, np.diag(overlap), samples))
        print(rows[-1], flush=True)
        if model.fields == 2:
            rows.append({"case": name} | overlap_map(model, np.diag(overlap)))
            print(rows[-1], flush=True)
    for tokens, layers in ((2, 1), (2, 2), (2, 3), (4, 2)) if parts != ["solvers"] else ():
        rows.append(gradients(Architecture(tokens, (Attention(),) * layers)))
        print(rows[-1], flush=True)
    with open(out, "w", encoding="utf-8") as stream:
        json.dump({"version": backend().version, "why": backend().why, "rows": rows}, stream, indent=1)


def posteriors(model: smisym.Model, Q: np.ndarray, samples: int) -> Record:
    law, rng = model.prior.law(Q), np.random.default_rng(0)
    count = samples if model.channel.free_dimensions < 4 else samples // 64
    normals = rng.standard_normal((2, count, model.fields, model.tokens))
    Z = law.scale @ normals[0]
    omega = law.gain @ Z + law.noise @ normals[1]
    rtol, observed = model.channel.plan.averaged, model.observe(Z)
    found, seconds = {}, {}
    for name in (JAX, NUMBA):
        os.environ["SMISYM_BACKEND"] = name
        found[name], seconds[name] = timed(lambda: model.channel.moments(observed, omega, law.V, rtol=rtol))
    os.environ["SMISYM_BACKEND"] = JAX
    posterior = model.channel.posterior
    integrand = posterior.at(posterior.read(observed), omega, law.V[None])
    with np.errstate(all="ignore"):
        alone, apart = timed(lambda: boxes.on_boxes(integrand, rtol, False, 6.0 - np.log(rtol), np.inf))
    gap = np.sqrt(
        np.maximum(np.einsum("spt,spt->s", found[JAX].mean - found[NUMBA].mean, found[JAX].g - found[NUMBA].g), 0.0)
    )
    return {
        "Q": np.diag(Q).tolist(), "free": integrand.dim, "asked": rtol, "posteriors": count,
        "jax us": 1e6 * seconds[JAX] / count, "boxes us": 1e6 * apart / count,
        "numba us, one core": 1e6 * seconds[NUMBA] / count, "resolved": float(alone.converged.mean()),
        "nodes": float(alone.nodes.mean()),
        "beyond": float((gap > found[JAX].error + found[NUMBA].error).mean()),
    }  # fmt: skip


def overlap_map(model: smisym.Model, Q: np.ndarray, samples: int = 2**15) -> Record:
    record: Record = {"map samples": samples}
    for name in (JAX, NUMBA):
        os.environ["SMISYM_BACKEND"] = name
        E = smisym.OverlapMap(model, samples=samples, scrambles=16)
        E(0.9 * Q)
        began = time.perf_counter()
        record[f"{name} value"] = np.diag(E(Q)[0]).tolist()
        record[f"{name} s"] = time.perf_counter() - began
    return record


def solvers(declared: Architecture, samples: int = 2**16, dim: int = 2000, steps: int = 10) -> Record:
    """A first threshold by samples, and steps of GAMP where both layers are being learned."""
    model = smisym.compile(declared)
    data = smisym.generate(model, dim, 1.2, np.random.default_rng(0))
    record: Record = {"solvers": f"{len(declared.layers)} layers, T = {declared.tokens}", "samples": samples, "D": dim}
    alphas, estimates = {}, {}
    for name in (JAX, NUMBA):
        os.environ["SMISYM_BACKEND"] = name

        def first() -> smisym.Solution:
            return smisym.weak_recovery(model, stages=1, quadrature=False, samples=samples)

        def walk() -> smisym.Solution:
            return smisym.gamp(model, data.X, data.y, W=data.W, initial=0.3, max_steps=steps)

        begun, record[f"{name} threshold s"] = timed(first)
        (threshold,) = begun.value
        alphas[name] = threshold.alpha
        found, record[f"{name} gamp s"] = timed(walk)
        estimates[name] = found.value.W_hat
        record[f"{name} alpha"], record[f"{name} error"] = threshold.alpha, threshold.error
    record["thresholds apart"] = abs(alphas[JAX] - alphas[NUMBA])
    record["estimates apart"] = float(np.abs(estimates[JAX] - estimates[NUMBA]).max())
    print(record, flush=True)
    return record


def gradients(declared: Architecture, samples: int = 2**16) -> Record:
    model = smisym.compile(declared)
    Z = np.random.default_rng(0).standard_normal((samples, model.fields, model.tokens))
    y, loss = model.observe(Z).y, SquareLoss.of(model.link)
    _, seconds = timed(lambda: loss(Z, y))
    return {
        "gradient": f"{len(declared.layers)} layers, T = {declared.tokens}",
        "samples": samples,
        "ms": 1e3 * seconds,
    }


def timed(call: Callable[[], Any], repeats: int = 1) -> tuple[Any, float]:
    """What a call returns, and the seconds of its best run after the first."""
    found, best = call(), np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        found = call()
        best = min(best, time.perf_counter() - began)
    return found, best


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
