"""Makes the numbers and figures of published.md: two layers on two tokens beside published data.

    python docs/published.py compute [PART ...]                                      the numbers, into published.json
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import smisym
from smisym import Architecture, Attention
from smisym.declare import shipped
from smisym.declare.io import Store
from smisym.run.gamp_runs import gamp_run, gamp_tolerance

HERE = Path(__file__).parent
KEPT = HERE / "_build" / "published"
NUMBERS, PAGE, FIGURES = HERE / "published.json", HERE / "published.md", HERE / "figures"
Record = dict[str, Any]

ALPHAS = [round(0.05 * n, 2) for n in range(33)]
SKIPS = [0.01, 0.1, 0.5, 0.5625, 0.625, 0.75, 0.875, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
ACCURACY, SINGULAR = 0.002, 0.05
NEARLY_SINGULAR, NEARLY_SINGULAR_ACCURACY = [1e-4], 5e-3
THREE = [0.25, 0.375, 0.5, 0.625, 0.75, 0.9, 1.0, 1.05, 1.125, 1.2, 1.25, 1.3]
THREE_WITHIN, ARRIVAL_ACCURACY = 0.02, 5e-3
DEPTHS, DEPTH_ACCURACY = [1, 2, 3, 4, 5, 6], 1e-3
DEEP, DEEP_ACCURACY = [8], 2e-3
# Of the deepest, which take tens of minutes: by layers, the accuracy of each kind.
KINDS = "skip 1", "L / c = 1/2"
DEEPEST = {12: {"skip 1": 1e-2, "L / c = 1/2": 2e-3}, 16: {"skip 1": 3e-2, "L / c = 1/2": 4e-3}}
LAYERS, LAYERS_ACCURACY = [2, 3], 4e-3
LAYERS_DEEP, LAYERS_DEEP_ACCURACY = [4], 1e-2
DYNAMICS = {"alphas": [0.6, 1.2], "dim": 400, "seeds": 4, "steps": 40, "epochs": 300}
GAMP_ALPHAS = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.1, 1.2, 1.4]
DIM, SEEDS, STEPS = 2000, 8, 500
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


def three(alphas: list[float] = THREE, **settings: Any) -> list[Record]:
    """Overlaps of three layers by state evolution."""
    deep = Architecture(2, (Attention(), Attention(), Attention()))
    found = smisym.curve(smisym.compile(deep), alphas, on_point=_told, **(settings or {"accuracy": THREE_WITHIN}))
    return [
        {"alpha": s.value.alpha, "Q": np.diag(s.value.Q).tolist(),
         "error": np.diag(np.hypot(s.value.Q_error, s.deterministic_error)).tolist(), "result": s.result.value}
        for s in found
    ]  # fmt: skip


def arrival() -> list[Record]:
    """Where three layers are known perfectly: from which alpha on that is stable, and where state evolution arrives."""
    deep = Architecture(2, (Attention(), Attention(), Attention()))
    found = smisym.perfect_recovery(smisym.compile(deep), accuracy=ARRIVAL_ACCURACY)
    result = found.result.value
    return [{"kind": t.kind, "alpha": t.alpha, "error": t.error, "result": result} for t in found.value]


def depth(depths: list[int] = DEPTHS, accuracy: float = DEPTH_ACCURACY, kinds: Sequence[str] = KINDS) -> list[Record]:
    """First thresholds against depth: skips of one; and of many layers each of which does little, L / c = 1/2."""
    rows = []
    for layers in depths:
        for kind in kinds:
            below = Attention() if kind == "skip 1" else Attention(readout=1 / (2 * layers))
            deep = Architecture(2, (*[below] * (layers - 1), Attention()))
            found = smisym.weak_recovery(smisym.compile(deep), stages=1, accuracy=accuracy)
            (first,) = found.value
            rows.append({"layers": layers, "kind": kind, "rows": list(first.names), "alpha": first.alpha,
                         "error": first.error, "result": found.result.value})  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def deepest(layers: int) -> list[Record]:
    """The same of one of the deepest."""
    return [row for kind, accuracy in DEEPEST[layers].items() for row in depth([layers], accuracy, [kind])]


def _told(found: smisym.Solution) -> None:
    print(f"{found.value!r}: {found.result.value}", flush=True)


def dynamics(alphas: list[float] = DYNAMICS["alphas"], **settings: Any) -> list[Record]:
    """What is known of each layer, step by step: state evolution, GAMP, SGD and Adam on the same data."""
    model, rows = smisym.compile(network()), []
    options = {key: DYNAMICS[key] for key in ("dim", "seeds", "steps", "epochs")} | settings
    for alpha in alphas:
        found = smisym.dynamics(model, alpha, **options)
        for one in found.value.trajectories:
            mean, error = found.value.mean(one.method), found.value.error(one.method)
            rows.append({"alpha": alpha, "method": one.method, "unit": one.unit, "seeds": len(one.cosines),
                         "cosine": mean.round(6).tolist(), "error": error.round(6).tolist()})  # fmt: skip
        print(f"alpha {alpha:g}: {found.value!r}", flush=True)
    return rows


def skip(skips: list[float] = SKIPS, stages: int = 2, **settings: Any) -> list[Record]:
    """Both thresholds against the skip of the first layer."""
    rows = []
    for c in skips:
        # Where tokens hardly skip, mixing is nearly singular, and a later threshold takes an hour.
        first_alone = c < SINGULAR
        found = smisym.weak_recovery(smisym.compile(network(c)), stages=1 if first_alone else stages, **settings)
        thresholds = [{"rows": list(t.names), "alpha": t.alpha, "error": t.error} for t in found.value]
        rows.append({"skip": c, "thresholds": thresholds, "result": found.result.value})
        print(f"skip {c:g}: {found.value}", flush=True)
    return rows


def layers(depths: list[int] = LAYERS, accuracy: float = LAYERS_ACCURACY, **settings: Any) -> list[Record]:
    """Thresholds of every layer, with skips of one."""
    rows = []
    for count in depths:
        deep = Architecture(2, (Attention(),) * count)
        found = smisym.weak_recovery(smisym.compile(deep), accuracy=accuracy, **settings)
        thresholds = [{"rows": list(t.names), "alpha": t.alpha, "error": t.error} for t in found.value]
        rows.append({"layers": count, "thresholds": thresholds, "result": found.result.value})
        print(rows[-1], flush=True)
    return rows


def gamp(
    alphas: list[float] = GAMP_ALPHAS, dim: int = DIM, seeds: int = SEEDS, kept: Path | None = KEPT
) -> list[Record]:
    """GAMP on data of dimension D, several data sets at each alpha; runs that are kept are not made again."""
    model, rows = smisym.compile(network()), []
    settings = {"iterations": STEPS, "damping": 0.3, "tol": gamp_tolerance(dim)}
    store = None if kept is None else Store(kept, {"part": "gamp", "version": smisym.__version__, **settings})
    for alpha in alphas:
        runs = [gamp_run(model, alpha, dim, seed=seed, store=store, **settings) for seed in range(seeds)]
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


PARTS: dict[str, Callable[[], list[Record]]] = {
    "curve": curve, "skip": skip, "gamp": gamp, "regularised": regularised, "three": three, "arrival": arrival,
    "dynamics": dynamics, "depth": depth, "layers": layers,
    # Deeper networks, which take longer.
    "skip_singular": lambda: skip(NEARLY_SINGULAR, accuracy=NEARLY_SINGULAR_ACCURACY),
    "depth_12": lambda: deepest(12), "depth_16": lambda: deepest(16),
    "depth_deep": lambda: depth(DEEP, DEEP_ACCURACY), "layers_deep": lambda: layers(LAYERS_DEEP, LAYERS_DEEP_ACCURACY),
}  # fmt: skip


def compute(names: list[str]) -> None:
    for name in names or list(PARTS):
        began = time.monotonic()
        rows = PARTS[name]()
        how = {"version": smisym.__version__, "seconds": round(time.monotonic() - began)}
        # Read only now: another part may have been made meanwhile.
        known = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
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
    for row in every_skip(known):
        own = {one["rows"][0]: number(one["alpha"], one["error"]) for one in row["thresholds"]}
        other = published[row["skip"]]
        last, first = f"{other['alpha2']:.4f}", f"{other['alpha1']:.4f}"
        cells = [f"{row['skip']:g}", last, own.get("layer 2", "–"), first, own.get("layer 1", "–")]
        lines.append(f"| {' | '.join(cells)} |")
    head = f"| alpha | layer | smisym | published | GAMP, D = {DIM} | at rest |"
    curve_lines = [head, "|---|---|---|---|---|---|"]
    amp = {row["alpha"]: np.array(row["overlaps"]) for row in known["gamp"]["rows"]}
    rest = {row["alpha"]: f"{row['results'].count('success')}/{len(row['results'])}" for row in known["gamp"]["rows"]}
    for point in known["curve"]["rows"]:
        if point["alpha"] not in amp:
            continue
        runs = amp[point["alpha"]]
        for layer in range(2):
            spread = runs[:, layer].std(ddof=1) / np.sqrt(len(runs))
            cells = [number(point["Q"][layer], point["error"][layer]), f"{at_published(point['alpha'], layer):.4f}"]
            cells += [number(float(runs[:, layer].mean()), float(spread)), rest[point["alpha"]]]
            curve_lines.append(f"| {point['alpha']:g} | {layer + 1} | {' | '.join(cells)} |")
    with_eps = ["| alpha | smisym | 1e-3 added to V | published |", "|---|---|---|---|"]
    own_curve = {point["alpha"]: point for point in known["curve"]["rows"]}
    for row in known["regularised"]["rows"]:
        ends, here = np.array(row["Q"])[:, 0], own_curve[row["alpha"]]
        stated = number(float(ends.mean()), float(ends.std(ddof=1) / np.sqrt(len(ends))))
        cells = [number(here["Q"][0], here["error"][0]), stated, f"{at_published(row['alpha'], 0):.4f}"]
        with_eps.append(f"| {row['alpha']:g} | {' | '.join(cells)} |")
    made = {"three": three_table, "dynamics": dynamics_table, "depth": depth_table, "layers": layers_table}
    own = {"skip": lines, "curve": curve_lines, "eps": with_eps}
    own |= {name: table(every_row(known, name)) for name, table in made.items()}
    return {name: "\n".join(rows) for name, rows in own.items()}


def every_row(known: Record, part: str) -> list[Record]:
    """Rows of a part, and of what is a part of its own as it takes longer."""
    return [row for name in known if name == part or name.startswith(f"{part}_") for row in known[name]["rows"]]


def every_skip(known: Record) -> list[Record]:
    return sorted(every_row(known, "skip"), key=lambda row: float(row["skip"]))


def three_table(rows: list[Record]) -> list[str]:
    lines = [
        "| alpha | layer 1 | published | layer 2 | published | layer 3 | published |",
        "|---|---|---|---|---|---|---|",
    ]
    published = published_three()
    for row in rows:
        cells = []
        for layer in range(3):
            there = float(np.interp(row["alpha"], published[:, 0], published[:, layer + 1]))
            cells += [number(row["Q"][layer], row["error"][layer]), f"{there:.4f}"]
        lines.append(f"| {row['alpha']:g} | {' | '.join(cells)} |")
    return lines


def dynamics_table(rows: list[Record]) -> list[str]:
    """The first step from which on the mean cosine of a layer stays above one half, and where it ends."""
    lines = [
        "| alpha | method | layer 2 above 1/2 from | ends at | layer 1 above 1/2 from | ends at |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cosine, error, cells = np.array(row["cosine"]), np.array(row["error"]), []
        for layer in (1, 0):
            below = np.flatnonzero(~(cosine[:, layer] > 0.5))
            first = 0 if not len(below) else int(below[-1]) + 1
            cells += [
                f"{row['unit']} {first}" if first < len(cosine) else "–",
                number(cosine[-1, layer], error[-1, layer]),
            ]
        lines.append(f"| {row['alpha']:g} | {row['method']} | {' | '.join(cells)} |")
    return lines


def depth_table(rows: list[Record]) -> list[str]:
    lines = ["| layers | skip 1 | L / c = 1/2 |", "|---|---|---|"]
    by = {(row["layers"], row["kind"]): number(row["alpha"], row["error"]) for row in rows}
    for layers in sorted({row["layers"] for row in rows}):
        lines.append(f"| {layers} | {by.get((layers, 'skip 1'), '–')} | {by.get((layers, 'L / c = 1/2'), '–')} |")
    return lines


def layers_table(rows: list[Record]) -> list[str]:
    """Thresholds in the order in which they are met, and how far the next one is, in errors of the difference."""
    lines = ["| layers | threshold of | alpha | to the next | in errors |", "|---|---|---|---|---|"]
    for row in rows:
        met = row["thresholds"]
        for one, after in zip(met, [*met[1:], None], strict=True):
            cells = ["–", "–"]
            if after is not None:
                gap, error = after["alpha"] - one["alpha"], float(np.hypot(after["error"], one["error"]))
                cells = [number(gap, error), f"{gap / error:.1f}"]
            who = ", ".join(one["rows"])
            lines.append(f"| {row['layers']} | {who} | {number(one['alpha'], one['error'])} | {' | '.join(cells)} |")
    return lines


def published_three() -> np.ndarray:
    """(alpha, Q11, Q22, Q33) of three layers as published (n, 4)."""
    return np.loadtxt(shipped.HERE / "published" / "BO_3w.csv", delimiter=",", skiprows=1)


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
    rows = every_skip(known)
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


def draw_three(known: Record) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
    rows, there = known["three"]["rows"], published_three()
    for layer, colour in enumerate(("#0072B2", "#009E73", "#D55E00")):
        x, y = [r["alpha"] for r in rows], [r["Q"][layer] for r in rows]
        axes.errorbar(x, y, yerr=[2 * r["error"][layer] for r in rows], fmt="o-", ms=3, lw=1.2, color=colour,
                      label=f"layer {layer + 1}, smisym")  # fmt: skip
        axes.plot(there[:, 0], there[:, layer + 1], "--", lw=0.9, color=colour, label="published")
    arrives = next(row["alpha"] for row in known["arrival"]["rows"] if row["kind"] == "perfect_amp")
    axes.axvline(arrives, ls=":", lw=1, color="0.4")
    axes.text(arrives + 0.04, 0.85, "all known from here on, smisym", fontsize=7.5)
    axes.set(xlabel="samples per dimension, N / D", ylabel="overlap with the truth", ylim=(-0.03, 1.05))
    axes.legend(fontsize=7.5, frameon=False, loc="lower right", ncols=2, bbox_to_anchor=(1.0, 0.12))
    _save(figure, "published_three.png")


def draw_dynamics(known: Record) -> None:
    rows = known["dynamics"]["rows"]
    alphas = sorted({row["alpha"] for row in rows})
    figure, axes = plt.subplots(2, len(alphas), figsize=(7.2, 4.8), layout="constrained", sharey=True)
    styles = {"state evolution": "-", "gamp": "o", "sgd": "-", "adam": "--"}
    for column, alpha in enumerate(alphas):
        for row in (r for r in rows if r["alpha"] == alpha):
            panel = axes[0 if row["unit"] == "iteration" else 1][column]
            cosine, error = np.array(row["cosine"]), np.array(row["error"])
            for layer, colour in enumerate(("#0072B2", "#D55E00")):
                style = styles[row["method"]]
                panel.plot(
                    cosine[:, layer], style, ms=2.2, lw=1.1, color=colour, label=f"layer {layer + 1}, {row['method']}"
                )
                low, high = cosine[:, layer] - error[:, layer], cosine[:, layer] + error[:, layer]
                panel.fill_between(range(len(cosine)), low, high, color=colour, alpha=0.15, lw=0)
            panel.set(xlabel=row["unit"], ylim=(-0.03, 1.05))
        axes[0][column].set_title(f"N / D = {alpha:g}", fontsize=9)
    for line in axes:
        line[0].set_ylabel("cosine with the truth")
        line[0].legend(fontsize=6.5, frameon=False)
    _save(figure, "published_dynamics.png")


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
        for drawn in (draw, draw_three, draw_dynamics):
            drawn(known)


if __name__ == "__main__":
    main(sys.argv[1:])
