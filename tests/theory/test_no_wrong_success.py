"""Nothing is called a success that does not solve its own equation: what was once wrong, and faults planted on purpose.

Values marked "independent" were computed by programs that share no code with the package.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import chi2, norm

import smisym
from smisym import SMI, Architecture, Attention, Result
from smisym.charts import Sheets
from smisym.declare.io import Store
from smisym.model.channel import Channel
from smisym.posterior.level_set import OnLevelSet
from smisym.run import records
from smisym.theory import rung, stability
from smisym.theory.collecting import collect
from smisym.theory.curves import ScramblePath
from smisym.theory.fixed_point import _Solve, solve
from smisym.theory.maps import OverlapMap
from smisym.theory.over_outputs import by_quadrature
from smisym.theory.point import Point
from smisym.theory.sentinel import agreement, outlying, sound
from smisym.theory.stability import counting

UNTIED = Architecture(2, (Attention(tied=False),))
# Declarations whose overlaps run at different speeds, and alphas at which something is half learned.
DIFFERENT = {
    "untied, two tokens": (UNTIED, (0.5, 0.95)),
    "untied, three tokens": (Architecture(3, (Attention(tied=False),)), (0.3,)),
    "untied, linear": (Architecture(2, (Attention(tied=False, activation="linear"),)), (0.2, 0.6, 0.65)),
    "two layers": (Architecture(2, (Attention(), Attention())), (0.5, 0.9)),
    "two layers, small skip": (Architecture(2, (Attention(skip=0.3), Attention())), (0.4, 0.8)),
    "rank two": (Architecture(2, (Attention(rank=2),)), (0.6,)),
    "split heads": (Architecture(2, (Attention(heads=2),), head_layout="split"), (0.15,)),
    "sequence": (Architecture(2, (Attention(skip=0.5),), output="sequence"), (0.3,)),
    "product": (SMI("z1*z2", 2), (0.9,)),
    "phase retrieval": (SMI("abs(z1)", 1), (0.8,)),
    "product and square": (SMI(("z1*z2", "z2**2"), 2), (0.4,)),
}
SAMPLES = 1024
SLOW = {"two layers, small skip", "untied, three tokens", "untied, linear"}


@cache
def compiled(name: str) -> smisym.Model:
    return smisym.compile(DIFFERENT[name][0])


@cache
def small_map(name: str, samples: int = SAMPLES) -> OverlapMap:
    """One for all tests: what one of them has it evaluate the others are told."""
    return smisym.overlap_map(compiled(name), samples=samples, scrambles=8)


# ---- one truth -------------------------------------------------------------------------------------


def marked(*names: str) -> list[Any]:
    """The names, those that take more than some seconds as slow ones."""
    return [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in names]


@pytest.mark.parametrize("name", marked(*DIFFERENT))
def test_curve_and_state_evolution_are_one(name: str) -> None:
    """Every scramble's fixed point, found from below and along a curve, is one: the difference is what both left."""
    omap = small_map(name)
    alphas = DIFFERENT[name][1]
    for alpha, along in zip(alphas, smisym.curve(omap, [0.6 * alphas[0], 0.8 * alphas[0], *alphas])[2:], strict=True):
        alone = smisym.state_evolution(omap, alpha)
        for solution in (along, alone):
            assert solution.result in (Result.SUCCESS, Result.INTEGRATION)
            assert (solution.deterministic_error <= np.maximum(solution.statistical_error, 2e-3)).all()
            assert np.linalg.eigvalsh(solution.value.Q)[0] >= 0
            assert np.linalg.eigvalsh(solution.value.Q)[-1] <= 1
        left = along.deterministic_error + alone.deterministic_error
        # A sampled map of few points may have several fixed points nearby, of which both find one: one or two scrambles
        # of eight that rest elsewhere move the mean by about the error bar that they make.
        room = 4 * left + 1.5 * np.maximum(along.statistical_error, alone.statistical_error) + 1e-9
        assert (np.abs(along.value.Q - alone.value.Q) <= room).all()


def test_an_untied_head_where_it_was_wrong() -> None:
    """Independent: Q_22 = .287(2) at alpha = 0.5 and .906(3) at 0.95; Q_11 + Q_22 = 2 alpha as Q nears I."""
    omap = small_map("untied, two tokens")
    half, late = smisym.curve(omap, [0.5, 0.95])
    assert half.value.Q[1, 1] == pytest.approx(0.287, abs=3 * np.hypot(0.002, half.value.Q_error[1, 1]))
    assert late.value.Q[1, 1] == pytest.approx(0.906, abs=3 * np.hypot(0.003, late.value.Q_error[1, 1]))
    assert np.trace(late.value.Q) == pytest.approx(1.9, abs=0.02)
    assert half.result.ok
    assert late.result.ok


@pytest.mark.slow
def test_perfect_recovery_is_not_below_its_stability() -> None:
    stable, reached = smisym.perfect_recovery(small_map("untied, two tokens")).value
    assert stable.alpha == pytest.approx(1.0)
    assert reached.alpha >= stable.alpha
    assert reached.alpha - stable.alpha <= 5 * reached.error


