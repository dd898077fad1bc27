"""Chains by tables: against chains of Gaussians, whose moments are linear algebra, and single integrals by scipy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial import chebyshev
from scipy import integrate

from smisym.integrate.transfer import End, Grid, Passed, Rule, Transfer, missed_by_tables, passed

LOW, HIGH = np.array([-1.5, 0.2]), np.array([2.0, 0.9])


def box(dim: int, radius: float) -> tuple[np.ndarray, np.ndarray]:
    return np.full(dim, -radius), np.full(dim, radius)


# ---------------------------------------------------------------------------------------------------------------- grids


def test_polynomials_pass_through_their_nodes_and_are_those_of_numpy() -> None:
    grid = Grid.over(LOW, HIGH, 7)
    values = np.random.default_rng(0).standard_normal(grid.size)
    coefficients = grid.to_polynomials(values)
    first, second = grid.polynomials(grid.nodes())
    np.testing.assert_allclose(np.einsum("ab,ak,bk->k", coefficients, first, second), values, atol=1e-12)
    x = np.random.default_rng(1).uniform(LOW, HIGH, (20, 2)).T
    first, second = grid.polynomials(x)
    unit = (2 * x.T - LOW - HIGH).T / (HIGH - LOW)[:, None]
    ours = np.einsum("ab,ak,bk->k", coefficients, first, second)
    np.testing.assert_allclose(ours, chebyshev.chebval2d(*unit, coefficients), atol=1e-12)


def test_weights_of_nodes_are_dual_to_values() -> None:
    """A sum of polynomials at points, as weights of nodes, applied to values is the function summed over the points."""
    grid = Grid.over(LOW, HIGH, 6)
    x = np.random.default_rng(2).uniform(LOW, HIGH, (9, 2)).T
    first, second = grid.polynomials(x)
    weights = grid.to_nodes(np.einsum("ak,bk->ab", first, second))

    def smooth(z: np.ndarray) -> np.ndarray:
        return np.asarray(z[0] ** 3 * z[1] ** 5 - z[1] ** 2)

    assert weights @ smooth(grid.nodes()) == pytest.approx(smooth(x).sum(), rel=1e-10)


def test_one_node_where_a_box_has_no_width() -> None:
    grid = Grid.over(np.array([0.3, -1.0]), np.array([0.3, 1.0]), 5)
    assert grid.counts == (1, 5)
    nodes = grid.nodes()
    assert (nodes[0] == 0.3).all()
    np.testing.assert_allclose(grid.lowered(nodes[1] ** 2), nodes[1] ** 2, atol=1e-13)


def test_the_two_highest_degrees_are_left_out() -> None:
    grid = Grid.over(np.array([-1.0]), np.array([1.0]), 6)
    (x,) = grid.nodes()
    kept, gone = chebyshev.chebval(x, [1, 2, 3, 4]), chebyshev.chebval(x, [0, 0, 0, 0, 5, 6])
    np.testing.assert_allclose(grid.lowered(kept + gone), kept, atol=1e-12)


# ---------------------------------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_rules_are_those_of_the_normal_law(dim: int) -> None:
    rule = Rule.lattice(*box(dim, 5.5), 0.8, 5.5)
    total = (2 * np.pi) ** (dim / 2)
    assert rule.weights.sum() == pytest.approx(total, rel=5e-4)
    second = (rule.nodes * rule.weights) @ rule.nodes.T / total
    np.testing.assert_allclose(second, np.eye(dim), atol=5e-3)


def test_a_box_keeps_the_nodes_within_it() -> None:
    low, high = np.array([-0.5, 1.0]), np.array([2.0, 1.7])
    whole, part = (Rule.lattice(*b, 0.2, 4.0) for b in (box(2, 4.0), (low, high)))
    inside = ((whole.nodes >= low[:, None]) & (whole.nodes <= high[:, None])).all(axis=0)
    np.testing.assert_allclose(np.sort(part.nodes), np.sort(whole.nodes[:, inside]), atol=1e-12)


def test_a_turned_lattice_does_not_err_by_a_whole_step_at_a_jump() -> None:
    """Half of a plane, with its edge along an axis or a diagonal, where lattices along the axes miss or count twice."""
    rule = Rule.lattice(*box(2, 5.0), 0.4, 5.0)
    x, y = rule.nodes
    for side in (x, y, x - y, x + y):
        held = rule.weights[side > 1e-9].sum() / (2 * np.pi)
        assert abs(held - 0.5) < 0.4 * 0.02


# --------------------------------------------------------------------------------------------------------------- chains


class Gaussian:
    """s_k = a_k s_{k-1} + b_k . z_k + c_k on numbers, and exp(-(s_n - y)^2 / (2 v)) at the end, with r = s_n - y there.

    All moments of all z_k follow by conditioning one Gaussian.
    """

    a, b, c = (0.0, 0.7, -0.5), ((0.6, 0.3), (0.4, -0.2), (0.5, 0.1)), (0.2, -0.3, 0.1)
    y, v = 0.4, 0.5

    def linear(self) -> tuple[np.ndarray, float]:
        """s_n = w . z + m."""
        w, m = np.zeros(0), 0.0
        for a, b, c in zip(self.a, self.b, self.c, strict=True):
            w, m = np.concatenate([a * w, b]), a * m + c
        return w, m

    def exact(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Log of the total, mean and covariance of (z, r)."""
        w, m = self.linear()
        V, d = w @ w + self.v, len(w)
        mean, cov = w * (self.y - m) / V, np.eye(d) - np.outer(w, w) / V
        shift = np.vstack([np.eye(d), w])
        log_total = 0.5 * np.log(2 * np.pi) * d + 0.5 * np.log(self.v / V) - 0.5 * (self.y - m) ** 2 / V
        return float(log_total), np.append(mean, w @ mean + m - self.y), shift @ cov @ shift.T

    def tables(self, side: int, step: float, cut: float = 0.0) -> tuple[list[Transfer], End, Passed]:
        """All blocks but the last one by tables; the next state in two grids where there is a cut."""
        states, steps = np.zeros(1), []
        for a, b, c in zip(self.a, self.b, self.c, strict=True):
            rule = Rule.lattice(*box(2, 6.0), step, 6.0)
            s = a * states[:, None] + np.array(b) @ rule.nodes + c
            if len(steps) == len(self.a) - 1:
                break
            place = (s > cut).astype(int) if cut else np.zeros(s.shape, dtype=int)
            grids = tuple(
                Grid.over(np.array([s[place == g].min()]), np.array([s[place == g].max()]), side)
                for g in range(2 if cut else 1)
            )
            steps.append(Transfer.of(grids, rule, s[None], place, True))
            states = np.concatenate([grid.nodes()[0] for grid in grids])
        r = (s - self.y)[None]
        end = End.summed(rule, -0.5 * r[0] ** 2 / self.v, r, (r * r)[None])
        return steps, end, passed(steps, end)


