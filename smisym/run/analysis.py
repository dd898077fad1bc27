"""Everything about one network, as files in one folder: derivation, thresholds, curve, GAMP, figure, report.

Each file is written as soon as what it holds is known, and says what reproduces it.
"""

from __future__ import annotations

import csv
import functools
import io
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from smisym.base import patience, processes
from smisym.base.edge import MOST_DIM, MOST_RUNS, check_alpha, check_count, check_damping, check_settings
from smisym.base.errors import InputError
from smisym.base.files import check_path, make_folder, write_text
from smisym.base.linear_algebra import one_thread
from smisym.declare.architecture import Architecture
from smisym.declare.io import Store, header, write_json
from smisym.declare.smi import SMI
from smisym.finite.samples import check_fits
from smisym.model.compiled import Model, compile
from smisym.report import gamp_plots, plots, report_page, write_derivation
from smisym.report.analysis_page import thresholds_in_words
from smisym.run import gamp_runs, records
from smisym.run.progress import Choice, Reporter, reporting, watching
from smisym.theory.aim import aimed
from smisym.theory.effort import affordable
from smisym.theory.maps import OverlapMap
from smisym.trail.whole import derive

Record = dict[str, Any]
Matrix = Sequence[Sequence[float]]
Bar = Callable[[str, int], AbstractContextManager[Reporter]]

GAMP_POINTS = 8
# Overlaps of one run fluctuate by about D^{-1/2}: iterating them to more digits than this shows nothing.
GAMP_TOL = 1e-2
CURVE_POINTS = 33


@dataclass(frozen=True)
class Plan:
    """What is computed.

    alphas: of the curve, increasing; None for 33 from 0 to 1.6 times the threshold of perfect recovery.
    dim, runs, iterations, damping: GAMP's dimension D, runs at each of eight alphas of the curve, largest number of
    steps, and share of the old state that each keeps.
    Raises InputError for numbers of runs and steps that are none, and for a damping outside [0, 1).
    """

    alphas: tuple[float, ...] | None
    dim: int
    runs: int
    iterations: int
    damping: float = 0.0

    def __post_init__(self) -> None:
        check_count("dim", self.dim, 2, "give the dimension of GAMP's data", MOST_DIM)
        check_count("runs", self.runs, 0, "0 leaves GAMP out", MOST_RUNS)
        check_count("iterations", self.iterations, 1, "give the largest number of steps")
        check_damping(self.damping)
        for alpha in self.alphas or ():
            check_alpha(alpha)

    def settings(self) -> Record:
        return {f.name: getattr(self, f.name) for f in fields(self)}


# Many parameters: settings, all by keyword.
def analyze(
    network: Architecture | SMI | Model,
    folder: str | os.PathLike[str],
    *,
    alphas: Sequence[float] | None = None,
    dim: int = 500,
    runs: int = 3,
    iterations: int = 100,
    damping: float = 0.0,
    published: Mapping[str, Any] | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Choice = None,
    accuracy: float | None = None,
    most_samples: int | None = None,
    **settings: Any,
) -> Record:
    """Everything about one network as files in ``folder``: derivation, thresholds, curve, GAMP, figure, report.html.

    network
        A declaration, or a Model compiled from one.
    folder
        Made where absent.
    alphas
        Of the curve; None for 33 from 0 to 1.6 times the last finite threshold.
    dim, runs, iterations, damping
        GAMP's dimension D, runs at each of eight alphas (0 leaves GAMP out), and :func:`smisym.gamp`'s options.
    published
        Other people's data to draw beneath, as :func:`smisym.report.plots.curve_figure` takes them, with "source" and
        "notes".
    store
        A folder that keeps finished parts: the same call resumes from there, to the same bits.
    progress
        True for a bar on stderr, or a callable that is given what is finished.
    accuracy, most_samples
        The largest error of any threshold, in the unit of alpha, and of any overlap, in place of samples
        (:func:`smisym.weak_recovery`, :func:`smisym.perfect_recovery`, :func:`smisym.curve`).
    settings
        Of the overlap map: samples, scrambles, seed, rtol (of GAMP's posteriors too), workers.

    Returns {"folder", "files", "thresholds", "points", "gamp", "results"}: the records that the files hold, the last
    the result codes of the thresholds and of the curve.
    Raises InputError for a network that was not declared (a bare program), other keywords, and bad values.
    """
    check_settings(settings, ("samples", "scrambles", "seed", "rtol", "workers"))
    model = network if isinstance(network, Model) else compile(network)
    if model.architecture is None:
        raise InputError("network", network, "an Architecture, an SMI, or a Model of one", "declare it as an SMI")
    grid = None if alphas is None else _grid(alphas)
    plan = Plan(grid, dim, runs, iterations, damping)
    omap, aim = aimed(model, accuracy, most_samples, **settings)
    asked = {} if aim is None else aim.settings()
    head = {"command": "analyze", **header(model.architecture, omap.seed, plan.settings() | omap.settings() | asked)}
    kept = None if store is None else Store(store, head)
    omap.store = kept
    return write_all(
        omap, check_path(folder, "folder for the files"), plan, head, store=kept, published=published, **asked,
        bar=lambda title, total: reporting(progress, title, total),
    )  # fmt: skip


def _grid(alphas: Sequence[float]) -> tuple[float, ...]:
    for alpha in alphas:
        check_alpha(alpha)
    return tuple(sorted({float(alpha) for alpha in alphas}))


