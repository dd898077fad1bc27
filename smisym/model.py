"""``compile``: Architecture -> link -> symmetry -> level set -> channel -> Model.  Sympy stops here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smisym.architecture import Architecture
from smisym.calibration import check_calibration
from smisym.channel import Channel
from smisym.charts import LevelSet, find_level_set, record_refusals
from smisym.derivation import Derivation, Step
from smisym.edge import check_generator, check_rows
from smisym.errors import InputError, NoChartError
from smisym.integration import choose_measure, record_channel, record_statistic
from smisym.link import LinkFunction, Observation, check_varies, link_function
from smisym.program import Program
from smisym.rank import JacobianRanks, jacobian_rank
from smisym.smi import SMI
from smisym.symmetry import Symmetry, find_symmetry
from smisym.symmetry_check import check_symmetry


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        """What is learned and how its posteriors are integrated, in one line; the derivation has the rest."""
        rule = "no chart" if self.level_set is None else f"chart: {self.level_set.rule}"
        noise = f", noise {self.link.noise:g}" if self.link.noise else ""
        size = f"{self.fields} field(s) on {self.tokens} token(s){noise}"
        return f"<Model: {size}; {rule}; {self.channel.measure.dim} free dimension(s)>"

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
        """The noiseless output at fields Z (S, P, T): y (S, ...) and, of a softmax, its exact log-ratios.

        Raises InputError for fields of another shape, or that are not finite.
        """
        return self.link.observe(Z)

    def jacobian_rank(self, rows: tuple[int, ...], rng: np.random.Generator) -> float:
        """K_S: mean rank of df/dZ restricted to the given rows, over draws of standard normal fields from ``rng``.

        Rows count from 0; f is the log-ratios of a softmax, else the output.  It counts equations in the theory of
        perfect recovery.  The draws are 16 where f is analytic, so that all have one rank, and 4096 where it is not.
        Raises InputError for rows that are not those of Z, for an ``rng`` that is none, and where derivatives
        overflow at all these fields.
        """
        check_rows(rows, self.fields)
        check_generator(rng)
        return jacobian_rank(self.link, rows, rng)

    def jacobian_ranks(self, rng: np.random.Generator) -> JacobianRanks:
        """K_S for any subspaces S of R^P, at one set of random fields."""
        return JacobianRanks(self.link, rng)


def compile(architecture: Architecture | SMI | Program) -> Model:
    """Derive a Model from a declaration (or from a bare :class:`~smisym.program.Program`).

    A link without a chart is compiled too: its fields are found numerically, or integrated over all of them, and the
    derivation says which and why.

    Raises InputError for what is none of these, for an output that is the same at all fields, for more tokens than a
    link is compiled for (:data:`smisym.unroll.MAX_TOKENS`), for ``statistic="gaussian"`` where no sum is found or its
    level set has no chart, for a noiseless output that is smooth at some fields and discrete at others, and for a chart
    of one's own that fails its check against the link.  What a bare Program raises stands there.
    """
    if not isinstance(architecture, Architecture | SMI | Program):
        raise InputError(
            "architecture", architecture, "an Architecture, an SMI or a Program",
            "write smisym.compile(Architecture(tokens=2, layers=(Attention(),)))",
        )  # fmt: skip
    derivation = Derivation(title="From the declaration to the denoiser")
    # The recursion comes first: everything else reads the program, never the architecture.
    link = link_function(architecture, derivation)
    check_varies(link)
    declared = None if isinstance(architecture, Program) else architecture
    symmetry = find_symmetry(link, derivation)
    check_symmetry(link, symmetry)
    through = isinstance(declared, Architecture) and declared.statistic == "gaussian"
    if through:
        record_statistic(link, derivation)
    level_set = _level_set(link.through_statistic if through else link, derivation)
    measure = choose_measure(link, level_set, symmetry, derivation, through=through)
    channel = Channel(link, measure)
    record_channel(channel, level_set, derivation)
    if level_set is not None and level_set.registered:
        checks = check_calibration(level_set.rule, channel)
        derivation.add(Step("channel", "Posteriors on the chart", CALIBRATED, checks=checks))
    return Model(declared, link, symmetry, level_set, channel, derivation)


CALIBRATED = (
    "The chart is of a registered rule: that its sheets hold all probability is seen in the posteriors themselves, "
    "which must agree on average with the fields that the outputs were made from."
)


def _level_set(link: LinkFunction, derivation: Derivation) -> LevelSet | None:
    """The chart, or None where the posterior lives on all fields: under noise, or a discrete output without a chart."""
    if link.noise:
        return None
    try:
        return find_level_set(link, derivation)
    except NoChartError as error:
        record_refusals(error.refusals, derivation)
        return None
