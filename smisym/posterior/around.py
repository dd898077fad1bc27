"""A noisy output whose noiseless link has a chart: the posterior is integrated around the level set.

Under weak noise the posterior is a shell of thickness sqrt(Delta) around {Z : f(Z) = y}, thin in all the fields.  In
the coordinates of the noiseless output it is not: with Z = Z(x, v), x the coordinates on the level set and v those of
the noiseless output,

    p(y) = int dv N(y; f(v), Delta) int dx N(Z(x, v); omega, V) |det dZ/d(x, v)|,

the Gaussian average of the noiseless channel.  v is measured from where y puts it, in units of how far y leaves it open
(:mod:`smisym.posterior.placing`).
"""

from __future__ import annotations

import numpy as np

from smisym.charts.base import Arrays, Coordinates, LevelSet, Unfolding
from smisym.integrate.modes import Values
from smisym.link.linking import LinkFunction, Observation
from smisym.posterior.base import METHODS, SAMPLED, Cavity, Kind, Whitening, cholesky, entries_of, log_noise
from smisym.posterior.level_set import Whitened, rows_of
from smisym.posterior.placing import Places, find_places

# Free fields and latent coordinates at which the output is read off v, on which it does not depend: any generic point.
_GENERIC = 0.37
# How much further than for a Gaussian the mass is looked for where that costs little: shells bend.
_REACH = 1.6
# Largest ratio of the noise to the variance of the noiseless output under which it is weak.
WEAK = 0.4


class AroundLevelSet(Kind):
    """A noisy output whose noiseless link has a chart that says how its level sets fill the fields."""

    smooth = True

    def __init__(self, level_set: LevelSet, link: LinkFunction, noise: float) -> None:
        self.level_set, self.link, self.noise = level_set, link, noise
        self.order = rows_of(level_set)
        free = len(level_set.free_rows) * link.tokens
        self.dim = free + len(level_set.latents) + unfolding_of(level_set).size
        self.spread = spread_of(link)

    def noise_is_weak(self, V: np.ndarray) -> np.ndarray:
        """(S,) whether the noise is weak beside what the cavity leaves open of the output; V (S, P, P)."""
        return weak_beside(self.noise, WEAK * self.spread, self.level_set, V)

    def locate(
        self, observed: Coordinates, omega: np.ndarray, V: np.ndarray
    ) -> tuple[Coordinates, np.ndarray, np.ndarray]:
        """What :meth:`at` needs of the outputs; which samples can be integrated so (all), and which in part (none)."""
        return observed, np.ones(len(omega), dtype=bool), np.zeros(len(omega), dtype=bool)

    def read(self, observation: Observation) -> Coordinates:
        return entries_of(observation)

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> Around:
        return Around(self.level_set, self.link, self.noise, observed.values, Cavity.of(omega, V, self.order))

    def describe(self) -> tuple[str, str]:
        return lives_around(self.noise, self.dim), METHODS.get(self.dim, SAMPLED)


def lives_around(noise: float, dim: int) -> str:
    """Where the posterior lives, in words."""
    return (
        f"the output has weak noise of variance {noise:g}, so that the posterior lives around the level set: {dim} "
        "dimensions with the coordinates of the output"
    )


def weak_beside(noise: float, largest: float, level_set: LevelSet, V: np.ndarray) -> np.ndarray:
    """(S,) whether noise is weak beside what V (S, P, P) leaves open of the output.

    The largest noise that is weak at V = I is scaled by the smallest variance of the solved rows given the free ones.
    """
    rows, free = list(rows_of(level_set)), len(level_set.free_rows)
    factor = cholesky(V[..., rows, :][..., :, rows])
    open_to = np.linalg.svd(factor[:, free:, free:], compute_uv=False)[:, -1] ** 2
    return np.asarray(noise <= largest * open_to)


def spread_of(link: LinkFunction) -> float:
    """Mean variance of the entries of the noiseless output over standard normal fields, the same each time."""
    Z = np.random.default_rng(0).standard_normal((1024, link.fields, link.tokens))
    return float(link(Z).reshape(len(Z), -1).var(axis=0).mean())


def unfolding_of(level_set: LevelSet) -> Unfolding:
    if level_set.unfolding is None:
        raise ValueError(f"the chart {level_set.rule!r} does not say how its level sets fill the fields")
    return level_set.unfolding


