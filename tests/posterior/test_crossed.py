"""Three layers on three tokens and more: lattices that meet, against importance samples that share nothing."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.description import Layer, Network
from oracles.sampling import Estimate, by_importance

import smisym
from smisym import Architecture, Attention
from smisym.integrate.shapes import Region, Shape, gaps, kept, turn
from smisym.model.channel import Channel
from smisym.posterior.composite import ByChain
from smisym.posterior.crossed import OnCrossed, solve
from smisym.posterior.level_set import OnLevelSet
from smisym.posterior.pairing import Paired

A = Attention
EARLY, START, LATE = (0.3, 0.3, 0.9), (0.0, 0.0, 0.0), (0.9, 0.9, 0.99)
COUPLED = np.array([[0.7, 0.2, -0.1], [0.2, 0.6, 0.15], [-0.1, 0.15, 0.3]])


def crossed(tokens: int, layers: tuple[Attention, ...]) -> tuple[smisym.Model, Channel, OnCrossed]:
    """A network, its channel by lattices alone, and their kind."""
    model = smisym.compile(Architecture(tokens, layers))
    posterior = model.channel.posterior
    assert isinstance(posterior, ByChain) and isinstance(posterior.chain, OnCrossed)
    return model, Channel(model.link, posterior.chain), posterior.chain


def drawn(model: smisym.Model, V: np.ndarray, samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(Z, omega) of a cavity that has learned I - V."""
    P, T = model.fields, model.tokens
    z = np.random.default_rng(seed).standard_normal((samples, 2, P, T))
    values, vectors = np.linalg.eigh(np.eye(P) - V)
    omega = (vectors * np.sqrt(np.maximum(values, 0.0))) @ z[:, 0]
    return omega + np.linalg.cholesky(V) @ z[:, 1], omega


