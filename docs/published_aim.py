"""Makes the tables and figures of published-aim.md: attention of extensive rank beside published data.

    python docs/published_aim.py compute [PART ...]                      the numbers, into published_aim.json
    python docs/published_aim.py                                                  tables and figures from them

Each part of published_aim.json says by which command, with which version and in how many seconds it was made; a test
computes points of each part again (tests/house/test_published_aim.py).  published_aim.csv has the published data.
"""

from __future__ import annotations

import csv
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import smisym
from smisym import SMI, Architecture, Attention
from smisym.model.compiled import Model
from smisym.report import format_with_error

HERE = Path(__file__).parent
NUMBERS, PAGE, FIGURES = HERE / "published_aim.json", HERE / "published-aim.md", HERE / "figures"
Record = dict[str, Any]

ALPHAS = [round(0.02 * n, 2) for n in range(1, 33)]
RATIOS, RANKS = (0.5, 0.1, 0.02, 0.002, 0.0), (1, 2)
HARDMAX_ALPHAS, HARDMAX_RATIOS = (0.051, 0.1416, 0.5054, 1.1058, 2.9424, 9.52), (0.1, 0.5, 1.0, 2.0)
HARDMAX_SAMPLES = 16384
SMALL_ALPHAS = (0.45, 0.6, 1.0, 2.0, 5.0)
# Activation, tokens, alpha and damping at rank ratio 0.5: runs of GAMP on several dimensions, several data sets each.
RUNS = (
    ("softmax", 2, 0.1, 0.7), ("softmax", 2, 0.14, 0.7), ("softmax", 3, 0.03, 0.8), ("softmax", 3, 0.05, 0.75),
    ("softmax", 4, 0.02, 0.8), ("softmax", 4, 0.03, 0.8), ("hardmax", 2, 1.0, 0.5),
)  # fmt: skip
DIMS, SEEDS, STEPS, TOL = (50, 100), 8, 120, 2e-3
DEEP_ALPHAS, DEEP_SAMPLES = (0.05, 0.15, 0.25, 0.3, 0.36), 256
# The same over rank ratios of both layers, and over the skip, from where on posteriors are integrated to the tolerance;
# alpha as a part of that where all is known.
PLANE_RATIOS, PLANE_SKIPS = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0), (1.0, 1.5, 2.0, 3.0, 4.0)
PLANE_SAMPLES, PLANE_PARTS = 512, (0.05, 0.15, 0.3, 0.45, 0.6, 0.75, 0.85, 0.95)
DEEP_RUNS, DEEP_DAMPING, DEEP_STEPS, DEEP_RTOL = 0.15, 0.75, 100, 0.1
# Errors whose lines are drawn, and how wide; and the colours of two layers.
LEVELS, LAYER_COLOURS = ((0.75, 0.8), (0.5, 1.3), (0.25, 2.0)), ("#0072B2", "#D55E00")
REGRESSION = ((0.2, 0.2, 0.660), (0.5, 0.2, 0.777), (0.5, 0.5, 0.3515), (1.0, 0.495, 0.461), (2.0, 0.495, 0.4925))


def network(tokens: int = 2, layers: int = 1, **layer: Any) -> Architecture:
    return Architecture(tokens, (Attention(**layer),) * layers)


# Linear measurements tell as much at every sample: a few of them are enough, to rounding.
EXACT = {"samples": 16, "scrambles": 2}


def errors(architecture: Architecture | SMI, alphas: list[float], **settings: Any) -> list[Record]:
    """||S_hat - S||^2 / d of one matrix by state evolution, with its error."""
    found = smisym.curve(smisym.compile(architecture), alphas, **(settings or EXACT))
    return [
        {"alpha": s.value.alpha, "mmse": 1 - float(s.value.Q[0, 0]), "error": float(s.value.Q_error[0, 0]),
         "result": s.result.value}
        for s in found
    ]  # fmt: skip


# --- parts ------------------------------------------------------------------------------------------


