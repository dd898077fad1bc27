"""The posterior of one sample: it fits together, g_out is the slope of log Zout, and the truth is a sample of it.

Derivatives are held against differences along a segment of cavities, by the rule of Clenshaw and Curtis:
log Zout(b) - log Zout(a) = integral of g . d(omega), and the same of g and dg.  No step has to be small, so that what
is compared is as exact as the posterior says that it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from smisym.link.linking import Observation
from smisym.model.calibrating import NAMES, calibration
from smisym.model.moments import Moments
from smisym.verify.chance import Verdict, from_means, groups, in_two_stages, means_vanish
from smisym.verify.identities import COVARIANCES as _COVARIANCES
from smisym.verify.identities import MEANS as _MEANS
from smisym.verify.identities import MOST as _MOST
from smisym.verify.identities import ROUNDING as _ROUNDING
from smisym.verify.identities import along, truth_gaps
from smisym.verify.properties import Property, Subject, Tried, left_out, lines
from smisym.verify.searching import search
from smisym.verify.strategies import Cavity, cavities

# Tolerance of posteriors that can be known so well.
_FINE = 1e-7
# Posteriors whose error is larger tell nothing.
_TELLING = 0.05
# The test of the truth: samples at each overlap; what is left to learn of a direction that is nearly known.
_DRAWS, _TINY = 1024, 1e-3


def _posterior(subject: Subject, y: Observation, omega: np.ndarray, V: np.ndarray, cov: bool) -> Moments:
    channel = subject.model.channel
    rtol = max(channel.plan.single, _FINE)
    # Degenerate outputs, as of fields that are zero, divide by nothing; what is not finite is judged by who asks.
    with np.errstate(all="ignore"):
        found: Moments = channel.moments(y, omega, V, cov=cov, rtol=rtol, max_nodes=_MOST)
    return found


def _observed(subject: Subject, Z: np.ndarray, copies: int = 1) -> Observation | None:
    """The output of fields Z (P, T), so many times, with one draw of the noise; None where it overflows."""
    link = subject.model.link
    with np.errstate(all="ignore"):
        if not np.isfinite(link.raw(Z[None])).all():
            return None
        y = subject.model.channel.sample(Z[None], np.random.default_rng(1))
    return y[np.zeros(copies, dtype=int)]


_SAMPLE = "y = model.channel.sample(Z[None], np.random.default_rng(1))\n"
_SCORE = (
    _SAMPLE
    + """moments = model.channel.moments(y, omega[None], V, cov=True, rtol={rtol!r})
print(V @ moments.g[0])  # V g_out
print(moments.mean[0] - omega)  # the same, to within the error stated:
print(moments.error)"""
)
_ALONG = (
    _SAMPLE
    + """from smisym.verify.identities import along

