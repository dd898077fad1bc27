"""Posteriors with a Gaussian part: what an integrand is, how far out it counts, and the climb to its maxima.

An integrand is a posterior over a whitened vector zeta = (x, r): x in R^d standard normal a priori,
r = r_b(x) in R^m a residual that depends on x and on a branch b, with density proportional to

    sum_b exp(-|x|^2/2 - |r_b(x)|^2/2 + log_weight_b(x)).

Along some directions of r the posterior may be Gaussian with unit variance (integrated in closed form): r is then its
mean, and the directions are handed over as orthonormal vectors.

Nothing here knows where x, r or the branches come from.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from smisym.base.levenberg import Rule, Tried, descend
from smisym.integrate.accuracy import ALONG
from smisym.integrate.climbing import FREE, GAIN, LOST, SHIFT, STUCK, compiled_climb
from smisym.integrate.loops import compiled_points, loop_values
from smisym.kernels.points import PointProgram

# Points evaluated together: enough to amortise the interpreter, few enough for the cache.
CHUNK = 32768
# Radii, relative to that of a Gaussian of the same weight, to which densities that fall more slowly are followed.
_SHELLS = 1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5
# The radius from which on the first of them is looked at.
_WITHIN = 0.85
# Directions of a plane that are looked into.
_ANGLES = 24
# How steps towards maxima are damped: by the diagonal, whose entries are at least one.
_RULE = Rule(first=1e-2, eased=0.2, tightened=5.0, least=0.0, diagonal=True, gaussian=True)


@dataclass(frozen=True)
class Doubt:
    """What solutions found from starts tell of those that were not: sums of weights over evaluations, in logs.

    all_found (S,): of all solutions.  found_once (S,): of those that a single start has reached.  lost (S,): whether
    some found no place to be kept.
    """

    all_found: np.ndarray
    found_once: np.ndarray
    lost: np.ndarray

    @classmethod
    def none(cls, samples: int) -> Doubt:
        return cls(np.full(samples, -np.inf), np.full(samples, -np.inf), np.zeros(samples, dtype=bool))

    def add(self, index: np.ndarray, other: Doubt) -> None:
        """Add what an evaluation of some of the samples tells."""
        np.logaddexp.at(self.all_found, index, other.all_found)
        np.logaddexp.at(self.found_once, index, other.found_once)
        np.logical_or.at(self.lost, index, other.lost)


class Summed(NamedTuple):
    """What an integrand that sums over some numbers by itself tells of them, point by point.

    second (m, m, n, C): mean of r r^T at each point, or None where it was not asked for.  missed (n, C):
    what the sum misses of 1 and of r, relative to the sum of weights.  lost (n, C): share of the weight at its border.
    nodes (n, C): points that were summed over, or None where these are not counted.
    """

    second: np.ndarray | None
    missed: np.ndarray
    lost: np.ndarray
    nodes: np.ndarray | None = None

    def take(self, columns: np.ndarray) -> Summed:
        second = None if self.second is None else self.second[..., columns]
        nodes = None if self.nodes is None else self.nodes[:, columns]
        return Summed(second, self.missed[:, columns], self.lost[:, columns], nodes)


class Values(NamedTuple):
    """An integrand at points: residuals (branches, m, n, C), log_weight (branches or 1, n, C), directions
    (branches, k, m, n, C) or None, and what solutions that were sought tell of those not found, by columns, or None.

    Where ``summed`` is given the residuals are means over what was summed, and log_weight is the log of that sum: they
    do not enter the exponent again.
    """

    residuals: np.ndarray
    log_weight: np.ndarray
    along: np.ndarray | None = None
    doubt: Doubt | None = None
    summed: Summed | None = None

    @property
    def squared(self) -> np.ndarray:
        """The residuals that enter the exponent, (branches, m or 0, n, C)."""
        return self.residuals if self.summed is None else self.residuals[:, :0]

    def log_density(self, x: np.ndarray) -> np.ndarray:
        return log_density(x, self.squared, self.log_weight)


class Integrand(Protocol):
    """A batch of S posteriors.  Nothing is written to it while it is evaluated.

    ``evaluate(index, x)``: ``index`` (C,) which posterior, ``x`` (d, n, C) points, n for each.  ``widening``, at least
    one: how many times as far out as the log-weight near the centre tells some mass may lie. ``modeless``: whether its
    maxima are dear to find, or tell little of where the mass is; whoever samples it begins with broad proposals then.
    ``broken``: whether it has kinks or jumps where there is mass, so that a lattice converges like a power of its step.
    ``bordered``: whether mass may lie farther out than the log-weight near the centre tells; the error is told what the
    border holds then.  ``ended``: whether branches may end where there is mass, beyond the last node that has a
    density: maxima are looked for, and steps must resolve them.  ``saturating``: whether residuals or log-weights may
    be flat or steep at all nodes of a cell and have a ridge beside them: their ranges are told with the corners of the
    cell then.  ``tailed``: whether densities may fall more slowly than a Gaussian far out, so that how far they count
    is looked for.  ``latents``: how many of the coordinates, the last ones, are no whitened fields: maxima may lie far
    away from the centre along these.  ``outlying`` (S,): standard deviations by which the Gaussian part lies away from
    where the model has it, which error estimates are made for.
    """

    samples: int
    dim: int
    residuals: int
    branches: int
    widening: float
    modeless: bool
    broken: bool
    bordered: bool
    ended: bool
    saturating: bool
    tailed: bool
    latents: int

    @property
    def outlying(self) -> np.ndarray | float: ...

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values: ...

    def points(self) -> tuple[PointProgram, np.ndarray] | None:
        """The same at one point as a program, and the numbers (S, k) of each sample that it takes; None where it is
        numpy code alone."""
        ...


def at_points(integrand: Integrand, index: np.ndarray, x: np.ndarray) -> Values:
    """``integrand.evaluate(index, x)``, in a compiled loop where there is one."""
    found = integrand.points()
    run = None if found is None else compiled_points(found[0])
    if found is None or run is None:
        return integrand.evaluate(index, x)
    r, log_weight, along = loop_values(found[0], run, index, x, found[1])
    return Values(r, log_weight, along)


def log_density(x: np.ndarray, r: np.ndarray, log_weight: np.ndarray) -> np.ndarray:
    """(branches, n, C) exponent; a point where the chart is singular has weight zero."""
    base = log_weight.copy()
    for row in x:
        base -= 0.5 * row * row
    out = np.empty((r.shape[0], *base.shape[1:]))
    for b in range(r.shape[0]):
        out[b] = base[b if len(base) > 1 else 0]
        if not r.shape[1]:
            continue
        square = r[b, 0] * r[b, 0]
        for j in range(1, r.shape[1]):
            square += r[b, j] * r[b, j]
        square *= -0.5
        out[b] += square
    bad = ~np.isfinite(out)
    if bad.any():
        out[bad] = -np.inf
    return out


def probe(integrand: Integrand, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Largest exponent and largest log-weight over a few fixed points; (len(index),) each."""
    points = probe_points(integrand.dim)
    best = np.empty(len(index))
    weight = np.empty(len(index))
    per = max(1, CHUNK // points.shape[1])
    for i in range(0, len(index), per):
        owner = index[i : i + per]
        x = np.broadcast_to(points[:, :, None], (integrand.dim, points.shape[1], len(owner)))
        found = at_points(integrand, owner, x)
        log_weight = found.log_weight
        best[i : i + per] = found.log_density(x).max(axis=(0, 1))
        weight[i : i + per] = np.where(np.isfinite(log_weight), log_weight, -np.inf).max(axis=(0, 1))
    return best, weight


def _directions(dim: int) -> list[np.ndarray]:
    """Unit vectors along the axes and diagonals."""
    axes = [s * v for v in np.eye(dim) for s in (1.0, -1.0)]
    return axes + [np.array(v) / np.sqrt(dim) for v in itertools.islice(itertools.product((1.0, -1.0), repeat=dim), 16)]


def probe_points(dim: int) -> np.ndarray:
    """(d, n) points: the centre and two shells of axis and diagonal directions."""
    directions = _directions(dim)
    return np.array([np.zeros(dim), *(0.7 * v for v in directions), *(1.6 * v for v in directions)]).T


# Many parameters: what a probe has found.
def radius_of_mass(
    integrand: Integrand, index: np.ndarray, best: np.ndarray, weight: np.ndarray, depth: float, points: int = ALONG
) -> np.ndarray:
    """(len(index),) of the ball outside of which the density is negligible, from :func:`probe`; points: at which each
    direction is looked at between two radii, many where maxima may be narrow."""
    radius = np.asarray(integrand.widening * np.sqrt(2 * np.maximum(depth + weight + 2.0 - best, depth)))
    if not integrand.tailed:
        return radius
    directions, wide, rest = _directions(integrand.dim), radius.copy(), np.flatnonzero(np.isfinite(radius))
    if integrand.dim == 2:
        directions = [np.array([np.cos(angle), np.sin(angle)]) for angle in 2 * np.pi * np.arange(_ANGLES) / _ANGLES]
    within, along_all, empty = _WITHIN, np.array(directions).T, np.zeros(len(radius), dtype=int)
    for factor in _SHELLS:
        if not rest.size:
            break
        followed = rest[empty[rest] == 0]
        wide[followed] = factor * radius[followed]
        parts = factor - (factor - within) * np.arange(points) / points
        within = factor
        along = (along_all[:, :, None] * parts).reshape(integrand.dim, -1, 1)
        x = along * radius[rest]
        density = at_points(integrand, index[rest], x).log_density(x).max(axis=(0, 1))
        # Beyond one gap there may be more.
        empty[rest] = np.where(density > best[rest] - depth - 2.0, 0, empty[rest] + 1)
        rest = rest[empty[rest] < 2]
    return wide


def levenberg(
    integrand: Integrand, owner: np.ndarray, x: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every branch and start; x (d, nb, N). Returns x, exponent (nb, N), Jacobian (nb, N, m, d) there."""
    found = integrand.points()
    climb = None if found is None else compiled_climb(found[0], _RULE)
    if found is None or climb is None:
        return _all_at_once(integrand, owner, x, steps)
    x, shape = np.array(x, order="C"), x.shape[1:]
    value, slopes = np.empty(shape), np.empty((*shape, found[0].residuals, len(x)))
    climb(np.ascontiguousarray(owner), x, found[1], steps, value, slopes)
    return x, value, slopes


def _all_at_once(
    integrand: Integrand, owner: np.ndarray, x: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """:func:`levenberg` with arrays."""
    d, nb, N = x.shape

    def fields(points: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(points.T).reshape(d, nb, N)

    def of(which: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals (n, m), and log-weights (n,), of problems ``which`` (branch N + start) at their points (n, d)."""
        return _residual(integrand, owner[which % N], points.T, which // N)

    def values(which: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, None]:
        return of(which, points)[0], None

    def slopes(which: np.ndarray, points: np.ndarray, r: np.ndarray) -> np.ndarray:
        columns = []
        for i in range(d):
            step = SHIFT * (1 + np.abs(points[:, i]))
            shifted = points.copy()
            shifted[:, i] += step
            columns.append((values(which, shifted)[0] - r) / step[:, None])
        return np.stack(columns, axis=-1)

    def ends(tried: Tried) -> np.ndarray:
        rests = (tried.before - tried.after <= GAIN) & (tried.damping <= FREE)
        return np.where(tried.better, rests, tried.damping > STUCK)

    start, everyone = np.moveaxis(x, 0, 2).reshape(nb * N, d), np.arange(nb * N)
    end, r, _ = descend(values, start, ends, steps=steps, rule=_RULE, slopes=slopes, together=True)
    cost = (end**2).sum(axis=1) + (r**2).sum(axis=1)
    value = np.where(np.isfinite(cost), of(everyone, end)[1] - 0.5 * cost, -np.inf)
    J = slopes(everyone, end, r)
    return fields(end), value.reshape(nb, N), J.reshape(nb, N, -1, d)


def _residual(
    integrand: Integrand, owner: np.ndarray, x: np.ndarray, branch: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """r (n, m) of one branch each at points x (d, n), and its log-weight (n,)."""
    r, log_weight, *_ = at_points(integrand, owner, np.ascontiguousarray(x)[:, None])  # (nb, m, 1, n), (nb or 1, 1, n)
    rows = np.arange(len(owner))
    own = r[branch, :, 0, rows]
    weight = log_weight[branch if len(log_weight) > 1 else 0, 0, rows]
    return np.where(np.isfinite(own), own, LOST), weight
