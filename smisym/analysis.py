"""Everything about one network, as files in one folder: derivation, thresholds, curve, GAMP, figure, report.

Each file is written as soon as what it holds is known, and says what reproduces it.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from smisym import plots, sweep
from smisym.files import make_folder, write_text
from smisym.io import Store, write_json
from smisym.overlap_map import OverlapMap, affordable
from smisym.render import report_page, write_derivation

Record = dict[str, Any]
Matrix = Sequence[Sequence[float]]
Bar = Callable[[str, int], AbstractContextManager[sweep.Progress]]

GAMP_POINTS = 8
# Overlaps of one run fluctuate by about D^{-1/2}: iterating them to more digits than this shows nothing.
GAMP_TOL = 1e-2
CURVE_POINTS = 33


@dataclass(frozen=True)
class Plan:
    """What is computed.

    alphas: of the curve, increasing; None for 33 from 0 to 1.6 times the threshold of perfect recovery.
    dim, runs, iterations: GAMP's dimension D, runs at each of eight alphas of the curve, and largest number of steps.
    """

    alphas: tuple[float, ...] | None
    dim: int
    runs: int
    iterations: int

    def settings(self) -> Record:
        return {"alphas": self.alphas, "dim": self.dim, "runs": self.runs, "iterations": self.iterations}


def analyze(
    omap: OverlapMap,
    folder: Path,
    plan: Plan,
    header: Mapping[str, Any],
    *,
    store: Store | None = None,
    bar: Bar,
    published: Mapping[str, Any] | None = None,
) -> Record:
    """Write :data:`FILES` into ``folder``.

    folder
        Made where absent.
    header
        What every result file begins with; see :func:`smisym.io.header`.
    bar
        Called with a title and a total before each long part; a context manager that yields the progress callback.
    published
        Other people's data to draw beneath, as :func:`smisym.plots.curve_figure` takes them, with "source" and "notes".

    Returns {"folder", "files", "thresholds", "points", "gamp", "results"}, the last being the
    result codes of the thresholds and of the curve.
    Raises :class:`~smisym.errors.InputError`.
    """
    make_folder(folder, "folder for the files")
    model = omap.model
    write_derivation(model.derivation, folder / "derivation.html")
    with bar("thresholds", 2) as step:
        # A threshold is one number, which the curve's many points all lean on: it is worth more samples.
        found = sweep.thresholds(omap.sibling(max(omap.samples, affordable(model, 32768))), store=store, progress=step)
    write_json(folder / "thresholds.json", {**header, **found})
    alphas = plan.alphas or default_alphas(found["thresholds"])
    with bar("curve", len(alphas)) as step:
        points = sweep.curve(omap, alphas, store=store, progress=step)
    write_json(folder / "curve.json", {**header, "points": points})
    write_text(folder / "curve.csv", _csv(header, [_curve_row(point) for point in points]))
    runs = _gamp_runs(omap, plan, alphas, int(header["seed"]), store, bar)
    write_json(folder / "gamp.json", {**header, "runs": runs})
    write_text(folder / "gamp.csv", _csv(header, [row for run in runs for row in _gamp_rows(run)]))
    results = {"thresholds": found["thresholds"], "points": points, "gamp": runs}
    _draw(folder, results, header, model, published)
    # GAMP's codes stay with its runs: one that had not settled is an outcome on finite data, not a failed solve.
    codes = [found["result"], *(point["result"] for point in points)]
    return {"folder": str(folder), "files": list(FILES), **results, "results": codes}


FILES = (
    "report.html", "derivation.html", "thresholds.json", "curve.json", "curve.csv", "gamp.json", "gamp.csv",
    "curve.svg", "curve.png",
)  # fmt: skip


def default_alphas(thresholds: Sequence[Record]) -> tuple[float, ...]:
    """A grid that shows every finite threshold: from 0 to about 1.6 times the largest, in round numbers."""
    largest = max((t["alpha"] for t in thresholds if t["alpha"] is not None), default=1.0)
    return tuple(np.linspace(0.0, float(f"{1.6 * largest:.2g}"), CURVE_POINTS).round(12).tolist())


def _gamp_runs(
    omap: OverlapMap, plan: Plan, alphas: Sequence[float], seed: int, store: Store | None, bar: Bar
) -> list[Record]:
    """``plan.runs`` runs at each of about eight alphas, evenly spread; none at alpha = 0, where there are no data."""
    usable = [alpha for alpha in alphas if round(alpha * plan.dim) >= 1]
    chosen = np.linspace(0, len(usable) - 1, min(GAMP_POINTS, len(usable))).round().astype(int)
    interrupted = threading.Event()

    def step(record: Mapping[str, Any]) -> None:
        # Ctrl-C reaches the main thread only; a run is left between two iterations, never waited for.
        if interrupted.is_set():
            raise KeyboardInterrupt

    def run(which: tuple[int, int]) -> Record:
        index, number = which
        # A seed of its own for every run, so that all runs are independent.
        own = int(np.random.SeedSequence(seed, spawn_key=(index, number)).generate_state(1)[0])
        return sweep.gamp_run(
            omap.model,
            usable[index],
            plan.dim,
            seed=own,
            iterations=plan.iterations,
            tol=GAMP_TOL,
            store=store,
            progress=step,
        )

    tasks = list(itertools.product(chosen.tolist(), range(plan.runs)))
    runs = []
    with bar("GAMP", len(tasks)) as advance, threadpool_limits(1), ThreadPoolExecutor(omap.workers) as pool:
        try:
            for record in pool.map(run, tasks):
                runs.append(record)
                advance(record)
        except KeyboardInterrupt:
            interrupted.set()
            raise
    return runs


def _draw(
    folder: Path, results: Record, header: Mapping[str, Any], model: Any, published: Mapping[str, Any] | None
) -> None:
    labels = list(model.labels)
    figure = plots.curve_figure(
        results["points"], results["thresholds"], labels=labels, gamp_points=plots.gamp_points(results["gamp"]),
        published=published,
    )  # fmt: skip
    for name in ("curve.svg", "curve.png"):
        plots.save(figure, folder / name)
    page = results | {
        "header": header,
        "architecture_text": repr(model.architecture),
        "derivation": model.derivation,
        "figure_svg": plots.svg_text(figure),
        "labels": labels,
    }
    if published is not None:
        page["published"] = {key: published[key] for key in ("source", "notes")}
    write_text(folder / "report.html", report_page(page))


# --- tables --------------------------------------------------------------------------------------


def _csv(header: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV; the header is one line of JSON behind ``#``, which readers of CSV skip as a comment."""
    out = io.StringIO()
    out.write(f"# {json.dumps(header)}\n")
    if rows:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()