def softmax(every: int = 1) -> list[Record]:
    """State evolution at the published points: two tokens, six rank ratios."""
    rows: list[Record] = []
    for rho in sorted({row["rho"] for row in published("softmax")}):
        there = [row for row in published("softmax") if row["rho"] == rho][::every]
        here = errors(network(rank_ratio=rho), [row["alpha"] for row in there])
        rows += [{"rho": rho, "published": b["error"]} | a for a, b in zip(here, there, strict=True)]
    return rows


def hardmax(
    alphas: tuple[float, ...] = HARDMAX_ALPHAS,
    ratios: tuple[float, ...] = HARDMAX_RATIOS,
    samples: int = HARDMAX_SAMPLES,
) -> list[Record]:
    """State evolution of hardmax on two tokens."""
    rows: list[Record] = []
    for rho in ratios:
        layer = network(rank_ratio=rho, activation="hardmax")
        rows += [{"rho": rho} | row for row in errors(layer, list(alphas), samples=samples)]
    return rows


def small_hardmax(alphas: tuple[float, ...] = SMALL_ALPHAS, samples: int = HARDMAX_SAMPLES) -> list[Record]:
    """Hardmax on two tokens at small width."""
    return hardmax(alphas, (0.0,), samples)


def small_width(
    alphas: list[float] = ALPHAS, ratios: tuple[float, ...] = RATIOS, ranks: tuple[int, ...] = RANKS
) -> list[Record]:
    """Errors of S against N / (r d): of rank ratios, of their limit, and of finite ranks at infinite dimension."""
    rows = []
    for rho in ratios:
        found = errors(network(rank_ratio=rho), [alpha * (rho or 1.0) for alpha in alphas])
        rows.append({"ratio": rho, "alphas": alphas, "mmse": [row["mmse"] for row in found]})
    for rank in ranks:
        # S of r vectors is known as well as they are, twice.
        points = smisym.curve(smisym.compile(network(rank=rank)), [alpha * rank for alpha in alphas], samples=2048)
        left = [1 - float(np.sum(point.value.Q**2)) / rank for point in points]
        rows.append({"rank": rank, "alphas": alphas, "mmse": left})
    return rows


# Many parameters: what a run is made of.
def runs_of(model: Model, alpha: float, dim: int, seeds: int, steps: int, damping: float, **settings: Any) -> Record:
    """GAMP on so many data sets: the errors in which each ends, layer by layer, and how."""
    ends, results, taken, between = [], [], [], []
    for seed in range(seeds):
        for_data, for_start = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
        data = smisym.generate(model, dim, alpha, for_data, normalised=True)
        run = smisym.gamp(
            model, data.X, data.y, W=data.W, damping=damping, max_steps=steps, tol=TOL, seed=for_start, **settings
        )
        found, truth = (model.prior.in_units(W) for W in (run.value.W_hat, data.W))
        ends.append(((found - truth) ** 2).mean(axis=1).round(6).tolist())
        across = found @ truth.T / found.shape[1]
        between.append((across - np.diag(np.diag(across))).round(4).tolist())
        results.append(run.result.value)
        taken.append(len(run.history) - 1)
        print(alpha, dim, seed, ends[-1], results[-1], taken[-1], flush=True)
    return {"alpha": alpha, "dim": dim, "errors": ends, "between": between, "results": results, "steps": taken}


def amp(
    cases: tuple[tuple[str, int, float, float], ...] = RUNS, dims: tuple[int, ...] = DIMS, seeds: int = SEEDS
) -> list[Record]:
    """GAMP on one layer, rank ratio 0.5, beside state evolution."""
    rows = []
    for activation, tokens, alpha, damping in cases:
        layer = network(tokens, rank_ratio=0.5, activation=activation)
        settings = {"samples": HARDMAX_SAMPLES} if activation == "hardmax" else {}
        limit = errors(layer, [alpha], **settings)[0]
        for dim in dims:
            found = runs_of(smisym.compile(layer), alpha, dim, seeds, STEPS, damping)
            rows.append({"activation": activation, "tokens": tokens, "limit": limit["mmse"],
                         "limit_error": limit["error"]} | found)  # fmt: skip
    return rows


