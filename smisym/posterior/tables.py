"""A deep network on two tokens as a chain of tables: what passes from layer to layer are two numbers.

Behind its first layers a network sees the product C of their mixings alone (:mod:`smisym.link.reduction`).  Where the
rows of C sum to a constant s and none of its entries is negative, it is, on two tokens,

    C = s [delta I + (1 - delta) 1 (t, 1 - t)],

two numbers in a compact set, delta = det C / s^2 and t the weight of the first token in what all rows share.  The first
layers are integrated one after the other,

    beta_k(C) = int dh N(h) beta_{k+1}(A(h C^T) C),    p(y) = beta_1(I),

the last of them against the level set of the network behind, which is a few points U, one a sheet:

    beta(C) = sum_U N(U C^{-T}; omega, V) / |det C|^n,    n late rows.

Functions of C are known by some ten numbers in t and in log |delta|, for each sign of delta
(:mod:`smisym.integrate.transfer`): the cost is linear in the number of layers.  As no mixing makes delta larger, and
the late fields must be where N is, delta has a lower bound.  The cavity must not couple layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from smisym.base import patience
from smisym.charts import LevelSet
from smisym.charts.base import Coordinates
from smisym.integrate.averages import Average
from smisym.integrate.modes import Values
from smisym.integrate.transfer import End, Grid, Passed, Rule, Transfer, missed_by_tables, passed
from smisym.link.linking import Observation
from smisym.link.reduction import Layer, Reduction
from smisym.posterior.base import Block, Cavity, Kind, log_whitening
from smisym.posterior.two_numbers import ANYWHERE, TINY, Span, behind, matrices, mixed, passed_on, places, products

# Steps of the rules, level by level; nodes a side of the tables at first, and how many more where these miss something.
_STEPS, _SIDE, _MORE, _MOST_SIDE = (0.8, 0.56, 0.4, 0.28, 0.2, 0.14, 0.1), 10, 6, 28
# Where the first fields end at first, beside what is asked for, by how much farther where there is mass, and at most.
# _WIDER: the same for layers of two rows, whose Gaussians fall as R^2 exp(-R^2/2).
_DEPTH, _WIDER, _FARTHER, _FARTHEST = 4.0, 2.2, 1.0, 9.5
# Ratios of the changes from level to level: the least that is believed of two ratios and of one, and the largest, that
# of an error which falls like the step.
_FASTEST, _EARLY, _SLOWEST = 0.1, 0.3, 0.75
# Shares of the tolerance: that tables may miss, that may lie at the border, that a node of a rule may have of the
# largest one and be left out on the next level, and that may be left out of a table at each side.
_TABLES, _BORDER, _NEGLIGIBLE, _OUTSIDE = 0.2, 0.2, 2e-3, 1e-3
# How far from the mean, in standard deviations, what tables leave out may lie.
_FAR = 5.0
# Share of the error of tables that may be seen at the border without being there.
_NOISE = 0.1
# Error of tables above which they do not say where there is mass; how many times they are asked; levels at most.
_BLIND, _CROPPED, _ROUNDS = 0.3, 2, 12
# Points of one step, all states together, beyond which a level is not tried.
MOST = 3 * 10**6
# Rows of one layer at most: its dimensions are integrated by the trapezoid rule.
WIDEST = 2
# Points whose networks behind are evaluated at once.
_CACHED = 16384


class OnTables(Kind):
    """A noiseless output of two tokens, by tables of what passes from layer to layer.

    layers: the first ones, in order; the rows of the mixings of all but the last sum to a constant.
    level_set: of the network behind them, a finite set of points, with neither latent coordinates nor directions.
    """

    smooth, tabled = True, True

    def __init__(self, layers: tuple[Layer, ...], reduction: Reduction, level_set: LevelSet, tokens: int) -> None:
        self.layers, self.reduction, self.level_set, self.tokens = layers, reduction, level_set, tokens
        self.order = (*(row for layer in layers for row in layer.rows), *reduction.late)
        self.dim = self.summed = len(reduction.early) * tokens

    def read(self, observation: Observation) -> Coordinates:
        return self.level_set.coordinates(observation).checked()

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> Tabulated:
        return Tabulated(self, observed.values, Cavity.of(omega, V, self.order))

    def points(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The level set behind the layers: mixed late fields (S, B, n, T) and log-weights (S, B)."""
        S, n, T = len(u), len(self.reduction.late), self.tokens
        sheets = self.level_set.solve([], [], list(u.T))
        fields = np.empty((S, len(sheets.solved), n, T))
        for b, solved in enumerate(sheets.solved):
            for k, value in enumerate(solved):
                fields[:, b, self.level_set.solved_rows[k // T], k % T] = value
        weight = np.stack([np.broadcast_to(one, S) for one in sheets.log_weight], axis=1)
        return fields, np.broadcast_to(weight, fields.shape[:2])

    def couples(self, V: np.ndarray) -> np.ndarray:
        """Whether covariances (S, P, P) couple one of the layers with another, or with the network behind, (S,)."""
        apart = np.ones(V.shape[1:], dtype=bool)
        for rows in (*(list(layer.rows) for layer in self.layers), list(self.reduction.late)):
            apart[np.ix_(rows, rows)] = False
        return np.asarray((V[:, apart] != 0.0).any(axis=1))

    def describe(self) -> tuple[str, str]:
        where = f"the posterior lives on {self.dim} dimension(s), those of the first {len(self.layers)} layer(s)"
        return where, (
            "trapezoid rules, layer by layer, between which two numbers pass; functions of these are tables on a "
            "Chebyshev grid"
        )


@dataclass(frozen=True)
class _Level:
    """How finely one posterior is integrated: nodes a side, step, radius; for each layer a box (low, high) of whitened
    fields, and for each table the spans that it is restricted to."""

    side: int
    step: float
    radius: float
    boxes: tuple[tuple[np.ndarray, np.ndarray], ...]
    spans: tuple[tuple[Span, ...], ...]


@dataclass(frozen=True)
class _Found:
    """One posterior at some level."""

    level: _Level
    steps: list[Transfer]
    rule: Rule
    ends: np.ndarray
    end: End
    passed: Passed
    signs: list[tuple[float, ...]]
    cuts: list[bool]
    points: int

    @property
    def log_norm(self) -> float:
        return float(np.log(self.passed.total)) + self.end.top


class Tabulated(Block):
    """The posteriors of one block of samples, which integrate themselves."""

    branches = 1

    def __init__(self, kind: OnTables, u: np.ndarray, cavity: Cavity) -> None:
        super().__init__(cavity)
        self.kind, self.u = kind, u
        self.dim, self.residuals = 0, len(kind.order) * kind.tokens
        early = len(kind.order) - len(kind.reduction.late)
        self.late = self.omega[:, list(kind.order[early:])]
        self.L = self.factor[:, early:, early:]

    def take(self, index: np.ndarray) -> Tabulated:
        return Tabulated(self.kind, self.u[index], self.cavity.take(index))  # type: ignore[arg-type]

    @property
    def whitened(self) -> np.ndarray:
        return np.arange(self.residuals)

    def log_density(self) -> np.ndarray:
        return log_whitening(self.factor, len(self.kind.reduction.early), self.kind.tokens)

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        raise TypeError("tables integrate by themselves")

    def integral(self, rtol: float, cov: bool, max_nodes: int | None) -> Average:
        S, D = self.samples, self.residuals
        out = Average(
            np.full(S, np.nan),
            np.full((S, D), np.nan),
            np.full((S, D, D), np.nan) if cov else None,
            np.full(S, np.inf),
            np.zeros(S),
            np.zeros(S, dtype=bool),
        )
        fields, weight = self.kind.points(self.u)
        for k in range(S):
            patience.check()
            one = _One(self.kind, self.omega[k], self.factor[k], fields[k], weight[k], self.late[k], self.L[k])
            one.refine(k, rtol, cov, max_nodes or MOST, out)
        out.converged = out.error <= rtol
        return out


@dataclass(frozen=True)
class _One:
    """One posterior: omega (P, T), the factor of V in the order of the kind, the points behind (B, n, T) with their
    log-weights (B,), omega and the factor of the late rows."""

    kind: OnTables
    omega: np.ndarray
    factor: np.ndarray
    points: np.ndarray
    weight: np.ndarray
    late: np.ndarray
    L: np.ndarray

    # ---- levels ------------------------------------------------------------------------------------

    def refine(self, k: int, rtol: float, cov: bool, most: int, out: Average) -> None:
        """Level by level until the error is below rtol; the best is kept as the k-th of ``out``."""
        level, before, changes = self._first(rtol), None, list[float]()
        left_out, border, crops, steps = 0.0, 0.0, 0, iter(_STEPS[1:])
        for _ in range(_ROUNDS):
            if self._cost(level) > most:
                break
            found = self._at(level, cov)
            tables = np.inf
            if found is not None:
                out.nodes[k] += found.points
                tables = missed_by_tables(found.steps, found.end, found.passed)
            if found is None or not tables < _BLIND:
                # Tables that show nothing: more nodes before smaller steps.
                before, changes = None, []
                wider = replace(level, side=min(level.side + _MORE, _MOST_SIDE))
                if wider.side == level.side:
                    wider = replace(wider, step=next(steps, 0.0))
                if not wider.step:
                    break
                level = wider
                continue
            following, outside = level, 0.0
            if crops < _CROPPED:
                following, border, outside = self._next(found, rtol, tables)
            if before is not None:
                changes.append(_change(before, found))
                _keep(k, found, _ahead(changes) + tables + border + left_out, out)
                if out.error[k] <= rtol:
                    break
            before, left_out, crops = found, left_out + outside, crops + 1
            if following.radius != level.radius:
                before, changes, left_out, crops = None, [], 0.0, 0
            short = tables / (_TABLES * rtol)
            # About one digit for two nodes more.
            more = min(2 * int(np.ceil(np.log10(short))), _MORE) if short > 1 else 0
            step = next(steps, 0.0)
            if not step:
                break
            level = replace(following, side=min(level.side + more, _MOST_SIDE), step=step)

    def _first(self, rtol: float, radius: float = 0.0, side: int = _SIDE) -> _Level:
        layers = self.kind.layers
        wide = max(len(layer.rows) for layer in layers) > 1
        radius = radius or float(np.sqrt(2 * (_DEPTH + _WIDER * wide - np.log(min(rtol, 1.0)))))
        edges = [np.full(len(layer.rows) * self.kind.tokens, radius) for layer in layers]
        boxes = tuple((-edge, edge) for edge in edges)
        return _Level(side, _STEPS[0], radius, boxes, (ANYWHERE,) * (len(layers) - 1))

    def _cost(self, level: _Level) -> float:
        """Points of the dearest step, at most."""
        states, most = 1, 0.0
        for low, high in level.boxes:
            # The share of a box that its ball fills, where the box is the one around the ball.
            ball = {2: 0.8, 4: 0.35}.get(len(low), 1.0) if (high - low).min() > 1.9 * level.radius else 1.0
            nodes = np.ceil((high - low) / (level.step * _stretch(len(low)))).prod()
            most = max(most, states * ball * float(nodes))
            states = level.side**2
        return most

    def _next(self, found: _Found, rtol: float, tables: float) -> tuple[_Level, float, float]:
        """The next level, restricted to where there is mass; the share of it that may lie beyond this one, and the one
        that the next leaves out."""
        level, boxes, spans, beyond, outside = found.level, [], [], 0.0, 0.0
        rules = [*(step.rule for step in found.steps), found.rule]
        total = found.passed.total
        for number, rule in enumerate(rules):
            if number < len(found.steps):
                step = found.steps[number]
                shares = np.abs(step.shares(found.passed.forward[number], found.passed.backward[number + 1])) / total
                least = _OUTSIDE * rtol
                boxed = step.spread(shares, least)
                spans.append(tuple((s, *box) for s, box in zip(found.signs[number], boxed, strict=True)))
                outside += 4 * least * _FAR
                # Where the floor cut something off, what lies next to it says how much.
                if found.cuts[number] and all(low[0] == -np.inf for _, low, _ in level.spans[number]):
                    beyond += step.lowest(shares)
            else:
                shares = np.abs(found.passed.forward[-1])[:, None] * found.ends * rule.weights / total
            share, z, h = shares.sum(axis=0), rule.nodes, rule.step
            border = float(share[np.sqrt((z * z).sum(axis=0)) > level.radius - h].sum())
            # Beyond, a Gaussian falls by that much, and what multiplies it is bounded.
            beyond += level.radius * border * float(np.exp(-h * (level.radius - 0.5 * h)))
            kept = share > _NEGLIGIBLE * rtol * share.max()
            low, high = level.boxes[number]
            low, high = np.maximum(z[:, kept].min(axis=1) - h, low), np.minimum(z[:, kept].max(axis=1) + h, high)
            boxes.append((low, high))
            gone = ((z < low[:, None]) | (z > high[:, None])).any(axis=0)
            outside += float(share[gone] @ np.sqrt((z[:, gone] ** 2).sum(axis=0)))
        # What tables miss lies anywhere; it counts as error at the border, and does not move it.
        if beyond > max(_BORDER * rtol, _NOISE * tables) and level.radius < _FARTHEST:
            return self._first(rtol, level.radius + _FARTHER, level.side), beyond, 0.0
        return replace(level, boxes=tuple(boxes), spans=tuple(spans)), beyond, outside

    # ---- one level ---------------------------------------------------------------------------------

    def _at(self, level: _Level, cov: bool) -> _Found | None:
        T, layers = self.kind.tokens, self.kind.layers
        states, steps, signs = np.eye(T)[None], [], []
        scale, row, points = 1.0, 0, 0
        cuts: list[bool] = []
        floor = self._floor(level.radius)
        for number, (layer, (low, high)) in enumerate(zip(layers, level.boxes, strict=True)):
            rule = Rule.lattice(low, high, level.step * _stretch(len(low)), level.radius)
            n, M, K = len(layer.rows), len(states), rule.nodes.shape[1]
            if K == 0:
                return None
            L = self.factor[row : row + n, row : row + n]
            row += n
            points += M * K
            h = self.omega[list(layer.rows)][:, :, None] + np.tensordot(L, rule.nodes.reshape(n, T, -1), axes=1)
            A = layer.mixing(mixed(states, h).T)
            if number == len(layers) - 1:
                break
            scale *= float(layer.row_sum or np.nan)
            delta, t = passed_on(A, states, scale)
            coordinates = np.stack([np.log(np.maximum(np.abs(delta), TINY)), t])
            spans, place = places(delta, coordinates, floor, level.spans[number])
            if not spans:
                return None
            cuts.append(bool((np.abs(delta) < floor).any()))
            grids = tuple(Grid.over(a, b, level.side) for _, a, b in spans)
            steps.append(Transfer.of(grids, rule, coordinates, place, cov))
            signs.append(tuple(sign for sign, _, _ in spans))
            states = np.concatenate([matrices(g.nodes(), s, scale) for g, (s, _, _) in zip(grids, spans, strict=True)])
        log_weight, end = self._end(rule, products(A, states).reshape(T, T, M, K), cov)
        if not np.isfinite(end.top):
            return None
        sums = passed(steps, end)
        if not (sums.total > 0 and np.isfinite(sums.mean).all()):
            return None
        return _Found(level, steps, rule, np.exp(log_weight - end.top), end, sums, signs, cuts, points)

    def _end(self, rule: Rule, C: np.ndarray, cov: bool) -> tuple[np.ndarray, End]:
        """What follows matrices C (2, 2, M, K): its log-weights (M, K), and the last step of the chain."""
        whitening = np.linalg.inv(self.L)
        M, K = C.shape[2:]
        log_weight, ends = np.empty((M, K)), []
        few = max(1, _CACHED // K)
        for i in range(0, M, few):
            some = C[:, :, i : i + few]
            found = behind(some.reshape(2, 2, -1), self.points, self.weight, self.late, whitening, cov=cov)
            log_weight[i : i + few] = found[0].reshape(-1, K)
            mean = found[1].reshape(-1, len(log_weight[i : i + few]), K)
            second = None if found[2] is None else found[2].reshape(len(mean), *mean.shape)
            ends.append(End.summed(rule, log_weight[i : i + few], mean, second))
        return log_weight, End.joined(ends)

    def _floor(self, radius: float) -> float:
        """The least |delta| at which the late fields are within the radius of their mean.

        Differences of two tokens are s delta times those of the fields, and no mixing behind makes |delta| larger.
        """
        scale = 1.0
        for layer in self.kind.layers:
            scale *= layer.row_sum or np.inf
        apart = np.abs(self.points[:, :, 0] - self.points[:, :, 1])
        deviation = np.sqrt(2 * (self.L**2).sum(axis=1))
        most = np.abs(self.late[:, 0] - self.late[:, 1]) + radius * deviation
        return max(float((apart / most).max(axis=1).min()) / scale, TINY)


def _stretch(dim: int) -> float:
    """Steps of a rule in so many dimensions over those in two: lattices of more have more neighbours as near."""
    return {4: 1.35}.get(dim, 1.0)


def _keep(k: int, found: _Found, error: float, out: Average) -> None:
    if not error < out.error[k]:
        return
    mean = found.passed.mean
    out.log_norm[k], out.mean[k], out.error[k] = found.log_norm, mean, error
    if out.cov is not None and found.passed.second is not None:
        out.cov[k] = found.passed.second - mean[:, None] * mean


def _ahead(changes: list[float]) -> float:
    """What all later levels would change, from what the ones so far did: a geometric series, by the slower of the last
    two ratios.

    Where attention is steep what a lattice misses falls like a low power of its step, and a change may be small by
    chance: it counts for no less than the one before lets expect.
    """
    if len(changes) == 1:
        return changes[0] * _SLOWEST / (1 - _SLOWEST)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num(np.array(changes[1:]) / np.array(changes[:-1]), posinf=1.0)
    known = len(ratios) > 1
    ratio = float(np.clip(ratios[-2:].max(), _FASTEST if known else _EARLY, _SLOWEST))
    expected = changes[-2] * (min(float(ratios[-2]), ratio) if known else _EARLY)
    return max(changes[-1], expected) * ratio / (1 - ratio)


def _change(before: _Found, after: _Found) -> float:
    moved = float(np.linalg.norm(before.passed.mean - after.passed.mean))
    return max(moved, abs(before.log_norm - after.log_norm))