@pytest.mark.parametrize("cut", [0.0, 0.15], ids=["one grid", "two grids"])
def test_a_gaussian_chain(cut: float) -> None:
    chain = Gaussian()
    log_total, mean, cov = chain.exact()
    _, end, found = chain.tables(26, 0.45, cut)
    # A grid that ends where there is mass breaks the smoothness that a trapezoid rule lives on.
    close = 1e-5 if not cut else 0.05
    assert np.log(found.total) + end.top == pytest.approx(log_total, abs=close)
    np.testing.assert_allclose(found.mean, mean, atol=close)
    assert found.second is not None
    np.testing.assert_allclose(found.second - np.outer(mean, mean), cov, atol=2 * close)


@pytest.mark.parametrize("side", [6, 8, 10, 12, 16])
def test_what_tables_miss_is_told(side: int) -> None:
    chain = Gaussian()
    steps, end, found = chain.tables(side, 0.45)
    true = np.linalg.norm(found.mean - chain.exact()[1])
    told = missed_by_tables(steps, end, found)
    assert true <= told + 1e-7
    # And it is told that there is little where there is.
    assert side < 16 or told < 1e-3


def test_shares_are_those_of_the_nodes() -> None:
    """Summed with z they give the mean of each block; what is cut off holds what was allowed."""
    steps, _, found = Gaussian().tables(20, 0.4)
    for k, step in enumerate(steps):
        shares = step.shares(found.forward[k], found.backward[k + 1]) / found.total
        assert shares.sum() == pytest.approx(1, abs=1e-6)
        np.testing.assert_allclose(step.rule.nodes @ shares.sum(axis=0), found.mean[2 * k : 2 * k + 2], atol=1e-6)
        ((low, high),) = step.spread(shares, 1e-3)
        for outside in (step.points[0] < low[0], step.points[0] > high[0]):
            assert abs(shares[outside].sum()) <= 1.001e-3
        assert step.lowest(shares) < 1e-6


def test_nothing_is_carried_on_from_points_in_no_grid() -> None:
    rule = Rule.lattice(*box(1, 5.0), 0.3, 5.0)
    grid = Grid.over(np.array([0.0]), np.array([5.0]), 12)
    place = np.where(rule.nodes > 0, 0, -1)
    step = Transfer.of((grid,), rule, rule.nodes[:, None], place, False)
    (s,) = grid.nodes()
    carried = float(step.matrices[0, 0] @ s)
    inside = rule.nodes[0] > 0
    assert carried == pytest.approx(float(rule.weights[inside] @ rule.nodes[0][inside]), rel=1e-10)


def test_a_last_block_is_summed_as_by_scipy() -> None:
    """int dz N(z) exp(-(z^2 - s)^2) for two s, with z and r = z^2 - s inserted."""
    s = np.array([0.5, -1.0])
    rule = Rule.lattice(*box(1, 8.0), 0.05, 8.0)
    r = rule.nodes[0] ** 2 - s[:, None]
    end = End.summed(rule, -(r**2), r[None], (r * r)[None, None])
    for i in range(2):

        def weight(z: float, power: int, i: int = i) -> float:
            return float(np.exp(-0.5 * z * z - (z * z - s[i]) ** 2) * (z * z - s[i]) ** power)

        total, first, second = (integrate.quad(weight, -8, 8, args=(k,), epsabs=1e-12)[0] for k in range(3))
        assert end.weights[i] * np.exp(end.top) == pytest.approx(total, rel=1e-8)
        assert end.first[1, i] == pytest.approx(first / total, rel=1e-7)
        assert end.first[0, i] == pytest.approx(0, abs=1e-8)
        assert end.second is not None
        assert end.second[1, 1, i] == pytest.approx(second / total, rel=1e-7)
    parts = [End.summed(rule, -(r[k : k + 1] ** 2), r[None, k : k + 1], None) for k in range(2)]
    joined = End.joined(parts)
    np.testing.assert_allclose(joined.weights * np.exp(joined.top), end.weights * np.exp(end.top), rtol=1e-12)
    np.testing.assert_allclose(joined.first, end.first, atol=1e-12)
