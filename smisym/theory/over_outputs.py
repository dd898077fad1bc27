"""First thresholds by quadrature over the output itself, where its chart gives it a few coordinates with a density."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smisym.base.matrices import units
from smisym.charts import LevelSet
from smisym.integrate.accuracy import OUTPUTS, SHARED_OUTPUTS
from smisym.model.compiled import Model
from smisym.posterior.shared_rows import MOST_COORDINATES
from smisym.theory.output_lattice import OutputLattice, exchanges
from smisym.theory.outputs import Outputs

# One coordinate of y: panels, Gauss nodes of each, halvings, and the share of the whole that a panel may miss.
_PANELS, _NODES, _HALVINGS, _PANEL_TOL = 32, 8, 16, 1e-7
# Outputs after which panels are halved no more (smooth lines take one thousand, noise of posteriors never ends).
_MOST = 8192
# Times that such a line is doubled at either end, and the share of the whole below which an end carries no more.
_DOUBLINGS, _END = 64, 1e-8
# Lattice over the coordinates of y: its first step, made finer by a factor until the first threshold moves by less than
# a share of it; and share of the mass below which a point of it is left out.
_STEP, _CLOSER, _SIDE_TOL = 0.6, 0.75, 5e-6
_NEGLIGIBLE = 1e-12
# Error of posteriors on the first lattice, and by how much it is lowered until the threshold rests.
_ROUGHEST, _FINER = 1e-2, 0.1
# Error of the posteriors that tell where there is anything at all.
_LOOSEST = 0.1
# The lattice reaches so many times as far as some thousand random outputs, and so far that its outer half carries less
# than a share of the rate, up to a largest reach.
_REACH, _TAIL, _FARTHEST = 1.8, 1e-6, 100.0
# Factors by which changes fall where convergence is exponential, at most, and where it is taken for a power at all; and
# the share of what is left then that is its error at least.
_FAST, _SLOWEST, _UNSEEN = 0.3, 0.95, 0.05
# Free dimensions of posteriors that are integrated one by one unless asked for, and at most.
_FREE, _MOST_FREE = 2, 5
# Dimensions of shared rows up to which columns may be lattices, unless asked for.
_FEW_ROWS = 2
# Error of posteriors that sum over rows and over a plane of columns (untied on tied layers: 0.01 s an output; 0.6 s at
# 1e-5, and the threshold is then known to no more digits).
_COLUMNED = 1e-3
# Relative error that is always stated: outputs that are left out, and rounding.
_LEAST = 1e-7
# Outputs whose posteriors tell whether that is within reach; nodes above which a line has edges (smooth ones take some
# two thousand, |z1| - |z2| twenty thousand at some outputs: its integral over y did not end in minutes).
_PROBED, _SMOOTH = 4, 8192


def by_quadrature(model: Model) -> bool:
    """Whether the first threshold is better integrated over y than sampled."""
    channel = model.channel
    if not can_be_integrated(model):
        return False
    # In more free dimensions an output costs so much that thousands of them are dearer than a sample.
    if channel.shared is not None:
        return channel.shared.dim <= _FEW_ROWS or not channel.shared.shared.columns
    return channel.free_dimensions <= _FREE and _resolved(model)


def _resolved(model: Model) -> bool:
    """Whether the posteriors of a few random outputs reach their tolerance: sheets with edges do not, slowly."""
    y = model.observe(_random_fields(model)[:_PROBED])
    still = np.zeros((_PROBED, model.fields, model.tokens))
    rtol = _tolerance(model)
    u = _chart(model).coordinates(y).values
    moments = model.channel.moments_at(u, still, model.prior.nothing_known(), rtol=rtol)
    return moments.result.ok and not (model.channel.free_dimensions == 1 and moments.nodes.max() > _SMOOTH)


def can_be_integrated(model: Model) -> bool:
    """Whether outputs are told by numbers few enough to be integrated over."""
    chart, outputs = model.level_set, Outputs.of(model)
    if chart is None or outputs is None or not (model.channel.free_dimensions <= _MOST_FREE or model.channel.shared):
        return False
    return outputs.size in OUTPUTS or (chart.density and chart.dimension == 1)


def _chart(model: Model) -> LevelSet:
    assert model.level_set is not None, "no chart: there are no coordinates of y to integrate over"
    return model.level_set


def _tolerance(model: Model) -> float:
    shared, tolerance = model.channel.shared, model.channel.still.plan.over_outputs
    if shared is None or shared.shared.columns < MOST_COORDINATES:
        return tolerance
    # Each digit costs ten times as much where each output has a lattice of columns of its own.
    return max(tolerance, _COLUMNED)


def first_threshold(model: Model, parts: Sequence[int]) -> tuple[float, float]:
    """(alpha, error) of the first threshold of a class of parts that grow together, by quadrature over y itself.

    For outputs with at most three coordinates u: at Q = 0 the law of u is Zout(u), and the trapezoid rule over u
    (:mod:`smisym.theory.output_lattice`) converges fast.  The error adds up twice the last change as the lattice gets
    finer, twice the last change as the posteriors get finer, what lies far out, and what posteriors miss that are less
    fine than they should be.  No random numbers enter the value.  Not a number where densities are beyond floats.
    """
    rtol = _tolerance(model)
    outputs = Outputs.of(model)
    if outputs is None or outputs.size == 1:
        return _on_a_line(model, parts, rtol)
    try:
        return _over_lattice(outputs, parts, rtol)
    except FloatingPointError:
        return math.nan, math.nan


def _on_a_line(model: Model, parts: Sequence[int], rtol: float) -> tuple[float, float]:
    """The first threshold where y is one number.

    Its density may have any tails: from where random outputs end, the line is doubled until an end carries nothing.
    """
    sample = _chart(model).coordinates(model.observe(_random_fields(model))).values[:, 0]
    narrow, wide = np.quantile(np.abs(sample), 1e-3), 3 * np.abs(sample).max()
    line = _Line(model, parts, rtol, narrow)
    reach = np.arcsinh(wide / narrow)
    edges = np.linspace(-1, 1, _PANELS + 1) * reach
    line.add(edges[:-1], edges[1:])
    for side in (-1, 1):
        for k in range(_DOUBLINGS):
            ends = sorted((side * (reach + k * math.log(2)), side * (reach + (k + 1) * math.log(2))))
            if line.add(np.array(ends[:1]), np.array(ends[1:])) < _END:
                break
        else:
            # An end that carries something however far it reaches: what it held last is the error at least.
            line.error += line.last
    value = line.total[0] / np.linalg.eigvalsh(line.total[1:].reshape(line.side, line.side))[-1]
    relative = line.error[0] / line.total[0] + line.error[1:].max() / np.abs(line.total[1:]).max()
    # What was not found may have let overlaps grow as fast as anything else that was seen.
    mean_rate = np.abs(line.total[1:]).max() / line.total[0]
    relative += line.lost / line.total[0] * (1 + line.fastest / mean_rate)
    return float(value), float(value * max(relative, 1e-6, 0.1 * rtol))


class _Line:
    """Integrals over one coordinate of y, panel by panel; panels are halved where they are not accurate.

    The density of y may jump or diverge anywhere (at zero for products, at the edges of what signs allow).  Panels
    are in s, y = narrow sinh(s).  total, error, last (1 + c c,): the mass and the rates, and what was added last.
    lost: the most mass that outputs without a posterior may have.  fastest: the largest rate of any other.
    """

    def __init__(self, model: Model, parts: Sequence[int], rtol: float, narrow: float) -> None:
        self.model, self.parts, self.rtol, self.narrow = model, parts, rtol, narrow
        self.side = int(np.isin(model.symmetry.parts, parts).sum())
        self.total = np.zeros(1 + self.side**2)
        self.error, self.last = np.zeros_like(self.total), np.zeros_like(self.total)
        self.lost = self.fastest = 0.0
        self.outputs = 0
        self._nodes, self._weights = np.polynomial.legendre.leggauss(_NODES)

    def add(self, left: np.ndarray, right: np.ndarray) -> float:
        """Add these panels; returns the largest share of the whole that they hold."""
        before = self.total.copy()
        whole = self._panels(left, right)
        for _ in range(_HALVINGS):
            middle = 0.5 * (left + right)
            first, second = self._panels(left, middle), self._panels(middle, right)
            change = np.abs(first + second - whole)
            rough = (change > _PANEL_TOL * self._scale(self.total + (first + second).sum(axis=0))).any(axis=1)
            self.total += (first + second)[~rough].sum(axis=0)
            self.error += change[~rough].sum(axis=0)
            left, right = np.r_[left[rough], middle[rough]], np.r_[middle[rough], right[rough]]
            whole = np.concatenate([first[rough], second[rough]])
            if not rough.any() or self.outputs > _MOST:
                break
        # Panels that are rough to the end sit on jumps and poles: what they hold is their error.
        self.total += whole.sum(axis=0)
        self.error += np.abs(whole).sum(axis=0)
        self.last = np.abs(self.total - before)
        return float((self.last / self._scale(self.total)).max())

    def _scale(self, total: np.ndarray) -> np.ndarray:
        return np.maximum(np.abs(total), max(1e-3 * np.abs(total[1:]).max(), 1e-300))

    def _panels(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """(n, 1 + c c) integrals of the density and of the rates over each panel."""
        half = 0.5 * (right - left)
        self.outputs += _NODES * len(left)
        s = (0.5 * (left + right))[:, None] + half[:, None] * self._nodes
        log_measure = np.log(self.narrow * np.cosh(s))
        mass, rate, lost = _rates(self.model, self.parts, self.narrow * np.sinh(s), log_measure, self.rtol)
        share = self._weights * half[:, None]
        self.lost += float((lost * share).sum())
        self.fastest = max(self.fastest, float(np.abs(rate).max()))
        rule = mass * share
        return np.einsum("ns,nsk->nk", rule, np.concatenate([np.ones((*s.shape, 1)), rate], axis=2))


def _random_fields(model: Model) -> np.ndarray:
    Z = np.random.default_rng(0).standard_normal((2048, model.fields, model.tokens))
    return np.asarray(model.prior.law(np.zeros((model.fields, model.fields))).scale @ Z)


def _rates(
    model: Model, parts: Sequence[int], u: np.ndarray, log_measure: np.ndarray, rtol: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mass (n, m), rates (n, m, c c)) at outputs u (n, m): how an output lets small overlaps of the parts grow.

    Last the mass (n, m), as a first look had it, of those whose posterior was not found; they have no mass and no rate.
    """
    channel, shape, u = model.channel, u.shape, u.reshape(-1, 1)
    still, V = np.zeros((len(u), model.fields, model.tokens)), model.prior.nothing_known()
    # A look at the density first: most of a line carries no mass, and no field has some of these outputs.
    seen = channel.moments_at(u, still, V, rtol=0.1).log_partition + log_measure.ravel()
    seen = np.where(np.isfinite(seen), seen, -np.inf)
    mass, lost = np.zeros(len(u)), np.zeros(len(u))
    side = int(np.isin(model.symmetry.parts, parts).sum())
    rate = np.zeros((len(u), side, side))
    kept = seen > np.log(_NEGLIGIBLE) + seen.max()
    if kept.any():
        moments = channel.moments_at(u[kept], still[kept], V, cov=True, rtol=rtol)
        rates = _part_rates(model, parts, np.asarray(moments.dg))
        found = np.isfinite(rates).all(axis=(1, 2)) & np.isfinite(moments.log_partition)
        where = np.flatnonzero(kept)
        lost[where[~found]] = np.exp(seen[where[~found]])
        mass[where[found]] = np.exp((moments.log_partition + log_measure.ravel()[kept])[found])
        rate[where[found]] = rates[found]
    return mass.reshape(shape), rate.reshape(*shape, -1), lost.reshape(shape)


