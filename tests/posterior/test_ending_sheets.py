"""Sheets that end, and weights with a kink, where there is mass: posteriors against integrals that know where."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from scipy import integrate
from scipy.special import ive

import smisym
from smisym import SMI, Model

Truth = Callable[[float, np.ndarray, float], np.ndarray]


def on_a_circle(y: float, omega: np.ndarray, v: float) -> np.ndarray:
    """z1^2 + z2^2 = y: the density of von Mises."""
    radius, size = np.sqrt(y), np.linalg.norm(omega)
    known = radius * size / v
    return np.asarray(radius * ive(1, known) / ive(0, known) * omega / size)


def on_a_hyperbola(y: float, omega: np.ndarray, v: float) -> np.ndarray:
    """z1^2 - 2 z2^2 = y: hyperbolic functions of a parameter, whose measure is flat."""
    t = np.linspace(-9, 9, 60001)
    grown, even = np.sqrt(abs(y)) * np.sinh(t), np.sqrt(abs(y)) * np.cosh(t)
    both = [(s * even, grown) if y > 0 else (grown, s * even) for s in (1, -1)]
    Z = np.concatenate([np.array([first, second / np.sqrt(2)]) for first, second in both], axis=1)
    log = -((Z - omega[:, None]) ** 2).sum(axis=0) / (2 * v)
    weight = np.exp(log - log.max())
    return np.asarray(Z @ weight / weight.sum())


def with_a_kink(y: float, omega: np.ndarray, v: float) -> np.ndarray:
    """z1 exp(z2) / (z2 - 0.4) = y: the weight is |z2 - 0.4| exp(-z2)."""
    low, high = omega[1] - 12 * np.sqrt(v), omega[1] + 12 * np.sqrt(v)
    ends = sorted({low, high, min(max(0.4, low), high)})
    z = np.array([np.linspace(a, b, 200001) for a, b in itertools.pairwise(ends)])
    Z = np.array([y * (z - 0.4) * np.exp(-z), z])
    log = -((Z - omega[:, None, None]) ** 2).sum(axis=0) / (2 * v)
    weight = np.abs(z - 0.4) * np.exp(-z + log - log.max())
    mass, *means = (integrate.simpson(w, z, axis=1).sum() for w in (weight, *(weight * Z)))
    return np.array(means) / mass


LINKS: dict[str, Truth] = {
    "z1**2 + z2**2": on_a_circle,
    "z1**2 - 2*z2**2": on_a_hyperbola,
    "z1*exp(z2)/(z2 - 0.4)": with_a_kink,
}


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return {link: smisym.compile(SMI(link, 2)) for link in LINKS}


@pytest.mark.parametrize("variance", [0.3, 1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("link", LINKS)
def test_means_are_as_near_as_they_say(link: str, variance: float, models: dict[str, Model]) -> None:
    """A few in a hundred posteriors have mass on a sheet that two neighbouring nodes do not see."""
    model, rng, samples = models[link], np.random.default_rng(14), 120
    omega = np.sqrt(1 - variance) * rng.standard_normal((samples, 2, 1))
    Z = omega + np.sqrt(variance) * rng.standard_normal((samples, 2, 1))
    observed = model.channel.sample(Z, rng)
    rows = zip(observed.y[:, 0], omega[:, :, 0], strict=True)
    truth = np.array([LINKS[link](float(y), o, variance) for y, o in rows])
    for rtol in (None, 1e-3):
        found = model.channel.moments(observed, omega, variance * np.eye(2), rtol=rtol)
        gap = np.linalg.norm(found.mean[:, :, 0] - truth, axis=1) / np.sqrt(variance)
        # What is sampled has standard errors, which one in some hundred exceeds by little.
        assert (gap <= 3 * found.error + 1e-9).all(), (gap / found.error).max()
        assert np.quantile(found.error, 0.9) <= (rtol or 1e-3)


def test_what_ends_and_what_has_kinks_is_known(models: dict[str, Model]) -> None:
    told = {link: (model.level_set.ended, model.level_set.kinked) for link, model in models.items() if model.level_set}
    assert told == {
        "z1**2 + z2**2": (True, False),
        "z1**2 - 2*z2**2": (True, False),
        "z1*exp(z2)/(z2 - 0.4)": (False, True),
    }
    # Zeros of the weight at zero fields are borders of half-lines.
    for link in ("z1/z2", "z1*z2", "z1/(z2**2 + 1)", "z1 + tanh(z2)"):
        level_set = smisym.compile(SMI(link, 2)).level_set
        assert level_set is not None and not level_set.ended and not level_set.kinked, link
