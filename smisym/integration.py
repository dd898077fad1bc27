"""What the posterior of a model is integrated over, and the step of the derivation that says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from smisym.around import WEAK, AroundLevelSet, spread_of
from smisym.channel import Channel
from smisym.charts import LevelSet, find_level_set, record_refusals
from smisym.derivation import Derivation, Formula, Step
from smisym.errors import NoChartError
from smisym.link import LinkFunction
from smisym.measure import Measure, OnAllFields, OnLevelSet
from smisym.numeric import OnPoints, OnSlices, numeric_measure
from smisym.symmetry import Symmetry, jacobian_rank


def choose_measure(
    link: LinkFunction, level_set: LevelSet | None, symmetry: Symmetry, derivation: Derivation
) -> Measure:
    """What the posterior is integrated over; under noise weak enough, around the level set where a chart allows it."""
    if level_set is not None:
        return OnLevelSet(level_set, link.tokens)
    if not link.noise:
        discrete = jacobian_rank(link, tuple(range(link.fields)), np.random.default_rng(0)) == 0
        return OnAllFields(link) if discrete else numeric_measure(link, symmetry.signs)
    ratio = link.noise / max(spread_of(link), np.finfo(float).tiny)
    if ratio > WEAK:
        _record_noise(
            f"is {ratio:.3g} of it: the posterior is no thin shell, and all fields are integrated over", derivation
        )
        return OnAllFields(link)
    kept = Derivation()
    try:
        noiseless = find_level_set(replace(link, noise=0.0), kept)
    except NoChartError as error:
        _record_noise(
            f"is {ratio:.3g} of it, but the noiseless output has no chart: all fields are integrated over", derivation
        )
        record_refusals(error.refusals, derivation)
        return OnAllFields(link)
    if noiseless.unfolding is None:
        reason = (
            f"the chart of the noiseless output ({noiseless.rule}) does not give all outputs independent coordinates"
        )
        _record_noise(f"is {ratio:.3g} of it, but {reason}: all fields are integrated over", derivation)
        return OnAllFields(link)
    for step in kept:
        derivation.add(step)
    _record_noise(f"is {ratio:.3g} of it: the posterior is integrated around the level set", derivation, AROUND)
    return AroundLevelSet(noiseless, link)


AROUND = (
    Formula(
        r"p(y \mid \omega, V)",
        r"\int dv\, \mathcal{N}(y; f(v), \Delta I) \int dx\, \mathcal{N}(Z(x, v); \omega, V) "
        r"\left|\det \frac{\partial Z}{\partial (x, v)}\right|",
        "the Gaussian average of the noiseless channel; x are coordinates on a level set, v those of the output",
    ),
    Formula(
        "v",
        r"v_j + a\, S_j \sinh(t / a), \qquad a = \tfrac{5}{2}",
        "one component j for each maximum of the posterior, S_j from its covariance; t is of order one",
    ),
    Formula(
        r"w_j(v)",
        r"\frac{c_j\, q_j(v)}{\sum_k c_k \sum_{\sigma} q_k(\sigma v)}",
        "the share of component j, q_j its density, sigma the sign flips that give the same fields: the shares of all "
        "components and flips add up to one, so that nothing is cut off or counted twice",
    ),
)


_BESIDE = (
    " At a cavity covariance V that variance is multiplied by the smallest variance of the solved fields given the "
    "free ones: where the noise is not weak beside the product, all fields are integrated over."
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


def record_channel(channel: Channel, level_set: LevelSet | None, derivation: Derivation) -> None:
    d = channel.free_dimensions
    how = {0: "a finite sum over the branches"}.get(
        d,
        "an adaptive lattice"
        if d <= 2
        else "an adaptive lattice or importance sampling"
        if d <= 4
        else "importance sampling",
    )
    if isinstance(channel.measure, OnPoints):
        where = (
            "no rule found a closed chart; each output leaves finitely many fields, found numerically from many starts "
            "until every solution was reached several times"
        )
        how = "a finite sum over them, with weight 1 / sqrt(det J^T J)"
    elif isinstance(channel.measure, OnSlices):
        count = len(channel.measure.choices)
        how = "importance sampling"
        where = (
            f"no rule found a closed chart; {d} of the fields are integrated and the others solved for numerically, in "
            f"{count} choice(s) that share the level set in proportion to the squares of their Jacobians"
        )
    elif level_set is None and not channel.link.noise:
        how = "importance sampling"
        where = f"the output is discrete, so that the posterior is the Gaussian of all {d} fields cut to a cell"
    elif isinstance(channel.measure, AroundLevelSet):
        where = (
            f"the output has weak noise of variance {channel.link.noise:g}, so that the posterior lives around the "
            f"level set: {d} dimensions with the coordinates of the output"
        )
    elif level_set is None:
        where = (
            f"the output has noise of variance {channel.link.noise:g}, so that the posterior lives on all {d} fields"
        )
    else:
        where = f"the posterior lives on the level set: {d} free dimension(s) and {level_set.branches} branches"
    derivation.add(
        Step(
            "channel",
            "Posterior moments and the denoiser",
            f"Given one output and the cavity Gaussian of its fields, {where}, integrated by {how}. All that the "
            "solvers need follows from its first two moments; no derivative is taken numerically.",
            (
                Formula(r"Z", r"\omega + L\zeta, \qquad V = L L^{\top}", "whitened, free rows first"),
                Formula(r"g_{\mathrm{out}}", r"V^{-1}(\mathbb{E}[Z \mid y] - \omega) = L^{-\top}\,\mathbb{E}[\zeta]"),
                Formula(
                    r"\frac{\partial g_{\mathrm{out}}}{\partial \omega}",
                    r"V^{-1}\,\mathrm{Cov}[Z]\,V^{-1} - V^{-1} = L^{-\top}(\mathrm{Cov}[\zeta] - I)L^{-1}",
                ),
                Formula(
                    r"\log Z_{\mathrm{out}}", r"\log p(y \mid \omega, V)", "a density in the chart's coordinates of y"
                ),
            ),
            source="arXiv 2502.00901, eq. 12; identities of the Gaussian integral",
        )
    )
