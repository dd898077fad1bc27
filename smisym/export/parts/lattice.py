"""Integrals of few dimensions: the trapezoid rule on a lattice that grows from the maxima."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from smisym.export.parts.climbing import maxima, narrowness
from smisym.export.parts.given import ANALYTIC, SHEETS, Array
from smisym.export.parts.on_level_set import evaluate
from smisym.export.parts.posterior import DIM, ENTRIES, FLOATS, LINE, Average, Batch, Sums, cloud, slices

SIDE = {1: 16, 2: 8, 3: 4}[DIM]  # nodes a side of a block of the lattice
ROUNDS = 1000  # of growing by one block on all sides
FIRST, FINER, LEVELS = (0.9, 0.9, 1.8)[DIM - 1], 2**-0.5, 16  # first step over the narrowest width at a maximum
PER_AXIS = 2 ** (42 // DIM)  # blocks an axis, for their numbers
NODES = np.stack([axis.ravel() for axis in np.indices((SIDE,) * DIM)])
WITHIN = np.array(list(itertools.product((0.01, 0.5, 0.99), repeat=DIM)))
BESIDE = np.array([move for move in itertools.product((-1, 0, 1), repeat=DIM) if any(move)])


def integral(batch: Batch, rtol: float, second: bool, seed: int, max_nodes: int) -> Average:
    """Steps shrink until moments stand still.

    The error is what the last refinement changed, where densities are analytic: errors of the trapezoid rule then fall
    exponentially, and less is left.  Elsewhere it is three times the last two changes.  Maxima that hold less than
    ``rtol``, and may be narrower than the step, are added.  It knows nothing of a maximum that no start led to.
    """
    S = len(batch.omega)
    tops, cut = maxima(batch, seed), 10 - np.log(rtol)
    # Steps by the narrowest of the maxima that hold a share of the mass.
    mass = tops.log - 0.5 * np.linalg.slogdet(tops.precision + 0.1 * np.eye(DIM))[1]
    best, curvature = np.full(S, -np.inf), np.ones((S, DIM))
    np.maximum.at(best, tops.s, mass)
    held = mass > best[tops.s] + np.log(min(rtol, 1e-2)) - 4
    # Several starts lead to one maximum: of each sheet the largest of them.
    rest = np.zeros((SHEETS, S))
    np.maximum.at(rest, (tops.sheet[~held], tops.s[~held]), np.exp(mass - best[tops.s])[~held])
    np.maximum.at(curvature, tops.s[held], narrowness(batch, tops)[held])
    step = FIRST / np.sqrt(curvature)
    points = np.concatenate([cloud(seed), LINE], axis=1)
    log = evaluate(batch, np.arange(S), points[:, None] + np.zeros((1, S, 1))).log.max(axis=0)
    near = np.nonzero(log > log.max(axis=1, keepdims=True) - cut)
    seeds = np.concatenate([tops.s, near[0]]), np.concatenate([tops.x, points.T[near[1]]])
    log_norm, mean, error = np.full(S, -np.inf), np.full((S, ENTRIES), np.nan), np.full(S, np.inf)
    cov = np.full((S, ENTRIES, ENTRIES), np.nan) if second else None
    nodes, left, before = np.zeros(S, dtype=int), np.isin(np.arange(S), tops.s), np.full(S, np.inf)
    line, unsure = along_line(batch)  # one dimension
    for _ in range(LEVELS):
        level = grown(batch, step, seeds, cut, second, max_nodes)
        new_norm, new_mean, new_cov = level.sums.moments()
        new_norm += np.log(step).sum(axis=1)
        done = left & level.whole
        change = np.linalg.norm(new_mean - mean, axis=1) + np.abs(np.nan_to_num(new_norm) - np.nan_to_num(log_norm))
        if cov is not None and new_cov is not None:
            change = np.maximum(change, np.sqrt(((new_cov - cov) ** 2).sum(axis=(1, 2))))
            cov[done] = new_cov[done]
        change = np.nan_to_num(change, nan=np.inf)
        error[done] = rest.sum(axis=0)[done] + (change if ANALYTIC else 3 * np.maximum(change, before))[done]
        off = np.linalg.norm(new_mean - line, axis=1) - unsure  # one dimension
        error[done] = np.fmax(error, off)[done]  # one dimension
        before = change
        log_norm[done], mean[done] = new_norm[done], new_mean[done]
        nodes[left] += level.nodes[left]
        left &= level.whole & (error > rtol) & (level.nodes * FINER**-DIM < max_nodes)
        if not left.any():
            break
        step, seeds = FINER * step, tuple(values[left[level.alive[0]]] for values in level.alive)
    return Average(log_norm, mean, cov, error, nodes)


def along_line(batch: Batch) -> tuple[Array, Array]:
    """Means (S, ENTRIES) by all of LINE, and how far those by a quarter of it are from them (S,): in one dimension
    lattices are held against it, whose steps may pass a step of the density by."""
    everyone, quarters = np.arange(len(batch.omega)), []
    for first in range(4):
        points = LINE[:, first::4]
        sums = Sums(len(everyone), False)
        sums.add(everyone, evaluate(batch, everyone, points[:, None] + np.zeros((1, len(everyone), 1))))
        quarters.append(sums.moments()[1])
    mean = np.mean(quarters, axis=0)
    return mean, np.linalg.norm(quarters - mean, axis=2).max(axis=0)


class Level(NamedTuple):
    """Sums over one lattice, evaluations (S,), whether all that counts was met (S,), and where that is (samples, x)."""

    sums: Sums
    nodes: Array
    whole: Array
    alive: tuple[Array, Array]


def grown(batch: Batch, step: Array, seeds: tuple[Array, Array], cut: float, second: bool, max_nodes: int) -> Level:
    """Blocks of nodes around seeds, and around every block in which the density is more than exp(-cut) of its top."""
    S = len(step)
    sums, nodes, whole = Sums(S, second), np.zeros(S, dtype=int), np.ones(S, dtype=bool)
    s, x = seeds
    pending = np.unique(numbers(s, np.floor(x / (SIDE * step[s])).astype(int)))
    visited, tops = pending[:0], np.zeros(0)
    for _ in range(ROUNDS):
        own = []
        for part in np.array_split(pending, slices(pending.size, FLOATS * SIDE**DIM)):
            s, block = places(part)
            points = (block.T[:, :, None] * SIDE + NODES[:, None]) * step[s].T[:, :, None]
            own.append(sums.add(s, evaluate(batch, s, points)))
            np.add.at(nodes, s, SIDE**DIM)
        visited, tops = np.concatenate([visited, pending]), np.concatenate([tops, *own])
        order = np.argsort(visited)
        visited, tops = visited[order], tops[order]
        whole &= nodes <= max_nodes
        s, block = places(pending)
        live = (np.concatenate(own) > sums.top[s] - cut) & whole[s]
        around = np.unique(numbers(np.repeat(s[live], len(BESIDE)), (block[live][:, None] + BESIDE).reshape(-1, DIM)))
        pending = np.setdiff1d(around, visited, assume_unique=True)
        if not pending.size:
            break
    whole[places(pending)[0]] = False
    s, block = places(visited)
    live = tops > sums.top[s] - cut
    # All over these blocks: the next ones are smaller, and what is alive may be at an edge.
    s, block = np.repeat(s[live], len(WITHIN)), (block[live][:, None] + WITHIN).reshape(-1, DIM)
    return Level(sums, nodes, whole, (s, block * SIDE * step[s]))


def numbers(s: Array, block: Array) -> Array:
    """One number for each block (N, d) of a sample."""
    found = s.astype(np.int64)
    for axis in block.T:
        found = found * PER_AXIS + np.clip(axis + PER_AXIS // 2, 0, PER_AXIS - 1)
    return found


def places(number: Array) -> tuple[Array, Array]:
    """Samples and blocks of these numbers."""
    block = np.empty((len(number), DIM), dtype=int)
    for axis in reversed(range(DIM)):
        number, block[:, axis] = np.divmod(number, PER_AXIS)
    return number, block - PER_AXIS // 2
