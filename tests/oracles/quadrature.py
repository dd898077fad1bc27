"""Posterior moments of the simplest networks, without sampling: one layer, and two layers on two tokens.

Nothing here imports the package under test.  Conventions are those of the contract: ``Z`` is (P, T), row l is the
field of layer l, tokens are rows of ``X``; the last attention matrix is observed.

* :func:`two_layers`: posterior of L = 2, T = 2 by two-dimensional trapezoid rules, in floats or with 30 digits, in two
  different charts of the level set.
* :func:`one_layer`: the closed form of a single layer.
* :func:`three_layers`: the same of three layers by one trapezoid rule in four dimensions, every pair of nodes.

Monte Carlo oracles for more layers and tokens are in :mod:`oracles.sampling`, thresholds in :mod:`oracles.thresholds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

from oracles.description import Layer, Network

# ------------------------------------------------------------------------------------------------- a single layer


@dataclass(frozen=True)
class Posterior:
    """Posterior of the fields of one sample.

    log_partition
        Log density of the last layer's scores vector ``u`` up to its sign, d u as base measure.
    mean
        (P, T).  ``g`` is V^-1 (mean - omega), (P, T); ``cov`` is (P, T, P, T).
    accuracy
        Largest relative change of the moments between two interlaced grids (0 for a closed form).
    """

    log_partition: Any
    mean: np.ndarray
    g: np.ndarray
    cov: np.ndarray
    accuracy: float


def one_layer(u: np.ndarray, omega: np.ndarray, V: float) -> Posterior:
    """Closed form of one layer (P = 1): the output fixes the field up to sign; u, omega (T,), V scalar."""
    along = float(omega @ u) / V
    mean = np.tanh(along) * u
    half = -0.5 * (u @ u + omega @ omega) / V - 0.5 * len(u) * np.log(2 * np.pi * V)
    cov = np.outer(u, u) * (4 * np.exp(-2 * abs(along)) / (1 + np.exp(-2 * abs(along))) ** 2)  # 1 / cosh^2
    return Posterior(
        log_partition=half + np.logaddexp(along, -along),
        mean=mean[None],
        g=(mean - omega)[None] / V,
        cov=cov[None, :, None, :],
        accuracy=0.0,
    )


# ------------------------------------------------------------------------------------------------ two layers, T = 2


@dataclass(frozen=True)
class Arithmetic:
    """One precision: conversion of a number, and the elementwise functions on arrays of its numbers."""

    number: Callable[[Any], Any]
    exp: Callable[[Any], Any]
    log: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    pi: Callable[[], Any]

    def array(self, values: Any) -> np.ndarray:
        flat = [self.number(x) for x in np.asarray(values, dtype=object).ravel()]
        return np.array(flat).reshape(np.shape(values))


DOUBLE = Arithmetic(float, np.exp, np.log, np.sqrt, lambda: np.pi)
DIGITS = Arithmetic(
    mp.mpf,
    np.frompyfunc(mp.exp, 1, 1),
    np.frompyfunc(mp.log, 1, 1),
    np.frompyfunc(mp.sqrt, 1, 1),
    lambda: +mp.pi,
)


def scores_of_last_layer(Z: np.ndarray, network: Network, arithmetic: Arithmetic = DOUBLE) -> np.ndarray:
    """``u`` (2,) of the last of two layers at fields Z (2, 2): the last layer's field seen by the mixed tokens."""
    first, _ = network.layers
    h, last = arithmetic.array(Z)
    a, b, c, d = _mixing(h[0], h[1], first, arithmetic)
    return np.array([a * last[0] + b * last[1], c * last[0] + d * last[1]])


def scores_from_output(y: np.ndarray, beta: float, arithmetic: Arithmetic = DOUBLE) -> np.ndarray:
    """``u`` (2,), up to sign, from a softmax attention matrix y (2, 2): log-ratios are beta u_i (u_j - u_i)."""
    y = arithmetic.array(y)
    first = arithmetic.log(y[0, 1] / y[0, 0]) / arithmetic.number(beta)
    second = arithmetic.log(y[1, 0] / y[1, 1]) / arithmetic.number(beta)
    gap = arithmetic.sqrt(-(first + second))
    return np.array([-first / gap, second / gap])