@pytest.mark.parametrize("name", marked("split heads", "two layers, small skip"))
def test_what_a_curve_shows_begins_at_its_thresholds(name: str) -> None:
    omap = small_map(name, 4 * SAMPLES)
    for threshold in smisym.weak_recovery(omap, quadrature=False).value:
        row = int(np.abs(threshold.subspace[0]).argmax())
        room = max(0.25, 6 * threshold.error / threshold.alpha)
        before, after = smisym.curve(omap, [threshold.alpha / (1 + room), threshold.alpha * (1 + room)])
        assert before.value.Q[row, row] <= 3 * before.value.Q_error[row, row]
        assert after.value.Q[row, row] > 2 * after.value.Q_error[row, row] > 0


@pytest.mark.slow
def test_a_staircase_above_what_is_known_perfectly() -> None:
    """z1 is perfect from alpha = 1.2 or so; the other two are learned from pi^2/4 on, by every solver."""
    model = smisym.compile(SMI("z1**2 + sign(z1*z2*z3)", 3))
    omap = smisym.overlap_map(model, samples=1024)
    first, second = (t for t in smisym.weak_recovery(omap).value if t.kind == "weak")
    assert first.alpha == pytest.approx(0.57517, abs=4 * first.error)
    assert second.alpha == pytest.approx(np.pi**2 / 4, abs=4 * second.error)
    for alpha, solution in zip((2.2, 3.0), smisym.curve(omap, [2.2, 3.0]), strict=True):
        alone = smisym.state_evolution(omap, alpha)
        for found in (solution, alone):
            assert found.value.Q[0, 0] == 1.0
            assert (found.value.Q[1, 1] > 0.1) == (alpha > 2.5)
            assert found.result in (Result.SUCCESS, Result.INTEGRATION)


def test_a_long_step_passes_no_fixed_point() -> None:
    """The lowest root of each scramble's own map, by plain iteration from a small start: it was once overtaken."""
    omap = smisym.overlap_map(compiled("phase retrieval"), samples=1024, seed=1)
    found = smisym.state_evolution(omap, 1.0864)
    for r in (2, 5, 7):
        q = 0.02
        for _ in range(4000):
            E = omap.at(r, np.array([[q]])).E[0, 0]
            q, last = 1.0864 * E / (1 + 1.0864 * E), q
            if abs(q - last) < 1e-6:
                break
        assert found.value.overlaps[r, 0] == pytest.approx(q, abs=2e-3)


def test_a_direction_that_is_never_seen_stays_at_zero() -> None:
    """y = z1 + z2: overlaps alpha / 2 along what is seen, exactly; rounding must not leave the cone."""
    model = smisym.compile(SMI("z1 + z2", 2))
    for alpha in (0.5, 1.0, 1.5):
        solution = smisym.state_evolution(model, alpha, samples=512)
        assert solution.result.ok
        room = 4 * solution.value.Q_error.max() + 2 * solution.deterministic_error.max() + 1e-6
        assert room < 0.01
        assert np.abs(solution.value.Q - min(alpha, 1.0) / 2).max() < room


def test_counting_finds_faces_in_general_position() -> None:
    """Two tokens of a rotated pair: a product of z of two tokens, and u of each; z alone needs alpha = 1, all 2/3."""
    z, u = "(3*z1[{0}]+4*z2[{0}])/5", "(4*z1[{0}]-3*z2[{0}])/5"
    rotated = SMI((f"({z.format(1)})*({z.format(2)})", u.format(1), u.format(2)), 2, tokens=2)
    span, alpha, error = counting(smisym.compile(rotated))
    assert (alpha, error) == (pytest.approx(1.0), 0.0)
    np.testing.assert_allclose(np.abs(span), [[0.6, 0.8]], atol=1e-9)
    # Two outputs of three fields; all that the first does not see is seen by the second alone: 2 / 1.
    span, alpha, _ = counting(smisym.compile(SMI(("(z1+2*z2-z3)**2", "(z3-z1)**2*(z1+z2+z3)"), 3)))
    assert alpha == pytest.approx(2.0)
    np.testing.assert_allclose(span @ [1.0, 2.0, -1.0], 0.0, atol=1e-9)


def test_a_direction_may_be_perfect_by_itself() -> None:
    """z1 is seen up to its sign, z2 under a sign: nothing of Q = I is reached together."""
    model = smisym.compile(SMI(("z1**2", "sign(z2)"), 2))
    omap = smisym.overlap_map(model, samples=256, scrambles=4)
    solution = smisym.state_evolution(omap, 2.0)
    assert solution.value.Q[0, 0] == 1.0
    assert 0.5 < solution.value.Q[1, 1] < 1.0
    assert np.isinf(solution.value.Q_hat[0, 0])
    assert np.isfinite(solution.value.Q_hat[1, 1])
    assert smisym.free_entropy(omap, solution.value.Q, 2.0).value == np.inf
    # sign(z2) alone: q / (1 - q) = alpha E, found by its own map.
    alone = smisym.state_evolution(smisym.overlap_map(smisym.compile(SMI("sign(z1)", 1)), samples=512), 2.0)
    error = np.hypot(alone.value.Q_error[0, 0], solution.value.Q_error[1, 1])
    assert solution.value.Q[1, 1] == pytest.approx(alone.value.Q[0, 0], abs=5 * error)


