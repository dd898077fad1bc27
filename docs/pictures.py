"""Pictures of the page of concepts, drawn when the site is built: each function returns one figure."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

import smisym

INK, LIGHT = "#333333", "#bbbbbb"


def fields(D: int = 12, T: int = 3, P: int = 2) -> Figure:
    """Tokens times weights over sqrt(D): the few numbers that an output depends on."""
    rng = np.random.default_rng(1)
    X, W = rng.standard_normal((T, D)), rng.standard_normal((P, D))
    figure, panels = plt.subplots(
        1, 5, figsize=(8, 2.6), layout="constrained", width_ratios=(P * 1.6, 0.6, T * 1.6, 0.6, T)
    )
    _matrix(panels[0], W.T, f"weights $W^T$\n{D} × {P}")
    _matrix(panels[2], X.T, f"tokens $X^T$\n{D} × {T}")
    _matrix(panels[4], W @ X.T / np.sqrt(D), f"fields $Z$\n{P} × {T}")
    for axes, sign in ((panels[1], "with"), (panels[3], "give")):
        axes.axis("off")
        axes.text(0.5, 0.5, sign, ha="center", va="center", fontsize=12)
    return figure


def _matrix(axes: Axes, values: np.ndarray, title: str) -> None:
    axes.imshow(values, cmap="RdBu", vmin=-2.5, vmax=2.5)
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=10)


def link() -> Figure:
    """From tokens to the output through the fields alone."""
    figure, axes = plt.subplots(figsize=(7.5, 1.8), layout="constrained")
    boxes = [
        (0.0, "tokens and weights\n$X$ (T, D),  $W$ (P, D)"),
        (3.1, "fields\n$Z = W X^T / \\sqrt{D}$\n(P, T)"),
        (6.2, "output\n$y = f(Z)$\n(T, T)"),
    ]
    for x, text in boxes:
        axes.add_patch(Rectangle((x, 0), 2.2, 1.0, facecolor="#eef2f8", edgecolor=INK))
        axes.text(x + 1.1, 0.5, text, ha="center", va="center", fontsize=10)
    for x, text in ((2.2, "many numbers\nbecome few"), (5.3, "link\nfunction $f$")):
        axes.add_patch(
            FancyArrowPatch((x + 0.05, 0.5), (x + 0.85, 0.5), arrowstyle="-|>", mutation_scale=14, color=INK)
        )
        axes.text(x + 0.45, 1.12, text, ha="center", va="bottom", fontsize=8.5)
    axes.set(xlim=(-0.1, 8.5), ylim=(-0.1, 1.7))
    axes.axis("off")
    return figure


def overlap() -> Figure:
    """Estimates at three overlaps: entry by entry against the truth."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(300)
    figure, panels = plt.subplots(1, 3, figsize=(8, 2.7), layout="constrained", sharex=True, sharey=True)
    for axes, q in zip(panels, (0.0, 0.5, 0.95), strict=True):
        # A posterior mean of overlap q: q w + sqrt(q (1 - q)) times noise.
        estimate = q * truth + np.sqrt(q * (1 - q)) * rng.standard_normal(300)
        axes.axline((0, 0), slope=1, color=LIGHT, linewidth=0.8)
        axes.plot(truth, estimate, ".", markersize=3)
        axes.set_title(f"Q = {q}", fontsize=10)
        axes.set_xlabel("entry of the truth")
    panels[0].set_ylabel("its estimate")
    return figure


def level_sets() -> Figure:
    """What one output leaves possible, for three links of two fields."""
    side = np.linspace(-2.2, 2.2, 400)
    a, b = np.meshgrid(side, side)
    figure, panels = plt.subplots(1, 3, figsize=(8.4, 3.0), layout="constrained", sharey=True)
    z = np.array([1.2, 0.5])
    curves = ((a * b, "y = z1 z2: a curve"), (np.sign(a * b), "y = sign(z1 z2): cells"))
    panels[0].contour(a, b, curves[0][0], levels=[z.prod()], colors=["C0"])
    panels[0].set_title(curves[0][1], fontsize=10)
    panels[1].plot([z[0], -z[0]], [z[1], -z[1]], "o", color="C0", markersize=9)
    panels[1].set_title("one layer of attention: two points", fontsize=10)
    panels[2].contourf(a, b, curves[1][0], levels=[0.5, 1.5], colors=["C0"], alpha=0.35)
    panels[2].set_title(curves[1][1], fontsize=10)
    for axes in panels:
        axes.plot(*z, "*", color="C3", markersize=13)
        axes.set(xlim=(-2.2, 2.2), ylim=(-2.2, 2.2), aspect="equal", xlabel="first field")
    panels[0].set_ylabel("second field")
    return figure


def state_evolution() -> Figure:
    """Steps of state evolution as a cobweb, below and above the threshold, of y = |z|."""
    omap = smisym.overlap_map(smisym.compile(smisym.SMI("abs(z1)", 1)), samples=1024)
    q = np.linspace(0, 0.97, 30)
    # Estimates hold V E, which stays finite as the overlap goes to one.
    E = np.array([np.mean([e.white[0, 0] for e in omap.evaluate(np.array([[x]]))]) / (1 - x) for x in q])
    figure, panels = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained", sharey=True)
    for axes, alpha, start in ((panels[0], 0.4, 0.5), (panels[1], 0.8, 0.03)):
        step = alpha * E / (1 + alpha * E)
        axes.plot(q, q, color=LIGHT)
        axes.plot(q, step, color="C0", label="one step of state evolution")
        x = start
        for _ in range(25):
            y = np.interp(x, q, step)
            axes.plot([x, x, y], [x, y, y], color="C3", linewidth=0.9)
            x = y
        axes.plot(start, start, "o", color="C3", markersize=4)
        axes.set(xlabel="overlap before", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.set_title(
            f"alpha = {alpha}: " + ("all is forgotten" if alpha < 0.5 else "it climbs to a fixed point"), fontsize=10
        )
    panels[0].set_ylabel("overlap after")
    panels[0].legend(fontsize=8, loc="upper left")
    return figure


def thresholds() -> Figure:
    """The overlaps of a staircase, as a drawing: weak thresholds and perfect recovery."""
    alpha = np.linspace(0, 1.3, 500)
    first = np.clip((alpha - 0.185) / 0.815, 0, 1) ** 0.3 * np.clip((alpha - 0.185) / 0.25, 0, 1) ** 0.7
    late = np.clip((alpha - 0.72) / 0.28, 0, 1) ** 0.7
    figure, axes = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
    axes.plot(alpha, first, label="second layer")
    axes.plot(alpha, late, label="first layer")
    for x, text in ((0.185, "weak:\nsecond layer"), (0.72, "weak:\nfirst layer"), (1.0, "perfect")):
        axes.axvline(x, color=LIGHT, linestyle=":")
        axes.text(x + 0.01, 1.07, text, fontsize=8.5, va="bottom")
    axes.set(xlabel="samples per dimension, alpha = N / D", ylabel="overlap", ylim=(-0.03, 1.3), yticks=[0, 0.5, 1])
    axes.legend(loc="center right")
    return figure
