"""A stage of the staircase: what is learned first, and what comes at once with what has begun to be learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from smisym.base.matrices import units
from smisym.base.solution import Result, mean_and_error
from smisym.link.symmetry import Symmetry
from smisym.theory.controls import controlled
from smisym.theory.effort import scout_points
from smisym.theory.growth import LEAST, class_rate, clear_growth, coupled_classes, growth_rates
from smisym.theory.kick import KICK
from smisym.theory.linearised import KNOWN, positive
from smisym.theory.maps import OverlapMap
from smisym.theory.sentinel import agreement
from smisym.theory.told import first_told, needed, of_parts

# Points of one scramble, and scrambles, of the look at Q = 0 that tells trivial directions.
_TRIVIAL_POINTS, _TRIVIAL_SCRAMBLES = 64, 8
# Standard errors (over the scrambles), or bounds of the integrals, above which E(0) shows a trivial direction.
_SHOWN, _BEYOND = 8.0, 3.0
# Share of the largest eigenvalue, and standard errors, below which a direction of a coupled part may be noise alone.
_CLEARLY, _CLEAR = 1e-2, 4.0
# Overlap of what has just been learned, at which is asked what comes with it; the most of what was learned before.
_SOME, _MUCH = 0.3, 0.9
# Overlap of what has just been learned from which on its branch is followed: with less the noise of few points decides
# where it goes.
BEGUN = 0.1


@dataclass
class Stage:
    """One step of the staircase.

    pivot: the part that grows most.  active (parts,): what is learned from here on.
    alpha, error: where it begins, with statistical and deterministic error; 0 where trivial.
    told: whether it begins where enough is told of it (:mod:`smisym.theory.told`), not where it grows by itself.
    Q (P, P): the overlap just below.  new: the parts that begin here, the pivot first.  directions: of each of these
    what is learned of it, groups (d, P), fastest first.  after: PARTIAL where that is not all of them, so that nothing
    is known of what comes after; INTEGRATION where nothing seems to come, but for what may be errors of the integrals.
    rates: growth of the class just below and just above, where that was solved for.  results: of the solves that led
    here.  members: the coordinates of the class that grows, of a first stage.  samples: of the map that it was measured
    on; 0 where that does not matter.
    """

    pivot: int
    active: np.ndarray
    alpha: float
    error: float
    Q: np.ndarray
    trivial: bool = False
    told: bool = False
    new: list[int] = field(default_factory=list)
    directions: list[np.ndarray] = field(default_factory=list)
    after: Result = Result.SUCCESS
    rates: tuple[float, float] | None = None
    results: list[Result] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    samples: int = 0

    def beginning(self, symmetry: Symmetry, new: float = KICK) -> np.ndarray:
        """Where the path is as the stage begins (P, P): what was learned before, and so much of what is new."""
        if self.trivial:
            return np.zeros_like(self.Q)
        least = np.zeros(len(self.active))
        least[self.new] = new
        return within(symmetry, self.Q, self.active, 1 - KNOWN, least)

    def upwards(self, symmetry: Symmetry) -> np.ndarray:
        """Where it goes from there (k,), in unit matrices: all that is new is learned."""
        new = np.isin(np.arange(len(self.active)), self.new)
        return np.einsum("kij,ij->k", units(symmetry.basis), symmetry.span(new))


def first_stage(omap: OverlapMap) -> Stage | None:
    """What is learned first: trivial directions, or the class that grows fastest at Q = 0; None where nothing is."""
    omap.what = "first threshold"
    symmetry, zero = omap.model.symmetry, np.zeros((omap.model.fields,) * 2)
    points = min(scout_points(omap.model), 2 ** (omap.samples.bit_length() - 1))
    small = omap.sibling(2 * points, 2)
    still = small.at(0, zero)
    (parts, shown), least = _trivial(omap), needed(omap.model)
    if least.any():
        return None if not parts.any() else _told(omap, small, shown, least)
    if parts.any():
        whole = shown.mean(axis=0)
        pivot = int(of_parts(symmetry, whole).argmax())
        active = excited(small, pivot, parts, whole)
        return begun(small, Stage(pivot, active, 0.0, 0.0, zero, trivial=True), np.zeros_like(active), shown)
    growth, _ = clear_growth(small, still)
    if growth.max() <= 0:
        return None
    rates = growth_rates(small, still)
    classes = [m for m in coupled_classes(rates, symmetry.parts) if (growth[symmetry.parts[m]] > 0).all()]
    # Of classes that grow about as fast the map itself tells, which has more samples than the look.
    (alpha, error, all_rates, results), members = min(
        ((sampled_first(omap, members), members) for members in classes), key=lambda found: found[0][0]
    )
    pivot, together = leader(symmetry, np.arange(len(rates)), rates, members)
    active = excited(small, pivot, together, zero)
    stage = Stage(pivot, active, alpha, error, zero, results=results, members=members, samples=omap.samples)
    return begun(small, stage, np.zeros_like(active), growing(symmetry, np.arange(len(rates)), all_rates, members))


def _told(omap: OverlapMap, small: OverlapMap, shown: np.ndarray, least: np.ndarray) -> Stage:
    """What is learned first of weights of which nothing is learned from a little; shown (R, P, P): E(0)."""
    zero = np.zeros((omap.model.fields,) * 2)
    pivot = int((of_parts(omap.model.symmetry, shown.mean(axis=0)) / least).argmax())
    estimates = omap.evaluate(zero)
    alpha, error = first_told(omap.model, estimates, pivot)
    results = [] if agreement(omap, estimates).holds else [Result.NISHIMORI]
    active = np.arange(len(least)) == pivot
    samples = omap.samples if error else 0
    stage = Stage(pivot, active, alpha, error, zero, told=True, results=results, samples=samples)
    return begun(small, stage, np.zeros_like(active), shown)


def sampled_first(omap: OverlapMap, members: list[int]) -> tuple[float, float, np.ndarray, list[Result]]:
    """(alpha, its standard error, rates (R, k, k), codes): where the growth of a class is one at Q = 0, sampled."""
    estimates = omap.evaluate(np.zeros((omap.model.fields,) * 2))
    all_rates, rate, error = rates_of_class([e.beside for e in estimates], members)
    results = [] if agreement(omap, estimates).holds else [Result.NISHIMORI]
    # 1 / the mean rate, which a few samples bias less than they do the mean of 1 / rate.
    return float(1 / rate), float(error / rate**2), all_rates, results


def rates_of_class(found: Sequence[np.ndarray], members: Sequence[int]) -> tuple[np.ndarray, float, float]:
    """(rates (R, k, k), the rate of a class, its standard error) from what scrambles have of rates and their controls
    (:attr:`smisym.theory.estimate.Estimate.beside`)."""

    def told(rates: np.ndarray) -> tuple[np.ndarray, float, float]:
        mean, error = mean_and_error(np.array([class_rate(one, members) for one in rates]))
        return rates, float(mean), float(error)

    controlled_ones = told(controlled(found))
    if controlled_ones[1] > 0:
        return controlled_ones
    # Rates are means of squares: where their tails are heavy controls may take more than there is.
    return told(np.array([one[:, :, 0, 0] for one in found]))


def measured_first(omap: OverlapMap, stage: Stage) -> tuple[float, float, list[Result]]:
    """(alpha, its standard error, codes) of a first stage, once more on another map."""
    if stage.told:
        again = omap.evaluate(np.zeros_like(stage.Q))
        codes = [] if agreement(omap, again).holds else [Result.NISHIMORI]
        return *first_told(omap.model, again, stage.pivot), codes
    alpha, error, _, results = sampled_first(omap, stage.members)
    return alpha, error, results


def growing(symmetry: Symmetry, idle: np.ndarray, rates: np.ndarray, members: list[int]) -> np.ndarray:
    """(R, P, P): what a class of idle coordinates with these rates (R, c, c) grows along, positive, by scramble."""
    unit = units(symmetry.basis[idle[members]])
    vectors = [np.linalg.eigh(of_one[np.ix_(members, members)])[1][:, -1] for of_one in rates]
    return np.array([positive(np.einsum("k,kij->ij", vector, unit)) for vector in vectors])


def begun(small: OverlapMap, stage: Stage, before: np.ndarray, grown: np.ndarray) -> Stage:
    """The stage with all that begins there: its parts, the pivot first, and what is learned of each.

    before: the parts that were active already.  grown (R, P, P): what grows, by scramble.
    """
    symmetry = small.model.symmetry
    others = np.flatnonzero(stage.active & ~before)
    stage.new = [stage.pivot, *[int(part) for part in others if part != stage.pivot]]
    for part in stage.new:
        D = symmetry.directions[part]
        if (symmetry.parts == part).sum() == 1:
            stage.directions.append(D)
            continue
        clear, rest = _clear_directions(np.einsum("ai,rij,bj->rab", D, grown, D))
        if len(rest):
            known = within(symmetry, stage.Q, before, _MUCH)
            seen = small.at(0, known + _SOME * D.T @ clear.T @ clear @ D).three[0]
            values, vectors = np.linalg.eigh(rest @ D @ seen @ D.T @ rest.T)
            top = np.linalg.eigvalsh(D @ seen @ D.T)[-1]
            stage.after = stage.after if values[0] > _CLEARLY * top else Result.PARTIAL
            rest = vectors.T[values > _CLEARLY * top][::-1] @ rest
        stage.directions += [group @ D for group in (clear, rest) if len(group)]
    return stage


def _clear_directions(growing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(c, d), (d - c, d): what overlaps (R, d, d) of all scrambles grow along, fastest first, and what only their
    noise does."""
    values, vectors = np.linalg.eigh(growing.mean(axis=0))
    error = np.asarray(mean_and_error(np.einsum("ik,rij,jk->rk", vectors, growing, vectors))[1])
    clear = values > np.maximum(_CLEARLY * values[-1], _CLEAR * error)
    clear[-1] = values[-1] > 0
    return vectors.T[clear][::-1], vectors.T[~clear][::-1]