class Around(Whitened):
    """The posterior of one block of samples over (x, r): x are the whitened free fields, the latent coordinates, and K
    numbers that v is a function of, component by component; r are the whitened solved fields.

    The components are densities of v that overlap and together are everywhere: the integrand is shared out among them
    in proportion, so that the sum of their integrals is the integral, wherever they lie.
    """

    # The likelihood is part of the log-weight, and steep.
    saturating = True

    def __init__(
        self,
        level_set: LevelSet,
        link: LinkFunction,
        noise: float,
        y: np.ndarray,
        cavity: Whitening,
        places: Places | None = None,
    ) -> None:
        super().__init__(level_set, link.tokens, y, cavity)
        self.link, self.noise, self.unfolding = link, noise, unfolding_of(level_set)
        self.others = self.dim
        self.dim += self.unfolding.size
        self.places = places or find_places(self)
        self.branches = level_set.branches * self.places.components
        self.widening = _REACH if self.dim <= 2 else 1.0
        # Islands of mass may lie beyond a gap, where growing stops.
        self.tailed = True

    def take(self, index: np.ndarray) -> Around:
        """The same for some of the samples."""
        cavity, places = self.cavity.take(index), self.places.take(index)
        return Around(self.level_set, self.link, self.noise, self.u[index], cavity, places)

    def log_density(self) -> np.ndarray:
        return super().log_density() + log_noise(self.u.shape[1], self.noise)

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        """Residuals (branches, m, n, C), log-weight (branches, n, C) and directions at x (d, n, C)."""
        shape = (self.level_set.branches, *x.shape[1:])
        parts = []
        for component in range(self.places.components):
            there = np.isfinite(self.places.log_weight[index, component])
            if there.all():
                parts.append(self._component(component, index, x))
                continue
            # Few samples have as many components as the one with most.
            r, log_weight = np.zeros((shape[0], self.residuals, *shape[1:])), np.full(shape, -np.inf)
            own_along = np.zeros((shape[0], self.level_set.directions, self.residuals, *shape[1:]))
            if there.any():
                own = self._component(component, index[there], x[..., there])
                r[..., there], log_weight[..., there] = own.residuals, own.log_weight
                if own.along is not None:
                    own_along[..., there] = own.along
            parts.append(Values(r, log_weight, own_along if self.level_set.directions else None))
        if len(parts) == 1:
            return parts[0]
        along = None if parts[0].along is None else np.concatenate([np.asarray(part.along) for part in parts])
        r, log_weight = (np.concatenate(values) for values in zip(*(part[:2] for part in parts), strict=True))
        return Values(r, log_weight, along)

    def _component(self, component: int, index: np.ndarray, x: np.ndarray) -> Values:
        """What one component contributes: its share of the noiseless channel times the likelihood."""
        v = self.places.at(component, index, x[self.others :])
        r, log_weight, along, *_ = self.at(index, x[: self.others], v)
        misfit = self.misfit(index, v)
        log_weight = log_weight - 0.5 * np.einsum("m...,m...->...", misfit, misfit)
        log_weight += self.places.log_share(component, index, v, self.unfolding.flips)
        return Values(r, np.broadcast_to(log_weight, (self.level_set.branches, *x.shape[1:])), along)

    def at(self, index: np.ndarray, x: np.ndarray, v: Arrays) -> Values:
        """Residuals, log-weight and spread of the noiseless channel at x (d - K, n, C) and v."""
        r, log_weight, along, *_ = self.on_sheets(index, x, self._embed(v))
        if self.unfolding.log_weight is not None:
            log_weight = log_weight + self.unfolding.log_weight(v)
        return Values(r, log_weight, along)

    def misfit(self, index: np.ndarray, v: Arrays) -> np.ndarray:
        """(f(v) - y) / sqrt(Delta), (M, n, C)."""
        T, rows = self.tokens, self.level_set
        others = [np.asarray(_GENERIC * (-1) ** i / (1 + i)) for i in range(self.others)]
        free = others[: self.n_free * T]
        solved = rows.solve(free, others[self.n_free * T :], self._embed(v)).solved[0]
        fields = dict(zip((*rows.free_rows, *rows.solved_rows), _rows([*free, *solved], T), strict=True))
        values = self.link.entries([entry for row in sorted(fields) for entry in fields[row]])
        scale = 1 / np.sqrt(self.noise)
        out = np.empty((len(values), *np.shape(v[0])))
        for j, value in enumerate(values):
            out[j] = (value - self.u[index, j]) * scale
        return out

    def _embed(self, v: Arrays) -> Arrays:
        return v if self.unfolding.embed is None else self.unfolding.embed(v)


def _rows(entries: Arrays, tokens: int) -> list[Arrays]:
    return [entries[i : i + tokens] for i in range(0, len(entries), tokens)]
