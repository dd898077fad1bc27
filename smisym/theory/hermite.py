"""The first order at which an output knows a direction: the first Hermite polynomial that does not average out.

First-order methods learn from order one (trivial directions) and two (weak recovery at finite alpha); a direction whose
first order is three or more is hard at any alpha proportional to the dimension (arXiv 2405.15480).
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from smisym.model.compiled import Model

_SAMPLES = 2**17
# Standard errors beyond which an average is not zero: many are looked at.
_CLEAR = 7.0
_HIGHEST = 6
# Products of one order that are tried at most: each takes about three milliseconds.
_PRODUCTS = 20000


def first_order(
    model: Model,
    directions: np.ndarray,
    beside: np.ndarray | None = None,
    *,
    samples: int = _SAMPLES,
    highest: int = _HIGHEST,
    seed: int = 0,
) -> int | None:
    """Smallest k with E[phi(y) He_k(z)] != 0 for some function phi and some product of Hermite polynomials of order k.

    directions
        (d, P), orthonormal: products of polynomials of the fields along these (on every token) are tried.
    beside
        (e, P), orthonormal and orthogonal to the directions: further ones that products may hold, beside at least one
        factor along the directions; those that are as hard as these, as all three fields of sign(z1 z2 z3).

    Returns None where nothing up to ``highest`` is clear of ``samples`` random draws (7 standard errors), or up to as
    high an order as there are few enough products.
    """
    rng = np.random.default_rng([seed, 0x4E])
    Z = rng.standard_normal((samples, model.fields, model.tokens))
    scale = model.prior.law(np.zeros((model.fields, model.fields))).scale
    y = model.channel.sample(scale @ Z, rng).y.reshape(samples, -1)
    features = _features(y)
    every = directions if beside is None else np.concatenate([directions, beside])
    entries = np.einsum("dp,spt->dts", every, Z).reshape(-1, samples)
    own = len(directions) * model.tokens
    polynomials = [_hermite(entry, highest) for entry in entries]
    for order in range(1, highest + 1):
        if math.comb(len(entries) + order - 1, order) > _PRODUCTS:
            return None
        for powers in _compositions(len(entries), order):
            if not any(powers[:own]):
                continue
            product = np.ones(samples)
            for table, power in zip(polynomials, powers, strict=True):
                if power:
                    product = product * table[power]
            if (np.abs(features @ product) > _CLEAR * np.sqrt(samples)).any():
                return order
    return None


def _features(y: np.ndarray) -> np.ndarray:
    """(n, samples) bounded functions of the outputs with mean zero and variance one: cosines of their ranks."""
    from scipy.stats import rankdata  # slow to import, and needed where something is hard alone

    found = []
    for column in y.T:
        uniform = (rankdata(column) - 0.5) / len(column)
        for k in (1, 2, 3):
            found.append(np.cos(np.pi * k * uniform))
    for a, b in itertools.combinations(list(found[:12]), 2):
        found.append(a * b)
    table = np.array(found)
    table -= table.mean(axis=1, keepdims=True)
    spread = table.std(axis=1, keepdims=True)
    return np.asarray(table / np.where(spread > 1e-9, spread, np.inf))


def _hermite(x: np.ndarray, highest: int) -> list[np.ndarray]:
    """Normalised Hermite polynomials He_k / sqrt(k!) of x, k = 0 ... highest."""
    table = [np.ones_like(x), x]
    for k in range(1, highest):
        table.append((x * table[k] - np.sqrt(k) * table[k - 1]) / np.sqrt(k + 1))
    return table


def _compositions(parts: int, total: int) -> list[tuple[int, ...]]:
    """All ways to share ``total`` among ``parts``."""
    if parts == 1:
        return [(total,)]
    return [(first, *rest) for first in range(total + 1) for rest in _compositions(parts - 1, total - first)]
