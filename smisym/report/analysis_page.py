"""Results of an analysis -> one self-contained report.html: what was found, and everything that it rests on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from smisym.base.directions import is_part, spanned
from smisym.base.solution import Result
from smisym.report.html import environment
from smisym.report.numbers import format_with_error
from smisym.report.outlining import outline, references
from smisym.report.svg import embedded
from smisym.report.wording import of_result

Record = Mapping[str, Any]

_KINDS = {
    "trivial": "learned from the first sample on",
    "weak": "weak recovery",
    "hard": "hard",
    "perfect_stable": "perfect recovery locally stable (counting)",
    "perfect_amp": "perfect recovery reached by AMP",
    "spinodal": "spinodal",
    "information": "information-theoretic",
}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NBSP = "\u00a0"
# What helps a point of the curve, and a run of GAMP, as options of the command.
_OF_POINTS = {name: f"--{name}" for name in ("samples", "accuracy")}
_OF_RUNS = {name: f"--{name}" for name in ("iterations", "damping")}


@dataclass(frozen=True)
class _Table:
    """Cells as text or markup; ``failed`` marks the rows that did not converge."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    failed: Sequence[bool]


def report_page(results: Mapping[str, Any]) -> str:
    """A whole HTML document, without network or script.

    results
        "header" (schema, package_version, architecture, seed, settings, versions), "architecture_text" (the lines
        that declare it), "thresholds", "points", "gamp" (records as in the result files), "derivation" (a
        :class:`~smisym.base.derivation.Derivation`), "figure_svg" (one ``<svg>`` element).  Optional:
        "gamp_figure_svg", "labels" (of the rows of Q), "unit" (what alpha is, N/D), "published" ({"source",
        "notes"}), "warnings" (texts), "title".

    Every number comes with its error; every point or run that did not converge with its remedy.  The same results
    give the same bytes.  Raises ValueError for a figure that is not a plain SVG.
    """
    points = sorted(results["points"], key=lambda point: point["alpha"])
    labels = _labels(results, points)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            title=results.get("title") or _title(results["header"].get("architecture", {})),
            findings=_findings(results, points, labels),
            architecture_text=results["architecture_text"],
            thresholds=_threshold_table(results["thresholds"], labels),
            unit=results.get("unit", "N/D").replace("^2", "²"),
            figure=embedded(results["figure_svg"], "f1-", "Overlaps against alpha"),
            caption=_caption(points, results.get("gamp") or (), results.get("published"), labels),
            gamp_figure=embedded(results["gamp_figure_svg"], "f2-", "GAMP by iteration")
            if results.get("gamp_figure_svg")
            else "",
            published={"source": "", "notes": (), **(results.get("published") or {})},
            failures=_failures(points, results.get("gamp") or (), "accuracy" in results["header"].get("settings", {})),
            warnings=list(results.get("warnings") or ()),
            curve=_curve_table(points),
            errors=_error_table(points),
            gamp=_gamp_table(results.get("gamp") or (), points),
            header=_flat(results["header"]),
            sections=outline(results["derivation"]),
            references=references(results["derivation"]),
        )
    )


def _labels(results: Mapping[str, Any], points: Sequence[Record]) -> list[str]:
    rows = max((len(point["Q"]) for point in points if point.get("Q") is not None), default=0)
    return list(results.get("labels") or (f"layer {row + 1}" for row in range(rows)))


def _title(architecture: Mapping[str, Any]) -> str:
    layers, tokens = architecture.get("layers"), architecture.get("tokens")
    if not layers or not tokens:
        return "What can be learned"
    count = _NUMBERS[len(layers)] if len(layers) < len(_NUMBERS) else str(len(layers))
    return f"What can be learned of {count} layer{'s' if len(layers) > 1 else ''} of attention on {tokens} tokens"


def thresholds_in_words(thresholds: Sequence[Record], labels: Sequence[str]) -> list[str]:
    """A sentence on each threshold, in their order."""
    return [_sentence(threshold, labels, first=number == 0) for number, threshold in enumerate(thresholds)]


def _findings(results: Mapping[str, Any], points: Sequence[Record], labels: Sequence[str]) -> str:
    """The thresholds in words, then how far the numbers can be trusted."""
    sentences = thresholds_in_words(results["thresholds"], labels)
    failed = sum(point["result"] != Result.SUCCESS.value for point in points)
    if failed:
        no, they = ("is no success", "it is") if failed == 1 else ("are no success", "they are")
        sentences.append(
            f"{failed} of the {len(points)} points of the curve {no}; {they} drawn hollow and listed below."
        )
    elif points:
        sentences.append(f"All {len(points)} points of the curve converged.")
    if runs := results.get("gamp"):
        done = sum(run["result"] == Result.SUCCESS.value for run in runs)
        sentences.append(f"{done} of {len(runs)} GAMP run{'s' if len(runs) > 1 else ''} on generated data converged.")
    sentences.append("Digits in parentheses are one standard error of the last digits shown.")
    return " ".join(sentences)