def _part_rates(model: Model, parts: Sequence[int], dg: np.ndarray) -> np.ndarray:
    """(n, c, c) rates between unit matrices of the parts from dg (n, P, T, P, T)."""
    basis = model.symmetry.basis[np.isin(model.symmetry.parts, parts)]
    unit, scale = units(basis), model.prior.law(np.zeros((model.fields, model.fields))).units
    dg = np.einsum("pi,nitjs,qj->nptqs", scale, dg, scale, optimize=True)
    fed = np.einsum("nptas,kab,nqtbs->nkpq", dg, unit, dg, optimize=True)
    return np.asarray(model.prior.multiplicity * np.einsum("jpq,nkpq->njk", unit, fed))


def _over_lattice(outputs: Outputs, parts: Sequence[int], rtol: float) -> tuple[float, float]:
    """The first threshold where outputs are told by two or three numbers."""
    model = outputs.model
    sample = outputs.sample(_random_fields(model))
    lattice = OutputLattice.of(sample, exchanges(outputs.shown, outputs.size, model.tokens))
    shared = model.channel.shared is not None
    largest = SHARED_OUTPUTS[outputs.size] if shared else OUTPUTS[outputs.size] // model.channel.plan.dearer
    rest = max(_SIDE_TOL, 0.05 * rtol)
    reach, step = _REACH, _STEP
    # How fine the posteriors have to be is seen on a coarse lattice, together with how far it reaches.
    fine = max(rtol / _FINER, _ROUGHEST)
    found = on_lattice(outputs, parts, lattice.nodes(step, reach), fine)
    while found.tail > _TAIL and reach < _FARTHEST:
        reach *= 2
        found = on_lattice(outputs, parts, lattice.nodes(step, reach), fine)
    inner = changed = math.inf
    while inner > rest * found.alpha and fine > rtol:
        before, fine = found, max(rtol, _FINER * fine)
        found = on_lattice(outputs, parts, lattice.nodes(step, reach), fine)
        # Errors of posteriors may cancel by chance, once: what they changed before counts as well.
        changed, last = abs(found.alpha - before.alpha), changed
        inner = max(changed, _FINER * last) if math.isfinite(last) or fine > rtol else changed
    values, tail, missed = [found.alpha], found.tail, found.missed
    while len(values) < 3 or limit(values)[1] > max(rest * values[-1], inner):
        nodes = lattice.nodes(_CLOSER * step, reach)
        if len(nodes[0]) > largest:
            break
        step *= _CLOSER
        found = on_lattice(outputs, parts, nodes, fine)
        values, tail, missed = [*values, found.alpha], found.tail, found.missed
    value, error = limit(values)
    # A lattice that reached its limit with more in its outer half may miss as much.
    return value, error + 2 * inner + (_LEAST + tail + missed) * value


