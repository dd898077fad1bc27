"""The integral over a block of posteriors, by the way that the accuracy plan names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from smisym.integrate import importance, quadrature
from smisym.integrate.accuracy import BOXED, FRAMED, MISLED, SAMPLING, SEARCHED, SUM, UNTIL_TWO_AGREE, Row, plan
from smisym.integrate.averages import SURE, Average, discrete
from smisym.posterior.base import Integrand, Posterior

# Error, over that asked for, that sums of an integrand are made for where the first ones miss it.
_FINER = 1 / 30


@dataclass(frozen=True)
class How:
    """What is asked of the integrals, as :meth:`Channel.moments` has it."""

    cov: bool
    rtol: float
    seed: int
    max_nodes: int | None
    averaged: bool = False


def plan_of(posterior: Posterior) -> Row:
    """The row of the accuracy plan that a posterior is integrated by."""
    if posterior.sought:
        return SEARCHED
    if posterior.boxed:
        return BOXED
    if posterior.framed:
        return FRAMED
    return plan(posterior.dim, posterior.smooth, posterior.broken, posterior.summed, posterior.tabled, posterior.along)


# Many parameters: a block, how it is integrated, and what is asked for.
def integral(
    integrand: Integrand, row: Row, start: int, how: How, longest: Callable[[], float]
) -> tuple[Average, np.ndarray]:
    """The integral over a block of samples that begins at ``start``, and which were sampled rather than integrated;
    longest: the longest step that a lattice of them may begin with (:mod:`smisym.integrate.resolution`)."""
    statistical = np.zeros(integrand.samples, dtype=bool)
    own = integrand.integral(how.rtol, how.cov, how.max_nodes, how.averaged)
    if own is not None:
        return own, statistical
    ready = integrand.prepared(how.rtol, how.cov)
    if row.method is SUM:
        return _doubted(discrete(ready, cov=how.cov), ready, how.rtol), statistical
    rng = np.random.default_rng([how.seed, start])
    budget: dict[str, Any] = {"rtol": how.rtol, "cov": how.cov, "max_nodes": how.max_nodes}
    if ready is not integrand:
        return _refined(integrand, ready, row, budget, rng)
    if row.method is SAMPLING:
        return _doubted(importance.mixture(integrand, rng=rng, **budget), integrand, how.rtol), ~statistical
    step = longest()
    budget["max_nodes"] = how.max_nodes or row.most
    misleading = 0 < step < np.inf
    step = max(step, MISLED[integrand.dim].begin) if misleading else step
    found = quadrature.lattice(integrand, shape=row.lattice, longest=step, **budget)
    if misleading:
        _agree(integrand, found, row, step, budget)
    if not step:
        # Nodes and their halves agree on what is not there, however fine they are: nothing is known of the error.
        found.error[:], found.converged[:] = np.inf, False
        return found, statistical
    # Sampling ends at a standard error of what is asked: what is known as well as that is not sampled.
    rest = np.flatnonzero(~(found.bound <= SURE * how.rtol))
    # Nor where the lattice tells of a border: points that are drawn know of none.
    if not rest.size or integrand.bordered:
        return found, statistical
    budget["max_nodes"] = how.max_nodes
    sampled = importance.mixture(integrand.take(rest), rng=rng, **budget)
    return found, found.replace(rest, sampled, how.rtol)


# Many parameters: a block and its first lattices, how it is integrated, and what is asked for.
def _agree(integrand: Integrand, found: Average, row: Row, step: float, budget: dict[str, Any]) -> None:
    """Lattices of a model that misleads them, beside others until two agree: their steps share no part of a period."""
    rest, most = np.flatnonzero(found.converged), budget["max_nodes"] or np.inf
    for _ in range(UNTIL_TWO_AGREE):
        # What has no nodes left for a second one is told by one alone, and not known.
        alone = rest[found.nodes[rest] >= most]
        found.error[alone], found.converged[alone] = np.inf, False
        rest = rest[found.nodes[rest] < most]
        if not rest.size:
            return
        step *= MISLED[integrand.dim].other
        left = None if np.isinf(most) else int(most - found.nodes[rest].max())
        again = quadrature.lattice(
            integrand.take(rest), shape=row.lattice, longest=step, **budget | {"max_nodes": left}
        )
        apart = np.linalg.norm(again.mean - found.mean[rest], axis=1) + np.abs(again.log_norm - found.log_norm[rest])
        own = again.converged.copy()
        again.error = np.fmax(again.error, apart)
        again.converged &= again.error <= budget["rtol"]
        again.nodes += found.nodes[rest]
        found.nodes[rest] = again.nodes
        found.put(rest, again, np.arange(len(rest)))
        rest = rest[own & ~again.converged]


def _refined(
    integrand: Integrand, ready: Integrand, row: Row, budget: dict[str, Any], rng: np.random.Generator
) -> tuple[Average, np.ndarray]:
    """The integral of an integrand that sums by itself, and once more with finer sums where these miss the error."""
    sampled = row.method is SAMPLING
    most = budget["max_nodes"] or row.most

    def integral(one: Integrand) -> Average:
        if sampled:
            return importance.mixture(one, rng=rng, **budget | {"max_nodes": most})
        return quadrature.lattice(one, shape=row.lattice, **budget | {"max_nodes": most})

    found = integral(ready)
    rest = np.flatnonzero(~found.converged)
    if rest.size:
        finer = integral(integrand.take(rest).prepared(_FINER * budget["rtol"], budget["cov"]))
        found.replace(rest, finer, budget["rtol"])
    return found, np.full(integrand.samples, sampled)


def _doubted(posterior: Average, integrand: Integrand, rtol: float) -> Average:
    """With the error of what an integrand may have missed."""
    moved, missed = integrand.doubt(posterior.doubt)
    posterior.error += moved
    # However little, what is doubted is not returned as if it were known.
    posterior.converged &= (posterior.error <= rtol) & ~missed
    return posterior
