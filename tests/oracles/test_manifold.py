"""Posterior moments of the channel against a random walk on the level set, which knows no chart.

Families beyond tied rank-one layers, at T = 2 and 3: orbits of O(r) and of scale and shift, free Gram matrices, heads,
and an earlier layer.  Also the first thresholds of some of them in closed form, from the walk alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import smisym
from oracles.declared import described
from oracles.fields import on_fields
from oracles.manifold import Constraint, Flip, WalkMoments, sample_level_set
from smisym import Architecture, Attention

# ------------------------------------------------------------------------------------------------------ what is seen


def sign(*rows: int) -> Flip:
    """Other sign of these rows of Z."""

    def flip(Z: np.ndarray) -> np.ndarray:
        other = Z.copy()
        other[:, list(rows)] *= -1
        return other

    return flip


def swap(*pairs: tuple[int, int]) -> Flip:
    """These pairs of rows of Z exchanged."""

    def flip(Z: np.ndarray) -> np.ndarray:
        other = Z.copy()
        for a, b in pairs:
            other[:, [a, b]] = Z[:, [b, a]]
        return other

    return flip


def turn(queries: tuple[int, ...], keys: tuple[int, ...]) -> Flip:
    """Other sign of queries and of differences of keys; a shift of keys is not seen by a softmax."""

    def flip(Z: np.ndarray) -> np.ndarray:
        other = Z.copy()
        other[:, list(queries)] *= -1
        other[:, list(keys)] = 2 * Z[:, list(keys)].mean(axis=2, keepdims=True) - Z[:, list(keys)]
        return other

    return flip


@dataclass(frozen=True)
class Family:
    """A declaration; flips join the components of its level sets."""

    name: str
    declared: Architecture
    flips: tuple[Flip, ...]

    @property
    def tokens(self) -> int:
        return self.declared.tokens

    @property
    def fields(self) -> int:
        return described(self.declared).fields

    @property
    def constraint(self) -> Constraint:
        """Log-ratios of a softmax to the first entry of each row, or the scores themselves."""
        network = described(self.declared)
        return lambda Z: on_fields(network, Z, ratios=True)

    def __str__(self) -> str:
        return self.name


def _one(name: str, tokens: int, flips: tuple[Flip, ...], **options: Any) -> Family:
    return Family(name, Architecture(tokens, (Attention(**options),)), flips)


TIED_R2_T2 = _one("tied-r2-T2", 2, (sign(0), swap((0, 1))), rank=2)
TIED_R2_T3 = _one("tied-r2-T3", 3, (sign(0), swap((0, 1))), rank=2)
TIED_R2_T2_LINEAR = _one("tied-r2-T2-linear", 2, (sign(0), swap((0, 1))), rank=2, activation="linear")
TIED_R3_T2 = _one("tied-r3-T2", 2, (sign(0), sign(1), sign(2)), rank=3)
TIED_R3_T3 = _one("tied-r3-T3", 3, (sign(0), sign(1), sign(2)), rank=3)
UNTIED_R1_T2 = _one("untied-r1-T2", 2, (sign(0, 1), turn((0,), (1,))), tied=False)
UNTIED_R1_T3 = _one("untied-r1-T3", 3, (sign(0, 1), turn((0,), (1,))), tied=False)
TWO_LAYERS = Family(
    "two-layers-T2",
    Architecture(2, (Attention(), Attention(tied=False))),
    (sign(0), sign(1, 2), turn((1,), (2,))),
)

FAMILIES = (
    TIED_R2_T2,
    TIED_R2_T3,
    TIED_R2_T2_LINEAR,
    TIED_R3_T2,
    UNTIED_R1_T2,
    UNTIED_R1_T3,
    _one("untied-r1-T2-linear", 2, (sign(0, 1),), tied=False, activation="linear"),
    _one("untied-r2-T2", 2, (sign(0, 2), swap((0, 1), (2, 3))), rank=2, tied=False),
    _one("heads-T2", 2, (sign(0), sign(1)), heads=2),
    TWO_LAYERS,
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
    return smisym.compile(family.declared)


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
    walk = sample_level_set(family.constraint, Z, omega, V, 700, rng, 1.0, family.flips, chains=32)
    assert walk.error.max() < 0.12  # without the factor of volume, gaps are 4 to 30 errors
    moments = compiled(family).channel.moments(compiled(family).observe(Z), omega, V, cov=True)
    assert moments.error.max() < 0.02
    gap = whitened(moments, omega, V) - walk.mean
    sigmas = gap / np.hypot(walk.error, moments.error[:, None] + 1e-9)
    assert abs(sigmas).max() < 4.5
    assert (sigmas**2).mean() < 2.5


def test_the_walk_on_an_ellipse() -> None:
    """Against a sum over the angle, in which the law given x^2 + 4 y^2 is that of Z up to a constant."""
    rng = np.random.default_rng(52)
    Z, omega = rng.standard_normal((2, 5, 1, 2))
    V = np.full((5, 1, 1), 0.6)

    def constraint(Z: np.ndarray) -> np.ndarray:
        radius = Z[:, 0, 0] ** 2 + 4 * Z[:, 0, 1] ** 2
        return np.stack([radius, np.sin(radius), radius**3], axis=1)  # of rank one

    walk = sample_level_set(constraint, Z, omega, V, 600, rng, 1.0, (sign(0),), chains=32)
    angle = np.linspace(0, 2 * np.pi, 4000, endpoint=False)
    size = np.sqrt(constraint(Z)[:, 0])[:, None, None]
    points = size * np.stack([np.cos(angle), np.sin(angle) / 2], axis=1)
    zeta = (points - omega) / np.sqrt(0.6)
    weight = np.exp(-0.5 * (zeta**2).sum(axis=2))
    weight /= weight.sum(axis=1, keepdims=True)
    first = np.einsum("sn,snt->st", weight, zeta)
    second = np.einsum("sn,snt,snu->stu", weight, zeta, zeta)[:, *np.triu_indices(2)]
    assert walk.error.max() < 0.05
    assert (abs(walk.mean - np.concatenate([first, second], axis=1)) < 4.5 * walk.error).all()


# -------------------------------------------------------------------------------------------------- first thresholds


def susceptibility(family: Family, rows: tuple[int, ...], rng: np.random.Generator) -> tuple[float, float]:
    """(chi, its error) at Q = 0: E sum_ts |E[z_t z_s^T | y] - delta_ts I|^2 / r over r rows of Z, from the walk alone.

    The square is the product of two independent walks on the same level set.  A control variate of known mean: what
    chi is the mean of when z z^T is seen up to O(r), T (T + 1) / r.
    """
    samples, chains, r, T = 2000, 4, len(rows), family.tokens
    Z = rng.standard_normal((samples, family.fields, T))
    V = np.broadcast_to(np.eye(family.fields), (samples, family.fields, family.fields))
    walk = sample_level_set(family.constraint, Z, 0 * Z, V, 150, rng, 1.5, family.flips, chains=chains, burn=0.4)
    kept = (np.array(rows)[:, None] * T + np.arange(T)).ravel()
    G = (walk.second - np.eye(Z[0].size))[:, :, kept[:, None], kept]
    pairs = (G.sum(axis=0) ** 2 - (G**2).sum(axis=0)).sum(axis=(1, 2)) / (chains * (chains - 1) * r)
    gram = Z[:, rows].swapaxes(1, 2) @ Z[:, rows] / r
    control = ((gram - np.eye(T)) ** 2).sum(axis=(1, 2)) - T * (T + 1) / r
    cov = np.cov(pairs, control)
    value = pairs - cov[0, 1] / cov[1, 1] * control
    return float(value.mean()), float(value.std() / np.sqrt(samples))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "rows", "known"),
    [
        (TIED_R2_T2_LINEAR, (0, 1), 3),
        (TIED_R2_T2, (0, 1), 3 - 1 / 2),
        (TIED_R2_T3, (0, 1), 6),
        (TIED_R3_T2, (0, 1, 2), 2 - 4 / 9),
        (TIED_R3_T3, (0, 1, 2), 4 - 2 / 9),
        (UNTIED_R1_T2, (0,), 3),
        (UNTIED_R1_T3, (0,), 8),
    ],
    ids=str,
)
def test_first_thresholds_in_closed_form(family: Family, rows: tuple[int, ...], known: float) -> None:
    """Tied, rank r: T (T + 1) / r, less 2 (r - T + 1)_+ / r^2 under softmax; untied softmax queries: T^2 - 1."""
    chi, error = susceptibility(family, rows, np.random.default_rng([53, family.tokens, family.fields]))
    assert error < 0.04 * known
    assert abs(chi - known) < 4 * error + 1e-9  # flips alone average second moments over O(2), exactly
