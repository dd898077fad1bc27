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

from smisym.base.edge import MOST_ALPHA
from smisym.base.errors import InputError
from smisym.base.solution import Result, Solution, mean_and_error, worst
from smisym.declare.io import Store, to_json
from smisym.model.compiled import Model
from smisym.prior import remaining
from smisym.theory.branched import Branches, BranchLine
from smisym.theory.closed_forms import closed_form
from smisym.theory.collecting import FixedPoint, perfect_part
from smisym.theory.curves import curve as trace_curve
from smisym.theory.entropy import free_entropy
from smisym.theory.evolution import state_evolution
from smisym.theory.maps import OverlapMap
from smisym.theory.prediction import prediction_errors
from smisym.theory.stability import perfect_recovery, weak_recovery
from smisym.theory.taking_over import alike
from smisym.theory.transitions import phases as find_phases

Record = dict[str, Any]
Progress = Callable[[Record], object]
Elsewhere = Callable[..., list[Record]]

MAX_POINTS = 100_000
PREDICTION_SAMPLES = 4096  # for the prediction errors at one scramble's overlap
# Share of the error of an overlap from which on outputs that no point saw count in what is predicted from it.
_COUNTS = 0.3


def alpha_grid(text: str) -> tuple[float, ...]:
    """The values of alpha that ``START:STOP:COUNT`` (both ends included) or a comma list names, increasing.

    Raises :class:`~smisym.base.errors.InputError` for anything but numbers from 0 to 1e6 and 1 <= COUNT <= 100000.
    """
    try:
        if ":" in text:
            start, stop, count = text.split(":")
            values, size = [float(start), float(stop)], int(count)
        else:
            values, size = [float(part) for part in text.split(",")], 1
    except ValueError:
        raise _bad_alpha(text) from None
    if not all(0 <= value <= MOST_ALPHA for value in values) or not 1 <= size <= MAX_POINTS:
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
        f"START:STOP:COUNT with 0 <= START <= STOP <= {MOST_ALPHA:g} and 1 <= COUNT <= {MAX_POINTS}, or a comma list "
        f"of numbers from 0 to {MOST_ALPHA:g}",
        "write for example 0:1.6:49, or 0.5,1.2",
    )


def kept(store: Store | None, name: str, make: Callable[[], Record], valid: Callable[[Any], bool]) -> Record:
    """The stored entry of that name, or a new one, stored before it is returned; the same bits either way.

    valid: whether a stored entry has the shape of ours; one that has not is made anew.
    """
    found = None if store is None else store.get(name, valid)
    if found is not None:
        return found
    made = make()
    return json.loads(to_json(made)) if store is None else store.put(name, made)


# --- thresholds ----------------------------------------------------------------------------------


def thresholds(
    omap: OverlapMap,
    *,
    stages: int | None = None,
    quadrature: bool | None = None,
    accuracy: float | None = None,
    most_samples: int | None = None,
    store: Store | None = None,
    progress: Progress | None = None,
) -> Record:
    """{"thresholds": records in the order in which they are met, "closed_form", "result"}.

    First weak, then perfect recovery.  A record has kind, layers (counted from 1), subspace, alpha (None is infinite),
    error, Q (just below) and samples (of the map that it was measured on; None where it was not sampled).
    stages, quadrature, accuracy, most_samples: of :func:`smisym.weak_recovery`, the last two also of
    :func:`smisym.perfect_recovery`.  With ``stages`` its thresholds, which lie beyond all stages, are left out.
    closed_form: of the first weak one {"alpha", "value", "formula"}, or None (:func:`smisym.closed_form`).
    """
    found: list[Record] = []
    codes: list[Result] = []
    aim: dict[str, Any] = {"accuracy": accuracy, "most_samples": most_samples}
    given = {"stages": stages, "quadrature": quadrature, **aim}
    how = "".join(f" {key}={value}" for key, value in given.items() if value is not None)
    solvers: list[tuple[str, Callable[[], Solution]]] = [
        (f"weak recovery{how}", lambda: weak_recovery(omap, stages=stages, quadrature=quadrature, **aim))
    ]
    if stages is None:
        asked = "".join(f" {key}={value}" for key, value in aim.items() if value is not None)
        solvers.append((f"perfect recovery{asked}", lambda: perfect_recovery(omap, **aim)))
    for name, solve in solvers:

        def make(solve: Callable[[], Solution] = solve) -> Record:
            solution = finished(solve())
            return {"thresholds": [vars(threshold) for threshold in solution.value], "result": solution.result}

        part = kept(store, name, make, lambda entry: _is_thresholds(entry, omap.model.fields))
        found += part["thresholds"]
        codes.append(Result(part["result"]))
        if progress is not None:
            progress(part)
    found.sort(key=lambda threshold: math.inf if threshold["alpha"] is None else threshold["alpha"])
    return {"thresholds": found, "closed_form": first_exactly(omap.model), "result": worst(codes).value}


