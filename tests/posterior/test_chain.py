"""Deep networks by a cut: against the level set as a whole, against columns placed blindly, and their errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention
from smisym.base.derivation import Derivation
from smisym.base.solution import Result
from smisym.charts import find_level_set
from smisym.integrate import quadrature
from smisym.integrate.accuracy import Lattice
from smisym.link.reduction import find_reductions
from smisym.model.channel import Channel, Moments
from smisym.posterior.chain import Chained, OnChain
from smisym.posterior.columns import Box, Columns, falling, missed_by, sublattices
from smisym.posterior.composite import ByChain
from smisym.posterior.level_set import OnLevelSet

A = Attention
DEEP: dict[str, Architecture] = {
    "three": Architecture(2, (A(), A(), A())),
    "little skip": Architecture(2, (A(skip=0.3),) * 3),
    "much skip": Architecture(2, (A(skip=3.0),) * 3),
    "linear": Architecture(2, (A(), A(activation="linear"), A())),
    "tanh": Architecture(2, (A(), A(activation="tanh(s)"), A())),
    "causal": Architecture(2, (A(), A(mask="causal"), A())),
    "steep": Architecture(2, (A(beta=3.0), A(), A())),
}
EARLY, MIDDLE, LATE = (0.3, 0.3, 0.9), (0.0, 0.0, 0.0), (0.9, 0.9, 0.99)
COUPLED = np.array([[0.7, 0.2, -0.1], [0.2, 0.6, 0.15], [-0.1, 0.15, 0.3]])


def drawn(model: smisym.Model, V: np.ndarray, samples: int, seed: int) -> tuple[Any, np.ndarray]:
    """Outputs and omega of a cavity that has learned I - V."""
    P, T = model.fields, model.tokens
    z = np.random.default_rng(seed).standard_normal((samples, 2, P, T))
    learned = np.linalg.cholesky(np.eye(P) - V + 1e-300 * np.eye(P)) if (np.diag(V) < 1).all() else 0 * V
    omega = learned @ z[:, 0]
    return model.observe(omega + np.linalg.cholesky(V) @ z[:, 1]), omega


def chain_of(model: smisym.Model) -> ByChain:
    """The chain of three layers on two tokens, which models integrate by tables."""
    assert model.level_set is not None
    cut = find_reductions(model.link)[0]
    chart = find_level_set(cut.link, Derivation(), None)
    return ByChain(OnChain(cut, chart, model.link.tokens), OnLevelSet(model.level_set, model.link.tokens))


def apart(one: Moments, other: Moments, V: np.ndarray) -> np.ndarray:
    """Between two means, in the norm of V^{-1}."""
    gap = one.mean - other.mean
    return np.sqrt(np.einsum("spt,pq,sqt->s", gap, np.linalg.inv(V), gap))


# Quicker stand-ins of the slow ones are those of the same layers by tables, and "three" with other skips and slopes.
SLOW = {"little skip", "much skip", "steep"}


@pytest.mark.parametrize(
    ("name", "V"),
    [pytest.param(name, np.diag(1 - np.array(EARLY)), marks=pytest.mark.slow if name in SLOW else ()) for name in DEEP]
    + [("three", np.diag(1 - np.array(q))) for q in (MIDDLE, LATE)]
    + [("three", COUPLED), ("tanh", COUPLED), ("three", np.diag([1e-4, 1e-3, 1e-5]))],
    ids=str,
)
def test_a_chain_is_the_level_set_as_a_whole(name: str, V: np.ndarray) -> None:
    """Mean, log-partition and covariance agree within the sum of stated errors; no nodes are shared.

    Where the second way samples, its error is a standard deviation.
    """
    model = smisym.compile(DEEP[name])
    posterior, rtol = chain_of(model), 3e-3
    chain, whole = (Channel(model.link, one) for one in (posterior.chain, posterior.otherwise))
    y, omega = drawn(model, V, 4, 5)
    ours = chain.moments(y, omega, V, cov=True, rtol=rtol)
    theirs = whole.moments(y, omega, V, cov=True, rtol=2e-4, max_nodes=10**6)
    theirs.error[theirs.statistical] *= 4
    known = theirs.error < 8 * rtol
    assert known.sum() >= 3 and (ours.error <= rtol).mean() >= 0.5
    allowed = (ours.error + theirs.error)[known]
    assert (apart(ours, theirs, V)[known] <= allowed).all()
    assert (np.abs(ours.log_partition - theirs.log_partition)[known] <= allowed).all()
    scale = np.sqrt(np.outer(np.diag(V), np.diag(V)))[None, :, None, :, None]
    assert ours.cov is not None and theirs.cov is not None
    assert (np.abs((ours.cov - theirs.cov) / scale).max(axis=(1, 2, 3, 4))[known] <= 4 * allowed).all()


@pytest.mark.parametrize(
    ("name", "overlap"),
    [("three", EARLY), ("three", MIDDLE), ("three", LATE), ("little skip", EARLY), ("much skip", EARLY)],
    ids=str,
)
def test_the_level_set_as_a_whole_states_its_errors(name: str, overlap: tuple[float, ...]) -> None:
    """Lattices err less than they state, and sampling less than most do; few are left to sampling.

    Against the chain, which shares nothing with the lattice, where its own error is far smaller.
    """
    model, V = smisym.compile(DEEP[name]), np.diag(1 - np.array(overlap))
    posterior = chain_of(model)
    y, omega = drawn(model, V, 12, 12)
    found = Channel(model.link, posterior.otherwise).moments(y, omega, V, rtol=1e-2)
    exact = Channel(model.link, posterior.chain).moments(y, omega, V, rtol=2e-5)
    off = apart(found, exact, V)
    # A tenth of what is asked; what the chain states at a skip of 3 is several times what it errs.
    known = exact.error < 1e-3
    assert known.mean() > 0.7
    assert (off <= found.bound + exact.error)[known].all()
    assert np.quantile(off[known & ~found.statistical], 0.9) < 1e-2
    assert found.statistical.mean() < 0.2


# ------------------------------------------------------------------------------------------------------------- columns


def everywhere(block: Chained, side: int) -> Chained:
    """The same posteriors with columns on a fine lattice, none of them left out."""
    chain, region, sheeted = block.chain, block.region(block.scouted()[1]), block.sheeted()
    c = chain.summed
    grid = np.array(list(itertools.product(range(side), repeat=c))).T
    centre, half = (region.high + region.low) / 2, 0.6 * (region.high - region.low)
    blocks = []
    for k in range(block.samples):
        box = Box((centre - half)[k : k + 1], (centre + half)[k : k + 1])
        fields, weight = sheeted.at(np.array([k]), box.nodes(side))
        alive = np.flatnonzero(np.isfinite(weight[0]))
        parity = np.tile(2 ** np.arange(c) @ (grid % 2), chain.level_set.branches)[alive]
        order = alive[np.argsort(parity, kind="stable")]
        starts = np.r_[0, np.cumsum(np.bincount(parity, minlength=2**c))]
        features = block.features(np.array([k]), fields[:, :, order])[0]
        log_weight = weight[0][order] + np.log(box.step(side)).sum()
        columns = Columns(fields[0][:, order], features, log_weight, starts, np.zeros(len(order)))
        blocks.append(block.ready(columns, np.arange(len(order)), np.zeros(len(order), dtype=bool)))
    return block.summing(blocks)


@pytest.mark.parametrize("name", DEEP)
def test_errors_of_chosen_columns_are_stated(name: str) -> None:
    """Against ten times as many columns, chosen by nobody: regions that the choice missed count as error.

    For a tanh in the middle, nodes that saw no mass once stood for places between them that hold a tenth of it.
    """
    model = smisym.compile(DEEP[name])
    V = np.diag(1 - np.array(EARLY))
    y, omega = drawn(model, V, 8, 8)
    kind = chain_of(model).chain
    block = kind.at(kind.read(y), omega, V[None])
    rtol, shape = 1e-2, Lattice(2, (0.5, 0.6), 24, 10**4)
    with np.errstate(all="ignore"):
        ours = quadrature.lattice(block.prepared(rtol, False), rtol=rtol, shape=shape)
        fine, coarse = (quadrature.lattice(everywhere(block, n), rtol=1e-3, shape=shape) for n in (120, 100))
    gap = np.linalg.norm(fine.mean - coarse.mean, axis=1)
    known = gap < 0.1 * rtol
    assert known.sum() >= 6
    off = np.linalg.norm(ours.mean - fine.mean, axis=1)
    assert (off <= ours.error + gap)[known].all()
    # And most of them are found.
    assert (ours.error <= rtol).mean() > 0.6


def test_what_half_of_the_nodes_miss() -> None:
    """Gaussians on a lattice: the estimate is above the true error of the sum and below that of half of the nodes."""
    n = np.arange(-40, 41)
    for width in (0.5, 0.6, 0.8, 1.2):
        errors = []
        for centre in np.linspace(0, 1, 9):
            w = np.exp(-0.5 * ((n - centre) / width) ** 2)
            true = abs(w.sum() / (width * np.sqrt(2 * np.pi)) - 1)
            (missed,) = missed_by(by_parity(w, n))
            half = abs(2 * w[::2].sum() / w.sum() - 1)
            assert missed <= half + 1e-15
            errors.append((true, missed))
        worst, told = np.max(errors, axis=0)
        assert worst <= told + 1e-14


def by_parity(weights: np.ndarray, n: np.ndarray) -> np.ndarray:
    """(1, 2): sums over even and over odd nodes."""
    return np.array([[weights[n % 2 == 0].sum(), weights[n % 2 == 1].sum()]])


def test_one_narrow_row_counts() -> None:
    """Row by row: a row that sees one node has missed all that it holds, however well the others do."""
    n = np.arange(-20, 21)
    wide, narrow = np.exp(-0.5 * (n / 3) ** 2), (n == 0).astype(float)
    (well,) = missed_by(by_parity(wide, n))
    (both,) = missed_by(np.concatenate([by_parity(wide, n), by_parity(narrow, n)]))
    assert well < 1e-10
    assert both == pytest.approx(1 / (1 + wide.sum()), rel=1e-6)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_sublattices_are_the_characters(dim: int) -> None:
    signs = np.vstack([np.ones(2**dim), sublattices(dim)])
    np.testing.assert_allclose(signs @ signs.T, 2**dim * np.eye(2**dim))


def test_no_sum_misses_more_than_half_of_its_nodes_do() -> None:
    half = np.linspace(0, 3, 50)
    assert (falling(half) <= half).all() and (np.diff(falling(half)) > 0).all()


# ------------------------------------------------------------------------------------------------------------ which way


def test_what_the_chain_misses_is_integrated_as_a_whole() -> None:
    """With few rows allowed, the chain says so, and the model asks its second way."""
    model = smisym.compile(DEEP["three"])
    V = np.diag(1 - np.array(EARLY))
    y, omega = drawn(model, V, 8, 2)
    posterior = chain_of(model)
    short = Channel(model.link, posterior.chain).moments(y, omega, V, rtol=1e-2, max_nodes=4)
    assert short.result is Result.INTEGRATION and (short.error > 1e-2).any()
    full = Channel(model.link, posterior).moments(y, omega, V, rtol=1e-7, max_nodes=3000)
    whole = Channel(model.link, posterior.otherwise).moments(y, omega, V, rtol=1e-7, max_nodes=3000)
    assert full.result is Result.INTEGRATION
    assert (full.error <= whole.error).all()


def test_no_chain_where_either_side_is_large_or_shallow() -> None:
    for declared in (
        Architecture(2, (A(), A())),
        Architecture(3, (A(), A())),
        Architecture(2, (A(tied=False), A(), A())),
        Architecture(2, (A(), A()), output="sequence"),
    ):
        assert not isinstance(smisym.compile(declared).channel.posterior, ByChain)


def test_same_seed_same_bits_and_parts_of_a_batch() -> None:
    model = smisym.compile(DEEP["three"])
    V = np.diag(1 - np.array(EARLY))
    y, omega = drawn(model, V, 8, 4)
    one, again = (Channel(model.link, chain_of(model)).moments(y, omega, V, rtol=1e-2) for _ in range(2))
    np.testing.assert_array_equal(one.mean, again.mean)
    kind = chain_of(model).chain
    block = kind.at(kind.read(y), omega, V[None]).prepared(1e-2, False)
    x = np.random.default_rng(1).standard_normal((2, 5, 1))
    index = np.array([6])
    part = block.take(index).evaluate(np.array([0]), x)
    np.testing.assert_array_equal(part.residuals, block.evaluate(index, x).residuals)


def test_both_ways_read_the_same_off_an_output() -> None:
    for declared in DEEP.values():
        model = smisym.compile(declared)
        posterior = chain_of(model)
        y, _ = drawn(model, np.eye(3), 5, 3)
        np.testing.assert_array_equal(posterior.chain.read(y).values, posterior.otherwise.read(y).values)


@pytest.mark.parametrize("rtol", [1e-2, 1e-3])
def test_errors_of_steep_networks_are_stated(rtol: float) -> None:
    """Skip 3: rows that no scout stands for see columns that are too far apart; the errors must say so."""
    model = smisym.compile(DEEP["much skip"])
    V = np.diag(1 - np.array(EARLY))
    y, omega = drawn(model, V, 12, 5)
    kind = chain_of(model).chain
    channel = Channel(model.link, kind)
    ours = channel.moments(y, omega, V, rtol=rtol)
    fine = channel.moments(y, omega, V, rtol=1e-5, max_nodes=10**5)
    gap = ours.mean - fine.mean
    off = np.sqrt(np.einsum("spt,pq,sqt->s", gap, np.linalg.inv(V), gap))
    known = fine.error < 0.1 * ours.error
    assert known.sum() >= 4
    assert (off <= ours.error + fine.error)[known].all()
