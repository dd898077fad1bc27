"""Solvers against one another: curve and single solves, derivative and difference, saved and fresh maps."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smisym
from smisym.base.edge import MOST_ALPHA
from smisym.theory.collecting import FixedPoint
from smisym.theory.controls import controlled
from smisym.theory.stages import staircase


@cache
def model(depth: int = 2, tokens: int = 2) -> smisym.Model:
    return smisym.compile(smisym.Architecture(tokens=tokens, layers=(smisym.Attention(),) * depth))


@cache
def overlaps(depth: int = 2, tokens: int = 2, samples: int = 1024) -> smisym.OverlapMap:
    return smisym.overlap_map(model(depth, tokens), samples=samples, scrambles=4)


def test_the_derivative_of_the_overlap_map() -> None:
    """dE[M] from second moments against a central difference of E, within the spread of the scrambles."""
    omap, h = smisym.overlap_map(model(1), samples=16384, scrambles=4), 0.05
    for q in (0.2, 0.6):
        difference = [
            (b.E[0, 0] - a.E[0, 0]) / (2 * h)
            for a, b in zip(omap.evaluate(np.array([[q - h]])), omap.evaluate(np.array([[q + h]])), strict=True)
        ]
        slope = [e.derivative(np.eye(1))[0, 0] for e in omap.evaluate(np.array([[q]]))]
        gap = np.array(difference) - np.array(slope)
        # A third derivative of E of about 100 leaves h^2/6 * 100.
        assert abs(gap.mean()) < 4 * gap.std(ddof=1) / 2 + 0.05


def test_the_curve_agrees_with_single_solves() -> None:
    omap = overlaps(1)
    alphas = [0.1, 0.2, 0.3, 0.6]
    along = smisym.curve(omap, alphas)
    for alpha, solution in zip(alphas, along, strict=True):
        single = smisym.state_evolution(omap, alpha)
        assert single.result.ok
        assert solution.result.ok
        # The same scrambles, so the same fixed points but for what each solve left of its equation.
        left = solution.deterministic_error + single.deterministic_error
        assert (np.abs(single.value.Q - solution.value.Q) <= 3 * left + 1e-9).all()


def test_a_single_layer_recovers_at_its_counting_bound() -> None:
    """y determines u in R^T up to sign: P/K = 1/T, and nothing stops state evolution before."""
    stable, amp = smisym.perfect_recovery(overlaps(1)).value
    assert stable.alpha == pytest.approx(0.5)
    assert amp.kind == "perfect_amp"
    assert amp.alpha >= stable.alpha - 5 * amp.error


def test_starts_are_different_questions() -> None:
    omap = overlaps(1)
    stays = smisym.state_evolution(omap, 0.3, start="uninformed")
    assert np.array_equal(stays.value.Q, np.zeros((1, 1)))
    assert not stays.value.stable.any()
    leaves = smisym.state_evolution(omap, 0.3)
    assert leaves.value.Q[0, 0] > 0.2
    helped = smisym.state_evolution(omap, 0.3, side_information=0.5)
    assert helped.value.Q[0, 0] > leaves.value.Q[0, 0]


def test_a_warm_start_changes_nothing() -> None:
    omap = overlaps(1)
    below: FixedPoint = smisym.state_evolution(omap, 0.25).value
    cold, warm = smisym.state_evolution(omap, 0.3), smisym.state_evolution(omap, 0.3, warm=below)
    assert np.abs(cold.value.Q - warm.value.Q).max() < 1e-3


def test_a_saved_map_is_the_map(tmp_path: Path) -> None:
    omap = smisym.overlap_map(model(1), samples=64, scrambles=4)
    Q = np.array([[0.4]])
    before = omap.evaluate(Q)
    omap.save(tmp_path / "map.npz")
    loaded = smisym.OverlapMap.load(tmp_path / "map.npz", model(1))
    for a, b in zip(before, loaded.evaluate(Q), strict=True):
        assert np.array_equal(a.E, b.E)
        assert np.array_equal(a.slope, b.slope)
    with pytest.raises(smisym.InputError, match="architecture"):
        smisym.OverlapMap.load(tmp_path / "map.npz", model(1, 3))
    with np.load(tmp_path / "map.npz") as data:
        older = {name: data[name] for name in data.files if name != "unclear"}
    np.savez(tmp_path / "older.npz", **older)
    with pytest.raises(smisym.InputError, match="unclear"):
        smisym.OverlapMap.load(tmp_path / "older.npz", model(1))
    with np.load(tmp_path / "map.npz") as data:
        others = {name: data[name] for name in data.files}
    head = json.loads(str(others["header"]))
    others["header"] = np.array(json.dumps({**head, "drawn": head["drawn"] - 1}))
    np.savez(tmp_path / "others.npz", **others)
    with pytest.raises(smisym.InputError, match="drawn in another way"):
        smisym.OverlapMap.load(tmp_path / "others.npz", model(1))


def test_a_map_says_of_which_model_and_with_how_many_points() -> None:
    omap = smisym.overlap_map(model(1), samples=1024, scrambles=4, seed=3, rtol=0.01)
    said = repr(omap)
    assert "\n" not in said and repr(omap.model) in said
    assert said.endswith("samples 1024, scrambles 4, seed 3, rtol 0.01>")


def test_workers_do_not_change_bits() -> None:
    Q = np.diag([0.1, 0.5])
    one, two = (smisym.overlap_map(model(), samples=128, scrambles=4, workers=w).evaluate(Q) for w in (1, 2))
    assert all(np.array_equal(a.E, b.E) for a, b in zip(one, two, strict=True))


def test_the_first_stage_begins_at_the_threshold() -> None:
    omap = overlaps(1)
    first = next(staircase(omap))
    rates = controlled([estimate.beside for estimate in omap.evaluate(np.zeros((1, 1)))])
    assert first.alpha == pytest.approx(1 / np.mean(rates), rel=1e-12)
    assert first.alpha == pytest.approx(1 / 6, rel=1e-9)  # known up to a sign: nothing is left to fluctuate
    below, above = smisym.curve(omap, [0.8 * first.alpha, 1.2 * first.alpha])
    assert np.array_equal(below.value.Q, np.zeros((1, 1)))
    assert 0 < above.value.Q[0, 0] < 1


@pytest.mark.parametrize("alpha", [-1.0, float("nan"), float("inf"), 2e6], ids=str)
def test_bad_alphas_are_refused(alpha: float) -> None:
    for solve in (smisym.state_evolution, lambda m, a: smisym.curve(m, [a])):
        with pytest.raises(smisym.InputError, match="alpha"):
            solve(model(1), alpha)


def test_the_largest_alpha_is_no_limit_of_ours() -> None:
    found = smisym.state_evolution(overlaps(1), MOST_ALPHA)
    assert found.result is smisym.Result.SUCCESS and found.value.Q[0, 0] > 1 - 1e-6


def test_coupled_overlaps_stay_positive_and_unlearned_rows_stay_zero() -> None:
    """Two untied layers: queries and keys of the last one are learned together, the first one not at all."""
    layers = (smisym.Attention(tied=False), smisym.Attention(tied=False))
    model = smisym.compile(smisym.Architecture(2, layers))
    assert not model.symmetry.projectors
    omap = smisym.OverlapMap(model, samples=32, scrambles=2, seed=1)
    Q = smisym.state_evolution(omap, 0.8, max_steps=5).value.Q
    assert (Q[:2] == 0).all()
    assert (np.diag(Q)[2:] > 0.1).all()
    assert np.linalg.eigvalsh(Q)[0] >= -1e-14
    # Away from perfect squares of the first layer, every estimate of E is positive semi-definite.
    for estimate in omap.evaluate(0.3 * np.eye(4)):
        assert np.linalg.eigvalsh(estimate.E)[0] >= -1e-12


class _Gaps:
    """A channel whose first posterior of every batch is not found."""

    def __init__(self, channel: smisym.model.Channel) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def moments(self, *arguments: Any, **settings: Any) -> Any:
        found = self._channel.moments(*arguments, **settings)
        g, dg = found.g.copy(), found.dg.copy()
        g[0], dg[0] = np.nan, np.nan
        return dataclasses.replace(found, g=g, dg=dg)


@pytest.mark.parametrize("tied", [True, False])
def test_missing_posteriors_end_in_a_code_and_are_no_hard_direction(tied: bool) -> None:
    """Seen by the map that scouts alone: thresholds go by an integral over y, or come from coupled rates."""
    layers = (smisym.Attention(),) if tied else (smisym.Attention(tied=False), smisym.Attention(tied=False))
    whole = smisym.compile(smisym.Architecture(2, layers))
    gaps = dataclasses.replace(whole, channel=_Gaps(whole.channel))
    solution = smisym.weak_recovery(gaps, samples=2048 if tied else 256, stages=1)
    assert solution.result is smisym.Result.INTEGRATION
    assert solution.value[0].kind == "weak"


class _Doubts(_Gaps):
    """A channel that is far off, by its own account, in the first of every ``every`` posteriors."""

    def __init__(self, channel: smisym.model.Channel, every: int) -> None:
        super().__init__(channel)
        self._every = every

    def moments(self, *arguments: Any, **settings: Any) -> Any:
        found = self._channel.moments(*arguments, **settings)
        error = found.error.copy()
        error[:: self._every] = 30.0
        return dataclasses.replace(found, error=error)


def test_few_bad_posteriors_make_no_direction_hard() -> None:
    """The mean error is far above the rate of growth, but what grows comes from posteriors that are known."""
    whole = smisym.compile(smisym.Architecture(2, (smisym.Attention(rank=2),)))
    exact = smisym.weak_recovery(whole, samples=512).value[0]
    channel = _Doubts(whole.channel, 3)  # one posterior in three
    found = smisym.weak_recovery(dataclasses.replace(whole, channel=channel), samples=512)
    assert found.value[0].kind == "weak"
    assert found.value[0].alpha == pytest.approx(exact.alpha, rel=1e-12)
    assert found.result is smisym.Result.INTEGRATION  # a third of the rate is in doubt


def test_a_hard_direction_of_second_order_is_a_failure_of_the_integrals() -> None:
    """All posteriors in doubt: nothing clear grows, but the second Hermite order says that something must."""
    whole = smisym.compile(smisym.Architecture(2, (smisym.Attention(rank=2),)))
    channel = _Doubts(whole.channel, 1)
    found = smisym.weak_recovery(dataclasses.replace(whole, channel=channel), samples=1024)
    assert (found.value[0].kind, found.value[0].order) == ("hard", 2)
    assert found.result is smisym.Result.INTEGRATION


def test_one_stage_is_the_first_of_all() -> None:
    whole = smisym.compile(smisym.Architecture(2, (smisym.Attention(heads=2, activation="linear"),)))
    every = smisym.weak_recovery(whole, samples=64, scrambles=2, quadrature=False)
    first = smisym.weak_recovery(whole, samples=64, scrambles=2, stages=1, quadrature=False)
    assert len(first.value) == 1
    assert first.value[0].alpha == every.value[0].alpha
    assert first.result is smisym.Result.SUCCESS
    layers = smisym.compile(smisym.Architecture(2, (smisym.Attention(),) * 3))
    two = smisym.weak_recovery(layers, samples=32, scrambles=2, stages=1, quadrature=False).value
    assert [t.layers for t in two] == [(3,)]
    layers = smisym.compile(smisym.Architecture(2, (smisym.Attention(),) * 2))
    both = smisym.weak_recovery(layers, samples=128, scrambles=2, stages=2, quadrature=False).value
    assert [t.layers for t in both] == [(2,), (1,)]


def test_one_stage_of_any_number_of_scrambles() -> None:
    """Six scrambles of 64 points are 384, of which a scouting map can take 256 only."""
    linear = smisym.compile(smisym.Architecture(2, (smisym.Attention(heads=2, activation="linear"),)))
    first = smisym.weak_recovery(linear, samples=384, scrambles=6, stages=1, quadrature=False)
    assert first.value[0].kind == "weak"


def test_bad_stages_and_quadratures_are_refused() -> None:
    whole = smisym.compile(smisym.Architecture(2, (smisym.Attention(),), noise=0.3))
    with pytest.raises(smisym.InputError, match="stages"):
        smisym.weak_recovery(whole, stages=0)
    with pytest.raises(smisym.InputError, match="quadrature"):
        smisym.weak_recovery(whole, quadrature=True)