def limit(values: Sequence[float]) -> tuple[float, float]:
    """Where values on finer and finer lattices lead, and its error.

    They converge exponentially, and twice the last change is more than what is left; or, where the law of outputs has
    edges or poles, like a power of the step, and changes fall by one factor all the time: what is left is then the
    rest of a geometric series, and is added.
    """
    if len(values) < 3:
        return values[-1], math.inf if len(values) < 2 else 2 * abs(values[-1] - values[0])
    before, last = values[-2] - values[-3], values[-1] - values[-2]
    rest = _rest(before, last)
    if rest is None:
        return values[-1], 2 * (abs(last) if abs(last) <= _FAST * abs(before) else max(abs(last), abs(before)))
    first = _rest(values[-3] - values[-4], before) if len(values) > 3 else None
    if first is None:
        return values[-1] + rest, max(abs(rest), abs(last))
    # How much the sum of the series has moved, and a share of what was added unseen.
    return values[-1] + rest, 2 * abs(last + rest - first) + _UNSEEN * abs(rest)


def _rest(before: float, last: float) -> float | None:
    """What is left of a series after these two changes, if it is geometric and slow; None if it is not."""
    ratio = last / before if before else 0.0
    return last * ratio / (1 - ratio) if _FAST < ratio < _SLOWEST else None


