"""One command on one network: what it is called with, what it will cost, and how its result is printed."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, get_type_hints

import typer
from typer.models import OptionInfo

if TYPE_CHECKING:
    from smisym.base.errors import SmisymError
    from smisym.declare.architecture import Architecture
    from smisym.declare.io import Store
    from smisym.declare.smi import SMI
    from smisym.declare.varying import Varied
    from smisym.model.compiled import Model
    from smisym.run.analysis import Plan
    from smisym.theory.maps import OverlapMap

Document = dict[str, Any]


BAD_INPUT, NOT_CONVERGED, INTERRUPTED, PIPE = 2, 3, 130, 141


# Seconds expected of a command above which it says beforehand how long it will take.
LONG = 20.0


# Evaluations of the map that thresholds take, all of them and the first one, and each alpha of a curve: seconds over
# those of one evaluation as they are told beforehand, one and two layers, untied ones and z^2, 1024 to 65536 samples;
# of curves 10 and more where there are five alphas, 2 where there are 27.
EVALUATIONS, STAGE_EVALUATIONS, POINT_EVALUATIONS = (3, 15), (0.3, 3), (1, 10)
# The same of following all branches.
BRANCH_EVALUATIONS = (20, 150)


# Of an answer with an accuracy: evaluations of the map that has as many samples as it takes.
LAST_EVALUATIONS = (1, 4)


# Error of a threshold of two layers at the samples of the first try, and the power of their number with which it falls.
FIRST_ERROR, FALLS = 6e-3, 0.7


# Few enough that the demo takes half a minute on two cores, and enough that all points of its curve are known.
DEMO_SAMPLES = 4096


# Of the inner integrals; it leaves less than 1e-4 in the overlap map of two layers.
DEMO_RTOL = 3e-2


_COUNTABLE = 1e15


COMMANDS: dict[str, Callable[..., None]] = {}


@functools.cache
def options_of(command: str) -> dict[str, str]:
    """Options of a command by the names of its parameters, {"samples": "--samples"}."""
    found = {}
    for name, hint in get_type_hints(COMMANDS[command], include_extras=True).items():
        declared = [info for info in getattr(hint, "__metadata__", ()) if isinstance(info, OptionInfo)]
        if declared:
            names = [word for word in declared[0].param_decls or () if word.startswith("--")]
            found[name] = names[0] if names else f"--{name.replace('_', '-')}"
    return found


def fail(message: str, code: int) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)


@dataclass(frozen=True)
class Asked:
    """How well one command is to be done.

    worth: samples that one evaluation is worth where nothing is said.  samples, scrambles, accuracy, most_samples: as
    given.
    """

    worth: int
    samples: int | None = None
    scrambles: int | None = None
    accuracy: float | None = None
    most_samples: int | None = None

    @property
    def aim(self) -> dict[str, Any]:
        return {"accuracy": self.accuracy, "most_samples": self.most_samples}

    def settings(self, model: Model) -> dict[str, Any]:
        """What results depend on.  Raises InputError where it does not fit together."""
        from smisym.theory.aim import aimed
        from smisym.theory.effort import affordable, usual_scrambles

        scrambles = usual_scrambles(model) if self.scrambles is None else self.scrambles
        samples = affordable(model, self.worth) if self.samples is None else self.samples
        if self.accuracy is None and self.most_samples is None:
            return {"samples": samples, "scrambles": scrambles}
        omap, aim = aimed(model, self.accuracy, self.most_samples, samples=self.samples, scrambles=scrambles)
        own = {} if aim is None else {"rtol": omap.rtol, **aim.settings()}
        return {"samples": omap.samples, "scrambles": scrambles, **own}


@dataclass(frozen=True)
class _Task:
    """One command on one network: what every result of it says, and where its parts are kept."""

    model: Model
    header: dict[str, Any]
    store: Store | None
    as_json: bool

    @property
    def declared(self) -> Architecture | SMI:
        """As it was read."""
        declared = self.model.architecture
        assert declared is not None
        return declared

    def overlap_map(self, workers: int | None) -> OverlapMap:
        from smisym.theory.maps import overlap_map

        settings = self.header["settings"]
        accuracy = {name: settings[name] for name in ("samples", "scrambles", "rtol") if name in settings}
        return overlap_map(self.model, seed=self.header["seed"], workers=workers, store=self.store, **accuracy)

    def analyze(
        self, folder: str, plan: Plan, workers: int | None, published: dict[str, Any] | None, **aim: Any
    ) -> None:
        """aim: accuracy, most_samples of thresholds and curve."""
        from smisym.base.files import make_folder
        from smisym.run import analysis, terminal
        from smisym.run.progress import progress_bar

        omap = self.overlap_map(workers)
        place = make_folder(folder, "folder for the files")
        few, many = EVALUATIONS
        points = analysis.CURVE_POINTS if plan.alphas is None else len(plan.alphas)
        each = few / points + POINT_EVALUATIONS[0], many / points + POINT_EVALUATIONS[1]
        announce(omap, "thresholds and curve take", each, aim, points)
        done = analysis.write_all(
            omap, place, plan, self.header, store=self.store, bar=progress_bar,
            published=published, **aim,
        )  # fmt: skip
        self.finish(
            {key: done[key] for key in ("folder", "files", "thresholds", "points", "gamp")}, done["results"],
            lambda document: terminal.print_analysis(document, done),
        )  # fmt: skip

    def finish(self, document: Document, results: Sequence[str], show: Callable[[Document], object]) -> None:
        """Print the document, as JSON or as ``show`` shows it; exit code 3 unless all results are a success."""
        from smisym.base.solution import Result, worst
        from smisym.declare.io import to_json
        from smisym.report import wording
        from smisym.run import unasked

        result = worst([Result(code) for code in results])
        if self.as_json:
            labels = {"labels": self.model.labels}
            typer.echo(to_json(self.header | labels | document | {"result": result}))
        else:
            show(document)
        # Not before all was shown: an interrupt on the way loses nothing.
        unasked.forget()
        if not result.ok:
            bad = sum(code != Result.SUCCESS.value for code in results)
            advice = wording.of_result(
                result, options_of(self.header["command"].replace("-", "_")), "accuracy" in self.header["settings"]
            )
            which = (
                f"{bad} of {len(results)} results {'is' if bad == 1 else 'are'}"
                if len(results) > 1
                else "the result is"
            )
            fail(f"smisym: {which} no success: {advice}", NOT_CONVERGED)


def announce(
    omap: OverlapMap, what: str, evaluations: tuple[float, float], aim: Mapping[str, Any], alphas: int = 1
) -> None:
    """On stderr, about how long a command will take that takes long.

    evaluations: of the map for each of so many alphas, few and many.  aim: accuracy and most_samples, or None of both.
    """
    from smisym.base.processes import WORTH
    from smisym.run.announcing import cost_of
    from smisym.run.progress import duration

    cost, accuracy = cost_of(omap), aim.get("accuracy")
    few, many = (number * alphas for number in evaluations)
    more = ""
    if accuracy is not None:
        larger = max((FIRST_ERROR / accuracy) ** (1 / FALLS), 1.0)
        larger = min(larger, (aim.get("most_samples") or math.inf) / omap.samples)
        few, many = (n + k * larger * alphas for n, k in zip((few, many), LAST_EVALUATIONS, strict=True))
        more = f" with {omap.samples} samples, and more as errors usually fall"
    if cost.seconds * few > WORTH:
        # What is known to be long need not wait for that to show.
        omap.begin_elsewhere()
    if cost.seconds * many <= LONG:
        return
    low, high = duration(max(cost.seconds * few, 1.0)), duration(cost.seconds * many)
    least = f"more than {low}" if cost.at_least else f"about {low} to {high}"
    typer.echo(f"smisym: {what} {least}: an evaluation of the map takes {cost}{more}", err=True)


def announce_gamp(model: Model, samples: float, dim: int | None, iterations: int, fewer: str) -> None:
    """The same of GAMP, each of whose iterations integrates one posterior for every sample.

    dim: of data that are yet to be drawn: InputError where they would not fit in memory.  fewer: what takes less.
    """
    from smisym.finite.samples import check_fits
    from smisym.run.announcing import cost_of
    from smisym.run.progress import duration

    if not 1 <= samples < _COUNTABLE:  # refused where the data are drawn
        return
    if dim is not None:
        check_fits(model, dim, model.prior.alpha(1, dim) * samples)
    cost = cost_of(model, int(samples), 1)
    if cost.seconds * iterations > LONG:
        whole = duration(cost.seconds * iterations)
        known = f"{whole} or more" if cost.at_least else f"up to {whole}"
        each = str(cost) if cost.seconds >= 1 or cost.at_least else "less than 1 s"
        typer.echo(f"smisym: GAMP takes {known}: at most {iterations} iterations of {each}; {fewer}", err=True)


def begin(
    command: str,
    file: str,
    seed: int,
    state: str | None,
    as_json: bool,
    settings: dict[str, Any],
    asked: Asked | None = None,
) -> _Task:
    """``asked``: of what solves on an overlap map."""
    from smisym.base.edge import check_number
    from smisym.declare.io import Store, header, load
    from smisym.model.compiled import compile
    from smisym.run import unasked

    if "rtol" in settings:  # NaN would be null in the header, and that the default
        check_number("rtol", settings["rtol"], "a positive number", "leave it out for the default")
    architecture = load(file)
    model = compile(architecture)
    if asked is not None:
        settings = asked.settings(model) | settings
    head = {"command": command, **header(architecture, seed, settings)}
    if command == "derive":
        return _Task(model, head, None, as_json)
    return _Task(model, head, unasked.keep(head) if state is None else Store(state, head), as_json)


def source_of(
    alpha: float | None, dim: int | None, data: str | None
) -> tuple[Callable[..., dict[str, Any]], dict[str, Any], Callable[[Model], float], int]:
    """What runs GAMP on the data that were asked for, the settings that name them, their number (of a model) and
    dimension."""
    from smisym.base.edge import MOST_DIM, check_alpha, check_count
    from smisym.base.errors import InputError, Words
    from smisym.declare.io import read_data
    from smisym.run import gamp_runs

    if data is None and alpha is not None and dim is not None:
        dim = check_count("dim", dim, 2, "give the dimension D", MOST_DIM)
        check_alpha(alpha, most=math.inf)  # memory is the limit of data
        run = functools.partial(gamp_runs.gamp_run, alpha=alpha, dim=dim)
        return run, {"alpha": alpha, "dim": dim}, lambda model: model.prior.samples(alpha, dim), dim
    if data is not None and alpha is None and dim is None:
        read = read_data(data)
        if read.others:
            typer.echo(f"smisym: of {data} the arrays {', '.join(read.others)} are not used: X, y and W are", err=True)
        samples, dim = (len(read.X), read.X.shape[-1]) if read.X.ndim else (0, 1)
        content = b"".join(a.tobytes() for a in (read.X, read.y, read.W) if a is not None)
        settings = {"data": {"file": data, "sha256": hashlib.sha256(content).hexdigest()}}
        run = functools.partial(gamp_runs.gamp_on_data, X=read.X, y=read.y, W=read.W)
        return run, settings, lambda model: float(samples), dim
    options = {"--alpha": alpha, "--dim": dim, "--data": data}
    given = Words(" and ".join(f"{name} {value}" for name, value in options.items() if value is not None) or "none")
    allowed = "either --alpha and --dim, or --data alone"
    raise InputError("source of the data", given, allowed, "add what is missing, or leave out the other")


def each_step(report: Callable[[dict[str, Any]], object], record: dict[str, Any]) -> None:
    """Tell of a step of GAMP; the start comes as step 0, which is none."""
    if record["step"]:
        report(record)


def declared_in(read: Sequence[Varied]) -> dict[str, tuple[float, ...]]:
    """Values by name; InputError for a name that comes twice, and for more than two."""
    from smisym.base.errors import InputError

    names = [one.name for one in read]
    if len(set(names)) < len(names) or len(names) > 2:
        raise InputError("parameters to vary", names, "one or two, each once", "leave out the others")
    return {one.name: one.values for one in read}


def finish_check(document: Document, as_json: bool) -> None:
    """Print what became of the properties of a network; exit code 3 where one fails, or none was tried."""
    from smisym.base.counting import counted
    from smisym.declare.io import to_json
    from smisym.run import terminal

    if as_json:
        typer.echo(to_json(document))
    else:
        terminal.print_check(document)
    failed = [row["property"] for row in document["properties"] if row["verdict"] == "fails"]
    if failed:
        how_many = f"{len(failed)} of {counted(len(document['properties']), 'property', 'properties')}"
        fail(f"smisym: {how_many} {'fails' if len(failed) == 1 else 'fail'}: {', '.join(failed)}", NOT_CONVERGED)
    if not document["ok"]:
        fail("smisym: no property was tried, which is no success: each was left out, and says why", NOT_CONVERGED)


def out_of_memory(options: Mapping[str, str]) -> SmisymError:
    """What is told where the system gives no more memory; ``options``: of the command, by the names of parameters."""
    from smisym.base.errors import InputError, Words

    lower = [options[name] for name in ("samples", "dim", "runs", "alpha", "workers") if name in options]
    fix = f"lower {' or '.join(lower)}" if lower else "end other programs"
    return InputError("memory", Words("more than the system gives"), "what fits in the memory that is free", fix)


def output_lost(error: OSError) -> NoReturn:
    """Exit where stdout cannot be written: without a word where its reader left, as ``| head`` does."""
    from smisym.base.files import reason, remedy

    # What is still buffered would be tried again while Python shuts down.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:
        raise SystemExit(PIPE)
    typer.echo(f"smisym: the result could not be written: {reason(error)}. To fix: {remedy(error)}.", err=True)
    raise SystemExit(BAD_INPUT)
