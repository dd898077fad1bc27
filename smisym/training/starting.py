"""Where GAMP and gradient descent begin: one direction for all of them, and each its own size.

A direction of the weights, less their mean and in units of the prior, has squared cosine q with the truth,

    sqrt(q) W + sqrt(1 - q) G,    G another draw of the prior:

q = 0 knows nothing, but for the chance overlap 1 / sqrt(D) of two draws.  GAMP's estimate of that overlap is sqrt(q)
times it, a posterior mean; descent begins small.
"""

from __future__ import annotations

import math

import numpy as np

from smisym.prior import Prior

# Of descent, in units of the weights.  Small: gradients then turn the direction before its length matters.  From
# weights as long as the truth SGD on two layers learns samples by heart, and its last layer to 0.3 in place of 0.99.
SMALL = 0.1


def direction(prior: Prior, truth: np.ndarray, dim: int, known: float, rng: np.random.Generator) -> np.ndarray:
    """Weights (P, own) less their mean, whose squared cosine with the truth is ``known``, in [0, 1)."""
    drawn = prior.draw(dim, rng) - _mean(prior, dim)
    return np.asarray(math.sqrt(known) * (truth - _mean(prior, dim)) + math.sqrt(1 - known) * drawn)


def estimate_at(prior: Prior, towards: np.ndarray, dim: int, known: float) -> np.ndarray:
    """GAMP's start: of length sqrt(q), and where nothing is known as small as its chance overlap, 1 / sqrt(D)."""
    return np.asarray(_mean(prior, dim) + math.sqrt(max(known, 1 / towards.shape[1])) * towards)


def weights_at(prior: Prior, towards: np.ndarray, dim: int) -> np.ndarray:
    """The start of descent."""
    return np.asarray(_mean(prior, dim) + SMALL * towards)


def _mean(prior: Prior, dim: int) -> np.ndarray:
    return prior.start(dim, 0.0, np.random.default_rng(0))