def two_layers(alphas: tuple[float, ...] = DEEP_ALPHAS, samples: int = DEEP_SAMPLES, seed: int = 0) -> list[Record]:
    """State evolution of two layers, and how an overlap between the two would grow from one step to the next."""
    omap = smisym.overlap_map(
        smisym.compile(network(layers=2, rank_ratio=0.5)), samples=samples, scrambles=4, rtol=0.1, seed=seed
    )
    rows = []
    for alpha in alphas:
        found = smisym.state_evolution(omap, alpha)
        Q, turn = found.value.Q, np.array([[0, 1], [1, 0]]) / np.sqrt(2)
        growth = None
        if Q.max() < 1 - 1e-6:
            slope = omap.at(0, Q).slope
            growth = alpha * float((turn * np.einsum("paqb,ab->pq", slope, turn)).sum())
        rows.append({"alpha": alpha, "mmse": (1 - np.diag(Q)).tolist(), "error": np.diag(found.value.Q_error).tolist(),
                     "growth": growth, "result": found.result.value})  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def plane(
    ratios: tuple[float, ...] = PLANE_RATIOS, skips: tuple[float, ...] = PLANE_SKIPS,
    parts: tuple[float, ...] = PLANE_PARTS, samples: int = PLANE_SAMPLES, seed: int = 0,
) -> list[Record]:  # fmt: skip
    """Errors of two layers, and where all is known, over the rank ratio at skip one and over the skip at one half."""
    rows = []
    for rho, skip in dict.fromkeys([(rho, 1.0) for rho in ratios] + [(0.5, skip) for skip in skips]):
        model = smisym.compile(network(layers=2, rank_ratio=rho, skip=skip))
        known, reached = smisym.perfect_recovery(model).value
        omap = smisym.overlap_map(model, samples=samples, scrambles=4, rtol=0.1, seed=seed)
        for found in smisym.curve(omap, [part * known.alpha for part in parts]):
            rows.append({"rho": rho, "skip": skip, "known": known.alpha,
                         "reached": [reached.alpha, reached.error], "alpha": found.value.alpha,
                         "mmse": (1 - np.diag(found.value.Q)).tolist(), "error": np.diag(found.value.Q_error).tolist(),
                         "result": found.result.value})  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def deep_amp(dims: tuple[int, ...] = DIMS, seeds: int = SEEDS) -> list[Record]:
    """GAMP on two layers, whose posteriors need no more digits than data of finite size leave."""
    model = smisym.compile(network(layers=2, rank_ratio=0.5))
    return [runs_of(model, DEEP_RUNS, dim, seeds, DEEP_STEPS, DEEP_DAMPING, rtol=DEEP_RTOL) for dim in dims]


def regression(points: tuple[tuple[float, float, float], ...] = REGRESSION) -> list[Record]:
    """Bilinear sequence regression, aspect one: (rank ratio, alpha, published error)."""
    return [
        {"rho": rho, "published": there} | errors(SMI("z1", 1, rank_ratio=rho), [alpha])[0]
        for rho, alpha, there in points
    ]


PARTS: dict[str, Callable[[], list[Record]]] = {
    "softmax": softmax, "amp": amp, "hardmax": hardmax, "small_hardmax": small_hardmax, "small_width": small_width,
    "two_layers": two_layers, "plane": plane, "deep_amp": deep_amp, "regression": regression,
}  # fmt: skip


def compute(names: list[str]) -> None:
    for name in names or list(PARTS):
        began = time.monotonic()
        rows = PARTS[name]()
        how = {"version": smisym.__version__, "seconds": round(time.monotonic() - began)}
        known = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
        known[name] = {"command": f"python docs/published_aim.py compute {name}", **how, "rows": rows}
        NUMBERS.write_text(json.dumps(known, indent=1) + "\n")


