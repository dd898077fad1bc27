"""Posteriors on lattices in a ball: a coarse one tells where the mass is, and how fine the next one must be.

The trapezoid rule of :mod:`smisym.integrate.quadrature`, with the same bounds and errors, for posteriors that fill a
good part of a ball, as they do where outputs leave the free fields nearly as the cavity has them.  Nothing is kept of
cells: nodes come in blocks of 2^d, ordered by their distance from the centre, so that any ball is the beginning of one
list, in the steps and around the centre of each posterior.

What the sublattices of half the density miss falls like exp(-a / step^p).  The first lattice gives a, and with it the
step at which the tolerance is met.  What is not met even so, and what does not suit a ball (ends of sheets, narrow
maxima far out), is left to the adaptive lattice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from smisym.base import patience
from smisym.integrate.accuracy import BALLS, RESOLVED
from smisym.integrate.averages import Average
from smisym.integrate.ball_blocks import blocks, serves
from smisym.integrate.ball_loops import compiled_balls
from smisym.integrate.cells import (
    ALIASING_POWER,
    aliasing_factor,
    means_and_gaps,
    measured,
    parity_signs,
    random_error,
    sublattice_error,
)
from smisym.integrate.left_out import BLIND, DISTANCE, FAINT
from smisym.integrate.modes import CHUNK, Integrand, Values, probe, radius_of_mass
from smisym.integrate.sums import BLURRED

# What sublattices miss is HEAD exp(-a / step^FALL): of two layers on two tokens at Q = (0.3, 0.9), 256 posteriors, what
# steps of 0.8 and 1 miss tells the step that leaves 1e-6 to 10 %.  A lower power than that of the best fit, 1.5, is
# cheaper: fewer posteriors need one lattice more.
_HEAD, _FALL = 5.0, 1.2
# Ratios of steps from one lattice to the next, at least and at most.
_FINER = 1.125, 4.0
# Power of the step from below which on errors are those of an integrand that is not smooth: 3 for the cusp of a ring.
_SLOW = 5.0
# Share of the tolerance that what sublattices miss may take.
_SHARE = 0.5
# Lattices of one posterior at most.
_LEVELS = 5
# Of the range of a resolved residual over a block, what it may change around a node: the ball need not hold all of it.
_AROUND = 0.25
# Steps from the highest node to where the slope there is told.
NEAR = 1e-3
# By how much the logarithm of what a ball may leave out lies below that of the tolerance.
_DEPTH = 4.0
# Radius of a first ball, relative to that of a standard normal, from which on too little of it holds mass.
_FAR = 1.6
# Samples of one call of compiled loops, after which Ctrl-C and the clock are heard.
_CALL = 256


def on_balls(integrand: Integrand, rtol: float, cov: bool, most: float) -> Average | None:
    """Averages of a batch, converged or not, for at most so many evaluations each; None where balls are no way."""
    if not serves(integrand):
        return None
    found = integrand.points()
    state = BallState(integrand, rtol, cov, most)
    active = state.begin()
    run = None if found is None else compiled_balls(found[0], cov, rules(integrand.dim))
    if found is not None and run is not None:
        numbers = np.ascontiguousarray(found[1])
        for i in range(0, len(active), _CALL):
            patience.check()
            state.in_loops(run, active[i : i + _CALL], numbers)
        return state.average()
    for level in range(_LEVELS):
        if active.size:
            active = state.go(active, level == 0)
    return state.average()


@dataclass
class _Lattice:
    """One lattice of each of G posteriors: N blocks of K nodes, of which the last ones may be ``beyond`` (N, G) a ball.

    step (G,), centre (d, G), x (d, K N, G), top (G,) the largest exponent; relative to it, w (B, K N, G) weights and
    mass (K, N, G) their sums over sheets.  whole (G,): whether all nodes are on all sheets.  low, high (B, m, N, G): of
    residuals over each block.
    """

    who: np.ndarray
    step: np.ndarray
    centre: np.ndarray
    x: np.ndarray
    values: Values
    beyond: np.ndarray
    top: np.ndarray
    whole: np.ndarray
    w: np.ndarray
    mass: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def r(self) -> np.ndarray:
        """(B, m, K, N, G)"""
        return self.values.residuals.reshape(*self.values.residuals.shape[:2], *self.mass.shape)

    @property
    def log_weight(self) -> np.ndarray:
        """(B or 1, K, N, G)"""
        return self.values.log_weight.reshape(-1, *self.mass.shape)

    @cached_property
    def change(self) -> np.ndarray:
        """(N, G) largest change of a residual between neighbouring nodes, in standard deviations."""
        return np.asarray((self.high - self.low).max(axis=(0, 1)))

    @cached_property
    def blur(self) -> np.ndarray:
        """(N, G) of the range of a residual over a block, what it may lie beyond that between nodes."""
        return np.where(self.change <= RESOLVED, 0.05, np.where(self.change < BLURRED, 0.25, 1.5))


class BallState:
    """Running results of :func:`on_balls` for a batch."""

    def __init__(self, integrand: Integrand, rtol: float, cov: bool, most: float) -> None:
        S, d = integrand.samples, integrand.dim
        D = d + integrand.residuals
        self.integrand, self.rtol, self.most, self.ball = integrand, rtol, most, BALLS[d]
        self.depth = _DEPTH - np.log(rtol)
        self.blocks = blocks(d)
        self.signs = parity_signs(np.array(list(itertools.product((0, 1), repeat=d))))
        self.step, self.radius, self.centre = np.full(S, self.ball.first), np.zeros(S), np.zeros((S, d))
        self.best = np.full(S, -np.inf)
        # The step of the lattice before, and what its sublattices missed.
        self.before, self.missed = np.full(S, np.inf), np.full(S, np.inf)
        # Log of what the first lattice finds outside of the next ones.
        self.lost = np.full(S, -np.inf)
        self.log_norm, self.mean = np.full(S, np.nan), np.full((S, D), np.nan)
        self.cov = np.full((S, D, D), np.nan) if cov else None
        self.error, self.nodes = np.full(S, np.inf), np.zeros(S)

    def average(self) -> Average:
        """What has not converged is no estimate: narrow maxima may have been passed by."""
        converged, sure = self.error <= self.rtol, np.ones(len(self.error))
        error = np.where(converged, self.error, np.inf)
        return Average(self.log_norm, self.mean, self.cov, error, self.nodes, converged, sure=sure)

    def begin(self) -> np.ndarray:
        """Which posteriors are tried: those of which some point that was tried lies near the mass."""
        everyone = np.arange(self.integrand.samples)
        self.best, weight = probe(self.integrand, everyone)
        self.radius = radius_of_mass(self.integrand, everyone, self.best, weight, self.depth)
        return np.flatnonzero(
            np.isfinite(self.best)
            & (self.radius <= _FAR * np.sqrt(2 * self.depth))
            & ~measured(self.integrand, self.rtol)
        )

    def in_loops(self, run: Callable[..., None], who: np.ndarray, numbers: np.ndarray) -> None:
        """All lattices of some, in compiled loops."""
        cov = np.empty((0, 0, 0)) if self.cov is None else self.cov
        asked = self.rtol, self.depth, float(self.most)
        run(who, numbers, self.blocks.tiles, self.blocks.distance, self.signs, *asked, self.best, self.radius,
            self.log_norm, self.mean, cov, self.error, self.nodes)  # fmt: skip

    def go(self, active: np.ndarray, first: bool) -> np.ndarray:
        """One lattice of each; returns those that go on."""
        radius = self.radius[active] / self.step[active]
        count, each = self.blocks.within(radius), len(self.signs) + 1
        cost = self.nodes[active] + count * each * self.integrand.branches
        fits = (radius <= self.ball.largest) & (cost <= self.most)
        active, count = active[fits], count[fits]
        self.nodes[active] = cost[fits]
        order = np.argsort(count, kind="stable")
        active, count = active[order], count[order]
        at, on = 0, [active[:0]]
        while at < len(active):
            # A few whose balls are nearly alike, in the cache.
            end = min(at + max(1, CHUNK // (each * int(count[at]))), len(active))
            lattice = self._evaluate(active[at:end], count[at:end])
            on.append(lattice.who[self._digest(lattice, first)])
            at = end
        return np.concatenate(on)

    def _evaluate(self, who: np.ndarray, count: np.ndarray) -> _Lattice:
        """Integrands at the nodes of balls of so many blocks, increasing."""
        patience.check()
        d, K, N, G = self.integrand.dim, len(self.signs) + 1, int(count[-1]), len(who)
        step, centre = self.step[who], self.centre[who].T
        x = np.moveaxis(self.blocks.places[:, :, :N], 1, 0).reshape(d, K * N, 1) * step + centre[:, None]
        values = self.integrand.evaluate(who, x)
        logf = values.log_density(x)
        beyond = np.arange(N)[:, None] >= count
        by_block = logf.reshape(len(logf), K, N, G)
        whole = (np.isfinite(by_block) | beyond).all(axis=(0, 1, 2))
        by_block[:, :, beyond] = -np.inf
        top = logf.max(axis=(0, 1))
        w = logf
        w -= np.where(np.isfinite(top), top, 0.0)
        np.exp(w, out=w)
        r = values.residuals.reshape(*values.residuals.shape[:2], K, N, G)
        mass = w.sum(axis=0).reshape(K, N, G)
        return _Lattice(who, step, centre, x, values, beyond, top, whole, w, mass, r.min(axis=2), r.max(axis=2))

    def _digest(self, one: _Lattice, first: bool) -> np.ndarray:
        """Moments and errors of a lattice, and the next one; returns which posteriors (G,) go on."""
        who, d = one.who, self.integrand.dim
        self.best[who] = np.maximum(self.best[who], one.top)
        gap, total = self._moments(one)
        log_norm = self.log_norm[who]
        before, finer = self.missed[who], self.before[who] / one.step
        aliasing = np.maximum(sublattice_error(gap, d), self._slow(one, gap.sum(axis=1)))
        rough = np.where(one.change > RESOLVED, one.mass.sum(axis=0), 0.0).sum(axis=0) / total
        rough = np.where(self._steepest(one) > RESOLVED, 1.0, rough)
        error = aliasing + random_error(gap, rough, before, finer) + self._unseen(one, total)
        error += self._border(self.lost[who], log_norm)
        known = one.whole & np.isfinite(aliasing)
        self.error[who] = np.where(known, error, np.inf)
        if first:
            self._look(one, total)
        left = self.rtol - self._border(self.lost[who], log_norm)
        going = known & (error > self.rtol) & (left > 0)
        step = one.step / finer_by(aliasing, left)
        self.step[who] = np.where(going, step, one.step)
        return going

    def _steepest(self, one: _Lattice) -> np.ndarray:
        """(G,) how much a residual changes along a step, by its slope at the highest node: nodes may all lie at two or
        three phases of an output that oscillates, and look alike."""
        d, G = len(one.x), len(one.who)
        sheet, node = np.unravel_index(one.w.reshape(-1, G).argmax(axis=0), one.w.shape[:2])
        place = np.take_along_axis(one.x, node[None, None], axis=1)  # (d, 1, G)
        beside = np.concatenate([place + NEAR * one.step * np.eye(d)[:, :, None], place], axis=1)
        r = self.integrand.evaluate(one.who, beside).residuals[sheet, :, :, np.arange(G)]  # (G, m, d + 1)
        return np.asarray(np.abs(r[:, :, :d] - r[:, :, d:]).max(axis=(1, 2), initial=0.0) / NEAR)

    def _slow(self, one: _Lattice, missed: np.ndarray) -> np.ndarray:
        """Error (G,) of integrands that are not smooth, whose errors fall like a power of the step: as from the lattice
        before to this one, from the sublattices to all nodes."""
        finer, before = self.before[one.who] / one.step, self.missed[one.who]
        self.before[one.who], self.missed[one.who] = one.step, missed
        with np.errstate(divide="ignore", invalid="ignore"):
            power = np.maximum(np.log(before / missed) / np.log(finer), 0.0)
            return np.where(power < _SLOW, missed * np.exp2(-power), 0.0)

    def _border(self, lost: np.ndarray, log_norm: np.ndarray) -> np.ndarray:
        """Error owed to what lies outside of a ball."""
        return 10 * np.exp(-self.depth) + DISTANCE * np.exp(np.minimum(lost - log_norm, 0.0))

    def _moments(self, one: _Lattice) -> tuple[np.ndarray, np.ndarray]:
        """Moments of each posterior; returns what sublattices miss (G, A) and the sum of weights (G,)."""
        d, m, (K, N, G) = self.integrand.dim, self.integrand.residuals, one.mass.shape
        step, centre, features = one.step, one.centre, self.blocks.features[:, :, :N]
        sums = features @ one.mass  # (K, F, G)
        places = centre[:, None] * sums[:, 0] + step * np.moveaxis(sums[:, 1 : 1 + d], 1, 0)
        weighted = [sum_over_sheets(one.w, one.values.residuals[:, j]).reshape(K, N, G) for j in range(m)]
        classes = np.stack([sums[:, 0], *places, *(wr.sum(axis=1) for wr in weighted)], axis=-1)  # (K, G, 1 + D)
        first = classes.sum(axis=0)
        alias = np.einsum("ak,kgi->gai", self.signs, classes)
        mean, gap = means_and_gaps(first, alias)
        self.mean[one.who], total = mean, first[:, 0]
        self.log_norm[one.who] = one.top + np.log(total) + d * np.log(step)
        if self.cov is not None:
            second = self._second(one, sums.sum(axis=0), weighted)
            self.cov[one.who] = second / total[:, None, None] - mean[:, :, None] * mean[:, None, :]
        return gap, total

    def _second(self, one: _Lattice, sums: np.ndarray, weighted: list[np.ndarray]) -> np.ndarray:
        """Sums (G, D, D) of zeta zeta^T; sums (F, G) over all nodes, weighted residuals (K, N, G)."""
        d, m, N = self.integrand.dim, self.integrand.residuals, one.mass.shape[1]
        c, h, r, out = (
            one.centre,
            one.step,
            one.values.residuals,
            np.empty((len(one.who), len(weighted) + self.integrand.dim, d + m)),
        )
        offset = h * sums[1 : 1 + d]
        for k, (i, j) in enumerate(itertools.combinations_with_replacement(range(d), 2)):
            pairs = c[i] * c[j] * sums[0] + c[i] * offset[j] + c[j] * offset[i] + h * h * sums[1 + d + k]
            out[:, i, j] = out[:, j, i] = pairs
        for j in range(m):
            own = (self.blocks.features[:, : 1 + d, :N] @ weighted[j]).sum(axis=0)
            out[:, :d, d + j] = out[:, d + j, :d] = (c * own[0] + h * own[1:]).T
            for k in range(j, m):
                product = sum_over_sheets(one.w, r[:, j] * r[:, k]).sum(axis=0)
                out[:, d + j, d + k] = out[:, d + k, d + j] = product
        if one.values.along is not None:
            along = one.values.along
            out[:, d:, d:] += np.einsum("bnc,bijnc,biknc->cjk", one.w, along, along, optimize=True)
        return out

    def _unseen(self, one: _Lattice, total: np.ndarray) -> np.ndarray:
        """Error (G,) owed to blocks whose nodes may pass by a ridge: what their bounds allow."""
        blind = (one.change > BLIND) & ~one.beyond
        if not blind.any():
            return np.zeros(len(total))
        gap = np.maximum(np.maximum(one.low, -one.high) - (0.5 + one.blur) * (one.high - one.low), 0.0)
        bound = (one.log_weight.max(axis=1) - 0.5 * (gap**2).sum(axis=1)).max(axis=0) + 1.0
        close = np.abs(one.x.reshape(-1, *one.mass.shape)).min(axis=1) - 0.5 * one.step
        bound -= 0.5 * (np.maximum(close, 0.0) ** 2).sum(axis=0) + one.top
        held = len(one.mass) * np.where(blind, np.exp(np.minimum(bound, 50.0)), 0.0).sum(axis=0)
        return np.asarray(np.minimum(DISTANCE * held / total, 1.0))

    def _look(self, one: _Lattice, total: np.ndarray) -> None:
        """The ball around all nodes near which there may be mass, and what it leaves out."""
        x = one.x.reshape(-1, *one.mass.shape)
        # Where residuals change fast, all that their bounds allow; else as much as leaves out next to nothing.
        fast = one.change > RESOLVED
        margin = np.where(fast, 0.5 + one.blur, _AROUND) * (one.high - one.low)
        gap = np.maximum(np.abs(one.r) - margin[:, :, None], 0.0)
        around = (one.log_weight - 0.5 * (gap**2).sum(axis=1)).max(axis=0) + np.where(fast, 1.0, 0.0)
        around -= 0.5 * (x**2).sum(axis=0)
        # Beside the maximum, and beside the sum, as broad maxima beside narrow ones.
        more = around - np.minimum(self.best[one.who], one.top + np.log(total) - FAINT) + self.depth
        there = (more > 0) & ~one.beyond
        low = np.where(there, x, np.inf).min(axis=(1, 2))
        high = np.where(there, x, -np.inf).max(axis=(1, 2))
        centre = 0.5 * (low + high)
        away = np.sqrt(((x - centre[:, None, None]) ** 2).sum(axis=0))
        # As far as the Gaussian part takes to fall so low against the slope of the weight, at most to the next node.
        weights = one.log_weight
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = away - (weights.max(axis=1) - weights.min(axis=1)).max(axis=0) / one.step
            further = np.sqrt(away**2 + 2 * more * away / slope)
        further = np.where(slope > 0, np.fmin(further, away + one.step), away + one.step)
        radius = np.where(there, further, 0.0).max(axis=(0, 1))
        outside = np.where(away > radius, one.mass, 0.0).sum(axis=(0, 1))
        self.centre[one.who], self.radius[one.who] = centre.T, radius
        with np.errstate(divide="ignore"):
            self.lost[one.who] = np.log(outside / total) + self.log_norm[one.who]


def sum_over_sheets(w: np.ndarray, what: np.ndarray) -> np.ndarray:
    """Of w (B, ...) times what (B, ...)."""
    found = w[0] * what[0]
    for b in range(1, len(w)):
        found += w[b] * what[b]
    return np.asarray(found)


def finer_by(aliasing: np.ndarray, left: np.ndarray) -> np.ndarray:
    """By how much the next step must be finer for an error of which so much is left."""
    with np.errstate(divide="ignore", invalid="ignore"):
        now, then = (
            (x / 4.0) ** (1 / ALIASING_POWER) for x in (np.minimum(aliasing, 4.0), _SHARE * np.maximum(left, 1e-300))
        )
        found = (np.log(_HEAD / then) / np.log(_HEAD / now)) ** (1 / _FALL)
    return np.clip(np.nan_to_num(found, nan=2.0), *_FINER)


@cache
def rules(dim: int) -> str:
    """Constants and the next step as compiled loops have them, the same as those of arrays."""
    ball = BALLS[dim]
    return f"""FIRST, LARGEST, LEVELS = {ball.first!r}, {ball.largest!r}, {_LEVELS!r}
RESOLVED, BLURRED, BLIND, DISTANCE, FAINT = {RESOLVED!r}, {BLURRED!r}, {BLIND!r}, {DISTANCE!r}, {FAINT!r}
SLOW, POWER, FACTOR, AROUND = {_SLOW!r}, {ALIASING_POWER!r}, {aliasing_factor(dim)!r}, {_AROUND!r}
NEAR = {NEAR!r}


@inlined
def finer_by(aliasing, left):
    now = (min(aliasing, 4.0) / 4.0) ** (1 / POWER)
    then = ({_SHARE!r} * max(left, 1e-300) / 4.0) ** (1 / POWER)
    found = (math.log({_HEAD!r} / then) / math.log({_HEAD!r} / now)) ** (1 / {_FALL!r})
    return min(max(found, {_FINER[0]!r}), {_FINER[1]!r}) if found == found else 2.0
"""
