"""Two posteriors of one output, and which of them is asked.

Under noise: around the level set where noise is weak beside what V leaves open, else over all fields, decided sample by
sample; where the first one misses part of the mass, both are asked.  Of a deep network: by the chain, or by rows that
all samples share, and on the level set as a whole where that misses the error asked for.  Of a frame: in closed form
where its rows are known equally well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from smisym.link.linking import Observation
from smisym.posterior.all_fields import OnAllFields
from smisym.posterior.base import Integrand, Kind, Observed, Posterior, Task
from smisym.posterior.chain import OnChain
from smisym.posterior.crossed import OnCrossed
from smisym.posterior.on_frame import OnFrame
from smisym.posterior.shared_rows import OnSharedRows
from smisym.posterior.tables import OnTables


class Thin(Protocol):
    """A kind of posterior that serves where noise is weak."""

    dim: int
    smooth: bool

    def noise_is_weak(self, V: np.ndarray) -> np.ndarray:
        """(S,) or (1,) whether the noise is weak beside what the cavity leaves open of the output; V (S, P, P)."""
        ...

    def locate(self, observed: Any, omega: np.ndarray, V: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
        """What :meth:`at` needs of the outputs; which samples can be integrated so, and which in part."""
        ...

    def read(self, observation: Observation) -> Observed: ...

    def at(self, observed: Any, omega: np.ndarray, V: np.ndarray) -> Integrand: ...

    def describe(self) -> tuple[str, str]: ...


class WhereNoiseIsWeak(Posterior):
    """Around the level set, or over all fields where that does not serve."""

    def __init__(self, thin: Any, everywhere: OnAllFields) -> None:
        self.thin, self.everywhere = thin, everywhere
        self.dim, self.smooth, self.broken = thin.dim, thin.smooth, thin.smooth and everywhere.broken

    def read(self, observation: Observation) -> Observed:
        return self.everywhere.read(observation)

    def tasks(self, observed: Any, omega: np.ndarray, V: np.ndarray) -> tuple[Task, ...]:
        weak = np.broadcast_to(self.thin.noise_is_weak(V), (len(omega),)).copy()
        first = np.flatnonzero(weak)
        found = []
        if len(first):
            located, suited, in_part = self.thin.locate(observed.take(first), omega[first], _rows(V, first))
            weak[first] = suited
            taken = suited | in_part
            first = first[taken]
            if len(first):
                found.append(Task(first, self.thin, located.take(taken), omega[first], _rows(V, first)))
        others = np.flatnonzero(~weak)
        if len(others) or not found:
            own = observed.take(others), omega[others], _rows(V, others)
            found.append(Task(others, self.everywhere, *own))
        return tuple(found)

    def describe(self) -> tuple[str, str]:
        return self.thin.describe()


class ByChain(Posterior):
    """By the chain, or otherwise."""

    def __init__(self, chain: OnChain | OnCrossed, otherwise: Kind) -> None:
        self.chain, self.otherwise = chain, otherwise
        self.dim, self.summed, self.smooth = chain.dim, chain.summed, chain.smooth

    def read(self, observation: Observation) -> Observed:
        return self.chain.read(observation)

    def tasks(self, observed: Any, omega: np.ndarray, V: np.ndarray) -> tuple[Task, ...]:
        return (Task(np.arange(len(omega)), self.chain, observed, omega, V, self.otherwise),)

    def describe(self) -> tuple[str, str]:
        where, how = self.chain.describe()
        return where, f"{how}; where these would be too many, all at once, by {self.otherwise.describe()[1]}"


class ByCavity(Posterior):
    """By a kind that serves where the cavity does not couple what it keeps apart, or otherwise."""

    def __init__(self, first: OnTables | OnFrame, otherwise: Kind) -> None:
        self.first, self.otherwise = first, otherwise
        self.dim, self.summed, self.smooth = first.dim, first.summed, first.smooth
        self.tabled, self.framed, self.along = first.tabled, first.framed, first.along

    def read(self, observation: Observation) -> Observed:
        return self.first.read(observation)

    def tasks(self, observed: Any, omega: np.ndarray, V: np.ndarray) -> tuple[Task, ...]:
        coupled = np.broadcast_to(self.first.couples(V), (len(omega),))
        found: list[Task] = []
        for where, kind, after in (
            (np.flatnonzero(~coupled), self.first, self.otherwise),
            (np.flatnonzero(coupled), self.otherwise, None),
        ):
            if len(where) or not (found or after):
                found.append(Task(where, kind, observed.take(where), omega[where], _rows(V, where), after))
        return tuple(found)

    def describe(self) -> tuple[str, str]:
        where, how = self.first.describe()
        other = self.otherwise.describe()[1]
        coupled = f"{self.first.coupled}, or " if self.first.coupled else ""
        return where, f"{how}; where {coupled}these miss the error, all at once, by {other}"


class ByTables(ByCavity):
    """By tables where the cavity does not couple the layers, or otherwise."""

    def __init__(self, tables: OnTables, otherwise: Kind) -> None:
        super().__init__(tables, otherwise)
        self.tables = tables


class ByFrame(ByCavity):
    """By moments of orthogonal matrices where all rows are known equally well, or otherwise."""

    def tasks(self, observed: Any, omega: np.ndarray, V: np.ndarray) -> tuple[Task, ...]:
        return tuple(replace(task, bounded=self.first) for task in super().tasks(observed, omega, V))


class BySharedRows(Posterior):
    """By rows that all samples share, or otherwise; for batches that these serve."""

    def __init__(self, shared: OnSharedRows, otherwise: Kind) -> None:
        self.shared, self.otherwise = shared, otherwise
        self.dim, self.summed, self.smooth = shared.dim, shared.summed, shared.smooth

    def serves(self, omega: np.ndarray, V: np.ndarray) -> bool:
        """Whether the samples of a batch share a cavity of the kind that is served, and are enough."""
        return self.shared.serves(omega, V)

    def read(self, observation: Observation) -> Observed:
        return self.shared.read(observation)

    def tasks(self, observed: Any, omega: np.ndarray, V: np.ndarray) -> tuple[Task, ...]:
        return (Task(np.arange(len(omega)), self.shared, observed, omega, V, self.otherwise),)

    def describe(self) -> tuple[str, str]:
        return self.shared.describe()


def _rows(V: np.ndarray, index: np.ndarray) -> np.ndarray:
    """The covariances of some of the samples, where each has its own."""
    return V if len(V) == 1 else V[index]
