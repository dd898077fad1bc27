"""Results for people at a terminal, as tables on stdout."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from smisym.base.counting import of_units
from smisym.base.directions import is_part, spanned
from smisym.report import atlas_pages, format_with_error
from smisym.run.boundaries import Change
from smisym.run.tables import print_table, print_wide, say
from smisym.training.trajectories import Dynamics

Record = Mapping[str, Any]

ROWS = 24  # of a table of iterations


def print_thresholds(document: Record) -> None:
    """One line for each threshold, in the order in which they are met."""
    thresholds = document["thresholds"]
    # Layers alone do not name the fields where one has several rows.
    several = any(len(t["names"]) > len(t["layers"]) or len(t["subspace"][0]) > 1 for t in thresholds)
    shared = several and len({row["layers"][0] for row in thresholds}) < max(len(t["subspace"][0]) for t in thresholds)
    # The fields of a model by expressions have names of their own, and no layers.
    shared = shared or any(not name.startswith("layer") for t in thresholds for name in t["names"])
    # Nor do layers tell which part of their fields it is.
    shared = shared or any(is_part(t["subspace"], t["names"]) for t in thresholds)
    lines = [
        [
            threshold["kind"],
            _fields(threshold) if shared and threshold["names"] else ", ".join(map(str, threshold["layers"])),
            _alpha(threshold),
            _below(threshold),
        ]
        for threshold in thresholds
    ]
    head = ["threshold", "fields" if shared else "layers", "alpha", "overlaps just below"]
    print_table(head, lines, folded=[head[1], head[3]])
    if (exact := document.get("closed_form")) is not None:
        # Once where the formula is the value.
        parts = dict.fromkeys((exact["formula"], exact["value"].replace("**", "^"), f"{exact['alpha']:.6g}"))
        say(f"the first weak one in closed form: {' = '.join(parts)}")


def print_phases(document: Record) -> None:
    """One line for each transition; then the branches that it was found on."""
    found = document["thresholds"]
    if found:
        lines = [[t["kind"], _fields(t) or "–", _alpha(t), _diagonal(t["Q"])] for t in found]
        print_table(["transition", "fields", "alpha", "overlaps there"], lines, folded=["fields", "overlaps there"])
    else:
        say(f"no fold was seen, and no two stable states at once, up to alpha = {document['most']:.4g}")
    if not document["branches"]:
        say("no branch begins below that alpha: nothing was followed; --most says how far")
        return _told_files(document)
    say(_unseen(document))
    for branch in document["branches"]:
        between = _unstable_between(branch["growth"]) if not branch["turns"] else []
        if len(between) > 1:
            low, high = (branch["alphas"][n] for n in (between[0], between[-1]))
            say(f"{len(between)} points, from alpha = {low:.4g} to {high:.4g}, are unstable between stable ones, as "
                 "between two folds: more samples tell whether there are")  # fmt: skip
    lines = []
    for branch in document["branches"]:
        alphas = branch["alphas"]
        span = f"{min(alphas):.4g} to {max(alphas):.4g}" if alphas else "–"
        stable = sum(growth < 1 for growth in branch["growth"])
        lines.append([branch["begins"], branch["ends"], span, str(len(branch["turns"])), f"{stable} of {len(alphas)}"])
    say("")
    print_table(["branch begins", "ends", "alpha", "folds", "points stable"], lines)
    _told_files(document)


def print_diagram(document: Record) -> None:
    """One line for each value, one column for each boundary; then where one begins or ends."""
    names, boundaries = document["names"], document["boundaries"]
    values = [tuple(record["at"][name] for name in names) for record in document["records"]]
    at = ", ".join(names)
    columns = {at: [", ".join(f"{number:.6g}" for number in value) for value in values]}
    titles: dict[str, dict[tuple[float, ...], str]] = {}
    for one in boundaries:
        place = zip(one["values"], one["alphas"], one["errors"], strict=True)
        cells = {(v, *(one[name] for name in names[1:])): format_with_error(a, e or None) for v, a, e in place}
        title = one["label"]
        while set(cells) & set(titles.get(title, {})):
            title += " "  # a second one of the same kind
        titles.setdefault(title, {}).update(cells)
    columns |= {title: [cells.get(value, "–") for value in values] for title, cells in titles.items()}
    columns["result"] = [record["result"] for record in document["records"]]
    print_wide([[*titles, "result"]], columns, at)
    for change in document["changes"]:
        second = next(((name, change[name]) for name in names[1:]), None)
        low, high = change["between"]
        say(Change(change["label"], change["kind"], change["what"], (low, high), second).text(names[0]))
    if any("unseen" in record for record in document["records"]):
        say(_unseen(document))
    _told_files(document)


def print_atlas(document: Record) -> None:
    """One line for each row, and what is open of it."""
    names = ("architecture", "first threshold", "transition", "open")
    rows = document["rows"]
    columns = {name: [atlas_pages.COLUMNS[name](row) for row in rows] for name in names}
    print_table(list(names), list(zip(*columns.values(), strict=True)), folded=("architecture", "open"))
    for row in rows:
        for name, part in row["parts"].items():
            if "said" in part and part["result"] == "failed":
                say(f"{row['name']}, {name}: {part['said']}")
    if len(rows) < document["declared"]:
        say(f"{len(rows)} of {document['declared']} declared rows")
    if "output" not in document:
        say("Later thresholds, perfect recovery and hard phases: -o OUT.md, or --json.")
    _told_files(document)


def _unstable_between(growth: Sequence[float]) -> list[int]:
    """Points whose small changes grow, with others before and after them whose do not."""
    stable = [n for n, rate in enumerate(growth) if rate < 1]
    return [n for n in range(stable[0], stable[-1]) if growth[n] >= 1] if stable else []


def _unseen(document: Record) -> str:
    if document["unseen"] is None:
        return "a branch has too few points for a fold to be seen"
    return f"a fold less deep than {100 * document['unseen']:.2g} % in alpha would not be told from chance"


def _told_files(document: Record) -> None:
    for written in (document.get("output", []), document.get("plot", [])):
        print_written([written] if isinstance(written, str) else written)


def print_written(names: Sequence[str]) -> None:
    """One line for each file that was written."""
    for name in names:
        Console(soft_wrap=True).print(f"written: {name}", markup=False, highlight=False)


def saying_found(step: Callable[[Record], object]) -> Callable[[Record], object]:
    """Calls ``step``, and says on stderr which thresholds are known before the long part that follows the first."""
    parts: list[Record] = []

    def told(part: Record) -> None:
        step(part)
        parts.append(part)
        if len(parts) == 1:
            found = [f"{t['kind']} {_fields(t)} at {_alpha(t)}" for t in part["thresholds"]]
            sys.stderr.write(f"smisym: {'; '.join(found) or 'no threshold'}; next, where Q = I is reached\n")

    return told


def _fields(threshold: Record) -> str:
    return spanned(threshold.get("subspace"), threshold["names"])


def _below(threshold: Record) -> str:
    """Overlaps just below it; where Q = I is never reached there is no such place."""
    never = threshold["kind"].startswith("perfect") and threshold["alpha"] is None
    return "-" if never else _diagonal(threshold["Q"])


def _alpha(threshold: Record) -> str:
    if threshold["alpha"] is not None:
        return format_with_error(threshold["alpha"], threshold["error"])
    return "∞" if threshold["order"] is None else f"∞ (order {threshold['order']})"


def print_curve(document: Record) -> None:
    """One line for each alpha: overlaps, then errors and free entropy, below them where both do not fit beside."""
    points = document["points"]
    size = len(points[0]["Q"])
    overlaps = [f"Q_{i + 1}{i + 1}" if size < 10 else f"Q_{i + 1},{i + 1}" for i in range(size)]
    others = {"Bayes error": "bayes_error", "plug-in error": "plug_in_error", "free entropy": "free_entropy"}
    columns = {"alpha": [f"{point['alpha']:.6g}" for point in points]}
    for i, name in enumerate(overlaps):
        columns[name] = [format_with_error(point["Q"][i][i], point["Q_error"][i][i]) for point in points]
    columns |= {name: [_number(point, key) for point in points] for name, key in others.items()}
    columns["result"] = [point["result"] for point in points]
    print_wide([overlaps, [*others, "result"]], columns, "alpha")
    # Files of earlier versions have none.
    found = [point.get("nishimori", {"degrees_of_freedom": 0}) for point in points]
    checked = [agreement for agreement in found if agreement["degrees_of_freedom"]]
    if checked:
        least = min(checked, key=lambda agreement: agreement["p"])
        say(
            f"Nishimori: over {len(checked)} point{'s' * (len(checked) > 1)} the three estimators of E differ by at "
            f"most {max(a['t'] for a in checked):.2g} standard errors ({least['degrees_of_freedom']} degrees of "
            f"freedom) beyond the errors of the integrals; smallest chance {least['p']:.2g}"
        )
    _told_files(document)


def print_gamp(document: Record, explain: Callable[[str], str] = str) -> None:
    """One line for each iteration, of many the first, the last and some between; then why it stopped.

    explain: turns the reason into the words of the command line.
    """
    steps = document["iterations"]
    known = steps[0]["overlap"] is not None
    key, title = ("overlap", "overlap with the truth") if known else ("Q", "overlap with itself")
    lines = []
    for number in _shown(len(steps)):
        step = steps[number]
        change = "–" if step.get("change") is None else f"{step['change']:.1g}"
        lines.append([str(step["step"]), change, _diagonal(step[key])])
    print_table(["iteration", "change", title], lines, folded=[title])
    left_out = len(steps) - len(lines)
    if left_out:
        say(f"{left_out} of {len(steps)} iterations are not shown; --json prints all")
    say(f"{document['result']}: {explain(document['reason'])}")
    _told_files(document)


def print_dynamics(found: Dynamics, document: Record | None = None) -> None:
    """Of each unit of steps a table: a column for each method and layer, mean and error over the seeds.

    document: names what was written.
    """
    for unit in dict.fromkeys(one.unit for one in found.trajectories):
        some = [one for one in found.trajectories if one.unit == unit]
        steps = _spaced(len(some[0].steps))
        columns = {unit: [str(step) for step in steps]}
        groups = []
        for one in some:
            mean, error = found.mean(one.method), found.error(one.method)
            # Of one seed there is no error to show.
            known = np.isfinite(error)
            names = [f"{one.method}: {name}" for name in found.layer_names]
            for k, name in enumerate(names):
                columns[name] = [
                    format_with_error(mean[n, k], error[n, k] if known[n, k] else None, digits=4) for n in steps
                ]
            groups.append(names)
        print_wide(groups, columns, unit)
        Console().print()
    several = any(len(one.results) > 1 for one in found.trajectories)
    theory = any(one.method == "state evolution" for one in found.trajectories)
    over = "mean over the seeds, and its standard error" if several else "of one seed, which has no standard error"
    over += "; of state evolution that of its scrambles" if theory and not several else ""
    say(f"cosines with the truth, modulo the symmetries: {over}")
    for one in found.trajectories:
        firsts = zip(found.layer_names, found.learned(one.method), strict=True)
        told = ", ".join(f"{name} {'never' if step is None else f'from {one.unit} {step} on'}" for name, step in firsts)
        say(f"{one.method}, above 0.5: {told}")
        for number, (result, reason) in enumerate(zip(one.results, one.reasons, strict=True), start=1):
            if result == "diverged":
                say(f"{one.method}, seed {number}: {reason}")
    _told_files(document or {})


def _shown(count: int) -> list[int]:
    """All of a few iterations; of many the first and last ones, and some evenly between."""
    if count <= ROWS:
        return list(range(count))
    ends = ROWS // 3
    between = np.linspace(ends, count - ends - 1, ROWS - 2 * ends).round().astype(int).tolist()
    return sorted({*range(ends), *between, *range(count - ends, count)})


def _spaced(count: int) -> list[int]:
    """All of a few steps; of many fewer and fewer, as of what is learned fast first and slowly at last."""
    if count <= ROWS:
        return list(range(count))
    return sorted({0, *np.geomspace(1, count - 1, ROWS - 1).round().astype(int).tolist()})


def saying_checked(step: Callable[[Record], object]) -> Callable[[Any], object]:
    """Calls ``step`` with the record of a property, and says on stderr at once which one fails."""

    def told(row: Any) -> None:
        record = row.record()
        step(record)
        if record["verdict"] == "fails":
            sys.stderr.write(f"smisym: {record['property']} fails\n")

    return told


def print_properties(properties: Sequence[Any]) -> None:
    """One line for each property that can be asked for (:class:`smisym.verify.Property`)."""
    lines = [[one.name, one.sentence, one.cost] for one in properties]
    print_table(
        ["property", "what it says", "cost on two layers"], lines, folded=["what it says", "cost on two layers"]
    )


def print_check(document: Record) -> None:
    """One line for each property; then what was left out and why, and each counterexample as lines of Python."""
    from smisym.verify.reports import LATE, told_apart, verdict_of

    rows = document["properties"]
    lines = [[r["property"], of_units(r["tried"], r["of"]) or "–", _worst(r), r["verdict"]] for r in rows]
    print_table(["property", "tried", "worst", "verdict"], lines, folded=["tried", "worst"])
    for line in told_apart(rows):
        say(line)
    if any(LATE in (row["said"] or "") + (row["cut_short"] or "") for row in rows):
        say("More seconds of the processor for each property: --seconds; an eighth of the cases and samples: --quick.")
    if all(row["verdict"] == "left out" for row in rows):
        say("Nothing was tried.")
    else:
        say(f"{_of_worst(rows, document['false_alarm'])} (seed {document['seed']}).")
        say(verdict_of(rows))
    for row in rows:
        if row["verdict"] == "fails":
            say(f"\n{row['property']}: {row['sentence']}")
            if row["said"]:
                say(row["said"])
            if row["counterexample"]:
                Console(soft_wrap=True).print(f"\n{row['counterexample']}", markup=False, highlight=False)


def _of_worst(rows: Sequence[Record], false_alarm: float) -> str:
    """What the column says, of those kinds of rows that are there."""
    plain = [row for row in rows if row["verdict"] != "left out" and row["p"] is None]
    told = ["worst: the largest deviation, as a part of what is allowed: up to 1 holds"] if plain else []
    if full := [row["property"] for row in plain if row["verdict"] == "holds" and _worst(row) == "1"]:
        # A bound that is reached leaves nothing between itself and the number.
        told.append(f"{', '.join(full)} at 1: on its bound, not beyond it")
    if false_alarm:
        told.append(
            "t, p: of what is left to chance the largest deviation beyond what is allowed, in standard errors, and the "
            f"chance of as much. A right model fails with a chance of at most {false_alarm:.2g} in all"
        )
    return ". ".join(told)


def _worst(row: Record) -> str:
    if row["verdict"] == "left out":
        return "–"
    worst = "∞" if row["worst"] is None else f"{row['worst']:.2g}"
    return worst if row["p"] is None else f"t {worst}, p {row['p']:.2g}"


def print_certificate(found: Record) -> None:
    """One line for each number of a result file; then what else it was held against."""
    lines = []
    for row in found["rows"]:
        numbers = [_stated(row["stated"], row["error"]), _stated(row["other"], row["other_error"])]
        lines.append([row["what"], *numbers, f"{row['z']:.2g}", "stands" if row["stands"] else "does not"])
    print_table(["number", "stated", f"with seed {found['seed']}", "z", "verdict"], lines, folded=["number"])
    for row in found["rows"]:
        if row["said"]:
            say(f"{row['what']}: {row['said']}")
    say(
        "z: the difference in standard errors, what is left of the equation included; each number was computed with "
        "the file's own seed as well"
    )
    if found["result"] != "success":
        say(f"the file itself is no success: {found['result']}; what stands is what it says, errors and all")


def _stated(value: float, error: float) -> str:
    if math.isnan(value):
        return "–"
    return "∞" if math.isinf(value) else format_with_error(value, error)


def print_analysis(document: Record, done: Record) -> None:
    """The thresholds in words, which points are no success, and the files that were written into one folder."""
    for sentence in done["found"]:
        say(sentence.replace("\u00a0", " "))
    bad = [f"{point['alpha']:.6g}" for point in done["points"] if point["result"] != "success"]
    if bad:
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        say(f"No success: the curve at alpha = {', '.join(bad[:5])}{more}; report.html says what helps.")
    print_files(document)


def print_files(document: Record) -> None:
    """The names of the files that were written into one folder."""
    print_written([str(Path(document["folder"], name)) for name in document["files"]])


def _diagonal(matrix: Sequence[Sequence[float]] | None) -> str:
    return "–" if matrix is None else ", ".join(format_with_error(row[i], digits=4) for i, row in enumerate(matrix))


def _number(point: Record, key: str) -> str:
    if key == "free_entropy" and "unbounded" in point:
        return "+∞" if point["unbounded"] == "+inf" else "−∞"
    return format_with_error(point[key], point[f"{key}_stderr"])
