"""Many runs as records in plain JSON types, each kept in a store, if there is one, before the next begins.

Records are what files and the command line hold.  A resumed sweep reads what was stored, to the last bit, and so
gives the same records as one that was never interrupted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from smisym.curve import curve as trace_curve
from smisym.errors import InputError
from smisym.free_entropy import free_entropy, prior_terms
from smisym.gamp import gamp
from smisym.io import Store, to_json
from smisym.model import Model
from smisym.overlap_map import OverlapMap
from smisym.prediction import prediction_errors
from smisym.samples import generate
from smisym.solution import Result, Solution, mean_and_error, worst
from smisym.stability import perfect_recovery, weak_recovery
from smisym.state_evolution import FixedPoint, state_evolution

Record = dict[str, Any]
Progress = Callable[[Record], object]

MAX_POINTS = 100_000
PREDICTION_SAMPLES = 4096  # for the prediction errors at one scramble's overlap


def alpha_grid(text: str) -> tuple[float, ...]:
    """The values of alpha that ``START:STOP:COUNT`` (both ends included) or a comma list names, increasing.

    Raises :class:`~smisym.errors.InputError` for anything but finite numbers >= 0 and 1 <= COUNT <= 100000.
    """
    try:
        if ":" in text:
            start, stop, count = text.split(":")
            values, size = [float(start), float(stop)], int(count)
        else:
            values, size = [float(part) for part in text.split(",")], 1
    except ValueError:
        raise _bad_alpha(text) from None
    if not all(math.isfinite(value) and value >= 0 for value in values) or not 1 <= size <= MAX_POINTS:
        raise _bad_alpha(text)
    if ":" in text:
        if values[1] < values[0]:
            raise _bad_alpha(text)
        values = np.linspace(values[0], values[1], size).tolist()
    return tuple(sorted({value + 0.0 for value in values}))


def _bad_alpha(text: str) -> InputError:
    return InputError(
        "alpha",
        text,
        f"START:STOP:COUNT with 0 <= START <= STOP and 1 <= COUNT <= {MAX_POINTS}, or a comma list of numbers >= 0",
        "write for example 0:1.6:49, or 0.5,1.2",
    )


def kept(store: Store | None, name: str, make: Callable[[], Record]) -> Record:
    """The stored entry of that name, or a new one, stored before it is returned; the same bits either way."""
    found = None if store is None else store.get(name)
    if found is not None:
        return found
    made = make()
    return json.loads(to_json(made)) if store is None else store.put(name, made)


# --- thresholds ----------------------------------------------------------------------------------


def thresholds(omap: OverlapMap, *, store: Store | None = None, progress: Progress | None = None) -> Record:
    """{"thresholds": records in the order in which they are met, "result"}: weak recovery, then perfect recovery.

    A record has kind, layers (counted from 1), subspace, alpha (None is infinite), error and Q (just below).
    """
    found: list[Record] = []
    codes: list[Result] = []
    for name, solve in (("weak recovery", weak_recovery), ("perfect recovery", perfect_recovery)):

        def make(solve: Callable[[OverlapMap], Solution] = solve) -> Record:
            solution = _finished(solve(omap))
            return {"thresholds": [vars(threshold) for threshold in solution.value], "result": solution.result}

        part = kept(store, name, make)
        found += part["thresholds"]
        codes.append(Result(part["result"]))
        if progress is not None:
            progress(part)
    found.sort(key=lambda threshold: math.inf if threshold["alpha"] is None else threshold["alpha"])
    return {"thresholds": found, "result": worst(codes).value}


# --- curves --------------------------------------------------------------------------------------


def curve(
    omap: OverlapMap,
    alphas: Sequence[float],
    *,
    start: str = "symmetry-broken",
    store: Store | None = None,
    progress: Progress | None = None,
) -> list[Record]:
    """One record for each alpha, in increasing order, kept as soon as it is known.

    A record has alpha, Q, Q_error, degrees_of_freedom, result and start; bayes_error and plug_in_error, with
    ``_stderr`` that holds the error of Q as well; free_entropy with ``_stderr``, None with ``"unbounded": "+inf"``
    at perfect recovery.  ``progress`` is called with each record.
    """
    alphas = sorted(alphas)
    stored = [None if store is None else store.get(_name(alpha)) for alpha in alphas]
    if None not in stored:
        return [point for point in stored if point is not None]
    points: list[Record] = []

    def keep(solution: Solution) -> None:
        point = kept(store, _name(solution.value.alpha), lambda: _point(omap, solution))
        points.append(point)
        if progress is not None:
            progress(point)

    if start == "symmetry-broken":
        trace_curve(omap, alphas, on_point=keep)
    else:
        for alpha in alphas:
            keep(state_evolution(omap, alpha, start=start))
    return points


def _name(alpha: float) -> str:
    return f"alpha={alpha!r}"


def _point(omap: OverlapMap, solution: Solution) -> Record:
    found: FixedPoint = _finished(solution).value
    record = {
        "alpha": found.alpha,
        "Q": found.Q,
        "Q_error": found.Q_error,
        "Q_deterministic_error": solution.deterministic_error,
        "degrees_of_freedom": solution.degrees_of_freedom,
        "result": solution.result,
        "start": found.start,
    }
    return record | _errors(omap, found) | _entropy(omap, found)


def _errors(omap: OverlapMap, found: FixedPoint) -> Record:
    """Prediction errors; each scramble at its own overlap, so that their spread holds the error of Q as well."""
    values: dict[str, list[float]] = {"bayes": [], "plug_in": []}
    for number, q in enumerate(found.overlaps):
        seed = int(np.random.SeedSequence(omap.seed, spawn_key=(number,)).generate_state(1)[0])
        Q = omap.model.symmetry.matrix(q)
        each = prediction_errors(omap.model, Q, samples=PREDICTION_SAMPLES, scrambles=2, seed=seed)
        for name, of_scrambles in values.items():
            of_scrambles.append(each[name].value)
    record: Record = {}
    for name, of_scrambles in values.items():
        record[f"{name}_error"], record[f"{name}_error_stderr"] = mean_and_error(np.array(of_scrambles))
    return record


def _entropy(omap: OverlapMap, found: FixedPoint) -> Record:
    """Phi at the fixed point: of each scramble at its own, where none is perfect, else at the mean overlap."""
    if np.isfinite(found.potential).all():
        prior = [prior_terms(omap.model.symmetry.matrix(q)) / omap.model.slices for q in found.overlaps]
        value, error = mean_and_error(np.array(prior) + found.alpha * found.potential)
    else:
        solution = free_entropy(omap, found.Q, found.alpha)
        value, error = solution.value, solution.statistical_error
    unbounded = {"unbounded": "+inf" if value > 0 else "-inf"} if math.isinf(value) else {}
    return {"free_entropy": value, "free_entropy_stderr": error, **unbounded}


# --- GAMP ----------------------------------------------------------------------------------------


def gamp_run(
    model: Model,
    alpha: float,
    dim: int,
    *,
    seed: int = 0,
    iterations: int = 100,
    damping: float = 0.0,
    tol: float = 1e-5,
    store: Store | None = None,
    progress: Progress | None = None,
) -> Record:
    """GAMP on data drawn from the model: alpha, dim, seed, iterations (step, overlap, Q, ...) and result.

    Overlaps are with the truth, whose rows have norm sqrt(D) exactly, modulo the symmetries.  Seeds of the data and of
    the start are independent.
    """

    def make() -> Record:
        for_data, for_start = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
        data = generate(model, dim, alpha, for_data, normalised=True)
        solution = gamp(
            model, data.X, data.y, W=data.W, max_steps=iterations, damping=damping, tol=tol, seed=for_start,
            callback=progress,
        )  # fmt: skip
        return {"alpha": alpha, "dim": dim, "seed": seed, "tol": tol} | _gamp_record(solution)

    return kept(store, f"gamp alpha={alpha!r} dim={dim} seed={seed} tol={tol!r}", make)


def gamp_on_data(
    model: Model,
    X: np.ndarray,
    y: np.ndarray,
    *,
    seed: int = 0,
    iterations: int = 100,
    damping: float = 0.0,
    store: Store | None = None,
    progress: Progress | None = None,
) -> Record:
    """GAMP on given data, whose truth is unknown: overlaps are None, Q is the estimate with itself."""

    def make() -> Record:
        solution = gamp(model, X, y, max_steps=iterations, damping=damping, seed=seed, callback=progress)
        shape = solution.settings
        return {"alpha": shape["alpha"], "dim": shape["dim"], "seed": seed} | _gamp_record(solution)

    return kept(store, "gamp on data", make)


def _gamp_record(solution: Solution) -> Record:
    return {
        "iterations": _finished(solution).history,
        "result": solution.result,
        "reason": solution.value.reason,
    }


def _finished(solution: Solution) -> Solution:
    """The solution, unless it was interrupted: half a result must never be kept as a whole one."""
    if solution.result is Result.INTERRUPTED:
        raise KeyboardInterrupt
    return solution
