"""Curve against state evolution, on maps of different seeds, at random alphas: standardised differences as a histogram.

    python benchmarks/one_truth.py [samples]       writes docs/figures/one_truth.png and prints a table

Models whose overlaps run at different speeds.  No two curves and no two fixed points share a random number, and each
curve has only a few of a model's alphas, for points of one curve err together: the differences in units of their joint
standard error then follow Student's t of about 14 degrees of freedom (7 each).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

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
    "tied, rank three": (Architecture(3, (Attention(rank=3),)), 0.8),
    "two layers": (Architecture(2, (Attention(), Attention())), 1.0),
    "two layers, skip 0.3": (Architecture(2, (Attention(skip=0.3), Attention())), 1.0),
    "three layers": (Architecture(2, (Attention(), Attention(), Attention())), 0.5),
    "two split heads": (Architecture(2, (Attention(heads=2),), head_layout="split"), 0.26),
    "sequence output": (Architecture(2, (Attention(skip=0.5),), output="sequence"), 0.5),
    "z1*z2 and z2^2": (SMI(("z1*z2", "z2**2"), 2), 1.1),
    "z1^2 and sign(z2)": (SMI(("z1**2", "sign(z2)"), 2), 3.0),
    "z1^2 + sign(z1 z2)": (SMI("z1**2 + sign(z1*z2)", 2), 3.0),
}
SLOW = {"three layers", "tied, rank three"}  # a quarter of the samples
ALPHAS, CURVES = 20, 5


def main(samples: int = 512) -> None:
    rng = np.random.default_rng(7)
    differences: list[float] = []
    print(f"{'model':24s} {'points':>6s} {'mean z':>7s} {'std z':>6s} {'max |z|':>7s} {'codes':30s} {'seconds':>8s}")
    for name, (declared, last) in MODELS.items():
        began = time.perf_counter()
        model = smisym.compile(declared)
        used = samples // 4 if name in SLOW else samples
        coordinates = model.symmetry.coordinates
        z, codes = [], set()
        for number, alphas in enumerate(rng.uniform(0.05 * last, 1.1 * last, (CURVES, ALPHAS // CURVES))):
            one = smisym.overlap_map(model, samples=used, seed=1000 * number)
            for point, along in enumerate(smisym.curve(one, alphas.tolist())):
                other = smisym.overlap_map(model, samples=used, seed=1000 * number + 1 + point)
                alone = smisym.state_evolution(other, along.value.alpha)
                codes |= {along.result.value, alone.result.value}
                gap = coordinates(along.value.Q - alone.value.Q)
                error = np.hypot(*(coordinates(s.value.Q_error) for s in (along, alone)))
                z += (gap[error > 0] / error[error > 0]).tolist()
        differences += z
        print(
            f"{name:24s} {len(z):6d} {np.mean(z):7.2f} {np.std(z):6.2f} {np.abs(z).max():7.2f} "
            f"{', '.join(sorted(codes)):30s} {time.perf_counter() - began:8.1f}",
            flush=True,
        )
    draw(np.array(differences))


def draw(z: np.ndarray) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.6))
    grid = np.linspace(-5, 5, 400)
    axes.hist(np.clip(z, -5, 5), bins=40, range=(-5, 5), density=True, color="0.75", label=f"{len(z)} differences")
    axes.plot(grid, stats.t.pdf(grid, 14), color="C0", label="Student t, 14 degrees of freedom")
    axes.set(xlabel="(curve - state evolution) / joint standard error", ylabel="density")
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(Path(__file__).parent.parent / "docs" / "figures" / "one_truth.png", dpi=140)
    print(f"all: {len(z)} differences, mean {z.mean():.2f}, std {z.std():.2f}, beyond 4: {(np.abs(z) > 4).sum()}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
