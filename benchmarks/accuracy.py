"""Errors that are stated where an accuracy is asked for, over many seeds: are they small enough, and are they honest?

    python benchmarks/accuracy.py [seeds] [case ...]       prints a table

Each row is one number, solved for with every seed from a model alone: the largest error stated, how many are no
success, the samples that it took, and z, the distances from the truth in units of the stated errors: their mean and
root mean square, and how many intervals of Student's t (7 degrees of freedom) at 68 and 95 % hold the truth.  Where the
truth is not known exactly it is the mean of all other seeds, and "truth" then shows the mean of all.  Seeds are kept in
benchmarks/accuracy.json as soon as they are known, and not solved for again: remove the file to begin anew.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import smisym
from smisym import SMI, Architecture, Attention

KEPT = Path(__file__).with_suffix(".json")
TWO_LAYERS = Architecture(2, (Attention(), Attention()))
# Declaration, alphas of a curve, and accuracy asked; two layers where Q_22 is about 0.2 and 0.5 on the way up,
# and 1 and 5 % above the first threshold, 0.7 % above the second.
CURVES = {
    "one layer": (Architecture(2, (Attention(),)), (0.18, 0.25, 0.35), 2e-3),
    "untied": (Architecture(2, (Attention(tied=False),)), (0.3, 0.5, 0.7), 4e-3),
    "z1*z2": (SMI("z1*z2", 2), (0.7, 0.9, 1.1), 4e-3),
    "two layers": (TWO_LAYERS, (0.295, 0.4042), 2e-3),
    "two layers, just above": (TWO_LAYERS, (0.1875, 0.195, 0.725), 2e-3),
}
# Declaration, exact first threshold, and accuracy asked of it, sampled.
FIRST = {
    "one layer, threshold": (Architecture(2, (Attention(),)), 1 / 6, 5e-4),
    "untied, threshold": (Architecture(2, (Attention(tied=False),)), math.sqrt(5) - 2, 1e-3),
    "two layers, threshold": (TWO_LAYERS, 0.18547784, 5e-4),
}
CASES = [*CURVES, *FIRST]
KINDS = ("values", "errors", "samples", "codes")


def labels(name: str) -> list[str]:
    if name in FIRST:
        return ["alpha"]
    declared, alphas, _ = CURVES[name]
    return [f"Q_{i + 1}{i + 1} at {alpha:g}" for alpha in alphas for i in range(smisym.compile(declared).fields)]


def one_seed(name: str, seed: int) -> dict[str, list[Any]]:
    """Values, errors, samples and codes of all numbers of a case, and the seconds that they took."""
    began = time.perf_counter()
    if name in FIRST:
        declared, _, accuracy = FIRST[name]
        model = smisym.compile(declared)
        found = smisym.weak_recovery(model, seed=seed, stages=1, quadrature=False, accuracy=accuracy)
        numbers = [(t.alpha, t.error, t.samples, found.result.value) for t in found.value]
    else:
        declared, alphas, accuracy = CURVES[name]
        numbers = [
            (q, error, point.settings["samples"], point.result.value)
            for point in smisym.curve(smisym.compile(declared), alphas, accuracy=accuracy, seed=seed)
            for q, error in zip(np.diag(point.value.Q), np.diag(point.statistical_error), strict=True)
        ]
    seconds = round(time.perf_counter() - began, 1)
    return {**dict(zip(KINDS, map(list, zip(*numbers, strict=True)), strict=True)), "seconds": [seconds]}


def shown(name: str, rows: list[dict[str, list[Any]]]) -> list[str]:
    """The lines of one case."""
    values, errors, samples, codes = (np.array([row[kind] for row in rows]) for kind in KINDS)
    accuracy, lines = (CURVES | FIRST)[name][2], []
    for k, label in enumerate(labels(name)):
        own, error = values[:, k], errors[:, k]
        if not error.any():
            continue  # nothing is learned of it
        if name in FIRST:
            exact = FIRST[name][1]
            z, truth = (own - exact) / error, f"{exact:.6f}"
        else:
            others = (own.sum() - own) / (len(own) - 1)
            z = (own - others) / np.hypot(error, own.std(ddof=1) / math.sqrt(len(own) - 1))
            truth = f"{own.mean():.5f} +- {own.std(ddof=1) / math.sqrt(len(own)):.5f}"
        held = [float(np.mean(np.abs(z) <= stats.t.ppf(0.5 + level / 2, 7))) for level in (0.6827, 0.95)]
        lines.append(
            f"| {name}, {label} | {accuracy:g} | {truth} | {error.max():.1e} | "
            f"{np.sum(codes[:, k] != 'success')} of {len(own)} | {samples[:, k].min()} to {samples[:, k].max()} | "
            f"{z.mean():.2f} | {np.sqrt((z**2).mean()):.2f} | {100 * held[0]:.0f} / {100 * held[1]:.0f} % |"
        )
    return lines


def main(seeds: str = "32", *chosen: str) -> None:
    kept: dict[str, list[dict[str, list[Any]]]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    print("| number | asked | truth | largest error | no success | samples | z, mean | z, rms | 68 / 95 % |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in chosen or CASES:
        rows = kept.setdefault(name, [])
        for seed in range(len(rows), int(seeds)):
            rows.append(one_seed(name, seed))
            KEPT.write_text(json.dumps({key: kept[key] for key in CASES if key in kept}) + "\n")
        print("\n".join(shown(name, rows)), flush=True)
        print(f"{name}: {np.median([row['seconds'][0] for row in rows])} s a seed", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
