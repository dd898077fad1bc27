"""Posteriors on two lattices or three in a ball: a coarse one tells where the mass is and how fine the next one must be.

The trapezoid rule of :mod:`smisym.integrate.quadrature`, with the same bounds and errors, where the mass fills a good part
of a ball, as it does where outputs leave the free fields nearly as the cavity has them.  Nothing is kept of cells: nodes
come in blocks of 2^d, ordered by their distance from the centre, so that a ball is the beginning of one list for all
posteriors, whose steps and centres are their own.

What the sublattices of half the density miss decays with the step as exp(-a / step^p): the first lattice gives a, and with
it the step that the tolerance needs.  What misses the tolerance even so, or does not suit a ball (edges of sheets, ridges
that fall between nodes, mass in a small part of it), is left to the adaptive lattice.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from smisym.base import patience
from smisym.integrate.averages import Average
from smisym.integrate.ball_loops import LANES, compiled_balls
from smisym.integrate.cells import (
    FAR,
    means_and_gaps,
    parity_signs,
    radius_of_mass,
    random_error,
    sublattice_error,
)
from smisym.integrate.left_out import BLIND, DISTANCE
from smisym.integrate.modes import CHUNK, Integrand, Values, probe
from smisym.integrate.sums import BLURRED, RESOLVED

# Step of the first lattice by dimension, and the largest ball in steps.
FIRST = {1: 0.6, 2: float(os.environ.get("LAT_H", "1.0")), 3: float(os.environ.get("LAT_H3", "0.9"))}
LARGEST = {1: 60.0, 2: float(os.environ.get("LAT_BIG", "40")), 3: float(os.environ.get("LAT_BIG3", "14"))}
# What sublattices miss is HEAD exp(-a / step^FALL).
HEAD, FALL, SAFE = 5.0, float(os.environ.get("LAT_P", "1.3")), float(os.environ.get("LAT_SAFE", "1.05"))
LEVELS = int(os.environ.get("LAT_LEVELS","5"))
NEAR = float(os.environ.get("LAT_MARGIN", "0.25")) / 0.55


@dataclass(frozen=True)
class Blocks:
    """Blocks of 2^d nodes in the order of the distance of their centres: places (2^d, d, N) of nodes in steps, distance
    (N,) of centres."""

    places: np.ndarray
    distance: np.ndarray
    features: np.ndarray  # (2^d, F, N): 1, places, products of two of them

    def within(self, radius: np.ndarray) -> np.ndarray:
        """How many blocks hold all nodes within a radius in steps."""
        half = 0.5 * np.sqrt(self.places.shape[1])
        count = np.searchsorted(self.distance, radius + half, side="right")
        return -(-count // LANES) * LANES

    @cached_property
    def tiles(self) -> tuple[np.ndarray, np.ndarray]:
        """Places (N / LANES, d, 2^d LANES), as compiled loops read them."""
        K, d, N = self.places.shape
        places = self.places.reshape(K, d, N // LANES, LANES)
        return np.ascontiguousarray(np.moveaxis(places, (2, 1, 0, 3), (0, 1, 2, 3)).reshape(N // LANES, d, K * LANES))


@cache
def blocks(dim: int) -> Blocks:
    most = LARGEST[dim] + 0.5 * np.sqrt(dim)
    side = np.arange(-int(most / 2) - 3, int(most / 2) + 3)
    corner = np.stack(np.meshgrid(*[side] * dim, indexing="ij")).reshape(dim, -1)
    distance = np.sqrt(((2.0 * corner + 1.0) ** 2).sum(axis=0))
    order = np.argsort(distance, kind="stable")
    order = order[: (np.count_nonzero(distance <= most) // LANES + 2) * LANES]
    inside = np.array(list(itertools.product((0, 1), repeat=dim)))
    places = 2.0 * corner[None, :, order] + inside[:, :, None] + 0.5
    pairs = [places[:, i] * places[:, j] for i in range(dim) for j in range(i, dim)]
    features = np.concatenate([np.ones_like(places[:, :1]), places, np.stack(pairs, axis=1)], axis=1)
    return Blocks(np.ascontiguousarray(places), distance[order], np.ascontiguousarray(features))


def on_balls(integrand: Integrand, rtol: float, cov: bool, depth: float, most: float) -> Average | None:
    """Averages of a batch, converged or not; None where there is no such lattice."""
    d = integrand.dim
    if d not in FIRST or not integrand.residuals or integrand.broken or integrand.modeless or integrand.widening > 1.0:
        return None
    state = BallState(integrand, rtol, cov, depth, most)
    active = state.begin()
    found = integrand.points()
    run = None if found is None else compiled_balls(found[0], cov, rules(d))
    if found is not None and run is not None:
        state.in_loops(run, active, found[1])
        return state.average()
    for level in range(LEVELS):
        if active.size:
            active = state.go(active, level == 0)
    return state.average()


class BallState:
    def __init__(self, integrand: Integrand, rtol: float, cov: bool, depth: float, most: float) -> None:
        S, d = integrand.samples, integrand.dim
        D = d + integrand.residuals
        self.integrand, self.rtol, self.depth, self.most, self.cov_too = integrand, rtol, depth, most, cov
        self.blocks = blocks(d)
        self.signs = parity_signs(np.array(list(itertools.product((0, 1), repeat=d))))
        self.step, self.radius, self.centre = np.full(S, FIRST[d]), np.zeros(S), np.zeros((S, d))
        self.best = np.full(S, -np.inf)
        self.lost = np.zeros(S)
        self.log_norm, self.mean = np.full(S, np.nan), np.full((S, D), np.nan)
        self.cov = np.full((S, D, D), np.nan) if cov else None
        self.error, self.nodes = np.full(S, np.inf), np.zeros(S)
        self.log = []

    def average(self) -> Average:
        return Average(
            self.log_norm, self.mean, self.cov, self.error, self.nodes, self.error <= self.rtol, sure=np.ones(len(self.error))
        )

    def begin(self) -> np.ndarray:
        everyone = np.arange(self.integrand.samples)
        best, weight = probe(self.integrand, everyone)
        self.best = best
        self.radius = radius_of_mass(best, weight, self.depth)
        return np.flatnonzero(np.isfinite(best) & (self.radius <= FAR * np.sqrt(2 * self.depth)))

    def in_loops(self, run, active: np.ndarray, numbers: np.ndarray) -> None:
        numbers = np.ascontiguousarray(numbers)
        cov = np.empty((0, 0, 0)) if self.cov is None else self.cov
        for i in range(0, len(active), 256):
            patience.check()
            run(active[i : i + 256], numbers, self.blocks.tiles, self.blocks.distance, self.signs, self.rtol, self.depth,
                float(self.most), self.best, self.radius, self.log_norm, self.mean, cov, self.error, self.nodes)

    def go(self, active: np.ndarray, first: bool) -> np.ndarray:
        """One lattice of each; returns those that go on."""
        count = self.blocks.within(self.radius[active] / self.step[active])
        K = len(self.signs) + 1
        fits = self.radius[active] / self.step[active] <= LARGEST[self.integrand.dim] * (1 + 1e-9)
        fits &= self.nodes[active] + count * K * self.integrand.branches <= self.most
        active, count = active[fits], count[fits]
        order = np.argsort(count, kind="stable")
        active, count = active[order], count[order]
        at, on = 0, []
        while at < len(active):
            # A few whose balls are nearly alike, in the cache.
            end = min(at + max(1, CHUNK // (K * int(count[at]))), len(active))
            on.append(self.group(active[at:end], count[at:end], first))
            at = end
        return np.concatenate(on) if on else active

    def group(self, who: np.ndarray, count: np.ndarray, first: bool) -> np.ndarray:
        patience.check()
        d, K, N, G = self.integrand.dim, len(self.signs) + 1, int(count[-1]), len(who)
        h, c = self.step[who], self.centre[who].T
        places = self.blocks.places[:, :, :N]
        x = np.moveaxis(places, 1, 0).reshape(d, K * N, 1) * h + c[:, None]
        values = self.integrand.evaluate(who, x)
        logf = values.log_density(x)
        B, m = len(logf), self.integrand.residuals
        beyond = np.arange(N)[:, None] >= count
        if count[0] < N:
            logf.reshape(B, K, N, G)[:, :, beyond] = -np.inf
        top = logf.max(axis=(0, 1))
        whole = np.isfinite(logf.min(axis=(0, 1))) | (count < N)
        self.best[who] = best = np.maximum(self.best[who], top)
        r = values.residuals.reshape(B, m, K, N, G)
        spread = r.max(axis=2) - r.min(axis=2)  # (B, m, N, G)
        change = spread.max(axis=(0, 1))
        w = np.exp(logf - top)
        mass = w.sum(axis=0).reshape(K, N, G)
        classes = np.empty((G, K, 1 + d + m))
        sums = self.blocks.features[:, :, :N] @ mass  # (K, F, G)
        zero = sums[:, 0].T
        classes[:, :, 0] = zero
        classes[:, :, 1 : 1 + d] = np.moveaxis(c[:, None] * sums[:, 0] + h * np.moveaxis(sums[:, 1 : 1 + d], 1, 0), 2, 0).swapaxes(1, 2)
        wr = []
        for j in range(m):
            one = w[0] * values.residuals[0, j]
            for b in range(1, B):
                one += w[b] * values.residuals[b, j]
            classes[:, :, 1 + d + j] = one.reshape(K, N, G).sum(axis=1).T
            wr.append(one)
        firsts = classes.sum(axis=1)
        alias = self.signs @ classes
        self.mean[who], gap = means_and_gaps(firsts, alias)
        total = firsts[:, 0]
        self.log_norm[who] = top + np.log(total) + d * np.log(h)
        # ridges
        rough = change > RESOLVED
        share = np.zeros(G)
        if rough.any():
            share = np.where(rough, mass.sum(axis=0), 0.0).sum(axis=0) / total
        margin = (0.5 + np.where(change <= RESOLVED, 0.05, np.where(change < BLURRED, 0.25, 1.5))) * spread
        unseen = np.zeros(G)
        blind = (change > BLIND) & ~beyond
        log_weight = values.log_weight.reshape(-1, K, N, G)
        if blind.any():
            gap_ = np.maximum(np.maximum(r.min(axis=2), -r.max(axis=2)) - margin, 0.0)
            held = (log_weight.max(axis=1) - 0.5 * (gap_**2).sum(axis=1)).max(axis=0) + 1.0
            edge = np.maximum(np.abs(x.reshape(d, K, N, G)).min(axis=1) - 0.5 * h, 0.0)
            held -= 0.5 * (edge**2).sum(axis=0) + top + np.log(total)
            unseen = np.minimum(DISTANCE * np.where(blind, K * np.exp(np.minimum(held, 50.0)), 0.0).sum(axis=0), 1.0)
        aliasing = sublattice_error(gap, d)
        other = random_error(gap, share) + unseen + 10 * np.exp(-self.depth) + DISTANCE * self.lost[who]
        self.error[who] = np.where(np.isfinite(aliasing) & whole, aliasing + other, np.inf)
        self.nodes[who] += count * K * B
        if self.cov is not None:
            self._second(who, c, h, values, w, wr, sums, total)
        going = (self.error[who] > self.rtol) & whole & np.isfinite(aliasing)
        if first:
            lost = self._look(who, x, r, log_weight, margin, mass, total, best, beyond)
            self.lost[who] = lost
        finer = finer_by(aliasing, self.rtol - 10 * np.exp(-self.depth) - DISTANCE * self.lost[who])
        self.log.append((first, G, count.mean() * K, h.mean(), finer.mean()))
        self.step[who] = np.where(going, np.maximum(h / finer, self.radius[who] / LARGEST[d]), h)
        return who[going]

    def _look(self, who, x, r, log_weight, margin, mass, total, best, beyond) -> np.ndarray:
        d, (K, N, G) = self.integrand.dim, mass.shape
        h = self.step[who]
        gap = np.maximum(np.abs(r) - NEAR * margin[:, :, None], 0.0)
        around = (log_weight - 0.5 * (gap**2).sum(axis=1)).max(axis=0)
        x = x.reshape(d, K, N, G)
        around -= 0.5 * (x**2).sum(axis=0)
        heavy = (around > best - self.depth) & ~beyond
        low = np.where(heavy, x, np.inf).min(axis=(1, 2))
        high = np.where(heavy, x, -np.inf).max(axis=(1, 2))
        centre = 0.5 * (low + high)
        away = np.sqrt(((x - centre[:, None, None]) ** 2).sum(axis=0))
        more = (around - best + self.depth) / np.maximum(away, 1.0)
        radius = np.where(heavy, away + np.minimum(more, 0.7 * h), 0.0).max(axis=(0, 1))
        self.centre[who], self.radius[who] = centre.T, radius
        return np.where(away > radius, mass, 0.0).sum(axis=(0, 1)) / total

    def _second(self, who, c, h, values: Values, w, wr, sums, total) -> None:
        d, m, (K, F, G) = self.integrand.dim, self.integrand.residuals, sums.shape
        N = w.shape[1] // K
        out = np.empty((G, d + m, d + m))
        S = sums.sum(axis=0)
        offset = h * S[1 : 1 + d]
        for k, (i, j) in enumerate(itertools.combinations_with_replacement(range(d), 2)):
            out[:, i, j] = out[:, j, i] = c[i] * c[j] * S[0] + c[i] * offset[j] + c[j] * offset[i] + h * h * S[1 + d + k]
        for j in range(m):
            own = (self.blocks.features[:, : 1 + d, :N] @ wr[j].reshape(K, N, G)).sum(axis=0)
            for i in range(d):
                out[:, i, d + j] = out[:, d + j, i] = c[i] * own[0] + h * own[1 + i]
            for k in range(j, m):
                value = sum((w[b] * values.residuals[b, j] * values.residuals[b, k]).sum(axis=0) for b in range(len(w)))
                out[:, d + j, d + k] = out[:, d + k, d + j] = value
        if values.along is not None:
            out[:, d:, d:] += np.einsum("bnc,bijnc,biknc->cjk", w, values.along, values.along, optimize=True)
        mean = self.mean[who]
        self.cov[who] = out / total[:, None, None] - mean[:, :, None] * mean[:, None, :]


def finer_by(aliasing: np.ndarray, rtol: np.ndarray) -> np.ndarray:
    """By how much the next step must be finer."""
    with np.errstate(divide="ignore", invalid="ignore"):
        now, then = ((x / 4.0) ** (1 / 1.75) for x in (np.minimum(aliasing, 4.0), 0.5 * np.maximum(rtol, 1e-300)))
        found = SAFE * (np.log(HEAD / then) / np.log(HEAD / now)) ** (1 / FALL)
    return np.clip(np.nan_to_num(found, nan=2.0), 1.125, 4.0)


def rules(dim: int) -> str:
    """The text of what compiled loops and arrays share: constants, and the next step."""
    factor = 2.0 if dim <= 2 else 2.5
    return f"""FIRST, LARGEST, LEVELS = {FIRST[dim]!r}, {LARGEST[dim]!r}, {LEVELS!r}
RESOLVED, BLURRED, BLIND, DISTANCE, NEAR = {RESOLVED!r}, {BLURRED!r}, {BLIND!r}, {DISTANCE!r}, {NEAR!r}
POWER, FACTOR = 1.75, {factor!r}


@inlined
def finer(aliasing, rtol):
    now = (min(aliasing, 4.0) / 4.0) ** (1 / 1.75)
    then = (0.5 * max(rtol, 1e-300) / 4.0) ** (1 / 1.75)
    found = {SAFE!r} * (math.log({HEAD!r} / then) / math.log({HEAD!r} / now)) ** (1 / {FALL!r})
    return min(max(found, 1.125), 4.0) if found == found else 2.0
"""
