"""Channel: posterior moments of the fields given (y, omega, V).  It checks, integrates and assembles.

What is integrated over is the posterior's to say (:mod:`smisym.posterior.base`).
"""

from __future__ import annotations

import functools
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from smisym.base import patience
from smisym.base.edge import check_number, real_array
from smisym.base.errors import InputError
from smisym.base.solution import Result, worst
from smisym.charts.base import Coordinates
from smisym.integrate.accuracy import SUM, Row
from smisym.integrate.boxes import at_once
from smisym.link.components import Component
from smisym.link.linking import LinkFunction, Observation, check_fields
from smisym.model.integrals import How, integral, plan_of
from smisym.model.moments import Moments, apart, join, nothing, product
from smisym.model.observing import observation_from_array
from smisym.model.resolving import Resolving
from smisym.posterior.base import Kind, Observed, Posterior, Task
from smisym.posterior.composite import BySharedRows

__all__ = ["Channel", "Moments", "Part", "plan_of"]

# The least number above zero.
_TINY = 5e-324
# Standard deviations between omega and the mean from which on nobody answers for the search for maxima, which begins at
# points around omega.
_EXCLUDED = 20.0
# Posteriors on which another way is tried first, and the share of them that must err less for it to be used on others.
_FEW, _SERVES = 8, 0.25
# What is added to the seed for these others.
_OTHERS = 2**40
# Relative difference of variances of rows that are known equally well; errors by which a log-partition may lie below
# what it is at least.
_ALIKE, _BELOW = 1e-11, 5.0


class Part(NamedTuple):
    """Rows of Z that share no output with the others, and the channel of their outputs."""

    component: Component
    channel: Channel