def published(what: str, tokens: int = 2) -> list[dict[str, float]]:
    """Published points of one kind: rho, alpha, error, spread."""
    with open(HERE / "published_aim.csv", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row.pop("what") == what]
    found = [{key: float(value) for key, value in row.items() if value} for row in rows]
    return [row for row in found if row["tokens"] == tokens]


def there(what: str, alpha: float, rho: float) -> str:
    """A published error, by the logarithm of alpha between two points; a dash beyond the last one."""
    rows = [row for row in published(what) if row["rho"] == rho]
    at = np.log([row["alpha"] for row in rows])
    found = np.interp(np.log(alpha), at, [row["error"] for row in rows], left=np.nan, right=np.nan)
    return "–" if np.isnan(found) else f"{found:.3f}"


# --- tables -----------------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines).replace("| --- ", "|---").replace("--- |", "---|")


def mean_of(runs: Record, layer: int = 0) -> tuple[float, float]:
    """The mean error of data sets and its standard error."""
    ends = np.array(runs["errors"])[:, layer]
    return float(ends.mean()), float(ends.std(ddof=1) / np.sqrt(len(ends)))


def fitted(rows: list[Record], limit: float, layer: int = 0) -> tuple[float, float, float]:
    """(C, its standard error, largest gap in standard errors) of errors limit + C / d, least squares with weights."""
    found = np.array([mean_of(row, layer) for row in rows])
    at, gap, weight = 1 / np.array([row["dim"] for row in rows]), found[:, 0] - limit, 1 / found[:, 1] ** 2
    C = float((weight * at * gap).sum() / (weight * at**2).sum())
    return C, float((weight * at**2).sum() ** -0.5), float(np.abs((gap - C * at) / found[:, 1]).max())


def softmax_table(rows: list[Record]) -> str:
    out = []
    for rho in sorted({row["rho"] for row in rows}):
        gaps = {row["alpha"]: abs(row["mmse"] - row["published"]) for row in rows if row["rho"] == rho}
        worst = max(gaps, key=lambda alpha: gaps[alpha])
        inner = sorted(gaps)[5:-5]
        cells = [f"{rho:g}", f"{np.median(list(gaps.values())):.0e}", f"{max(gaps[a] for a in inner):.1e}"]
        out.append([*cells, f"{gaps[worst]:.4f}", f"{worst:.4g}"])
    return table(["rho", "median gap", "largest but for five points at either end", "largest gap", "at alpha"], out)


def amp_table(rows: list[Record]) -> str:
    head = ["activation", "T", "alpha", "state evolution", *(f"d = {dim}" for dim in DIMS), "C", "gap"]
    out = []
    for key in dict.fromkeys((row["activation"], row["tokens"], row["alpha"]) for row in rows):
        own = [row for row in rows if (row["activation"], row["tokens"], row["alpha"]) == key]
        limit, error = own[0]["limit"], own[0]["limit_error"]
        C, spread, gap = fitted(own, limit)
        cells = [format_with_error(*mean_of(row)) for row in own]
        first = [
            key[0],
            str(key[1]),
            f"{key[2]:g}",
            format_with_error(limit, error) if error > 1e-4 else f"{limit:.4f}",
        ]
        out.append([*first, *cells, format_with_error(C, spread), f"{gap:.1f}"])
    return table(head, out)


