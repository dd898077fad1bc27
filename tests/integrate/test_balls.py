"""Lattices in balls: mixtures in closed form, how steps are told, and what is left to the adaptive lattice."""

from __future__ import annotations

import numpy as np
import pytest

from smisym.integrate import quadrature
from smisym.integrate.accuracy import BALLS, LATTICES
from smisym.integrate.ball_blocks import blocks, serves
from smisym.integrate.ball_text import LANES
from smisym.integrate.balls import finer_by, on_balls
from smisym.integrate.cells import sublattice_error
from smisym.integrate.modes import Values

BUDGET = 10**6


class _Sheets:
    """Two sheets r = A_b x - c_b of constant weight: Gaussians in closed form.  ends: x_1 where the first one does."""

    widening, modeless, broken = 1.0, False, False
    bordered = ended = saturating = tailed = False
    latents = 0
    outlying = 0.0
    branches = 2

    def __init__(self, dim: int, seed: int, samples: int = 32, steep: float = 1.5, ends: float = np.inf) -> None:
        rng = np.random.default_rng(seed)
        self.dim, self.residuals, self.samples, self.ends = dim, dim, samples, ends
        self.slopes = steep * rng.standard_normal((2, dim, dim)) / np.sqrt(dim)
        self.centres = rng.standard_normal((samples, 2, dim))

    def points(self) -> None:
        return None

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        r = np.einsum("bmd,dnc->bmnc", self.slopes, x) - np.moveaxis(self.centres[index], 0, 2)[:, :, None]
        log_weight = np.zeros((2, *x.shape[1:]))
        log_weight[0, x[0] > self.ends] = -np.inf
        return Values(r, log_weight)

    def exact(self) -> tuple[np.ndarray, np.ndarray]:
        """Means (S, D) and covariances (S, D, D) of (x, r)."""
        A, c, d = self.slopes, self.centres, self.dim
        M = np.eye(d) + np.einsum("bmi,bmj->bij", A, A)
        pull = np.einsum("bmi,sbm->sbi", A, c)
        x = np.linalg.solve(M, pull[..., None])[..., 0]
        logs = 0.5 * ((pull * x).sum(axis=2) - (c**2).sum(axis=2) - np.linalg.slogdet(M)[1])
        share = np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))
        T = np.concatenate([np.broadcast_to(np.eye(d), (2, d, d)), A], axis=1)
        own = np.einsum("bid,sbd->sbi", T, x) - np.concatenate([np.zeros_like(c), c], axis=2)
        mean = np.einsum("sb,sbi->si", share, own)
        within = np.einsum("bid,bde,bje->bij", T, np.linalg.inv(M), T)
        off = own - mean[:, None]
        cov = np.einsum("sb,bij->sij", share, within) + np.einsum("sb,sbi,sbj->sij", share, off, off)
        return mean, cov


class _Walls:
    """Residuals x_1 - c and (x_2 / 3.5)^15: hardly any mass lies where nodes may pass something by, beyond 3.5."""

    dim = residuals = 2
    branches, widening, modeless, broken = 1, 1.0, False, False
    bordered = ended = saturating = tailed = False
    latents = 0
    outlying = 0.0

    def __init__(self, centres: np.ndarray) -> None:
        self.centres, self.samples = centres, len(centres)

    def points(self) -> None:
        return None

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        return Values(np.stack([x[0] - self.centres[index], (x[1] / 3.5) ** 15])[None], np.zeros((1, *x.shape[1:])))


def test_a_posterior_is_the_same_alone_and_among_others() -> None:
    """Its error too, though others that are integrated beside it have larger balls: of what nodes may have passed by,
    all is stated, and not its share of the blocks of the largest ball."""
    centres = np.linspace(0.0, 4.0, 9)
    together = on_balls(_Walls(centres), 0.1, False, BUDGET)
    assert together is not None and together.converged.all() and len(np.unique(together.nodes)) > 3
    # The means are (c / 2, 0), and those of the residuals -c / 2 and 0.
    exact = 0.5 * centres[:, None] * np.array([1.0, 0.0, -1.0, 0.0])
    assert (np.linalg.norm(together.mean - exact, axis=1) <= together.error).all()
    for s in range(len(centres)):
        alone = on_balls(_Walls(centres[s : s + 1]), 0.1, False, BUDGET)
        assert alone is not None
        np.testing.assert_allclose(alone.mean[0], together.mean[s], rtol=0, atol=1e-14)
        assert alone.error[0] == pytest.approx(together.error[s], rel=1e-9)


