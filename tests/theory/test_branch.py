"""The branch of fixed points along its own length, and what is read off it: thresholds, arrivals, fixed points."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from oracles.description import Layer
from oracles.thresholds import last_layer_known

import smisym
from smisym import SMI, Architecture, Attention
from smisym.base.solution import Result, mean_and_error
from smisym.theory.at_once import fixed_point_near
from smisym.theory.branch import Passed, followed, once_more
from smisym.theory.fixed_point import solve
from smisym.theory.guesses import Guesses
from smisym.theory.maps import OverlapMap
from smisym.theory.stage import Stage
from smisym.theory.stages import staircase

TWO_LAYERS = Architecture(2, (Attention(), Attention()))


def begun(omap: OverlapMap, stage: Stage, count: int) -> list[Passed]:
    """The first points of the branch that begins with a stage."""
    symmetry = omap.model.symmetry
    way = followed(omap, stage.beginning(symmetry), stage.alpha, stage.upwards(symmetry))
    return list(itertools.islice(way, count))


def test_every_point_of_the_branch_is_a_fixed_point() -> None:
    """Two coupled directions and more: the mean map, evaluated there, leaves them where they are."""
    omap = smisym.overlap_map(smisym.compile(Architecture(2, (Attention(tied=False),))), samples=512, scrambles=4)
    points = begun(omap, next(staircase(omap)), 6)
    assert len(points) == 6
    for point in points[1:]:
        E = np.mean([e.E for e in omap.evaluate(point.Q)], axis=0)
        Q_hat = point.alpha * E
        back = Q_hat @ np.linalg.inv(np.eye(2) + Q_hat)
        # To first order in the last step across the branch, which is small.
        size = float(np.abs(point.step).max())
        assert np.abs(back - point.Q).max() < 0.02 * np.trace(point.Q) + 2 * size**2


def test_the_branch_of_two_layers_is_that_of_a_quadrature() -> None:
    """alpha(q) where the last layer is known to q, and the growth of the first one there."""
    omap = smisym.overlap_map(smisym.compile(TWO_LAYERS), samples=1024)
    (idle,) = np.flatnonzero(omap.model.symmetry.basis[:, 0, 0])
    points = begun(omap, next(staircase(omap)), 4)
    for point in (points[3],):
        exact = last_layer_known(Layer(), float(point.Q[1, 1]), count=6)
        assert abs(np.log(point.alpha / exact.alpha)) < 4 * point.error
        growth = point.rates(np.array([idle]))[0, 0]
        each = [here.jacobian[idle, idle] / here.alpha for here in point.found]
        error = mean_and_error(np.array(each))[1] / np.mean(each)
        assert abs(np.log(growth / (exact.alpha * exact.chi))) < 4 * (error + point.error)


def test_alpha_may_fall_along_the_branch() -> None:
    """The square of a field: known phase retrieval, whose branch rises to 1.128 and falls to one."""
    omap = smisym.overlap_map(smisym.compile(SMI("z1**2", 1)), samples=8192)
    points = begun(omap, next(staircase(omap)), 16)
    alphas = np.array([point.alpha for point in points])
    top = int(alphas.argmax())
    assert 0 < top < len(points) - 1
    assert points[top].tangent[-1] < points[1].tangent[-1]
    assert alphas[top] == pytest.approx(1.128, abs=5 * points[top].error)
    assert alphas[-1] < 1.08


def test_more_samples_tell_the_same_point() -> None:
    omap = smisym.overlap_map(smisym.compile(TWO_LAYERS), samples=512, scrambles=4)
    point = begun(omap, next(staircase(omap)), 5)[-1]
    finer = once_more(omap.sibling(4096, 4), point)
    assert finer is not None
    assert abs(np.log(finer.alpha / point.alpha)) < 5 * np.hypot(finer.error, point.error)
    np.testing.assert_allclose(finer.Q, point.Q, atol=1e-9)  # one overlap: the plane across the branch is that point


@pytest.mark.parametrize(("text", "expected"), [("z1**2", 1.128), ("abs(z1)", 1.128)])
def test_phase_retrieval_arrives_at_the_top_of_its_branch(text: str, expected: float) -> None:
    """Stable from one on by counting; reached at 1.128 (arXiv 1708.05395)."""
    solution = smisym.perfect_recovery(smisym.compile(SMI(text, 1)), accuracy=5e-3)
    stable, reached = solution.value
    assert solution.result.ok
    assert stable.alpha == 1.0
    assert abs(reached.alpha - expected) < 3 * reached.error <= 0.015
    assert reached.Q[0, 0] < 0.95


@pytest.mark.parametrize("accuracy", [2e-2, 1e-2, 7e-3])
def test_an_arrival_is_looked_for_until_what_is_stated_is_small_enough(accuracy: float) -> None:
    """What a parabola through three points misses is in the error that is stated, and so is compared with it."""
    model = smisym.compile(SMI("z1**2", 1))
    for seed in range(2):
        solution = smisym.perfect_recovery(smisym.overlap_map(model, samples=4096, seed=seed), accuracy=accuracy)
        reached = solution.value[1]
        assert solution.result.ok, (seed, solution)
        assert reached.error <= accuracy
        assert abs(reached.alpha - 1.128) < 4 * reached.error


def test_an_accuracy_reaches_perfect_recovery() -> None:
    model = smisym.compile(Architecture(2, (Attention(),)))
    solution = smisym.perfect_recovery(model, accuracy=1e-3)
    assert solution.result is Result.SUCCESS
    assert solution.value[1].alpha == pytest.approx(0.5, abs=1e-3)
    assert solution.value[1].error <= 1e-3
    missed = smisym.perfect_recovery(smisym.compile(SMI("z1**2", 1)), accuracy=1e-5, most_samples=4096)
    assert missed.result is Result.MISSED
    assert missed.value[1].error > 1e-5


def test_one_evaluation_is_as_accurate_as_it_says() -> None:
    """Q_22 = 1/2 at alpha = 0.4042 by quadrature; eight seeds, from starts that are off in what is left to learn.

    The root mean square of z is 1.18 by Student's t, and above 2 once in a thousand.
    """
    model, z = smisym.compile(TWO_LAYERS), []
    for seed, left in enumerate((0.55, 0.45, 0.5, 0.52, 0.48, 0.54, 0.46, 0.5)):
        omap = smisym.overlap_map(model, samples=2048, seed=seed)
        told = fixed_point_near(omap, np.diag([0.0, 1 - left]), 0.4042, omap.samples, 1e-4)
        assert told is not None
        assert told[1].result.ok
        z.append((told[1].value.Q[1, 1] - 0.5) / (told[1].value.Q_error + told[1].deterministic_error)[1, 1])
    assert math.sqrt(np.mean(np.square(z))) < 2.0
    assert abs(np.mean(z)) < 1.2


def test_one_evaluation_tells_what_all_scrambles_solved_tell() -> None:
    """The same random numbers, but for those of the way between: well within the error bar, which is theirs."""
    omap = smisym.overlap_map(smisym.compile(TWO_LAYERS), samples=2048)
    told = fixed_point_near(omap, np.diag([0.0, 0.92]), 0.6, omap.samples, 1e-4)
    assert told is not None
    solved = [solve(omap, r, 0.6, Q=np.diag([0.0, 0.92]), tol=1e-6).Q[1, 1] for r in range(omap.scrambles)]
    mean, error = mean_and_error(np.array(solved))
    assert abs(told[1].value.Q[1, 1] - mean) <= told[1].deterministic_error[1, 1] + error
    assert told[1].value.Q_error[1, 1] == pytest.approx(error, rel=0.3)


def test_a_curve_looks_for_no_threshold_beyond_its_last_alpha() -> None:
    """Up to 0.4 only the second layer is learned, which the branch of few points tells; guesses are the same."""
    model, looked = smisym.compile(TWO_LAYERS), set[str]()
    omap = smisym.overlap_map(model, samples=256, scrambles=2)
    omap.on_evaluation = lambda record: looked.add(record["what"])
    few = Guesses.of(omap, 0.4)
    assert not any("next threshold" in what for what in looked)
    assert len(few.stages) == 1 and few.stages[0][-1][0] >= 0.4
    every = Guesses.of(omap)
    assert len(every.stages) == 2
    for alpha in (0.2, 0.3, 0.4):
        np.testing.assert_array_equal(few.at(alpha), every.at(alpha))
    beyond = Guesses.of(omap, 0.9)
    assert len(beyond.stages) == 2
    np.testing.assert_array_equal(beyond.at(0.8), every.at(0.8))


@pytest.mark.parametrize(("Q", "alpha"), [((0.0, 0.0), 0.3), ((0.0, 0.97), 0.8), ((0.0, 0.5), 0.9)])
def test_one_evaluation_does_not_tell_what_may_jump(Q: tuple[float, float], alpha: float) -> None:
    """Where something idle grows, and where the fixed point is far away."""
    omap = smisym.overlap_map(smisym.compile(TWO_LAYERS), samples=1024)
    assert fixed_point_near(omap, np.diag(Q), alpha, omap.samples, 1e-4) is None


def test_a_curve_with_an_accuracy_takes_few_evaluations_and_is_the_curve() -> None:
    """Against the exact branch; less is left to do than any scramble's own path takes."""
    omap = smisym.overlap_map(smisym.compile(TWO_LAYERS), samples=4096)
    made: list[int] = []
    omap.on_evaluation = lambda record: made.append(record["samples"])
    (point,) = smisym.curve(omap, [0.4042], accuracy=0.01)
    assert point.result is Result.SUCCESS
    assert point.statistical_error[1, 1] + point.deterministic_error[1, 1] <= 0.01
    assert abs(point.value.Q[1, 1] - 0.5) < 4 * point.value.Q_error[1, 1]
    assert made.count(point.settings["samples"] // omap.scrambles) <= 3 * omap.scrambles


def test_where_the_plane_across_what_is_new_does_not_meet_the_branch_nearby_another_does() -> None:
    """The worst of planes, that along the branch: three layers come close to it where their second begins."""
    omap = smisym.overlap_map(smisym.compile(TWO_LAYERS), samples=1024, scrambles=4)
    here, onward = itertools.islice(followed(omap, np.diag([0.25, 0.9885]), 0.83, np.array([1.0, 0.0])), 2)
    assert onward.alpha > here.alpha
    way = here.tangent[:-1]
    way = np.array([1.0, -way[0] / way[1]]) * np.sign(way[1])
    # A step across the branch first, so that there is something to find.
    start = here.found[0].moved(0.05 * way / np.linalg.norm(way))
    (found,) = itertools.islice(followed(omap, start, here.alpha, way), 1)
    assert np.abs(np.log(np.diag(np.eye(2) - found.Q) / np.diag(np.eye(2) - here.Q))).max() < 0.15
    E = np.mean([e.E for e in omap.evaluate(found.Q)], axis=0)
    left = np.diag(np.linalg.inv(np.eye(2) + found.alpha * E))
    assert np.abs(np.log(left / np.diag(np.eye(2) - found.Q))).max() < 0.01
