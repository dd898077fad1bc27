"""Products of two mixing matrices of tied layers on two tokens, in coordinates without a border.

y = F_2 F_1, F = c I + o A, and A = ((1 - a, a), (b, 1 - b)) is the softmax of rank-one scores exactly where a, b > 0
and a + b < 1.  Row sums S and the other eigenvalues lambda = c + o (1 - a - b) of both factors multiply, and

    a_2 = S_2 o_1 (a_max - a_1) / (o_2 lambda_1),    a_max = y_12 / (S_2 o_1),    and so for b:

in the plane of (a_1, b_1) all six conditions are straight lines.  Four of them are a rectangle, which is all of the
plane in the coordinates X = log a_1 / (a_max - a_1), Y = log b_1 / (b_max - b_1).  The other two cut the corners
a_1 = b_1 = 0 and a_1 = a_max, b_1 = b_max off: at given tau = X - Y, where X + Y ends at one or both sides, at a point
that is the root of a quadratic equation.  A logistic function takes what is between to the whole line, zeta.

On those two sides one layer's attention is stationary, u_1 = u_2 = m with m free, at one point a = b = 1/2.  So tau is
measured from there in units of u_2 - u_1: the second coordinate is m, in which the weight is smooth up to the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from smisym.charts.base import Arrays, Sheets

# All measured on 40 posteriors at skips 0.3 and 1 and covariances from 1 to 0.01, against tests/oracles/sequences.py:
# slope of zeta at the centre; logs of zeta over which the middle is stretched; the integrator's variable in units of m.
_SLOPE, _BEND, _REACH = 2.5, 2.0, 1.0
# How far beside a side without a stationary point fields are of order one.
_DEAD = 0.25
# Beyond m = 5 tau grows like m alone: powers of exp(tau) stay floats.  Before, like m^2, times a power of the units of
# tau over those in the middle.
_FAR, _MOST = 8.0, 5.0
# Scores of variance above this, where fields have one: logs of odds grow beyond floats, and with them the tails.
_WIDEST = 4.5


class Factor(NamedTuple):
    """F = skip I + readout softmax(coefficient u u^T)."""

    skip: float
    readout: float
    coefficient: float

    @property
    def sum(self) -> float:
        return self.skip + self.readout


class _Attention(NamedTuple):
    """Attention of one layer: a, b, and what a + b lacks to one."""

    a: Any
    b: Any
    lacks: Any

    @property
    def gap(self) -> Any:
        """Coefficient times (u_1 - u_2)^2: minus the sum of the logs of odds, which may be near zero."""
        return np.log1p(self.lacks / (self.a * self.b))

    def scores(self, factor: Factor) -> tuple[Any, Any]:
        root = np.sqrt(self.gap * factor.coefficient)
        first, second = np.log(self.a / (self.b + self.lacks)), np.log(self.b / (self.a + self.lacks))
        return -first / root, second / root

    def log_slope(self, factor: Factor) -> Any:
        """log |d(entries of F)/d(u_1, u_2)|."""
        # a (1 - a) b (1 - b)
        logs = np.log(self.a * (self.b + self.lacks)) + np.log(self.b * (self.a + self.lacks))
        return logs + np.log(2 * factor.coefficient * factor.readout**2 * self.gap)


class _Region(NamedTuple):
    """Where (a_1, b_1) may be: a and b at most; a + b at most one, where ``ends``; at least ``edge``, where
    ``begins``; eigenvalue, that of y beside its row sum; scales, sizes of the scores."""

    a: Any
    b: Any
    ends: Any
    begins: Any
    edge: Any
    eigenvalue: Any
    scales: tuple[float, float]


class _Point(NamedTuple):
    """Attention of both layers, lambda_1, the log of da_1 db_1 / (d zeta d tau), and a_max - a_1, b_max - b_1."""

    one: _Attention
    two: _Attention
    other: Any
    log_measure: Any
    left: tuple[Any, Any]


def borderless(first: Factor, second: Factor) -> bool:
    """Whether these coordinates serve: entries and eigenvalues are positive, scores not too large."""
    positive = all(factor.skip >= 0 and factor.readout > 0 for factor in (first, second))
    return positive and max(_scales(first, second)) <= _WIDEST


def _scales(first: Factor, second: Factor) -> tuple[float, float]:
    """Size of the scores of both layers where fields are of order one."""
    return max(first.coefficient, 1.0), max(second.coefficient * max(first.sum, 1.0) ** 2, 1.0)


def sheets_without_border(first: Factor, second: Factor, latent: Arrays, u: Arrays) -> Sheets:
    """Four sheets, one for each sign of both scores' vectors; latent (2,), u (y_12, y_21)."""
    region = _region(first, second, u)
    centre = _centre(region, latent[0])
    width = _width(first, second, region, _point(first, second, region, centre, latent[0]))
    zero = 0.0 * u[0]
    middle = _width(first, second, region, _point(first, second, region, _centre(region, zero), zero))
    m = _REACH * latent[1]
    # Beside corners scores are a multiple of m^2, as logs of odds are squares of fields.
    most = max(region.scales)
    far = _FAR * most * (2 * width / (middle + width)) ** 3
    limit = 1 + m * m * (1 / _MOST**2)
    stretched = np.sqrt(width + far * m * m / limit)
    point = _point(first, second, region, centre + 2 * m * stretched, latent[0])
    log_measure = point.log_measure + np.log(2 * _REACH * (stretched + far * m * m / (limit * limit * stretched)))
    return _fields(first, second, point, log_measure)