@pytest.mark.parametrize(("dim", "rtol"), [(2, 1e-2), (2, 1e-5), (2, 1e-8), (3, 1e-2), (3, 1e-5)])
def test_errors_are_those_that_are_stated(dim: int, rtol: float) -> None:
    for seed in range(3):
        sheets = _Sheets(dim, seed)
        found = on_balls(sheets, rtol, True, BUDGET)
        assert found is not None and found.cov is not None
        mean, cov = sheets.exact()
        known = found.converged
        assert known.mean() > 0.9
        assert (found.error[known] <= rtol).all() and np.isinf(found.error[~known]).all()
        assert (np.linalg.norm(found.mean - mean, axis=1) <= found.error + 1e-12)[known].all()
        assert np.linalg.norm(found.cov - cov, axis=(1, 2))[known].max() < 100 * rtol


@pytest.mark.parametrize("dim", BALLS)
def test_the_first_lattice_tells_the_step(dim: int) -> None:
    """Most posteriors need one lattice more, of fewer nodes than where steps are halved."""
    sheets = _Sheets(dim, 1)
    found = on_balls(sheets, 1e-6, False, BUDGET)
    assert found is not None and found.converged.mean() > 0.9
    halved = quadrature.lattice(sheets, rtol=1e-6, shape=LATTICES[dim])
    assert np.median(found.nodes) < 0.5 * np.median(halved.nodes)


def test_steps_follow_the_decay() -> None:
    """Of what falls like exp(-a / step^p) the rule tells the step; what is slower gets a finer one, within limits."""
    head, fall, target = 5.0, 1.2, 1e-6
    for a in (2.5, 4.0, 6.0):
        missed = np.array([head * np.exp(-a)])
        then = finer_by(sublattice_error(missed[:, None], 2) * 2, np.array([target]))
        gap = head * np.exp(-a * then**fall)
        assert 4 * gap[0] ** 1.75 == pytest.approx(0.5 * target, rel=1e-6)
    assert finer_by(np.array([np.inf, 1e-9]), np.array([1e-6, 1e-6])).tolist() == [4.0, 1.125]


@pytest.mark.parametrize("dim", BALLS)
def test_a_ball_is_the_beginning_of_the_list(dim: int) -> None:
    every = blocks(dim)
    places = np.moveaxis(every.places, 1, 2).reshape(-1, dim)
    assert len(np.unique(places, axis=0)) == len(places)
    assert (np.diff(every.distance) >= 0).all() and len(every.distance) % LANES == 0
    # Whole cells: nodes at all parities, as places that differ by one.
    assert np.abs(every.places - every.places.mean(axis=0)).max() == 0.5
    far = np.sqrt((every.places**2).sum(axis=1)).min(axis=0)
    for radius in (0.3, 2.0, 5.5, BALLS[dim].largest):
        count = int(every.within(np.array([radius]))[0])
        assert count % LANES == 0 and count <= len(every.distance)
        assert (far[count:] > radius).all()
    inside = (np.sqrt((places**2).sum(axis=1)) < 5.5).sum()
    assert inside == pytest.approx({2: np.pi, 3: 4 / 3 * np.pi}[dim] * 5.5**dim, rel=0.1)
    tiles = every.tiles.reshape(-1, dim, 2**dim, LANES)
    np.testing.assert_array_equal(np.moveaxis(tiles, 0, 2).swapaxes(0, 1).reshape(2**dim, dim, -1), every.places)


def test_what_does_not_suit_a_ball_is_left_to_the_lattice() -> None:
    ends, steep = _Sheets(2, 0, samples=4, ends=0.5), _Sheets(2, 0, samples=4, steep=300.0)
    for integrand in (ends, steep):
        found = on_balls(integrand, 1e-4, False, BUDGET)
        assert found is not None and not found.converged.any() and np.isinf(found.error).all()
    whole = quadrature.lattice(steep, rtol=1e-4)
    assert whole.converged.all()
    assert (np.linalg.norm(whole.mean - steep.exact()[0], axis=1) <= whole.error).all()
    poor = on_balls(_Sheets(2, 0), 1e-4, False, 50)
    assert poor is not None and not poor.converged.any() and (poor.nodes <= 50).all()


def test_which_integrands_are_plain() -> None:
    assert serves(_Sheets(2, 0)) and not serves(_Sheets(4, 0))
    kinks = _Sheets(2, 0)
    kinks.broken = True
    assert not serves(kinks) and on_balls(kinks, 1e-4, False, BUDGET) is None
