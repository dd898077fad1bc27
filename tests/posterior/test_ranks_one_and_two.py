"""Two layers of ranks one and two: posteriors in three dimensions with ridges that sublattices see little of."""

from __future__ import annotations

import numpy as np

import smisym
from smisym import Architecture, Attention
from smisym.integrate import quadrature
from smisym.posterior.level_set import OnLevelSet


def test_errors_of_lattices_in_three_dimensions_hold() -> None:
    """Against a lattice of a far smaller tolerance; the square of what sublattices miss was six times too small."""
    model = smisym.compile(Architecture(2, (Attention(), Attention(rank=2))))
    overlap = np.array([0.3, 0.3, 0.9])[:, None]
    omega, rest = np.random.default_rng(7).standard_normal((2, 12, 3, 2))
    omega = np.sqrt(overlap) * omega
    posterior = model.channel.posterior
    assert isinstance(posterior, OnLevelSet) and posterior.dim == 3
    observed = posterior.read(model.observe(omega + np.sqrt(1 - overlap) * rest))
    integrand = posterior.at(observed, omega, np.diag(1 - overlap[:, 0])[None])
    with np.errstate(all="ignore"):
        found = quadrature.lattice(integrand, rtol=3e-2)
        fine = quadrature.lattice(integrand, rtol=1e-4, max_nodes=10**6)
    off = np.linalg.norm(found.mean - fine.mean, axis=1)
    known = (fine.error < 0.05 * found.error) & found.converged
    assert known.sum() >= 6
    assert (off <= found.bound + fine.error)[known].all()