class Channel:
    """The output channel of a model: a link, Gaussian noise of some variance on every entry of its output, or none.

    ``y`` is an array (S, ...) of outputs or an :class:`~smisym.link.linking.Observation`; ``omega`` (S, P, T);
    ``V`` (P, P) or (S, P, P), positive definite.  Errors: InputError for shapes, NaN, a V that is not positive
    definite, y outside the image.  shared: asked in place of ``posterior`` for batches that it serves.
    parts: asked in place of both wherever V couples none of them with another.
    """

    def __init__(
        self,
        link: LinkFunction,
        posterior: Posterior,
        noise: float = 0.0,
        shared: BySharedRows | None = None,
        parts: tuple[Part, ...] = (),
    ) -> None:
        self.link, self.posterior, self.noise, self.shared = link, posterior, noise, shared
        self.parts = parts
        self._resolving = Resolving(posterior, (link.fields, link.tokens), self.sample)
        self.fields, self.tokens = link.fields, link.tokens
        self.free_dimensions = posterior.dim
        largest = max((part.channel for part in parts), key=lambda one: one.free_dimensions, default=None)
        self.plan: Row = plan_of(posterior) if largest is None else largest.plan

    def __repr__(self) -> str:
        where, how = self.posterior.describe()
        return f"<Channel: {where}, integrated by {how}>"

    @cached_property
    def still(self) -> Channel:
        """The channel for outputs of which nothing is known beside, omega = 0: by shared rows alone where these
        serve, which miss the error asked for at some outputs."""
        return self if self.shared is None else Channel(self.link, self.shared.shared, self.noise)

    @cached_property
    def _coordinates(self) -> int:
        """How many the posterior reads off an output, as it does off that of any fields."""
        fields = np.random.default_rng(0).standard_normal((1, self.fields, self.tokens))
        return int(self.posterior.read(self.link.observe(fields)).values.shape[1])

    # Many parameters: settings, all by keyword.
    def moments(
        self,
        y: np.ndarray | Observation,
        omega: np.ndarray,
        V: np.ndarray,
        *,
        cov: bool = False,
        rtol: float | None = None,
        seed: int = 0,
        max_nodes: int | None = None,
        averaged: bool = False,
    ) -> Moments:
        """Posterior moments; ``rtol`` is the error aimed at for the mean, in the norm of V^{-1}.

        ``rtol`` defaults to :meth:`default_rtol`.  ``seed`` matters only where importance sampling is used (five
        free dimensions or more, a lattice over budget, or an integrand that is not smooth, such as the cells of
        hardmax); ``max_nodes`` bounds the evaluations spent on one sample.  ``averaged``: only averages over the
        samples matter; of deep networks by tables the mean of all errors is then brought to ``rtol``, where a few that
        are dear are left with larger ones, which are stated.
        """
        observation = self._observation(y)
        omega = check_fields(omega, self.fields, self.tokens)
        if len(observation) != len(omega):
            raise InputError(
                "lengths of y and omega", (len(observation), len(omega)), "equal", "give one omega (P, T) for each y"
            )
        how = How(cov, self._checked_rtol(rtol), seed, max_nodes, averaged)
        V = self._covariances(V, len(omega))
        if self.parts and all(part.component.free_of(V) for part in self.parts):
            found = self._part_by_part(observation, omega, V, how)
        else:
            found = self._integrate(self.posterior.read(observation), omega, V, how)
        return self._answered_for(found, omega)

    def moments_at(
        self,
        u: np.ndarray,
        omega: np.ndarray,
        V: np.ndarray,
        *,
        cov: bool = False,
        rtol: float | None = None,
        seed: int = 0,
        max_nodes: int | None = None,
    ) -> Moments:
        """Like :meth:`moments`, at coordinates u (S, K) of the output in the chart instead of outputs."""
        omega = check_fields(omega, self.fields, self.tokens)
        u = real_array("coordinates u", u, "real numbers", "one row a sample")
        allowed = len(omega), self._coordinates
        if u.shape != allowed or not np.isfinite(u).all():
            raise InputError("coordinates u", u.shape, f"finite, of shape {allowed}", "one row a sample")
        how = How(cov, self._checked_rtol(rtol), seed, max_nodes)
        found = self._integrate(Coordinates(u, np.zeros(len(u))), omega, self._covariances(V, len(omega)), how)
        return self._answered_for(found, omega)

    def _answered_for(self, found: Moments, omega: np.ndarray) -> Moments:
        """No success where some output is far from where its cavity has it, but for sums that look for no maximum."""
        distance = np.einsum("spt,spt->s", found.mean - omega, found.g)
        if self.plan.method is SUM or not (distance > _EXCLUDED**2).any():
            return found
        return replace(found, result=worst([found.result, Result.EXCLUDED]))

    # ---- integrate -----------------------------------------------------------------------------

    def _part_by_part(self, observation: Observation, omega: np.ndarray, V: np.ndarray, how: How) -> Moments:
        """Moments of parts that neither outputs nor V couple."""
        share, found = replace(how, rtol=how.rtol / np.sqrt(len(self.parts))), []
        for component, channel in self.parts:
            rows = list(component.rows)
            observed = channel.posterior.read(component.observed(observation))
            found.append((rows, channel._integrate(observed, omega[:, rows], V[:, rows][:, :, rows], share)))
        return product(found, self.fields)

    def _integrate(self, observed: Observed, omega: np.ndarray, V: np.ndarray, how: How) -> Moments:
        """Moments of all samples, each from the task in which its error is smaller."""
        shared = self.shared is not None and self.shared.serves(omega, V)
        tasks = (self.shared if self.shared is not None and shared else self.posterior).tasks(observed, omega, V)
        where, found = tasks[0].where, self._tried(tasks[0], how)
        for task in tasks[1:]:
            where, found = apart(found, where, self._tried(task, how), task.where, how.rtol)
        return found

    def _tried(self, task: Task, how: How) -> Moments:
        """Moments of one task, held against what bounds its log-partition where anything does."""
        found = self._first_or_otherwise(task, how)
        return found if task.bounded is None else self._bounded(task, task.bounded, found, how)

    def _bounded(self, task: Task, kind: Kind, found: Moments, how: How) -> Moments:
        """Without what lies below what the log-partition is at least: parts of the posterior were missed there.

        With v the least eigenvalue of V, N(z; omega, V) >= sqrt(det(v I) / det V) N(z; omega, v I) at any z.
        """
        V = np.broadcast_to(task.V, (len(task.where), *task.V.shape[1:]))
        values = np.linalg.eigvalsh(V)
        which = np.flatnonzero(values[:, -1] > (1 + _ALIKE) * values[:, 0])
        if not which.size:
            return found
        least = values[which, 0]
        alike = Task(
            which, kind, task.observed.take(which), task.omega[which], least[:, None, None] * np.eye(V.shape[1])
        )
        bound = self._task(alike, replace(how, cov=False, averaged=False))
        floor = bound.log_partition + 0.5 * self.tokens * np.log(least[:, None] / values[which]).sum(axis=1)
        allowed = _BELOW * (found.error[which] + bound.error) + np.finfo(float).eps * np.abs(floor)
        below = which[found.log_partition[which] < floor - allowed]
        if not below.size:
            return found
        error = found.error.copy()
        error[below] = np.inf
        return replace(found, error=error, result=worst([found.result, Result.INTEGRATION]))

    def _first_or_otherwise(self, task: Task, how: How) -> Moments:
        """Moments of one task, and otherwise where the first way misses the error asked for."""
        found = self._task(task, how)
        averaged = how.averaged and task.posterior.tabled
        rest = _largest(found.error, how.rtol) if averaged else np.flatnonzero(~(found.error <= how.rtol))
        if task.otherwise is not None and rest.size:
            found = self._otherwise(task, task.otherwise, found, rest, replace(how, averaged=False))
        elif not averaged:
            return found
        missed = not found.error.mean() <= how.rtol if averaged else not (found.error <= how.rtol).all()
        return replace(found, result=_code(task.observed, missed, how.rtol))

    # Many parameters: a task, what was found, and what of it is left.
    def _otherwise(self, task: Task, other: Kind, found: Moments, rest: np.ndarray, how: How) -> Moments:
        """The same, what is left in another way where that errs less: first the worst, and all if that serves them."""
        worst = rest[np.sort(np.argsort(-found.error[rest], kind="stable")[:_FEW])]
        for part in (worst, np.setdiff1d(rest, worst)):
            if part.size:
                again = self._task(task.take(part, other), how)
                serves = (again.error < found.error[part]).mean() >= _SERVES
                found, how = found.replaced(part, again), replace(how, seed=how.seed + _OTHERS)
                if not serves:
                    break
        return found

    def _task(self, task: Task, how: How) -> Moments:
        """Moments of the samples of one task, block by block."""
        S = len(task.where)
        if S > 1 and isinstance(task.observed, Coordinates) and not task.omega.any() and (task.V == task.V[0]).all():
            first, where = np.unique(task.observed.values, axis=0, return_index=True, return_inverse=True)[1:]
            if 2 * len(first) < S:
                # Outputs that repeat, as discrete ones do: one integral for all of a kind.
                own = task.observed.take(first), task.omega[first], task.V[:1]
                return self._task(Task(first, task.posterior, *own), how).take(where.reshape(-1))
        block = max(plan_of(task.posterior).block, at_once())
        parts = [self._block(task, slice(i, min(i + block, S)), how) for i in range(0, S, block)]
        if not parts:
            return nothing(self.fields, self.tokens, how.cov)
        return join(parts, _code(task.observed, any(not part.result.ok for part in parts), how.rtol))

    def _block(self, task: Task, where: slice, how: How) -> Moments:
        """Moments of one block of samples of a task."""
        patience.check()
        V = task.V if len(task.V) == 1 else task.V[where]
        integrand = task.posterior.at(task.observed.take(where), task.omega[where], V)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
            longest = functools.partial(self._resolving.longest_step, task.posterior, V)
            found, statistical = integral(integrand, plan_of(task.posterior), where.start, how, longest)
        moments = integrand.fields(found.mean, found.cov)
        result = Result.SUCCESS if found.converged.all() else Result.INTEGRATION
        log_partition = found.log_norm + integrand.log_constant()
        return Moments(
            log_partition,
            moments.mean,
            moments.cov,
            moments.g,
            moments.dg,
            found.error,
            found.nodes,
            statistical,
            result,
        )

    def g_out(
        self, y: np.ndarray | Observation, omega: np.ndarray, V: np.ndarray, *, rtol: float | None = None, seed: int = 0
    ) -> np.ndarray:
        """The denoiser g_out(y, omega, V) = V^{-1}(E[Z | y] - omega), (S, P, T)."""
        return self.moments(y, omega, V, rtol=self._fine(rtol), seed=seed).g

    def dg_out(
        self, y: np.ndarray | Observation, omega: np.ndarray, V: np.ndarray, *, rtol: float | None = None, seed: int = 0
    ) -> np.ndarray:
        """d g_out[p,t] / d omega[q,s], (S, P, T, P, T), from the posterior covariance."""
        return np.asarray(self.moments(y, omega, V, cov=True, rtol=self._fine(rtol), seed=seed).dg)

    def log_partition(
        self, y: np.ndarray | Observation, omega: np.ndarray, V: np.ndarray, *, rtol: float | None = None, seed: int = 0
    ) -> np.ndarray:
        """log p(y | omega, V), (S,), a density in the chart's coordinates of y."""
        return self.moments(y, omega, V, rtol=self._fine(rtol), seed=seed).log_partition

    def sample(self, Z: np.ndarray, rng: np.random.Generator) -> Observation:
        """Outputs at the given fields (S, P, T); a noiseless channel draws nothing from ``rng``."""
        return self.draw(Z, rng.standard_normal((len(Z), self.noise_dimensions)))

    @property
    def noise_dimensions(self) -> int:
        """How many standard normal numbers one output takes."""
        return int(np.prod(self.link.output_shape)) if self.noise else 0

    def draw(self, Z: np.ndarray, normals: np.ndarray) -> Observation:
        """Outputs at the given fields (S, P, T) with noise from standard normals (S, noise_dimensions)."""
        observed = self.link.observe(Z)
        if not self.noise:
            return observed
        return Observation(observed.y + np.sqrt(self.noise) * normals.reshape(observed.y.shape), None)

    def default_rtol(self) -> float:
        """What the integration reaches at a reasonable cost in this number of free dimensions."""
        return self.plan.moments

    def _fine(self, rtol: float | None) -> float:
        """Single evaluations asked for by name are worth more nodes than the average of many."""
        return self.plan.single if rtol is None else rtol

    # ---- edge ----------------------------------------------------------------------------------

    def _observation(self, y: np.ndarray | Observation) -> Observation:
        if isinstance(y, Observation):
            return y
        return observation_from_array(y, self.link, self.noise)

    def _covariances(self, V: np.ndarray, samples: int) -> np.ndarray:
        """V as (1, P, P) or (samples, P, P), or an InputError."""
        V = real_array("V", V, "real numbers", "give a covariance (P, P), or one a sample")
        P = self.fields
        if V.shape not in ((P, P), (samples, P, P)):
            raise InputError(
                "shape of V", V.shape, f"({P}, {P}) or ({samples}, {P}, {P})", "give one V or one a sample"
            )
        if not np.isfinite(V).all() or (np.abs(V - np.swapaxes(V, -1, -2)) > 1e-12 * np.abs(V).max()).any():
            raise InputError("V", V, "a finite symmetric matrix", "symmetrise V and remove NaN")
        return V.reshape(-1, P, P)

    def _checked_rtol(self, rtol: float | None) -> float:
        if rtol is None:
            return self.default_rtol()
        return check_number("rtol", rtol, "a positive number", "use 1e-6, or 1e-3 in many dimensions", least=_TINY)


def _code(observed: Observed, missed: bool, rtol: float) -> Result:
    """What is said of a batch of which some samples missed the error asked for, or none."""
    ill = (observed.relative_error > max(1e-6, 10 * rtol)).any()
    return Result.INTEGRATION if missed else Result.ILL_CONDITIONED if ill else Result.SUCCESS


def _largest(error: np.ndarray, aim: float) -> np.ndarray:
    """The fewest of errors (S,) without which the mean is half of ``aim``; none where it is ``aim`` with them."""
    if not error.size or error.mean() <= aim:
        return np.arange(0)
    order = np.argsort(-error, kind="stable")
    without = np.cumsum(error[order][::-1])[::-1]
    return np.sort(order[without > 0.5 * aim * len(error)])
