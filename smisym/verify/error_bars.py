"""Error bars: what maps of other seeds differ by is what the spread of their scrambles says.

Scrambles are independent, whichever map they belong to.  So their answers may change places: if the spread within maps
is honest, the means of maps differ no more than after any exchange.  The chance of what is seen is counted over random
exchanges, and exact whatever the law of the answers is (a permutation test).
"""

from __future__ import annotations

import numpy as np

from smisym.theory.maps import OverlapMap
from smisym.verify.averages import overlaps_of
from smisym.verify.chance import Verdict, in_two_stages
from smisym.verify.properties import Property, Subject, Tried, lines

# Maps, scrambles of each, samples of each; exchanges, and how many at a time.
_MAPS, _SCRAMBLES, _SAMPLES = 16, 4, 256
_EXCHANGES, _AT_ONCE = 2**15, 2**12
# Two computations of one number differ by no more of it.
_SAME = 1e-6


def between_over_within(values: np.ndarray) -> np.ndarray:
    """(..., k) the variance of the means of maps over what their own scrambles make of it, of values
    (..., maps, scrambles, k): one on average where scrambles are independent."""
    scrambles = values.shape[-2]
    between = scrambles * values.mean(axis=-2).var(axis=-2, ddof=1)
    within = values.var(axis=-2, ddof=1).mean(axis=-2)
    return np.asarray(between / np.maximum(within, np.finfo(float).tiny))


def exchanged(values: np.ndarray, seed: int) -> tuple[float, float, int]:
    """(largest ratio of ``between_over_within``, chance of as much under exchanges of all scrambles, which it is), of
    values (maps, scrambles, k)."""
    found = between_over_within(values)
    which, rng = int(found.argmax()), np.random.default_rng(seed)
    maps, scrambles, k = values.shape
    flat, beyond = values.reshape(-1, k), 0
    for _ in range(_EXCHANGES // _AT_ONCE):
        order = rng.random((_AT_ONCE, maps * scrambles)).argsort(axis=1)
        ratios = between_over_within(flat[order].reshape(_AT_ONCE, maps, scrambles, k))
        beyond += int((ratios.max(axis=1) >= found[which]).sum())
    return float(found[which]), (beyond + 1) / (_EXCHANGES + 1), which


def _misstated(omap: OverlapMap, Q: np.ndarray) -> float:
    """By how much the standard errors that ``omap(Q)`` states are off those of its scrambles, as a part of them."""
    values = np.array([e.E for e in omap.evaluate(Q)])
    own, stated = values.std(axis=0, ddof=1) / np.sqrt(len(values)), omap(Q)[1]
    there = own > _SAME * np.abs(values).max()
    return float(np.abs(stated[there] / own[there] - 1).max(initial=0.0))


def _spreads_are_honest(subject: Subject, level: float) -> Tried:
    model, Q = subject.model, overlaps_of(subject, "error bars")
    seeds: list[int] = []
    stated: list[float] = []

    def test(stage: int, times: int) -> Verdict:
        samples = _SAMPLES * times
        maps = [subject.overlap_map(samples, "bars", stage, k, scrambles=_SCRAMBLES) for k in range(_MAPS)]
        seeds[:] = [omap.seed for omap in maps]
        stated.append(_misstated(maps[0], Q))
        every = [[(*model.symmetry.coordinates(e.E), e.log_partition) for e in omap.evaluate(Q)] for omap in maps]
        values = np.array(every)
        number = sum(omap.samples for omap in maps)
        if not np.isfinite(values).all():
            return Verdict(np.inf, 0.0, 0, number, np.inf, stage + 1)
        # What is known without error has no spread, and rounding is none.
        size = np.abs(values).max(axis=(0, 1))
        values = values[:, :, np.ptp(values, axis=(0, 1)) > 1e-9 * size]
        if not values.shape[2]:
            return Verdict(0.0, 1.0, 0, number, 0.0, stage + 1)
        ratio, p, which = exchanged(values, subject.number("exchanges", stage))
        return Verdict(ratio, p, which, number, 0.0, stage + 1)

    found = in_two_stages(test)
    if not max(stated) < _SAME:
        said = f"a map states errors of E that are off by a factor of {1 + max(stated):.3g} from those of its scrambles"
        body = (
            "omap = smisym.overlap_map(model, samples=256, scrambles=4)\n"
            "print(omap(Q)[1])\n"
            "print(np.std([e.E for e in omap.evaluate(Q)], axis=0, ddof=1) / omap.scrambles**0.5)  # the same"
        )
        shown = lines(subject, body, Q=Q)
        return Tried(found.number, "samples", np.inf, 0.0, False, said, shown)
    holds = found.p >= level
    omap = subject.overlap_map(_SAMPLES, scrambles=_SCRAMBLES)
    body = (
        f"maps = [smisym.overlap_map(model, samples={omap.samples}, scrambles={omap.scrambles}, seed=s, "
        f"rtol={omap.rtol!r})\n        for s in {seeds!r}]\n"
        "several = np.array([[e.log_partition for e in m.evaluate(Q)] for m in maps])\n"
        "print(several.mean(axis=1).std(ddof=1))  # by so much maps differ\n"
        f"print((several.var(axis=1, ddof=1).mean() / {omap.scrambles}) ** 0.5)  # by so much they should"
    )
    said = "" if holds else f"maps differ by {np.sqrt(found.t):.2g} of their standard errors"
    shown = "" if holds else lines(subject, body, Q=Q)
    return Tried(found.number, "samples", found.t, found.p, holds, said, shown)


PROPERTIES = (
    Property(
        "error-bars",
        "Maps of other seeds differ by the standard errors of E and E log Zout that they state, no more.",
        "README, how far to trust a number",
        "seconds",
        True,
        _spreads_are_honest,
    ),
)
