"""Whether a result file stands: computed again from what it records, and once more with random numbers of its own.

A file of ``smisym thresholds``, ``curve``, ``phases`` or ``phase-diagram`` says declaration, seed and settings.  From
these every number is computed again; with another seed once more, which shares no random number with the file, so that
the difference has a distribution; a first threshold is held against its closed form, where it has one; and weak
thresholds are put between two alphas, below which state evolution learns nothing and above which it does.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from smisym.base.directions import spanned
from smisym.base.errors import InputError, Words
from smisym.base.files import check_path, read_bytes
from smisym.base.solution import mean_and_error
from smisym.declare.architecture import Architecture
from smisym.declare.io import SCHEMA, Store, header, restored
from smisym.declare.smi import SMI
from smisym.model.compiled import Model, compile
from smisym.report import format_with_error
from smisym.run import diagram, records
from smisym.theory.closed_forms import closed_form
from smisym.theory.evolution import state_evolution
from smisym.theory.maps import OverlapMap, overlap_map

Record = dict[str, Any]
Told = Callable[[Record], object]

MAX_BYTES = 1 << 30
# Chance that a right file is said not to stand, all its numbers together.
FALSE_ALARM = 1e-3
# Points of a curve, and values of a phase diagram, that are computed again.
_POINTS = 5
# Errors that come from refinement: how many of them a right number may be off by.
_REFINED = 4.0
# Difference, relative to the error, up to which the same seed gives the same number: paths to a point differ.
_SAME = 0.25
# What overlaps of the same seed may differ by.
_OVERLAPS = 1e-6
# Factor by which an error may differ from that of the same seed.
_FAIR = 1.5
# How far off a weak threshold state evolution is asked, in errors and relative to alpha; overlap that is something.
_AWAY, _ASIDE, _LEARNED = 6.0, 0.02, 1e-4
# Where few points show nothing just above a threshold state evolution is asked so many times as far away.
_FARTHER = (1, 2, 4, 8)
_COMMANDS = ("thresholds", "curve", "phases", "phase-diagram")
_OF_MAP = ("samples", "scrambles", "rtol")


@dataclass(frozen=True)
class Standing:
    """One number of a file.

    what: where it is.  stated, error: as the file has them.  again: with the same seed; other, other_error: with
    another seed.  z: of that difference, in standard errors.  said: of what else it was held against.  stands: whether
    all of it agrees.
    """

    what: str
    stated: float
    error: float
    again: float
    other: float
    other_error: float
    z: float
    said: str
    stands: bool


def certify(
    path: str | os.PathLike[str],
    *,
    workers: int | None = None,
    seed: int | None = None,
    told: Told | None = None,
    store: str | os.PathLike[str] | None = None,
) -> Record:
    """{"file", "seed", "rows" (records of :class:`Standing`), "stands", "result" (of the file itself)}.

    seed: of the numbers that the file does not share; None for the file's plus 1.  told: called with each row.  store:
    folder in which what is computed again is kept, for the same file when it was interrupted, and for others of the
    same declaration, seed and settings; what the command that made the file has kept is never read.
    Raises InputError for a file that is none of ours, or says too little.
    """
    where = f"result file {check_path(path, 'result file')}"
    document = _read(path, where)
    try:
        declared = restored(document["architecture"], where)
        own, command = int(document["seed"]), str(document["command"])
        other = own + 1 if seed is None else seed
        keep = None if store is None else Path(check_path(store, "folder to keep results in")) / "certify"
        parts = list(_compared(document, declared, command, _Again((own, other), workers, keep)))
    except (KeyError, TypeError, ValueError, LookupError) as error:
        if isinstance(error, InputError):
            raise
        raise _refused(where, f"a document without what is needed ({error!s:.80})") from None
    limit = FALSE_ALARM / max(len(parts), 1)
    rows = []
    for part in parts:
        rows.append(vars(_judged(part, limit)))
        if told is not None:
            told(rows[-1])
    return {
        "file": os.fspath(path),
        "seed": other,
        "rows": rows,
        "stands": all(row["stands"] for row in rows),
        "result": str(document.get("result", "success")),
    }


def _read(path: str | os.PathLike[str], where: str) -> Record:
    content = read_bytes(path, where, MAX_BYTES)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _refused(where, f"no JSON ({error!s:.80})") from None
    if not isinstance(document, dict) or document.get("package") != "smisym" or document.get("schema") != SCHEMA:
        raise _refused(where, "a document that is not of this smisym")
    if document.get("command") not in _COMMANDS:
        raise _refused(where, f"a document of the command {document.get('command')!r}")
    return document


def _refused(where: str, given: str) -> InputError:
    allowed = f"what smisym {', '.join(_COMMANDS[:-1])} or {_COMMANDS[-1]} prints with --json"
    return InputError(where, Words(given), allowed, "make one with --json > RESULT.json")


# --- what is compared -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """One number of the file, computed again twice: (value, error) each; freedom: degrees of, 0 for no chance.

    said, holds: of other checks.
    """

    what: str
    stated: tuple[float, float]
    again: tuple[float, float]
    other: tuple[float, float]
    freedom: int
    said: str = ""
    holds: bool = True


@dataclass(frozen=True)
class _Again:
    """How all is computed again: the seed of the file and another one, workers, and the folder that keeps it."""

    seeds: tuple[int, int]
    workers: int | None
    keep: Path | None

    def store(self, command: str, declared: Architecture | SMI, seed: int, settings: Record) -> Store | None:
        if self.keep is None:
            return None
        return Store(self.keep, {"command": f"certify {command}", **header(declared, seed, settings)})


def _compared(document: Record, declared: Architecture | SMI, command: str, how: _Again) -> Iterator[_Part]:
    settings = dict(document["settings"])
    if command == "phase-diagram":
        yield from _of_diagram(document, declared, settings, how)
        return
    model = compile(declared)
    of_map = {name: settings[name] for name in _OF_MAP if settings.get(name) is not None}
    stores = [how.store(command, declared, seed, settings) for seed in how.seeds]
    maps = [
        overlap_map(model, seed=seed, workers=how.workers, store=store, **of_map)
        for seed, store in zip(how.seeds, stores, strict=True)
    ]
    twice = list(zip(maps, stores, strict=True))
    aim = {name: settings.get(name) for name in ("accuracy", "most_samples")}
    if command == "curve":
        alphas = [float(point["alpha"]) for point in _some(document["points"])]
        start = settings.get("start", "symmetry-broken")
        both = [records.curve(omap, alphas, start=start, store=store, **aim) for omap, store in twice]
        yield from _of_curve(document, both, model)
    elif command == "thresholds":
        asked = {name: settings.get(name) for name in ("stages", "quadrature")}
        both = [records.thresholds(omap, store=store, **asked, **aim)["thresholds"] for omap, store in twice]
        for part in _of_thresholds(document["thresholds"], both, maps[1].scrambles - 1, model):
            yield _bracketed(part, document["thresholds"], maps[1], model)
    else:
        both = [records.phases(omap, most=document["most"], store=store)["thresholds"] for omap, store in twice]
        yield from _of_thresholds(document["thresholds"], both, maps[1].scrambles - 1, model)


def _of_thresholds(stated: Sequence[Record], both: Sequence[list[Record]], freedom: int, model: Model) -> list[_Part]:
    left = [list(found) for found in both]
    parts = []
    for number, one in enumerate(stated):
        twins = [_taken(found, one) for found in left]
        name = f"{number + 1}: {one['kind']} {spanned(one['subspace'], one['names'])}"
        chance = freedom if one["samples"] is not None or one["kind"] in ("spinodal", "information") else 0
        lost = [said for said, twin in zip(("this seed", "another seed"), twins, strict=True) if twin is None]
        said = f"not found with {' or '.join(lost)}" if lost else ""
        moved = twins[0] is not None and not _same_overlap(one, twins[0])
        said = "; ".join(filter(None, (said, "the same seed has other overlaps" if moved else "")))
        again, other = (_number(twin) for twin in twins)
        parts.append(_Part(name, _number(one), again, other, chance, said, not lost and not moved))
    for found, seed in zip(left, ("this seed", "another seed"), strict=True):
        for one in found:
            nothing = (math.nan, math.nan)
            what = f"{one['kind']} {spanned(one['subspace'], one['names'])}"
            parts.append(_Part(what, nothing, _number(one), _number(one), 0, f"found with {seed} alone", False))
    exact = closed_form(model)
    weak = next((n for n, one in enumerate(stated) if one["kind"] == "weak"), None)
    if exact is not None and weak is not None:
        alpha, part = float(exact), parts[weak]
        near = abs(part.stated[0] - alpha) <= _REFINED * part.stated[1] + 1e-9 * alpha
        said = f"closed form {exact.alpha} = {alpha:.6g}"
        parts[weak] = _with(part, said, near)
    return parts


def _taken(found: list[Record], one: Record) -> Record | None:
    """Removes and returns the threshold that is the same as one; None where there is none."""
    alike = [other for other in found if (other["kind"], other["names"]) == (one["kind"], one["names"])]
    if not alike:
        return None
    nearest = min(
        alike, key=lambda other: abs(_number(other)[0] - _number(one)[0]) if _number(one)[0] < math.inf else 0
    )
    found.remove(nearest)
    return nearest


def _same_overlap(one: Record, twin: Record) -> bool:
    if one["Q"] is None or twin["Q"] is None:
        return bool(one["Q"] is None and twin["Q"] is None)
    Q, other = (np.array(of["Q"], dtype=float) for of in (one, twin))
    return Q.shape == other.shape and bool(np.allclose(Q, other, rtol=0, atol=_OVERLAPS))


def _number(one: Record | None) -> tuple[float, float]:
    if one is None:
        return math.nan, math.nan
    return tuple(math.inf if one[key] is None else float(one[key]) for key in ("alpha", "error"))  # type: ignore[return-value]


def _with(part: _Part, said: str, holds: bool) -> _Part:
    told = "; ".join(filter(None, (part.said, said if holds else f"{said}: not so")))
    return _Part(part.what, part.stated, part.again, part.other, part.freedom, told, part.holds and holds)


def _bracketed(part: _Part, stated: Sequence[Record], omap: OverlapMap, model: Model) -> _Part:
    """With what state evolution has on both sides of a weak threshold."""
    number = part.what.partition(":")[0]
    one = stated[int(number) - 1] if number.isdigit() else {"kind": ""}
    alpha, error = part.stated
    if one["kind"] != "weak" or not math.isfinite(alpha) or not math.isfinite(error):
        return part
    aside = max(_AWAY * error, _ASIDE * alpha)
    subspace = np.array(one["subspace"], dtype=float)
    below, spread = _learned(omap, alpha - aside, subspace)
    # Of two sides: a scramble of few points may learn a little just below, and that is not what all of them do.
    chance = FALSE_ALARM / (2 * len(stated))
    nothing = below <= max(_LEARNED, -float(special.stdtrit(omap.scrambles - 1, chance)) * spread)
    at, above, spread_above = alpha, 0.0, 0.0
    for away in _FARTHER:
        at = alpha + away * aside
        above, spread_above = _learned(omap, at, subspace)
        if above > _LEARNED:
            break
    here, there = format_with_error(below, spread), format_with_error(above, spread_above)
    said = f"state evolution has {here} at {alpha - aside:.4g} and {there} at {at:.4g}"
    return _with(part, said, nothing and above > _LEARNED)


def _learned(omap: OverlapMap, alpha: float, subspace: np.ndarray) -> tuple[float, float]:
    """What state evolution has of a subspace (d, P) at one alpha: mean and standard error over the scrambles."""
    each = omap.model.symmetry.matrix(state_evolution(omap, alpha).value.overlaps)
    along = np.linalg.eigvalsh(subspace @ each @ subspace.T)[:, -1]
    mean, error = mean_and_error(along)
    return float(mean), float(error)


def _some(points: Sequence[Record]) -> list[Record]:
    """A few of all, the first and the last among them."""
    return [points[n] for n in sorted(set(np.linspace(0, len(points) - 1, _POINTS).round().astype(int).tolist()))]


def _of_curve(document: Record, both: Sequence[list[Record]], model: Model) -> Iterator[_Part]:
    points, some = document["points"], _some(document["points"])
    asked, there = sorted(document["settings"]["alphas"]), [point["alpha"] for point in points]
    if asked != there:
        said = f"points at {len(there)} alphas where {len(asked)} were asked for"
        yield _Part("alphas", (len(there), 0.0), (len(asked), 0.0), (len(asked), 0.0), 0, said, False)
    for point, again, other in zip(some, *both, strict=True):
        freedom = int(point["degrees_of_freedom"] or 0)
        at, three = f"alpha = {point['alpha']:g}", (point, again, other)
        for i, j in np.argwhere(np.tril(np.ones((len(point["Q"]),) * 2))).tolist():
            pair = document["labels"][i] if i == j else f"{document['labels'][i]} with {document['labels'][j]}"
            yield _Part(f"{at}, {pair}", *_three(_overlap(one, i, j) for one in three), freedom)
        for key in ("bayes_error", "plug_in_error", "free_entropy"):
            yield _Part(f"{at}, {key}", *_three(_beside(one, key) for one in three), freedom)
        left = records.errors_of_layers(model, np.array(point["Q"], dtype=float))
        if not np.allclose(point["mmse"], left, rtol=0, atol=1e-9):
            nothing = (math.nan, math.nan)
            yield _Part(f"{at}, mmse", nothing, nothing, nothing, 0, "not what is left of these overlaps", False)


def _three(
    numbers: Iterable[tuple[float, float]],
) -> tuple[tuple[float, float], tuple[float, float], tuple[float, float]]:
    first, second, third = numbers
    return first, second, third


def _beside(point: Record, key: str) -> tuple[float, float]:
    """A number with its standard error; where one is not there, or infinite, the other tells nothing."""
    value, error = point[key], point[f"{key}_stderr"]
    return math.inf if value is None else float(value), 0.0 if error is None else float(error)


def _overlap(point: Record, row: int, column: int) -> tuple[float, float]:
    """An overlap, and its error with what is left of the equation."""
    value, error, left = (point[key][row][column] for key in ("Q", "Q_error", "Q_deterministic_error"))
    numbers = [math.inf if one is None else float(one) for one in (error, left)]
    return float(value), math.hypot(*numbers)


def _of_diagram(document: Record, declared: Architecture | SMI, settings: Record, how: _Again) -> Iterator[_Part]:
    names = ("samples", "scrambles", "rtol", "stages", "accuracy", "most_samples", "most")
    own = {name: settings[name] for name in names if settings.get(name) is not None}
    own |= {"follow": settings["follow"], "workers": how.workers, "store": how.keep}
    for record in _some(document["records"]):
        vary = {name: [value] for name, value in record["at"].items()}
        both = [diagram.phase_diagram(declared, vary, seed=seed, **own)[0] for seed in how.seeds]
        model = compile(restored(record["architecture"], "record"))
        freedom = int(settings["scrambles"]) - 1
        at = ", ".join(f"{name} = {value:g}" for name, value in record["at"].items())
        for part in _of_thresholds(record["thresholds"], [one["thresholds"] for one in both], freedom, model):
            yield _Part(f"{at}, {part.what}", part.stated, part.again, part.other, part.freedom, part.said, part.holds)


# --- the verdict ----------------------------------------------------------------------------------


def _judged(part: _Part, limit: float) -> Standing:
    (stated, error), (again, error_again), (other, other_error) = part.stated, part.again, part.other
    if math.isinf(stated) or math.isinf(other):
        z = 0.0 if stated == other else math.inf
        same = stated == again
        most = 0.0
    else:
        # Errors of our own: one that is stated may be anything.
        size = math.hypot(error_again, other_error)
        gap = abs(stated - other)
        z = 0.0 if gap <= 1e-12 * abs(stated) else gap / size if size else math.inf
        same = abs(stated - again) <= _SAME * error_again + 1e-9 * abs(stated)
        most = -float(special.stdtrit(2 * part.freedom, limit / 2)) if part.freedom else _REFINED
    agrees = z <= most
    said = part.said
    # Of paths that differ; the same numbers have the same error.
    fair = error == error_again or error_again / _FAIR <= error <= error_again * _FAIR
    words = {"the same seed gives another number": same, "the same seed has another error": fair}
    if part.holds:
        said = "; ".join(filter(None, (said, *(word for word, fine in words.items() if not fine))))
    stands = bool(part.holds and agrees and same and fair)
    return Standing(part.what, stated, error, again, other, other_error, z, said, stands)
