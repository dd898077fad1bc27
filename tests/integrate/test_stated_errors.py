"""Where nodes meet something by chance, or never: what is stated covers what is missed, held against closed forms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.integrate import quad

import smisym
from smisym import SMI
from smisym.integrate import quadrature
from smisym.integrate.cells import blurred, edge_error, means_and_gaps, parity_signs, random_error, sublattice_error
from smisym.integrate.modes import Values


def test_errors_at_edges_are_kept_to_by_ninety_nine_of_a_hundred() -> None:
    """Two half discs at random places, pi r^2 / 2 each: their ends fall between nodes by chance, and what half of the
    nodes miss may be nothing though all of them miss something."""
    rng = np.random.default_rng(0)
    draws, step = 8000, 0.05
    radius, place = rng.uniform(0.5, 1.0, (2, draws, 1)), rng.uniform(-1.0, 1.0, (2, draws, 1))
    exact = 0.5 * np.pi * (radius**2).sum(axis=(0, 2))

    def sums(h: float) -> tuple[np.ndarray, np.ndarray]:
        """By the lattice of step h, and what its half misses (draws, 1)."""
        k = np.arange(-int(2.1 / h), int(2.1 / h))
        f = np.sqrt(np.maximum(radius**2 - ((k + 0.5) * h - place) ** 2, 0.0)).sum(axis=0)
        return h * f.sum(axis=1), h * np.abs(f @ (1.0 - 2.0 * (k % 2)))[:, None]

    before = edge_error(sums(2 * step)[1], np.zeros(draws), 1.0)[1]
    found, gap = sums(step)
    error = edge_error(gap, before, 0.5)[0]
    assert (np.abs(found - exact) > error).mean() < 0.01
    # It is no bound that covers everything: some tenth of it is what is missed.
    assert np.quantile(np.abs(found - exact) / error, 0.9) > 0.1


def test_a_ring_thinner_than_a_step_states_what_chance_leaves() -> None:
    """A normal of two fields, and a share of it on a ring whose nodes meet it at random: all nodes miss as much as half
    of them do, and not the square of that, which holds of the normal."""
    rng = np.random.default_rng(1)
    draws, step, radius, width = 500, 0.4, 1.5, 0.07
    side = np.arange(-20, 20)
    places = np.stack(np.meshgrid(side, side, indexing="ij")).reshape(2, -1).T
    x, centre = (places + 0.5) * step, rng.uniform(-1.0, 1.0, (draws, 1, 2))
    normal = np.exp(-0.5 * (x**2).sum(axis=1)) / (2 * np.pi)
    # Its mass by the moments of a normal: nothing of r exp(-(r - R)^2 / 2 w^2) lies at r < 0.
    away = np.linalg.norm(x - centre, axis=2)
    ring = np.exp(-0.5 * ((away - radius) / width) ** 2) / (2 * np.pi * radius * np.sqrt(2 * np.pi) * width)
    signs = parity_signs(places)
    for share in (1e-2, 1e-3, 1e-4):
        what = ((1 - share) * normal + share * ring)[..., None] * np.concatenate([np.ones((len(x), 1)), x], axis=1)
        first, on_ring = what.sum(axis=1), share * ring.sum(axis=1) / ((1 - share) * normal + share * ring).sum(axis=1)
        mean, gap = means_and_gaps(first, np.einsum("an,snd->sad", signs, what))
        off = np.linalg.norm(mean - share * centre[:, 0], axis=1)
        assert (off <= sublattice_error(gap, 2) + random_error(gap, on_ring)).all()
        # Nothing of it is owed to cells that are resolved.
        assert (random_error(gap, np.zeros(draws)) == 0).all()


class _OneField:
    """A posterior of one field x: residual (d, n, C) -> (m, n, C) and log-weight (n, C) -> (n, C) are handed in."""

    samples = dim = residuals = branches = 1
    widening, modeless, broken, ended, saturating, tailed = 1.0, False, False, False, False, False
    latents = 0
    outlying = 0.0

    def __init__(self, residual: Callable, log_weight: Callable, bordered: bool = False) -> None:
        self.residual, self.log_weight, self.bordered = residual, log_weight, bordered

    def points(self) -> None:
        return None

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        return Values(self.residual(x)[None], self.log_weight(x[0])[None])


@pytest.mark.parametrize("place", [0.11, 0.83, 1.37])
def test_a_needle_that_no_node_tells_of_is_kept(place: float) -> None:
    """r = log(1 + u^2), u = (x - a) / w: between nodes it hardly changes, and all mass lies within a few w of a."""
    width = 1e-5

    def density(u: float) -> float:
        return float(np.exp(-0.5 * ((place + width * u) ** 2 - place**2 + np.log1p(u * u) ** 2)))

    def moment(what: Callable) -> float:
        pieces = ((-300.0, -10.0), (-10.0, 0.0), (0.0, 10.0), (10.0, 300.0))
        return float(sum(quad(lambda u: what(u) * density(u), *ends, epsabs=0, epsrel=1e-10)[0] for ends in pieces))

    exact = moment(lambda u: np.log1p(u * u)) / moment(lambda u: 1.0)
    needle = _OneField(lambda x: np.log1p(((x - place) / width) ** 2), np.zeros_like)
    found = quadrature.lattice(needle, rtol=1e-3)
    assert found.converged.all()
    assert np.hypot(found.mean[0, 0] - place, found.mean[0, 1] - exact) <= found.error[0]


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (0.3, 0.9), (1.0, 2.5), (1.0, 4.0)])
def test_what_lies_beyond_a_border_is_followed(mean: float, deviation: float) -> None:
    """Normal posteriors wider than what is covered at first, of which the weight near the centre tells nothing."""
    p = deviation**-2

    def log_weight(x: np.ndarray) -> np.ndarray:
        return np.asarray(0.5 * (1 - p) * x**2 + p * mean * x)

    found = quadrature.lattice(_OneField(np.zeros_like, log_weight, True), rtol=1e-2)
    assert abs(found.mean[0, 0] - mean) <= found.error[0]
    assert found.converged.all()


def _polar_angle(tailed: bool) -> tuple[_OneField, float]:
    """exp(b x) / cosh(a x)^2, as the polar angle of a sphere has it, and its mean 1 / b - cot(pi b / 2 a) pi / 2 a."""
    a, b = 1.4, 0.5

    def log_weight(x: np.ndarray) -> np.ndarray:
        return np.asarray(0.5 * x**2 + b * x - 2 * np.log(np.cosh(a * x)))

    sphere = _OneField(np.zeros_like, log_weight)
    sphere.tailed = tailed
    return sphere, 1 / b - 0.5 * np.pi / a / np.tan(0.5 * np.pi * b / a)


@pytest.mark.parametrize("tailed", [False, True])
@pytest.mark.parametrize("rtol", [1e-2, 1e-4, 1e-6, 1e-8, 1e-10])
def test_tails_that_fall_like_exponentials_are_followed(rtol: float, tailed: bool) -> None:
    """Whether they are looked for before, or only where mass is met at the border."""
    sphere, exact = _polar_angle(tailed)
    found = quadrature.lattice(sphere, rtol=rtol)
    assert found.converged.all()
    assert abs(found.mean[0, 0] - exact) <= found.error[0] <= rtol


def _pole(outlying: float, place: float) -> tuple[_OneField, float]:
    """A normal times 1 + s w / ((x - a)^2 + w^2), whose spectrum falls like exp(-w k) from s on, and its mean."""
    share, width = 1e-4, 0.3

    def factor(x: np.ndarray) -> np.ndarray:
        return np.asarray(1 + share * width / ((x - place) ** 2 + width**2))

    def moment(power: int) -> float:
        pieces = ((-12.0, place), (place, 12.0))
        return sum(quad(lambda x: x**power * factor(x) * np.exp(-0.5 * x * x), *p, epsabs=1e-13)[0] for p in pieces)

    field = _OneField(np.zeros_like, lambda x: np.log(factor(x)))
    field.outlying = outlying
    return field, moment(1) / moment(0)


@pytest.mark.parametrize("rtol", [1e-5, 1e-6])
def test_far_from_a_model_no_law_of_falling_spectra_is_relied_on(rtol: float) -> None:
    """What half of the nodes miss is a small part here, and no power of it tells how fast it falls."""
    ratios: dict[float, list[float]] = {0.0: [], 4.0: []}
    for outlying, found in ratios.items():
        for place in np.linspace(0.3, 2.3, 20):
            field, mean = _pole(outlying, place)
            average = quadrature.lattice(field, rtol=rtol)
            assert average.converged.all()
            found.append(abs(average.mean[0, 0] - mean) / average.error[0])
    assert max(ratios[4.0]) <= 1
    # The law of posteriors that a model makes does not hold here.
    assert max(ratios[0.0]) > 3


SIDE = np.linspace(-6.5, 6.5, 521)


@pytest.mark.parametrize(
    ("text", "fields"), [("sin(4*z1)", 1), ("sin(4*z1) + z2/3", 2), ("sin(6*(z1 + z2)) + z1/5", 2)]
)
def test_outputs_that_oscillate_are_not_met_at_two_phases_alone(text: str, fields: int) -> None:
    """Steps near a part of a period meet an output at few phases, where all nodes look alike, as do half of them:
    before, log Z was off by 0.6 where 1e-4 was stated."""
    noise, count = 0.05, 200
    model = smisym.compile(SMI(text, fields, noise=noise))
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((count, fields, 1))
    y = model.link(Z).reshape(count, 1)
    y = y + np.sqrt(noise) * rng.standard_normal(y.shape)
    grid = np.stack(np.meshgrid(*[SIDE] * fields, indexing="ij")).reshape(fields, -1)
    mass = np.exp(-0.5 * (grid**2).sum(axis=0))
    there = model.link(grid.T[:, :, None]).reshape(-1)
    weights = [np.exp(-0.5 * (one - there) ** 2 / noise) @ mass for one in y[:, 0]]
    exact = np.log(np.array(weights) / (mass.sum() * np.sqrt(2 * np.pi * noise)))
    for rtol in (1e-2, 1e-3, 1e-6):
        found = model.channel.moments(y, np.zeros((count, fields, 1)), np.eye(fields), rtol=rtol)
        assert (np.abs(found.log_partition - exact) < 5 * found.error + 1e-12).all()
        assert (found.error <= rtol).all()


def test_steps_that_differ_by_so_much_leave_as_much_unresolved() -> None:
    """Sums over nodes of a normal that is as wide as the step is long, divided by c: what they miss at most, where the
    normal lies between them as unhappily as it can."""
    change = np.array([0.3, 0.7, 1.0, 1.5, 2.0, 2.5])
    k = np.arange(-60, 61)
    for c, part in zip(change, blurred(change, 1), strict=True):
        off = [abs(c * np.exp(-0.5 * ((k + s) * c) ** 2).sum() / np.sqrt(2 * np.pi) - 1) for s in np.linspace(0, 1, 21)]
        assert max(off) <= part * 1.05 + 1e-14
    assert (np.diff(blurred(change, 1)) >= 0).all()
    assert blurred(np.array([np.inf]), 1)[0] == 1