# Many parameters: settings, most by keyword.
def write_all(
    omap: OverlapMap,
    folder: Path,
    plan: Plan,
    head: Mapping[str, Any],
    *,
    store: Store | None = None,
    bar: Bar,
    published: Mapping[str, Any] | None = None,
    accuracy: float | None = None,
    most_samples: int | None = None,
) -> Record:
    """Write :data:`FILES` into ``folder``.

    folder
        Made where absent.
    head
        What every result file begins with; see :func:`smisym.declare.io.header`.
    bar
        Called with a title and a total before each long part; a context manager that yields the progress callback.
    published
        Other people's data to draw beneath, as :func:`smisym.report.plots.curve_figure` takes them, with "source" and
        "notes".
    accuracy, most_samples
        Of thresholds and curve, as of :func:`analyze`.

    Returns {"folder", "files", "thresholds", "points", "gamp", "results", "found"}: "results" the result codes of the
    thresholds and of the curve, "found" the thresholds in words.
    Raises :class:`~smisym.base.errors.InputError`, for data of GAMP that do not fit in memory before anything is
    computed.
    """
    if plan.runs:
        check_fits(omap.model, plan.dim, max(plan.alphas or (1.0,)), min(omap.workers, plan.runs))
    make_folder(folder, "folder for the files")
    aim: dict[str, Any] = {"accuracy": accuracy, "most_samples": most_samples}
    omap.begin_elsewhere()
    model = omap.model
    trail = derive(model, seed=omap.seed)
    write_derivation(trail, folder / "derivation.html")
    with bar("thresholds", 2) as step:
        # A threshold is one number, which the curve's many points all lean on: it is worth some samples.
        finer = omap.sibling(max(omap.samples, affordable(model, 2048))) if accuracy is None else omap
        with watching(finer, step):
            found = records.thresholds(finer, store=store, progress=step, **aim)
    labels = {"labels": model.labels}
    write_json(folder / "thresholds.json", {**head, **labels, **found})
    alphas = plan.alphas or default_alphas(found["thresholds"])
    with bar("curve", len(alphas)) as step, watching(omap, step):
        points = records.curve(omap, alphas, store=store, progress=step, **aim)
    write_json(folder / "curve.json", {**head, **labels, "points": points})
    write_text(folder / "curve.csv", _csv(head, [_curve_row(point) for point in points]))
    runs = _gamp_runs(omap, plan, alphas, int(head["seed"]), store, bar)
    write_json(folder / "gamp.json", {**head, "runs": runs})
    write_text(folder / "gamp.csv", _csv(head, [row for run in runs for row in _gamp_rows(run)]))
    results = {"thresholds": found["thresholds"], "points": points, "gamp": runs}
    _draw(folder, results | {"derivation": trail}, head, model, published)
    # GAMP's codes stay with its runs: one that had not settled is an outcome on finite data, not a failed solve.
    codes = [found["result"], *(point["result"] for point in points)]
    words = thresholds_in_words(found["thresholds"], list(model.labels))
    return {"folder": str(folder), "files": list(FILES), **results, "results": codes, "found": words}


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
    usable = [alpha for alpha in alphas if round(omap.model.prior.samples(alpha, plan.dim)) >= 1]
    chosen = np.linspace(0, len(usable) - 1, min(GAMP_POINTS, len(usable))).round().astype(int)
    interrupted = threading.Event()
    pool = omap.pool
    sent = processes.Sent(gamp_runs.Drawn(omap.model))

    def stop(record: Mapping[str, Any] | None = None) -> None:
        # Ctrl-C reaches the main thread only; a run is left in the middle, never waited for.
        if interrupted.is_set():
            raise KeyboardInterrupt

    def run(which: tuple[int, int]) -> Record:
        began = time.perf_counter()
        with patience.asking(stop):
            record = one(*which)
        if not pool.ready:
            pool.worked(time.perf_counter() - began)
        return record

    def one(index: int, number: int) -> Record:
        # A seed of its own for every run, so that all runs are independent.
        own = int(np.random.SeedSequence(seed, spawn_key=(index, number)).generate_state(1)[0])
        return gamp_runs.gamp_run(
            omap.model,
            usable[index],
            plan.dim,
            seed=own,
            iterations=plan.iterations,
            damping=plan.damping,
            tol=GAMP_TOL,
            rtol=omap.rtol,
            store=store,
            progress=stop,
            elsewhere=functools.partial(pool.call, sent),
        )

    tasks = list(itertools.product(chosen.tolist(), range(plan.runs)))
    runs: list[Record] = []
    if not tasks:
        return runs
    with bar("GAMP", len(tasks)) as advance, one_thread(), ThreadPoolExecutor(pool.workers) as threads:
        try:
            for record in threads.map(run, tasks):
                runs.append(record)
                advance(record)
        except KeyboardInterrupt:
            interrupted.set()
            pool.end()
            raise
    return runs


def _draw(
    folder: Path, results: Record, header: Mapping[str, Any], model: Any, published: Mapping[str, Any] | None
) -> None:
    labels = list(model.labels)
    figure = plots.curve_figure(
        results["points"], results["thresholds"], labels=labels, gamp_points=gamp_plots.gamp_points(results["gamp"]),
        published=published, unit=model.prior.unit,
    )  # fmt: skip
    for name in ("curve.svg", "curve.png"):
        plots.save(figure, folder / name)
    page = results | {
        "header": header,
        "architecture_text": repr(model.architecture),
        "figure_svg": plots.svg_text(figure),
        "labels": labels,
        "unit": model.prior.unit,
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
