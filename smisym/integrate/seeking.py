"""Maxima of posteriors: where climbs begin, and where they end."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from smisym.integrate.modes import CHUNK, Integrand, at_points, levenberg, probe_points

# Points from which local maxima are sought, for every branch.
MODE_STARTS = 12
# How far out, and how many a side, points are among which branches that end are looked for.
_REACH, _SIDES = 3.0, {1: 61, 2: 13, 3: 7}
# The same of those that tell maxima from slopes, by the number of axes: far away from all others, where a field that
# the chart has the logarithm of is small, one may be that holds everything.
_FAR_REACH, _FAR_SIDES = 6.0, {1: 121, 2: 25, 3: 9}
# Half of the square of whitened fields, of order one each, from which on a maximum is none of what a model draws; and
# how many points are drawn where all are.
_ELSEWHERE, _DRAWN = 200.0, 1024


@dataclass
class Modes:
    """Local maxima found from several starts: x (S, K, d), branch (S, K), value (S, K) exponent there."""

    x: np.ndarray
    branch: np.ndarray
    value: np.ndarray
    jacobian: np.ndarray  # (S, K, m, d) of the residual

    def beside(self, other: Modes) -> Modes:
        """These and those."""
        pairs = [(getattr(self, name), getattr(other, name)) for name in ("x", "branch", "value", "jacobian")]
        return Modes(*(np.concatenate(pair, axis=1) for pair in pairs))

    def replace(self, index: np.ndarray, other: Modes) -> None:
        """Take over those of some samples, where their highest is higher; the first of these have so many."""
        better = other.value.max(axis=1) > self.value[index].max(axis=1)
        mine, many = index[better], slice(other.value.shape[1])
        self.x[mine, many], self.branch[mine, many] = other.x[better], other.branch[better]
        self.value[mine, many], self.jacobian[mine, many] = other.value[better], other.jacobian[better]


def starts(dim: int) -> int:
    """From how many probe points local maxima are sought."""
    return min(MODE_STARTS, probe_points(dim).shape[1])


def _grid_points(dim: int, reach: float, sides: int) -> np.ndarray:
    """(d, n) points of a grid as far out as ``reach``, and the centre."""
    return np.array(list(itertools.product(np.linspace(-reach, reach, sides), repeat=dim))).T


def _densities(integrand: Integrand, index: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Exponents (branches, len(index), n) at points (d, n), a few samples at a time."""
    per, parts = max(1, CHUNK // points.shape[1]), []
    for i in range(0, len(index), per):
        owner = index[i : i + per]
        x = np.broadcast_to(points[:, :, None], (*points.shape, len(owner)))
        parts.append(np.swapaxes(at_points(integrand, owner, x).log_density(x), 1, 2))
    return np.concatenate(parts, axis=1)


def _tops(values: np.ndarray, sides: int, dim: int) -> np.ndarray:
    """Which points of a grid (..., n) are below none of their neighbours along the axes."""
    on_grid = values.reshape(*values.shape[:-1], *(sides,) * dim)
    top = np.ones(on_grid.shape, dtype=bool)
    for axis in range(-dim, 0):
        ahead, behind = (np.moveaxis(a, axis, 0) for a in (top, on_grid))
        ahead[:-1] &= behind[:-1] >= behind[1:]
        ahead[1:] &= behind[1:] >= behind[:-1]
    return np.asarray(top.reshape(values.shape))


def find_modes(integrand: Integrand, index: np.ndarray, *, steps: int = 30) -> Modes:
    """Levenberg-Marquardt on |x|^2 + |r_b(x)|^2 from the best of some points and of the tops of a grid, every branch.

    Where no maximum is near anything that a model draws, from many more points.  Derivatives by forward differences:
    they only place nodes and never enter a result.
    """
    d = integrand.dim
    # Branches that end have maxima near their ends, to which no climb from beyond or from far away leads.
    points = _grid_points(d, _REACH, _SIDES.get(d, 3)) if integrand.ended else probe_points(d)
    found = _climbed(integrand, index, points, _densities(integrand, index, points), steps)
    axes = integrand.latents or (d if d < 3 else 0)
    if axes in _FAR_SIDES:
        sides = _FAR_SIDES[axes]
        grid = np.zeros((d, sides**axes))
        grid[d - axes :] = _grid_points(axes, _FAR_REACH, sides)
        density = _densities(integrand, index, grid)
        density = np.where(_tops(density, sides, axes), density, -np.inf)
        found = found.beside(_climbed(integrand, index, grid, density, steps))
    lost = np.flatnonzero(_misfit(integrand, index, found) > _ELSEWHERE)
    if lost.size and integrand.latents:
        points = _all_over(integrand)
        again = _climbed(integrand, index[lost], points, _densities(integrand, index[lost], points), steps)
        found.replace(lost, again)
    return found


def _all_over(integrand: Integrand) -> np.ndarray:
    """(d, n) points that are drawn: standard normal along whitened fields, even along the others."""
    d, free, rng = integrand.dim, integrand.dim - integrand.latents, np.random.default_rng(0)
    points = rng.standard_normal((d, _DRAWN))
    points[free:] = rng.uniform(-_FAR_REACH / 2, _FAR_REACH / 2, (d - free, _DRAWN))
    return points


# Many parameters: an integrand, which of it, and where to begin.
def _climbed(integrand: Integrand, index: np.ndarray, points: np.ndarray, density: np.ndarray, steps: int) -> Modes:
    """From the best of points (d, n) by their densities (branches, len(index), n)."""
    d, nb, S = integrand.dim, integrand.branches, len(index)
    order = np.argsort(-density, axis=2, kind="stable")[:, :, : starts(d)]
    K = order.shape[2]
    x = points.T[order]  # (nb, S, K, d)
    x = np.moveaxis(x, 3, 0).reshape(d, nb, S * K)
    owner = np.repeat(index, K)
    x, value, jacobian = levenberg(integrand, owner, x, steps)
    branch = np.repeat(np.arange(nb), S * K).reshape(nb, S, K)

    def shape(a: np.ndarray) -> np.ndarray:
        """(nb, S*K, ...) to (S, nb*K, ...)."""
        a = a.reshape(nb, S, K, *a.shape[2:])
        return np.moveaxis(a, 0, 1).reshape(S, nb * K, *a.shape[3:])

    return Modes(
        shape(np.moveaxis(x, 0, 2)), np.moveaxis(branch, 0, 1).reshape(S, nb * K), shape(value), shape(jacobian)
    )


def _misfit(integrand: Integrand, index: np.ndarray, modes: Modes) -> np.ndarray:
    """(len(index),) half the square of all whitened fields at the highest maximum."""
    who, top = np.arange(len(index)), np.argmax(np.nan_to_num(modes.value, nan=-np.inf), axis=1)
    x = modes.x[who, top].T
    r = at_points(integrand, index, x[:, None]).squared[modes.branch[who, top], :, 0, who]
    white = x[: integrand.dim - integrand.latents]
    with np.errstate(over="ignore"):
        return np.asarray(0.5 * ((white**2).sum(axis=0) + (r**2).sum(axis=1)))