def first_exactly(model: Model) -> Record | None:
    """The closed form of the first threshold {"alpha", "value", "formula"}, or None."""
    exact = closed_form(model)
    return None if exact is None else {"alpha": float(exact), "value": str(exact.alpha), "formula": exact.formula}


def phases(
    omap: OverlapMap, *, most: float | None = None, store: Store | None = None, progress: Progress | None = None
) -> Record:
    """{"thresholds": of kinds spinodal and information, "branches", "most", "unseen", "result"}
    (:func:`smisym.phases`).

    A branch has begins, ends, turns, and for each of its points alpha, error, Q and growth.
    """

    def make() -> Record:
        solution = finished(find_phases(omap, most=most))
        branches = [
            {
                "begins": line.begins, "ends": line.ends, "turns": line.turns, "alphas": line.alphas,
                "errors": line.errors, "overlaps": line.overlaps, "growth": line.growth,
            }
            for line in solution.value.branches
        ]  # fmt: skip
        found = [vars(threshold) for threshold in solution.value]
        more = {"most": solution.settings["most"], "unseen": solution.checks["unseen"], "result": solution.result}
        return {"thresholds": found, "branches": branches, **more}

    def valid(entry: Any) -> bool:
        fine = all(len(b["alphas"]) == len(b["overlaps"]) == len(b["growth"]) for b in entry["branches"])
        return fine and _is_thresholds(entry, omap.model.fields)

    part = kept(store, f"phases most={most!r}", make, valid)
    if progress is not None:
        progress(part)
    return part


def branches_of(record: Record, labels: Sequence[str]) -> Branches:
    """The branches of a record of :func:`phases`."""
    rows = len(labels)
    lines = [
        BranchLine(
            one["begins"], one["ends"], np.array(one["alphas"], dtype=float), np.array(one["errors"], dtype=float),
            np.array(one["overlaps"], dtype=float).reshape(-1, rows, rows), np.array(one["growth"], dtype=float),
            tuple(one["turns"]),
        )
        for one in record["branches"]
    ]  # fmt: skip
    return Branches(lines, labels)


# --- curves --------------------------------------------------------------------------------------


def curve(
    omap: OverlapMap,
    alphas: Sequence[float],
    *,
    start: str = "symmetry-broken",
    accuracy: float | None = None,
    most_samples: int | None = None,
    store: Store | None = None,
    progress: Progress | None = None,
) -> list[Record]:
    """One record for each alpha, in increasing order, kept as soon as it is known.

    accuracy, most_samples: of :func:`smisym.curve`.

    A record has alpha, samples (of the map that it was solved on), Q, Q_error, mmse (one number a layer that has rows,
    1 where nothing is known), Q_deterministic_error (what is left of the equation, in the unit of Q, and with an
    accuracy what inner integrals may change), degrees of freedom, nishimori
    (:class:`smisym.theory.sentinel.Agreement`), result and start; bayes_error and plug_in_error, with ``_stderr`` that
    holds the error of Q as well; free_entropy with ``_stderr``, None with ``"unbounded": "+inf"`` at perfect recovery,
    and None where some scrambles are perfect and others almost.  ``progress`` is called with each record.
    """
    alphas = sorted(alphas)

    def valid(entry: Any) -> bool:
        return _is_point(entry, omap.model.fields)

    stored = [None if store is None else store.get(_name(alpha), valid) for alpha in alphas]
    if None not in stored:
        return [point for point in stored if point is not None]
    points: list[Record] = []
    aim: dict[str, Any] = {"accuracy": accuracy, "most_samples": most_samples}

    def keep(solution: Solution) -> None:
        point = kept(store, _name(solution.value.alpha), lambda: _point(omap, solution), valid)
        points.append(point)
        if progress is not None:
            progress(point)

    if start == "symmetry-broken":
        trace_curve(omap, alphas, on_point=keep, **aim)
    else:
        for alpha in alphas:
            keep(state_evolution(omap, alpha, start=start, **aim))
    return points


def _name(alpha: float) -> str:
    return f"alpha={alpha!r}"


def _point(omap: OverlapMap, solution: Solution) -> Record:
    found: FixedPoint = finished(solution).value
    record = {
        "alpha": found.alpha,
        "samples": solution.settings["samples"],
        "Q": found.Q,
        "Q_error": found.Q_error,
        "mmse": errors_of_layers(omap.model, found.Q),
        "Q_deterministic_error": solution.deterministic_error,
        "degrees_of_freedom": solution.degrees_of_freedom,
        "nishimori": solution.checks["nishimori"],
        "result": solution.result,
        "start": found.start,
    }
    return record | _errors(omap, found, solution.checks.get("rare")) | entropy_record(omap, found)


