"""Posterior moments of the channel against a random walk on the level set, which knows no chart.

Families beyond tied rank-one layers, at T = 2 and 3: orbits of O(r) and of scale and shift, free Gram matrices, heads,
and an earlier layer.  Also the first thresholds of some of them in closed form, from the walk alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from oracles_manifold import Constraint, Flip, WalkMoments, sample_level_set

import smisym
from smisym import Architecture, Attention

# ------------------------------------------------------------------------------------------------------ what is seen


def _ratios(scores: np.ndarray) -> np.ndarray:
    """Log-ratios (S, T (T - 1)) of a row softmax of scores (S, T, T), to the first entry of each row."""
    return (scores[:, :, 1:] - scores[:, :, :1]).reshape(len(scores), -1)


def _entries(scores: np.ndarray) -> np.ndarray:
    return scores.reshape(len(scores), -1)


def tied(rank: int, seen: Callable[[np.ndarray], np.ndarray] = _ratios) -> Constraint:
    """One tied layer; Z (S, rank, T)."""
    return lambda Z: seen(Z.swapaxes(1, 2) @ Z)


def untied(rank: int, seen: Callable[[np.ndarray], np.ndarray] = _ratios) -> Constraint:
    """One untied layer; queries, then keys."""
    return lambda Z: seen(Z[:, :rank].swapaxes(1, 2) @ Z[:, rank:])


def two_heads(Z: np.ndarray) -> np.ndarray:
    """Two tied heads of rank one, both seen."""
    return np.concatenate([tied(1)(Z[:, :1]), tied(1)(Z[:, 1:])], axis=1)


def two_layers(Z: np.ndarray) -> np.ndarray:
    """Tied rank one, seen through untied rank one: U = B h^T with B = I + softmax(h h^T)."""
    first = Z[:, 0, :, None] * Z[:, 0, None, :]
    weights = np.exp(first - first.real.max(axis=2, keepdims=True))
    mixing = np.eye(Z.shape[2]) + weights / weights.sum(axis=2, keepdims=True)
    return untied(1)(Z[:, 1:] @ mixing.swapaxes(1, 2))


def sign(*rows: int) -> Flip:
    """Other sign of these rows of Z."""

    def flip(Z: np.ndarray) -> np.ndarray:
        other = Z.copy()
        other[:, list(rows)] *= -1
        return other

    return flip


@dataclass(frozen=True)
class Family:
    """A declaration and the same link written by hand; flips join the components of its level sets."""

    name: str
    tokens: int
    layers: tuple[Attention, ...]
    constraint: Constraint
    flips: tuple[Flip, ...]
    fields: int
    step_size: float = 1.0
    steps: int = 1500

    def __str__(self) -> str:
        return self.name


def _one(name: str, tokens: int, constraint: Constraint, flips: tuple[Flip, ...], **options: Any) -> Family:
    layer = Attention(**options)
    fields = layer.heads * layer.rank * (1 if layer.tied else 2)
    return Family(name, tokens, (layer,), constraint, flips, fields)


FAMILIES = (
    _one("tied-r2-T2", 2, tied(2), (sign(0), sign(1)), rank=2),
    _one("tied-r2-T3", 3, tied(2), (sign(0), sign(1)), rank=2),
    _one("tied-r2-T2-linear", 2, tied(2, _entries), (sign(0), sign(1)), rank=2, activation="linear"),
    _one("tied-r3-T2", 2, tied(3), (sign(0), sign(1), sign(2)), rank=3),
    _one("untied-r1-T2", 2, untied(1), (sign(0, 1),), tied=False),
    _one("untied-r1-T3", 3, untied(1), (sign(0, 1),), tied=False),
    _one("untied-r1-T2-linear", 2, untied(1, _entries), (sign(0, 1),), tied=False, activation="linear"),
    _one("untied-r2-T2", 2, untied(2), (sign(0, 2), sign(1, 3)), rank=2, tied=False),
    _one("heads-T2", 2, two_heads, (sign(0), sign(1)), heads=2),
    Family("two-layers-T2", 2, (Attention(), Attention(tied=False)), two_layers, (sign(0), sign(1, 2)), 3),
)


# ------------------------------------------------------------------------------------------------------------ moments


def drawn(family: Family, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(Z (S, P, T), omega (S, P, T), V (S, P, P)): an overlap with eigenvalues around 1/2 for every sample."""
    P = family.fields
    basis = np.linalg.qr(rng.standard_normal((count, P, P)))[0]
    overlap = rng.uniform(0.35, 0.65, (count, P))

    def gaussian(variance: np.ndarray) -> np.ndarray:
        return (basis * np.sqrt(variance)[:, None]) @ rng.standard_normal((count, P, family.tokens))

    omega = gaussian(overlap)
    V = (basis * (1 - overlap)[:, None]) @ basis.swapaxes(1, 2)
    return omega + gaussian(1 - overlap), omega, (V + V.swapaxes(1, 2)) / 2


@cache
def compiled(family: Family) -> Any:
    return smisym.compile(Architecture(tokens=family.tokens, layers=family.layers))


def whitened(moments: Any, omega: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Moments of the channel as :attr:`WalkMoments.values` has them, (S, n)."""
    samples, P, T = omega.shape
    inverse = np.linalg.inv(np.linalg.cholesky(V))
    first = inverse @ (moments.mean - omega)
    second = np.einsum("spi,sitju,sqj->sptqu", inverse, moments.cov, inverse, optimize=True)
    second += first[:, :, :, None, None] * first[:, None, None, :, :]
    return WalkMoments(first[None], second.reshape(1, samples, P * T, P * T), np.ones(samples)).mean


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_moments_by_a_walk_on_the_level_set(family: Family) -> None:
    rng = np.random.default_rng([51, family.tokens, family.fields])
    Z, omega, V = drawn(family, 6, rng)
    walk = sample_level_set(
        family.constraint, Z, omega, V, family.steps, rng, family.step_size, family.flips, chains=32
    )
    model = compiled(family)
    moments = model.channel.moments(model.observe(Z), omega, V, cov=True)
    found = whitened(moments, omega, V)
    sigmas = (found - walk.mean) / np.hypot(walk.error, moments.error[:, None] + 1e-9)
    print(family, walk.accepted, moments.error.max(), moments.result, walk.error.max())
    print(abs(sigmas).max(axis=1), (sigmas**2).mean(axis=1), (sigmas**2).mean())
    assert abs(sigmas).max() < 4.5