def _mixing(x: Any, y: Any, layer: Layer, arithmetic: Arithmetic) -> tuple[Any, Any, Any, Any]:
    """Entries of skip I + sigma(beta h h^T) at h = (x, y), row by row."""
    if not layer.simplest:
        raise NotImplementedError("a first layer beyond a tied one of rank one")
    skip, beta = arithmetic.number(layer.skip), arithmetic.number(layer.beta)
    if layer.linear:
        return skip + beta * x * x, beta * x * y, beta * x * y, skip + beta * y * y
    a = 1 / (1 + arithmetic.exp(beta * x * (x - y)))
    b = 1 / (1 + arithmetic.exp(beta * y * (y - x)))
    return skip + 1 - a, a, b, skip + 1 - b


def two_layers(
    u: np.ndarray,
    omega: np.ndarray,
    V: np.ndarray,
    first: Layer,
    *,
    digits: int | None = None,
    over: str = "first",
    tolerance: float = 1e-13,
    max_nodes: int = 3_000_000,
) -> Posterior:
    """Posterior of two layers, T = 2, when the output shows ``±u`` of the last layer; omega (2, 2), V (2, 2).

    ``over="first"`` integrates over the first layer's field and solves for the last one's; ``over="last"`` integrates
    over the last layer's field and inverts the first layer's attention (softmax only), which converges when V fixes the
    last field well (the density is singular at the edges of what is feasible: it is a check of the other chart, and not
    to be used alone).  The two share no formula beyond the link.  The trapezoid rule is refined, where the density is,
    in floats until two lattices agree to ``tolerance``; with ``digits`` two interlaced lattices are then summed with
    that many digits.  A rule that has not converged within ``max_nodes`` raises ArithmeticError.
    """
    charts = {"first": _integrand_over_first, "last": _integrand_over_last}
    axis = 0 if over == "first" else 1
    omega, V = np.asarray(omega, dtype=object), np.asarray(V, dtype=object)

    def integrand(x: Any, y: Any, arithmetic: Arithmetic) -> list[tuple[Any, np.ndarray]]:
        return charts[over](x, y, u, omega, V, first, arithmetic)

    centre, deviation = omega[axis].astype(float), float(V[axis, axis]) ** 0.5
    if digits is None:
        _, pair, _ = _converged(integrand, _Lattice.around(centre, deviation), tolerance, max_nodes)
        return _posterior(pair, (0.0, 1.0), omega, V, DOUBLE)
    # Spectral convergence: halving the step squares the error, so 3e-9 between two lattices is 1e-17 on the finer one.
    lattices = [_Lattice.around(centre, deviation, size) for size in (1.0, 1.25, 1.5, 1.75)]
    trials = [_converged(integrand, lattice, 3e-9, max_nodes) for lattice in lattices]
    kept, (_, sums), _ = min(trials, key=lambda trial: trial[2])
    one, two = kept.interlaced()
    with mp.workdps(digits):
        square = sums.product / sums.total
        both = _moments(integrand, one, DIGITS, square), _moments(integrand, two, DIGITS, square)
        return _posterior(both, (0.5, 0.5), omega, V, DIGITS)


def _converged(
    integrand: Integrand, lattice: _Lattice, tolerance: float, max_nodes: int
) -> tuple[_Lattice, tuple[_Sums, _Sums], int]:
    """(lattice where the density is, sums on the lattice before and on it, nodes) once the two agree to tolerance."""
    previous = None
    while True:
        value, optimistic, rough = _explore(integrand, lattice)
        kept = lattice.where(optimistic > value.max() - NEGLIGIBLE)
        if not rough:
            sums = _moments(integrand, kept, DOUBLE)
            if previous is not None and _difference(previous, sums, DOUBLE) < tolerance:
                return kept, (previous, sums), int((value > value.max() - NEGLIGIBLE).sum())
            previous = sums
        lattice = kept.halved()
        if len(lattice.x) > max_nodes:
            raise ArithmeticError(f"two-dimensional rule not converged with {len(lattice.x)} nodes: rough={rough}")


Integrand = Callable[[Any, Any, Arithmetic], list[tuple[Any, np.ndarray]]]


