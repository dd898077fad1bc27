"""Symmetries: what is claimed leaves the output unchanged, and nothing that does is missing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from smisym.link.groups import LISTED
from smisym.link.symmetry import Symmetry
from smisym.model.compiled import Model
from smisym.verify.properties import Property, Subject, Tried, lines
from smisym.verify.searching import search
from smisym.verify.strategies import fields

# How well outputs must agree: relative to their size, and to what a relative change of the fields by so much does.
_EQUAL, _NUDGE = 1e-9, 1e-7
# Change of the output, relative, from which on a map is no symmetry; fields at which one is looked for.
_CHANGED, _FIELDS = 1e-6, 256
# Of so many rows all flips are tried; of more, so many random ones.  Of a large group, so many elements.
_ALL, _SOME = 6, 64

_BODY = """seen = {seen}
print(seen(Z[None]))
print(seen((M @ Z)[None]))  # {claim}"""


def seen(model: Model, Z: np.ndarray) -> np.ndarray:
    """What is observed at fields Z (S, P, T), flat: log-ratios where they are exact, the output itself under noise."""
    with np.errstate(all="ignore"):
        return np.asarray(model.link(Z) if model.noise else model.link.raw(Z)).reshape(len(Z), -1)


def claimed(symmetry: Symmetry, size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Maps (P, P) of rows that are said to change nothing: flips, elements, a rotation of each group, a gauge."""
    maps = [np.diag(np.asarray(flip, dtype=float)) for flip in symmetry.signs]
    maps += [np.asarray(element) for element in symmetry.elements]
    if len(maps) > 2 * _SOME:
        maps = [maps[k] for k in np.sort(rng.choice(len(maps), 2 * _SOME, replace=False))]
    for group in symmetry.rotations:
        turn = np.linalg.qr(rng.standard_normal((len(group[0]),) * 2))[0]
        maps.append(_placed(size, [(rows, turn) for rows in group]))
    for queries, keys in symmetry.gauges:
        gauge = np.eye(len(queries)) + 0.25 * rng.standard_normal((len(queries),) * 2)
        maps.append(_placed(size, [(queries, gauge), (keys, np.linalg.inv(gauge).T)]))
    return maps


def _placed(size: int, blocks: list[tuple[Any, np.ndarray]]) -> np.ndarray:
    matrix = np.eye(size)
    for rows, block in blocks:
        matrix[np.ix_(rows, rows)] = block
    return matrix


def _nothing_changes(subject: Subject, level: float) -> Tried:
    model = subject.model
    maps = claimed(model.symmetry, model.fields, subject.rng("symmetry"))

    def misfit(case: tuple[int, np.ndarray]) -> float | None:
        M, Z = maps[case[0]], case[1]
        nudged = Z * (1 + _NUDGE * np.random.default_rng(5).standard_normal((8, *Z.shape)))
        # One call: vector units and scalar remainders may round an exponential differently.
        values = seen(model, np.concatenate([[Z, M @ Z], nudged, M @ nudged]))
        if not np.isfinite(values[[0, *range(2, len(values))]]).all():
            return None
        here, there = values[2:10], values[10:]
        moved = max(float(np.abs(here - values[0]).max()), float(np.ptp(there, axis=0).max())) / _NUDGE
        allowed = _EQUAL * (float(np.abs(values[0]).max()) + moved) + 1e-300
        return float(np.abs(values[1] - values[0]).max()) / allowed

    cases: Any = st.tuples(st.integers(0, len(maps) - 1), fields(model))
    found = search(cases, misfit, subject.many(100), subject.number("symmetry"))
    shown = ""
    if found.failing is not None:
        number, Z = found.failing
        shown = _lines(subject, Z, maps[number], "claimed to be the same")
    return Tried(found.number, f"fields, {len(maps)} maps", found.worst, None, found.holds, counterexample=shown)


def _lines(subject: Subject, Z: np.ndarray, M: np.ndarray, claim: str) -> str:
    body = _BODY.format(seen="model.link" if subject.model.noise else "model.link.raw", claim=claim)
    return lines(subject, body, Z=Z, M=M)


def _candidates(model: Model, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Flips of rows, all of few, and exchanges of two rows, that the symmetry does not claim."""
    P, symmetry = model.fields, model.symmetry
    known = _flips(symmetry, P)
    if P <= _ALL:
        flips: Any = itertools.product((1.0, -1.0), repeat=P)
    else:
        flips = (tuple(rng.choice([1.0, -1.0], P)) for _ in range(_SOME))
    if 2 * len(symmetry.signs) <= LISTED:  # else there are more flips than it lists
        yield from (np.diag(flip) for flip in flips if tuple(flip) not in known)
    turned = [set(rows) for group in symmetry.rotations for rows in group]
    for pair in itertools.combinations(range(P), 2):
        swap = np.eye(P)
        swap[list(pair)] = swap[list(reversed(pair))]
        if not any(set(pair) <= rows for rows in turned) and not _listed(symmetry, swap):
            yield swap


def _flips(symmetry: Symmetry, size: int) -> set[tuple[float, ...]]:
    """Signs of rows that are claimed: those listed, and reflections in the rotations of a head."""
    known = {tuple(np.asarray(flip, dtype=float)) for flip in symmetry.signs}
    known |= {tuple(np.diag(e)) for e in symmetry.elements if np.allclose(np.abs(np.diag(e)), 1)}
    for group in symmetry.rotations:
        for index in range(len(group[0])):
            turn = np.ones(size)
            turn[[rows[index] for rows in group]] = -1.0
            known |= {tuple(turn * flip) for flip in known}
    return known


def _listed(symmetry: Symmetry, matrix: np.ndarray) -> bool:
    return bool((np.abs(symmetry.elements - matrix).max(axis=(1, 2)) < 1e-9).any())


def _none_is_missed(subject: Subject, level: float) -> Tried:
    model = subject.model
    rng = subject.rng("missed")
    Z = rng.standard_normal((subject.many(_FIELDS), model.fields, model.tokens))
    usual = seen(model, Z)
    good = np.isfinite(usual).all(axis=1)
    Z, usual = Z[good], usual[good]
    if not len(Z):
        return Tried(0, "", holds=None, said="the output overflows at all fields that were tried")
    number, least = 0, np.inf
    for M in _candidates(model, rng):
        gaps = np.abs(seen(model, M @ Z) - usual).max(axis=1) / np.maximum(np.abs(usual).max(axis=1), 1e-300)
        number, change = number + 1, float(np.nan_to_num(gaps, nan=np.inf).max())
        least = min(least, change)
        if change < _CHANGED:
            shown = _lines(subject, Z[0].round(3), M, "the same, at whatever Z, though no symmetry says so")
            return Tried(number, "maps", _CHANGED / max(change, 1e-12), None, False, counterexample=shown)
    if not number:
        return Tried(0, "", holds=None, said="every flip and exchange of rows is claimed")
    return Tried(number, "maps", _CHANGED / least, said=f"the least change of the output is {least:.1e}")


PROPERTIES = (
    Property(
        "symmetry",
        "Flips, exchanges, rotations and gauges that model.symmetry claims leave the output unchanged.",
        "overlaps are averaged over this group",
        "seconds",
        False,
        _nothing_changes,
    ),
    Property(
        "no-symmetry-missed",
        "Flips and exchanges of rows that it does not claim change the output at some field.",
        "an even model stays at Q = 0, and by which group is to be known",
        "seconds",
        False,
        _none_is_missed,
    ),
)
