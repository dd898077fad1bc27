"""What several claims are tried on, drawn once: an overlap, posteriors of outputs there, and overlap maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from smisym.model.moments import Moments
from smisym.theory.maps import OverlapMap
from smisym.trail.claims import part_of
from smisym.verify.averages import segment
from smisym.verify.chance import Verdict, groups, in_two_stages, means_vanish
from smisym.verify.properties import Subject, Tried

# Outputs whose posteriors are averaged; samples and scrambles of maps.  An eighth of them where time is short.
DRAWS, SAMPLES, SCRAMBLES = 2048, 1024, 16


@dataclass(frozen=True)
class Drawn:
    """Outputs at one overlap: omega, Z (n, P, T), their posteriors with covariances, V (P, P) and U, which takes V to
    the identity."""

    omega: np.ndarray
    Z: np.ndarray
    moments: Moments
    V: np.ndarray
    units: np.ndarray

    @property
    def g(self) -> np.ndarray:
        """g_out in units of V^{-1/2}."""
        return np.asarray(self.units @ self.moments.g)

    @property
    def true(self) -> np.ndarray:
        """V^{-1} (Z - omega), in the same units."""
        return np.asarray(self.units @ np.linalg.solve(self.V, self.Z - self.omega))

    @property
    def dg(self) -> np.ndarray:
        """The derivative of g_out (n, P, T, P, T) in the same units."""
        return np.einsum("pi,nitjs,qj->nptqs", self.units, np.asarray(self.moments.dg), self.units, optimize=True)


def overlap_of(subject: Subject) -> tuple[np.ndarray, np.ndarray]:
    """(Q, step) of the segment of overlaps that averages are compared along."""
    found: tuple[np.ndarray, np.ndarray] = subject.once("segment", lambda: segment(subject, "trail"))
    return found


def drawn(subject: Subject, Q: np.ndarray, words: str, stage: int = 0, times: int = 1) -> Drawn:
    """Posteriors of outputs at overlap Q, drawn once for a name and stage; the same seed, the same outputs."""
    count = round(DRAWS * times * part_of(subject))
    found: Drawn = subject.once(f"drawn {words} {stage}", lambda: _drawn(subject, Q, words, stage, count))
    return found


def _drawn(subject: Subject, Q: np.ndarray, words: str, stage: int, count: int) -> Drawn:
    model, rng = subject.model, subject.rng("drawn", words, stage)
    A, B = model.prior.roots(Q)
    omega = A @ rng.standard_normal((count, model.fields, model.tokens))
    Z = omega + B @ rng.standard_normal(omega.shape)
    with np.errstate(all="ignore"):
        good = np.isfinite(model.link.raw(Z)).reshape(count, -1).all(axis=1)
        omega, Z = omega[good], Z[good]
        law = model.prior.law(Q)
        moments = model.channel.moments(model.channel.sample(Z, rng), omega, law.V, cov=True, rtol=subject.rtol)
    return Drawn(omega, Z, moments, law.V, law.units)


def map_of(subject: Subject, stage: int = 0, times: int = 1) -> OverlapMap:
    """The overlap map that averages are read off, one a stage."""

    def make() -> Any:
        samples = round(SAMPLES * times * part_of(subject))
        return subject.overlap_map(samples, "trail", stage, scrambles=SCRAMBLES, workers=1)

    found: OverlapMap = subject.once(f"map {stage}", make)
    return found


def by_chance(subject: Subject, level: float, test: Any, unit: str, said: str = "") -> Tried:
    """A test in two stages as an outcome; test: (stage, times) -> Verdict."""
    verdict: Verdict = in_two_stages(test)
    return Tried(verdict.number, unit, verdict.t, verdict.p, verdict.p >= level, said)


def vanish(values: np.ndarray, allowed: np.ndarray | float) -> Verdict:
    """Whether means of independent draws (n, ...) vanish up to what is allowed; the number is that of the draws."""
    flat = np.asarray(values, dtype=float).reshape(len(values), -1)
    found = means_vanish(groups(flat), allowed)
    return Verdict(found.t, found.p, found.which, len(flat), found.error, found.stage)
