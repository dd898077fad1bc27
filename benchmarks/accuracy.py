"""Errors that are stated where an accuracy is asked for, over many seeds: are they small enough, and are they honest?

    python benchmarks/accuracy.py [seeds] [case ...]       prints a table

Each row is one number, solved for with every seed from a model alone: the largest error stated, how many are no
success, the samples that it took, and z, the distances from the truth in units of the stated errors: their mean and
root mean square, and how many intervals of Student's t (7 degrees of freedom) at 68 and 95 % hold the truth.  Where the
truth is not known exactly it is the mean of all other seeds, and "truth" then shows the mean of all.  Rows are kept in
benchmarks/accuracy.json as soon as they are known; cases that are not named stay as they are.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import smisym
from smisym import SMI, Architecture, Attention

KEPT = Path(__file__).with_suffix(".json")
TWO_LAYERS = Architecture(2, (Attention(), Attention()))
# Declaration, alphas of a curve, and accuracy asked; two layers where Q_22 is about 0.2 and 0.5 on the way up.
CURVES = {
    "one layer": (Architecture(2, (Attention(),)), (0.18, 0.25, 0.35), 2e-3),
    "untied": (Architecture(2, (Attention(tied=False),)), (0.3, 0.5, 0.7), 4e-3),
    "z1*z2": (SMI("z1*z2", 2), (0.7, 0.9, 1.1), 4e-3),
    "two layers": (TWO_LAYERS, (0.28, 0.4042), 2e-3),
}
# Declaration, exact first threshold, and accuracy asked of it, sampled.
FIRST = {
    "one layer, threshold": (Architecture(2, (Attention(),)), 1 / 6, 5e-4),
    "untied, threshold": (Architecture(2, (Attention(tied=False),)), math.sqrt(5) - 2, 1e-3),
    "two layers, threshold": (TWO_LAYERS, 0.18547784, 5e-4),
}
CASES = [*CURVES, *FIRST]


def of_curve(name: str, seeds: int) -> dict[str, Any]:
    """Values, errors, samples and codes (seeds, numbers) of a curve's overlaps."""
    declared, alphas, accuracy = CURVES[name]
    model = smisym.compile(declared)
    found = [smisym.curve(model, alphas, accuracy=accuracy, seed=seed) for seed in range(seeds)]
    P = model.fields
    labels = [f"Q_{i + 1}{i + 1} at {alpha:g}" for alpha in alphas for i in range(P)]
    return _rows(
        labels,
        [[q for s in one for q in np.diag(s.value.Q)] for one in found],
        [[q for s in one for q in np.diag(s.statistical_error)] for one in found],
        [[s.settings["samples"] for s in one for _ in range(P)] for one in found],
        [[s.result.value for s in one for _ in range(P)] for one in found],
        accuracy,
    )


def of_threshold(name: str, seeds: int) -> dict[str, Any]:
    declared, truth, accuracy = FIRST[name]
    model = smisym.compile(declared)
    how: dict[str, Any] = {"stages": 1, "quadrature": False, "accuracy": accuracy}
    found = [smisym.weak_recovery(model, seed=seed, **how) for seed in range(seeds)]
    return _rows(
        ["alpha"],
        [[s.value[0].alpha] for s in found],
        [[s.value[0].error] for s in found],
        [[s.value[0].samples] for s in found],
        [[s.result.value] for s in found],
        accuracy,
        [truth],
    )


def _rows(
    labels: list[str], values: Any, errors: Any, samples: Any, codes: Any, accuracy: float, truth: Any = None
) -> dict[str, Any]:
    arrays = {"values": values, "errors": errors, "samples": samples, "codes": codes}
    return {"labels": labels, "accuracy": accuracy, "truth": truth, **arrays}


def shown(name: str, kept: dict[str, Any]) -> list[str]:
    """The lines of one case."""
    values, errors = np.array(kept["values"]), np.array(kept["errors"])
    lines = []
    for k, label in enumerate(kept["labels"]):
        own, error = values[:, k], errors[:, k]
        if not error.any():
            continue  # nothing is learned of it
        if kept["truth"] is None:
            mean = (own.sum() - own) / (len(own) - 1)
            error_of_mean = own.std(ddof=1) / math.sqrt(len(own) - 1)
            z = (own - mean) / np.hypot(error, error_of_mean)
            truth = f"{own.mean():.5f} +- {own.std(ddof=1) / math.sqrt(len(own)):.5f}"
        else:
            z, truth = (own - kept["truth"][k]) / error, f"{kept['truth'][k]:.6f}"
        held = [float(np.mean(np.abs(z) <= stats.t.ppf(0.5 + level / 2, 7))) for level in (0.6827, 0.95)]
        bad = sum(code != "success" for code in np.array(kept["codes"])[:, k])
        samples = np.array(kept["samples"])[:, k]
        lines.append(
            f"| {name}, {label} | {kept['accuracy']:g} | {truth} | {error.max():.1e} | {bad} of {len(own)} | "
            f"{samples.min()} to {samples.max()} | {z.mean():.2f} | {np.sqrt((z**2).mean()):.2f} | "
            f"{100 * held[0]:.0f} / {100 * held[1]:.0f} % |"
        )
    return lines


def main(seeds: str = "32", *chosen: str) -> None:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    print("| number | asked | truth | largest error | no success | samples | z, mean | z, rms | 68 / 95 % |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in chosen or CASES:
        began = time.perf_counter()
        make: Callable[[str, int], dict[str, Any]] = of_curve if name in CURVES else of_threshold
        kept[name] = make(name, int(seeds))
        kept[name]["seconds"] = round((time.perf_counter() - began) / int(seeds), 1)
        KEPT.write_text(json.dumps({key: kept[key] for key in CASES if key in kept}) + "\n")
        print("\n".join(shown(name, kept[name])), flush=True)
        print(f"{name}: {kept[name]['seconds']} s a seed", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