def others_table(rows: list[Record]) -> str:
    """Published runs beside the limit, which depends on alpha (T^2 + T - 2) alone."""
    here = [(4 * row["alpha"], row["mmse"]) for row in rows if row["rho"] == 0.5]
    alphas, limit = np.array(here).T
    chosen = (("AMP", 2, (0.1024, 0.1465)), ("AMP", 3, (0.03, 0.05, 0.07)), ("AMP", 4, (0.02, 0.03, 0.04)),
              ("averaged gradient descent", 2, (0.0296, 0.0862, 0.1471)),
              ("averaged gradient descent", 3, (0.0296, 0.0505)))  # fmt: skip
    out = []
    for what, tokens, wanted in chosen:
        for row in published(what, tokens):
            if min(abs(row["alpha"] - alpha) for alpha in wanted) > 1e-4:
                continue
            at = float(np.interp((tokens**2 + tokens - 2) * row["alpha"], alphas, limit))
            cells = [what, str(tokens), f"{row['alpha']:.4g}", f"{row['error']:.3f} ({row['spread']:.3f})", f"{at:.3f}"]
            out.append(cells)
    return table(["algorithm", "T", "alpha", "published", "state evolution"], out)


def hardmax_table(rows: list[Record]) -> str:
    head, out = ["alpha"], []
    for rho in HARDMAX_RATIOS:
        head += [f"rho = {rho:g}", "published"]
    for alpha in HARDMAX_ALPHAS:
        cells = [f"{alpha:g}"]
        for row in sorted((row for row in rows if row["alpha"] == alpha), key=lambda row: row["rho"]):
            cells += [format_with_error(row["mmse"], row["error"]), there("hardmax", alpha, row["rho"])]
        out.append(cells)
    return table(head, out)


def small_table(rows: list[Record]) -> str:
    out = []
    for row in rows:
        other = there("hardmax small width", row["alpha"], 0.0)
        out.append([f"{row['alpha']:g}", format_with_error(row["mmse"], row["error"]), other])
    return table(["alpha", "ours", "published"], out)


def deep_table(rows: list[Record]) -> str:
    out = []
    for row in rows:
        cells = [format_with_error(value, error) for value, error in zip(row["mmse"], row["error"], strict=True)]
        out.append([f"{row['alpha']:g}", *cells, "" if row["growth"] is None else f"{row['growth']:.2f}"])
    return table(["alpha", "first layer", "second layer", "growth between them"], out)


def deep_amp_table(rows: list[Record], limits: list[Record]) -> str:
    """Means over runs of each layer beside their limit, and C of limit + C / d."""
    (limit,) = [row for row in limits if row["alpha"] == DEEP_RUNS]
    out = []
    for layer, name in enumerate(("first layer", "second layer")):
        C, error, gap = fitted(rows, limit["mmse"][layer], layer)
        means = [format_with_error(*mean_of(row, layer)) for row in rows]
        whole = format_with_error(limit["mmse"][layer], limit["error"][layer])
        out.append([name, whole, *means, format_with_error(C, error), f"{gap:.1f}"])
    return table(["", "state evolution", *(f"d = {row['dim']}" for row in rows), "C", "gap"], out)


def regression_table(rows: list[Record]) -> str:
    out = []
    for row in rows:
        out.append([f"{row['rho']:g}", f"{row['alpha']:g}", f"{row['published']:g}", f"{row['mmse']:.4f}"])
    return table(["rho", "alpha", "published", "state evolution"], out)


def tables(known: Record) -> dict[str, str]:
    """By the names of the marks between which they stand on the page."""
    rows = {name: part["rows"] for name, part in known.items()}
    return {
        "softmax": softmax_table(rows["softmax"]), "others": others_table(rows["softmax"]),
        "amp": amp_table(rows["amp"]), "hardmax": hardmax_table(rows["hardmax"]),
        "small_hardmax": small_table(rows["small_hardmax"]), "two_layers": deep_table(rows["two_layers"]),
        "plane": plane_table(rows["plane"]),
        "deep_amp": deep_amp_table(rows["deep_amp"], rows["two_layers"]),
        "regression": regression_table(rows["regression"]),
    }  # fmt: skip


