"""Errors of predicting a new output at an overlap: Bayes, Gibbs and plug-in, which differ."""

from __future__ import annotations

import numpy as np

from smisym.base.derivation import Formula, Step
from smisym.theory.prediction import prediction_errors
from smisym.trail.claims import Claim, Part
from smisym.trail.samples import by_chance, overlap_of
from smisym.verify.chance import Verdict, groups, means_vanish
from smisym.verify.properties import Subject, Tried

# Plain draws, and samples and scrambles of the solver.
_DRAWS, _SAMPLES, _SCRAMBLES = 16384, 8192, 16


def _written(subject: Subject) -> Step:
    model = subject.model
    K = int(np.prod(model.link.output_shape))
    noise = (
        f" Noise of variance ${model.noise:g}$ on each of the {K} entries "
        f"adds {K * model.noise:g} to Bayes and plug-in, twice that to Gibbs."
        if model.noise
        else ""
    )
    text = (
        "At overlap $Q$ the fields of a new sample are $Z = \\omega + (I - "
        "Q)^{1/2} \\xi'$, of which the estimate sees $\\omega$. The Bayes error is the "
        "least of any predictor: that of the mean output given $\\omega$. "
        "Gibbs predicts by one posterior sample $Z'$, which differs from the "
        "truth as two samples do: twice Bayes. Plug-in puts the mean fields "
        "into the link, which is cheap and no optimum." + noise
    )
    formulas = (
        Formula(r"\varepsilon_{\mathrm{Bayes}}", r"\mathbb{E} \left\| f(Z) - \mathbb{E}[f(Z) \mid \omega] \right\|^2"),
        Formula(
            r"\varepsilon_{\mathrm{Gibbs}}",
            r"\mathbb{E} \left\| f(Z) - f(Z') \right\|^2 "
            r"= 2\, \varepsilon_{\mathrm{Bayes}}",
        ),
        Formula(
            r"\varepsilon_{\mathrm{plug-in}}",
            r"\mathbb{E} \left\| f(Z) - f(\omega) \right\|^2",
            f"squared norms over the {K} entries of the output",
        ),
    )
    return Step(
        "prediction", "Prediction errors", text, formulas, source="arXiv 2502.00901, theorem 2.1, eq. 11; derived here"
    )


def _errors_are_means(subject: Subject, level: float) -> Tried:
    Q, _ = overlap_of(subject)
    model = subject.model

    def test(stage: int, times: int) -> Verdict:
        how = {"samples": _SAMPLES * times, "scrambles": _SCRAMBLES, "seed": subject.number("prediction", stage)}
        found = prediction_errors(model, Q, **how)
        theirs = np.array([found[name].history[0]["scrambles"] for name in ("gibbs", "plug_in")]).T
        A, B = model.prior.roots(Q)
        rng = subject.rng("prediction", stage)
        omega = A @ rng.standard_normal((_DRAWS * times, model.fields, model.tokens))
        first, second = (model.link(omega + B @ rng.standard_normal(omega.shape)) for _ in range(2))
        flat = lambda y: y.reshape(len(y), -1)  # noqa: E731
        gibbs = (flat(first - second) ** 2).sum(axis=1)
        plug_in = (flat(first - model.link(omega)) ** 2).sum(axis=1)
        means = groups(np.stack([gibbs, plug_in], axis=1)).reshape(_SCRAMBLES, -1, 2).mean(axis=1)
        verdict = means_vanish(means - theirs, 1e-9)
        return Verdict(verdict.t, verdict.p, verdict.which, len(omega), verdict.error, stage + 1)

    return by_chance(subject, level, test, "plain draws at a random overlap")


PREDICTION = Part(
    _written,
    (Claim("solvers' Gibbs (twice Bayes) and plug-in errors are plain means over pairs of fields", _errors_are_means),),
)
