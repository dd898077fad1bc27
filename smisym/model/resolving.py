"""How fine the lattices of a model must begin: looked for once, at posteriors of its own outputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from smisym.integrate.resolution import longest_on_lines, misled
from smisym.link.linking import Observation
from smisym.model.integrals import plan_of
from smisym.posterior.base import Integrand, Kind, Posterior

# Posteriors that are looked at, on lines and by lattices, by the number of free dimensions.
_ON_LINES, _BY_LATTICES = {1: 64, 2: 32, 3: 16, 4: 8}, {1: 512, 2: 128, 3: 16, 4: 8}
_SEED = 20261128


class Resolving:
    """What was found of each posterior of one channel.

    Outputs change the faster from node to node the larger the variance of the fields: what does at variance one does
    below it, and what does not is looked for again at each quarter of the variance.
    """

    def __init__(
        self,
        posterior: Posterior,
        shape: tuple[int, int],
        sample: Callable[[np.ndarray, np.random.Generator], Observation],
    ) -> None:
        """posterior: of the whole channel; shape: of fields (P, T); sample: outputs of the channel at fields."""
        self.posterior, self.shape, self.sample = posterior, shape, sample
        self._known: dict[tuple[Kind, int], float] = {}

    def longest_step(self, posterior: Kind, V: np.ndarray) -> float:
        """The longest step that a lattice of posteriors in cavities like V (1 or S, P, P) may begin with: infinite
        where any will do, zero where none does."""
        largest = float(np.diagonal(V, axis1=1, axis2=2).max(initial=0.0))
        power = int(np.ceil(0.5 * np.log2(largest) - 1e-9)) if largest > 0 else 0
        first = self._at(posterior, max(power, 0))
        return first if power >= 0 or np.isinf(first) else self._at(posterior, power)

    def _at(self, posterior: Kind, power: int) -> float:
        if (posterior, power) not in self._known:
            self._known[posterior, power] = self._found(posterior, 4.0**power)
        return self._known[posterior, power]

    def _found(self, posterior: Kind, variance: float) -> float:
        """The longest step where fields have that variance."""
        few = self._posteriors(posterior, variance, _ON_LINES[posterior.dim])
        step = longest_on_lines(few) if few.samples else np.inf
        if np.isinf(step):
            return step
        more = self._posteriors(posterior, variance, _BY_LATTICES[posterior.dim])
        return step if misled(more, plan_of(posterior).lattice, step) else np.inf

    def _posteriors(self, posterior: Kind, variance: float, count: int) -> Integrand:
        """So many, of fields of that variance, half of them around others of variance one, of outputs of the channel's
        own that are integrated so."""
        rng = np.random.default_rng(_SEED)
        omega = rng.standard_normal((count, *self.shape))
        omega[: count // 2] = 0.0
        fields = omega + np.sqrt(variance) * rng.standard_normal(omega.shape)
        outputs = self.sample(fields, rng)
        V = variance * np.eye(self.shape[0])[None]
        # As the channel would have them: around a level set each posterior is given what was found of it before.
        for task in self.posterior.tasks(self.posterior.read(outputs), omega, V):
            if task.posterior is posterior:
                return task.posterior.at(task.observed, task.omega, task.V)
        return posterior.at(posterior.read(outputs), omega, V)
