"""Mass beyond the ball that a lattice begins with, and ridges of which the likelihood alone tells."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention
from smisym.integrate import quadrature
from smisym.integrate.modes import Values


class _Away:
    """One Gaussian of width 0.7, so far out that no probe is near it, all of it in the log-weight."""

    branches, residuals, samples, widening, modeless, broken = 1, 1, 2, 1.0, False, False
    bordered = ended = saturating = tailed = False
    latents = 0
    outlying = 0.0

    def __init__(self, centre: list[float]) -> None:
        self.centre, self.dim = np.array(centre), len(centre)

    def points(self) -> None:
        return None

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        away = ((x - self.centre[:, None, None]) / 0.7) ** 2
        return Values(np.zeros((1, 1, *x.shape[1:])), (0.5 * x**2 - 0.5 * away).sum(axis=0)[None])


CENTRES: list[list[float]] = [[9.0], [-12.0], [6.0, -7.0], [5.0, 5.0, 5.0]]


@pytest.mark.parametrize("centre", CENTRES, ids=str)
def test_a_lattice_follows_the_mass_wherever_it_leads(centre: list[float]) -> None:
    for rtol in (1e-2, 1e-4):
        # A first step of its own: no ball is tried before.
        found = quadrature.lattice(_Away(centre), rtol=rtol, longest=0.4)
        assert found.converged.all()
        off = np.linalg.norm(found.mean[:, : len(centre)] - centre, axis=1)
        assert (off <= found.error).all()
        np.testing.assert_allclose(found.log_norm, len(centre) * np.log(0.7 * np.sqrt(2 * np.pi)), atol=2 * rtol)


def test_mass_that_no_nodes_are_left_for_is_not_passed_over() -> None:
    found = quadrature.lattice(_Away([6.0, -7.0]), rtol=1e-2, longest=0.4, max_nodes=1000)
    assert not found.converged.any() and np.isinf(found.error).all()


# A posterior each, of tied attention on two tokens, with its beta: of the first, most lies beyond where points near the
# origin tell that it may, and of the last an island beyond a gap; of the others a ridge holds little, which sublattices
# hardly see.  Found by a search for posteriors that are off by more than they state: by 28, 2 to 30, and 660 times.
NARROW: dict[str, tuple[float, list[float], list[float]]] = {
    "beyond": (3.0, [-0.8617553, -0.32824973], [0.95272921, 0.02054797, -0.02068085, 0.95004071]),
    "ridge": (3.0, [-0.9632045334, 1.8664699502], [0.9746345628, 0.0073933848, -0.0127348956, 0.9461610461]),
    "another": (3.0, [-1.7938320953, 2.4302965042], [0.9772592639, -0.0216224205, 0.0394894909, 1.0028015733]),
    "island": (10.0, [-0.63416271, 0.07106533], [0.94234225, -0.00576281, 0.82569985, 0.1832317]),
}


@pytest.mark.parametrize("name", NARROW)
def test_attention_under_weak_noise_is_as_far_off_as_it_says(name: str) -> None:
    beta, *numbers = NARROW[name]
    omega, y = map(np.array, numbers)
    noise = 1e-3
    channel = smisym.compile(Architecture(2, (Attention(beta=beta),), noise=noise)).channel
    line = np.linspace(-7, 7, 2401)
    z1, z2 = omega[0] + line[:, None], omega[1] + line
    first, second = (1 / (1 + np.exp(-beta * z * (z - other))) for z, other in ((z1, z2), (z2, z1)))
    misfit = sum((seen - given) ** 2 for seen, given in zip((first, 1 - first, 1 - second, second), y, strict=True))
    log = -0.5 * (line[:, None] ** 2 + line**2) - 0.5 * misfit / noise
    weight = np.exp(log - log.max())
    mean = omega + np.array([(weight.sum(axis=1) * line).sum(), (weight.sum(axis=0) * line).sum()]) / weight.sum()
    for rtol in (1e-2, 1e-3, 1e-4):
        found = channel.moments(y.reshape(1, 2, 2), omega[None, None], np.eye(1), rtol=rtol)
        assert found.result.ok
        assert np.linalg.norm(found.mean[0, 0] - mean) <= found.error[0]
