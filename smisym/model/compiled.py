"""``compile``: Architecture -> link -> symmetry -> level set -> channel -> Model.  Sympy stops here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from smisym.base.cards import Card, Cell, Shown, listed
from smisym.base.counting import counted
from smisym.base.derivation import Derivation, Step
from smisym.base.edge import check_generator, check_rows
from smisym.base.errors import InputError, Words
from smisym.charts import LevelSet, Rules
from smisym.declare.architecture import Architecture
from smisym.declare.smi import SMI
from smisym.link.cut_programs import record_interfaces
from smisym.link.linking import LinkFunction, Observation, check_varies, link_function
from smisym.link.program import Program
from smisym.link.rank import JacobianRanks
from smisym.link.symmetry import Symmetry
from smisym.link.symmetry_check import held_symmetry
from smisym.model.calibrating import check_calibration
from smisym.model.channel import Channel
from smisym.model.cutting import choose_shared
from smisym.model.denoising import record_channel
from smisym.model.integration import (
    chart_of,
    choose_parts,
    choose_posterior,
    record_statistic,
)
from smisym.posterior.central_limit import ThroughStatistic
from smisym.prior import (
    ExtensiveRank,
    ExtensiveRows,
    GaussianRows,
    Prior,
    RectangularRank,
    SlicedRows,
    SmallWidth,
    UntiedRank,
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Model(Shown):
    """Everything that solvers need, as plain arrays and callables.

    ``architecture`` is None for a model compiled from an anonymous program.  ``level_set`` is a chart of the link in
    the fields, or in the statistic and the fields beside it where the declaration says ``statistic="gaussian"``.
    ``prior`` is the law of the weights.
    """

    architecture: Architecture | SMI | None
    link: LinkFunction
    symmetry: Symmetry
    level_set: LevelSet | None
    channel: Channel
    derivation: Derivation
    prior: Prior

    def __repr__(self) -> str:
        """What is learned and how its posteriors are integrated, in one line; the derivation has the rest."""
        rule = "no chart" if self.level_set is None else f"chart: {self.level_set.rule}"
        noise = f", noise {self.noise:g}" if self.noise else ""
        size = f"{counted(self.fields, 'field')} on {counted(self.tokens, 'token')}{noise}"
        return f"<Model: {size}; {rule}; {counted(self.channel.posterior.dim, 'free dimension')}>"

    def card(self) -> Card:
        """What a notebook shows, as plain data."""
        where, how = self.channel.posterior.describe()
        chart = "none" if self.level_set is None else self.level_set.rule
        facts: list[tuple[str, Cell]] = [
            ("fields", f"$Z$ is {self.fields} × {self.tokens}: {listed(self.labels)}"),
            ("weights", self.prior.describe()),
            ("symmetries", self._symmetries),
            ("chart of the level set", chart),
            ("posterior", f"{where}; {how}"),
            ("free dimensions", str(self.channel.posterior.dim)),
        ]
        if self.noise:
            facts.append(("noise", f"Gaussian, of variance {self.noise:g}"))
        formulas = () if self.architecture is None else self.architecture.card().formulas
        notes = ("model.derivation shows every step and what was verified.",)
        return Card("Model", facts=tuple(facts), formulas=formulas, notes=notes)

    @property
    def _symmetries(self) -> str:
        elements, rotations = len(self.symmetry.elements), len(self.symmetry.rotations)
        told = f"{elements} signed exchange{'s' if elements > 1 else ''} of rows"
        told += f", {rotations} group{'s' if rotations > 1 else ''} of rotations" if rotations else ""
        blocks = len(self.symmetry.basis)
        return f"{told}; {blocks} overlap{'s' if blocks > 1 else ''} left"

    @property
    def fields(self) -> int:
        """P, the number of rows of Z."""
        return self.link.fields

    @property
    def tokens(self) -> int:
        """T, the number of columns of Z."""
        return self.link.tokens

    @property
    def charted(self) -> LinkFunction:
        """The link that ``level_set`` is a chart of: in the fields, or in the statistic and the fields beside it."""
        posterior = self.channel.posterior
        return posterior.link if isinstance(posterior, ThroughStatistic) else self.link

    @property
    def noise(self) -> float:
        """Variance of the Gaussian noise on every entry of the output."""
        return self.channel.noise

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
        return self.jacobian_ranks(rng)(np.eye(self.fields)[list(rows)])[0]

    def jacobian_ranks(self, rng: np.random.Generator) -> JacobianRanks:
        """K_S for any subspaces S of R^P, at one set of random fields."""
        return JacobianRanks(self.link, rng, self.prior.law(np.zeros((self.fields, self.fields))).scale)


def compile(
    architecture: Architecture | SMI | Program, *, prior: Prior | None = None, rules: Rules | None = None
) -> Model:
    """Derive a Model from a declaration (or from a bare :class:`~smisym.link.program.Program`).

    A link without a chart is compiled too: its fields are found numerically, or integrated over all of them, and the
    derivation says which and why.

    prior: the law of the weights; None for standard normal ones, on slices of the embedding where heads split it.
    rules: names and rules that look for a chart, in their order; None for those of smisym and what was registered.

    Raises InputError for what is none of these, for an output that is the same at all fields, for more tokens than a
    link is compiled for (:data:`smisym.kernels.named.MAX_TOKENS`), for ``statistic="gaussian"`` where no sum is found
    or its level set has no chart, for a noiseless output that is smooth at some fields and discrete at others, and for
    a chart of one's own that fails its check against the link.  What a bare Program raises stands there.
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
    record_interfaces(link.program, derivation)
    declared = None if isinstance(architecture, Program) else architecture
    noise = 0.0 if isinstance(architecture, Program) else float(architecture.noise)
    symmetry = held_symmetry(link, derivation, exact=not noise)
    if prior is None:
        prior = _prior_of(link)
        symmetry = symmetry.kept(prior.respects)
    _check_prior(prior, link, symmetry)
    for step in prior.steps():
        derivation.add(step)
    through = isinstance(declared, Architecture) and declared.statistic == "gaussian"
    if through:
        record_statistic(link, derivation)
    level_set = None if noise else chart_of(link.through_statistic if through else link, derivation, rules)
    posterior = choose_posterior(link, noise, level_set, symmetry, derivation, through=through, rules=rules)
    shared = None if level_set is None or through else choose_shared(link, level_set, rules)
    own = level_set is not None and level_set.registered
    parts = () if own or through else choose_parts(link, noise, symmetry, derivation, rules)
    channel = Channel(link, posterior, noise, shared, parts)
    record_channel(channel, level_set, derivation)
    if level_set is not None and level_set.registered:
        checks = check_calibration(level_set.rule, channel)
        derivation.add(Step("channel", "Posteriors on the chart", CALIBRATED, checks=checks))
    return Model(declared, link, symmetry, level_set, channel, derivation, prior)


