"""The compiled model held against its declaration, and the channel against its own log Zout, before anything rests on
them."""

from __future__ import annotations

import numpy as np

from smisym.base.counting import counted
from smisym.base.derivation import Formula, Step
from smisym.charts.checking import QUICK, check_chart
from smisym.declare.architecture import Architecture
from smisym.link.symmetry_check import symmetry_misfit
from smisym.trail import notation
from smisym.trail.claims import Claim, Part, inexact
from smisym.verify.averages import overlaps_of
from smisym.verify.identities import COVARIANCES, MEANS, MOST, ROUNDING, along
from smisym.verify.properties import Subject, Tried, left_out
from smisym.verify.tokens import mapping_misfit

# Dimensions at which the network is run on tokens, and runs of each.
_DIMENSIONS, _RUNS = (1, 2, 8, 64), 4
# A change of the output, relative, that no symmetry makes.
_CHANGE = 1e-7
# Cavities at which the channel is tried, tolerance of their posteriors, and errors with which one tells nothing.
_CAVITIES, _FINE, _TELLING = 5, 1e-5, 0.05


def _declared(subject: Subject) -> Step:
    model = subject.model
    text = (
        f"What follows rests on the link $f$ of "
        f"{counted(model.fields, 'field')} on {counted(model.tokens, 'token')}, on its symmetries "
        "and, where there is one, on its chart. Before it is used, "
        "the model as it is now is held against what was declared: "
        "the network is run on tokens with its full weight matrices, by code that knows no link."
    )
    return Step("trial", "The model against its declaration", text, (notation.fields(model),), source="derived here")


def _network_is_link(subject: Subject, level: float) -> Tried:
    declared = subject.model.architecture
    if declared is None:
        return left_out("a bare program has no tokens")
    if isinstance(declared, Architecture) and declared.limit == "ode":
        return left_out("infinitely many layers cannot be run; the step on large depth tries many")
    worst, number = 0.0, 0
    for dimension in _DIMENSIONS:
        for run in range(_RUNS):
            misfit = mapping_misfit(subject.model, dimension, subject.number("mapping", dimension, run) % 2**31)
            if misfit is not None:
                worst, number = max(worst, misfit), number + 1
    if not number:
        return left_out("outputs overflow")
    return Tried(number, "networks at D = 1 to 64", worst, None, worst <= 1)


def _symmetry_holds(subject: Subject, level: float) -> Tried:
    change = symmetry_misfit(subject.model)
    elements = len(subject.model.symmetry.elements)
    turns = counted(len(subject.model.symmetry.rotations), "rotation")
    said = f"{counted(elements, 'element')} of the group with the identity, {turns}"
    return Tried(64, "random fields", change / _CHANGE, None, change <= _CHANGE, said)


def _chart_holds(subject: Subject, level: float) -> Tried:
    chart = subject.model.level_set
    assert chart is not None
    checks = check_chart(chart.rule, subject.model.charted, chart, QUICK)
    if not checks:
        return left_out("rounding leaves too few points of the level set")
    return Tried(0, "", said=f"{counted(len(checks), 'statement')}, on {counted(chart.branches, 'sheet')}")


DECLARED = Part(
    _declared,
    (
        Claim("the network run on tokens shows what $f$ gives at the fields $Z$ of its weights", _network_is_link),
        Claim("the output is unchanged under every symmetry that is used", _symmetry_holds),
        Claim(
            "the chart gives the output back, with the measure of the surface, and holds every field",
            _chart_holds,
            applies=lambda subject: subject.model.level_set is not None,
        ),
    ),
)


# ------------------------------------------------------------------------------------------------------- the channel


