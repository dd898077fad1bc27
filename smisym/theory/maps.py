"""The overlap map E(Q) = E[g_out g_out^T] (sum over tokens) and its exact derivative.

E does not depend on alpha: one table of evaluations serves every alpha, every threshold and the free entropy.
Each scramble of the Sobol points gives its own smooth, deterministic map; solvers solve once for each
scramble, and the spread of their answers is the statistical error.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import hashlib
import inspect
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from smisym.base import patience, processes
from smisym.base.backends import JAX, backend
from smisym.base.edge import (
    check_model,
    check_number,
    check_seed,
    check_settings,
    check_workers,
    overlap_matrix,
)
from smisym.base.errors import InputError, OutOfTime
from smisym.base.linear_algebra import one_thread
from smisym.base.remembered import Remembered
from smisym.declare.io import header
from smisym.integrate.accuracy import SAMPLES
from smisym.link.symmetry_check import check_symmetry
from smisym.model.compiled import Model
from smisym.theory.effort import affordable, check_invariant, check_points, usual_scrambles
from smisym.theory.elsewhere import Elsewhere
from smisym.theory.estimate import Estimate, estimate_from
from smisym.theory.estimating import Estimator
from smisym.theory.map_files import DRAWN, read_map, write_map
from smisym.theory.small_overlaps import from_slopes
from smisym.theory.two_levels import few_of, of_two_levels


class Keeper(Protocol):
    """Keeps records of plain JSON types by name: :class:`smisym.declare.io.Store`."""

    def get(self, name: str, valid: Callable[[Any], object] | None = None) -> dict[str, Any] | None: ...

    def put(self, name: str, value: Mapping[str, Any]) -> dict[str, Any]: ...


class OverlapMap:
    """E(Q) of one model, evaluated on demand and remembered.

    samples: Sobol points of one evaluation over all scrambles; samples / scrambles is a power of two.  None: 8192, and
    less where there are more than two free dimensions or posteriors are sampled
    (:func:`smisym.theory.effort.affordable`). scrambles: at least two, independent; their spread is the statistical
    error. None: 8; 2 where all outputs tell the same. seed: of the scrambles, and of posteriors that are sampled; a
    whole number >= 0. rtol: tolerance of the inner integrals, sample by sample, and of deep networks by tables of the
    mean over them (:meth:`Channel.moments`, ``averaged``); the estimated errors are far above the true ones and do not
    add up, so that 1e-2 leaves 1e-4 in E (measured for two layers). None: 1e-3 in no or one free dimension, 1e-2 in
    two, 3e-2 in more and where posteriors are sampled. fine: a tolerance below rtol, of posteriors at one of 32 points;
    what they change is added (:mod:`smisym.theory.two_levels`). None: nothing is. workers: how many evaluations at a
    time, None for one a core. Threads of one process share one core; after some seconds of work others are begun
    (:mod:`smisym.base.processes`). Results do not depend on it, nor on where they are made. store: keeps every
    evaluation as soon as it is made, so that a run that was killed resumes with the same bits. on_evaluation: called
    after every evaluation of one scramble, from the thread that made it, with {"evaluations" (so far, of this map and
    its siblings), "seconds" (of this one), "samples", "what" (is being solved)}. time_limit: seconds from the first
    evaluation, of this map or a sibling, after which OutOfTime is raised, also in the middle of one. None: no limit.

    Raises InputError for samples / scrambles that is no power of two, fewer than two scrambles, and a bad seed.
    """

    # Many parameters: settings, all by keyword.
    def __init__(
        self,
        model: Model,
        *,
        samples: int | None = None,
        scrambles: int | None = None,
        seed: int = 0,
        rtol: float | None = None,
        fine: float | None = None,
        workers: int | None = None,
        store: Keeper | None = None,
        on_evaluation: Callable[[dict[str, Any]], object] | None = None,
        time_limit: float | None = None,
    ) -> None:
        check_model(model, "an OverlapMap")
        given = affordable(model, SAMPLES) if samples is None else samples
        points = check_points(given, usual_scrambles(model) if scrambles is None else scrambles, model)
        check_symmetry(model.link, model.symmetry, exact=not model.noise)
        self.samples, self.scrambles = points
        self.model, self.seed = model, check_seed(seed)
        self.rtol = model.channel.plan.averaged if rtol is None else _positive("rtol", rtol)
        self.fine = None if fine is None else _positive("fine", fine)
        if self.fine is not None and not self.fine < self.rtol:
            raise InputError("fine", fine, f"a tolerance below rtol, {self.rtol:g}", "lower it, or leave it out")
        check_workers(workers)
        self.workers = workers or processes.cores()
        self.store = store
        self.on_evaluation = on_evaluation
        self.time_limit = None if time_limit is None else _positive("time_limit", time_limit)
        self._clock: list[float] = []  # when the first evaluation began; shared
        # An accelerator has memory for one process.
        self.pool = processes.pool(1 if backend().name == JAX else min(self.workers, self.scrambles))
        # Threads that wait for other processes are many; those that work here are not.
        self._here = threading.Semaphore(self.workers)
        self.what = ""
        self._sent: list[processes.Sent] = []  # the model as other processes get it; shared
        # Maps of one model with other numbers of points; shared, so that what one caller scouted serves the next.
        self._family: dict[tuple[int, int, float, float | None], OverlapMap] = {
            (self.samples, self.scrambles, self.rtol, self.fine): self
        }
        self._used: list[list[Estimate]] = []  # whoever listens to what is asked of the family; shared
        self._fresh()

    def _fresh(self) -> None:
        """What belongs to this number of points alone."""
        self._known, self._means = Remembered[Estimate](), Remembered[Estimate]()
        self._estimator = Estimator(self.model, self.samples // self.scrambles, self.seed, self.rtol)

    def sibling(
        self, samples: int, scrambles: int | None = None, rtol: float | None = None, fine: float | None = None
    ) -> OverlapMap:
        """The same map with other numbers of points, or other tolerances; asked for twice, it is the same object.

        With an rtol of its own it has the ``fine`` that is given; else that of this map, unless one is given.
        """
        if rtol is None:
            rtol, fine = self.rtol, fine or self.fine
        key = int(samples), int(scrambles or self.scrambles), rtol, fine
        if key not in self._family:
            made = copy.copy(self)
            made.samples, made.scrambles = check_points(*key[:2], self.model)
            made.rtol, made.fine = key[2:]
            made._fresh()
            self._family[key] = made
        return self._family[key]

    def levels(self, fine: float) -> tuple[OverlapMap, OverlapMap]:
        """Maps of few of the points with the tolerance of this one, and with a finer one."""
        few = few_of(self.samples // self.scrambles) * self.scrambles
        return self.sibling(few, rtol=self.rtol), self.sibling(few, rtol=fine)

    def __repr__(self) -> str:
        """Of which model, and with how many points, in one line."""
        settings = ", ".join(f"{name} {value}" for name, value in self.settings().items())
        return f"<OverlapMap of {self.model!r}: {settings}>"

    # ---- evaluation ----------------------------------------------------------------------------

    def __call__(self, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """E(Q) and its standard error over the scrambles; (P, P) each.

        Q (P, P), 0 <= Q < I, as the symmetries leave it; or (scrambles, P, P), one for each scramble.  E is the mean of
        g_out g_out^T summed over tokens, times the prior's multiplicity, in its units, and the integral of its
        derivative where little is learned (:mod:`smisym.theory.small_overlaps`).
        Raises InputError unless 0 <= Q < I, and where the symmetries of the model change Q.
        """
        values = np.array([e.E for e in self.evaluate(Q)])
        return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))

    def evaluate(self, Q: np.ndarray) -> list[Estimate]:
        """The estimates of all scrambles at Q (P, P), or scramble by scramble at Q (scrambles, P, P).

        Raises InputError unless 0 <= Q < I, and where the symmetries of the model change Q.
        """
        Q = overlap_matrix(Q, self.model.fields, self.scrambles)
        check_invariant(self.model, Q)
        each = np.broadcast_to(Q, (self.scrambles, *Q.shape[-2:]))
        return self.each(lambda r: self.at(r, each[r]))

    def each(self, task: Any) -> list[Any]:
        """``task(r)`` for every scramble r, in threads that share the workers; results do not depend on their number.

        An exception, Ctrl-C among them, ends all of them within one piece of work.
        """
        with one_thread():
            if self.workers == 1:
                return [task(r) for r in range(self.scrambles)]
            ended = threading.Event()

            def stop() -> None:
                if ended.is_set():
                    raise _Ended

            def stoppable(r: int) -> Any:
                with patience.asking(stop):
                    return task(r)

            # Who waits no longer, and what else holds in this thread, holds in those.
            contexts = [contextvars.copy_context() for _ in range(self.scrambles)]
            with ThreadPoolExecutor(self.scrambles) as threads:
                try:
                    return list(threads.map(lambda r: contexts[r].run(stoppable, r), range(self.scrambles)))
                except BaseException as error:
                    ended.set()
                    if not isinstance(error, Exception):
                        self.pool.end()
                    raise

    def at(self, scramble: int, Q: np.ndarray) -> Estimate:
        """One scramble's estimates at Q (P, P), remembered.  Raises InputError for what is no overlap."""
        symmetry = self.model.symmetry
        Q = symmetry.project(overlap_matrix(Q, self.model.fields))
        found = self._known.get((scramble, Q.tobytes()), lambda: from_slopes(symmetry, Q, scramble, self._averaged))
        for used in self._used:
            used.append(found)
        return found

    def _averaged(self, scramble: int, Q: np.ndarray) -> Estimate:
        """The averages over one scramble's points at Q (P, P), remembered."""
        spent: list[float] = []

        def make() -> Estimate:
            with patience.asking(None if self.time_limit is None else self._check_time):
                patience.check()
                if self.fine is not None:
                    maps = self.sibling(self.samples, rtol=self.rtol), *self.levels(self.fine)
                    return of_two_levels(self.model.symmetry, *(level._averaged(scramble, Q) for level in maps))
                seconds, made = self._kept(scramble, Q)
                spent.append(seconds)
                return made

        found = self._means.get((scramble, Q.tobytes()), make)
        if spent:
            self._heard({"seconds": spent[0], "samples": self.samples // self.scrambles})
        return found

    @contextlib.contextmanager
    def used(self) -> Iterator[list[Estimate]]:
        """The estimates that are asked of this map, or of a sibling, meanwhile: made then, or remembered."""
        found: list[Estimate] = []
        self._used.append(found)
        try:
            yield found
        finally:
            self._used.remove(found)

    def _estimate(self, scramble: int, Q: np.ndarray) -> Estimate:
        return self._estimator(scramble, Q)

    def _check_time(self) -> None:
        """Raise OutOfTime where the time that was given is spent; counted from the first call."""
        now = time.perf_counter()
        if not self._clock:
            self._clock.append(now)
        spent = now - self._clock[0]
        if self.time_limit is None or spent <= self.time_limit:
            return
        made = sum(len(omap._means) for omap in list(self._family.values()))
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
            made = sum(len(omap._means) for omap in family)
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

    def begin_elsewhere(self) -> None:
        """Begin other processes now, for work that is known to be long."""
        if self.pool.workers > 1 and not self.pool.begun:
            self._estimator.prepare()
            self.pool.begin(self._travelling())

    def _travelling(self) -> processes.Sent:
        if not self._sent:
            self._sent.append(processes.Sent(Elsewhere(self.model)))
        return self._sent[0]

    def _elsewhere(self, scramble: int, Q: np.ndarray) -> list[Estimate]:
        """[estimates] from another process, or [] where none is ready or it failed."""
        if not self.pool.ready:
            return []
        left = None if self.time_limit is None else self.time_limit - (time.perf_counter() - self._clock[0])
        return self.pool.call(self._travelling(), self._estimator.settings, scramble, Q, left)

    def _kept(self, scramble: int, Q: np.ndarray) -> tuple[float, Estimate]:
        """From the store, or estimated and put there; with the seconds that this took."""
        if self.store is None:
            return self._made(scramble, Q)
        content = json.dumps([DRAWN, self.settings(), self.model.prior.describe(), scramble, Q.tolist()])
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

    # ---- files ---------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        fine = {} if self.fine is None else {"fine": self.fine}
        return {"samples": self.samples, "scrambles": self.scrambles, "seed": self.seed, "rtol": self.rtol, **fine}

    def save(self, path: str | Path) -> None:
        """Everything evaluated so far, as one .npz file with a JSON header; written atomically."""
        head = header(self.model.architecture, self.seed, self.settings()) if self.model.architecture else {}
        write_map(path, self._known.items(), head | {"map": self.settings()})

    @classmethod
    def load(cls, path: str | Path, model: Model, *, workers: int | None = None) -> OverlapMap:
        """A map with the evaluations of a file; InputError when it belongs to another model."""
        settings, found = read_map(path, model)
        loaded = cls(model, workers=workers, **settings)
        for scramble, estimate in found:
            loaded._known.put((scramble, estimate.Q.tobytes()), estimate)
        return loaded


class _Ended(BaseException):
    """Raised in a thread whose answer nobody waits for any more."""


# Many parameters: settings, all by keyword.
def overlap_map(
    model: Model,
    *,
    samples: int | None = None,
    scrambles: int | None = None,
    seed: int = 0,
    rtol: float | None = None,
    fine: float | None = None,
    workers: int | None = None,
    store: Keeper | None = None,
    time_limit: float | None = None,
) -> OverlapMap:
    """The overlap map of a model: E(Q) = E[g_out g_out^T], (P, P), summed over tokens, on demand.

    All parameters are those of :class:`OverlapMap`: samples (Sobol points of one evaluation), scrambles, seed, rtol (of
    the inner integrals), fine (of a few of them), workers (evaluations at a time), store, time_limit (seconds).  Raises
    InputError as it does. Source: arXiv 2502.00901, eq. 14.
    """
    return OverlapMap(
        model, samples=samples, scrambles=scrambles, seed=seed, rtol=rtol, fine=fine, workers=workers,
        store=store, time_limit=time_limit,
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