def plane_table(rows: list[Record]) -> str:
    """Where half of each layer is known, and where all is."""
    lines = [
        "| rank ratio | skip | half of layer 1 | half of layer 2 | all, by counting | reached |",
        "|---|---|---|---|---|---|",
    ]
    for rho, skip in dict.fromkeys((row["rho"], row["skip"]) for row in rows):
        own = [row for row in rows if (row["rho"], row["skip"]) == (rho, skip)]
        at = np.array([0.0, *(row["alpha"] for row in own), own[0]["known"]])
        half = [level_at(0.5, at, np.array([1.0, *(row["mmse"][layer] for row in own), 0.0])) for layer in (0, 1)]
        reached = format_with_error(*own[0]["reached"])
        lines.append(f"| {rho:g} | {skip:g} | {half[0]:.3f} | {half[1]:.3f} | {own[0]['known']:.4f} | {reached} |")
    return "\n".join(lines)


def page(text: str, known: Record) -> str:
    """The page with its tables put between their marks."""
    for name, made in tables(known).items():
        mark = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, count = re.subn(mark, lambda m, t=made: m[1] + t + "\n" + m[2], text, flags=re.DOTALL)  # type: ignore[misc]
        if count != 1:
            raise SystemExit(f"published-aim.md has no marks of {name}")
    return text


# --- figures ----------------------------------------------------------------------------------------


def draw_small_width(rows: list[Record]) -> None:
    """Both ends in one figure: rank ratios that go to zero, and finite ranks."""
    figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    ratios = [row for row in rows if "ratio" in row]
    for k, row in enumerate(row for row in rows if "rank" in row):
        label = f"rank {row['rank']}, infinite d"
        ax.plot(row["alphas"], row["mmse"], "--", color=plt.cm.Oranges(0.45 + 0.3 * k), label=label)
    for k, row in enumerate(ratios):
        how = {"color": plt.cm.Blues(0.3 + 0.18 * k), "label": f"rank ratio {row['ratio']:g}"}
        ax.plot(row["alphas"], row["mmse"], **(how if row["ratio"] else {"color": "black", "label": "small width"}))
    ax.set(xlabel=r"$N / (r d)$", ylabel=r"$\|\hat S - S\|^2 / d$", xlim=(0, max(ALPHAS)), ylim=(0, 1.03))
    ax.legend(frameon=False, fontsize=8)
    _save(figure, "small_width.png")


def draw_amp(rows: list[Record], curve: list[Record], hard: list[Record]) -> None:
    """Runs on data against the curves of infinite d."""
    figure, axes = plt.subplots(1, 2, figsize=(7.6, 3.5), layout="constrained")
    here = np.array([(4 * row["alpha"], row["mmse"]) for row in curve if row["rho"] == 0.5])
    axes[0].plot(*here.T, color="black", lw=1, label="state evolution")
    other = np.array([(row["alpha"], row["mmse"]) for row in hard if row["rho"] == 0.5])
    axes[1].plot(*other.T, ".-", color="black", lw=1, label="state evolution")
    colours = {2: "#0072B2", 3: "#D55E00", 4: "#009E73"}
    for dim, marker in zip(DIMS, "vo", strict=True):
        for row in (row for row in rows if row["dim"] == dim):
            T, soft = row["tokens"], row["activation"] == "softmax"
            mean, spread = mean_of(row)
            at = row["alpha"] * (T * T + T - 2 if soft else 1)
            label = f"T = {T}, d = {dim}"
            ax = axes[0] if soft else axes[1]
            label = "" if label in ax.get_legend_handles_labels()[1] else label
            ax.errorbar(at, mean, yerr=spread, fmt=marker, ms=3.5, color=colours[T], mfc="white", label=label or None)
    axes[0].set(xlabel=r"$\alpha\,(T^2 + T - 2)$", ylabel=r"$\|\hat S - S\|^2 / d$", title="softmax")
    axes[1].set(xlabel=r"$\alpha$", xscale="log", yscale="log", title="hardmax, T = 2")
    for ax in axes:
        ax.legend(frameon=False, fontsize=6.5)
    _save(figure, "extensive_amp.png")


