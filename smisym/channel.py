"""LevelSet into Channel: posterior moments of the fields given (y, omega, V).

The cavity Gaussian is whitened with the free rows first, Z = omega + L zeta with V = L L^T, so that the
solvers get moments of zeta: g_out = L^{-T} E[zeta] loses no digits as V vanishes, and nothing is added to V.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smisym import importance, quadrature
from smisym.charts import LevelSet
from smisym.errors import InputError
from smisym.link import LinkFunction, Observation, check_fields
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


class Channel:
    """The output channel of a noiseless model with a chart.

    ``y`` is an array (S, T, T) or an :class:`~smisym.link.Observation`; ``omega`` (S, P, T); ``V`` (P, P) or (S, P, P),
    positive definite.  Errors: InputError for shapes, NaN, a V that is not positive definite, y outside the image.
    """

    def __init__(self, link: LinkFunction, level_set: LevelSet) -> None:
        self.link, self.level_set = link, level_set
        self.fields, self.tokens = link.fields, link.tokens
        self.free_dimensions = len(level_set.free_rows) * self.tokens

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
        free dimensions or more, or a lattice over budget); ``max_nodes`` bounds the evaluations spent on one sample.
        """
        observation = self._observation(y)
        omega = check_fields(omega, self.fields, self.tokens)
        if len(observation) != len(omega):
            raise InputError(
                "lengths of y and omega", (len(observation), len(omega)), "equal", "give one omega (P, T) for each y"
            )
        factor = self._factor(V, len(omega))
        rtol = self.default_rtol() if rtol is None else rtol
        if not (np.isfinite(rtol) and rtol > 0):
            raise InputError("rtol", rtol, "a positive number", "use 1e-6, or 1e-3 in many dimensions")
        coordinates = self.level_set.coordinates(observation)
        return self._integrate(
            coordinates.values, coordinates.relative_error, omega, factor, cov, rtol, seed, max_nodes
        )

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
        if u.shape != (len(omega), self.level_set.dimension) or not np.isfinite(u).all():
            raise InputError(
                "coordinates u",
                u.shape,
                f"finite, of shape ({len(omega)}, {self.level_set.dimension})",
                "one row a sample",
            )
        factor = self._factor(V, len(omega))
        rtol = self.default_rtol() if rtol is None else rtol
        return self._integrate(u, np.zeros(len(u)), omega, factor, cov, rtol, seed, max_nodes)

    def _integrate(
        self,
        u: np.ndarray,
        ill: np.ndarray,
        omega: np.ndarray,
        factor: np.ndarray,
        cov: bool,
        rtol: float,
        seed: int,
        max_nodes: int | None,
    ) -> Moments:
        S = len(omega)
        block = _BLOCK.get(self.free_dimensions, _BLOCK_ELSE)
        parts = [
            self._block(slice(i, min(i + block, S)), u, omega, factor, cov, rtol, seed, max_nodes)
            for i in range(0, S, block)
        ]
        return self._assemble(parts, omega, factor, ill, cov, rtol)

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
        return self.link.observe(Z)

    def default_rtol(self) -> float:
        """What the integration reaches at a reasonable cost in this number of free dimensions."""
        return {0: 1e-12, 1: 1e-8, 2: 1e-6, 3: 1e-5, 4: 1e-3}.get(self.free_dimensions, 1e-2)

    def _fine(self, rtol: float | None) -> float:
        """Single evaluations asked for by name are worth more nodes than the average of many."""
        return rtol if rtol is not None else {2: 1e-10, 3: 1e-7}.get(self.free_dimensions, self.default_rtol())

    # ---- edge ----------------------------------------------------------------------------------

    def _observation(self, y: np.ndarray | Observation) -> Observation:
        if isinstance(y, Observation):
            return y
        return observation_from_array(y, self.link)

    def _factor(self, V: np.ndarray, samples: int) -> np.ndarray:
        """Cholesky factor (S, P, P) of V with the free rows first."""
        V = np.asarray(V, dtype=float)
        P = self.fields
        if V.shape not in ((P, P), (samples, P, P)):
            raise InputError(
                "shape of V", V.shape, f"({P}, {P}) or ({samples}, {P}, {P})", "give one V or one a sample"
            )
        if not np.isfinite(V).all() or (np.abs(V - np.swapaxes(V, -1, -2)) > 1e-12 * np.abs(V).max()).any():
            raise InputError("V", V, "a finite symmetric matrix", "symmetrise V and remove NaN")
        order = [*self.level_set.free_rows, *self.level_set.solved_rows]
        V = V[..., order, :][..., :, order]
        try:
            factor = np.linalg.cholesky(V)
        except np.linalg.LinAlgError:
            smallest = float(np.linalg.eigvalsh(V).min())
            raise InputError(
                "V",
                f"a matrix with smallest eigenvalue {smallest:.3g}",
                "positive definite",
                "at perfect recovery no channel is needed; else check that Q < I",
            ) from None
        return np.broadcast_to(factor, (samples, P, P))

    # ---- integration ---------------------------------------------------------------------------

    def _block(
        self,
        where: slice,
        u: np.ndarray,
        omega: np.ndarray,
        factor: np.ndarray,
        cov: bool,
        rtol: float,
        seed: int,
        max_nodes: int | None,
    ) -> tuple[quadrature.Posterior, np.ndarray]:
        """Posterior of one block of samples, and which of them were sampled rather than integrated."""
        integrand = Whitened(self.level_set, self.tokens, u[where], omega[where], factor[where])
        dim, S = integrand.dim, integrand.samples
        nothing = np.zeros(S, dtype=bool)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
            if dim == 0:
                return quadrature.discrete(integrand, cov=cov), nothing
            if dim > _LATTICE_DIM:
                rng = np.random.default_rng([seed, where.start])
                return importance.mixture(integrand, rtol=rtol, cov=cov, rng=rng, max_nodes=max_nodes), ~nothing
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
        omega: np.ndarray,
        factor: np.ndarray,
        ill: np.ndarray,
        cov: bool,
        rtol: float,
    ) -> Moments:
        S, P, T = omega.shape
        order = [*self.level_set.free_rows, *self.level_set.solved_rows]
        n_free = len(self.level_set.free_rows)

        def join(name: str) -> np.ndarray:
            return np.concatenate([getattr(p, name) for p, _ in parts]) if parts else np.empty(0)

        mean = join("mean").reshape(S, P, T)
        inverse = np.linalg.inv(factor)
        g, fields = np.empty_like(omega), np.empty_like(omega)
        g[:, order] = np.swapaxes(inverse, 1, 2) @ mean
        fields[:, order] = factor @ mean
        fields += omega
        diagonal = np.log(np.einsum("sii->si", factor))[:, n_free:].sum(axis=1)
        log_partition = join("log_norm") - 0.5 * P * T * np.log(2 * np.pi) - T * diagonal
        spread = dg = None
        if cov:
            zeta = join("cov").reshape(S, P, T, P, T)
            spread, dg = np.empty_like(zeta), np.empty_like(zeta)
            grid = np.ix_(range(S), order, range(T), order, range(T))
            spread[grid] = np.einsum("spi,sitju,sqj->sptqu", factor, zeta, factor, optimize=True)
            centred = zeta - np.eye(P * T).reshape(P, T, P, T)
            dg[grid] = np.einsum("sip,sitju,sjq->sptqu", inverse, centred, inverse, optimize=True)
        result = Result.SUCCESS
        if (ill > max(1e-6, 10 * rtol)).any():
            result = Result.ILL_CONDITIONED
        elif not join("converged").all():
            result = Result.INTEGRATION
        statistical = np.concatenate([s for _, s in parts]) if parts else np.empty(0, dtype=bool)
        return Moments(log_partition, fields, spread, g, dg, join("error"), join("nodes"), statistical, result)


