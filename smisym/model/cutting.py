"""How a noiseless output with a chart is integrated: by a chain or tables where the network behind a cut is a shallower
one with a chart of its own, else all at once.
"""

from __future__ import annotations

from smisym.base.derivation import Derivation
from smisym.base.errors import NoChartError
from smisym.charts import LevelSet, Rules, find_level_set
from smisym.link.linking import LinkFunction
from smisym.link.reduction import Reduction, find_reductions, layers_before, record_layers, record_reduction
from smisym.posterior.base import Posterior
from smisym.posterior.chain import OnChain
from smisym.posterior.columns import SCOUTS
from smisym.posterior.composite import ByChain, ByFrame, BySharedRows, ByTables
from smisym.posterior.crossed import OnCrossed
from smisym.posterior.frame_telling import record_frame
from smisym.posterior.level_set import OnLevelSet
from smisym.posterior.measured import OnMeasurements
from smisym.posterior.on_frame import framed
from smisym.posterior.shared_rows import MOST_COORDINATES, WORTH, OnSharedRows
from smisym.posterior.sheeted import SIDE
from smisym.posterior.tables import WIDEST, OnTables
from smisym.posterior.two_coordinates import OnTwoCoordinates

# Tokens of which two numbers pass from layer to layer.
_TABLED = 2
# Free dimensions from which on a chain is worth its columns.
_DEEP = 3
# Dimensions of rows and of columns of which lattices in the shape of both meet: those of one layer on as many tokens.
_CROSSED = (3, 4)
# Coordinates of the fields before that a lattice of its own is made for.
_COORDINATES = 2


def on_level_set(link: LinkFunction, level_set: LevelSet, derivation: Derivation, rules: Rules | None) -> Posterior:
    """By a chain or tables where the network behind a cut is a shallower one with a chart, else all at once."""
    if level_set.linear:
        return OnMeasurements(level_set, link.fields, link.tokens)
    if level_set.spread is not None and len(level_set.latents) == _COORDINATES:
        return OnTwoCoordinates(level_set, link.fields, link.tokens)
    whole = OnLevelSet(level_set, link.tokens)
    frame = framed(level_set, link.tokens)
    if frame is not None:
        record_frame(frame, derivation)
        return ByFrame(frame, whole)
    if whole.dim < _DEEP or level_set.registered:
        return whole
    for cut in reversed(find_reductions(link) if link.tokens == _TABLED else ()):
        chart = _behind(level_set, rules, cut)
        tables = None if chart is None or _moves(chart) else _tables(link, cut, chart)
        if tables is not None:
            record_layers(link, tables.layers, cut, derivation)
            return ByTables(tables, whole)
    found = ((cut, _behind(level_set, rules, cut)) for cut in find_reductions(link))
    cuts = [(cut, chart) for cut, chart in found if chart is not None and not _moves(chart)]
    chains = [OnChain(cut, chart, link.tokens) for cut, chart in cuts if _columns(link, cut, chart)]
    if chains:
        # Both sides as large as each other: what one of them costs grows with every dimension.
        chain = min(chains, key=lambda one: abs(2 * one.summed - one.dim))
        record_reduction(chain.reduction, derivation)
        return ByChain(chain, whole)
    crossed = [OnChain(cut, chart, link.tokens) for cut, chart in cuts if _crossed(link, cut, chart)]
    if crossed:
        record_reduction(crossed[0].reduction, derivation)
        return ByChain(OnCrossed(crossed[0]), whole)
    return whole


def _moves(chart: LevelSet) -> bool:
    """Whether points of a level set move with more than free fields."""
    return bool(chart.latents or chart.directions)


def choose_shared(link: LinkFunction, level_set: LevelSet, rules: Rules | None) -> BySharedRows | None:
    """How outputs of which nothing is known beside are integrated all at once; None where no cut allows it."""
    whole = OnLevelSet(level_set, link.tokens)
    if level_set.registered or not level_set.smooth:
        return None
    for reduction in find_reductions(link):
        if len(reduction.early) * link.tokens not in WORTH:
            continue
        last = _behind(level_set, rules, reduction)
        if last is not None and not last.free_rows and len(last.latents) + last.directions <= MOST_COORDINATES:
            return BySharedRows(OnSharedRows(reduction, last, link.tokens), whole)
    return None


def _behind(whole: LevelSet, rules: Rules | None, reduction: Reduction) -> LevelSet | None:
    """The level set of the network behind a cut, None where it has no smooth chart of the same output."""
    try:
        level_set = find_level_set(reduction.link, Derivation(), rules)
    except NoChartError:
        return None
    # Coordinates of the output are else others than those of the whole.
    same = level_set.rule == whole.rule and level_set.dimension == whole.dimension
    return level_set if level_set.smooth and same else None


def _columns(link: LinkFunction, reduction: Reduction, level_set: LevelSet) -> bool:
    """Whether both sides of a cut are small enough for a chain."""
    return len(reduction.early) * link.tokens in SCOUTS and len(level_set.free_rows) * link.tokens in SIDE


def _crossed(link: LinkFunction, reduction: Reduction, level_set: LevelSet) -> bool:
    """Whether both sides of a cut are one layer on three or four tokens, or as small."""
    return len(reduction.early) * link.tokens in _CROSSED and len(level_set.free_rows) * link.tokens in _CROSSED


def _tables(link: LinkFunction, reduction: Reduction, level_set: LevelSet) -> OnTables | None:
    """The first layers one by one; None where more than two numbers in a compact set pass between them, where layers
    are too wide, or where the network behind them is not a finite set of points."""
    if level_set.free_rows:
        return None
    layers = layers_before(link, reduction)
    rows = tuple(row for layer in layers for row in layer.rows)
    if rows != reduction.early or any(len(layer.rows) > WIDEST for layer in layers):
        return None
    if any(layer.row_sum is None for layer in layers[:-1]) or any(layer.program is None for layer in layers):
        return None
    return OnTables(layers, reduction, level_set, link.tokens)
