"""Stands for what is written for one architecture: sizes, and the functions made of its straight-line programs."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray

FIELDS, TOKENS = 2, 2  # rows and columns of Z
ORDER = (0, 1)  # rows of Z in the order in which they are whitened: the free ones first
FREE = 1  # rows that are free coordinates
LATENTS: tuple[str, ...] = ()  # further coordinates: "line" sinh(x), "scale" exp(x), "flat" x itself
SHEETS, DIRECTIONS = 2, 0
NOISE = 0.0  # variance of the noise on every entry of the output
RTOL, MAX_NODES = 1e-8, 2**20
ANALYTIC = True  # whether densities are analytic, so that a lattice converges fast
SAMPLED = False  # whether integrals are sampled
NISHIMORI = 256  # draws of the self-test
REFERENCE: list[dict[str, Any]] = []
# Of row softmaxes: shape of the output, which entries are attended, y = CONSTANT + COEFFICIENT * attention, and the
# column that log-ratios of a row refer to.
OUTPUT = (2, 2)
ATTENDED = np.ones(OUTPUT, dtype=bool)
CONSTANT, COEFFICIENT = np.zeros(OUTPUT), np.ones(OUTPUT)
REFERENCE_COLUMN = np.arange(2)


def network(*fields: Array) -> list[Array]:
    """Entries of the output, or of its log-ratios, from entries of the fields."""
    raise NotImplementedError


def level_set(free: list[Array], x: list[Array], u: list[Array]) -> tuple[list[list[Array]], list[Array], list[Any]]:
    """Solved fields, log-weights and directions of every sheet."""
    raise NotImplementedError


def coordinates(seen: Array) -> Array:
    """What is needed of outputs or log-ratios, (S, K)."""
    raise NotImplementedError
