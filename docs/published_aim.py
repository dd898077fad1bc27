"""Makes the figure of published-aim.md: what small width is the limit of.

    python docs/published_aim.py compute    the numbers, into published_aim.json
    python docs/published_aim.py            the figure from them

Errors of S against N / (r d), softmax on two tokens: of finite rank ratios, of finite ranks at infinite dimension, and
of the limit of both.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import smisym
from smisym import Architecture, Attention

HERE = Path(__file__).parent
NUMBERS, FIGURE = HERE / "published_aim.json", HERE / "figures" / "small_width.png"
ALPHAS = [round(0.02 * n, 2) for n in range(1, 33)]
RATIOS, RANKS = (0.5, 0.1, 0.02, 0.002), (1, 2)


def of_ratio(rho: float) -> list[float]:
    """||S_hat - S||^2 / d at N / (r d); rho = 0 is the limit."""
    found = smisym.curve(smisym.compile(network(rank_ratio=rho)), [alpha * (rho or 1.0) for alpha in ALPHAS])
    return [1 - float(point.value.Q[0, 0]) for point in found]


def of_rank(rank: int) -> list[float]:
    """The same of r rows of Gaussian weights, N / D = r alpha: S of r vectors is known as well as they are, twice."""
    found = smisym.curve(smisym.compile(network(rank=rank)), [alpha * rank for alpha in ALPHAS], samples=2048)
    return [1 - float(np.sum(point.value.Q**2)) / rank for point in found]


def network(**layer: Any) -> Architecture:
    return Architecture(2, (Attention(**layer),))


def compute() -> None:
    began = time.perf_counter()
    made: dict[str, Any] = {"alphas": ALPHAS, "version": smisym.__version__}
    made["ratios"] = {f"{rho:g}": of_ratio(rho) for rho in (*RATIOS, 0.0)}
    made["ranks"] = {str(rank): of_rank(rank) for rank in RANKS}
    made["seconds"] = round(time.perf_counter() - began)
    NUMBERS.write_text(json.dumps(made, indent=1) + "\n")


def draw() -> None:
    made = json.loads(NUMBERS.read_text())
    figure, ax = plt.subplots(figsize=(6.4, 3.8))
    alphas = made["alphas"]
    for k, rank in enumerate(made["ranks"]):
        color = plt.cm.Oranges(0.45 + 0.3 * k)
        ax.plot(alphas, made["ranks"][rank], "--", color=color, label=f"rank {rank}, infinite d")
    for k, rho in enumerate(str(f"{rho:g}") for rho in RATIOS):
        ax.plot(alphas, made["ratios"][rho], color=plt.cm.Blues(0.3 + 0.18 * k), label=f"rank ratio {rho}")
    ax.plot(alphas, made["ratios"]["0"], color="black", lw=1.8, label="small width")
    ax.set_xlabel(r"$N / (r d)$")
    ax.set_ylabel(r"$\|\hat S - S\|^2 / d$")
    ax.set_xlim(0, max(alphas))
    ax.set_ylim(0, 1.03)
    ax.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(FIGURE, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    if sys.argv[1:] == ["compute"]:
        compute()
    draw()
