"""Weak-recovery thresholds by brute force, from the network run on fields; nothing of the package is imported.

``chi_l = E || E[z_l z_l^T | y, side knowledge] - I ||_F^2``; the field of layer l is learned from scratch when
alpha chi_l passes 1.  The output shows the last layer's scores u up to sign, so its averages are integrals over u.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import stats

from oracles.description import Layer, Network
from oracles.fields import forward


@dataclass(frozen=True)
class Lower:
    """Weighted points of the fields of all layers but the last: fields (P-1, T, n), weights (n,) that sum to one."""

    fields: np.ndarray
    weights: np.ndarray


def lower_grid(side: int = 160) -> Lower:
    """Trapezoid rule for one layer before the last and T = 2; converges spectrally."""
    line = np.linspace(-8.5, 8.5, side)
    h = np.stack([g.ravel() for g in np.meshgrid(line, line, indexing="ij")])
    density = np.exp(-0.5 * (h**2).sum(axis=0)) / (2 * np.pi)
    return Lower(h[None], density * (line[1] - line[0]) ** 2)


def lower_sobol(layers: int, tokens: int, log2_points: int, seed: int) -> Lower:
    """Scrambled Sobol points for any number of layers before the last; scrambles (seeds) give the error bar."""
    engine = stats.qmc.Sobol(layers * tokens, scramble=True, seed=np.random.default_rng(seed))
    uniform = np.clip(engine.random_base2(log2_points), 1e-12, 1 - 1e-12)
    fields = stats.norm.ppf(uniform).T.reshape(layers, tokens, -1)
    return Lower(fields, np.full(fields.shape[2], 1.0 / fields.shape[2]))


def lower_hermite(side: int, tokens: int) -> Lower:
    """Gauss-Hermite nodes of one layer before the last, an even number a side, one of each pair of opposite fields."""
    x, w = np.polynomial.hermite_e.hermegauss(side)
    h = np.stack([g.ravel() for g in np.meshgrid(*[x] * tokens, indexing="ij")])
    weights = np.prod(np.stack(np.meshgrid(*[w / w.sum()] * tokens, indexing="ij")), axis=0).ravel()
    kept = (h[0] > 0) & (weights > 1e-13)
    return Lower(h[None][:, :, kept], 2 * weights[kept])


def lower_products(layers: int, tokens: int, side: int, least: float = 1e-9) -> Lower:
    """Gauss-Hermite nodes of several layers before the last, all with all, but for those of weights below ``least``."""
    one = lower_hermite(side, tokens)
    fields, weights = one.fields, one.weights
    for _ in range(layers - 1):
        n, m = len(weights), len(one.weights)
        both = np.outer(weights, one.weights).ravel()
        kept = both > least
        pair = np.repeat(fields, m, axis=2)[:, :, kept], np.tile(one.fields, (1, 1, n))[:, :, kept]
        fields, weights = np.concatenate(pair), both[kept]
    return Lower(fields, weights / weights.sum())


def susceptibilities(network: Network, lower: Lower, *, outer: int = 48) -> np.ndarray:
    """chi_l at Q = 0 for every layer, (P,); the first threshold is 1 / max chi.

    Outer rule: trapezoid on axes stretched by sinh (tails are heavy), along (1, ..., 1), along the difference of the
    first two tokens and along the rest; the sign of u and the exchange of two tokens leave a quarter of space.
    """
    layers, tokens = network.layers, network.tokens
    last_field = np.zeros((1, tokens, lower.fields.shape[2]))
    mixed = np.moveaxis(forward(np.concatenate([lower.fields, last_field]), network)[1], 2, 0)
    inverse = np.linalg.inv(mixed)
    prior = lower.weights / abs(np.linalg.det(mixed)) / (2 * np.pi) ** (tokens / 2)
    rows = _products(lower.fields)
    chi, mass = np.zeros(len(layers)), 0.0
    for u, measure in _outer_nodes(tokens, *_scale(layers), outer):
        last = inverse @ u
        weight = np.exp(-0.5 * (last * last).sum(axis=1)) * prior[:, None]
        density = weight.sum(axis=0)
        seen = density > 1e-280
        rule = (measure * density)[seen]
        mass += rule.sum()
        second = np.einsum("rn,nm->rm", rows, weight, optimize=True)[:, seen] / density[seen]
        chi[:-1] += (_square_gap(second.reshape(len(layers) - 1, -1, seen.sum()), tokens) * rule).sum(axis=-1)
        upper = np.triu_indices(tokens)
        own = np.stack([(weight * last[:, i] * last[:, j]).sum(axis=0) for i, j in zip(*upper, strict=True)])
        chi[-1] += (_square_gap(own[None][:, :, seen] / density[seen], tokens) * rule).sum()
    if abs(mass - 1) > 3e-3:
        raise ArithmeticError(f"the density of the scores sums to {mass}, not 1: use more points")
    return chi


def _products(fields: np.ndarray) -> np.ndarray:
    """h_i h_j for i <= j, layer by layer: ((P-1) T (T+1) / 2, n)."""
    upper = np.triu_indices(fields.shape[1])
    return np.concatenate([layer[upper[0]] * layer[upper[1]] for layer in fields])


def _square_gap(second: np.ndarray, tokens: int) -> np.ndarray:
    """|| M - I ||_F^2 from the upper triangle (..., T (T+1) / 2, m) of M."""
    i, j = np.triu_indices(tokens)
    return (np.where(i == j, 1.0, 2.0)[:, None] * (second - (i == j)[:, None]) ** 2).sum(axis=-2)


def _scale(layers: tuple[Layer, ...]) -> tuple[float, float]:
    """(narrowest, widest) scale of u: tokens enter the last layer mixed by the layers before it."""
    widest, narrowest = 8.5, 1.0
    for layer in layers[:-1]:
        widest *= 1 + layer.skip + (73.0 * layer.beta if layer.linear else 0.0)
        narrowest *= min(1.0, 0.5 + layer.skip)
    return narrowest, widest


def _outer_nodes(tokens: int, narrowest: float, widest: float, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields (u (T, m), measure (m,)): the nodes of a quarter of space with the weight of the whole."""
    step = np.arcsinh(widest / narrowest) / count
    stretched = step * (np.arange(count) + 0.5)
    half = narrowest * np.sinh(stretched), step * narrowest * np.cosh(stretched)
    whole = np.concatenate([-half[0][::-1], half[0]]), np.concatenate([half[1][::-1], half[1]])
    axes = [half, half] + [whole] * (tokens - 2)
    basis = _basis(tokens)
    points = np.stack([g.ravel() for g in np.meshgrid(*[a[0] for a in axes[1:]], indexing="ij")])
    measure = np.prod([g.ravel() for g in np.meshgrid(*[a[1] for a in axes[1:]], indexing="ij")], axis=0)
    for along, width in zip(*half, strict=True):
        for block in np.array_split(np.arange(points.shape[1]), max(1, points.shape[1] // 64)):
            u = basis[:, :1] * along + basis[:, 1:] @ points[:, block]
            yield u, 4 * width * measure[block]


def _basis(tokens: int) -> np.ndarray:
    """Orthonormal columns: (1, ..., 1), the difference of the first two tokens, the rest."""
    columns = [np.ones(tokens)]
    for k in range(1, tokens):
        column = np.zeros(tokens)
        column[:k], column[k] = 1.0, -float(k)
        columns.append(column)
    return np.stack([c / np.linalg.norm(c) for c in columns], axis=1)


# ------------------------------------------------------------------------------------------------- later thresholds


@dataclass(frozen=True)
class Branch:
    """Two layers, T = 2, at Q = diag(0, q): information E |g_2|^2, and chi_1 (see the top of this file).

    On the branch of fixed points where only the last layer is known, alpha = q / ((1 - q) information); the first layer
    is learned where alpha chi reaches 1.
    """

    information: float
    chi: float
    alpha: float


def last_layer_known(first: Layer, q: float, *, side: int = 80, step: float = 0.8, count: int = 14) -> Branch:
    """Averages at Q = diag(0, q) by trapezoid rules over omega_2 (quarter plane), the scores u and the first field.

    ``step`` is that of the scores in units of the last field's conditional deviation.  omega_2 has ``count`` points
    along the sum and the difference of its entries, denser within a deviation of zero, where signs and order are in
    doubt.
    """
    grid = lower_grid(side)
    near = grid.weights > 1e-12 * grid.weights.max()
    h, prior = grid.fields[0][:, near], grid.weights[near]
    mixed = np.moveaxis(forward(np.stack([h, 0 * h]), Network(2, (first, Layer())))[1], 2, 0)
    prior = prior / abs(np.linalg.det(mixed)) / (2 * np.pi * (1 - q))
    products = np.stack([np.ones_like(prior), h[0] ** 2, h[1] ** 2, h[0] * h[1]]) * prior
    sums = np.zeros(3)
    scale = np.sqrt((1 - q) / q)
    dt = np.arcsinh(5.2 / scale) / count
    line = scale * np.sinh(dt * (np.arange(count) + 0.5))
    width = dt * np.hypot(line, scale) * np.exp(-0.5 * line**2) * np.sqrt(2 / np.pi)
    for along, share_along in zip(line, width, strict=True):
        for across, share_across in zip(line, width, strict=True):
            normal = np.array([along + across, along - across]) / np.sqrt(2)
            if share_along * share_across > 1e-8:
                share = share_along * share_across
                sums += share * _over_scores(mixed, products, np.sqrt(q) * normal, q, step)
    if abs(sums[0] - 1) > 1e-3:
        raise ArithmeticError(f"the density of the scores sums to {sums[0]}, not 1: use more points")
    information, chi = sums[1:] / sums[0]
    return Branch(information, chi, q / (1 - q) / information)


def _over_scores(mixed: np.ndarray, products: np.ndarray, omega: np.ndarray, q: float, step: float) -> np.ndarray:
    """Integrals over the scores u, at given omega_2, of 1, |g_2|^2 and || E[z_1 z_1^T | y] - I ||^2."""
    deviation = np.sqrt(1 - q)
    centres = mixed @ omega
    reach = 5.5 * deviation * np.linalg.norm(mixed, axis=2).max(axis=0)
    axes = [
        np.arange(low - r, high + r, step * deviation)
        for low, high, r in zip(centres.min(axis=0), centres.max(axis=0), reach, strict=True)
    ]
    u = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")])
    inverse = np.linalg.inv(mixed).transpose(1, 2, 0)
    sums = np.zeros(3)
    for block in np.array_split(np.arange(u.shape[1]), max(1, u.shape[1] // 64)):
        solved = [np.outer(row[0], u[0, block]) + np.outer(row[1], u[1, block]) for row in inverse]
        moments, moved = np.zeros((4, len(block))), np.zeros((2, len(block)))
        own = np.zeros(len(block))
        for sign in (1, -1):
            gap = [sign * z - o for z, o in zip(solved, omega, strict=True)]
            weight = np.exp(-0.5 * (gap[0] ** 2 + gap[1] ** 2) / (1 - q))
            part = products @ weight
            moments += part
            moved += np.stack([products[0] @ (weight * g) for g in gap])
            own = part[0] if sign == 1 else own
        seen = own > 1e-200
        density, moments, moved = own[seen], moments[:, seen], moved[:, seen]
        xx, yy, xy = moments[1:] / moments[0]
        gain = ((moved / moments[0] / (1 - q)) ** 2).sum(axis=0)
        values = np.stack([np.ones_like(density), gain, (xx - 1) ** 2 + (yy - 1) ** 2 + 2 * xy**2])
        sums += (values * density).sum(axis=1) * (step * deviation) ** 2
    return sums
