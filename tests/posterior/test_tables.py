"""Deep networks on two tokens by tables: against importance sampling of their own, Nishimori, and their errors."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from oracles.declared import described
from oracles.fields import on_fields

import smisym
from smisym import Architecture, Attention
from smisym.base.solution import Result
from smisym.model.channel import Channel, Moments
from smisym.posterior.composite import ByTables
from smisym.posterior.level_chain import scouted
from smisym.posterior.levels import Refinement

A = Attention
START, EARLY, LATE = 0.0, 0.3, 0.9
DEEP: dict[str, Architecture] = {
    "three": Architecture(2, (A(),) * 3),
    "four": Architecture(2, (A(),) * 4),
    "five": Architecture(2, (A(),) * 5),
    "little skip": Architecture(2, (A(skip=0.3),) * 4),
    "much skip": Architecture(2, (A(skip=3.0),) * 4),
    "no skip": Architecture(2, (A(skip=0.0), A(), A(skip=0.0), A())),
    "causal": Architecture(2, (A(), A(mask="causal"), A(), A())),
    "untied": Architecture(2, (A(), A(tied=False), A())),
    "untied, det of both signs": Architecture(2, (A(tied=False, skip=0.3), A(skip=0.3), A())),
    "two heads first": Architecture(2, (A(heads=2), A(), A())),
    "linear before the last": Architecture(2, (A(), A(), A(activation="linear", beta=0.3), A())),
    "rows of one's own": Architecture(2, (A(), A(activation="1 + tanh(s)"), A(), A())),
}
# Which of these are tables.
TABLES = [name for name in DEEP if name != "rows of one's own"]


@cache
def compiled(name: str) -> smisym.Model:
    """Compiled once for all tests here: models are never changed."""
    return smisym.compile(DEEP[name])


def overlaps(name: str, q: float) -> np.ndarray:
    """Of a cavity that knows the last layer best."""
    P = compiled(name).fields
    return np.array([q] * (P - 1) + [1 - (1 - q) ** 2])


def drawn(model: smisym.Model, q: np.ndarray, samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Fields and omega of a cavity that has learned q."""
    z = np.random.default_rng(seed).standard_normal((samples, 2, model.fields, model.tokens))
    omega = np.sqrt(q)[None, :, None] * z[:, 0]
    return omega + np.sqrt(1 - q)[None, :, None] * z[:, 1], omega


def tables_of(model: smisym.Model) -> ByTables:
    posterior = model.channel.posterior
    assert isinstance(posterior, ByTables)
    return posterior


