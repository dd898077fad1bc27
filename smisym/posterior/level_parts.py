"""What one level of a chain of tables misses, and which posteriors are worth another one."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from smisym.kernels.chains import Found

# What an error counts for that is not known, and what share of one is left after another level.
_UNKNOWN, _LEFT = 10.0, 0.1
# Evaluations of a level that no posterior with an error above the one aimed at goes without, and how many times as many
# with one as many times as large, at most: where nothing is dear the average square of covariances of three layers was
# 3e-3 off else, at 1e-2 asked.
_CHEAP, _AT_MOST = 3e4, 5.0


@dataclass(frozen=True)
class Parts:
    """What a level misses: by nodes (S, K), by tables (S, K - 1), beyond tables, at the borders of lattices, and what
    its boxes leave out (S,)."""

    nodes: np.ndarray
    tables: np.ndarray
    far: np.ndarray
    border: np.ndarray
    left_out: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """(S,) of the mean, in the norm of V^{-1}."""
        # What nodes and polynomials miss of one layer has nothing to do with what they miss of another.
        alike = sum(np.sqrt((part**2).sum(axis=1)) for part in (self.nodes, self.tables))
        return np.asarray(alike + self.far.sum(axis=1) + self.border.sum(axis=1) + self.left_out)


def narrowed(spans: np.ndarray, peaks: np.ndarray) -> np.ndarray:
    """(S,) the largest width of peaks over that of spans before, both (S, K - 1, 2, 2, 2)."""
    with np.errstate(invalid="ignore"):
        ratio = (peaks[..., 1] - peaks[..., 0]) / (spans[..., 1] - spans[..., 0])
    return np.asarray(np.nan_to_num(ratio, nan=0.0).max(axis=(1, 2, 3)))


def part_of(parts: Parts, index: np.ndarray) -> Parts:
    return Parts(*(getattr(parts, field.name)[index] for field in fields(parts)))


def taken(found: Found, index: np.ndarray) -> Found:
    return Found(*(value[index] if len(value) else value for value in found))


def chosen(error: np.ndarray, cost: np.ndarray, active: np.ndarray, aim: float) -> np.ndarray:
    """Those of the posteriors ``active`` (n,) that get another level, of those with errors (S,), so that the mean error
    comes down to ``aim``: those that are cheap, and then the largest errors for what the level costs (n,).

    From level to level errors fall tenfold, and costs rise as much: half of what it takes to bring every error below
    one value goes to a few posteriors that hardly move an average.
    """
    known = np.minimum(error, _UNKNOWN)
    cheap = np.minimum(known[active] / aim, _AT_MOST) * _CHEAP > cost
    if cheap.any():
        return active[cheap]
    beyond = float(known.sum()) - aim * len(error)
    if not beyond > 0:
        return active[:0]
    order = active[np.argsort(-known[active] / cost, kind="stable")]
    enough = int(np.searchsorted((1 - _LEFT) * np.cumsum(known[order]), beyond)) + 1
    return np.sort(order[:enough])