def _region(first: Factor, second: Factor, u: Arrays) -> _Region:
    a, b = (value / (second.sum * first.readout) for value in u)
    eigenvalue = first.sum * second.sum - u[0] - u[1]
    # Without a skip the second layer is nowhere stationary.
    edge = -np.ones(()) if second.skip == 0 else 1 - (eigenvalue / second.skip - first.skip) / first.readout
    return _Region(a, b, a + b > 1, edge > 0, edge, eigenvalue, _scales(first, second))


def _stationary(region: _Region) -> tuple[Any, Any]:
    """Whether the point at which a layer is stationary is on the side where X + Y ends, and where it begins."""
    a, b, edge = region.a, region.b, region.edge
    return region.ends & (2 * np.minimum(a, b) > 1), region.begins & (edge > np.abs(a - b))


def _stretched(region: _Region, x: Any, high: _Side, low: _Side) -> tuple[Any, Any]:
    """zeta at the integrator's variable x, and its slope.

    Fields grow like the square root of zeta towards corners, and do not where a stationary point is met; beside sides
    without one they grow like exp(zeta / 2), and zeta like a logarithm.
    """
    end, begin = _stationary(region)
    late = 1 / (1 + np.exp(-2 * x))
    turn = 2 * late * (1 - late)
    before = np.where(region.begins, 1.0, region.scales[0] ** 2)
    after = np.where(region.ends, 1.0, region.scales[1] ** 2)
    bent = before * (1 - late) + after * late
    root = np.sqrt(1 + bent * x * x)
    wide, wide_slope = _SLOPE * x * root, _SLOPE * (root + x * x * (bent + 0.5 * (after - before) * turn * x) / root)
    up, down = np.where(region.ends & ~end, 1.0, 0.0), np.where(region.begins & ~begin, 1.0, 0.0)
    last, first = _steep(region.ends & ~end, high.a, high.b), _steep(region.begins & ~begin, low.left_a, low.left_b)
    narrow = 2 * np.arcsinh(x) + last * late - first * (1 - late)
    narrow_slope = 2 / np.sqrt(1 + x * x) + (last + first) * turn
    share = up * late + down * (1 - late)
    slope = wide_slope + share * (narrow_slope - wide_slope) + turn * (up - down) * (narrow - wide)
    return wide + share * (narrow - wide), slope


def _steep(dead: Any, a: Any, b: Any) -> Any:
    """Logs of how far a side is passed before fields grow, a : b there; zero where that does not matter."""
    a, b = np.where(dead, a, 1.0), np.where(dead, b, 2.0)
    return np.where(dead, np.log1p(_DEAD * (a + b) ** 2 / (a * b * np.log(a / b) ** 2)), 0.0)


def _centre(region: _Region, x: Any) -> Any:
    """tau where m is zero: where a = b in the layer that is stationary at an end, if that point is in the region."""
    a, b, edge = region.a, region.b, region.edge
    end, begin = _stationary(region)
    at_end = np.log(np.where(end, (2 * b - 1) / (2 * a - 1), 1.0))
    at_begin = np.log(np.where(begin, (edge + a - b) / (edge - a + b), 1.0))
    # Each centre is met faster than the units of tau vanish.
    both = 1 / (1 + np.exp(-_SLOPE * x * np.sqrt(1 + x * x)))
    late = np.where(end & begin, both, 1.0)
    return np.where(end, late, 0.0) * at_end + np.where(begin, np.where(end, 1 - both, 1.0), 0.0) * at_begin


def _width(first: Factor, second: Factor, region: _Region, point: _Point) -> Any:
    """Square of the units of tau: of u_1 - u_2 in each layer, by how much of tau is in its logs of odds."""
    scale = second.coefficient * max(first.sum, 1.0) ** 2
    mine, left = 1 / point.one.a + 1 / point.one.b, 1 / point.left[0] + 1 / point.left[1]
    # d log-odds / d tau at given a + b, of each layer.
    share = mine / (mine + left)
    # What is nowhere stationary need not be met in smaller units.
    end, begin = (np.where(live, 0.0, 1.0) for live in _stationary(region))
    mine, left = first.coefficient * (point.one.gap + end), scale * (point.two.gap + begin)
    return 1 / (share**2 / mine + (1 - share) ** 2 / left)