def errors_of_layers(model: Model, Q: np.ndarray) -> list[float]:
    """What is left to learn, layer by layer: the mean of 1 - Q over the rows of a layer, 1 where nothing is known."""
    layers, left = np.array(model.row_layers), np.diag(remaining(Q))
    return [float(left[layers == layer].mean()) for layer in sorted(set(layers))]


def _errors(omap: OverlapMap, found: FixedPoint, rare: np.ndarray | None) -> Record:
    """Prediction errors; each scramble at its own overlap, so that their spread holds the error of Q as well.

    rare (P, P): what outputs that no point saw may take off the overlaps; it moves these errors too.
    """
    values: dict[str, list[float]] = {"bayes": [], "plug_in": []}
    for number, q in enumerate(found.overlaps):
        seed = int(np.random.SeedSequence(omap.seed, spawn_key=(number,)).generate_state(1)[0])
        Q = omap.model.symmetry.matrix(q)
        each = {}
        if not np.array_equal(Q, np.eye(len(Q))):
            each = prediction_errors(omap.model, Q, samples=PREDICTION_SAMPLES, scrambles=2, seed=seed)
        for name, of_scrambles in values.items():
            of_scrambles.append(each[name].value if each else 0.0)
    record: Record = {}
    for name, of_scrambles in values.items():
        record[f"{name}_error"], record[f"{name}_error_stderr"] = mean_and_error(np.array(of_scrambles))
    if rare is not None and (np.diag(rare) > _COUNTS * np.diag(found.Q_error)).any():
        known, lost = np.diag(found.Q), np.diag(rare)
        share = np.sqrt(1 - np.minimum(lost / np.maximum(known, 1e-300), 1.0))
        there, below = (
            prediction_errors(omap.model, Q, samples=PREDICTION_SAMPLES, scrambles=2, seed=omap.seed)
            for Q in (found.Q, share[:, None] * found.Q * share)
        )
        for name in values:
            moved = below[name].value - there[name].value
            record[f"{name}_error_stderr"] = math.hypot(record[f"{name}_error_stderr"], moved)
    return record


def entropy_record(omap: OverlapMap, found: FixedPoint) -> Record:
    """Phi at the fixed point: of each scramble at its own, where none is perfect, else at the mean overlap.

    Not known where some scrambles are perfect and others almost: it runs off to infinity with the last digit of V.
    """
    perfect = [perfect_part(omap.model.symmetry.matrix(q)) for q in found.overlaps]
    if not alike(perfect):
        return {"free_entropy": math.nan, "free_entropy_stderr": math.nan}
    if np.isfinite(found.potential).all() and not np.isclose(found.overlaps, 1.0, rtol=0, atol=1e-13).any():
        prior = [omap.model.prior.entropy(omap.model.symmetry.matrix(q)) for q in found.overlaps]
        value, error = mean_and_error(np.array(prior) + found.alpha * found.potential)
    else:
        solution = free_entropy(omap, found.Q, found.alpha)
        value, error = solution.value, solution.statistical_error
    unbounded = {"unbounded": "+inf" if value > 0 else "-inf"} if math.isinf(value) else {}
    return {"free_entropy": value, "free_entropy_stderr": error, **unbounded}


# --- whether a stored entry has the shape of ours ------------------------------------------------


def finished(solution: Solution) -> Solution:
    """The solution, unless it was interrupted: half a result must never be kept as a whole one."""
    if solution.result is Result.INTERRUPTED:
        raise KeyboardInterrupt
    return solution


def is_matrix(value: Any, rows: int, columns: int | None = None) -> bool:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or array.ndim != 2:
        return False
    return array.shape[0] == rows and columns in (None, array.shape[1])


def is_number(value: Any, or_none: bool = True) -> bool:
    return (value is None and or_none) or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_thresholds(entry: Any, fields: int) -> bool:
    Result(entry["result"])
    return all(
        isinstance(one["kind"], str)
        and all(isinstance(layer, int) for layer in one["layers"])
        and all(isinstance(name, str) for name in one["names"])
        and all(is_number(one[key]) for key in ("alpha", "error", "order"))
        and is_matrix(one["subspace"], len(one["subspace"]), fields)
        and (one["Q"] is None or is_matrix(one["Q"], fields, fields))
        for one in entry["thresholds"]
    )


_OF_POINTS = ("alpha", "bayes_error", "plug_in_error", "free_entropy")


def _is_point(entry: Any, fields: int) -> bool:
    Result(entry["result"])
    numbers = [entry[key] for key in _OF_POINTS] + [entry[f"{key}_stderr"] for key in _OF_POINTS[1:]]
    return (
        all(is_number(value) for value in numbers)
        and is_number(entry["alpha"], or_none=False)
        and all(is_matrix(entry[key], fields, fields) for key in ("Q", "Q_error", "Q_deterministic_error"))
        and all(is_number(entry["nishimori"][key]) for key in ("z", "t", "degrees_of_freedom", "p"))
        and entry.get("unbounded") in (None, "+inf", "-inf")
    )