def _integrand_over_first(
    x: Any, y: Any, u: np.ndarray, omega: np.ndarray, V: np.ndarray, first: Layer, arithmetic: Arithmetic
) -> list[tuple[Any, np.ndarray]]:
    """Per sign: (log density in (x, y), displacement Z - omega (4, S)) with (x, y) the first layer's field."""
    a, b, c, d = _mixing(x, y, first, arithmetic)
    det = a * d - b * c
    u, omega = arithmetic.array(u), arithmetic.array(omega)
    solved = (d * u[0] - b * u[1]) / det, (a * u[1] - c * u[0]) / det
    log_weight = -arithmetic.log(abs(det))
    branches = []
    for sign in (1, -1):
        last = sign * solved[0], sign * solved[1]
        shift = np.stack([x - omega[0, 0], y - omega[0, 1], last[0] - omega[1, 0], last[1] - omega[1, 1]])
        branches.append((log_weight + _log_gaussian(shift, V, arithmetic), shift))
    return branches


def _integrand_over_last(
    x: Any, y: Any, u: np.ndarray, omega: np.ndarray, V: np.ndarray, first: Layer, arithmetic: Arithmetic
) -> list[tuple[Any, np.ndarray]]:
    """The same with (x, y) the last layer's field: which attention of the first layer maps it to ±u, and by which h?"""
    if first.linear:
        raise ValueError("the first layer must be a softmax to be inverted")
    u, omega = arithmetic.array(u), arithmetic.array(omega)
    skip, beta = arithmetic.number(first.skip), arithmetic.number(first.beta)
    gap = y - x
    branches = []
    for sign in (1, -1):
        a = (sign * u[0] - (skip + 1) * x) / gap
        b = -(sign * u[1] - (skip + 1) * y) / gap
        inside = (a > 0) & (b > 0) & (a + b < 1)
        a, b = np.where(inside, a, arithmetic.number(0.25)), np.where(inside, b, arithmetic.number(0.25))
        odds_a, odds_b = arithmetic.log((1 - a) / a) / beta, arithmetic.log((1 - b) / b) / beta
        inside &= odds_a + odds_b > 0  # rounding at the edge a + b = 1, where the density vanishes
        distance = arithmetic.sqrt(np.where(inside, odds_a + odds_b, arithmetic.number(1)))
        h = odds_a / distance, -odds_b / distance
        area = 2 * (beta * gap * distance) ** 2 * a * (1 - a) * b * (1 - b)
        for flip in (1, -1):
            shift = np.stack([flip * h[0] - omega[0, 0], flip * h[1] - omega[0, 1], x - omega[1, 0], y - omega[1, 1]])
            density = _log_gaussian(shift, V, arithmetic) - arithmetic.log(area)
            branches.append((np.where(inside & (gap != 0), density, arithmetic.number("-inf")), shift))
    return branches


def _log_gaussian(shift: np.ndarray, V: np.ndarray, arithmetic: Arithmetic) -> Any:
    """log N(Z; omega, V (x) I_2) at displacement (4, S), rows (layer, token)."""
    V = arithmetic.array(V)
    det = V[0, 0] * V[1, 1] - V[0, 1] * V[1, 0]
    form = sum(
        V[1, 1] * shift[t] ** 2 + V[0, 0] * shift[2 + t] ** 2 - 2 * V[0, 1] * shift[t] * shift[2 + t] for t in (0, 1)
    )
    return -form / (2 * det) - arithmetic.log(4 * arithmetic.pi() ** 2 * det)


NEGLIGIBLE = 50.0
"""Log of the density, relative to its peak, below which nodes are dropped: e^-50 is 2e-22."""


def _log_total(branches: list[tuple[Any, np.ndarray]]) -> np.ndarray:
    """Largest log density over the branches; -inf where a node falls on a singular point of the chart."""
    value = np.max([value for value, _ in branches], axis=0)
    return np.where(np.isnan(value), -np.inf, value)


