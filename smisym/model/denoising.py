"""The step of the derivation on posterior moments and the denoiser."""

from __future__ import annotations

from smisym.base.counting import counted
from smisym.base.derivation import Derivation, Formula, Step
from smisym.charts import LevelSet
from smisym.model.channel import Channel
from smisym.posterior.central_limit import ThroughStatistic
from smisym.posterior.composite import WhereNoiseIsWeak
from smisym.posterior.points import OnPoints
from smisym.posterior.slices import OnSlices

_NORMAL = r"\mathcal{N}"
_VARIANCE = "$\\Delta$: the variance of the noise"
_MOMENTS = "$\\mathbb{E}[\\varphi(Z) \\mid y]$ is the same with $\\varphi(Z)$ inside, over $Z_{\\mathrm{out}}$"


def record_channel(channel: Channel, level_set: LevelSet | None, derivation: Derivation) -> None:
    """How the channel's posteriors are integrated, in the posterior's own words, and which integral that is."""
    where, how = channel.posterior.describe()
    first = "; the rows of free fields first" if level_set is not None and level_set.free_rows else ""
    derivation.add(
        Step(
            "channel",
            "Posterior moments and the denoiser",
            f"Given one output and the cavity Gaussian of its fields, {where}, integrated by {how}. All that the "
            "solvers need follows from its first two moments; no derivative is taken numerically.",
            (
                _partition(channel, level_set),
                Formula(
                    r"Z",
                    r"\omega + L\zeta, \qquad V = L L^{\top}",
                    f"$L$ is lower triangular, and $\\zeta$ standard normal before $y$ is seen{first}",
                ),
                Formula(
                    r"g_{\mathrm{out}}", r"V^{-1}(\mathbb{E}[Z \mid y] - \omega) = L^{-\top}\,\mathbb{E}[\zeta \mid y]"
                ),
                Formula(
                    r"\frac{\partial g_{\mathrm{out}}}{\partial \omega}",
                    r"V^{-1}\,\mathrm{Cov}[Z \mid y]\,V^{-1} - V^{-1} "
                    r"= L^{-\top}(\mathrm{Cov}[\zeta \mid y] - I)L^{-1}",
                ),
            ),
            source="arXiv 2502.00901, eq. 12; identities of the Gaussian integral",
        )
    )


def _partition(channel: Channel, level_set: LevelSet | None) -> Formula:
    """Z_out as the integral that is done."""
    left = r"Z_{\mathrm{out}}(y, \omega, V) = p(y \mid \omega, V)"
    statistic = isinstance(channel.posterior, ThroughStatistic)
    told = (
        "; $Z$ here are the sum and the other fields, $\\omega$ and $V$ their mean and covariance" if statistic else ""
    )
    if level_set is not None:
        return _on_sheets(left, level_set, channel.tokens, told)
    if channel.noise:
        weak = "in the coordinates of the steps before; " if isinstance(channel.posterior, WhereNoiseIsWeak) else ""
        right = rf"\int dZ\, {_NORMAL}(y; f(Z), \Delta I)\, {_NORMAL}(Z; \omega, V)"
        return Formula(left, right, f"{_VARIANCE}; {weak}{_MOMENTS}{told}")
    if isinstance(channel.posterior, OnSlices):
        right = rf"\int_{{f(Z) = y}} \frac{{dS}}{{\sqrt{{\det J J^{{\top}}}}}}\, {_NORMAL}(Z; \omega, V)"
        return Formula(left, right, f"over the surface, {_jacobian(channel.posterior)}; {_MOMENTS}")
    if isinstance(channel.posterior, OnPoints):
        right = rf"\sum_{{Z:\, f(Z) = y}} \frac{{1}}{{\sqrt{{\det J^{{\top}} J}}}}\, {_NORMAL}(Z; \omega, V)"
        return Formula(left, right, f"over the fields that give $y$, {_jacobian(channel.posterior)}; {_MOMENTS}")
    return Formula(left, rf"\int_{{f(Z) = y}} dZ\, {_NORMAL}(Z; \omega, V)", f"a probability; {_MOMENTS}{told}")


def _on_sheets(left: str, level_set: LevelSet, tokens: int, told: str) -> Formula:
    """The sum over sheets of integrals over their coordinates."""
    several, free = level_set.branches > 1, len(level_set.free_rows) * tokens + len(level_set.latents)
    index = "_s" if several else ""
    over = (["x"] if free else []) + (["c"] if level_set.directions else [])
    at = f"({', '.join([*over, 'u'])})"
    total = rf"\sum_{{s=1}}^{{{level_set.branches}}} " if several else ""
    integral = r"\int " + r"\, ".join(f"d{x}" for x in over) + r"\, " if over else ""
    right = rf"{total}{integral}w{index}{at.replace('c, ', '')}\, {_NORMAL}(Z{index}{at}; \omega, V)"
    said = [f"$s$: {counted(level_set.branches, 'sheet')} of the level set"] if several else []
    if free and level_set.pieces:
        said.append(f"$x$: its free coordinates, up to {free}; a sheet that has none is not integrated over")
    elif free:
        said.append(f"$x$: its {counted(free, 'free coordinate')}")
    if level_set.directions:
        said.append(f"$c$: along {counted(level_set.directions, 'straight direction')}, in closed form")
    said.append(f"$u$: the coordinates of $y${_left_out(level_set)}")
    said.append("$w$ and $Z$ as in the step on the chart")
    return Formula(left, right, "; ".join([*said, _MOMENTS]) + told)


def _left_out(level_set: LevelSet) -> str:
    """What the sum is in the coordinates of y: nothing is left out of a density, nor of the probability of what is
    discrete."""
    if level_set.density or level_set.complete:
        return ", in which this is a density"
    return ", a factor of $y$ alone is left out" if level_set.dimension else ""


def _jacobian(posterior: OnSlices | OnPoints) -> str:
    """What J is: where every output is told by itself this is the density of y, else it is that of what y shows."""
    surface, dim = posterior.surface, posterior.dim
    alone = len(surface.seen_outputs) == surface.entries - dim and not surface.link.output_is_softmax
    return "$J = \\partial f / \\partial Z$" + ("" if alone else "; a factor of $y$ alone is left out")
