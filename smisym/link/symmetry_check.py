"""Symmetries held against the link: every overlap is averaged over them, so that a wrong one spoils every result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from smisym.base.derivation import Derivation
from smisym.link.linking import LinkFunction
from smisym.link.scale import sizes
from smisym.link.symmetry import Symmetry, find_symmetry

# Random fields at which outputs are compared, other than those at which symmetries were found; elements of a large
# group that are tried; how well outputs must agree, relative to their size.
_FIELDS, _ELEMENTS, _EQUAL = 64, 64, 1e-7
# Fields at which a map is looked at before it is held for a symmetry; a change of the output that no rounding makes;
# and how often symmetries are looked for anew.
_MANY, _PLAIN, _ROUNDS = 1024, 1e-3, 4


class HasSymmetry(Protocol):
    """What a misfit is asked of: a :class:`~smisym.model.compiled.Model`, or anything with its link and symmetry."""

    @property
    def link(self) -> LinkFunction: ...

    @property
    def symmetry(self) -> Symmetry: ...

    @property
    def noise(self) -> float: ...


def symmetry_misfit(model: HasSymmetry) -> float:
    """Largest change of the output at 64 random fields under any flip, element or rotation of the symmetry, relative.

    Of a large group a random part is tried.  Rounding leaves some 1e-12, nearly singular layers more; a map that is no
    symmetry changes the output by something of order one.
    """
    return _misfit(model.link, model.symmetry, exact=not model.noise)


def held_symmetry(link: LinkFunction, derivation: Derivation, *, exact: bool = True) -> Symmetry:
    """The symmetry of a link, also where a map changes the output at one field of hundreds only, as signs may.

    Fields where one that was found does are added to those at which it is looked for.  ArithmeticError where that does
    not end.
    """
    against = np.empty((0, link.fields, link.tokens))
    for _ in range(_ROUNDS):
        made = Derivation()
        symmetry = find_symmetry(link, made, exact=exact, further_fields=against)
        more = _counterexamples(link, symmetry, exact)
        if not len(more):
            break
        against = np.concatenate([against, more])
    check_symmetry(link, symmetry, exact=exact)
    for step in made:
        derivation.add(step)
    return symmetry


def check_symmetry(link: LinkFunction, symmetry: Symmetry, *, exact: bool = True) -> None:
    """ArithmeticError where a map that is held for a symmetry changes the output: a defect of ours, and never yours."""
    misfit = _misfit(link, symmetry, exact)
    if misfit > _EQUAL:
        raise ArithmeticError(
            f"a map of the rows that was held for a symmetry changes the output by {misfit:.1e} (relative). This is a "
            "defect of smisym: please report it with the declaration"
        )


def _misfit(link: LinkFunction, symmetry: Symmetry, exact: bool) -> float:
    return max((float(gaps.max(initial=0.0)) for _, gaps in _gaps(link, symmetry, exact, _FIELDS, 29)), default=0.0)


def _counterexamples(link: LinkFunction, symmetry: Symmetry, exact: bool) -> np.ndarray:
    """Of each map that changes the output plainly, a field (1, P, T) at which it does."""
    found = [Z[[int(gaps.argmax())]] for Z, gaps in _gaps(link, symmetry, exact, _MANY, 31) if (gaps > _PLAIN).any()]
    return np.concatenate(found) if found else np.empty((0, link.fields, link.tokens))


def _gaps(
    link: LinkFunction, symmetry: Symmetry, exact: bool, count: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of every map the fields (n, P, T) at which it was tried, and by how much (n,) the output changes, relative."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((count, link.fields, link.tokens))
    usual = _seen(link, Z, exact)
    good = np.isfinite(usual).all(axis=1)
    if not good.any():
        return
    Z, usual = Z[good], usual[good]
    scale = sizes(usual)
    for matrix in _maps(symmetry, link.fields, rng):
        gap = np.abs(_seen(link, matrix @ Z, exact) - usual) / scale
        yield Z, np.nan_to_num(gap, nan=np.inf).max(axis=1)


def _seen(link: LinkFunction, Z: np.ndarray, exact: bool) -> np.ndarray:
    """What is observed, (n, M): log-ratios where they are exact, the output itself under noise."""
    with np.errstate(all="ignore"):
        return np.asarray(link.raw(Z) if exact else link(Z)).reshape(len(Z), -1)


def _maps(symmetry: Symmetry, fields: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Matrices (P, P): flips, elements, and a random rotation of each group of rows."""
    for flip in _some(symmetry.signs, rng):
        yield np.diag(flip)
    yield from _some(symmetry.elements, rng)
    for group in symmetry.rotations:
        size = len(group[0])
        turn = np.linalg.qr(rng.standard_normal((size, size)))[0]
        matrix = np.eye(fields)
        for rows in group:
            matrix[np.ix_(rows, rows)] = turn
        yield matrix


def _some(group: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if len(group) <= _ELEMENTS:
        return group
    return np.asarray(group[np.sort(rng.choice(len(group), _ELEMENTS, replace=False))])
