"""Curve against state evolution, on maps of different seeds, at random alphas: standardised differences as a histogram.

    python benchmarks/one_truth.py [samples] [model ...]       prints a table, writes docs/figures/one_truth.png

Every model's differences are kept in benchmarks/one_truth.json as soon as they are known; those that are not named stay
as they are.

Models whose overlaps run at different speeds.  No two curves and no two fixed points share a random number, and each
curve has only a few of a model's alphas, for points of one curve err together: the differences in units of their joint
standard error then follow Student's t of about 14 degrees of freedom (7 each).
"""

from __future__ import annotations

import collections
import json
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import smisym
from smisym import SMI, Architecture, Attention

MODELS = {
    "untied, two tokens": (Architecture(2, (Attention(tied=False),)), 1.0),
    "untied, three tokens": (Architecture(3, (Attention(tied=False),)), 0.5),
    "untied, linear": (Architecture(2, (Attention(tied=False, activation="linear"),)), 0.75),
    "tied, rank two": (Architecture(2, (Attention(rank=2),)), 1.0),
    "tied, rank three": (Architecture(2, (Attention(rank=3),)), 1.2),
    "two layers": (Architecture(2, (Attention(), Attention())), 1.0),
    "two layers, skip 0.3": (Architecture(2, (Attention(skip=0.3), Attention())), 1.0),
    "three layers": (Architecture(2, (Attention(), Attention(), Attention())), 0.5),
    "two split heads": (Architecture(2, (Attention(heads=2),), head_layout="split"), 0.26),
    "sequence output": (Architecture(2, (Attention(skip=0.5),), output="sequence"), 0.5),
    "z1*z2 and z2^2": (SMI(("z1*z2", "z2**2"), 2), 1.1),
    "z1^2 and sign(z2)": (SMI(("z1**2", "sign(z2)"), 2), 3.0),
    "z1^2 + sign(z1 z2)": (SMI("z1**2 + sign(z1*z2)", 2), 3.0),
}
# How many times the samples: where posteriors cost little, and few points are told apart from nothing or all.
MORE = {"two split heads": 4, "sequence output": 4, "z1*z2 and z2^2": 4}
ALPHAS, CURVES = 20, 5


KEPT = Path(__file__).with_suffix(".json")
PICTURE = Path(__file__).parent.parent / "docs" / "figures" / "one_truth.png"


def differences(name: str, samples: int) -> dict[str, Any]:
    """Standardised differences of one model, the result codes that were met, samples and seconds."""
    declared, last = MODELS[name]
    began = time.perf_counter()
    rng = np.random.default_rng([7, list(MODELS).index(name)])
    model = smisym.compile(declared)
    used = samples * MORE.get(name, 1)
    coordinates = model.symmetry.coordinates
    z: list[float] = []
    codes: collections.Counter[str] = collections.Counter()
    for number, alphas in enumerate(rng.uniform(0.05 * last, 1.1 * last, (CURVES, ALPHAS // CURVES))):
        one = smisym.overlap_map(model, samples=used, seed=1000 * number)
        for point, along in enumerate(smisym.curve(one, alphas.tolist())):
            other = smisym.overlap_map(model, samples=used, seed=1000 * number + 1 + point)
            alone = smisym.state_evolution(other, along.value.alpha)
            codes.update((along.result.value, alone.result.value))
            if not (along.result.ok and alone.result.ok):
                continue  # says itself that it is not to be trusted
            gap = coordinates(along.value.Q - alone.value.Q)
            error = np.hypot(*(coordinates(s.value.Q_error) for s in (along, alone)))
            z += (gap[error > 0] / error[error > 0]).tolist()
    seconds = time.perf_counter() - began
    return {"samples": used, "z": [round(x, 4) for x in z], "codes": dict(codes), "seconds": round(seconds, 1)}


def main(samples: str = "512", *chosen: str) -> None:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    print(f"{'model':24s} {'points':>6s} {'mean z':>7s} {'std z':>6s} {'max |z|':>7s} {'seconds':>8s}  codes")
    for name in chosen or MODELS:
        kept[name] = row = differences(name, int(samples))
        KEPT.write_text(json.dumps({key: kept[key] for key in MODELS if key in kept}, indent=1) + "\n")
        z = np.array(row["z"] or [np.nan])
        codes = ", ".join(f"{code} {count}" for code, count in sorted(row["codes"].items()))
        print(
            f"{name:24s} {len(row['z']):6d} {z.mean():7.2f} {z.std():6.2f} {np.abs(z).max():7.2f} "
            f"{row['seconds']:8.1f}  {codes}",
            flush=True,
        )
    draw(np.concatenate([row["z"] for row in kept.values()]))


def draw(z: np.ndarray) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.6))
    grid = np.linspace(-5, 5, 400)
    axes.hist(np.clip(z, -5, 5), bins=40, range=(-5, 5), density=True, color="0.75", label=f"{len(z)} differences")
    axes.plot(grid, stats.t.pdf(grid, 14), color="C0", label="Student t, 14 degrees of freedom")
    axes.set(xlabel="(curve - state evolution) / joint standard error", ylabel="density")
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=140)
    print(f"all: {len(z)} differences, mean {z.mean():.2f}, std {z.std():.2f}, beyond 4: {(np.abs(z) > 4).sum()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
