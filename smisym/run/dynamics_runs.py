"""How layers are learned, iteration by iteration and epoch by epoch, over several seeds, kept as records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from smisym.base.edge import (
    MOST_DIM,
    MOST_RUNS,
    check_alpha,
    check_count,
    check_damping,
    check_model,
    check_number,
    check_seed,
)
from smisym.base.errors import InputError
from smisym.base.solution import Result, Solution, mean_and_error, worst
from smisym.declare.io import Store, header
from smisym.finite.message_passing import gamp
from smisym.finite.samples import Data, generate
from smisym.integrate.accuracy import SCRAMBLES
from smisym.model.compiled import Model
from smisym.run.gamp_runs import gamp_tolerance
from smisym.run.progress import Choice, Reporter, reporting, watching
from smisym.run.records import Record, finished, is_number, kept
from smisym.theory.effort import affordable
from smisym.theory.maps import OverlapMap, overlap_map
from smisym.training.descent import OPTIMIZERS, Descent, descend
from smisym.training.gradients import SquareLoss
from smisym.training.recursion import iterated
from smisym.training.starting import direction, estimate_at, weights_at
from smisym.training.trajectories import EVOLUTION, GAMP, Dynamics, Trajectory

# Of an evaluation of the overlap map, of which there is one an iteration and seed: its error is then below the scatter
# of a few seeds.
EVOLUTION_SAMPLES = 1024
# A batch has this share of the entries of a row of W: with the rates of OPTIMIZERS steps of SGD are then just stable.
_BATCH = 4
# Steps of a run, each of which is a record.
_MOST = 1_000_000


# Many parameters: settings, all by keyword.
def dynamics(
    model: Model,
    alpha: float,
    dim: int,
    *,
    seeds: int = 4,
    steps: int = 40,
    epochs: int = 200,
    optimizers: Sequence[str] = tuple(OPTIMIZERS),
    rate: float | Mapping[str, float] | None = None,
    batch: int | None = None,
    decay: float = 0.0,
    known: float = 0.0,
    damping: float = 0.0,
    samples: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    progress: Choice = None,
) -> Solution:
    """How the layers are learned: state evolution and GAMP against iterations, SGD and Adam against epochs.

    Every seed draws a truth, N = alpha D samples and a direction to begin in; GAMP and gradient descent on the square
    loss begin there on the same data, and state evolution at the overlap that this start has, with side information
    1 / D, which is what an estimate in dimension D knows by chance.  ``Solution.value`` is a
    :class:`Dynamics`: cosines of layers with the truth, modulo the symmetries, 1 where a layer is recovered, with their
    mean and standard error over the seeds.

    alpha, dim
        Of the data, as :func:`smisym.generate` takes them; rows of the truth have norm sqrt(D) exactly.
    steps, epochs
        Iterations of state evolution and of GAMP; passes of descent through the data.
    optimizers
        Some of "sgd" and "adam", or "none".  They need JAX (``pip install 'smisym[gpu]'``) and a link that has a
        gradient: hardmax and sign have none.
    rate
        Of every optimizer, or of each by its name.  SGD's is in units of D: W <- W - rate D grad.  None: 0.2 and 0.003.
    batch
        Samples of a step; None: a quarter of the entries of a row of W.  SGD is unstable where rate D / batch is large.
    decay
        Decay of the weights, added to the gradient: that of decay ||W||^2 / 2D.
    known
        Squared cosine of the start with the truth, in [0, 1); 0 is a random start, whose chance overlap is 1 / sqrt(D).
    damping
        Of GAMP (:func:`smisym.gamp`).  State evolution describes undamped steps; on few data, and for matrices of
        extensive rank, these may diverge.
    samples, workers
        Of the overlap map that state evolution iterates (:func:`smisym.overlap_map`); None: 1024 samples, fewer where
        posteriors are dear.
    seed
        Of every random number; runs have streams of their own.  The same call gives the same bits.
    store
        A folder that keeps every finished run and every evaluation of the map; the same call, or one with more seeds,
        resumes.
    progress
        True for a bar on stderr, or a callable that is given each finished run.

    Result: SUCCESS, or DIVERGED where a run left the range of numbers (``value[method].reasons`` say which);
    INTEGRATION and its like where GAMP's posteriors were inaccurate.  Raises InputError for bad settings, for a link
    without a gradient, and without JAX where an optimizer is asked for.
    Source: arXiv 2502.00901, section 3.3.
    """
    check_model(model)
    check_alpha(alpha)
    seeds = check_count("seeds", seeds, 1, most=MOST_RUNS)
    how = _Settings(
        float(alpha), check_count("dim", dim, 2, "give the dimension D", MOST_DIM),
        check_count("steps", steps, 1, most=_MOST), _fraction("known", known), check_seed(seed),
        check_damping(damping),
    )  # fmt: skip
    epochs = check_count("epochs", epochs, 1, most=_MOST)
    descents, loss = prepared(model, how.dim, optimizers, rate, batch, epochs, decay)
    points = affordable(model, EVOLUTION_SAMPLES) if samples is None else samples
    keeper = _store(model, how, points, store)
    omap = overlap_map(model, samples=points, seed=how.seed, workers=workers, store=keeper)
    with reporting(progress, "dynamics", seeds * (2 + len(descents))) as report, watching(omap, report):
        runs = [_Run(model, how, number, keeper, report) for number in range(seeds)]
        by_gamp = [run.gamp() for run in runs]
        evolved = [run.evolution(omap, record) for run, record in zip(runs, by_gamp, strict=True)]
        found = [_evolution(evolved), _trajectory(GAMP, "iteration", by_gamp)]
        for descent in descents:
            made = [run.descent(descent, loss) for run in runs]
            found.append(_trajectory(descent.optimizer, "epoch", made))
    value = Dynamics(tuple(found), model.labels, model.row_layers)
    settings = how.record(model) | {"seeds": seeds, "samples_of_map": points, "scrambles": omap.scrambles}
    for descent in descents:
        settings |= {f"{descent.optimizer}_{name}": getattr(descent, name) for name in ("rate", "batch", "epochs")}
    codes = [Result(code) for one in found for code in one.results if code != Result.MAX_STEPS.value]
    return Solution(value, worst(codes), settings=settings | {"decay": float(decay)})


@dataclass(frozen=True)
class _Settings:
    """What all runs of one call share."""

    alpha: float
    dim: int
    steps: int
    known: float
    seed: int
    damping: float

    def chance(self, model: Model) -> float:
        """The squared cosine with the truth that anything has: the side information of state evolution."""
        return 1 / model.prior.row_dimension(self.dim)

    def record(self, model: Model) -> Record:
        samples = round(model.prior.samples(self.alpha, self.dim))
        return {"samples": samples, **vars(self), "side_information": self.chance(model)}

    @property
    def name(self) -> str:
        """Of what is kept: all that the data and the start depend on, but the number of the run."""
        return f"alpha={self.alpha!r} dim={self.dim} known={self.known!r} seed={self.seed}"


class _Run:
    """One seed: a truth, data, a direction; made when something is first computed on them."""

    def __init__(self, model: Model, how: _Settings, number: int, store: Store | None, report: Reporter) -> None:
        self.model, self.how, self.number, self.store, self.report = model, how, number, store, report
        names = ("data", "direction", *OPTIMIZERS)
        children = np.random.SeedSequence(how.seed, spawn_key=(number,)).spawn(len(names))
        self._seeds = dict(zip(names, children, strict=True))

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng(self._seeds[name])

    @cached_property
    def data(self) -> Data:
        return generate(self.model, self.how.dim, self.how.alpha, self._rng("data"), normalised=True)

    @property
    def direction(self) -> np.ndarray:
        return direction(self.model.prior, self.data.W, self.how.dim, self.how.known, self._rng("direction"))

    def gamp(self) -> Record:
        how, dim = self.how, self.how.dim

        def make() -> Record:
            start = estimate_at(self.model.prior, self.direction, dim, how.known)
            solution = gamp(
                self.model, self.data.X, self.data.y, W=self.data.W, initial=start, max_steps=how.steps,
                damping=how.damping, tol=gamp_tolerance(dim), callback=self._heard(GAMP),
            )  # fmt: skip
            cosines = [record["cosines"] for record in finished(solution).history]
            last = np.full_like(cosines[-1], np.nan) if solution.result is Result.DIVERGED else cosines[-1]
            cosines += [last] * (how.steps + 1 - len(cosines))
            return {"cosines": cosines, "result": solution.result, "reason": solution.value.reason}

        return self._kept(f"{GAMP} steps={how.steps} damping={how.damping!r}", make, how.steps)

    def evolution(self, omap: OverlapMap, by_gamp: Record) -> Record:
        """State evolution from where GAMP began: cosines (scrambles, n, P)."""
        how = self.how

        def make() -> Record:
            omap.what = f"state evolution, seed {self.number + 1}"
            start = np.diag(np.square(np.array(by_gamp["cosines"][0], dtype=float)))
            overlaps = iterated(omap, how.alpha, start, how.steps, how.chance(self.model))
            known = np.diagonal(overlaps, axis1=2, axis2=3)
            whole = np.isfinite(known).all()
            cosines = np.sqrt(np.clip(known, 0.0, 1.0))
            code, reason = (Result.SUCCESS, "") if whole else (Result.DIVERGED, "the overlap map is not finite")
            return {"cosines": cosines, "result": code, "reason": reason}

        settings = " ".join(f"{name}={value}" for name, value in omap.settings().items())
        return self._kept(f"state evolution steps={how.steps} {settings}", make, how.steps)

    def descent(self, how: Descent, loss: SquareLoss | None) -> Record:
        def make() -> Record:
            assert loss is not None  # there is one wherever there is a descent
            start = weights_at(self.model.prior, self.direction, self.how.dim)
            rng = self._rng(how.optimizer)
            ended = descend(self.model, self.data, start, how, loss, rng, self._heard(how.optimizer))
            missing = how.epochs + 1 - len(ended.history)
            cosines = [record["cosines"] for record in ended.history]
            cosines += [np.full_like(cosines[0], np.nan)] * missing
            losses = [record["loss"] for record in ended.history] + [None] * missing
            reason = f"at epoch {len(ended.history)}: {ended.reason}" if missing else ""
            return {"cosines": cosines, "loss": losses, "result": ended.result, "reason": reason}

        told = f"rate={how.rate!r} batch={how.batch} epochs={how.epochs} decay={how.decay!r}"
        return self._kept(f"{how.optimizer} {told}", make, how.epochs)

    def _kept(self, what: str, make: Callable[[], Record], steps: int) -> Record:
        rows = self.model.fields
        name = f"dynamics {what} {self.how.name} run={self.number}"
        found = kept(self.store, name, make, lambda entry: _is_run(entry, steps + 1, rows))
        self.report({"seed": self.number, "what": what.split(" steps=")[0].split(" rate=")[0], **found})
        return found

    def _heard(self, what: str) -> Callable[[Record], object]:
        """Tells of a step of a run, which is no part of the whole."""
        return lambda record: self.report.evaluated({"what": f"{what}, seed {self.number + 1}", "share": 0.0})


def _is_run(entry: Any, steps: int, rows: int) -> bool:
    Result(entry["result"])
    shape = np.shape(entry["cosines"])
    losses = entry.get("loss", [])
    return shape[-2:] == (steps, rows) and isinstance(entry["reason"], str) and all(map(is_number, losses))


def _evolution(runs: Sequence[Record]) -> Trajectory:
    each = np.array([run["cosines"] for run in runs], dtype=float)  # (seeds, scrambles, n, P)
    noise = mean_and_error(each.mean(axis=0))[1]
    return _of(EVOLUTION, "iteration", runs, each.mean(axis=1), noise)


def _trajectory(method: str, unit: str, runs: Sequence[Record]) -> Trajectory:
    cosines = np.array([run["cosines"] for run in runs], dtype=float)
    return _of(method, unit, runs, cosines, np.zeros(cosines.shape[1:]))


def _of(method: str, unit: str, runs: Sequence[Record], cosines: np.ndarray, noise: np.ndarray) -> Trajectory:
    loss = np.array([run.get("loss") or [None] * cosines.shape[1] for run in runs], dtype=float)
    results, reasons = (tuple(str(run[key]) for run in runs) for key in ("result", "reason"))
    return Trajectory(method, unit, cosines, noise, loss, results, reasons)


# ---- what is asked for --------------------------------------------------------------------------


def asked_for(optimizers: Sequence[str] | None, rates: Sequence[str] | None) -> tuple[tuple[str, ...], Any]:
    """(optimizers, rate) as :func:`dynamics` takes them, of what a command line gives: names, and RATE or NAME=RATE.

    InputError for a rate that is no number.
    """
    names = tuple(optimizers or OPTIMIZERS)
    found: dict[str, float] = {}
    for text in rates or ():
        name, sign, number = text.rpartition("=")
        try:
            found |= dict.fromkeys([name] if sign else names, float(number))
        except ValueError:
            raise InputError("rate", text, "RATE, or NAME=RATE", "write for example --rate sgd=0.1") from None
    return names, found or None


def _fraction(name: str, value: Any) -> float:
    allowed, fix = f"0 <= {name} < 1", "leave it out for 0"
    if not 0 <= check_number(name, value, allowed, fix) < 1:
        raise InputError(name, value, allowed, fix)
    return float(value)


# Many parameters: settings, as they are given.
# Many parameters: what the optimizers are asked for.
def prepared(
    model: Model,
    dim: int,
    optimizers: Sequence[str],
    rate: float | Mapping[str, float] | None,
    batch: int | None,
    epochs: int,
    decay: float,
) -> tuple[list[Descent], SquareLoss | None]:
    """What each optimizer is run with, and on; InputError for one that is not known, for bad settings, and for a link
    without a gradient."""
    names = [optimizers] if isinstance(optimizers, str) else list(dict.fromkeys(optimizers))
    names = [] if names == ["none"] else names
    allowed = ", ".join(OPTIMIZERS)
    for name in (*names, *(rate if isinstance(rate, Mapping) else ())):
        if name not in OPTIMIZERS:
            raise InputError("optimizers", name, f"some of {allowed}, or none alone", "leave it out for all")
    own = model.prior.row_dimension(dim)
    size = max(own // _BATCH, 1) if batch is None else check_count("batch", batch, 1)
    positive = "a number > 0"
    rates = rate if isinstance(rate, Mapping) else {name: rate for name in names if rate is not None}
    for given in rates.values():
        if not check_number("rate", given, positive, "leave it out for the default") > 0:
            raise InputError("rate", given, positive, "leave it out for the default")
    check_number("decay", decay, "a number >= 0", "leave it out for none", least=0.0)
    rest = size, epochs, float(decay)
    descents = [Descent(name, float(rates.get(name, OPTIMIZERS[name].rate)), *rest) for name in names]
    return descents, SquareLoss.of(model.link) if descents else None


def _store(model: Model, how: _Settings, samples: int, given: Store | str | os.PathLike[str] | None) -> Store | None:
    if given is None or isinstance(given, Store):
        return given
    if model.architecture is None:
        fix = "compile an Architecture or an SMI, or leave store out"
        raise InputError("store", given, "a declaration, by which what is kept is told apart", fix)
    settings = {"samples": samples, "scrambles": SCRAMBLES}
    return Store(given, {"command": "dynamics", **header(model.architecture, how.seed, settings)})
