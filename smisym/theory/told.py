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
from smisym.theory.counted import counted_products
from smisym.theory.estimate import Estimate

# Outputs, of random fields, that are looked through for all that there are, and how many are few.
_LOOKED_AT, _FEW, _SEED = 2**14, 64, 20261126
# What probabilities of all outputs may be off one for none to have been missed.
_WHOLE = 1e-6
# Errors of posteriors in closed form, which are those of rounding.
_KNOWN = 1e-12


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
    exact = _counted(model, part)
    if exact is not None:
        return 1 / exact, 0.0
    products = None if model.noise or model.level_set is not None else counted_products(model)
    if products is not None:
        own = np.array([of_parts(model.symmetry, E)[part] for E in products]) / needed(model)[part]
        share, error = mean_and_error(own)
        return float(1 / share), float(error / share**2)
    share, error = mean_and_error(shares(model, estimates, part))
    inner = float(np.mean([estimate.inner_error for estimate in estimates])) / needed(model)[part]
    return float(1 / share), float(np.hypot(error, inner) / share**2)


def _counted(model: Model, part: int) -> float | None:
    """The share of all outputs together; None where they are many, some were not met, or posteriors have errors."""
    if model.noise or model.level_set is not None or model.channel.free_dimensions:
        return None
    law = model.prior.law(np.zeros((model.fields,) * 2))
    Z = np.random.default_rng(_SEED).standard_normal((_LOOKED_AT, model.fields, model.tokens))
    y = model.link(law.scale @ Z)
    _, first = np.unique(y.reshape(len(y), -1), axis=0, return_index=True)
    if len(first) > _FEW:
        return None
    found = model.channel.moments(y[first], np.zeros((len(first), model.fields, model.tokens)), law.V)
    chance = np.exp(found.log_partition)
    if found.error.max() > _KNOWN or abs(chance.sum() - 1) > _WHOLE:
        return None
    g = law.units @ found.g
    E = model.prior.multiplicity * np.einsum("n,npt,nqt->pq", chance, g, g)
    return float(of_parts(model.symmetry, E)[part] / needed(model)[part])