class Whitened:
    """The posterior of one block of samples over zeta = (x, r): an integrand for :mod:`smisym.quadrature`."""

    def __init__(self, level_set: LevelSet, tokens: int, u: np.ndarray, omega: np.ndarray, factor: np.ndarray) -> None:
        self.level_set, self.tokens = level_set, tokens
        self.u, self.omega, self.factor = u, omega, factor
        self.n_free, self.n_solved = len(level_set.free_rows), len(level_set.solved_rows)
        self.samples = len(u)
        self.dim = self.n_free * tokens
        self.residuals = self.n_solved * tokens
        self.branches = len(level_set.branches)
        # Which entries of the factor below the diagonal are used at all: most V are diagonal.
        self._linked = np.any(factor != 0.0, axis=0)

    def take(self, index: np.ndarray) -> Whitened:
        """The same for some of the samples."""
        return Whitened(self.level_set, self.tokens, self.u[index], self.omega[index], self.factor[index])

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals (branches, m, n, C) and log-weight (n, C) at x (d, n, C)."""
        omega, L = self.omega[index], self.factor[index]
        solved, log_weight = self.level_set.solve(self._free(x, omega, L), list(self.u[index].T))
        shape = x.shape[1:]
        r = np.empty((self.branches, self.residuals, *shape))
        T, F = self.tokens, self.n_free
        for s, row in enumerate(self.level_set.solved_rows):
            scale = 1.0 / L[:, F + s, F + s]
            for t in range(T):
                shift = omega[:, row, t] * scale
                for q in np.flatnonzero(self._linked[F + s, :F]):
                    shift = shift + x[q * T + t] * (L[:, F + s, q] * scale)
                value = solved[s * T + t] * scale
                for b, sign in enumerate(self.level_set.branches[:, s]):
                    out = r[b, s * T + t]
                    np.multiply(value, sign, out=out)
                    out -= shift
                    for q in np.flatnonzero(self._linked[F + s, F : F + s]):
                        out -= r[b, q * T + t] * (L[:, F + s, F + q] * scale)
        return r, np.broadcast_to(log_weight, shape)

    def _free(self, x: np.ndarray, omega: np.ndarray, L: np.ndarray) -> list[np.ndarray]:
        """The free fields at x, row by row and token by token."""
        T = self.tokens
        free = []
        for p, row in enumerate(self.level_set.free_rows):
            for t in range(T):
                value = x[p * T + t] * L[:, p, p]
                for q in np.flatnonzero(self._linked[p, :p]):
                    value += x[q * T + t] * L[:, p, q]
                value += omega[:, row, t]
                free.append(value)
        return free


def observation_from_array(y: np.ndarray, link: LinkFunction) -> Observation:
    """An Observation from a float output (S, T, T), checked to be an output of the right kind."""
    y = np.asarray(y, dtype=float)
    T = link.tokens
    if y.ndim != 3 or y.shape[1:] != (T, T):
        raise InputError("shape of y", y.shape, f"(S, {T}, {T})", "stack samples along axis 0")
    if not np.isfinite(y).all():
        raise InputError("y", "an array with NaN or infinity", "finite numbers", "remove the bad samples")
    if not link.output_is_softmax:
        return Observation(y, None, exact=False)
    off = np.abs(y.sum(axis=2) - 1).max(axis=1)
    rounding = 64 * T * np.finfo(float).eps
    if (off > rounding).any():
        sample = int(off.argmax())
        raise InputError(
            f"y of sample {sample}",
            f"rows that sum to {y[sample].sum(axis=1).tolist()}",
            "an attention matrix: every row sums to 1 to double precision",
            "normalise the rows in float64 before passing y",
        )
    if (y <= 0).any():
        sample = int(np.argwhere(y <= 0)[0, 0])
        raise InputError(
            f"y of sample {sample}",
            f"smallest entry {y[sample].min():.3g}",
            "positive entries, as a softmax gives",
            "zeros are underflow: pass the Observation of model.observe(Z), which keeps the log-ratios",
        )
    logs = np.log(y)
    return Observation(y, logs - np.einsum("sii->si", logs)[:, :, None], exact=False)