def leader(symmetry: Symmetry, idle: np.ndarray, rates: np.ndarray, members: list[int]) -> tuple[int, np.ndarray]:
    """(pivot, parts as booleans) of one class of idle coordinates with these rates."""
    vector = np.abs(np.linalg.eigh(rates[np.ix_(members, members)])[1][:, -1])
    parts = np.zeros(len(symmetry.directions), dtype=bool)
    parts[symmetry.parts[idle[members]]] = True
    # Overlap per row, as the coordinates of projectors are eigenvalues.
    size = np.sqrt(np.einsum("kij,kij->k", *[symmetry.basis[idle[members]]] * 2))
    return int(symmetry.parts[idle[members]][int((vector / size).argmax())]), parts


def _trivial(omap: OverlapMap) -> tuple[np.ndarray, np.ndarray]:
    """The parts (as booleans) that have g_out(y, 0, I) other than 0, and E(0) (R, P, P) in them, by scramble.

    A part that some symmetry flips has g_out = 0 there exactly; no estimate is asked.
    """
    symmetry = omap.model.symmetry
    fixed = symmetry.may_be_shown()
    nothing = np.zeros((omap.model.fields,) * 2)
    if not fixed.any():
        return fixed, nothing[None]
    few = omap.sibling(_TRIVIAL_POINTS * _TRIVIAL_SCRAMBLES, _TRIVIAL_SCRAMBLES)
    estimates = few.evaluate(nothing)
    mean, error = mean_and_error(np.array([of_parts(symmetry, e.three[0]) for e in estimates]))
    bounded = [e.inner_error for e in estimates if np.isfinite(e.inner_error)]
    inner = float(np.mean(bounded)) if bounded else 0.0
    # Squares: where g_out vanishes for every output errors of the integrals alone are left of their mean.
    mean, least = np.asarray(mean), max(inner, LEAST)
    found = fixed & (mean > least) & ((mean > _SHOWN * np.asarray(error)) | (mean > _BEYOND * least))
    span = symmetry.span(found)
    return found, np.array([span @ symmetry.project(e.three[0]) @ span for e in estimates])


def within(
    symmetry: Symmetry, Q: np.ndarray, active: np.ndarray, most: float, least: np.ndarray | None = None
) -> np.ndarray:
    """The overlap Q on its active parts alone, its eigenvalues there at most ``most``, at least ``least`` (parts,)."""
    out = np.zeros_like(Q)
    for part in np.flatnonzero(active):
        D = symmetry.directions[part]
        values, vectors = np.linalg.eigh(D @ Q @ D.T)
        values = np.clip(values, 0.0 if least is None else least[part], most)
        out += D.T @ ((vectors * values) @ vectors.T) @ D
    return out


def excited(small: OverlapMap, pivot: int, active: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """``active`` and the parts that are learned with it at once, because g_out does not vanish there any more.

    Only parts that no symmetry flips while it leaves the active rows where they are can be.
    """
    symmetry = small.model.symmetry
    may = symmetry.may_be_shown(active) & ~active
    if not may.any():
        return active
    some = np.where(np.arange(len(active)) == pivot, _SOME, 0.0)
    shown = of_parts(symmetry, small.at(0, within(symmetry, Q, active, _MUCH, some)).three[0])
    return np.asarray(active | (may & (shown > 1e-6 * shown[pivot])))
