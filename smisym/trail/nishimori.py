"""Nishimori identities: the truth is one more sample of the posterior, and averages that exchange both agree."""

from __future__ import annotations

import numpy as np

from smisym.base.derivation import Formula, Step
from smisym.model.calibrating import NAMES, calibration
from smisym.trail import notation
from smisym.trail.claims import Claim, Part
from smisym.trail.samples import by_chance, drawn, map_of, overlap_of, vanish
from smisym.verify.chance import Verdict, from_means, means_vanish
from smisym.verify.properties import Subject, Tried

# Outputs whose probability is added up; multiple of the errors of means that covariances may have; rounding.
_OUTPUTS, _COVARIANCES, _ROUNDING = 2048, 3.0, 1e-9


def _written(subject: Subject) -> Step:
    model = subject.model
    noise = f"with its noise of variance {model.noise:g}" if model.noise else "noiseless as it is"
    text = (
        f"The channel, {noise}, is known: the law by which $y$ was "
        "made is the law by which it is read. So $(y, Z^*)$ and "
        "$(y, Z)$ with $Z$ drawn from the posterior have one joint law, "
        "and any average is unchanged if one takes the place of the other. "
        "These identities know nothing of charts and integrals: a "
        "sheet that is missing, a wrong Jacobian, or a noise that "
        "is not the declared one breaks them. They also say that three estimators of $E$ have one mean."
    )
    T = model.tokens
    formulas = (
        Formula(
            r"\mathbb{E}\, m\, m^{\top}",
            r"\mathbb{E}\, m\, {Z^*}^{\top}",
            r"$m = \mathbb{E}[Z \mid y]$",
        ),
        Formula(
            r"\mathbb{E}\, (Z^* - m)(Z^* - m)^{\top}",
            rf"\mathbb{{E}} \sum_{{t=1}}^{{{T}}} \mathrm{{Cov}}[z_t \mid y]",
        ),
        Formula(
            r"E(Q)",
            r"\mathbb{E} \sum_t g_t g_t^{\top} = -\mathbb{E} \sum_t \frac{\partial g_t}{\partial "
            r"\omega_t} = \mathbb{E} \sum_t g_t\, {g^*_t}^{\top}, \qquad g^* = V^{-1}(Z^* - \omega)",
        ),
        Formula(
            r"\mathbb{E}_y\, \frac{Z_{\mathrm{out}}(y, \omega, V)}{Z_{\mathrm{out}}(y, \omega', V')}",
            "1",
            r"$y$ made at $(\omega', V')$, any $V \preceq V'$, "
            rf"$p(y \mid Z) = {notation.given(model)}$",
        ),
    )
    return Step(
        "nishimori",
        "The truth is a sample of the posterior",
        text,
        formulas,
        source="doi 10.1088/0022-3719/13/21/012; arXiv 1511.02476; arXiv 2502.00901, D.1",
    )


def _truth_is_a_sample(subject: Subject, level: float) -> Tried:
    Q, _ = overlap_of(subject)
    model = subject.model

    def test(stage: int, times: int) -> Verdict:
        plain = drawn(subject, Q, "Q", stage, times)
        f, t = plain.g, plain.true
        one = np.eye(model.fields)
        inside = np.einsum("nptqt->npq", plain.dg) + model.tokens * one
        omega = np.linalg.solve(plain.units, plain.omega)
        gaps = [
            np.einsum("npt,nqt->npq", f, t - f),
            np.einsum("npt,nqt->npq", omega, t - f),
            np.einsum("npt,nqt->npq", t - f, t - f) - inside,
        ]
        values = np.concatenate([gap.reshape(len(f), -1) for gap in gaps], axis=1)
        error = 4 * np.sqrt(model.fields * model.tokens) * float(plain.moments.error.mean())
        return vanish(values, error + _ROUNDING)

    return by_chance(subject, level, test, "outputs at a random overlap")


def _probability_is_kept(subject: Subject, level: float) -> Tried:
    which: list[str] = []

    def test(stage: int, times: int) -> Verdict:
        found = calibration(subject.model.channel, _OUTPUTS * times, subject.number("probability", stage))
        verdict = from_means(found.means, found.errors, found.samples, _ROUNDING + found.quadrature)
        which[:] = [NAMES[verdict.which]]
        return Verdict(verdict.t, verdict.p, verdict.which, found.samples, float(found.errors.max()), stage + 1)

    found = by_chance(subject, level, test, "outputs of random fields")
    if found.holds:
        return found
    return Tried(found.number, found.unit, found.worst, found.p, False, f"not conserved: {which[0]}")


def _estimators_agree(subject: Subject, level: float) -> Tried:
    Q, _ = overlap_of(subject)

    def test(stage: int, times: int) -> Verdict:
        omap = map_of(subject, stage, times)
        estimates = omap.evaluate(Q)
        gaps = np.array([e.gap.ravel() for e in estimates])
        stated = _COVARIANCES * float(np.mean([e.inner_error for e in estimates])) + _ROUNDING
        found = means_vanish(gaps, stated)
        return Verdict(found.t, found.p, found.which, omap.samples, found.error, stage + 1)

    return by_chance(subject, level, test, "samples of the overlap map")


IDENTITIES = Part(
    _written,
    (
        Claim(
            "true fields, posterior means and covariances fit each other, on average over outputs",
            _truth_is_a_sample,
            posteriors=True,
        ),
        Claim(
            "probability is conserved: ratios of $Z_{\\mathrm{out}}$ have mean one",
            _probability_is_kept,
            posteriors=True,
        ),
        Claim("the three estimators of $E$ agree", _estimators_agree, posteriors=True),
    ),
)