def _entries(name: str, matrix: Matrix, error: Matrix | None = None) -> Record:
    """Upper triangle of a symmetric matrix as columns ``name_11``, each followed by its error if there is one."""
    row: Record = {}
    for i, line in enumerate(matrix):
        for j in range(i, len(line)):
            row[f"{name}_{i + 1}{j + 1}"] = line[j]
            if error is not None:
                row[f"{name}_{i + 1}{j + 1}_error"] = error[i][j]
    return row


def _curve_row(point: Mapping[str, Any]) -> Record:
    row = {"alpha": point["alpha"], **_entries("Q", point["Q"], point["Q_error"])}
    for key in ("bayes_error", "plug_in_error", "free_entropy"):
        row |= {key: point[key], f"{key}_stderr": point[f"{key}_stderr"]}
    if "unbounded" in point:
        row["free_entropy"] = point["unbounded"]
    return row | {"result": point["result"]}


def _gamp_rows(run: Mapping[str, Any]) -> list[Record]:
    return [
        {
            "alpha": run["alpha"],
            "dim": run["dim"],
            "seed": run["seed"],
            "step": step["step"],
            **{f"overlap_{i + 1}{i + 1}": line[i] for i, line in enumerate(step["overlap"])},
            **_entries("Q", step["Q"]),
            "result": run["result"],
        }
        for step in run["iterations"]
    ]
