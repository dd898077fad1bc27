"""State evolution: its fixed points solve their equation on another map, and learning sets in where thresholds say."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from smisym.base.threshold import Threshold
from smisym.theory.collecting import FixedPoint
from smisym.theory.evolution import state_evolution
from smisym.theory.maps import OverlapMap
from smisym.theory.stability import weak_recovery
from smisym.verify.averages import _MAP
from smisym.verify.chance import Verdict, in_two_stages
from smisym.verify.properties import Property, Subject, Tried, left_out, lines

_SAMPLES = 4096
# Samples of the map on which learning is looked for, and of one more where these are too noisy to tell.
_ONSET = {1: (2048, 16384), 2: (2048, 4096)}  # by the number of the threshold: behind the first one maps are dearer
# alpha over that of the first threshold: where fixed points are put back, and below and above which learning is looked
# for.  An overlap that is none, and standard errors from which on one is some.
_PUT_BACK, _BELOW, _ABOVE = 1.6, 0.9, 1.15
# Of fixed points with side information, alpha over that of the first threshold, and lam; relative error of a later
# threshold from which on it is not known.
_ASIDE, _UNKNOWN = (0.6, 0.4), 0.03
# How many times what may be a fluctuation is none, whatever the number of samples.
_CLEAR = 3.0
_NONE, _SURE = 1e-6, 4.0
# Tolerance of a fixed point (:func:`smisym.theory.evolution.state_evolution`).
_TOL = 1e-4


def first_threshold(subject: Subject) -> Threshold | Tried:
    """The first weak threshold, or what there is to say where learning has no such beginning."""
    found: Threshold | Tried = subject.once("first threshold", lambda: _first_threshold(subject))
    return found


def _map_of_thresholds(subject: Subject) -> OverlapMap:
    """One for all properties, which remembers what it was asked: also where the time of one of them is up.  A share of
    all samples has another one: that there is a map does not mean that there was time for it."""
    name = f"map of thresholds of {subject.effort:g}"
    made: OverlapMap = subject.once(name, lambda: subject.overlap_map(_SAMPLES, "threshold"))
    return made


def _first_threshold(subject: Subject) -> Threshold | Tried:
    found = weak_recovery(_map_of_thresholds(subject), stages=1).value
    if not found:
        return left_out("nothing is ever learned")
    if found[0].kind == "trivial":
        return left_out("something is learned at any alpha")
    if not math.isfinite(found[0].alpha):
        return left_out("nothing is learned at any alpha by first-order methods")
    first: Threshold = found[0]
    return first


def residual(point: FixedPoint, omap: OverlapMap) -> tuple[np.ndarray, np.ndarray]:
    """(k,) each, in invariant coordinates: what the prior makes of Q_hat = alpha E(Q) + lam of a map, Q_hat
    (I + Q_hat)^{-1} for Gaussian weights, less Q; and its standard error, made of that of the point and that of the
    map."""
    coordinates, prior = omap.model.symmetry.coordinates, omap.model.prior
    # In the units of the weights, whose variances may differ.
    aside = point.side_information * np.diag(getattr(prior, "deviations", np.ones(len(point.Q))) ** 2)
    values = [coordinates(prior.overlap(point.alpha * e.E + aside) - point.Q) for e in omap.evaluate(point.Q)]
    own = point.overlaps.std(axis=0, ddof=1) / np.sqrt(len(point.overlaps))
    there = np.std(values, axis=0, ddof=1) / np.sqrt(len(values))
    return np.mean(values, axis=0), np.hypot(np.maximum(own, np.abs(coordinates(point.Q_error))), there)


def _fixed_points_are_fixed(subject: Subject, level: float) -> Tried:
    first = first_threshold(subject)
    # Where something is learned from the start, any alpha will do.
    alpha = 0.3 if isinstance(first, Tried) else _PUT_BACK * first.alpha
    if isinstance(first, Tried) and "at any alpha by" in first.said:
        return first
    return _put_back(subject, level, alpha, 0.0)


def _side_information_counts(subject: Subject, level: float) -> Tried:
    first = first_threshold(subject)
    share, aside = _ASIDE
    alpha = 0.3 if isinstance(first, Tried) or not first.alpha < 1 else share * first.alpha
    return _put_back(subject, level, alpha, aside)


def _put_back(subject: Subject, level: float, alpha: float, aside: float) -> Tried:
    """Whether the fixed point at alpha, with so much side information, solves its equation on another map."""
    shown: list[str] = []
    words = ("aside",) if aside else ()

    def test(stage: int, times: int) -> Verdict:
        omap = subject.overlap_map(_SAMPLES * times, "fixed point", stage, *words)
        other = subject.overlap_map(_SAMPLES * times, "put back", stage, *words)
        point = state_evolution(omap, alpha, side_information=aside, tol=_TOL).value
        if np.linalg.eigvalsh(point.Q)[-1] >= 1 - 1e-9:
            return Verdict(0.0, 1.0, 0, 0, 0.0, 1)
        gap, error = residual(point, other)
        beyond = np.maximum(np.abs(gap) - 2 * _TOL, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(beyond > 0, beyond / error, 0.0)
        which = int(t.argmax())
        p = min(1.0, 2 * len(t) * float(special.stdtr(omap.scrambles - 1, -t[which])))
        made, again = (_made(m) for m in (omap, other))
        shown[:] = [_lines(subject, alpha, aside, made, again)]
        return Verdict(float(t[which]), p, which, omap.samples + other.samples, float(error.max()), stage + 1)

    found = in_two_stages(test)
    if not found.number:
        return left_out(f"at alpha = {alpha:.4g} everything is known perfectly")
    holds = found.p >= level
    said = f"at alpha = {alpha:.4g}{f', lam = {aside:g}' if aside else ''}"
    return Tried(found.number, "samples", found.t, found.p, holds, said, "" if holds else shown[0])


def _made(omap: OverlapMap) -> str:
    return _MAP.format(samples=omap.samples, scrambles=omap.scrambles, seed=omap.seed, rtol=omap.rtol)


def _lines(subject: Subject, alpha: float, aside: float, made: str, again: str) -> str:
    given = f", side_information={aside!r}" if aside else ""
    body = (
        f"{made}point = smisym.state_evolution(omap, {alpha!r}{given}).value\n"
        f"{again.replace('omap', 'other')}"
        "from smisym.verify.evolutions import residual\n\n"
        "print(point)\n"
        "print(*residual(point, other))  # what is left of its equation on another map, and its standard error"
    )
    return lines(subject, body)


def _learning_sets_in(subject: Subject, level: float) -> Tried:
    first = first_threshold(subject)
    if isinstance(first, Tried):
        return first
    return _sets_in(subject, first, 1, "onset")


def _later_ones_set_in(subject: Subject, level: float) -> Tried:
    first = first_threshold(subject)
    if isinstance(first, Tried):
        return first
    found = weak_recovery(_map_of_thresholds(subject), stages=2).value
    later = [one for one in found if one.kind == "weak" and math.isfinite(one.alpha)][1:]
    if not later:
        return left_out("no later threshold is finite")
    if not later[0].error < _UNKNOWN * later[0].alpha:
        return left_out(f"the second threshold is not known to {_UNKNOWN:.0%}: {later[0]!r}")
    return _sets_in(subject, later[0], 2, "later")


def _sets_in(subject: Subject, threshold: Threshold, stages: int, words: str) -> Tried:
    for samples in _ONSET[stages]:
        tried, clear = _told(subject, threshold, stages, subject.overlap_map(samples, words, samples, scrambles=8))
        if clear:
            break
    return tried


def _told(subject: Subject, threshold: Threshold, stages: int, omap: OverlapMap) -> tuple[Tried, bool]:
    """What state evolution on a map says of both sides of a threshold, left out where it is too noisy to tell; and
    whether more samples would say the same: all is well, or something is learned below that is no fluctuation."""
    alphas = _BELOW * threshold.alpha, _ABOVE * threshold.alpha
    # Of the first threshold all that there is; of a later one its own directions.
    S = np.eye(subject.model.fields) if stages == 1 else threshold.subspace
    (low, low_error), (high, high_error) = (
        (float(np.trace(S @ p.Q @ S.T)), float(np.trace(S @ p.Q_error @ S.T)))
        for p in (state_evolution(omap, alpha).value for alpha in alphas)
    )
    of = "Q" if stages == 1 else f"of {', '.join(threshold.names)}"
    said = f"alpha_c = {threshold.alpha:.5g}: tr {of} = {low:.2g} at {alphas[0]:.4g}, {high:.2g} at {alphas[1]:.4g}"
    # A scramble of few points may have its threshold elsewhere: what counts is what all of them make.
    most, least = _SURE * low_error + _NONE, _SURE * high_error + _NONE
    if low <= most and _NONE < high <= least:
        return left_out(f"too noisy to tell: {said} +- {high_error:.1g}"), False
    holds = low <= most and high > least
    body = (
        f"{_made(omap)}print(smisym.weak_recovery(model, stages={stages}).value)\n"
        f"for alpha in {alphas!r}:  # below, where nothing is learned, and above, where something is\n"
        "    print(smisym.state_evolution(omap, alpha))"
    )
    shown = "" if holds else lines(subject, body)
    worst = max(low / most, least / max(high, 1e-300))
    return Tried(2, "fixed points", worst, None, holds, said, shown), holds or low > _CLEAR * most


PROPERTIES = (
    Property(
        "fixed-point",
        "A fixed point of state evolution solves Q = Q_hat (I + Q_hat)^{-1} on a map of another seed, to its error.",
        "arXiv 2502.00901, eq. 14",
        "seconds",
        True,
        _fixed_points_are_fixed,
    ),
    Property(
        "side-information",
        "With side information lam a fixed point solves its equation with Q_hat = alpha E(Q) + lam, on another map.",
        "a Gaussian observation of the weights, of precision lam",
        "seconds",
        True,
        _side_information_counts,
    ),
    Property(
        "onset",
        "State evolution learns nothing at 0.9 of the first threshold, and something at 1.15 of it.",
        "arXiv 2502.00901, theorem 2.3",
        "seconds",
        False,
        _learning_sets_in,
    ),
    Property(
        "later",
        "State evolution learns nothing of the second threshold's directions at 0.9 of it, and something at 1.15.",
        "arXiv 2502.00901, theorem 2.3, given what was learned before",
        "a minute",
        False,
        _later_ones_set_in,
    ),
)
