"""What points before tell of the next one on a curve: where it is, and how many samples it takes."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention
from smisym.theory.aim import Aim
from smisym.theory.fixed_point import solve
from smisym.theory.onward import Onward, Shifts


def on_few(alpha: float) -> np.ndarray:
    return np.diag([1 - np.exp(-2 * (alpha - 0.2)), 1 - 0.5 * np.exp(-3 * alpha)])


def on_many(alpha: float) -> np.ndarray:
    """The same with what is left larger by factors whose logarithms are a line in alpha, and one that is not."""
    factor = np.exp([0.05 - 0.1 * alpha, 0.02 + 0.04 * alpha**2])
    return np.eye(2) - (np.eye(2) - on_few(alpha)) * factor[:, None]


def test_shifts_go_on_along_a_line() -> None:
    shifts, missed = Shifts(), []
    for alpha in np.arange(0.3, 0.8, 0.05):
        assert shifts.at(on_few(alpha)) == bool(missed)
        told = shifts.moved(on_few(alpha), alpha)
        here = on_many(alpha)
        missed.append(np.full(2, np.nan) if told is None else np.log(np.diag((1 - told) / (1 - here))))
        shifts.learn(alpha, on_few(alpha), here)
    found = np.abs(missed[2:])
    assert found[:, 0].max() < 1e-12  # a line
    assert found[:, 1] == pytest.approx(0.04 * 2 * 0.05**2, rel=1e-6)  # h^2 times the second derivative
    assert not np.isfinite(missed[0]).any()


def test_another_stage_is_told_nothing() -> None:
    shifts = Shifts()
    shifts.at(on_few(0.3))
    shifts.learn(0.3, on_few(0.3), on_many(0.3))
    assert shifts.at(on_few(0.4))
    assert not shifts.at(np.diag([0.0, 0.4])) and shifts.moved(np.diag([0.0, 0.4]), 0.5) is None


def test_samples_follow_from_the_noise() -> None:
    """Twice as many where 4096 leave an error 2^0.6 times 0.75 of what is asked; and never more than may be taken."""
    model = smisym.compile(Architecture(2, (Attention(),)))
    omap = smisym.overlap_map(model, samples=4096, seed=1)
    found = smisym.state_evolution(omap, 0.3)
    made = [solve(omap, r, 0.3) for r in range(omap.scrambles)]
    onward = Onward()
    assert not onward.at(made, 4096) and onward.samples(Aim(1e-3, 2**20), 4096) is None
    onward.learn(made, found)
    assert onward.at(made, 4096)
    error = float((found.statistical_error + found.deterministic_error).max())
    assert onward.samples(Aim(error / 0.75 / 2**0.6, 2**20), 4096) == 8192
    assert onward.samples(Aim(error / 0.75 / 8**0.6, 2**14), 4096) == 2**14
    assert onward.samples(Aim(10 * error, 2**20), 4096) == 4096


def test_a_curve_is_what_its_points_are_by_themselves() -> None:
    """Each alpha within the errors of both, though one tells the next where to look and how often."""
    model = smisym.compile(Architecture(2, (Attention(),)))
    alphas = [0.2, 0.25, 0.3, 0.35]
    curve = smisym.curve(model, alphas, accuracy=2e-3, seed=3)
    for alpha, found in zip(alphas, curve, strict=True):
        alone = smisym.state_evolution(model, alpha, accuracy=1e-3, seed=8)
        assert found.result.ok and found.value.Q_error.max() <= 2e-3
        assert abs(found.value.Q - alone.value.Q).max() < 3 * np.hypot(found.value.Q_error, alone.value.Q_error).max()


def test_what_moved_the_points_of_one_map_does_not_move_those_of_another() -> None:
    model = smisym.compile(Architecture(2, (Attention(),)))
    omap = smisym.overlap_map(model, samples=1024, seed=1)
    made = [solve(omap, r, 0.3) for r in range(omap.scrambles)]
    onward = Onward()
    onward.at(made, 1024)
    onward.learn(made, smisym.state_evolution(omap, 0.3))
    assert onward.at(made, 1024) and not onward.at(made, 8192)
