"""How finely chains of tables are integrated: level by level, each restricted to where the one before saw anything.

A level says of itself what it misses: sums over half of the nodes how much all of them do, layer by layer; the highest
degrees of a polynomial how well it is known, table by table; what lies at the border of a lattice or of a table how
much lies beyond.  From each follows what the next level needs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

import numpy as np

from smisym.base import patience
from smisym.integrate.averages import Average
from smisym.kernels.chains import POWER, Found, Given, Levels
from smisym.posterior.level_chain import Chain
from smisym.posterior.level_parts import Parts, chosen, narrowed, part_of, taken

# The first level: step of the lattices, nodes a side of the tables.
_STEP, _SIDE = 0.6, 6
# Steps of the first layer over those of the others: it has one state alone, so that its nodes cost next to nothing.
_FIRST = 0.6
# Where lattices end at first, beside what is asked for, by how much farther where there is mass, at least and at most,
# and where at the farthest.  _WIDER:
# the same for layers of two rows, whose Gaussians fall as R^2 exp(-R^2/2).
_DEPTH, _WIDER, _EACH, _NEARER, _FARTHER, _FARTHEST = 3.0, 2.2, 1.6, 0.25, 1.0, 9.5
# How much deeper where second moments are asked for: radii of three layers that serve means leave 5e-3 of the average
# square of covariances at 2e-2 asked.
_SECOND = 1.5
# How much farther than lattices tables reach, in standard deviations of the late fields.
_BEYOND = 1.0
# Shares of the tolerance: of what nodes may miss, what tables may, and what may lie at borders; half of each is aimed
# at where it is missed.
_NODES, _TABLES, _BORDERS, _AIM = 0.4, 0.3, 0.3, 0.7
# Shares beyond the ends of tables, and of the largest node, that count for nothing on the next level, over the
# tolerance.
_LEAST, _NEGLIGIBLE = 1e-3, 2e-3
# By how much steps change from level to level; nodes a side of tables that one more level may add, and at most.
_FINER, _COARSER, _MORE, _MOST_SIDE = 0.5, 1.25, 8, 28
# The same for steps of a first layer of one row: a level more, for its nodes alone, costs more than many of these.
_FIRST_FINER = 0.35
# Error, over the tolerance, from which on steps may also become longer.
_NEAR = 4.0
# What tables without a node would miss, in logs.
_AT_NONE = 3.0
# How much finer steps in four dimensions may be, times those in two: lattices of more have more neighbours as near.
_STRETCH = {4: 1.35}
# Volumes of balls.
_BALLS = {2: np.pi, 3: 4 * np.pi / 3, 4: np.pi**2 / 2}
# Of layers of two rows: share of the change from level to level that is an error at least; how many times what a level
# says of itself, where none was before it (untied first layers were up to 6 times beyond that); and by how much each
# level is finer than the one before.
_CHANGED, _ALONE, _ANEW, _ANEW_SIDE = 1.0, {2: 1.0, 3: 4.0, 4: 8.0}, 0.8, 2
# What the nodes of a first layer of two rows miss, over what sums over half of them do: it has one state, where later
# ones are an average over many.
_ONE_STATE = 2.5
# What a missing border moves in all layers, over what it moves in its own: three layers, c = 3, at V = 0.1 were 1.2
# times beyond what was stated without it.
_ELSEWHERE = 1.5
# How far what lies beyond a table may be from where it is thought to be, in standard deviations.
_FAR = 5.0
# Scale of a layer, times the deviation of its fields, from which on attention is so steep that nodes lie between its
# creases; how many of them, in the angle and along rays, over the step; and at most.
_STEEP, _GAUSS, _MOST_NODES = 2.5, (4.5, 5.5), 64
# What is drawn closer around: tables within that much, beside the tolerance, of the log of their largest value.
_DEEP = 8.0
# Error of tables above which they do not say where there is mass; levels at most.
_BLIND, _ROUNDS = 1.0, 9
# What nodes behind a table miss above which its error is theirs; how much narrower tables become that are drawn closer
# around where there is mass; and nodes a side that others get.
_NOISY, _CLOSER, _BLINDLY = 0.1, 0.7, 4
# Error of a table above which its ends are left where they are.
_TOLD = 0.1
# Points of one level beyond which it is not tried; nodes of one layer at most.
MOST, _ROOM = 4 * 10**6, 2 * 10**5


@dataclass
class Level:
    """How finely each of S posteriors is integrated: as :class:`smisym.kernels.chains.Given` has it, and how much is
    left out by the boxes, (S,)."""

    sides: np.ndarray
    steps: np.ndarray
    radius: np.ndarray
    boxes: np.ndarray
    spans: np.ndarray
    left_out: np.ndarray

    def take(self, index: np.ndarray) -> Level:
        return Level(*(getattr(self, field.name)[index] for field in fields(self)))

    def put(self, index: np.ndarray, other: Level) -> None:
        for field in fields(self):
            getattr(self, field.name)[index] = getattr(other, field.name)


@cache
def cosines(most: int) -> np.ndarray:
    """(most + 1, most, most): in the n-th, from values at the n Chebyshev nodes to coefficients."""
    out = np.zeros((most + 1, most, most))
    for n in range(1, most + 1):
        k = np.arange(n)
        out[n, :n, :n] = np.cos(np.pi * k[:, None] * (k + 0.5) / n) * 2 / n
        out[n, 0, :n] *= 0.5
    return out


@cache
def legendre(most: int) -> np.ndarray:
    """(most + 1, 4, most): in the n-th, nodes and weights of Gauss's rule, and there the two highest polynomials below
    degree n, orthonormal on [-1, 1] with the measure dx/2."""
    out = np.zeros((most + 1, 4, most))
    for n in range(2, most + 1):
        x, w = np.polynomial.legendre.leggauss(n)
        out[n, 0, :n], out[n, 1, :n] = x, w
        for row, degree in ((2, n - 1), (3, n - 2)):
            out[n, row, :n] = np.polynomial.legendre.legval(x, np.eye(n)[degree]) * np.sqrt(2 * degree + 1)
    return out


class Refinement:
    """The levels of a block of posteriors, until what each misses is below rtol."""

    def __init__(self, chain: Chain, run: Levels, spans: np.ndarray, rtol: float, cov: bool, most: int | None) -> None:
        self.chain, self.carry_out, self.rtol, self.cov, self.most = chain, run, rtol, cov, most or MOST
        S, rows = chain.samples, chain.rows
        self.dims = 2 * rows
        D = int(self.dims.sum()) + 2 * chain.of_samples["late"].shape[1]
        self.tables = max(chain.layers - 1, 1)
        # Dimensions that are integrated by nodes.
        self.free = self.dims - chain.of_layers["apart"].sum(axis=1)
        # Of layers of two rows: the means of the level before.
        self.wide, self.before = bool(self.dims.max() > 2), np.full((S, D), np.nan)
        self.stretch = np.array([_STRETCH.get(int(d), 1.0) for d in self.free])
        self.out = Average(
            np.full(S, np.nan),
            np.full((S, D), np.nan),
            np.full((S, D, D), np.nan) if cov else None,
            np.full(S, np.inf),
            np.zeros(S),
            np.zeros(S, dtype=bool),
        )
        self.level = self._first(spans, np.full(S, self._radius()))

    def run(self, averaged: bool = False) -> Average:
        """All levels; averaged: until the mean of all errors is below the tolerance, each or not."""
        looking, rounds = np.ones(self.chain.samples, dtype=bool), np.zeros(self.chain.samples, dtype=int)
        active = np.arange(self.chain.samples)
        while True:
            cost = self._cost(active)
            within = (cost <= self.most) & (rounds[active] < _ROUNDS)
            active, cost = active[within], cost[within]
            now = chosen(self.out.error, cost, active, self.rtol) if averaged else active
            if not now.size:
                break
            rounds[now] += 1
            left, asked = [active[~np.isin(active, now)]], looking[now].copy()
            for look in (True, False):
                some = now[asked == look]
                if some.size:
                    patience.check()
                    left.append(self._advance(some, look, looking))
            active = np.sort(np.concatenate(left))
        self.out.converged = self.out.error <= self.rtol
        if averaged:
            self.out.converged |= np.isfinite(self.out.error) & (self.out.error.mean() <= self.rtol)
        return self.out

    def _advance(self, index: np.ndarray, look: bool, looking: np.ndarray) -> np.ndarray:
        """One level of some samples; returns those that miss the tolerance, refined; looking: whether each is asked
        once more where there is mass, which is so while tables do not tell, or end where there is some."""
        found = self.at(index, look)
        parts = self.missed(index, found)
        self._keep(index, found, parts)
        rest = np.flatnonzero(~(self.out.error[index] <= self.rtol))
        known = part_of(parts, rest)
        self.refine(index[rest], taken(found, rest), known, look)
        far = known.far.sum(axis=1) > _BORDERS * self.rtol
        looking[index[rest]] = far | ~(known.tables < _TOLD).all(axis=1)
        return index[rest]

    # ---- one level ---------------------------------------------------------------------------------

    def _radius(self) -> float:
        # Every layer has a border.
        depth = _DEPTH + _WIDER * self.wide + _EACH * np.log(self.chain.layers / 2) + _SECOND * self.cov
        return float(np.sqrt(2 * (depth - np.log(min(self.rtol, 1.0)))))

    def _first(self, spans: np.ndarray, radius: np.ndarray) -> Level:
        S, d, K = len(spans), int(self.dims.sum()), self.tables
        boxes = np.stack([-np.ones((S, d)), np.ones((S, d))], axis=1) * radius[:, None, None]
        steps = np.broadcast_to(_STEP * self.stretch, (S, self.chain.layers)).copy()
        # Where it is all there is, and in four dimensions, it does cost.
        if self.chain.layers > 1 and self.dims[0] == 2:
            steps[:, 0] *= _FIRST
        return Level(np.full((S, K), _SIDE), steps, radius, boxes, spans, np.zeros(S))

    def _rules(self, level: Level) -> np.ndarray:
        """(S, K, 2): nodes between creases, in the angle and along rays, where these are steep; else zeros."""
        layers, given = self.chain.of_layers, self.chain.of_samples
        deviation = np.einsum("spp->sp", given["factor"])[0, layers["starts"][:-1]]
        steep = (layers["lines"] > 0) & (self.dims == 2) & (layers["scales"] * deviation > _STEEP)
        count = np.ceil(np.array(_GAUSS) / level.steps[..., None]).astype(np.int64)
        return np.where(steep[:, None], np.clip(count, 4, _MOST_NODES), 0)

    def _nodes(self, level: Level) -> np.ndarray:
        """(S, K): nodes of each layer, at most: lattice points of a ball or a box, whichever is smaller."""
        found = []
        for k, d in enumerate(self.dims):
            step, first = level.steps[:, k], int(2 * self.chain.of_layers["starts"][k])
            free = int(self.free[k])
            ball = _BALLS[free] * (level.radius / step + np.sqrt(free) / 2) ** free
            ends = level.boxes[:, :, first : first + d]
            width = ((ends[:, 1] - ends[:, 0]) / step[:, None]).reshape(len(step), int(d) // 2, 2)
            row = (width + 2.0).prod(axis=2)
            line = width.sum(axis=2) / np.sqrt(2) + 2.0
            box = np.where(self.chain.of_layers["apart"][k, : d // 2] > 0, line, row).prod(axis=1)
            found.append(np.minimum(ball, box))
        rules = self._rules(level)
        between = (self.chain.of_layers["lines"] + 1) * rules.prod(axis=2)
        found = list(np.where(between > 0, between, np.stack(found, axis=1)).T)
        return np.nan_to_num(np.stack(found, axis=1), nan=np.inf)

    def _cost(self, index: np.ndarray) -> np.ndarray:
        """Points of a level, (S,), infinite where one layer has too many nodes."""
        level = self.level.take(index)
        nodes = self._nodes(level)
        states = np.concatenate([np.ones((len(index), 1)), level.sides**2.0], axis=1)[:, : nodes.shape[1]]
        # Signs leave one node of each set of images.
        folded = nodes / self.chain.of_layers["signs"]
        return np.where(folded.max(axis=1) > _ROOM, np.inf, (folded * states).sum(axis=1))

    def given(self, index: np.ndarray) -> Given:
        """What a level of some samples is made of."""
        level, chain, S = self.level.take(index), self.chain, len(index)
        return Given(
            **chain.of_layers,
            **{name: value[index] for name, value in chain.of_samples.items()},
            rules=self._rules(level),
            legendre=legendre(_MOST_NODES),
            sides=level.sides,
            steps=level.steps,
            radius=level.radius,
            floor=chain.floor(level.radius + _BEYOND, index),
            least=np.full(S, _LEAST * self.rtol),
            negligible=np.full(S, _NEGLIGIBLE * self.rtol),
            depth=np.full(S, _DEEP - np.log(self.rtol)),
            boxes=level.boxes,
            spans=level.spans,
            cosines=cosines(_MOST_SIDE),
        )

    def at(self, index: np.ndarray, look: bool) -> Found:
        """One level of some samples; ``look``: whether it says where the next one has to be."""
        level = self.level.take(index)
        S, K, T, D = len(index), self.chain.layers, self.tables, self.out.mean.shape[1]
        found = Found(
            np.full(S, np.nan),
            np.zeros((S, D)),
            np.zeros((S if self.cov else 0, D, D)),
            np.zeros((S, K)),
            np.zeros((S, T)),
            np.zeros((S, T)),
            np.zeros((S, K)),
            np.zeros(S),
            np.zeros(S),
            level.boxes.copy(),
            level.spans.copy(),
            level.spans.copy(),
        )
        room = int(self._nodes(level).max()) + 1
        self.carry_out(self.given(index), found, room, look, self.cov)
        return found

    # ---- what it misses ----------------------------------------------------------------------------

    def missed(self, index: np.ndarray, found: Found) -> Parts:
        """What a level misses of some samples."""
        level = self.level.take(index)
        # Beyond the radius a Gaussian falls by that much, and what multiplies it is bounded.
        step, radius = level.steps, level.radius[:, None]
        border = _ELSEWHERE * radius * np.abs(found.border) * np.exp(-step * (radius - 0.5 * step))
        lost = ~np.isfinite(found.log_norm)
        nodes, tables = np.where(lost[:, None], np.inf, found.missed), np.where(lost[:, None], np.inf, found.tables)
        nodes[:, 0] *= _ONE_STATE if self.free[0] > 2 else 1.0
        return Parts(nodes, tables, _FAR * np.abs(found.far), border, level.left_out)

    def _keep(self, index: np.ndarray, found: Found, parts: Parts) -> None:
        out, error = self.out, np.nan_to_num(parts.error, nan=np.inf)
        if self.wide:
            # In four dimensions a level may look better than it is: the change from the one before is held against it.
            change = _CHANGED * np.linalg.norm(found.mean - self.before[index], axis=1)
            error = np.where(np.isfinite(change), np.maximum(error, change), _ALONE[int(self.free.max())] * error)
            self.before[index] = found.mean
        out.nodes[index] += found.nodes
        better = error < out.error[index]
        own = index[better]
        out.log_norm[own], out.mean[own], out.error[own] = found.log_norm[better], found.mean[better], error[better]
        if out.cov is not None:
            mean = found.mean[better]
            out.cov[own] = found.second[better] - mean[:, :, None] * mean[:, None, :]

    def refine(self, index: np.ndarray, found: Found, parts: Parts, look: bool) -> None:
        """The next level of samples that miss the tolerance."""
        level, rtol = self.level.take(index), self.rtol
        blind = ~(parts.tables.sum(axis=1) < _BLIND)
        change = self._factor(parts.nodes)
        # What is nearly there needs no other nodes than it lacks.
        near = parts.error <= _NEAR * rtol
        steps = level.steps * np.where(near[:, None], np.minimum(change, 1.0), change)
        more = self._more(level.sides, parts.tables)
        if self.wide:
            # A change that is to say something is one of nodes and of tables.
            steps, more = np.minimum(steps, _ANEW * level.steps), np.maximum(more, _ANEW_SIDE)
        # Tables that are made of too few nodes tell of nothing else.
        noisy = parts.nodes > _NOISY
        noisy[:, 0] = False
        unseen = np.where(noisy, _FINER, 1.0) * level.steps
        following = Level(
            np.minimum(level.sides + more, _MOST_SIDE),
            np.where(blind[:, None], unseen, steps),
            level.radius,
            level.boxes,
            level.spans,
            level.left_out,
        )
        # Of second moments as much more is missed as fields there are large.
        border = parts.border.sum(axis=1) * (level.radius if self.cov else 1.0)
        farther = (border > _BORDERS * rtol) & (level.radius < _FARTHEST) & ~blind
        closer = look & ~blind
        following.boxes[closer] = np.stack(
            [
                np.maximum(found.boxes[closer, 0], level.boxes[closer, 0]),
                np.minimum(found.boxes[closer, 1], level.boxes[closer, 1]),
            ],
            axis=1,
        )
        # What lies beyond a table is only as well known as the table.
        told = closer[:, None] & (parts.tables < _TOLD)
        following.spans[told] = found.spans[told]
        following.left_out[closer] += found.outside[closer]
        if look:
            # The last of the tables is known whatever those before it are, and so on.
            behind = np.cumsum(parts.tables[:, ::-1], axis=1)[:, ::-1] - parts.tables
            sure = blind[:, None] & (behind < 1.0)
            following.spans[sure] = found.peaks[sure]
            # More nodes where neither these nor narrower tables are what they lack.
            wide = ~noisy.any(axis=1) & (narrowed(level.spans, found.peaks) > _CLOSER)
            following.sides[sure] = (level.sides + _BLINDLY * wide[:, None])[sure]
        wider = self._first(following.spans[farther], self._farther(level.radius, border)[farther])
        wider.sides, wider.steps = following.sides[farther], following.steps[farther]
        following.put(np.flatnonzero(farther), wider)
        self.level.put(index, following)

    def _farther(self, radius: np.ndarray, border: np.ndarray) -> np.ndarray:
        """Radii (S,) at which a Gaussian falls from what lies at the borders (S,) to half of what may."""
        fall = np.log(np.maximum(border / (0.5 * _BORDERS * self.rtol), 1.0))
        return np.asarray(np.clip(np.sqrt(radius**2 + 2 * fall), radius + _NEARER, radius + _FARTHER))

    def _more(self, sides: np.ndarray, tables: np.ndarray) -> np.ndarray:
        """Nodes a side that tables (S, K - 1) of that error lack: it falls by one factor a node."""
        aim = _AIM * _TABLES * self.rtol / np.sqrt(self.tables)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.log(np.maximum(tables, 1e-300) / _AT_NONE) / sides
            more = np.log(min(aim / _AT_NONE, 0.5)) / rate - sides
        more = np.where((tables < 0.5 * _AT_NONE) & np.isfinite(more), more, _MORE)
        return np.asarray(np.clip(np.ceil(more), 0, _MORE).astype(int))

    def _factor(self, missed: np.ndarray) -> np.ndarray:
        """By which steps change, (S, K), for sums that miss that much: their logarithm grows like the inverse step."""
        aim = _AIM * _NODES * self.rtol / np.sqrt(missed.shape[1])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(np.clip(missed, 1e-15, 0.9)) / np.log(min(aim, 0.5))
        finest = np.where((np.arange(missed.shape[1]) == 0) & (self.dims == 2), _FIRST_FINER, _FINER)
        return np.clip(np.nan_to_num(ratio, nan=0.0) ** (1 / POWER), finest, _COARSER)
