"""Results as files and back: one JSON document, exact, in the names of what ``--json`` prints (docs/results.md)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from smisym.base.errors import InputError, Words
from smisym.base.files import check_path, read_bytes
from smisym.base.solution import Result, Solution, worst
from smisym.base.threshold import Threshold, Thresholds
from smisym.declare.architecture import Architecture
from smisym.declare.io import SCHEMA, origin, write_json
from smisym.declare.smi import SMI
from smisym.finite.estimated import Gamp
from smisym.run.beyond_json import types_of, with_types
from smisym.run.diagram import PhaseDiagram
from smisym.run.printed import own_form, real, whole
from smisym.theory.along import BESIDE, Curve
from smisym.theory.branched import Branches, BranchLine, Phases
from smisym.theory.collecting import FixedPoint
from smisym.training.trajectories import Dynamics, Trajectory

Record = dict[str, Any]
Saved = Solution | Curve | PhaseDiagram | dict[str, Solution]

MAX_RESULT_BYTES = 1 << 30
_ALLOWED = "a file of smisym.save_result, or what smisym thresholds, curve, gamp or dynamics print with --json"
_FIX = "check the name; save results with smisym.save_result"
_BESIDE = (*(key for name in BESIDE for key in (name, f"{name}_stderr")), "unbounded")
# Of a solution that are the same for any value.
_COMMON = ("statistical_error", "deterministic_error", "degrees_of_freedom", "history", "settings", "checks")


# --- writing ---------------------------------------------------------------------------------------


def save_result(path: str | os.PathLike[str], result: Saved, *, architecture: Architecture | SMI | None = None) -> None:
    """Write a result as one JSON document, atomically; :func:`load_result` has it back to the last bit.

    result: a Solution of any solver, a :class:`~smisym.Curve`, a :class:`~smisym.PhaseDiagram`, or a dict of Solutions,
    as of :func:`smisym.prediction_errors`.  architecture: the declaration that it is of, to be written down as well.
    Raises InputError for anything else, and where the file cannot be written.
    """
    target = check_path(path, "file to write")
    declared = {}
    if architecture is not None:
        if not isinstance(architecture, Architecture | SMI):
            raise InputError("architecture", architecture, "an Architecture or an SMI", "pass model.architecture")
        declared = {"architecture": architecture.canonical(), "architecture_digest": architecture.digest}
    body = _body(result)
    write_json(target, {**origin(), **declared, **body, "types": types_of(body)})


def _body(result: Any) -> Record:
    if isinstance(result, Solution):
        return _record(result)
    if isinstance(result, Curve):
        beside = result.beside or ({},) * len(result)
        points = [_point(s) | {k: v for k, v in b.items() if k in _BESIDE} for s, b in zip(result, beside, strict=True)]
        return {"kind": "curve", "result": worst([s.result for s in result]).value, "points": points}
    if isinstance(result, PhaseDiagram):
        return {"kind": "phase_diagram", "result": result.result.value, **result.document()}
    if isinstance(result, dict) and all(isinstance(one, Solution) for one in result.values()):
        return {"kind": "several", "solutions": {name: _record(one) for name, one in result.items()}}
    allowed = "a Solution, a Curve, a PhaseDiagram, or a dict of Solutions"
    raise InputError("result to save", result, allowed, "pass what a solver returned, not its value")


def _record(solution: Solution) -> Record:
    value, common = solution.value, {name: getattr(solution, name) for name in _COMMON}
    common["history"] = list(common["history"])
    code = {"result": solution.result.value}
    if isinstance(value, FixedPoint):
        return {"kind": "fixed_point", **_point(solution)}
    if isinstance(value, Branches):
        return {"kind": "branches", **code, "branches": _lines(value), "labels": list(value.labels), **common}
    if isinstance(value, Thresholds):
        found = [vars(t) | {"layers": list(t.layers), "names": list(t.names)} for t in value]
        own = {"thresholds": found, "labels": list(value.labels)}
        if isinstance(value, Phases):
            return {"kind": "phases", **code, **own, "branches": _lines(value.branches), **common}
        return {"kind": "thresholds", **code, **own, **common}
    if isinstance(value, Gamp):
        steps = common.pop("history")
        own = {f.name: getattr(value, f.name) for f in fields(Gamp)} | {"names": list(value.names)}
        return {"kind": "gamp", **code, **own, "iterations": steps, **common}
    if isinstance(value, Dynamics):
        return {"kind": "dynamics", **code, **dynamics_record(value), **common}
    return {"kind": "numbers", **code, "value": value, **common}


def _lines(branches: Branches) -> list[Record]:
    return [{f.name: getattr(one, f.name) for f in fields(BranchLine)} | {"turns": list(one.turns)} for one in branches]


def dynamics_record(value: Dynamics) -> Record:
    """What ``smisym dynamics --json`` prints, too."""
    trajectories = [
        {f.name: getattr(one, f.name) for f in fields(Trajectory)}
        | {"results": list(one.results), "reasons": list(one.reasons)}
        for one in value.trajectories
    ]
    return {"trajectories": trajectories, "names": list(value.names), "layers": list(value.layers)}


def _point(solution: Solution) -> Record:
    """A fixed point in the names of ``smisym curve --json``, and what that leaves out."""
    found: FixedPoint = solution.value
    record = {f.name: getattr(found, f.name) for f in fields(FixedPoint)} | {"names": list(found.names)}
    record["Q_deterministic_error"] = solution.deterministic_error
    record |= {"degrees_of_freedom": solution.degrees_of_freedom, "result": solution.result.value}
    record["samples"] = solution.settings.get("samples")
    if solution.statistical_error is not found.Q_error:
        record["statistical_error"] = solution.statistical_error
    history = list(solution.history)
    return record | {"history": history, "settings": solution.settings, "checks": solution.checks}


# --- reading ---------------------------------------------------------------------------------------


def load_result(path: str | os.PathLike[str]) -> Any:
    """What :func:`save_result` wrote: a Solution, a Curve, or a dict of Solutions, to the last bit.

    Also what ``smisym thresholds``, ``curve``, ``gamp`` and ``dynamics`` print with ``--json``, and thresholds.json and
    curve.json of ``smisym analyze``: of those, what the document leaves out is NaN or empty.  Nothing in a file is ever
    executed.
    Raises InputError for a file that cannot be read, is another one, or is not whole.
    """
    where = f"result file {check_path(path, 'result file')}"
    content = read_bytes(path, where, MAX_RESULT_BYTES)
    try:
        document = json.loads(content, parse_constant=_no_constant)
        _check_head(document, where)
        return _restored(document, where)
    except InputError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError, MemoryError) as error:
        told = {RecursionError: "lists that are nested too deeply", KeyError: f"no {error} in it"}
        raise _refused(where, told.get(type(error), str(error) or type(error).__name__)) from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name}, which JSON does not have")


def _check_head(document: Any, where: str) -> None:
    if not isinstance(document, dict) or document.get("package") != "smisym":
        raise _refused(where, "a document that is not of smisym")
    schema = document.get("schema")
    if schema != SCHEMA:
        given = Words(f"schema {str(schema)[:40]}, of smisym {str(document.get('package_version'))[:40]}")
        raise InputError(where, given, f"schema {SCHEMA}", "read it with the version of smisym that wrote it")


def _refused(where: str, given: str) -> InputError:
    return InputError(where, Words(given[:200]), _ALLOWED, _FIX)


def _restored(document: Record, where: str) -> Any:
    if "kind" not in document:
        return _made(own_form(document))
    types = document.get("types", {})
    if not isinstance(types, dict) or not all(isinstance(told, str) for told in types.values()):
        raise _refused(where, "types that are no texts")
    # Types are told of the body alone; what comes before it is plain.
    return _made(with_types({k: v for k, v in document.items() if k != "types"}, types))


def _made(record: Record) -> Any:
    kind = record["kind"]
    if kind == "curve":
        return _curve(record["points"])
    if kind == "phase_diagram":
        return _diagram(record)
    if kind == "several":
        return {_text(name): _solution(one) for name, one in record["solutions"].items()}
    return _solution(record)


def _solution(record: Record) -> Solution:
    make: Callable[[Record], Any] | None = _VALUES.get(record["kind"])
    if make is None:
        raise ValueError(f"a result of the kind {record['kind']!r}")
    if record["kind"] == "fixed_point":
        return _solved_point(record)
    history = record["iterations"] if record["kind"] == "gamp" else record["history"]
    return _ended(record, make(record), record["statistical_error"], record["deterministic_error"], history)


def _ended(record: Record, value: Any, error: Any, left: Any, history: Any) -> Solution:
    freedom = record["degrees_of_freedom"]
    if freedom is not None:
        whole(freedom, "degrees_of_freedom")
    tables = [record["settings"], record["checks"], *history]
    if not isinstance(history, list) or not all(isinstance(table, Mapping) for table in tables):
        raise ValueError("settings, checks or a history that are no tables")
    code = Result(record["result"])
    return Solution(value, code, error, left, freedom, tuple(history), record["settings"], record["checks"])


def _curve(points: Any) -> Curve:
    if not isinstance(points, list):
        raise ValueError("points that are no list")
    beside = [{key: point[key] for key in _BESIDE if key in point} for point in points]
    return Curve(map(_solved_point, points), beside if any(beside) else ())


def _solved_point(record: Record) -> Solution:
    found = _fixed_point(record)
    error = record.get("statistical_error", found.Q_error)
    left = record["Q_deterministic_error"]
    return _ended(record, found, error, left, record["history"])


def _fixed_point(record: Record) -> FixedPoint:
    Q = _square(record["Q"], "Q")
    for name in ("Q_error", "Q_hat"):
        if _square(record[name], name).shape != Q.shape:
            raise ValueError(f"{name} of another shape than Q")
    arrays = {name: _array(record[name], name) for name in ("overlaps", "stable", "potential")}
    given = {f.name: record[f.name] for f in fields(FixedPoint)} | arrays | {"names": _texts(record["names"], len(Q))}
    for name in ("alpha", "side_information"):
        given[name] = real(given[name], name)
    return FixedPoint(**given | {"start": _text(given["start"])})


def _thresholds(record: Record) -> Thresholds:
    labels = _texts(record["labels"])
    return Thresholds(map(_threshold, record["thresholds"]), labels)


def _diagram(record: Record) -> PhaseDiagram:
    names = _texts(record["names"])
    if len(names) not in (1, 2) or not isinstance(record["records"], list):
        raise ValueError("a phase diagram without one or two names and a list of records")
    for one in record["records"]:
        for name in names:
            real(one["at"][name], "at")
        Result(one["result"])
    return PhaseDiagram(record["records"], names)


def _branches(record: Record) -> Branches:
    return Branches(map(_line, record["branches"]), _texts(record["labels"]))


def _phases(record: Record) -> Phases:
    return Phases(_thresholds(record), _texts(record["labels"]), _branches(record))


def _line(record: Record) -> BranchLine:
    own = {name: _array(record[name], name) for name in ("alphas", "errors", "overlaps", "growth")}
    shapes = {len(array) for array in own.values()}
    if own["overlaps"].ndim != 3 or own["overlaps"].shape[1] != own["overlaps"].shape[2] or len(shapes) != 1:
        raise ValueError("a branch whose arrays do not fit together")
    turns = tuple(whole(n, "turns") for n in record["turns"])
    return BranchLine(_text(record["begins"]), _text(record["ends"]), **own, turns=turns)


def _threshold(record: Record) -> Threshold:
    Q, subspace = _square(record["Q"], "Q"), _array(record["subspace"], "subspace")
    if subspace.ndim != 2 or subspace.shape[1] != len(Q):
        raise ValueError("a subspace of another number of rows than Q")
    own: Record = {
        "layers": tuple(whole(layer, "layers") for layer in record["layers"]),
        "names": _texts(record["names"]),
        "kind": _text(record["kind"]),
    }
    own |= {name: real(record[name], name) for name in ("alpha", "error")}
    return Threshold(**{f.name: record[f.name] for f in fields(Threshold)} | own | {"subspace": subspace})


def _gamp(record: Record) -> Gamp:
    rows = len(_square(record["Q"], "Q"))
    _square(record["C_hat"], "C_hat")
    if _array(record["W_hat"], "W_hat").ndim != 2 or len(record["W_hat"]) != rows:
        raise ValueError("a W_hat of another number of rows than Q")
    own = {"names": _texts(record["names"], rows), "reason": _text(record["reason"])}
    return Gamp(**{f.name: record[f.name] for f in fields(Gamp)} | own | {"steps": whole(record["steps"], "steps")})


def _dynamics(record: Record) -> Dynamics:
    layers = tuple(whole(layer, "layers") for layer in record["layers"])
    names = _texts(record["names"], len(layers))
    trajectories = tuple(map(_trajectory, record["trajectories"]))
    if any(one.cosines.shape[2] != len(layers) for one in trajectories):
        raise ValueError("cosines of another number of rows than layers")
    return Dynamics(trajectories, names, layers)


def _trajectory(record: Record) -> Trajectory:
    arrays = {name: _array(record[name], name) for name in ("cosines", "noise", "loss")}
    seeds, steps, rows = arrays["cosines"].shape
    if arrays["noise"].shape != (steps, rows) or arrays["loss"].shape != (seeds, steps):
        raise ValueError("noise or loss of another shape than cosines")
    results, reasons = _texts(record["results"], seeds), _texts(record["reasons"], seeds)
    return Trajectory(_text(record["method"]), _text(record["unit"]), **arrays, results=results, reasons=reasons)


_VALUES: dict[str, Callable[[Record], Any]] = {
    "branches": _branches, "phases": _phases, "fixed_point": _fixed_point, "thresholds": _thresholds,
    "gamp": _gamp, "dynamics": _dynamics, "numbers": lambda record: record["value"],
}  # fmt: skip


# --- what a file must hold ----------------------------------------------------------------------------


def _array(value: Any, name: str) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise ValueError(f"{name} is no array")
    return value


def _square(value: Any, name: str) -> np.ndarray:
    array = _array(value, name)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ValueError(f"{name} is no square matrix")
    return array


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:60]} where a text should be")
    return value


def _texts(value: Any, rows: int | None = None) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError("names that are no texts")
    if rows is not None and len(value) not in (0, rows):
        raise ValueError(f"{len(value)} names of {rows} rows")
    return tuple(value)
