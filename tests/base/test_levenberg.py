"""Least squares and bracketed roots of many small problems: against scipy, one by one, and each by itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq, least_squares

from smisym.base.bracketing import bracketed
from smisym.base.levenberg import Refined, Rule, Tried, descend
from smisym.base.matrices import solve_each

RULES = [Rule(), Rule(diagonal=True), Rule(first=0.0, least=1e-9)]


def rosenbrock(stiff: np.ndarray, which: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two residuals of two unknowns, a valley as narrow as ``stiff``, one number a problem."""
    s = stiff[which]
    r = np.stack([s * (x[:, 1] - x[:, 0] ** 2), 1 - x[:, 0]], axis=1)
    J = np.zeros((len(x), 2, 2))
    J[:, 0, 0], J[:, 0, 1], J[:, 1, 0] = -2 * s * x[:, 0], s, -1.0
    return r, J


def at_rounding(tried: Tried) -> np.ndarray:
    return np.abs(tried.residuals).max(axis=1) <= 1e-13


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("given", [True, False], ids=["slopes", "slopes asked for"])
def test_valleys_are_followed_to_their_ends(rule: Rule, given: bool) -> None:
    rng = np.random.default_rng(0)
    stiff, start = 10 ** rng.uniform(0, 2, 40), rng.standard_normal((40, 2))

    def values(which: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        r, J = rosenbrock(stiff, which, x)
        return r, J if given else None

    found, r, _ = descend(
        values, start, at_rounding, steps=2000, rule=rule, slopes=lambda w, x, _: rosenbrock(stiff, w, x)[1]
    )
    np.testing.assert_allclose(found, 1.0, atol=1e-9)
    np.testing.assert_array_equal(r, rosenbrock(stiff, np.arange(40), found)[0])


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_each_problem_is_by_itself(rule: Rule) -> None:
    """The same bits alone as beside others, even beside one that is singular or not finite."""
    rng = np.random.default_rng(1)
    stiff = np.r_[10 ** rng.uniform(0, 3, 6), 0.0, np.nan, np.inf]
    start = rng.standard_normal((len(stiff), 2))

    def of(numbers: list[int]) -> np.ndarray:
        own = stiff[numbers]
        with np.errstate(all="ignore"):
            return descend(lambda w, x: rosenbrock(own, w, x), start[numbers], at_rounding, steps=100, rule=rule)[0]

    together = of(list(range(len(stiff))))
    for number in range(6):
        np.testing.assert_array_equal(together[[number]], of([number]))
    np.testing.assert_array_equal(together[7:], start[7:])  # nothing finite to step along


def test_what_is_left_is_what_scipy_leaves() -> None:
    """More residuals than unknowns, which no point takes away; and the unknowns as residuals of their own."""
    rng = np.random.default_rng(2)
    A, b, start = rng.standard_normal((7, 5, 3)), rng.standard_normal((7, 5)), rng.standard_normal((7, 3))

    def values(which: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inner = np.einsum("nmk,nk->nm", A[which], x)
        return np.sinh(inner) - b[which], np.cosh(inner)[:, :, None] * A[which]

    def still(tried: Tried) -> np.ndarray:
        return tried.failed > 12

    for gaussian in (False, True):
        found = descend(values, start, still, steps=200, rule=Rule(gaussian=gaussian))[0]
        for i in range(7):

            def residuals(x: np.ndarray, i: int = i, gaussian: bool = gaussian) -> np.ndarray:
                own = np.sinh(A[i] @ x) - b[i]
                return np.r_[own, x] if gaussian else own

            other = least_squares(residuals, found[i], xtol=1e-15, ftol=1e-15, gtol=1e-15)
            np.testing.assert_allclose(found[i], other.x, atol=1e-7)
            assert (residuals(found[i]) ** 2).sum() <= 2 * other.cost * (1 + 1e-12)


def test_fewer_equations_than_unknowns_are_solved_by_the_nearest_point() -> None:
    rng = np.random.default_rng(3)
    A, b, start = rng.standard_normal((9, 2, 5)), rng.standard_normal((9, 2)), rng.standard_normal((9, 5))
    seen: list[np.ndarray] = []

    def values(which: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.einsum("nmk,nk->nm", A[which], x) - b[which], A[which]

    def plain(point: Refined) -> np.ndarray:
        seen.append(point.which)
        return -point.solve(point.residuals)

    rule = Rule(first=0.0, least=1e-9, least_norm=True)
    found = descend(values, start, at_rounding, steps=5, rule=rule, refine=plain)[0]
    for i in range(9):
        expected = start[i] + np.linalg.pinv(A[i]) @ (b[i] - A[i] @ start[i])
        np.testing.assert_allclose(found[i], expected, atol=1e-12)
    assert len(seen) <= 3 and len(seen[0]) == 9


def test_small_systems_are_solved_each_by_itself() -> None:
    rng = np.random.default_rng(4)
    for K in (1, 2, 4):
        A, b = rng.standard_normal((6, K, K)), rng.standard_normal((6, K))
        A[2] = 0.0
        found = solve_each(A, b)
        assert np.isnan(found[2]).all()
        for i in (0, 1, 3, 4, 5):
            np.testing.assert_allclose(A[i] @ found[i], b[i], atol=1e-10)


def test_brackets_close_on_roots_and_on_jumps() -> None:
    powers = np.array([1.0, 3.0, 5.0, 2.0])

    def away(x: np.ndarray, which: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(which == 3, np.sign(x - 0.3), x ** powers[which] - 0.5 * np.cos(x)))

    found = bracketed(away, np.array([-1.0, 0.0, 0.1, 0.0]), np.full(4, 2.0), np.arange(4))
    for i in range(3):
        root = brentq(lambda x, i=i: x ** powers[i] - 0.5 * np.cos(x), 0.0, 2.0, xtol=1e-15, rtol=1e-15)
        assert found[i] == pytest.approx(root, abs=4e-15)
    assert found[3] == pytest.approx(0.3, abs=1e-12)
    assert np.isnan(bracketed(away, np.ones(1), np.full(1, 2.0), np.zeros(1, dtype=int)))[0]