def _channel(subject: Subject) -> Step:
    model = subject.model
    T = model.tokens
    text = (
        "Differentiating the Gaussian under the integral brings "
        "down $V^{-1}(Z - \\omega)$; a second time, the covariance. "
        "So moments of the posterior are derivatives of one function, $\\log Z_{\\mathrm{out}}$, whatever the link is. "
        "Here the derivatives are compared along segments of cavities, "
        "with the integrals of what is said to be the derivative: "
        "no step has to be small, and what is allowed is what the posteriors state of their own errors."
    )
    formulas = (
        Formula(
            r"Z_{\mathrm{out}}(y, \omega, V)",
            rf"\int \mathrm{{d}}Z\; {notation.given(model)} \prod_{{t=1}}^{{{T}}} \mathcal{{N}}(z_t;\, \omega_t,\, V)",
        ),
        Formula(
            r"g_{\mathrm{out}}",
            r"\partial_\omega \log Z_{\mathrm{out}} = "
            r"V^{-1}\left(\mathbb{E}[Z \mid y] - \omega\right)",
        ),
        Formula(
            r"\frac{\partial g_{ts}}{\partial \omega}",
            r"\partial^2_{\omega_t \omega_s} \log Z_{\mathrm{out}} = V^{-1} "
            r"\mathrm{Cov}[z_t, z_s \mid y]\, V^{-1} - \delta_{ts} V^{-1}",
        ),
    )
    return Step(
        "trial",
        "The denoiser is the gradient of log Zout",
        text,
        formulas,
        source="arXiv 2502.00901, eq. 12; derived here",
    )


def _cavities(subject: Subject) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(omega, Z, V) at random overlaps that symmetries allow."""
    model, found = subject.model, []
    for k in range(_CAVITIES):
        Q, rng = overlaps_of(subject, "cavity", k), subject.rng("cavity", k)
        A, B = model.prior.roots(Q)
        omega = A @ rng.standard_normal((model.fields, model.tokens))
        found.append((omega, omega + B @ rng.standard_normal(omega.shape), model.prior.law(Q).V))
    return found


def _fits(subject: Subject, level: float) -> Tried:
    """g_out and its derivative from mean and covariance, each as the channel gives it."""
    if reason := inexact(subject):
        return left_out(reason)
    channel, worst, number = subject.model.channel, 0.0, 0
    for k, (omega, Z, V) in enumerate(_cavities(subject)):
        y = channel.sample(Z[None], subject.rng("output", k))
        m = channel.moments(y, omega[None], V, cov=True, rtol=max(channel.plan.single, _FINE), max_nodes=MOST)
        error = float(m.bound[0])
        if not error < _TELLING or m.cov is None or m.dg is None:
            continue
        root = np.linalg.cholesky(V)
        inverse = np.linalg.inv(root)
        first = root.T @ m.g[0] - inverse @ (m.mean[0] - omega)
        one = np.einsum("pq,tu->ptqu", np.eye(len(V)), np.eye(Z.shape[1]))
        inside = np.einsum("ap,ptqu,bq->atbu", inverse, m.cov[0], inverse)
        second = np.einsum("pa,ptqu,qb->atbu", root, m.dg[0], root) - inside + one
        size = 1 + float(np.abs(inverse @ np.concatenate([m.mean[0], omega], axis=1)).max())
        for gap, times in ((first, MEANS), (second, COVARIANCES)):
            worst = max(worst, float(np.abs(gap).max()) / (times * error + ROUNDING * size))
        number += 1
    if not number:
        return left_out("no posterior was known well enough to tell")
    return Tried(number, "cavities", worst, None, worst <= 1)


def _slope_of(what: str, subject: Subject) -> Tried:
    if reason := inexact(subject):
        return left_out(reason)
    channel, worst, number = subject.model.channel, 0.0, 0
    for k, (omega, Z, V) in enumerate(_cavities(subject)):
        rng = subject.rng("output", k)
        y = channel.sample(Z[None], rng)
        step = rng.standard_normal(Z.shape)
        step = 0.75 * np.linalg.cholesky(V) @ step / np.linalg.norm(step)
        ends, integral, error = along(channel, y, omega, step, V, what, max(channel.plan.single, _FINE))
        if not float(np.max(error)) < _TELLING * max(1.0, float(np.abs(ends).max())):
            continue
        worst, number = max(worst, float(np.max(np.abs(ends - integral) / error))), number + 1
    if not number:
        return left_out("no posterior was known well enough to tell")
    return Tried(number, "segments of cavities", worst, None, worst <= 1)


CHANNEL = Part(
    _channel,
    (
        Claim("$g_{\\mathrm{out}}$ and its derivative are those of mean and covariance", _fits, few=True),
        Claim(
            "$\\log Z_{\\mathrm{out}}$ changes by the integral of $g_{\\mathrm{out}}$",
            lambda subject, level: _slope_of("log_partition", subject),
            few=True,
        ),
        Claim(
            "$g_{\\mathrm{out}}$ changes by the integral of its derivative",
            lambda subject, level: _slope_of("g", subject),
            few=True,
        ),
    ),
)
