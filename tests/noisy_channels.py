"""Channels of the same networks under noise, integrated around their level sets and over all fields."""

from __future__ import annotations

from typing import Any

import numpy as np

from smisym import SMI, Architecture, Attention
from smisym.base.derivation import Derivation
from smisym.charts import find_level_set
from smisym.link.linking import LinkFunction, link_function
from smisym.model.channel import Channel, Moments
from smisym.posterior.all_fields import OnAllFields
from smisym.posterior.around import AroundLevelSet

A = Attention
ONE = Architecture(2, (A(),))
MODELS = {
    "one layer": ONE,
    "linear": Architecture(2, (A(activation="linear"),)),
    "three tokens": Architecture(3, (A(),)),
    "two heads": Architecture(2, (A(heads=2),)),
    "sequence": Architecture(3, (A(skip=0.5),), output="sequence"),
    "two layers": Architecture(2, (A(), A())),
    "rank two": Architecture(2, (A(rank=2),)),
    "untied": Architecture(2, (A(tied=False),)),
}


def noisy(declared: Architecture, noise: float) -> Architecture:
    return Architecture(
        declared.tokens,
        declared.layers,
        output=declared.output,
        noise=noise,
    )


def chart_of(declared: Architecture | SMI) -> tuple[LinkFunction, Any]:
    link = link_function(declared, Derivation())
    return link, find_level_set(link, Derivation())


def around(declared: Architecture, noise: float) -> Channel:
    """Around the level set, however strong the noise and however small V."""
    link, level_set = chart_of(declared)
    return Channel(link, AroundLevelSet(level_set, link, noise), noise)


def everywhere(declared: Architecture, noise: float) -> Channel:
    link = link_function(declared, Derivation())
    return Channel(link, OnAllFields(link, noise), noise)


def drawn(
    channel: Channel, overlap: float, count: int, seed: int = 0
) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """(outputs, omega (S, P, T), V (P, P), true fields)."""
    rng, shape = np.random.default_rng(seed), (count, channel.fields, channel.tokens)
    omega = np.sqrt(overlap) * rng.standard_normal(shape)
    Z = omega + np.sqrt(1 - overlap) * rng.standard_normal(shape)
    return channel.sample(Z, rng), omega, (1 - overlap) * np.eye(channel.fields), Z


def apart(a: Moments, b: Moments, V: np.ndarray) -> np.ndarray:
    """Distance of means in the norm of V^{-1}, (S,)."""
    gap = a.mean - b.mean
    return np.asarray(np.sqrt(np.einsum("spt,pq,sqt->s", gap, np.linalg.inv(V), gap)))
