"""Parts that every solve is made of, each held against what it says in closed form: steps, what is known, what is left;
and what posteriors' own errors and a mean map make of an answer."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest

import smisym
from smisym import SMI, Result
from smisym.theory.between import bounded, cubic
from smisym.theory.collecting import collect
from smisym.theory.estimating import Estimator
from smisym.theory.linearised import KNOWN, Equation, Local
from smisym.theory.maps import OverlapMap
from smisym.theory.point import Point
from smisym.theory.turning import TILT, askew, tilt

PAIR = SMI(("abs(z1)", "2*abs(z2)"), 2)


@cache
def pair() -> smisym.Model:
    return smisym.compile(PAIR)


def local(*overlaps: float) -> Local:
    return Equation(OverlapMap(pair(), samples=64, scrambles=2), 0).at(np.diag(overlaps), 0.7)


def test_what_is_left_most() -> None:
    """The largest eigenvalue of I - Q along what is learned and is not perfect, and one where that is nothing."""
    for overlaps, most in (((0.3, 0.9), 0.7), ((0.0, 0.9), 0.1), ((1 - KNOWN, 0.25), 0.75), ((0.0, 0.0), 1.0)):
        assert local(*overlaps).most_left == pytest.approx(most, rel=1e-9)


def test_a_residual_that_is_a_cubic_along_a_step_is_found_exactly() -> None:
    here, taken = local(0.3, 0.6), np.array([0.3, -0.4])
    along = taken / 0.5
    for seed in range(3):
        p = np.polynomial.Polynomial(np.random.default_rng(seed).standard_normal(4))
        ends = [
            dataclasses.replace(here, residual=p(s) * along, scaled=(1 + p.deriv()(s) / 0.5) * np.eye(2))
            for s in (0, 1)
        ]
        shares, values = cubic(*ends, taken)
        assert 0 < shares.min() and shares.max() < 1
        np.testing.assert_allclose(values, p(shares), rtol=0, atol=1e-12)


def test_a_slope_that_is_seen_as_expected_is_kept() -> None:
    """Of what was seen along a step the slope is kept where it is what was expected, or up to three times as much or as
    little; beyond that it is moved there, and nothing across the step."""
    along, across = np.array([0.6, 0.8]), np.array([-0.8, 0.6])
    expected = 2.0 * along + 0.5 * across
    for seen, kept in ((2.0, 2.0), (1.0, 1.0), (5.0, 5.0), (0.1, 2 / 3), (60.0, 6.0)):
        found = bounded(seen * along + 0.3 * across, expected, along)
        assert found @ along == pytest.approx(kept)
        assert found @ across == pytest.approx(0.3)


def test_what_is_known_askew_tells_of_others() -> None:
    """Of z2 + t z1 with what is left of the known added, a normal of variance t^2 + KNOWN, z1 is the share of t^2: no
    more than TILT^2 of it may be told."""
    here = local(0.5, 0.5)
    for part in (0.2, 0.5, 2.0, 100.0):
        t = part * TILT * np.sqrt(KNOWN)
        small = np.array([t, 1.0]) / np.hypot(t, 1.0)
        image = np.eye(2) - (1 - 1e-3) * np.outer(small, small)
        turned = dataclasses.replace(here, known=np.diag([0.0, 1.0]), image=image)
        assert tilt(turned) == pytest.approx(t, rel=1e-2, abs=1e-15)
        assert askew(turned) == (t**2 / (t**2 + KNOWN) > TILT**2)


class _Off:
    """A channel whose posterior means are off by so much along themselves, in units of V^{1/2}, and which says so."""

    def __init__(self, channel: Any, off: float, root: np.ndarray) -> None:
        self._channel, self._off, self._root = channel, off, root

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def moments(self, *arguments: Any, **settings: Any) -> Any:
        found = self._channel.moments(*arguments, **settings)
        size = np.linalg.norm(self._root @ found.g, axis=(1, 2), keepdims=True)
        return dataclasses.replace(found, g=found.g * (1 + self._off / size), error=np.full(len(size), self._off))


@pytest.mark.parametrize("overlap", [0.05, 0.3, 0.9])
def test_errors_of_posteriors_move_the_trace_by_no_more_than_is_stated(overlap: float) -> None:
    """|g + e|^2 - |g|^2 is 2 |g| |e| + |e|^2 where e lies along g, and never more: that is what is stated, exactly."""
    Q, off = overlap * np.eye(2), 1e-3
    planted = dataclasses.replace(pair(), channel=_Off(pair().channel, off, np.sqrt(1 - overlap) * np.eye(2)))
    right, wrong = (Estimator(model, 256, 0, 1e-3)(0, Q) for model in (pair(), planted))
    moved = float(np.trace(wrong.three[0] - right.three[0]))
    # |g| is that of the planted posterior, which has more of it by e.
    assert moved <= wrong.inner_error <= moved + 2.001 * off**2


class _Planted(OverlapMap):
    """E(Q) = diag(1 + s (Q - 1/2)) / alpha in every scramble, by all three estimators: 1/2 solves its equation."""

    alpha, slopes = 0.7, np.zeros(2)

    def at(self, scramble: int, Q: np.ndarray) -> Any:
        made, q = super().at(scramble, Q), np.diag(Q)
        V = 1 - q
        white = np.diag(V * (1 + self.slopes * (q - 0.5)) / self.alpha)
        slope = np.zeros((2, 2, 2, 2))
        for k in range(2):
            slope[k, k, k, k] = V[k] ** 2 * self.slopes[k] / self.alpha
        three, nothing = np.stack([white] * 3), np.zeros_like(made.gap)
        return dataclasses.replace(
            made, white=white, three=three, slope=slope, raw=slope, gap=nothing, gains=np.zeros_like(made.gains)
        )


@pytest.mark.parametrize("slope", [0.0, 3.0, 8.0])
def test_a_mean_map_that_contracts_along_some_directions_alone_has_no_fixed_point_to_tell(slope: float) -> None:
    """At Q = I / 2 the map q -> alpha E / (1 + alpha E) has the slope s / 4 along the second row: beyond one scrambles
    may say what they like, that their derivatives are wrong and that they rest."""
    omap = _Planted(pair(), samples=64, scrambles=4)
    omap.slopes = np.array([0.0, slope])
    half, correction = 0.5 * np.eye(2), np.diag([0.0, 10.0])
    points = []
    for r in range(4):
        here = Equation(omap, r).at(half, omap.alpha)
        np.testing.assert_allclose(here.residual, 0.0, atol=1e-12)
        left = np.zeros((2, 2))
        points.append(Point(half, left, here, left, Result.SUCCESS, [], omap.alpha, 0.0, correction))
    found = collect(omap, points, "uninformed", 1e-4)
    assert found.result.ok == (slope < 4)
