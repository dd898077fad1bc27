"""Data of an SMI model: drawing them and checking them.

X (N, T, D) are the tokens, W (P, D) the weights, y the N outputs ``y_mu = f(W X_mu^T / sqrt(D))``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import special

from smisym.base.edge import (
    available_memory,
    check_alpha,
    check_count,
    check_generator,
    check_memory,
    check_model,
    real_array,
)
from smisym.base.errors import InputError, Words
from smisym.prior import Prior

# Of the tokens' mean and mean square, where they are not N(0, 1): beyond this the theory is off by as much.
_SLACK = 0.25
# Probability that chance alone refuses data that are N(0, 1), at either end of each test.
_CHANCE = 1e-9


class Outputs(Protocol):
    """Outputs of a batch that carry more digits than their floats: what ``model.observe`` returns."""

    @property
    def y(self) -> np.ndarray: ...

    def __len__(self) -> int: ...


class LinkSymmetry(Protocol):
    """The maps of the rows of Z that leave the link unchanged.

    elements (G, P, P): signed exchanges of rows, the identity first.  rotations: groups of rows on which a common
    rotation does so too, each a tuple of tuples of rows that are turned alike.
    """

    @property
    def elements(self) -> np.ndarray: ...

    @property
    def rotations(self) -> tuple[tuple[tuple[int, ...], ...], ...]: ...


class SampleModel(Protocol):
    """All that data and GAMP read of a model."""

    @property
    def fields(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    @property
    def prior(self) -> Prior: ...

    @property
    def symmetry(self) -> LinkSymmetry: ...

    @property
    def channel(self) -> Any: ...

    def link(self, Z: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class Data:
    """Data drawn from a model: X (N, T, D), y (the N outputs, as the channel draws them), and the truth W (P, D)."""

    X: np.ndarray
    y: Any
    W: np.ndarray


def generate(model: SampleModel, dim: int, alpha: float, rng: np.random.Generator, *, normalised: bool = False) -> Data:
    """Draw a truth and data: W (P, D) from the prior, X (N, T, D) i.i.d. N(0, 1), y from the channel at W X^T /
    sqrt(D).

    dim is D >= 2; N = round(alpha D) >= 1, or round(alpha D^2) where the rank is extensive.  Raises InputError
    otherwise, and for more data than fit in memory.
    normalised: scale each row of W to the norm that it has on average, so that overlaps end at one at any D;
    their fluctuation is then that of the estimate, not of the length of the truth.
    """
    check_model(model)
    check_dimension(dim)
    check_alpha(alpha, most=math.inf)  # memory is the limit of data
    check_generator(rng)
    count = round(model.prior.samples(alpha, dim))
    if count < 1:
        least = 0.5 * model.prior.alpha(1, dim)
        raise InputError("alpha", alpha, f"more than {least:g} at D = {dim}, so that N >= 1", "raise alpha or D")
    model.prior.row_dimension(dim)
    check_fits(model, dim, alpha)
    W = model.prior.draw(dim, rng, normalised=normalised)
    tokens = model.prior.tokens(model.tokens)
    X = rng.standard_normal((count, tokens, dim))
    return Data(X, model.channel.sample(model.prior.project(W, flatten(X), tokens), rng), W)


def check_fits(model: SampleModel, dim: int, alpha: float, copies: int = 1) -> None:
    """InputError, before anything is allocated, where data of this size and a run of GAMP on them exceed the memory.

    copies: how many such runs there are at once.
    """
    available = available_memory() / copies
    if _bytes(model, dim, alpha) <= available:
        return
    least, most = 2, int(dim)
    while most - least > 1:
        middle = (least + most) // 2
        fits = _bytes(model, model.prior.fitting(middle), alpha) <= available
        least, most = (middle, most) if fits else (least, middle)
    dims = model.prior.fitting(least)
    fix = f"lower alpha to at most {alpha * available / _bytes(model, dim, alpha):.2g}"
    if _bytes(model, dims, alpha) <= available and dims >= 2:
        fix = f"at this alpha, D = {dims} fits"
    given = f"alpha = {alpha:g} at D = {dim}{f', {copies} at once' if copies > 1 else ''}"
    check_memory("alpha and D", given, copies * _bytes(model, dim, alpha), fix)


def _bytes(model: SampleModel, dim: int, alpha: float) -> float:
    """What data and GAMP take: X, W and W_hat of two steps, and of each sample fields, means and one covariance."""
    fields = model.fields * model.tokens
    prior, count = model.prior, model.prior.samples(alpha, dim)
    own = prior.row_dimension(prior.fitting(dim))
    return 8.0 * (count * (prior.tokens(model.tokens) * dim + 8 * fields + 2 * fields**2) + 4 * model.fields * own)


def flatten(X: np.ndarray) -> np.ndarray:
    """(N, T, D) to (N T, D), without a copy where X is C-ordered."""
    return X.reshape(-1, X.shape[2])


def check_data(
    model: SampleModel, X: np.ndarray, y: np.ndarray | Outputs, W: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | Outputs, np.ndarray | None]:
    """X, y and W as float64 arrays (y as given where it is an observation), after checking shapes, lengths and values.

    Raises InputError: X must be (N, T, D) with the tokens of the model and D >= 2, y hold one output of the link per
    sample, W (None allowed) be (P, D), every entry be finite, and the tokens be standardised (:func:`check_standard`).
    """
    X = _real("X", X)
    tokens = model.prior.tokens(model.tokens)
    if X.ndim != 3 or X.shape[1] != tokens or len(X) == 0:
        raise InputError(
            "X", Words(f"an array of shape {X.shape}"), f"shape (N, {tokens}, D) with N >= 1",
            f"arrange it as N samples of {tokens} tokens (rows) in dimension D",
        )  # fmt: skip
    check_dimension(X.shape[2])
    X = _floats("X", X)
    check_standard(X)
    values = _floats("y", getattr(y, "y", y))
    # The shape of one output, asked of the link itself at fields where nothing vanishes or coincides.
    probe = np.linspace(0.1, 1.0, model.fields * model.tokens).reshape(1, model.fields, model.tokens)
    output = np.shape(model.link(probe))[1:]
    if values.shape[1:] != output:
        flat = math.prod(values.shape[1:]) == math.prod(output) and len(values) == len(X)
        raise InputError(
            "y", Words(f"an array of shape {values.shape}"), f"shape {('N', *output)}".replace("'", ""),
            f"write y.reshape{(len(X), *output)}" if flat else "give one output of the link function per sample",
        )  # fmt: skip
    if len(values) != len(X):
        raise InputError(
            "y", Words(f"{len(values)} outputs for {len(X)} samples in X"), "as many outputs as samples",
            "pass the X and y of the same samples",
        )  # fmt: skip
    observed = y if hasattr(y, "y") else values
    own = model.prior.row_dimension(X.shape[2])
    return X, observed, None if W is None else check_array("W", W, (model.fields, own))


def check_standard(X: np.ndarray) -> None:
    """InputError unless the tokens X (N, T, D) could be standardised ones.

    The theory is that of i.i.d. N(0, 1) entries.  Refused are a mean or a mean square that differs from 0 or 1 by more
    than 0.25 and by more than chance allows (once in 10^9, by the normal and the chi-square law of the N T D entries),
    and tokens, or coordinates of them, that are constant.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        count, mean, square = X.size, float(X.mean()), float(np.vdot(X, X)) / X.size
    chance = -special.ndtri(_CHANCE) / math.sqrt(count)
    low, high = (2 * float(special.gammaincinv(count / 2, p)) / count for p in (_CHANCE, 1 - _CHANCE))
    # Written so that what is not a number is strange.
    strange = not (abs(mean) <= _SLACK + chance and min(1 - _SLACK, low) <= square <= max(1 + _SLACK, high))
    seen = f"entries of mean {mean:.3g} and variance {square - mean * mean:.3g}"
    if strange:
        allowed = "tokens with entries of mean 0 and variance 1, as the theory has them"
        fix = _STANDARD if square else "check what was read"
        raise InputError("X", Words(seen if square else "zeros alone"), allowed, fix)
    # Exactly: entries of a continuous law never agree.
    if not np.ptp(X, axis=2).all():
        where = tuple(int(i) for i in np.argwhere(np.ptp(X, axis=2) == 0)[0])
        entry = f"{X[where][0]:.3g}"
        given = Words(f"a constant token, number {where[1]} of sample {where[0]}: all its entries are {entry}")
        raise InputError("X", given, "tokens whose D entries differ", "drop such samples: check how X was arranged")
    if len(X) * X.shape[1] > 2 and not (spread := np.ptp(X, axis=(0, 1))).all():
        first = int(np.flatnonzero(spread == 0)[0])
        given = Words(f"coordinate {first}, which is {X[0, 0, first]:.3g} in every token")
        raise InputError("X", given, "coordinates that vary", "drop it, X = np.delete(X, k, axis=2): it shows nothing")


_STANDARD = "standardise them: X = (X - X.mean()) / X.std(), or each coordinate by its own mean and std"


def check_dimension(dim: int) -> None:
    """InputError unless D is a whole number >= 2."""
    check_count("D", dim, 2, "give the embedding dimension of the tokens")


def check_array(name: str, value: object, shape: tuple[int, ...]) -> np.ndarray:
    """``value`` as a float64 array of this shape (P, D), finite; InputError otherwise."""
    array = _real(name, value)
    if array.shape != shape:
        raise InputError(
            name,
            Words(f"an array of shape {array.shape}"),
            f"shape (P, D) = {shape}",
            "give one row per field of the model",
        )
    return _floats(name, array)


def _real(name: str, value: object) -> np.ndarray:
    return np.ascontiguousarray(real_array(name, value, "real numbers", "convert it to an array of float64"))


def _floats(name: str, value: object) -> np.ndarray:
    array = _real(name, value)
    if not np.isfinite(array).all():
        bad = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InputError(
            name, f"{array[bad]} at {bad}", "finite numbers", "drop the samples that are not finite, or impute them"
        )
    return array
