"""Prediction errors: known values, closed forms, identities and limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from smisym.base.errors import InputError
from smisym.base.solution import Result
from smisym.declare.architecture import Architecture, Attention
from smisym.model.compiled import compile as compile_model
from smisym.prior import GaussianRows
from smisym.theory.prediction import prediction_errors

KINDS = ("bayes", "gibbs", "plug_in")


@dataclass
class Gram:
    """y = Z^T Z, whose errors are polynomials in the overlap; ``shift`` added to every output changes none of them."""

    fields: int = 2
    tokens: int = 2
    shift: float = 0.0
    largest_batch: int = 0

    @property
    def prior(self) -> GaussianRows:
        return GaussianRows(self.fields)

    def link(self, Z: np.ndarray) -> np.ndarray:
        self.largest_batch = max(self.largest_batch, len(Z))
        return np.swapaxes(Z, 1, 2) @ Z + self.shift


def gram_errors(Q: np.ndarray, tokens: int) -> tuple[float, float]:
    """Bayes and plug-in error of :class:`Gram`, by Wick's theorem.

    y_ts = sum_p z_pt z_ps with z = omega + v, v of covariance V, leaves omega.v + v.omega + v.v less its mean, which is
    tr V on the diagonal.  Each pair t != s has variance 2 tr(QV) + tr(V^2), each diagonal 4 tr(QV) + 2 tr(V^2); the
    plug-in error keeps the mean and adds (tr V)^2 for each token.
    """
    V = np.eye(len(Q)) - Q
    off, diagonal = 2 * np.trace(Q @ V) + np.trace(V @ V), 4 * np.trace(Q @ V) + 2 * np.trace(V @ V)
    bayes = tokens * (tokens - 1) * off + tokens * diagonal
    return bayes, bayes + tokens * np.trace(V) ** 2


def random_overlap(seed: int, fields: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    vectors, _ = np.linalg.qr(rng.standard_normal((fields, fields)))
    return (vectors * rng.uniform(0, 1, fields)) @ vectors.T


def within(solution: Any, value: float) -> bool:
    return abs(solution.value - value) < 4 * solution.statistical_error


@pytest.mark.parametrize(
    ("layers", "plug_in", "bayes"), [(2, 0.3868, 0.3024), (3, 0.5845, 0.5328)], ids=["two layers", "three layers"]
)
def test_known_values_where_nothing_is_learned(layers: int, plug_in: float, bayes: float) -> None:
    model = compile_model(Architecture(tokens=2, layers=(Attention(),) * layers))
    errors = prediction_errors(model, np.zeros((layers, layers)), samples=2**16)
    # The reference is printed to four digits.
    for name, value in (("plug_in", plug_in), ("bayes", bayes), ("gibbs", 2 * bayes)):
        solution = errors[name]
        assert abs(solution.value - value) < 4 * solution.statistical_error + 1e-4, (name, solution.value)
        assert solution.statistical_error < 3e-3 * solution.value
        assert solution.result is Result.SUCCESS


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("inner", [2, 4])
def test_closed_form_at_a_general_overlap(seed: int, inner: int) -> None:
    Q = random_overlap(seed, 2)
    assert abs(Q[0, 1]) > 0.01
    bayes, plug_in = gram_errors(Q, 2)
    errors = prediction_errors(Gram(), Q, samples=2**16, scrambles=16, inner=inner, seed=seed)
    assert within(errors["bayes"], bayes), (errors["bayes"].value, bayes)
    assert within(errors["plug_in"], plug_in), (errors["plug_in"].value, plug_in)
    assert errors["gibbs"].value == 2 * errors["bayes"].value
    assert errors["gibbs"].statistical_error == pytest.approx(2 * errors["bayes"].statistical_error)


def test_error_bars_are_honest() -> None:
    Q = np.diag([0.3, 0.7])
    bayes, plug_in = gram_errors(Q, 2)
    pulls = []
    for seed in range(30):
        errors = prediction_errors(Gram(), Q, samples=1024, scrambles=16, seed=seed)
        pulls += [(errors["bayes"].value - bayes) / errors["bayes"].statistical_error]
        pulls += [(errors["plug_in"].value - plug_in) / errors["plug_in"].statistical_error]
    # Student t with 15 degrees of freedom has variance 15/13; the two errors of one seed are correlated.
    assert 0.6 < np.std(pulls) < 1.6
    assert abs(np.mean(pulls)) < 0.6


def test_bayes_beats_plug_in_and_gibbs_on_attention() -> None:
    model = compile_model(Architecture(tokens=3, layers=(Attention(), Attention(skip=0.5, beta=2.0))))
    for Q in (np.diag([0.2, 0.9]), np.diag([0.9, 0.2]), np.zeros((2, 2)), np.diag([0.99, 0.999])):
        errors = prediction_errors(model, Q, samples=2**13)
        assert 0 < errors["bayes"].value <= errors["plug_in"].value + 3 * errors["plug_in"].statistical_error


def test_perfect_overlap_gives_exactly_zero() -> None:
    model = compile_model(Architecture(tokens=2, layers=(Attention(), Attention())))
    errors = prediction_errors(model, np.eye(2), samples=64)
    for name in KINDS:
        assert errors[name].value == 0.0
        assert errors[name].statistical_error == 0.0
        assert errors[name].result is Result.SUCCESS


def test_near_perfect_overlap_keeps_its_digits() -> None:
    # To first order in V the errors are linear in it, and Bayes equals plug-in.  A large constant must not cancel them.
    v = 2.0**-36
    Q = (1 - v) * np.eye(2)
    bayes, _ = gram_errors(Q, 2)
    errors = prediction_errors(Gram(shift=1.0), Q, samples=2**13)
    for name in ("bayes", "plug_in"):
        assert errors[name].value == pytest.approx(bayes, rel=0.02)


def test_same_seed_same_bits_and_settings_say_what_was_done() -> None:
    Q = np.diag([0.3, 0.7])
    first, second, other = (prediction_errors(Gram(), Q, samples=256, seed=seed)["bayes"] for seed in (1, 1, 2))
    assert first.value == second.value != other.value
    assert first.settings["samples"] == 256 and first.settings["seed"] == 1
    assert first.degrees_of_freedom == 7
    assert len(first.history[0]["scrambles"]) == 8
    assert first.value == pytest.approx(np.mean(first.history[0]["scrambles"]))


def test_memory_stays_flat_with_many_samples() -> None:
    model = Gram()
    prediction_errors(model, np.zeros((2, 2)), samples=2**16, scrambles=2)
    assert model.largest_batch <= 2**14


def test_a_large_error_bar_is_not_a_success() -> None:
    Q = np.diag([0.3, 0.7])
    assert prediction_errors(Gram(), Q, samples=16, rtol=1e-6)["bayes"].result is Result.NOISY
    assert prediction_errors(Gram(), Q, samples=2**15)["bayes"].result is Result.SUCCESS


def test_the_error_falls_faster_than_plain_sampling() -> None:
    def spread(samples: int) -> float:
        found = [
            prediction_errors(Gram(), np.diag([0.3, 0.7]), samples=samples, seed=seed)["plug_in"].statistical_error
            for seed in range(6)
        ]
        return float(np.mean(found))

    assert spread(2**14) < 0.9 * spread(2**8) / math.sqrt(2**6)


@pytest.mark.parametrize(
    "Q",
    [
        np.zeros((3, 3)),
        np.zeros(2),
        np.diag([1.1, 0.0]),
        np.diag([-0.1, 0.0]),
        np.array([[0.5, 0.2], [0.1, 0.5]]),
        np.array([[0.5, 0.9], [0.9, 0.5]]),
        np.full((2, 2), np.nan),
        np.array([["a", "b"], ["c", "d"]]),
        np.eye(2) * 1j,
    ],
)
def test_bad_overlaps_are_refused(Q: np.ndarray) -> None:
    with pytest.raises(InputError, match="Q"):
        prediction_errors(Gram(), Q)


@pytest.mark.parametrize(
    "options",
    [
        {"samples": 0},
        {"samples": 1000},
        {"samples": 24, "scrambles": 8},
        {"samples": 8, "scrambles": 8},
        {"scrambles": 1},
        {"inner": 1},
        {"rtol": 0.0},
        {"rtol": math.nan},
        {"seed": -1},
        {"samples": 2.5},
    ],
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        prediction_errors(Gram(), np.zeros((2, 2)), **options)


def test_the_suggested_number_of_samples_is_accepted() -> None:
    with pytest.raises(InputError) as caught:
        prediction_errors(Gram(), np.zeros((2, 2)), samples=1000)
    suggested = int(caught.value.fix.rsplit("=", 1)[1])
    assert prediction_errors(Gram(), np.zeros((2, 2)), samples=suggested)["bayes"].settings["samples"] == suggested