@dataclass(frozen=True)
class _Lattice:
    """Part of a square lattice: the centres (x, y) of its cells, of side ``step``."""

    x: np.ndarray
    y: np.ndarray
    step: float

    @classmethod
    def around(cls, centre: np.ndarray, deviation: float, size: float = 1.0) -> _Lattice:
        """About 128 x 128 cells over 12 standard deviations on each side; ``size`` scales the side of a cell.

        The step is a power of two times ``size`` and nodes are multiples of it, so that they are exact in floats at
        every level: with rounded nodes the rule would converge to 1e-16 only, whatever the digits.
        """
        step = size * 2.0 ** np.floor(np.log2(24 * deviation / 128))
        half = int(np.ceil(12 * deviation / step))
        lines = [step * (np.round(c / step) + np.arange(-half, half) + 0.5) for c in centre]
        x, y = np.meshgrid(*lines, indexing="ij")
        return cls(x.ravel(), y.ravel(), step)

    def where(self, keep: np.ndarray) -> _Lattice:
        return _Lattice(self.x[keep], self.y[keep], self.step)

    def halved(self) -> _Lattice:
        """Every cell cut in four."""
        quarter = self.step / 4
        x = np.concatenate([self.x + s * quarter for s in (-1, -1, 1, 1)])
        y = np.concatenate([self.y + s * quarter for s in (-1, 1, -1, 1)])
        return _Lattice(x, y, self.step / 2)

    def moved(self, dx: float, dy: float) -> _Lattice:
        return _Lattice(self.x + dx, self.y + dy, self.step)

    def interlaced(self) -> tuple[_Lattice, _Lattice]:
        """The lattice twice, each in the other's gaps."""
        return self.moved(-self.step / 4, -self.step / 4), self.moved(self.step / 4, self.step / 4)


def _explore(integrand: Integrand, lattice: _Lattice) -> tuple[np.ndarray, np.ndarray, bool]:
    """(log density, what it may reach beside each node, whether the lattice is too coarse to see it all).

    Between two nodes the log density lies below both straight lines that continue it from outside, wherever it is
    concave there: a peak that falls between nodes shows, and a cliff does not pass for one.  Beside an infeasible node
    there is no line, and anything is possible.
    """
    with np.errstate(all="ignore"):
        value = _log_total(integrand(lattice.x, lattice.y, DOUBLE))
        if not np.isfinite(value.max()):
            raise ArithmeticError("no feasible node found: the level set is too thin for this chart")
        optimistic, rough = value.copy(), False
        for dx, dy in ((lattice.step, 0.0), (-lattice.step, 0.0), (0.0, lattice.step), (0.0, -lattice.step)):
            line = [lattice.moved(k * dx, k * dy) for k in (-1, 1, 2)]
            before, after, beyond = (_log_total(integrand(nodes.x, nodes.y, DOUBLE)) for nodes in line)
            ends = np.maximum(value, after)
            reach = np.minimum(2 * value - before, 2 * after - beyond)
            reach = np.where(np.isneginf(ends), -np.inf, np.where(np.isfinite(reach), np.maximum(reach, ends), np.inf))
            optimistic = np.maximum(optimistic, reach)
            rough |= bool(((reach > value.max() - 20) & (reach > ends + 4) & np.isfinite(reach)).any())
    return value, optimistic, rough


@dataclass(frozen=True)
class _Sums:
    """Unnormalised moments about omega; ``log_scale`` was taken out of every one."""

    log_scale: Any
    total: Any
    shift: np.ndarray
    product: np.ndarray


def _moments(integrand: Integrand, nodes: _Lattice, arithmetic: Arithmetic, square: np.ndarray | None = None) -> _Sums:
    """Sums over the nodes; second moments (4, 4) are summed too unless their known values ``square`` are given."""
    with np.errstate(all="ignore"):
        value = _log_total(integrand(nodes.x, nodes.y, DOUBLE))
    peak = value.max()
    nodes = nodes.where(value > peak - NEGLIGIBLE)
    x, y = (nodes.x, nodes.y) if arithmetic is DOUBLE else (arithmetic.array(nodes.x), arithmetic.array(nodes.y))
    total, shift, product = arithmetic.number(0), np.zeros(4), np.zeros((4, 4))
    with np.errstate(all="ignore"):  # a chart's singular points are masked after the fact
        for log_density, moved in integrand(x, y, arithmetic):
            weight = arithmetic.exp(log_density - arithmetic.number(peak))
            weighted = weight * np.where(weight > 0, moved, arithmetic.number(0))
            total = total + weight.sum()
            shift = shift + weighted.sum(axis=1)
            if square is None:
                product = product + weighted @ moved.T
    if square is not None:
        product = square * total
    return _Sums(arithmetic.number(peak) + 2 * arithmetic.log(arithmetic.number(nodes.step)), total, shift, product)