def sign_perceptron(alpha: float) -> float:
    """The overlap of y = sign(z): q / (1 - q) = alpha E, E one integral over omega."""

    def missed(q: float) -> float:
        slope = math.sqrt(q / (1 - q))

        def weight(t: float) -> float:
            return float(np.exp(norm.logpdf(t) + 2 * norm.logpdf(slope * t) - norm.logcdf(slope * t)))

        return q - 2 * alpha * quad(weight, -9, 9, limit=200)[0]

    return float(brentq(missed, 1e-6, 0.99))


def test_what_is_known_perfectly_is_not_askew() -> None:
    """y = z2 + sign(z1): beyond alpha = 1 z2 is known, and its sign's overlap is the sign perceptron's.

    Once z2 + t z1 was known instead, with t six times the deviation left of z2, which told z1: .94 to .9997 at 2.8.
    """
    omap = smisym.overlap_map(smisym.compile(SMI("z2 + sign(z1)", 2)), samples=256, scrambles=4)
    for found in (*smisym.curve(omap, [0.4, 1.6, 2.8]), smisym.state_evolution(omap, 2.8)):
        if found.value.alpha > 1:
            assert found.result in (Result.SUCCESS, Result.NOISY)
            assert found.value.Q[1, 1] == pytest.approx(1.0, abs=1e-12)
            room = 5 * found.value.Q_error[0, 0] + 2 * found.deterministic_error[0, 0]
            assert room < 0.05
            assert found.value.Q[0, 0] == pytest.approx(sign_perceptron(found.value.alpha), abs=room)
    points = [ScramblePath(omap, r).at(2.8, 1e-4) for r in range(omap.scrambles)]
    assert collect(omap, points, "symmetry-broken", 1e-4).result.ok
    # Half a millionth of z1 with what is known, which is left a millionth: a signal of one half.
    span = np.array([5e-7, 1.0])
    span /= np.linalg.norm(span)
    tilted = []
    for point in points:
        known = np.outer(span, span)
        Q = known + point.Q[0, 0] * (np.eye(2) - known)
        tilted.append(dataclasses.replace(point, Q=Q, known=known))
    assert collect(omap, tilted, "symmetry-broken", 1e-4).result is Result.RESIDUAL


def test_a_curve_does_not_begin_at_next_to_nothing() -> None:
    """Overlaps below any tolerance solve the equation at every alpha: it goes on from nothing, and its unstable way."""
    omap = smisym.overlap_map(smisym.compile(SMI("abs(z2) - (z1 + z2)*z2", 2)), samples=96, scrambles=3)
    along = smisym.curve(omap, [0.4, 1.3])[-1]
    alone = smisym.state_evolution(omap, 1.3)
    assert along.value.Q[1, 1] > 0.2
    np.testing.assert_allclose(along.value.overlaps, alone.value.overlaps, atol=5e-3)


@cache
def rotated_form() -> OverlapMap:
    return smisym.overlap_map(smisym.compile(SMI("z1*z2 + z1**2", 2)), samples=256)


def test_rotated_directions_are_perfect_together() -> None:
    """What is left of one reaches its limit while a little of the other is: neither is frozen before the other."""
    omap = rotated_form()
    for r in (4, 5):
        path = ScramblePath(omap, r)
        point = [path.at(alpha, 5e-3) for alpha in (0.4, 1.3, 2.8)][-1]
        assert point.result.ok
        assert point.perfect


def test_what_rounding_leaves_decides_nothing() -> None:
    """A path through the noisy map of 32 points ends where it ends whatever the last digits of alpha are."""
    omap = rotated_form()
    ends = []
    for digits in range(3):
        path = ScramblePath(omap, 4)
        ends.append([path.at(alpha * (1 + digits * 2**-52), 5e-3).Q for alpha in (0.4, 1.3, 2.8)])
    np.testing.assert_allclose(ends, np.broadcast_to(ends[0], np.shape(ends)), atol=1e-3)


def test_what_grows_and_no_scramble_follows_is_no_success() -> None:
    """Every kick may die in a noisy map: where the mean of the maps clearly grows, nothing learned is no answer."""
    omap = smisym.overlap_map(smisym.compile(SMI("z1**2", 1)), samples=1024)
    for alpha, grows in ((0.3, False), (0.8, True)):
        resting = [solve(omap, r, alpha, kicked=False) for r in range(omap.scrambles)]
        assert all(point.result.ok and not point.Q.any() for point in resting)
        assert collect(omap, resting, "uninformed", 1e-4).result.ok
        assert collect(omap, resting, "symmetry-broken", 1e-4).result.ok is not grows


