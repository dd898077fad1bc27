"""``compile``: Architecture -> link -> symmetry -> level set -> channel -> Model.  Sympy stops here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smisym.architecture import Architecture
from smisym.channel import Channel
from smisym.charts import LevelSet, find_level_set
from smisym.derivation import Derivation, Formula, Step
from smisym.errors import InputError
from smisym.link import LinkFunction, Observation, link_from_program, link_function
from smisym.program import Program
from smisym.symmetry import Symmetry, jacobian_rank, sign_symmetry


@dataclass(frozen=True)
class Model:
    """Everything that solvers need, as plain arrays and callables.

    ``architecture`` is None for a model compiled from an anonymous program.
    """

    architecture: Architecture | None
    link: LinkFunction
    symmetry: Symmetry
    level_set: LevelSet
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


def compile(architecture: Architecture | Program) -> Model:
    """Derive a Model from a declaration (or from a bare :class:`~smisym.program.Program`).

    Raises InputError for a declaration that no pass covers, NoChartError when no rule finds a chart.
    """
    derivation = Derivation(title="From the declaration to the denoiser")
    # The recursion comes first: everything else reads the program, never the architecture.
    if isinstance(architecture, Program):
        link = link_from_program(architecture)
        declared = None
    else:
        _refuse_uncovered(architecture)
        link = link_function(architecture, derivation)
        declared = architecture
    symmetry = sign_symmetry(link, derivation)
    level_set = find_level_set(link, derivation)
    channel = Channel(link, level_set)
    _record(channel, derivation)
    return Model(declared, link, symmetry, level_set, channel, derivation)


def _refuse_uncovered(architecture: Architecture) -> None:
    if architecture.noise != 0.0:
        raise InputError("noise", architecture.noise, "0 in this version", "declare a noiseless output")


def _record(channel: Channel, derivation: Derivation) -> None:
    d = channel.free_dimensions
    how = {0: "a finite sum over the branches"}.get(
        d, "an adaptive lattice" if d <= 2 else "an adaptive lattice or importance sampling"
    )
    derivation.add(
        Step(
            "channel",
            "Posterior moments and the denoiser",
            f"Given one output and the cavity Gaussian of its fields, the posterior lives on the level set: {d} free "
            f"dimension(s) and {len(channel.level_set.branches)} branches, integrated by {how}. All that the solvers "
            "need follows from its first two moments; no derivative is taken numerically.",
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
