"""The overlap map E(Q) = E[g_out g_out^T] (sum over tokens) and its exact derivative.

E does not depend on alpha: one table of evaluations serves every alpha, every threshold and the free entropy.
Each scramble of the Sobol points gives its own smooth, deterministic map; solvers solve once for each
scramble, and the spread of their answers is the statistical error.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import io
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc
from threadpoolctl import threadpool_limits

from smisym import patience, processes
from smisym.edge import (
    check_count,
    check_model,
    check_number,
    check_seed,
    check_settings,
    check_workers,
    overlap_matrix,
)
from smisym.effort import SAMPLES, SCRAMBLES, affordable, default_rtol
from smisym.errors import InputError, OutOfTime
from smisym.estimate import Estimate, estimate_from, square_root, units
from smisym.files import write_bytes
from smisym.io import header
from smisym.model import Model
from smisym.solution import Result
from smisym.symmetry_check import check_symmetry

# Multiple of its squared error above which what a posterior adds to a rate of growth is no error.
_BEYOND = 10.0
# Negative eigenvalue of E, beside its largest, that is rounding.
_ROUNDING = 1e-10
# Parts of the points of one scramble that take their control coefficients from each other.
_FOLDS = 4


class Keeper(Protocol):
    """Keeps records of plain JSON types by name: :class:`smisym.io.Store`."""

    def get(self, name: str, valid: Callable[[Any], object] | None = None) -> dict[str, Any] | None: ...

    def put(self, name: str, value: Mapping[str, Any]) -> dict[str, Any]: ...


class OverlapMap:
    """E(Q) of one model, evaluated on demand and remembered.

    samples: Sobol points of one evaluation over all scrambles; samples / scrambles is a power of two.  None: 8192, and
    less where there are more than two free dimensions or posteriors are sampled (:func:`smisym.effort.affordable`).
    scrambles: at least two, independent; their spread is the statistical error.
    seed: of the scrambles, and of posteriors that are sampled; a whole number >= 0.
    rtol: tolerance of the inner integrals, sample by sample; the estimated errors are far above the true ones and do
    not add up, so that 1e-2 leaves 1e-4 in E (measured for two layers).  None: 1e-3 in no or one free dimension, 1e-2
    in two, 3e-2 in more and where posteriors are sampled.
    workers: how many evaluations at a time, None for one a core.  Threads of one process share one core; after some
    seconds of work others are begun (:mod:`smisym.processes`).  Results do not depend on it, nor on where they are
    made.
    store: keeps every evaluation as soon as it is made, so that a run that was killed resumes with the same bits.
    on_evaluation: called after every evaluation of one scramble, from the thread that made it, with {"evaluations" (so
    far, of this map and its siblings), "seconds" (of this one), "samples", "what" (is being solved)}.
    time_limit: seconds from the first evaluation, of this map or a sibling, after which OutOfTime is raised, also in
    the middle of one.  None: no limit.

    Raises InputError for samples / scrambles that is no power of two, fewer than two scrambles, and a bad seed.
    """

    def __init__(
        self,
        model: Model,
        *,
        samples: int | None = None,
        scrambles: int = SCRAMBLES,
        seed: int = 0,
        rtol: float | None = None,
        workers: int | None = None,
        store: Keeper | None = None,
        on_evaluation: Callable[[dict[str, Any]], object] | None = None,
        time_limit: float | None = None,
    ) -> None:
        check_model(model, "an OverlapMap")
        points = _check_points(affordable(model, SAMPLES) if samples is None else samples, scrambles)
        check_symmetry(model.link, model.symmetry)
        self.samples, self.scrambles = points
        self.model, self.seed = model, check_seed(seed)
        self.rtol = default_rtol(model) if rtol is None else _positive("rtol", rtol)
        check_workers(workers)
        self.workers = workers or processes.cores()
        self.store = store
        self.on_evaluation = on_evaluation
        self.time_limit = None if time_limit is None else _positive("time_limit", time_limit)
        self._clock: list[float] = []  # when the first evaluation began; shared
        self.pool = processes.pool(min(self.workers, self.scrambles))
        # Threads that wait for other processes are many; those that work here are not.
        self._here = threading.Semaphore(self.workers)
        self._sent: processes.Sent | None = None
        self.what = ""
        # Maps of one model with other numbers of points; shared, so that what one caller scouted serves the next.
        self._family: dict[tuple[int, int], OverlapMap] = {(self.samples, self.scrambles): self}
        self._points: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._known: dict[tuple[int, bytes], Estimate] = {}

    def sibling(self, samples: int, scrambles: int | None = None) -> OverlapMap:
        """The same map with other numbers of points; asked for twice, it is the same object."""
        key = int(samples), int(scrambles or self.scrambles)
        if key not in self._family:
            made = copy.copy(self)
            made.samples, made.scrambles = _check_points(*key)
            made._points, made._known, made._sent = {}, {}, None
            self._family[key] = made
        return self._family[key]

    # ---- evaluation ----------------------------------------------------------------------------

    def __call__(self, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """E(Q) and its standard error over the scrambles; (P, P) each.

        Q (P, P), 0 <= Q < I, of which only the part that the symmetries allow counts; or (scrambles, P, P), one for
        each scramble.  E is the mean of g_out g_out^T summed over tokens, times the number of slices of the embedding.
        Raises InputError unless 0 <= Q < I.
        """
        values = np.array([e.E for e in self.evaluate(Q)])
        return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))

    def evaluate(self, Q: np.ndarray) -> list[Estimate]:
        """The estimates of all scrambles at Q (P, P), or scramble by scramble at Q (scrambles, P, P).

        Raises InputError unless 0 <= Q < I.
        """
        Q = overlap_matrix(Q, self.model.fields, self.scrambles)
        each = np.broadcast_to(Q, (self.scrambles, *Q.shape[-2:]))
        return self.each(lambda r: self.at(r, each[r]))

    def each(self, task: Any) -> list[Any]:
        """``task(r)`` for every scramble r, in threads that share the workers; results do not depend on their number.

        An exception, Ctrl-C among them, ends all of them within one piece of work.
        """
        with threadpool_limits(1):
            if self.workers == 1:
                return [task(r) for r in range(self.scrambles)]
            ended = threading.Event()

            def stop() -> None:
                if ended.is_set():
                    raise _Ended

            def stoppable(r: int) -> Any:
                with patience.asking(stop):
                    return task(r)

            with ThreadPoolExecutor(self.scrambles) as threads:
                try:
                    return list(threads.map(stoppable, range(self.scrambles)))
                except BaseException as error:
                    ended.set()
                    if not isinstance(error, Exception):
                        self.pool.end()
                    raise

    def at(self, scramble: int, Q: np.ndarray) -> Estimate:
        """One scramble's estimates at Q (P, P), remembered."""
        Q = self.model.symmetry.project(np.asarray(Q, dtype=float))
        key = (scramble, Q.tobytes())
        found = self._known.get(key)
        if found is None:
            with patience.asking(None if self.time_limit is None else self._check_time):
                patience.check()
                seconds, found = self._kept(scramble, Q)
                self._known[key] = found
            self._heard({"seconds": seconds, "samples": self.samples // self.scrambles})
        return found

    def _check_time(self) -> None:
        """Raise OutOfTime where the time that was given is spent; counted from the first call."""
        now = time.perf_counter()
        if not self._clock:
            self._clock.append(now)
        spent = now - self._clock[0]
        if self.time_limit is None or spent <= self.time_limit:
            return
        made = sum(len(omap._known) for omap in list(self._family.values()))
        first = next(iter(self._family.values()))
        raise OutOfTime(
            f"{spent:.0f} s spent on {made} evaluations, time_limit={self.time_limit:g}; was solving: "
            f"{first.what or 'nothing in particular'}. To fix: lower samples, ask for fewer stages or alphas, or raise "
            "time_limit."
        )

    def _heard(self, record: dict[str, Any]) -> None:
        """Tell whoever listens to the first map of the family of one evaluation."""
        family = list(self._family.values())
        listening = family[0].on_evaluation
        if listening is not None:
            made = sum(len(omap._known) for omap in family)
            listening({"what": family[0].what, "evaluations": made} | record)

    def _made(self, scramble: int, Q: np.ndarray) -> tuple[float, Estimate]:
        """One scramble's estimates, made here or in another process, and the seconds that it took."""
        begun = time.perf_counter()
        answer = self._elsewhere(scramble, Q)
        if not answer:
            with self._here:
                # Others may have become ready while this thread waited for its turn.
                begun = time.perf_counter()
                answer = self._elsewhere(scramble, Q) or [self._estimate(scramble, Q)]
                self.pool.worked(time.perf_counter() - begun)
        return time.perf_counter() - begun, answer[0]

    def _elsewhere(self, scramble: int, Q: np.ndarray) -> list[Estimate]:
        """[estimates] from another process, or [] where none is ready or it failed."""
        if not self.pool.ready:
            return []
        if self._sent is None:
            self._sent = processes.Sent(_Elsewhere(self.model, self.settings()))
        left = None if self.time_limit is None else self.time_limit - (time.perf_counter() - self._clock[0])
        return self.pool.call(self._sent, scramble, Q, left)

    def _kept(self, scramble: int, Q: np.ndarray) -> tuple[float, Estimate]:
        """From the store, or estimated and put there; with the seconds that this took."""
        if self.store is None:
            return self._made(scramble, Q)
        content = json.dumps([self.settings(), scramble, Q.tolist()])
        name = f"E {hashlib.sha256(content.encode()).hexdigest()[:24]}"
        seconds = 0.0
        stored = self.store.get(name, lambda value: estimate_from(value, self.model) is not None)
        found = None if stored is None else estimate_from(stored, self.model)
        if found is None or not np.array_equal(found.Q, Q):  # none, of an older version, or not ours
            seconds, made = self._made(scramble, Q)
            # What is used is what was stored: a resumed run sees the same bits.
            found = estimate_from(
                self.store.put(name, {f.name: getattr(made, f.name) for f in fields(Estimate)}), self.model
            )
        if found is None:
            raise TypeError("the store does not give back what was put there")
        return seconds, found

    def _normals(self, scramble: int) -> tuple[np.ndarray, np.ndarray]:
        """Standard normals of one scramble: (n, 2, P, T) for the fields and the part of omega independent of them, then
        (n, K) for the noise."""
        if scramble not in self._points:
            P, T, K = self.model.fields, self.model.tokens, self.model.channel.noise_dimensions
            seed = np.random.SeedSequence(self.seed, spawn_key=(scramble,))
            engine = qmc.Sobol(2 * P * T + K, scramble=True, bits=53, rng=np.random.default_rng(seed))
            uniform = np.maximum(engine.random(self.samples // self.scrambles), 2.0**-54)
            normals, noise = np.split(ndtri(uniform), [2 * P * T], axis=1)
            # The first Sobol coordinates are the best: they go to the last rows, which the output shows most directly.
            self._points[scramble] = normals.reshape(-1, 2, P, T)[:, :, ::-1], noise
        return self._points[scramble]

    def _estimate(self, scramble: int, Q: np.ndarray) -> Estimate:
        both, V, root = _split(Q)
        normals, noise = self._normals(scramble)
        Z = normals[:, 0]
        # omega given Z: mean Q Z, covariance Q V; the same joint law as omega = Q^{1/2} xi, Z = omega + V^{1/2} u.
        omega = Q @ Z + both @ normals[:, 1]
        moments = self.model.channel.moments(
            self.model.channel.draw(Z, noise), omega, V, cov=True, rtol=self.rtol, seed=self.seed * 1009 + scramble
        )
        if moments.dg is None:
            raise TypeError("the channel returned no covariance")
        g, dg, n = moments.g, moments.dg, len(Z)
        # A posterior that was not found tells nothing; its infinite error makes that of the estimate infinite.
        absent = ~np.isfinite(g).all(axis=(1, 2)) | ~np.isfinite(dg).all(axis=(1, 2, 3, 4))
        g, dg = np.where(absent[:, None, None], 0.0, g), np.where(absent[:, None, None, None, None], 0.0, dg)
        still = self._still(Q)
        # What flips that leave omega alone change the sign of is zero; integrated numerically it is only small.
        g = np.where(np.asarray((still < 0).any(axis=0))[:, None], 0.0, g)
        alike = np.asarray(np.logical_and.reduce(still[:, :, None] == still[:, None, :], axis=0))
        dg = np.where(alike[:, None, :, None], dg, 0.0)
        # In units of what is left to learn: of order one however small V is, and rounding stays where it is made.
        star = root @ np.linalg.solve(V, Z - omega)
        g, dg = root @ g, np.einsum("pi,nitjs,jq->nptqs", root, dg, root, optimize=True)
        products = np.stack(
            [
                np.einsum("npt,nqt->npq", g, g),
                -_symmetric(np.einsum("nptqt->npq", dg)),
                _symmetric(np.einsum("npt,nqt->npq", g, star)),
            ]
        )
        flat = dg.transpose(1, 3, 0, 2, 4).reshape(dg.shape[1] * dg.shape[3], -1)
        P = len(Q)
        # A slice of the embedding has as many times more samples per dimension as there are slices.
        slope = self.model.slices * (flat @ flat.T / n).reshape(P, P, P, P)
        products = self.model.slices * products
        size = np.einsum("npt,npt->n", g, g)
        error = np.where(absent, np.inf, moments.error)
        gaps = self.model.symmetry.coordinates(products[:1] - products[1:])
        with np.errstate(invalid="ignore"):
            inner = np.where(absent, np.inf, 2 * np.sqrt(size) * error + error**2).mean()
        return Estimate(
            Q,
            self._combine(products),
            self.model.symmetry.project(products.mean(axis=1)),
            slope,
            self._unclear(dg, moments.error),
            float(moments.log_partition[~absent].mean()) if not absent.all() else math.nan,
            float(inner) * self.model.slices,
            moments.result is not Result.INTEGRATION and not absent.any(),
            gaps.mean(axis=1),
            gaps.std(axis=1, ddof=1) / math.sqrt(n),
        )

    def _unclear(self, dg: np.ndarray, error: np.ndarray) -> np.ndarray:
        """:attr:`Estimate.unclear` from dg (n, P, T, P, T) and errors (n,) of posteriors; one without a bound is told
        by the infinite error of the estimate instead."""
        unit = units(self.model.symmetry.basis)
        fed = np.einsum("nptas,kab,nqtbs->nkpq", dg, unit, dg, optimize=True)
        rates = np.einsum("jpq,nkpq->njk", unit, fed, optimize=True)
        most = np.where(np.isfinite(error), _BEYOND * error**2, 0.0)[:, None, None]
        unclear = self.model.slices * np.minimum(np.abs(rates), most).mean(axis=0)
        return np.asarray(0.5 * (unclear + unclear.T))

    def _still(self, Q: np.ndarray) -> np.ndarray:
        """The flips (G, P) of rows that leave the link and every omega in the range of Q unchanged."""
        signs = self.model.symmetry.signs
        learned = np.abs(Q).max(axis=1) > 0
        return np.asarray(signs[(signs[:, learned] > 0).all(axis=1)])

    def _combine(self, products: np.ndarray) -> np.ndarray:
        """V^{1/2} E V^{1/2}: the mean of E[g g^T], with the two differences of Nishimori, which vanish on average, as
        control variates.

        Each fold of the points takes its coefficients from the others: fitted to the points that they are
        applied to, they would bias the mean (by 1e-3 near perfect recovery, where one estimator is almost exact).
        """
        symmetry = self.model.symmetry
        first, second, third = symmetry.coordinates(products)  # (n, k) each
        fold = np.arange(len(first)) * min(_FOLDS, len(first)) // len(first)
        best = np.empty(first.shape[1])
        for k in range(first.shape[1]):
            controls = np.stack([first[:, k] - second[:, k], first[:, k] - third[:, k]], axis=1)
            corrected = np.empty(len(first))
            for f in range(fold[-1] + 1):
                mine, others = fold == f, fold != f
                centred = controls[others] - controls[others].mean(axis=0)
                values = first[others, k] - first[others, k].mean()
                coefficient = np.linalg.lstsq(centred, values, rcond=None)[0]
                corrected[mine] = first[mine, k] - controls[mine] @ coefficient
            best[k] = corrected.mean()
        combined = symmetry.matrix(best)
        values = np.linalg.eigvalsh(combined)
        if values[0] < -_ROUNDING * values[-1]:
            # E is positive semi-definite, and so is its first estimate; the combination is only on average.
            return symmetry.matrix(first.mean(axis=0))
        return combined

    @property
    def incomplete(self) -> bool:
        """Whether some estimate so far, of this map or a sibling, lacks a posterior or knows no bound on its error."""
        known = [estimate for omap in list(self._family.values()) for estimate in list(omap._known.values())]
        return any(not np.isfinite(estimate.inner_error) for estimate in known)

    # ---- files ---------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        return {"samples": self.samples, "scrambles": self.scrambles, "seed": self.seed, "rtol": self.rtol}

    def save(self, path: str | Path) -> None:
        """Everything evaluated so far, as one .npz file with a JSON header; written atomically."""
        path = Path(path)
        keys = sorted(self._known, key=lambda k: (k[0], k[1]))
        arrays: dict[str, np.ndarray] = {
            f.name: np.array([getattr(self._known[k], f.name) for k in keys]) for f in fields(Estimate)
        }
        arrays["scramble"] = np.array([k[0] for k in keys], dtype=int)
        head = header(self.model.architecture, self.seed, self.settings()) if self.model.architecture else {}
        arrays["header"] = np.array(json.dumps(head | {"map": self.settings()}))
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        write_bytes(path, buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path, model: Model, *, workers: int | None = None) -> OverlapMap:
        """A map with the evaluations of a file; InputError when it belongs to another model."""
        try:
            with np.load(path, allow_pickle=False) as data:
                head = json.loads(str(data["header"]))
                arrays = {name: data[name] for name in data.files if name != "header"}
        except (OSError, ValueError, KeyError) as error:
            raise InputError("overlap map", str(path), "a file written by OverlapMap.save", str(error)) from None
        missing = {f.name for f in fields(Estimate)} - arrays.keys()
        if missing:
            raise InputError(
                "overlap map", f"{path}, without {sorted(missing)}", "a file of this version", "make the map anew"
            )
        if model.architecture is not None and head.get("architecture_digest") != model.architecture.digest:
            raise InputError(
                "overlap map",
                str(path),
                "a map of the same architecture",
                "compile the architecture that it was made for",
            )
        loaded = cls(model, workers=workers, **head["map"])
        for i, scramble in enumerate(arrays["scramble"]):
            estimate = estimate_from({f.name: arrays[f.name][i] for f in fields(Estimate)}, model)
            if estimate is None:
                allowed = "estimates of this model"
                raise InputError("overlap map", f"{path}, with a bad estimate {i}", allowed, "make the map anew")
            loaded._known[int(scramble), estimate.Q.tobytes()] = estimate
        return loaded


class _Ended(BaseException):
    """Raised in a thread whose answer nobody waits for any more."""


class _Elsewhere:
    """The map as other processes have it: made there at the first call, with points of its own."""

    def __init__(self, model: Model, settings: dict[str, Any]) -> None:
        self.model, self.settings = model, settings
        self.omap: OverlapMap | None = None

    def __call__(self, scramble: int, Q: np.ndarray, seconds: float | None) -> Estimate:
        if self.omap is None:
            self.omap = OverlapMap(self.model, workers=1, **self.settings)
        self.omap.time_limit, self.omap._clock = seconds, [time.perf_counter()]
        with patience.asking(self.omap._check_time):
            return self.omap._estimate(scramble, Q)


def _check_points(samples: Any, scrambles: Any) -> tuple[int, int]:
    """(samples, scrambles), or InputError unless each of at least two scrambles has a power of two of them."""
    samples, scrambles = check_count("samples", samples, 1), check_count("scrambles", scrambles, 2)
    points, left = divmod(samples, scrambles)
    if left or points < 2 or points & (points - 1):
        below = max(2, 1 << max(points, 1).bit_length() - 1)
        raise InputError(
            "samples, scrambles",
            (samples, scrambles),
            "samples / scrambles a power of two, at least two",
            f"use samples={below * scrambles} or samples={2 * below * scrambles} with scrambles={scrambles}",
        )
    return samples, scrambles


def overlap_map(
    model: Model,
    *,
    samples: int | None = None,
    scrambles: int = SCRAMBLES,
    seed: int = 0,
    rtol: float | None = None,
    workers: int | None = None,
    store: Keeper | None = None,
    time_limit: float | None = None,
) -> OverlapMap:
    """The overlap map of a model: E(Q) = E[g_out g_out^T], (P, P), summed over tokens, on demand.

    All parameters are those of :class:`OverlapMap`: samples (Sobol points of one evaluation), scrambles, seed, rtol (of
    the inner integrals), workers (evaluations at a time), store, time_limit (seconds).  Raises InputError as it does.
    Source: arXiv 2502.00901, eq. 14.
    """
    return OverlapMap(
        model, samples=samples, scrambles=scrambles, seed=seed, rtol=rtol, workers=workers, store=store,
        time_limit=time_limit,
    )  # fmt: skip


def as_map(model: Model | OverlapMap, **settings: Any) -> OverlapMap:
    """A map as it is, or a new one for a model; InputError for settings that it cannot take."""
    allowed = tuple(name for name in inspect.signature(OverlapMap).parameters if name != "model")
    check_settings(settings, allowed, given_map=isinstance(model, OverlapMap))
    return model if isinstance(model, OverlapMap) else OverlapMap(model, **settings)


def _positive(what: str, value: Any) -> float:
    number = check_number(what, value, "a positive number", "leave it out for the default")
    if not number > 0:
        raise InputError(what, value, "a positive number", "leave it out for the default")
    return number


def _split(Q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(Q V)^{1/2}, V = I - Q and V^{1/2}; InputError unless 0 <= Q < I."""
    values, vectors = np.linalg.eigh(Q)
    if values[0] < -1e-12 or values[-1] >= 1:
        raise InputError("overlap Q", Q.tolist(), "0 <= Q < I", "at Q = I nothing is left to learn")
    values = np.maximum(values, 0.0)
    both = (vectors * np.sqrt(values * (1 - values))) @ vectors.T
    return both, np.eye(len(Q)) - Q, square_root(np.eye(len(Q)) - Q)


def _symmetric(products: np.ndarray) -> np.ndarray:
    return 0.5 * (products + np.swapaxes(products, -1, -2))
