"""Overlaps modulo the group that leaves the link unchanged."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from oracles.solvable import sign_symmetry

from smisym import SMI, Architecture, Attention
from smisym import compile as compile_model
from smisym.finite.alignment import align, gauge_cosines
from smisym.model.compiled import Model

DIM = 40

MODELS = {
    "signs": Architecture(2, (Attention(), Attention())),
    "exchanges": SMI("z1 * z2", 2),
    "rank two": Architecture(3, (Attention(rank=2),)),
    "rank three below a layer": Architecture(2, (Attention(), Attention(rank=3)), noise=0.1),
    "untied rank two": Architecture(2, (Attention(rank=2, tied=False),)),
    "heads of rank two, summed": Architecture(2, (Attention(rank=2, heads=2),), combine="sum", noise=0.1),
    "untied heads, summed": Architecture(2, (Attention(rank=2, heads=2, tied=False),), combine="sum", noise=0.1),
    "split heads, summed": Architecture(2, (Attention(heads=2),), head_layout="split", combine="sum", noise=0.1),
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request: pytest.FixtureRequest) -> Model:
    return compile_model(MODELS[request.param])


def group_element(model: Model, rng: np.random.Generator) -> np.ndarray:
    """A random g (P, P) that leaves the link unchanged and exchanges no slices."""
    slices = np.array(model.row_slices)
    while True:
        g = model.symmetry.elements[rng.integers(len(model.symmetry.elements))]
        if not g[slices[:, None] != slices].any():
            break
    for group in model.symmetry.rotations:
        turn = np.linalg.qr(rng.standard_normal((len(group[0]),) * 2))[0]
        whole = np.eye(model.fields)
        for rows in group:
            whole[np.ix_(rows, rows)] = turn
        g = whole @ g
    return g


def pair(model: Model, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(W_hat, W), as an estimate that knows something of every row, and of some more than of others."""
    W = rng.standard_normal((model.fields, DIM))
    known = np.linspace(0.4, 0.8, model.fields)[:, None]
    return known * W + 0.5 * rng.standard_normal(W.shape), W


def overlap_of(model: Model, W_hat: np.ndarray, W: np.ndarray) -> np.ndarray:
    slices = np.array(model.row_slices)
    return np.where(slices[:, None] == slices, W_hat @ W.T / DIM, 0.0)


def test_the_models_have_the_groups_that_these_tests_are_about() -> None:
    found = {name: compile_model(declared).symmetry for name, declared in MODELS.items()}
    assert [len(found[name].rotations) for name in MODELS] == [0, 0, 1, 1, 1, 2, 2, 0]
    assert found["untied rank two"].rotations == (((0, 1), (2, 3)),)
    for name in ("exchanges", "heads of rank two, summed", "split heads, summed"):
        assert any((g != np.diag(np.diag(g))).any() for g in found[name].elements)


def test_alignment_does_not_depend_on_which_image_of_the_estimate_is_given(model: Model) -> None:
    rng = np.random.default_rng(0)
    W_hat, W = pair(model, rng)
    overlap, cosines = align(model.symmetry, W_hat, W, model.row_slices)
    for _ in range(20):
        other = align(model.symmetry, group_element(model, rng) @ W_hat, W, model.row_slices)
        np.testing.assert_allclose(other[0], overlap, atol=1e-13)
        np.testing.assert_allclose(other[1], cosines, atol=1e-13)


def test_alignment_is_the_overlap_of_an_image_and_no_image_has_a_larger_trace(model: Model) -> None:
    rng = np.random.default_rng(1)
    # So little is known that the best is far from the identity.
    W_hat, W = rng.standard_normal((2, model.fields, DIM))
    overlap, cosines = align(model.symmetry, W_hat, W, model.row_slices)
    images = [group_element(model, rng) @ W_hat for _ in range(1000)]
    assert np.trace(overlap) >= max(np.trace(overlap_of(model, image, W)) for image in images) - 1e-12
    # It is attained: by a g that is orthogonal and leaves the link unchanged.
    g = overlap @ np.linalg.pinv(overlap_of(model, W_hat, W))
    np.testing.assert_allclose(g @ g.T, np.eye(model.fields), atol=1e-9)
    Z = rng.standard_normal((5, model.fields, model.tokens))
    np.testing.assert_allclose(model.link(g @ Z), model.link(Z), atol=1e-9)
    norms = np.linalg.norm(g @ W_hat, axis=1) * np.linalg.norm(W, axis=1)
    np.testing.assert_allclose(cosines, np.diag(overlap) * DIM / norms, atol=1e-9)


def test_an_image_of_the_truth_is_found_exactly(model: Model) -> None:
    rng = np.random.default_rng(2)
    W = rng.standard_normal((model.fields, DIM))
    for _ in range(20):
        overlap, cosines = align(model.symmetry, group_element(model, rng) @ W, W, model.row_slices)
        np.testing.assert_allclose(overlap, overlap_of(model, W, W), atol=1e-13)
        np.testing.assert_allclose(cosines, 1, atol=1e-13)


