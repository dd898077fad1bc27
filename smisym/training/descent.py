"""Gradient descent on the data of a network: mini-batch SGD and Adam on its square loss.

An epoch sees every sample once, in a random order.  The gradient of the mean loss of a batch has entries of order
1 / D: SGD's rate is counted in units of that, so that one rate serves every D,

    W <- W - rate (D' grad + decay W),    D' the entries of a row of W,

and Adam, which divides by the size of the gradient, moves every entry by about its rate.  One step moves the field of a
sample of its own batch by rate D' / B times the gradient there: beyond about one that is unstable, so that the batch is
to grow with D.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from smisym.base.iterating import Diverged, Ended, iterate
from smisym.base.linear_algebra import one_thread
from smisym.base.solution import Result
from smisym.finite.alignment import align
from smisym.finite.gamp_step import BLOW_UP
from smisym.finite.samples import Data, SampleModel, flatten
from smisym.training.gradients import SquareLoss


class Optimizer(Protocol):
    """Called with the weights (P, own) and their gradient in units of D it gives the weights after a step."""

    def __call__(self, W: np.ndarray, gradient: np.ndarray, rate: float) -> np.ndarray: ...


class Sgd:
    """Straight down."""

    def __call__(self, W: np.ndarray, gradient: np.ndarray, rate: float) -> np.ndarray:
        return W - rate * gradient


# Kingma and Ba, arXiv 1412.6980, algorithm 1: the constants are theirs.
_FIRST, _SECOND, _FLOOR = 0.9, 0.999, 1e-8


@dataclass
class Adam:
    """The mean gradient over the root of its mean square, entry by entry."""

    steps: int = 0
    mean: Any = 0.0
    square: Any = 0.0

    def __call__(self, W: np.ndarray, gradient: np.ndarray, rate: float) -> np.ndarray:
        self.steps += 1
        self.mean = _FIRST * self.mean + (1 - _FIRST) * gradient
        self.square = _SECOND * self.square + (1 - _SECOND) * gradient**2
        mean, square = self.mean / (1 - _FIRST**self.steps), self.square / (1 - _SECOND**self.steps)
        return np.asarray(W - rate * mean / (np.sqrt(square) + _FLOOR))


@dataclass(frozen=True)
class Kind:
    """An optimizer: what makes it, and its rate where none is given."""

    make: Callable[[], Optimizer]
    rate: float


# Rates at which two layers on two tokens learn their last layer at every alpha from 2 on, D = 200 and 500 (measured:
# docs/guide/dynamics.md).
OPTIMIZERS = {"sgd": Kind(Sgd, 0.2), "adam": Kind(Adam, 0.003)}


@dataclass(frozen=True)
class Descent:
    """One run: which optimizer, its rate, samples of a batch, epochs, and the decay of the weights."""

    optimizer: str
    rate: float
    batch: int
    epochs: int
    decay: float = 0.0


@dataclass(frozen=True)
class _Epoch:
    """Weights after an epoch, and the mean loss of its batches."""

    W: np.ndarray
    loss: float | None = None


@dataclass
class _Run:
    """The data of a run, cut into batches anew at every epoch."""

    model: SampleModel
    data: Data
    loss: SquareLoss
    how: Descent
    rng: np.random.Generator
    y: np.ndarray = field(init=False)
    optimizer: Optimizer = field(init=False)

    def __post_init__(self) -> None:
        self.y = np.asarray(getattr(self.data.y, "y", self.data.y))
        self.optimizer = OPTIMIZERS[self.how.optimizer].make()

    def __call__(self, epoch: _Epoch) -> _Epoch:
        W, losses = epoch.W, []
        order = self.rng.permutation(len(self.y))
        # Batches whose sizes differ by one at most: each size is compiled once.
        for batch in np.array_split(order, max(math.ceil(len(order) / self.how.batch), 1)):
            W, loss = self._stepped(W, batch)
            losses.append(loss)
        square = float(np.mean(self.model.prior.in_units(W) ** 2))
        if not square <= BLOW_UP:
            raise Diverged(
                f"the weights blew up: the mean square of their entries is {square:.3g}, that of the truth 1"
            )
        return _Epoch(W, float(np.mean(losses)))

    def _stepped(self, W: np.ndarray, batch: np.ndarray) -> tuple[np.ndarray, float]:
        prior, X = self.model.prior, flatten(self.data.X[batch])
        with np.errstate(over="ignore", invalid="ignore"):
            loss, g = self.loss(prior.project(W, X, prior.tokens(self.model.tokens)), self.y[batch])
            gradient = prior.back_project(g, X) * (W.shape[1] / len(batch)) + self.how.decay * W
            return self.optimizer(W, gradient, self.how.rate), loss

    def record(self, number: int, before: _Epoch | None, now: _Epoch) -> dict[str, Any]:
        prior = self.model.prior
        found, truth = (prior.in_units(W) for W in (now.W, self.data.W))
        cosines = align(self.model.symmetry, found, truth, prior.row_slices)[1]
        return {"step": number, "cosines": cosines, "loss": now.loss}


# Many parameters: a run, and who listens.
def descend(
    model: SampleModel,
    data: Data,
    start: np.ndarray,
    how: Descent,
    loss: SquareLoss,
    rng: np.random.Generator,
    callback: Callable[[dict[str, Any]], object] | None = None,
) -> Ended[Any]:
    """Descend from the weights ``start`` (P, own) on the data, whose truth serves only to report cosines.

    rng: of the order of samples.  Records have step (the epoch), cosines (P,) modulo the symmetries, and loss, the mean
    over the batches of the epoch, each before its step.  Result: SUCCESS after all epochs, or DIVERGED with the reason.
    """
    run = _Run(model, data, loss, how, rng)
    with one_thread():
        ended = iterate(
            run, _Epoch(start), max_steps=how.epochs, record=run.record, callback=callback,
            stop=lambda epoch, record: (Result.SUCCESS, "") if record["step"] == how.epochs else None,
        )  # fmt: skip
    return ended
