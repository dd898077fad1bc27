"""First thresholds without samples of posteriors: by quadrature over outputs, or by counting where these are few."""

from __future__ import annotations

import numpy as np

from smisym.model.compiled import Model
from smisym.theory.alone import by_quadrature_alone, threshold_alone
from smisym.theory.counted import are_counted, counted_threshold
from smisym.theory.over_outputs import by_quadrature, first_threshold
from smisym.theory.stage import Stage

# Change under refinement, relative, above which a quadrature over y is compared with sampling.
_ROUGH = 1e-3


def is_better(model: Model, stage: Stage) -> bool:
    """Whether the first threshold is better had without samples."""
    return are_counted(model) or by_quadrature(model) or by_quadrature_alone(model, stage.new)


def without_samples(model: Model, stage: Stage) -> tuple[float, float]:
    """(alpha, error) of the first threshold without samples, or as it was sampled where that is better."""
    if are_counted(model):
        return counted_threshold(model, stage.new)
    alpha, change = threshold_alone(model, stage.new) or first_threshold(model, stage.new)
    if not change <= _ROUGH * alpha:
        # The law of y has edges that the lattice does not resolve: sampling may be better.
        both = (alpha, change), (stage.alpha, stage.error)
        return min((pair for pair in both if np.isfinite(pair).all()), key=lambda pair: pair[1], default=both[1])
    return alpha, change
