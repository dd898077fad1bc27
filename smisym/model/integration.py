"""What the posterior of a model is integrated over, and the step of the derivation that says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import sympy as sp

from smisym.base.counting import counted
from smisym.base.derivation import Derivation, Formula, Step
from smisym.base.errors import InputError, NoChartError
from smisym.charts import LevelSet, Rules, find_level_set, record_refusals
from smisym.link.components import find_components, record_components
from smisym.link.linking import LinkFunction
from smisym.link.rank import jacobian_rank
from smisym.link.statistic import Statistic
from smisym.link.symmetry import Symmetry
from smisym.model.channel import Channel, Part
from smisym.model.cutting import choose_shared, on_level_set
from smisym.posterior.all_fields import OnAllFields
from smisym.posterior.around import WEAK, AroundLevelSet, spread_of
from smisym.posterior.around_image import NEAR, AroundImage, refusal
from smisym.posterior.base import Posterior
from smisym.posterior.central_limit import ThroughStatistic, skewness
from smisym.posterior.composite import WhereNoiseIsWeak
from smisym.posterior.half_spaces import OnHalfSpaces, half_spaces_of
from smisym.posterior.image import Image, image_of
from smisym.posterior.pieces import on_all_fields
from smisym.posterior.slices import numeric_posterior


def choose_posterior(
    link: LinkFunction,
    noise: float,
    level_set: LevelSet | None,
    symmetry: Symmetry,
    derivation: Derivation,
    *,
    through: bool,
    rules: Rules | None = None,
) -> Posterior:
    """What the posterior is integrated over; under noise weak enough, around the level set where a chart allows it.

    through: by the additive statistic of the link, of which ``level_set`` is a chart then.
    """
    if through:
        if level_set is None and not noise and not _discrete(link):
            raise InputError(
                "statistic",
                "gaussian",
                "a noiseless output whose level set has a chart in the sum and the other fields, or one with noise",
                'declare noise > 0, or leave statistic out, which is statistic="exact"',
            )
        return ThroughStatistic(link, level_set, noise)
    cells = half_spaces_of(link, noise)
    if cells is not None and (level_set is None or not level_set.registered):
        _record_cells(cells, derivation)
        return cells
    if level_set is not None:
        return on_level_set(link, level_set, derivation, rules)
    if noise:
        return _under_noise(link, noise, derivation, rules)
    if not _discrete(link):
        return numeric_posterior(link, symmetry.signs)
    return OnAllFields(link, noise)


def choose_parts(
    link: LinkFunction, noise: float, symmetry: Symmetry, derivation: Derivation, rules: Rules | None
) -> tuple[Part, ...]:
    """The parts of a link that share no field, each with a channel of its own; none where it is one."""
    found = []
    components = find_components(link)
    for component in components:
        chart = None if noise else chart_of(component.link, Derivation(), rules)
        # A flip of rows of the whole is one of the rows of each part.
        own = replace(symmetry, signs=np.unique(symmetry.signs[:, list(component.rows)], axis=0)[::-1])
        posterior = choose_posterior(component.link, noise, chart, own, Derivation(), through=False, rules=rules)
        shared = None if chart is None else choose_shared(component.link, chart, rules)
        found.append(Part(component, Channel(component.link, posterior, noise, shared)))
    if components:
        record_components(link, components, derivation)
    return tuple(found)


def chart_of(link: LinkFunction, derivation: Derivation, rules: Rules | None) -> LevelSet | None:
    """The chart of a noiseless output, or None where no rule finds one."""
    try:
        return find_level_set(link, derivation, rules)
    except NoChartError as error:
        record_refusals(error.refusals, derivation)
        return None


def _under_noise(link: LinkFunction, noise: float, derivation: Derivation, rules: Rules | None) -> Posterior:
    """Around the level set of the noiseless link where the noise is weak and a chart allows it, else all fields."""
    everywhere = on_all_fields(link, noise)
    ratio = noise / max(spread_of(link), np.finfo(float).tiny)
    if ratio > WEAK:
        _record_noise(
            f"is {ratio:.3g} of it: the posterior is no thin shell, and all fields are integrated over", derivation
        )
        return everywhere
    kept = Derivation()
    try:
        noiseless = find_level_set(link, kept, rules)
    except NoChartError as error:
        _record_noise(
            f"is {ratio:.3g} of it, but the noiseless output has no chart: all fields are integrated over", derivation
        )
        record_refusals(error.refusals, derivation)
        return everywhere
    image = None if noiseless.unfolding is not None else image_of(link)
    reason = image if isinstance(image, str) else refusal(noiseless, image, ratio) if image is not None else ""
    if reason:
        _record_noise(
            f"is {ratio:.3g} of it, and the chart of the noiseless output ({noiseless.rule}) has no closed coordinates "
            f"of all outputs; {reason}. All fields are integrated over",
            derivation,
        )
        return everywhere
    for step in kept:
        derivation.add(step)
    if isinstance(image, Image):
        _record_noise(
            f"is {ratio:.3g} of it, and at most {NEAR:g}: the posterior is integrated around the level set, in "
            "coordinates of the image found numerically. The share of the mass near the maxima that has no such "
            "coordinates is added to the error; samples where it is above 2 % are integrated over all fields as well, "
            "and of both the better one is taken, with the gap between them as error",
            derivation,
            NEARBY,
        )
        return WhereNoiseIsWeak(AroundImage(noiseless, link, noise, image), everywhere)
    _record_noise(f"is {ratio:.3g} of it: the posterior is integrated around the level set", derivation, AROUND)
    return WhereNoiseIsWeak(AroundLevelSet(noiseless, link, noise), everywhere)


def _discrete(link: LinkFunction) -> bool:
    return jacobian_rank(link, tuple(range(link.fields)), np.random.default_rng(0)) == 0


AROUND = (
    Formula(
        r"p(y \mid \omega, V)",
        r"\int dv\, \mathcal{N}(y; f(v), \Delta I) \int dx\, \mathcal{N}(Z(x, v); \omega, V) "
        r"\left|\det \frac{\partial Z}{\partial (x, v)}\right|",
        "the Gaussian average of the noiseless channel; $x$ are coordinates on a level set, $v$ those of the output",
    ),
    Formula(
        "v",
        r"v_j + a\, S_j \sinh(t / a), \qquad a = \tfrac{5}{2}",
        "one component $j$ for each maximum of the posterior, $S_j$ from its covariance; $t$ is of order one",
    ),
    Formula(
        r"w_j(v)",
        r"\frac{c_j\, q_j(v)}{\sum_k c_k \sum_{\sigma} q_k(\sigma v)}",
        "the share of component $j$, $q_j$ its density, $\\sigma$ the sign flips that give the same fields: the shares "
        "of all components and flips add up to one, so that nothing is cut off or counted twice",
    ),
)


NEARBY = (
    Formula(
        r"p(y \mid \omega, V)",
        r"\int dv\, c(v)\, \mathcal{N}(y; f(v), \Delta I) \int dx\, w(u(v), x)\, \mathcal{N}(Z(x, u(v)); \omega, V)",
        "the Gaussian average of the noiseless channel; $u(v)$ are the chart's coordinates of the noiseless output "
        "$f(v)$",
    ),
    Formula(
        "v",
        r"U^{\top} (g(Z) - g(Z_0))",
        "coordinates of the image about its likeliest point: $g$ is what the output shows (log-ratios of a softmax), "
        "$U$ its tangent frame there; the fields at $v$ are found by Newton's method",
    ),
    Formula(
        r"c",
        r"\frac{|\det (\tau, G^{\top})|}{w \det G G^{\top}}, \qquad G = \frac{\partial v}{\partial Z}, \quad "
        r"\tau = \frac{\partial Z}{\partial x}",
        "what the weight of the chart leaves out, by the co-area formula at any one point of the level set; "
        "$|\\det du/dv|$ where it leaves nothing out",
    ),
)


_BESIDE = (
    " At a cavity covariance $V$ that variance is multiplied by the smallest variance of the solved fields given the "
    "free ones: where the noise is not weak beside the product, all fields are integrated over."
)


def _record_cells(posterior: OnHalfSpaces, derivation: Derivation) -> None:
    """That posteriors need no integral, and what they are."""
    n, k = posterior.cells.forms.shape[:2]
    seen = f"under noise of variance {posterior.noise:g}" if posterior.noise else "without noise"
    derivation.add(
        Step(
            "channel",
            "Cells in the place of an integral",
            f"The output is constant on {counted(n, 'cell')}, each where {counted(k, 'affine form')} of the fields "
            "(or fewer), rows of $A Z + b$, are all positive. The probability of a cell is that of so many normal "
            "numbers below $\\kappa$, and moments of the fields follow from its derivatives. "
            f"Outputs are seen {seen}: $l_c(y)$ is "
            + (
                "the likelihood of the output of cell $c$."
                if posterior.noise
                else "one on the cells of $y$, else zero."
            ),
            CELLS,
            source="Plackett, Biometrika 41 (1954) 351; Genz, Statistics and Computing 14 (2004) 251",
        )
    )


CELLS = (
    Formula(
        r"p(y \mid \omega, V)",
        r"\sum_c l_c(y)\, \Phi(\kappa_c)",
        "the sum over cells of the probability that normal numbers of variance one lie below their entries of "
        "$\\kappa$; correlations are those of the forms, from $A V A^{\\top}$",
    ),
    Formula(
        r"\kappa_{ci}",
        r"\frac{(A_c \omega + b_c)_i}{\sigma_{ci}}, \qquad \sigma_{ci}^2 = (A_c V A_c^{\top})_{ii}",
        "how far $\\omega$ is on this side of a plane, in deviations of its form",
    ),
    Formula(
        r"g_{\mathrm{out}}",
        r"\sum_c \frac{l_c(y)}{p(y)} \sum_i \frac{\partial \Phi}{\partial \kappa_{ci}} \frac{A_{ci}}{\sigma_{ci}}",
        "each derivative is a density times the same probability for one number fewer",
    ),
)


def _record_noise(choice: str, derivation: Derivation, formulas: tuple[Formula, ...] = ()) -> None:
    derivation.add(
        Step(
            "channel",
            "Integration under noise",
            f"Noise is weak where its variance is at most {WEAK:g} of the mean variance of the entries of the "
            f"noiseless output over standard normal fields. Here it {choice}.{_BESIDE if formulas else ''}",
            formulas,
            source="measured: from there on the same error costs fewer evaluations around the level set",
        )
    )


def record_statistic(link: LinkFunction, derivation: Derivation) -> None:
    """What the posterior is integrated through, and which approximation that is; InputError where there is no sum."""
    statistic = link.statistic
    if statistic is None:
        raise InputError(
            "statistic",
            "gaussian",
            "a network in which two layers or heads or more enter the output through one sum only",
            'leave statistic out, or declare limit="first_order" with three layers or more',
        )
    S = statistic.target
    derivation.add(
        Step(
            "statistic",
            "The sum through which layers enter the output",
            f"{statistic.summands} terms, each with fields of its own, enter the output through ${sp.latex(S)}$ only, "
            f"of which {statistic.dimension} numbers vary. Given the cavity they are taken for Gaussian, jointly with "
            "the other fields, with their own mean and covariance (linear and quadratic couplings between the terms "
            "included, all couplings with the other fields exactly). This is the central limit theorem: what is "
            "dropped is the third cumulant, of relative order $1/\\sqrt{n}$ in a single posterior of $n$ terms and "
            "$1/n$ in averages over outputs. The derivatives of the denoiser hold the covariance fixed, which is of "
            "the same order.",
            _statistic_formulas(statistic),
            (
                ("the output is a function of the sum and the other fields", _check_statistic(link)),
                ("what is dropped first", f"standardised third cumulant at omega = 0: {skewness(statistic):.2g}"),
                ("error for two tokens, tied, rank one, n terms with readouts 1/n", _MEASURED),
            ),
            source="arXiv 2502.00901, appendix A.4 (the committee); the closure is derived here",
        )
    )


# Against the exact channel, by benchmarks/committee.py.
_MEASURED = (
    "measured at n = 4, 8, 16: first threshold of the last layer 6e-4, 2e-4, 9e-5; growth rate of the committee at "
    "Q = 0 5 %, 3 %, 2 %, and where the overlap of the last layer is 0.99 8 %, 4 %, 1 %"
)


def _statistic_formulas(statistic: Statistic) -> tuple[Formula, ...]:
    S = sp.latex(statistic.target)
    terms = [
        Formula(f"s_{{{k}}}", kind.expression, f"{counted(len(kind.rows), 'term')} of this form, up to a factor")
        for k, kind in enumerate(statistic.kinds, start=1)
    ]
    moments = rf"\mathbb{{E}}[{S} \mid \omega], \quad \mathrm{{Cov}}[{S} \mid \omega]"
    denoiser = rf"(\partial \mu / \partial \omega_k)^{{\top}}\, \Sigma^{{-1}} (\mathbb{{E}}[{S} \mid y] - \mu)"
    program = [Formula(a.target, a.value, code=f"{a.target.name} = {a.value}") for a in statistic.program.assigns]
    return (
        *terms,
        Formula(r"\mu, \Sigma", moments, "by quadrature, term by term"),
        Formula(r"g_k", denoiser, "where the terms are not coupled with the other fields"),
        *program,
    )


def _check_statistic(link: LinkFunction) -> str:
    """That the program in the sum gives the link's outputs; raises where it does not."""
    statistic = link.statistic
    assert statistic is not None, "the program has no additive statistic"
    Z = np.random.default_rng(0).standard_normal((16, link.fields, link.tokens))
    reduced = link.through_statistic(np.concatenate([statistic(Z), Z[:, list(statistic.rest)]], axis=1))
    off = float(np.abs(reduced - link(Z)).max())
    if off > 1e-9:
        raise ArithmeticError(f"the program in the sum misses the link by {off:.1e}")
    return "equal outputs at 16 random fields"