def _point(first: Factor, second: Factor, region: _Region, tau: Any, x: Any) -> _Point:
    a, b, ends, begins = region.a, region.b, region.ends, region.begins
    p, q = 1 / (1 + np.exp(-tau)), 1 / (1 + np.exp(tau))
    high, low = _on_side(region, ends, 1.0, p, q), _on_side(region, begins, region.edge, p, q)
    zeta, stretch = _stretched(region, x, high, low)
    apart = np.where(ends & begins, high.logit - low.logit, 0.0)
    nothing, less = np.where(ends & begins, np.exp(-apart), 0.0), np.where(ends & begins, -np.expm1(-apart), 1.0)
    # As far from each side at all tau: what lies between is stretched.
    bend = np.tanh(zeta / _BEND)
    step = np.exp(zeta + 0.5 * apart * (bend - 1))
    bottom = np.where(begins & ~ends, 1.0, nothing) + step
    top = np.where(ends, 1 + step, 1.0)
    logit = np.where(ends, high.logit, np.where(begins, low.logit, 0.0)) + np.log(bottom / top)
    slope = np.where(ends, less / top, 1.0) * np.where(begins, step / bottom, 1.0)
    slope = slope * stretch * (1 + 0.5 * apart * (1 - bend * bend) / _BEND)
    X, Y = 0.5 * (logit + tau), 0.5 * (logit - tau)
    mine = a / (1 + np.exp(-X)), b / (1 + np.exp(-Y))
    left = a / (1 + np.exp(X)), b / (1 + np.exp(Y))
    # What is left to the ends, without cancellation.
    up, down = _halved(np.where(ends, less / top, 0.0)), _halved(np.where(begins, less * step / bottom, 0.0))
    lacks = np.where(ends, up * (high.a * left[0] / a + high.b * left[1] / b), 1 - a - b + left[0] + left[1])
    other = first.skip + first.readout * lacks
    if second.skip == 0:
        below = region.eigenvalue / (second.readout * other)
    else:
        beyond = down * (mine[0] * low.left_a / a + mine[1] * low.left_b / b)
        above = np.where(begins, beyond, mine[0] + mine[1] - region.edge)
        below = second.skip * first.readout * above / (second.readout * other)
    ratio = second.sum * first.readout / (second.readout * other)
    log_measure = np.log(mine[0] * left[0] / a) + np.log(mine[1] * left[1] / b) + np.log(0.5 * slope)
    one, two = _Attention(mine[0], mine[1], lacks), _Attention(ratio * left[0], ratio * left[1], below)
    return _Point(one, two, other, log_measure, left)


class _Side(NamedTuple):
    """A point of the rectangle: a, b, what they lack to the largest, and X + Y."""

    a: Any
    b: Any
    left_a: Any
    left_b: Any
    logit: Any


def _on_side(region: _Region, there: Any, s: Any, p: Any, q: Any) -> _Side:
    """Where a + b = s at tau, p : q = exp(tau) : 1; the middle of the rectangle where there is no such side."""
    most = region.a, region.b
    s = np.where(there, s, 0.5 * (most[0] + most[1]))
    rest = most[0] + most[1] - s
    a, b = _root(p, q, s, rest, *most), _root(q, p, s, rest, *most[::-1])
    left_a, left_b = _root(q, p, rest, s, *most), _root(p, q, rest, s, *most[::-1])
    return _Side(a, b, left_a, left_b, np.log(a / left_a) + np.log(b / left_b))


def _root(p: Any, q: Any, s: Any, rest: Any, most: Any, other: Any) -> Any:
    """a in (0, most) with a + b = s and a (other - b) : b (most - a) = p : q, where p + q = 1, rest = most + other - s.

    Root of (q - p) a^2 + beta a - p s most = 0, without cancellation.
    """
    beta = q * (rest - most) + p * (s + most)
    root = np.sqrt((q * (rest - most) + p * (s - most)) ** 2 + 4 * p * q * most * other)
    positive = beta >= 0
    above, below = np.where(positive, beta + root, 1.0), np.where(positive, 1.0, q - p)
    return np.where(positive, 2 * p * s * most / above, 0.5 * (root - beta) / below)


def _halved(x: Any) -> Any:
    """1 - sqrt(1 - x)."""
    return x / (1 + np.sqrt(1 - x))


def _fields(first: Factor, second: Factor, point: _Point, log_measure: Any) -> Sheets:
    """Fields of both layers, each of either sign, and the weight of all sheets."""
    one, two, other = point[:3]
    u, v = one.scores(first), two.scores(second)
    det = first.sum * other
    p, q = first.readout * one.a, first.readout * one.b
    back = ((first.sum - q) * v[0] - p * v[1]) / det, ((first.sum - p) * v[1] - q * v[0]) / det
    # |d(fields)/d(a_1, b_1)| over |dy/d(second layer's entries)| = lambda_1^2.
    weight = log_measure + 2 * np.log(first.readout) - one.log_slope(first) - two.log_slope(second)
    weight = weight - 2 * np.log(other) - np.log(det)
    there = np.isfinite(weight)
    for value in (*u, *back):
        there = there & np.isfinite(value)
    u0, u1, v0, v1 = (np.where(there, value, 0.0) for value in (*u, *back))
    solved = [[i * u0, i * u1, j * v0, j * v1] for i in (1.0, -1.0) for j in (1.0, -1.0)]
    return Sheets(solved, [np.where(there, weight, -np.inf)])
