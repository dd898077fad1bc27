"""What an integral over a batch of posteriors gives, and the finite sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from smisym.integrate.modes import Doubt, Integrand, Summed, Values, at_points

# Error that 99 % of sampled averages keep to, in standard errors: Student's t of the 7 degrees of freedom of 8 shifts.
SURE = 3.5


@dataclass
class Average:
    """Moments of zeta = (x, r) under a batch of posteriors.

    log_norm (S,): log of the integral over x of sum_b exp(...), without factors of 2 pi.
    mean (S, d+m), cov (S, d+m, d+m) or None.
    error (S,): estimated norm of the error of ``mean``, from refinement or from independent scrambles.
    nodes (S,): evaluations spent.  converged (S,): error within what was asked.
    doubt: what solutions that the evaluations sought tell of those not found; None where none were sought.
    sure (S,): times ``error``, what 99 % of errors keep to: 1 where it is a bound, SURE where it is as much chance as a
    standard error; None for bounds alone.
    """

    log_norm: np.ndarray
    mean: np.ndarray
    cov: np.ndarray | None
    error: np.ndarray
    nodes: np.ndarray
    converged: np.ndarray
    doubt: Doubt | None = None
    sure: np.ndarray | None = None

    @property
    def bound(self) -> np.ndarray:
        """(S,) what 99 % of errors keep to."""
        return self.error if self.sure is None else self.sure * self.error

    def take(self, index: np.ndarray) -> Average:
        """The same for some of the batch."""
        names = ("log_norm", "mean", "cov", "error", "nodes", "converged", "sure")
        given: dict[str, np.ndarray | None] = {name: getattr(self, name) for name in names}
        chosen: dict[str, Any] = {name: None if values is None else values[index] for name, values in given.items()}
        return Average(**chosen)

    def replace(self, index: np.ndarray, other: Average, rtol: float) -> np.ndarray:
        """Take over the entries of ``other`` (for the samples ``index``) that err less, at 99 %; returns which.

        An error is not smaller than what lies between the two means beyond the error known before: a sheet that the
        other has missed altogether is in no error of its own.  Where the other has found much more mass, by as much as
        there is of it beside that: what a lattice makes of nodes that pass by a ridge tells nothing.
        """
        with np.errstate(invalid="ignore"):
            beyond = np.linalg.norm(other.mean - self.mean[index], axis=1) - self.error[index]
            beyond *= np.exp(np.minimum(self.log_norm[index] - other.log_norm, 0.0))
        other.error = np.fmax(other.error, beyond)
        other.converged &= other.error <= rtol
        used = np.zeros(len(self.error), dtype=bool)
        better = other.bound < self.bound[index]
        used[index[better]] = True
        self.nodes[index] += other.nodes
        self.put(index[better], other, better)
        return used

    def put(self, index: np.ndarray, other: Average, chosen: np.ndarray) -> None:
        """All but the nodes of the samples ``index``, from the chosen ones of another batch."""
        for name in ("log_norm", "mean", "cov", "error", "converged", "sure"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None:
                mine[index] = theirs[chosen]


def discrete(integrand: Integrand, *, cov: bool = False) -> Average:
    """The case d = 0: a finite sum over branches, exact; or what an integrand that sums by itself has found."""
    S = integrand.samples
    index = np.arange(S)
    values = at_points(integrand, index, np.empty((0, 1, S)))
    if values.summed is not None:
        return _as_summed(values, values.summed, cov=cov)
    r, log_weight, along = values[:3]
    r, log_weight = r[..., 0, :], log_weight[:, 0]
    logf = log_weight - 0.5 * np.einsum("bms,bms->bs", r, r)
    logf = np.where(np.isfinite(logf), logf, -np.inf)
    top = logf.max(axis=0)
    w = np.exp(logf - np.where(np.isfinite(top), top, 0.0))
    total = w.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        w /= total
    mean = np.einsum("bs,bms->sm", w, r)
    centred = r - mean.T
    spread = np.einsum("bs,bms,bks->smk", w, centred, centred) if cov else None
    if spread is not None and along is not None:
        spread += np.einsum("bs,bims,biks->smk", w, along[..., 0, :], along[..., 0, :])
    with np.errstate(divide="ignore"):
        log_norm = top + np.log(total)
    there = np.isfinite(log_norm)
    return Average(log_norm, mean, spread, np.where(there, 0.0, np.inf), np.ones(S), there)


def _as_summed(values: Values, summed: Summed, *, cov: bool) -> Average:
    """What an integrand has summed up, of one branch and one point a sample."""
    mean, log_norm = np.ascontiguousarray(values.residuals[0, :, 0].T), values.log_weight[0, 0].copy()
    spread = None
    if cov and summed.second is not None:
        spread = np.moveaxis(summed.second[:, :, 0], -1, 0) - mean[:, :, None] * mean[:, None, :]
    S = len(mean)
    nodes = np.ones(S) if summed.nodes is None else summed.nodes[0].copy()
    there = np.isfinite(log_norm)
    return Average(log_norm, mean, spread, np.where(there, 0.0, np.inf), nodes, there)