def apart(one: np.ndarray, other: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Between two means, in the norm of V^{-1}."""
    return np.sqrt(np.einsum("spt,p->s", (one - other) ** 2, 1 / V))


def by_importance(
    declared: Architecture, Z: np.ndarray, omega: np.ndarray, V: np.ndarray, samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean (P, T), its errors by batches, and the covariance of all fields (P T, P T): every layer but the last from
    the cavity, the last one solved for, h = +-B^{-1} u with u what it shows, weighted by its density over |det B|."""
    network = described(declared)
    below = replace(network, layers=network.layers[:-1], output="sequence")
    P, T = Z.shape
    (true,) = on_fields(below, Z[None, :-1]).reshape(1, T, T)
    u = true @ Z[-1]
    rng, batches = np.random.default_rng(seed), []
    for _ in range(16):
        h = omega[:-1] + np.sqrt(V[:-1])[:, None] * rng.standard_normal((samples // 16, P - 1, T))
        B = on_fields(below, h).reshape(-1, T, T)
        det = np.linalg.det(B)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            last = np.stack([B[:, 1, 1] * u[0] - B[:, 0, 1] * u[1], B[:, 0, 0] * u[1] - B[:, 1, 0] * u[0]], axis=1)
            last /= det[:, None]
            signs = np.array([1.0, -1.0])[:, None, None]
            log_weight = -0.5 * ((signs * last - omega[-1]) ** 2).sum(axis=2) / V[-1] - np.log(np.abs(det))
        w = np.nan_to_num(np.exp(log_weight), nan=0.0, posinf=0.0)
        last = np.nan_to_num(last, posinf=0.0, neginf=0.0)
        fields = np.stack([np.concatenate([h, s * last[:, None]], axis=1).reshape(-1, P * T) for s in (1, -1)])
        batches.append((w.sum(), np.einsum("bs,bsd->d", w, fields), np.einsum("bs,bsd,bse->de", w, fields, fields)))
    weight, first = np.array([b[0] for b in batches]), np.array([b[1] for b in batches])
    mean = first.sum(axis=0) / weight.sum()
    error = np.sqrt((((first - weight[:, None] * mean) / weight.mean()) ** 2).sum(axis=0)) / 16
    cov = sum(b[2] for b in batches) / weight.sum() - np.outer(mean, mean)
    return mean.reshape(P, T), error.reshape(P, T), cov


# Without a skip the level set as a whole is asked.
@pytest.mark.parametrize(
    ("name", "q"),
    [(name, q) for name in TABLES for q in (START, EARLY) if name != "no skip"],
    ids=str,
)
def test_tables_are_importance_sampling(name: str, q: float) -> None:
    """Means and covariances, within stated errors and four and a half standard deviations of the other way."""
    model = compiled(name)
    Q = overlaps(name, q)
    V, samples = 1 - Q, 2
    Z, omega = drawn(model, Q, samples, 7)
    alone = Channel(model.link, tables_of(model).tables)
    ours = alone.moments(model.observe(Z), omega, np.diag(V), cov=True, rtol=5e-3)
    known = np.flatnonzero(ours.error <= 2e-2)
    assert len(known) >= 1
    for k in known:
        mean, error, cov = by_importance(DEEP[name], Z[k], omega[k], V, 80000, 3)
        assert (error < 0.1).all()
        off = np.abs(ours.mean[k] - mean) / np.sqrt(V)[:, None]
        assert (off <= ours.error[k] + 4.5 * error / np.sqrt(V)[:, None]).all()
        scale = np.sqrt(np.repeat(V, 2))
        assert ours.cov is not None
        gap = np.abs(ours.cov[k].reshape(cov.shape) - cov) / np.outer(scale, scale)
        assert gap.max() <= 4 * ours.error[k] + 15 * (error / np.sqrt(V)[:, None]).max()


@pytest.mark.parametrize(
    ("name", "q"), [("four", START), ("four", EARLY), ("four", LATE), ("five", EARLY), ("little skip", EARLY)], ids=str
)
def test_errors_are_stated(name: str, q: float) -> None:
    """Against a tenth of the error asked for, on steps that are no multiples of each other."""
    model = compiled(name)
    Q = overlaps(name, q)
    Z, omega = drawn(model, Q, 8, 11)
    alone = Channel(model.link, tables_of(model).tables)
    y, V = model.observe(Z), np.diag(1 - Q)
    ours = alone.moments(y, omega, V, rtol=1e-2)
    fine = alone.moments(y, omega, V, rtol=1e-3)
    known = fine.error <= 2e-3
    assert known.sum() >= 7 and (ours.error <= 1e-2).sum() >= 7
    off = np.maximum(apart(ours.mean, fine.mean, 1 - Q), np.abs(ours.log_partition - fine.log_partition))
    assert (off <= ours.error + fine.error)[known].all()
    # Most are far better, and none is claimed to be.
    assert np.median(off[known]) < 2e-3


def test_nishimori() -> None:
    """E[(m - omega)(m - omega)^T] = E[(m - omega)(Z - omega)^T], and E[cov] = V - either; row by row."""
    model = compiled("four")
    Q = overlaps("four", EARLY)
    Z, omega = drawn(model, Q, 96, 4)
    found = model.channel.moments(model.observe(Z), omega, np.diag(1 - Q), cov=True, rtol=1e-2)
    scale = 1 / (1 - Q)
    own = ((found.mean - omega) ** 2).sum(axis=2) * scale
    cross = ((found.mean - omega) * (Z - omega)).sum(axis=2) * scale
    assert found.cov is not None
    spread = np.einsum("sptpt->sp", found.cov) * scale
    for difference in (own - cross, 2 - spread - own):
        error = difference.std(axis=0) / np.sqrt(len(Z))
        assert (np.abs(difference.mean(axis=0)) <= 4.5 * error + 1e-2).all()
    # Something is learned of the last layer.
    assert own.mean(axis=0)[-1] > 0.1


def test_signs_of_fields() -> None:
    """A sign of any row of omega is that of the row's mean, as the output knows none of them."""
    model = compiled("four")
    Q = overlaps("four", EARLY)
    Z, omega = drawn(model, Q, 3, 5)
    y, V = model.observe(Z), np.diag(1 - Q)
    found = model.channel.moments(y, omega, V, rtol=1e-2)
    for row in range(4):
        sign = np.ones((4, 1))
        sign[row] = -1
        turned = model.channel.moments(y, omega * sign, V, rtol=1e-2)
        assert (apart(found.mean, turned.mean * sign, 1 - Q) <= found.error + turned.error).all()


def test_exchanged_tokens() -> None:
    model = compiled("four")
    Q = overlaps("four", EARLY)
    Z, omega = drawn(model, Q, 3, 6)
    found = model.channel.moments(model.observe(Z), omega, np.diag(1 - Q), rtol=1e-2)
    other = model.channel.moments(model.observe(Z[:, :, ::-1]), omega[:, :, ::-1], np.diag(1 - Q), rtol=1e-2)
    assert (apart(found.mean, other.mean[:, :, ::-1], 1 - Q) <= found.error + other.error).all()


@pytest.mark.parametrize("size", [1e-2, 1e-5, 1e-8])
def test_what_is_known_well(size: float) -> None:
    """Errors are in units of V, however small; beside the Gaussian of the tangent plane it is as far as sqrt(V)."""
    model = compiled("four")
    V = size * np.array([1.0, 0.7, 0.5, 0.8])
    z = np.random.default_rng(3).standard_normal((4, 2, 4, 2))
    omega = z[:, 0]
    Z = omega + np.sqrt(V)[None, :, None] * z[:, 1]
    alone = Channel(model.link, tables_of(model).tables)
    found = alone.moments(model.observe(Z), omega, np.diag(V), rtol=1e-2)
    assert (found.error <= 1e-2).all()
    for k in range(4):
        u = scores(Z[k])
        J = np.array([scores(Z[k] + 1e-6 * e.reshape(4, 2)) - scores(Z[k] - 1e-6 * e.reshape(4, 2)) for e in np.eye(8)])
        J = J.T / 2e-6
        C = np.diag(np.repeat(V, 2))
        linear = omega[k] + (C @ J.T @ np.linalg.solve(J @ C @ J.T, u - scores(omega[k]))).reshape(4, 2)
        off = np.sqrt((((found.mean[k] - linear) ** 2) / V[:, None]).sum())
        # The second order, of sqrt(V), and rounding of the outputs against 1e-8.
        assert off <= 40 * np.sqrt(size) + 2e-2


def scores(Z: np.ndarray) -> np.ndarray:
    """u = B_3 h_4 of four layers on two tokens, c = 1."""
    B = np.eye(2)
    for h in Z[:-1]:
        U = B @ h
        S = np.exp(np.outer(U, U) - (U * U)[:, None])
        B = (np.eye(2) + S / S.sum(axis=1, keepdims=True)) @ B
    return np.asarray(B @ Z[-1])


def test_what_no_rule_sees_is_not_claimed() -> None:
    """The last layer known far better than the others: the sum at any step misses what is there, and says so."""
    model = compiled("four")
    V = np.array([1.0, 1.0, 1.0, 1e-8])
    z = np.random.default_rng(8).standard_normal((4, 4, 2))
    omega = np.zeros((4, 4, 2))
    omega[:, -1] = z[:, -1] + 1e-4 * z[:, 0]
    alone = Channel(model.link, tables_of(model).tables)
    found = alone.moments(model.observe(z), omega, np.diag(V), rtol=1e-2, max_nodes=10**5)
    assert (found.error > 1e-2).all() and found.result is Result.EXCLUDED


# ------------------------------------------------------------------------------------------------------------ which way


def same(one: Moments, other: Moments) -> None:
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.error, other.error)


def test_a_cavity_that_couples_layers_is_integrated_as_a_whole() -> None:
    model = compiled("four")
    posterior = tables_of(model)
    V = np.diag([0.7, 0.6, 0.5, 0.4])
    V[0, 2] = V[2, 0] = 0.1
    both = np.stack([V, np.diag(np.diag(V))])
    np.testing.assert_array_equal(posterior.tables.couples(both), [True, False])
    Z, omega = drawn(model, np.zeros(4), 2, 9)
    tasks = posterior.tasks(posterior.read(model.observe(Z)), omega, both)
    assert [task.posterior for task in tasks] == [posterior.tables, posterior.otherwise]
    np.testing.assert_array_equal(np.concatenate([task.where for task in tasks]), [1, 0])


def test_rows_within_a_layer_may_be_coupled() -> None:
    """Queries and keys of one layer, against the level set as a whole, which samples."""
    model = compiled("untied")
    V = np.diag([0.8, 0.7, 0.6, 0.5])
    V[1, 2] = V[2, 1] = 0.3
    Z, omega = drawn(model, np.zeros(4), 2, 12)
    posterior = tables_of(model)
    assert not posterior.tables.couples(V[None]).any()
    alone, whole = (Channel(model.link, one) for one in (posterior.tables, posterior.otherwise))
    y = model.observe(Z)
    ours = alone.moments(y, omega, V, rtol=2e-2)
    theirs = whole.moments(y, omega, V, rtol=1e-2, max_nodes=2 * 10**5)
    gap = ours.mean - theirs.mean
    off = np.sqrt(np.einsum("spt,pq,sqt->s", gap, np.linalg.inv(V), gap))
    assert (off <= ours.error + 4 * theirs.error).all() and (ours.error <= 2e-2).all()


def test_what_tables_miss_is_integrated_as_a_whole() -> None:
    model = compiled("four")
    Q = overlaps("four", EARLY)
    Z, omega = drawn(model, Q, 3, 2)
    y, V = model.observe(Z), np.diag(1 - Q)
    posterior = tables_of(model)
    short = Channel(model.link, posterior.tables).moments(y, omega, V, rtol=1e-6, max_nodes=10**4)
    assert short.result is Result.INTEGRATION and not (short.error <= 1e-6).any()
    full = model.channel.moments(y, omega, V, rtol=1e-6, max_nodes=10**4)
    assert full.result is Result.INTEGRATION and np.isfinite(full.mean).all()


def test_no_tables_where_more_than_two_numbers_pass() -> None:
    for declared in (
        DEEP["rows of one's own"],
        Architecture(2, (A(activation="linear"), A(), A())),
        Architecture(2, (A(), A(tied=False, rank=2), A())),
        Architecture(2, (A(),) * 3, output="sequence"),
        Architecture(2, (A(), A())),
    ):
        assert not isinstance(smisym.compile(declared).channel.posterior, ByTables)


def test_same_bits_and_parts_of_a_batch() -> None:
    model = compiled("four")
    Q = overlaps("four", EARLY)
    Z, omega = drawn(model, Q, 4, 4)
    V = np.diag(1 - Q)
    one, again = (model.channel.moments(model.observe(Z), omega, V, rtol=1e-2) for _ in range(2))
    same(one, again)
    part: Any = model.channel.moments(model.observe(Z[2:]), omega[2:], V, rtol=1e-2)
    np.testing.assert_array_equal(part.mean, one.mean[2:])


def test_cost_is_linear_in_depth() -> None:
    """Points of one level: two layers more are as many, whatever is before them."""
    spent = []
    for depth in (4, 6, 8):
        model = smisym.compile(Architecture(2, (A(),) * depth))
        Z, omega = drawn(model, np.zeros(depth), 4, 1)
        tables = tables_of(model).tables
        V = np.broadcast_to(np.eye(depth), (4, depth, depth))
        chain = tables.at(tables.read(model.observe(Z)), omega, V).chain()
        levels = Refinement(chain, tables.levels(), scouted(chain, tables.mixings), 1e-2, False, None)
        spent.append(levels.at(np.arange(4), False).nodes.mean())
    first, second = np.diff(spent)
    assert first > 0 and abs(second - first) <= 0.05 * first


def test_both_ways_read_the_same_off_an_output() -> None:
    for name in TABLES:
        model = compiled(name)
        posterior = tables_of(model)
        Z, _ = drawn(model, np.zeros(model.fields), 3, 3)
        y = model.observe(Z)
        np.testing.assert_array_equal(posterior.tables.read(y).values, posterior.otherwise.read(y).values)
