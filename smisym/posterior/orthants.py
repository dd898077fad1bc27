"""Probabilities that one, two or three normal numbers are all below given ones, and their derivatives, in logarithms.

    Phi_k(h; C) = P(x_1 < h_1, ..., x_k < h_k),   x normal, of variance one and correlations C

    d Phi_k / d h_i = phi(h_i) Phi_{k-1}(the others given x_i = h_i),
    d^2 Phi_k / d h_i d h_j = phi_2(h_i, h_j; c_ij) Phi_{k-2}(the others given both),
    d^2 Phi_k / d h_i^2 = - h_i d Phi_k / d h_i - sum_j c_ij d^2 Phi_k / d h_i d h_j.

Of two and three numbers by Plackett's formula, the integral of derivatives by the correlations from where they vanish
(Genz, Statistics and Computing 14, 2004): good to rounding in absolute terms.  Where the probability is so small that
its digits are lost, or correlations are strong, by the integral over one of the numbers around its maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

# Numbers whose probability is known, at most.
MOST = 3
# Gauss's rule for Plackett's formula, good to rounding up to such correlations (of three numbers, of one with the two
# others together, squared), and the other way, good to rounding too but dearer, beyond and for small probabilities.
_ANGLE, _STEEP, _TOGETHER, _FAINT = np.polynomial.legendre.leggauss(48), 0.95, 0.9, 1e-6
# The same for what is left of strong correlations, which is smooth.
_REST = np.polynomial.legendre.leggauss(24)
# What is taken for a probability that rounding left below that; deviations beyond which there is none.
_LEAST, _FAR = 1e-17, 40.0
_LINE, _REACH, _NEAREST, _TO_THE_TOP, _TO_THE_END = np.polynomial.legendre.leggauss(48), 9.0, 1e-12, 60, 13


def log_orthant(
    h: np.ndarray, C: np.ndarray, spare: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log Phi_k (S,) at h (S, k), its derivatives (S, k), and second derivatives of Phi_k over Phi_k (S, k, k).

    C (S, k, k): correlations, of determinant above zero; k from 1 to 3.  spare (S,): where Phi_k and its derivatives
    are added to something above 1e-6, so that absolute errors are all that counts; nowhere where it is left out.
    """
    spare = np.zeros(len(h), dtype=bool) if spare is None else spare
    return (_one, _two, _three)[h.shape[1] - 1](h, C, spare)


