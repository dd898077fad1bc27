"""The overlap map: E is the mean of g g^T, its three estimators agree, it grows with the overlap, as its slope says.

Differences along a segment of overlaps are integrals of derivatives, by the rule of Clenshaw and Curtis: with the same
points at every overlap the noise of both sides nearly cancels.  Each scramble gives one value, and all a t test.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from smisym.theory.entropy import free_entropy
from smisym.theory.estimate import Estimate
from smisym.theory.maps import OverlapMap
from smisym.verify.chance import Verdict, in_two_stages, means_vanish
from smisym.verify.identities import clenshaw_curtis
from smisym.verify.properties import SCRAMBLES, Property, Subject, Tried, lines

# Samples of a map, over all scrambles; draws of plain Monte Carlo; segments of overlaps.
_SAMPLES, _DRAWS, _SEGMENTS = 2048, 32768, 3
# Of plain draws as many as cost so many evaluations of an integrand, but at least so many; tolerance of integrals.
_SPENT, _LEAST, _PLAIN = 5e6, 1024, 1e-3
# Nodes of a segment, and maps of two scrambles each where only the mean over scrambles is told.
_NODES = (1 - np.cos(np.pi * np.arange(5) / 4)) / 2
_MAPS = 16
# Eigenvalues of an overlap of which next to nothing is known.
_SMALL = (0.005, 0.02)
# Where the free entropy is asked: the prior leads, and the data do.
_ALPHAS = (0.3, 3.0)
# Multiple of the errors that inner integrals state of E which covariances may have; rounding.
_COVARIANCES, _ROUNDING = 3.0, 1e-9


def overlaps_of(subject: Subject, *words: Any) -> np.ndarray:
    """A random overlap (P, P) that symmetries allow, eigenvalues between 0.1 and 0.8."""
    return _turned(subject, subject.rng("overlap", *words), 0.1, 0.8)


def _turned(subject: Subject, rng: np.random.Generator, low: float, high: float) -> np.ndarray:
    """An overlap (P, P) that symmetries allow, with eigenvalues between these."""
    P = subject.model.fields
    turn = np.linalg.qr(np.eye(P) + 0.4 * rng.standard_normal((P, P)))[0]
    Q = subject.model.prior.together() * (turn @ np.diag(rng.uniform(low, high, P)) @ turn.T)
    return np.asarray(subject.model.symmetry.project((Q + Q.T) / 2))


def segment(subject: Subject, *words: Any) -> tuple[np.ndarray, np.ndarray]:
    """(Q, step): Q and Q + step are overlaps, step is positive semidefinite and leaves a third of what is left."""
    Q = overlaps_of(subject, *words)
    P, rng = subject.model.fields, subject.rng("step", *words)
    parts = rng.uniform(0.0, 0.6, P)
    values, vectors = np.linalg.eigh(np.eye(P) - Q)
    root = (vectors * np.sqrt(values)) @ vectors.T
    step = subject.model.prior.together() * (root @ np.diag(parts) @ root)
    return Q, np.asarray(subject.model.symmetry.project(step))


_MAP = "omap = smisym.overlap_map(model, samples={samples}, scrambles={scrambles}, seed={seed}, rtol={rtol!r})\n"


def lines_of_map(subject: Subject, omap: OverlapMap, body: str, **arrays: np.ndarray) -> str:
    made = _MAP.format(samples=omap.samples, scrambles=omap.scrambles, seed=omap.seed, rtol=omap.rtol)
    return lines(subject, made + body, **arrays)


# ------------------------------------------------------------------------------------------------ the mean of g g^T


def plain_means(model: Any, Q: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, float]:
    """(count, P, P) independent draws whose mean is E(Q), in units of the prior, by plain Monte Carlo, and the mean
    error of the posteriors' means."""
    rng = np.random.default_rng(seed)
    A, B = model.prior.roots(Q)
    omega = A @ rng.standard_normal((count, model.fields, model.tokens))
    Z = omega + B @ rng.standard_normal(omega.shape)
    law = model.prior.law(Q)
    moments = model.channel.moments(
        model.channel.sample(Z, rng), omega, law.V, rtol=max(_PLAIN, model.channel.plan.moments)
    )
    values, vectors = np.linalg.eigh(np.eye(model.fields) - Q)
    inverse = (vectors / np.sqrt(values)) @ vectors.T
    g = inverse @ law.units @ moments.g
    return model.prior.multiplicity * np.einsum("spt,sqt->spq", g, g), float(moments.error.mean())