def _difference(one: _Sums, two: _Sums, arithmetic: Arithmetic) -> float:
    """Largest change of the moments between two rules, relative to the posterior's own spread about omega."""
    scale = float(two.log_scale - one.log_scale)
    if abs(scale) > 6:
        return np.inf  # the peaks differ: the coarser rule saw next to nothing
    ratio = two.total / one.total * arithmetic.exp(two.log_scale - one.log_scale)
    spread = np.sqrt((one.product / one.total).diagonal().astype(float))
    mean = (one.shift / one.total - two.shift / two.total).astype(float) / spread
    square = (one.product / one.total - two.product / two.total).astype(float) / np.outer(spread, spread)
    return float(max(float(abs(ratio - 1)), abs(mean).max(), abs(square).max()))


def _posterior(
    sums: tuple[_Sums, _Sums], shares: tuple[float, float], omega: np.ndarray, V: np.ndarray, arithmetic: Arithmetic
) -> Posterior:
    """The average of two rules with the given shares (halves: two interlaced lattices are one of half the cell)."""
    peak = max(s.log_scale for s in sums)
    scale = [share * arithmetic.exp(s.log_scale - peak) for s, share in zip(sums, shares, strict=True)]
    total = sum(s.total * f for s, f in zip(sums, scale, strict=True))
    shift = sum(s.shift * f for s, f in zip(sums, scale, strict=True)) / total
    product = sum(s.product * f for s, f in zip(sums, scale, strict=True)) / total
    V, omega = arithmetic.array(V), arithmetic.array(omega)
    moved = shift.reshape(2, 2)
    inverse = np.array([[V[1, 1], -V[0, 1]], [-V[1, 0], V[0, 0]]]) / (V[0, 0] * V[1, 1] - V[0, 1] * V[1, 0])
    cov = (product - np.outer(shift, shift)).reshape(2, 2, 2, 2)
    return Posterior(
        log_partition=float(peak + arithmetic.log(total)),
        mean=(omega + moved).astype(float),
        g=inverse.dot(moved).astype(float),
        cov=cov.astype(float),
        accuracy=_difference(sums[0], sums[1], arithmetic),
    )


# ---------------------------------------------------------------------------------- three layers, every pair of nodes


def three_layers(
    u: np.ndarray, omega: np.ndarray, V: np.ndarray, step: float, skip: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """(mean, second moment) of whitened fields (6,), (6, 6) of three tied layers on two tokens.

    The last layer's scores vector u (2,) is seen up to its sign, V (3,) is diagonal.  One trapezoid rule in the four
    dimensions of the first two layers, as it stands: every node of the first meets every node of the second.
    """
    line = step * np.arange(-int(5.5 / step), int(5.5 / step) + 1)
    z = np.stack(np.meshgrid(line, line, indexing="ij")).reshape(2, -1)
    z = z[:, (z**2).sum(axis=0) <= 5.5**2]
    s = np.sqrt(V)
    second = omega[1][:, None] + s[1] * z
    top, sums = -np.inf, np.zeros((7, 7))
    for own in z.T:
        C = skip * np.eye(2) + _softmax(omega[0] + s[0] * own)
        U = C @ second
        A = skip * np.eye(2)[..., None] + _softmax(U)
        B = np.einsum("ijn,jk->nik", A, C)
        h = np.linalg.solve(B, np.broadcast_to(u[:, None], (len(B), 2, 1)))[..., 0].T
        base = -0.5 * (own @ own + (z**2).sum(axis=0)) - np.log(np.abs(np.linalg.det(B)))
        for sign in (1.0, -1.0):
            r = (sign * h - omega[2][:, None]) / s[2]
            log = base - 0.5 * (r**2).sum(axis=0)
            if log.max() > top:
                sums *= np.exp(top - log.max())
                top = log.max()
            all_of = np.concatenate([np.ones((1, z.shape[1])), np.tile(own[:, None], z.shape[1]), z, r])
            sums += (np.exp(log - top) * all_of) @ all_of.T
    return sums[0, 1:] / sums[0, 0], sums[1:, 1:] / sums[0, 0]


def _softmax(u: np.ndarray) -> np.ndarray:
    """(2, 2, ...): rows of attention from scores u_i u_j of two tokens, u (2, ...)."""
    first, other = (1 / (1 + np.exp(np.clip(u[i] * (u[i] - u[1 - i]), -700, 700))) for i in (0, 1))
    return np.array([[1 - first, first], [other, 1 - other]])
