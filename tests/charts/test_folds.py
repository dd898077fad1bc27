"""Level sets that close upon themselves: solutions for a field have folds, and sheets end where there is mass."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ive

import smisym
from smisym import SMI


@cache
def compiled(text: str) -> Any:
    return smisym.compile(SMI(text, 2))


def moments(text: str, outputs: np.ndarray, omega: tuple[float, float] = (0.0, 0.0), rtol: float = 1e-3) -> Any:
    """Posterior moments at given outputs (S,) and fields of two rows, V = I."""
    model = compiled(text)
    fields = np.broadcast_to(np.array(omega)[:, None], (len(outputs), 2, 1))
    return model.channel.moments(np.asarray(outputs)[:, None], fields, np.eye(2), cov=True, rtol=rtol)


def around_the_ellipse(form: np.ndarray, y: float, omega: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (2,) and covariance (2, 2) on z^T form z = y, by the trapezoid rule in the angle, which is periodic."""
    angle = 2 * np.pi * np.arange(4096) / 4096
    ray = np.array([np.cos(angle), np.sin(angle)])
    size = np.einsum("in,ij,jn->n", ray, form, ray)
    radius = np.sqrt(y / size)
    z = radius * ray
    # dz1 dz2 = r dr da and dy = 2 r size dr.
    log = -np.log(size) - 0.5 * ((z - omega[:, None]) ** 2).sum(axis=0)
    w = np.exp(log - log.max())
    w /= w.sum()
    mean = z @ w
    return mean, (z * w) @ z.T - np.outer(mean, mean)


@pytest.mark.parametrize("rtol", [1e-2, 1e-3, 1e-5])
def test_an_ellipse_in_bessel_functions(rtol: float) -> None:
    """2 z1^2 + z2^2 = y: E[z1^2] = y/4 (1 + I1(y/8) / I0(y/8))."""
    y = np.array([0.3, 3.0, 9.606467, 40.0])
    found = moments("2*z1**2 + z2**2", y, rtol=rtol)
    exact = y / 4 * (1 + ive(1, y / 8) / ive(0, y / 8))
    assert found.result.ok
    np.testing.assert_allclose(found.cov[:, 0, 0, 0, 0], exact, rtol=3 * rtol)


@settings(deadline=None, max_examples=12)
@given(
    form=st.sampled_from([(2, 0, 1), (1, 1, 2), (1, -2, 3), (1, 0, 9)]),
    y=st.floats(0.01, 20.0),
    omega=st.tuples(st.floats(-1.0, 1.0), st.floats(-1.0, 1.0)),
)
def test_any_ellipse(form: tuple[int, int, int], y: float, omega: tuple[float, float]) -> None:
    a, b, c = form
    found = moments(f"{a}*z1**2 + {b}*z1*z2 + {c}*z2**2", np.array([y]), omega)
    mean, cov = around_the_ellipse(np.array([[a, b / 2], [b / 2, c]]), y, np.array(omega))
    assert found.result.ok
    # A small ellipse between the nodes of a lattice is sampled: one standard error.
    assert np.linalg.norm(found.mean[0, :, 0] - mean) <= found.error[0] * (5 if found.statistical[0] else 1)
    np.testing.assert_allclose(found.cov[0, :, 0, :, 0], cov, atol=5e-3)


@pytest.mark.parametrize("y", [-2.0, 0.1, 1.5, 6.0])
def test_a_fold_and_an_inflection(y: float) -> None:
    """z1^2 + z2^3: z1 has a fold where it vanishes, z2 an infinite slope.  By z2 = t, t = y^(1/3) - s^2."""
    found = moments("z1**2 + z2**3", np.array([y]))

    def averaged(of: Any) -> float:
        def integrand(s: float) -> float:
            t = math.cbrt(y) - s * s
            z = math.sqrt(max(y - t**3, 1e-300))
            return float(of(z, t) * math.exp(-0.5 * (z * z + t * t)) * s / z)

        return quad(integrand, 0, 6, limit=400, epsabs=1e-12, points=[math.sqrt(abs(math.cbrt(y)))])[0]

    one = averaged(lambda z, t: 1.0)
    mean = averaged(lambda z, t: t) / one
    assert found.result.ok
    assert abs(found.mean[0, 1, 0] - mean) <= found.error[0] + 1e-6
    assert found.cov[0, 0, 0, 0, 0] == pytest.approx(averaged(lambda z, t: z * z) / one, abs=5e-3)


def test_sheets_that_end_where_there_is_mass_are_not_cut_short() -> None:
    """|z1| + |z2| = y: sheets end at z1 = +-y with finite weights; the ends can lie between cells of the lattice."""
    y = np.array([0.2, 0.77, 1.3, 2.9])
    found = moments("abs(z1) + abs(z2)", y, rtol=1e-3)
    exact = []
    for value in y:
        weight = [
            quad(lambda z, k=k, y=value: z**k * math.exp(-0.5 * (z * z + (y - z) ** 2)), 0, value)[0] for k in (0, 2)
        ]
        exact.append(weight[1] / weight[0])
    assert np.all(np.abs(found.cov[:, 0, 0, 0, 0] - exact) <= 5e-3)


def test_what_an_indefinite_form_shows_is_averaged_right() -> None:
    """z1^2 - z2^2 / 2: E[g g^T] at Q = 0 is diagonal, with the second moments of a quadrature of its own."""
    model = smisym.compile(SMI("z1**2 - z2**2/2", 2))
    rng = np.random.default_rng(3)
    Z = rng.standard_normal((256, 2, 1))
    found = model.channel.moments(model.observe(Z), np.zeros((256, 2, 1)), np.eye(2), cov=True, rtol=1e-3)
    second = found.cov[:, :, 0, :, 0]
    # On the level set the output holds, whatever the weights; and signs of both rows are free.
    np.testing.assert_allclose(
        second[:, 0, 0] - second[:, 1, 1] / 2, Z[:, 0, 0] ** 2 - Z[:, 1, 0] ** 2 / 2, rtol=5e-3, atol=5e-3
    )
    for k in range(0, 256, 32):
        y = float(Z[k, 0, 0] ** 2 - Z[k, 1, 0] ** 2 / 2)

        def averaged(power: int, y: float = y) -> float:
            # z1 = sqrt(y) cosh, or z2 = sqrt(-2 y) cosh, of one hyperbolic angle: dz1 / |z2| is its measure.
            def integrand(u: float) -> float:
                z1, z2 = (math.sqrt(abs(y)) * math.cosh(u), math.sqrt(2 * abs(y)) * math.sinh(u))
                if y < 0:
                    z1, z2 = math.sqrt(-y) * math.sinh(u), math.sqrt(-2 * y) * math.cosh(u)
                return float(z1**power * math.exp(-0.5 * (z1 * z1 + z2 * z2)))

            return quad(integrand, 0, 12, limit=400)[0]

        assert second[k, 0, 0] == pytest.approx(averaged(2) / averaged(0), abs=5e-3)
