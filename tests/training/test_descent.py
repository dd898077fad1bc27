"""SGD and Adam: they learn what can be learned, step as their formulas say, and are the same bits again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention
from smisym.base.iterating import Ended
from smisym.model.compiled import Model
from smisym.training.descent import OPTIMIZERS, Adam, Descent, Sgd, descend
from smisym.training.gradients import SquareLoss
from smisym.training.starting import direction, estimate_at, weights_at

ONE_LAYER = smisym.compile(Architecture(2, (Attention(),)))
LOSS = SquareLoss.of(ONE_LAYER.link)


def run(model: Model, how: Descent, alpha: float, dim: int, seed: int = 0) -> Ended[Any]:
    data = smisym.generate(model, dim, alpha, np.random.default_rng(seed), normalised=True)
    towards = direction(model.prior, data.W, dim, 0.0, np.random.default_rng(seed + 100))
    start = weights_at(model.prior, towards, dim)
    loss = LOSS if model is ONE_LAYER else SquareLoss.of(model.link)
    return descend(model, data, start, how, loss, np.random.default_rng(seed + 200))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_layer_is_learned_from_many_samples(optimizer: str) -> None:
    ended = run(ONE_LAYER, Descent(optimizer, OPTIMIZERS[optimizer].rate, 10, 100), alpha=6.0, dim=40)
    cosines = [record["cosines"][0] for record in ended.history]
    assert ended.result is smisym.Result.SUCCESS and len(cosines) == 101
    assert cosines[0] < 0.4 and cosines[-1] > 0.995
    assert ended.history[-1]["loss"] < 1e-3 * ended.history[1]["loss"]


def test_from_few_samples_it_is_not() -> None:
    """Below the weak threshold, 1/6, nobody can."""
    ended = run(ONE_LAYER, Descent("sgd", 0.2, 10, 100), alpha=0.12, dim=100)
    assert ended.last["cosines"][0] < 0.35


@pytest.mark.parametrize(
    ("declared", "alpha", "dim"),
    [
        (Architecture(2, (Attention(heads=2),), head_layout="split"), 4.0, 40),
        (Architecture(2, (Attention(rank_ratio=0.5),)), 1.0, 20),
    ],
)
def test_every_law_of_the_weights_is_served(declared: Architecture, alpha: float, dim: int) -> None:
    """Heads on their slices, and matrices in the place of vectors: the prior projects, and turns gradients back."""
    model = smisym.compile(declared)
    batch = model.prior.row_dimension(dim) // 4
    ended = run(model, Descent("sgd", 0.2, batch, 60), alpha, dim)
    assert ended.last["cosines"].min() > 0.95


def test_a_step_is_the_gradient_of_the_mean_loss_in_units_of_the_dimension() -> None:
    """One batch of all samples: the step against differences of the loss in the weights themselves."""
    dim, rate, decay = 12, 0.3, 0.1
    data = smisym.generate(ONE_LAYER, dim, 2.0, np.random.default_rng(0))
    start = 0.5 * np.random.default_rng(1).standard_normal(data.W.shape)

    def loss(W: np.ndarray) -> float:
        Z = np.einsum("pd,ntd->npt", W, data.X) / np.sqrt(dim)
        return float(0.5 * np.sum((ONE_LAYER.link(Z) - data.y.y) ** 2) / len(Z) + 0.5 * decay * np.sum(W**2) / dim)

    slopes = np.empty_like(start)
    for place in np.ndindex(start.shape):
        moved = np.zeros_like(start)
        moved[place] = 1e-5
        slopes[place] = (loss(start + moved) - loss(start - moved)) / 2e-5
    how, rng = Descent("sgd", rate, 1000, 1, decay), np.random.default_rng(2)
    ended = descend(ONE_LAYER, data, start, how, LOSS, rng)
    np.testing.assert_allclose(ended.state.W, start - rate * dim * slopes, atol=1e-8)


def test_adam_is_what_its_authors_wrote() -> None:
    """Three steps, with the sums of algorithm 1 of arXiv 1412.6980 written out."""
    gradients = np.random.default_rng(0).standard_normal((3, 2, 5))
    adam, W = Adam(), np.zeros((2, 5))
    for gradient in gradients:
        W = adam(W, gradient, 0.01)
    expected = np.zeros((2, 5))
    for t in range(1, 4):
        weights = 0.9 ** np.arange(t - 1, -1, -1), 0.999 ** np.arange(t - 1, -1, -1)
        mean, square = (
            np.tensordot(w / w.sum(), g, 1) for w, g in zip(weights, (gradients[:t], gradients[:t] ** 2), strict=True)
        )
        expected -= 0.01 * mean / (np.sqrt(square) + 1e-8)
    np.testing.assert_allclose(W, expected, rtol=1e-12)
    np.testing.assert_array_equal(Sgd()(W, gradients[0], 0.5), W - 0.5 * gradients[0])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_same_seeds_give_the_same_bits(optimizer: str) -> None:
    how = Descent(optimizer, 0.1, 7, 3)
    first, again = (run(ONE_LAYER, how, 2.0, 30) for _ in range(2))
    np.testing.assert_array_equal(first.state.W, again.state.W)
    assert not np.array_equal(first.state.W, run(ONE_LAYER, how, 2.0, 30, seed=1).state.W)


def test_a_rate_that_is_too_large_is_told() -> None:
    ended = run(ONE_LAYER, Descent("sgd", 30.0, 5, 50), alpha=2.0, dim=40)
    assert ended.result is smisym.Result.DIVERGED and "blew up" in ended.reason
    assert len(ended.history) < 51


@pytest.mark.parametrize("known", [0.0, 0.3])
def test_all_begin_in_one_direction_whose_cosine_is_the_one_asked_for(known: float) -> None:
    dim, prior = 4000, ONE_LAYER.prior
    truth = prior.draw(dim, np.random.default_rng(0), normalised=True)
    towards = direction(prior, truth, dim, known, np.random.default_rng(1))
    estimate, weights = estimate_at(prior, towards, dim, known), weights_at(prior, towards, dim)
    for start in (estimate, weights):
        cosine = np.sum(start * truth) / (np.linalg.norm(start) * np.linalg.norm(truth))
        assert cosine == pytest.approx(np.sqrt(known), abs=4 / np.sqrt(dim))
    # A posterior mean has as much overlap with itself as with the truth.
    assert np.sum(estimate**2) / dim == pytest.approx(max(known, 1 / dim), rel=0.1)
