"""Moments of the fields of a batch of samples, and how those of several batches, ways or parts are put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from smisym.base.solution import Result, short, worst
from smisym.integrate.averages import SURE


@dataclass(frozen=True, repr=False)
class Moments:
    """Posterior moments of the fields of a batch of samples.

    log_partition (S,): log p(y | omega, V), a density in the chart's coordinates of y.
    mean (S, P, T): E[Z | y, omega, V].
    cov (S, P, T, P, T): covariance, or None when not asked for.
    g (S, P, T): g_out = V^{-1}(mean - omega), without cancellation.
    dg (S, P, T, P, T): d g_out / d omega = V^{-1} cov V^{-1} - V^{-1}, or None.
    error (S,): estimated error of ``mean`` in the norm of V^{-1}; deterministic (refinement) on a lattice,
    statistical (independent scrambles) where ``statistical`` is True.
    nodes (S,): integrand evaluations spent.
    result: SUCCESS, INTEGRATION (some error above rtol), ILL_CONDITIONED (y rounds away the fields) or EXCLUDED (the
    mean of some sample is twenty standard deviations or more from its omega, and its error may be larger than stated).
    """

    log_partition: np.ndarray
    mean: np.ndarray
    cov: np.ndarray | None
    g: np.ndarray
    dg: np.ndarray | None
    error: np.ndarray
    nodes: np.ndarray
    statistical: np.ndarray
    result: Result

    def __repr__(self) -> str:
        """How many samples of which shape, how they ended and the largest error, in one line."""
        samples, *shape = np.shape(self.mean)
        size = f"{samples} sample{'s' * (samples != 1)} of {' x '.join(map(str, shape))} fields"
        largest = f", largest error {short(float(np.max(self.error)))}" if np.size(self.error) else ""
        cov = "" if self.cov is None else ", with covariances"
        return f"<Moments: {size}{cov}; {self.result.value}{largest}>"

    def take(self, index: np.ndarray) -> Moments:
        """The same for chosen samples, which may repeat."""
        arrays: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "result"}
        chosen: dict[str, Any] = {n: None if a is None else a[index] for n, a in arrays.items()}
        return Moments(**chosen, result=self.result)

    @property
    def bound(self) -> np.ndarray:
        """(S,) what 99 % of errors keep to: ``error``, or some standard errors."""
        return np.where(self.statistical, SURE, 1.0) * self.error

    def replaced(self, index: np.ndarray, other: Moments) -> Moments:
        """With ``other`` for the samples ``index`` where its error is smaller, at the level of 99 %.

        An error is not smaller than what lies between the two means beyond the error known before.
        """
        with np.errstate(invalid="ignore"):
            gap = np.sqrt(np.einsum("spt,spt->s", other.mean - self.mean[index], other.g - self.g[index]))
            error = np.fmax(other.error, gap - self.error[index])
        other = replace(other, error=error)
        better = other.bound < self.bound[index]
        choice = np.arange(len(self.error))
        choice[index[better]] = len(choice) + np.flatnonzero(better)
        chosen = join([self, other], self.result).take(choice)
        chosen.nodes[index] = self.nodes[index] + other.nodes
        return chosen


def join(parts: list[Moments], result: Result) -> Moments:
    """Moments of several batches as those of one."""
    arrays: dict[str, Any] = {}
    for name in (f.name for f in fields(Moments) if f.name != "result"):
        values = [getattr(part, name) for part in parts]
        arrays[name] = None if values[0] is None else np.concatenate(values)
    return Moments(**arrays, result=result)


def nothing(fields: int, tokens: int, cov: bool) -> Moments:
    """Moments of no samples."""
    one, pair = np.empty((0, fields, tokens)), np.empty((0, fields, tokens, fields, tokens))
    none = np.empty(0)
    second = pair if cov else None
    return Moments(none, one, second, one, second, none, none, np.empty(0, dtype=bool), Result.SUCCESS)


def product(parts: Sequence[tuple[Sequence[int], Moments]], rows: int) -> Moments:
    """Moments of all ``rows`` of Z from those of groups of rows that are independent: (which rows, their moments).

    Squares of errors add up, as norms of V^{-1} do.
    """
    one = parts[0][1]
    S, _, T = one.mean.shape
    mean, g = np.empty((S, rows, T)), np.empty((S, rows, T))
    pairs = None if one.cov is None else (np.zeros((S, rows, T, rows, T)), np.zeros((S, rows, T, rows, T)))
    for own, moments in parts:
        mean[:, own], g[:, own] = moments.mean, moments.g
        if pairs is not None:
            where = np.ix_(range(S), own, range(T), own, range(T))
            pairs[0][where], pairs[1][where] = moments.cov, moments.dg
    every = [moments for _, moments in parts]
    return Moments(
        np.sum([m.log_partition for m in every], axis=0),
        mean,
        None if pairs is None else pairs[0],
        g,
        None if pairs is None else pairs[1],
        np.sqrt(np.sum([m.error**2 for m in every], axis=0)),
        np.sum([m.nodes for m in every], axis=0),
        np.any([m.statistical for m in every], axis=0),
        worst([m.result for m in every]),
    )


def apart(
    one: Moments, first: np.ndarray, other: Moments, others: np.ndarray, rtol: float
) -> tuple[np.ndarray, Moments]:
    """(which samples, their moments) from those of two tasks.

    Of a sample that has both, the one with the smaller error, which is no smaller than the gap between their means:
    neither may have seen all of the posterior.
    """
    union = np.union1d(first, others)
    both, a, b = np.intersect1d(first, others, return_indices=True)
    result = worst([one.result, other.result])
    joined = join([one, other], result)
    choice = np.empty(len(union), dtype=int)
    choice[np.searchsorted(union, others)] = len(first) + np.arange(len(others))
    better = one.error[a] < other.error[b]
    kept = ~np.isin(first, both[~better])
    choice[np.searchsorted(union, first[kept])] = np.flatnonzero(kept)
    chosen = joined.take(choice)
    gap = np.einsum("spt,spt->s", one.mean[a] - other.mean[b], one.g[a] - other.g[b])
    with np.errstate(invalid="ignore"):
        gaps = np.nan_to_num(np.sqrt(gap), nan=np.inf, posinf=np.inf)
    where = np.searchsorted(union, both)
    chosen.error[where] = np.maximum(chosen.error[where], gaps)
    if result is Result.SUCCESS and (chosen.error[where] > rtol).any():
        return union, join([chosen], Result.INTEGRATION)
    return union, chosen
