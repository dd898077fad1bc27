"""Makes the numbers and figures of published.md: two layers on two tokens beside published data.

    python docs/published.py compute [curve | skip | gamp | regularised ...]   the numbers, into published.json
    python docs/published.py                                                   tables and figures from them

Each part of published.json says with which version and in how many seconds it was made.  A test computes points
of each part again (tests/house/test_published.py).
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
from smisym import Architecture, Attention
from smisym.declare import shipped
from smisym.run.gamp_runs import gamp_run, gamp_tolerance

HERE = Path(__file__).parent
NUMBERS, PAGE, FIGURES = HERE / "published.json", HERE / "published.md", HERE / "figures"
Record = dict[str, Any]

ALPHAS = [round(0.05 * n, 2) for n in range(33)]
SKIPS = [0.01, 0.1, 0.5, 0.5625, 0.625, 0.75, 0.875, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
ACCURACY, SINGULAR = 0.002, 0.05
DIM, SEEDS, GAMP_ALPHAS, STEPS = 1000, 4, [0.3, 0.5, 0.7, 0.85, 0.95, 1.1, 1.2, 1.4], 150
EPS, REGULARISED, POINTS = 1e-3, [0.8, 0.9, 1.0, 1.2, 1.4, 1.6], 8192


def network(skip: float = 1.0) -> Architecture:
    return Architecture(2, (Attention(skip=skip), Attention()))


def curve(alphas: list[float] = ALPHAS, **settings: Any) -> list[Record]:
    """Overlaps by state evolution, with the error asked for."""
    found = smisym.curve(smisym.compile(network()), alphas, **(settings or {"accuracy": ACCURACY}))
    return [
        {"alpha": s.value.alpha, "Q": np.diag(s.value.Q).tolist(), "error": np.diag(s.value.Q_error).tolist(),
         "result": s.result.value}
        for s in found
    ]  # fmt: skip


def skip(skips: list[float] = SKIPS, stages: int = 2) -> list[Record]:
    """Both thresholds against the skip of the first layer."""
    rows = []
    for c in skips:
        # Where tokens hardly skip, mixing is nearly singular, and a later threshold takes an hour.
        first_alone = c < SINGULAR
        found = smisym.weak_recovery(smisym.compile(network(c)), stages=1 if first_alone else stages)
        thresholds = [{"rows": list(t.names), "alpha": t.alpha, "error": t.error} for t in found.value]
        rows.append({"skip": c, "thresholds": thresholds, "result": found.result.value})
        print(f"skip {c:g}: {found.value}", flush=True)
    return rows


def gamp(alphas: list[float] = GAMP_ALPHAS, dim: int = DIM, seeds: int = SEEDS) -> list[Record]:
    """GAMP on data of dimension D, several data sets at each alpha."""
    model, rows = smisym.compile(network()), []
    for alpha in alphas:
        runs = [
            gamp_run(model, alpha, dim, seed=seed, iterations=STEPS, damping=0.3, tol=gamp_tolerance(dim))
            for seed in range(seeds)
        ]
        known = [np.diag(np.abs(np.array(run["iterations"][-1]["overlap"], float))).tolist() for run in runs]
        rows.append({"alpha": alpha, "dim": dim, "overlaps": known, "results": [run["result"] for run in runs]})
        print(f"alpha {alpha:g}: {np.array(known).round(3).tolist()}", flush=True)
    return rows


def regularised(alphas: list[float] = REGULARISED, points: int = POINTS, seeds: int = 4) -> list[Record]:
    """Where iteration leads whose V has 1e-3 added, for the truth and the denoiser alike, from Q near one."""
    model, rows = smisym.compile(network()), []
    for alpha in alphas:
        ends = []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            xi, u = rng.standard_normal((2, points, 2, 2))
            q = np.array([0.9, 0.99])
            for _ in range(60):
                V = 1 - q + EPS
                omega = np.sqrt(q)[:, None] * xi
                observed = model.observe(omega + np.sqrt(V)[:, None] * u)
                mean = model.channel.moments(observed, omega, np.diag(V), rtol=3e-2).mean
                hat = alpha * (((mean - omega) / V[:, None]) ** 2).sum(axis=(0, 2)) / points
                q = hat / (1 + hat)
            ends.append(q.tolist())
        rows.append({"alpha": alpha, "Q": ends})
        print(f"regularised {alpha:g}: {np.array(ends).round(4).tolist()}", flush=True)
    return rows


PARTS: dict[str, Callable[[], list[Record]]] = {"curve": curve, "skip": skip, "gamp": gamp, "regularised": regularised}


def compute(names: list[str]) -> None:
    known = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    for name in names or list(PARTS):
        began = time.monotonic()
        rows = PARTS[name]()
        how = {"version": smisym.__version__, "seconds": round(time.monotonic() - began)}
        known[name] = {"command": f"python docs/published.py compute {name}", **how, "rows": rows}
        NUMBERS.write_text(json.dumps(known, indent=1) + "\n")


def published_skips() -> list[dict[str, float]]:
    """Published thresholds, by increasing skip."""
    with open(shipped.HERE / "published" / "alpha_critical.csv", encoding="utf-8") as stream:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(stream)]
    return sorted(rows, key=lambda row: row["skip"])


# --- tables -----------------------------------------------------------------------------------------


def number(value: float, error: float) -> str:
    """0.1855(2), and the value alone where the error is zero."""
    from smisym.report import format_with_error

    return format_with_error(value, error)


def tables(known: Record) -> dict[str, str]:
    """By the names of the marks between which they stand on the page."""
    published = {row["skip"]: row for row in published_skips()}
    lines = ["| skip | last layer, published | smisym | first layer, published | smisym |", "|---|---|---|---|---|"]
    for row in known["skip"]["rows"]:
        own = {one["rows"][0]: number(one["alpha"], one["error"]) for one in row["thresholds"]}
        other = published[row["skip"]]
        last, first = f"{other['alpha2']:.4f}", f"{other['alpha1']:.4f}"
        cells = [f"{row['skip']:g}", last, own.get("layer 2", "–"), first, own.get("layer 1", "–")]
        lines.append(f"| {' | '.join(cells)} |")
    curve_lines = ["| alpha | layer | smisym | published | GAMP, D = 1000 |", "|---|---|---|---|---|"]
    amp = {row["alpha"]: np.array(row["overlaps"]) for row in known["gamp"]["rows"]}
    for point in known["curve"]["rows"]:
        if point["alpha"] not in amp:
            continue
        runs = amp[point["alpha"]]
        for layer in range(2):
            spread = runs[:, layer].std(ddof=1) / np.sqrt(len(runs))
            cells = [number(point["Q"][layer], point["error"][layer]), f"{at_published(point['alpha'], layer):.4f}"]
            cells.append(number(float(runs[:, layer].mean()), float(spread)))
            curve_lines.append(f"| {point['alpha']:g} | {layer + 1} | {' | '.join(cells)} |")
    with_eps = ["| alpha | smisym | 1e-3 added to V | published |", "|---|---|---|---|"]
    own_curve = {point["alpha"]: point for point in known["curve"]["rows"]}
    for row in known["regularised"]["rows"]:
        ends, here = np.array(row["Q"])[:, 0], own_curve[row["alpha"]]
        stated = number(float(ends.mean()), float(ends.std(ddof=1) / np.sqrt(len(ends))))
        cells = [number(here["Q"][0], here["error"][0]), stated, f"{at_published(row['alpha'], 0):.4f}"]
        with_eps.append(f"| {row['alpha']:g} | {' | '.join(cells)} |")
    return {name: "\n".join(rows) for name, rows in (("skip", lines), ("curve", curve_lines), ("eps", with_eps))}


def at_published(alpha: float, layer: int) -> float:
    """The published overlap, linear between two of its alphas."""
    points = shipped.published_two_layers()["curve"]
    # Some are zero but for rounding, of either sign.
    return abs(round(float(np.interp(alpha, [p["alpha"] for p in points], [p["Q"][layer] for p in points])), 4))


def page(text: str, known: Record) -> str:
    """The page with its tables put between their marks."""
    for name, table in tables(known).items():
        mark = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, count = re.subn(mark, lambda m, t=table: m[1] + t + "\n" + m[2], text, flags=re.DOTALL)  # type: ignore[misc]
        if count != 1:
            raise SystemExit(f"published.md has no marks of {name}")
    return text


# --- figures ----------------------------------------------------------------------------------------


def draw(known: Record) -> None:
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "s"})
    colours = ("#0072B2", "#D55E00")
    data = shipped.published_two_layers()
    figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
    points = known["curve"]["rows"]
    for layer, colour in enumerate(colours):
        x = [p["alpha"] for p in points]
        axes.plot(x, [p["Q"][layer] for p in points], color=colour, label=f"layer {layer + 1}, smisym")
        there = data["curve"]
        axes.plot([p["alpha"] for p in there], [p["Q"][layer] for p in there], color=colour, ls="--", lw=0.9,
                  label="published")  # fmt: skip
        runs = known["gamp"]["rows"]
        mean = [np.mean(np.array(r["overlaps"])[:, layer]) for r in runs]
        spread = [np.std(np.array(r["overlaps"])[:, layer], ddof=1) for r in runs]
        axes.errorbar([r["alpha"] for r in runs], mean, yerr=spread, fmt="o", ms=3.5, color=colour,
                      label=f"GAMP, D = {DIM}")  # fmt: skip
    eps = known["regularised"]["rows"]
    axes.plot([r["alpha"] for r in eps], [np.mean(np.array(r["Q"])[:, 0]) for r in eps], "x", color="0.3",
              label="layer 1, 1e-3 added to V")  # fmt: skip
    axes.set(xlabel="samples per dimension, N / D", ylabel="overlap with the truth", ylim=(-0.03, 1.05))
    axes.legend(fontsize=7.5, frameon=False, loc="center left", bbox_to_anchor=(0.62, 0.3))
    _save(figure, "published_curve.png")

    figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
    there = published_skips()
    rows = known["skip"]["rows"]
    for layer, key, colour in ((1, "alpha1", colours[0]), (2, "alpha2", colours[1])):
        own = [(r["skip"], t["alpha"], t["error"]) for r in rows for t in r["thresholds"]
               if t["rows"] == [f"layer {layer}"]]  # fmt: skip
        x, y, e = np.array(own).T
        axes.errorbar(x, y, yerr=2 * e, fmt="o-", ms=3, color=colour, label=f"layer {layer}, smisym")
        axes.plot([p["skip"] for p in there], [p[key] for p in there], "s--", ms=2.5, lw=0.9, mfc="white", color=colour,
                  label="published")  # fmt: skip
    axes.axhline(1 / 6, color="0.6", lw=0.8)
    axes.annotate(
        "floor of one layer, 1/6", (4.0, 1 / 6), (0, -11), textcoords="offset points", ha="right", color="0.4"
    )
    axes.set(xlabel="skip of the first layer", ylabel="threshold, N / D", ylim=(0, None))
    axes.legend(fontsize=8, frameon=False)
    _save(figure, "published_skip.png")


def _save(figure: plt.Figure, name: str) -> None:
    figure.savefig(FIGURES / name, dpi=150, metadata={"Software": None})
    plt.close(figure)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["compute"]:
        compute(arguments[1:])
    elif arguments:
        raise SystemExit(__doc__)
    known = json.loads(NUMBERS.read_text())
    if set(PARTS) <= set(known):
        PAGE.write_text(page(PAGE.read_text(), known))
        draw(known)


if __name__ == "__main__":
    main(sys.argv[1:])
