"""Runs of GAMP as records: on data drawn, and on a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from smisym.base.solution import Result, Solution
from smisym.declare.io import Store
from smisym.finite.message_passing import gamp
from smisym.finite.samples import generate
from smisym.model.compiled import Model
from smisym.run.records import Elsewhere, Progress, Record, finished, is_matrix, is_number, kept


def gamp_tolerance(dim: int) -> float:
    """Change of one step, relative, at which GAMP on data of dimension D may stop: 0.01 / sqrt(D), at most 1e-3.

    From one data set to the next overlaps differ by about 1 / sqrt(D).  Where the change shrinks by a factor r a step,
    what is left to go is 1 / (1 - r) times one step: with r = 0.9, as is common near a threshold, a tenth of that
    scatter.  A smaller tolerance buys digits of one data set that say nothing about the next.
    """
    return min(1e-3, 0.01 / math.sqrt(dim))


# Many parameters: settings, all by keyword.
def gamp_run(
    model: Model,
    alpha: float,
    dim: int,
    *,
    seed: int = 0,
    iterations: int = 100,
    damping: float = 0.0,
    tol: float = 1e-5,
    rtol: float | None = None,
    estimate: bool = False,
    store: Store | None = None,
    progress: Progress | None = None,
    elsewhere: Elsewhere | None = None,
) -> Record:
    """GAMP on data drawn from the model: alpha, dim, seed, iterations (step, overlap, Q, ...) and result.

    Overlaps are with the truth, whose rows have norm sqrt(D) exactly, modulo the symmetries.  Seeds of the data and of
    the start are independent.  estimate: with W_hat, C_hat and Q as well, and the truth W.  elsewhere: tried first;
    from the arguments of :class:`Drawn` to [its record], or to [] where it must be made here.
    """

    def make() -> Record:
        given = (alpha, dim, seed, iterations, damping, tol, rtol, estimate)
        answer = [] if elsewhere is None else elsewhere(*given)
        found: Record = answer[0] if answer else Drawn(model)(*given, progress=progress)
        return found

    name = f"gamp alpha={alpha!r} dim={dim} seed={seed} tol={tol!r}{' with estimate' if estimate else ''}"
    return kept(store, name, make, lambda entry: _is_gamp(entry, model.fields, estimate))


class Drawn:
    """GAMP of one model on data drawn from it, as other processes can have it."""

    def __init__(self, model: Model) -> None:
        self.model = model

    # Many parameters: those of gamp_run, which it calls elsewhere.
    def __call__(
        self,
        alpha: float,
        dim: int,
        seed: int,
        iterations: int,
        damping: float,
        tol: float,
        rtol: float | None,
        estimate: bool,
        progress: Progress | None = None,
    ) -> Record:
        """The record of one run; seeds of the data and of the start are independent."""
        for_data, for_start = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
        data = generate(self.model, dim, alpha, for_data, normalised=True)
        solution = gamp(
            self.model, data.X, data.y, W=data.W, max_steps=iterations, damping=damping, tol=tol, rtol=rtol,
            seed=for_start, callback=progress,
        )  # fmt: skip
        found = {"alpha": alpha, "dim": dim, "seed": seed, "tol": tol} | _gamp_record(solution, estimate)
        return found | {"W": data.W} if estimate else found


# Many parameters: settings, all by keyword.
def gamp_on_data(
    model: Model,
    X: np.ndarray,
    y: np.ndarray,
    *,
    W: np.ndarray | None = None,
    seed: int = 0,
    iterations: int = 100,
    damping: float = 0.0,
    tol: float = 1e-5,
    estimate: bool = False,
    store: Store | None = None,
    progress: Progress | None = None,
) -> Record:
    """GAMP on given data.  Without the truth W (P, D) overlaps are None; Q is the estimate with itself.

    estimate: with W_hat, C_hat and Q as well.
    """

    def make() -> Record:
        solution = gamp(model, X, y, W=W, max_steps=iterations, damping=damping, tol=tol, seed=seed, callback=progress)
        shape = solution.settings
        head = {"alpha": shape["alpha"], "dim": shape["dim"], "seed": seed, "tol": tol}
        return head | _gamp_record(solution, estimate)

    name = f"gamp on data{' with estimate' if estimate else ''}"
    return kept(store, name, make, lambda entry: _is_gamp(entry, model.fields, estimate))


def _gamp_record(solution: Solution, estimate: bool) -> Record:
    found = finished(solution).value
    arrays = {"W_hat": found.W_hat, "C_hat": found.C_hat, "Q": found.Q} if estimate else {}
    return {"iterations": solution.history, "result": solution.result, "reason": found.reason, **arrays}


def estimate_arrays(record: Record) -> dict[str, np.ndarray]:
    """W_hat, C_hat, Q, W where the truth was drawn, and history_* (one entry a step) of a record with the estimate."""
    names: Sequence[str] = ("W_hat", "C_hat", "Q", "W")
    arrays = {name: np.array(record[name], dtype=float) for name in names if name in record}
    steps = record["iterations"]
    for name in ("step", "overlap", "cosines", "Q", "C_hat", "change", "surprise", "channel_error"):
        size = next((np.shape(step[name]) for step in steps if step.get(name) is not None), None)
        if size is not None:  # None at the start, which no step made
            rows = [np.full(size, np.nan) if step.get(name) is None else step[name] for step in steps]
            arrays[f"history_{name}"] = np.array(rows, dtype=int if name == "step" else float)
    return arrays


def _is_gamp(entry: Any, fields: int, estimate: bool) -> bool:
    Result(entry["result"])
    return (
        isinstance(entry["reason"], str)
        and len(entry["iterations"]) > 0
        and all(is_number(entry[key], or_none=False) for key in ("alpha", "dim", "seed", "tol"))
        and (not estimate or (is_matrix(entry["W_hat"], fields) and is_matrix(entry["C_hat"], fields, fields)))
        and all(
            is_number(step["step"], or_none=False)
            and is_matrix(step["Q"], fields, fields)
            and (step["overlap"] is None or is_matrix(step["overlap"], fields, fields))
            for step in entry["iterations"]
        )
    )
