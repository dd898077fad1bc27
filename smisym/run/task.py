"""One command on one network: what it is called with, what it will cost, and how its result is printed."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, get_type_hints

import typer
from typer.models import OptionInfo

if TYPE_CHECKING:
    from smisym.declare.io import Store
    from smisym.model.compiled import Model
    from smisym.run.analysis import Plan
    from smisym.theory.maps import OverlapMap

Document = dict[str, Any]


BAD_INPUT, NOT_CONVERGED, INTERRUPTED, PIPE = 2, 3, 130, 141


# Seconds expected of a command above which it says beforehand how long it will take.
LONG = 20.0


# Evaluations of the map that two and three layers take; counted, and rounded generously.
EVALUATIONS = (10, 40)


STAGE_EVALUATIONS = (1, 10)


ANALYZE_EVALUATIONS = (20, 80)


# Few enough that the demo takes two minutes on two cores.
DEMO_SAMPLES = 2048


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
        from smisym.integrate.accuracy import SCRAMBLES
        from smisym.theory.aim import aimed
        from smisym.theory.effort import affordable

        scrambles = SCRAMBLES if self.scrambles is None else self.scrambles
        samples = affordable(model, self.worth) if self.samples is None else self.samples
        if self.accuracy is None and self.most_samples is None:
            return {"samples": samples, "scrambles": scrambles}
        omap, aim = aimed(model, self.accuracy, self.most_samples, samples=self.samples, scrambles=scrambles)
        return {"samples": omap.samples, "scrambles": scrambles, **({} if aim is None else aim.settings())}


@dataclass(frozen=True)
class _Task:
    """One command on one network: what every result of it says, and where its parts are kept."""

    model: Model
    header: dict[str, Any]
    store: Store | None
    as_json: bool

    def overlap_map(self, workers: int | None) -> OverlapMap:
        from smisym.theory.maps import overlap_map

        settings = self.header["settings"]
        accuracy = {name: settings[name] for name in ("samples", "scrambles", "rtol") if name in settings}
        return overlap_map(self.model, seed=self.header["seed"], workers=workers, store=self.store, **accuracy)

    def analyze(
        self, folder: str, plan: Plan, workers: int | None, published: dict[str, Any] | None, **aim: Any
    ) -> None:
        """aim: accuracy, most_samples of thresholds and curve."""
        from smisym.base.files import check_path
        from smisym.run import analysis, terminal
        from smisym.run.progress import progress_bar

        omap = self.overlap_map(workers)
        announce(omap, "thresholds and curve take", ANALYZE_EVALUATIONS, aim.get("accuracy"))
        done = analysis.write_all(
            omap, check_path(folder, "folder for the files"), plan, self.header, store=self.store, bar=progress_bar,
            published=published, **aim,
        )  # fmt: skip
        self.finish(
            {key: done[key] for key in ("folder", "files", "thresholds")}, done["results"], terminal.print_files
        )

    def finish(self, document: Document, results: Sequence[str], show: Callable[[Document], object]) -> None:
        """Print the document, as JSON or as ``show`` shows it; exit code 3 unless all results are a success."""
        from smisym.base.solution import Result, worst
        from smisym.declare.io import to_json
        from smisym.report import wording

        result = worst([Result(code) for code in results])
        if self.as_json:
            typer.echo(to_json(self.header | document | {"result": result}))
        else:
            show(document)
        if not result.ok:
            bad = sum(code != Result.SUCCESS.value for code in results)
            advice = wording.of_result(
                result, options_of(self.header["command"]), "accuracy" in self.header["settings"]
            )
            which = f"{bad} of {len(results)} results are" if len(results) > 1 else "the result is"
            fail(f"smisym: {which} no success: {advice}", NOT_CONVERGED)


def announce(omap: OverlapMap, what: str, evaluations: tuple[int, int], accuracy: float | None = None) -> None:
    """On stderr, what an evaluation of the map costs, before a command that will take long."""
    from smisym.run.cost import estimate

    cost = estimate(omap)
    few, many = evaluations
    if cost.seconds * few > LONG:
        more = "" if accuracy is None else " so, then some with as many samples as the accuracy takes"
        typer.echo(f"smisym: {cost} an evaluation of the map; {what} {few} to {many} evaluations{more}", err=True)


def announce_gamp(model: Model, samples: float, dim: int | None, iterations: int) -> None:
    """The same of GAMP, each of whose iterations integrates one posterior for every sample.

    dim: of data that are yet to be drawn: InputError where they would not fit in memory.
    """
    from smisym.finite.samples import check_fits
    from smisym.run.cost import estimate

    if not 1 <= samples < _COUNTABLE:  # refused where the data are drawn
        return
    if dim is not None:
        check_fits(model, dim, samples / dim)
    cost = estimate(model, int(samples), 1)
    if cost.seconds * iterations > LONG:
        typer.echo(f"smisym: {cost} an iteration; at most {iterations} iterations", err=True)


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
    from smisym.declare.io import Store, header, load
    from smisym.model.compiled import compile

    architecture = load(file)
    model = compile(architecture)
    if asked is not None:
        settings = settings | asked.settings(model)
    head = {"command": command, **header(architecture, seed, settings)}
    return _Task(model, head, None if state is None else Store(state, head), as_json)


def each_step(report: Callable[[dict[str, Any]], object], record: dict[str, Any]) -> None:
    """Tell of a step of GAMP; the start comes as step 0, which is none."""
    if record["step"]:
        report(record)


def check_npz(output: str) -> None:
    """Before a long run: that its estimate can be written at the end."""
    from smisym.base.errors import InputError
    from smisym.base.files import check_path

    path = check_path(output, "file for the estimate")
    if path.suffix != ".npz" or path.is_dir():
        raise InputError("output", output, "the name of a file that ends in .npz", "write -o estimate.npz")
    if not os.access(path.parent, os.W_OK):
        raise InputError("output", output, "a name in a folder that exists and can be written", "make the folder")


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
