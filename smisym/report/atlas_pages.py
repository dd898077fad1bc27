"""An atlas as a page: its rows as one table in Markdown, with what its columns say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from smisym.base.errors import InputError, Words
from smisym.base.files import read_bytes, write_text

Record = Mapping[str, Any]

_MOST, _LAST = 1 << 28, 1e300
SUCCESS = "success"
# Of parts that have no result code, for people.
_WORDS = {"out_of_time": "out of time", "failed": "failed", "not_looked_for": "?"}
# Parts of a row, for people; those that only refine others are not told.
_PARTS = {
    "model": "model", "counting": "counting", "first": "first threshold", "staircase": "later thresholds",
    "perfect": "perfect recovery", "folds": "folds",
}  # fmt: skip

HEADER = """# Architectures, their charts and their transitions

Many networks and models: where learning of each direction begins, whether smoothly or by a jump, and from where on all
is known. What the columns say:

* **P**: rows of Z.
* **chart**: which rule found coordinates on the level set, or what is done without.
* **free**: dimensions of the posterior's integral once its closed-form directions are done.
* **first threshold**: the smallest alpha at which state evolution leaves Q = 0, with one standard error, or the change
  under refinement where no random numbers are used.
* **closed form**: exact. Its moments were taken symbolically, and the number beside it confirms it.
* **transition**: second order where the overlap grows smoothly from there, first order where its branch of fixed points
  turns back.
* **later thresholds**: the same of what is learned after that.
* **stable**: the alpha above which perfect recovery is locally stable, by counting. **reached**: where state evolution
  arrives at it.
* **hard phase**: alphas between which more is known in principle than what the algorithm finds: from where perfect
  recovery is stable to where it is reached, or where a branch folds.
* **s**: seconds of the processor for the whole row. **open**: parts for which there was not enough time, that
  failed, whose code is no success, or that are older than the others. Each row had {budget}.