def _sentence(threshold: Record, labels: Sequence[str], *, first: bool) -> str:
    kind, alpha = threshold["kind"], _alpha(threshold)
    who, plural = _who(threshold)
    to_be = "are" if plural else "is"
    at = f"α{_NBSP}={_NBSP}{alpha}"
    finite = threshold["alpha"] is not None and math.isfinite(threshold["alpha"])
    if kind == "trivial":
        return f"{_capital(who)} {to_be} learned at any α > 0."
    if kind in ("weak", "hard") and not finite:
        them = "them" if plural else "it"
        return f"{_capital(who)} {to_be} hard: no first-order method learns {them} from N proportional to D samples."
    if kind == "weak" and first:
        return f"{_capital(who)} {to_be} learned first, from {at} on."
    if kind == "weak":
        return f"{_capital(who)} follow{'' if plural else 's'} from {at} on{_state(threshold, labels)}."
    if kind == "perfect_stable":
        return (
            f"Perfect recovery is locally stable from {at} on, by counting."
            if finite
            else "Perfect recovery is never stable."
        )
    if kind == "perfect_amp":
        return (
            f"AMP reaches perfect recovery from {at} on." if finite else "AMP reaches perfect recovery at no finite α."
        )
    return f"{_capital(_KINDS.get(kind, str(kind)))} threshold{f' of {who}' if threshold.get('layers') else ''}: {at}."


def _who(threshold: Record) -> tuple[str, bool]:
    """What a threshold is about, and whether that is a plural."""
    names = [str(name) for name in threshold.get("names") or ()]
    if is_part(threshold.get("subspace"), names):
        text, several = spanned(threshold["subspace"], names), len(threshold["subspace"]) > 1
        return text if several or text.startswith("1 ") else f"the direction {text}", several
    if _are_fields(names):
        plural = len(names) > 1
        return f"the field{'s' * plural} {' and '.join(filter(None, (', '.join(names[:-1]), names[-1])))}", plural
    layers = [str(layer) for layer in threshold.get("layers") or ()]
    if not layers:
        return "a subspace", False
    plural = len(layers) > 1
    name = f"layers {', '.join(layers[:-1])} and {layers[-1]}" if plural else f"layer {layers[0]}"
    direction = _direction(threshold)
    return (f"the subspace {direction} of {name}", False) if direction else (name, plural)


def _are_fields(names: Sequence[str]) -> bool:
    """Whether these are fields of expressions, which have names of their own and no layers."""
    return any(not name.startswith("layer") for name in names)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _state(threshold: Record, labels: Sequence[str]) -> str:
    """What is known of the other rows just below the threshold, where something is."""
    Q = threshold.get("Q")
    if Q is None:
        return ""
    known = [
        f"{labels[row]} has overlap {format_with_error(line[row], digits=4)}"
        for row, line in enumerate(Q)
        if line[row] > 1e-6 and row < len(labels)
    ]
    return f", where {', '.join(known)}" if known else ""


def _direction(threshold: Record) -> str:
    """The subspace, unless it is spanned by rows of Z (which the layers name already)."""
    if is_part(threshold.get("subspace"), threshold.get("names") or ()):
        return _fields(threshold)
    vectors = threshold.get("subspace") or ()
    if all(sum(abs(component) > 1e-9 for component in vector) == 1 for vector in vectors):
        return ""
    return ", ".join(f"({', '.join(f'{component:.3f}' for component in vector)})" for vector in vectors)


def _fields(threshold: Record) -> str:
    return spanned(threshold.get("subspace"), threshold.get("names") or ())


def _alpha(threshold: Record) -> str:
    value = threshold["alpha"]
    return "∞" if value is None else format_with_error(value, threshold.get("error"))


def _threshold_table(thresholds: Sequence[Record], labels: Sequence[str]) -> _Table:
    layers = not _are_fields(labels)
    rows = [
        (
            _KINDS.get(t["kind"], str(t["kind"])),
            (", ".join(map(str, t.get("layers") or ())) if layers else _fields(t)) or "–",
            _direction(t) if layers else "",
            _alpha(t),
            _matrix(t.get("Q")),
        )
        for t in thresholds
    ]
    head = ["threshold", "layers" if layers else "fields", "subspace", "α", "overlap just below"]
    used = [index for index in range(len(head)) if index != 2 or any(row[2] for row in rows)]
    return _Table([head[i] for i in used], [[row[i] for i in used] for row in rows], [False] * len(rows))


def _matrix(Q: Sequence[Sequence[float]] | None) -> str:
    if Q is None:
        return "–"
    if all(abs(Q[i][j]) < 1e-12 for i in range(len(Q)) for j in range(len(Q)) if i != j):
        return f"diag({', '.join(format_with_error(Q[i][i], digits=4) for i in range(len(Q)))})"
    return "; ".join(" ".join(format_with_error(value, digits=4) for value in line) for line in Q)