def _draws(model: Any, Q: np.ndarray) -> int:
    """How many draws can be afforded, from what a few cost: counted, not timed, so that reports repeat."""
    rng = np.random.default_rng(0)
    A, B = model.prior.roots(Q)
    omega = A @ rng.standard_normal((16, model.fields, model.tokens))
    y = model.channel.sample(omega + B @ rng.standard_normal(omega.shape), rng)
    rtol = max(_PLAIN, model.channel.plan.moments)
    nodes = float(model.channel.moments(y, omega, model.prior.law(Q).V, rtol=rtol).nodes.mean())
    return int(min(_DRAWS, max(_LEAST, _SPENT / max(nodes, 1.0))))


def _is_the_mean(subject: Subject, level: float) -> Tried:
    model, Q = subject.model, overlaps_of(subject, "mean")
    together = model.prior.together()
    made: list[OverlapMap] = []

    def test(stage: int, times: int) -> Verdict:
        omap = subject.overlap_map(_SAMPLES * times, "mean", stage)
        made.append(omap)
        estimates = omap.evaluate(Q)
        E = np.array([e.E for e in estimates])
        count = times * subject.many(_draws(model, Q))
        plain, error = plain_means(model, Q, count, subject.number("plain", stage))
        # As many groups as scrambles: the difference of two independent means, one value for each.
        size = len(plain) // SCRAMBLES
        means = plain[: size * SCRAMBLES].reshape(SCRAMBLES, size, *Q.shape).mean(axis=1)
        whole = float(np.abs(np.linalg.eigvalsh(E.mean(axis=0))).max())
        stated = float(np.mean([e.inner_error for e in estimates])) + 2 * error * np.sqrt(model.fields * model.tokens)
        upper = np.triu_indices(len(Q))
        gaps = ((means - E) * together)[:, upper[0], upper[1]]
        found = means_vanish(gaps, stated / np.linalg.eigvalsh(np.eye(len(Q)) - Q)[0] + _ROUNDING * whole)
        return Verdict(found.t, found.p, found.which, omap.samples + count, found.error, stage + 1)

    found = in_two_stages(test)
    body = (
        "from smisym.verify.averages import plain_means\n\n"
        "print(*omap(Q))  # E(Q) and its standard error\n"
        "plain = plain_means(model, Q, 65536, seed=0)[0]\n"
        "print(plain.mean(axis=0), plain.std(axis=0) / len(plain) ** 0.5)  # the same by plain Monte Carlo"
    )
    shown = "" if found.p >= level else lines_of_map(subject, made[-1], body, Q=Q)
    return Tried(found.number, "samples", found.t, found.p, found.p >= level, counterexample=shown)


# --------------------------------------------------------------------------------------------------------- Nishimori


def _of_both_gaps(estimates: list[Estimate], rtol: float) -> np.ndarray:
    """What inner integrals may make of the gaps, (2 k,).

    The stated error of E is that of squares of means, and nothing but a square itself where these vanish; covariances
    are off by what posteriors are, which is ``rtol`` at most, and on average no more than the root of that square.
    """
    of_means = float(np.mean([e.inner_error for e in estimates]))
    of_covariances = max(of_means, min(np.sqrt(of_means), rtol))
    return np.repeat(_COVARIANCES * np.array([of_covariances, of_means]) + _ROUNDING, estimates[0].gap.shape[1])


