"""Level sets without a closed chart: the fields are found numerically.

As many entries of the fields as y has independent coordinates are solved for, and the others are integrated.  A single
choice of entries has a weight that is singular where the level set turns parallel to them: several choices
share the level set, each with a smooth part of it, so that all weights stay bounded.  Where nothing is left to
integrate the level set is a finite set of points, found once for every output.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import qr
from scipy.special import ndtri
from scipy.stats import qmc

from smisym import patience
from smisym.charts.base import Coordinates
from smisym.errors import InputError
from smisym.link import LinkFunction, Observation
from smisym.measure import Block, CavityOfFields, cavity_of_fields, log_whitening
from smisym.program import is_analytic
from smisym.rank import jacobian, jacobians, ranks
from smisym.roots import SAME, Roots, along_line, distinct, from_starts, log_volume, newton

# Random fields at which choices of entries are judged, at most so many choices, and choices tried.
_TRIALS, _CHOICES, _TRIED = 64, 4, 64
# Share of random fields at which an output may have fewer independent coordinates, by rounding where it saturates.
_SATURATED = 0.1
# Slots of solutions of one equation; starts for several.
_SLOTS, _STARTS = 8, 16
# Finite sets: starts a round, rounds at least and at most, and from how many starts every solution must have been
# reached.
_ROUND, _LEAST_ROUNDS, _MOST_ROUNDS, _HITS = 64, 3, 16, 5
_SPREADS = (1.2, 0.7, 2.0)
# Finite sets remembered, in batches.
_REMEMBERED = 64


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
        spread = link.raw(Z).reshape(256, -1).std(axis=0)
        # Outputs that vary, in units of their spread, so that what counts as equal does not depend on units.
        self.seen_outputs = np.flatnonzero(~(spread <= 1e-14))
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


def numeric_measure(link: LinkFunction, signs: np.ndarray) -> OnPoints | OnSlices:
    """The general measure of a noiseless link; ``signs`` (G, P) are flips of rows that leave it unchanged."""
    surface = Surface(link)
    if surface.rank() == surface.entries:
        return OnPoints(surface, signs)
    return OnSlices(surface)


# ------------------------------------------------------------------------------------------------- finite level sets


class OnPoints:
    """Outputs that leave finitely many fields: a sum over all solutions, with weight 1 / sqrt(det J^T J).

    Every solution must be reached from several starts before a set counts as complete; images under the flips that
    leave the link unchanged belong to it.
    """

    smooth = True

    def __init__(self, surface: Surface, signs: np.ndarray) -> None:
        self.surface, self.signs = surface, signs
        self.order = tuple(range(surface.link.fields))
        self.dim = 0
        self.fields_of_zeta = np.arange(surface.entries)
        self._known: OrderedDict[bytes, Coordinates] = OrderedDict()
        self._lock = threading.Lock()

    def coordinates(self, observation: Observation) -> Coordinates:
        """(S, slots (n + 2) + 1): the solutions, their log-weights (-inf where there are fewer), which of them were
        reached too seldom to believe that there are no others like them, and a doubt.

        The doubt is zero where the set counts as complete, else one over the number of starts that ended on it.
        """
        y = self.surface.seen(observation)
        key = hashlib.sha256(y.tobytes()).digest()
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
        if found is None:
            found = self._solve(y)
            with self._lock:
                self._known[key] = found
                while len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
        return found

    def cavity(self, omega: np.ndarray, V: np.ndarray) -> CavityOfFields:
        return cavity_of_fields(self, omega, V)

    def integrand(self, u: np.ndarray, omega: np.ndarray, factor: np.ndarray) -> PointPosterior:
        return PointPosterior(u, omega, factor)

    def log_constant(self, factor: np.ndarray) -> np.ndarray:
        return log_whitening(factor, 0, self.surface.link.tokens)

    def _solve(self, y: np.ndarray) -> Coordinates:
        n, P, S = self.surface.entries, self.surface.link.fields, len(y)
        if not S:
            return Coordinates(np.empty((0, n + 3)), np.empty(0))
        classes, doubt = self._classes(y)
        slots, images = classes.found.shape[1], len(self.signs)
        Z = classes.values.reshape(S, slots, P, -1)
        everywhere = (self.signs[None, None, :, :, None] * Z[:, :, None]).reshape(S, slots * images, n)
        found = np.repeat(classes.found, images, axis=1)
        # A solution that a flip leaves where it is counts once.
        once = distinct(everywhere, found, slots * images)
        seldom = classes.found & (classes.hits < _HITS)
        rare = distinct(everywhere, np.repeat(seldom, images, axis=1), slots * images)
        J = jacobian(self.surface, once.values.reshape(-1, n), np.arange(n))[1]
        values = np.linalg.svd(np.where(np.isfinite(J), J, 0.0), compute_uv=False).reshape(S, slots * images, n)
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.where(once.found, -np.log(values).sum(axis=2), -np.inf)
            rounding = np.where(once.found, np.finfo(float).eps / values[..., -1], 0.0).max(axis=1)
        doubted = _among(once, rare)
        used = max(1, int(once.found.sum(axis=1).max()))
        packed = [once.values[:, :used].reshape(S, -1), weight[:, :used], doubted[:, :used], doubt[:, None]]
        return Coordinates(np.concatenate(packed, axis=1), rounding)

    def _classes(self, y: np.ndarray) -> tuple[Roots, np.ndarray]:
        """Solutions up to flips, and the doubt that they are all."""
        n, S = self.surface.entries, len(y)
        everything = np.arange(n)
        engine = qmc.Sobol(n, rng=np.random.default_rng(0))
        values, met = np.empty((S, 0, n)), np.empty((S, 0), dtype=bool)
        classes = distinct(values, met, 1)
        complete = np.zeros(S, dtype=bool)
        for number in range(_MOST_ROUNDS):
            rest = np.flatnonzero(~complete)
            starts = _SPREADS[number % len(_SPREADS)] * ndtri(np.clip(engine.random(_ROUND), 1e-12, 1 - 1e-12))
            begin = np.broadcast_to(starts, (len(rest), _ROUND, n)).reshape(-1, n)
            end, good = newton(self.surface, np.repeat(y[rest], _ROUND, axis=0), begin, everything)
            new_values, new_met = np.zeros((S, _ROUND, n)), np.zeros((S, _ROUND), dtype=bool)
            new_values[rest] = self._canonical(end).reshape(-1, _ROUND, n)
            new_met[rest] = good.reshape(-1, _ROUND)
            values, met = np.concatenate([values, new_values], axis=1), np.concatenate([met, new_met], axis=1)
            classes = distinct(values, met, _slots(values, met))
            enough = np.where(classes.found, classes.hits, _HITS).min(axis=1) >= _HITS
            complete = enough & classes.found.any(axis=1) & (number + 1 >= _LEAST_ROUNDS)
            if complete.all():
                break
        return classes, np.where(complete, 0.0, 1 / np.maximum(classes.hits.sum(axis=1), 1))

    def _canonical(self, Z: np.ndarray) -> np.ndarray:
        """One image of each point (N, n) under the flips."""
        P = self.surface.link.fields
        direction = np.random.default_rng(1).standard_normal((P, self.surface.link.tokens))
        sums = np.einsum("npt,pt->np", Z.reshape(len(Z), P, -1), direction)
        best = (sums @ self.signs.T).argmax(axis=1)
        fields = Z.reshape(len(Z), P, -1)
        flipped: np.ndarray = np.multiply(self.signs[best][:, :, None], fields)
        return flipped.reshape(Z.shape)


def _among(points: Roots, rare: Roots) -> np.ndarray:
    """(N, B): which of the points are among the rare ones, as 0 and 1."""
    out = np.zeros(points.found.shape)
    for j in range(rare.found.shape[1]):
        near = np.abs(points.values - rare.values[:, j, None]).max(axis=2) <= SAME * (
            1 + np.abs(rare.values[:, j]).max(axis=1, keepdims=True)
        )
        out[near & points.found & rare.found[:, j, None]] = 1.0
    return out


def _slots(values: np.ndarray, met: np.ndarray) -> int:
    """Enough for all different ones of every problem."""
    slots = 8
    while distinct(values, met, slots).lost.any():
        slots *= 2
    return slots


class PointPosterior(Block):
    """Posteriors over finitely many fields, as an integrand without coordinates."""

    dim = 0

    def __init__(self, u: np.ndarray, omega: np.ndarray, factor: np.ndarray) -> None:
        super().__init__(u, omega, factor)
        self.residuals = int(np.prod(omega.shape[1:]))
        self.branches = (u.shape[1] - 1) // (self.residuals + 2)
        self.incomplete = u[:, -1] > 0

    def take(self, index: np.ndarray) -> PointPosterior:
        return PointPosterior(self.u[index], self.omega[index], self.factor[index])

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, None]:
        C, B, n = len(index), self.branches, self.residuals
        Z = self.u[index, : B * n].reshape(C, B, *self.omega.shape[1:])
        zeta = _whiten(Z, self.omega[index][:, None], self.factor[index][:, None]).reshape(C, B, n)
        weight, rare = self.u[index, B * n : B * (n + 1)], self.u[index, B * (n + 1) : -1]
        log = weight - 0.5 * (zeta**2).sum(axis=2)
        share = np.exp(log - np.logaddexp.reduce(log, axis=1, keepdims=True))
        # A solution that is missing moves the mean by its share, in units of the whitened fields: those that were
        # seldom reached tell how large that may be.
        self.doubt[index] = np.sqrt(n) * ((share * rare).sum(axis=1) + self.u[index, -1])
        r = np.broadcast_to(np.moveaxis(zeta, 0, 2)[:, :, None], (B, n, *x.shape[1:]))
        return r, np.broadcast_to(weight.T[:, None], (B, *x.shape[1:])), None


# ------------------------------------------------------------------------------------------------------------ slices


class OnSlices:
    """Level sets cut by coordinate slices: some entries are integrated, the others solved for, choice by choice."""

    smooth = False

    def __init__(self, surface: Surface) -> None:
        self.surface = surface
        self.choices = surface.choices()
        self.order = tuple(range(surface.link.fields))
        self.dim = len(self.choices[0].free)
        self.fields_of_zeta = self.dim + np.arange(surface.entries)

    def coordinates(self, observation: Observation) -> Coordinates:
        values = self.surface.seen(observation)
        return Coordinates(values, np.zeros(len(values)))

    def cavity(self, omega: np.ndarray, V: np.ndarray) -> CavityOfFields:
        return cavity_of_fields(self, omega, V)

    def integrand(self, u: np.ndarray, omega: np.ndarray, factor: np.ndarray) -> SlicePosterior:
        return SlicePosterior(self.surface, self.choices, u, omega, factor)

    def log_constant(self, factor: np.ndarray) -> np.ndarray:
        return log_whitening(factor, 0, self.surface.link.tokens)


class SlicePosterior(Block):
    """Posteriors of one block of samples: x are the whitened free entries of every choice alike, r all fields.

    The weight brings back exp(|x|^2 / 2): x only says where a slice is, and all fields are in r.
    """

    # Posteriors change with x in no simple way: whoever samples them begins with broad proposals.
    modeless = True

    def __init__(
        self, surface: Surface, choices: list[Choice], u: np.ndarray, omega: np.ndarray, factor: np.ndarray
    ) -> None:
        super().__init__(u, omega, factor)
        self.surface, self.choices = surface, choices
        self.dim, self.residuals = len(choices[0].free), surface.entries
        self.line = u.shape[1] == 1 and len(choices[0].solved) == 1
        self.slots = _SLOTS if self.line else _STARTS
        self.branches = len(choices) * self.slots
        # Weights of all solutions and of those that one start alone has reached, sample by sample.
        self._seen, self._once = np.full(len(u), -np.inf), np.full(len(u), -np.inf)
        L = factor @ np.swapaxes(factor, 1, 2)
        T = surface.link.tokens
        self._covariance = np.einsum("spq,tu->sptqu", L, np.eye(T)).reshape(len(u), surface.entries, -1)

    def take(self, index: np.ndarray) -> SlicePosterior:
        return SlicePosterior(self.surface, self.choices, self.u[index], self.omega[index], self.factor[index])

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, None]:
        """Residuals (branches, n, nodes, C) and log-weight (branches, nodes, C) at x (d, nodes, C)."""
        nodes, C = x.shape[1:]
        owner = np.tile(index, nodes)
        points = x.reshape(self.dim, -1).T
        shape = (self.branches, self.residuals, nodes, C)
        r, weight = np.zeros(shape), np.full((self.branches, nodes, C), -np.inf)
        for c, choice in enumerate(self.choices):
            zeta, log_weight = self._solve(choice, owner, points)
            mine = slice(c * self.slots, (c + 1) * self.slots)
            r[mine] = np.moveaxis(zeta, 0, 2).reshape(self.slots, self.residuals, nodes, C)
            weight[mine] = log_weight.T.reshape(self.slots, nodes, C)
        self.doubt = self._missed()
        return r, weight, None

    def _missed(self) -> np.ndarray:
        """(S,): what solutions that no start has reached may move the mean by, from those that a single one has."""
        with np.errstate(invalid="ignore"):
            share = np.where(self._once > -np.inf, np.exp(self._once - self._seen), 0.0)
        return np.where(self.incomplete, np.inf, np.sqrt(self.residuals) * share)

    def _solve(self, choice: Choice, owner: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whitened fields (N, slots, n) and log-weights (N, slots) of all solutions at x (N, d)."""
        N, n = len(owner), self.residuals
        covariance = self._covariance
        own = np.linalg.cholesky(covariance[:, choice.free[:, None], choice.free])
        Z = self.omega.reshape(len(self.omega), n)[owner].copy()
        shift = np.einsum("nij,nj->ni", own[owner], x)
        Z[:, choice.free] += shift
        # The law of the solved entries given the free ones: where solutions matter.
        cross = covariance[:, choice.solved[:, None], choice.free]
        back = np.linalg.solve(own, np.swapaxes(cross, 1, 2))  # own^{-1} cross^T
        mean = Z[:, choice.solved] + np.einsum("njk,nj->nk", back[owner], x)
        spread = covariance[:, choice.solved[:, None], choice.solved] - np.swapaxes(back, 1, 2) @ back
        roots = self._roots(choice, owner, Z, mean, np.linalg.cholesky(spread)[owner])
        # Solutions that found no slot: nothing bounds what they carry.
        self.incomplete[owner[roots.lost]] = True
        full = np.repeat(Z[:, None], self.slots, axis=1)
        full[:, :, choice.solved] = roots.values
        log_weight = np.full((N, self.slots), -np.inf)
        some = roots.found
        if some.any():
            log_weight[some] = self._shares(choice, full[some])
        log_weight += (0.5 * (x**2).sum(axis=1) + np.log(np.einsum("nii->ni", own)).sum(axis=1)[owner])[:, None]
        fields = full.reshape(N, self.slots, *self.omega.shape[1:])
        zeta = _whiten(fields, self.omega[owner][:, None], self.factor[owner][:, None]).reshape(N, self.slots, n)
        if not self.line:
            density = log_weight - 0.5 * (zeta**2).sum(axis=2) - 0.5 * (x**2).sum(axis=1)[:, None]
            for total, which in ((self._seen, some), (self._once, some & (roots.hits == 1))):
                np.logaddexp.at(total, owner, np.logaddexp.reduce(np.where(which, density, -np.inf), axis=1))
        return np.where(some[..., None], zeta, 0.0), log_weight

    def _roots(self, choice: Choice, owner: np.ndarray, Z: np.ndarray, mean: np.ndarray, factor: np.ndarray) -> Roots:
        patience.check()
        y = self.u[owner]
        if self.line:
            return along_line(self.surface, y, Z, int(choice.solved[0]), mean[:, 0], factor[:, 0, 0], self.slots)
        K = len(choice.solved)
        base = ndtri(np.clip(qmc.Sobol(K, rng=np.random.default_rng(2)).random(_STARTS), 1e-9, 1 - 1e-9))
        starts = mean[:, None] + 1.3 * np.einsum("nij,mj->nmi", factor, base)
        return from_starts(self.surface, y, Z, choice.solved, starts)

    def _shares(self, choice: Choice, Z: np.ndarray) -> np.ndarray:
        """log of vol / sum of vol^2 over the choices, at fields Z (N, n) on the level set: this choice's part."""
        J = jacobian(self.surface, Z, np.arange(self.residuals))[1]
        volumes = np.stack([log_volume(J[:, :, c.solved]) for c in self.choices])
        mine = next(i for i, c in enumerate(self.choices) if c is choice)
        return np.asarray(volumes[mine] - np.logaddexp.reduce(2 * volumes, axis=0))


def _whiten(Z: np.ndarray, omega: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """L^{-1} (Z - omega), (..., P, T)."""
    return np.asarray(np.linalg.solve(factor, Z - omega))