@dataclass(frozen=True)
class OnLattice:
    """The first threshold on one lattice, the share of the rate that its outer half carries, and what outputs
    whose posteriors are less fine than they should be may change, relative."""

    alpha: float
    tail: float
    missed: float


def on_lattice(
    outputs: Outputs, parts: Sequence[int], nodes: tuple[np.ndarray, np.ndarray, np.ndarray], rtol: float
) -> OnLattice:
    """What one lattice gives, with posteriors as fine as that needs for an error ``rtol`` of the whole.

    Raises FloatingPointError where densities are beyond floats, as of networks that mix all but singularly.
    """
    v, log_measure, outer = nodes
    u, log_measure = outputs.coordinates(v), log_measure + outputs.log_measure(v)
    model = outputs.model
    # A look first: most of the lattice carries nothing, and what carries little need not be known well.
    log_mass, each, error = _looked(model, parts, u, log_measure, _LOOSEST)
    weight, rates = _carried(log_mass, each)
    # Those that were not found carry nobody knows what.
    share = np.where(np.isfinite(error), _share(weight, rates), 1.0)
    decades = np.log10(np.maximum(_LOOSEST / rtol * share * np.count_nonzero(share > _NEGLIGIBLE), 1.0))
    decades = np.ceil(np.minimum(decades, np.log10(_LOOSEST / rtol)))
    allowed = np.where(decades > 0, np.maximum(rtol, _LOOSEST * 10.0**-decades), _LOOSEST)
    for decade in np.unique(decades[decades > 0]):
        own = np.flatnonzero(decades == decade)
        log_mass[own], each[own], error[own] = _looked(model, parts, u[own], log_measure[own], allowed[own[0]])
    weight, rates = _carried(log_mass, each)
    whole, far = rates.sum(axis=0), rates[outer].sum(axis=0)
    rough = np.where(error > allowed, np.minimum(error, 1.0), 0.0)
    share = np.where(np.isfinite(error), _share(weight, rates), share)
    return OnLattice(
        float(weight.sum() / np.linalg.eigvalsh(whole)[-1]),
        float(np.trace(far) / np.trace(whole)),
        float((rough * share).sum()),
    )