@pytest.mark.parametrize("traces", [1e-12, 7e-9, 1e-6])
def test_traces_of_what_grows_are_no_fixed_point(traces: float) -> None:
    """So little that every residual is below the tolerance, and still unstable: followed as if it were nothing."""
    omap = smisym.overlap_map(smisym.compile(SMI("z1**2", 1)), samples=1024)
    nothing = solve(omap, 0, 1.0, tol=5e-3)
    traced = solve(omap, 0, 1.0, Q=np.array([[traces]]), tol=5e-3)
    assert nothing.Q[0, 0] > 0.1
    assert traced.result.ok
    assert traced.Q[0, 0] == pytest.approx(nothing.Q[0, 0], abs=5e-3)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize(("samples", "alpha", "exact"), [(2048, 1.14, 1.0), (1024, 1.14, 1.0), (1024, 1.12, 0.76668)])
def test_scrambles_that_agree_on_what_is_wrong_are_no_success(
    samples: int, alpha: float, exact: float, seed: int
) -> None:
    """y = z^2: its fixed points end at alpha = 1.12847, where every scramble's own map holds it back for a while."""
    omap = smisym.overlap_map(smisym.compile(SMI("z1**2", 1)), samples=samples, seed=seed)
    for found in (smisym.state_evolution(omap, alpha), smisym.curve(omap, [1.0, alpha])[-1]):
        assert not found.result.ok or found.value.Q[0, 0] == pytest.approx(exact, abs=4 * found.value.Q_error[0, 0])
    below = smisym.state_evolution(omap, 0.9)
    if samples > 1024:
        assert below.result.ok
    assert below.value.Q[0, 0] == pytest.approx(0.33076, abs=4 * below.value.Q_error[0, 0])


def test_perfect_recovery_says_how_far_above_its_stability() -> None:
    """One layer on two tokens: reached at 1/2, exactly; scrambles whose noise has a branch above it tell no end."""
    model = smisym.compile(Architecture(2, (Attention(),)))
    for seed in (0, 3):
        _, reached = smisym.perfect_recovery(smisym.overlap_map(model, samples=1024, seed=seed)).value
        assert reached.alpha - 0.5 <= 1.01 * reached.error < 0.02


def test_outputs_whose_posteriors_are_not_resolved_are_sampled() -> None:
    """Four sheets with edges: a quadrature over y would take minutes, and be no better."""
    assert not by_quadrature(smisym.compile(SMI("abs(z1) + abs(z2)", 2)))
    assert by_quadrature(smisym.compile(SMI("z1*z2", 2)))


@pytest.mark.parametrize("text", ["z1*z2 + z1**2", "(z1 + z2)*z2"])
def test_a_rotated_form_has_the_thresholds_of_its_own_axes(text: str) -> None:
    """A quadratic form a u^2 - b v^2 of two rotated rows: what a^2 z1^2 - b^2 z2^2 has along its rows."""
    model = smisym.compile(SMI(text, 2))
    form = np.array([[1.0, 0.5], [0.5, 0.0]]) if text.startswith("z1") else np.array([[0.0, 0.5], [0.5, 1.0]])
    axes = np.linalg.eigh(form)[1].T
    assert model.symmetry.projectors
    for u, v in (axes, axes[::-1]):
        assert any(np.allclose(B, np.outer(u, u), atol=1e-12) for B in model.symmetry.basis)
        assert any(np.allclose(R, np.outer(u, u) - np.outer(v, v), atol=1e-12) for R in model.symmetry.elements)
    (first,) = smisym.weak_recovery(smisym.overlap_map(model, samples=256), quadrature=False, stages=1).value
    np.testing.assert_allclose(np.abs(first.subspace @ axes.T), [[0.0, 1.0]], atol=1e-6)


def test_the_second_threshold_of_a_rotated_form_is_not_missed() -> None:
    """(1 + r)/2 u^2 + (1 - r)/2 v^2, r = sqrt 2, in its own rows and in rotated ones; 1.025 by a program of its own."""
    rotated = smisym.weak_recovery(smisym.compile(SMI("z1**2 + z1*z2", 2)), samples=1024, seed=1)
    assert [t.kind for t in rotated.value] == ["weak", "weak"]
    assert abs(rotated.value[0].alpha - 0.50765) < 1e-4
    assert abs(rotated.value[1].alpha - 1.025) < 4 * rotated.value[1].error