def draw_two_layers(rows: list[Record]) -> None:
    figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    x = [row["alpha"] for row in rows]
    for layer, colour in enumerate(LAYER_COLOURS):
        ax.errorbar(x, [row["mmse"][layer] for row in rows], yerr=[row["error"][layer] for row in rows], fmt=".-",
                    color=colour, label=f"layer {layer + 1}, state evolution")  # fmt: skip
    ax.axvline(3 / 8, color="0.6", lw=0.8)
    ax.annotate("all is known", (3 / 8, 0.9), (-4, 0), textcoords="offset points", ha="right", color="0.4", fontsize=8)
    ax.set(xlabel=r"$N / d^2$", ylabel=r"$\|\hat S - S\|^2 / d$", xlim=(0, 0.4), ylim=(0, 1.03))
    ax.legend(frameon=False, fontsize=7.5)
    _save(figure, "extensive_two_layers.png")


def draw_plane(rows: list[Record]) -> None:
    """Where two layers are known how well: over the rank ratio, and over the skip."""
    figure, axes = plt.subplots(1, 2, figsize=(7.6, 3.6), layout="constrained", sharey=True)
    for ax, what, other in zip(axes, ("rho", "skip"), (("skip", 1.0), ("rho", 0.5)), strict=True):
        own = sorted((row for row in rows if row[other[0]] == other[1]), key=lambda row: (row[what], row["alpha"]))
        x = sorted({row[what] for row in own})
        grid = [[row for row in own if row[what] == one] for one in x]
        known = [column[0]["known"] for column in grid]
        at = np.array([[0.0, *(row["alpha"] for row in column), end] for column, end in zip(grid, known, strict=True)])
        for layer, colour in enumerate(LAYER_COLOURS):
            left = np.array([[1.0, *(row["mmse"][layer] for row in column), 0.0] for column in grid])
            for level, width in LEVELS:
                ax.plot(x, [level_at(level, *pair) for pair in zip(at, left, strict=True)], color=colour, lw=width)
        ax.errorbar(x, *np.transpose([column[0]["reached"] for column in grid]), fmt="o", ms=3, color="black")
        ax.plot(x, known, color="black", lw=1.2)
        ax.fill_between(x, known, 0.55, color="0.9")
        ax.set(xlabel={"rho": "rank ratio of both layers", "skip": "skip"}[what], xlim=(x[0], x[-1]), ylim=(0, 0.55))
        ax.set_xticks([0.5, 1, 1.5, 2] if what == "rho" else [1, 2, 3, 4])
    axes[0].set(ylabel=r"$N / d^2$", title="skip 1")
    axes[1].set(title="rank ratio 1/2")
    axes[1].text(2, 0.45, "all is known", color="0.35", fontsize=8, ha="center")
    for layer, colour in enumerate(LAYER_COLOURS):
        axes[0].plot([], [], color=colour, label=f"layer {layer + 1}: three quarters, half, a quarter left")
    axes[0].legend(frameon=False, fontsize=6.5, loc="lower right", bbox_to_anchor=(1, 0.0))
    _save(figure, "extensive_plane.png")


def level_at(level: float, alphas: np.ndarray, left: np.ndarray) -> float:
    """Where an error, which falls, is a level, between two alphas at which it is known."""
    return float(np.interp(-level, -left, alphas))


def _save(figure: Any, name: str) -> None:
    figure.savefig(FIGURES / name, dpi=150)
    plt.close(figure)


def draw(known: Record) -> None:
    rows = {name: part["rows"] for name, part in known.items()}
    draw_small_width(rows["small_width"])
    draw_amp(rows["amp"], rows["softmax"], rows["hardmax"])
    draw_two_layers(rows["two_layers"])
    draw_plane(rows["plane"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["compute"]:
        compute(sys.argv[2:])
    else:
        numbers = json.loads(NUMBERS.read_text())
        PAGE.write_text(page(PAGE.read_text(), numbers))
        draw(numbers)
