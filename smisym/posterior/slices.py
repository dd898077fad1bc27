"""Level sets without a closed chart: some entries of the fields are integrated, the others solved for numerically.

    p(y) = int dx sum_choices sum_solutions w N(Z; omega, V)

As many entries of the fields as y has independent coordinates are solved for, and the others are integrated.  A single
choice of entries has a weight that is singular where the level set turns parallel to them: several choices share the
level set, each with a smooth part of it, so that all weights w stay bounded.
"""

from __future__ import annotations

import numpy as np

from smisym.base import patience
from smisym.base.complex_step import jacobian
from smisym.base.counting import counted
from smisym.base.sobol import Normals
from smisym.charts.base import Coordinates
from smisym.integrate.modes import Doubt, Values
from smisym.integrate.roots import Roots, along_line, from_starts, log_volume
from smisym.link.linking import LinkFunction, Observation
from smisym.posterior.base import Block, Cavity, Kind, Whitening, log_whitening, whiten
from smisym.posterior.points import OnPoints
from smisym.posterior.surface import Choice, Surface

# Slots of solutions of one equation; starts for several.
_SLOTS, _STARTS = 8, 16


class OnSlices(Kind):
    """Level sets cut by coordinate slices: some entries are integrated, the others solved for, choice by choice."""

    smooth = False

    def __init__(self, surface: Surface) -> None:
        self.surface = surface
        self.choices = surface.choices()
        self.order = tuple(range(surface.link.fields))
        self.dim = len(self.choices[0].free)

    def read(self, observation: Observation) -> Coordinates:
        values = self.surface.seen(observation)
        return Coordinates(values, np.zeros(len(values)))

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> SlicePosterior:
        return SlicePosterior(self.surface, self.choices, observed.values, Cavity.of(omega, V, self.order))

    def describe(self) -> tuple[str, str]:
        where = (
            f"no rule found a closed chart; {self.dim} of the fields {'is' if self.dim == 1 else 'are'} integrated and "
            f"the others solved for numerically, in {counted(len(self.choices), 'choice')} that share the level set "
            "in proportion to the squares of their Jacobians"
        )
        return where, "importance sampling"


