"""Levels of chains of tables: numpy and compiled loops on the same nodes, against rules of their own and against linear
algebra where a chain is Gaussian."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.polynomial import chebyshev
from scipy import integrate

from smisym import Architecture, Attention
from smisym import compile as compiled
from smisym.kernels.chains import TURN, Found, Given, compiled_levels
from smisym.kernels.tracing import trace
from smisym.link.reduction import creases
from smisym.model.channel import Channel
from smisym.posterior import levels
from smisym.posterior.base import Cavity
from smisym.posterior.chebyshev import beyond, logged, polynomials, unlogged
from smisym.posterior.composite import ByTables
from smisym.posterior.level_chain import Chain, scouted
from smisym.posterior.level_in_numpy import levels_in_numpy
from smisym.posterior.level_nodes import nodes_of, pieces_of, sectors_of
from smisym.posterior.levels import Refinement
from smisym.posterior.tables import OnTables, Tabulated

A = Attention
NETWORKS = {
    "three": Architecture(2, (A(),) * 3),
    "four": Architecture(2, (A(),) * 4),
    "steep": Architecture(2, (A(skip=3.0),) * 4),
    "untied, det of both signs": Architecture(2, (A(tied=False, skip=0.3), A(skip=0.3), A())),
    "two heads": Architecture(2, (A(), A(heads=2), A())),
    "linear before the last": Architecture(2, (A(), A(), A(activation="linear", beta=0.3), A())),
}


def block(name: str, samples: int, q: float = 0.5, seed: int = 3) -> tuple[OnTables, Tabulated, Chain]:
    """Posteriors of outputs drawn at an overlap."""
    model = compiled(NETWORKS[name])
    assert isinstance(model.channel.posterior, ByTables)
    tables = model.channel.posterior.tables
    z = np.random.default_rng(seed).standard_normal((samples, 2, model.fields, 2))
    omega = np.sqrt(q) * z[:, 0]
    observed = tables.read(model.observe(omega + np.sqrt(1 - q) * z[:, 1]))
    V = np.broadcast_to((1 - q) * np.eye(model.fields), (samples, model.fields, model.fields))
    found = tables.at(observed, omega, V)
    return tables, found, found.chain()


@pytest.mark.parametrize("cov", [False, True], ids=["means", "covariances"])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_compiled_levels_are_those_of_numpy(name: str, cov: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    tables, _, chain = block(name, 3)
    monkeypatch.setenv("SMISYM_BACKEND", "numba")
    run = compiled_levels(tables.programs)
    assert run is not None

    def by_numpy(given: Given, found: Found, room: int, look: bool, cov: bool) -> None:
        levels_in_numpy(tables.mixings, given, found, look=look, cov=cov)

    spans = scouted(chain, tables.mixings)
    one, other = (Refinement(chain, how, spans, 3e-2, cov, None) for how in (by_numpy, run))
    everyone = np.arange(chain.samples)
    for _ in range(2):
        ours, theirs = one.at(everyone, True), other.at(everyone, True)
        for mine, his in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(mine, his, rtol=1e-11, atol=1e-12)
        one.refine(everyone, ours, one.missed(everyone, ours), True)
        other.level = replace(one.level)


def test_a_lattice_between_signs_is_the_normal_law() -> None:
    """Masses add up to 2 pi a layer of one row, each image with its own mean, whatever signs fold."""
    tables, _, chain = block("three", 2)
    given = Refinement(chain, tables.levels(), scouted(chain, tables.mixings), 1e-4, True, None).given(np.arange(2))
    for s, k in itertools.product(range(2), range(2)):
        nodes = nodes_of(given, s, k, True)
        rows = nodes.features[:, 0]
        assert rows[0].sum() == pytest.approx(2 * np.pi, rel=2e-4)
        np.testing.assert_allclose(rows[1:3].sum(axis=1), 0.0, atol=2e-3)
        np.testing.assert_allclose(rows[8:].sum(axis=1) / (2 * np.pi), [1, 0, 1], atol=3e-3)
        # No node is the opposite of another one.
        h = nodes.h[:, 0].T
        assert np.abs(h[:, None] + h[None]).sum(axis=2).min() > 1e-9 or (np.abs(h).sum(axis=1) < 1e-12).any()


@pytest.mark.parametrize("coupled", [False, True])
def test_sums_of_keys_are_integrated_in_closed_form(coupled: bool) -> None:
    """A lattice in three dimensions has the mass and the moments of the normal law in four, and the moments of a level
    are those of the lattice in four."""
    tables, found, chain = block("untied, det of both signs", 2)
    V = np.tile(0.5 * np.eye(4), (2, 1, 1))
    if coupled:
        # Queries and keys of one layer.
        V[:, 0, 1] = V[:, 1, 0] = 0.2
    chain = Tabulated(tables, found.u, Cavity.of(found.omega, V, tables.order)).chain()
    np.testing.assert_array_equal(chain.of_layers["apart"], [[0, 1], [0, 0]])
    whole = replace(chain, of_layers={**chain.of_layers, "apart": np.zeros((2, 2), dtype=np.int64)})
    ways = [Refinement(one, tables.levels(), scouted(one, tables.mixings), 1e-2, True, None) for one in (chain, whole)]
    for way in ways:
        way.level.steps[:], way.level.sides[:] = [0.4, 0.5], 20
        rows = nodes_of(way.given(np.arange(2)), 0, 0, True).features[:, 0].sum(axis=1) / (2 * np.pi) ** 2
        assert rows[0] == pytest.approx(1.0, abs=2e-3)
        np.testing.assert_allclose(rows[1:5], 0.0, atol=2e-3)
        np.testing.assert_allclose(rows[21:], [1, 0, 0, 0, 1, 0, 0, 1, 0, 1], atol=1e-2)
    ours, theirs = (way.at(np.arange(2), False) for way in ways)
    few, many = (nodes_of(way.given(np.arange(2)), 0, 0, False).h.shape[2] for way in ways)
    assert few < 0.2 * many
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=3e-2)
    np.testing.assert_allclose(ours.log_norm, theirs.log_norm, atol=3e-2)
    np.testing.assert_allclose(ours.second, theirs.second, atol=6e-2)


def test_rows_of_which_differences_are_seen() -> None:
    """Softmax reads differences of keys; scores of one row, and of heads, read more."""
    untied, heads = (compiled(NETWORKS[name]) for name in ("untied, det of both signs", "two heads"))
    for model, expected in ((untied, [[0, 1], [0]]), (heads, [[0], [0, 0]])):
        assert isinstance(model.channel.posterior, ByTables)
        assert [own.astype(int).tolist() for own in model.channel.posterior.tables.apart] == expected
    # A row with which a later one of its layer is coupled is integrated as it is.
    tables, found, _ = block("untied, det of both signs", 1)
    turned = Chain.of(
        tables.kinds, tables.row_sums, tables.flips, [np.array([True, False]), np.array([False])], tables.creases,
        omega=found.omega, factor=found.factor + 0.1 * np.eye(4, k=-1), points=tables.points(found.u)[0],
        weight=tables.points(found.u)[1],
    )  # fmt: skip
    assert not turned.of_layers["apart"].any()


def test_coordinates_of_tables() -> None:
    """Logarithms far out, of the sign of what they stand for, and one near zero."""
    x = np.array([-3e5, -2.0, -1e-9, 0.0, 1e-9, 0.5, 7e8])
    np.testing.assert_allclose(unlogged(logged(x)), x, rtol=1e-13)
    np.testing.assert_allclose(logged(x[2:5]), x[2:5], rtol=1e-8)
    # Both signs of delta = 1 / (1 + x + y) are told apart where x and y are of one sign.
    p, q = np.random.default_rng(0).uniform(size=(2, 1000))
    delta = 1 - p - q
    total = logged(p / delta) + logged(q / delta)
    np.testing.assert_array_equal(0.5 + total > 0, delta > 0)


@pytest.mark.parametrize("distance", [0.0, 1.5, 8.0])
def test_rules_between_creases_are_the_normal_law(distance: float) -> None:
    """And of steep functions of a score they are those of scipy, where a lattice errs by its step."""
    tables, _, chain = block("steep", 1)
    given = Refinement(chain, tables.levels(), scouted(chain, tables.mixings), 1e-4, False, None).given(np.arange(1))
    k = 2
    assert given.rules[0, k, 0] > 0
    around = distance * np.array([0.8, 0.6])
    omega = given.omega.copy()
    omega[0, k] = around * given.factor[0, k, k]
    given = given._replace(omega=omega, rules=np.full_like(given.rules, 20))
    c = np.array([0.9, 0.1, 0.3, 0.7])
    nodes = sectors_of(given, 0, k, 4 * c[:, None], True)
    mass = nodes.features[0, 0]
    assert mass.sum() == pytest.approx(2 * np.pi, rel=1e-4)
    assert np.abs(nodes.features[4:8, 0].sum(axis=1)).max() < 2e-3 * mass.sum()
    u = 4 * np.stack([0.9 * nodes.h[0, 0] + 0.1 * nodes.h[1, 0], 0.3 * nodes.h[0, 0] + 0.7 * nodes.h[1, 0]])
    ours = (mass / (1 + np.exp(-u[0] * (u[1] - u[0])))).sum() / mass.sum()
    scale = given.factor[0, k, k]

    def own(angle: float) -> float:
        e = np.array([np.cos(angle), np.sin(angle)])
        v = 4 * scale * np.array([0.9 * e[0] + 0.1 * e[1], 0.3 * e[0] + 0.7 * e[1]])
        slope = v[0] * (v[1] - v[0])

        def along(rho: float) -> float:
            gap = rho * e - around
            return float(rho * np.exp(-0.5 * gap @ gap) / (1 + np.exp(-np.clip(slope * rho * rho, -600, 600))))

        low, high = max(0.0, float(e @ around) - 6), max(1e-9, float(e @ around) + 6)
        return float(integrate.quad(along, low, high, epsabs=1e-9, limit=200)[0])

    pieces = pieces_of(given, 0, k, 4 * c, around)
    cuts = [end for piece in pieces for end in piece]
    turns = [p for turn in (-np.pi, 0.0, np.pi) for p in np.array(cuts) + turn]
    low, high = -np.pi, np.pi
    points = sorted(p for p in turns if low < p < high)
    theirs = integrate.quad(own, low, high, points=points, epsabs=1e-7, limit=400)[0] / (2 * np.pi)
    assert ours == pytest.approx(theirs, abs=2e-4)


def test_a_lattice_of_one_row_is_all_places_and_their_opposites() -> None:
    """Against sums over every place of the lattice, none of them folded; in a ball, and in a box that cuts it."""
    tables, _, chain = block("three", 2)
    whole = Refinement(chain, tables.levels(), scouted(chain, tables.mixings), 1e-2, True, None).given(np.arange(2))
    cut = whole.boxes.copy()
    cut[:, 0], cut[:, 1] = -1.3, 2.1
    for given, s, k in itertools.product((whole, whole._replace(boxes=cut)), range(2), range(2)):
        nodes, step, radius = nodes_of(given, s, k, True), given.steps[s, k], given.radius[s]
        place = np.stack(np.meshgrid(*[np.arange(-60, 61)] * 2, indexing="ij")).reshape(2, -1)
        c, d = np.cos(TURN), np.sin(TURN)
        x = np.array([[c, -d], [d, c]]) @ (place * step)
        z = x - (given.inverse[s, k, k] * given.omega[s, k])[:, None]
        ends = given.boxes[s, :, 2 * k : 2 * k + 2]
        held = ((z >= ends[0][:, None]) & (z <= ends[1][:, None])).all(axis=0) & ((z * z).sum(axis=0) <= radius**2)
        mass = np.where(held, np.exp(-0.5 * (z * z).sum(axis=0)), 0.0) * step**2
        odd = 1 - 2 * (place % 2)
        rows = nodes.features[:, 0].sum(axis=1)
        expected = [mass.sum(), *(mass * z).sum(axis=1), *(mass * odd).sum(axis=1), (mass * odd[0] * odd[1]).sum()]
        np.testing.assert_allclose(rows[[0, 1, 2, 4, 5, 6]], expected, atol=1e-12)
        np.testing.assert_allclose(
            rows[8:], [(mass * z[a] * z[b]).sum() for a, b in ((0, 0), (0, 1), (1, 1))], atol=1e-12
        )
        # An even function of the fields is the same sum.
        h = nodes.h[:, 0] / given.factor[s, k, k]
        even = (mass * np.cos(x[0]) * np.cos(0.7 * x[1])).sum()
        assert (nodes.features[0, 0] * np.cos(h[0]) * np.cos(0.7 * h[1])).sum() == pytest.approx(even, abs=1e-12)


def test_compiled_weights_too_small_for_floats_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Late fields hundreds of deviations away at every state: sums of exponents that no float holds."""
    pytest.importorskip("numba")
    tables, _, chain = block("three", 3)
    chain.of_samples["late"][:] += np.array([0.0, 30.0, 60.0])[:, None, None]
    monkeypatch.setenv("SMISYM_BACKEND", "numba")
    run = compiled_levels(tables.programs)
    assert run is not None
    spans, everyone = scouted(chain, tables.mixings), np.arange(3)

    def by_numpy(given: Given, found: Found, room: int, look: bool, cov: bool) -> None:
        levels_in_numpy(tables.mixings, given, found, look=look, cov=cov)

    ours, theirs = (Refinement(chain, how, spans, 3e-2, True, None).at(everyone, True) for how in (by_numpy, run))
    assert ours.log_norm[2] < -700.0
    for mine, his in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, his, rtol=1e-9, atol=1e-12)


