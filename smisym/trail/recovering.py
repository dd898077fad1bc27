"""What is learned later, and when everything is known: the staircase, and perfect recovery by counting equations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from smisym.base.derivation import Formula, Step
from smisym.link.program import is_analytic
from smisym.theory.stability import counting
from smisym.trail import notation
from smisym.trail.claims import Claim, Part
from smisym.trail.samples import by_chance, map_of, overlap_of
from smisym.trail.starting import first_threshold
from smisym.verify.averages import differences
from smisym.verify.chance import Verdict, means_vanish
from smisym.verify.properties import Subject, Tried, left_out

# Fields at which ranks are taken, their size, step of differences, and singular values, of the largest, that are none.
_FIELDS, _PLAIN, _NEAR, _STEP, _NONE = 32, 1024, 0.5, 1e-4, 1e-6
# Spans that are written out, at most.
_SHOWN = 8


def _which(subject: Subject) -> str:
    """What is left for later thresholds of this model."""
    symmetry = subject.model.symmetry
    if len(symmetry.basis) == 1:
        return "Symmetries leave one number of this model's overlap, so that no weak recovery comes later."
    trivial = [one for one in first_threshold(subject).every if one.kind == "trivial"]
    if sum(len(one.names) for one in trivial) == len(symmetry.directions):
        return "All parts of this model are trivial, so that no weak recovery comes later."
    return (
        f"This model has {len(symmetry.directions)} parts; the command smisym thresholds solves for where those that "
        "are not learned at first are, in minutes, and gives each threshold with its error."
    )


def _later(subject: Subject) -> Step:
    model = subject.model
    alpha = notation.samples(model)
    text = (
        "What is learned first is not learned perfectly at once: it has "
        "the overlap of the fixed point at that $\\alpha$. Linearised there, "
        "state evolution of what is still idle has an operator of its own, "
        "the derivative of $E$ at that overlap along idle blocks, and a "
        "later threshold is where its largest eigenvalue passes one. Taking "
        "what was learned for known perfectly would give another, wrong number. " + _which(subject)
    )
    formulas = (
        Formula(
            r"\mathrm{d}E(Q)[M]",
            r"\mathbb{E} \sum_{t,s} \frac{\partial g_t}{\partial \omega_s}\, "
            r"M\, \left(\frac{\partial g_t}{\partial \omega_s}\right)^{\top}",
            "exact at any overlap: It\u014d's rule for $g$, a martingale in what is known",
        ),
        Formula(
            r"\alpha_{k}",
            rf"\text{{the least }} \alpha:\quad {alpha}\, "
            rf"\lambda_{{\max}}\left(\mathrm{{d}}E(Q(\alpha))\big|_{{\text{{idle}}}}\right) = 1",
            r"$Q(\alpha)$ the fixed point of what is learned",
        ),
    )
    return Step(
        "recovery",
        "Later thresholds",
        text,
        formulas,
        source="arXiv 2502.00901, theorem 2.3, eqs 17-18; the derivative at any overlap is derived here",
    )


def _derivative_is_its_own(subject: Subject, level: float) -> Tried:
    Q, step = overlap_of(subject)

    def test(stage: int, times: int) -> Verdict:
        omap = map_of(subject, stage, times)
        gaps, allowed = differences(omap, Q, step)
        found = means_vanish(gaps, allowed)
        return Verdict(found.t, found.p, found.which, 5 * omap.samples, found.error, stage + 1)

    return by_chance(subject, level, test, "samples, at five overlaps of a segment")


LATER = Part(
    _later,
    (Claim("differences of $E$ are integrals of that derivative", _derivative_is_its_own, posteriors=True),),
)


# ---------------------------------------------------------------------------------------------------------- counting


def spans(subject: Subject) -> Iterator[tuple[str, np.ndarray]]:
    """(LaTeX, directions (d, P)) of spans of rows, those of few and the whole first."""
    names, P = notation.rows(subject.model), subject.model.fields
    sizes = [P, *range(1, P)]
    for size in sizes:
        for chosen in itertools.combinations(range(P), size):
            yield ",\\, ".join(names[r] for r in chosen), np.eye(P)[list(chosen)]


def _shown(subject: Subject) -> list[tuple[str, np.ndarray]]:
    return list(itertools.islice(spans(subject), _SHOWN))


def _counting(subject: Subject) -> tuple[np.ndarray, float, float]:
    found: tuple[np.ndarray, float, float] = subject.once("counting", lambda: counting(subject.model))
    return found


def _counted(subject: Subject) -> Step:
    model = subject.model
    H = model.prior.multiplicity
    if model.noise:
        text = (
            f"Under noise of variance {model.noise:g} no finite number of "
            "outputs per dimension pins the weights down: $Q = I$ is reached "
            "at no finite $\\alpha$."
        )
        return Step(
            "recovery",
            "Perfect recovery",
            text,
            (Formula(r"\alpha_{\mathrm{perfect}}", r"\infty"),),
            source="derived here",
        )
    text = (
        "Near $Q = I$ the posterior of a noiseless output is Gaussian on "
        "the tangent space of its level set, so that $E$ is homogeneous of "
        "degree $-1$ in $V = I - Q$ and $\\mathrm{tr}\\, V E = K$, the mean rank "
        "of the output's derivative: $K$ equations are met in each sample. On a "
        "subspace $\\mathcal{S}$ of the rows the count is $K_{\\mathcal{S}}$. $V$ shrinks from step to "
        "step where the samples bring more equations than there are unknowns, "
        "on every $\\mathcal{S}$. A gauge of the weights does not change the count; directions that a sample "
        "does not see do."
    )
    formulas = [
        Formula(
            r"K_{\mathcal{S}}",
            r"\mathbb{E}\, \mathrm{rank}\, \left.\frac{\partial "
            r"f}{\partial Z}\right|_{\mathcal{S} \otimes \mathbb{R}^{" + str(model.tokens) + "}}",
        ),
        Formula(
            r"\alpha_{\mathrm{perfect}}",
            rf"\max_{{\mathcal{{S}}}} \frac{{\dim \mathcal{{S}}}}{{{H if H > 1 else ''}K_{{\mathcal{{S}}}}}}",
            "local stability of $Q = I$",
        ),
    ]
    numbers = model.prior.dimension(np.eye(model.fields))
    if numbers != model.fields:
        formulas.append(
            Formula(r"\dim \mathcal{S}", f"{numbers:.6g}", "of so many numbers a column of W is made under this law")
        )
    ranks = model.jacobian_ranks(np.random.default_rng(0))
    for name, span in _shown(subject):
        formulas.append(Formula(rf"K_{{\{{{name}\}}}}", f"{ranks(span)[0]:.6g}"))
    _, stable, error = _counting(subject)
    value = r"\infty" if math.isinf(stable) else f"{stable:.4g}"
    formulas.append(
        Formula(r"\alpha_{\mathrm{perfect}}", value, "as solvers count" + ("" if not error else ", a mean over fields"))
    )
    return Step(
        "recovery",
        "Perfect recovery by counting",
        text,
        tuple(formulas),
        source="derived here; the lower bound by the inequality of means",
    )


def _ranks(subject: Subject, span: np.ndarray) -> np.ndarray:
    """(n,) ranks of the output's derivative on a span, by central differences of what is observed."""
    model = subject.model
    analytic = is_analytic(model.link.program)
    count = _FIELDS if analytic else _PLAIN
    Z = subject.rng("ranks").standard_normal((count, model.fields, model.tokens)) * (_NEAR if analytic else 1.0)
    columns = []
    with np.errstate(all="ignore"):
        for direction in span:
            for t in range(model.tokens):
                step = np.zeros((model.fields, model.tokens))
                step[:, t] = _STEP * direction
                gap = (model.link.raw(Z + step) - model.link.raw(Z - step)).reshape(count, -1) / (2 * _STEP)
                columns.append(gap)
    J = np.stack(columns, axis=2)
    finite = np.isfinite(J).all(axis=1).all(axis=1)
    values = np.linalg.svd(np.where(finite[:, None, None], J, 0.0), compute_uv=False)
    # A jump between the two ends is no slope.
    found = (values > _NONE * np.maximum(values[:, :1], 1e-300)).sum(axis=1)[finite]
    return np.full(len(found), found.max()) if analytic and len(found) else found


