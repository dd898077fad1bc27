"""The surface f(Z) = y of an output without a closed chart, and the entries of the fields that can be solved for."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import qr

from smisym.base.complex_step import jacobian
from smisym.base.errors import InputError
from smisym.integrate.roots import log_volume
from smisym.link.linking import LinkFunction, Observation
from smisym.link.program import is_analytic
from smisym.link.rank import jacobians, ranks

# Random fields at which choices of entries are judged, at most so many choices, and choices tried.
_TRIALS, _CHOICES, _TRIED = 64, 4, 64
# Share of random fields at which an output may have fewer independent coordinates, by rounding where it saturates.
_SATURATED = 0.1


@dataclass(frozen=True)
class Choice:
    """Entries of the fields (numbers p T + t) that are solved for, and the others."""

    solved: np.ndarray
    free: np.ndarray


class Surface:
    """The link as equations: entries of the fields in, what the output shows exactly out."""

    def __init__(self, link: LinkFunction) -> None:
        self.link = link
        self.entries = link.fields * link.tokens
        Z = np.random.default_rng(1).standard_normal((256, link.fields, link.tokens))
        raw = link.raw(Z).reshape(256, -1)
        largest = np.abs(raw).max(axis=0, initial=0.0)
        largest = np.where((largest > 0) & (largest < np.inf), largest, 1.0)
        spread = (raw / largest).std(axis=0) * largest
        # Outputs that vary, in units of their spread, so that what counts as equal does not depend on units.
        self.seen_outputs = np.flatnonzero(~(spread <= 1e-14 * largest))
        unit = spread[self.seen_outputs]
        self.unit = np.where(np.isfinite(unit), unit, 1.0)

    def __call__(self, Z: np.ndarray) -> np.ndarray:
        """(N, M) at entries Z (N, n), real or complex; not finite where it overflows: a search steps back."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self.link.of_entries(Z)[:, self.seen_outputs] / self.unit)

    def seen(self, observation: Observation) -> np.ndarray:
        """(S, M): the same of an output."""
        if not self.link.output_is_softmax or observation.log_ratios is None:
            raw = observation.y
        else:
            raw = np.where(self.link.attended, observation.log_ratios, 0.0)
        flat = raw.reshape(len(raw), math.prod(self.link.output_shape))
        return np.asarray(flat[:, self.seen_outputs] / self.unit)

    def rank(self) -> int:
        """Rank of the Jacobian at random fields: how many independent coordinates an output has."""
        Z = np.random.default_rng(0).standard_normal((_TRIALS, self.entries))
        found = ranks(jacobians(self, Z, analytic=is_analytic(self.link.program)), np.eye(self.entries))
        if (found < found.max()).mean() > _SATURATED:
            raise InputError(
                "link",
                f"a Jacobian of rank {max(found.min(), 0)} at some fields and {found.max()} at others",
                "an output that is everywhere smooth or everywhere discrete",
                "declare noise > 0, or supply a chart with smisym.register_chart",
            )
        return int(found.max())

    def choices(self) -> list[Choice]:
        """Entries to solve for, so that at most fields some choice is nearly as good as any."""
        K, n = self.rank(), self.entries
        J = self._at_random
        if math.comb(n, K) <= _TRIED:
            tried = list(itertools.combinations(range(n), K))
        else:
            # The columns that a pivoted elimination takes first, at each of the fields.
            tried = sorted({tuple(sorted(int(i) for i in qr(own, mode="r", pivoting=True)[1][:K])) for own in J})
        subsets = np.array(tried)
        volume = np.exp(np.stack([log_volume(J[:, :, s]) for s in subsets], axis=1))
        total = np.sqrt((volume**2).sum(axis=1, keepdims=True))
        share = volume / np.where(total > 0, total, 1.0)
        chosen: list[int] = []
        covered = np.zeros(len(J))
        for _ in range(min(_CHOICES, len(subsets))):
            gain = np.maximum(share, covered[:, None]).mean(axis=0)
            best = int(gain.argmax())
            if chosen and gain[best] < covered.mean() + 0.02:
                break
            chosen.append(best)
            covered = np.maximum(covered, share[:, best])
        everything = np.arange(n)
        return [Choice(subsets[c], np.setdiff1d(everything, subsets[c])) for c in chosen]

    @cached_property
    def _at_random(self) -> np.ndarray:
        Z = np.random.default_rng(0).standard_normal((_TRIALS, self.entries))
        return jacobian(self, Z, np.arange(self.entries))[1]
