"""How fine a lattice must begin, so that what its sublattices miss tells what it misses itself.

An adaptive lattice is told by its nodes alone where to go on.  Of an output that turns through many radians from one
node to the next, or has a bump between two nodes, all nodes and half of them may show one slow function that is not
there: they agree, and say nothing of it.  This is a property of a model, and not of one posterior of it.  It is looked
for once, on lines through posteriors of the model's own outputs: along an axis, wherever the lattice happens to lie,
sums at its nodes are set against sums at many more.  Where lines are missed, lattices of these posteriors are set
against finer ones: only what is wrong there by more than it states takes more nodes from then on.
"""

from __future__ import annotations

import numpy as np

from smisym.base import patience
from smisym.integrate.accuracy import MISLED, MISLED_AT, MISLED_BUDGET, Lattice
from smisym.integrate.cells import means_and_gaps, sublattice_error
from smisym.integrate.modes import CHUNK, Integrand
from smisym.integrate.quadrature import lattice

# Nodes of a line in a step of lattices, the longest first: an output that oscillates has a spectrum of lines, and a
# lattice is misled where one of them meets its step.
_NODES = 64, 54, 45, 38, 32, 27, 23, 19, 16, 13, 11, 9, 8, 7, 6, 5, 4, 3, 2
# How many times as many nodes lines have whose own halves miss so much, so many of them; of these nodes further steps.
_FINER, _UNKNOWN, _AGAIN = 8, 1e-3, 8
_FINEST_NODES = 12, 8, 6, 4, 3, 2
_STEPS = np.array([*(_FINER * n for n in _NODES), *_FINEST_NODES])
# The longest step, and how far a line reaches.
_LONGEST, _REACH = 0.5, 7.0
# What a lattice may miss: so many times what its sublattices tell, or a share; where these tell of more than is large
# nobody takes it.  Networks that are shipped miss 0.6 of it at most, attention at beta 5 under noise of 0.01 2.4 times,
# cos(3 z1) under noise of 0.05 10 times.
_TIMES, _SHARE, _LARGE = 40.0, 3e-3, 0.1
# The share of a model that misses more at some step; its first step over the longest that does.
_LATER, _SAFER = 1e-6, 0.5
# The share where there are kinks, jumps or ends, at which all nodes miss as much as half of them do, or more.
_AT_EDGES = 0.3
# How many times the errors that two lattices state tells that one of them is misled.
_WRONG = 2.0
# Points of which a line goes through the one with the largest density.
_TRIED = 64
# Lines beside it whose sums are added up, for ridges that it passes by.
_BESIDE = 8


def misled(integrand: Integrand, shape: Lattice | None, step: float) -> bool:
    """Whether lattices of any of these posteriors are off by more than they state, as finer ones have it, that begin
    with ``step`` or what is affordable.  shape: as :func:`lattice` has it."""
    finer = max(step, MISLED[integrand.dim].finest)
    with np.errstate(all="ignore"):
        for rtol in MISLED_AT:
            own = lattice(integrand, rtol=rtol, shape=shape, max_nodes=MISLED_BUDGET)
            other = lattice(integrand, rtol=rtol, shape=shape, max_nodes=MISLED_BUDGET, longest=finer)
            apart = np.linalg.norm(own.mean - other.mean, axis=1) + np.abs(own.log_norm - other.log_norm)
            both = own.converged & other.converged
            if (apart[both] > _WRONG * (own.error + other.error)[both]).any():
                return True
    return False


