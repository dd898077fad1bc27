"""Channel: posterior moments of the fields given (y, omega, V), over whatever measure the output leaves.

The cavity Gaussian is whitened, Z = omega + L zeta with V = L L^T, so that the solvers get moments of zeta:
g_out = L^{-T} E[zeta] loses no digits as V vanishes, and nothing is added to V.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from smisym import importance, quadrature
from smisym.around import AroundLevelSet
from smisym.around_image import AroundImage
from smisym.edge import real_array
from smisym.errors import InputError
from smisym.link import LinkFunction, Observation, check_fields
from smisym.measure import Cavity, CavityOfFields, Measure, OnAllFields, Posteriors
from smisym.solution import Result

# Samples integrated together, by free dimensions: enough to amortise the interpreter, few enough for the cache and for
# the cells of all of them (10^5 each in four dimensions) to fit in memory.
_BLOCK = {3: 256, 4: 32}
_BLOCK_ELSE = 1024
# Largest number of free dimensions for which the adaptive lattice is tried before importance sampling.
_LATTICE_DIM = 4


@dataclass(frozen=True)
class Moments:
    """Posterior moments of the fields of a batch of samples.

    log_partition (S,): log p(y | omega, V), a density in the chart's coordinates of y.
    mean (S, P, T): E[Z | y, omega, V].
    cov (S, P, T, P, T): covariance, or None when not asked for.
    g (S, P, T): g_out = V^{-1}(mean - omega), without cancellation.
    dg (S, P, T, P, T): d g_out / d omega = V^{-1} cov V^{-1} - V^{-1}, or None.
    error (S,): estimated error of ``mean`` in the norm of V^{-1}; deterministic (refinement) on a lattice,
    statistical (independent scrambles) where ``statistical`` is True.
    nodes (S,): integrand evaluations spent.
    result: SUCCESS, INTEGRATION (some error above rtol) or ILL_CONDITIONED (y rounds away the fields).
    """

    log_partition: np.ndarray
    mean: np.ndarray
    cov: np.ndarray | None
    g: np.ndarray
    dg: np.ndarray | None
    error: np.ndarray
    nodes: np.ndarray
    statistical: np.ndarray
    result: Result

    def take(self, index: np.ndarray) -> Moments:
        """The same for chosen samples, which may repeat."""
        arrays: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "result"}
        chosen: dict[str, Any] = {n: None if a is None else a[index] for n, a in arrays.items()}
        return Moments(**chosen, result=self.result)


def join(parts: list[Moments], result: Result) -> Moments:
    """Moments of several batches as those of one."""
    arrays: dict[str, Any] = {}
    for name in (f.name for f in fields(Moments) if f.name != "result"):
        values = [getattr(part, name) for part in parts]
        arrays[name] = None if values[0] is None else np.concatenate(values)
    return Moments(**arrays, result=result)


class Channel:
    """The output channel of a model.

    ``y`` is an array (S, ...) of outputs or an :class:`~smisym.link.Observation`; ``omega`` (S, P, T); ``V`` (P, P)
    or (S, P, P),
    positive definite.  Errors: InputError for shapes, NaN, a V that is not positive definite, y outside the image.
    """

    def __init__(self, link: LinkFunction, measure: Measure) -> None:
        self.link, self.measure = link, measure
        # What takes over where noise that is weak beside the output is not weak beside what V leaves open of it.
        around = isinstance(measure, AroundLevelSet | AroundImage)
        self.strong = Channel(link, OnAllFields(link)) if around else None
        self.fields, self.tokens = link.fields, link.tokens
        self.free_dimensions = measure.dim

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
    ) -> Moments:
        """Posterior moments; ``rtol`` is the error aimed at for the mean, in the norm of V^{-1}.

        ``rtol`` defaults to :meth:`default_rtol`.  ``seed`` matters only where importance sampling is used (five
        free dimensions or more, a lattice over budget, or an integrand that is not smooth, such as the cells of
        hardmax); ``max_nodes`` bounds the evaluations spent on one sample.
        """
        observation = self._observation(y)
        omega = check_fields(omega, self.fields, self.tokens)
        if len(observation) != len(omega):
            raise InputError(
                "lengths of y and omega", (len(observation), len(omega)), "equal", "give one omega (P, T) for each y"
            )
        rtol = self.default_rtol() if rtol is None else rtol
        if not (np.isfinite(rtol) and rtol > 0):
            raise InputError("rtol", rtol, "a positive number", "use 1e-6, or 1e-3 in many dimensions")
        cavity = self._cavity(omega, V)
        weak = self._weak(cavity, len(omega))
        if not weak.any() and len(omega) and self.strong is not None:
            return self.strong.moments(observation, omega, V, cov=cov, rtol=rtol, seed=seed, max_nodes=max_nodes)
        how: dict[str, Any] = {"cov": cov, "rtol": rtol, "seed": seed, "max_nodes": max_nodes}
        coordinates = self.measure.coordinates(observation)
        u, ill = coordinates.values, coordinates.relative_error
        first = np.flatnonzero(weak)
        doubtful = np.zeros(len(first), dtype=bool)
        u = u[first]
        if isinstance(self.measure, AroundImage) and isinstance(cavity, CavityOfFields) and len(u):
            u, suited, doubtful = self.measure.locate(u, cavity.take(first))
            weak[first] = suited
            first, u, doubtful = (a[suited | doubtful] for a in (first, u, doubtful))
        if weak.all():
            return self._integrate(u, ill, cavity, **how)
        around = self._integrate(u, ill[first], cavity.take(first), **how) if first.size else None
        others = np.flatnonzero(~weak)
        return self._apart(around, first, self._everywhere(others, observation, omega, V, how), others, rtol)

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
        u = np.asarray(u, dtype=float)
        if u.ndim != 2 or len(u) != len(omega) or not np.isfinite(u).all():
            raise InputError("coordinates u", u.shape, f"finite, of shape ({len(omega)}, n)", "one row a sample")
        rtol = self.default_rtol() if rtol is None else rtol
        if isinstance(self.measure, AroundImage):
            y = Observation(u.reshape(len(u), *self.link.output_shape), None, exact=False)
            return self.moments(y, omega, V, cov=cov, rtol=rtol, seed=seed, max_nodes=max_nodes)
        return self._integrate(u, np.zeros(len(u)), self._cavity(omega, V), cov, rtol, seed, max_nodes)

    def _weak(self, cavity: Cavity, samples: int) -> np.ndarray:
        """(samples,) where the noise is weak enough, beside V, for integrals around the level set."""
        if not isinstance(self.measure, AroundLevelSet | AroundImage) or not isinstance(cavity, CavityOfFields):
            return np.ones(samples, dtype=bool)
        factor = cavity.factor if cavity.factor.strides[0] else cavity.factor[:1]
        return np.broadcast_to(self.measure.noise_is_weak(factor), (samples,)).copy()

    def _everywhere(
        self, others: np.ndarray, observation: Observation, omega: np.ndarray, V: np.ndarray, how: dict[str, Any]
    ) -> Moments:
        """Moments of chosen samples over all fields."""
        assert self.strong is not None
        V = np.asarray(V, dtype=float)
        V = V[others] if V.ndim == 3 and len(V) == len(omega) else V
        return self.strong.moments(observation[others], omega[others], V, **how)

    def _apart(
        self, around: Moments | None, first: np.ndarray, rest: Moments, others: np.ndarray, rtol: float
    ) -> Moments:
        """Moments of all samples from those around the level set (first) and over all fields (others).

        Of a sample that has both, the one with the smaller error, which is no smaller than the gap between their means:
        neither may have seen all of the posterior.
        """
        if around is None:
            return rest
        both, a, b = np.intersect1d(first, others, return_indices=True)
        result = next((part.result for part in (rest, around) if part.result is not Result.SUCCESS), Result.SUCCESS)
        joined = join([around, rest], result)
        choice = np.empty(len(np.union1d(first, others)), dtype=int)
        choice[others] = len(first) + np.arange(len(others))
        better = around.error[a] < rest.error[b]
        choice[first] = np.where(np.isin(first, both[~better]), choice[first], np.arange(len(first)))
        chosen = joined.take(choice)
        gap = np.einsum("spt,spt->s", around.mean[a] - rest.mean[b], around.g[a] - rest.g[b])
        with np.errstate(invalid="ignore"):
            apart = np.nan_to_num(np.sqrt(gap), nan=np.inf, posinf=np.inf)
        chosen.error[both] = np.maximum(chosen.error[both], apart)
        if result is Result.SUCCESS and (chosen.error[both] > rtol).any():
            return join([chosen], Result.INTEGRATION)
        return chosen

    def _integrate(
        self,
        u: np.ndarray,
        ill: np.ndarray,
        cavity: Cavity,
        cov: bool,
        rtol: float,
        seed: int,
        max_nodes: int | None,
    ) -> Moments:
        S = len(u)
        if S > 1 and cavity.constant:
            first, where = np.unique(u, axis=0, return_index=True, return_inverse=True)[1:]
            if 2 * len(first) < S:
                # Outputs that repeat, as discrete ones do: one integral for all of a kind.
                one = self._integrate(u[first], ill[first], cavity.take(first), cov, rtol, seed, max_nodes)
                return one.take(where.reshape(-1))
        block = _BLOCK.get(self.free_dimensions, _BLOCK_ELSE)
        parts = [
            self._block(slice(i, min(i + block, S)), u, cavity, cov, rtol, seed, max_nodes) for i in range(0, S, block)
        ]
        return self._assemble(parts, cavity, ill, cov, rtol)

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
        return int(np.prod(self.link.output_shape)) if self.link.noise else 0

    def draw(self, Z: np.ndarray, normals: np.ndarray) -> Observation:
        """Outputs at the given fields (S, P, T) with noise from standard normals (S, noise_dimensions)."""
        observed = self.link.observe(Z)
        if not self.link.noise:
            return observed
        return Observation(observed.y + np.sqrt(self.link.noise) * normals.reshape(observed.y.shape), None)

    def default_rtol(self) -> float:
        """What the integration reaches at a reasonable cost in this number of free dimensions."""
        if not self.measure.smooth:
            return 1e-2
        return {0: 1e-12, 1: 1e-8, 2: 1e-6, 3: 1e-5, 4: 1e-3}.get(self.free_dimensions, 1e-2)

    def _fine(self, rtol: float | None) -> float:
        """Single evaluations asked for by name are worth more nodes than the average of many."""
        if rtol is None and not self.measure.smooth:
            return self.default_rtol()
        return rtol if rtol is not None else {2: 1e-10, 3: 1e-7}.get(self.free_dimensions, self.default_rtol())

    # ---- edge ----------------------------------------------------------------------------------

    def _observation(self, y: np.ndarray | Observation) -> Observation:
        if isinstance(y, Observation):
            return y
        return observation_from_array(y, self.link)

    def _cavity(self, omega: np.ndarray, V: np.ndarray) -> Cavity:
        """The Gaussian of the fields, of a covariance that is checked first."""
        V = real_array("V", V, "real numbers", "give a covariance (P, P), or one a sample")
        P, samples = self.fields, len(omega)
        if V.shape not in ((P, P), (samples, P, P)):
            raise InputError(
                "shape of V", V.shape, f"({P}, {P}) or ({samples}, {P}, {P})", "give one V or one a sample"
            )
        if not np.isfinite(V).all() or (np.abs(V - np.swapaxes(V, -1, -2)) > 1e-12 * np.abs(V).max()).any():
            raise InputError("V", V, "a finite symmetric matrix", "symmetrise V and remove NaN")
        return self.measure.cavity(omega, V.reshape(-1, P, P))

    # ---- integration ---------------------------------------------------------------------------

    def _block(
        self,
        where: slice,
        u: np.ndarray,
        cavity: Cavity,
        cov: bool,
        rtol: float,
        seed: int,
        max_nodes: int | None,
    ) -> tuple[quadrature.Posterior, np.ndarray]:
        """Posterior of one block of samples, and which of them were sampled rather than integrated."""
        integrand = cavity.take(where).integrand(u[where])
        dim, S = integrand.dim, integrand.samples
        nothing = np.zeros(S, dtype=bool)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
            if dim == 0:
                return _doubted(quadrature.discrete(integrand, cov=cov), integrand, rtol), nothing
            if dim > _LATTICE_DIM or not self.measure.smooth:
                rng = np.random.default_rng([seed, where.start])
                sampled = importance.mixture(integrand, rtol=rtol, cov=cov, rng=rng, max_nodes=max_nodes)
                return _doubted(sampled, integrand, rtol), ~nothing
            posterior = quadrature.lattice(integrand, rtol=rtol, cov=cov, max_nodes=max_nodes)
            rest = np.flatnonzero(~posterior.converged)
            if not rest.size:
                return posterior, nothing
            rng = np.random.default_rng([seed, where.start])
            sampled = importance.mixture(integrand.take(rest), rtol=rtol, cov=cov, rng=rng, max_nodes=max_nodes)
            used = posterior.replace(rest, sampled)
        return posterior, used

    def _assemble(
        self,
        parts: list[tuple[quadrature.Posterior, np.ndarray]],
        cavity: Cavity,
        ill: np.ndarray,
        cov: bool,
        rtol: float,
    ) -> Moments:
        where = self.measure.fields_of_zeta

        def join(name: str) -> np.ndarray:
            return np.concatenate([getattr(p, name) for p, _ in parts]) if parts else np.empty(0)

        found = cavity.fields(join("mean")[:, where], join("cov")[:, where][:, :, where] if cov else None)
        log_partition = join("log_norm") - 0.5 * cavity.dimension * np.log(2 * np.pi) + cavity.log_constant()
        result = Result.SUCCESS
        if not join("converged").all():
            result = Result.INTEGRATION
        elif (ill > max(1e-6, 10 * rtol)).any():
            result = Result.ILL_CONDITIONED
        statistical = np.concatenate([s for _, s in parts]) if parts else np.empty(0, dtype=bool)
        return Moments(
            log_partition, found.mean, found.cov, found.g, found.dg, join("error"), join("nodes"), statistical, result
        )


def _doubted(posterior: quadrature.Posterior, integrand: Posteriors, rtol: float) -> quadrature.Posterior:
    """With the error of what an integrand may have missed."""
    posterior.error += integrand.doubt
    # However little, what is doubted is not returned as if it were known.
    posterior.converged &= (posterior.error <= rtol) & ~integrand.incomplete
    return posterior


def observation_from_array(y: np.ndarray, link: LinkFunction) -> Observation:
    """An Observation from float outputs (S, ...), checked to be outputs of the right kind."""
    y = real_array("y", y, "real numbers", "give one output of the link function per sample")
    shape = link.output_shape
    if y.ndim != 1 + len(shape) or y.shape[1:] != shape:
        raise InputError("shape of y", y.shape, f"(S, {', '.join(map(str, shape))})", "stack samples along axis 0")
    if not np.isfinite(y).all():
        raise InputError("y", "an array with NaN or infinity", "finite numbers", "remove the bad samples")
    if link.noise or not link.output_is_softmax:
        return Observation(y, None, exact=False)
    T = link.tokens
    inner = link.core_values(y)
    off = np.abs(inner.sum(axis=-1) - 1).reshape(len(y), -1).max(axis=1)
    rounding = 64 * T * np.finfo(float).eps
    if (off > rounding).any():
        sample = int(off.argmax())
        raise InputError(
            f"y of sample {sample}",
            f"rows that sum to {inner[sample].sum(axis=-1).tolist()}",
            "an attention matrix: every row sums to 1 to double precision",
            "normalise the rows in float64 before passing y",
        )
    attended = link.attended
    if (inner[:, attended] <= 0).any():
        sample = int(np.flatnonzero((inner[:, attended] <= 0).any(axis=1))[0])
        raise InputError(
            f"y of sample {sample}",
            f"smallest entry {inner[sample][attended].min():.3g}",
            "positive entries, as a softmax gives",
            "zeros are underflow: pass the Observation of model.observe(Z), which keeps the log-ratios",
        )
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(attended, inner, 0.0))
    first = np.where(np.einsum("...ii->...i", attended), np.arange(T), attended.argmax(axis=-1))
    base = np.take_along_axis(logs, np.broadcast_to(first, logs.shape[:-1])[..., None], axis=-1)
    return Observation(y, logs - base, exact=False)
