"""GAMP on finite data: against models whose channel has a closed form, and on two layers of attention."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from oracles.solvable import Moments, Ridge, Signs, posterior_start, sign_symmetry, signs_trajectory

from smisym.base.errors import InputError
from smisym.base.solution import Result
from smisym.declare.architecture import Architecture, Attention
from smisym.declare.smi import SMI
from smisym.finite.alignment import align
from smisym.finite.message_passing import PERFECT_RECOVERY, gamp
from smisym.finite.samples import generate
from smisym.model.compiled import Model
from smisym.model.compiled import compile as compile_model
from smisym.theory.maps import OverlapMap

# -------------------------------------------------------------------------------------------- the fixed point, exactly

MIXING = np.array([[1.0, 0.5], [-0.3, 0.8], [0.2, 0.1]])


@pytest.mark.parametrize("A", ["outer", "hessian"])
@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize("lam", [0.0, 0.7])
def test_fixed_point_of_a_gaussian_channel_is_ridge_regression(A: str, damping: float, lam: float) -> None:
    model = Ridge(MIXING, tokens=2, noise=0.5)
    rng = np.random.default_rng(0)
    data = generate(model, 40, 1.5, rng)
    S = math.sqrt(lam) * data.W + rng.standard_normal(data.W.shape)
    side = (lam, S) if lam else None
    solution = gamp(
        model, data.X, data.y, W=data.W, A=A, damping=damping, side_information=side, tol=1e-11, max_steps=2000
    )
    assert solution.result is Result.SUCCESS, solution.value.reason
    exact = model.ridge(data.X, data.y, lam, S if lam else None)
    np.testing.assert_allclose(solution.value.W_hat, exact, atol=1e-8)
    np.testing.assert_allclose(solution.value.overlap, exact @ data.W.T / 40, atol=1e-8)


def test_the_two_estimates_of_A_agree_as_the_dimension_grows() -> None:
    gaps = []
    for dim in (50, 800):
        model = Signs(2, 2)
        gap = []
        for seed in range(4):
            rng = np.random.default_rng([seed, dim])
            data = generate(model, dim, 2.0, rng)
            start = posterior_start(data.W, 0.3, rng)
            C = [gamp(model, data.X, data.y, A=A, initial=start, max_steps=1).value.C_hat for A in ("outer", "hessian")]
            gap.append(np.abs(C[0] - C[1]).max())
        gaps.append(np.mean(gap))
    assert gaps[1] < 0.03
    assert gaps[1] < 0.5 * gaps[0]  # 1/sqrt(D) makes it 0.25


def test_a_change_of_basis_of_the_rows_changes_the_basis_of_the_estimate_and_nothing_else() -> None:
    angle = 0.7
    R = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    plain, turned = Signs(2, 2), Signs(2, 2, R)
    data = generate(plain, 60, 0.6, np.random.default_rng(3))
    start = 0.6 * data.W
    a = gamp(plain, data.X, data.y, initial=start, max_steps=6)
    b = gamp(turned, data.X, data.y, initial=R @ start, max_steps=6)
    np.testing.assert_allclose(b.value.W_hat, R @ a.value.W_hat, atol=1e-9)
    np.testing.assert_allclose(b.value.C_hat, R @ a.value.C_hat @ R.T, atol=1e-9)
    assert abs(b.value.C_hat[0, 1]) > 0.01, "the off-diagonal of C_hat is not exercised"


# ------------------------------------------------------------------------------------------------------ state evolution


@pytest.mark.parametrize("A", ["outer", "hessian"])
def test_overlap_follows_state_evolution_step_by_step(A: str) -> None:
    alpha, tokens, start, steps, seeds = 0.6, 2, 0.2, 8, 8
    predicted = signs_trajectory(alpha, tokens, start, steps)
    assert predicted[-1] > 0.85
    worst = []
    for dim in (200, 1600):
        overlaps, selves = [], []
        for seed in range(seeds):
            rng = np.random.default_rng([seed, dim])
            model = Signs(1, tokens)
            data = generate(model, dim, alpha, rng)
            initial = posterior_start(data.W, start, rng)
            history = gamp(model, data.X, data.y, W=data.W, A=A, initial=initial, max_steps=steps).history
            overlaps.append([record["overlap"][0, 0] for record in history])
            selves.append([record["Q"][0, 0] for record in history])
        for values in (np.array(overlaps), np.array(selves)):
            mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / math.sqrt(seeds)
            assert np.all(np.abs(mean - predicted) < 3 * error + 0.6 / math.sqrt(dim))
            worst.append(np.abs(mean - predicted).max())
    assert max(worst[2:]) < 0.04


def test_nothing_is_learned_below_the_weak_threshold_and_something_above() -> None:
    # One row on two tokens: 1 / (T (T + 1)) = 1/6.
    model = Signs(1, 2)
    for alpha, learned in ((0.05, False), (0.35, True)):
        data = generate(model, 400, alpha, np.random.default_rng(5))
        solution = gamp(model, data.X, data.y, W=data.W, max_steps=400)
        assert solution.result is Result.SUCCESS
        if learned:
            fixed = signs_trajectory(alpha, 2, 0.3, 60)[-1]
            assert abs(solution.value.overlap[0, 0] - fixed) < 0.15
        else:
            assert solution.value.Q[0, 0] < 1e-9
            assert solution.value.overlap[0, 0] < 1e-4


def test_recovery_is_exact_without_a_floor_on_the_covariance() -> None:
    model = Signs(1, 2)
    data = generate(model, 200, 1.0, np.random.default_rng(0))
    solution = gamp(model, data.X, data.y, W=data.W, tol=1e-12, max_steps=300)
    assert solution.result is Result.SUCCESS
    assert solution.value.reason == PERFECT_RECOVERY
    assert solution.value.C_hat.max() < 1e-13
    truth = data.W * np.sign(np.sum(data.W * solution.value.W_hat))
    assert np.abs(solution.value.W_hat - truth).max() < 1e-6
    np.testing.assert_allclose(solution.history[-1]["cosines"], 1, atol=1e-12)


def test_perfect_recovery_is_not_announced_while_one_direction_is_unknown() -> None:
    model = Signs(2, 2)
    data = generate(model, 200, 1.5, np.random.default_rng(0))
    options: dict[str, Any] = {"W": data.W, "tol": 1e-12, "max_steps": 40}
    assert gamp(model, data.X, data.y, **options).value.reason == PERFECT_RECOVERY
    model.moments = _only_first  # type: ignore[method-assign]
    solution = gamp(model, data.X, data.y, **options)
    assert solution.value.C_hat[0, 0] < 1e-14 and solution.value.C_hat[1, 1] == 1
    assert solution.history[-1]["cosines"][0] == pytest.approx(1, abs=1e-12)
    assert solution.result is Result.MAX_STEPS


def _only_first(y: np.ndarray, omega: np.ndarray, V: np.ndarray, *, cov: bool = False, rtol: float = 0.0) -> Moments:
    """The second row is not seen: nothing is learned of it, and V stays diagonal."""
    first = Signs(1, 2).moments(y[:, :1], omega[:, :1], V[:1, :1], cov=True)
    g, dg = np.zeros(omega.shape), np.zeros((len(omega), 2, 2, 2, 2))
    g[:, :1], dg[:, :1, :, :1] = first.g, first.dg
    return Moments(g, dg, first.error, Result.SUCCESS)


@pytest.mark.parametrize("A", ["outer", "hessian"])
@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_a_collapsed_covariance_is_never_taken_for_recovery(A: str, damping: float) -> None:
    # On small data the mean of g g^T makes C_hat collapse while W_hat is still wrong, and W_hat then stands still.
    collapsed = 0
    for seed in range(12):
        model = Signs(1, 2)
        data = generate(model, 40, 1.5, np.random.default_rng(seed))
        solution = gamp(model, data.X, data.y, W=data.W, A=A, damping=damping, seed=seed)
        right = solution.history[-1]["cosines"][0] > 1 - 1e-5
        if solution.result is Result.SUCCESS:
            assert right, solution.value.reason
        collapsed += not right
    if A == "outer" and damping == 0:
        assert collapsed > 3, "the trap that this test is about did not open"
    if A == "hessian":
        assert collapsed < 4


def test_side_information_starts_from_its_own_posterior_and_helps() -> None:
    model = Signs(1, 2)
    rng = np.random.default_rng(2)
    data = generate(model, 400, 0.1, rng)
    lam = 1.0
    S = data.W + rng.standard_normal(data.W.shape)
    solution = gamp(model, data.X, data.y, W=data.W, side_information=(lam, S), max_steps=60)
    overlaps = [record["overlap"][0, 0] for record in solution.history]
    assert overlaps[0] == pytest.approx(lam / (1 + lam), abs=0.1)
    assert overlaps[-1] > overlaps[0] + 0.02


# -------------------------------------------------------------------------------------------- what is reported, and how


def test_overlap_is_taken_modulo_the_given_signs_only() -> None:
    rng = np.random.default_rng(0)
    W = rng.standard_normal((3, 500))
    W_hat = np.array([0.5, -0.3, 0.0])[:, None] * W
    both = np.array([[1, 1, 1], [1, -1, 1], [-1, 1, 1], [-1, -1, 1]])
    overlap, cosines = align(sign_symmetry(both), W_hat, W)
    np.testing.assert_allclose(np.diag(overlap), np.array([0.5, 0.3, 0.0]) * np.mean(W**2, axis=1))
    np.testing.assert_allclose(cosines, [1, 1, 0], atol=1e-12)
    together = np.array([[1, 1, 1], [-1, -1, -1]])
    overlap, cosines = align(sign_symmetry(together), W_hat, W)
    np.testing.assert_allclose(cosines, [1, -1, 0], atol=1e-12)
    assert overlap[0, 1] == pytest.approx(0.5 * np.mean(W[0] * W[1]))


def test_same_seed_same_bits_and_the_history_is_complete() -> None:
    model = Signs(2, 2)
    data = generate(model, 50, 0.5, np.random.default_rng(0))
    seen: list[int] = []
    runs = [
        gamp(model, data.X, data.y, W=data.W, max_steps=5, seed=7, callback=lambda record: seen.append(record["step"]))
        for _ in range(2)
    ]
    assert (runs[0].value.W_hat == runs[1].value.W_hat).all()
    assert seen == [0, 1, 2, 3, 4, 5] * 2
    assert runs[0].result is Result.MAX_STEPS and runs[0].value.steps == 5
    assert [record["step"] for record in runs[0].history] == [0, 1, 2, 3, 4, 5]
    last = runs[0].history[-1]
    assert (last["Q"] == runs[0].value.Q).all() and (last["overlap"] == runs[0].value.overlap).all()
    other = gamp(model, data.X, data.y, max_steps=5, seed=8)
    assert other.value.overlap is None and not np.allclose(other.value.W_hat, runs[0].value.W_hat)


def test_an_interrupt_returns_the_last_full_step() -> None:
    model = Signs(1, 2)
    data = generate(model, 50, 0.5, np.random.default_rng(0))

    def interrupt(record: dict[str, Any]) -> None:
        if record["step"] == 3:
            raise KeyboardInterrupt

    solution = gamp(model, data.X, data.y, W=data.W, callback=interrupt)
    whole = gamp(model, data.X, data.y, W=data.W, max_steps=3)
    assert solution.result is Result.INTERRUPTED and solution.value.steps == 3
    assert (solution.value.W_hat == whole.value.W_hat).all()


def test_an_inaccurate_channel_is_not_a_success() -> None:
    model = Signs(1, 2, result=Result.INTEGRATION)
    data = generate(model, 100, 1.0, np.random.default_rng(0))
    solution = gamp(model, data.X, data.y)
    assert solution.value.reason == "converged"
    assert solution.result is Result.INTEGRATION
    assert solution.history[-1]["channel"] == Result.INTEGRATION.value


@pytest.mark.parametrize("poison", ["g", "dg", "grows"])
def test_divergence_is_reported_and_keeps_the_last_good_state(poison: str) -> None:
    model = Signs(1, 2)
    data = generate(model, 100, 0.5, np.random.default_rng(0))

    def moments(y: Any, omega: np.ndarray, V: np.ndarray, *, cov: bool = False, rtol: float = 0.0) -> Moments:
        good = Signs(1, 2).moments(y, omega, V, cov=cov)
        if poison == "g":
            good.g[3] = np.nan
        elif poison == "dg":
            good.dg[3] = np.inf
        else:
            good.g *= 1e4
        return good

    model.moments = moments  # type: ignore[method-assign]
    start = 0.3 * data.W
    solution = gamp(model, data.X, data.y, initial=start)
    assert solution.result is Result.DIVERGED
    assert (solution.value.W_hat == start).all() and solution.value.steps == 0
    assert len(solution.history) == 1


def test_slow_growth_from_a_small_start_does_not_pass_for_convergence() -> None:
    # Just above the threshold the estimate first stays tiny: each step must still count as a change.
    model = Signs(1, 2)
    data = generate(model, 300, 0.3, np.random.default_rng(1))
    solution = gamp(model, data.X, data.y, W=data.W, initial=1e-6, damping=0.3, max_steps=400)
    assert solution.result is Result.SUCCESS
    assert solution.value.Q[0, 0] > 0.1


def test_small_damped_steps_do_not_pass_for_convergence() -> None:
    model = Signs(1, 2)
    data = generate(model, 200, 0.6, np.random.default_rng(1))
    start = posterior_start(data.W, 0.2, np.random.default_rng(2))
    solution = gamp(model, data.X, data.y, initial=start, damping=0.999, tol=0.01, max_steps=3)
    assert solution.result is Result.MAX_STEPS
    assert solution.history[-1]["change"] > 0.1


def test_tokens_are_not_copied() -> None:
    model = Ridge(MIXING, tokens=2, noise=0.5)
    data = generate(model, 600, 0.5, np.random.default_rng(0))
    tracemalloc.start()
    gamp(model, data.X, data.y, max_steps=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * data.X.nbytes


# ------------------------------------------------------------------------------------------------------------ bad input


def _bad_inputs() -> list[tuple[str, dict[str, Any], str]]:
    """(what is wrong, arguments replaced, a word that the message must hold)."""
    good = generate(Signs(1, 2), 10, 1.0, np.random.default_rng(0))
    nan = good.X.copy()
    nan[3, 1, 4] = np.nan
    inf = np.array(good.y)
    inf[2] = np.inf
    lam = (1.0, good.W)
    return [
        ("X is flat", {"X": good.X[0]}, "shape"),
        ("tokens", {"X": good.X[:, :1]}, "tokens"),
        ("no samples", {"X": good.X[:0], "y": good.y[:0]}, "N >= 1"),
        ("D = 1", {"X": good.X[:, :, :1]}, ">= 2"),
        ("nan", {"X": nan}, "(3, 1, 4)"),
        ("complex", {"X": good.X * 1j}, "real"),
        ("text", {"y": np.full(good.y.shape, "a")}, "real"),
        ("inf", {"y": inf}, "finite"),
        ("lengths", {"y": good.y[:-1]}, "9 outputs for 10 samples"),
        ("shape of y", {"y": good.y[:, 0]}, "(N, 1, 2, 2)"),
        ("W", {"W": good.W[:, :-1]}, "(1, 10)"),
        ("damping", {"damping": 1.0}, "damping"),
        ("damping", {"damping": math.nan}, "damping"),
        ("max_steps", {"max_steps": 0}, "max_steps"),
        ("tol", {"tol": 0.0}, "tol"),
        ("rtol", {"rtol": -1.0}, "rtol"),
        ("A", {"A": "diagonal"}, "hessian"),
        ("lam", {"side_information": (-1.0, good.W)}, "lam"),
        ("S", {"side_information": (1.0, good.W[:, 1:])}, "(1, 10)"),
        ("pair", {"side_information": lam[1]}, "pair"),
        ("strength", {"initial": -0.1}, "standard deviation"),
        ("start too large", {"initial": 2 * good.W}, "below the identity"),
        ("start's shape", {"initial": good.W.T}, "(1, 10)"),
    ]


@pytest.mark.parametrize(("replaced", "word"), [pytest.param(b, c, id=a) for a, b, c in _bad_inputs()])
def test_bad_input_is_refused_before_any_computing(replaced: dict[str, Any], word: str) -> None:
    model = Signs(1, 2)
    good = generate(model, 10, 1.0, np.random.default_rng(0))
    arguments: dict[str, Any] = {"X": good.X, "y": good.y} | replaced
    with pytest.raises(InputError) as caught:
        gamp(model, arguments.pop("X"), arguments.pop("y"), **arguments)
    assert word in str(caught.value)
    assert not model.calls


@pytest.mark.parametrize(
    ("dim", "alpha"), [(1, 1.0), (2.5, 1.0), (10, 0.01), (10, math.nan), (10, -1.0), (10, math.inf)]
)
def test_generate_refuses_sizes_that_make_no_data(dim: Any, alpha: float) -> None:
    with pytest.raises(InputError):
        generate(Signs(1, 2), dim, alpha, np.random.default_rng(0))


def test_generate_draws_standard_normals_and_the_outputs_of_their_fields() -> None:
    model = Signs(2, 3)
    data = generate(model, 300, 0.7, np.random.default_rng(0))
    assert data.X.shape == (210, 3, 300) and data.W.shape == (2, 300)
    assert abs(data.X.mean()) < 0.01 and abs(data.X.var() - 1) < 0.02
    Z = np.stack([data.W @ X.T / math.sqrt(300) for X in data.X])
    np.testing.assert_allclose(data.y, model.link(Z), atol=1e-12)


# ---------------------------------------------------------------------------------------------- two layers of attention


@pytest.fixture(scope="module")
def two_layers() -> Model:
    return compile_model(Architecture(tokens=2, layers=(Attention(), Attention())))


def test_two_layers_are_recovered_exactly_from_a_random_start(two_layers: Model) -> None:
    # Perfect recovery is possible from alpha = 1 on; 1.7 leaves room for the fluctuations of D = 100.
    data = generate(two_layers, 100, 1.7, np.random.default_rng(10))
    solution = gamp(two_layers, data.X, data.y, W=data.W)
    assert solution.result is Result.SUCCESS, solution.value.reason
    assert np.all(solution.history[-1]["cosines"] > 1 - 1e-8)
    signs = np.sign(np.sum(solution.value.W_hat * data.W, axis=1, keepdims=True))
    np.testing.assert_allclose(signs * solution.value.W_hat, data.W, atol=1e-3)
    # V_11 / V_22 is near 100 there: C_hat is not isotropic, and each row converges at its own scale.
    C_hat = solution.value.C_hat
    assert C_hat[0, 0] < 1e-6 and 20 < C_hat[0, 0] / C_hat[1, 1] < 500


def test_a_float_y_gives_the_estimate_of_its_observation(two_layers: Model) -> None:
    data = generate(two_layers, 60, 1.0, np.random.default_rng(0))
    start = posterior_start(data.W, 0.5, np.random.default_rng(1))
    exact = gamp(two_layers, data.X, data.y, initial=start, max_steps=3)
    rounded = gamp(two_layers, data.X, data.y.y, initial=start, max_steps=3)
    np.testing.assert_allclose(rounded.value.W_hat, exact.value.W_hat, atol=1e-6)


def test_data_passed_as_a_whole_are_refused_with_the_call_to_write(two_layers: Model) -> None:
    data = generate(two_layers, 20, 1.0, np.random.default_rng(0))
    with pytest.raises(InputError, match=r"write smisym.gamp\(model, data.X, data.y\)"):
        gamp(two_layers, data)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="model: given 'Data'"):
        gamp(data, two_layers)  # type: ignore[arg-type]


def test_outputs_that_no_field_gives_are_refused(two_layers: Model) -> None:
    data = generate(two_layers, 20, 1.0, np.random.default_rng(0))
    y = data.y.y.copy()
    y[3] = [[0.1, 0.9], [0.9, 0.1]]  # y_12 + y_21 > 1
    with pytest.raises(InputError):
        gamp(two_layers, data.X, y)


def overlap_trajectory(model: Model, alpha: float, Q: np.ndarray, steps: int) -> np.ndarray:
    """Diagonals of the overlap under state evolution, with E(Q) from the overlap map."""
    omap = OverlapMap(model, samples=8192)
    diagonals = [np.diag(Q)]
    for _ in range(steps):
        conjugate = alpha * omap(Q)[0]
        Q = conjugate @ np.linalg.inv(np.eye(len(Q)) + conjugate)
        diagonals.append(np.diag(Q))
    return np.array(diagonals)


@pytest.mark.slow  # the property "gamp" and seven families beside it
def test_two_layers_follow_state_evolution_step_by_step(two_layers: Model) -> None:
    """The mean over 8 seeds differs from state evolution by C / sqrt(D), one C a step, at two D at once."""
    alpha, Q, steps, seeds, dims = 1.3, np.diag([0.3, 0.95]), 5, 8, (150, 600)
    predicted = overlap_trajectory(two_layers, alpha, Q, steps)
    assert predicted[-1, 0] > predicted[0, 0] + 0.2
    gaps, errors = [], []
    for dim in dims:
        overlaps = []
        for seed in range(seeds):
            rng = np.random.default_rng([seed, dim])
            data = generate(two_layers, dim, alpha, rng, normalised=True)
            np.testing.assert_allclose((data.W**2).sum(axis=1), dim)
            start = Q @ data.W + np.sqrt(Q - Q @ Q) @ rng.standard_normal(data.W.shape)
            history = gamp(two_layers, data.X, data.y, W=data.W, initial=start, max_steps=steps).history
            overlaps.append([np.diag(record["overlap"]) for record in history])
        gaps.append(np.mean(overlaps, axis=0) - predicted)
        errors.append(np.std(overlaps, axis=0, ddof=1) / math.sqrt(seeds))
    gap, error, size = np.array(gaps), np.array(errors), 1 / np.sqrt(dims)[:, None, None]
    weight = 1 / error**2
    C = (weight * gap * size).sum(axis=0) / (weight * size**2).sum(axis=0)
    assert np.all(np.abs(gap - C * size) < 3 * error), (gap, error, C)
    assert np.abs(C).max() < 1.5
    assert np.abs(gap[1]).max() < 0.05


@pytest.mark.parametrize(
    ("expression", "fields", "given"), (("abs(z1)", 1, -1.0), ("sign(sign(z1) + sign(z2))", 2, 0.5))
)
def test_outputs_that_no_field_of_an_expression_gives_are_refused_by_their_samples(
    expression: str, fields: int, given: float
) -> None:
    model = compile_model(SMI(expression, fields))
    data = generate(model, 30, 2.0, np.random.default_rng(0))
    y = np.array(data.y.y)
    y[[5, 7]] = given
    with pytest.raises(
        InputError, match=r"y of sample 5 \(and 1 more\): given .*no fields were found that give this one"
    ):
        gamp(model, data.X, y)