ends, integral, error = along(model.channel, y, omega, step, V, {what!r}, rtol={rtol!r})
print(ends)  # difference of {of} between omega + step and omega
print(integral)  # the integral of its derivative; both are the same, to within
print(error)"""
)


# --------------------------------------------------------------------------------------------------- it fits together


def _fits(subject: Subject, level: float) -> Tried:
    def misfit(cavity: Cavity) -> float | None:
        y = _observed(subject, cavity.Z)
        if y is None:
            return None
        m = _posterior(subject, y, cavity.omega[None], cavity.V, cov=True)
        error = float(m.bound[0])
        if not error < _TELLING or not np.isfinite(m.log_partition[0]):
            return None
        root = np.linalg.cholesky(cavity.V)
        inverse = np.linalg.inv(root)
        mean = root.T @ m.g[0] - inverse @ (m.mean[0] - cavity.omega)
        identity = np.einsum("pq,tu->ptqu", np.eye(len(root)), np.eye(cavity.Z.shape[1]))
        assert m.cov is not None and m.dg is not None
        inside = np.einsum("ap,ptqu,bq->atbu", inverse, m.cov[0], inverse)
        slope = np.einsum("pa,ptqu,qb->atbu", root, m.dg[0], root) - inside + identity
        size = 1 + float(np.abs(inverse @ np.concatenate([m.mean[0], cavity.omega], axis=1)).max())
        first = float(np.abs(mean).max()) / (_MEANS * error + _ROUNDING * size)
        return max(first, float(np.abs(slope).max()) / (_COVARIANCES * error + _ROUNDING * size))

    return _searched(subject, "score", cavities(subject.model), misfit, _SCORE)


def _searched(
    subject: Subject, name: str, strategy: Any, misfit: Callable[[Any], float | None], body: str, **words: str
) -> Tried:
    found = search(strategy, misfit, subject.examples, subject.number(name))
    if found.holds is None:
        return left_out("no posterior was known well enough to tell")
    shown = ""
    if found.failing is not None:
        cavity, *step = found.failing if isinstance(found.failing, tuple) else (found.failing,)
        arrays = {"Z": cavity.Z, "omega": cavity.omega, "V": cavity.V} | ({"step": step[0]} if step else {})
        shown = lines(subject, body.format(rtol=max(subject.model.channel.plan.single, _FINE), **words), **arrays)
    return Tried(found.number, "cavities", found.worst, None, found.holds, counterexample=shown)


# -------------------------------------------------------------------------------------------------- along a segment


def _by_segments(subject: Subject, what: str, of: str) -> Tried:
    model = subject.model
    rtol = max(model.channel.plan.single, _FINE)
    dropped = model.channel.posterior.dropped
    if dropped:
        of_it = f"a third cumulant of {dropped:.2g} is dropped (docs/declaring.md)"
        return left_out(f"single posteriors are approximate by design, and so are their slopes: {of_it}; see nishimori")

    def misfit(case: tuple[Cavity, np.ndarray]) -> float | None:
        cavity, step = case
        y = _observed(subject, cavity.Z)
        if y is None:
            return None
        ends, integral, error = along(model.channel, y, cavity.omega, step, cavity.V, what, rtol)
        # Where the rule does not converge, or the posterior is rough, the two ends hardly tell anything.
        if not float(np.max(error)) < _TELLING * max(1.0, float(np.abs(ends).max())):
            return None
        return float(np.max(np.abs(ends - integral) / error))

    @st.composite
    def cases(draw: Any) -> tuple[Cavity, np.ndarray]:
        cavity = draw(cavities(model))
        # Between a half and one standard deviation, in a direction of its own.
        turn = draw(st.integers(0, 15))
        step = np.random.default_rng(turn).standard_normal(cavity.Z.shape)
        return cavity, 0.75 * np.linalg.cholesky(cavity.V) @ step / np.linalg.norm(step)

    return _searched(subject, what, cases(), misfit, _ALONG, what=what, of=of)


def _gradient(subject: Subject, level: float) -> Tried:
    return _by_segments(subject, "log_partition", "log Zout")


def _curvature(subject: Subject, level: float) -> Tried:
    return _by_segments(subject, "g", "g_out, in units of V^{-1/2},")


# ------------------------------------------------------------------------------------------------------- by chance


def _probability_is_kept(subject: Subject, level: float) -> Tried:
    channel = subject.model.channel

    def test(stage: int, times: int) -> Verdict:
        count = subject.many(channel.plan.checked) * times
        found = calibration(channel, count, subject.number("probability", stage))
        verdict = from_means(found.means, found.errors, found.samples, 1e-6 + found.quadrature)
        return Verdict(verdict.t, verdict.p, verdict.which, found.samples, float(found.errors.max()), stage + 1)

    found = in_two_stages(test)
    holds = found.p >= level
    body = (
        "from smisym.model.calibrating import calibration\n\n"
        f"found = calibration(model.channel, {found.number}, seed={subject.number('probability', found.stage - 1)})\n"
        "print(found.means, found.errors)  # means that should vanish, and their standard errors"
    )
    said = "" if holds else f"not conserved: {NAMES[found.which]}"
    shown = "" if holds else lines(subject, body)
    return Tried(found.number, "outputs", found.t, found.p, holds, said, shown)


def _overlaps_to_try(subject: Subject) -> list[np.ndarray]:
    """Overlaps that are moderate, nearly I, nearly 0, and of every direction by itself: fixed by the seed."""
    P, rng = subject.model.fields, subject.rng("overlaps")
    mixed = np.where(np.arange(P) % 2, 1 - _TINY, 0.3)
    turn = np.linalg.qr(np.eye(P) + 0.4 * rng.standard_normal((P, P)))[0]
    turned = turn @ np.diag(rng.uniform(0.2, 0.8, P)) @ turn.T
    several = [0.4 * np.eye(P), (1 - _TINY) * np.eye(P), np.diag(mixed), subject.model.prior.together() * turned]
    return [(Q + Q.T) / 2 for Q in several]


def _truth_is_a_sample(subject: Subject, level: float) -> Tried:
    model, overlaps = subject.model, _overlaps_to_try(subject)
    count = max(64, subject.many(_DRAWS) // model.channel.plan.dearer)

    def gaps(k: int, stage: int, times: int) -> tuple[np.ndarray, float]:
        Q = overlaps[k]
        number = subject.number("truth", k, stage)
        return truth_gaps(model.channel, model.prior.roots(Q), model.prior.law(Q).V, times * count, number)

    def test(stage: int, times: int) -> Verdict:
        every = [gaps(k, stage, times) for k in range(len(overlaps))]
        short = min(len(values) for values, _ in every)
        values = np.concatenate([groups(values[:short]) for values, _ in every], axis=1)
        size = np.sqrt(model.fields * model.tokens)
        allowed = np.repeat([4 * size * error + 1e-9 for _, error in every], every[0][0].shape[1])
        found = means_vanish(values, allowed)
        return Verdict(found.t, found.p, found.which, short * len(overlaps), found.error, stage + 1)

    found = in_two_stages(test)
    holds, k = found.p >= level, found.which // (3 * model.fields**2)
    size, number = found.number // len(overlaps), subject.number("truth", k, found.stage - 1)
    body = (
        "from smisym.verify.identities import truth_gaps\n\n"
        "roots, V = model.prior.roots(Q), model.prior.law(Q).V\n"
        f"gaps, error = truth_gaps(model.channel, roots, V, {size}, seed={number})\n"
        "print(gaps.mean(axis=0) / (gaps.std(axis=0) / len(gaps) ** 0.5))  # in standard errors: up to 4 is chance"
    )
    shown = "" if holds else lines(subject, body, Q=overlaps[k])
    return Tried(found.number, "samples", found.t, found.p, holds, counterexample=shown)


PROPERTIES = (
    Property(
        "probability",
        "Posteriors conserve probability: E[Zout(y; omega, V) / Zout(y; omega', V')] = 1, and two identities more.",
        "smisym/model/calibrating.py",
        "seconds",
        True,
        _probability_is_kept,
    ),
    Property(
        "score",
        "g_out = V^{-1}(E[Z | y] - omega), its derivative V^{-1} Cov V^{-1} - V^{-1}, with the V that was given.",
        "definition of g_out: smisym/model/channel.py",
        "seconds",
        False,
        _fits,
    ),
    Property(
        "gradient",
        "g_out is the derivative of log Zout in omega.",
        "definition of g_out: smisym/model/channel.py",
        "seconds",
        False,
        _gradient,
    ),
    Property(
        "curvature",
        "dg_out is the derivative of g_out in omega.",
        "definition of g_out: smisym/model/channel.py",
        "seconds",
        False,
        _curvature,
    ),
    Property(
        "truth",
        "The true fields are a sample of the posterior: mean, covariance and omega fit them, also near Q = I.",
        "Nishimori: truth and posterior sample are exchangeable",
        "seconds",
        True,
        _truth_is_a_sample,
    ),
)