def old_overlap(signs: np.ndarray, W_hat: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best flip of signs (G, P), written for them alone."""
    overlap = W_hat @ W.T / W.shape[1]
    norms = np.sqrt(np.mean(W_hat**2, axis=1) * np.mean(W**2, axis=1))
    diagonal = np.diag(overlap)
    cosines = np.divide(diagonal, norms, out=np.zeros_like(norms), where=norms > 0)
    traces = signs @ diagonal
    equal = traces >= traces.max() - 1e-12 * np.abs(diagonal).sum()
    best = signs[np.argmax(np.where(equal, signs @ cosines, -np.inf))]
    return best[:, None] * overlap, best * cosines


@pytest.mark.parametrize("empty", [0, 1, 3])
def test_with_signs_alone_it_is_the_best_flip_to_the_last_bit(empty: int) -> None:
    every = np.array(list(itertools.product((1.0, -1.0), repeat=3)))
    together = np.array([[1.0, 1, 1], [-1, -1, 1], [1, 1, -1], [-1, -1, -1]])
    for seed, signs in itertools.product(range(20), (every, together)):
        rng = np.random.default_rng(seed)
        W_hat, W = rng.standard_normal((2, 3, DIM))
        W_hat[:empty] = 0
        for found, expected in zip(align(sign_symmetry(signs), W_hat, W), old_overlap(signs, W_hat, W), strict=True):
            assert (found == expected).all()


def test_of_flips_that_are_equal_to_rounding_the_cosines_decide() -> None:
    # The second row is too small to be seen in the trace, and yet it is known perfectly.
    W = np.random.default_rng(0).standard_normal((2, DIM))
    W_hat = np.array([[-0.5], [-1e-15]]) * W
    every = np.array(list(itertools.product((1.0, -1.0), repeat=2)))
    cosines = align(sign_symmetry(every), W_hat, W)[1]
    np.testing.assert_allclose(cosines, [1, 1], atol=1e-12)


def test_rows_on_different_slices_are_not_exchanged_and_have_no_overlap() -> None:
    model = compile_model(MODELS["split heads, summed"])
    W = np.random.default_rng(0).standard_normal((2, DIM))
    # As if the first head had learned what is in the slice of the second: of no use to it.
    overlap, cosines = align(model.symmetry, W[::-1], W, model.row_slices)
    assert (overlap == np.diag(np.diag(overlap))).all()
    assert np.all(np.abs(cosines) < 4 / math.sqrt(DIM))
    exchange: Any = SimpleNamespace(elements=np.array([np.eye(2), np.eye(2)[::-1]]), rotations=())
    np.testing.assert_allclose(align(exchange, -W, W, (0, 1))[1], -1)


def test_a_group_too_large_to_be_listed_still_gives_the_best_flips() -> None:
    # 13 rows have 8192 flips; what is listed are the products of few generators.
    P = 13
    flips = [np.ones(P)]
    for k in range(1, 4):
        flips += [np.where(np.isin(np.arange(P), rows), -1.0, 1.0) for rows in itertools.combinations(range(P), k)]
    symmetry: Any = SimpleNamespace(elements=np.array([np.diag(f) for f in flips]), rotations=())
    rng = np.random.default_rng(0)
    W_hat, W = rng.standard_normal((2, P, DIM))
    W_hat = -W + 0.1 * W_hat
    overlap, cosines = align(symmetry, W_hat, W)
    assert np.all(cosines > 0.9)
    np.testing.assert_allclose(np.abs(overlap), np.abs(W_hat @ W.T / DIM))


def test_an_estimate_of_nothing_has_no_overlap() -> None:
    for declared in MODELS.values():
        model = compile_model(declared)
        W = np.random.default_rng(0).standard_normal((model.fields, DIM))
        overlap, cosines = align(model.symmetry, 0 * W, W, model.row_slices)
        assert not overlap.any() and not cosines.any()


def gauged(model: Model, rng: np.random.Generator) -> np.ndarray:
    """(P, P): a random M on the queries of every untied head and M^{-T} on its keys, on top of a group element."""
    whole = np.eye(model.fields)
    for queries, keys in model.symmetry.gauges:
        M = np.eye(len(queries)) + 0.4 * rng.standard_normal((len(queries),) * 2)
        whole[np.ix_(queries, queries)] = M
        whole[np.ix_(keys, keys)] = np.linalg.inv(M).T
    return np.asarray(whole)


UNTIED = {
    "rank one": (Architecture(3, (Attention(tied=False),)), 1),
    "rank two": (Architecture(2, (Attention(rank=2, tied=False),)), 1),
    "two heads, linear": (Architecture(2, (Attention(heads=2, tied=False, activation="linear"),)), 2),
    "two layers": (Architecture(2, (Attention(tied=False), Attention())), 1),
    "summed, noise": (Architecture(2, (Attention(rank=2, heads=2, tied=False),), combine="sum", noise=0.1), 2),
    "tied": (Architecture(2, (Attention(rank=2),)), 0),
}


@pytest.mark.parametrize("name", UNTIED)
def test_the_gauge_of_untied_heads(name: str) -> None:
    """The output is blind to it; cosines of the products W_q^T W_k too, and nothing else of the weights is lost."""
    declared, heads = UNTIED[name]
    model, rng = compile_model(declared), np.random.default_rng(5)
    assert len(model.symmetry.gauges) == heads
    Z = rng.standard_normal((50, model.fields, model.tokens))
    np.testing.assert_allclose(model.link(gauged(model, rng) @ Z), model.link(Z), rtol=1e-8, atol=1e-10)
    W_hat, W = pair(model, rng)
    before = gauge_cosines(model.symmetry, W_hat, W)
    after = gauge_cosines(model.symmetry, gauged(model, rng) @ W_hat, gauged(model, rng) @ W)
    np.testing.assert_allclose(after, before, rtol=1e-9)
    for (queries, keys), cosine in zip(model.symmetry.gauges, before, strict=True):
        mine, truth = (X[list(queries)].T @ X[list(keys)] for X in (W_hat, W))
        direct = (mine * truth).sum() / (np.linalg.norm(mine) * np.linalg.norm(truth))
        assert cosine == pytest.approx(direct, rel=1e-9)
    np.testing.assert_allclose(gauge_cosines(model.symmetry, gauged(model, rng) @ W, W), 1.0, rtol=1e-9)