def _estimators_agree(subject: Subject, level: float) -> Tried:
    P = subject.model.fields
    known = np.diag(np.where(np.arange(P) % 2, 0.995, 0.3))
    several = [overlaps_of(subject, "nishimori"), subject.model.symmetry.project(known), np.zeros((P, P))]
    made: list[OverlapMap] = []

    def test(stage: int, times: int) -> Verdict:
        omap = subject.overlap_map(_SAMPLES * times, "nishimori", stage)
        made.append(omap)
        every = [omap.evaluate(Q) for Q in several]
        gaps = np.concatenate([[e.gap.ravel() for e in estimates] for estimates in every], axis=1)
        stated = np.concatenate([_of_both_gaps(estimates, omap.rtol) for estimates in every])
        found = means_vanish(gaps, stated)
        return Verdict(found.t, found.p, found.which, omap.samples * len(several), found.error, stage + 1)

    found = in_two_stages(test)
    k = found.which // (2 * len(subject.model.symmetry.basis))
    body = (
        "gaps = np.array([e.gap for e in omap.evaluate(Q)])  # E[g g^T] less -E[dg], and less E[g g*^T]\n"
        "print(gaps.mean(axis=0) / (gaps.std(axis=0) / len(gaps) ** 0.5))  # in standard errors: up to 4 is chance"
    )
    shown = "" if found.p >= level else lines_of_map(subject, made[-1], body, Q=several[k])
    return Tried(found.number, "samples", found.t, found.p, found.p >= level, counterexample=shown)


# ----------------------------------------------------------------------------------------------- growth, and slopes


def _segments(subject: Subject, what: str) -> list[tuple[np.ndarray, np.ndarray]]:
    return [segment(subject, what, k) for k in range(_SEGMENTS)]


def _from_nothing(subject: Subject) -> tuple[np.ndarray, np.ndarray]:
    """A segment (0, Q) to an overlap of which little is known, where a rule of its own integrates the map."""
    return np.zeros((subject.model.fields,) * 2), _turned(subject, subject.rng("small"), *_SMALL)


