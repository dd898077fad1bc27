"""Folds, coexistence and the information-theoretic transition, against a quadrature of its own."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, special

import smisym
from smisym import SMI, Architecture, Attention, InputError
from smisym.theory.all_branches import resting_points

NOISE = 1e-4


def map_of_size(q: float, noise: float) -> tuple[float, float]:
    """(E g^2, E log p(y | omega)) of y = |z| + noise: sums over both signs of z, each a Gaussian times a half-line."""
    V = 1 - q
    S = V + noise
    step = min(0.05, math.sqrt(V) / 3)
    xi = np.arange(0, 8 + step, step)
    weight = np.exp(-(xi**2) / 2)
    weight[0] *= 0.5
    weight /= weight.sum()
    y, wy = np.polynomial.legendre.leggauss(400)
    omega = math.sqrt(q) * xi[:, None]
    low, high = -8 * math.sqrt(noise), omega + 9 * math.sqrt(S)
    Y, W = 0.5 * (high - low) * y + 0.5 * (high + low), 0.5 * (high - low) * wy
    deviation, logs, slopes = math.sqrt(V * noise / S), [], []
    for sign in (1, -1):
        a = (sign * omega * noise + Y * V) / S / deviation
        logs.append(-0.5 * (Y - sign * omega) ** 2 / S - 0.5 * math.log(2 * math.pi * S) + special.log_ndtr(a))
        half_line = np.exp(-0.5 * a * a - special.log_ndtr(a)) / math.sqrt(2 * math.pi)
        slopes.append(sign * (Y - sign * omega) / S + half_line * sign * noise / S / deviation)
    total = np.logaddexp(*logs)
    g = sum(np.exp(log - total) * slope for log, slope in zip(logs, slopes, strict=True))
    mass = weight[:, None] * W * np.exp(total)
    return float((mass * g * g).sum()), float((mass * total).sum())


def alpha_at(q: float) -> float:
    """The alpha whose fixed point is q."""
    return q / ((1 - q) * map_of_size(q, NOISE)[0])


def expected() -> tuple[float, float, float]:
    """alpha of the lower fold, of equal free entropies, and of the upper fold."""
    top = optimize.minimize_scalar(lambda q: -alpha_at(q), bounds=(0.8, 0.9), method="bounded", options={"xatol": 1e-3})
    foot = optimize.minimize_scalar(alpha_at, bounds=(0.99, 0.997), method="bounded", options={"xatol": 1e-4})

    def gap(alpha: float) -> float:
        ends = (0.5, top.x), (foot.x, 0.9995)
        low, high = (optimize.brentq(lambda q: alpha_at(q) - alpha, *end, xtol=1e-6) for end in ends)
        phi = [0.5 * q + 0.5 * math.log1p(-q) + alpha * map_of_size(q, NOISE)[1] for q in (low, high)]
        return phi[1] - phi[0]

    return foot.fun, optimize.brentq(gap, foot.fun + 5e-3, -top.fun - 5e-3, xtol=1e-4), -top.fun


@pytest.fixture(scope="module")
def folded() -> smisym.Solution[smisym.Phases]:
    """Of a size under little noise."""
    return smisym.phases(smisym.compile(SMI("abs(z1)", 1, noise=NOISE)), most=1.6, samples=8192, scrambles=4, workers=1)


def test_two_fixed_points_coexist_under_little_noise(folded: smisym.Solution[smisym.Phases]) -> None:
    found = folded
    assert found.result.ok
    assert [t.kind for t in found.value] == ["spinodal", "information", "spinodal"]
    for threshold, alpha in zip(found.value, expected(), strict=True):
        assert abs(threshold.alpha - alpha) < 4 * threshold.error + 1e-4
        assert threshold.error < 0.01
        assert threshold.names == ("z1",)
    assert found.value[1].Q[0, 0] > 0.99  # the optimum above


def test_phases_and_branches_show_themselves_and_are_saved(
    folded: smisym.Solution[smisym.Phases], tmp_path: Path
) -> None:
    assert "<svg" in folded._repr_html_()
    axes = folded.plot()
    labels = [line.get_label() for line in axes.get_legend().get_lines()]
    assert [label.split(",")[0] for label in labels] == ["z1", "unstable", "fold", "the optimum changes", "fold"]
    assert list(folded.to_dataframe()["kind"]) == ["spinodal", "information", "spinodal"]
    (line,) = folded.value.branches
    whole = smisym.Solution(folded.value.branches, folded.result)
    assert "<svg" in whole._repr_html_()
    frame = whole.to_dataframe()
    np.testing.assert_array_equal(frame["alpha"], line.alphas)
    assert whole.plot().lines
    for value in (folded.value, folded.value.branches):
        solution = smisym.Solution(value, folded.result, settings=folded.settings, checks=folded.checks)
        smisym.save_result(tmp_path / "phases.json", solution)
        again = smisym.load_result(tmp_path / "phases.json")
        assert type(again.value) is type(value)
        assert again.checks == solution.checks
        lines = zip(getattr(again.value, "branches", again.value), getattr(value, "branches", value), strict=True)
        for one, other in lines:
            for name in ("alphas", "errors", "overlaps", "growth"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
            assert (one.begins, one.ends, one.turns) == (other.begins, other.ends, other.turns)
        if isinstance(value, smisym.Phases):
            assert [repr(t) for t in again.value] == [repr(t) for t in value]
            assert len(again.value) == 3


def test_of_a_size_without_noise_the_optimum_is_perfect_from_where_that_is_stable() -> None:
    found = smisym.phases(smisym.compile(SMI("abs(z1)", 1)), samples=8192, scrambles=4)
    information, spinodal = found.value
    assert (information.kind, information.alpha, spinodal.kind) == ("information", 1.0, "spinodal")
    # From where AMP finds it (arXiv 2006.05228 and others: 1.128).
    assert abs(spinodal.alpha - 1.128) < 4 * spinodal.error + 5e-4


@pytest.mark.parametrize("declared", [Architecture(2, (Attention(),)), SMI("z1**3", 1, noise=0.1)], ids=str)
def test_where_all_is_continuous_there_is_nothing(declared: Architecture | SMI) -> None:
    model = smisym.compile(declared)
    assert smisym.phases(model, most=2.0, samples=1024, scrambles=4, workers=1).value == ()


def test_branches_begin_at_thresholds_and_end_where_they_are_said_to() -> None:
    (branch,) = smisym.branches(smisym.compile(Architecture(2, (Attention(),))), samples=4096).value
    # One layer on two tokens: weak at 1/6, perfect at 1/2, without a fold.
    assert (branch.begins, branch.ends, branch.turns) == ("weak", "perfect", ())
    assert branch.alphas[-1] == pytest.approx(0.5, abs=0.02)
    assert (np.diff(branch.overlaps[:, 0, 0]) > 0).all()
    assert (branch.growth < 1.05).all()
    assert "weak" in repr(branch)


@pytest.mark.parametrize(("most", "seed"), [(0.7, 0), (0.8, 1)])
def test_an_informed_start_behind_the_last_point_of_a_branch_is_on_it(most: float, seed: int) -> None:
    """It reaches the one branch that there is, behind its last point below the largest alpha, or beyond that."""
    model = smisym.compile(SMI("abs(z1)", 1, noise=1e-2))
    (branch,) = smisym.branches(model, most=most, samples=512, scrambles=4, seed=seed, workers=1).value
    assert (branch.begins, branch.ends) == ("weak", "alpha")


def test_the_optimum_that_must_change_is_found_at_every_seed() -> None:
    # Noise of 3.2e-4: equal free entropies at 1.1054 by the quadrature above.
    model = smisym.compile(SMI("abs(z1)", 1, noise=10**-3.5))
    for seed in range(3):
        found = smisym.phases(model, samples=4096, seed=seed, most=1.5)
        kinds = {t.kind: t for t in found.value}
        assert found.result.ok
        assert abs(kinds["information"].alpha - 1.1054) < 4 * kinds["information"].error


def test_what_is_learned_at_any_alpha_has_its_folds_too() -> None:
    # A field of which the output shows the sign a little: E(0) = 0.0594, folds at 1.0614 and 1.1264, equal free
    # entropies at 1.0876, by a quadrature of its own.
    model = smisym.compile(SMI("abs(z1) + 0.1*z1", 1, noise=NOISE))
    for seed in range(3):
        (first,) = smisym.weak_recovery(model, samples=1024, seed=seed).value
        assert (first.kind, first.alpha) == ("trivial", 0.0)
    found = smisym.phases(model, samples=2048, workers=1)
    assert found.result.ok
    expected = {"spinodal": 1.0614, "information": 1.0876}
    assert [t.kind for t in found.value] == ["spinodal", "information", "spinodal"]
    for threshold, truth in zip(found.value, (*expected.values(), 1.1264), strict=True):
        assert abs(threshold.alpha - truth) < 4 * threshold.error


def test_the_optimum_may_change_where_nothing_is_learned_from_below() -> None:
    # Below the weak threshold Q = 0 is stable; by quadrature the informed state is as good from 1.3038 on.
    model = smisym.compile(SMI("cos(2*z1)", 1, noise=1e-3))
    found = smisym.phases(model, samples=1024, scrambles=4, seed=1, most=2.5, workers=1)
    (change,) = (t for t in found.value if t.kind == "information")
    assert abs(change.alpha - 1.3038) < 4 * change.error
    upper = max((t for t in found.value if t.kind == "spinodal"), key=lambda t: t.alpha)
    assert abs(upper.alpha - 1.8605) < 4 * upper.error


def test_pieces_between_folds_are_stable_in_turn_whatever_chance_says() -> None:
    # Growth along a branch with two folds: single points beside them are on the wrong side by chance.
    growth = np.array([0.8, 0.9, 0.97, 1.02, 1.05, 0.98, 0.99, 1.02, 1.01, 0.99, 0.97, 0.9])
    rests = resting_points(growth, (3, 8))
    np.testing.assert_array_equal(rests, [True] * 4 + [False] * 5 + [True] * 3)
    # Without a fold another direction may begin to grow: from there on nothing rests.
    np.testing.assert_array_equal(resting_points(np.array([0.7, 0.9, 1.1, 1.3]), ()), [True, True, False, False])
    assert resting_points(np.zeros(0), ()).shape == (0,)


def test_a_bad_bound_is_refused() -> None:
    model = smisym.compile(SMI("abs(z1)", 1))
    for most in (0.0, -1.0, math.inf, "3"):
        with pytest.raises(InputError, match="most"):
            smisym.phases(model, most=most, samples=1024)  # type: ignore[arg-type]


def log_partition_of_a_wave(q: float, noise: float) -> float:
    """E log p(y | omega) of y = sin(4 z) + noise, by sums over a grid of omega, of y and of z."""
    y = np.linspace(-1 - 8 * math.sqrt(noise), 1 + 8 * math.sqrt(noise), 301)
    x = np.linspace(-8, 8, 601)
    omega = np.linspace(0, 7 * math.sqrt(q), 81) if q else np.zeros(1)
    of_x, of_omega = np.exp(-(x**2) / 2), np.exp(-(omega**2) / (2 * q)) if q else np.ones(1)
    of_omega[0] *= 0.5 if q else 1.0
    found = 0.0
    for at, weight in zip(omega, of_omega / of_omega.sum(), strict=True):
        away = y[:, None] - np.sin(4 * (at + math.sqrt(1 - q) * x))
        p = np.exp(-(away**2) / (2 * noise)) @ of_x / (of_x.sum() * math.sqrt(2 * math.pi * noise))
        found += weight * float(special.xlogy(p, p).sum()) * (y[1] - y[0])
    return found


def test_next_to_nothing_is_known_below_the_transition_of_a_wave() -> None:
    """Of sin(4 z) something is learned from the first sample on, but of the order of 1e-6: the informed branch has the
    larger free entropy from where it has more than nothing has."""
    nothing = log_partition_of_a_wave(0.0, 0.05)

    def equal(q: float) -> float:
        return -0.5 * (q + math.log(1 - q)) / (log_partition_of_a_wave(q, 0.05) - nothing)

    exact = optimize.minimize_scalar(equal, bounds=(0.99, 0.998), method="bounded", options={"xatol": 1e-4}).fun
    assert exact == pytest.approx(2.6565, abs=1e-3)
    found = smisym.phases(smisym.compile(SMI("sin(4*z1)", 1, noise=0.05)), most=5.0, samples=4096)
    assert found.result.ok
    low, high = found.value
    assert (low.kind, high.kind) == ("spinodal", "information")
    assert abs(high.alpha - exact) < 4 * high.error < 0.1
