"""Outputs that share a cavity: against posteriors one by one, against sums over draws of fields, and their errors."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention
from smisym.model.channel import Channel, Moments
from smisym.posterior.composite import BySharedRows
from smisym.posterior.shared_lattices import ball, row_points

A = Attention
SHARED: dict[str, Architecture] = {
    "two": Architecture(2, (A(), A())),
    "little skip": Architecture(2, (A(skip=0.3), A(skip=0.3))),
    "tokens": Architecture(3, (A(), A())),
    "linear": Architecture(2, (A(activation="linear"), A())),
    "untied": Architecture(2, (A(tied=False), A())),
    "heads": Architecture(2, (A(), A(heads=2))),
    "untied last": Architecture(2, (A(), A(tied=False))),
    "rank two last": Architecture(2, (A(), A(rank=2))),
}


def shared_of(model: smisym.Model) -> BySharedRows:
    assert model.channel.shared is not None
    return model.channel.shared


def at_rest(model: smisym.Model, Z: np.ndarray, rtol: float, channel: Channel | None = None) -> Moments:
    """Moments of the outputs of fields Z where nothing is known beside them."""
    return (channel or model.channel.still).moments(
        model.observe(Z), np.zeros_like(Z), np.eye(model.fields), cov=True, rtol=rtol
    )


def fields(model: smisym.Model, samples: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((samples, model.fields, model.tokens))


@pytest.mark.parametrize("name", SHARED)
def test_shared_rows_agree_with_posteriors_one_by_one(name: str) -> None:
    """All moments, and the density; the others are by an adaptive lattice over the level set of the whole network."""
    model = smisym.compile(SHARED[name])
    Z = fields(model, 6)
    free = model.channel.free_dimensions
    rtol = 1e-6 if free <= 3 else 1e-3
    shared = at_rest(model, Z, rtol)
    alone = at_rest(model, Z, rtol, Channel(model.link, model.channel.posterior))
    assert shared.cov is not None
    assert alone.cov is not None
    size = 1 + np.linalg.norm(alone.cov.reshape(len(Z), -1), axis=1)
    allowed = 30 * np.maximum(np.maximum(shared.error, alone.error), 1e-8)
    assert (np.abs(np.expm1(shared.log_partition - alone.log_partition)) < allowed).all()
    assert (np.abs(shared.mean - alone.mean).max(axis=(1, 2)) < allowed).all()
    assert (np.linalg.norm((shared.cov - alone.cov).reshape(len(Z), -1), axis=1) < allowed * size).all()


@pytest.mark.parametrize(("name", "fine"), [("tokens", 1e-4), ("untied", 1e-3)])
def test_stated_errors_hold(name: str, fine: float) -> None:
    """Loose sums against fine ones: in 99 of 100 outputs the change is no more than twice the error."""
    model = smisym.compile(SHARED[name])
    Z = fields(model, 200)
    loose, better = at_rest(model, Z, 10 * fine), at_rest(model, Z, fine)
    moved = np.abs(np.expm1(loose.log_partition - better.log_partition))
    assert np.mean(moved <= 2 * loose.error) > 0.99
    assert np.mean(better.error <= fine) > 0.95


def test_who_is_served() -> None:
    """Batches at omega = 0 with one covariance that does not couple first and later fields, if there are enough."""
    model = smisym.compile(SHARED["two"])
    shared, V = shared_of(model), np.diag([0.7, 0.4])[None]
    still = np.zeros((64, 2, 2))
    assert shared.serves(still, V)
    assert shared.serves(still, np.broadcast_to(V, (64, 2, 2)))
    assert not shared.serves(still[:2], V)
    assert not shared.serves(still + 0.1, V)
    assert not shared.serves(still, V + 0.1)
    assert not shared.serves(still, V * (1 + np.arange(64) / 64)[:, None, None])
    assert smisym.compile(Architecture(2, (A(),))).channel.shared is None
    assert smisym.compile(Architecture(2, (A(), A()), noise=0.1)).channel.shared is None


def test_a_covariance_other_than_one() -> None:
    """Any V that does not couple first and later fields: against posteriors one by one."""
    model = smisym.compile(Architecture(2, (A(heads=2, readout=(0.5, 1.0)), A())))
    V = np.array([[0.7, 0.2, 0.0], [0.2, 0.6, 0.0], [0.0, 0.0, 0.3]])
    Z = np.linalg.cholesky(V) @ fields(model, 3)
    y, still = model.observe(Z), np.zeros_like(Z)
    one, other = (c.moments(y, still, V, cov=True, rtol=1e-3) for c in (model.channel.still, model.channel))
    assert one.cov is not None
    assert other.cov is not None
    assert np.abs(one.log_partition - other.log_partition).max() < 1e-2
    assert np.abs(one.cov - other.cov).max() < 1e-2


def test_a_batch_asks_for_rows_by_itself() -> None:
    """The channel's own moments at omega = 0 are those of the rows, and a single output's those of the level set."""
    model = smisym.compile(SHARED["two"])
    Z = fields(model, 32)
    many = at_rest(model, Z, 1e-8, model.channel)
    rows = at_rest(model, Z, 1e-8)
    assert np.array_equal(many.log_partition, rows.log_partition)
    assert many.nodes.min() > 100
    few = at_rest(model, Z[:2], 1e-8, model.channel)
    assert np.abs(few.log_partition - many.log_partition[:2]).max() < 1e-7


def test_the_points_of_a_ball() -> None:
    """A Gaussian of three numbers: its mass, and second moments, by points on the positive side of the first axis."""
    x = ball(3, 0.5, 7.0, [0])
    w = 2 * 0.5**3 * np.exp(-0.5 * (x**2).sum(axis=1)) / (2 * np.pi) ** 1.5
    assert x[:, 0].min() > 0
    assert abs(w.sum() - 1) < 1e-9
    assert abs((w * x[:, 1] ** 2).sum() - 1) < 1e-8


@pytest.mark.parametrize(("dim", "positive"), [(3, [0]), (5, [0]), (6, [0, 3])])
def test_the_points_of_rows(dim: int, positive: list[int]) -> None:
    """A Gaussian: its mass and second moments, by points on the positive side, of volumes of their own."""
    x, volume = row_points(dim, 4, positive)
    w = 2 ** len(positive) * np.exp(volume - 0.5 * (x**2).sum(axis=1)) / (2 * np.pi) ** (dim / 2)
    assert x[:, positive].min() >= 0
    assert abs(w.sum() - 1) < 1e-5
    # Quasi-random points of a level, beside lattices.
    np.testing.assert_allclose(np.einsum("n,ni,ni->i", w, x, x), 1.0, atol=1e-4 if dim == 3 else 2e-3)


def test_quasi_random_rows_know_their_error() -> None:
    """Four layers on two tokens, six dimensions: what a hundredth of the error gives, within what is stated."""
    model = smisym.compile(Architecture(2, (A(),) * 4))
    Z = fields(model, 256, 5)
    rough, fine = at_rest(model, Z, 1e-2), at_rest(model, Z, 3e-4)
    assert rough.cov is not None and fine.cov is not None
    size = 1 + np.linalg.norm(fine.cov.reshape(len(Z), -1), axis=1)
    missed = np.linalg.norm((rough.cov - fine.cov).reshape(len(Z), -1), axis=1) / size
    missed = np.maximum(missed, np.abs(np.expm1(rough.log_partition - fine.log_partition)))
    assert (fine.error < 1e-3).mean() > 0.9
    assert (missed < 2 * rough.error).mean() > 0.99
    assert (missed < 4 * rough.error).all()


def test_three_layers_on_three_tokens() -> None:
    """Six dimensions of rows, against posteriors one by one by other lattices of other fields."""
    model = smisym.compile(Architecture(3, (A(), A(), A())))
    Z = fields(model, 1024, 3)
    many, few = at_rest(model, Z, 1e-2), slice(0, 3)
    ours = model.channel.moments(model.observe(Z[few]), np.zeros_like(Z[few]), np.eye(3), cov=True, rtol=1e-2)
    assert many.cov is not None and ours.cov is not None
    known = many.error[few] <= 1e-2
    assert known.any()
    assert (np.abs(many.log_partition[few] - ours.log_partition)[known] < 0.02).all()
    assert (np.abs(many.cov[few] - ours.cov)[known] < 0.03).all()


def test_rows_that_mix_all_but_singularly_have_finite_columns() -> None:
    """Three tokens without a skip: the largest that C makes a vector is read off C, whose inverse has lost it."""
    model = smisym.compile(Architecture(3, (A(skip=0.0), A())))
    Z = fields(model, 2, 3)
    shared = at_rest(model, Z, 1e-2)
    alone = at_rest(model, Z, 1e-2, Channel(model.link, model.channel.posterior))
    allowed = 4 * (shared.error + alone.error)
    assert (np.linalg.norm((shared.mean - alone.mean).reshape(2, -1), axis=1) < allowed).all()
    assert (allowed < 2).all()
