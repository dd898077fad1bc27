"""The text of the compiled loops that a model's posteriors are integrated by: what numba compiles, to be read."""

from __future__ import annotations

import numpy as np

from smisym.base.errors import InputError
from smisym.kernels.numba_code import NotCompiled
from smisym.link.linking import Observation
from smisym.model.channel import Channel
from smisym.model.compiled import Model

# Overlap at which a posterior is typical: all rows are known in part, and no two are coupled.
_OVERLAP, _SAMPLES = 0.5, 4


def kernel_source(model: Model) -> str:
    """Python text of the loops for posteriors whose V is diagonal, with second moments, module after module.

    Raises InputError where they are numpy code alone, or call what compiled code does not have.
    """
    rng = np.random.default_rng(0)
    omega, rest = np.sqrt(_OVERLAP) * rng.standard_normal((2, _SAMPLES, model.fields, model.tokens))
    observed = model.channel.sample(omega + rest, rng)
    V = (1 - _OVERLAP) * np.eye(model.fields)[None]
    try:
        texts = _sources(model.channel, observed, omega, V)
    except NotCompiled as error:
        raise InputError(
            "--code numba", f"a model whose posteriors call {error}", "a model of arithmetic that is compiled",
            "leave it out: numpy carries this model out",
        ) from None  # fmt: skip
    if not texts:
        raise InputError(
            "--code numba", "a model whose posteriors are numpy code alone", "a noiseless model with a chart",
            "leave it out: numpy carries this model out",
        )  # fmt: skip
    return "\n\n".join(texts)


def _sources(channel: Channel, observed: Observation, omega: np.ndarray, V: np.ndarray) -> list[str]:
    """Texts of the loops of all kinds of posterior that such samples are integrated by, each once."""
    texts: dict[str, None] = {}
    for component, own in channel.parts:
        rows = list(component.rows)
        texts |= dict.fromkeys(_sources(own, component.observed(observed), omega[:, rows], V[:, rows][:, :, rows]))
    if channel.parts:
        return list(texts)
    posterior = channel.posterior
    for task in posterior.tasks(posterior.read(observed), omega, V):
        for kind in (task.posterior, task.otherwise):
            if kind is not None:
                texts |= dict.fromkeys(kind.at(task.observed, task.omega, task.V).sources())
    return list(texts)