def _ranks_agree(subject: Subject, level: float) -> Tried:
    model = subject.model
    ranks, worst, best, number = model.jacobian_ranks(np.random.default_rng(0)), 0.0, 0.0, 0
    for _, span in _shown(subject):
        found = _ranks(subject, span)
        if not len(found):
            continue
        told, error = ranks(span)
        spread = math.hypot(error, float(found.std()) / math.sqrt(len(found)))
        worst, number = max(worst, abs(float(found.mean()) - told) / (6 * spread + 1e-9)), number + 1
        seen = max(float(found.mean()) * model.prior.multiplicity, 1e-300)
        best = max(best, model.prior.dimension(span) / seen / (1 + 6 * spread))
    if not number:
        return left_out("derivatives are not finite at any of the fields")
    stable = _counting(subject)[1]
    worst = max(worst, best / (stable * (1 + 1e-9)))
    # The largest of all counts is no smaller than any: a share of one is where both agree.
    holds = worst <= 1
    return Tried(
        number,
        "spans of rows" if number > 1 else "span of rows",
        0.0 if holds else worst,
        None,
        holds,
        "and $\\alpha_{\\mathrm{perfect}}$ is below none of them",
    )


COUNTED = Part(
    _counted,
    (
        Claim(
            "ranks on spans of rows are those of central differences of what is observed",
            _ranks_agree,
            applies=lambda subject: not subject.model.noise,
        ),
    ),
)
