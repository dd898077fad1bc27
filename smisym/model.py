"""``compile``: Architecture -> link -> symmetry -> level set -> channel -> Model.  Sympy stops here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import sympy as sp

from smisym.architecture import Architecture
from smisym.central_limit import ThroughStatistic, skewness
from smisym.channel import Channel
from smisym.charts import LevelSet, find_level_set, record_refusals
from smisym.derivation import Derivation, Formula, Step
from smisym.errors import InputError, NoChartError
from smisym.link import LinkFunction, Observation, link_function
from smisym.measure import Measure, OnAllFields, OnLevelSet
from smisym.program import Program
from smisym.smi import SMI
from smisym.statistic import Statistic
from smisym.symmetry import Symmetry, find_symmetry, jacobian_rank


@dataclass(frozen=True)
class Model:
    """Everything that solvers need, as plain arrays and callables.

    ``architecture`` is None for a model compiled from an anonymous program.  ``level_set`` is a chart of the link in
    the fields, or in the statistic and the fields beside it where the declaration says ``statistic="gaussian"``.
    """

    architecture: Architecture | SMI | None
    link: LinkFunction
    symmetry: Symmetry
    level_set: LevelSet | None
    channel: Channel
    derivation: Derivation

    @property
    def fields(self) -> int:
        """P, the number of rows of Z."""
        return self.link.fields

    @property
    def tokens(self) -> int:
        """T, the number of columns of Z."""
        return self.link.tokens

    @property
    def slices(self) -> int:
        """Into how many slices the embedding is cut; each has slices * alpha samples per dimension."""
        return self.link.slices

    @property
    def row_slices(self) -> tuple[int, ...]:
        """The slice of the embedding that each row of Z lives on."""
        return self.link.row_slices

    @property
    def row_layers(self) -> tuple[int, ...]:
        """Layer, counted from 1, of each row of Z."""
        return self.link.row_layers

    @property
    def labels(self) -> tuple[str, ...]:
        """A plain name for each row of Z."""
        return self.link.labels

    def observe(self, Z: np.ndarray) -> Observation:
        """The output at fields Z (S, P, T), with its exact log-ratios."""
        return self.link.observe(Z)

    def jacobian_rank(self, rows: tuple[int, ...], rng: np.random.Generator) -> float:
        """K_S: mean rank of df/dZ restricted to the given rows (theory of perfect recovery)."""
        return jacobian_rank(self.link, rows, rng)


def compile(architecture: Architecture | SMI | Program) -> Model:
    """Derive a Model from a declaration (or from a bare :class:`~smisym.program.Program`).

    Raises InputError for a declaration that no pass covers, NoChartError when no rule finds a chart.
    """
    derivation = Derivation(title="From the declaration to the denoiser")
    # The recursion comes first: everything else reads the program, never the architecture.
    link = link_function(architecture, derivation)
    declared = None if isinstance(architecture, Program) else architecture
    symmetry = find_symmetry(link, derivation)
    through = isinstance(declared, Architecture) and declared.statistic == "gaussian"
    if through:
        record_statistic(link, derivation)
    level_set = _level_set(link.through_statistic if through else link, derivation)
    measure: Measure
    if through:
        measure = ThroughStatistic(link, level_set)
    else:
        measure = OnAllFields(link) if level_set is None else OnLevelSet(level_set, link.tokens)
    channel = Channel(link, measure)
    _record(channel, level_set, derivation)
    return Model(declared, link, symmetry, level_set, channel, derivation)


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
        Formula(f"s_{{{k}}}", kind.expression, f"{len(kind.rows)} term(s) of this form, up to a factor")
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
    if statistic is None:
        raise TypeError("the program has no additive statistic")
    Z = np.random.default_rng(0).standard_normal((16, link.fields, link.tokens))
    reduced = link.through_statistic(np.concatenate([statistic(Z), Z[:, list(statistic.rest)]], axis=1))
    off = float(np.abs(reduced - link(Z)).max())
    if off > 1e-9:
        raise ArithmeticError(f"the program in the sum misses the link by {off:.1e}")
    return "equal outputs at 16 random fields"


def _level_set(link: LinkFunction, derivation: Derivation) -> LevelSet | None:
    """The chart, or None where the posterior lives on all fields: under noise, or a discrete output without a chart."""
    if link.noise:
        return None
    try:
        return find_level_set(link, derivation)
    except NoChartError as error:
        rank = jacobian_rank(link, tuple(range(link.fields)), np.random.default_rng(0))
        if rank > 0:
            raise
        record_refusals(error.refusals, derivation)
        return None


def _record(channel: Channel, level_set: LevelSet | None, derivation: Derivation) -> None:
    d = channel.free_dimensions
    how = {0: "a finite sum over the branches"}.get(
        d,
        "an adaptive lattice"
        if d <= 2
        else "an adaptive lattice or importance sampling"
        if d <= 4
        else "importance sampling",
    )
    if level_set is None and not channel.link.noise:
        how = "importance sampling"
        where = f"the output is discrete, so that the posterior is the Gaussian of all {d} fields cut to a cell"
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