* **?**: not looked for.
{beside}
Made by `smisym atlas` (smisym {version}); the numbers are in `{file}`. {count}
"""
_BESIDE = """* **second way**: the first threshold without any chart or integrator.
"""


def page(document: Record, file: str, beside: Mapping[str, str] | None = None, notes: str = "") -> str:
    """The page of a document of ``smisym atlas``.

    file: name of the file that holds the document.  beside: what another way gives, by digest; None for no such column.
    notes: prose below the table.
    """
    rows = document["rows"]
    columns = dict(COLUMNS)
    if beside is not None:
        columns["second way"] = lambda row: beside.get(row["digest"], "")
    lines = [
        _line(columns),
        _line(["---"] * len(columns)),
        *(_line(tell(row) for tell in columns.values()) for row in rows),
    ]
    budgets = sorted({row["budget"] for row in rows if row.get("budget")})
    had = " to ".join(f"{budget:g}" for budget in dict.fromkeys([*budgets[:1], *budgets[-1:]]))
    declared = document["declared"]
    told = (
        f"{len(rows)} rows."
        if declared == len(rows)
        else f"{len(rows)} of {declared} declared rows: the others were not computed yet."
    )
    head = HEADER.format(
        budget=f"{had} s" if had else "its time", beside=_BESIDE if beside is not None else "",
        version=document["package_version"], file=file, count=told,
    )  # fmt: skip
    return head + "\n" + "\n".join(lines) + "\n" + (f"\n{notes.strip()}\n" if notes.strip() else "")


def _line(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def written(document: Record, path: Path, beside: Mapping[str, str] | None, notes: str) -> list[str]:
    """Names of what is written: the document as JSON and, where the path ends in .md, its page beside it."""
    own = path.with_suffix(".json")
    write_text(own, json.dumps(document, indent=1, allow_nan=False) + "\n")
    if path.suffix != ".md":
        return [str(own)]
    write_text(path, page(document, own.name, beside, notes))
    return [str(path), str(own)]


def read_beside(path: Path) -> dict[str, str]:
    """What another way gives, by digest, from a JSON object of records with digest, rate (1 / alpha), error, way and
    slack (what a limit that was taken changed).  Raises InputError for another file."""
    where = f"numbers of another way {path}"
    found = {}
    try:
        for one in json.loads(read_bytes(path, where, _MOST)).values():
            alpha, error = 1 / one["rate"], one["error"] / one["rate"] ** 2
            way = one["way"] + (f", {100 * one['slack'] / one['rate']:.1g} %" if one["slack"] else "")
            found[one["digest"]] = f"{alpha:.4g} ± {error:.1g} ({way})"
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        if isinstance(error, InputError):
            raise
        allowed = "a JSON object of records with digest, rate, error, way and slack"
        raise InputError(where, Words(f"something else ({error!s:.80})"), allowed, "leave it out") from None
    return found


# --- cells ----------------------------------------------------------------------------------------


def ended(row: Record, part: str) -> str:
    """How a part of a row ended."""
    return str(row["parts"].get(part, {}).get("result", "not_looked_for"))


def number(alpha: float | None, error: float | None) -> str:
    """A threshold with its error; None is infinite."""
    if alpha is None:
        return "infinite"
    return f"{alpha:.6g}" if not error else f"{alpha:.6g} ± {error:.1g}"


def first(row: Record) -> str:
    """The first threshold."""
    if row["kind"] is None:
        return _WORDS.get(ended(row, "first"), ended(row, "first"))
    if row["kind"] == "trivial":
        return "0 (trivial direction)"
    if row["kind"] == "hard":
        return "infinite (hard)" if row["order"] is None else f"infinite (hard, order {row['order']})"
    return number(row["alpha"], row["error"])


def later(row: Record) -> str:
    """Thresholds after the first one."""
    told = []
    for one in row["later"]:
        which = {"": "", "not looked for": ""}.get(one["transition"], f", {one['transition']}")
        value = "hard" if one["kind"] == "hard" else number(one["alpha"], one["error"])
        told.append(f"{value} ({_short(one['names'])}{which})")
    if not told and ended(row, "staircase") in _WORDS:
        return _WORDS[ended(row, "staircase")]
    return "; ".join(told) or "none"


def _short(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (", ..." if len(names) > 2 else "")


def stable(row: Record) -> str:
    """Where perfect recovery is locally stable."""
    part = ended(row, "counting")
    return _WORDS[part] if part in _WORDS else number(row["perfect_stable"], row["perfect_stable_error"])


def reached(row: Record) -> str:
    """Where perfect recovery is reached."""
    part = ended(row, "perfect")
    return _WORDS[part] if part in _WORDS else number(row["perfect_amp"], row["perfect_amp_error"])


def hard(row: Record) -> str:
    """Hard phases; none where both that may tell of one were looked for."""
    if row["hard_phases"]:
        return "; ".join(
            f"{low:.4g} to {'infinity' if high is None else f'{high:.4g}'}" for low, high in row["hard_phases"]
        )
    told = ["folds"] if row["perfect_stable"] is None else ["folds", "perfect"]
    return "none" if all(ended(row, part) == SUCCESS for part in told) else _WORDS["not_looked_for"]


def missing(row: Record) -> str:
    """Parts that are no success, and what is said of those that are."""
    parts: dict[str, list[str]] = {}
    for part, name in _PARTS.items():
        code = ended(row, part)
        said = row["parts"].get(part, {}).get("said", "") if code == SUCCESS else _WORDS.get(code, f"`{code}`")
        if said and code != "not_looked_for":
            parts.setdefault(said, []).append(name)
    return "; ".join(f"{', '.join(names)}: {said}" for said, names in parts.items())


COLUMNS: dict[str, Callable[[Record], str]] = {
    "architecture": lambda row: str(row["name"]),
    "P": lambda row: "" if row["fields"] is None else str(row["fields"]),
    "chart": lambda row: row["chart"] or "",
    "free": lambda row: "" if row["free"] is None else str(row["free"]),
    "first threshold": first,
    "closed form": lambda row: row["closed_form"] or "",
    "transition": lambda row: _WORDS.get(row["transition"].replace(" ", "_"), str(row["transition"])),
    "later thresholds": later,
    "stable": stable,
    "reached": reached,
    "hard phase": hard,
    "s": lambda row: f"{row['seconds']:.3g}",
    "open": missing,
}


def sorting(row: Record, column: str) -> float | str:
    """By which a table is sorted, for columns of numbers; else the text."""
    keys = {
        "first threshold": "alpha", "closed form": "closed_value", "stable": "perfect_stable", "reached": "perfect_amp",
        "P": "fields", "free": "free", "s": "seconds",
    }  # fmt: skip
    if column not in keys:
        return COLUMNS[column](row) or "~"
    # What a browser takes for a number: infinity comes last.
    value = row[keys[column]]
    return _LAST if value is None else float(value)