@pytest.mark.parametrize("share", [0.7, 1.5])
def test_a_threshold_that_no_two_alphas_bracket_says_how_far_it_may_be(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """A committee of two: growth rises at least like alpha, so that a rate bounds where it is one."""
    roots = rung.roots
    monkeypatch.setattr(rung, "guessed", lambda *_: None)  # nor does one evaluation tell
    monkeypatch.setattr(rung, "roots", lambda *looks: np.full_like(roots(*looks), 2.051 * share))
    model = smisym.compile(SMI("sign(sign(z1) + sign(z2))", 2))
    solution = smisym.weak_recovery(smisym.overlap_map(model, samples=256))
    assert solution.result is Result.RESIDUAL
    assert abs(solution.value[-1].alpha - 2.051) < solution.value[-1].error


def test_coupled_overlaps_of_which_some_are_learned_are_told() -> None:
    """The sign of a rotated form: its reflections cannot be searched for, and one direction alone grows."""
    omap = smisym.overlap_map(smisym.compile(SMI("sign(z1**2 + z1*z2)", 2)), samples=512)
    solution = smisym.weak_recovery(omap, quadrature=False)
    assert solution.result is smisym.Result.PARTIAL
    (found,) = solution.value
    assert found.subspace.shape == (1, 2)
    first = smisym.weak_recovery(omap, quadrature=False, stages=1)
    assert first.result is smisym.Result.SUCCESS
    assert first.value[0].alpha == found.alpha


def test_a_direction_that_the_output_never_sees_is_hard() -> None:
    """(z1 + z2)^2 is 2 u^2, and knows nothing of z1 - z2; errors of sampled posteriors look like slow growth."""
    omap = smisym.overlap_map(smisym.compile(SMI("(z1 + z2)**2", 2)), samples=256)
    solution = smisym.weak_recovery(omap)
    weak, hard = solution.value
    assert (weak.kind, hard.kind) == ("weak", "hard")
    assert abs(weak.alpha - 0.5) < 4 * weak.error < 1e-3
    np.testing.assert_allclose(np.abs(hard.subspace), [[math.sqrt(0.5)] * 2], rtol=1e-9)
    assert solution.result is smisym.Result.SUCCESS


def test_what_is_left_is_in_the_unit_of_the_overlap() -> None:
    """The deterministic error bounds F(Q) - Q, put back by hand."""
    omap = small_map("untied, two tokens")
    solution = smisym.state_evolution(omap, 0.5, tol=1e-2)
    for r, q in enumerate(solution.value.overlaps):
        Q = np.diag(q)
        E = omap.at(r, Q).E
        mapped = np.eye(2) - np.linalg.inv(np.eye(2) + 0.5 * E)
        assert np.abs(mapped - Q).max() <= 8 * solution.deterministic_error.max() + 1e-12
    finer = smisym.state_evolution(omap, 0.5, tol=1e-6)
    moved = np.abs(finer.value.Q - solution.value.Q)
    assert (moved <= 2 * solution.deterministic_error + 1e-6).all()


def known_up_to_a_sign(alpha: float, tokens: int) -> float:
    """The fixed point below Q = I of a tied layer of rank one, whose output shows its T fields up to one sign.

    The posterior mean is Z tanh(s), s given |Z|^2 = x of mean and variance q x / V, and
    q = alpha (T - E[x (1 - tanh s)] / V).
    """

    def unknown(q: float) -> float:
        def given(x: float) -> float:
            mean = q * x / (1 - q)
            nodes, weights = np.polynomial.hermite_e.hermegauss(120)
            doubt = (weights @ (2 / (1 + np.exp(2 * (mean + math.sqrt(mean) * nodes))))) / weights.sum()
            return x * doubt * chi2.pdf(x, tokens)

        return quad(given, 0, 40 * (1 - q), limit=200)[0] / (1 - q)

    return brentq(lambda q: alpha * (tokens - unknown(q)) - q, 0.9, 1 - 1e-6)


@cache
def three_tokens() -> tuple[smisym.Model, OverlapMap]:
    model = smisym.compile(Architecture(3, (Attention(),)))
    return model, smisym.overlap_map(model, samples=512)


def test_an_error_bar_holds_what_no_point_saw() -> None:
    """Close to Q = I the sign is in doubt in one output of a thousand: once .993749(1), where .993485 is exact."""
    model, omap = three_tokens()
    exact = known_up_to_a_sign(0.33125, 3)
    assert exact == pytest.approx(0.993485, abs=2e-6)
    solution = smisym.curve(omap, [0.28, 0.32, 0.33125])[-1]
    assert solution.result.ok  # else nothing is shown
    assert abs(solution.value.Q[0, 0] - exact) < 4 * solution.value.Q_error[0, 0]
    # Points enough show it.
    q = np.full((1, 1), exact)
    many = smisym.overlap_map(model, samples=65536)
    E, error = many(q)
    assert 0.33125 * E[0, 0] * (1 - exact) == pytest.approx(exact, abs=4 * 0.33125 * error[0, 0] * (1 - exact))


def test_prediction_errors_hold_what_no_point_saw() -> None:
    """At the exact overlap the same errors, within bars that a thousandth of a sign unseen has its part in."""
    model, omap = three_tokens()
    record = records.curve(omap, [0.28, 0.32, 0.33125])[-1]
    assert record["result"] == "success"
    q = np.full((1, 1), known_up_to_a_sign(0.33125, 3))
    exact = smisym.prediction_errors(model, q, samples=16384)
    for name in ("bayes", "plug_in"):
        error = math.hypot(record[f"{name}_error_stderr"], exact[name].statistical_error)
        assert abs(record[f"{name}_error"] - exact[name].value) < 4 * error
        assert record[f"{name}_error_stderr"] > 0.05 * record[f"{name}_error"]


def test_first_thresholds_are_numbers() -> None:
    """Of outputs of |z1| - |z2| that hardly ever occur no posterior was found: the threshold was infinite, a success.

    Independent: plain Monte Carlo of 1 / E[(E[z1^2 | y] - 1)^2], 0.748(1).
    """
    model = smisym.compile(SMI("abs(z1) - abs(z2)", 2))
    assert not by_quadrature(model)
    (first,) = smisym.weak_recovery(model, samples=512, stages=1).value
    assert first.alpha == pytest.approx(0.748, abs=4 * first.error + 0.004)
    lost = smisym.Threshold("weak", (1,), np.eye(2), math.nan, math.nan, np.zeros((2, 2)))
    assert stability.weak_solution(small_map("product", 64), [lost], []).result is Result.INTEGRATION


def test_free_entropy_of_what_is_almost_perfect_in_one_scramble_is_not_stated() -> None:
    """It runs off to infinity with log V: once .688(12), by how far one of eight scrambles had come."""
    omap = small_map("untied, two tokens", 64)
    found = smisym.state_evolution(omap, 3.0).value
    assert records.entropy_record(omap, found)["unbounded"] == "+inf"
    overlaps, potential = found.overlaps.copy(), found.potential.copy()
    overlaps[1], potential[1] = 1 - np.array([1e-8, 2e-6]), 12.0
    one_short = dataclasses.replace(
        found, overlaps=overlaps, potential=potential, Q=omap.model.symmetry.matrix(overlaps.mean(axis=0))
    )
    stated = records.entropy_record(omap, one_short)
    assert math.isnan(stated["free_entropy"]) and "unbounded" not in stated


def test_what_still_shrinks_does_not_crawl() -> None:
    omap = small_map("untied, two tokens", 64)
    shrinks, stands = (_Solve(omap, 0, 1.2, 0.0, True, 1e-4) for _ in range(2))
    left = 1e-4 * np.repeat(0.4 ** np.arange(6), 2)  # halved at least every second step
    assert not any(shrinks._crawls(SimpleNamespace(most_left=x)) for x in left)  # type: ignore[arg-type]
    assert [stands._crawls(SimpleNamespace(most_left=1e-5)) for _ in range(8)].index(True) == 7  # type: ignore[arg-type]


def test_free_entropy_is_continuous_along_a_path() -> None:
    """Its slope in alpha at a fixed point is E log Zout, which grows along the path: bounds for every step."""
    omap = small_map("untied, two tokens")
    alphas = np.linspace(0.5, 0.65, 4)
    points = [s.value for s in smisym.curve(omap, alphas.tolist())]
    rows = [
        [
            0.5 * (np.trace(Q) + np.linalg.slogdet(np.eye(2) - Q)[1]) + p.alpha * psi
            for Q, psi in zip(map(np.diag, p.overlaps), p.potential, strict=True)
        ]
        for p in points
    ]
    value, slope = np.array(rows), np.array([p.potential for p in points])
    rise, step = np.diff(value, axis=0), np.diff(alphas)[:, None]
    noise = np.abs(rise - step * 0.5 * (slope[1:] + slope[:-1])).std(axis=1, ddof=1) / np.sqrt(8)
    assert (rise.mean(axis=1) >= (step * slope[:-1]).mean(axis=1) - 5 * noise - 1e-4).all()
    assert (rise.mean(axis=1) <= (step * slope[1:]).mean(axis=1) + 5 * noise + 1e-4).all()


# ---- what it costs ---------------------------------------------------------------------------------


class _Counted:
    """A channel that counts how often posteriors are computed."""

    def __init__(self, channel: Any) -> None:
        self._channel, self.made = channel, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def moments(self, *arguments: Any, **settings: Any) -> Any:
        self.made += 1
        return self._channel.moments(*arguments, **settings)


def test_keeping_results_computes_nothing_twice(tmp_path: Path) -> None:
    model = compiled("split heads")
    counts = []
    for number, store in enumerate((None, Store(tmp_path, {"task": 1}), Store(tmp_path, {"task": 1}))):
        counted = _Counted(model.channel)
        omap = OverlapMap(dataclasses.replace(model, channel=counted), samples=32, scrambles=2, store=store)
        solutions = smisym.curve(omap, [0.1, 0.15])
        counts.append(counted.made)
        if number == 0:
            first = [s.value.overlaps for s in solutions]
        assert all(np.array_equal(a, s.value.overlaps) for a, s in zip(first, solutions, strict=True))
    assert counts[0] == counts[1] > 0
    assert counts[2] == 0


def test_evaluations_are_told() -> None:
    seen: list[dict[str, Any]] = []
    omap = smisym.overlap_map(compiled("split heads"), samples=128)
    omap.on_evaluation = seen.append
    smisym.state_evolution(omap, 0.15)
    assert seen[-1]["evaluations"] == len(seen)
    assert "state evolution at alpha = 0.15" in seen[-1]["what"]
    assert all(record["seconds"] >= 0 for record in seen)


def test_time_that_is_given_is_kept() -> None:
    omap = smisym.overlap_map(compiled("split heads"), samples=1024, time_limit=0.05)
    with pytest.raises(smisym.OutOfTime, match=r"evaluations, time_limit=0.05; was solving: state evolution at alpha"):
        for alpha in np.linspace(0.1, 0.3, 50):
            smisym.state_evolution(omap, float(alpha))
    with pytest.raises(smisym.InputError, match="time_limit"):
        smisym.state_evolution(compiled("split heads"), 0.1, time_limit=-1.0)


def test_keywords_that_nothing_takes_are_refused() -> None:
    omap = small_map("split heads", 128)
    for call in (
        lambda: smisym.state_evolution(omap, 0.1, foo=3),
        lambda: smisym.state_evolution(omap, 0.1, samples=64),
        lambda: smisym.curve(omap, [0.1], sampels=64),
        lambda: smisym.curve(compiled("split heads"), [0.1], sampels=64),
        lambda: smisym.weak_recovery(omap, samples=64),
        lambda: smisym.free_entropy(omap, np.zeros((2, 2)), 0.1, rtol=1e-2),
    ):
        with pytest.raises(smisym.InputError, match=r"foo|samples|sampels|rtol"):
            call()


# ---- planted faults --------------------------------------------------------------------------------


def with_chart(name: str, change: Any) -> smisym.Model:
    """The model with another chart, past every check of charts."""
    model = compiled(name)
    chart = change(model.level_set)
    channel = Channel(model.link, OnLevelSet(chart, model.tokens))
    return dataclasses.replace(model, level_set=chart, channel=channel)


def _one_sheet(chart: Any) -> Any:
    def solve(*at: Any) -> Sheets:
        sheets = chart.solve(*at)
        return dataclasses.replace(sheets, solved=sheets.solved[:1], log_weight=sheets.log_weight[:1])

    return dataclasses.replace(chart, branches=1, solve=solve, program=None)


def _heavy(chart: Any) -> Any:
    def solve(*at: Any) -> Sheets:
        sheets = chart.solve(*at)
        return dataclasses.replace(sheets, log_weight=[3 * w for w in sheets.log_weight])

    return dataclasses.replace(chart, solve=solve, program=None)


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.9])
def test_a_missing_sheet_is_no_success(alpha: float) -> None:
    model = with_chart("phase retrieval", _one_sheet)
    for solution in (smisym.state_evolution(model, alpha, samples=512), *smisym.curve(model, [alpha], samples=512)):
        assert solution.result is Result.NISHIMORI
        assert not solution.checks["nishimori"]["holds"]
    assert not smisym.weak_recovery(model, samples=512, quadrature=False).result.ok


