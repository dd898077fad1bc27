"""Perfect recovery: what is left near Q = I decays from the alpha that counting names on, and Phi says so as well.

Counting looks at derivatives of the link alone; here posteriors are integrated next to Q = I, and state evolution makes
its steps.  Of what is left, V, only the shape matters there, for V -> E(I - V)^{-1} / alpha doubles with V: the largest
eigenvalue grows, once the shape is the one that grows most, by alpha_stable / alpha a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from smisym.theory.entropy import free_entropy
from smisym.theory.maps import OverlapMap
from smisym.theory.stability import counting
from smisym.verify.averages import lines_of_map
from smisym.verify.properties import Property, Subject, Tried, left_out

# Samples of the map, and its scrambles: of the usual one, and where all that is asked is whether anything decays.
_SAMPLES, _SCRAMBLES = 1024, 8
_FEW_SAMPLES, _FEW_SCRAMBLES = 128, 2
# What is left of every direction: where recovery is stable from some alpha on, and where it never is, which outputs in
# steps show as the root of that.
_LEFT, _LEFT_OF_STEPS = 1e-4, 1e-6
# Steps before those that count; of a part that shrinks faster than the rest so much of the largest stays.
_BEFORE, _STAYS = 4, 1e-6
# Growth at the alpha that is named, without chance: rows that are learned together fall apart slowly, and more grows
# until they have; and times the rows, where nothing ever decays, at alpha = 1.
_LEAST, _MOST, _NEVER = 0.9, 1.2, 5.0
_SURE, _ROUGH = 4.0, 0.05
# What is left at both ends of a segment towards Q = I, alpha over that where the free entropy is flat between them, and
# the alpha, a row, from which on it never is: outputs in steps tell something there as well, which falls as the root of
# what is left (of two heads of hardmax at 1e-3 as much as makes that 7).
_ENDS, _TIMES, _FLAT_NOWHERE = (1e-5, 1e-7), (0.7, 1.4), 20.0


@dataclass(frozen=True)
class Growth:
    """By how much the largest eigenvalue of what is left grows in a step of state evolution, on average, of logarithms;
    its standard error, and the error of the inner integrals, relative."""

    factor: float
    error: float
    inner: float


def growth_near_perfect(omap: OverlapMap, alpha: float, left: float) -> Growth:
    """Growth of what is left from V = left I on, rescaled after each step; every step that counts is on a scramble of
    its own.

    What a scramble makes of the shape of V grows less at the next step: over all of them that is no part of the mean.
    """
    model = omap.model
    eye, together = np.eye(model.fields), model.prior.together()
    V, factors, inner = eye, list[float](), list[float]()
    for step in range(_BEFORE + omap.scrambles):
        estimate = omap.at(step % omap.scrambles, eye - left * V)
        after = np.asarray((eye - model.prior.overlap(alpha * estimate.E)) / left)
        most = float(np.linalg.eigvalsh(after)[-1])
        factors.append(most / float(np.linalg.eigvalsh(V)[-1]))
        inner.append(estimate.inner_error)
        values, vectors = np.linalg.eigh(after / most)
        V = model.symmetry.project(together * ((vectors * np.maximum(values, _STAYS)) @ vectors.T))
    logs = np.log(factors[_BEFORE:])
    mean = math.exp(float(logs.mean()))
    return Growth(mean, mean * float(logs.std(ddof=1)) / math.sqrt(len(logs)), float(np.mean(inner)))


def _recovery_is_stable_from_there_on(subject: Subject, level: float) -> Tried:
    model = subject.model
    if model.noise:
        return left_out("under noise nothing is ever known perfectly")
    span, stable, uncertain = counting(model)
    finite = math.isfinite(stable)
    how = (stable, _LEFT) if finite else (1.0, _LEFT_OF_STEPS)
    samples, scrambles = (_SAMPLES, _SCRAMBLES) if finite else (_FEW_SAMPLES, _FEW_SCRAMBLES)
    omap = subject.overlap_map(samples, "perfect", scrambles=scrambles)
    found = growth_near_perfect(omap, *how)
    if found.inner > _ROUGH:
        return left_out(f"posteriors near Q = I are too rough to tell: {found.inner:.1g} of E")
    if finite:
        chance = _SURE * math.hypot(found.error, uncertain / stable)
        if chance > _MOST - 1:
            return left_out(f"too noisy to tell: what is left grows by {found.factor:.3g} +- {found.error:.1g}")
        worst = max((_LEAST - chance) / found.factor, found.factor / (_MOST + chance))
        said = f"at alpha = {stable:.4g} what is left grows by {found.factor:.3g} +- {found.error:.1g} a step"
    else:
        worst = _NEVER * len(span[0]) / found.factor
        said = f"never stable: at alpha = 1 what is left grows by {found.factor:.2g} a step"
    body = (
        "from smisym.theory.stability import counting\n"
        "from smisym.verify.recovery import growth_near_perfect\n\n"
        "print(counting(model))  # directions, the alpha from which on Q = I is stable, its error\n"
        "# what is left near Q = I grows in a step at this alpha, by 1 where it is that one:\n"
        f"print(growth_near_perfect(omap, {how[0]!r}, {how[1]!r}))"
    )
    holds = worst <= 1
    return Tried(omap.scrambles, "steps", worst, None, holds, said, "" if holds else lines_of_map(subject, omap, body))


def flat_at(omap: OverlapMap) -> float:
    """The alpha at which the free entropy is the same at both of two overlaps near I, c I with c a number."""
    eye, prior = np.eye(omap.model.fields), omap.model.prior
    near, nearer = (eye - left * eye for left in _ENDS)
    shown = [np.mean([e.log_partition for e in omap.evaluate(Q)]) for Q in (near, nearer)]
    gained = float(shown[1] - shown[0])
    return float(prior.entropy(near) - prior.entropy(nearer)) / gained if gained > 0 else math.inf


def _entropy_says_so(subject: Subject, level: float) -> Tried:
    model = subject.model
    if model.noise:
        return left_out("under noise nothing is ever known perfectly")
    omap = subject.overlap_map(_SAMPLES, "perfect entropy", scrambles=_SCRAMBLES)
    flat, eye = flat_at(omap), np.eye(model.fields)
    rough = float(np.mean([e.inner_error for e in omap.evaluate(eye - _ENDS[1] * eye)]))
    if rough > _ROUGH:
        return left_out(f"posteriors near Q = I are too rough to tell: {rough:.1g} of E")
    # Outputs in steps: what they tell grows no more.
    never = flat > _FLAT_NOWHERE * model.fields
    asked = ((1.0, -math.inf),) if never else ((_TIMES[0] * flat, -math.inf), (_TIMES[1] * flat, math.inf))
    stated = [float(free_entropy(omap, eye, alpha).value) for alpha, _ in asked]
    holds = all(value == expected for value, (_, expected) in zip(stated, asked, strict=True))
    where = f"is flat near I at alpha = {flat:.4g}" if not never else "falls towards I at any alpha"
    said = f"Phi {where}; Phi(I) = " + ", ".join(
        f"{value:g} at {alpha:.4g}" for value, (alpha, _) in zip(stated, asked, strict=True)
    )
    body = (
        f"for alpha in {tuple(float(alpha) for alpha, _ in asked)!r}:  # the last value is where the others lead to\n"
        "    for left in (1e-5, 1e-7, 0.0):\n"
        "        Q = (1 - left) * np.eye(model.fields)\n"
        "        print(alpha, left, smisym.free_entropy(omap, Q, alpha).value)"
    )
    shown = "" if holds else lines_of_map(subject, omap, body)
    return Tried(len(asked), "values of alpha", 0.0 if holds else math.inf, None, holds, said, shown)


PROPERTIES = (
    Property(
        "perfect",
        "From the alpha on that counting names, and no other, what is left to learn near Q = I decays.",
        "V -> E(V)^{-1} / alpha, by posteriors in place of derivatives of the link",
        "seconds",
        False,
        _recovery_is_stable_from_there_on,
    ),
    Property(
        "perfect-entropy",
        "The free entropy at Q = I is the infinity to which it grows or falls on the way there.",
        "Phi near I: (dim - alpha rank) / 2 log det V, a row",
        "seconds",
        False,
        _entropy_says_so,
    ),
)
