"""How fine the lattices of a model must begin: looked for once, at posteriors of its own outputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from smisym.base.errors import InputError
from smisym.integrate.accuracy import MISLED
from smisym.integrate.resolution import longest_on_lines, misled
from smisym.link.linking import Observation
from smisym.model.integrals import plan_of
from smisym.posterior.base import Integrand, Kind, Posterior

_SEED = 20261128
# The least power of four of a variance that is told from smaller ones.
_LEAST = -8


class Resolving:
    """What was found of each posterior of one channel.

    How fast outputs change from node to node, and how narrow maxima are, depends on the variances of the fields: each
    is looked at once for all within a factor of four.
    """

    def __init__(
        self,
        posterior: Posterior,
        shape: tuple[int, int],
        sample: Callable[[np.ndarray, np.random.Generator], Observation],
    ) -> None:
        """posterior: of the whole channel; shape: of fields (P, T); sample: outputs of the channel at fields."""
        self.posterior, self.shape, self.sample = posterior, shape, sample
        self._known: dict[tuple[Kind, tuple[int, ...]], float] = {}

    def longest_step(self, posterior: Kind, V: np.ndarray) -> float:
        """The longest step that a lattice of posteriors in cavities like V (1 or S, P, P) may begin with: infinite
        where any will do, zero where none does."""
        largest = np.diagonal(V, axis1=1, axis2=2).max(axis=0)
        powers = np.clip(np.ceil(0.5 * np.log2(np.maximum(largest, 1e-300)) - 1e-9), _LEAST, None)
        key = posterior, tuple(int(power) for power in powers)
        if key not in self._known:
            self._known[key] = self._found(posterior, 4.0**powers)
        return self._known[key]

    def _found(self, posterior: Kind, variances: np.ndarray) -> float:
        """The longest step where fields have these variances (P,)."""
        few = self._posteriors(posterior, variances, MISLED[posterior.dim].on_lines)
        step = longest_on_lines(few) if few.samples else np.inf
        if np.isinf(step):
            return step
        # At both ends of the factor.
        for each in (variances, 0.25 * variances):
            more = self._posteriors(posterior, each, MISLED[posterior.dim].by_lattices)
            if misled(more, plan_of(posterior).lattice, step):
                return step
        return np.inf

    def _posteriors(self, posterior: Kind, variances: np.ndarray, count: int) -> Integrand:
        """So many, of fields of these variances, half of them around others of variance one, of outputs of the
        channel's own that are integrated so."""
        rng = np.random.default_rng(_SEED)
        omega = rng.standard_normal((count, *self.shape))
        omega[: count // 2] = 0.0
        fields = omega + np.sqrt(variances)[:, None] * rng.standard_normal(omega.shape)
        outputs, V = self.sample(fields, rng), np.diag(variances)[None]
        read = self._read(outputs, np.arange(count))
        outputs, omega = outputs[read], omega[read]
        # As the channel would have them: around a level set each posterior is given what was found of it before.
        for task in self.posterior.tasks(self.posterior.read(outputs), omega, V):
            if task.posterior is posterior:
                return task.posterior.at(task.observed, task.omega, task.V)
        return posterior.at(posterior.read(outputs), omega, V)

    def _read(self, outputs: Observation, index: np.ndarray) -> np.ndarray:
        """Which of these outputs are read: some are rounded to where no fields lead."""
        try:
            self.posterior.read(outputs[index])
        except InputError:
            halves = np.array_split(index, 2) if len(index) > 1 else []
            return np.concatenate([index[:0], *(self._read(outputs, half) for half in halves)])
        return index