@pytest.mark.parametrize("alpha", [0.3, 0.6])
def test_a_wrong_jacobian_is_no_success(alpha: float) -> None:
    model = with_chart("two layers", _heavy)
    assert smisym.state_evolution(model, alpha, samples=512 if alpha < 0.5 else 1024).result is Result.NISHIMORI


class _Off:
    """A channel whose means are off by a fifth, and which says that they are exact."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def moments(self, *arguments: Any, **settings: Any) -> Any:
        found = self._channel.moments(*arguments, **settings)
        return dataclasses.replace(found, g=1.2 * found.g, error=0 * found.error)


@pytest.mark.parametrize("alpha", [0.3, 0.6])
def test_an_error_that_is_not_stated_is_no_success(alpha: float) -> None:
    model = compiled("two layers")
    planted = dataclasses.replace(model, channel=_Off(model.channel))
    assert smisym.state_evolution(planted, alpha, samples=1024).result is Result.NISHIMORI


def test_a_wrong_symmetry_is_refused() -> None:
    model = compiled("untied, two tokens")
    flips = np.array([[1.0, 1.0], [-1.0, 1.0]])
    planted = dataclasses.replace(model, symmetry=dataclasses.replace(model.symmetry, signs=flips))
    with pytest.raises(ArithmeticError, match="symmetry"):
        smisym.state_evolution(planted, 0.5, samples=512)


def test_a_bad_start_is_corrected() -> None:
    """Extrapolation, which replaced interpolation, may say what it likes."""
    omap = small_map("untied, two tokens")
    right = {s.value.alpha: s.value.Q for s in smisym.curve(omap, [0.5, 0.6], tol=1e-4)}
    for wrong in (np.diag([0.1, 0.9]), 0.99 * np.eye(2)):
        asked: list[float] = []

        def predict(found: Any, alpha: float, wrong: np.ndarray = wrong, asked: list[float] = asked) -> np.ndarray:
            asked.append(alpha)
            return wrong

        paths = [ScramblePath(omap, r, predict) for r in range(omap.scrambles)]
        for alpha, Q in right.items():
            solution = collect(omap, [path.at(alpha, 1e-4) for path in paths], "symmetry-broken", 1e-4)
            assert solution.result.ok
            assert np.abs(solution.value.Q - Q).max() < 2e-3
        assert set(asked) == {0.6}


def test_a_point_off_its_equation_is_no_success() -> None:
    omap = small_map("untied, two tokens")
    points = [ScramblePath(omap, r).at(0.5, 1e-4) for r in range(8)]
    assert collect(omap, points, "symmetry-broken", 1e-4).result.ok
    for change in (np.diag([0.0, 0.1]), np.diag([-0.05, 0.05]), np.eye(2)):
        moved = [dataclasses.replace(p, Q=np.clip(p.Q + change, 0, 1)) for p in points]
        assert collect(omap, moved, "symmetry-broken", 1e-4).result is Result.RESIDUAL


def test_a_false_perfection_is_no_success() -> None:
    omap = small_map("untied, two tokens")
    points = [ScramblePath(omap, r).at(0.5, 1e-4) for r in range(8)]
    perfect: list[Point] = [dataclasses.replace(p, Q=np.eye(2), known=np.eye(2)) for p in points]
    assert collect(omap, perfect, "symmetry-broken", 1e-4).result is Result.RESIDUAL


class _Changed(OverlapMap):
    """One scramble's E is not what its own three estimators make of it."""

    def at(self, scramble: int, Q: np.ndarray) -> Any:
        made = super().at(scramble, Q)
        return dataclasses.replace(made, white=1.3 * made.white) if scramble == 3 else made


