"""First thresholds of weights that are not learned from a little: outputs must tell more than a least amount.

Some priors stay deaf (:meth:`smisym.prior.Prior.least_told`): spikes in noise are seen only where they leave it.  What
outputs show where nothing is known, E(0), is then learned from that alpha on at which alpha E(0) is that amount, and
growth from small overlaps, which outputs that show nothing at first would need, does not come.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smisym.base.solution import mean_and_error
from smisym.link.symmetry import Symmetry
from smisym.model.compiled import Model
from smisym.theory.counted import counted_products, exact_products
from smisym.theory.estimate import Estimate


def of_parts(symmetry: Symmetry, M: np.ndarray) -> np.ndarray:
    """(parts,): of a positive matrix (P, P) what each part has of it, a direction."""
    return np.array([np.einsum("di,ij,dj->", D, M, D) / len(D) for D in symmetry.directions])


def needed(model: Model) -> np.ndarray:
    """(parts,): what must be told of each."""
    return of_parts(model.symmetry, model.prior.least_told())


def shares(model: Model, estimates: Sequence[Estimate], part: int) -> np.ndarray:
    """(R,): by scramble, of what must be told of a part what one alpha tells where nothing is known."""
    least = needed(model)[part]
    return np.array([of_parts(model.symmetry, estimate.white)[part] for estimate in estimates]) / least


def first_told(model: Model, estimates: Sequence[Estimate], part: int) -> tuple[float, float]:
    """(alpha, its standard error) at which so much is told of a part that it is learned: a sum over outputs where these
    are few and their posteriors in closed form, else of draws of the fields where they are few, else sampled."""
    exact = exact_products(model)
    if exact is not None:
        return float(needed(model)[part] / of_parts(model.symmetry, exact)[part]), 0.0
    products = None if model.noise or model.level_set is not None else counted_products(model)
    if products is not None:
        own = np.array([of_parts(model.symmetry, E)[part] for E in products]) / needed(model)[part]
        share, error = mean_and_error(own)
        return float(1 / share), float(error / share**2)
    share, error = mean_and_error(shares(model, estimates, part))
    inner = float(np.mean([estimate.inner_error for estimate in estimates])) / needed(model)[part]
    return float(1 / share), float(np.hypot(error, inner) / share**2)
