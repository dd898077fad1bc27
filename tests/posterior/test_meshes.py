"""Deep networks on two tokens by meshes: loops against numpy, stencils against polynomials, errors against finer levels
and against tables of another kind, and depths up to sixteen by Nishimori."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from smisym import Architecture, Attention
from smisym import compile as compiled
from smisym.kernels.meshes import Mesh, Seen, compiled_meshes
from smisym.kernels.stencil_weights import powers
from smisym.model.channel import Channel
from smisym.posterior import mesh_in_numpy as ours
from smisym.posterior.composite import ByTables
from smisym.posterior.mesh_nodes import fans
from smisym.posterior.meshing import Meshing, boxed, drawn_ahead
from smisym.posterior.tables import Tabulated

A = Attention
NETWORKS = {
    "four": Architecture(2, (A(),) * 4),
    "little skip": Architecture(2, (A(skip=0.3),) * 5),
    "much skip": Architecture(2, (A(skip=3.0),) * 4),
    "causal": Architecture(2, (A(), A(mask="causal"), A(), A())),
    "linear before the last": Architecture(2, (A(), A(), A(activation="linear", beta=0.3), A())),
    "two heads at the end": Architecture(2, (A(), A(), A(), A(heads=2))),
}


def block(declared: Architecture, q: float, samples: int, seed: int = 3) -> Tabulated:
    """Posteriors of outputs drawn at an overlap, the last layer known better."""
    model = compiled(declared)
    assert isinstance(model.channel.posterior, ByTables)
    Q = np.full(model.fields, q)
    Q[-1] = 1 - (1 - q) ** 2
    z = np.random.default_rng(seed).standard_normal((samples, 2, model.fields, 2))
    omega = np.sqrt(Q)[:, None] * z[:, 0]
    tables = model.channel.posterior.tables
    observed = tables.read(model.observe(omega + np.sqrt(1 - Q)[:, None] * z[:, 1]))
    V = np.broadcast_to(np.diag(1 - Q), (samples, model.fields, model.fields))
    found = tables.at(observed, omega, V)
    assert isinstance(found, Tabulated)
    return found


def by_numpy(found: Tabulated, rtol: float, cov: bool = False, most: int | None = None) -> Meshing:
    def run(mesh: Mesh, seen: Seen, cov: bool) -> None:
        ours.meshes_in_numpy(found.kind.mixings, mesh, seen, cov=cov)

    return Meshing(found.chain(), run, found.kind.mixings, rtol, cov, most)


@pytest.mark.parametrize("cov", [False, True], ids=["means", "covariances"])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_compiled_meshes_are_those_of_numpy(name: str, cov: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    found = block(NETWORKS[name], 0.3, 2)
    monkeypatch.setenv("SMISYM_BACKEND", "numba")
    run = compiled_meshes(found.kind.programs)
    assert run is not None
    one, other = by_numpy(found, 5e-2, cov), Meshing(found.chain(), run, found.kind.mixings, 5e-2, cov, None)
    everyone = np.arange(2)
    for _ in range(2):
        mine, theirs = one.at(everyone), other.at(everyone)
        assert np.isfinite(mine.log_norm).all()
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
        parts = one.missed(everyone, mine)
        one.refine(everyone, mine, parts, everyone)
        other.rung = replace(one.rung)


def test_stencils_are_polynomials() -> None:
    """Products of fifth degrees between the nodes of a mesh, wherever in it, to rounding; the transpose gives back."""
    n, rng = np.array([9, 12]), np.random.default_rng(0)
    i, j = (v.reshape(n) for v in np.meshgrid(np.arange(9.0), np.arange(12.0), indexing="ij"))
    c = rng.standard_normal((6, 6))
    table = np.polynomial.polynomial.polyval2d(i / 9, j / 12, c).ravel()
    place = rng.uniform(0, 8, 50), rng.uniform(0, 11, 50)
    value, out = ours.read(table, place, n)
    np.testing.assert_allclose(value, np.polynomial.polynomial.polyval2d(place[0] / 9, place[1] / 12, c), atol=1e-9)
    assert not out.any()
    np.testing.assert_allclose(powers() @ np.ones(6), np.eye(6)[0], atol=1e-12)
    # Beyond the border functions go on along their slope and never rise.
    falling, outside = ours.read((-i - 2 * j).ravel(), (np.array([10.0, 4.0]), np.array([3.0, -2.0])), n)
    np.testing.assert_allclose(falling, [-16.0, -4.0], atol=1e-12)
    assert outside.all()


@pytest.mark.parametrize("far", [0.0, 1.5])
def test_fans_are_the_normal_law(far: float) -> None:
    """Masses add up to 2 pi, each image with its own mean, also of the fewer nodes of states far out."""
    found = block(NETWORKS["four"], 0.3, 1)
    meshing = by_numpy(found, 1e-3)
    meshing.rung.rules[:] = 24
    mesh = meshing.mesh(np.arange(1))
    for k in range(3):
        C = mesh.scales[k] * np.array([[0.9], [0.1], [0.35], [0.65]])
        fan = fans(mesh, 0, k, C, np.array([far]), True)
        rows = fan.features[:, 0]
        assert rows[0].sum() == pytest.approx(2 * np.pi, rel=1e-3)
        np.testing.assert_allclose(rows[1:3].sum(axis=1), 0.0, atol=5e-3)
        np.testing.assert_allclose(rows[4:].sum(axis=1) / (2 * np.pi), [1, 0, 1], atol=2e-2)
        assert fan.count[0] >= (rows[0] > 0).sum()
    assert fans(mesh, 0, 1, C, np.array([0.0]), False).count > fans(mesh, 0, 1, C, np.array([1.5]), False).count


def test_boxes_are_around_what_is_drawn() -> None:
    rng = np.random.default_rng(1)
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    states = (turn @ (np.array([[2.0], [0.1]]) * rng.standard_normal((2, 400))))[:, None]
    weight = np.full((1, 400), 1 / 400)
    box = boxed(states, weight)[0]
    unit = np.linalg.solve(box[2:].reshape(2, 2), states[:, 0] - box[:2, None])
    assert np.abs(unit).max() <= 1.0
    # Along the axes of what is drawn, and as narrow.
    long, short = np.sort(np.linalg.svd(box[2:].reshape(2, 2), compute_uv=False))[::-1]
    assert 15 < long / short < 30
    # States of a network's own draws are of positive entries, and most of them are inside.
    found = block(NETWORKS["four"], 0.3, 2)
    assert np.isfinite(drawn_ahead(found.chain(), found.kind.mixings)).all()


@pytest.mark.parametrize(("name", "q"), [("four", 0.0), ("four", 0.9), ("little skip", 0.3), ("much skip", 0.9)])
def test_errors_are_stated(name: str, q: float) -> None:
    """Against a tenth of the error, and against polynomials on boxes with lattices for nodes, which share nothing."""
    found = block(NETWORKS[name], q, 6, 11)
    rough, fine = by_numpy(found, 3e-2).run(), by_numpy(found, 3e-3, most=2 * 10**7).run()
    other = found.by_polynomials(1e-2, False, None)
    assert (rough.error <= 3e-2).all()
    for known in (fine, other):
        off = np.maximum(np.linalg.norm(rough.mean - known.mean, axis=1), np.abs(rough.log_norm - known.log_norm))
        sure = known.error <= 1e-2
        assert sure.sum() >= 4
        assert (off <= rough.error + known.error)[sure].all()


def test_which_chains_are_meshes() -> None:
    """Those of one row a layer, more than two of them."""
    for layers, expected in (((A(),) * 4, True), ((A(),) * 3, False), ((A(), A(tied=False), A(), A()), False)):
        assert block(Architecture(2, layers), 0.0, 1).kind.single == expected


def test_a_level_that_is_too_dear_is_not_tried() -> None:
    found = block(NETWORKS["four"], 0.3, 2)
    short = by_numpy(found, 1e-6, most=1000).run()
    assert not short.converged.any() and np.isinf(short.error).all()


@pytest.mark.parametrize("depth", [8, 12, 16])
def test_depth_costs_little_and_is_bayes(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """E[(m - omega)(m - omega)^T] = E[(m - omega)(Z - omega)^T], at a cost that grows as the depth does."""
    pytest.importorskip("numba")
    monkeypatch.setenv("SMISYM_BACKEND", "numba")
    model = compiled(Architecture(2, (A(),) * depth))
    assert isinstance(model.channel.posterior, ByTables)
    tables = model.channel.posterior.tables
    assert [layer.rows for layer in tables.layers] == [(k,) for k in range(depth - 1)]
    Q, samples = np.array([0.3] * (depth - 1) + [0.9]), 24
    z = np.random.default_rng(2).standard_normal((samples, 2, depth, 2))
    omega = np.sqrt(Q)[:, None] * z[:, 0]
    Z = omega + np.sqrt(1 - Q)[:, None] * z[:, 1]
    found = Channel(model.link, tables).moments(model.observe(Z), omega, np.diag(1 - Q), rtol=0.1)
    assert (found.error <= 0.1).all()
    # One level does, or two.
    assert found.nodes.min() < 2.6e4 * depth and np.median(found.nodes) < 6e4 * depth
    scale = 1 / (1 - Q)
    own = ((found.mean - omega) ** 2).sum(axis=2) * scale
    cross = ((found.mean - omega) * (Z - omega)).sum(axis=2) * scale
    gap = (own - cross).sum(axis=1)
    assert abs(gap.mean()) <= 4.5 * gap.std() / np.sqrt(samples - 1) + 0.1