class SlicePosterior(Block):
    """Posteriors of one block of samples: x are the whitened free entries of every choice alike, r all fields.

    The weight brings back exp(|x|^2 / 2): x only says where a slice is, and all fields are in r.
    """

    # Posteriors change with x in no simple way: whoever samples them begins with broad proposals.
    modeless = True

    def __init__(self, surface: Surface, choices: list[Choice], u: np.ndarray, cavity: Whitening) -> None:
        super().__init__(cavity)
        self.surface, self.choices, self.u = surface, choices, u
        self.dim, self.residuals = len(choices[0].free), surface.entries
        self.line = u.shape[1] == 1 and len(choices[0].solved) == 1
        self.slots = _SLOTS if self.line else _STARTS
        self.branches = len(choices) * self.slots
        L = self.factor @ np.swapaxes(self.factor, 1, 2)
        T = surface.link.tokens
        self._covariance = np.einsum("spq,tu->sptqu", L, np.eye(T)).reshape(len(u), surface.entries, -1)

    def take(self, index: np.ndarray) -> SlicePosterior:
        return SlicePosterior(self.surface, self.choices, self.u[index], self.cavity.take(index))

    @property
    def whitened(self) -> np.ndarray:
        return self.dim + np.arange(self.residuals)

    def log_density(self) -> np.ndarray:
        return log_whitening(self.factor, 0, self.omega.shape[2])

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        """Residuals (branches, n, nodes, C) and log-weight (branches, nodes, C) at x (d, nodes, C)."""
        nodes, C = x.shape[1:]
        owner = np.tile(index, nodes)
        points = x.reshape(self.dim, -1).T
        shape = (self.branches, self.residuals, nodes, C)
        r, weight = np.zeros(shape), np.full((self.branches, nodes, C), -np.inf)
        doubt = Doubt.none(C)
        for c, choice in enumerate(self.choices):
            zeta, log_weight = self._solve(choice, owner, points, doubt)
            mine = slice(c * self.slots, (c + 1) * self.slots)
            r[mine] = np.moveaxis(zeta, 0, 2).reshape(self.slots, self.residuals, nodes, C)
            weight[mine] = log_weight.T.reshape(self.slots, nodes, C)
        return Values(r, weight, doubt=doubt)

    def doubt(self, seen: Doubt | None) -> tuple[np.ndarray, np.ndarray]:
        """What solutions that no start has reached may move the mean by, from those that a single one has."""
        assert seen is not None
        with np.errstate(invalid="ignore"):
            share = np.where(seen.found_once > -np.inf, np.exp(seen.found_once - seen.all_found), 0.0)
        return np.where(seen.lost, np.inf, np.sqrt(self.residuals) * share), seen.lost

    def _solve(self, choice: Choice, owner: np.ndarray, x: np.ndarray, doubt: Doubt) -> tuple[np.ndarray, np.ndarray]:
        """Whitened fields (N, slots, n) and log-weights (N, slots) of all solutions at x (N, d).

        What they tell of solutions that were not found goes to ``doubt``, by columns.
        """
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
        column = np.arange(N) % len(doubt.lost)
        # Solutions that found no slot: nothing bounds what they carry.
        doubt.lost[column[roots.lost]] = True
        full = np.repeat(Z[:, None], self.slots, axis=1)
        full[:, :, choice.solved] = roots.values
        log_weight = np.full((N, self.slots), -np.inf)
        some = roots.found
        if some.any():
            log_weight[some] = self._shares(choice, full[some])
        log_weight += (0.5 * (x**2).sum(axis=1) + np.log(np.einsum("nii->ni", own)).sum(axis=1)[owner])[:, None]
        fields = full.reshape(N, self.slots, *self.omega.shape[1:])
        zeta = whiten(fields, self.omega[owner][:, None], self.factor[owner][:, None]).reshape(N, self.slots, n)
        if not self.line:
            density = log_weight - 0.5 * (zeta**2).sum(axis=2) - 0.5 * (x**2).sum(axis=1)[:, None]
            for total, which in ((doubt.all_found, some), (doubt.found_once, some & (roots.hits == 1))):
                np.logaddexp.at(total, column, np.logaddexp.reduce(np.where(which, density, -np.inf), axis=1))
        return np.where(some[..., None], zeta, 0.0), log_weight

    def _roots(self, choice: Choice, owner: np.ndarray, Z: np.ndarray, mean: np.ndarray, factor: np.ndarray) -> Roots:
        patience.check()
        y = self.u[owner]
        if self.line:
            return along_line(self.surface, y, Z, int(choice.solved[0]), mean[:, 0], factor[:, 0, 0], self.slots)
        K = len(choice.solved)
        base = Normals(K, 2).draw(_STARTS)
        starts = mean[:, None] + 1.3 * np.einsum("nij,mj->nmi", factor, base)
        return from_starts(self.surface, y, Z, choice.solved, starts)

    def _shares(self, choice: Choice, Z: np.ndarray) -> np.ndarray:
        """log of vol / sum of vol^2 over the choices, at fields Z (N, n) on the level set: this choice's part."""
        J = jacobian(self.surface, Z, np.arange(self.residuals))[1]
        volumes = np.stack([log_volume(J[:, :, c.solved]) for c in self.choices])
        mine = next(i for i, c in enumerate(self.choices) if c is choice)
        return np.asarray(volumes[mine] - np.logaddexp.reduce(2 * volumes, axis=0))


def numeric_posterior(link: LinkFunction, signs: np.ndarray) -> OnPoints | OnSlices:
    """The general posterior of a noiseless link; ``signs`` (G, P) are flips of rows that leave it unchanged."""
    surface = Surface(link)
    if surface.rank() == surface.entries:
        return OnPoints(surface, signs)
    return OnSlices(surface)