def _prior_of(link: LinkFunction) -> Prior:
    """As declared: of extensive rank, else standard normal, on slices of the embedding where it is split."""
    first = link.rows[0]
    ratios = [row.rank_ratio for row in link.rows if row.rank_ratio is not None]
    if len(ratios) > 1:
        return ExtensiveRows(tuple(ratios))
    if ratios and first.aspect is not None:
        return RectangularRank(ratios[0], first.aspect)
    if ratios and not first.tied:
        return UntiedRank(ratios[0])
    if ratios:
        return ExtensiveRank(ratios[0]) if ratios[0] else SmallWidth()
    return SlicedRows(link.row_slices) if link.slices > 1 else GaussianRows(link.fields)


def _check_prior(prior: Prior, link: LinkFunction, symmetry: Symmetry) -> None:
    """InputError unless the weights have a row a field, are cut as declared, vary, and obey the link's symmetries."""
    if isinstance(prior, Prior):
        _check_reads(prior, link)
    if not isinstance(prior, Prior) or prior.row_slices != link.row_slices:
        given = prior.row_slices if isinstance(prior, Prior) else prior
        allowed = f"a Prior with row_slices = {link.row_slices}, the part of the embedding that each row lives on"
        raise InputError("prior", given, allowed, "leave it out for standard normal weights")
    if not _varies(prior):
        allowed = "a law under which every row varies, by finite amounts"
        raise InputError("prior", prior.describe(), allowed, "give each row a positive, finite standard deviation")
    if not prior.coupled and not symmetry.apart:
        raise InputError(
            "overlaps of matrices of extensive rank",
            "coupled: a change of sign of all scores of one layer does more to the output than relabel it",
            "networks whose symmetries keep overlaps between layers zero: two layers of which the attention output is "
            "seen, with softmax, linear scores, an odd activation, or hardmax on two tokens in the last one",
            "declare such a network; of matrices that are seen in mixtures the posterior is joint, and not known",
        )
    turned = [turn for group in symmetry.rotations for turn in _quarter_turns(group, link.fields)]
    if not all(prior.respects(change) for change in (*symmetry.elements, *turned)):
        raise InputError(
            "prior",
            prior.describe(),
            "a law that is unchanged where rows that the output cannot tell apart are exchanged or rotated",
            "give such rows the same law",
        )


def _check_reads(prior: Prior, link: LinkFunction) -> None:
    """InputError unless the columns of Z are what sees such weights: tokens, or as many pairs of them as there are."""
    own = _prior_of(link)
    if prior.reads == own.reads and (own.rows == prior.rows or own.reads == "tokens"):
        return
    given = Words(f"{prior.describe()}, for {counted(link.fields, 'row')} of weights declared as {own.describe()}")
    if prior.reads == "tokens":
        raise InputError("prior", given, f"a law of matrices that are seen by {own.reads}", "leave it out")
    # Of tied matrices a sample counts twice.
    tied = prior.multiplicity > 1
    layers = f"{counted(prior.rows, 'layer')} with a rank_ratio, {'tied' if tied else 'untied'}"
    one = "declare Architecture(2, (Attention(rank_ratio=1),)), or of more tokens; beside this prior 1 means nothing"
    raise InputError(
        "prior",
        given,
        f"this law for an Architecture of {layers}: its fields are those of {prior.reads}",
        one if prior.rows == 1 and tied else "leave it out",
    )


def _varies(prior: Prior) -> bool:
    """Whether the covariance of the fields, where nothing is known, is finite and positive definite."""
    with np.errstate(all="ignore"):
        V = prior.nothing_known()
    return bool(np.isfinite(V).all() and np.linalg.eigvalsh(V)[0] > 0)


def _quarter_turns(group: Sequence[Sequence[int]], fields: int) -> Iterator[np.ndarray]:
    """Changes (P, P) that exchange neighbours, in all sets of rows of a group at once: these are rotated alike."""
    for first, second in itertools.pairwise(zip(*group, strict=True)):
        turn = np.eye(fields)
        turn[[*first, *second]] = turn[[*second, *first]]
        yield turn


CALIBRATED = (
    "The chart is of a registered rule: that its sheets hold all probability is seen in the posteriors themselves, "
    "which must agree on average with the fields that the outputs were made from."
)
