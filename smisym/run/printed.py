"""What ``--json`` printed, in the form that saved results have: what was left out is NaN or empty."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from smisym.base.solution import Result

Record = dict[str, Any]


def own_form(document: Record) -> Record:
    """A document of ``smisym thresholds``, ``curve``, ``gamp`` or ``dynamics`` as a record of :mod:`smisym.run.saving`.

    ``null`` is what is not finite there: infinite thresholds and errors, overlaps that are not known.
    Raises ValueError, and what else a document of another shape leads to.
    """
    settings = {**document.get("settings", {}), "seed": document.get("seed")}
    names = list(document.get("labels", ()))
    if "records" in document and "boundaries" in document:
        return {"kind": "phase_diagram", "names": document["names"], "records": document["records"]}
    if "points" in document:
        settings.pop("alphas", None)
        return {"kind": "curve", "points": [_point(point, settings, names) for point in document["points"]]}
    if "thresholds" in document:
        found = [_threshold(one) for one in document["thresholds"]]
        return {
            "kind": "thresholds", "thresholds": found, "labels": names,
            "result": document.get("result", Result.SUCCESS.value), "settings": settings, "checks": {}, "history": [],
            "statistical_error": tuple(one["error"] for one in found), "deterministic_error": None,
            "degrees_of_freedom": settings["scrambles"] - 1 if "scrambles" in settings else None,
        }  # fmt: skip
    if "iterations" in document:
        return _gamp(document, settings, names)
    if "trajectories" in document:
        return _dynamics(document, settings)
    raise ValueError("a document without points, thresholds, iterations or trajectories")


def _point(point: Record, settings: Record, names: list[str]) -> Record:
    rows = len(point["Q"])
    nothing, known = np.full((rows, rows), np.nan), settings | {"samples": point.get("samples")}
    freedom = point.get("degrees_of_freedom")
    return dict(point) | {
        "Q": _filled(point["Q"], math.nan), "Q_error": _filled(point["Q_error"], math.inf), "Q_hat": nothing,
        "Q_deterministic_error": _filled(point["Q_deterministic_error"], math.inf),
        "overlaps": np.empty((0, 0)), "stable": np.empty(0, dtype=bool), "potential": np.empty(0),
        "side_information": 0.0, "names": names, "degrees_of_freedom": freedom, "history": [],
        "settings": known | {"start": point["start"]}, "checks": {"nishimori": point["nishimori"]},
    }  # fmt: skip


def _threshold(one: Record) -> Record:
    infinite = {name: math.inf if one[name] is None else one[name] for name in ("alpha", "error")}
    subspace = _filled(one["subspace"], math.nan)
    rows = subspace.shape[1]
    Q = np.full((rows, rows), np.nan) if one["Q"] is None else _filled(one["Q"], math.nan)
    return {"order": None, "samples": None, "names": [], **one, **infinite, "subspace": subspace, "Q": Q}


def _gamp(document: Record, settings: Record, names: list[str]) -> Record:
    steps = [_arrays_of(step) for step in document["iterations"]]
    last = steps[-1]
    rows = len(last["Q"])
    dim = whole(document["dim"], "dim")
    return dict(document) | {
        "kind": "gamp", "W_hat": np.broadcast_to(np.nan, (rows, dim)), "C_hat": last["C_hat"], "Q": last["Q"],
        "overlap": last["overlap"], "steps": last["step"], "names": names, "iterations": steps,
        "settings": settings | {name: document[name] for name in ("alpha", "dim", "tol")}, "checks": {},
        "statistical_error": None, "deterministic_error": None, "degrees_of_freedom": None,
    }  # fmt: skip


def _dynamics(document: Record, settings: Record) -> Record:
    arrays = ("cosines", "noise", "loss")
    each = [
        dict(one) | {name: _filled(one[name], math.inf if name == "noise" else math.nan) for name in arrays}
        for one in document["trajectories"]
    ]
    return dict(document) | {
        "kind": "dynamics", "trajectories": each, "history": [], "settings": settings, "checks": {},
        "statistical_error": None, "deterministic_error": None, "degrees_of_freedom": None,
    }  # fmt: skip


def _arrays_of(step: Record) -> Record:
    return {name: _filled(value, math.nan) if isinstance(value, list) else value for name, value in step.items()}


def _filled(value: Any, nothing: float) -> np.ndarray:
    """Lists as an array of floats, null as what it stands for."""
    if isinstance(value, list):
        return np.array([_filled(item, nothing) for item in value], dtype=float)
    return np.array(nothing if value is None else real(value, "an entry"), dtype=float)


def real(value: Any, name: str) -> float:
    """A number as a float; ValueError for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is no number")
    return float(value)


def whole(value: Any, name: str) -> int:
    """A whole number; ValueError for what is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is no whole number")
    return value