def _grows(subject: Subject, level: float) -> Tried:
    P, segments = subject.model.fields, _segments(subject, "monotone")
    rng = subject.rng("directions")
    directions = np.concatenate([np.eye(P), rng.standard_normal((P, P))])
    made: list[OverlapMap] = []

    def test(stage: int, times: int) -> Verdict:
        omap = subject.overlap_map(_SAMPLES * times, "monotone", stage)
        made.append(omap)
        gains, stated = [], []
        for Q, step in segments:
            low, high = omap.evaluate(Q), omap.evaluate(Q + step)
            change = np.array([b.E - a.E for a, b in zip(low, high, strict=True)])
            gains.append(np.einsum("dp,rpq,dq->rd", directions, change, directions))
            least = np.linalg.eigvalsh(np.eye(P) - Q - step)[0]
            stated += [float(np.mean([e.inner_error for e in low + high])) / least] * len(directions)
        lengths = np.tile((directions**2).sum(axis=1), len(segments))
        found = means_vanish(np.concatenate(gains, axis=1), lengths * stated + _ROUNDING, sides=1)
        return Verdict(found.t, found.p, found.which, omap.samples * 2 * _SEGMENTS, found.error, stage + 1)

    found = in_two_stages(test)
    Q, step = segments[found.which // len(directions)]
    v = directions[found.which % len(directions)]
    body = "print(v @ omap(Q)[0] @ v, v @ omap(Q + step)[0] @ v)  # step >= 0: the second is no smaller"
    shown = "" if found.p >= level else lines_of_map(subject, made[-1], body, Q=Q, step=step, v=v)
    return Tried(found.number, "samples", found.t, found.p, found.p >= level, counterexample=shown)


def differences(omap: OverlapMap, Q: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """((R, k) of every scramble E(Q + step) - E(Q) less the integral of its derivative, in invariant coordinates, which
    should vanish on average; (k,) what may be wrong with the integral)."""
    symmetry = omap.model.symmetry
    # From nothing on derivatives fall like roots of what is known: as functions of these they are smooth.
    nodes, factors = (_NODES, np.ones_like(_NODES)) if Q.any() else (_NODES**2, 2 * _NODES)
    every = [omap.evaluate(Q + s * step) for s in nodes]
    slopes = np.array(
        [[f * symmetry.coordinates(e.derivative(step)) for e in at] for f, at in zip(factors, every, strict=True)]
    )
    ends = np.array([symmetry.coordinates(b.E - a.E) for a, b in zip(every[0], every[-1], strict=True)])
    fine, coarse = (np.tensordot(clenshaw_curtis(k), slopes[:: 4 // k], axes=1) for k in (4, 2))
    least = np.linalg.eigvalsh(np.eye(len(Q)) - Q - step)[0]
    stated = _COVARIANCES * float(np.mean([e.inner_error for at in every for e in at])) / least
    return ends - fine, np.abs((fine - coarse).mean(axis=0)) + stated + _ROUNDING * (1 + np.abs(ends).max())


def _slope_is_its_own(subject: Subject, level: float) -> Tried:
    segments = [*_segments(subject, "slope"), _from_nothing(subject)]
    made: list[OverlapMap] = []

    def test(stage: int, times: int) -> Verdict:
        omap = subject.overlap_map(_SAMPLES * times, "slope", stage)
        made.append(omap)
        every = [differences(omap, Q, step) for Q, step in segments]
        gaps, allowed = (np.concatenate(part, axis=-1) for part in zip(*every, strict=True))
        found = means_vanish(gaps, allowed)
        number = omap.samples * len(_NODES) * len(segments)
        return Verdict(found.t, found.p, found.which, number, found.error, stage + 1)

    found = in_two_stages(test)
    Q, step = segments[found.which // len(subject.model.symmetry.basis)]
    body = (
        "from smisym.verify.averages import differences\n\n"
        "gaps, allowed = differences(omap, Q, step)  # E(Q + step) - E(Q) less the integral of its derivative\n"
        "print(gaps.mean(axis=0), gaps.std(axis=0) / len(gaps) ** 0.5, allowed)"
    )
    shown = "" if found.p >= level else lines_of_map(subject, made[-1], body, Q=Q, step=step)
    return Tried(found.number, "samples", found.t, found.p, found.p >= level, counterexample=shown)


def bends(omap: OverlapMap, Q: np.ndarray, step: np.ndarray) -> np.ndarray:
    """(R,) of every scramble: E log Zout at Q + step and Q - step less twice that at Q."""
    low, middle, high = ([float(e.log_partition) for e in omap.evaluate(Q + s * step)] for s in (-1, 0, 1))
    return np.array(low) + np.array(high) - 2 * np.array(middle)


def _information_is_convex(subject: Subject, level: float) -> Tried:
    model, segments = subject.model, []
    for k in range(_SEGMENTS):
        # As far as both ends are overlaps.  With D = dg/domega the second derivative along M is E tr(M D M D^T) / 2,
        # over pairs of tokens: a square where M has no negative part, of any sign where it gains of some directions and
        # loses of others (z1 z2 at Q = 0, M = diag(1, -1): D is off the diagonal alone, and it is negative).
        Q, rng = overlaps_of(subject, "convex", k), subject.rng("bend", k)
        raw = rng.standard_normal((len(Q), 1 if k % 2 else len(Q)))
        step = np.asarray(model.symmetry.project(model.prior.together() * (raw @ raw.T)))
        room = min(np.linalg.eigvalsh(Q)[0], 1 - np.linalg.eigvalsh(Q)[-1])
        segments.append((Q, 0.9 * room * step / np.abs(np.linalg.eigvalsh(step)).max()))
    made: list[OverlapMap] = []

    def test(stage: int, times: int) -> Verdict:
        omap = subject.overlap_map(_SAMPLES * times, "convex", stage)
        made.append(omap)
        values = np.array([bends(omap, Q, step) for Q, step in segments]).T
        stated = [4 * max(e.inner_error for e in omap.evaluate(Q)) + _ROUNDING for Q, _ in segments]
        found = means_vanish(values, np.array(stated), sides=1)
        return Verdict(found.t, found.p, found.which, omap.samples * 3 * _SEGMENTS, found.error, stage + 1)

    found = in_two_stages(test)
    Q, step = segments[found.which]
    body = "from smisym.verify.averages import bends\n\nprint(bends(omap, Q, step))  # on average not below zero"
    shown = "" if found.p >= level else lines_of_map(subject, made[-1], body, Q=Q, step=step)
    return Tried(found.number, "samples", found.t, found.p, found.p >= level, counterexample=shown)


# ------------------------------------------------------------------------------------------------------ free entropy


def entropy_gap(omap: OverlapMap, Q: np.ndarray, step: np.ndarray, alpha: float) -> tuple[float, float]:
    """(Phi(Q + step) - Phi(Q) less the integral of (alpha E - Q_hat) / 2, what may be wrong with the integral).

    Q_hat is what state evolution makes Q of, (I - Q)^{-1} - I for Gaussian weights, and both are counted a slice of the
    embedding.
    """
    ends = [float(free_entropy(omap, Q + s * step, alpha).value) for s in (0.0, 1.0)]
    every = [omap.evaluate(Q + s * step) for s in _NODES]
    values = np.array([np.mean([float((e.E * step).sum()) for e in at]) for at in every])
    fine, coarse = (alpha / 2 * float(clenshaw_curtis(k) @ values[:: 4 // k]) for k in (4, 2))
    # The prior's part by a rule of its own, far finer.
    s, w = (1 - np.cos(np.pi * np.arange(33) / 32)) / 2, clenshaw_curtis(32)
    hats = [float((omap.model.prior.conjugate(Q + x * step) * step).sum()) for x in s]
    prior, shared = float(w @ hats) / 2, omap.model.prior.multiplicity
    least = np.linalg.eigvalsh(np.eye(len(Q)) - Q - step)[0]
    stated = alpha * float(np.mean([e.inner_error for at in every for e in at])) * (1 + np.trace(step) / least)
    allowed = (abs(fine - coarse) + stated + _ROUNDING * (1 + abs(ends[0]))) / shared
    return ends[1] - ends[0] - (fine - prior) / shared, float(allowed)


def _entropy_moves_as_it_should(subject: Subject, level: float) -> Tried:
    segments = [(*segment(subject, "Phi", k), alpha) for k, alpha in enumerate(_ALPHAS)]
    made: list[OverlapMap] = []

    def test(stage: int, times: int) -> Verdict:
        samples = _SAMPLES // 8 * times
        maps = [subject.overlap_map(samples, "Phi", stage, k, scrambles=2) for k in range(_MAPS)]
        made[:] = maps
        every = np.array([[entropy_gap(omap, *where) for where in segments] for omap in maps])
        found = means_vanish(every[:, :, 0], every[:, :, 1].mean(axis=0))
        number = sum(omap.samples for omap in maps) * len(_NODES) * len(segments)
        return Verdict(found.t, found.p, found.which, number, found.error, stage + 1)

    found = in_two_stages(test)
    Q, step, alpha = segments[found.which]
    body = (
        "from smisym.verify.averages import entropy_gap\n\n"
        f"# Phi(Q + step) - Phi(Q) less the integral of (alpha E - Q_hat) / 2, of one of {_MAPS} maps; and what\n"
        "# is allowed\n"
        f"print(entropy_gap(omap, Q, step, {alpha}))"
    )
    shown = "" if found.p >= level else lines_of_map(subject, made[0], body, Q=Q, step=step)
    return Tried(found.number, "samples", found.t, found.p, found.p >= level, counterexample=shown)


PROPERTIES = (
    Property(
        "overlap-map",
        "E(Q) is the mean of g_out g_out^T over plain draws, and overlaps that symmetries rule out vanish.",
        "arXiv 2502.00901, eq. 14",
        "seconds",
        True,
        _is_the_mean,
    ),
    Property(
        "nishimori",
        "Three estimators of E agree: E[g g^T] = -E[dg] = E[g g*^T], at a random overlap, near I and at 0.",
        "Nishimori: truth and posterior sample are exchangeable",
        "seconds",
        True,
        _estimators_agree,
    ),
    Property(
        "monotone",
        "E grows with the overlap in the Loewner order: g_out is a martingale in what is known.",
        "E log Zout is convex",
        "seconds",
        True,
        _grows,
    ),
    Property(
        "slope",
        "Differences of E are integrals of its derivative E[dg M dg^T], between random overlaps and from nothing on.",
        "Ito derivative of E: smisym/theory/estimate.py",
        "seconds",
        True,
        _slope_is_its_own,
    ),
    Property(
        "free-entropy",
        "dPhi = tr[(alpha E(Q) - Q_hat(Q)) dQ] / 2, which state evolution says, at fixed points and away from them.",
        "free entropy: its stationary points are fixed points of state evolution",
        "seconds",
        True,
        _entropy_moves_as_it_should,
    ),
    Property(
        "convex",
        "E log Zout bends upwards along every step of the overlap that loses of no direction.",
        "free entropy: its stationary points are fixed points of state evolution",
        "seconds",
        True,
        _information_is_convex,
    ),
)
