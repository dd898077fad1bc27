"""What lattices leave out: broad maxima beside narrow ones, ridges thinner than a step; and who takes over."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from smisym.integrate import importance, quadrature
from smisym.integrate.averages import SURE, Average
from smisym.integrate.modes import Values


class _Pair:
    """A broad and a narrow Gaussian of equal mass on sheets of their own: r_b = g_b U_b (x - a_b), U_b orthonormal."""

    branches, widening, modeless, broken = 2, 1.0, False, False
    bordered = ended = saturating = tailed = False
    latents = 0
    outlying = 0.0

    def __init__(self, dim: int, residuals: int, steep: float, seed: int, samples: int = 6) -> None:
        rng = np.random.default_rng(seed)
        self.dim, self.residuals, self.samples = dim, residuals, samples
        square = (np.linalg.qr(rng.standard_normal((dim, dim)))[0] for _ in range(2))
        self.slopes = np.stack([g * one[:residuals] for g, one in zip((0.5, steep), square, strict=True)])
        self.offsets = np.einsum("bmd,sbd->sbm", self.slopes, 0.7 * rng.standard_normal((samples, 2, dim)))
        precision = np.eye(dim) + np.einsum("bmi,bmj->bij", self.slopes, self.slopes)
        pull = np.einsum("bmi,sbm->sbi", self.slopes, self.offsets)
        self.centres = np.linalg.solve(precision, pull[..., None])[..., 0]
        log_mass = 0.5 * ((pull * self.centres).sum(axis=2) - (self.offsets**2).sum(axis=2))
        self.weights = 0.5 * np.linalg.slogdet(precision)[1] - log_mass

    def points(self) -> None:
        return None

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        r = np.einsum("bmd,dnc->bmnc", self.slopes, x) - np.moveaxis(self.offsets[index], 0, 2)[:, :, None]
        return Values(r, np.broadcast_to(self.weights[index].T[:, None], (2, *x.shape[1:])))

    def missed(self, found: Average) -> np.ndarray:
        """Errors of means, (S,)."""
        r = np.einsum("bmd,sbd->sbm", self.slopes, self.centres) - self.offsets
        exact = np.concatenate([self.centres, r], axis=2).mean(axis=1)
        return np.asarray(np.linalg.norm(found.mean - exact, axis=1))


@pytest.mark.parametrize("steep", [2.0, 8.0, 20.0, 40.0])
@pytest.mark.parametrize(("dim", "residuals"), [(1, 1), (2, 2), (3, 1), (3, 3)])
def test_a_narrow_maximum_beside_a_broad_one(dim: int, residuals: int, steep: float) -> None:
    """The narrow one may lie between nodes, and all of the broad one below what is dropped beside the narrow one."""
    for seed in range(2):
        pair = _Pair(dim, residuals, steep, seed)
        found = quadrature.lattice(pair, rtol=1e-2)
        off = pair.missed(found)
        assert (off[found.converged] <= found.error[found.converged]).all()
        # Where an error is stated as "all of it", it is of the order of all of it.
        assert (off <= 2 * found.error).all()
        if dim < 3:
            assert found.converged.all()


@pytest.mark.parametrize("steep", [4.0, 6.0])
def test_a_ridge_thinner_than_a_step_is_no_reason_to_give_up(steep: float) -> None:
    """In four dimensions many nodes meet a ridge, each by chance: what sublattices miss says how well."""
    for seed in range(2):
        pair = _Pair(4, 1, steep, seed, samples=3)
        found = quadrature.lattice(pair, rtol=1e-2)
        off = pair.missed(found)
        assert found.converged.all()
        assert (off <= found.error).all()


def test_a_standard_error_is_compared_as_what_most_averages_keep_to() -> None:
    assert pytest.approx(student.ppf(0.995, importance.REPLICATES - 1), rel=1e-3) == SURE

    def average(samples: int, error: float, sure: float) -> Average:
        one = np.ones(samples)
        return Average(0 * one, np.zeros((samples, 1)), None, error * one, one, error * one <= 1e-2, sure=sure * one)

    for bound, standard, taken in ((2e-2, 1e-2, False), (4e-2, 1e-2, True), (2e-2, 5e-3, True)):
        lattice = average(2, bound, 1.0)
        used = lattice.replace(np.array([1]), average(1, standard, SURE), 1e-2)
        assert used.tolist() == [False, taken]
        assert lattice.error.tolist() == [bound, standard if taken else bound]
        assert lattice.sure is not None
        assert lattice.sure.tolist() == [1.0, SURE if taken else 1.0]
        assert lattice.nodes.tolist() == [1.0, 2.0]


def test_a_lattice_that_met_next_to_nothing_does_not_speak_against_what_was_found() -> None:
    """Its mean is that of nodes beside a ridge; where it has found as much, or more, it may know of another sheet."""
    for log, believed in ((0.0, 4.9), (1.0, 4.9), (-57.0, 0.0)):
        one = np.ones(1)
        lattice = Average(log * one, 5.0 * np.ones((1, 1)), None, 0.1 * one, one, one > 1, sure=one)
        drawn = Average(0 * one, np.zeros((1, 1)), None, 1e-3 * one, one, one > 0, sure=SURE * one)
        lattice.replace(np.array([0]), drawn, 1e-2)
        assert drawn.error == pytest.approx(max(believed, 1e-3))
        assert lattice.error == pytest.approx(min(0.1, drawn.error[0]))