def _one(h: np.ndarray, C: np.ndarray, spare: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    log = log_ndtr(h[:, 0])
    # The density over the probability, of which no digits are lost however far out.
    slope = math.sqrt(2 / math.pi) / erfcx(-h / math.sqrt(2))
    return log, slope, (-slope * h)[:, :, None]


def _two(h: np.ndarray, C: np.ndarray, spare: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    c = C[:, 0, 1]
    s = np.sqrt((1 - c) * (1 + c))
    log = log_normal_orthant(h[:, 0], h[:, 1], c, spare)
    other = (h[:, ::-1] - c[:, None] * h) / s[:, None]
    slope = np.exp(_log_phi(h) + log_ndtr(other) - log[:, None])
    both = np.exp(_log_phi(h[:, 0]) + _log_phi(other[:, 0]) - np.log(s) - log)
    second = np.zeros((len(h), 2, 2))
    second[:, 0, 1] = second[:, 1, 0] = both
    return log, slope, _with_diagonal(second, h, C, slope)


def _three(h: np.ndarray, C: np.ndarray, spare: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    log = _log_of_three(h, C, spare)
    # What is smaller was found digit by digit, and so are its derivatives.
    spare = spare & (log >= math.log(_LEAST))
    slope, second = np.empty_like(h), np.zeros((len(h), 3, 3))
    for i in range(3):
        others, c = _given(h, C, i, h[:, i])
        slope[:, i] = np.exp(_log_phi(h[:, i]) + log_normal_orthant(others[:, 0], others[:, 1], c, spare) - log)
    for k in range(3):
        i, j = (a for a in range(3) if a != k)
        c = C[:, i, j]
        s = np.sqrt((1 - c) * (1 + c))
        last, own = _given(h, C, i, h[:, i])
        place = 0 if j < k else 1
        rest = np.sqrt((1 - own) * (1 + own))
        beyond = (last[:, 1 - place] - own * last[:, place]) / rest
        logs = _log_phi(h[:, i]) + _log_phi((h[:, j] - c * h[:, i]) / s) - np.log(s) + log_ndtr(beyond)
        second[:, i, j] = second[:, j, i] = np.exp(logs - log)
    return log, slope, _with_diagonal(second, h, C, slope)


def _with_diagonal(second: np.ndarray, h: np.ndarray, C: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Second derivatives by one number twice, from those by two numbers, whose diagonal is zero."""
    own = np.arange(h.shape[1])
    second[:, own, own] = -h * slope - (C * second).sum(axis=2)
    return second


def _given(h: np.ndarray, C: np.ndarray, i: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends (S, 2) of the two other numbers, and their correlation (S,), where number i is x, in units of what is then
    left of their deviations."""
    j, k = (a for a in range(3) if a != i)
    sizes = [np.sqrt((1 - C[:, i, a]) * (1 + C[:, i, a])) for a in (j, k)]
    ends = np.stack([(h[:, a] - C[:, i, a] * x) / size for a, size in zip((j, k), sizes, strict=True)], axis=1)
    return ends, (C[:, j, k] - C[:, i, j] * C[:, i, k]) / (sizes[0] * sizes[1])


def _log_of_three(h: np.ndarray, C: np.ndarray, spare: np.ndarray) -> np.ndarray:
    """(S,): log Phi_3; first the number that is least correlated with the others."""
    pairs = C[:, [1, 0, 0], [2, 2, 1]]
    squares = (C * C).sum(axis=2) - 1
    product = 2 * C[:, 0, 1] * C[:, 0, 2] * C[:, 1, 2]
    together = (squares - product[:, None]) / (1 - pairs**2)
    first = together.argmin(axis=1)
    order = np.array([[0, 1, 2], [1, 0, 2], [2, 0, 1]])[first]
    h = np.take_along_axis(h, order, axis=1)
    C = C[np.arange(len(h))[:, None, None], order[:, :, None], order[:, None, :]]
    found = _from_where_one_is_apart(h, C)
    log = np.log(np.maximum(found, _LEAST))
    steep = (together.min(axis=1) > _TOGETHER) | (np.abs(C[:, 1, 2]) > _STEEP)
    rest = np.flatnonzero((~(found > _FAINT) | steep) & ~spare)
    if rest.size:
        log[rest] = _three_along_a_line(h[rest], C[rest])
    rest = np.flatnonzero(steep & spare)
    if rest.size:
        log[rest] = np.log(np.maximum(_three_over_an_interval(h[rest], C[rest]), _LEAST))
    return log


def _from_where_one_is_apart(h: np.ndarray, C: np.ndarray) -> np.ndarray:
    """(S,): Phi_3 by the integral over t of its derivative, where correlations of the first number are t of theirs."""
    x, w = _ANGLE
    t = 0.5 * (1 + x)
    everywhere = np.ones(len(h), dtype=bool)
    found = ndtr(h[:, 0]) * np.exp(log_normal_orthant(h[:, 1], h[:, 2], C[:, 1, 2], everywhere))
    first, between = h[:, :1], C[:, 1, 2, None]
    for j, k in ((1, 2), (2, 1)):
        c, other, second, third = C[:, 0, j, None] * t, C[:, 0, k, None] * t, h[:, j, None], h[:, k, None]
        left = (1 - c) * (1 + c)
        density = np.exp(-0.5 * (first**2 - 2 * c * first * second + second**2) / left) / (2 * np.pi * np.sqrt(left))
        # The third number given both.
        own = left - other**2 - between**2 + 2 * c * other * between
        by_first, by_second = other - c * between, between - c * other
        beyond = (third * left - by_first * first - by_second * second) / np.sqrt(np.maximum(own * left, 0.0))
        found += 0.5 * C[:, 0, j] * ((density * ndtr(beyond)) @ w)
    return np.asarray(found)


def _three_along_a_line(h: np.ndarray, C: np.ndarray) -> np.ndarray:
    """The same by the integral over the first number."""

    def log_at(x: np.ndarray) -> np.ndarray:
        """At x (n, S)."""
        n = len(x)
        many, corr = np.tile(h, (n, 1)), np.tile(C, (n, 1, 1))
        ends, c = _given(many, corr, 0, x.ravel())
        return (_log_phi(x.ravel()) + log_normal_orthant(ends[:, 0], ends[:, 1], c)).reshape(x.shape)

    nowhere = np.zeros(len(h), dtype=bool)

    def slope(x: np.ndarray) -> np.ndarray:
        ends, c = _given(h, C, 0, x)
        both = np.zeros((len(c), 2, 2)) + np.eye(2)
        both[:, 0, 1] = both[:, 1, 0] = c
        size = np.sqrt((1 - C[:, 0, 1:]) * (1 + C[:, 0, 1:]))
        return np.asarray(-x - (C[:, 0, 1:] / size * _two(ends, both, nowhere)[1]).sum(axis=1))

    return _around_the_top(log_at, slope, h[:, 0], _steps(h, C))


def _three_over_an_interval(h: np.ndarray, C: np.ndarray) -> np.ndarray:
    """The probability itself, to rounding in absolute terms: over the first number from where there is any, in pieces
    that end where the two others begin to be excluded."""
    end = np.minimum(h[:, 0], _REACH)
    cuts = [
        np.clip((k * np.sign(c) + side * _REACH * s) / np.maximum(np.abs(c), 1e-9), -_REACH, end)
        for k, c, s in _steps(h, C)
        for side in (-1, 0, 1)
    ]
    pieces = np.stack([np.full(len(h), -_REACH), *np.sort(cuts, axis=0), np.maximum(end, -_REACH)])
    half = 0.5 * np.diff(pieces, axis=0)[:, None]
    x, w = _LINE
    places = pieces[:-1, None] + half * (1 + x[:, None])
    some = places.reshape(-1, len(h))
    many, corr = np.tile(h, (len(some), 1)), np.tile(C, (len(some), 1, 1))
    ends, c = _given(many, corr, 0, some.ravel())
    logs = _log_phi(some.ravel()) + log_normal_orthant(ends[:, 0], ends[:, 1], c, np.ones(len(ends), dtype=bool))
    return np.asarray((np.exp(logs).reshape(places.shape) * w[:, None] * half).sum(axis=(0, 1)))


def _steps(h: np.ndarray, C: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(k, c, s) of each factor of two numbers given the first, which is excluded where c x is beyond k by some s."""
    own, size = C[:, 0, 1:], np.sqrt((1 - C[:, 0, 1:]) * (1 + C[:, 0, 1:]))
    steps = [(h[:, 1 + j], own[:, j], size[:, j]) for j in range(2)]
    # Two that are alike, or opposites, meet somewhere: one is below its end as soon as the other is, or never again.
    c = _given(h, C, 0, h[:, 0])[1]
    side = np.where(c > 0, -1, 1)
    rates, places = own / size, h[:, 1:] / size
    steps.append((places[:, 0] + side * places[:, 1], rates[:, 0] + side * rates[:, 1], np.sqrt((1 - c) * (1 + c))))
    return steps


def _log_phi(x: np.ndarray) -> np.ndarray:
    return np.asarray(-0.5 * x * x - 0.5 * math.log(2 * math.pi))


def log_normal_orthant(h: np.ndarray, k: np.ndarray, c: np.ndarray, spare: np.ndarray | None = None) -> np.ndarray:
    """(S,): log P(x < h, y < k) of standard normal x, y with correlation c, -1 < c < 1; spare: see log_orthant."""
    x, w = _ANGLE
    angle = np.arcsin(c)[:, None] * 0.5 * (1 + x)
    exponent = -(h**2 + k**2)[:, None] + 2 * (h * k)[:, None] * np.sin(angle)
    found = ndtr(h) * ndtr(k) + np.arcsin(c) * (np.exp(0.5 * exponent / np.cos(angle) ** 2) @ w) / (4 * np.pi)
    log = np.log(np.maximum(found, _LEAST))
    faint = ~(found > _FAINT)
    exact, steep = np.full(len(h), spare is None) if spare is None else ~spare, np.abs(c) > _STEEP
    rest = np.flatnonzero((faint | steep) & exact)
    if rest.size:
        log[rest] = _along_a_line(h[rest], k[rest], c[rest])
    rest = np.flatnonzero(steep & ~exact)
    if rest.size:
        log[rest] = np.log(np.maximum(_nearly_alike(h[rest], k[rest], c[rest]), _LEAST))
    return log


def _nearly_alike(h: np.ndarray, k: np.ndarray, c: np.ndarray) -> np.ndarray:
    """(S,): P(x < h, y < k) of strong correlations, to rounding in absolute terms: from where both numbers are one, or
    opposites, by the integral over what is left of them (Drezner and Wesolowsky, J. Stat. Comput. Simul. 35, 1990, with
    Genz's third term: the integrand is expanded where it is not smooth, and the rest is)."""
    side = np.where(c < 0, -1.0, 1.0)
    # Beyond forty deviations there is nothing.
    a, b = np.clip(-h, -_FAR, _FAR), np.clip(-side * k, -_FAR, _FAR)
    product, square, left = a * b, (a - b) ** 2, (1 - c) * (1 + c)
    root, apart = np.sqrt(left), np.abs(a - b)
    first, second = (4 - product) / 8, (12 - product) / 16
    with np.errstate(over="ignore", under="ignore"):
        known = root * np.exp(-0.5 * (square / left + product))
        known *= 1 - first * (square - left) * (1 - second * square / 5) / 3 + first * second * left**2 / 5
        tail = np.exp(-0.5 * product + log_ndtr(-apart / root)) * math.sqrt(2 * math.pi) * apart
        known -= tail * (1 - first * square * (1 - second * square / 5) / 3)
        x, w = _REST
        t = (0.5 * root[:, None] * (1 + x)) ** 2
        rest = np.sqrt(1 - t)
        exponent = -0.5 * (square[:, None] / t + product[:, None])
        whole = np.exp(exponent - 0.5 * product[:, None] * (1 - rest) / (1 + rest)) / rest
        known += 0.5 * root * ((whole - np.exp(exponent) * (1 + first[:, None] * t * (1 + second[:, None] * t))) @ w)
    known /= -2 * math.pi
    alike = known + ndtr(-np.maximum(a, b))
    return np.where(side > 0, alike, np.maximum(ndtr(b) - ndtr(a), 0.0) - known)


def _along_a_line(h: np.ndarray, k: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The same by the integral over x, of a function whose log is concave: around its maximum, relative to it."""
    s = np.sqrt((1 - c) * (1 + c))

    def log_at(x: np.ndarray) -> np.ndarray:
        return _log_phi(x) + log_ndtr((k - c * x) / s)

    def slope(x: np.ndarray) -> np.ndarray:
        other = (k - c * x) / s
        return np.asarray(-x - c / s * np.exp(_log_phi(other) - log_ndtr(other)))

    return _around_the_top(log_at, slope, h, [(k, c, s)])


def _around_the_top(
    log_at: Callable[[np.ndarray], np.ndarray],
    slope: Callable[[np.ndarray], np.ndarray],
    h: np.ndarray,
    steps: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> np.ndarray:
    """(S,): log of the integral over x < h of exp(log_at(x)), x (n, S): -x^2 / 2 plus logs of factors,
    concave.

    steps: (k, c, s) of each factor, which falls from one to zero, or rises, where c x is within some s of k.
    """
    low, high = np.minimum(h, 0.0) - 1.0, h.copy()
    while (down := slope(low) < 0).any():
        low = np.where(down, 2 * low - 1, low)
    for _ in range(_TO_THE_TOP):
        middle = 0.5 * (low + high)
        rises = slope(middle) > 0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    top, x, w = high, *_LINE
    most = log_at(top[None])[0]
    ends = []
    for side, room in ((-1, np.full(len(h), _REACH)), (1, np.minimum(h - top, _REACH))):
        # How far it takes to fall by _REACH^2 / 2, within one part in a hundred: at most _REACH, its curvature is one.
        near, far = np.full(len(h), math.log(_NEAREST)), np.log(np.maximum(room, _NEAREST))
        for _ in range(_TO_THE_END):
            middle = 0.5 * (near + far)
            within = log_at((top + side * np.exp(middle))[None])[0] > most - 0.5 * _REACH**2
            near, far = np.where(within, middle, near), np.where(within, far, middle)
        ends.append(top + side * np.minimum(np.exp(far), room))
    begin, end = ends
    # Where a factor falls it does so within s / |c|: a piece of its own.
    cuts = [
        np.clip((k * np.sign(c) + side * _REACH * s) / np.maximum(np.abs(c), 1e-9), begin, end)
        for k, c, s in steps
        for side in (-1, 1)
    ]
    pieces = np.stack([begin, *np.sort([*cuts, top], axis=0), end])
    half = 0.5 * np.diff(pieces, axis=0)[:, None]
    places = pieces[:-1, None] + half * (1 + x[:, None])
    values = log_at(places.reshape(-1, len(h))).reshape(places.shape)
    most = values.max(axis=(0, 1))
    return np.asarray(most + np.log((np.exp(values - most) * w[:, None] * half).sum(axis=(0, 1))))