def test_creases_are_where_scores_of_a_row_agree() -> None:
    """U_1 (U_2 - U_1) and U_2 (U_1 - U_2) vanish along three lines; none is claimed of other scores."""
    tables, _, _ = block("three", 1)
    np.testing.assert_allclose(np.sort(tables.creases[0]), [0, np.pi / 4, np.pi / 2], atol=1e-12)
    other = trace(lambda u, v: [np.exp(u * v + 1.0), u, v, 1.0], ["u", "v"])
    assert creases(other).size == 0
    linear = trace(lambda u, v: [u * u, u * v, u * v, v * v], ["u", "v"])
    assert creases(linear).size == 0


def test_polynomials_pass_through_their_nodes() -> None:
    n = 7
    unit = np.cos(np.pi * (np.arange(n) + 0.5) / n)
    values = np.random.default_rng(0).standard_normal((n, n))
    T = levels.cosines(n)[n, :n, :n]
    c = T @ values @ T.T
    np.testing.assert_allclose(chebyshev.chebgrid2d(unit, unit, c), values, atol=1e-12)
    x = np.random.default_rng(1).uniform(-1, 1, 9)
    np.testing.assert_allclose(polynomials(x, n), chebyshev.chebvander(x, n - 1).T, atol=1e-12)


def test_beyond_a_box_functions_go_on_along_their_slope_and_never_rise() -> None:
    c = np.random.default_rng(2).standard_normal((6, 6))
    inside = np.array([0.3, -0.9]), np.array([-0.2, 0.99])
    np.testing.assert_allclose(beyond(c, *inside), chebyshev.chebval2d(*inside, c), atol=1e-12)
    edge = np.ones(3), np.array([-0.5, 0.1, 0.8])
    at = chebyshev.chebval2d(*edge, c)
    slope = chebyshev.chebval2d(*edge, chebyshev.chebder(c, axis=0))
    far = beyond(c, edge[0] + 0.25, edge[1])
    np.testing.assert_allclose(far, at + 0.25 * np.minimum(slope, 0), atol=1e-12)
    # Falling or flat, and so bounded by the value at the border.
    assert (beyond(c, edge[0] + 40.0, edge[1]) <= at + 1e-12).all()