def longest_on_lines(integrand: Integrand) -> float:
    """The longest step that the first lattice of posteriors like these may have, as far as lines through them tell;
    infinite where any of those in use will do, zero where none that is looked at does."""
    worst = np.zeros((2, len(_STEPS)))
    count = 2 * int(_REACH / _LONGEST) * _NODES[0]
    block = max(1, 2 * CHUNK // (count * max(1, integrand.branches)))
    rng, edged = np.random.default_rng(0), integrand.broken or integrand.ended
    for first in range(0, integrand.samples, block):
        patience.check()
        who = np.arange(first, min(first + block, integrand.samples))
        tried = rng.standard_normal((integrand.dim, _TRIED, len(who)))
        with np.errstate(all="ignore"):
            base = _within(integrand, who, tried)
            for axis in range(integrand.dim):
                line = _on_lines(integrand, who, base[:, None], axis, count)
                unknown = np.flatnonzero(_known(line)[1] > _UNKNOWN)[:_AGAIN]
                worst = np.maximum(worst, _missed(line, edged, _FINER))
                if unknown.size and first == 0:
                    line = _on_lines(integrand, who[unknown], base[:, None, unknown], axis, _FINER * count)
                    worst = np.maximum(worst, _missed(line, edged, 1))
                if integrand.saturating and integrand.dim > 1:
                    many = _on_lines(integrand, who, tried[:, :_BESIDE], axis, count)
                    worst = np.maximum(worst, _missed(many, edged, _FINER))
    if (worst[0] <= 1.0).all():
        return np.inf
    bad = int(np.flatnonzero(worst[1] > 1.0)[-1]) + 1
    return 0.0 if bad == len(_STEPS) else float(_SAFER * _LONGEST * _STEPS[bad] / _STEPS[0])


def _within(integrand: Integrand, who: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Of points x (d, n, G) the ones (d, G) with the largest density."""
    density = integrand.evaluate(who, x).log_density(x).max(axis=0)
    best = np.nan_to_num(density, nan=-np.inf).argmax(axis=0)
    return np.asarray(x[:, best, np.arange(len(who))])


def _on_lines(integrand: Integrand, who: np.ndarray, base: np.ndarray, axis: int, count: int) -> np.ndarray:
    """Weights, and weights times what has a mean, (count, G, 1 + D), each summed over lines along an axis through
    points (d, K, G) whose other coordinates are normal numbers."""
    d, K, G = base.shape
    x = np.repeat(base[:, None], count, axis=1)
    x[axis] = ((np.arange(count) - count // 2) * (2 * int(_REACH / _LONGEST) * _LONGEST / count))[:, None, None]
    x = x.reshape(d, count * K, G)
    values = integrand.evaluate(who, x)
    density = np.nan_to_num(values.log_density(x), nan=-np.inf)
    # What is left of the density beside that of the points themselves.
    density += 0.5 * (np.delete(x, axis, axis=0) ** 2).sum(axis=0)
    top = density.max(axis=(0, 1))
    w = np.exp(density - np.where(np.isfinite(top), top, 0.0))
    mass = w.sum(axis=0)
    means = [(w * np.where(w > 0, r, 0.0)).sum(axis=0) for r in np.moveaxis(values.residuals, 1, 0)]
    return np.stack([mass, *(mass * row for row in x), *means], axis=-1).reshape(count, K, G, -1).sum(axis=1)


def _known(line: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means (G, D) of lines, and what half of their nodes miss (G,)."""
    mean, gap = means_and_gaps(line.sum(axis=0), (line[::2].sum(axis=0) - line[1::2].sum(axis=0))[:, None])
    return mean, gap[:, 0]


def _missed(line: np.ndarray, edged: bool, unit: int) -> np.ndarray:
    """(2, steps) what lattices miss at worst, over what they may: to be relied upon, and where they were not once.
    unit: of a node of these lines, in those of the finest."""
    shares = (_AT_EDGES, _AT_EDGES) if edged else (_SHARE, _LATER)
    mean, known = _known(line)
    total = line[..., 0].sum(axis=0)
    worst = np.zeros((2, len(_STEPS)))
    for k, step in enumerate(_STEPS):
        each = int(step) // unit
        if step % unit or each < 2:
            continue
        # All lattices of that step, by where they begin: even nodes and odd ones.
        more = np.zeros((-len(line) % (2 * each), *line.shape[1:]))
        halves = np.concatenate([line, more]).reshape(-1, 2, each, *line.shape[1:]).sum(axis=0)
        sums, gaps = halves[0] + halves[1], halves[0] - halves[1]
        found, gap = means_and_gaps(sums.reshape(-1, sums.shape[-1]), gaps.reshape(-1, 1, sums.shape[-1]))
        away = np.linalg.norm(found.reshape(*sums.shape[:2], -1) - mean, axis=2)
        away += np.abs(sums[..., 0] * each / total - 1.0)
        told = sublattice_error(gap, 1).reshape(sums.shape[:2])
        # A node of the line that is alone counts as many times as it stands for others.
        allowed = np.maximum(_TIMES * told, 2 * each * known)
        for which, share in enumerate(shares):
            ratio = away / np.maximum(allowed, share)
            # Where nothing lies on a line, or on the nodes, nothing is told; nor would anybody take so large an error.
            worst[which, k] = np.max(ratio, where=np.isfinite(ratio) & (told < _LARGE), initial=0.0)
    return worst
