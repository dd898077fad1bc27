"""First thresholds of networks that are several side by side, from one of them alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smisym.link.separate import Separate, networks_of
from smisym.model.compiled import Model, compile
from smisym.prior import GaussianRows
from smisym.theory.over_outputs import by_quadrature, first_threshold

# Share of a direction on a row that is none.
_NONE = 1e-9


def network_alone(model: Model, parts: Sequence[int]) -> tuple[Model, list[int]] | None:
    """One of the networks that a model consists of, and which of its parts are there what ``parts`` are of the whole.

    At Q = 0 their posteriors are independent and G, of mean zero, vanishes on average between them: what grows in one
    of them grows as fast as if it were alone.  None where there is one network only, and where weights are not standard
    normal.
    """
    precision = model.prior.precision
    if model.noise or precision is None or (precision != np.eye(len(precision))).any():
        return None
    networks = networks_of(model.link)
    if len(networks) < 2:
        return None
    grown = np.diag(model.symmetry.span(list(parts)))
    one = max(networks, key=lambda network: float(grown[list(network.rows)].sum()))
    whole = compile(one.program, prior=GaussianRows(len(one.rows)))
    return whole, _its_parts(whole, one, grown)


def _its_parts(whole: Model, one: Separate, grown: np.ndarray) -> list[int]:
    """Parts of a network on rows that grow."""
    rows = grown[list(one.rows)] > _NONE
    return [k for k, D in enumerate(whole.symmetry.directions) if np.abs(D[:, rows]).max(initial=0.0) > _NONE]


def by_quadrature_alone(model: Model, parts: Sequence[int]) -> bool:
    """Whether one network alone is better integrated over its outputs than sampled."""
    found = network_alone(model, parts)
    return found is not None and by_quadrature(found[0])


def threshold_alone(model: Model, parts: Sequence[int]) -> tuple[float, float] | None:
    """(alpha, error) of the first threshold from one network alone, by quadrature over its outputs; None where there is
    none of that kind."""
    found = network_alone(model, parts)
    if found is None or not by_quadrature(found[0]):
        return None
    alpha, error = first_threshold(*found)
    return alpha / model.prior.multiplicity, error / model.prior.multiplicity
