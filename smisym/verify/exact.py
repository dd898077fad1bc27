"""What is known in closed form, and from below: first thresholds, posteriors up to a sign, and floors of thresholds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from smisym.base.threshold import Threshold
from smisym.model.compiled import Model
from smisym.theory.closed_forms import closed_form, shows_up_to_signs
from smisym.theory.stability import counting, weak_recovery
from smisym.verify.averages import lines_of_map
from smisym.verify.chance import Verdict, in_two_stages
from smisym.verify.evolutions import first_threshold
from smisym.verify.posteriors import _COVARIANCES, _MEANS
from smisym.verify.properties import SCRAMBLES, Property, Subject, Tried, left_out, lines
from smisym.verify.searching import search
from smisym.verify.strategies import Cavity, cavities

# Samples of the map of the first threshold; relative error below which a threshold counts as exact.
_SAMPLES, _EXACT = 4096, 1e-6
# Fields at which derivatives are taken, their step, and singular values, of the largest, that count as none.
_FIELDS, _STEP, _NONE = 32, 1e-5, 1e-6


def known_but_for_one_sign(model: Model) -> bool:
    """Whether the output shows all fields but for one sign that they have in common."""
    return shows_up_to_signs(model) and np.array_equal(model.symmetry.signs[1:], -np.ones((1, model.fields)))


@dataclass(frozen=True)
class Compared:
    """alpha, its statistical error, what inner integrals may do to it, and the samples, of a first threshold."""

    alpha: float
    error: float
    inner: float
    samples: int


def _measured(subject: Subject, stage: int, times: int) -> Compared:
    omap = subject.overlap_map(times * _SAMPLES, "closed", stage)
    # Sampled: what is integrated over outputs instead would say nothing of the map.
    found = weak_recovery(omap, stages=1, quadrature=False).value[0]
    # As weak_recovery has it of errors of inner integrals where scrambles do not differ.
    inner = omap.at(0, np.zeros((subject.model.fields,) * 2)).inner_error
    return Compared(found.alpha, found.error, found.alpha * math.sqrt(inner), omap.samples)


def _known_to_a_sign(channel: Any, y: Any, cavity: Cavity) -> float | None:
    """Misfit of mean and covariance against +-Z with the odds exp(+-tr omega^T V^{-1} Z)."""
    with np.errstate(all="ignore"):
        m = channel.moments(y, cavity.omega[None], cavity.V, cov=True)
    error, size = float(m.bound[0]), float(np.abs(cavity.Z).max())
    if not (error < 1e-3 and y.exact and size > 0):
        return None  # of fields that vanish there is no sign
    odds = float(np.sum(cavity.omega * np.linalg.solve(cavity.V, cavity.Z)))
    mean = math.tanh(odds) * cavity.Z
    cov = np.multiply.outer(cavity.Z, cavity.Z) / math.cosh(min(abs(odds), 300.0)) ** 2
    # A relative error of 1e-9 in the fields moves the odds by as much of themselves.
    rounding = 1e-8 * (1 + abs(odds)) * (size + size**2)
    root = 1 / math.sqrt(float(np.linalg.eigvalsh(cavity.V)[0]))
    first = float(np.abs(m.mean[0] - mean).max()) / (_MEANS * error / root + rounding)
    return max(first, float(np.abs(m.cov[0] - cov).max()) / (_COVARIANCES * error / root**2 + rounding))


def _numbers_are_the_formulas(subject: Subject, level: float) -> Tried:
    model = subject.model
    exact = closed_form(model)
    worst, number = 0.0, 0
    if known_but_for_one_sign(model):

        def misfit(cavity: Cavity) -> float | None:
            with np.errstate(all="ignore"):
                return _known_to_a_sign(model.channel, model.observe(cavity.Z[None]), cavity)

        found = search(cavities(model), misfit, subject.examples, subject.number("a sign"))
        worst, number = found.worst, found.number
        if found.failing is not None:
            case = found.failing
            body = (
                "m = model.channel.moments(model.observe(Z[None]), omega[None], V)\n"
                "print(m.mean[0], np.tanh(np.sum(omega * np.linalg.solve(V, Z))) * Z)  # the same"
            )
            shown = lines(subject, body, Z=case.Z, omega=case.omega, V=case.V)
            return Tried(number, "cavities", worst, 0.0, False, "posterior up to a sign", shown)
    first = first_threshold(subject)
    integrated = first if isinstance(first, Threshold) and first.samples is None else None
    if exact is not None:
        alpha, by = float(exact), f"{exact.formula} = "
    elif integrated is not None:
        alpha, by = integrated.alpha, "by quadrature over outputs: "
    else:
        return left_out("no closed form is known") if not number else Tried(number, "cavities", worst, 1.0)
    allowed = _EXACT * alpha + (4 * integrated.error if integrated is not None else 0.0)
    if integrated is not None and not abs(integrated.alpha - alpha) <= allowed:
        said = f"first threshold {by}{alpha:.6g}, by quadrature over outputs {integrated.alpha:.6g}"
        shown = lines(subject, "print(smisym.weak_recovery(model, stages=1), smisym.closed_form(model))  # the same")
        return Tried(1, "thresholds", math.inf, 0.0, False, said, shown)

    def test(stage: int, times: int) -> Verdict:
        one = _measured(subject, stage, times)
        beyond = max(abs(one.alpha - alpha) - one.inner - allowed, 0.0)
        t = (beyond / one.error if one.error else math.inf) if beyond else 0.0
        p = min(1.0, 2 * float(special.stdtr(SCRAMBLES - 1, -t)))
        return Verdict(t, p, 0, one.samples, one.error, stage + 1)

    verdict = in_two_stages(test)
    holds = verdict.p >= level
    said = f"first threshold {by}{alpha:.6g}"
    omap = subject.overlap_map((4 if verdict.stage == 2 else 1) * _SAMPLES, "closed", verdict.stage - 1)
    body = (
        "found = smisym.weak_recovery(omap, stages=1, quadrature=False).value[0]\n"
        "print(found.alpha, found.error, smisym.closed_form(model))  # the same, to its error\n"
        "print(smisym.weak_recovery(model, stages=1).value)  # and this"
    )
    shown = "" if holds else lines_of_map(subject, omap, body)
    return Tried(verdict.number, "samples", verdict.t, verdict.p, holds, said, shown)


# ------------------------------------------------------------------------------------------------------------ floors


def floor_of_first(model: Model) -> float:
    """What no first threshold is below, by Jensen: 1/(T(PT+1)) of P rows that are learned together, per slice.

    Rows whose flips by themselves change nothing are learned one by one: P = 1.
    """
    P, T = model.fields, model.tokens
    flips = {tuple(np.sign(np.asarray(flip, dtype=float))) for flip in model.symmetry.signs}
    alone = all(tuple(-1.0 if q == p else 1.0 for q in range(P)) in flips for p in range(P))
    together = 1 if alone else P
    return 1 / (model.prior.multiplicity * T * (together * T + 1))


def outputs_per_sample(model: Model, seed: int) -> np.ndarray:
    """(n,): ranks of df/dZ at random fields, by central differences."""
    size = model.fields * model.tokens
    Z = np.random.default_rng(seed).standard_normal((_FIELDS, model.fields, model.tokens))
    steps = _STEP * np.eye(size).reshape(size, *Z.shape[1:])
    with np.errstate(all="ignore"):
        columns = [(model.link.raw(Z + s) - model.link.raw(Z - s)).reshape(len(Z), -1) for s in steps]
        jacobians = np.nan_to_num(np.stack(columns, axis=2) / (2 * _STEP), nan=0.0, posinf=0.0, neginf=0.0)
    values = np.linalg.svd(jacobians, compute_uv=False)
    return np.asarray((values > _NONE * values[:, :1]).sum(axis=1))


def _thresholds_respect_floors(subject: Subject, level: float) -> Tried:
    model = subject.model
    first, low = first_threshold(subject), floor_of_first(model)
    ratios, said = [], []
    if not isinstance(first, Tried):
        # On the map itself, for the threshold may be integrated over outputs; eight standard errors, of few scrambles.
        sampled = _measured(subject, 0, 1)
        for alpha, error, times in ((first.alpha, first.error, 4), (sampled.alpha, sampled.error, 8)):
            ratios.append(low / (alpha * (1 + _EXACT) + times * error))
        said.append(f"first threshold {first.alpha:.4g}, floor {low:.4g}")
    if not model.noise:
        ranks = outputs_per_sample(model, subject.number("ranks"))
        mean, error = float(ranks.mean()), float(ranks.std(ddof=1)) / math.sqrt(len(ranks))
        stable, uncertain = counting(model)[1:]
        if mean > 0 and math.isfinite(stable):
            numbers = model.prior.dimension(np.eye(model.fields))
            least = numbers / (model.prior.multiplicity * (mean + 4 * error))
            ratios.append(least / (stable * (1 + _EXACT) + 4 * uncertain))
            said.append(f"perfect from {stable:.4g} on, floor {least:.4g}")
    if not ratios:
        return left_out("no threshold is finite")
    holds = max(ratios) <= 1
    body = (
        "from smisym.theory.stability import counting\n"
        "from smisym.verify.exact import floor_of_first, outputs_per_sample\n\n"
        "print(smisym.weak_recovery(model, stages=1).value[0], floor_of_first(model))\n"
        "print(counting(model)[1], model.fields / outputs_per_sample(model, 0).mean())  # none below its floor"
    )
    return Tried(
        len(ratios), "thresholds", max(ratios), None, holds, "; ".join(said), "" if holds else lines(subject, body)
    )


PROPERTIES = (
    Property(
        "closed-forms",
        "First thresholds by closed forms, by quadrature and of samples agree; so do posteriors up to a sign.",
        "docs/architectures.md",
        "seconds",
        True,
        _numbers_are_the_formulas,
    ),
    Property(
        "thresholds",
        "The first threshold is at least 1/(T(PT+1)), perfect recovery at least P over the outputs of a sample.",
        "by Jensen and by counting",
        "seconds",
        False,
        _thresholds_respect_floors,
    ),
)