def _carried(log_mass: np.ndarray, each: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mass (n,) and what it carries of rates (n, c, c)."""
    with np.errstate(over="raise"):
        weight = np.exp(log_mass)
    return weight, weight[:, None, None] * each


def _share(weight: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """What outputs carry of the mass and of the rates (n,)."""
    return np.asarray(weight / weight.sum() + np.abs(rates).max(axis=(1, 2)) / np.abs(rates).sum(axis=0).max())


def _looked(
    model: Model, parts: Sequence[int], u: np.ndarray, log_measure: np.ndarray, rtol: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log of the mass (n,) and rates (n, c, c) of outputs, and the errors of their posteriors (n,), infinite where not
    found."""
    V, still = model.prior.nothing_known(), np.zeros((len(u), model.fields, model.tokens))
    moments = model.channel.still.moments_at(u, still, V, cov=True, rtol=rtol)
    rates = _part_rates(model, parts, np.asarray(moments.dg))
    log_mass = moments.log_partition + log_measure
    found = np.isfinite(rates).all(axis=(1, 2)) & np.isfinite(log_mass)
    # No field has some of these outputs.
    none = log_mass == -np.inf
    error = np.where(none, 0.0, np.where(found, np.nan_to_num(moments.error, nan=np.inf), np.inf))
    return np.where(found, log_mass, -np.inf), np.where(found[:, None, None], rates, 0.0), error