@pytest.mark.parametrize(("name", "rtol"), [("three", 1e-3), ("steep", 1e-3), ("untied, det of both signs", 1e-2)])
def test_covariances_are_derivatives_of_means(name: str, rtol: float) -> None:
    """d m / d omega = C V^{-1}: second moments by what one layer carries on to another, against finite differences of
    means that come from messages."""
    model = compiled(NETWORKS[name])
    posterior = model.channel.posterior
    assert isinstance(posterior, ByTables)
    alone = Channel(model.link, posterior.tables)
    z = np.random.default_rng(5).standard_normal((1, 2, model.fields, 2))
    omega, V = 0.7 * z[:, 0], 0.5 * np.eye(model.fields)
    y = model.observe(omega + np.sqrt(0.5) * z[:, 1])
    whole = alone.moments(y, omega, V, cov=True, rtol=rtol)
    assert whole.cov is not None and whole.result.ok
    step = 2e-2
    for p in range(model.fields):
        moved = np.zeros_like(omega)
        moved[0, p, 0] = step
        up, down = (alone.moments(y, omega + sign * moved, V, rtol=rtol).mean for sign in (1, -1))
        slope = (up - down)[0] / (2 * step)
        expected = whole.cov[0, :, :, p, 0] / 0.5
        assert np.abs(slope - expected).max() <= 3e-2 * max(1.0, np.abs(expected).max())