def test_a_changed_estimate_is_no_success() -> None:
    model = compiled("split heads")
    assert smisym.state_evolution(OverlapMap(model, samples=8192), 0.12).result.ok
    assert smisym.state_evolution(_Changed(model, samples=8192), 0.12).result is Result.INCONSISTENT


def test_an_estimate_that_was_kept_cannot_be_written_to() -> None:
    omap = smisym.overlap_map(compiled("split heads"), samples=128, store=_Memory())
    with pytest.raises(ValueError, match="read-only"):
        omap.at(0, np.eye(2) / 2).E[0, 0] = 2.0


class _Memory:
    """A store that forgets nothing while it lives."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def get(self, name: str, valid: Any = None) -> Any:
        return self.kept.get(name)

    def put(self, name: str, value: Any) -> Any:
        self.kept[name] = value
        return value


def test_forged_estimates_are_computed_again(tmp_path: Path) -> None:
    model = compiled("split heads")
    store = Store(tmp_path, {"task": 1})
    right = smisym.overlap_map(model, samples=128, store=store).at(0, np.eye(2) / 2)
    (name,) = (p for p in store.folder.glob("entry_E*"))
    key = __import__("json").loads(name.read_text())["name"]
    lopsided = {**_as_lists(right), "white": [[1.0, 2.0], [3.0, 4.0]]}
    for forged in ({"white": 3}, {"Q": [[1]], "white": "text"}, lopsided):
        store.put(key, forged)
        again = smisym.overlap_map(model, samples=128, store=Store(tmp_path, {"task": 1})).at(0, np.eye(2) / 2)
        assert np.array_equal(again.E, right.E)


def _as_lists(estimate: Any) -> dict[str, Any]:
    return {f.name: getattr(estimate, f.name) for f in dataclasses.fields(estimate)}


def test_a_scramble_that_strays_is_seen() -> None:
    rng = np.random.default_rng(0)
    usual = 0.5 + 1e-3 * rng.standard_normal((8, 2))
    assert not outlying(usual)
    strayed = usual.copy()
    strayed[3, 1] += 0.3
    assert outlying(strayed)
    assert not outlying(strayed, floor=1.0)


# ---- the sentinel itself ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def agreements() -> list[Any]:
    return list(_agreements())


def _agreements() -> Iterator[Any]:
    for name in ("untied, two tokens", "split heads", "phase retrieval", "product", "rank two", "sequence"):
        model = compiled(name)
        for seed in range(2):
            omap = smisym.overlap_map(model, samples=512, seed=seed)
            for q in (0.0, 0.3, 0.8):
                estimates = omap.evaluate(q * np.eye(model.fields))
                assert all(sound(omap, e) for e in estimates)
                yield agreement(omap, estimates)


def test_the_estimators_of_a_right_channel_agree(agreements: list[Any]) -> None:
    """Over 36 evaluations: no alarm, and differences of a few standard errors as Student's t has them."""
    assert all(found.holds for found in agreements)
    # The largest of up to eight |t| with seven degrees of freedom exceeds 8 with probability 7e-4.
    assert sum(found.t > 8 for found in agreements) <= 2