def _caption(points: Sequence[Record], gamp: Sequence[Record], published: Record | None, labels: Sequence[str]) -> str:
    row = "field" if _are_fields(labels) else "layer"
    parts = [
        f"Overlap of every {row} with the truth against the number of samples per dimension, from state evolution."
    ]
    parts.append("Bands are 95 % intervals, dotted lines the thresholds of the table.")
    if gamp:
        parts.append(
            "Filled markers: GAMP on generated data: every run, or from four runs on their mean with a 95 % interval."
        )
    if published:
        parts.append("Grey: published data.")
    if any(record["result"] != Result.SUCCESS.value for record in (*points, *gamp)):
        parts.append("Hollow markers in colour or black: no success (see the table), not joined to their neighbours.")
    parts.append("Below, prediction errors, and the free entropy where it is finite.")
    return " ".join(parts)


def _failures(points: Sequence[Record], gamp: Sequence[Record], accuracy: bool = False) -> list[tuple[str, str, str]]:
    """(where, code, remedy) of everything that did not converge.  accuracy: whether one was asked of the points."""
    found = [
        (
            f"state evolution at α = {point['alpha']:.6g}",
            point["result"],
            _remedy(point["result"], _OF_POINTS, accuracy),
        )
        for point in points
    ]
    found += [
        (
            f"GAMP at α = {run['alpha']:.6g}, D = {run['dim']}, seed {run['seed']}",
            run["result"],
            _remedy(run["result"], _OF_RUNS, False),
        )
        for run in gamp
    ]
    return [(where, code, remedy) for where, code, remedy in found if code != Result.SUCCESS.value]


def _remedy(code: str, options: Mapping[str, str], accuracy: bool) -> str:
    try:
        return of_result(Result(code), options, accuracy)
    except ValueError:
        return "a result code that this version does not know"


def _curve_table(points: Sequence[Record]) -> _Table:
    size = max((len(point["Q"]) for point in points if point.get("Q") is not None), default=0)
    pairs = [(i, i) for i in range(size)]
    pairs += [(i, j) for i in range(size) for j in range(i + 1, size) if any(_entry(p, "Q", i, j) for p in points)]
    head = ["α", *(_subscript("Q", i, j, size) for i, j in pairs), "result"]
    rows = []
    for point in points:
        cells = [format_with_error(_entry(point, "Q", i, j), _entry(point, "Q_error", i, j)) for i, j in pairs]
        rows.append([format_with_error(point["alpha"]), *cells, point["result"]])
    return _Table(head, rows, [point["result"] != Result.SUCCESS.value for point in points])


def _entry(point: Record, key: str, i: int, j: int) -> float | None:
    matrix = point.get(key)
    return None if matrix is None else matrix[i][j]


def _subscript(name: str, i: int, j: int, size: int) -> Markup:
    return Markup("<i>{}</i><sub>{}{}{}</sub>").format(name, i + 1, "" if size < 10 else ",", j + 1)


def _error_table(points: Sequence[Record]) -> _Table:
    columns = (("bayes_error", "Bayes error"), ("plug_in_error", "plug-in error"), ("free_entropy", "free entropy"))
    used = [(key, name) for key, name in columns if any(p.get(key) is not None or p.get("unbounded") for p in points)]
    rows = []
    for point in points:
        cells = [format_with_error(point.get(key), point.get(f"{key}_stderr")) for key, _ in used]
        if point.get("unbounded") and used[-1][0] == "free_entropy":
            cells[-1] = {"+inf": "+∞", "-inf": "−∞"}.get(point["unbounded"], str(point["unbounded"]))
        rows.append([format_with_error(point["alpha"]), *cells])
    failed = [point["result"] != Result.SUCCESS.value for point in points]
    return _Table(["α", *(name for _, name in used)], rows if used else [], failed)


def _gamp_table(runs: Sequence[Record], points: Sequence[Record]) -> _Table:
    """Last overlaps of every run, beside state evolution where the curve has a point at the same alpha."""
    rows = []
    for run in runs:
        last = run["iterations"][-1] if run["iterations"] else {}
        overlap = last.get("overlap") if last.get("overlap") is not None else last.get("Q")
        beside = next((p for p in points if abs(p["alpha"] - run["alpha"]) < 1e-9 and p.get("Q") is not None), None)
        rows.append(
            [
                format_with_error(run["alpha"]),
                str(run["dim"]),
                str(run["seed"]),
                str(last.get("step", "–")),
                _diagonal(overlap),
                _diagonal(beside["Q"]) if beside else "–",
                run["result"],
            ]
        )
    head = ["α", "D", "seed", "iterations", "overlap", "state evolution", "result"]
    used = [i for i in range(len(head)) if i != 5 or any(row[5] != "–" for row in rows)]
    failed = [run["result"] != Result.SUCCESS.value for run in runs]
    return _Table([head[i] for i in used], [[row[i] for i in used] for row in rows], failed)


def _diagonal(Q: Sequence[Sequence[float]] | None) -> str:
    return "–" if Q is None else ", ".join(f"{round(Q[i][i], 4) + 0.0:.4f}".replace("-", "−") for i in range(len(Q)))


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as (name, value) lines; lists stay together."""
    lines: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            lines += _flat(value, f"{name} · ")
        elif isinstance(value, str):
            lines.append((name, value))
        else:
            lines.append((name, json.dumps(value, ensure_ascii=False, default=str)))
    return lines