def apart(mean: np.ndarray, other: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Between means (S, P, T), in the norm of V^{-1}."""
    gap = mean - other
    return np.sqrt(np.einsum("spt,pq,sqt->s", gap, np.linalg.inv(V), gap))


def sampled(Z: np.ndarray, omega: np.ndarray, V: np.ndarray, skip: float, seed: int, samples: int) -> Estimate:
    network = Network(Z.shape[1], (Layer(skip=skip),) * len(Z))
    return by_importance(Z, omega, V, network, np.random.default_rng(seed), samples=samples)


@pytest.mark.parametrize(
    ("tokens", "skip", "V"),
    [(3, skip, np.diag(1 - np.array(EARLY))) for skip in (0.3, 1.0, 3.0)]
    + [(3, 1.0, np.eye(3)), (3, 1.0, np.diag(1 - np.array(LATE))), (3, 1.0, COUPLED), (4, 1.0, np.eye(3))],
    ids=lambda v: f"{np.diag(v).tolist()}" if isinstance(v, np.ndarray) else str(v),
)
def test_against_importance_samples(tokens: int, skip: float, V: np.ndarray) -> None:
    """Means within stated errors and those of the sample; log-partitions differ by what the chart leaves out, which an
    output alone decides: not by the cavity."""
    model, channel, _ = crossed(tokens, (A(skip=skip),) * 3)
    count = 1
    Z, omega = drawn(model, V, count, 3)
    rtol = 1e-2 if tokens == 3 else 5e-2
    found = channel.moments(model.observe(Z), omega, V, rtol=rtol)
    assert (found.error <= rtol).all()
    wide, still = np.eye(3), np.zeros_like(omega)
    other = channel.moments(model.observe(Z), still, wide, rtol=rtol)
    for k in range(count):
        theirs = sampled(Z[k], omega[k], V, skip, k, 2**15)
        also = sampled(Z[k], still[k], wide, skip, 10 + k, 2**15)
        error = float(np.sqrt(np.einsum("pt,pp->", theirs.error**2, np.diag(1 / np.diag(V)))))
        assert apart(found.mean[k][None], theirs.mean[None], V)[0] <= found.error[k] + 3 * error
        assert theirs.log_partition is not None and also.log_partition is not None
        assert theirs.log_partition_error is not None and also.log_partition_error is not None
        change = found.log_partition[k] - other.log_partition[k]
        allowed = found.error[k] + other.error[k] + 4 * np.hypot(theirs.log_partition_error, also.log_partition_error)
        assert abs(change - (theirs.log_partition - also.log_partition)) <= allowed


def whitened_by_sobol(Z: np.ndarray, omega: np.ndarray, v: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """First and second moments (9,), (9, 9) of whitened fields of three layers of skip 1, three tokens, V = diag v."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    def mixing(U: np.ndarray) -> np.ndarray:
        scores = np.exp(U[:, :, None] * U[:, None, :])
        return np.eye(3) + scores / scores.sum(axis=2, keepdims=True)

    def behind(h: np.ndarray) -> np.ndarray:
        B = mixing(h[:, 0])
        return mixing(np.einsum("ntu,nu->nt", B, h[:, 1])) @ B

    u = behind(Z[None])[0] @ Z[2]
    x = ndtri(qmc.Sobol(6, rng=np.random.default_rng(5)).random(count)).reshape(-1, 2, 3)
    B = behind(omega[:2] + np.sqrt(v[:2])[:, None] * x)
    h = np.linalg.solve(B, np.broadcast_to(u[:, None], (count, 3, 1)))[..., 0]
    weight, points = [], []
    for sign in (1.0, -1.0):
        last = (sign * h - omega[2]) / np.sqrt(v[2])
        weight.append(-0.5 * (last**2).sum(axis=1) - np.linalg.slogdet(B)[1])
        points.append(np.concatenate([x.reshape(count, 6), last], axis=1))
    w, zeta = np.exp(np.concatenate(weight) - np.max(weight)), np.concatenate(points)
    w /= w.sum()
    return w @ zeta, np.einsum("n,ni,nj->ij", w, zeta, zeta)


def test_covariances() -> None:
    """Against quasi-random numbers: those of a thousandth are told apart."""
    v = np.array([0.6, 0.7, 0.5])
    model, channel, _ = crossed(3, (A(),) * 3)
    Z, omega = drawn(model, np.diag(v), 2, 8)
    found = channel.moments(model.observe(Z), omega, np.diag(v), cov=True, rtol=3e-3)
    assert found.cov is not None
    scale = np.repeat(np.sqrt(v), 3)
    for k in range(2):
        mean, second = whitened_by_sobol(Z[k], omega[k], v, 2**18)
        ours = found.cov[k].reshape(9, 9) / np.outer(scale, scale)
        np.testing.assert_allclose((found.mean[k] - omega[k]).ravel() / scale, mean, atol=0.01)
        np.testing.assert_allclose(ours, second - np.outer(mean, mean), atol=0.02)


@pytest.mark.parametrize(
    "layers", [(A(mask="causal"), A()), (A(), A(activation="linear")), (A(beta=2.0), A())], ids=str
)
def test_other_first_layers(layers: tuple[Attention, ...]) -> None:
    """Against the level set as a whole, which is sampled."""
    model, channel, _ = crossed(3, (*layers, A()))
    whole = model.channel.posterior.otherwise  # type: ignore[attr-defined]
    assert isinstance(whole, OnLevelSet)
    V = np.diag([0.6, 0.7, 0.3])
    Z, omega = drawn(model, V, 2, 4)
    found = channel.moments(model.observe(Z), omega, V, rtol=2e-2)
    theirs = Channel(model.link, whole).moments(model.observe(Z), omega, V, rtol=1e-2)
    known = found.error <= 2e-2
    assert known.any()
    assert (apart(found.mean, theirs.mean, V) <= found.error + 4 * theirs.error)[known].all()
    assert (np.abs(found.log_partition - theirs.log_partition) <= found.error + 4 * theirs.error)[known].all()


def test_stated_errors_hold() -> None:
    """Against the same to a tenth of the error; at small covariances, too."""
    model, channel, _ = crossed(3, (A(),) * 3)
    for V in (np.diag(1 - np.array(EARLY)), 1e-4 * np.eye(3), np.diag([1e-3, 1e-2, 1e-3])):
        Z, omega = drawn(model, V, 4, 12)
        y = model.observe(Z)
        found, fine = (channel.moments(y, omega, V, rtol=rtol) for rtol in (2e-2, 2e-3))
        known = fine.error < 4e-3
        assert known.sum() >= 3 and (found.error <= 2e-2).all()
        assert (apart(found.mean, fine.mean, V) <= found.error + fine.error)[known].all()


def test_what_is_too_large_is_left_to_others() -> None:
    """One row meets more than a budget allows: nothing is known, and nothing is claimed."""
    model, channel, _ = crossed(3, (A(),) * 3)
    Z, omega = drawn(model, np.eye(3), 1, 1)
    found = channel.moments(model.observe(Z), omega, np.eye(3), rtol=1e-2, max_nodes=1)
    assert np.isinf(found.error).all() and not found.result.ok
    whole = model.channel.moments(model.observe(Z), omega, np.eye(3), rtol=0.2, max_nodes=1)
    assert np.isfinite(whole.mean).all() or not whole.result.ok


@pytest.mark.parametrize("cov", [False, True])
def test_numpy_and_compiled_loops_agree(cov: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same nodes, and the same numbers to twelve digits."""
    pytest.importorskip("numba")
    model, _, kind = crossed(3, (A(),) * 3)
    V = np.diag(1 - np.array(EARLY))
    Z, omega = drawn(model, V, 1, 2)
    found = []
    for name in ("numpy", "numba"):
        monkeypatch.setenv("SMISYM_BACKEND", name)
        one = kind.at(kind.read(model.observe(Z)), omega, V[None])
        found.append(solve(Paired(one.chained), 5e-2, cov, 2**24))
    ours, theirs = found
    assert ours is not None and theirs is not None and ours.nodes == theirs.nodes
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-12)
    np.testing.assert_allclose(ours.log_norm, theirs.log_norm, rtol=1e-12)
    np.testing.assert_allclose(ours.error, theirs.error, rtol=1e-9)
    if cov:
        assert ours.second is not None and theirs.second is not None
        np.testing.assert_allclose(ours.second, theirs.second, atol=1e-12)


# ------------------------------------------------------------------------------------------------------------- lattices


@pytest.mark.parametrize("dim", [3, 4])
def test_a_gaussian_on_a_lattice_in_its_shape(dim: int) -> None:
    """Its mass and its mean, to the spectrum of a step: exp(-2 pi^2 / h^2) for each of the shortest dual vectors."""
    rng = np.random.default_rng(dim)
    factor, centre = rng.standard_normal((dim, dim)), rng.standard_normal(dim)
    covariance = factor @ factor.T + 0.1 * np.eye(dim)
    precision = np.linalg.inv(covariance)
    shape = Shape.of(centre, covariance, precision, Region(centre, precision / 4))
    nodes = shape.within(np.array([6.5, 6.5]), 1.0, 10**6)
    assert nodes is not None
    square = shape.regions[0].radius(nodes.points) ** 2
    weight = np.exp(nodes.log_volume - 0.5 * square - 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1])
    assert abs(weight.sum() - 1) < 4 * dim * np.exp(-2 * np.pi**2) + 1e-7
    np.testing.assert_allclose(weight @ nodes.points, centre, atol=1e-6)
    sets = np.stack(
        [
            np.r_[weight[nodes.parity == p].sum(), weight[nodes.parity == p] @ nodes.points[nodes.parity == p]]
            for p in range(2**dim)
        ]
    )
    # Half of the nodes along one axis: the step is doubled there.
    single = gaps(sets)[[2**a - 1 for a in range(dim)]]
    assert (single < 0.1).all() and (single > 0).any()
    np.testing.assert_allclose(turn(dim) @ turn(dim).T, np.eye(dim), atol=1e-12)


def test_a_finer_lattice_keeps_near_what_is_kept() -> None:
    """Every node of the finer one lies in the cell of a kept node, and no such node is left out."""
    shape = Shape(np.zeros(3), turn(3), (Region(np.zeros(3), np.eye(3)),))
    coarse = shape.within(np.array([3.0]), 1.0, 10**6)
    assert coarse is not None
    chosen = kept(np.exp(-0.5 * shape.regions[0].radius(coarse.points) ** 2), 0.05)
    fine, every = shape.near(coarse, chosen, 0.4, 10**6), shape.within(np.array([6.0]), 0.4, 10**6)
    assert fine is not None and every is not None
    assert shape.near(coarse, chosen, 0.4, len(fine) - 1) is None and shape.within(np.array([6.0]), 0.4, 1000) is None
    cells = {tuple(place) for place in coarse.places[chosen]}
    inside = [tuple(np.rint(place * 0.4).astype(int)) in cells for place in every.places]
    assert {tuple(p) for p in fine.places} == {tuple(p) for p in every.places[inside]}


def test_a_long_thin_region_costs_what_stands_in_it() -> None:
    """A needle across all axes: a box around it has 3e9 nodes, and the search holds few more than there are."""
    axis = np.ones(4) / 2
    metric = np.eye(4) - (1 - 1 / 60**2) * np.outer(axis, axis)
    shape = Shape(np.zeros(4), np.eye(4), (Region(np.zeros(4), metric),))
    nodes = shape.within(np.array([4.0]), 1.0, 10**5)
    assert nodes is not None
    # The volume of the region, and no node twice: what stands in it is known to its surface.
    volume = np.pi**2 / 2 * 4.0**4 * 60
    assert abs(len(nodes) / volume - 1) < 0.02 and len(np.unique(nodes.places, axis=0)) == len(nodes)
    assert (shape.regions[0].radius(nodes.points) <= 4).all() and (np.ptp(nodes.places, axis=0) > 150).all()
    # Neighbours of nodes inside are nodes, where they are inside.
    there = {tuple(place) for place in nodes.places}
    for step in np.eye(4, dtype=int):
        beside = nodes.places + step
        within = shape.regions[0].radius(beside.astype(float)) <= 4
        assert all(tuple(place) in there for place in beside[within])


def test_what_is_kept_holds_the_mass() -> None:
    mass = np.array([0.5, 1e-4, 0.3, 2e-4, 0.1997])
    np.testing.assert_array_equal(kept(mass, 1.5e-4), [True, False, True, True, True])
